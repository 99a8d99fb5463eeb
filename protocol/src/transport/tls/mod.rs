//! TLS 1.3 over TCP: what leaves the machine is encrypted, and the server is the one that was meant.
//!
//! One thread can receive while another sends: each has its own buffers and speaks to the socket without the other's lock. What
//! they share is the session's state ([`engine`]), which is locked for one record at a time (16 KiB at most).
//!
//! A connection's buffers are of a fixed size. What was encrypted, but not yet taken by the kernel, is kept, and reported as
//! sent when the kernel has it; so nothing lingers here when nobody sends any more.
//!
//! A connection that ends without TLS's own word for that is at its end as any other: the protocol above says by itself
//! when a session has ended, and takes anything else for a lost connection.

mod engine;
mod identity;
#[cfg(test)]
mod tests;
mod trust;

pub use identity::{AskToSign, Identity, Shown, is_certificate_verify};
pub use trust::{Fingerprint, Trust};

use super::interface::{Ready, Transport};
use super::tcp::Tcp;
use engine::{Engine, MAX_PLAIN, MAX_RECORD, Side, Step, record_length};
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use std::cell::Cell;
use std::io::{self, IoSlice};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What the first byte of a client that speaks TLS is; ours would be `R`.
pub const FIRST_BYTE: u8 = 0x16;
/// So much is encrypted before it is sent.
const CHUNK: usize = 4 * MAX_PLAIN;
/// So much is received at a time, once there is much.
const ROOM: usize = 8 * MAX_RECORD;
/// A handshake's message is at most so long; certificates are far below that.
const MAX_HANDSHAKE: usize = 4 * MAX_RECORD;

/// So many records in a row may bring nothing that a program sees: tickets, other keys, padding alone.
const MOST_EMPTY: u32 = 32;

/// What was received.
#[derive(Default)]
struct Inbound {
    /// Of the socket.
    cipher: Vec<u8>,
    start: usize,
    end: usize,
    /// Decrypted, and not yet taken: less than a record.
    plain: Vec<u8>,
    taken: usize,
    /// How many records in a row have brought nothing.
    empty: u32,
    /// Nothing more will come.
    over: bool,
}

/// What is to be sent.
#[derive(Default)]
struct Outbound {
    cipher: Vec<u8>,
    sent: usize,
    /// How many of the caller's bytes that is.
    owed: usize,
    /// Where short pieces are gathered.
    gather: Vec<u8>,
}

/// An encrypted connection. See the module's text.
pub struct Tls {
    tcp: Tcp,
    engine: Mutex<Engine>,
    inbound: Mutex<Inbound>,
    outbound: Mutex<Outbound>,
    /// There is something to take that the socket does not show.
    buffered: AtomicBool,
    server: Fingerprint,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The host of `HOST:PORT`.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

impl Inbound {
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.cipher[self.start..self.end]
    }

    /// How many bytes the next record has, if all of it is there.
    fn record(&self) -> io::Result<Option<usize>> {
        let there = self.end - self.start;
        Ok(record_length(&self.cipher[self.start..self.end])?.filter(|length| *length <= there))
    }

    fn discard(&mut self, length: usize) {
        self.start += length;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Receives what is there; 0 is the end. The buffer grows up to `most` while more comes than it has room for.
    fn receive(&mut self, tcp: &Tcp, most: usize) -> io::Result<usize> {
        if self.cipher.len() - self.start < MAX_RECORD || self.end == self.cipher.len() {
            self.cipher.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.cipher.len() {
            if self.end >= most {
                let text = "a message of the handshake is too long";
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            self.cipher.resize((2 * self.end).clamp(MAX_RECORD, most), 0);
        }
        let n = tcp.recv(&mut self.cipher[self.end..])?;
        self.end += n;
        if self.end == self.cipher.len() && self.end < most {
            self.cipher.resize((2 * self.end).min(most), 0);
        }
        Ok(n)
    }

    /// Whether something can be taken without receiving more.
    fn has_some(&self) -> bool {
        self.over || self.taken < self.plain.len() || !matches!(self.record(), Ok(None))
    }
}

impl Outbound {
    /// Sends what is encrypted; `WouldBlock` where some of it is left.
    fn flush(&mut self, tcp: &Tcp) -> io::Result<()> {
        while self.sent < self.cipher.len() {
            match tcp.send(&[IoSlice::new(&self.cipher[self.sent..])]) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.cipher.clear();
        self.sent = 0;
        Ok(())
    }
}

impl Tls {
    /// Goes on with a fresh connection to a server (`HOST:PORT`) that is to be one of those that are trusted: one round trip.
    ///
    /// # Errors
    /// In words for people: the server does not speak TLS, is another one, or does not answer until `end`.
    pub fn connect(tcp: Tcp, address: &str, trust: &Trust, end: Instant) -> io::Result<Self> {
        let (config, name) = trust.settle(host_of(address))?;
        let client = UnbufferedClientConnection::new(config, name).map_err(io::Error::other)?;
        let (engine, inbound) = shake(&tcp, Side::Client(client), end)?;
        let Some(server) = engine.peer() else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the server has shown no certificate"));
        };
        Ok(Self::begin(tcp, engine, inbound, server))
    }

    /// Goes on with a fresh connection of a client that begins with [`FIRST_BYTE`].
    ///
    /// # Errors
    /// The client doesn't speak TLS after all, doesn't like the certificate, or is too slow.
    pub fn accept(tcp: Tcp, identity: &Identity, end: Instant) -> io::Result<Self> {
        let server = UnbufferedServerConnection::new(identity.config.clone()).map_err(io::Error::other)?;
        let (engine, inbound) = shake(&tcp, Side::Server(server), end)?;
        Ok(Self::begin(tcp, engine, inbound, identity.fingerprint()))
    }

    fn begin(tcp: Tcp, engine: Engine, inbound: Inbound, server: Fingerprint) -> Self {
        Self {
            tcp,
            engine: Mutex::new(engine),
            buffered: AtomicBool::new(inbound.has_some()),
            inbound: Mutex::new(inbound),
            outbound: Mutex::default(),
            server,
        }
    }

    /// The fingerprint of the server's certificate, which both sides know.
    pub fn server(&self) -> Fingerprint {
        self.server
    }

    /// The connection below.
    pub fn tcp(&self) -> &Tcp {
        &self.tcp
    }

    /// Encrypts some of the pieces into `out`; says how many bytes.
    fn encrypt(&self, out: &mut Outbound, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let Outbound { cipher, gather, .. } = out;
        let mut done = 0;
        let mut pieces = pieces.iter().map(|piece| &piece[..]).filter(|piece| !piece.is_empty());
        let mut piece = pieces.next().unwrap_or_default();
        while done < CHUNK && !piece.is_empty() {
            if piece.len() >= MAX_PLAIN {
                let (record, rest) = piece.split_at(MAX_PLAIN);
                lock(&self.engine).encrypt(record, cipher)?;
                done += record.len();
                piece = rest;
            } else {
                gather.clear();
                while gather.len() < MAX_PLAIN && !piece.is_empty() {
                    let (part, rest) = piece.split_at(piece.len().min(MAX_PLAIN - gather.len()));
                    gather.extend_from_slice(part);
                    piece = if rest.is_empty() { pieces.next().unwrap_or_default() } else { rest };
                }
                lock(&self.engine).encrypt(gather, cipher)?;
                done += gather.len();
            }
            if piece.is_empty() {
                piece = pieces.next().unwrap_or_default();
            }
        }
        Ok(done)
    }

    /// Fills the caller's memory with what is there, receiving at most once.
    ///
    /// # Safety
    /// `addr..addr + length` is writable, and nothing that the compiler relies on lies there.
    unsafe fn receive(&self, inbound: &mut Inbound, addr: u64, length: usize) -> io::Result<usize> {
        let got = Cell::new(0);
        let put = |data: &[u8]| {
            let n = data.len().min(length - got.get());
            // SAFETY: so many bytes are left of the memory that the caller vouches for.
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), (addr as *mut u8).add(got.get()), n) };
            got.set(got.get() + n);
            n
        };
        loop {
            if inbound.taken < inbound.plain.len() {
                inbound.taken += put(&inbound.plain[inbound.taken..]);
                if inbound.taken == inbound.plain.len() {
                    inbound.plain.clear();
                    inbound.taken = 0;
                }
            }
            if got.get() == length || inbound.over {
                return Ok(got.get());
            }
            match inbound.record() {
                Ok(Some(record)) => {
                    let Inbound { cipher, plain, start, empty, .. } = &mut *inbound;
                    *empty += 1;
                    let mut sink = |data: &[u8]| {
                        if !data.is_empty() {
                            *empty = 0;
                        }
                        let n = put(data);
                        plain.extend_from_slice(&data[n..]);
                    };
                    let mut engine = lock(&self.engine);
                    let mut step = engine.decrypt(&mut cipher[*start..*start + record], &mut sink);
                    if *empty > MOST_EMPTY && step.is_ok() {
                        engine.refuse_empty();
                        let text = "the peer sends nothing but records without anything in them";
                        step = Err(io::Error::new(io::ErrorKind::InvalidData, text));
                    }
                    drop(engine);
                    inbound.discard(record);
                    match step {
                        Ok(Step::Closed) => inbound.over = true,
                        Ok(_) => {}
                        Err(e) => {
                            inbound.over = true;
                            self.send_control();
                            return Err(e);
                        }
                    }
                }
                Ok(None) if got.get() > 0 => return Ok(got.get()),
                Ok(None) => inbound.over = inbound.receive(&self.tcp, ROOM)? == 0,
                Err(e) => {
                    inbound.over = true;
                    lock(&self.engine).refuse_long(inbound.bytes());
                    self.send_control();
                    return Err(e);
                }
            }
        }
    }

    /// Sends what TLS itself has to say, such as why it ends the session, unless a thread is sending, which will.
    fn send_control(&self) {
        let Ok(mut out) = self.outbound.try_lock() else { return };
        let Ok(mut engine) = self.engine.try_lock() else { return };
        out.cipher.append(&mut engine.control);
        let _ = out.flush(&self.tcp);
    }
}

/// Sends all of it until `end`.
fn send_all(tcp: &Tcp, mut bytes: &[u8], end: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        match tcp.send(&[IoSlice::new(bytes)]) {
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => wait(tcp, Ready::WRITE, end)?,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn wait(tcp: &Tcp, want: Ready, end: Instant) -> io::Result<()> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake takes too long"));
    }
    tcp.wait(want, None, Some(left)).map(drop)
}

/// The handshake. The time limit is for all of it.
fn shake(tcp: &Tcp, side: Side, end: Instant) -> io::Result<(Engine, Inbound)> {
    let mut engine = Engine::new(side);
    let mut inbound = Inbound::default();
    let mut first = [0; 4];
    loop {
        let Inbound { cipher, start, end: filled, plain, .. } = &mut inbound;
        let (used, step) =
            engine.shake(&mut cipher[*start..*filled], &mut |data| plain.extend_from_slice(data));
        inbound.discard(used);
        let control = std::mem::take(&mut engine.control);
        if let Err(e) = step {
            let _ = tcp.send(&[IoSlice::new(&control)]);
            if first == *b"RGPU" {
                let text = "it does not encrypt: start it with `rgpu serve --tls offer`, or connect without";
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
            return Err(e);
        }
        send_all(tcp, &control, end)?;
        match step {
            Ok(Step::Closed) => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ if !engine.is_handshaking() => return Ok((engine, inbound)),
            _ => {}
        }
        match inbound.receive(tcp, MAX_HANDSHAKE) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) if first == [0; 4] => {
                let length = inbound.end.min(4);
                first[..length].copy_from_slice(&inbound.bytes()[..length]);
            }
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => wait(tcp, Ready::READ, end)?,
            Err(e) => return Err(e),
        }
    }
}

impl Transport for Tls {
    fn send(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut out = lock(&self.outbound);
        if !out.cipher.is_empty() {
            out.flush(&self.tcp)?;
            let owed = std::mem::take(&mut out.owed);
            if owed > 0 {
                if pieces.iter().map(|piece| piece.len()).sum::<usize>() < owed {
                    let text = "other bytes are sent than those that had no room";
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
                }
                return Ok(owed);
            }
        }
        let done = match self.encrypt(&mut out, pieces) {
            Ok(done) => done,
            Err(e) => {
                // The peer may not have been told why.
                let _ = out.flush(&self.tcp);
                return Err(e);
            }
        };
        match out.flush(&self.tcp) {
            Ok(()) => Ok(done),
            Err(e) => {
                out.owed = done;
                Err(e)
            }
        }
    }

    fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        // SAFETY: `into` is exclusively ours.
        unsafe { self.recv_at(into.as_mut_ptr() as u64, into.len()) }
    }

    unsafe fn recv_at(&self, addr: u64, length: usize) -> io::Result<usize> {
        let mut inbound = lock(&self.inbound);
        // SAFETY: passed on to the caller.
        let result = unsafe { self.receive(&mut inbound, addr, length) };
        self.buffered.store(inbound.has_some(), SeqCst);
        result
    }

    fn wait(&self, want: Ready, wake: Option<RawFd>, time: Option<Duration>) -> io::Result<Ready> {
        if want.read && self.buffered.load(SeqCst) {
            let rest = Ready { read: false, ..want };
            let ready = self.tcp.wait(rest, wake, Some(Duration::ZERO))?;
            return Ok(Ready { read: true, ..ready });
        }
        self.tcp.wait(want, wake, time)
    }

    fn wait_for_hangup(&self, time: Option<Duration>) -> io::Result<bool> {
        self.tcp.wait_for_hangup(time)
    }

    fn is_unanswered(&self) -> bool {
        self.tcp.is_unanswered()
    }

    fn survives_bad_memory(&self) -> bool {
        false
    }

    fn is_encrypted(&self) -> bool {
        true
    }

    fn shutdown(&self) {
        // The last word, if it can be said at once.
        if let Ok(mut out) = self.outbound.try_lock()
            && out.cipher.is_empty()
            && let Ok(mut engine) = self.engine.try_lock()
            && engine.close(&mut out.cipher).is_ok()
        {
            let _ = out.flush(&self.tcp);
        }
        self.tcp.shutdown();
    }

    fn descriptor(&self) -> RawFd {
        self.tcp.descriptor()
    }

    fn peer(&self) -> String {
        self.tcp.peer()
    }
}
