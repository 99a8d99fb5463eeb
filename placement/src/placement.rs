//! Where a job was put.

use crate::ids::{DeviceId, NodeId};

/// Where each of a job's tasks goes, in the order of [`Job::tasks`](crate::Job::tasks).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// One for each task.
    pub tasks: Vec<TaskPlacement>,
}

/// Where one task goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskPlacement {
    /// The node where its processes run.
    pub node: NodeId,
    /// How its cores and memory are spread over the node's NUMA regions; empty if the node has only one.
    pub regions: Vec<RegionShare>,
    /// The devices it gets, in the order of the task's requests.
    pub grants: Vec<Grant>,
}

/// Cores and memory of one NUMA region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionShare {
    /// The region's number in its node.
    pub region: u8,
    /// Thousandths of cores.
    pub cpu_milli: u64,
    /// Memory in MiB.
    pub memory_mib: u64,
}

/// A device, or a part of one, that is given to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The device, in the task's node (local) or in another one (remote).
    pub device: DeviceId,
    /// Thousandths of it (1000 for a whole one).
    pub milli: u16,
    /// Device memory in MiB.
    pub memory_mib: u64,
    /// Mbit/s that pass the network to it: 0 if it is in the task's own node.
    pub traffic_mbps: u64,
    /// Which of the task's requests it answers.
    pub request: u16,
}
