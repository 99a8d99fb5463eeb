//! By what each side knows the other: certificates and their fingerprints.

use ring::digest::{SHA256, digest};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring as provider, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;

/// The SHA-256 of a certificate. As text it is `sha256:` and 64 hexadecimal digits; colons between them are read over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// A certificate's (DER).
    pub fn of(certificate: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, certificate).as_ref());
        Self(bytes)
    }

    /// The fingerprints in a list that is separated by commas.
    ///
    /// # Errors
    /// One of them is none, or there is none.
    pub fn list(text: &str) -> Result<Vec<Self>, String> {
        text.split(',').map(str::trim).map(str::parse).collect()
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Fingerprint {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let none = || format!("{text:?} is no fingerprint: give sha256: and 64 hexadecimal digits");
        let digits = text.trim().to_ascii_lowercase();
        let digits = digits.strip_prefix("sha256:").unwrap_or(&digits).replace(':', "");
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(none());
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).map_err(|_| none())?;
        }
        Ok(Self(bytes))
    }
}

/// Which servers a client takes for the right ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// Those with one of these certificates, whatever else the certificate says.
    Fingerprints(Vec<Fingerprint>),
    /// Those with a certificate for their name that one of these (PEM) has signed.
    Authorities(Vec<u8>),
}

pub(super) fn invalid(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text.into())
}

/// TLS 1.3 with ring, the cheapest cipher of this processor first.
pub(super) fn crypto() -> Arc<CryptoProvider> {
    let mut suites = vec![
        provider::cipher_suite::TLS13_AES_128_GCM_SHA256,
        provider::cipher_suite::TLS13_AES_256_GCM_SHA384,
        provider::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    #[cfg(target_arch = "x86_64")]
    if !std::arch::is_x86_feature_detected!("aes") {
        suites.rotate_right(1);
    }
    suites.shrink_to_fit();
    Arc::new(CryptoProvider { cipher_suites: suites, ..provider::default_provider() })
}

pub(super) fn certificates(pem: &[u8], what: &str) -> io::Result<Vec<CertificateDer<'static>>> {
    let bad = |e: &dyn fmt::Display| invalid(format!("{what} cannot be used: {e}"));
    let list: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|e| bad(&e))?;
    if list.is_empty() { Err(bad(&"there is no certificate (PEM) in it")) } else { Ok(list) }
}

impl Trust {
    /// What TLS is told, and the name that the server's certificate is to have.
    pub(super) fn settle(&self, host: &str) -> io::Result<(Arc<ClientConfig>, ServerName<'static>)> {
        let crypto = crypto();
        let name = ServerName::try_from(host.to_owned());
        let (verifier, name): (Arc<dyn ServerCertVerifier>, _) = match self {
            Self::Fingerprints(known) if known.is_empty() => {
                return Err(invalid("no fingerprint is known by which to tell the server"));
            }
            Self::Fingerprints(known) => {
                let algorithms = crypto.signature_verification_algorithms;
                // The name is not looked at, and says nothing to anybody who listens.
                let nobody = ServerName::try_from("rgpu").map_err(|e| invalid(e.to_string()))?;
                (Arc::new(Pinned { known: known.clone(), algorithms }), nobody)
            }
            Self::Authorities(pem) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(pem, "what signs the servers' certificates")? {
                    roots.add(certificate).map_err(|e| {
                        invalid(format!("what signs the servers' certificates cannot be used: {e}"))
                    })?;
                }
                let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), crypto.clone())
                    .build()
                    .map_err(|e| invalid(e.to_string()))?;
                let name =
                    name.map_err(|_| invalid(format!("{host:?} is no name that a certificate has")))?;
                (verifier, name)
            }
        };
        let mut config = ClientConfig::builder_with_provider(crypto)
            .with_protocol_versions(&[&TLS13])
            .map_err(|e| invalid(e.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        config.resumption = rustls::client::Resumption::disabled();
        Ok((Arc::new(config), name))
    }
}

/// Takes certificates that it knows.
#[derive(Debug)]
struct Pinned {
    known: Vec<Fingerprint>,
    algorithms: WebPkiSupportedAlgorithms,
}

/// The server has shown another certificate.
#[derive(Debug, thiserror::Error)]
#[error("its certificate's fingerprint is {found}")]
struct Unknown {
    found: Fingerprint,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = Fingerprint::of(certificate);
        if self.known.contains(&found) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::Other(OtherError(Arc::new(Unknown { found }))).into())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3 is spoken".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        // That the certificate is known says nothing before the server has shown that it has the key.
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The fingerprint of the certificate that a peer has shown.
pub(super) fn fingerprint_of_peer(shown: Option<&[CertificateDer<'_>]>) -> Option<Fingerprint> {
    shown.and_then(|chain| chain.first()).map(|certificate| Fingerprint::of(certificate))
}

/// A failure, for people: what it is, and what to do.
pub(super) fn explain(error: &Error) -> String {
    use CertificateError as C;
    let Error::InvalidCertificate(why) = error else {
        return match error {
            Error::InvalidMessage(_) => format!("what it sends is no TLS ({error})"),
            Error::AlertReceived(alert) => {
                format!("the other side ended the TLS handshake or session: {alert:?}")
            }
            other => other.to_string(),
        };
    };
    match why {
        C::Other(OtherError(other)) if other.is::<Unknown>() => format!(
            "it is not the server that was expected, or has a new certificate: {other}, which is none of those that \
             are trusted (`rgpu serve` says its own when it starts)"
        ),
        C::Expired | C::ExpiredContext { .. } => {
            "its certificate has expired: its administrator has to get a new one (or this machine's clock is wrong)".into()
        }
        C::NotValidYet | C::NotValidYetContext { .. } => {
            "its certificate is not valid yet: compare the clocks of both machines".into()
        }
        C::UnknownIssuer => {
            "its certificate is signed by none of the authorities that are trusted (RGPU_TLS_CA)".into()
        }
        C::NotValidForName | C::NotValidForNameContext { .. } => {
            format!("its certificate is for another name than the one by which it was reached ({error})")
        }
        _ => format!("its certificate cannot be trusted: {error}"),
    }
}
