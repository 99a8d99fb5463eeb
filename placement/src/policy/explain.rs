//! What made a decision.

use std::collections::BTreeMap;

use crate::cluster::Cluster;
use crate::error::Phase;
use crate::ids::{JobId, NodeId};
use crate::job::{DeviceRequest, not_offered};

/// The record of one decision about one job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Explanation {
    /// The job's name.
    pub job: String,
    /// The name of the policy that decided.
    pub policy: String,
    /// When it was decided.
    pub now_s: f64,
    /// One step for each task and phase, in order.
    pub steps: Vec<Step>,
    /// What came of it.
    pub outcome: String,
}

/// A choice made for one task (or, in a device's phase, for one sub-task).
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The phase of the flow model; [`Phase::ServerCentric`] for policies that have no phases.
    pub phase: Phase,
    /// The number of the task in its job.
    pub task: usize,
    /// The places that were looked at, the cheapest first; not more than [`Step::SHOWN`] of them.
    pub candidates: Vec<Candidate>,
    /// How many places there were.
    pub places: usize,
    /// How many places were ruled out, by constraint.
    pub ruled_out: BTreeMap<String, usize>,
    /// What it would have cost to leave the task unscheduled (equation 8), and the counter W in it.
    pub unscheduled: Option<(f64, f64)>,
}

impl Step {
    /// How many candidates a step keeps.
    pub const SHOWN: usize = 10;
}

/// Counts why places are ruled out.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuledOut<'c> {
    counts: BTreeMap<&'static str, usize>,
    /// What is needed: the nodes that don't offer it.
    lacking: BTreeMap<&'c str, Vec<&'c str>>,
}

impl<'c> RuledOut<'c> {
    /// Counts a node that was ruled out as a place for devices (among others) for these requests. That it doesn't offer what
    /// they need is a better reason than that nothing suitable is free.
    pub(super) fn add<'r>(
        &mut self,
        why: &'static str,
        cluster: &'c Cluster,
        node: NodeId,
        requests: impl IntoIterator<Item = &'r DeviceRequest>,
    ) {
        match requests.into_iter().find_map(|request| request.lacks(cluster, node)) {
            Some(what) => self.lacking.entry(what).or_default().push(&cluster.node(node).name),
            None => *self.counts.entry(why).or_default() += 1,
        }
    }

    /// As a step has it.
    pub(super) fn in_words(self) -> BTreeMap<String, usize> {
        let counts = self.counts.into_iter().map(|(why, count)| (why.to_owned(), count));
        let lacking = self.lacking.into_iter().map(|(what, nodes)| (not_offered(what, &nodes), nodes.len()));
        counts.chain(lacking).collect()
    }
}

/// A place where a task could have gone.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The node's name.
    pub place: String,
    /// The arc's cost (equation 7), or the score of policies without arcs; the lowest wins.
    pub cost: f64,
    /// The completion time expected there.
    pub expected_s: Option<f64>,
    /// The network load that goes into it.
    pub load: f64,
    /// The utility (equation 6).
    pub utility: Option<f64>,
    /// The preference P.
    pub preference: f64,
    /// Whether the flow went there.
    pub chosen: bool,
}

impl std::fmt::Display for Explanation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "job {} by {} at {:.3} s: {}", self.job, self.policy, self.now_s, self.outcome)?;
        for step in &self.steps {
            writeln!(f, "  {} phase, task {}: {} places fit", step.phase, step.task, step.places)?;
            for (why, count) in &step.ruled_out {
                writeln!(f, "    {count} ruled out: {why}")?;
            }
            for candidate in &step.candidates {
                let mark = if candidate.chosen { '*' } else { ' ' };
                write!(f, "   {mark} {}: cost {:.4}", candidate.place, candidate.cost)?;
                if let (Some(utility), Some(expected)) = (candidate.utility, candidate.expected_s) {
                    write!(
                        f,
                        " = (1 - utility {utility:.4}) x preference {:.2}; {expected:.1} s expected at load {:.3}",
                        candidate.preference, candidate.load
                    )?;
                }
                writeln!(f)?;
            }
            if let Some((cost, waited)) = step.unscheduled {
                writeln!(f, "     unscheduled: cost {cost:.4}, of which W = {waited:.4}")?;
            }
        }
        Ok(())
    }
}

/// The jobs that are watched, and the latest explanation of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watched(BTreeMap<JobId, Explanation>);

impl Watched {
    pub(super) fn watch(&mut self, job: JobId) {
        self.0.entry(job).or_default();
    }

    pub(super) fn unwatch(&mut self, job: JobId) {
        self.0.remove(&job);
    }

    pub(super) fn get(&self, job: JobId) -> Option<&Explanation> {
        self.0.get(&job).filter(|explanation| !explanation.policy.is_empty())
    }

    pub(super) fn wants(&self, job: JobId) -> bool {
        !self.0.is_empty() && self.0.contains_key(&job)
    }

    pub(super) fn record(&mut self, job: JobId, explanation: Explanation) {
        self.0.insert(job, explanation);
    }
}
