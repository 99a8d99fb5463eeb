//! Sending: one buffer, one order.

use super::{Link, between, silence};
use crate::remote::direct::is_readable;
use crate::remote::incoming::Pending;
use crate::remote::outgoing::{
    FLUSH_BYTES, INLINE_BYTES, Out, Payload, Urgent, cut_image, encode_short, keeping_errno,
};
use crate::remote::quiet::adds_no_work;
use crate::trace;
use parking_lot::MutexGuard;
use rgpu_device::{Code, Error, Handle, RegionCursor, Result};
use rgpu_protocol::SILENCE;
use rgpu_protocol::calls::{Call, CreditReturn, FetchAnswer, ModuleData, ModuleImage};
use rgpu_protocol::frame::{HEADER_BYTES, Header, Kind, MAX_BODY, MAX_BULK};
use rgpu_protocol::transport::Ready;
use rgpu_protocol::wire::to_bytes;
use std::io::{self, IoSlice};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

/// Runs of host memory shorter than this are gathered by copying, not one by one by the kernel.
const SHORT_RUN: u64 = 1 << 10;

/// How long another thread gets, when a session ends: to read why the server is gone, to send the last calls.
const LAST_WORDS: Duration = Duration::from_millis(100);

impl Link {
    /// Puts a call into the buffer. With `pending`, an answer is expected, and the buffer is sent.
    /// Where that fails, `pending` has been completed with the error. Returns [how much work](Out::work) there is then.
    pub(in crate::remote) fn push<C: Call>(
        &self,
        call: &C,
        payload: Payload<'_>,
        pending: Option<Pending>,
    ) -> Result<u64> {
        let result = self.push_locked(call, payload, pending);
        self.send_urgent();
        result
    }

    /// Puts a posted call into the buffer whose arguments are [short](crate::remote::outgoing::is_short), as its payload is.
    #[inline]
    pub(in crate::remote) fn push_short<C: Call>(&self, call: &C, payload: &[u8]) -> Result<()> {
        let mut out = self.out.lock();
        if self.is_over() {
            drop(out);
            return self.check();
        }
        out.sequence += 1;
        if trace::is_on() {
            trace::posted(C::NUMBER, out.sequence, trace::now());
        }
        let frame = encode_short(call, out.sequence, payload.len());
        let was_empty = out.buffer.is_empty();
        out.buffer.extend_from_slice(&frame[..HEADER_BYTES + C::MIN_BYTES]);
        out.buffer.extend_from_slice(payload);
        if was_empty || out.is_full() {
            self.pushed(&mut out)?;
        }
        drop(out);
        between();
        if self.urgent_waiting.load(SeqCst) {
            self.send_urgent();
        }
        Ok(())
    }

    /// Posts a call to a stream that was [encoded](encode_short) for a payload of this length, in `N` bytes.
    #[inline]
    pub(in crate::remote) fn post_encoded<C: Call, const N: usize>(
        &self,
        stream: Handle,
        encoded: &[u8; 64],
        payload: &[u8],
    ) -> Result<()> {
        const { assert!(N <= 64) };
        let mut out = self.out.lock();
        if self.is_over() {
            drop(out);
            return self.check();
        }
        if !out.runs.take(stream) {
            out = self.next_run(out, stream)?;
        }
        out.sequence += 1;
        let sequence = out.sequence.to_le_bytes();
        let start = out.buffer.len();
        out.buffer.reserve(N + payload.len());
        // SAFETY: there is room for so many bytes, and all of them are written before the length says so.
        unsafe {
            let at = out.buffer.as_mut_ptr().add(start);
            at.cast::<[u8; N]>().copy_from_nonoverlapping(encoded.as_ptr().cast::<[u8; N]>(), 1);
            at.add(8).cast::<[u8; 8]>().write(sequence);
            at.add(N).copy_from_nonoverlapping(payload.as_ptr(), payload.len());
            out.buffer.set_len(start + N + payload.len());
        }
        if start == 0 || out.is_full() {
            self.pushed(&mut out)?;
        }
        drop(out);
        between();
        if self.urgent_waiting.load(Relaxed) {
            self.send_urgent();
        }
        let stats = self.stats;
        stats.posted_calls.fetch_add(1, Relaxed);
        stats.count_call(C::NUMBER, 0);
        Ok(())
    }

    /// The buffer has its first call in it, or is full. Leaves `errno` as it was.
    #[cold]
    pub(in crate::remote) fn pushed(&self, out: &mut Out) -> Result<()> {
        keeping_errno(|| self.send_or_arm(out))
    }

    fn send_or_arm(&self, out: &mut Out) -> Result<()> {
        if out.is_full() {
            self.write(out, &mut [])?;
            out.wait_longer();
        } else if !self.arm_service() {
            // No thread can be had to send it later.
            self.write(out, &mut [])?;
        }
        Ok(())
    }

    fn push_locked<C: Call>(&self, call: &C, payload: Payload<'_>, pending: Option<Pending>) -> Result<u64> {
        let mut out = self.out.lock();
        out.sequence += 1;
        let sequence = out.sequence;
        let asked = pending.is_some();
        match pending {
            Some(pending) => {
                if adds_no_work(C::NUMBER, &pending) {
                    out.quiet.workless += 1;
                }
                if trace::is_on() {
                    trace::asked(sequence, trace::now());
                }
                self.expect(sequence, pending)?;
            }
            None => {
                self.check()?;
                if trace::is_on() {
                    trace::posted(C::NUMBER, sequence, trace::now());
                }
            }
        }
        let work = out.work();
        let was_empty = out.buffer.is_empty();
        let start = out.buffer.len();
        out.buffer.extend_from_slice(&[0; HEADER_BYTES]);
        call.encode(&mut out.buffer);
        let length = (out.buffer.len() - start - HEADER_BYTES) as u64 + payload.len();
        if length > MAX_BODY as u64 {
            out.buffer.truncate(start);
            out.sequence -= 1;
            let e = Error::new(Code::InvalidValue, format!("The arguments of {} are too long", C::NAME));
            self.complete_call(sequence, Err(e.clone()));
            return Err(e);
        }
        let header = Header { length: length as u32, kind: Kind::Call, flags: 0, call: C::NUMBER, sequence };
        out.buffer[start..start + HEADER_BYTES].copy_from_slice(&header.to_bytes());
        let mut faulted = false;
        let bulk = payload.len() > INLINE_BYTES as u64;
        match payload {
            Payload::Bytes(bytes) if bytes.len() <= INLINE_BYTES => out.buffer.extend_from_slice(bytes),
            Payload::Bytes(bytes) => self.write(&mut out, &mut [IoSlice::new(bytes)])?,
            Payload::Host(cursor) => faulted = self.push_host(&mut out, cursor)?,
        }
        if asked {
            self.write(&mut out, &mut [])?;
            out.wait_shortly();
        } else if out.is_full() {
            self.write(&mut out, &mut [])?;
            out.wait_longer();
        } else if was_empty && !out.buffer.is_empty() && !self.arm_service() {
            // No thread can be had to send it later.
            self.write(&mut out, &mut [])?;
        }
        if bulk {
            // Whoever waits is next: bulk data does not come before another thread's call twice.
            MutexGuard::unlock_fair(out);
        }
        if faulted {
            let text = format!("{} was given host memory that cannot be read", C::NAME);
            return Err(Error::new(Code::InvalidValue, text));
        }
        Ok(work)
    }

    /// Sends memory of the program from where it lies. True where some of it could not be read, and
    /// zeros were sent instead.
    fn push_host(&self, out: &mut Out, mut cursor: RegionCursor) -> Result<bool> {
        let mut pieces: Vec<IoSlice<'_>> = Vec::new();
        let mut faulted = false;
        let inline = cursor.remaining() <= INLINE_BYTES as u64;
        if !inline && !self.transport.survives_bad_memory() && !is_readable(&cursor) {
            self.write_zeros(out, cursor.remaining() as usize)?;
            return Ok(true);
        }
        while let Some((addr, run)) = cursor.run() {
            // SAFETY: whoever made the payload vouches for the memory.
            let bytes = unsafe { std::slice::from_raw_parts(addr as *const u8, run as usize) };
            cursor.advance(run);
            if inline || run < SHORT_RUN {
                if !pieces.is_empty() {
                    faulted |= self.write_host(out, &mut pieces)?;
                }
                out.buffer.extend_from_slice(bytes);
                if !inline && out.buffer.len() >= FLUSH_BYTES {
                    self.write(out, &mut [])?;
                }
                continue;
            }
            pieces.push(IoSlice::new(bytes));
            if pieces.len() == 256 {
                faulted |= self.write_host(out, &mut pieces)?;
            }
        }
        if !pieces.is_empty() {
            faulted |= self.write_host(out, &mut pieces)?;
        }
        Ok(faulted)
    }

    /// A frame that was begun must be finished.
    fn write_zeros(&self, out: &mut Out, mut left: usize) -> Result<()> {
        let zeros = [0u8; 4096];
        while left > 0 {
            let n = left.min(zeros.len());
            self.write(out, &mut [IoSlice::new(&zeros[..n])])?;
            left -= n;
        }
        Ok(())
    }

    fn write_host(&self, out: &mut Out, pieces: &mut Vec<IoSlice<'_>>) -> Result<bool> {
        let outcome = self.write_some(out, &mut &mut pieces[..])?;
        if let Err(left) = outcome {
            self.write_zeros(out, left)?;
        }
        pieces.clear();
        Ok(outcome.is_err())
    }

    /// Sends the buffer, then the pieces.
    pub(in crate::remote) fn write(&self, out: &mut Out, pieces: &mut [IoSlice<'_>]) -> Result<()> {
        let mut rest = pieces;
        match self.write_some(out, &mut rest)? {
            Ok(()) => Ok(()),
            Err(_) => Err(self.fail("its own buffer cannot be read")),
        }
    }

    /// Sends the buffer, then the pieces. The inner error says how many bytes of the pieces were not
    /// sent because they cannot be read.
    #[allow(clippy::type_complexity)]
    fn write_some(
        &self,
        out: &mut Out,
        pieces: &mut &mut [IoSlice<'_>],
    ) -> Result<std::result::Result<(), usize>> {
        let mut sent = 0;
        let mut faulted = false;
        while sent < out.buffer.len() || !pieces.is_empty() {
            let with_pieces = !faulted && out.buffer.len() - sent < FLUSH_BYTES;
            let result = if sent == out.buffer.len() {
                self.transport.send(pieces)
            } else if pieces.is_empty() || !with_pieces {
                self.transport.send(&[IoSlice::new(&out.buffer[sent..])])
            } else {
                let mut all = Vec::with_capacity(1 + pieces.len());
                all.push(IoSlice::new(&out.buffer[sent..]));
                all.extend(pieces.iter().map(|p| IoSlice::new(p)));
                self.transport.send(&all)
            };
            match result {
                Ok(n) => {
                    self.stats.bytes_sent.fetch_add(n as u64, Relaxed);
                    let of_buffer = n.min(out.buffer.len() - sent);
                    sent += of_buffer;
                    IoSlice::advance_slices(pieces, n - of_buffer);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait_for_room()?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.raw_os_error() == Some(libc::EFAULT) && !pieces.is_empty() => {
                    if sent == out.buffer.len() {
                        break;
                    }
                    faulted = true;
                }
                Err(e) => {
                    self.read_last_words();
                    return Err(self.fail(&format!("sending failed: {e}")));
                }
            }
        }
        out.buffer.clear();
        out.batch += 1;
        let left: usize = pieces.iter().map(|p| p.len()).sum();
        Ok(if left == 0 { Ok(()) } else { Err(left) })
    }

    /// The server is gone, but may have said why.
    fn read_last_words(&self) {
        let end = Instant::now() + LAST_WORDS;
        while !self.is_over() && Instant::now() < end {
            if self.try_lead() {
                while self.has_bytes() && !self.is_over() {
                    self.read_one();
                }
                self.stop_leading();
                return;
            }
            // Whoever leads is reading them.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until there is room for sending, and reads what arrives meanwhile: the server may be
    /// waiting for room itself.
    fn wait_for_room(&self) -> Result<()> {
        let end = Instant::now() + SILENCE;
        loop {
            self.check()?;
            let leads = self.try_lead();
            if leads && self.has_buffered() {
                self.read_one();
                self.stop_leading();
                return Ok(());
            }
            let (want, time) = if leads {
                (Ready::BOTH, end.saturating_duration_since(Instant::now()))
            } else {
                // Whoever leads may stop at any time, and then it is our turn to read.
                (Ready::WRITE, Duration::from_millis(20))
            };
            let ready = match self.transport.wait(want, None, Some(time)) {
                Ok(ready) => ready,
                Err(e) => return Err(self.fail(&format!("waiting failed: {e}"))),
            };
            if leads {
                if ready.read {
                    self.read_one();
                }
                self.stop_leading();
            }
            if ready.write || ready.read {
                return Ok(());
            }
            if leads && Instant::now() >= end {
                return Err(self.fail(&silence()));
            }
        }
    }

    /// Sends the buffer.
    pub(in crate::remote) fn flush(&self) -> Result<()> {
        self.check()?;
        let mut out = self.out.lock();
        let result = if out.buffer.is_empty() { Ok(()) } else { self.write(&mut out, &mut []) };
        drop(out);
        self.send_urgent();
        result
    }

    /// Queues what the server has asked for. It must not wait for the buffer: whoever holds that may be
    /// waiting for this very answer to be executed.
    pub(in crate::remote) fn answer(&self, urgent: Urgent) {
        self.urgent.lock().push(urgent);
        self.urgent_waiting.store(true, SeqCst);
        self.send_urgent();
    }

    /// Sends queued answers, unless somebody is sending, who will.
    pub(in crate::remote) fn send_urgent(&self) {
        loop {
            between();
            if !self.urgent_waiting.load(SeqCst) {
                return;
            }
            let Some(mut out) = self.out.try_lock() else { return };
            self.urgent_waiting.store(false, SeqCst);
            // Sending may have to read, and what is read may have to be answered: the queue is not locked meanwhile.
            let queued = std::mem::take(&mut *self.urgent.lock());
            for urgent in queued {
                let sent = match &urgent {
                    Urgent::Fetched(id, bytes) => {
                        self.write_frame(&mut out, FetchAnswer::NUMBER, &id.to_le_bytes(), bytes)
                    }
                    Urgent::Credit(ordinal, bytes) => {
                        let call = CreditReturn { ordinal: *ordinal, bytes: *bytes };
                        self.write_frame(&mut out, CreditReturn::NUMBER, &to_bytes(&call), &[])
                    }
                    Urgent::Image(module, image) => {
                        let (ahead, last) = cut_image(image);
                        ahead
                            .chunks(MAX_BULK)
                            .try_for_each(|p| {
                                self.write_frame(&mut out, ModuleData::NUMBER, &module.to_le_bytes(), p)
                            })
                            .and_then(|()| {
                                self.write_frame(&mut out, ModuleImage::NUMBER, &module.to_le_bytes(), last)
                            })
                    }
                };
                if sent.is_err() {
                    return;
                }
            }
        }
    }

    /// Sends a posted call, whose arguments are encoded.
    fn write_frame(&self, out: &mut Out, call: u16, arguments: &[u8], payload: &[u8]) -> Result<()> {
        out.sequence += 1;
        let length = (arguments.len() + payload.len()) as u32;
        let header = Header { length, kind: Kind::Call, flags: 0, call, sequence: out.sequence };
        out.buffer.extend_from_slice(&header.to_bytes());
        out.buffer.extend_from_slice(arguments);
        self.stats.posted_calls.fetch_add(1, Relaxed);
        self.write(out, &mut [IoSlice::new(payload)])
    }

    /// Ends the session without waiting for the server: what cannot be sent at once is not sent.
    pub(in crate::remote) fn leave(&self) {
        // First, so that the server's closing the connection is no surprise to whoever reads.
        self.ends_now();
        // The service thread may be about to send the last calls; the process must not end under it.
        if let Some(mut out) = self.out.try_lock_for(LAST_WORDS) {
            out.sequence += 1;
            let (call, sequence) = (rgpu_protocol::calls::Goodbye::NUMBER, out.sequence);
            let header = Header { length: 0, kind: Kind::Call, flags: 0, call, sequence };
            out.buffer.extend_from_slice(&header.to_bytes());
            if let Ok(n) = self.transport.send(&[IoSlice::new(&out.buffer)]) {
                self.stats.bytes_sent.fetch_add(n as u64, Relaxed);
                self.stats.posted_calls.fetch_add(1, Relaxed);
            }
            out.buffer.clear();
        }
        self.end_quietly();
    }
}
