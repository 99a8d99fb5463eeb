//! Spread-n-Share (Tang et al., SC 2019, section 4) and what the paper compares it with: parallel jobs on nodes that they have alone,
//! or share.
//!
//! A job's tasks are its processes, or bundles of them. Scale factor 1 is the fewest nodes that hold them; at scale factor k they
//! lie on k times as many, in equal parts. What a job needs of its nodes' caches and memory, and at which scale factors it is
//! tried, is its profile's [`Spread`](crate::spread::Spread). A node that has no ways or no bandwidth to give, as far as the cluster's
//! description goes, is not asked for any. Where nodes have no cores, as in the broker, which leases devices alone, devices take their
//! place.

use std::collections::{BTreeSet, HashSet};

use super::explain::{Candidate, Explanation, RuledOut, Step, Watched};
use super::local::{Pick, grant_locally, why_not};
use super::setting::{Number, Setting};
use super::{Decisions, Policy, PolicyConfig, Reason};
use crate::cluster::{Cluster, WHOLE};
use crate::error::{Error, Phase};
use crate::ids::{JobId, NodeId, ProfileId};
use crate::job::{Job, Task};
use crate::placement::{Placement, TaskPlacement};
use crate::profile::Profiles;
use crate::queue::Waiting;
use crate::spread::{Amounts, AtScale, choose, compact_nodes, occupied, scale};
use crate::state::ClusterState;
use crate::usage::Usage;

/// The slowdown threshold α: spreading may make a job slower than at scale factor 1 by no more than 1/α.
pub static SLOWDOWN_THRESHOLD: Number = Number {
    name: "slowdown_threshold",
    about: "the part α of its speed at the smallest scale factor that a job must reach where it is spread",
    default: 0.9,
    range: 0.01..=1.0,
    or_infinite: false,
    in_broker: false,
};

/// The weight β of occupied cache ways.
pub static CACHE_WEIGHT: Number = Number {
    name: "cache_weight",
    about: "the weight β of occupied cache ways when the least occupied nodes are chosen",
    default: crate::spread::BETA,
    range: 0.0..=1000.0,
    or_infinite: false,
    in_broker: false,
};

/// What [`Spreading`] can be told.
pub(super) static SETTINGS: &[Setting] =
    &[Setting::Number(&SLOWDOWN_THRESHOLD), Setting::Number(&CACHE_WEIGHT)];

/// How nodes are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Nobody else is on a job's nodes, which are the fewest possible (CE).
    Exclusive,
    /// The smallest scale factor for which there are idle cores, whoever else is there (CS).
    Cores,
    /// The scale factors, cache ways and bandwidth of the profile (SNS).
    Profiles,
}

/// A policy that spreads jobs over nodes.
#[derive(Debug)]
pub(super) struct Spreading {
    name: &'static str,
    sharing: Sharing,
    alpha: f64,
    beta: f64,
    scratch: Option<Usage>,
    watched: Watched,
}

/// A round: what is free after what it has placed so far.
struct Round<'a> {
    cluster: &'a Cluster,
    profiles: &'a Profiles,
    sharing: Sharing,
    beta: f64,
    usage: Usage,
    /// Ways and bandwidth that nobody was given, by node.
    left: Vec<(f64, f64)>,
    /// How many jobs each node has.
    jobs: Vec<u32>,
    /// What found no room in this round finds none later in it.
    hopeless: HashSet<(&'a [Task], ProfileId)>,
}

impl Spreading {
    /// A policy of that name that uses nodes so.
    pub(super) fn new(config: &PolicyConfig, sharing: Sharing) -> Spreading {
        Spreading {
            name: config.name(),
            sharing,
            alpha: config.get(&SLOWDOWN_THRESHOLD),
            beta: if sharing == Sharing::Profiles { config.get(&CACHE_WEIGHT) } else { 0.0 },
            scratch: None,
            watched: Watched::default(),
        }
    }

    /// The scale factors at which a job is tried, in this order.
    fn tried(&self, profiles: &Profiles, job: &Job) -> Vec<u32> {
        let spread = profiles.get(job.profile).spread.as_ref();
        match (self.sharing, spread) {
            (Sharing::Exclusive, _) | (_, None) => vec![1],
            (Sharing::Cores, Some(spread)) => spread.scales().iter().map(|at| at.scale).collect(),
            (Sharing::Profiles, Some(spread)) => spread.tried(self.alpha),
        }
    }
}

impl Policy for Spreading {
    fn name(&self) -> &'static str {
        self.name
    }

    fn schedule(
        &mut self,
        state: &ClusterState,
        waiting: &[Waiting],
        now_s: f64,
    ) -> Result<Decisions, Error> {
        let usage = super::scratch(&mut self.scratch, state);
        let mut round = Round::new(state, usage, self.sharing, self.beta);
        let mut decisions = Decisions::default();
        for Waiting { job, .. } in waiting {
            decisions.work.considered += 1;
            let watched = self.watched.wants(job.id);
            let same = (job.tasks.as_slice(), job.profile);
            if !watched && round.hopeless.contains(&same) {
                decisions.left.push((job.id, Reason::NoRoom));
                continue;
            }
            let tried = self.tried(round.profiles, job);
            let mut step = watched.then(|| round.step(job));
            let placement = tried.into_iter().find_map(|scale| round.place(job, scale));
            if let Some(step) = &mut step {
                mark(step, round.cluster, placement.as_ref());
                let outcome = match &placement {
                    Some(placement) => super::outcome(round.cluster, placement),
                    None => Reason::NoRoom.to_string(),
                };
                let (name, policy) = (job.name.clone(), self.name.to_owned());
                let steps = vec![step.clone()];
                self.watched.record(job.id, Explanation { job: name, policy, now_s, steps, outcome });
            }
            match placement {
                Some(placement) => {
                    round.take(job, &placement);
                    decisions.placed.push((job.id, placement));
                }
                None => {
                    round.hopeless.insert(same);
                    decisions.left.push((job.id, Reason::NoRoom));
                }
            }
        }
        self.scratch = Some(round.usage);
        Ok(decisions)
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

impl<'a> Round<'a> {
    fn new(state: &'a ClusterState, usage: Usage, sharing: Sharing, beta: f64) -> Round<'a> {
        let cluster = state.cluster();
        let left = cluster.nodes().iter().map(|node| (f64::from(node.llc_ways), node.memory_bandwidth));
        let mut round = Round {
            cluster,
            profiles: state.profiles(),
            sharing,
            beta,
            usage,
            left: left.collect(),
            jobs: vec![0; cluster.nodes().len()],
            hopeless: HashSet::new(),
        };
        for running in state.all_running() {
            round.count(&running.job, &running.placement);
        }
        round
    }

    /// Takes cores, memory and devices, and what [`Round::count`] counts.
    fn take(&mut self, job: &Job, placement: &Placement) {
        for (task, at) in job.tasks.iter().zip(&placement.tasks) {
            self.usage.take_task(self.cluster, at, task, job.profile);
        }
        self.count(job, placement);
    }

    /// Counts a job on its nodes, with what it has of their caches and memory.
    fn count(&mut self, job: &Job, placement: &Placement) {
        let at = self.known(job, scale(self.cluster, &job.tasks, placement));
        // A device may be in another node than its task. A task of which only devices are known uses their nodes, and not its own.
        let runs = job.tasks.iter().zip(&placement.tasks);
        let runs =
            runs.filter(|(task, at)| task.cpu_milli > 0 || at.grants.is_empty()).map(|(_, at)| at.node);
        let grants = placement.tasks.iter().flat_map(|at| &at.grants);
        let nodes: BTreeSet<NodeId> =
            runs.chain(grants.map(|grant| self.cluster.device(grant.device).node)).collect();
        for node in nodes {
            self.jobs[node.index()] += 1;
            if let Some(at) = at {
                let (ways, bandwidth) = self.wanted(node, &at);
                let left = &mut self.left[node.index()];
                *left = (left.0 - ways, left.1 - bandwidth);
            }
        }
    }

    /// What is known of a job at a scale factor, where that matters.
    fn known(&self, job: &Job, scale: u32) -> Option<AtScale> {
        let spread = self.profiles.get(job.profile).spread.as_ref();
        spread.filter(|_| self.sharing == Sharing::Profiles).map(|spread| *spread.at(scale))
    }

    /// The ways and the bandwidth that a job takes of a node: no more than that has.
    fn wanted(&self, node: NodeId, at: &AtScale) -> (f64, f64) {
        let has = self.cluster.node(node);
        (f64::from(at.ways.min(has.llc_ways)), at.bandwidth.min(has.memory_bandwidth))
    }

    /// What a node has, and of that what is free.
    fn amounts(&self, node: NodeId) -> (Amounts, Amounts) {
        let (has, free) = (self.cluster.node(node), self.usage.node(node));
        let devices = || {
            let free: u32 = free.device_milli.iter().sum();
            (has.devices().len() as f64, f64::from(free) / f64::from(WHOLE))
        };
        let cores = || (has.cpu_milli as f64 / 1000.0, free.cpu_milli as f64 / 1000.0);
        let (cores, idle) = if self.cluster.totals().cpu_milli > 0 { cores() } else { devices() };
        let (ways, bandwidth) = self.left[node.index()];
        let capacity = Amounts { cores, ways: f64::from(has.llc_ways), bandwidth: has.memory_bandwidth };
        (capacity, Amounts { cores: idle, ways, bandwidth })
    }

    /// Why none of a job's tasks can go to a node, if none can.
    fn why_not(&self, node: NodeId, task: &Task, at: Option<&AtScale>) -> Option<&'static str> {
        if let Some(why) = why_not(self.cluster, &self.usage, node, task) {
            return Some(why);
        }
        if self.sharing == Sharing::Exclusive && self.jobs[node.index()] > 0 {
            return Some("other jobs are there");
        }
        let (wanted, left) = (at.map_or((0.0, 0.0), |at| self.wanted(node, at)), self.left[node.index()]);
        match () {
            // Numbers of ways are whole, bandwidths are not.
            () if left.0 < wanted.0 => Some("too few cache ways free"),
            () if left.1 + 1e-9 < wanted.1 => Some("too little memory bandwidth free"),
            () => None,
        }
    }

    /// Where a job's tasks go at a scale factor, if there is room.
    fn place(&mut self, job: &Job, scale: u32) -> Option<Placement> {
        let at = self.known(job, scale);
        let alike = job.tasks.iter().all(|task| *task == job.tasks[0]);
        let Some(compact) = compact_nodes(self.cluster, &job.tasks).filter(|_| alike) else {
            // What has tasks of several kinds, or fits no number of nodes in equal parts, isn't spread.
            return if scale == 1 { self.place_one_by_one(job, at.as_ref()) } else { None };
        };
        let (tasks, nodes) = (job.tasks.len(), compact.checked_mul(scale as usize)?);
        if nodes > tasks || nodes > self.cluster.nodes().len() {
            return None;
        }
        let share = |i: usize| tasks / nodes + usize::from(i < tasks % nodes);
        let parts: Vec<usize> = (0..nodes).map(share).collect();
        let tasks = self.place_on(job, &job.tasks, &parts, at.as_ref())?;
        Some(Placement { tasks })
    }

    /// Places a task after the other, each on the best node of the moment, which may be the same.
    fn place_one_by_one(&mut self, job: &Job, at: Option<&AtScale>) -> Option<Placement> {
        let mut placed: Vec<TaskPlacement> = Vec::with_capacity(job.tasks.len());
        for task in &job.tasks {
            let Some(found) = self.place_on(job, std::slice::from_ref(task), &[1], at) else { break };
            for found in found {
                self.usage.take_task(self.cluster, &found, task, job.profile);
                placed.push(found);
            }
        }
        self.give_back(job, &job.tasks, &placed);
        (placed.len() == job.tasks.len()).then_some(Placement { tasks: placed })
    }

    /// As many different nodes as there are parts, with so many of the tasks on each. Nothing is taken.
    fn place_on(
        &mut self,
        job: &Job,
        tasks: &[Task],
        parts: &[usize],
        at: Option<&AtScale>,
    ) -> Option<Vec<TaskPlacement>> {
        let all = (0..self.cluster.nodes().len() as u32).map(NodeId);
        let mut free: Vec<Amounts> = all
            .map(|node| match self.why_not(node, &tasks[0], at) {
                Some(_) => Amounts { cores: -1.0, ..Amounts::default() },
                None => self.amounts(node).1,
            })
            .collect();
        loop {
            let capacity = |node: usize| self.amounts(NodeId(node as u32)).0;
            let chosen = choose(&free, capacity, &Amounts::default(), parts.len(), self.beta)?;
            let mut placed: Vec<TaskPlacement> = Vec::with_capacity(tasks.len());
            let mut full = None;
            'nodes: for (node, part) in chosen.into_iter().zip(parts) {
                for task in tasks.iter().skip(placed.len()).take(*part) {
                    let id = NodeId(node as u32);
                    let fits = why_not(self.cluster, &self.usage, id, task).is_none();
                    let found = fits.then(|| grant_locally(self.cluster, &self.usage, id, task, Pick::First));
                    let Some(found) = found.flatten() else {
                        full = Some(node);
                        break 'nodes;
                    };
                    self.usage.take_task(self.cluster, &found, task, job.profile);
                    placed.push(found);
                }
            }
            self.give_back(job, tasks, &placed);
            match full {
                None => return Some(placed),
                // It has room for one of the tasks, but not for its part.
                Some(node) => free[node].cores = -1.0,
            }
        }
    }

    fn give_back(&mut self, job: &Job, tasks: &[Task], placed: &[TaskPlacement]) {
        for (task, at) in tasks.iter().zip(placed) {
            self.usage.give_task(self.cluster, at, task, job.profile);
        }
    }

    /// The nodes as they are before a job's first task is placed, at scale factor 1.
    fn step(&self, job: &Job) -> Step {
        let mut step = Step {
            phase: Phase::ServerCentric,
            task: 0,
            candidates: Vec::new(),
            places: 0,
            ruled_out: Default::default(),
            unscheduled: None,
        };
        let (mut ruled_out, at) = (RuledOut::default(), self.known(job, 1));
        for node in (0..self.cluster.nodes().len() as u32).map(NodeId) {
            if let Some(why) = self.why_not(node, &job.tasks[0], at.as_ref()) {
                ruled_out.add(why, self.cluster, node, &job.tasks[0].devices);
                continue;
            }
            let (capacity, free) = self.amounts(node);
            step.places += 1;
            step.candidates.push(Candidate {
                place: self.cluster.node(node).name.clone(),
                cost: occupied(&free, &capacity, self.beta),
                expected_s: None,
                load: 0.0,
                utility: None,
                preference: 1.0,
                chosen: false,
            });
        }
        step.ruled_out = ruled_out.in_words();
        step
    }
}

/// Says which candidates were taken, and leaves out those that are too many to show.
fn mark(step: &mut Step, cluster: &Cluster, placement: Option<&Placement>) {
    let tasks = placement.iter().flat_map(|placement| &placement.tasks);
    let taken: BTreeSet<&str> = tasks.map(|at| cluster.node(at.node).name.as_str()).collect();
    for candidate in &mut step.candidates {
        candidate.chosen = taken.contains(candidate.place.as_str());
    }
    step.candidates.sort_by(|a, b| b.chosen.cmp(&a.chosen).then(a.cost.total_cmp(&b.cost)));
    step.candidates.truncate(Step::SHOWN);
}

#[cfg(test)]
mod tests;
