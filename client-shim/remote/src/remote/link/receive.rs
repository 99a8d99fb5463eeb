//! Receiving: answers and notices.

use super::Link;
use crate::remote::convert;
use crate::remote::direct::is_writable;
use crate::remote::incoming::{CHECKED_FROM, Incoming, Pending};
use crate::remote::outgoing::Urgent;
use crate::trace;
use rgpu_device::{Code, CopySink, Error, Finding, Region, RegionCursor, Result};
use rgpu_protocol::SILENCE;
use rgpu_protocol::frame::{
    AnswerBody, CreditRecall, Failure, FetchRequest, Found, Header, Kind, MAX_BULK, Notice, runs,
};
use rgpu_protocol::reader::{FrameReader, ReadError};
use rgpu_protocol::transport::Ready;
use rgpu_protocol::wire::{DecodeError, from_bytes};
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// What has become of a copy whose bytes went there.
fn copied(cursor: &RegionCursor, result: Result<&[u8]>) -> Result<()> {
    match (result, cursor.remaining()) {
        (Err(e), _) => Err(e),
        (Ok(_), 0) => Ok(()),
        (Ok(_), n) => Err(Error::new(Code::Unknown, format!("The server sent {n} bytes too few"))),
    }
}

impl Link {
    /// Reads one frame and acts on it. To be called by the leader alone. A failure ends the session.
    pub(in crate::remote) fn read_one(&self) {
        let mut incoming = self.incoming.lock();
        if let Err(e) = self.read_frame(&mut incoming) {
            let text = match e {
                ReadError::Closed => "the server closed the connection (it was stopped, or it crashed; \
                                      its log says more)"
                    .to_owned(),
                ReadError::Io(e) if e.kind() == io::ErrorKind::TimedOut => super::silence(),
                ReadError::Io(e) => format!("receiving failed: {e}"),
                ReadError::Malformed(e) => format!("the server sent something malformed: {e}"),
            };
            self.fail(&text);
        }
    }

    fn read_frame(&self, incoming: &mut Incoming) -> std::result::Result<(), ReadError> {
        let Incoming { frames, body, counted } = incoming;
        let mut wait = || self.wait_for_bytes();
        let header = frames.header(&*self.transport, &mut wait)?;
        let length = header.length as usize;
        body.clear();
        let copy = header.kind == Kind::Notice && header.call == Notice::CopyData as u16;
        if copy {
            self.copy_data(frames, body, header)?;
        } else {
            frames.body(&*self.transport, &mut wait, length, body)?;
        }
        let received = frames.received();
        self.stats.bytes_received.fetch_add(received - *counted, Relaxed);
        *counted = received;
        match header.kind {
            Kind::Answer => {
                let parsed = AnswerBody::parse(header.flags, body)?;
                self.images_confirmed(header.sequence);
                if trace::is_on() {
                    trace::answered(header.call, header.sequence);
                }
                if let Some(pending) = &parsed.pending {
                    self.errors.note_pending(pending);
                }
                let result = match &parsed.failed {
                    Some(failure) => {
                        self.errors.note_failed(failure);
                        Err(convert::error(failure))
                    }
                    None => Ok(parsed.answer),
                };
                if !self.complete_call(header.sequence, result) {
                    let value = header.sequence;
                    return Err(DecodeError::Unknown { what: "answered call", value }.into());
                }
            }
            Kind::Notice if !copy => self.notice(header, body)?,
            Kind::Notice => {}
            Kind::Call | Kind::Part => {
                return Err(DecodeError::Unknown { what: "frame from a server", value: 0 }.into());
            }
        }
        // One large frame does not cost memory for ever.
        if body.capacity() > 256 << 10 {
            *body = Vec::new();
        }
        Ok(())
    }

    fn notice(&self, header: Header, body: &[u8]) -> std::result::Result<(), ReadError> {
        match Notice::try_from(header.call)? {
            Notice::Print => self.host.print(body),
            Notice::HostFunc => self.host.host_func(from_bytes::<u64>(body)?),
            Notice::FetchRequest => {
                let request: FetchRequest = from_bytes(body)?;
                if request.length > MAX_BULK as u64 {
                    let (length, limit) = (request.length, MAX_BULK as u64);
                    return Err(DecodeError::OverLimit { what: "fetch request", length, limit }.into());
                }
                let mut bytes = vec![0; request.length as usize];
                if self.host.fetch(request.addr, &mut bytes).is_err() {
                    bytes.clear();
                }
                self.answer(Urgent::Fetched(request.id, bytes));
            }
            Notice::SharedWrites => {
                runs(body).try_for_each(|run| run.map(drop))?;
                self.shared_writes.lock().push(body.to_vec());
            }
            Notice::Heartbeat => {}
            Notice::Goodbye => {
                let failure: Failure = from_bytes(body)?;
                self.fail(&format!("the server ended the session: {}", failure.message));
            }
            Notice::ModuleWanted => {
                let module = from_bytes::<u64>(body)?;
                if !self.send_image(module) {
                    return Err(DecodeError::Unknown { what: "wanted module", value: module }.into());
                }
            }
            Notice::CreditRecall => {
                let recall: CreditRecall = from_bytes(body)?;
                if let Some(credit) = self.credit.get() {
                    credit.recall(self, recall.ordinal, recall.bytes);
                }
            }
            Notice::Reached => self.reached(from_bytes(body)?)?,
            Notice::Found => {
                let Found { kind, count, text } = from_bytes(body)?;
                self.host.found(match kind {
                    Found::MISTAKE => Finding::Mistake(&text),
                    Found::UNREPORTED => Finding::Unreported(count),
                    Found::REMARK => Finding::Remark(&text),
                    _ => return Err(DecodeError::Unknown { what: "finding", value: kind.into() }.into()),
                });
            }
            Notice::Trace => trace::measured(from_bytes(body)?),
            // Handled where its body is read.
            Notice::CopyData => {}
        }
        Ok(())
    }

    /// Puts the few bytes of a copy where they belong, if they are here and that is one run. The call stays where it is.
    fn take_short(&self, frames: &mut FrameReader, sequence: u64, length: usize) -> bool {
        let Some(bytes) = frames.peek(length) else { return false };
        let mut state = self.state.lock();
        let Some(cursor) = state.calls.get_mut(&sequence).and_then(Pending::cursor) else { return false };
        let Some((addr, _)) = cursor.run().filter(|(_, run)| *run >= length as u64) else { return false };
        // SAFETY: whoever made the pending copy vouches for the memory; the cursor stays inside it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), addr as *mut u8, length) };
        cursor.advance(length as u64);
        drop(state);
        frames.skip(length);
        true
    }

    /// Reads the bytes of a copy to where they belong.
    fn copy_data(
        &self,
        frames: &mut FrameReader,
        body: &mut Vec<u8>,
        header: Header,
    ) -> std::result::Result<(), ReadError> {
        let mut wait = || self.wait_for_bytes();
        let sequence = header.sequence;
        let mut left = header.length as usize;
        if left < CHECKED_FROM && self.take_short(frames, sequence, left) {
            return Ok(());
        }
        let pending = self.state.lock().calls.remove(&sequence);
        let unexpected = || DecodeError::Unknown { what: "copy in progress", value: sequence };
        match pending {
            Some(mut pending @ (Pending::CopyInto(..) | Pending::CopyFor(..))) => {
                let mut failure = None;
                while left > 0 && failure.is_none() {
                    let Some(cursor) = pending.cursor() else { break };
                    let Some((addr, run)) = cursor.run() else {
                        failure = Some(ReadError::Malformed(DecodeError::TooLong { extra: left }));
                        break;
                    };
                    let n = left.min(run as usize);
                    let bad = n >= CHECKED_FROM
                        && !self.transport.survives_bad_memory()
                        && !is_writable(Region::linear(addr, n as u64));
                    if bad {
                        failure = Some(io::Error::from_raw_os_error(libc::EFAULT).into());
                        break;
                    }
                    // SAFETY: whoever made the pending copy vouches for the memory; the cursor stays
                    // inside it.
                    match unsafe { frames.body_at(&*self.transport, &mut wait, addr, n) } {
                        Ok(n) => {
                            cursor.advance(n as u64);
                            left -= n;
                        }
                        Err(e) => failure = Some(e),
                    }
                }
                match failure {
                    None => self.expect_again(sequence, pending),
                    Some(ReadError::Io(e)) if e.raw_os_error() == Some(libc::EFAULT) => {
                        // The program's mistake, not the connection's: the rest is read and dropped.
                        let at = pending.cursor().and_then(|cursor| cursor.run()).map_or(0, |run| run.0);
                        frames.body(&*self.transport, &mut wait, left, body)?;
                        self.expect_again(sequence, Pending::Copy(Box::new(Dropped)));
                        let text = format!("{at:#x} is not writable host memory");
                        self.complete(pending, Err(Error::new(Code::InvalidValue, text)));
                    }
                    Some(e) => {
                        self.expect_again(sequence, pending);
                        return Err(e);
                    }
                }
            }
            Some(Pending::Copy(mut sink)) => {
                let result = frames.body(&*self.transport, &mut wait, left, body);
                if result.is_ok() {
                    sink.chunk(&[body]);
                }
                self.expect_again(sequence, Pending::Copy(sink));
                result?;
            }
            Some(other) => {
                self.expect_again(sequence, other);
                return Err(unexpected().into());
            }
            None => return Err(unexpected().into()),
        }
        Ok(())
    }

    /// Whether frames have been received that polling the connection does not show any more.
    pub(in crate::remote) fn has_buffered(&self) -> bool {
        self.incoming.lock().frames.has_buffered()
    }

    /// Whether reading would find something at once.
    pub(in crate::remote) fn has_bytes(&self) -> bool {
        self.has_buffered()
            || self.transport.wait(Ready::READ, None, Some(Duration::ZERO)).is_ok_and(|r| r.read)
    }

    fn wait_for_bytes(&self) -> io::Result<()> {
        let end = Instant::now() + SILENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if self.transport.wait(Ready::READ, None, Some(left))?.read {
                return Ok(());
            }
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// Completes a call. False where there is none of that number.
    pub(in crate::remote) fn complete_call(&self, sequence: u64, result: Result<&[u8]>) -> bool {
        let pending = self.state.lock().calls.remove(&sequence);
        match pending {
            Some(pending) => {
                self.complete(pending, result);
                true
            }
            None => false,
        }
    }

    pub(in crate::remote) fn complete(&self, pending: Pending, result: Result<&[u8]>) {
        match pending {
            Pending::Waiter(waiter) => self.wake(&waiter, result.map(<[u8]>::to_vec)),
            Pending::Done(done) => done(result.map(|_| ())),
            Pending::Copy(sink) => sink.done(result.map(|_| ())),
            Pending::CopyInto(cursor, done) => done(copied(&cursor, result)),
            Pending::CopyFor(cursor, waiter) => {
                self.wake(&waiter, copied(&cursor, result).map(|()| Vec::new()))
            }
        }
    }
}

/// Takes what is left of a copy whose destination has vanished.
struct Dropped;

impl CopySink for Dropped {
    fn chunk(&mut self, _pieces: &[&[u8]]) {}
    fn done(self: Box<Self>, _result: Result<()>) {}
}
