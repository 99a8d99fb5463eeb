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

    /// Accepts a client of the same user: memory is shared with nobody else. Says which process it is.
    /// Others are told nothing; they can still come over TCP.
    pub(crate) fn accept(&self) -> io::Result<Option<(OwnedFd, String)>> {
        let (stream, _) = self.0.accept()?;
        let who = peer_credentials(&stream)?;
        let PeerCredentials { process, user } = who;
        if !who.is_this_user() {
            tracing::warn!("process {process} of user {user} may not share memory with this server");
            return Ok(None);
        }
        Ok(Some((stream.into(), format!("process {process}"))))
    }
}

impl AsRawFd for LocalListener {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
