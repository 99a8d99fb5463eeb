//! How both ends come to be connected by RDMA: each tells the other, beside the hello over TCP, how to reach its memory.

use super::{Info, Rdma};
use crate::transport::blocking::{receive_exact, send_all};
use crate::transport::connector::{Accepted, Connector, Established, Finish, Offer, Offered};
use crate::transport::dial::Dial;
use crate::transport::error::ConnectError;
use crate::transport::interface::Transport;
use crate::transport::kind::Kind;
use crate::transport::stream::{Carrier, Stream};
use crate::transport::tcp::Tcp;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// RDMA's connector.
pub(crate) struct RdmaConnector;

impl Connector for RdmaConnector {
    fn kind(&self) -> Kind {
        Rdma::KIND
    }

    fn summary(&self) -> &'static str {
        "InfiniBand or RoCE on a common network"
    }

    fn feature(&self) -> u64 {
        Rdma::FEATURE
    }

    fn runs_over(&self, carrier: Carrier) -> bool {
        // What it carries is not encrypted, so it has no place beside a stream that is.
        carrier == Carrier::Tcp
    }

    fn is_available(&self) -> bool {
        // What the kernel says of its devices; whether one reaches a client, only that one can find out.
        Path::new("/sys/class/infiniband").read_dir().is_ok_and(|mut list| list.next().is_some())
    }

    fn may_miss(&self) -> bool {
        // Both ends may have a device, but not on the same network.
        true
    }

    fn offer(&self, dial: &mut Dial<'_>) -> Result<Offered, ConnectError> {
        let (by_name, lowest) = (dial.by_name, dial.lowest_descriptor);
        let cannot =
            |why: &dyn std::fmt::Display| ConnectError::NotHere(format!("RDMA cannot be used: {why}"));
        let Some(tcp) = dial.network()?.plain() else { return Err(cannot(&"the connection is encrypted")) };
        // On this machine TCP is as fast as a network device's detour, if not faster.
        if !by_name && tcp.local_ip().is_none_or(|ip| ip.is_loopback()) {
            return Err(cannot(&"the server is on this machine"));
        }
        let rdma = Rdma::open(tcp, lowest).map_err(|e| cannot(&e))?;
        Ok(Offered { stream: dial.take_network()?, offer: Box::new(rdma) })
    }

    fn accept(&self, stream: &Stream, offer: &[u8]) -> io::Result<Option<Accepted>> {
        let malformed = || io::Error::new(io::ErrorKind::InvalidData, "the client's offer is malformed");
        let tcp: &Tcp = stream.plain().ok_or(io::ErrorKind::Unsupported)?;
        let client = Info::parse(offer).ok_or_else(malformed)?;
        let rdma = Rdma::open(tcp, 0)?;
        rdma.connect(client)?;
        let finish = Box::new(Told(rdma.info()));
        Ok(Some(Accepted { session: Arc::new(rdma), finish }))
    }
}

impl Offer for Rdma {
    fn bytes(&self) -> Vec<u8> {
        self.info().to_bytes().to_vec()
    }

    fn finish(self: Box<Self>, stream: Stream, end: Instant) -> io::Result<Established> {
        let mut bytes = [0; Info::BYTES];
        receive_exact(stream.transport(), &mut bytes, end)?;
        self.connect(Info::parse(&bytes).ok_or(io::ErrorKind::InvalidData)?)?;
        self.probe()?;
        Ok(Established { transport: self, memory_files: Vec::new() })
    }
}

/// What the client is told of the server's end.
struct Told(Info);

impl Finish for Told {
    fn finish(
        self: Box<Self>,
        stream: &dyn Transport,
        _memory_files: &[RawFd],
        end: Instant,
    ) -> io::Result<()> {
        send_all(stream, &self.0.to_bytes(), end)
    }
}
