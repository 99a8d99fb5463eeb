//! Shared memory: a ring each way, between two processes of one machine.
//!
//! The hello crosses a Unix socket. Then the server passes a [sealed](super::pass::SEALS) memory file with both rings, and
//! two pairs of sockets. From there on bytes go through the rings; the socket only carries single bytes that wake who
//! sleeps (whoever is about to sleep leaves word in the ring), and hangs up when the peer dies.
//!
//! ```text
//! memory file: 0 indices, client to server | 1024 indices, server to client | 4096 bytes | 4096 + capacity bytes
//! passed:      the memory file, a socket that wakes who waits for room, one that wakes who watches
//! ```

mod ring;

use super::pass::{Mapping, check_memory_file, receive_descriptors, sealed_memory_file, send_descriptors};
use super::spin::{Spin, current_processor};
use super::tcp::{descriptor_alive, poll};
use super::{Descriptor, Ready, Transport, dup_above};
use ring::{CAPACITY, INDEX_BYTES, READER, Ring, WATCHER};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst, fence};
use std::time::{Duration, Instant};

const HEADER: usize = 4096;
const FILE_BYTES: u64 = (HEADER + 2 * CAPACITY) as u64;
/// How many descriptors every connection passes; what follows are memory files of devices.
const PASSED: usize = 3;

/// One end of a connection through shared memory.
pub struct Shm {
    outgoing: Ring,
    incoming: Ring,
    /// Hangs up with the peer; readable when there is something to read.
    socket: Descriptor,
    /// Readable when there is room.
    room: Descriptor,
    /// Readable when there is something for a watching thread.
    watch: Descriptor,
    over: AtomicBool,
    spin: Spin,
    peer: String,
    _memory: Mapping,
}

/// What the server passes to the client.
pub struct Offer {
    file: OwnedFd,
    ends: [OwnedFd; 2],
}

impl Offer {
    /// Passes it over the connection's socket, with further memory files.
    pub fn send(self, socket: RawFd, files: &[RawFd]) -> io::Result<()> {
        let mut all = vec![self.file.as_raw_fd(), self.ends[0].as_raw_fd(), self.ends[1].as_raw_fd()];
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
    /// The server's end, and what the client needs for its own. `socket` is where the hello came in.
    pub fn create(socket: OwnedFd, peer: String) -> io::Result<(Self, Offer)> {
        let file = sealed_memory_file(c"rgpu-ring", FILE_BYTES)?;
        let ([room, room_end], [watch, watch_end]) = (pair()?, pair()?);
        let offer = Offer { file, ends: [room_end, watch_end] };
        let shm = Self::new(&offer.file, [socket, room, watch], 0, peer, true)?;
        Ok((shm, offer))
    }

    /// The client's end, once the server's offer has arrived; and the further memory files. Descriptors are numbered from
    /// `lowest`. [`io::ErrorKind::WouldBlock`] where the offer is not there yet.
    pub fn join(socket: &OwnedFd, lowest: RawFd, peer: String) -> io::Result<(Self, Vec<OwnedFd>)> {
        let mut passed = receive_descriptors(socket.as_raw_fd())?;
        if passed.len() < PASSED {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the server passed too few descriptors"));
        }
        let files = passed.split_off(PASSED);
        let mut next = passed.into_iter();
        let (Some(file), Some(room), Some(watch)) = (next.next(), next.next(), next.next()) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        check_memory_file(file.as_raw_fd(), FILE_BYTES)?;
        let shm = Self::new(&file, [socket.try_clone()?, room, watch], lowest, peer, false)?;
        Ok((shm, files))
    }

    fn new(
        file: &OwnedFd,
        sockets: [OwnedFd; 3],
        lowest: RawFd,
        peer: String,
        server: bool,
    ) -> io::Result<Self> {
        let memory = Mapping::new(file.as_raw_fd(), FILE_BYTES)?;
        let base = memory.base();
        // SAFETY: all parts lie inside the mapping, which the rings live no longer than, and pages are aligned.
        let [up, down] = unsafe {
            [Ring::new(base, base.add(HEADER)), Ring::new(base.add(INDEX_BYTES), base.add(HEADER + CAPACITY))]
        };
        let (outgoing, incoming) = if server { (down, up) } else { (up, down) };
        let [socket, room, watch] = sockets.map(|fd| place(fd, lowest));
        let spin = Spin::default();
        let over = AtomicBool::new(false);
        Ok(Self { outgoing, incoming, socket, room, watch, over, spin, peer, _memory: memory })
    }

    /// Wakes the peer's thread at the other end of a socket.
    fn ring(&self, bell: &Descriptor) -> io::Result<()> {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: sends one byte from a valid place.
        if unsafe { libc::send(bell.as_raw_fd(), [1u8].as_ptr().cast(), 1, flags) } >= 0 {
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
        let asleep = &self.outgoing.indices().readers_asleep.0;
        if asleep.load(Relaxed) == 0 {
            return Ok(());
        }
        let who = asleep.swap(0, SeqCst);
        if who & READER != 0 {
            self.ring(&self.socket)?;
        }
        if who & WATCHER != 0 {
            self.ring(&self.watch)?;
        }
        Ok(())
    }

    fn wake_writer(&self) -> io::Result<()> {
        let asleep = &self.incoming.indices().writer_asleep.0;
        if asleep.load(Relaxed) != 0 && self.incoming.has_much_room() && asleep.swap(0, SeqCst) != 0 {
            self.ring(&self.room)?;
        }
        Ok(())
    }

    /// Tells the peer where we are; whether it was on another processor when it last waited. Where it is not, it cannot
    /// go on before we sleep.
    fn is_peer_elsewhere(&self) -> bool {
        let own = current_processor();
        self.outgoing.indices().writer_processor.0.store(own, Relaxed);
        self.incoming.indices().writer_processor.0.load(Relaxed) != own
    }

    fn readable(&self) -> bool {
        self.incoming.available().map_or(true, |n| n > 0) || self.over.load(Relaxed)
    }

    fn writable(&self) -> bool {
        self.outgoing.room().map_or(true, |n| n > 0) || self.over.load(Relaxed)
    }

    /// Takes the bytes that have woken us; false at the end of the connection.
    fn drain(bell: &Descriptor) -> bool {
        let mut bytes = [0u8; 64];
        // SAFETY: receives into a valid place. What is left wakes us once more.
        let n = unsafe {
            libc::recv(bell.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT)
        };
        n > 0 || (n < 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock)
    }

    /// Leaves word that we sleep, then sleeps unless there is something already.
    fn sleep(&self, want: Ready, wake: Option<RawFd>, end: Option<Instant>) -> io::Result<Ready> {
        let watching = wake.is_some();
        let reader = if watching { WATCHER } else { READER };
        let readers = &self.incoming.indices().readers_asleep.0;
        let writer = &self.outgoing.indices().writer_asleep.0;
        loop {
            if want.read {
                readers.fetch_or(reader, SeqCst);
            }
            if want.write {
                writer.store(1, SeqCst);
            }
            fence(SeqCst);
            let mut ready = Ready {
                read: want.read && self.readable(),
                write: want.write && self.writable(),
                wake: false,
            };
            if ready.read || ready.write {
                return Ok(ready);
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let watches = |fd: RawFd, on: bool, events| libc::pollfd {
                fd: if on { fd } else { -1 },
                events,
                revents: 0,
            };
            // Who does not read leaves the bytes on the socket alone, but sees the peer hang up.
            let bell = if want.read && !watching { libc::POLLIN } else { 0 };
            let mut fds = [
                watches(self.socket.as_raw_fd(), want.read || want.write, bell | libc::POLLRDHUP),
                watches(self.room.as_raw_fd(), want.write, libc::POLLIN),
                watches(self.watch.as_raw_fd(), want.read && watching, libc::POLLIN),
                watches(wake.unwrap_or(-1), true, libc::POLLIN),
            ];
            let some = poll(&mut fds, left)?;
            let gone = fds[0].revents & (libc::POLLHUP | libc::POLLERR | libc::POLLRDHUP) != 0;
            if gone || (fds[0].revents & libc::POLLIN != 0 && !Self::drain(&self.socket)) {
                self.over.store(true, SeqCst);
            }
            if fds[1].revents != 0 {
                Self::drain(&self.room);
            }
            if fds[2].revents != 0 {
                Self::drain(&self.watch);
            }
            ready.read = want.read && self.readable();
            ready.write = want.write && self.writable();
            ready.wake = fds[3].revents != 0;
            if ready != Ready::default() || !some || left.is_some_and(|l| l.is_zero()) {
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
            self.wake_writer()?;
            return Ok(n);
        }
        if over || length == 0 { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    fn wait(&self, want: Ready, wake: Option<RawFd>, time: Option<Duration>) -> io::Result<Ready> {
        let look = || Ready {
            read: want.read && self.readable(),
            write: want.write && self.writable(),
            wake: false,
        };
        if time == Some(Duration::ZERO) && wake.is_none() {
            let found = look();
            if !found.read && want.read && !descriptor_alive(self.socket.as_raw_fd())? {
                self.over.store(true, SeqCst);
                return Ok(look());
            }
            return Ok(found);
        }
        let start = Instant::now();
        if wake.is_none() && (want.read || want.write) && self.is_peer_elsewhere() {
            let mut found = Ready::default();
            let there = self.spin.look(start, true, || {
                found = look();
                found.read || found.write
            });
            if there {
                return Ok(found);
            }
        }
        let ready = self.sleep(want, wake, time.map(|t| start + t))?;
        if wake.is_none() {
            self.spin.slept(start);
        }
        Ok(ready)
    }

    fn wait_for_hangup(&self, time: Option<Duration>) -> io::Result<bool> {
        let mut fds = [libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 }];
        poll(&mut fds, time)
    }

    fn is_unanswered(&self) -> bool {
        false
    }

    fn survives_bad_memory(&self) -> bool {
        false
    }

    fn shutdown(&self) {
        self.over.store(true, SeqCst);
        // SAFETY: plain system call; whoever sleeps polls this socket.
        unsafe { libc::shutdown(self.socket.as_raw_fd(), libc::SHUT_RDWR) };
    }

    fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        [&self.socket, &self.room, &self.watch].map(AsRawFd::as_raw_fd).to_vec()
    }

    fn peer(&self) -> String {
        self.peer.clone()
    }

    fn kind(&self) -> super::Kind {
        super::Kind::Shm
    }
}

#[cfg(test)]
mod tests;
