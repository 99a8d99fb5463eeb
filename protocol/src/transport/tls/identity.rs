//! What a server shows, and how it proves that it has the certificate's private key.
//!
//! The process that speaks TLS with a client need not have the key. Whoever has it ([`Identity::from_pem`]) tells the process what
//! there is to show ([`Identity::shown`]); the process makes an identity of that ([`Identity::signed_elsewhere`]) and asks for
//! the one signature that a handshake takes. [`Identity::sign`] signs nothing but what a server signs in a TLS 1.3 handshake:
//! the process cannot have other things signed in the server's name.

use super::trust::{Fingerprint, certificates, crypto, invalid};
use crate::wire::{Reader, Result as DecodeResult, Wire};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, Signer, SigningKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{Error, ServerConfig, SignatureAlgorithm, SignatureScheme};
use std::fmt;
use std::io;
use std::sync::Arc;

/// What a server signs begins with so many spaces (RFC 8446, section 4.4.3), then this text and a zero.
const SPACES: usize = 64;
const CONTEXT: &[u8] = b"TLS 1.3, server CertificateVerify\0";
/// The lengths of the hashes that TLS 1.3's cipher suites use.
const HASHES: [usize; 2] = [32, 48];
/// The signatures of TLS 1.3's handshakes, the best of each kind of key first.
const SCHEMES: [SignatureScheme; 7] = [
    SignatureScheme::ED25519,
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ECDSA_NISTP521_SHA512,
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA256,
];

/// Whether a message is exactly what a server signs in a TLS 1.3 handshake.
pub fn is_certificate_verify(message: &[u8]) -> bool {
    let Some((spaces, rest)) = message.split_at_checked(SPACES) else { return false };
    let hash = rest.strip_prefix(CONTEXT);
    spaces.iter().all(|byte| *byte == b' ') && hash.is_some_and(|hash| HASHES.contains(&hash.len()))
}

/// What a process has to know of a server's certificate and key to speak TLS in its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The certificate, and those that sign it.
    chain: Vec<Vec<u8>>,
    /// The kind of key, as rustls numbers it.
    algorithm: u8,
    /// The kinds of signature that it can make.
    schemes: Vec<u16>,
}

impl Wire for Shown {
    const MIN_BYTES: usize = 4 + 1 + 4;
    fn encode(&self, out: &mut Vec<u8>) {
        self.chain.encode(out);
        self.algorithm.encode(out);
        self.schemes.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> DecodeResult<Self> {
        Ok(Self {
            chain: Wire::decode(reader)?,
            algorithm: Wire::decode(reader)?,
            schemes: Wire::decode(reader)?,
        })
    }
}

/// Asks whoever has a private key for a signature.
pub trait AskToSign: fmt::Debug + Send + Sync {
    /// The signature of a message, of the kind that TLS gives this number.
    ///
    /// # Errors
    /// It is refused, or nobody answers.
    fn ask(&self, scheme: u16, message: &[u8]) -> io::Result<Vec<u8>>;
}

/// A private key that somebody else has.
#[derive(Debug)]
struct Elsewhere {
    algorithm: SignatureAlgorithm,
    schemes: Vec<SignatureScheme>,
    asks: Arc<dyn AskToSign>,
}

impl SigningKey for Elsewhere {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let scheme = *self.schemes.iter().find(|scheme| offered.contains(scheme))?;
        Some(Box::new(OneSignature { scheme, asks: self.asks.clone() }))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.algorithm
    }
}

#[derive(Debug)]
struct OneSignature {
    scheme: SignatureScheme,
    asks: Arc<dyn AskToSign>,
}

impl Signer for OneSignature {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        self.asks.ask(self.scheme.into(), message).map_err(|e| Error::General(e.to_string()))
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}

/// What a server shows: its certificate, and by what means it signs.
#[derive(Clone)]
pub struct Identity {
    pub(super) config: Arc<ServerConfig>,
    certified: Arc<CertifiedKey>,
    fingerprint: Fingerprint,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({})", self.fingerprint)
    }
}

impl Identity {
    /// A certificate (with those that sign it, if any) and its private key, both in PEM.
    ///
    /// # Errors
    /// They are none, or don't belong together.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> io::Result<Self> {
        Self::with_crypto(certificate, key, crypto())
    }

    pub(super) fn with_crypto(
        certificate: &[u8],
        key: &[u8],
        crypto: Arc<CryptoProvider>,
    ) -> io::Result<Self> {
        let chain = certificates(certificate, "the certificate")?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|e| invalid(format!("the private key cannot be used: {e}")))?;
        let certified = CertifiedKey::from_der(chain, key, &crypto)
            .map_err(|e| invalid(format!("the certificate cannot be used with this key: {e}")))?;
        Self::new(certified, crypto)
    }

    /// The identity of a server whose private key somebody else has, who is asked for signatures.
    ///
    /// # Errors
    /// There is no certificate.
    pub fn signed_elsewhere(shown: Shown, asks: Arc<dyn AskToSign>) -> io::Result<Self> {
        let Shown { chain, algorithm, schemes } = shown;
        if chain.is_empty() {
            return Err(invalid("there is no certificate"));
        }
        let chain = chain.into_iter().map(CertificateDer::from).collect();
        let schemes = schemes.into_iter().map(SignatureScheme::from).collect();
        let key = Elsewhere { algorithm: algorithm.into(), schemes, asks };
        Self::new(CertifiedKey::new(chain, Arc::new(key)), crypto())
    }

    fn new(certified: CertifiedKey, crypto: Arc<CryptoProvider>) -> io::Result<Self> {
        let first = certified.end_entity_cert().map_err(|e| invalid(e.to_string()))?;
        let fingerprint = Fingerprint::of(first);
        let certified = Arc::new(certified);
        let mut config = ServerConfig::builder_with_provider(crypto)
            .with_protocol_versions(&[&TLS13])
            .map_err(|e| invalid(e.to_string()))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified.clone())));
        // Connections are never resumed.
        config.send_tls13_tickets = 0;
        Ok(Self { config: Arc::new(config), certified, fingerprint })
    }

    /// By what clients know it.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// What a process that [asks for signatures](Identity::signed_elsewhere) has to know of it.
    pub fn shown(&self) -> Shown {
        let key = &self.certified.key;
        let can = |scheme: &SignatureScheme| key.choose_scheme(&[*scheme]).is_some();
        Shown {
            chain: self.certified.cert.iter().map(|certificate| certificate.to_vec()).collect(),
            algorithm: key.algorithm().into(),
            schemes: SCHEMES.into_iter().filter(can).map(u16::from).collect(),
        }
    }

    /// Signs what a server signs in a TLS 1.3 handshake, and nothing else.
    ///
    /// # Errors
    /// It is something else, or the key does not make signatures of this kind; in words for a log.
    pub fn sign(&self, scheme: u16, message: &[u8]) -> io::Result<Vec<u8>> {
        if !is_certificate_verify(message) {
            let text = format!("{} bytes are not what a server signs in a TLS 1.3 handshake", message.len());
            return Err(invalid(text));
        }
        let scheme = SignatureScheme::from(scheme);
        let signer = SCHEMES.contains(&scheme).then(|| self.certified.key.choose_scheme(&[scheme])).flatten();
        let signer =
            signer.ok_or_else(|| invalid(format!("the server's key makes no signatures by {scheme:?}")))?;
        signer.sign(message).map_err(|e| io::Error::other(format!("the signature cannot be made: {e}")))
    }
}

#[cfg(test)]
mod tests;
