//! Who is served: what a client says first is read and checked before any process is spent on it.

use super::Daemon;
use super::client::{Client, Entrant};
use crate::greeting::hear_any;
use crate::lease::{Admission, LeaseError};
use crate::options::Options;
use crate::partition::PartitionError;
use rgpu_control::proof::Binding;
use rgpu_control::token::PublicKey;
use rgpu_protocol::hello::{FEATURE_LINK, Hello, HelloAnswer, HelloMore, MAJOR, MINOR, Prefix, Status};
use rgpu_protocol::transport::{Carrier, Choice, Kind, Stream, features, offered};
use rgpu_protocol::wire::DecodeError;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;

/// How long a client may take for its hello.
const HELLO_TIME: Duration = Duration::from_secs(15);
/// Longest token.
const MAX_TOKEN: usize = 4096;

/// Who is served.
#[derive(Debug, Default)]
pub(super) struct Admits {
    /// Who knows this token.
    pub token: Option<Vec<u8>>,
    /// Who has a lease.
    leases: bool,
    /// Everybody.
    everybody: bool,
}

impl Admits {
    /// As the options say, for a server that listens at these addresses.
    pub(super) fn new(options: &Options, addresses: &[SocketAddr]) -> io::Result<Self> {
        let token = options.token_file.as_deref().map(read_token).transpose()?;
        let leases = options.broker_key.is_some() || options.agent.is_some();
        let reachable = addresses.iter().any(|a| !a.ip().is_loopback());
        if token.is_none() && !leases && !options.insecure && reachable {
            let text = format!(
                "Others can reach {}: give --broker URL, --token-file FILE, or --insecure to serve anybody",
                options.listen
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        // A token is asked for wherever there is one; without one and without a broker, whoever reaches the address is
        // served.
        let everybody = token.is_none() && (options.insecure || !leases);
        Ok(Self { token, leases, everybody })
    }
}

fn read_token(path: &Path) -> io::Result<Vec<u8>> {
    let text = std::fs::read(path).map_err(|e| cannot_read(path, &e))?;
    crate::secret::warn_if_readable(path);
    let token = text.trim_ascii();
    if token.is_empty() || token.len() > MAX_TOKEN {
        let text = format!("{} must hold 1 to {MAX_TOKEN} bytes", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(token.to_vec())
}

/// A broker's public key.
pub(super) fn read_key(path: &Path) -> io::Result<PublicKey> {
    let text = std::fs::read_to_string(path).map_err(|e| cannot_read(path, &e))?;
    PublicKey::parse(&text).ok_or_else(|| {
        let text = format!("{} does not hold a broker's public key", path.display());
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

fn cannot_read(path: &Path, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("Cannot read {}: {e}", path.display()))
}

/// Why a client is refused, in words for both sides: they follow "refused:" in the log, and "the server refuses:" at the
/// client.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the hello is not one of rgpu's: {0}")]
    NoHello(io::Error),
    #[error("the hello is malformed: {0}")]
    Malformed(DecodeError),
    #[error(
        "it speaks version {MAJOR}.{MINOR} of the protocol, the client {}.{}; use the same release of rgpu on both sides",
        .0.major,
        .0.minor
    )]
    Version(Prefix),
    #[error(
        "it takes encrypted connections only: start the program with `rgpu run --encrypt` and, without a broker, \
         RGPU_TLS_FINGERPRINT or RGPU_TLS_CA"
    )]
    Unencrypted,
    #[error("other servers come without encryption")]
    EncryptedServer,
    #[error("it wants a token (RGPU_TOKEN_FILE, or `rgpu run --token-file`)")]
    NoToken,
    #[error("the token is wrong")]
    WrongToken,
    /// The lease is not good, or not now; the text says why.
    #[error(transparent)]
    Lease(LeaseError),
    #[error("its lease is for encrypted connections only: start the program with `rgpu run --encrypt`")]
    UnencryptedLease,
    /// A transport objects to what the client offers.
    #[error("{0}")]
    Offer(&'static str),
    #[error("it is reached by {} alone (`rgpu run --transport {}`)", .0.title(), .0.name())]
    OtherTransport(Kind),
    #[error("the server is being stopped")]
    Stopping,
    /// The devices cannot be divided as the lease wants; the text says why.
    #[error(transparent)]
    Devices(PartitionError),
    #[error("it serves {0} applications already, which is its limit")]
    Full(usize),
    #[error("no process could be started: {0}")]
    NoProcess(io::Error),
}

impl Refusal {
    fn status(&self) -> Status {
        match self {
            Self::Version(_) => Status::Version,
            Self::NoToken | Self::WrongToken | Self::Lease(_) | Self::UnencryptedLease => Status::Credential,
            _ => Status::Unavailable,
        }
    }

    /// Says so, here and there. A client that has gone need not be told.
    pub(super) fn tell(&self, client: &Client<'_>, peer: &str) {
        tracing::warn!("{peer}: refused: {self}");
        client.refuse(&HelloAnswer::refused(self.status(), self.to_string()));
    }
}

/// A client whose hello is in order.
pub(super) struct Heard<'d> {
    pub client: Client<'d>,
    /// Of its features, the offers of transports that are not taken are left out.
    pub hello: Hello,
    pub more: HelloMore,
    /// The protocol's minor version that it speaks.
    pub minor: u16,
    pub lease: Option<Admission>,
}

impl Daemon {
    /// Reads and checks what a client says that has just connected. `None` where it is not served.
    pub(super) fn hear(&self, socket: OwnedFd, peer: &str) -> Option<Heard<'_>> {
        let end = Instant::now() + HELLO_TIME;
        let (client, heard) = self.hear_first(socket, peer, end)?;
        let judged = match heard {
            Ok((prefix, body)) => self.judge(&client, prefix, &body, peer),
            Err(e) => Err(Refusal::NoHello(e)),
        };
        match judged {
            Ok(None) => None,
            Ok(Some((minor, hello, more, lease))) => Some(Heard { client, hello, more, minor, lease }),
            Err(refusal) => {
                refusal.tell(&client, peer);
                None
            }
        }
    }

    /// What a client says first, or why that is no hello. `None` where it need not be told anything.
    #[allow(clippy::type_complexity)]
    fn hear_first(
        &self,
        socket: OwnedFd,
        peer: &str,
        end: Instant,
    ) -> Option<(Client<'_>, io::Result<(Prefix, Vec<u8>)>)> {
        let no_tls = |e: io::Error| tracing::warn!("{peer}: no encrypted connection: {e}");
        let stream =
            Stream::adopt(socket, peer.to_owned()).map_err(|e| tracing::warn!("{peer}: {e}")).ok()?;
        if let Stream::Tcp(tcp) = &stream
            && let Some(identity) = self.encrypts.asked_for(tcp, end).map_err(no_tls).ok()?
        {
            let entrant = Entrant::start(self, tcp, identity, peer, end)
                .map_err(|e| tracing::error!("{peer}: no process could be started: {e}"))
                .ok()?;
            // The connection is the process's now, whose death is to close it.
            drop(stream);
            let heard = entrant.hear(identity, peer, end).transpose()?;
            return Some((Client::Elsewhere(entrant), heard));
        }
        match hear_any(stream.transport(), end) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                tracing::debug!("{peer}: left without saying hello");
                None
            }
            heard => Some((Client::Here(stream), heard)),
        }
    }

    /// Whether a client is served who has said this.
    #[allow(clippy::type_complexity)]
    fn judge(
        &self,
        client: &Client<'_>,
        prefix: Prefix,
        body: &[u8],
        peer: &str,
    ) -> Result<Option<(u16, Hello, HelloMore, Option<Admission>)>, Refusal> {
        if prefix.major != MAJOR {
            return Err(Refusal::Version(prefix));
        }
        let (mut hello, mut more) = Hello::parse_with_more(body).map_err(Refusal::Malformed)?;
        let in_the_clear = client.carrier() == Carrier::Tcp;
        if in_the_clear && self.encrypts.is_required() {
            return Err(Refusal::Unencrypted);
        }
        if hello.features & FEATURE_LINK != 0 {
            // Another server, which a session waits for, or none does.
            let tcp = client.stream().and_then(Stream::plain).ok_or(Refusal::EncryptedServer)?;
            self.peers.arrive(tcp, &hello, peer);
            return Ok(None);
        }
        let lease = self.check(&hello, client.binding().as_ref())?;
        if in_the_clear && lease.as_ref().is_some_and(Admission::is_encrypted) {
            return Err(Refusal::UnencryptedLease);
        }
        self.choose_transport(client.carrier(), &mut hello, &mut more)?;
        Ok(Some((prefix.minor, hello, more, lease)))
    }

    /// Leaves of what the client offers only what the application's process is to take.
    fn choose_transport(
        &self,
        carrier: Carrier,
        hello: &mut Hello,
        more: &mut HelloMore,
    ) -> Result<(), Refusal> {
        let (list, choice) = (self.connectors, self.transport);
        if let Some(objection) = list.iter().find_map(|connector| connector.objection(hello.features)) {
            return Err(Refusal::Offer(objection));
        }
        let taken = offered(list, choice, carrier, hello.features).map_or(0, |connector| connector.feature());
        hello.features &= !features(list) | taken;
        if taken == 0 {
            more.offer.clear();
        }
        match choice {
            // A stream that the client has not asked to leave is not what was meant.
            Choice::Only(kind) if taken == 0 && !self.carries_itself(kind) => {
                Err(Refusal::OtherTransport(kind))
            }
            _ => Ok(()),
        }
    }

    /// Whether a transport needs no offer.
    fn carries_itself(&self, kind: Kind) -> bool {
        Choice::Only(kind).of(self.connectors).all(|connector| connector.feature() == 0)
    }

    /// Whether somebody is served, and by which lease.
    fn check(&self, hello: &Hello, binding: Option<&Binding>) -> Result<Option<Admission>, Refusal> {
        let Admits { token, leases, everybody } = &self.admits;
        if token.as_ref().is_some_and(|token| same(token, &hello.credential)) {
            return Ok(None);
        }
        // Who may come as they are may still bring a lease, and is held to it.
        if *leases && !(*everybody && hello.credential.is_empty()) {
            let admitted = self.leases.admit_bound(&hello.credential, hello.session, binding);
            return admitted.map(Some).map_err(Refusal::Lease);
        }
        match (*everybody, hello.credential.is_empty()) {
            (true, _) => Ok(None),
            (false, true) => Err(Refusal::NoToken),
            (false, false) => Err(Refusal::WrongToken),
        }
    }
}

/// Compares in a time that tells nothing but the length.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.ct_eq(b).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_compared_whole() {
        assert!(same(b"abc", b"abc"));
        assert!(!same(b"abc", b"abd") && !same(b"abc", b"ab") && !same(b"abc", b""));
    }
}
