//! The policies, behind one trait.

mod deadline;
mod explain;
mod flow_model;
mod fragmentation;
pub mod greedy;
mod local;
pub mod setting;
mod spreading;
pub mod table;

#[cfg(test)]
mod tests;

pub use crate::decisions::{Decisions, Reason, Work};
pub use deadline::composes;
pub use explain::{Candidate, Explanation, Step};
pub use flow_model::settings::{
    AFFINITY_PREFERENCE, DISAGGREGATE_GPUS, DISAGGREGATE_NVMES, LINK_LIMIT, MAX_REMOTE_SHARE, MAX_SLIVER,
    NETWORK_AWARE, REMOTE_PREFERENCE, SLIVER_ROUNDS, SPREAD, WAIT_WEIGHT,
};
pub use setting::{Setting, Value};
pub use spreading::{CACHE_WEIGHT, SLOWDOWN_THRESHOLD};
pub use table::{PolicyConfig, PolicyKind, PolicyTable};

use crate::cluster::Cluster;
use crate::error::Error;
use crate::ids::JobId;
use crate::placement::Placement;
use crate::queue::Waiting;
use crate::state::ClusterState;
use crate::usage::Usage;

/// Decides which of the waiting jobs start, and where.
///
/// A policy may keep what it learnt from round to round, but its decisions follow from its configuration (with
/// its seed) and from the sequence of calls alone.
pub trait Policy {
    /// The name that it has in the [table](table).
    fn name(&self) -> &'static str;

    /// One scheduling round. `waiting` comes longest waiting first, as [`Queue::waiting`](crate::Queue::waiting)
    /// gives it. The state isn't changed: the caller starts the placed jobs (all of them fit together), and
    /// counts a round for those that were left ([`Queue::apply`](crate::Queue::apply)).
    fn schedule(&mut self, state: &ClusterState, waiting: &[Waiting], now_s: f64)
    -> Result<Decisions, Error>;

    /// Whether the decisions of rounds to come can be foreseen, by running them on a copy of the state with a policy that is built
    /// in the same way; else why not, in words that follow "because".
    fn foreseeable(&self) -> Result<(), &'static str> {
        Ok(())
    }

    /// From now on, decisions about this job are recorded for [`Policy::explain`].
    fn watch(&mut self, job: JobId);

    /// Forgets a watched job and its decision.
    fn unwatch(&mut self, job: JobId);

    /// What made the latest decision about a watched job.
    fn explain(&self, job: JobId) -> Option<&Explanation>;
}

/// A copy of the state's usage to try things out on, in the memory of an earlier one.
fn scratch(kept: &mut Option<Usage>, state: &ClusterState) -> Usage {
    match kept.take() {
        Some(mut usage) => {
            usage.clone_from(state.usage());
            usage
        }
        None => state.usage().clone(),
    }
}

/// A placement in words.
fn outcome(cluster: &Cluster, placement: &Placement) -> String {
    let mut text = String::from("placed");
    for at in &placement.tasks {
        text += &format!(" in {}", cluster.node(at.node).name);
        for grant in &at.grants {
            let device = cluster.device(grant.device);
            let part = match grant.milli {
                crate::WHOLE => String::new(),
                milli => format!("{milli}/1000 of "),
            };
            text += &match device.node == at.node {
                true => format!(" + {part}local {}", device.kind),
                false => format!(" + {part}{} of {}", device.kind, cluster.node(device.node).name),
            };
        }
    }
    text
}
