//! Best-fit.

use super::{Pick, Rule, fitting, grant_locally};
use crate::cluster::{Cluster, WHOLE};
use crate::ids::{DeviceKind, NodeId};
use crate::job::Task;
use crate::placement::TaskPlacement;
use crate::usage::Usage;

/// The node that has the least left after the task, and there the fullest devices that have room.
#[derive(Debug)]
pub struct BestFit;

impl Rule for BestFit {
    fn choose(&mut self, cluster: &Cluster, usage: &Usage, task: &Task) -> Option<NodeId> {
        let mut best: Option<(f64, NodeId)> = None;
        for node in fitting(cluster, usage, task) {
            let score = remaining(cluster, usage, node, task);
            if best.is_none_or(|(least, _)| score < least) {
                best = Some((score, node));
            }
        }
        best.map(|(_, node)| node)
    }

    fn grant(
        &mut self,
        cluster: &Cluster,
        usage: &Usage,
        node: NodeId,
        task: &Task,
    ) -> Option<TaskPlacement> {
        grant_locally(cluster, usage, node, task, Pick::Fullest)
    }

    fn cost(&mut self, cluster: &Cluster, usage: &Usage, node: NodeId, task: &Task) -> f64 {
        remaining(cluster, usage, node, task)
    }
}

/// What a node has left after the task: the sum over cores and each kind of devices, each as a part of the
/// greatest amount in one node. (Memory does not count, as in the published comparison.)
fn remaining(cluster: &Cluster, usage: &Usage, node: NodeId, task: &Task) -> f64 {
    let free = usage.node(node);
    let most = cluster.greatest();
    let part = |left: u64, most: u64| if most == 0 { 0.0 } else { left as f64 / most as f64 };
    let mut sum = part(free.cpu_milli - task.cpu_milli, most.cpu_milli);
    for kind in DeviceKind::ALL {
        let left = u64::from(free.device_milli[kind.index()]).saturating_sub(task.device_milli(kind));
        sum += part(left, most.devices[kind.index()] * u64::from(WHOLE));
    }
    sum
}
