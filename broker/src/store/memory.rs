//! A store that forgets everything when it is dropped, for tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rgpu_control::LeaseId;

use super::{Kept, LeaseRecord, NodeRecord, RunRecord, Store, StoreError, Write};

/// Keeps the state in memory. Clones are the same store; it can be told to fail, as a full disk would.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    leases: BTreeMap<LeaseId, Arc<LeaseRecord>>,
    rounds: BTreeMap<LeaseId, u32>,
    runs: BTreeMap<LeaseId, Arc<RunRecord>>,
    nodes: BTreeMap<String, Arc<NodeRecord>>,
    settings: BTreeMap<String, String>,
    failure: Option<String>,
    check_failure: Option<String>,
    commits: u64,
    /// Commits that still succeed.
    left: Option<u64>,
}

impl MemoryStore {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on every commit fails, and says why; with `None`, they succeed again.
    pub fn fail(&self, why: Option<&str>) {
        let mut inner = self.0.lock();
        inner.failure = why.map(str::to_owned);
        inner.left = None;
    }

    /// From now on every check fails, and says why, though commits may succeed.
    pub fn fail_checks(&self, why: Option<&str>) {
        self.0.lock().check_failure = why.map(str::to_owned);
    }

    /// So many commits still succeed; then every one fails.
    pub fn fail_after(&self, commits: u64) {
        self.0.lock().left = Some(commits);
    }

    /// Another store that holds what this one holds now, as a backup does.
    pub fn copy(&self) -> Self {
        let inner = self.0.lock();
        Self(Arc::new(Mutex::new(Inner {
            leases: inner.leases.clone(),
            rounds: inner.rounds.clone(),
            runs: inner.runs.clone(),
            nodes: inner.nodes.clone(),
            settings: inner.settings.clone(),
            ..Inner::default()
        })))
    }

    /// How many commits there were.
    pub fn commits(&self) -> u64 {
        self.0.lock().commits
    }
}

impl Inner {
    fn failing(&self) -> Result<(), StoreError> {
        let over = (self.left == Some(0)).then(|| "there is no room for more".to_owned());
        match self.failure.as_ref().or(over.as_ref()) {
            Some(why) => Err(StoreError::Write { place: "memory".into(), why: why.clone() }),
            None => Ok(()),
        }
    }
}

impl Store for MemoryStore {
    fn load(&mut self) -> Result<Kept, StoreError> {
        let inner = self.0.lock();
        Ok(Kept {
            leases: inner.leases.values().map(|lease| LeaseRecord::clone(lease)).collect(),
            rounds: inner.rounds.clone(),
            runs: inner.runs.values().map(|run| RunRecord::clone(run)).collect(),
            nodes: inner.nodes.values().map(|node| NodeRecord::clone(node)).collect(),
            settings: inner.settings.clone(),
        })
    }

    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError> {
        let mut inner = self.0.lock();
        inner.failing()?;
        inner.commits += 1;
        inner.left = inner.left.map(|left| left - 1);
        for write in writes {
            match write {
                Write::Lease(lease) => drop(inner.leases.insert(lease.id, lease.clone())),
                Write::Rounds(id, rounds) => drop(inner.rounds.insert(*id, *rounds)),
                Write::ForgetLease(id) => {
                    inner.leases.remove(id);
                    inner.rounds.remove(id);
                }
                Write::Run(run) => drop(inner.runs.insert(run.id, run.clone())),
                Write::ForgetRun(id) => drop(inner.runs.remove(id)),
                Write::Node(node) => {
                    drop(inner.nodes.insert(node.registration.name.clone(), node.clone()));
                }
                Write::ForgetNode(name) => drop(inner.nodes.remove(name)),
                Write::Setting(name, value) => {
                    inner.settings.insert((*name).to_owned(), value.clone());
                }
            }
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), StoreError> {
        let inner = self.0.lock();
        inner.failing()?;
        match &inner.check_failure {
            Some(why) => Err(StoreError::Write { place: "memory".into(), why: why.clone() }),
            None => Ok(()),
        }
    }
}
