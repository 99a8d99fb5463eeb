//! Clients on this very machine, which come over a Unix socket and go on through shared memory.

use rgpu_protocol::transport::local_name;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};

/// Listens for clients on this machine.
pub struct LocalListener(UnixListener);

impl LocalListener {
    /// Listens beside a TCP listener at `address`.
    pub fn bind(address: &SocketAddr) -> io::Result<Self> {
        let name = UnixAddress::from_abstract_name(local_name(address))?;
        let listener = UnixListener::bind_addr(&name)?;
        listener.set_nonblocking(true)?;
        Ok(Self(listener))
    }

    /// Accepts a client of the same user: memory is shared with nobody else. Says which process it is.
    /// Others are told nothing; they can still come over TCP.
    pub fn accept(&self) -> io::Result<Option<(OwnedFd, String)>> {
        let (stream, _) = self.0.accept()?;
        let stream = OwnedFd::from(stream);
        let who = peer_credentials(stream.as_raw_fd())?;
        // SAFETY: plain system call.
        let own = unsafe { libc::geteuid() };
        if who.uid != own {
            tracing::warn!("process {} of user {} may not share memory with this server", who.pid, who.uid);
            return Ok(None);
        }
        Ok(Some((stream, format!("process {}", who.pid))))
    }
}

impl AsRawFd for LocalListener {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn peer_credentials(fd: RawFd) -> io::Result<libc::ucred> {
    let mut who = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both are valid places for the answer.
    let r = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut who).cast(), &mut length)
    };
    if r == 0 { Ok(who) } else { Err(io::Error::last_os_error()) }
}

/// The user at the other end of a Unix socket.
pub fn user(fd: RawFd) -> Option<u32> {
    peer_credentials(fd).ok().map(|who| who.uid)
}

/// Whether a connection is a Unix socket.
pub fn is_local(fd: RawFd) -> bool {
    let mut domain: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: both are valid places for the answer.
    let r = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_DOMAIN, (&raw mut domain).cast(), &mut length)
    };
    r == 0 && domain == libc::AF_UNIX
}
