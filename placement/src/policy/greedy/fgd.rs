//! Fragmentation gradient descent.

use super::Rule;
use crate::cluster::Cluster;
use crate::ids::NodeId;
use crate::job::Task;
use crate::placement::TaskPlacement;
use crate::policy::fragmentation::{Fragmentation, fgd_cost};
use crate::state::ClusterState;
use crate::usage::Usage;

/// The node and the devices where the expected fragmentation grows the least, or shrinks the most.
#[derive(Debug)]
pub struct Fgd {
    fragmentation: Fragmentation,
}

impl Fgd {
    /// For a workload of these tasks, with how frequent each is; one that is learnt from the tasks seen if there are none.
    pub fn new(typical: &[(Task, f64)]) -> Fgd {
        Fgd { fragmentation: Fragmentation::new(typical) }
    }
}

impl Rule for Fgd {
    const OBSERVES: bool = true;

    fn observe(&mut self, task: &Task) {
        self.fragmentation.observe(task);
    }

    fn begin(&mut self, state: &ClusterState) {
        self.fragmentation.trim(state.cluster());
    }

    fn choose(&mut self, cluster: &Cluster, usage: &Usage, task: &Task) -> Option<NodeId> {
        let shape = self.fragmentation.shape(task);
        let mut best: Option<(f64, NodeId)> = None;
        for node in (0..cluster.nodes().len() as u32).map(NodeId) {
            let Some(growth) = self.fragmentation.growth(cluster, usage, node, task, shape) else {
                continue;
            };
            let cost = fgd_cost(growth);
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, node));
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
        self.fragmentation.grant(cluster, usage, node, task)
    }

    fn cost(&mut self, cluster: &Cluster, usage: &Usage, node: NodeId, task: &Task) -> f64 {
        let shape = self.fragmentation.shape(task);
        let growth = self.fragmentation.growth(cluster, usage, node, task, shape);
        fgd_cost(growth.unwrap_or(f64::INFINITY))
    }
}
