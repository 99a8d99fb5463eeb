//! The certificates that a broker shows, before anything is known of it.

use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};

use super::ClientError;

/// How long the broker may take for each step of the handshake.
const PATIENCE: Duration = Duration::from_secs(10);

/// A certificate that was shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presented(pub Vec<u8>);

impl Presented {
    /// The certificate in PEM.
    pub fn pem(&self) -> String {
        let text = STANDARD.encode(&self.0);
        let lines: Vec<&str> =
            text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    }
}

/// The certificates that whoever answers at `https://HOST[:PORT]` shows, its own first. That proves nothing: anybody can show
/// them. It is for choosing one by its fingerprint, which is then who signs the broker's certificate in a connection that is checked.
///
/// # Errors
/// The address is none, or nobody answers there with TLS.
pub fn presented(url: &str) -> Result<Vec<Presented>, ClientError> {
    let setup = |why: String| ClientError::Setup(why);
    let address = url.strip_prefix("https://").unwrap_or(url).trim_end_matches('/');
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') && !port.ends_with(']') => {
            let port = port.parse::<u16>().map_err(|_| setup(format!("{url:?} has no port number")))?;
            (host, port)
        }
        _ => (address, 443),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned());
    let name = name.map_err(|_| setup(format!("{host:?} is neither a host's name nor an address")))?;

    let unreachable = |why: String| ClientError::Unreachable { broker: url.to_owned(), why };
    let found = (host, port).to_socket_addrs().map_err(|e| unreachable(e.to_string()))?;
    let mut last = format!("{host} has no address");
    let connected = found.into_iter().find_map(|address| {
        TcpStream::connect_timeout(&address, PATIENCE).map_err(|e| last = e.to_string()).ok()
    });
    let mut socket = connected.ok_or_else(|| unreachable(last))?;
    let limited =
        socket.set_read_timeout(Some(PATIENCE)).and_then(|()| socket.set_write_timeout(Some(PATIENCE)));
    limited.map_err(|e| unreachable(e.to_string()))?;

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let seen = Arc::new(Seen {
        chain: Mutex::default(),
        schemes: provider.signature_verification_algorithms.supported_schemes(),
    });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| setup(e.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(seen.clone())
        .with_no_client_auth();
    let mut connection = ClientConnection::new(Arc::new(config), name).map_err(|e| setup(e.to_string()))?;
    let ended = connection.complete_io(&mut socket);
    let chain = std::mem::take(&mut *seen.chain.lock().unwrap_or_else(PoisonError::into_inner));
    // A broker that asks for a certificate of this side's has shown its own before it refuses.
    match ended {
        Err(e) if chain.is_empty() => Err(unreachable(e.to_string())),
        _ => Ok(chain.into_iter().map(Presented).collect()),
    }
}

/// Takes any certificate, and keeps what was shown.
#[derive(Debug)]
struct Seen {
    chain: Mutex<Vec<Vec<u8>>>,
    schemes: Vec<SignatureScheme>,
}

impl ServerCertVerifier for Seen {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chain = std::iter::once(own).chain(others).map(|certificate| certificate.to_vec()).collect();
        *self.chain.lock().unwrap_or_else(PoisonError::into_inner) = chain;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}
