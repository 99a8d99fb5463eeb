//! The client's way to a server, until one of the [connectors](super::Connector) has something to offer over it.

use super::error::ConnectError;
use super::kind::Kind;
use super::settings::{TRANSPORT_VARIABLE, local_name};
use super::stream::{Carrier, Stream};
use super::tcp::Tcp;
use super::tls::{Tls, Trust};
use crate::stats::Stats;
use crate::sys::{PeerCredentials, peer_credentials};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::fd::{OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixStream};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// That what leaves the machine is encrypted, and by what the server is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encrypt {
    /// By what the server is known; without it no server on another machine is used.
    pub trust: Option<Trust>,
    /// Why there is nothing to know it by, and what to do.
    pub missing: String,
}

/// A server that is to be reached, and the streams to it that are open already: connectors that decline one after the other
/// share a stream.
pub struct Dial<'a> {
    /// Where the server listens, as `HOST:PORT`.
    pub address: &'a str,
    /// Descriptors are numbered from here, where the limit on descriptors leaves room.
    pub lowest_descriptor: RawFd,
    /// When connecting has to be over.
    pub end: Instant,
    /// Whether the connector was asked for by name, so that nothing else is used in its place.
    pub by_name: bool,
    /// Whether the stream through the network is encrypted.
    pub encrypt: Option<&'a Encrypt>,
    /// Where round trips are counted.
    pub stats: &'a Stats,
    network: Option<Stream>,
}

impl<'a> Dial<'a> {
    /// Nothing is connected yet.
    pub fn new(
        address: &'a str,
        lowest_descriptor: RawFd,
        end: Instant,
        by_name: bool,
        encrypt: Option<&'a Encrypt>,
        stats: &'a Stats,
    ) -> Self {
        Self { address, lowest_descriptor, end, by_name, encrypt, stats, network: None }
    }

    /// A Unix socket to the server, if that is on this machine and its user is ours, for what is to run over it. Nobody waits
    /// for the server to accept.
    ///
    /// # Errors
    /// [`ConnectError::NotHere`] where no such server listens.
    pub fn local(&self, kind: Kind) -> Result<Stream, ConnectError> {
        let Some(socket) = open_local(self.address) else {
            return Err(ConnectError::NotHere(format!(
                "No server for {} offers {} on this machine; is `rgpu serve` running here, \
                 as a service or for the same user? (Without {TRANSPORT_VARIABLE} or --transport, TCP would be used)",
                self.address,
                kind.title()
            )));
        };
        let tcp = Tcp::local(socket, self.address.to_owned());
        Ok(Stream::Local(tcp.move_above(self.lowest_descriptor)))
    }

    /// The stream through the network: TCP, encrypted where that is wanted. It is opened at the first call: one round trip, and
    /// another one for TLS.
    ///
    /// # Errors
    /// The server cannot be reached, or it is not known by what to recognise it.
    pub fn network(&mut self) -> Result<&Stream, ConnectError> {
        let stream = match self.network.take() {
            Some(stream) => stream,
            None => self.open_network()?,
        };
        Ok(self.network.insert(stream))
    }

    /// [`Dial::network`], for whoever goes on with it.
    ///
    /// # Errors
    /// Likewise.
    pub fn take_network(&mut self) -> Result<Stream, ConnectError> {
        match self.network.take() {
            Some(stream) => Ok(stream),
            None => self.open_network(),
        }
    }

    /// Which kind of stream [`Dial::network`] is.
    pub fn network_carrier(&self) -> Carrier {
        if self.encrypt.is_some() { Carrier::Tls } else { Carrier::Tcp }
    }

    fn open_network(&self) -> Result<Stream, ConnectError> {
        let trust = match self.encrypt {
            None => None,
            Some(Encrypt { trust: Some(trust), .. }) => Some(trust),
            Some(Encrypt { missing, .. }) => {
                let (address, missing) = (self.address.to_owned(), missing.clone());
                return Err(ConnectError::Untrusted { address, missing });
            }
        };
        let left = self.end.saturating_duration_since(Instant::now());
        let tcp = Tcp::connect(self.address, left)
            .map_err(|source| ConnectError::Unreachable { address: self.address.to_owned(), source })?
            .move_above(self.lowest_descriptor);
        self.stats.round_trips.fetch_add(1, Relaxed);
        let Some(trust) = trust else { return Ok(Stream::Tcp(tcp)) };
        self.stats.round_trips.fetch_add(1, Relaxed);
        let tls = Tls::connect(tcp, self.address, trust, self.end)
            .map_err(|source| ConnectError::Handshake { address: self.address.to_owned(), source })?;
        Ok(Stream::Tls(Box::new(tls)))
    }
}

fn open_local(address: &str) -> Option<OwnedFd> {
    for meaning in address.to_socket_addrs().ok()? {
        if !is_here(meaning.ip()) {
            continue;
        }
        let any: IpAddr = match meaning.ip() {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        for address in [meaning, SocketAddr::new(any, meaning.port())] {
            let Ok(name) = UnixAddress::from_abstract_name(local_name(&address)) else { continue };
            let Ok(stream) = UnixStream::connect_addr(&name) else { continue };
            let socket = OwnedFd::from(stream);
            // Anybody could listen under that name.
            if peer_credentials(&socket).is_ok_and(PeerCredentials::may_serve) {
                return Some(socket);
            }
        }
    }
    None
}

/// Whether an address is one of this machine's.
fn is_here(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}
