//! The first words of a connection, as the server's processes say and hear them.

use rgpu_protocol::hello::{self, MAX_HELLO, PREFIX_BYTES, Prefix};
use rgpu_protocol::transport::Transport;
use rgpu_protocol::transport::blocking::{receive_exact, send_all};
use rgpu_protocol::wire::Wire;
use std::io;
use std::time::{Duration, Instant};

/// How long the other end may take for one message once it has said hello.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Sends a hello's answer.
pub(crate) fn say(transport: &dyn Transport, answer: &impl Wire) -> io::Result<()> {
    send_all(transport, &hello::message(answer), Instant::now() + ANSWER_TIME)
}

/// Reads a hello of any version.
pub(crate) fn hear_any(transport: &dyn Transport, end: Instant) -> io::Result<(Prefix, Vec<u8>)> {
    hear_message(transport, MAX_HELLO, end)
}

/// Reads a hello or an answer to one, of any version.
pub(crate) fn hear_message(
    transport: &dyn Transport,
    limit: usize,
    end: Instant,
) -> io::Result<(Prefix, Vec<u8>)> {
    let mut bytes = [0; PREFIX_BYTES];
    receive_exact(transport, &mut bytes, end)?;
    let prefix = Prefix::parse(&bytes, limit)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))?;
    let mut body = vec![0; prefix.length as usize];
    receive_exact(transport, &mut body, end)?;
    Ok((prefix, body))
}
