//! Whether a task with all its devices fits one node, and which of that node's devices it gets.

use crate::cluster::Cluster;
use crate::ids::{DeviceId, DeviceKind, NodeId};
use crate::job::{DeviceRequest, Task};
use crate::placement::{Grant, TaskPlacement};
use crate::rng::Rng;
use crate::usage::Usage;

/// Why a task, with all its devices, doesn't fit a node.
pub(super) fn why_not(cluster: &Cluster, usage: &Usage, node: NodeId, task: &Task) -> Option<&'static str> {
    let free = usage.node(node);
    if free.cpu_milli < task.cpu_milli {
        return Some("too few cores free");
    }
    if free.memory_mib < task.memory_mib {
        return Some("too little memory free");
    }
    if !task.allows(node) {
        return Some("not among the nodes it may use");
    }
    for kind in DeviceKind::ALL {
        if u64::from(free.device_milli[kind.index()]) < task.device_milli(kind) {
            return Some("too few devices free");
        }
    }
    match task.devices.as_slice() {
        [] => None,
        [request] if usage.fitting_devices(cluster, node, request) >= usize::from(request.count) => None,
        [_] => Some("no suitable devices free"),
        // Several requests can want the same device; what the grants find counts.
        _ if grant_locally(cluster, usage, node, task, Pick::Fullest).is_some() => None,
        _ => Some("no suitable devices free"),
    }
}

/// Whether a task, with all its devices, fits a node.
pub fn fits(cluster: &Cluster, usage: &Usage, node: NodeId, task: &Task) -> bool {
    why_not(cluster, usage, node, task).is_none()
}

/// The nodes that a task fits with all its devices, in the cluster's order.
pub fn fitting(cluster: &Cluster, usage: &Usage, task: &Task) -> impl Iterator<Item = NodeId> {
    (0..cluster.nodes().len() as u32).map(NodeId).filter(|&node| fits(cluster, usage, node, task))
}

/// How devices are picked inside a node.
pub enum Pick<'a> {
    /// In the node's order.
    First,
    /// Those with the least free.
    Fullest,
    /// Those with the most free.
    Emptiest,
    /// Any.
    Random(&'a mut Rng),
}

/// Gives a task devices of the node where it runs, if there are enough.
pub fn grant_locally(
    cluster: &Cluster,
    usage: &Usage,
    node: NodeId,
    task: &Task,
    mut pick: Pick<'_>,
) -> Option<TaskPlacement> {
    let mut grants: Vec<Grant> = Vec::new();
    // With one that is used alone there is no second one.
    let several =
        |kind| task.devices.iter().filter(|r| r.kind == kind).map(|r| u32::from(r.count)).sum::<u32>() > 1;
    for (number, request) in task.devices.iter().enumerate() {
        let several = several(request.kind);
        let mut fitting: Vec<DeviceId> = cluster
            .node(node)
            .devices()
            .filter(|&device| {
                usage.fits_device(cluster, device, request)
                    && !(several && cluster.device(device).alone)
                    && still_fits(cluster, usage, &grants, device, request)
            })
            .collect();
        if fitting.len() < usize::from(request.count) {
            return None;
        }
        match &mut pick {
            Pick::First => {}
            Pick::Fullest => fitting.sort_by_key(|&device| (usage.device_milli(device), device)),
            Pick::Emptiest => {
                fitting.sort_by_key(|&device| (std::cmp::Reverse(usage.device_milli(device)), device));
            }
            Pick::Random(rng) => rng.shuffle(&mut fitting),
        }
        for device in fitting.into_iter().take(usize::from(request.count)) {
            grants.push(usage.grant(cluster, node, device, request, number as u16));
        }
    }
    Some(TaskPlacement { node, regions: usage.choose_regions(cluster, node, task), grants })
}

/// Whether the device has room for the request beside the grants decided, but not yet taken, for other
/// requests of the same task.
pub(super) fn still_fits(
    cluster: &Cluster,
    usage: &Usage,
    grants: &[Grant],
    device: DeviceId,
    request: &DeviceRequest,
) -> bool {
    let same = || grants.iter().filter(|grant| grant.device == device);
    if same().next().is_none() {
        return true;
    }
    let milli: u16 = same().map(|grant| grant.milli).sum();
    let memory: u64 = same().map(|grant| grant.memory_mib).sum();
    let wanted = if cluster.device(device).partitionable { request.milli } else { crate::WHOLE };
    usage.device_milli(device) - milli >= wanted
        && usage.device_memory_mib(device) - memory >= request.memory_mib
}
