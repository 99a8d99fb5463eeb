//! Weights of processor time, by Linux's cgroups of version 2 (`Documentation/admin-guide/cgroup-v2.rst`, "CPU").

use super::groups::{Groups, write_line};
use rgpu_control::LeaseId;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// What leases without a weight have.
const USUAL: u32 = 100;

/// A cgroup that was given to the server, and those of one node's leases in it.
#[derive(Debug)]
pub(super) struct Weights {
    groups: Groups,
    has: BTreeMap<LeaseId, u32>,
}

impl Weights {
    /// In a cgroup that was given to this server's user ("delegated") and has no processes of its own; groups that an earlier
    /// server of this node has left are removed.
    ///
    /// # Errors
    /// What is missing, in words for people.
    pub(super) fn open(root: &Path, node: &str) -> Result<Self, String> {
        let groups = Groups::new(root.to_owned(), node);
        let shown = root.display();
        let Ok(controllers) = fs::read_to_string(root.join("cgroup.controllers")) else {
            return Err(format!("{shown} is no cgroup of version 2"));
        };
        if !controllers.split_whitespace().any(|controller| controller == "cpu") {
            return Err(format!("the cgroup {shown} has no controller `cpu` (its parent must enable it)"));
        }
        let enabled =
            groups.check_writable().and_then(|()| write_line(&root.join("cgroup.subtree_control"), "+cpu"));
        if let Err(e) = enabled {
            return Err(format!(
                "the cgroup {shown} cannot be used: {e} (it has to be this user's, without processes)"
            ));
        }
        let stale = groups.remove_stale();
        if stale > 0 {
            tracing::info!("{stale} groups of an earlier server were removed from {shown}");
        }
        Ok(Self { groups, has: BTreeMap::new() })
    }

    /// What a lease has; `None` where it has no group.
    pub(super) fn of(&self, lease: LeaseId) -> Option<u32> {
        self.has.get(&lease).copied()
    }

    /// Puts a process with all its threads into a lease's group.
    pub(super) fn add(&self, lease: LeaseId, process: u32) -> io::Result<()> {
        self.groups.write(lease, "cgroup.procs", &process.to_string())
    }

    /// Makes and changes groups so that each lease has its weight, and removes those of leases that are not there any more. The
    /// leases whose group is new come back, and what went wrong with which.
    pub(super) fn settle(
        &mut self,
        wanted: &BTreeMap<LeaseId, Option<u32>>,
    ) -> (Vec<LeaseId>, Vec<(LeaseId, String)>) {
        let gone: Vec<LeaseId> = self.has.keys().filter(|id| !wanted.contains_key(id)).copied().collect();
        for lease in gone {
            self.groups.remove(lease);
            self.has.remove(&lease);
        }
        let (mut new, mut failed) = (Vec::new(), Vec::new());
        for (lease, weight) in wanted {
            let before = self.has.get(lease).copied();
            // Processes are not moved back, which would not change anything.
            let Some(weight) = weight.or(before.map(|_| USUAL)).map(|weight| weight.clamp(1, 10_000)) else {
                continue;
            };
            if before == Some(weight) {
                continue;
            }
            let made = self.groups.make(*lease);
            match made.and_then(|()| self.groups.write(*lease, "cpu.weight", &weight.to_string())) {
                Ok(()) => {
                    self.has.insert(*lease, weight);
                    if before.is_none() {
                        new.push(*lease);
                    }
                }
                Err(e) => failed.push((*lease, format!("its cgroup is not made: {e}"))),
            }
        }
        (new, failed)
    }

    /// Removes all groups.
    pub(super) fn clear(&mut self) {
        for lease in std::mem::take(&mut self.has).into_keys() {
            self.groups.remove(lease);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_has_its_weight_until_it_ends() {
        let root = std::env::temp_dir().join(format!("rgpu-weights-{:016x}", LeaseId::random().0));
        assert!(Weights::open(&root, "n").unwrap_err().contains("no cgroup"));
        fs::create_dir(&root).unwrap();
        fs::write(root.join("cgroup.controllers"), "memory\n").unwrap();
        assert!(Weights::open(&root, "n").unwrap_err().contains("no controller `cpu`"));
        fs::write(root.join("cgroup.controllers"), "memory cpu\n").unwrap();
        let mut weights = Weights::open(&root, "n").unwrap();
        assert_eq!(fs::read_to_string(root.join("cgroup.subtree_control")).unwrap(), "+cpu\n");
        let (a, b) = (LeaseId(1), LeaseId(2));
        assert_eq!(weights.settle(&BTreeMap::from([(a, Some(25)), (b, None)])), (vec![a], vec![]));
        weights.add(a, 7).unwrap();
        let file = |file: &str| fs::read_to_string(root.join("rgpu.n.0000000000000001").join(file)).unwrap();
        assert_eq!((file("cpu.weight").as_str(), file("cgroup.procs").as_str()), ("25\n", "7\n"));
        assert_eq!((weights.of(a), weights.of(b)), (Some(25), None));
        // What has a group keeps it.
        assert_eq!(weights.settle(&BTreeMap::from([(a, None)])), (vec![], vec![]));
        assert_eq!(file("cpu.weight"), "25\n100\n");
        weights.settle(&BTreeMap::new());
        assert!(!root.join("rgpu.n.0000000000000001").exists());
        fs::remove_dir_all(root).unwrap();
    }
}
