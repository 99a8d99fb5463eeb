//! The cluster on this machine that `rgpu cluster up` makes: where its files are, and whether it runs.
//!
//! Commands that are not told of any broker use it, as long as it runs.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use rgpu_control::settings::{self, CLUSTER_DIR_VARIABLE};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::folders;

/// What a cluster consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Where its broker listens, `HOST:PORT`.
    pub broker: String,
    /// Its nodes.
    pub nodes: Vec<PlannedNode>,
}

/// A node of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlannedNode {
    /// Its name.
    pub name: String,
    /// Its devices, as `rgpu serve --device` takes them.
    pub device: String,
    /// Bytes of memory of each device; nothing for the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
}

impl Plan {
    /// The broker's address as its clients write it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.broker)
    }
}

/// A cluster's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnCluster {
    /// Its path.
    pub directory: PathBuf,
}

impl OwnCluster {
    /// The one in a directory.
    pub(crate) fn at(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// The user's: where the environment says, else among the user's files. `None` for a user without a home.
    pub(crate) fn of_user() -> Option<Self> {
        let usual = || Some(folders::state()?.join("cluster"));
        settings::path(CLUSTER_DIR_VARIABLE).or_else(usual).map(Self::at)
    }

    /// The user's, if it runs.
    pub(crate) fn running() -> Option<(Self, Plan)> {
        let cluster = Self::of_user()?;
        cluster.supervisor()?;
        let plan = cluster.plan().ok().flatten()?;
        Some((cluster, plan))
    }

    /// The file that the supervisor locks while it runs, and whose text is its process id.
    pub(crate) fn lock_path(&self) -> PathBuf {
        self.directory.join("supervisor")
    }

    /// The administrator's token.
    pub(crate) fn admin_token(&self) -> PathBuf {
        self.directory.join("broker/admin.token")
    }

    /// The file with the plan.
    pub(crate) fn plan_path(&self) -> PathBuf {
        self.directory.join("cluster.json")
    }

    /// What the cluster consists of; `None` where none was made yet.
    pub(crate) fn plan(&self) -> io::Result<Option<Plan>> {
        match fs::read(self.plan_path()) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The process that keeps the cluster running, if one does.
    pub(crate) fn supervisor(&self) -> Option<rustix::process::Pid> {
        let file = File::open(self.lock_path()).ok()?;
        // Who gets the lock has found that nobody has it; it is given back with the file.
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            return None;
        }
        let text = io::read_to_string(file).ok()?;
        rustix::process::Pid::from_raw(text.trim().parse().ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_the_lock_runs() {
        let directory = std::env::temp_dir().join(format!("rgpu-own-cluster-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let cluster = OwnCluster::at(directory.clone());
        assert_eq!(cluster.supervisor(), None);
        assert_eq!(cluster.plan().unwrap(), None);
        fs::write(cluster.lock_path(), "4711\n").unwrap();
        assert_eq!(cluster.supervisor(), None);
        let file = File::open(cluster.lock_path()).unwrap();
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(cluster.supervisor(), rustix::process::Pid::from_raw(4711));
        drop(file);
        assert_eq!(cluster.supervisor(), None);
        fs::write(cluster.plan_path(), "rubbish").unwrap();
        assert!(cluster.plan().is_err());
        fs::remove_dir_all(&directory).unwrap();
    }
}
