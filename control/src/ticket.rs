//! The file by which a program is told its lease.
//!
//! `rgpu run` writes it where other users cannot read it (mode 0600, in a directory of mode 0700), names it in
//! [`RGPU_LEASE`](crate::LEASE_VARIABLE), and replaces it when the lease is renewed or changed. Programs that the program
//! starts read it too: a lease covers a tree of processes.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::LeaseId;
use crate::token::PrivateKey;

/// A server that a lease gives devices of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeaseServer {
    /// The node's name in the cluster.
    pub node: String,
    /// Where the node's server listens, as `HOST:PORT`.
    pub address: String,
    /// How many devices of the lease it has. The program's ordinals are those of the first server, then the second's, ….
    pub devices: u32,
    /// Whether the connection is to be encrypted, unless it doesn't leave the machine.
    #[serde(default)]
    pub tls: bool,
    /// Where the server can encrypt: what its certificate is known by, `sha256:` and 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

/// What a program is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// The lease that the ticket is for.
    pub lease: LeaseId,
    /// The lease's token, which servers check.
    pub token: String,
    /// The holder's private key, as text.
    pub key: String,
    /// Which transport to use: `auto`, `shm`, `tcp` or `rdma`.
    pub transport: String,
    /// Where to connect, in the order of device ordinals.
    pub servers: Vec<LeaseServer>,
    /// With an encrypted connection: the certificates (PEM) that sign those of servers without a fingerprint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
}

/// The longest ticket that is read.
const MAX_TICKET: u64 = 1 << 20;

impl Ticket {
    /// Reads the ticket in a file. One that others may read is refused.
    pub fn read(path: &Path) -> io::Result<Self> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("the lease in {}: {e}", path.display()));
        let about = fs::metadata(path).map_err(named)?;
        if about.mode() & 0o077 != 0 {
            let text = format!("the lease in {} is readable by others: chmod 600 it", path.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        if about.len() > MAX_TICKET {
            return Err(named(io::Error::new(io::ErrorKind::InvalidData, "too long")));
        }
        let bytes = fs::read(path).map_err(named)?;
        serde_json::from_slice(&bytes).map_err(|e| named(io::Error::new(io::ErrorKind::InvalidData, e)))
    }

    /// Writes it, in one step, so that readers find either the old or the new one.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension(format!("new-{}", std::process::id()));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(self).map_err(io::Error::other)?)?;
        fs::rename(&new, path)
    }

    /// The holder's private key.
    pub fn private_key(&self) -> io::Result<PrivateKey> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the lease's key is damaged");
        PrivateKey::parse(&self.key).ok_or_else(damaged)
    }
}

/// A directory for tickets that only this user can read: `$XDG_RUNTIME_DIR/rgpu`, or else one in the directory for
/// temporary files.
pub fn directory() -> io::Result<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|name| !name.is_empty()).map(PathBuf::from);
    let user = fs::metadata("/proc/self")?.uid();
    if let Some(path) = runtime.map(|path| path.join("rgpu")).filter(|path| private(path, user).is_ok()) {
        return Ok(path);
    }
    let path = std::env::temp_dir().join(format!("rgpu-{user}"));
    private(&path, user)?;
    Ok(path)
}

/// Makes sure that a directory exists, and is this user's alone.
fn private(path: &Path, user: u32) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let about = fs::symlink_metadata(path)?;
    if !about.is_dir() || about.uid() != user || about.mode() & 0o077 != 0 {
        let text = format!("{} is not a directory that only you can use: remove it", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn tickets_are_read_back_unless_others_could_read_them() {
        let directory = std::env::temp_dir().join(format!("rgpu-ticket-{:016x}", LeaseId::random().0));
        let user = fs::metadata("/proc/self").unwrap().uid();
        private(&directory, user).unwrap();
        private(&directory, user).unwrap();
        let path = directory.join("ticket");
        let key = PrivateKey::generate();
        let ticket = Ticket {
            lease: LeaseId(3),
            token: "t".into(),
            key: key.to_text(),
            transport: "auto".into(),
            servers: vec![LeaseServer {
                node: "n".into(),
                address: "a:1".into(),
                devices: 1,
                tls: false,
                fingerprint: None,
            }],
            ca: None,
        };
        ticket.write(&path).unwrap();
        assert_eq!(Ticket::read(&path).unwrap(), ticket);
        assert_eq!(ticket.private_key().unwrap().public(), key.public());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Ticket::read(&path).unwrap_err().to_string().contains("readable by others"));
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(private(&directory, user).is_err());
        fs::remove_dir_all(&directory).unwrap();
    }
}
