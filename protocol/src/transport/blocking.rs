//! Sending and receiving whole messages over a [`Transport`], waiting for as long as there is time. Connections are set up
//! this way; a session has its own rules for who waits.

use super::interface::{Ready, Transport};
use std::io::{self, IoSlice};
use std::time::Instant;

/// Sends all of the bytes until `end`.
///
/// # Errors
/// Those of the connection, and [`io::ErrorKind::TimedOut`].
pub fn send_all(transport: &dyn Transport, bytes: &[u8], end: Instant) -> io::Result<()> {
    let mut at = 0;
    while at < bytes.len() {
        at += retry(transport, Ready::WRITE, end, || transport.send(&[IoSlice::new(&bytes[at..])]))?;
    }
    Ok(())
}

/// Fills `into` until `end`.
///
/// # Errors
/// Those of the connection, [`io::ErrorKind::TimedOut`], and [`io::ErrorKind::UnexpectedEof`] where the peer closes it before.
pub fn receive_exact(transport: &dyn Transport, into: &mut [u8], end: Instant) -> io::Result<()> {
    let mut at = 0;
    while at < into.len() {
        match retry(transport, Ready::READ, end, || transport.recv(&mut into[at..]))? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => at += n,
        }
    }
    Ok(())
}

/// Repeats something that does not block until it has an outcome, waiting in between for what it wants.
///
/// # Errors
/// Those of `action`, and [`io::ErrorKind::TimedOut`] at `end`.
pub fn retry<T>(
    transport: &dyn Transport,
    want: Ready,
    end: Instant,
    mut action: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    loop {
        match action() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                transport.wait(want, None, Some(left))?;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}
