//! A cluster's own authority for certificates: it signs the broker's, and clients' where the broker asks for them.
//!
//! Its key and its certificate lie beside the broker's state. Who joins the cluster knows the authority by its certificate's
//! fingerprint ([`Authority::fingerprint`]), which comes with the address, and takes the certificate from the broker itself: so the broker
//! shows it after its own.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use time::{Duration, OffsetDateTime};

use crate::setup::{SetupError, at, read_secret, write_secret};

/// The authority's files beside the state.
const KEY: &str = "authority.key";
const CERTIFICATE: &str = "authority.pem";
/// The broker's.
pub(crate) const TLS_KEY: &str = "tls.key";
pub(crate) const TLS_CERTIFICATE: &str = "tls.pem";
/// For how long certificates are good. Nobody has to be told a new one of the broker's; a new authority, everybody.
const AUTHORITY_DAYS: i64 = 20 * 365;
const LEAF_DAYS: i64 = 2 * 365;
/// By how much clocks may be behind when a certificate is new.
const SKEW: Duration = Duration::hours(1);

/// Where a directory's authority has its certificate.
pub fn certificate_path(data_dir: &Path) -> PathBuf {
    data_dir.join(CERTIFICATE)
}

/// A certificate with its private key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// The certificate; of the broker's, then the authority's.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// Signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

fn failed(e: rcgen::Error) -> SetupError {
    SetupError::Asked(format!("a certificate cannot be made: {e}"))
}

/// What certificates that are good from now on have in common.
fn params(name: &str, days: i64) -> CertificateParams {
    let now = OffsetDateTime::now_utc();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = now - SKEW;
    params.not_after = now + Duration::days(days);
    params
}

impl Authority {
    /// Makes one in the directory of the state.
    ///
    /// # Errors
    /// There is one, or the directory cannot be written to.
    pub fn make(data_dir: &Path) -> Result<Self, SetupError> {
        let key = KeyPair::generate().map_err(failed)?;
        let issuer = Self::issuer(key);
        let certificate = issuer.0.self_signed(&issuer.1).map_err(failed)?;
        write_secret(&data_dir.join(KEY), &issuer.1.serialize_pem())?;
        let path = certificate_path(data_dir);
        fs::write(&path, certificate.pem()).map_err(at(&path))?;
        Ok(Self { pem: certificate.pem(), issuer: Issuer::new(issuer.0, issuer.1) })
    }

    /// The one in the directory of the state, if there is one.
    ///
    /// # Errors
    /// Its files cannot be read, are damaged, or the key is no secret.
    pub fn read(data_dir: &Path) -> Result<Option<Self>, SetupError> {
        let (key_path, path) = (data_dir.join(KEY), certificate_path(data_dir));
        let Some(key) = read_secret(&key_path)? else { return Ok(None) };
        let key = KeyPair::from_pem(&key).map_err(|_| SetupError::Damaged { path: key_path })?;
        let pem = fs::read_to_string(&path).map_err(at(&path))?;
        if CertificateDer::from_pem_slice(pem.as_bytes()).is_err() {
            return Err(SetupError::Damaged { path });
        }
        // Its name follows from its key, so that the certificate need not be taken apart.
        let (params, key) = Self::issuer(key);
        Ok(Some(Self { issuer: Issuer::new(params, key), pem }))
    }

    fn issuer(key: KeyPair) -> (CertificateParams, KeyPair) {
        let number = &blake3::hash(key.public_key_raw()).to_hex()[..12];
        let mut params = params(&format!("rgpu cluster {number}"), AUTHORITY_DAYS);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        (params, key)
    }

    /// Its certificate, in PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The SHA-256 of its certificate: `sha256:` and 64 hexadecimal digits.
    pub fn fingerprint(&self) -> String {
        let der = CertificateDer::from_pem_slice(self.pem.as_bytes()).expect("it was read or made as PEM");
        let digest = ring::digest::digest(&ring::digest::SHA256, &der);
        let digits: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha256:{digits}")
    }

    /// A certificate for the broker: for the names and addresses by which it is reached.
    ///
    /// # Errors
    /// One of them is none.
    pub fn broker(&self, addresses: &[String]) -> Result<Signed, SetupError> {
        let mut params = params("rgpu broker", LEAF_DAYS);
        let named = CertificateParams::new(addresses.to_vec()).map_err(failed)?;
        params.subject_alt_names = named.subject_alt_names;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let signed = self.sign(params)?;
        Ok(Signed { certificate: signed.certificate + &self.pem, ..signed })
    }

    /// A certificate for a machine that speaks to the broker.
    ///
    /// # Errors
    /// None that its argument could cause.
    pub fn client(&self, name: &str) -> Result<Signed, SetupError> {
        let mut params = params(name, LEAF_DAYS);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Signed, SetupError> {
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?;
        Ok(Signed { certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Signs a certificate for the broker and puts it and its key in their places, of earlier ones too.
    ///
    /// # Errors
    /// An address is none, or the directory cannot be written to.
    pub fn install(&self, data_dir: &Path, addresses: &[String]) -> Result<(), SetupError> {
        let signed = self.broker(addresses)?;
        // A broker that starts in between finds a key that doesn't fit and says so; the next start does.
        for (name, text) in [(TLS_KEY, &signed.key), (TLS_CERTIFICATE, &signed.certificate)] {
            let path = data_dir.join(name);
            let new = path.with_added_extension("new");
            let _ = fs::remove_file(&new); // left by one that was interrupted
            write_secret(&new, text)?;
            fs::rename(&new, &path).map_err(at(&path))?;
        }
        Ok(())
    }
}

/// Whether a text can stand in a certificate as a name or an address by which somebody is reached.
pub fn check_address(text: &str) -> Result<(), SetupError> {
    let labels = || {
        text.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        })
    };
    if text.parse::<IpAddr>().is_ok() || (text.len() <= 253 && labels()) {
        return Ok(());
    }
    Err(SetupError::Asked(format!(
        "{text:?} is neither a host's name nor an IP address (without a port; addresses of IPv6 without brackets)"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_signs_the_same_after_it_was_read_again() {
        let directory = std::env::temp_dir().join(format!("rgpu-authority-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        assert!(Authority::read(&directory).unwrap().is_none());
        let made = Authority::make(&directory).unwrap();
        assert!(Authority::make(&directory).is_err());
        let read = Authority::read(&directory).unwrap().unwrap();
        assert_eq!((read.pem(), read.fingerprint()), (made.pem(), made.fingerprint()));
        read.install(&directory, &["broker.example".into(), "127.0.0.1".into()]).unwrap();
        read.install(&directory, &["127.0.0.1".into()]).unwrap();
        let chain = fs::read(directory.join(TLS_CERTIFICATE)).unwrap();
        assert_eq!(CertificateDer::pem_slice_iter(&chain).count(), 2);
        fs::write(certificate_path(&directory), "rubbish").unwrap();
        assert!(matches!(Authority::read(&directory), Err(SetupError::Damaged { .. })));
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn addresses_are_names_or_numbers() {
        for good in ["broker.example.org", "gpu-1", "10.0.0.1", "fd00::1"] {
            assert!(check_address(good).is_ok(), "{good}");
        }
        for bad in ["", "b:7080", "https://b", "[fd00::1]", "a b", "b/", "a..b"] {
            assert!(check_address(bad).is_err(), "{bad}");
        }
    }
}
