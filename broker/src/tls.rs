//! Encrypted connections to the broker.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::config::TlsFiles;

/// Why the files for encrypted connections are no good.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// One of them cannot be read, or isn't what it should be.
    #[error("{what} in {path} cannot be used: {why}")]
    File {
        /// What was looked for there.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// What is the matter.
        why: String,
    },
    /// The private key is no secret.
    #[error("the private key in {path} is readable by every user of this machine: chmod 600 it")]
    Exposed {
        /// Where.
        path: PathBuf,
    },
}

fn problem(what: &'static str, path: &Path, why: impl std::fmt::Display) -> TlsError {
    TlsError::File { what, path: path.to_path_buf(), why: why.to_string() }
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = std::fs::read(path).map_err(|e| problem(what, path, e))?;
    let list = CertificateDer::pem_slice_iter(&bytes)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| problem(what, path, e))?;
    if list.is_empty() {
        return Err(problem(what, path, "the file has no certificate in PEM"));
    }
    Ok(list)
}

/// What the TLS library is told. With an authority for clients, they must show a certificate that it signed.
pub fn server_config(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = certificates("the broker's certificate", &files.certificate)?;
    let what = "the private key";
    let about = std::fs::metadata(&files.key).map_err(|e| problem(what, &files.key, e))?;
    if about.mode() & 0o007 != 0 {
        return Err(TlsError::Exposed { path: files.key.clone() });
    }
    let key = std::fs::read(&files.key).map_err(|e| problem(what, &files.key, e))?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|e| problem(what, &files.key, e))?;

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| problem(what, &files.key, e))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let what = "the authority of clients";
            let mut roots = RootCertStore::empty();
            for certificate in certificates(what, path)? {
                roots.add(certificate).map_err(|e| problem(what, path, e))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|e| problem(what, path, e))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    // This also compares the key with the certificate.
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|e| problem("the broker's certificate with its key", &files.certificate, e))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
