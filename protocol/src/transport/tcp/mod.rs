//! TCP.

mod connector;

use super::interface::{Ready, Transport};
use super::kind::Kind;
use super::spin::Spin;
pub(super) use connector::TcpConnector;
use std::io;
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// So many retransmissions or window probes in a row without an answer mean a dead peer: some six seconds
/// in a local network. (TCP_USER_TIMEOUT would not do: it also ends a connection whose peer is alive, but has
/// not read for long, and that is ordinary back-pressure here.)
const UNANSWERED: u8 = 5;
/// An idle connection's probes: one every this many seconds.
const KEEPALIVE_S: libc::c_int = 5;

/// The kernel takes no more than so many bytes that it cannot send yet.
const UNSENT: libc::c_int = 512 << 10;

/// A TCP connection. Never raises SIGPIPE.
#[derive(Debug)]
pub struct Tcp {
    fd: Descriptor,
    peer: String,
    spin: Spin,
}

impl Tcp {
    /// What it is called.
    pub const KIND: Kind = Kind::new("tcp", "TCP");

    /// Connects, trying each of the address's meanings within `time` in all.
    pub fn connect(address: &str, time: Duration) -> io::Result<Self> {
        let end = Instant::now() + time;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for meaning in address.to_socket_addrs()? {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match TcpStream::connect_timeout(&meaning, left) {
                Ok(stream) => return Self::adopt(stream.into(), address.to_owned()),
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// Takes over a connected socket.
    pub fn adopt(fd: OwnedFd, peer: String) -> io::Result<Self> {
        let tcp = Self::local(fd, peer);
        tcp.option(libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
        // What waits in the kernel is ahead of whatever is urgent next.
        tcp.option(libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, UNSENT)?;
        Ok(tcp)
    }

    /// Takes over a Unix socket, which carries the hello until shared memory takes over.
    pub fn local(fd: OwnedFd, peer: String) -> Self {
        Self { fd: fd.into(), peer, spin: Spin::default() }
    }

    /// The same connection again.
    pub fn duplicate(&self, lowest: RawFd) -> io::Result<Self> {
        let fd = dup_above(self.fd.as_raw_fd(), lowest.max(3)).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { fd, peer: self.peer.clone(), spin: Spin::default() })
    }

    /// Our own address.
    pub fn local_ip(&self) -> Option<IpAddr> {
        // SAFETY: borrowed for the call alone, and not closed.
        let stream = std::mem::ManuallyDrop::new(unsafe { TcpStream::from_raw_fd(self.fd.as_raw_fd()) });
        stream.local_addr().ok().map(|a| a.ip())
    }

    /// Lets the kernel probe an idle connection, so that a peer whose packets are dropped is noticed
    /// even when nobody sends. One side's probing is enough for both.
    pub fn probe_when_idle(&self) -> io::Result<()> {
        self.option(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
        self.option(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, KEEPALIVE_S)?;
        self.option(libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, KEEPALIVE_S)?;
        self.option(libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 2)
    }

    /// Moves the descriptor to `lowest` or above, out of the way of the program's own, where the limit
    /// on descriptors leaves room.
    pub fn move_above(self, lowest: RawFd) -> Self {
        match dup_above(self.fd.as_raw_fd(), lowest) {
            Some(fd) => Self { fd, ..self },
            None => self,
        }
    }

    fn option(&self, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
        // SAFETY: `value` is an int, as all the options used here are.
        let r = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                level,
                name,
                (&raw const value).cast(),
                size_of::<libc::c_int>() as u32,
            )
        };
        if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// A descriptor inside somebody else's program, which may have closed it behind our back: closing it again
/// is no error here, where [`OwnedFd`] may abort.
#[derive(Debug)]
pub struct Descriptor(RawFd);

impl From<OwnedFd> for Descriptor {
    fn from(fd: OwnedFd) -> Self {
        Self(fd.into_raw_fd())
    }
}

impl Descriptor {
    /// Gives the number away, to be closed by somebody else.
    pub fn into_raw(self) -> RawFd {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: plain system call.
        unsafe { libc::close(self.0) };
    }
}

/// A close-on-exec duplicate numbered `lowest` or above, or as high as the limit on descriptors allows.
pub fn dup_above(fd: RawFd, lowest: RawFd) -> Option<Descriptor> {
    let mut at = lowest;
    while at > 2 {
        // SAFETY: plain system call.
        let new = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, at) };
        if new >= 0 {
            return Some(Descriptor(new));
        }
        at /= 2;
    }
    None
}

/// Whether the peer has not hung up.
pub(super) fn descriptor_alive(fd: RawFd) -> io::Result<bool> {
    let mut fds = [libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 }];
    poll(&mut fds, Some(Duration::ZERO)).map(|gone| !gone)
}

pub(super) fn poll(fds: &mut [libc::pollfd], time: Option<Duration>) -> io::Result<bool> {
    let spec = time.map(|t| libc::timespec {
        tv_sec: t.as_secs().min(1 << 30) as libc::time_t,
        tv_nsec: t.subsec_nanos().into(),
    });
    let spec = spec.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `fds` is valid for its length and `spec` is null or valid.
    let r = unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, spec, std::ptr::null()) };
    if r < 0 {
        let e = io::Error::last_os_error();
        return if e.kind() == io::ErrorKind::Interrupted { Ok(false) } else { Err(e) };
    }
    if fds.iter().any(|f| f.revents & libc::POLLNVAL != 0) {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    Ok(r > 0)
}

impl Transport for Tcp {
    fn send(&self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        // SAFETY: all zeros is a valid msghdr.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        // `IoSlice` is guaranteed to have iovec's layout; the kernel only reads.
        message.msg_iov = pieces.as_ptr().cast_mut().cast();
        message.msg_iovlen = pieces.len().min(1024) as _;
        // SAFETY: the pieces are valid for reading.
        let n =
            unsafe { libc::sendmsg(self.fd.as_raw_fd(), &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
    }

    fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        // SAFETY: `into` is exclusively ours.
        unsafe { self.recv_at(into.as_mut_ptr() as u64, into.len()) }
    }

    unsafe fn recv_at(&self, addr: u64, length: usize) -> io::Result<usize> {
        // SAFETY: the kernel checks the range; the caller vouches for what lies there.
        let n =
            unsafe { libc::recv(self.fd.as_raw_fd(), addr as *mut libc::c_void, length, libc::MSG_DONTWAIT) };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
    }

    fn wait(&self, want: Ready, wake: Option<RawFd>, time: Option<Duration>) -> io::Result<Ready> {
        let mut events = 0;
        if want.read {
            events |= libc::POLLIN | libc::POLLRDHUP;
        }
        if want.write {
            events |= libc::POLLOUT;
        }
        // A descriptor of -1 is skipped by poll; with no events a hang-up would still make it spin.
        let socket = if events == 0 { -1 } else { self.fd.as_raw_fd() };
        let mut fds = [
            libc::pollfd { fd: socket, events, revents: 0 },
            libc::pollfd { fd: wake.unwrap_or(-1), events: libc::POLLIN, revents: 0 },
        ];
        let spins = want.read && wake.is_none() && time != Some(Duration::ZERO);
        let start = Instant::now();
        let mut failed = Ok(());
        let there = spins
            && self.spin.look(start, false, || match poll(&mut fds, Some(Duration::ZERO)) {
                Ok(some) => some,
                Err(e) => {
                    failed = Err(e);
                    true
                }
            });
        failed?;
        if !there {
            let some = poll(&mut fds, time)?;
            if spins {
                self.spin.slept(start);
            }
            if !some {
                return Ok(Ready::default());
            }
        }
        let over = fds[0].revents & (libc::POLLERR | libc::POLLHUP) != 0;
        Ok(Ready {
            read: want.read && (over || fds[0].revents & (libc::POLLIN | libc::POLLRDHUP) != 0),
            write: want.write && (over || fds[0].revents & libc::POLLOUT != 0),
            wake: fds[1].revents != 0,
        })
    }

    fn wait_for_hangup(&self, time: Option<Duration>) -> io::Result<bool> {
        let mut fds = [libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 }];
        poll(&mut fds, time)
    }

    fn is_unanswered(&self) -> bool {
        // SAFETY: all zeros is a valid tcp_info.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
        // SAFETY: both are valid places for the answer.
        let r = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                (&raw mut info).cast(),
                &mut length,
            )
        };
        r == 0 && (info.tcpi_retransmits >= UNANSWERED || info.tcpi_probes >= UNANSWERED)
    }

    fn shutdown(&self) {
        // SAFETY: plain system call.
        unsafe { libc::shutdown(self.fd.as_raw_fd(), libc::SHUT_RDWR) };
    }

    fn descriptor(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    fn peer(&self) -> String {
        self.peer.clone()
    }
}
