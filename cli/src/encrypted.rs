//! Speaking to a server over TLS without being a CUDA program, as the environment says.

use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use rgpu_control::settings;
use rgpu_protocol::transport::tls::{Fingerprint, Trust};
use rgpu_protocol::transport::{CA_VARIABLE, ENCRYPT_VARIABLE, FINGERPRINT_VARIABLE};
use rgpu_protocol::transport::{Ready, Tcp, Tls, Transport};

/// What the environment says about encryption.
pub(crate) enum Wish {
    /// Nothing: what is sent can be read on the way.
    None,
    /// It is wanted, and nothing says by what a server is known.
    Unknowable,
    /// Servers are known by this.
    Known(Trust),
}

/// Reads the environment.
///
/// # Errors
/// In words for people: a variable cannot be used.
pub(crate) fn wish() -> Result<Wish, String> {
    if let Some(list) = settings::text(FINGERPRINT_VARIABLE) {
        let known =
            Fingerprint::list(&list).map_err(|e| format!("{FINGERPRINT_VARIABLE} cannot be used: {e}"))?;
        return Ok(Wish::Known(Trust::Fingerprints(known)));
    }
    if let Some(path) = settings::path(CA_VARIABLE) {
        let pem = std::fs::read(&path)
            .map_err(|e| format!("{CA_VARIABLE} cannot be used: cannot read {}: {e}", path.display()))?;
        return Ok(Wish::Known(Trust::Authorities(pem)));
    }
    Ok(if settings::is_on(ENCRYPT_VARIABLE) { Wish::Unknowable } else { Wish::None })
}

/// Whether an address is this machine's own, so that nothing leaves it.
pub(crate) fn is_this_machine(address: &str) -> bool {
    let Ok(meanings) = address.to_socket_addrs() else { return false };
    let mut ips = meanings.map(|meaning| meaning.ip()).peekable();
    ips.peek().is_some() && ips.all(|ip: IpAddr| ip.is_loopback())
}

/// An encrypted connection, as a stream of bytes that waits.
pub(crate) struct Encrypted {
    tls: Tls,
    end: Instant,
}

impl Encrypted {
    /// Goes on with a fresh connection to a server that is to be one of those that are trusted, and does everything within a time.
    ///
    /// # Errors
    /// Somebody else is there, or who does not speak TLS.
    pub(crate) fn over(
        stream: TcpStream,
        address: &str,
        trust: &Trust,
        patience: Duration,
    ) -> io::Result<Self> {
        let end = Instant::now() + patience;
        let tcp = Tcp::adopt(stream.into(), address.to_owned())?;
        Ok(Self { tls: Tls::connect(tcp, address, trust, end)?, end })
    }

    fn wait(&self, want: Ready) -> io::Result<()> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.tls.wait(want, None, Some(left)).map(drop)
    }

    fn again<T>(&self, want: Ready, mut step: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        loop {
            match step() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.wait(want)?,
                done => return done,
            }
        }
    }
}

impl Read for Encrypted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.again(Ready::READ, || self.tls.recv(into))
    }
}

impl Write for Encrypted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.again(Ready { read: false, write: true, wake: false }, || self.tls.send(&[IoSlice::new(bytes)]))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
