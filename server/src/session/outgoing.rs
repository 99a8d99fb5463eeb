//! What a session sends: answers and notices, whole frames at a time.

use super::tracer::Tracer;
use parking_lot::{Mutex, MutexGuard};
use rgpu_device::{Error, Result};
use rgpu_protocol::frame::{Failure, HEADER_BYTES, Header, MAX_BULK, Notice, encode_answer};
use rgpu_protocol::transport::{Ready, Transport};
use rgpu_protocol::wire::to_bytes;
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The sending side of a connection. Senders wait for room: that is the back-pressure towards the device.
pub(super) struct Outgoing {
    pub transport: Arc<dyn Transport>,
    order: Mutex<()>,
    /// Frames that go ahead of whatever is sent next.
    held: Mutex<Vec<u8>>,
    over: AtomicBool,
    /// Bytes sent to the program since the session began.
    pub sent: AtomicU64,
    /// The error of a posted call, for the next answer.
    pending: Mutex<Option<Failure>>,
    tracer: OnceLock<Tracer>,
}

impl Outgoing {
    pub(super) fn new(transport: Arc<dyn Transport>) -> Self {
        Self {
            transport,
            order: Mutex::new(()),
            held: Mutex::new(Vec::new()),
            over: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            pending: Mutex::new(None),
            tracer: OnceLock::new(),
        }
    }

    /// A posted call has failed. The first failure is kept until an answer takes it.
    pub(super) fn note_pending(&self, error: &Error, ordinal: u32) {
        self.pending.lock().get_or_insert_with(|| crate::convert::failure(error, ordinal));
    }

    /// Nothing is sent any more.
    pub(super) fn end(&self) {
        self.over.store(true, SeqCst);
    }

    /// Sends the answer to a call.
    pub(super) fn answer(
        &self,
        call: u16,
        sequence: u64,
        ordinal: u32,
        result: Result<impl FnOnce(&mut Vec<u8>)>,
    ) {
        if let Some(tracer) = self.tracer() {
            tracer.answers(call, sequence);
            self.send_trace(tracer);
        }
        let mut frame = Vec::with_capacity(64);
        let pending = self.pending.lock().take();
        match result {
            Ok(encode) => encode_answer(&mut frame, call, sequence, None, pending.as_ref(), encode),
            Err(e) => {
                let failure = crate::convert::failure(&e, ordinal);
                encode_answer(&mut frame, call, sequence, Some(&failure), pending.as_ref(), |_| {});
            }
        }
        self.send(&mut [IoSlice::new(&frame)]);
    }

    /// Has a notice go out with, and ahead of, whatever is sent next by whomever. Who calls this sends something soon.
    fn hold(&self, notice: Notice, sequence: u64, body: &[u8]) {
        let mut held = self.held.lock();
        held.reserve(HEADER_BYTES + body.len());
        held.extend_from_slice(&Header::notice(notice, body.len(), sequence).to_bytes());
        held.extend_from_slice(body);
    }

    /// Sends what is held now.
    pub(super) fn flush(&self) {
        if !self.held.lock().is_empty() {
            self.send(&mut []);
        }
    }

    /// From now on the client is told when its calls are executed.
    pub(super) fn trace(&self) {
        self.tracer.get_or_init(Tracer::default);
    }

    /// What records when calls are executed, if the client wants to know.
    #[inline]
    pub(super) fn tracer(&self) -> Option<&Tracer> {
        self.tracer.get()
    }

    /// Sends what was recorded.
    pub(super) fn send_trace(&self, tracer: &Tracer) {
        let records = tracer.take();
        if !records.is_empty() {
            self.notice(Notice::Trace, 0, &[&to_bytes(&records)]);
        }
    }

    /// Sends a notice.
    pub(super) fn notice(&self, notice: Notice, sequence: u64, pieces: &[&[u8]]) {
        let length = pieces.iter().map(|p| p.len()).sum();
        let header = Header::notice(notice, length, sequence).to_bytes();
        let mut all = Vec::with_capacity(1 + pieces.len());
        all.push(IoSlice::new(&header));
        all.extend(pieces.iter().filter(|p| !p.is_empty()).map(|p| IoSlice::new(p)));
        self.send(&mut all);
    }

    /// Shows that the server is alive, unless something is being sent anyway.
    pub(super) fn heartbeat(&self) {
        if let Some(guard) = self.order.try_lock() {
            drop(guard);
            self.notice(Notice::Heartbeat, 0, &[]);
        }
    }

    /// Tells the client why the session ends, as far as that goes without waiting for long.
    pub(super) fn goodbye(&self, reason: &str) {
        if let Some(_guard) = self.order.try_lock_for(Duration::from_millis(200)) {
            let body = to_bytes(&Failure::new(rgpu_device::Code::SystemNotReady as u32, u32::MAX, reason));
            let header = Header::notice(Notice::Goodbye, body.len(), 0).to_bytes();
            let _ = self.transport.send(&[IoSlice::new(&header), IoSlice::new(&body)]);
        }
        self.end();
    }

    fn send(&self, pieces: &mut [IoSlice<'_>]) {
        let guard = self.order.lock();
        let held = std::mem::take(&mut *self.held.lock());
        if !held.is_empty() {
            let mut all = Vec::with_capacity(1 + pieces.len());
            all.push(IoSlice::new(&held));
            all.extend(pieces.iter().map(|piece| IoSlice::new(piece)));
            self.send_now(&mut all);
        } else {
            self.send_now(pieces);
        }
        // Whoever waits is next: bulk data does not come before an answer twice.
        MutexGuard::unlock_fair(guard);
    }

    /// To be called with the turn to send.
    fn send_now(&self, pieces: &mut [IoSlice<'_>]) {
        let mut rest = pieces;
        while !rest.is_empty() && !self.over.load(Relaxed) {
            match self.transport.send(rest) {
                Ok(n) => {
                    self.sent.fetch_add(n as u64, Relaxed);
                    IoSlice::advance_slices(&mut rest, n);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    // Looks up now and then, to see whether the session is over.
                    let _ = self.transport.wait(Ready::WRITE, None, Some(Duration::from_secs(1)));
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    // The reader sees it too, and ends the session.
                    self.end();
                    self.transport.shutdown();
                }
            }
        }
    }
}

/// Called when a copy's bytes were sent, or will be before anything else is.
pub(super) type Sent = Box<dyn FnOnce(Result<()>) + Send>;

/// Sends the bytes of a copy to the host.
pub(super) struct CopySender {
    pub out: Arc<Outgoing>,
    pub sequence: u64,
    /// Small pieces gather here.
    gathered: Vec<u8>,
    pub then: Option<Sent>,
}

/// Less than this is gathered.
const SMALL: usize = 8 << 10;
const GATHERED: usize = 64 << 10;

impl CopySender {
    pub(super) fn new(out: Arc<Outgoing>, sequence: u64, then: Sent) -> Self {
        Self { out, sequence, gathered: Vec::new(), then: Some(then) }
    }

    fn flush(&mut self) {
        if !self.gathered.is_empty() {
            self.out.notice(Notice::CopyData, self.sequence, &[&self.gathered]);
            self.gathered.clear();
        }
    }
}

impl rgpu_device::CopySink for CopySender {
    fn chunk(&mut self, pieces: &[&[u8]]) {
        for piece in pieces {
            if piece.len() < SMALL {
                self.gathered.extend_from_slice(piece);
                if self.gathered.len() >= GATHERED {
                    self.flush();
                }
                continue;
            }
            self.flush();
            for part in piece.chunks(MAX_BULK) {
                self.out.notice(Notice::CopyData, self.sequence, &[part]);
            }
        }
        // The last few bytes need no sending of their own, which might wake the client for nothing. But once this returns, the
        // stream goes on, and whoever is told that it has gone on has to have them.
        if !self.gathered.is_empty() {
            self.out.hold(Notice::CopyData, self.sequence, &self.gathered);
            self.gathered.clear();
        }
    }

    fn done(mut self: Box<Self>, result: Result<()>) {
        if let Some(then) = self.then.take() {
            then(result);
        }
    }
}
