//! What is known of leases, nodes and tenants besides what is stored.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rgpu_control::LeaseId;
use rgpu_control::api::{DeviceLoad, GrantUsage, LeaseExplanation, PeerTime, ProcessorUsage};
use tokio::sync::Notify;

use super::history::History;
use super::learnt::Watched;
use super::plan::Forecast;
use super::series::NodeSeries;
use super::traffic::Others;
use crate::store::{LeaseRecord, NodeRecord};

/// A lease and what is known of it besides.
pub(crate) struct Entry {
    pub record: Arc<LeaseRecord>,
    pub live: LeaseLive,
}

/// What of a lease isn't stored.
#[derive(Default)]
pub(crate) struct LeaseLive {
    /// When it ends unless it is renewed (or, while it waits, asked for), in ms of the engine's time.
    pub deadline: Option<u64>,
    /// How many calls wait for it.
    pub pollers: u32,
    /// When it was asked for, in seconds of the placement's time.
    pub submit_s: f64,
    /// When it was granted, in seconds of the placement's time.
    pub granted_s: f64,
    /// When its end was decided, in ms since 1970.
    pub ended_ms: Option<u64>,
    /// It waited already when the broker started.
    pub restored: bool,
    /// In how many rounds it was left.
    pub rounds: u32,
    /// Why it was left the last time.
    pub left: String,
    /// What its nodes say that it uses: by node, in the order of its grants there.
    pub usage: BTreeMap<String, (u32, Vec<GrantUsage>)>,
    /// What its nodes say that it uses of their processors, and is held to there.
    pub processors: BTreeMap<String, ProcessorUsage>,
    /// What is seen of its program's run.
    pub watched: Watched,
    /// Where its program finds its NVMe devices, by node and name.
    pub nvmes: BTreeMap<(String, String), String>,
    /// Whether its program ended by its deadline, once that is known.
    pub ended_in_time: Option<bool>,
    /// Why it was placed where it is, or waits.
    pub explanation: Option<Arc<LeaseExplanation>>,
    /// While it waits: when it is expected to be granted, and what is in its way.
    pub forecast: Option<Forecast>,
    /// Told when the lease is different.
    pub changed: Arc<Notify>,
}

/// A node and what is known of it besides.
pub(crate) struct NodeEntry {
    pub record: Arc<NodeRecord>,
    pub live: NodeLive,
}

/// What of a node isn't stored.
#[derive(Default)]
pub(crate) struct NodeLive {
    /// When it was last heard of, in ms of the engine's time.
    pub heard: u64,
    /// It has been heard of since the broker started.
    pub present: bool,
    /// It has been silent for too long, or has left.
    pub lost: bool,
    /// What is said of that.
    pub lost_why: String,
    /// It has been silent for too long, and so have most others.
    pub silent: bool,
    /// The leases that it serves and that it is not known to have.
    pub strangers: BTreeMap<LeaseId, Stranger>,
    /// It has said that it serves no lease but those that it is to serve.
    pub clean: bool,
    /// The version of the orders that last concerned it.
    pub changed_at: u64,
    /// The latest version of the orders that it has said to follow.
    pub followed: u64,
    /// Told when its orders change.
    pub changed: Arc<Notify>,
    pub loads: Vec<DeviceLoad>,
    pub nic_in_mbps: u64,
    pub nic_out_mbps: u64,
    pub own_in_mbps: u64,
    pub own_out_mbps: u64,
    /// Of that, what isn't the leases', over the last heartbeats.
    pub others: Others,
    pub peers: Vec<PeerTime>,
    /// Kernels launched per second, and when that was last worked out of how many in all.
    pub launches_per_s: f64,
    pub launches: (u64, u64),
    /// What was measured of its devices lately.
    pub series: NodeSeries,
    /// What was measured over the last hour.
    pub history: Option<Box<History>>,
    /// What is granted of each device.
    pub devices: Vec<DeviceUse>,
    /// The leases that have something of it.
    pub leases: BTreeSet<LeaseId>,
}

/// What is granted of a device.
#[derive(Default, Clone, Debug, PartialEq)]
pub(crate) struct DeviceUse {
    pub milli: u32,
    pub memory: u64,
    pub leases: Vec<LeaseId>,
}

/// What a tenant has.
#[derive(Default, Clone, Debug, PartialEq)]
pub(crate) struct Held {
    pub gpu_milli: u64,
    pub memory: u64,
    pub active: u64,
    pub waiting: u64,
    /// What its waiting requests want.
    pub wanted_milli: u64,
    pub wanted_memory: u64,
    /// Leases that are ending.
    pub ending: u64,
}

impl Held {
    /// Both together.
    pub(crate) fn and(self, other: &Self) -> Self {
        Self {
            gpu_milli: self.gpu_milli + other.gpu_milli,
            memory: self.memory + other.memory,
            active: self.active + other.active,
            waiting: self.waiting + other.waiting,
            wanted_milli: self.wanted_milli + other.wanted_milli,
            wanted_memory: self.wanted_memory + other.wanted_memory,
            ending: self.ending + other.ending,
        }
    }
}

/// How a lease ends, which decides what is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It was granted, and its holder gave it back (or the broker could not keep its promise).
    Released,
    /// Whoever asked for it gave up before it was granted.
    Withdrawn,
    /// It was not renewed, or nobody asked for it any more while it waited.
    Expired,
    /// Its node or a device of it is gone.
    Revoked,
}

/// What became of a lease that a node serves and the broker does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// The node is asked for a proof, since this moment of the engine's time (ms).
    Asked(u64),
    /// It is to be ended.
    Refused,
}
