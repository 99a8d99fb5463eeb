//! Folders of Linux's control file systems (cgroups, resctrl): one is a group of processes, made by making the folder.
//!
//! Their names tell the node and the lease, `rgpu.NODE.LEASE`, so that a server finds what an earlier one of its node has left
//! behind, and takes nothing of another node's on the same machine for its own.

use rgpu_control::LeaseId;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// What the names of all groups begin with.
const PREFIX: &str = "rgpu.";

/// The groups of one node below one folder.
#[derive(Debug, Clone)]
pub(super) struct Groups {
    root: PathBuf,
    node: String,
}

impl Groups {
    /// Those of a node below a folder.
    pub(super) fn new(root: PathBuf, node: &str) -> Self {
        Self { root, node: node.to_owned() }
    }

    /// The folder in which the groups are made.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// A lease's folder.
    pub(super) fn folder(&self, lease: LeaseId) -> PathBuf {
        self.root.join(format!("{PREFIX}{}.{lease}", self.node))
    }

    /// Whether this process may make groups here.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check_writable(&self) -> io::Result<()> {
        Ok(rustix::fs::access(&self.root, rustix::fs::Access::WRITE_OK)?)
    }

    /// Makes a lease's group; one that is there already will do.
    pub(super) fn make(&self, lease: LeaseId) -> io::Result<()> {
        match fs::create_dir(self.folder(lease)) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(e),
            _ => Ok(()),
        }
    }

    /// Writes one line into a file of a lease's group, in one call, as these file systems want it.
    pub(super) fn write(&self, lease: LeaseId, file: &str, line: &str) -> io::Result<()> {
        write_line(&self.folder(lease).join(file), line)
    }

    /// Removes a lease's group.
    pub(super) fn remove(&self, lease: LeaseId) {
        remove(&self.folder(lease));
    }

    /// Removes what earlier servers of this node have left behind, and says how many that were.
    pub(super) fn remove_stale(&self) -> usize {
        let prefix = format!("{PREFIX}{}.", self.node);
        let is_own =
            |name: &str| name.strip_prefix(&prefix).is_some_and(|lease| lease.parse::<LeaseId>().is_ok());
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let stale = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_own));
        stale.map(|entry| remove(&entry.path())).count()
    }

    /// The groups of other nodes on this machine.
    pub(super) fn of_others(&self) -> Vec<PathBuf> {
        let own = format!("{PREFIX}{}.", self.node);
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let theirs = entries.filter(|entry| {
            let name = entry.file_name();
            name.to_str().is_some_and(|name| name.starts_with(PREFIX) && !name.starts_with(&own))
        });
        theirs.map(|entry| entry.path()).collect()
    }
}

/// Writes one line into a file, in one call. A task file takes one number with each such call.
pub(super) fn write_line(file: &Path, line: &str) -> io::Result<()> {
    // In a tree of plain files, as tests have, lines come one after the other.
    let mut file = OpenOptions::new().append(true).create(true).open(file)?;
    file.write_all(format!("{line}\n").as_bytes())
}

fn remove(folder: &Path) {
    let removed = match fs::remove_dir(folder) {
        // In a tree of plain files nobody takes the files away with the folder.
        Err(e) if e.kind() == ErrorKind::DirectoryNotEmpty => {
            let files = fs::read_dir(folder).into_iter().flatten().flatten();
            files.for_each(|file| drop(fs::remove_file(file.path())));
            fs::remove_dir(folder)
        }
        other => other,
    };
    if let Err(e) = removed
        && e.kind() != ErrorKind::NotFound
    {
        tracing::warn!("the group {} is not removed: {e}", folder.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_of_this_node_are_removed() {
        let root = std::env::temp_dir().join(format!("rgpu-groups-{:016x}", LeaseId::random().0));
        fs::create_dir(&root).unwrap();
        let (own, other) = (Groups::new(root.clone(), "a"), Groups::new(root.clone(), "a.b"));
        own.check_writable().unwrap();
        for groups in [&own, &other] {
            groups.make(LeaseId(7)).unwrap();
            groups.make(LeaseId(7)).unwrap();
            groups.write(LeaseId(7), "tasks", "1").unwrap();
            groups.write(LeaseId(7), "tasks", "22").unwrap();
        }
        fs::create_dir(root.join("info")).unwrap();
        fs::create_dir(root.join("rgpu.a.notes")).unwrap();
        assert_eq!(fs::read_to_string(own.folder(LeaseId(7)).join("tasks")).unwrap(), "1\n22\n");
        assert_eq!(own.remove_stale(), 1);
        assert!(!own.folder(LeaseId(7)).exists() && other.folder(LeaseId(7)).exists());
        assert!(root.join("info").exists() && root.join("rgpu.a.notes").exists());
        assert_eq!(Groups::new(root.clone(), "c").of_others().len(), 2);
        other.remove(LeaseId(7));
        other.remove(LeaseId(7));
        assert!(!other.folder(LeaseId(7)).exists());
        fs::remove_dir_all(root).unwrap();
        assert!(own.check_writable().is_err());
    }
}
