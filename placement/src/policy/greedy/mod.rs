//! Policies that place one task after another in the best node of the moment, all its devices in that same node.
//!
//! What is best is a [`Rule`]: first-fit, best-fit, random, fragmentation gradient descent, and harvesting are one each. [`Greedy`] makes
//! a [`Policy`] of any rule: it keeps gangs together, skips what cannot fit, and explains decisions.

mod best_fit;
mod fgd;
mod first_fit;
mod harvest;
mod random;

pub use best_fit::BestFit;
pub use fgd::Fgd;
pub use first_fit::FirstFit;
pub use harvest::Harvest;
pub use random::Random;

pub use super::local::{Pick, fits, fitting, grant_locally};

use std::collections::HashSet;

use super::explain::{Candidate, Explanation, RuledOut, Step, Watched};
use super::local::why_not;
use super::{Decisions, Policy, Reason};
use crate::cluster::Cluster;
use crate::error::{Error, Phase};
use crate::ids::{JobId, NodeId};
use crate::job::{Job, Task};
use crate::placement::{Placement, TaskPlacement};
use crate::queue::Waiting;
use crate::state::ClusterState;
use crate::usage::Usage;

/// Which node a task goes to, and which of that node's devices it gets.
///
/// `usage` is what is free at that moment, the tasks that the round has placed so far included.
pub trait Rule: std::fmt::Debug {
    /// Whether [`Rule::observe`] wants to be called.
    const OBSERVES: bool = false;

    /// Takes note of a task, once for each job that was ever seen waiting.
    fn observe(&mut self, _task: &Task) {}

    /// Whether jobs with the same tasks fit the same places, whatever their profiles.
    const ALIKE: bool = true;

    /// Whether it draws lots: then nobody can foresee where it puts what.
    const DRAWS_LOTS: bool = false;

    /// A round begins, with what runs and what was measured.
    fn begin(&mut self, _state: &ClusterState) {}

    /// The tasks of this job come next.
    fn consider(&mut self, _job: &Job) {}

    /// The node for a task; `None` if no node has room for it and all its devices.
    fn choose(&mut self, cluster: &Cluster, usage: &Usage, task: &Task) -> Option<NodeId>;

    /// Devices of the chosen node for the task.
    fn grant(&mut self, cluster: &Cluster, usage: &Usage, node: NodeId, task: &Task)
    -> Option<TaskPlacement>;

    /// How bad a node that has room is for the task, in whatever unit the rule has: for explanations, which show the
    /// lowest first.
    fn cost(&mut self, cluster: &Cluster, usage: &Usage, node: NodeId, task: &Task) -> f64;
}

/// A policy that follows a rule.
#[derive(Debug)]
pub struct Greedy<R> {
    name: &'static str,
    rule: R,
    /// Whether the rule was told of the job with this number: jobs wait in several rounds.
    observed: Vec<bool>,
    scratch: Option<Usage>,
    watched: Watched,
}

impl<R: Rule> Greedy<R> {
    /// A policy of that name that follows that rule.
    pub fn new(name: &'static str, rule: R) -> Greedy<R> {
        Greedy { name, rule, observed: Vec::new(), scratch: None, watched: Watched::default() }
    }

    fn observe(&mut self, job: &Job) {
        let i = job.id.index();
        if self.observed.len() <= i {
            self.observed.resize(i + 1, false);
        }
        if !std::mem::replace(&mut self.observed[i], true) {
            job.tasks.iter().for_each(|task| self.rule.observe(task));
        }
    }

    fn place(
        &mut self,
        cluster: &Cluster,
        usage: &mut Usage,
        job: &Job,
        steps: &mut Vec<Step>,
    ) -> Option<Placement> {
        self.rule.consider(job);
        let mut placed: Vec<TaskPlacement> = Vec::with_capacity(job.tasks.len());
        for (number, task) in job.tasks.iter().enumerate() {
            let explain = self.watched.wants(job.id);
            let chosen = self.rule.choose(cluster, usage, task);
            if explain {
                steps.push(self.step(cluster, usage, task, number, chosen));
            }
            let at = chosen.and_then(|node| self.rule.grant(cluster, usage, node, task));
            match at {
                Some(at) => {
                    usage.take_task(cluster, &at, task, job.profile);
                    placed.push(at);
                }
                None => {
                    for (task, at) in job.tasks.iter().zip(&placed) {
                        usage.give_task(cluster, at, task, job.profile);
                    }
                    return None;
                }
            }
        }
        Some(Placement { tasks: placed })
    }

    fn step(
        &mut self,
        cluster: &Cluster,
        usage: &Usage,
        task: &Task,
        number: usize,
        chosen: Option<NodeId>,
    ) -> Step {
        let mut step = Step {
            phase: Phase::ServerCentric,
            task: number,
            candidates: Vec::new(),
            places: 0,
            ruled_out: Default::default(),
            unscheduled: None,
        };
        let mut ruled_out = RuledOut::default();
        for node in (0..cluster.nodes().len() as u32).map(NodeId) {
            if let Some(why) = why_not(cluster, usage, node, task) {
                ruled_out.add(why, cluster, node, &task.devices);
                continue;
            }
            step.places += 1;
            step.candidates.push(Candidate {
                place: cluster.node(node).name.clone(),
                cost: self.rule.cost(cluster, usage, node, task),
                expected_s: None,
                load: 0.0,
                utility: None,
                preference: 1.0,
                chosen: chosen == Some(node),
            });
        }
        step.candidates.sort_by(|a, b| b.chosen.cmp(&a.chosen).then(a.cost.total_cmp(&b.cost)));
        step.candidates.truncate(Step::SHOWN);
        step.ruled_out = ruled_out.in_words();
        step
    }
}

impl<R: Rule> Policy for Greedy<R> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn schedule(
        &mut self,
        state: &ClusterState,
        waiting: &[Waiting],
        now_s: f64,
    ) -> Result<Decisions, Error> {
        let cluster = state.cluster().clone();
        self.rule.begin(state);
        let mut usage = super::scratch(&mut self.scratch, state);
        let mut decisions = Decisions::default();
        // What didn't fit once in a round doesn't fit later in it.
        let mut hopeless: HashSet<&[Task]> = HashSet::new();
        for Waiting { job, .. } in waiting {
            decisions.work.considered += 1;
            if R::OBSERVES {
                self.observe(job);
            }
            let watched = self.watched.wants(job.id);
            if R::ALIKE && !watched && hopeless.contains(job.tasks.as_slice()) {
                decisions.left.push((job.id, Reason::NoRoom));
                continue;
            }
            let mut steps = Vec::new();
            let placement = self.place(&cluster, &mut usage, job, &mut steps);
            if watched {
                let outcome = match &placement {
                    Some(placement) => super::outcome(&cluster, placement),
                    None => Reason::NoRoom.to_string(),
                };
                let (job_name, policy) = (job.name.clone(), self.name.to_owned());
                self.watched.record(job.id, Explanation { job: job_name, policy, now_s, steps, outcome });
            }
            match placement {
                Some(placement) => decisions.placed.push((job.id, placement)),
                None => {
                    hopeless.insert(&job.tasks);
                    decisions.left.push((job.id, Reason::NoRoom));
                }
            }
        }
        self.scratch = Some(usage);
        Ok(decisions)
    }

    fn foreseeable(&self) -> Result<(), &'static str> {
        match R::DRAWS_LOTS {
            true => Err("the policy draws lots"),
            false => Ok(()),
        }
    }

    fn watch(&mut self, job: JobId) {
        self.watched.watch(job);
    }

    fn unwatch(&mut self, job: JobId) {
        self.watched.unwatch(job);
    }

    fn explain(&self, job: JobId) -> Option<&Explanation> {
        self.watched.get(job)
    }
}
