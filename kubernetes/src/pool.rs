//! The pool that the scheduler chooses from, made of what the broker lists.
//!
//! A device of the pool is not one GPU: it is *all GPUs of a model*, with their memory and time together as consumable capacity, of
//! which a claim takes what one of them can give at most. Which of them a lease has, the broker decides, by what is loaded and where the
//! program runs: the scheduler knows neither. Partitions, which are leased whole, are devices one by one, and take one each of a
//! counter: how many of them are there now.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Counter, CounterSet, Device, DeviceAttribute,
    DeviceCapacity, DeviceCounterConsumption, ResourcePool, ResourceSlice, ResourceSliceSpec,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rgpu_control::api;

use crate::names::{DRIVER, GRANTED, MEMORY, POOL, REFUSED, SHARE, kind, label, partition};
use crate::quantity::{thousandths, whole};

/// The longest name of a kind: a partition's number has to fit behind it into 63 characters.
const LONGEST_KIND: usize = 52;
/// How many devices a slice can have where some consume counters; without those, Kubernetes allows twice as many.
const DEVICES_OF_A_SLICE: usize = 64;
/// How many sets of counters a slice can have.
const COUNTERS_OF_A_SLICE: usize = 8;
/// Memory is asked for in steps of this many bytes.
const MEMORY_STEP: u64 = 1 << 20;

/// GPUs of a model.
#[derive(Debug, Clone, PartialEq)]
struct Kind {
    model: String,
    /// Whether they are partitions, which a program has alone and whole.
    partitions: bool,
    /// All of them, and those whose nodes are there now.
    known: u64,
    there: u64,
    /// Memory of all that are there, and of the largest and the smallest.
    memory: u64,
    largest: u64,
    smallest: u64,
    /// Whether each can be shared.
    shared: bool,
    software: bool,
    encryption: bool,
    /// The slowest network interface of their nodes, in Mbit/s.
    bandwidth_mbps: u64,
    /// The longest time that a node of them has measured to another node, in microseconds.
    distance_us: u64,
    capability: String,
}

/// All GPUs, by kind.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pool {
    kinds: BTreeMap<String, Kind>,
}

/// The attribute of the longest time between nodes.
pub(crate) const DISTANCE: &str = "distanceMicroseconds";

impl Pool {
    /// What the broker lists.
    pub fn of(nodes: &[api::Node], devices: &[api::Device]) -> Self {
        let nodes: BTreeMap<&str, &api::Node> = nodes.iter().map(|node| (node.name.as_str(), node)).collect();
        let mut kinds: BTreeMap<String, Kind> = BTreeMap::new();
        // In the same order each time, whichever nodes there are, since a name can depend on the one before.
        let mut devices: Vec<&api::Device> = devices.iter().collect();
        devices.sort_by_key(|device| (&device.report.model, device.report.alone));
        for device in devices {
            let (report, node) = (&device.report, nodes.get(device.node.as_str()));
            let there = node.is_some_and(|node| node.state == "ready");
            let new = || Kind {
                model: report.model.clone(),
                partitions: report.alone,
                known: 0,
                there: 0,
                memory: 0,
                largest: 0,
                smallest: u64::MAX,
                shared: true,
                software: report.software,
                encryption: true,
                bandwidth_mbps: u64::MAX,
                distance_us: 0,
                capability: report.compute_capability.clone(),
            };
            let name = name(&kinds, report);
            let kind = kinds.entry(name).or_insert_with(new);
            kind.known += 1;
            if !there {
                continue;
            }
            kind.there += 1;
            kind.memory = kind.memory.saturating_add(report.memory);
            kind.largest = kind.largest.max(report.memory);
            kind.smallest = kind.smallest.min(report.memory);
            kind.shared &= report.partitionable;
            if let Some(node) = node {
                kind.encryption &= node.tls;
                kind.bandwidth_mbps = kind.bandwidth_mbps.min(node.nic_mbps);
                let longest = node.peers.iter().map(|peer| peer.rtt_us).max().unwrap_or(0);
                kind.distance_us = kind.distance_us.max(longest);
            }
        }
        Self { kinds }
    }

    /// The model of a device of the pool, as the broker calls it.
    pub fn model(&self, device: &str) -> Option<&str> {
        self.kinds.get(kind(device)).map(|kind| kind.model.as_str())
    }

    /// The slices that publish it. All are of one generation of the pool, which is to be set.
    pub fn slices(&self) -> Vec<ResourceSlice> {
        let mut devices = Vec::new();
        let mut counters = Vec::new();
        for (name, kind) in &self.kinds {
            if kind.partitions {
                let set = CounterSet { name: name.clone(), counters: counter(kind.there) };
                counters.push(set);
                devices.extend((0..kind.known as usize).map(|number| kind.partition(name, number)));
            } else if kind.there > 0 {
                devices.push(kind.device(name));
            }
        }
        let counters = counters.chunks(COUNTERS_OF_A_SLICE).map(|some| (None, Some(some.to_vec())));
        let devices = devices.chunks(DEVICES_OF_A_SLICE).map(|some| (Some(some.to_vec()), None));
        let parts: Vec<_> = counters.chain(devices).collect();
        let count = parts.len() as i64;
        let slice = |(number, (devices, shared_counters))| ResourceSlice {
            metadata: ObjectMeta { name: Some(format!("{DRIVER}-{POOL}-{number}")), ..ObjectMeta::default() },
            spec: ResourceSliceSpec {
                all_nodes: Some(true),
                devices,
                driver: DRIVER.into(),
                pool: ResourcePool { generation: 0, name: POOL.into(), resource_slice_count: count },
                shared_counters,
                ..ResourceSliceSpec::default()
            },
        };
        parts.into_iter().enumerate().map(slice).collect()
    }
}

/// The name of a device's kind. Models whose labels are the same, or a partition and a whole GPU of one name, get different ones.
fn name(kinds: &BTreeMap<String, Kind>, report: &api::DeviceReport) -> String {
    let short = label(&report.model, LONGEST_KIND);
    let other = |kind: &Kind| kind.model != report.model || kind.partitions != report.alone;
    if label(&report.model, usize::MAX) == short && !kinds.get(&short).is_some_and(other) {
        return short;
    }
    let said = format!("{}\0{}", report.model, report.alone);
    let hash = blake3::hash(said.as_bytes()).to_hex();
    format!("{}-{}", label(&report.model, LONGEST_KIND - 9), &hash[..8])
}

fn counter(value: u64) -> BTreeMap<String, Counter> {
    BTreeMap::from([("instances".into(), Counter { value: whole(value) })])
}

impl Kind {
    fn attributes(&self) -> BTreeMap<String, DeviceAttribute> {
        let text = |text: &str| DeviceAttribute {
            // Kubernetes takes 64 bytes.
            string: Some(text.chars().take(64).scan(0, fits).collect()),
            ..DeviceAttribute::default()
        };
        let truth = |truth| DeviceAttribute { bool: Some(truth), ..DeviceAttribute::default() };
        let number = |number: u64| DeviceAttribute {
            int: Some(number.min(i64::MAX as u64) as i64),
            ..DeviceAttribute::default()
        };
        let mut all = BTreeMap::from([
            ("model".to_owned(), text(&self.model)),
            ("software".to_owned(), truth(self.software)),
            ("partition".to_owned(), truth(self.partitions)),
            ("encryption".to_owned(), truth(self.encryption && self.there > 0)),
        ]);
        if self.there > 0 {
            all.insert("bandwidthMbps".into(), number(self.bandwidth_mbps));
            all.insert(DISTANCE.into(), number(self.distance_us));
        }
        // `8.0` is written as the version 8.0.0.
        if let Some((major, minor)) = self.capability.split_once('.')
            && [major, minor].iter().all(|part| part.parse::<u32>().is_ok())
        {
            let version = Some(format!("{major}.{minor}.0"));
            all.insert("computeCapability".into(), DeviceAttribute { version, ..DeviceAttribute::default() });
        }
        all
    }

    fn bare(&self, name: String) -> Device {
        Device {
            name,
            attributes: Some(self.attributes()),
            // The broker is told where the program runs, so an allocation is for the node that was chosen with it.
            binds_to_node: Some(true),
            binding_conditions: Some(vec![GRANTED.into()]),
            binding_failure_conditions: Some(vec![REFUSED.into()]),
            ..Device::default()
        }
    }

    /// All GPUs of the kind.
    fn device(&self, name: &str) -> Device {
        let step = MEMORY_STEP;
        let memory = DeviceCapacity {
            value: whole(self.memory),
            request_policy: Some(range(whole(0), whole(0), whole(self.largest / step * step), whole(step))),
        };
        let most = thousandths(1000);
        let policy = if self.shared {
            range(most.clone(), thousandths(1), most, thousandths(1))
        } else {
            CapacityRequestPolicy {
                default: Some(most.clone()),
                valid_values: Some(vec![most]),
                valid_range: None,
            }
        };
        let share = DeviceCapacity { value: thousandths(self.there * 1000), request_policy: Some(policy) };
        Device {
            allow_multiple_allocations: Some(true),
            capacity: Some(BTreeMap::from([(MEMORY.into(), memory), (SHARE.into(), share)])),
            ..self.bare(name.to_owned())
        }
    }

    /// One of the partitions of the kind.
    fn partition(&self, name: &str, number: usize) -> Device {
        let smallest = if self.there > 0 { self.smallest } else { 0 };
        let memory = DeviceCapacity { value: whole(smallest), request_policy: None };
        Device {
            capacity: Some(BTreeMap::from([(MEMORY.into(), memory)])),
            consumes_counters: Some(vec![DeviceCounterConsumption {
                counter_set: name.to_owned(),
                counters: counter(1),
            }]),
            ..self.bare(partition(name, number))
        }
    }
}

/// Keeps characters until they would take more than 64 bytes.
fn fits(length: &mut usize, c: char) -> Option<char> {
    *length += c.len_utf8();
    (*length <= 64).then_some(c)
}

fn range(default: Quantity, min: Quantity, max: Quantity, step: Quantity) -> CapacityRequestPolicy {
    CapacityRequestPolicy {
        default: Some(default),
        valid_range: Some(CapacityRequestPolicyRange { min, max: Some(max), step: Some(step) }),
        valid_values: None,
    }
}

#[cfg(test)]
mod tests;
