//! RDMA, over a reliable connection of verbs.
//!
//! Each side has a ring in registered memory, into which the other writes without its help; a number that goes with the
//! write says how many bytes have arrived. What has been read is reported the same way. Bytes are written from a buffer of
//! registered memory, or, where the session has [announced](super::Transport::announce) that memory stays where it is, straight
//! from there. The TCP connection that carried the hello stays, silent: when it hangs up, the peer has gone.
//!
//! ```text
//! registered memory: 0 ring that the peer writes | RING bytes to be written from | peer's report | ours
//! number:            high bit: only a report; else how many bytes have arrived at the ring's next place
//! ```

mod connector;
mod endpoint;
pub(in crate::transport) mod numbers;
mod region;
mod sys;

use super::interface::{Ready, Transport};
use super::kind::Kind;
use super::pass::Mapping;
use super::spin::Spin;
use super::tcp::dup_above;
use super::tcp::{Tcp, descriptor_alive, poll};
pub(super) use connector::RdmaConnector;
pub(super) use endpoint::Info;
use endpoint::{DEPTH, Endpoint, Registered};
use region::Regions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that a ring holds.
pub(super) const RING: usize = 1 << 20;
/// The most bytes of one write.
const WRITE: usize = 128 << 10;
/// Runs of announced memory of so many bytes are written from where they are.
const IN_PLACE: usize = 32 << 10;
const REPORT_IN: usize = 2 * RING;
const REPORT_OUT: usize = REPORT_IN + 64;
const MEMORY: usize = REPORT_OUT + 4096 - 64;
/// Set in the number of a report.
const REPORT: u32 = 1 << 31;
/// Marks completions of writes from announced memory, which are waited for.
const AWAITED: u64 = 1 << 63;
/// How long the first write may take.
const PROBE: Duration = Duration::from_secs(3);

const READER: u32 = 1;
const WRITER: u32 = 2;
const WATCHER: u32 = 4;

/// One end of a connection by RDMA.
pub struct Rdma {
    // In the order in which they must be dropped.
    regions: Regions,
    registered: Registered,
    endpoint: Endpoint,
    memory: Mapping,
    tcp: Tcp,
    peer: OnceLock<Info>,
    /// Bytes written to the peer's ring, and messages.
    written: AtomicU64,
    /// Requests that have not completed.
    under_way: AtomicU32,
    /// Messages sent in all.
    messages: AtomicU64,
    /// Bytes that the peer has written to our ring, and that we have read.
    arrived: AtomicU64,
    read: AtomicU64,
    /// Messages that have arrived.
    heard: AtomicU64,
    /// Bytes read, and messages heard, when we last reported.
    reported: AtomicU64,
    reported_heard: AtomicU64,
    /// Awaited writes that have completed.
    awaited: AtomicU64,
    /// One thread takes completions at a time.
    polling: Mutex<()>,
    /// One thread posts requests at a time.
    posting: Mutex<()>,
    asleep: AtomicU32,
    /// A pair of sockets for each kind of sleeper: one end is slept on, the other wakes.
    wakers: [(OwnedFd, OwnedFd); 3],
    over: AtomicBool,
    failure: OnceLock<String>,
    spin: Spin,
}

fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Rdma {
    /// What it is called.
    pub const KIND: Kind = Kind::new("rdma", "RDMA");

    /// In a hello: the client offers RDMA, and the offer's bytes say how its memory is reached. In the answer: the server has taken that; what
    /// the client needs for it, the same of the server's, follows right behind the answer.
    pub const FEATURE: u64 = 4;

    /// One end, not connected yet, beside a TCP connection, whose descriptor is duplicated. Descriptors are numbered from
    /// `lowest`, as far as they are ours to number.
    pub fn open(tcp: &Tcp, lowest: RawFd) -> io::Result<Self> {
        let endpoint = Endpoint::open(tcp.local_ip())?;
        let memory = Mapping::apart(MEMORY)?;
        let registered =
            endpoint.register(memory.base(), MEMORY, sys::ACCESS_LOCAL_WRITE | sys::ACCESS_REMOTE_WRITE)?;
        let waker = || -> io::Result<(OwnedFd, OwnedFd)> {
            let (a, b) = UnixStream::pair()?;
            a.set_nonblocking(true)?;
            b.set_nonblocking(true)?;
            Ok((high(a.into(), lowest), high(b.into(), lowest)))
        };
        Ok(Self {
            regions: Regions::default(),
            registered,
            endpoint,
            memory,
            tcp: tcp.duplicate(lowest)?,
            peer: OnceLock::new(),
            written: AtomicU64::new(0),
            under_way: AtomicU32::new(0),
            messages: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
            read: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            reported: AtomicU64::new(0),
            reported_heard: AtomicU64::new(0),
            awaited: AtomicU64::new(0),
            polling: Mutex::new(()),
            posting: Mutex::new(()),
            asleep: AtomicU32::new(0),
            wakers: [waker()?, waker()?, waker()?],
            over: AtomicBool::new(false),
            failure: OnceLock::new(),
            spin: Spin::default(),
        })
    }

    /// What the peer needs to [`Rdma::connect`].
    pub fn info(&self) -> Info {
        let mut info = self.endpoint.info();
        (info.base, info.rkey) = (self.memory.base() as u64, self.registered.rkey());
        info
    }

    /// Connects to the peer. Nothing is sent yet.
    pub fn connect(&self, peer: Info) -> io::Result<()> {
        self.endpoint.connect(&peer)?;
        self.peer.set(peer).map_err(|_| io::Error::other("it is connected already"))
    }

    /// Writes something harmless to the peer, which must have connected as well, to see whether that works.
    pub fn probe(&self) -> io::Result<()> {
        let end = Instant::now() + PROBE;
        self.post(0, (self.at(REPORT_OUT), self.registered.lkey()), 16, REPORT_IN, None)?;
        while self.under_way.load(SeqCst) > 0 {
            self.endpoint.arm();
            self.drain()?;
            if self.under_way.load(SeqCst) == 0 {
                break;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let mut fds = [libc::pollfd { fd: self.endpoint.descriptor(), events: libc::POLLIN, revents: 0 }];
            poll(&mut fds, Some(left))?;
            self.endpoint.take_events();
        }
        Ok(())
    }

    fn at(&self, offset: usize) -> u64 {
        self.memory.base() as u64 + offset as u64
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: inside our memory, aligned, and only ever used as an atomic here; the device writes whole words.
        unsafe { &*self.memory.base().add(offset).cast::<AtomicU64>() }
    }

    fn error(&self) -> io::Error {
        match self.failure.get() {
            Some(why) => io::Error::other(format!("RDMA: {why}")),
            None => io::ErrorKind::BrokenPipe.into(),
        }
    }

    fn fail(&self, why: String) {
        let _ = self.failure.set(why);
        self.over.store(true, SeqCst);
        self.wake(READER | WRITER | WATCHER);
    }

    /// Posts a write to an offset in the peer's memory. To be called with `posting` locked, or before anybody else posts.
    fn post(
        &self,
        id: u64,
        from: (u64, u32),
        length: usize,
        to: usize,
        number: Option<u32>,
    ) -> io::Result<()> {
        let Some(peer) = self.peer.get() else { return Err(io::ErrorKind::NotConnected.into()) };
        self.under_way.fetch_add(1, SeqCst);
        let to = (peer.base.wrapping_add(to as u64), peer.rkey);
        self.endpoint.write(id, from, length, to, number).inspect_err(|e| {
            self.under_way.fetch_sub(1, SeqCst);
            self.fail(format!("a write cannot be posted: {e}"));
        })
    }

    /// Takes what has completed, unless another thread is doing so.
    fn drain(&self) -> io::Result<()> {
        match self.polling.try_lock() {
            Ok(guard) => self.drain_locked(&guard),
            Err(_) => Ok(()),
        }
    }

    fn drain_locked(&self, _guard: &MutexGuard<'_, ()>) -> io::Result<()> {
        let mut some = false;
        while let Some(wc) = self.endpoint.poll()? {
            some = true;
            if wc.status != 0 {
                if !self.over.load(SeqCst) {
                    self.fail(self.endpoint.describe(wc.status));
                }
                continue;
            }
            if wc.opcode & sys::WC_RECV == 0 {
                self.under_way.fetch_sub(1, SeqCst);
                if wc.id & AWAITED != 0 {
                    self.awaited.fetch_add(1, SeqCst);
                }
                continue;
            }
            let number = u32::from_be(wc.imm);
            if number & REPORT == 0 {
                let (before, read) = (self.arrived.load(SeqCst), self.read.load(SeqCst));
                let Some(arrived) = numbers::arrived(before, read, number) else {
                    self.fail("the peer claims to have written more than there is room for".into());
                    break;
                };
                self.arrived.store(arrived, SeqCst);
                self.heard.fetch_add(1, SeqCst);
            }
            self.endpoint.post_receive()?;
        }
        if some {
            let mut who = 0;
            let asleep = self.asleep.load(SeqCst);
            if asleep & (READER | WATCHER) != 0 && self.readable() {
                who |= asleep & (READER | WATCHER);
            }
            if asleep & WRITER != 0 {
                who |= WRITER;
            }
            self.wake(who);
        }
        Ok(())
    }

    fn wake(&self, who: u32) {
        let who = who & self.asleep.fetch_and(!who, SeqCst);
        for (i, waker) in self.wakers.iter().enumerate() {
            if who & 1 << i != 0 {
                let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
                // SAFETY: sends one byte from a valid place. A full socket wakes as well.
                unsafe { libc::send(waker.1.as_raw_fd(), [1u8].as_ptr().cast(), 1, flags) };
            }
        }
    }

    /// Bytes that the peer's ring has room for, as far as it has reported; 0 too where enough messages are under way.
    fn room(&self) -> usize {
        let (read, heard) = (self.word(REPORT_IN).load(SeqCst), self.word(REPORT_IN + 8).load(SeqCst));
        let (written, messages) = (self.written.load(Relaxed), self.messages.load(Relaxed));
        let Some(room) = numbers::room(written, read, messages, heard) else {
            self.fail("the peer reports to have read more than was written".into());
            return 0;
        };
        // One request is kept for reports.
        if self.under_way.load(SeqCst) + 2 >= DEPTH { 0 } else { room }
    }

    fn readable(&self) -> bool {
        self.over.load(SeqCst) || self.arrived.load(SeqCst) > self.read.load(SeqCst)
    }

    fn writable(&self) -> bool {
        self.over.load(SeqCst) || self.room() > 0
    }

    /// Tells the peer what we have read, now and then.
    fn report(&self) -> io::Result<()> {
        let (read, heard) = (self.read.load(SeqCst), self.heard.load(SeqCst));
        let much = read - self.reported.load(SeqCst) >= RING as u64 / 4
            || heard - self.reported_heard.load(SeqCst) >= u64::from(DEPTH) / 4;
        if !much {
            return Ok(());
        }
        let _guard = lock(&self.posting);
        if self.under_way.load(SeqCst) + 1 >= DEPTH {
            // There will be another occasion: whatever is under way comes back.
            return Ok(());
        }
        // The device may still be reading the last report: then it sends this one, which is as good.
        self.word(REPORT_OUT).store(read, SeqCst);
        self.word(REPORT_OUT + 8).store(heard, SeqCst);
        self.reported.store(read, SeqCst);
        self.reported_heard.store(heard, SeqCst);
        self.post(0, (self.at(REPORT_OUT), self.registered.lkey()), 16, REPORT_IN, Some(REPORT))
    }

    /// Waits until so many awaited writes have completed.
    fn await_writes(&self, count: u64) -> io::Result<()> {
        let start = Instant::now();
        while self.awaited.load(SeqCst) < count {
            self.drain()?;
            if self.over.load(SeqCst) {
                return Err(self.error());
            }
            if start.elapsed() > Duration::from_micros(200) {
                self.sleep(Ready::WRITE, None, Some(Instant::now() + Duration::from_millis(5)), || {
                    self.awaited.load(SeqCst) >= count
                })?;
            }
        }
        Ok(())
    }

    fn sleep(
        &self,
        want: Ready,
        wake: Option<RawFd>,
        end: Option<Instant>,
        there: impl Fn() -> bool,
    ) -> io::Result<Ready> {
        let reader = if wake.is_some() { WATCHER } else { READER };
        let mine = if want.read { reader } else { 0 } | if want.write { WRITER } else { 0 };
        loop {
            self.asleep.fetch_or(mine, SeqCst);
            self.endpoint.arm();
            // Whatever completed before that must be taken by somebody now.
            self.drain_locked(&lock(&self.polling))?;
            let now = |wake| Ready {
                read: want.read && self.readable(),
                write: want.write && self.writable(),
                wake,
            };
            let found = now(false);
            if found != Ready::default() || there() {
                self.asleep.fetch_and(!mine, SeqCst);
                return Ok(found);
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let readable = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            let sleeper =
                |who: u32, i: usize| if mine & who != 0 { self.wakers[i].0.as_raw_fd() } else { -1 };
            let mut fds = [
                libc::pollfd { fd: self.tcp.descriptor(), events: libc::POLLRDHUP, revents: 0 },
                readable(self.endpoint.descriptor()),
                readable(sleeper(READER, 0)),
                readable(sleeper(WRITER, 1)),
                readable(sleeper(WATCHER, 2)),
                readable(wake.unwrap_or(-1)),
            ];
            let some = poll(&mut fds, left)?;
            self.asleep.fetch_and(!mine, SeqCst);
            for (i, fd) in fds[2..5].iter().enumerate() {
                if fd.revents != 0 {
                    let mut bytes = [0u8; 64];
                    let at = self.wakers[i].0.as_raw_fd();
                    // SAFETY: receives into a valid place. What is left wakes us once more.
                    unsafe { libc::recv(at, bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) };
                }
            }
            if fds[1].revents != 0 {
                self.endpoint.take_events();
            }
            self.drain_locked(&lock(&self.polling))?;
            if fds[0].revents != 0 {
                self.over.store(true, SeqCst);
            }
            let found = now(fds[5].revents != 0);
            if found != Ready::default() || there() || !some || left.is_some_and(|l| l.is_zero()) {
                return Ok(found);
            }
        }
    }
}

fn high(fd: OwnedFd, lowest: RawFd) -> OwnedFd {
    use std::os::fd::{FromRawFd, IntoRawFd};
    if lowest == 0 {
        return fd;
    }
    // SAFETY: a fresh duplicate that nobody else owns; it is taken out of its wrapper without being closed.
    match dup_above(fd.as_raw_fd(), lowest).map(super::tcp::Descriptor::into_raw) {
        Some(raw) => {
            drop(fd);
            // SAFETY: as above.
            unsafe { OwnedFd::from_raw_fd(raw) }
        }
        None => {
            let raw = fd.into_raw_fd();
            // SAFETY: taken from its owner just now.
            unsafe { OwnedFd::from_raw_fd(raw) }
        }
    }
}

impl Transport for Rdma {
    fn send(&self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.drain()?;
        let guard = lock(&self.posting);
        let (mut sent, mut awaited) = (0, 0);
        let already = self.awaited.load(SeqCst);
        let mut pieces = pieces.iter().map(|p| &p[..]).filter(|p| !p.is_empty()).peekable();
        let mut piece: &[u8] = pieces.next().unwrap_or(&[]);
        while !piece.is_empty() {
            if self.over.load(SeqCst) {
                return Err(self.error());
            }
            let room = self.room();
            if room == 0 {
                break;
            }
            let written = self.written.load(Relaxed);
            let at = written as usize % RING;
            let most = room.min(RING - at).min(WRITE);
            let registered = if piece.len() >= IN_PLACE && most >= IN_PLACE {
                self.regions.key(&self.endpoint, piece.as_ptr() as u64, piece.len().min(most))
            } else {
                None
            };
            let mut n = 0;
            let (from, id) = if let Some(key) = &registered {
                n = piece.len().min(most);
                awaited += 1;
                ((piece.as_ptr() as u64, key.lkey()), AWAITED)
            } else {
                // As many pieces as fit into one write.
                let mut rest = piece;
                let mut following = pieces.clone();
                while n < most && !rest.is_empty() {
                    let part = rest.len().min(most - n);
                    // SAFETY: inside the part of our memory that is written from, which the peer has read as far as
                    // there is room.
                    unsafe {
                        let to = self.memory.base().add(RING + at + n);
                        std::ptr::copy_nonoverlapping(rest.as_ptr(), to, part);
                    }
                    n += part;
                    rest = &rest[part..];
                    let next_is_long =
                        |p: &&[u8]| p.len() >= IN_PLACE && self.regions.knows(p.as_ptr() as u64);
                    if rest.is_empty() && following.peek().is_none_or(|p| !next_is_long(p)) {
                        rest = following.next().unwrap_or(&[]);
                    }
                }
                ((self.at(RING + at), self.registered.lkey()), 0)
            };
            self.written.store(written + n as u64, Relaxed);
            self.messages.fetch_add(1, Relaxed);
            self.post(id, from, n, at, Some(n as u32))?;
            sent += n;
            let mut left = n;
            while left > 0 && left >= piece.len() {
                left -= piece.len();
                piece = pieces.next().unwrap_or(&[]);
            }
            piece = &piece[left..];
        }
        if awaited > 0 {
            // The memory is the caller's again when we return.
            self.await_writes(already + awaited)?;
        }
        drop(guard);
        if sent == 0 && !piece.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(sent)
    }

    fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        // SAFETY: `into` is exclusively ours.
        unsafe { self.recv_at(into.as_mut_ptr() as u64, into.len()) }
    }

    unsafe fn recv_at(&self, addr: u64, length: usize) -> io::Result<usize> {
        let over = self.over.load(SeqCst);
        self.drain()?;
        let read = self.read.load(SeqCst);
        let n = ((self.arrived.load(SeqCst) - read) as usize).min(length);
        if n == 0 {
            if !over || length == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            return if self.failure.get().is_some() { Err(self.error()) } else { Ok(0) };
        }
        let at = read as usize % RING;
        let first = n.min(RING - at);
        // SAFETY: inside our ring; the caller vouches for the destination.
        unsafe {
            std::ptr::copy_nonoverlapping(self.memory.base().add(at), addr as *mut u8, first);
            std::ptr::copy_nonoverlapping(self.memory.base(), (addr as *mut u8).add(first), n - first);
        }
        self.read.store(read + n as u64, SeqCst);
        // A failure to report is a failure of the connection, which the next call tells.
        let _ = self.report();
        Ok(n)
    }

    fn wait(&self, want: Ready, wake: Option<RawFd>, time: Option<Duration>) -> io::Result<Ready> {
        self.drain()?;
        let look = || Ready {
            read: want.read && self.readable(),
            write: want.write && self.writable(),
            wake: false,
        };
        if time == Some(Duration::ZERO) && wake.is_none() {
            if !look().read && want.read && !descriptor_alive(self.tcp.descriptor())? {
                self.over.store(true, SeqCst);
            }
            return Ok(look());
        }
        let start = Instant::now();
        if wake.is_none() {
            let mut found = Ready::default();
            let there = self.spin.look(start, true, || {
                let _ = self.drain();
                found = look();
                found != Ready::default()
            });
            if there {
                return Ok(found);
            }
        }
        let ready = self.sleep(want, wake, time.map(|t| start + t), || false)?;
        if wake.is_none() {
            self.spin.slept(start);
        }
        Ok(ready)
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

    unsafe fn announce(&self, addr: u64, length: u64) {
        self.regions.announce(addr, length);
    }

    fn retire(&self, addr: u64) {
        self.regions.retire(addr);
    }

    fn shutdown(&self) {
        self.over.store(true, SeqCst);
        self.tcp.shutdown();
        self.wake(READER | WRITER | WATCHER);
    }

    fn descriptor(&self) -> RawFd {
        self.tcp.descriptor()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let wakers = self.wakers.iter().flat_map(|(a, b)| [a.as_raw_fd(), b.as_raw_fd()]);
        wakers.chain([self.tcp.descriptor()]).collect()
    }

    fn peer(&self) -> String {
        self.tcp.peer()
    }
}

impl Drop for Rdma {
    fn drop(&mut self) {
        self.endpoint.abandon();
    }
}

#[cfg(test)]
mod tests;
