//! Clients on this very machine, which come over a Unix socket.

use rgpu_protocol::sys::{PeerCredentials, peer_credentials};
use rgpu_protocol::transport::local_name;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};

/// Listens for clients on this machine.
pub(crate) struct LocalListener(UnixListener);

impl LocalListener {
    /// Listens beside a TCP listener at `address`.
    pub(crate) fn bind(address: &SocketAddr) -> io::Result<Self> {
        let name = UnixAddress::from_abstract_name(local_name(address))?;
        let listener = UnixListener::bind_addr(&name)?;
        listener.set_nonblocking(true)?;
        Ok(Self(listener))
    }

    /// Accepts a client of this machine, whichever user's it is: it is asked for a token or a lease as one that comes over TCP is,
    /// and shares no memory but that of its own session. Says which process it is.
    pub(crate) fn accept(&self) -> io::Result<(OwnedFd, String)> {
        let (stream, _) = self.0.accept()?;
        let PeerCredentials { process, user } = peer_credentials(&stream)?;
        let of = if user == own_user() { String::new() } else { format!(" of user {user}") };
        Ok((stream.into(), format!("process {process}{of}")))
    }
}

fn own_user() -> u32 {
    // SAFETY: plain system call.
    unsafe { libc::geteuid() }
}

impl AsRawFd for LocalListener {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
