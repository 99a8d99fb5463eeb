//! The policies, behind one trait.

mod explain;
mod flow_model;
mod fragmentation;
mod greedy;

#[cfg(test)]
mod tests;

pub use explain::{Candidate, Explanation, Step};

use crate::cluster::Cluster;
use crate::error::Error;
use crate::ids::{DeviceKind, JobId};
use crate::placement::Placement;
use crate::queue::Waiting;
use crate::state::State;
use crate::usage::Usage;

/// Decides which of the waiting jobs start, and where.
///
/// A policy may keep what it learnt from round to round, but its decisions follow from its configuration (with
/// its seed) and from the sequence of calls alone.
pub trait Policy {
    /// The name under which [`PolicyConfig::build`] knows it.
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

/// How to build a policy.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyConfig {
    /// One of [`PolicyConfig::NAMES`].
    pub name: String,
    /// For policies that draw lots, and for breaking ties.
    pub seed: u64,
    /// The kinds of devices that may be remote (ignored by policies that place everything in one node).
    pub disaggregated: Vec<DeviceKind>,
    /// Whether completion times are expected under the measured network load, and jobs postponed whose
    /// objective no placement keeps (`drmaestro` only).
    pub network_aware: bool,
    /// The part of a link's capacity up to which remote devices may load it; infinite: only links without
    /// any capacity are ruled out.
    pub link_limit: f64,
    /// The greatest part of the devices' given thousandths, over the whole cluster, that may be remote.
    pub max_remote_share: f64,
    /// By which factor a remote device costs more than a local one of equal utility (P of equation 7), at least 1.
    pub remote_preference: f64,
    /// By which factor a node costs more that is not among a task's preferred ones, at least 1.
    pub affinity_preference: f64,
    /// By how much the cost of leaving a task unscheduled grows with every round (W of equation 8), for a job as long
    /// as the mean; with the cube of the length for others.
    pub wait_weight: f64,
    /// Parts of devices are held back that would leave over more than so many thousandths of a device, except where
    /// no other device has the same amount left over (`drmaestro` only). [`WHOLE`](crate::WHOLE): nothing is held
    /// back. For clusters in which more is asked for than there is: what is given is used up, but parts that are
    /// hard to complete wait long.
    pub max_sliver: u16,
    /// The workload's typical tasks and how frequent each is (`fgd`, and ties in `drmaestro`). Empty: learnt
    /// from the tasks that were seen.
    pub typical: Vec<(crate::Task, f64)>,
}

impl PolicyConfig {
    /// Every policy's name.
    pub const NAMES: [&'static str; 6] = ["drmaestro", "firmament", "first-fit", "best-fit", "random", "fgd"];

    /// The policy of that name with default settings: GPUs and NVMes disaggregated, network-aware, links used
    /// up to their capacity.
    pub fn new(name: impl Into<String>) -> PolicyConfig {
        PolicyConfig {
            name: name.into(),
            seed: 0,
            disaggregated: DeviceKind::ALL.to_vec(),
            network_aware: true,
            link_limit: 1.0,
            max_remote_share: 1.0,
            remote_preference: 1.25,
            affinity_preference: 2.0,
            wait_weight: 0.021,
            max_sliver: crate::WHOLE,
            typical: Vec::new(),
        }
    }

    /// Whether the policy ever gives devices of other nodes: what [`Job::check`](crate::Job::check) must know.
    pub fn disaggregates(&self) -> bool {
        self.name == "drmaestro" && !self.disaggregated.is_empty()
    }

    /// Builds the policy.
    pub fn build(&self) -> Result<Box<dyn Policy + Send>, Error> {
        let range = |what, value: f64, must| {
            let of = format!("policy {:?}", self.name);
            Err(Error::Range { what, of, value: value.to_string(), must })
        };
        for (what, value) in [("link_limit", self.link_limit), ("max_remote_share", self.max_remote_share)] {
            if value.is_nan() || value < 0.0 {
                return range(what, value, "not negative");
            }
        }
        for (what, value) in
            [("remote_preference", self.remote_preference), ("affinity_preference", self.affinity_preference)]
        {
            if !(1.0..=1000.0).contains(&value) {
                return range(what, value, "from 1 to 1000");
            }
        }
        if !(0.0..=1000.0).contains(&self.wait_weight) {
            return range("wait_weight", self.wait_weight, "from 0 to 1000");
        }
        for (_, frequency) in &self.typical {
            if !frequency.is_finite() || *frequency <= 0.0 {
                return range("a typical task's frequency", *frequency, "greater than 0");
            }
        }
        let greedy = |rule| Ok(Box::new(greedy::Greedy::new(rule, self.seed, &self.typical)) as Box<_>);
        match self.name.as_str() {
            "first-fit" => greedy(greedy::Rule::FirstFit),
            "best-fit" => greedy(greedy::Rule::BestFit),
            "random" => greedy(greedy::Rule::Random),
            "fgd" => greedy(greedy::Rule::Fgd),
            "drmaestro" => Ok(Box::new(flow_model::FlowModel::new("drmaestro", self))),
            "firmament" => Ok(Box::new(flow_model::FlowModel::new("firmament", self))),
            name => Err(Error::UnknownPolicy(name.into(), PolicyConfig::NAMES.join(", "))),
        }
    }
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
