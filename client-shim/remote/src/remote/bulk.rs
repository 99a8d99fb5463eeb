//! How much bulk data is on its way to the device.
//!
//! A server that has too much undone stops reading, and then nobody's call gets through: not even one that has nothing to
//! do with the stream whose data is waiting. So it must not come to that. A thread that copies to the device waits
//! here, *before* its data takes a place in the session's order, while more than [`STREAM_WINDOW`] of its stream's or
//! [`BULK_WINDOW`] of the session's data is undone; other threads' calls go on meanwhile.
//!
//! How far a stream has got is known from synchronisations that are asked every few MiB, and that nobody waits for unless
//! a window is full.
//!
//! While a host function is outstanding nobody waits here: the stream may be waiting for what the very thread does next that
//! copies. The server's own limit does not hold then, either.

use super::incoming::Pending;
use super::link::{Link, Waiter};
use super::outgoing::Payload;
use parking_lot::Mutex;
use rgpu_device::{Done, Handle, Result, Target};
use rgpu_protocol::calls::Synchronize;
use rgpu_protocol::{BULK_WINDOW, STREAM_WINDOW};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// After so many bytes on a stream the server is asked to say when they are done.
const MARK: u64 = 8 << 20;

/// What was sent and is not known to be done.
#[derive(Default)]
pub(super) struct Bulk {
    state: Mutex<State>,
    /// Host functions that were put on a stream and have not returned, and streams that are held.
    host_funcs: AtomicUsize,
}

#[derive(Default)]
struct State {
    total: u64,
    streams: HashMap<Handle, Stream>,
    waiting: Vec<Arc<Waiter>>,
}

#[derive(Default)]
struct Stream {
    undone: u64,
    /// The part of it that was sent, and that no synchronisation has been asked for.
    unmarked: u64,
}

impl State {
    fn admits(&self, stream: Handle, bytes: u64) -> bool {
        let of_stream = self.streams.get(&stream).map_or(0, |s| s.undone);
        // What is longer than a window goes alone.
        (of_stream == 0 || of_stream + bytes <= STREAM_WINDOW)
            && (self.total == 0 || self.total + bytes <= BULK_WINDOW)
    }

    fn forget(&mut self, stream: Handle) {
        if let Some(gone) = self.streams.get_mut(&stream) {
            // Of what was asked for there will be word in any case.
            let unmarked = std::mem::take(&mut gone.unmarked);
            self.done(stream, unmarked);
        }
    }

    fn done(&mut self, stream: Handle, bytes: u64) {
        self.total -= bytes;
        if let Some(its) = self.streams.get_mut(&stream) {
            its.undone -= bytes;
            if its.undone == 0 {
                self.streams.remove(&stream);
            }
        }
    }
}

impl Bulk {
    /// A host function was put on a stream.
    pub fn host_func_begins(&self) {
        self.host_funcs.fetch_add(1, SeqCst);
    }

    /// A host function has returned.
    pub fn host_func_ends(&self) {
        let _ = self.host_funcs.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1));
    }

    /// Whether a host function is outstanding, or a stream that is held for somebody.
    pub fn awaits_host_func(&self) -> bool {
        self.host_funcs.load(SeqCst) > 0
    }

    /// A stream was destroyed.
    pub fn forget(&self, stream: Handle) {
        self.state.lock().forget(stream);
    }

    /// Streams were destroyed.
    pub fn forget_all(&self) {
        let mut state = self.state.lock();
        let streams: Vec<Handle> = state.streams.keys().copied().collect();
        streams.into_iter().for_each(|stream| state.forget(stream));
    }
}

impl Link {
    /// Waits until so many bytes may be sent for a stream, and counts them.
    pub(super) fn admit(self: &Arc<Self>, stream: Handle, bytes: u64) -> Result<()> {
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
    pub(super) fn sent(self: &Arc<Self>, stream: Handle, bytes: u64) -> Result<()> {
        let much = {
            let mut state = self.bulk.state.lock();
            let awaited = !state.waiting.is_empty();
            let its = state.streams.entry(stream).or_default();
            its.unmarked += bytes;
            its.unmarked >= MARK || awaited
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
        let call = Synchronize { target: super::convert::target(Target::Stream(stream)) };
        // A failure has called `done`.
        self.push(&call, Payload::NONE, Some(Pending::Done(done))).map(drop)
    }
}
