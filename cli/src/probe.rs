//! Asking a server what it has, without being a CUDA program.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rgpu_control::settings::{self, TOKEN_FILE_VARIABLE};
use rgpu_protocol::hello::{
    Hello, HelloAnswer, MAJOR, MAX_HELLO_ANSWER, MINOR, PREFIX_BYTES, Prefix, Range, Status, message,
};
use rgpu_protocol::transport::tls::Trust;
use rgpu_protocol::transport::{CA_VARIABLE, FINGERPRINT_VARIABLE};
use rgpu_protocol::wire::DecodeError;

use crate::Failure;
use crate::encrypted::{self, Encrypted, Wish};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(8);
const GIB: u64 = 1 << 30;
/// Address ranges to propose; nothing is reserved here, so any that is free on the server will do.
const PROPOSALS: [Range; 3] = [
    Range { base: 0x2000_0000_0000, size: 1024 * GIB },
    Range { base: 0x3000_0000_0000, size: 256 * GIB },
    Range { base: 0x1400_0000_0000, size: 64 * GIB },
];

/// Why a server told nothing. Each says what to do, where something can be done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    /// The token cannot be read.
    #[error("Cannot read the token file {}: {why}", .file.display())]
    Token {
        /// The file.
        file: PathBuf,
        /// What the system said.
        why: io::Error,
    },
    /// The name means nothing.
    #[error("{address} is unknown: {why}")]
    Unknown {
        /// What was to be reached.
        address: String,
        /// What the system said.
        why: io::Error,
    },
    /// The name means no address.
    #[error("{0} has no address")]
    NoAddress(String),
    /// Nobody was reached.
    #[error("Cannot connect to {address}: {why}{}", advice(.why))]
    Connect {
        /// What was to be reached.
        address: String,
        /// What the system said.
        why: io::Error,
    },
    /// What the environment says about encryption is of no use.
    #[error("{0}")]
    Setting(String),
    /// Encryption is wanted, and nothing says by what the server is known.
    #[error(
        "Nothing says by what the server {0} is known: set {FINGERPRINT_VARIABLE} to what `rgpu serve` says when it starts \
         (sha256:…), or {CA_VARIABLE} to a file with the certificate (PEM) that signs the server's"
    )]
    Unknowable(String),
    /// The connection cannot be encrypted.
    #[error("The connection to {address} cannot be encrypted: {why}")]
    Encryption {
        /// What was to be reached.
        address: String,
        /// What happened.
        why: io::Error,
    },
    /// Somebody was reached who says nothing.
    #[error("{0} accepted the connection but says nothing; is it an rgpu server?")]
    Silent(String),
    /// Somebody was reached who hangs up.
    #[error("{0} closed the connection instead of answering; is it an rgpu server?")]
    Closed(String),
    /// The connection broke.
    #[error("The connection to {address} failed: {why}")]
    Lost {
        /// The server.
        address: String,
        /// What the system said.
        why: io::Error,
    },
    /// What answers speaks another language.
    #[error("What answers at {address} is no rgpu server: {why}")]
    Stranger {
        /// Who answers.
        address: String,
        /// What is wrong with the answer's beginning.
        why: DecodeError,
    },
    /// The rest of the answer cannot be read.
    #[error("The answer of the server {address} is malformed: {why}")]
    Malformed {
        /// The server.
        address: String,
        /// What is wrong with it.
        why: DecodeError,
    },
    /// The server is of another release.
    #[error(
        "The server {address} speaks version {}.{} of the protocol, and this rgpu {MAJOR}.{MINOR}: use the same release on \
         both sides",
        .version.0,
        .version.1
    )]
    Version {
        /// The server.
        address: String,
        /// Its protocol version.
        version: (u16, u16),
    },
    /// The server does not want to.
    #[error("The server {address} refuses: {why}")]
    Refused {
        /// The server.
        address: String,
        /// What it said.
        why: String,
    },
    /// None of the ranges of addresses that are proposed suits the server.
    #[error("The server {address} has no free addresses: {why}")]
    NoRange {
        /// The server.
        address: String,
        /// What it said.
        why: String,
    },
}

/// What may help where nobody was reached.
fn advice(why: &io::Error) -> &'static str {
    match why.kind() {
        io::ErrorKind::ConnectionRefused => "; is `rgpu serve` running there?",
        io::ErrorKind::TimedOut => "; is the address right, and no firewall in between?",
        _ => "",
    }
}

impl From<ProbeError> for Failure {
    fn from(error: ProbeError) -> Self {
        Self::new(error.to_string())
    }
}

/// What a server said.
#[derive(Debug)]
pub(crate) struct Server {
    /// Its protocol version.
    pub version: (u16, u16),
    /// Its devices, as this user would get them.
    pub answer: HelloAnswer,
    /// How long connecting took, and the hello.
    pub times: (Duration, Duration),
}

/// The token that a file holds; empty without a file. `RGPU_TOKEN_FILE` names one where `file` doesn't.
pub(crate) fn token(file: Option<&Path>) -> Result<Vec<u8>, ProbeError> {
    let named = settings::path(TOKEN_FILE_VARIABLE);
    let Some(file) = file.or(named.as_deref()) else { return Ok(Vec::new()) };
    let token = std::fs::read(file).map_err(|why| ProbeError::Token { file: file.to_owned(), why })?;
    Ok(token.trim_ascii().to_vec())
}

/// How to get to a server.
#[derive(Clone, Copy)]
enum Way<'a> {
    Plain,
    Encrypted(&'a Trust),
}

/// Opens a session, and ends it once the server has answered. Encrypted where the environment says so, as programs' connections are:
/// what stays on this machine need not be.
pub(crate) fn ask(address: &str, token: &[u8]) -> Result<Server, ProbeError> {
    ask_as(&encrypted::wish().map_err(ProbeError::Setting)?, address, token)
}

fn ask_as(wish: &Wish, address: &str, token: &[u8]) -> Result<Server, ProbeError> {
    let local = encrypted::is_this_machine(address);
    match wish {
        Wish::Unknowable if !local => Err(ProbeError::Unknowable(address.into())),
        Wish::None | Wish::Unknowable => ask_by(Way::Plain, address, token),
        Wish::Known(trust) => match ask_by(Way::Encrypted(trust), address, token) {
            // Perhaps it does not encrypt at all.
            Err(error @ ProbeError::Encryption { .. }) if local => {
                ask_by(Way::Plain, address, token).map_err(|_| error)
            }
            asked => asked,
        },
    }
}

fn ask_by(way: Way<'_>, address: &str, token: &[u8]) -> Result<Server, ProbeError> {
    let mut refused = String::new();
    for range in PROPOSALS {
        let server = ask_with(way, address, token, range)?;
        match Status::from_number(server.answer.status) {
            Status::Accepted => return Ok(server),
            Status::RangeRefused => refused.clone_from(&server.answer.message),
            Status::Version | Status::Credential | Status::Unavailable => {
                return Err(ProbeError::Refused { address: address.into(), why: server.answer.message });
            }
        }
    }
    Err(ProbeError::NoRange { address: address.into(), why: refused })
}

/// Bytes in both directions.
trait Both: Read + Write {}

impl<T: Read + Write> Both for T {}

fn ask_with(way: Way<'_>, address: &str, token: &[u8], range: Range) -> Result<Server, ProbeError> {
    let started = Instant::now();
    let lost = |why: io::Error| match why.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ProbeError::Silent(address.into()),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => ProbeError::Closed(address.into()),
        _ => ProbeError::Lost { address: address.into(), why },
    };
    let stream = connect(address)?;
    let mut stream: Box<dyn Both> = match way {
        Way::Plain => {
            stream.set_read_timeout(Some(PATIENCE)).map_err(lost)?;
            stream.set_write_timeout(Some(PATIENCE)).map_err(lost)?;
            Box::new(stream)
        }
        Way::Encrypted(trust) => {
            let encrypted = Encrypted::over(stream, address, trust, PATIENCE);
            Box::new(encrypted.map_err(|why| ProbeError::Encryption { address: address.into(), why })?)
        }
    };
    let connected = started.elapsed();
    let hello = Hello {
        features: 0,
        session: u64::from(std::process::id()),
        credential: token.to_vec(),
        program: "rgpu".into(),
        pid: std::process::id(),
        range,
    };
    let started = Instant::now();
    stream.write_all(&message(&hello)).map_err(lost)?;
    let mut bytes = [0; PREFIX_BYTES];
    stream.read_exact(&mut bytes).map_err(lost)?;
    let prefix = Prefix::parse(&bytes, MAX_HELLO_ANSWER)
        .map_err(|why| ProbeError::Stranger { address: address.into(), why })?;
    let mut body = vec![0; prefix.length as usize];
    stream.read_exact(&mut body).map_err(lost)?;
    let answer = HelloAnswer::parse(prefix, &body)
        .map_err(|why| ProbeError::Malformed { address: address.into(), why })?;
    if prefix.major != MAJOR {
        let version = (prefix.major, prefix.minor);
        return Err(ProbeError::Version { address: address.into(), version });
    }
    Ok(Server { version: (prefix.major, prefix.minor), answer, times: (connected, started.elapsed()) })
}

fn connect(address: &str) -> Result<TcpStream, ProbeError> {
    let meanings =
        address.to_socket_addrs().map_err(|why| ProbeError::Unknown { address: address.into(), why })?;
    let mut last = ProbeError::NoAddress(address.into());
    for meaning in meanings {
        match TcpStream::connect_timeout(&meaning, PATIENCE) {
            Ok(stream) => {
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(why) => last = ProbeError::Connect { address: address.into(), why },
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn answering(bytes: Vec<u8>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut hello = [0; PREFIX_BYTES];
            stream.read_exact(&mut hello).unwrap();
            let prefix = Prefix::parse(&hello, 1 << 16).unwrap();
            let mut body = vec![0; prefix.length as usize];
            stream.read_exact(&mut body).unwrap();
            let _ = stream.write_all(&bytes);
        });
        address
    }

    #[test]
    fn other_versions_and_strangers_are_named() {
        let mut other = message(&HelloAnswer::refused(Status::Unavailable, "closed for lunch"));
        let error = ask(&answering(other.clone()), b"").unwrap_err().to_string();
        assert!(error.contains("closed for lunch"), "{error}");
        other[4..6].copy_from_slice(&(MAJOR + 1).to_le_bytes());
        let error = ask(&answering(other), b"").unwrap_err().to_string();
        assert!(error.contains("same release"), "{error}");
        let error = ask(&answering(b"HTTP/1.1 400 Bad Request\r\n".to_vec()), b"").unwrap_err().to_string();
        assert!(error.contains("no rgpu server"), "{error}");
        let error = ask(&answering(Vec::new()), b"").unwrap_err().to_string();
        assert!(error.contains("closed the connection"), "{error}");
    }

    #[test]
    fn nothing_is_sent_plain_to_another_machine_where_encryption_is_wanted() {
        // An address for documentation: nobody is asked.
        let error = ask_as(&Wish::Unknowable, "192.0.2.1:7070", b"token").unwrap_err();
        assert!(matches!(error, ProbeError::Unknowable(_)), "{error}");
        assert!(error.to_string().contains(FINGERPRINT_VARIABLE), "{error}");
        assert!(encrypted::is_this_machine("127.0.0.1:1") && encrypted::is_this_machine("[::1]:1"));
        assert!(!encrypted::is_this_machine("192.0.2.1:1") && !encrypted::is_this_machine("nonsense"));
    }

    #[test]
    fn an_absent_server_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let error = ask(&address, b"").unwrap_err().to_string();
        assert!(error.contains("rgpu serve"), "{error}");
    }
}
