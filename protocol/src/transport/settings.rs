//! What users set, and where clients on the same machine look.

/// The environment variable that says which transport a program uses.
pub const TRANSPORT_VARIABLE: &str = "RGPU_TRANSPORT";

/// The environment variable that says that what leaves the machine is to be encrypted.
pub const ENCRYPT_VARIABLE: &str = "RGPU_ENCRYPT";
/// The environment variable with the [fingerprints](super::tls::Fingerprint) of certificates that are trusted, separated by commas.
pub const FINGERPRINT_VARIABLE: &str = "RGPU_TLS_FINGERPRINT";
/// The environment variable that names a file with the certificates (PEM) that sign those of servers.
pub const CA_VARIABLE: &str = "RGPU_TLS_CA";

/// The name of the abstract Unix socket beside a TCP listener, over which clients on the same machine find
/// shared memory.
pub fn local_name(address: &std::net::SocketAddr) -> String {
    format!("rgpu/{address}")
}
