//! Asking a server what it has, without being a CUDA program.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

use rgpu_control::settings::{self, TOKEN_FILE_VARIABLE};
use rgpu_protocol::hello::{
    Hello, HelloAnswer, MAJOR, MAX_HELLO_ANSWER, MINOR, PREFIX_BYTES, Prefix, Range, Status, message,
};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(8);
const GIB: u64 = 1 << 30;
/// Address ranges to propose; nothing is reserved here, so any that is free on the server will do.
const PROPOSALS: [Range; 3] = [
    Range { base: 0x2000_0000_0000, size: 1024 * GIB },
    Range { base: 0x3000_0000_0000, size: 256 * GIB },
    Range { base: 0x1400_0000_0000, size: 64 * GIB },
];

/// What a server said.
#[derive(Debug)]
pub struct Server {
    /// Its protocol version.
    pub version: (u16, u16),
    /// Its devices, as this user would get them.
    pub answer: HelloAnswer,
    /// How long connecting took, and the hello.
    pub times: (Duration, Duration),
}

/// The token that a file holds; empty without a file. `RGPU_TOKEN_FILE` names one where `file` doesn't.
pub fn token(file: Option<&Path>) -> Result<Vec<u8>, String> {
    let named = settings::path(TOKEN_FILE_VARIABLE);
    let Some(file) = file.or(named.as_deref()) else { return Ok(Vec::new()) };
    let token =
        std::fs::read(file).map_err(|e| format!("Cannot read the token file {}: {e}", file.display()))?;
    Ok(token.trim_ascii().to_vec())
}

/// Opens a session, and ends it once the server has answered.
pub fn ask(address: &str, token: &[u8]) -> Result<Server, String> {
    let mut refused = String::new();
    for range in PROPOSALS {
        let server = ask_with(address, token, range)?;
        match Status::from_number(server.answer.status) {
            Status::Accepted => return Ok(server),
            Status::RangeRefused => refused.clone_from(&server.answer.message),
            Status::Version | Status::Credential | Status::Unavailable => {
                return Err(format!("The server {address} refuses: {}", server.answer.message));
            }
        }
    }
    Err(format!("The server {address} has no free addresses: {refused}"))
}

fn ask_with(address: &str, token: &[u8], range: Range) -> Result<Server, String> {
    let started = Instant::now();
    let mut stream = connect(address)?;
    let connected = started.elapsed();
    let lost = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
            format!("{address} accepted the connection but says nothing; is it an rgpu server?")
        }
        std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset => {
            format!("{address} closed the connection instead of answering; is it an rgpu server?")
        }
        _ => format!("The connection to {address} failed: {e}"),
    };
    stream.set_read_timeout(Some(PATIENCE)).map_err(lost)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(lost)?;
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
        .map_err(|e| format!("What answers at {address} is no rgpu server: {e}"))?;
    let mut body = vec![0; prefix.length as usize];
    stream.read_exact(&mut body).map_err(lost)?;
    let answer = HelloAnswer::parse(prefix, &body)
        .map_err(|e| format!("The answer of the server {address} is malformed: {e}"))?;
    if prefix.major != MAJOR {
        return Err(format!(
            "The server {address} speaks version {}.{} of the protocol, and this rgpu {MAJOR}.{MINOR}: use \
             the same release on both sides",
            prefix.major, prefix.minor
        ));
    }
    Ok(Server { version: (prefix.major, prefix.minor), answer, times: (connected, started.elapsed()) })
}

fn connect(address: &str) -> Result<TcpStream, String> {
    let meanings = address.to_socket_addrs().map_err(|e| format!("{address} is unknown: {e}"))?;
    let mut last = format!("{address} has no address");
    for meaning in meanings {
        match TcpStream::connect_timeout(&meaning, PATIENCE) {
            Ok(stream) => {
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(e) => {
                let advice = match e.kind() {
                    std::io::ErrorKind::ConnectionRefused => "; is `rgpu serve` running there?",
                    std::io::ErrorKind::TimedOut => "; is the address right, and no firewall in between?",
                    _ => "",
                };
                last = format!("Cannot connect to {address}: {e}{advice}");
            }
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
        let error = ask(&answering(other.clone()), b"").unwrap_err();
        assert!(error.contains("closed for lunch"), "{error}");
        other[4..6].copy_from_slice(&(MAJOR + 1).to_le_bytes());
        let error = ask(&answering(other), b"").unwrap_err();
        assert!(error.contains("same release"), "{error}");
        let error = ask(&answering(b"HTTP/1.1 400 Bad Request\r\n".to_vec()), b"").unwrap_err();
        assert!(error.contains("no rgpu server"), "{error}");
        let error = ask(&answering(Vec::new()), b"").unwrap_err();
        assert!(error.contains("closed the connection"), "{error}");
    }

    #[test]
    fn an_absent_server_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let error = ask(&address, b"").unwrap_err();
        assert!(error.contains("rgpu serve"), "{error}");
    }
}
