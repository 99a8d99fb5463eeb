//! What was prepared on a node: files, so that it survives restarts of the plugin, and two plugins side by side agree.
//!
//! `BASE/claims/ID/` has `about.json`, and the folder `lease` with the ticket, which containers get. `BASE` can be entered by root
//! alone: whoever is not in such a container does not get at a ticket.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rgpu_control::ticket::Ticket;
use rgpu_control::{LeaseId, files};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::claim::Allocated;
use crate::container::TICKET;
use crate::names::is_plain;

/// What is prepared for a claim, or for a container of the device plugin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prepared {
    /// The claim's UID, or a name that the device plugin made.
    pub id: String,
    /// The claim's namespace; empty for the device plugin.
    #[serde(default)]
    pub namespace: String,
    /// The claim's name.
    #[serde(default)]
    pub name: String,
    /// The key of the lease.
    pub key: String,
    /// The lease.
    pub lease: LeaseId,
    /// The devices of the pool, or of the plugin.
    pub devices: Vec<Allocated>,
    /// When it was prepared, in seconds since 1970.
    pub since: u64,
}

/// The files.
#[derive(Debug, Clone)]
pub struct Store {
    base: PathBuf,
}

/// While this lives, no other process changes the files.
pub struct Locked<'a> {
    store: &'a Store,
    _file: File,
}

impl Store {
    /// In a folder, which is made where it is missing.
    ///
    /// # Errors
    /// The folder cannot be made or is not this user's.
    pub fn open(base: &Path) -> io::Result<Self> {
        let private = |path: &Path| {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o700))
        };
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", base.display()));
        private(base).map_err(named)?;
        private(&base.join("claims")).map_err(named)?;
        Ok(Self { base: base.to_owned() })
    }

    /// The folder with a ticket, which a container gets.
    pub fn lease_folder(&self, id: &str) -> PathBuf {
        self.folder(id).join("lease")
    }

    fn folder(&self, id: &str) -> PathBuf {
        self.base.join("claims").join(id)
    }

    /// What is prepared under an id.
    pub fn get(&self, id: &str) -> Option<Prepared> {
        if !is_plain(id) {
            return None;
        }
        let text = fs::read(self.folder(id).join("about.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// All that is prepared.
    pub fn all(&self) -> Vec<Prepared> {
        let entries = fs::read_dir(self.base.join("claims")).into_iter().flatten().flatten();
        entries.filter_map(|entry| self.get(entry.file_name().to_str()?)).collect()
    }

    /// Keeps other processes from changing anything. Waits for those that do; blocks the thread for as long as files are written.
    ///
    /// # Errors
    /// What the system says.
    pub fn lock(&self) -> io::Result<Locked<'_>> {
        let path = self.base.join("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        Ok(Locked { store: self, _file: file })
    }
}

impl Locked<'_> {
    /// Writes the ticket and what is prepared.
    ///
    /// # Errors
    /// What the system says.
    pub fn put(&self, prepared: &Prepared, ticket: &Ticket) -> io::Result<()> {
        if !is_plain(&prepared.id) {
            return Err(io::Error::other(format!("{:?} is no UID", prepared.id)));
        }
        let lease = self.store.lease_folder(&prepared.id);
        fs::create_dir_all(&lease)?;
        fs::set_permissions(&lease, fs::Permissions::from_mode(0o755))?;
        ticket.write_for_container(&lease.join(TICKET))?;
        let about = serde_json::to_vec(prepared)?;
        files::replace(&self.store.folder(&prepared.id).join("about.json"), 0o644, &about)
    }

    /// Writes a renewed ticket, where what it is for is prepared still.
    ///
    /// # Errors
    /// What the system says.
    pub fn renew(&self, prepared: &Prepared, ticket: &Ticket) -> io::Result<()> {
        match self.store.get(&prepared.id) {
            Some(now) if now.key == prepared.key => {
                self.put(&Prepared { lease: ticket.lease, ..now }, ticket)
            }
            _ => Ok(()),
        }
    }

    /// Removes what is prepared; nothing is no error.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove(&self, id: &str) -> io::Result<()> {
        if !is_plain(id) {
            return Ok(());
        }
        // What reads this as prepared goes first.
        let folder = self.store.folder(id);
        files::remove(&folder.join("about.json"))?;
        match fs::remove_dir_all(&folder) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_control::token::PrivateKey;

    #[test]
    fn what_is_prepared_is_found_again_and_removed_twice() {
        let base = std::env::temp_dir().join(format!("rgpu-store-{}", std::process::id()));
        let store = Store::open(&base).unwrap();
        let key = PrivateKey::derive(b"0123456789abcdef", "k").to_text();
        let ticket = |token: &str| Ticket {
            lease: LeaseId(7),
            token: token.into(),
            key: key.clone(),
            transport: "auto".into(),
            servers: Vec::new(),
            ca: None,
        };
        let prepared = Prepared {
            id: "u-1".into(),
            namespace: "ns".into(),
            name: "c".into(),
            key: "kubernetes/u-1/x".into(),
            lease: LeaseId(7),
            devices: Vec::new(),
            since: 1,
        };
        store.lock().unwrap().put(&prepared, &ticket("a")).unwrap();
        assert_eq!((store.get("u-1"), store.all().len()), (Some(prepared.clone()), 1));
        let file = store.lease_folder("u-1").join(TICKET);
        store.lock().unwrap().renew(&prepared, &ticket("b")).unwrap();
        assert!(fs::read_to_string(&file).unwrap().contains("\"b\""));
        assert_eq!(fs::metadata(&base).unwrap().permissions().mode() & 0o777, 0o700);
        // A renewal that comes late brings nothing back.
        for _ in 0..2 {
            store.lock().unwrap().remove("u-1").unwrap();
        }
        store.lock().unwrap().renew(&prepared, &ticket("c")).unwrap();
        assert!(store.all().is_empty() && !file.exists());
        let outside = Prepared { id: "../x".into(), ..prepared };
        assert!(store.lock().unwrap().put(&outside, &ticket("a")).is_err());
        fs::remove_dir_all(base).unwrap();
    }
}
