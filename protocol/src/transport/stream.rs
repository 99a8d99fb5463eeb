//! The stream of bytes with which a connection begins: it carries the hello, and the session too unless a transport takes over.
//!
//! Encryption is a layer of the stream, and not a transport of its own: a TCP connection is plain or it is inside TLS, and
//! each [connector](super::Connector) says over which of them it may run.

use super::interface::Transport;
use super::tcp::Tcp;
use super::tls::{Identity, Tls};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// What kind of stream it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    /// A Unix socket: both ends are on one machine, and belong to one user.
    Local,
    /// A TCP connection.
    Tcp,
    /// TLS over a TCP connection.
    Tls,
}

/// A stream of bytes between a client and a server.
pub enum Stream {
    /// A Unix socket.
    Local(Tcp),
    /// TCP, as it comes.
    Tcp(Tcp),
    /// TCP, encrypted.
    Tls(Box<Tls>),
}

impl Stream {
    /// Which kind it is.
    pub fn carrier(&self) -> Carrier {
        match self {
            Self::Local(_) => Carrier::Local,
            Self::Tcp(_) => Carrier::Tcp,
            Self::Tls(_) => Carrier::Tls,
        }
    }

    /// The stream as what carries frames.
    pub fn transport(&self) -> &dyn Transport {
        match self {
            Self::Local(tcp) | Self::Tcp(tcp) => tcp,
            Self::Tls(tls) => &**tls,
        }
    }

    /// The stream as what carries the session.
    pub fn into_transport(self) -> Box<dyn Transport> {
        match self {
            Self::Local(tcp) | Self::Tcp(tcp) => Box::new(tcp),
            Self::Tls(tls) => tls,
        }
    }

    /// The socket, where nothing encrypts it.
    pub fn plain(&self) -> Option<&Tcp> {
        match self {
            Self::Local(tcp) | Self::Tcp(tcp) => Some(tcp),
            Self::Tls(_) => None,
        }
    }

    /// What ties a lease's proof to the stream: the fingerprint of the server's certificate, where it is encrypted.
    pub fn binding(&self) -> Option<[u8; 32]> {
        match self {
            Self::Local(_) | Self::Tcp(_) => None,
            Self::Tls(tls) => Some(tls.server().0),
        }
    }

    /// Server: the TLS handshake over a fresh connection of a client that begins with
    /// [`FIRST_BYTE`](super::tls::FIRST_BYTE).
    ///
    /// # Errors
    /// The client does not speak TLS after all, does not like the certificate, or is too slow.
    pub fn encrypted(tcp: Tcp, identity: &Identity, end: Instant) -> io::Result<Self> {
        Tls::accept(tcp, identity, end).map(|tls| Self::Tls(Box::new(tls)))
    }

    /// Server: goes on, in another process, with the stream whose descriptor this is.
    ///
    /// # Errors
    /// The descriptor is no socket that can be used.
    pub fn resume(descriptor: OwnedFd, peer: String) -> io::Result<Self> {
        let stream = Self::adopt(descriptor, peer)?;
        if let Self::Tcp(tcp) = &stream {
            tcp.probe_when_idle()?;
        }
        Ok(stream)
    }

    /// Server: a connection that was just accepted, over a Unix socket or TCP.
    ///
    /// # Errors
    /// It is a socket of another kind.
    pub fn adopt(descriptor: OwnedFd, peer: String) -> io::Result<Self> {
        if crate::sys::is_unix_socket(&descriptor) {
            return Ok(Self::Local(Tcp::local(descriptor, peer)));
        }
        Tcp::adopt(descriptor, peer).map(Self::Tcp)
    }
}
