//! What a scheduling round decided, and what that cost.

use crate::ids::JobId;
use crate::placement::Placement;

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
    /// How many waiting jobs the round looked at.
    pub considered: u64,
    /// How often the round looked at a node, or at one of several that are alike, as a place for something. (Counted by the policies of the
    /// flow model.)
    pub looks: u64,
    /// Flow networks solved.
    pub networks: u64,
    /// Nodes of these networks.
    pub nodes: u64,
    /// Arcs of these networks.
    pub arcs: u64,
}
