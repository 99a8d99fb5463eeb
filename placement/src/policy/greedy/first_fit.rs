//! First-fit.

use super::{Pick, Rule, fitting, grant_locally};
use crate::cluster::Cluster;
use crate::ids::NodeId;
use crate::job::Task;
use crate::placement::TaskPlacement;
use crate::usage::Usage;

/// The first node, in the cluster's order, that has room for the task, and there the first devices.
#[derive(Debug)]
pub struct FirstFit;

impl Rule for FirstFit {
    fn choose(&mut self, cluster: &Cluster, usage: &Usage, task: &Task) -> Option<NodeId> {
        fitting(cluster, usage, task).next()
    }

    fn grant(
        &mut self,
        cluster: &Cluster,
        usage: &Usage,
        node: NodeId,
        task: &Task,
    ) -> Option<TaskPlacement> {
        grant_locally(cluster, usage, node, task, Pick::First)
    }

    fn cost(&mut self, _cluster: &Cluster, _usage: &Usage, node: NodeId, _task: &Task) -> f64 {
        f64::from(node.0)
    }
}
