//! A transport of its own: a pair of sockets that the server makes, and of which it passes one to the client.
//!
//! It is of no use outside of tests. It shows all that a new transport takes: this file, and its place in a list.

use rgpu_protocol::transport::blocking::retry;
use rgpu_protocol::transport::{
    Accepted, Carrier, ConnectError, Connector, Dial, Established, Finish, Kind, Offer, Offered, Ready,
    Stream, Tcp, Transport, receive_descriptors, send_descriptors,
};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

/// How many sessions of this process have come about by it.
pub(crate) static ESTABLISHED: AtomicUsize = AtomicUsize::new(0);

/// The pipe's connector.
pub(crate) struct PipeConnector;

impl PipeConnector {
    /// What it is called.
    pub(crate) const KIND: Kind = Kind::new("pipe", "pipe");
}

impl Connector for PipeConnector {
    fn kind(&self) -> Kind {
        Self::KIND
    }

    fn summary(&self) -> &'static str {
        "a pair of sockets, for tests"
    }

    fn feature(&self) -> u64 {
        1 << 40
    }

    fn runs_over(&self, carrier: Carrier) -> bool {
        // Descriptors are passed over it.
        carrier == Carrier::Local
    }

    fn offer(&self, dial: &mut Dial<'_>) -> Result<Offered, ConnectError> {
        let lowest_descriptor = dial.lowest_descriptor;
        Ok(Offered { stream: dial.local(self.kind())?, offer: Box::new(PipeOffer { lowest_descriptor }) })
    }

    fn accept(&self, stream: &Stream, offer: &[u8]) -> io::Result<Option<Accepted>> {
        if offer != b"pipe" {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the client's offer is malformed"));
        }
        let (ours, theirs) = UnixStream::pair()?;
        let session = Tcp::local(ours.into(), stream.transport().peer());
        Ok(Some(Accepted { session: Arc::new(session), finish: Box::new(TheirEnd(theirs)) }))
    }
}

struct PipeOffer {
    lowest_descriptor: RawFd,
}

impl Offer for PipeOffer {
    fn bytes(&self) -> Vec<u8> {
        b"pipe".to_vec()
    }

    fn finish(self: Box<Self>, stream: Stream, end: Instant) -> io::Result<Established> {
        let socket = stream.transport();
        let passed = retry(socket, Ready::READ, end, || receive_descriptors(socket.descriptor()))?;
        let ours = passed.into_iter().next().ok_or(io::ErrorKind::InvalidData)?;
        let transport = Tcp::local(ours, socket.peer()).move_above(self.lowest_descriptor);
        ESTABLISHED.fetch_add(1, SeqCst);
        Ok(Established { transport: Box::new(transport), memory_files: Vec::new() })
    }
}

struct TheirEnd(UnixStream);

impl Finish for TheirEnd {
    fn finish(self: Box<Self>, stream: &dyn Transport, _files: &[RawFd], _end: Instant) -> io::Result<()> {
        send_descriptors(stream.descriptor(), &[self.0.as_raw_fd()])
    }
}
