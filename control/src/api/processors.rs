//! What a lease uses of a node's processors, caches and memory, and what it is held to there.

use serde::{Deserialize, Serialize};

use super::records::records;

records! {
    /// What a node can hold the programs of a lease to, beside devices. What is absent or 0 it cannot.
    #[derive(Default)]
    #[serde(deny_unknown_fields)]
    pub struct ProcessorControls {
        /// How many processors it can give to leases, each as a whole (processor affinity).
        #[serde(default)]
        pub cores: u32,
        /// Whether processor time can be divided by weights (cgroups, version 2).
        #[serde(default)]
        pub weights: bool,
        /// How many ways of the last-level cache it can give to leases (Linux's resctrl; Intel's CAT, AMD's L3 allocation).
        #[serde(default)]
        pub llc_ways: u32,
        /// Whether the memory bandwidth of a lease's programs can be limited (resctrl; Intel's MBA).
        #[serde(default)]
        pub memory_bandwidth: bool,
    }
    /// What a lease is to have of one node's processors, beside devices. What is absent is shared with everybody there.
    #[derive(Default)]
    pub struct ProcessorOrder {
        /// Processors on which its programs' server processes run, and no others; they lie in one NUMA node where that has so
        /// many.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cores: Option<u32>,
        /// Its weight when processors are scarce, from 1 to 10000: `cpu.weight` of Linux's cgroups, where 100 is usual.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub weight: Option<u32>,
        /// Ways of the last-level cache of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub llc_ways: Option<u32>,
        /// The memory bandwidth that it may use, in percent of the node's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub memory_bandwidth_percent: Option<u32>,
    }
    /// What a lease uses of one node's processors, by all server processes of its programs, and what it is held to there. What
    /// is absent is not measured on that node, or the lease is not held to it.
    #[derive(Default)]
    #[serde(deny_unknown_fields)]
    pub struct ProcessorUsage {
        /// Processor time used since the lease began, in ms.
        pub cpu_ms: u64,
        /// Processors used in the last window, in thousandths.
        #[serde(default)]
        pub cpu_milli: u32,
        /// Instructions executed since the lease began (hardware counter).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub instructions: Option<u64>,
        /// Processor cycles since the lease began (hardware counter).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cycles: Option<u64>,
        /// Accesses that the last-level cache did not have, since the lease began (hardware counter).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub llc_misses: Option<u64>,
        /// Bytes of the last-level cache that its data take now (resctrl).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub llc_bytes: Option<u64>,
        /// Bytes between cache and memory since its programs were put into a group of their own (resctrl).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub memory_bytes: Option<u64>,
        /// The processors that its server processes are held to, such as `0-3,8`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cores: Option<String>,
        /// Its weight.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub weight: Option<u32>,
        /// The ways of the last-level cache that are its own, as a hexadecimal mask.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub llc_mask: Option<String>,
        /// The memory bandwidth that it may use, in percent of the node's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub memory_bandwidth_percent: Option<u32>,
    }
    /// What a lease uses of the processors of one of its nodes.
    pub struct NodeProcessors {
        /// The node's name.
        pub node: String,
        /// What it uses there, and is held to.
        #[serde(flatten)]
        pub usage: ProcessorUsage,
    }
}
