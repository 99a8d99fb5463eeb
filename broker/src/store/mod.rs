//! Where the broker's state is kept over restarts.

use std::sync::Arc;

use rgpu_control::LeaseId;
use rgpu_control::api::{LeaseRequest, LeaseSize, LeaseState, LeasedNvme, Registration};
use rgpu_control::token::Grant;
use serde::{Deserialize, Serialize};

mod files;
mod memory;
mod sqlite;

pub use files::{backup, restore};
pub use memory::MemoryStore;
pub use sqlite::SqliteStore;

/// Why the state cannot be read or written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The disk is full, the file is read-only, …: it may pass.
    #[error("the broker's state cannot be written to {place}: {why}")]
    Write {
        /// Where.
        place: String,
        /// What is the matter.
        why: String,
    },
    /// What is there makes no sense.
    #[error("the broker's state in {place} cannot be read: {why}")]
    Read {
        /// Where.
        place: String,
        /// What is the matter.
        why: String,
    },
    /// It was written by another release.
    #[error(
        "the broker's state in {place} has version {found} and this release knows versions up to {known}: use the \
        release that wrote it, or another file"
    )]
    Version {
        /// Where.
        place: String,
        /// The version found.
        found: i64,
        /// The version that this release writes.
        known: i64,
    },
}

/// A lease, as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// The id, which no other lease ever has.
    pub id: LeaseId,
    /// The tenant that asked for it.
    pub tenant: String,
    /// What was asked for; the amounts are as they were changed later.
    pub request: LeaseRequest,
    /// Where it stands.
    pub state: LeaseState,
    /// Why it waits or has ended.
    pub reason: String,
    /// How often it has been changed.
    pub version: u64,
    /// The version of the orders that brought its latest change.
    pub orders: u64,
    /// When it was asked for, in ms since 1970.
    pub submitted_ms: u64,
    /// When it was granted, in ms since 1970.
    pub granted_ms: Option<u64>,
    /// The node where the program runs.
    pub home: String,
    /// What it has, in the order of device ordinals.
    pub grants: Vec<Grant>,
    /// The NVMe devices that it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nvmes: Vec<LeasedNvme>,
    /// While it is ending: the nodes that have yet to confirm it.
    pub unconfirmed: Vec<String>,
    /// It was not renewed while all of its nodes were lost. It is taken up again where they turn out to have served it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lapsed: bool,
    /// What counts instead of its grants' memory, where the lease was made smaller and its programs still have more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outstanding: Vec<Outstanding>,
    /// Of a lease that may be resized: how much it has now, in the order of its grants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<LeaseSize>,
}

/// Memory that a lease does not give any more, and that its programs have or may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outstanding {
    /// The node of the grant.
    pub node: String,
    /// The device's number in its node.
    pub device: u32,
    /// Bytes: what the lease gave before, until the node has said how much of that is in use.
    pub memory: u64,
}

impl LeaseRecord {
    /// The nodes that it has something of, in the order of their names.
    pub(crate) fn nodes(&self) -> std::collections::BTreeSet<&str> {
        let grants = self.grants.iter().map(|grant| grant.node.as_str());
        grants.chain(self.nvmes.iter().map(|nvme| nvme.node.as_str())).collect()
    }

    /// Bytes of a grant's device that nobody else can have: what the lease gives, or what its programs still have of what it
    /// gave before, whichever is more.
    pub fn counted(&self, grant: &Grant) -> u64 {
        let of = |other: &&Outstanding| other.node == grant.node && other.device == grant.device;
        self.outstanding.iter().find(of).map_or(0, |outstanding| outstanding.memory).max(grant.memory)
    }

    /// Where the lease may be resized: how much it has now of each of its devices on a node.
    pub fn sizes_on(&self, node: &str) -> Vec<LeaseSize> {
        let sized = self.grants.iter().zip(&self.sizes);
        sized.filter(|(grant, _)| grant.node == node).map(|(_, size)| *size).collect()
    }

    /// Whether it keeps others from having what it has of a node: while it is active, and then until the node has confirmed its end.
    pub fn holds(&self, node: &str) -> bool {
        match self.state {
            LeaseState::Active => true,
            LeaseState::Ending => self.unconfirmed.iter().any(|unconfirmed| unconfirmed == node),
            LeaseState::Waiting | LeaseState::Ended => false,
        }
    }

    /// Thousandths of a grant's device that nobody else can be promised: the grant's share, or the firm part of it where the lease
    /// was placed into time that others leave.
    pub fn firm_milli(&self, grant: &Grant) -> u16 {
        let of = |other: &Grant| other.node == grant.node && other.device == grant.device;
        let size = self.grants.iter().position(of).and_then(|at| self.sizes.get(at));
        size.map_or(grant.share_milli, |size| size.firm_milli)
    }
}

/// A run of a program that ended well, as it is kept: what profiles are learnt from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The lease that the program had.
    pub id: LeaseId,
    /// The tenant whose program it was.
    pub tenant: String,
    /// The program's name.
    pub program: String,
    /// Its input: runs with the same one do the same work.
    pub input: u64,
    /// When it ended, in ms since 1970.
    pub ended_ms: u64,
    /// How long it would have taken with whole devices, in seconds.
    pub seconds: f64,
    /// The share of its devices that were in other nodes.
    pub remote_share: f64,
    /// The mean traffic of others on the way to those, as a part of the capacity.
    pub load: f64,
    /// Its mean traffic with each of those, in Mbit/s.
    pub traffic_mbps: f64,
    /// What the way can carry, in Mbit/s.
    pub capacity_mbps: f64,
    /// The most memory that it had of one device, in MiB.
    pub memory_mib: f64,
    /// The share of a whole device's time that it used.
    pub share: f64,
}

/// A node, as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// What it said of itself, without leases.
    pub registration: Registration,
    /// Whether it gets no new leases.
    pub draining: bool,
}

/// A change of what is kept.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// A lease is new or different.
    Lease(Arc<LeaseRecord>),
    /// In how many rounds a waiting lease was left.
    Rounds(LeaseId, u32),
    /// A lease is over.
    ForgetLease(LeaseId),
    /// A program has run.
    Run(Arc<RunRecord>),
    /// A run doesn't count any more: the one that a lease was for.
    ForgetRun(LeaseId),
    /// A node is new or different.
    Node(Arc<NodeRecord>),
    /// A node is gone.
    ForgetNode(String),
    /// A value of [`Kept::settings`].
    Setting(&'static str, String),
}

/// What is kept.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kept {
    /// The leases that have not been forgotten, in no particular order.
    pub leases: Vec<LeaseRecord>,
    /// In how many rounds waiting leases were left, where that was stored.
    pub rounds: std::collections::BTreeMap<LeaseId, u32>,
    /// Runs of programs, in no particular order.
    pub runs: Vec<RunRecord>,
    /// The nodes, in no particular order.
    pub nodes: Vec<NodeRecord>,
    /// Single values by name.
    pub settings: std::collections::BTreeMap<String, String>,
}

/// Keeps the broker's state.
pub trait Store: Send {
    /// Everything that is kept.
    fn load(&mut self) -> Result<Kept, StoreError>;

    /// Makes changes, all or none. They are there after a crash of the broker.
    fn commit(&mut self, writes: &[Write]) -> Result<(), StoreError>;

    /// Whether changes can be made now: also such that need more room than there may be left over by chance.
    fn check(&mut self) -> Result<(), StoreError>;
}
