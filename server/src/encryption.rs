//! Connections that are encrypted (TLS): who gets one, and the certificate.
//!
//! The certificate's private key stays in the daemon, which looks at a client's first byte and no more: TLS is spoken by the
//! process that serves the application, and that has the daemon [sign](crate::handshake) its handshake.

use crate::options::{Encryption, TlsOptions};
use rgpu_protocol::transport::tls::{FIRST_BYTE, Fingerprint, Identity};
use rgpu_protocol::transport::{Ready, Tcp, Transport};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

/// How a server encrypts.
#[derive(Debug)]
pub(crate) struct Encrypts {
    identity: Option<Identity>,
    required: bool,
}

impl Encrypts {
    /// By the options; a certificate is made where none was given.
    pub(crate) fn new(options: &TlsOptions, by_default: Encryption) -> io::Result<Self> {
        let mode = options.encryption.unwrap_or(by_default);
        let identity = match (mode, &options.files) {
            (Encryption::Off, None) => None,
            (Encryption::Off, Some(_)) => {
                let text = "--tls-certificate is of no use with --tls off: say --tls offer or --tls require";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            (_, None) => {
                let (certificate, key) = make()?;
                Some(Identity::from_pem(certificate.as_bytes(), key.as_bytes())?)
            }
            (_, Some((certificate, key))) => Some(from_files(certificate, key)?),
        };
        Ok(Self { identity, required: mode == Encryption::Require })
    }

    /// By what clients know this server, if it encrypts.
    pub(crate) fn fingerprint(&self) -> Option<Fingerprint> {
        self.identity.as_ref().map(Identity::fingerprint)
    }

    /// Whether only encrypted connections are taken from other machines.
    pub(crate) fn is_required(&self) -> bool {
        self.required
    }

    /// The certificate to speak TLS with, if this client, which has come by TCP, begins with that.
    pub(crate) fn asked_for(&self, tcp: &Tcp, end: Instant) -> io::Result<Option<&Identity>> {
        match &self.identity {
            Some(identity) if first_byte(tcp, end)? == Some(FIRST_BYTE) => Ok(Some(identity)),
            _ => Ok(None),
        }
    }
}

/// A client's first byte, which stays where it is; none where the client leaves.
fn first_byte(tcp: &Tcp, end: Instant) -> io::Result<Option<u8>> {
    let mut byte = 0u8;
    loop {
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        // SAFETY: receives one byte into a valid place.
        let n = unsafe { libc::recv(tcp.descriptor(), (&raw mut byte).cast(), 1, flags) };
        match n {
            0 => return Ok(None),
            1 => return Ok(Some(byte)),
            _ => {}
        }
        let e = io::Error::last_os_error();
        match e.kind() {
            io::ErrorKind::Interrupted => continue,
            io::ErrorKind::WouldBlock => {}
            _ => return Err(e),
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        tcp.wait(Ready::READ, None, Some(left))?;
    }
}

/// A certificate that nobody has signed but itself, and its key: PEM.
fn make() -> io::Result<(String, String)> {
    let made = rcgen::generate_simple_self_signed(vec!["rgpu".to_owned()]).map_err(io::Error::other)?;
    Ok((made.cert.pem(), made.signing_key.serialize_pem()))
}

/// What two files hold. Where neither exists, they are made.
fn from_files(certificate: &Path, key: &Path) -> io::Result<Identity> {
    let named = |path: &Path, e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    if !certificate.exists() && !key.exists() {
        let (public, private) = make()?;
        let create = |path: &Path, mode, text: &str| {
            let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
            file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|e| named(path, e))
        };
        create(key, 0o600, &private)?;
        create(certificate, 0o644, &public)?;
        tracing::info!("made a certificate, {}", certificate.display());
    }
    let about = fs::metadata(key).map_err(|e| named(key, e))?;
    if about.mode() & 0o007 != 0 {
        let text = format!("the private key {} is readable by every user: chmod 600 it", key.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    let read = |path: &Path| fs::read(path).map_err(|e| named(path, e));
    Identity::from_pem(&read(certificate)?, &read(key)?).map_err(|e| named(certificate, e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    /// Only tells hanging from working.
    const LIMIT: Duration = Duration::from_secs(30);

    fn options(encryption: Encryption) -> TlsOptions {
        TlsOptions { encryption: Some(encryption), files: None }
    }

    #[test]
    fn clients_that_speak_plainly_are_told_from_others() {
        let encrypts = Encrypts::new(&options(Encryption::Offer), Encryption::Off).unwrap();
        let off = Encrypts::new(&options(Encryption::Off), Encryption::Off).unwrap();
        for (said, asks) in [(&b"RGPU"[..], false), (b"\x16\x03\x01", true)] {
            let (client, server) = UnixStream::pair().unwrap();
            (&client).write_all(said).unwrap();
            let tcp = Tcp::local(server.into(), "a".into());
            let end = Instant::now() + LIMIT;
            assert_eq!(encrypts.asked_for(&tcp, end).unwrap().is_some(), asks);
            assert!(off.asked_for(&tcp, end).unwrap().is_none());
            // It is still there.
            let mut bytes = [0; 8];
            assert_eq!((tcp.recv(&mut bytes).unwrap(), &bytes[..said.len()]), (said.len(), said));
        }
        let (client, server) = UnixStream::pair().unwrap();
        let soon = Instant::now() + Duration::from_millis(20);
        let silent = encrypts.asked_for(&Tcp::local(server.into(), "a".into()), soon);
        assert_eq!(silent.err().map(|e| e.kind()), Some(io::ErrorKind::TimedOut));
        drop(client);
    }

    #[test]
    fn a_certificate_is_made_once_and_its_key_is_secret() {
        use std::os::unix::fs::PermissionsExt;
        let directory = std::env::temp_dir().join(format!("rgpu-tls-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let files = (directory.join("cert.pem"), directory.join("key.pem"));
        let options = TlsOptions { encryption: Some(Encryption::Offer), files: Some(files.clone()) };
        let made = Encrypts::new(&options, Encryption::Off).unwrap();
        let again = Encrypts::new(&options, Encryption::Off).unwrap();
        assert!(made.fingerprint().is_some() && made.fingerprint() == again.fingerprint());
        assert_eq!(fs::metadata(&files.1).unwrap().mode() & 0o777, 0o600);
        fs::set_permissions(&files.1, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Encrypts::new(&options, Encryption::Off).unwrap_err().to_string().contains("chmod 600"));
        let off = TlsOptions { encryption: Some(Encryption::Off), ..options };
        assert!(Encrypts::new(&off, Encryption::Offer).unwrap_err().to_string().contains("--tls offer"));
        fs::remove_dir_all(&directory).unwrap();
    }
}
