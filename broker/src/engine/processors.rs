//! What leases are to have of their nodes' processors beside devices, and what nodes say that they use of them.

use rgpu_control::api::{NodeProcessors, ProcessorControls, ProcessorOrder, ProcessorUsage};
use rgpu_placement::spread::{AtScale, Spread};
use rgpu_placement::{NodeSpec, WHOLE};

use super::core::Core;
use super::live::Entry;
use crate::store::LeaseRecord;

/// What servers are ordered to hold all leases to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorSettings {
    /// Whether a lease on software GPUs gets processors of its own: of its node's the part that it has of the node's devices.
    pub cores: bool,
    /// Whether a lease has a weight when processors are scarce: 100 for each whole device that it has of the node.
    pub weights: bool,
}

/// What the programs of one profile are to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProfileProcessors {
    /// Ways of the last-level cache of their own.
    pub llc_ways: Option<u32>,
    /// Percent of the node's memory bandwidth.
    pub memory_bandwidth_percent: Option<u32>,
}

impl ProfileProcessors {
    /// As policies know it: a program is in one node. Bandwidth is in percent of the node's.
    pub(crate) fn spread(&self) -> Option<Spread> {
        let said = self.llc_ways.is_some() || self.memory_bandwidth_percent.is_some();
        let bandwidth = f64::from(self.memory_bandwidth_percent.unwrap_or(0));
        let at = AtScale { scale: 1, time: 1.0, ways: self.llc_ways.unwrap_or(0), bandwidth };
        said.then(|| Spread::new(vec![at]).ok()).flatten()
    }
}

/// Has the placement know what a node can give of its cache and memory bandwidth, the latter in percent.
pub(super) fn describe(spec: &mut NodeSpec, controls: Option<&ProcessorControls>) {
    if let Some(controls) = controls {
        spec.llc_ways = controls.llc_ways;
        spec.memory_bandwidth = if controls.memory_bandwidth { 100.0 } else { 0.0 };
    }
}

impl Core {
    /// What a lease is to have of a node's processors; `None` where there is nothing to say, or the node does not know of such.
    pub(super) fn processor_order(&self, record: &LeaseRecord, name: &str) -> Option<ProcessorOrder> {
        let about = &self.nodes.get(name)?.record.registration;
        let controls = about.controls.as_ref()?;
        let own = record.grants.iter().filter(|grant| grant.node == name);
        let milli: u64 = own.map(|grant| u64::from(grant.share_milli)).sum();
        let whole = u64::from(WHOLE) * about.devices.len().max(1) as u64;
        let software = about.devices.iter().all(|device| device.software);
        let cores = (u64::from(controls.cores) * milli).div_ceil(whole).max(1);
        let asked = self.profile_processors(record);
        let order = ProcessorOrder {
            cores: (self.settings.processors.cores && software && controls.cores > 0).then_some(cores as u32),
            weight: self.settings.processors.weights.then_some((milli / 10).clamp(1, 10_000) as u32),
            llc_ways: asked.llc_ways,
            memory_bandwidth_percent: asked.memory_bandwidth_percent,
        };
        (order != ProcessorOrder::default()).then_some(order)
    }

    /// What the profile of a lease's program says.
    fn profile_processors(&self, record: &LeaseRecord) -> ProfileProcessors {
        let written = self.profiles.written(&record.tenant, &record.request);
        let written = written.and_then(|index| self.settings.profiles.get(index));
        written.map(|profile| profile.processors).unwrap_or_default()
    }
}

impl Entry {
    /// Keeps what a node says.
    pub(super) fn hear_processors(&mut self, node: &str, usage: Option<ProcessorUsage>) {
        match usage {
            Some(usage) => self.live.processors.insert(node.to_owned(), usage),
            None => self.live.processors.remove(node),
        };
    }

    /// What its nodes say, by name.
    pub(super) fn processor_views(&self) -> Vec<NodeProcessors> {
        let view = |(node, usage): (&String, &ProcessorUsage)| NodeProcessors {
            node: node.clone(),
            usage: usage.clone(),
        };
        self.live.processors.iter().map(view).collect()
    }
}
