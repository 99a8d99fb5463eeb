//! Shared memory: a ring each way, between two processes of one machine.
//!
//! The hello crosses a Unix socket. Then the server passes a [sealed](super::pass::SEALS) memory file with both rings, and
//! a pair of sockets. From there on bytes go through the rings. Whoever is about to sleep leaves word in the ring, and
//! sleeps on a [word](futex) of the shared memory, by which the peer wakes it. (A socket would do as well, but waking by a socket
//! tells the system that who wakes is about to sleep, so that both get onto one processor, where they stay.) A thread that watches
//! a descriptor as well sleeps on a socket of its own.
//!
//! The socket of the hello stays, silent: it hangs up when the peer dies. A client that waits looks at it now and then. A
//! server has a thread that [waits for that](Transport::wait_for_hangup), which wakes the others.
//!
//! ```text
//! memory file: 0 indices, client to server | 1024 indices, server to client | 4096 bytes | 4096 + capacity bytes
//! passed:      the memory file, a socket that wakes who watches
//! ```

mod connector;
mod futex;
pub(in crate::transport) mod hostile;
mod ring;
mod words;

use super::interface::{Ready, Transport};
use super::kind::Kind;
use super::pass::{Mapping, check_memory_file, receive_descriptors, sealed_memory_file, send_descriptors};
use super::spin::Spin;
use super::tcp::{Descriptor, dup_above};
use super::tcp::{descriptor_alive, poll};
pub(super) use connector::ShmConnector;
use futex::Futex;
use ring::{INDEX_BYTES, READER, Ring, WATCHER, look_after_word};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};
use words::CAPACITY;

const HEADER: usize = 4096;
const FILE_BYTES: u64 = (HEADER + 2 * CAPACITY) as u64;
/// How many descriptors every connection passes; what follows are memory files of devices.
const PASSED: usize = 2;
/// How often a client that sleeps looks whether the server is alive.
const CLIENT_LOOKS: Duration = Duration::from_millis(200);
/// How often a server does, which a thread of its own tells.
const SERVER_LOOKS: Duration = Duration::from_secs(10);
/// How often a thread looks for room that watches a descriptor as well.
const WATCHER_LOOKS: Duration = Duration::from_millis(20);

/// One end of a connection through shared memory.
pub struct Shm {
    outgoing: Ring,
    incoming: Ring,
    /// Hangs up with the peer.
    socket: Descriptor,
    /// Readable when there is something for a watching thread.
    watch: Descriptor,
    over: AtomicBool,
    spin: Spin,
    /// How often who sleeps looks whether the peer is alive.
    looks: Duration,
    peer: String,
    _memory: Mapping,
}

/// What the server passes to the client, which needs it for its end.
pub struct Passed {
    file: OwnedFd,
    watch: OwnedFd,
}

impl Passed {
    /// Passes it over the connection's socket, with further memory files.
    pub fn send(self, socket: RawFd, files: &[RawFd]) -> io::Result<()> {
        let mut all = vec![self.file.as_raw_fd(), self.watch.as_raw_fd()];
        all.extend_from_slice(files);
        send_descriptors(socket, &all)
    }
}

fn pair() -> io::Result<[OwnedFd; 2]> {
    let (a, b) = UnixStream::pair()?;
    Ok([a.into(), b.into()])
}

fn place(fd: OwnedFd, lowest: RawFd) -> Descriptor {
    if lowest == 0 {
        return fd.into();
    }
    dup_above(fd.as_raw_fd(), lowest).unwrap_or_else(|| fd.into())
}

impl Shm {
    /// What it is called.
    pub const KIND: Kind = Kind::new("shm", "shared memory");

    /// In a hello over a Unix socket: the client can go on through shared memory. In the answer: the server passes what that
    /// needs over the socket, right behind the answer.
    pub const FEATURE: u64 = 64;

    /// In a hello over a Unix socket: the client knows shared memory of earlier builds alone, whose sleepers were woken by
    /// sockets. It would wait for what that needs.
    pub const EARLIER_FEATURE: u64 = 1;

    /// The server's end, and what the client needs for its own. `socket` is where the hello came in.
    pub fn create(socket: OwnedFd, peer: String) -> io::Result<(Self, Passed)> {
        let file = sealed_memory_file(c"rgpu-ring", FILE_BYTES)?;
        let [own, watch] = pair()?;
        let passed = Passed { file, watch };
        let shm = Self::new(&passed.file, [socket.into(), own.into()], peer, true)?;
        Ok((shm, passed))
    }

    /// The client's end, once what the server [passes](Passed) has arrived; and the further memory files. Descriptors are
    /// numbered from `lowest`. [`io::ErrorKind::WouldBlock`] where it is not there yet.
    pub fn join(socket: &impl AsRawFd, lowest: RawFd, peer: String) -> io::Result<(Self, Vec<OwnedFd>)> {
        let mut passed = receive_descriptors(socket.as_raw_fd())?;
        if passed.len() < PASSED {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the server passed too few descriptors"));
        }
        let files = passed.split_off(PASSED);
        let mut next = passed.into_iter();
        let (Some(file), Some(watch)) = (next.next(), next.next()) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        check_memory_file(file.as_raw_fd(), FILE_BYTES)?;
        let socket = dup_above(socket.as_raw_fd(), lowest.max(3)).ok_or_else(io::Error::last_os_error)?;
        let shm = Self::new(&file, [socket, place(watch, lowest)], peer, false)?;
        Ok((shm, files))
    }

    fn new(file: &OwnedFd, [socket, watch]: [Descriptor; 2], peer: String, server: bool) -> io::Result<Self> {
        let memory = Mapping::new(file.as_raw_fd(), FILE_BYTES)?;
        let base = memory.base();
        // SAFETY: all parts lie inside the mapping, which the rings live no longer than, and pages are aligned.
        let [up, down] = unsafe {
            [Ring::new(base, base.add(HEADER)), Ring::new(base.add(INDEX_BYTES), base.add(HEADER + CAPACITY))]
        };
        let (outgoing, incoming) = if server { (down, up) } else { (up, down) };
        let spin = Spin::default();
        let over = AtomicBool::new(false);
        let looks = if server { SERVER_LOOKS } else { CLIENT_LOOKS };
        Ok(Self { outgoing, incoming, socket, watch, over, spin, looks, peer, _memory: memory })
    }

    /// Where this side's threads sleep.
    fn own_futex(&self) -> Futex<'_> {
        Futex(&self.outgoing.indices().writer_futex.0)
    }

    /// Where the peer's do.
    fn peers_futex(&self) -> Futex<'_> {
        Futex(&self.incoming.indices().writer_futex.0)
    }

    /// Wakes the peer's thread that watches.
    fn wake_watcher(&self) -> io::Result<()> {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: sends one byte from a valid place.
        if unsafe { libc::send(self.watch.as_raw_fd(), [1u8].as_ptr().cast(), 1, flags) } >= 0 {
            return Ok(());
        }
        let e = io::Error::last_os_error();
        match e.raw_os_error() {
            // A full socket wakes as well; a peer that has gone is noticed otherwise.
            Some(libc::EAGAIN | libc::EPIPE | libc::ECONNRESET | libc::EINTR) => Ok(()),
            _ => Err(e),
        }
    }

    fn wake_readers(&self) -> io::Result<()> {
        let who = self.outgoing.take_readers();
        if who & READER != 0 {
            self.peers_futex().wake();
        }
        if who & WATCHER != 0 {
            self.wake_watcher()?;
        }
        Ok(())
    }

    fn wake_writer(&self) {
        if self.incoming.take_writer() {
            self.peers_futex().wake();
        }
    }

    fn readable(&self) -> bool {
        self.incoming.available().map_or(true, |n| n > 0) || self.over.load(Relaxed)
    }

    fn writable(&self) -> bool {
        self.outgoing.room().map_or(true, |n| n > 0) || self.over.load(Relaxed)
    }

    /// What there is of what is wanted.
    fn found(&self, want: Ready) -> Ready {
        Ready { read: want.read && self.readable(), write: want.write && self.writable(), wake: false }
    }

    /// Looks whether the peer is there still.
    fn look_for_hangup(&self) -> io::Result<()> {
        if !self.over.load(Relaxed) && !descriptor_alive(self.socket.as_raw_fd())? {
            self.is_over();
        }
        Ok(())
    }

    /// The connection has ended: whoever sleeps on this side wakes up.
    fn is_over(&self) {
        self.over.store(true, SeqCst);
        self.own_futex().wake();
    }

    /// Leaves word that we sleep, then sleeps unless there is something already.
    fn sleep(&self, want: Ready, end: Option<Instant>) -> io::Result<Ready> {
        let futex = self.own_futex();
        loop {
            // Before the word is left: who takes it rings afterwards.
            let seen = futex.seen();
            let leave = || {
                if want.read {
                    self.incoming.leave_reader(READER);
                }
                if want.write {
                    self.outgoing.leave_writer();
                }
            };
            let found = look_after_word(leave, || self.found(want));
            if found != Ready::default() {
                return Ok(found);
            }
            let left = end.map_or(self.looks, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(found);
            }
            futex.wait(seen, left.min(self.looks))?;
            let found = self.found(want);
            if found != Ready::default() {
                return Ok(found);
            }
            // Who has gone has rung, or else it is time to look.
            self.look_for_hangup()?;
        }
    }

    /// As [`Shm::sleep`], watching a descriptor as well.
    fn watch(&self, want: Ready, wake: RawFd, end: Option<Instant>) -> io::Result<Ready> {
        loop {
            let leave = || {
                if want.read {
                    self.incoming.leave_reader(WATCHER);
                }
            };
            let mut ready = look_after_word(leave, || self.found(want));
            if ready != Ready::default() {
                return Ok(ready);
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let looks = want.write.then_some(WATCHER_LOOKS);
            let time = left.into_iter().chain(looks).min();
            let watches = |fd: RawFd, on: bool, events| libc::pollfd {
                fd: if on { fd } else { -1 },
                events,
                revents: 0,
            };
            let mut fds = [
                watches(self.socket.as_raw_fd(), want.read || want.write, libc::POLLRDHUP),
                watches(self.watch.as_raw_fd(), want.read, libc::POLLIN),
                watches(wake, true, libc::POLLIN),
            ];
            poll(&mut fds, time)?;
            if fds[0].revents != 0 {
                self.is_over();
            }
            if fds[1].revents != 0 {
                let mut bytes = [0u8; 64];
                // SAFETY: receives into a valid place. What is left wakes us once more.
                unsafe {
                    let at = bytes.as_mut_ptr().cast();
                    libc::recv(self.watch.as_raw_fd(), at, bytes.len(), libc::MSG_DONTWAIT)
                };
            }
            ready = self.found(want);
            ready.wake = fds[2].revents != 0;
            if ready != Ready::default() || end.is_some_and(|end| Instant::now() >= end) {
                return Ok(ready);
            }
        }
    }
}

impl Transport for Shm {
    fn send(&self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        if self.over.load(Relaxed) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut rung = Ok(());
        let sent = self.outgoing.write(pieces, || {
            if let Err(e) = self.wake_readers() {
                rung = Err(e);
            }
        })?;
        rung?;
        if sent == 0 && pieces.iter().any(|p| !p.is_empty()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(sent)
    }

    fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        // SAFETY: `into` is exclusively ours.
        unsafe { self.recv_at(into.as_mut_ptr() as u64, into.len()) }
    }

    unsafe fn recv_at(&self, addr: u64, length: usize) -> io::Result<usize> {
        // Before the look into the ring, so that nothing that was written before the end is lost.
        let over = self.over.load(SeqCst);
        // SAFETY: passed on to the caller.
        let n = unsafe { self.incoming.read(addr as *mut u8, length) }?;
        if n > 0 {
            self.wake_writer();
            return Ok(n);
        }
        if over || length == 0 { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    fn wait(&self, want: Ready, wake: Option<RawFd>, time: Option<Duration>) -> io::Result<Ready> {
        if let Some(wake) = wake {
            return self.watch(want, wake, time.map(|time| Instant::now() + time));
        }
        if time == Some(Duration::ZERO) {
            let found = self.found(want);
            if !found.read && want.read {
                self.look_for_hangup()?;
                return Ok(self.found(want));
            }
            return Ok(found);
        }
        let start = Instant::now();
        if want.read || want.write {
            let mut found = Ready::default();
            let there = self.spin.look(start, true, || {
                found = self.found(want);
                found.read || found.write
            });
            if there {
                return Ok(found);
            }
        }
        let ready = self.sleep(want, time.map(|t| start + t))?;
        self.spin.slept(start);
        Ok(ready)
    }

    fn wait_for_hangup(&self, time: Option<Duration>) -> io::Result<bool> {
        let mut fds = [libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 }];
        let gone = poll(&mut fds, time)?;
        if gone {
            self.is_over();
        }
        Ok(gone)
    }

    fn is_unanswered(&self) -> bool {
        false
    }

    fn survives_bad_memory(&self) -> bool {
        false
    }

    fn shutdown(&self) {
        // SAFETY: plain system call; whoever watches polls this socket.
        unsafe { libc::shutdown(self.socket.as_raw_fd(), libc::SHUT_RDWR) };
        self.is_over();
        self.peers_futex().wake();
    }

    fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        [&self.socket, &self.watch].map(AsRawFd::as_raw_fd).to_vec()
    }

    fn peer(&self) -> String {
        self.peer.clone()
    }

    fn sends_without_system_call(&self) -> bool {
        true
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        // A peer that sleeps need not find out by itself.
        self.shutdown();
    }
}

#[cfg(test)]
mod tests;
