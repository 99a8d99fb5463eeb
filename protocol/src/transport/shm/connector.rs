//! How both ends come to share memory: the hello crosses a Unix socket, over which the server then passes descriptors.

use super::{Passed, Shm};
use crate::transport::blocking::retry;
use crate::transport::connector::{Accepted, Connector, Established, Finish, Offer, Offered};
use crate::transport::dial::Dial;
use crate::transport::error::ConnectError;
use crate::transport::interface::{Ready, Transport};
use crate::transport::kind::Kind;
use crate::transport::stream::{Carrier, Stream};
use crate::transport::tcp::dup_above;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Instant;

/// Shared memory's connector.
pub(crate) struct ShmConnector;

impl Connector for ShmConnector {
    fn kind(&self) -> Kind {
        Shm::KIND
    }

    fn summary(&self) -> &'static str {
        "shared memory, for a program and a server of one user on one machine"
    }

    fn feature(&self) -> u64 {
        Shm::FEATURE
    }

    fn runs_over(&self, carrier: Carrier) -> bool {
        carrier == Carrier::Local
    }

    fn objection(&self, features: u64) -> Option<&'static str> {
        (features & Shm::EARLIER_FEATURE != 0).then_some(
            "its shared memory works otherwise: use the same release of rgpu on both sides, or \
             `rgpu run --transport tcp`",
        )
    }

    fn not_taken(&self) -> String {
        "no shared memory that this release of rgpu knows: use the same one on both sides".into()
    }

    fn offer(&self, dial: &mut Dial<'_>) -> Result<Offered, ConnectError> {
        let lowest = dial.lowest_descriptor;
        Ok(Offered { stream: dial.local(self.kind())?, offer: Box::new(Offering { lowest }) })
    }

    fn accept(&self, stream: &Stream, _offer: &[u8]) -> io::Result<Option<Accepted>> {
        let socket = stream.transport();
        let copy = dup_above(socket.descriptor(), 3).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: a fresh duplicate, taken from its owner.
        let copy = unsafe { OwnedFd::from_raw_fd(copy.into_raw()) };
        let (shm, passed) = Shm::create(copy, socket.peer())?;
        Ok(Some(Accepted { session: Arc::new(shm), finish: Box::new(passed) }))
    }
}

/// The client's side of it, whose descriptors are to be numbered from `lowest`.
struct Offering {
    lowest: RawFd,
}

impl Offer for Offering {
    fn finish(self: Box<Self>, stream: Stream, end: Instant) -> io::Result<Established> {
        let socket = stream.transport();
        let (shm, memory_files) =
            retry(socket, Ready::READ, end, || Shm::join(&socket.descriptor(), self.lowest, socket.peer()))?;
        Ok(Established { transport: Box::new(shm), memory_files })
    }
}

impl Finish for Passed {
    fn passes_memory(&self) -> bool {
        true
    }

    fn finish(
        self: Box<Self>,
        stream: &dyn Transport,
        memory_files: &[RawFd],
        _end: Instant,
    ) -> io::Result<()> {
        // A fresh socket has room.
        self.send(stream.descriptor(), memory_files)
    }
}
