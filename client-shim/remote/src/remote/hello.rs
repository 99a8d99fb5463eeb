//! The first words of a connection: the client's hello, and the server's answer.

use rgpu_protocol::hello::{
    HelloAnswer, HelloExtras, MAJOR, MAX_HELLO_ANSWER, MINOR, PREFIX_BYTES, Prefix, Status,
};
use rgpu_protocol::stats::Stats;
use rgpu_protocol::transport::Transport;
use rgpu_protocol::transport::blocking::{receive_exact, send_all};
use rgpu_protocol::wire::DecodeError;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Why there is no answer to a hello.
#[derive(Debug, thiserror::Error)]
pub(super) enum HelloError {
    #[error("the server accepts connections, but does not answer")]
    Silent,
    #[error("the server closed the connection instead of answering")]
    Closed,
    #[error("the connection failed during the hello: {0}")]
    Failed(io::Error),
    #[error("what answers there is no rgpu server: {0}")]
    NoServer(DecodeError),
    #[error("the answer is malformed: {0}")]
    Malformed(DecodeError),
    #[error(
        "the server speaks version {}.{} of the protocol, this library {MAJOR}.{MINOR}; use the same release of rgpu on \
         both sides",
        .0.major,
        .0.minor
    )]
    Version(Prefix),
}

impl From<io::Error> for HelloError {
    fn from(e: io::Error) -> Self {
        match e.kind() {
            io::ErrorKind::TimedOut => Self::Silent,
            io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Failed(e),
        }
    }
}

/// A server's answer.
pub(super) struct Answered {
    /// The protocol's minor version that both sides speak.
    pub minor: u16,
    pub answer: HelloAnswer,
    pub extras: HelloExtras,
}

/// Sends a hello and reads the answer: one round trip.
pub(super) fn exchange(
    transport: &dyn Transport,
    hello: &[u8],
    end: Instant,
    stats: &Stats,
) -> Result<Answered, HelloError> {
    stats.round_trips.fetch_add(1, Relaxed);
    send_all(transport, hello, end)?;
    stats.bytes_sent.fetch_add(hello.len() as u64, Relaxed);
    let mut bytes = [0; PREFIX_BYTES];
    receive_exact(transport, &mut bytes, end)?;
    let prefix = Prefix::parse(&bytes, MAX_HELLO_ANSWER).map_err(HelloError::NoServer)?;
    let mut body = vec![0; prefix.length as usize];
    receive_exact(transport, &mut body, end)?;
    stats.bytes_received.fetch_add((PREFIX_BYTES + body.len()) as u64, Relaxed);
    let (answer, extras) = HelloAnswer::parse_with_extras(prefix, &body).map_err(HelloError::Malformed)?;
    if answer.status == Status::Accepted as u32 && prefix.major != MAJOR {
        return Err(HelloError::Version(prefix));
    }
    Ok(Answered { minor: prefix.minor.min(MINOR), answer, extras })
}
