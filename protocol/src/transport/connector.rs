//! How a session gets its transport.
//!
//! There is one [`Connector`] for each transport, in the transport's own file, and one list of them,
//! [`CONNECTORS`](super::CONNECTORS), in order of preference. Both ends walk that list; nothing else names a transport. To
//! add one is to write its file and to put it into the list.
//!
//! ```text
//! client                                         server
//!   offer: opens a stream                          the daemon takes the stream, and leaves of the hello
//!   -- Hello: feature bit, the offer's bytes -->   what may run over that
//!                                                  accept: the application's process makes its end
//!   <-- HelloAnswer: feature bit if taken ------
//!   <-- what the client's end needs ------------   finish
//!   finish: makes the client's end
//! ```
//!
//! What crosses from the daemon to the application's process is the same for all: the stream's descriptor, the feature bits and
//! the offer's bytes. (Where the stream is encrypted, the process has it already.) Where the server does not take an offer, the
//! stream itself carries the session.

use super::dial::Dial;
use super::error::ConnectError;
use super::interface::Transport;
use super::kind::Kind;
use super::stream::{Carrier, Stream};
use std::fmt;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Instant;

/// How both ends set up one kind of transport. See the module's text.
pub trait Connector: Send + Sync {
    /// What it is called.
    fn kind(&self) -> Kind;

    /// What it is, for lists that people read: a few words without a full stop.
    fn summary(&self) -> &'static str;

    /// The bit of the hello's features by which the client offers it and the server takes it; 0 for what needs no offer, the
    /// stream itself. No two connectors of a list have the same.
    fn feature(&self) -> u64;

    /// Whether it can be offered over such a stream.
    fn runs_over(&self, carrier: Carrier) -> bool;

    /// Whether this machine has what a server needs to offer it, as far as can be seen without trying.
    fn is_available(&self) -> bool {
        true
    }

    /// Server: why a client with these features cannot be served over such a stream, in words that follow "the server
    /// refuses:". For what earlier releases offered otherwise.
    fn objection(&self, features: u64) -> Option<&'static str> {
        let _ = features;
        None
    }

    /// Client: what a server that has not taken the offer lacks, in words that follow "the server offers".
    fn not_taken(&self) -> String {
        format!("no {}; its log may say why", self.kind().title())
    }

    /// Client: whether both ends can have it and nevertheless not reach each other by it. Then, unless it was asked for by
    /// name, a failure of [`Offer::finish`] makes the client connect anew with the next connector of the list.
    fn may_miss(&self) -> bool {
        false
    }

    /// Client: opens a stream to the server, or takes the one that is open already, and prepares this end.
    ///
    /// # Errors
    /// [`ConnectError::NotHere`] where this end, or this address, has no such transport: the next connector's turn. Everything
    /// else is final.
    fn offer(&self, dial: &mut Dial<'_>) -> Result<Offered, ConnectError>;

    /// Server, in the application's process: makes this end, beside the stream over which the client has offered it. `None`
    /// where the stream itself carries the session.
    ///
    /// # Errors
    /// Whatever keeps it from being made; the stream then carries the session.
    fn accept(&self, stream: &Stream, offer: &[u8]) -> io::Result<Option<Accepted>>;
}

impl fmt::Debug for dyn Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().name())
    }
}

/// A list of connectors, in order of preference. All of them live as long as the program.
pub type Connectors = &'static [&'static dyn Connector];

/// A stream on which nothing has been said yet, and what is offered over it.
pub struct Offered {
    /// Carries the hello.
    pub stream: Stream,
    /// What is offered.
    pub offer: Box<dyn Offer>,
}

/// The client's part of a transport that the server may take.
pub trait Offer {
    /// What the server needs to make its end; it travels in the hello.
    fn bytes(&self) -> Vec<u8> {
        Vec::new()
    }

    /// The server has taken the offer: receives what it sends behind its answer, and makes this end, until `end`.
    ///
    /// # Errors
    /// What keeps it from being made, for people; see [`Connector::may_miss`].
    fn finish(self: Box<Self>, stream: Stream, end: Instant) -> io::Result<Established>;
}

/// A client's end, ready for the session.
pub struct Established {
    /// Carries the session.
    pub transport: Box<dyn Transport>,
    /// The memory files behind the server's devices, by ordinal, where client and server share them; and then that behind the
    /// shared range, where the answer to the hello says so.
    pub memory_files: Vec<OwnedFd>,
}

impl From<Stream> for Established {
    fn from(stream: Stream) -> Self {
        Self { transport: stream.into_transport(), memory_files: Vec::new() }
    }
}

/// The offer of what needs none: the stream itself.
pub struct StreamItself;

impl Offer for StreamItself {
    fn finish(self: Box<Self>, stream: Stream, _end: Instant) -> io::Result<Established> {
        Ok(stream.into())
    }
}

/// A server's end, and what is left to do for the client's.
pub struct Accepted {
    /// Carries the session.
    pub session: Arc<dyn Transport>,
    /// What the client needs to make its end.
    pub finish: Box<dyn Finish>,
}

/// The last step of the server's connector.
pub trait Finish: Send {
    /// Whether memory files reach the client.
    fn passes_memory(&self) -> bool {
        false
    }

    /// Sends what the client needs, right behind the answer to its hello, until `end`. `memory_files` are those behind the
    /// devices, by ordinal, where there are any, and that behind the shared range, where the answer says so.
    ///
    /// # Errors
    /// Those of the connection.
    fn finish(
        self: Box<Self>,
        stream: &dyn Transport,
        memory_files: &[RawFd],
        end: Instant,
    ) -> io::Result<()>;
}
