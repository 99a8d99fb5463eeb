//! Waiting before a call takes a place in the session's order, while too much of its stream's is undone: see
//! [`bulk`](crate::remote::bulk) for bytes and [`window`](crate::remote::window) for calls.

use super::Link;
use crate::remote::bulk;
use crate::remote::convert;
use crate::remote::incoming::{Pending, Waiter};
use crate::remote::outgoing::{Out, Payload, encode_short, keeping_errno};
use crate::remote::window::{self, Run};
use crate::trace;
use parking_lot::MutexGuard;
use rgpu_device::{Done, Handle, Ordinal, Result, Target};
use rgpu_protocol::calls::{Call, Mark, Synchronize};
use rgpu_protocol::frame::HEADER_BYTES;
use rgpu_protocol::wire::{DecodeError, Wire};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Link {
    /// Waits until so many bytes may be sent for a stream, and counts them.
    pub(in crate::remote) fn admit(self: &Arc<Self>, stream: Handle, bytes: u64) -> Result<()> {
        loop {
            let mut state = self.bulk.state.lock();
            if state.admits(stream, bytes) || self.bulk.awaits_host_func() {
                state.total += bytes;
                state.streams.entry(stream).or_default().undone += bytes;
                return Ok(());
            }
            self.check()?;
            let unmarked: Vec<_> =
                state.streams.iter().filter(|(_, s)| s.unmarked > 0).map(|(s, _)| *s).collect();
            if unmarked.is_empty() {
                let waiter = Arc::new(Waiter::default());
                state.waiting.push(waiter.clone());
                drop(state);
                self.wait_for(&waiter)?;
                continue;
            }
            drop(state);
            unmarked.into_iter().try_for_each(|stream| self.mark_bytes(stream))?;
        }
    }

    /// What [`Link::admit`] has counted was sent. Asks for word of it, if it is much, or if somebody waits for that.
    pub(in crate::remote) fn sent(self: &Arc<Self>, stream: Handle, bytes: u64) -> Result<()> {
        let much = {
            let mut state = self.bulk.state.lock();
            let awaited = !state.waiting.is_empty();
            let its = state.streams.entry(stream).or_default();
            its.unmarked += bytes;
            its.unmarked >= bulk::MARK || awaited
        };
        if much { self.mark_bytes(stream) } else { Ok(()) }
    }

    fn mark_bytes(self: &Arc<Self>, stream: Handle) -> Result<()> {
        let bytes = {
            let mut state = self.bulk.state.lock();
            state.streams.get_mut(&stream).map_or(0, |s| std::mem::take(&mut s.unmarked))
        };
        if bytes == 0 {
            return Ok(());
        }
        let link = self.clone();
        let done: Done = Box::new(move |_| {
            let waiting = {
                let mut state = link.bulk.state.lock();
                state.done(stream, bytes);
                std::mem::take(&mut state.waiting)
            };
            waiting.iter().for_each(|waiter| link.wake(waiter, Ok(Vec::new())));
        });
        let call = Synchronize { target: convert::target(Target::Stream(stream)) };
        // A failure has called `done`.
        self.push(&call, Payload::NONE, Some(Pending::Done(done))).map(drop)
    }
}

impl Link {
    /// Waits until a call may be posted to a stream, and counts it.
    pub(in crate::remote) fn admit_call(&self, stream: Handle) -> Result<()> {
        let mut out = self.out.lock();
        if !out.runs.take(stream) {
            drop(self.next_run(out, stream)?);
        }
        Ok(())
    }

    /// Waits until there may be a further run of a stream's calls, and takes the first one from it.
    #[cold]
    #[inline(never)]
    pub(in crate::remote) fn next_run<'a>(
        &'a self,
        mut out: MutexGuard<'a, Out>,
        stream: Handle,
    ) -> Result<MutexGuard<'a, Out>> {
        loop {
            let was_empty = out.buffer.is_empty();
            let mut state = self.window.state.lock();
            if state.over {
                drop((state, out));
                self.check()?;
                // The session is ending; nothing is sent any more.
                return Ok(self.out.lock());
            }
            if let Some(run) = out.runs.of(stream) {
                state.end(run);
            }
            if !state.open {
                out.runs.put(Run { stream, left: u64::MAX });
                return Ok(out);
            }
            let mut admits = state.admits(stream) || self.bulk.awaits_host_func();
            if !admits {
                out.runs.all().for_each(|run| state.end(run));
                admits = state.admits(stream);
            }
            if admits {
                if state.unmarked(stream) >= window::MARK {
                    self.mark_calls(&mut out, &mut state, stream);
                }
                let run = state.begin(stream);
                state.end(&mut out.runs.put(run));
                out.runs.take(stream);
                drop(state);
                if was_empty && !out.buffer.is_empty() {
                    self.pushed(&mut out)?;
                }
                return Ok(out);
            }
            let unmarked: Vec<Handle> =
                state.streams.iter().filter(|(_, s)| s.unmarked > 0).map(|(stream, _)| *stream).collect();
            unmarked.into_iter().for_each(|stream| self.mark_calls(&mut out, &mut state, stream));
            let waiter = Arc::new(Waiter::default());
            state.waiting.push(waiter.clone());
            drop(state);
            keeping_errno(|| {
                self.write(&mut out, &mut [])?;
                drop(out);
                self.send_urgent();
                self.wait_for(&waiter)
            })?;
            out = self.out.lock();
        }
    }

    /// Asks for word of a stream's calls.
    fn mark_calls(&self, out: &mut Out, state: &mut window::Undone, stream: Handle) {
        let calls = state.take_unmarked(stream);
        if calls > 0 {
            let number = state.new_mark(stream, calls);
            self.put_mark(out, stream, number);
        }
    }

    /// Puts a mark into the buffer. Somebody else sends that.
    fn put_mark(&self, out: &mut Out, stream: Handle, number: u64) {
        out.sequence += 1;
        out.quiet.workless += 1;
        if trace::is_on() {
            trace::posted(Mark::NUMBER, out.sequence, trace::now());
        }
        let frame = encode_short(&Mark { stream, number }, out.sequence, 0);
        out.buffer.extend_from_slice(&frame[..HEADER_BYTES + Mark::MIN_BYTES]);
        self.stats.posted_calls.fetch_add(1, Relaxed);
        self.stats.count_call(Mark::NUMBER, 0);
    }

    /// The server has got to a mark.
    pub(in crate::remote) fn reached(&self, number: u64) -> std::result::Result<(), DecodeError> {
        let waiting = {
            let mut state = self.window.state.lock();
            if !state.reached(number) {
                return Err(DecodeError::Unknown { what: "mark", value: number });
            }
            std::mem::take(&mut state.waiting)
        };
        waiting.iter().for_each(|waiter| self.wake(waiter, Ok(Vec::new())));
        Ok(())
    }

    /// A stream is about to be destroyed.
    pub(in crate::remote) fn forget_calls(&self, stream: Handle) -> Result<()> {
        let mut out = self.out.lock();
        let was_empty = out.buffer.is_empty();
        let mut state = self.window.state.lock();
        if let Some(run) = out.runs.of(stream) {
            state.end(run);
        }
        let mark = state.forget(stream);
        drop(state);
        if let Some(number) = mark {
            self.put_mark(&mut out, stream, number);
            if was_empty {
                self.pushed(&mut out)?;
            }
        }
        Ok(())
    }

    /// All work of an ordinal is over, and its streams are gone.
    pub(in crate::remote) fn reset_calls(&self, ordinal: Ordinal) {
        let streams = self.errors.streams_of(ordinal);
        let waiting = {
            let mut out = self.out.lock();
            let mut state = self.window.state.lock();
            for stream in streams {
                if let Some(run) = out.runs.of(stream) {
                    state.end(run);
                }
                // Of what was marked there will be word in any case.
                let calls = state.take_unmarked(stream);
                state.done(stream, calls);
            }
            std::mem::take(&mut state.waiting)
        };
        waiting.iter().for_each(|waiter| self.wake(waiter, Ok(Vec::new())));
    }
}
