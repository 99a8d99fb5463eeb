//! First-fit, best-fit, random and fragmentation gradient descent: each job in turn goes where its rule says, devices in its own node.

use std::collections::HashSet;

use super::explain::{Candidate, Explanation, RuledOut, Step, Watched};
use super::fragmentation::Fragmentation;
use super::{Decisions, Policy, Reason};
use crate::cluster::Cluster;
use crate::error::{Error, Phase};
use crate::ids::{DeviceId, DeviceKind, JobId, NodeId};
use crate::job::{DeviceRequest, Job, Task};
use crate::placement::{Grant, Placement, TaskPlacement};
use crate::queue::Waiting;
use crate::rng::Rng;
use crate::state::State;
use crate::usage::Usage;

/// Which node a task goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The first one (in the cluster's order) where it fits, and there the first devices.
    FirstFit,
    /// The one with the least left, and there the fullest device that fits.
    BestFit,
    /// Any one, and there any devices.
    Random,
    /// The node and device where fragmentation grows the least (or shrinks the most).
    Fgd,
}

/// The policies that place one task after another in the best node of the moment.
#[derive(Debug)]
pub struct Greedy {
    rule: Rule,
    rng: Rng,
    fragmentation: Fragmentation,
    /// Up to which job the workload was learnt: jobs wait in several rounds.
    learnt: Vec<bool>,
    scratch: Option<Usage>,
    watched: Watched,
}

impl Greedy {
    pub fn new(rule: Rule, seed: u64, typical: &[(Task, f64)]) -> Greedy {
        Greedy {
            rule,
            rng: Rng::new(seed),
            fragmentation: Fragmentation::new(if rule == Rule::Fgd { typical } else { &[] }),
            learnt: Vec::new(),
            scratch: None,
            watched: Watched::default(),
        }
    }

    fn learn(&mut self, job: &Job) {
        let i = job.id.index();
        if self.learnt.len() <= i {
            self.learnt.resize(i + 1, false);
        }
        if !std::mem::replace(&mut self.learnt[i], true) {
            job.tasks.iter().for_each(|task| self.fragmentation.observe(task));
        }
    }

    fn place(
        &mut self,
        cluster: &Cluster,
        usage: &mut Usage,
        job: &Job,
        steps: &mut Vec<Step>,
    ) -> Option<Placement> {
        let mut placed: Vec<TaskPlacement> = Vec::with_capacity(job.tasks.len());
        for (number, task) in job.tasks.iter().enumerate() {
            let explain = self.watched.wants(job.id);
            let chosen = self.choose(cluster, usage, task);
            if explain {
                steps.push(self.step(cluster, usage, task, number, chosen));
            }
            let at = chosen.and_then(|node| self.grant(cluster, usage, node, task));
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

    fn choose(&mut self, cluster: &Cluster, usage: &Usage, task: &Task) -> Option<NodeId> {
        if self.rule == Rule::Fgd {
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
            return best.map(|(_, node)| node);
        }
        let mut fitting =
            (0..cluster.nodes().len() as u32).map(NodeId).filter(|&node| fits(cluster, usage, node, task));
        match self.rule {
            Rule::FirstFit => fitting.next(),
            Rule::BestFit => {
                let mut best: Option<(f64, NodeId)> = None;
                for node in fitting {
                    let score = remaining(cluster, usage, node, task);
                    if best.is_none_or(|(least, _)| score < least) {
                        best = Some((score, node));
                    }
                }
                best.map(|(_, node)| node)
            }
            Rule::Random => {
                // Each fitting node is as likely as any other, in one pass.
                let (mut seen, mut chosen) = (0, None);
                for node in fitting {
                    seen += 1;
                    if self.rng.below(seen) == 0 {
                        chosen = Some(node);
                    }
                }
                chosen
            }
            Rule::Fgd => None,
        }
    }

    fn grant(
        &mut self,
        cluster: &Cluster,
        usage: &Usage,
        node: NodeId,
        task: &Task,
    ) -> Option<TaskPlacement> {
        let pick = match self.rule {
            Rule::FirstFit => Pick::First,
            Rule::BestFit => Pick::Fullest,
            Rule::Random => Pick::Random(&mut self.rng),
            Rule::Fgd => return self.fragmentation.grant(cluster, usage, node, task),
        };
        grant_locally(cluster, usage, node, task, pick)
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
            let cost = match self.rule {
                Rule::FirstFit => f64::from(node.0),
                Rule::BestFit => remaining(cluster, usage, node, task),
                Rule::Random => 0.0,
                Rule::Fgd => {
                    let shape = self.fragmentation.shape(task);
                    let growth = self.fragmentation.growth(cluster, usage, node, task, shape);
                    fgd_cost(growth.unwrap_or(f64::INFINITY))
                }
            };
            step.candidates.push(Candidate {
                place: cluster.node(node).name.clone(),
                cost,
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

impl Policy for Greedy {
    fn name(&self) -> &'static str {
        match self.rule {
            Rule::FirstFit => "first-fit",
            Rule::BestFit => "best-fit",
            Rule::Random => "random",
            Rule::Fgd => "fgd",
        }
    }

    fn schedule(&mut self, state: &State, waiting: &[Waiting], now_s: f64) -> Result<Decisions, Error> {
        let cluster = state.cluster().clone();
        self.fragmentation.trim(state.cluster());
        let mut usage = super::scratch(&mut self.scratch, state);
        let mut decisions = Decisions::default();
        // What didn't fit once in a round doesn't fit later in it.
        let mut hopeless: HashSet<&[Task]> = HashSet::new();
        for Waiting { job, .. } in waiting {
            decisions.work.considered += 1;
            if self.rule == Rule::Fgd {
                self.learn(job);
            }
            let watched = self.watched.wants(job.id);
            if !watched && hopeless.contains(job.tasks.as_slice()) {
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
                let (job_name, policy) = (job.name.clone(), self.name().to_owned());
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

/// Why a task, with all its devices, doesn't fit a node.
pub fn why_not(cluster: &Cluster, usage: &Usage, node: NodeId, task: &Task) -> Option<&'static str> {
    let free = usage.node(node);
    if free.cpu_milli < task.cpu_milli {
        return Some("too few cores free");
    }
    if free.memory_mib < task.memory_mib {
        return Some("too little memory free");
    }
    if !task.allows(node) {
        return Some("not among the nodes it may use");
    }
    for kind in DeviceKind::ALL {
        if u64::from(free.device_milli[kind.index()]) < task.device_milli(kind) {
            return Some("too few devices free");
        }
    }
    match task.devices.as_slice() {
        [] => None,
        [request] if usage.fitting_devices(cluster, node, request) >= usize::from(request.count) => None,
        [_] => Some("no suitable devices free"),
        // Several requests can want the same device; what the grants find counts.
        _ if grant_locally(cluster, usage, node, task, Pick::Fullest).is_some() => None,
        _ => Some("no suitable devices free"),
    }
}

/// Whether a task, with all its devices, fits a node.
pub fn fits(cluster: &Cluster, usage: &Usage, node: NodeId, task: &Task) -> bool {
    why_not(cluster, usage, node, task).is_none()
}

/// From 0 (the best) to 100: in steps, so that nodes that are about as good count as equal, and the first of them
/// is taken. The steps are those of the published scheduler (a score of 100 · sigmoid(−growth), rounded down);
/// without them, jobs are spread over more nodes and two points fewer of the GPUs can be given.
pub fn fgd_cost(growth: f64) -> f64 {
    let score = 100.0 / (1.0 + (growth / f64::from(crate::WHOLE)).exp());
    100.0 - score.floor()
}

/// What a node has left after the task: the sum over cores and each kind of devices, each as a part of the
/// greatest amount in one node. (Memory does not count, as in the published comparison.)
fn remaining(cluster: &Cluster, usage: &Usage, node: NodeId, task: &Task) -> f64 {
    let free = usage.node(node);
    let most = cluster.greatest();
    let part = |left: u64, most: u64| if most == 0 { 0.0 } else { left as f64 / most as f64 };
    let mut sum = part(free.cpu_milli - task.cpu_milli, most.cpu_milli);
    for kind in DeviceKind::ALL {
        let left = u64::from(free.device_milli[kind.index()]).saturating_sub(task.device_milli(kind));
        sum += part(left, most.devices[kind.index()] * u64::from(crate::WHOLE));
    }
    sum
}

/// How devices are picked inside a node.
pub enum Pick<'a> {
    /// In the node's order.
    First,
    /// Those with the least free.
    Fullest,
    /// Any.
    Random(&'a mut Rng),
}

/// Gives a task devices of the node where it runs, if there are enough.
pub fn grant_locally(
    cluster: &Cluster,
    usage: &Usage,
    node: NodeId,
    task: &Task,
    mut pick: Pick<'_>,
) -> Option<TaskPlacement> {
    let mut grants: Vec<Grant> = Vec::new();
    // With one that is used alone there is no second one.
    let several =
        |kind| task.devices.iter().filter(|r| r.kind == kind).map(|r| u32::from(r.count)).sum::<u32>() > 1;
    for (number, request) in task.devices.iter().enumerate() {
        let several = several(request.kind);
        let mut fitting: Vec<DeviceId> = cluster
            .node(node)
            .devices()
            .filter(|&device| {
                usage.fits_device(cluster, device, request)
                    && !(several && cluster.device(device).alone)
                    && still_fits(cluster, usage, &grants, device, request)
            })
            .collect();
        if fitting.len() < usize::from(request.count) {
            return None;
        }
        match &mut pick {
            Pick::First => {}
            Pick::Fullest => fitting.sort_by_key(|&device| (usage.device_milli(device), device)),
            Pick::Random(rng) => rng.shuffle(&mut fitting),
        }
        for device in fitting.into_iter().take(usize::from(request.count)) {
            grants.push(usage.grant(cluster, node, device, request, number as u16));
        }
    }
    Some(TaskPlacement { node, regions: usage.choose_regions(cluster, node, task), grants })
}

/// Whether the device has room for the request beside the grants decided, but not yet taken, for other
/// requests of the same task.
pub fn still_fits(
    cluster: &Cluster,
    usage: &Usage,
    grants: &[Grant],
    device: DeviceId,
    request: &DeviceRequest,
) -> bool {
    let same = || grants.iter().filter(|grant| grant.device == device);
    if same().next().is_none() {
        return true;
    }
    let milli: u16 = same().map(|grant| grant.milli).sum();
    let memory: u64 = same().map(|grant| grant.memory_mib).sum();
    let wanted = if cluster.device(device).partitionable { request.milli } else { crate::WHOLE };
    usage.device_milli(device) - milli >= wanted
        && usage.device_memory_mib(device) - memory >= request.memory_mib
}
