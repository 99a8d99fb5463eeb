//! Clusters as they are described.

use crate::ids::DeviceKind;

/// A machine, as described to a [`ClusterBuilder`](crate::ClusterBuilder).
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSpec {
    /// Its name, unique in the cluster.
    pub name: String,
    /// Thousandths of processor cores (0 for a box of devices without processors).
    pub cpu_milli: u64,
    /// Main memory in MiB.
    pub memory_mib: u64,
    /// The NUMA regions; empty means a single one that has everything. Their sums must be the node's.
    pub numa: Vec<NumaSpec>,
    /// The devices in it, which get their numbers in this order.
    pub devices: Vec<DeviceSpec>,
    /// The network interface's capacity in Mbit/s, in each direction.
    pub nic_mbps: u64,
    /// The switch to which it is attached; `None` is the network's core.
    pub switch: Option<String>,
    /// What it can do that not all nodes can, by name: requests for devices can need it of the devices' nodes.
    pub offers: Vec<String>,
    /// Ways of the last-level cache that can be given to jobs; 0 where they cannot.
    pub llc_ways: u32,
    /// Memory bandwidth that can be given to jobs, in GB/s (or another unit, the same in profiles); 0 where it cannot.
    pub memory_bandwidth: f64,
}

impl NodeSpec {
    /// A node with one NUMA region, no devices, and no network.
    pub fn new(name: impl Into<String>, cpu_milli: u64, memory_mib: u64) -> NodeSpec {
        NodeSpec {
            name: name.into(),
            cpu_milli,
            memory_mib,
            numa: Vec::new(),
            devices: Vec::new(),
            nic_mbps: 0,
            switch: None,
            offers: Vec::new(),
            llc_ways: 0,
            memory_bandwidth: 0.0,
        }
    }

    /// The node with `count` more devices like `device`.
    #[must_use]
    pub fn with_devices(mut self, count: usize, device: DeviceSpec) -> NodeSpec {
        self.devices.extend(std::iter::repeat_n(device, count));
        self
    }

    /// The node with a network interface of `mbps`.
    #[must_use]
    pub fn with_nic(mut self, mbps: u64) -> NodeSpec {
        self.nic_mbps = mbps;
        self
    }

    /// The node with one more capability.
    #[must_use]
    pub fn offering(mut self, capability: impl Into<String>) -> NodeSpec {
        self.offers.push(capability.into());
        self
    }
}

/// A part of a node whose cores and memory are close to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumaSpec {
    /// Thousandths of cores.
    pub cpu_milli: u64,
    /// Memory in MiB.
    pub memory_mib: u64,
}

/// A device, as described to a [`ClusterBuilder`](crate::ClusterBuilder).
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceSpec {
    /// GPU or NVMe.
    pub kind: DeviceKind,
    /// The model's name; requests can insist on some models.
    pub model: String,
    /// The device's own memory (or capacity) in MiB.
    pub memory_mib: u64,
    /// Bandwidth of its bus in Mbit/s.
    pub bus_mbps: u64,
    /// Whether several jobs can share it in thousandths; else every request takes the whole device.
    pub partitionable: bool,
    /// Whether a task that has it can have no other device of that kind of its node: CUDA shows a program one instance of
    /// a partitioned GPU (MIG), and nothing beside it.
    pub alone: bool,
    /// The NUMA region to which it is attached.
    pub numa: u8,
}

impl DeviceSpec {
    /// A partitionable GPU in NUMA region 0, with PCIe 3.0 ×16's bandwidth.
    pub fn gpu(model: impl Into<String>, memory_mib: u64) -> DeviceSpec {
        DeviceSpec {
            kind: DeviceKind::Gpu,
            model: model.into(),
            memory_mib,
            bus_mbps: 126_000,
            partitionable: true,
            alone: false,
            numa: 0,
        }
    }
}

/// A switch (of a rack, a row, …), as described to a [`ClusterBuilder`](crate::ClusterBuilder).
#[derive(Clone, Debug, PartialEq)]
pub struct SwitchSpec {
    /// Its name, unique among switches.
    pub name: String,
    /// The switch above; `None` is the network's core, which never limits.
    pub parent: Option<String>,
    /// Capacity towards the switch above, in Mbit/s, in each direction.
    pub uplink_mbps: u64,
}
