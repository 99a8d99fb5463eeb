//! Random placement.

use super::{Pick, Rule, fitting, grant_locally};
use crate::cluster::Cluster;
use crate::ids::NodeId;
use crate::job::Task;
use crate::placement::TaskPlacement;
use crate::rng::Rng;
use crate::usage::Usage;

/// Any node that has room for the task, and there any devices.
#[derive(Debug)]
pub struct Random {
    rng: Rng,
}

impl Random {
    /// The same seed draws the same lots.
    pub fn new(seed: u64) -> Random {
        Random { rng: Rng::new(seed) }
    }
}

impl Rule for Random {
    const DRAWS_LOTS: bool = true;

    fn choose(&mut self, cluster: &Cluster, usage: &Usage, task: &Task) -> Option<NodeId> {
        // Each fitting node is as likely as any other, in one pass.
        let (mut seen, mut chosen) = (0, None);
        for node in fitting(cluster, usage, task) {
            seen += 1;
            if self.rng.below(seen) == 0 {
                chosen = Some(node);
            }
        }
        chosen
    }

    fn grant(
        &mut self,
        cluster: &Cluster,
        usage: &Usage,
        node: NodeId,
        task: &Task,
    ) -> Option<TaskPlacement> {
        grant_locally(cluster, usage, node, task, Pick::Random(&mut self.rng))
    }

    fn cost(&mut self, _cluster: &Cluster, _usage: &Usage, _node: NodeId, _task: &Task) -> f64 {
        0.0
    }
}
