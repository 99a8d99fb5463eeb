//! The policies, behind one trait.

mod explain;
mod flow_model;
mod fragmentation;
pub mod greedy;
mod local;
pub mod setting;
pub mod table;

#[cfg(test)]
mod tests;

pub use explain::{Candidate, Explanation, Step};
pub use flow_model::settings::{
    AFFINITY_PREFERENCE, DISAGGREGATE_GPUS, DISAGGREGATE_NVMES, LINK_LIMIT, MAX_REMOTE_SHARE, MAX_SLIVER,
    NETWORK_AWARE, REMOTE_PREFERENCE, WAIT_WEIGHT,
};
pub use setting::{Setting, Value};
pub use table::{PolicyConfig, PolicyKind, PolicyTable};

use crate::cluster::Cluster;
use crate::error::Error;
use crate::ids::JobId;
use crate::placement::Placement;
use crate::queue::Waiting;
use crate::state::State;
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
    fn schedule(&mut self, state: &State, waiting: &[Waiting], now_s: f64) -> Result<Decisions, Error>;

    /// From now on, decisions about this job are recorded for [`Policy::explain`].
    fn watch(&mut self, job: JobId);

    /// Forgets a watched job and its decision.
    fn unwatch(&mut self, job: JobId);

    /// What made the latest decision about a watched job.
    fn explain(&self, job: JobId) -> Option<&Explanation>;
}

/// What a round decided.
#[derive(Clone, Debug, Default)]
pub struct Decisions {
    /// The jobs that start now, in the order in which they were decided.
    pub placed: Vec<(JobId, Placement)>,
    /// The jobs that were considered and go on waiting. A waiting job in neither list wasn't considered, for
    /// want of room in the cluster.
    pub left: Vec<(JobId, Reason)>,
    /// What the round cost.
    pub work: Work,
}

/// Why a job goes on waiting.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// No placement fits what is free now.
    NoRoom,
    /// It would fit in terms of cores and devices, but not in terms of the network.
    NoBandwidth,
    /// It would fit, but not more of the devices may be given remotely.
    RemoteShare,
    /// It would fit, but no placement keeps its objective; it is postponed (network-aware policy).
    Postponed {
        /// The best completion time that could be expected.
        expected_s: f64,
        /// The objective τ.
        goal_s: f64,
    },
    /// It would fit, but it would make a running job break its objective, by its traffic or as a neighbour in the
    /// same node (network-aware policy).
    Disturbing,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::NoRoom => f.write_str("no placement fits what is free"),
            Reason::NoBandwidth => f.write_str("no placement fits what the network has free"),
            Reason::RemoteShare => f.write_str("the share of remote devices is used up"),
            Reason::Postponed { expected_s, goal_s } => {
                write!(f, "postponed: {expected_s:.1} s are expected, the goal is {goal_s:.1} s")
            }
            Reason::Disturbing => f.write_str("postponed: it would make another job break its objective"),
        }
    }
}

/// What a round cost, in counts (a library without a clock can't tell times).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Jobs considered.
    pub considered: u64,
    /// Flow networks solved.
    pub networks: u64,
    /// Nodes of these networks.
    pub nodes: u64,
    /// Arcs of these networks.
    pub arcs: u64,
}

/// A copy of the state's usage to try things out on, in the memory of an earlier one.
fn scratch(kept: &mut Option<Usage>, state: &State) -> Usage {
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
