//! The file by which a program is told its lease.
//!
//! It holds a private key, so it must not outlive the lease, however `rgpu run` ends. So it is no file of a file system: it is
//! memory of `rgpu run`'s own (a memory file of mode 0600, sealed), and [`RGPU_LEASE`](crate::LEASE_VARIABLE) names it as
//! `/proc/PID/fd/N`. Other processes of the same user can open that, so the program's children can, whatever descriptors they close; and
//! it is gone in the moment in which `rgpu run` is. When the lease is renewed or changed, another memory file takes the place of the
//! first under the same name, in one step. Any other file of mode 0600 with a ticket does as well, and in a container one that was
//! mounted read-only.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{MemfdFlags, Mode, SealFlags};
use serde::{Deserialize, Serialize};

use crate::LeaseId;
use crate::api::Lease;
use crate::files;
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
    /// The ticket of a lease, for its holder; `None` where the broker shows no token: it shows that of an active lease, to its tenant.
    pub fn of(lease: &Lease, key: &PrivateKey) -> Option<Self> {
        Some(Self {
            lease: lease.id,
            token: lease.token.clone()?,
            key: key.to_text(),
            transport: lease.transport.clone(),
            servers: lease.servers.clone(),
            ca: lease.ca.clone(),
        })
    }

    /// Reads the ticket in a file. One that others may read is refused, unless it lies on a file system that is mounted read-only: so
    /// containers are given theirs, of whose users the giver knows nothing.
    pub fn read(path: &Path) -> io::Result<Self> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("the lease in {}: {e}", path.display()));
        let about = fs::metadata(path).map_err(named)?;
        if about.mode() & 0o077 != 0 && !is_read_only(path) {
            let text = format!("the lease in {} is readable by others: chmod 600 it", path.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        // Where `rgpu run` has gone and another process has its number, this may be anything.
        if !about.is_file() {
            return Err(named(io::Error::new(io::ErrorKind::InvalidData, "it is no file")));
        }
        if about.len() > MAX_TICKET {
            return Err(named(io::Error::new(io::ErrorKind::InvalidData, "too long")));
        }
        let bytes = fs::read(path).map_err(named)?;
        serde_json::from_slice(&bytes).map_err(|e| named(io::Error::new(io::ErrorKind::InvalidData, e)))
    }

    /// Makes the ticket readable for this user's processes, as long as the answer and this process live.
    ///
    /// # Errors
    /// What the system says; also where `/proc` is not there.
    pub fn publish(&self) -> io::Result<Published> {
        let place = self.memory_file()?;
        let path = PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), place.as_raw_fd()));
        Self::read(&path)?;
        Ok(Published { path, place: Mutex::new(place), copies: Mutex::default() })
    }

    fn memory_file(&self) -> io::Result<OwnedFd> {
        let file = rustix::fs::memfd_create("rgpu-lease", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)?;
        let mut file = File::from(file);
        file.write_all(&serde_json::to_vec(self).map_err(io::Error::other)?)?;
        let seals = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        Ok(file.into())
    }

    /// Writes it to a file, in one step, so that readers find either the old or the new one.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        self.write_with_mode(path, 0o600)
    }

    /// Writes it to a file that every user of a container can read, for a folder that nobody else reaches and the container has
    /// mounted read-only. Which user a container's program is, and as whom files outside appear there, is known to nobody before.
    pub fn write_for_container(&self, path: &Path) -> io::Result<()> {
        self.write_with_mode(path, 0o444)
    }

    fn write_with_mode(&self, path: &Path, mode: u32) -> io::Result<()> {
        files::replace(path, mode, &serde_json::to_vec(self).map_err(io::Error::other)?)
    }

    /// The holder's private key.
    pub fn private_key(&self) -> io::Result<PrivateKey> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the lease's key is damaged");
        PrivateKey::parse(&self.key).ok_or_else(damaged)
    }
}

/// Whether a file lies on a file system that is mounted read-only.
fn is_read_only(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|about| about.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

/// A ticket that this user's processes can read.
#[derive(Debug)]
pub struct Published {
    path: PathBuf,
    place: Mutex<OwnedFd>,
    copies: Mutex<Vec<PathBuf>>,
}

impl Published {
    /// What to open for it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts another ticket in its place: who opens it finds either the old or the new one.
    pub fn replace(&self, ticket: &Ticket) -> io::Result<()> {
        let new = ticket.memory_file()?;
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        rustix::io::dup3(&new, &mut place, rustix::io::DupFlags::CLOEXEC)?;
        drop(place);
        let copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        copies.iter().try_for_each(|copy| ticket.write(copy))
    }

    /// Keeps a file with the same ticket, for programs that see neither this process nor its memory, as those in containers. Whoever
    /// asks for it removes the file when the lease has ended.
    ///
    /// # Errors
    /// What the system says.
    pub fn copy_to(&self, path: &Path) -> io::Result<()> {
        // Held from before the ticket is read, so that a newer one cannot be overwritten with an older one.
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        Ticket::read(&self.path)?.write(path)?;
        copies.push(path.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn ticket() -> Ticket {
        Ticket {
            lease: LeaseId(3),
            token: "t".into(),
            key: PrivateKey::generate().to_text(),
            transport: "auto".into(),
            servers: vec![LeaseServer {
                node: "n".into(),
                address: "a:1".into(),
                devices: 1,
                tls: false,
                fingerprint: None,
            }],
            ca: None,
        }
    }

    #[test]
    fn tickets_are_read_back_unless_others_could_read_them() {
        let path = std::env::temp_dir().join(format!("rgpu-ticket-{:016x}", LeaseId::random().0));
        let ticket = ticket();
        ticket.write(&path).unwrap();
        assert_eq!(Ticket::read(&path).unwrap(), ticket);
        assert_eq!(ticket.private_key().unwrap().to_text(), ticket.key);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Ticket::read(&path).unwrap_err().to_string().contains("readable by others"));
        fs::remove_file(&path).unwrap();
        // One for a container is refused where it is not mounted as one.
        ticket.write_for_container(&path).unwrap();
        ticket.write_for_container(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o444);
        assert!(Ticket::read(&path).unwrap_err().to_string().contains("readable by others"));
        fs::remove_file(&path).unwrap();
        assert!(Ticket::read(Path::new("/proc/self")).is_err());
    }

    #[test]
    fn a_published_ticket_is_read_by_other_processes_and_replaced_in_one_step() {
        let (first, second) = (ticket(), Ticket { token: "u".into(), ..ticket() });
        let published = first.publish().unwrap();
        let seen = std::process::Command::new("cat").arg(published.path()).output().unwrap();
        assert_eq!(serde_json::from_slice::<Ticket>(&seen.stdout).unwrap(), first);
        let path = published.path().to_owned();
        published.replace(&second).unwrap();
        assert_eq!(published.path(), path);
        assert_eq!(Ticket::read(&path).unwrap(), second);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let copy = std::env::temp_dir().join(format!("rgpu-ticket-copy-{:016x}", LeaseId::random().0));
        published.copy_to(&copy).unwrap();
        assert_eq!(Ticket::read(&copy).unwrap(), second);
        published.replace(&first).unwrap();
        assert_eq!(Ticket::read(&copy).unwrap(), first);
        fs::remove_file(copy).unwrap();
        drop(published);
        assert!(Ticket::read(&path).is_err());
    }
}
