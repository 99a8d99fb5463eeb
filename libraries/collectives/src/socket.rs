//! Connections between ranks, which never block.

use std::io::{self, Read, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::sockopt;

/// Where our descriptors begin: out of the way of the program's own.
const LOWEST: i32 = 512;
/// A connection on which nothing comes is tried after this time, and as often again.
const PROBE: Duration = Duration::from_secs(10);

/// A connection to another rank.
#[derive(Debug)]
pub(crate) enum Socket {
    /// To another process.
    Tcp(TcpStream),
    /// Within this process.
    Local(UnixStream),
}

impl Socket {
    /// One over TCP.
    pub(crate) fn tcp(stream: TcpStream) -> io::Result<Self> {
        let stream = TcpStream::from(moved_above(stream.into()));
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        // A machine that vanishes while somebody waits for it is noticed.
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, PROBE)?;
        sockopt::set_tcp_keepintvl(&stream, PROBE)?;
        sockopt::set_tcp_keepcnt(&stream, 3)?;
        Ok(Self::Tcp(stream))
    }

    fn local(stream: UnixStream) -> io::Result<Self> {
        let stream = UnixStream::from(moved_above(stream.into()));
        stream.set_nonblocking(true)?;
        Ok(Self::Local(stream))
    }

    /// To be read from.
    pub(crate) fn reader(&self) -> impl Read + '_ {
        Reader(self)
    }

    /// Writes as much as goes.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => { stream }.write(bytes),
            Self::Local(stream) => { stream }.write(bytes),
        }
    }

    /// The peer sees its end at once, whoever else has the descriptor.
    pub(crate) fn end(&self) {
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Local(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// The address of this end.
    pub(crate) fn own_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.local_addr().ok(),
            Self::Local(_) => None,
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Local(stream) => stream.as_fd(),
        }
    }
}

struct Reader<'s>(&'s Socket);

impl Read for Reader<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self.0 {
            Socket::Tcp(stream) => { stream }.read(bytes),
            Socket::Local(stream) => { stream }.read(bytes),
        }
    }
}

/// Two ends within this process.
pub(crate) fn pair() -> io::Result<(Socket, Socket)> {
    let (a, b) = UnixStream::pair()?;
    Ok((Socket::local(a)?, Socket::local(b)?))
}

/// The same descriptor with a number that programs do not use, where there is room.
pub(crate) fn moved_above(descriptor: OwnedFd) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(&descriptor, LOWEST).unwrap_or(descriptor)
}

/// Whether it is only that nothing can be read or written yet.
pub(crate) fn is_not_yet(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
