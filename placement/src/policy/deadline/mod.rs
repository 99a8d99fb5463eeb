//! Earliest deadline first, over pools of devices that are shared, composed and partitioned.
//!
//! The policies of chapters 4 and 5 of Aaron Call's thesis *Leveraging Disaggregated Accelerators and Non-Volatile Memories to
//! Improve the Efficiency of Modern Datacenters* (Universitat Politècnica de Catalunya, 2022): all take the waiting job with the
//! earliest deadline first, skip what does not fit, and differ in where a job goes ([`Strategy`]). A job whose profile has a
//! [`Sharing`](crate::Sharing) model can get several devices composed into one, or share a composition with others, as long as
//! everybody's deadline is kept.

mod compositions;
mod explaining;
mod gpus;
mod nvmes;
mod pooled;
mod strategy;
#[cfg(test)]
mod tests;

pub(super) use strategy::Strategy;
pub use strategy::composes;

use std::collections::HashSet;

use self::compositions::Compositions;
use super::explain::{Explanation, Watched};
use super::flow_model::settings::disaggregated;
use super::{DISAGGREGATE_GPUS, DISAGGREGATE_NVMES, Decisions, Policy, PolicyConfig, Reason, Setting};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::ids::{DeviceKind, JobId, NodeId, ProfileId};
use crate::job::{Job, Task};
use crate::placement::{Placement, TaskPlacement};
use crate::profile::Profiles;
use crate::queue::Waiting;
use crate::state::ClusterState;
use crate::usage::Usage;

/// What these policies can be told.
pub(super) static SETTINGS: &[Setting] =
    &[Setting::Flag(&DISAGGREGATE_GPUS), Setting::Flag(&DISAGGREGATE_NVMES)];

/// A policy that takes the earliest deadline first.
#[derive(Debug)]
pub(super) struct DeadlineFirst {
    name: &'static str,
    strategy: Strategy,
    /// By kind of device, whether it may be in another node than the task.
    disaggregated: [bool; DeviceKind::COUNT],
    scratch: Option<Usage>,
    watched: Watched,
}

/// A round: what is fixed in it, and what is free after what it has placed so far.
struct Round<'a> {
    cluster: &'a Cluster,
    profiles: &'a Profiles,
    external_mbps: &'a [u64],
    now_s: f64,
    strategy: Strategy,
    disaggregated: [bool; DeviceKind::COUNT],
    usage: Usage,
    held: Compositions<'a>,
    /// What found no free resources in this round finds none later in it.
    hopeless: HashSet<(&'a [Task], ProfileId)>,
}

impl DeadlineFirst {
    /// A policy of that name which follows that strategy.
    pub(super) fn new(config: &PolicyConfig, strategy: Strategy) -> DeadlineFirst {
        DeadlineFirst {
            name: config.name(),
            strategy,
            disaggregated: disaggregated(config),
            scratch: None,
            watched: Watched::default(),
        }
    }
}

impl Policy for DeadlineFirst {
    fn name(&self) -> &'static str {
        self.name
    }

    fn schedule(
        &mut self,
        state: &ClusterState,
        waiting: &[Waiting],
        now_s: f64,
    ) -> Result<Decisions, Error> {
        let mut order: Vec<&Waiting> = waiting.iter().collect();
        // What waits comes in the order of submission, and the sort keeps it among equals.
        order.sort_by(|a, b| a.job.due_s().total_cmp(&b.job.due_s()));
        let mut round = Round {
            cluster: state.cluster(),
            profiles: state.profiles(),
            external_mbps: state.external_mbps(),
            now_s,
            strategy: self.strategy.now(state),
            disaggregated: self.disaggregated,
            usage: super::scratch(&mut self.scratch, state),
            held: Compositions::of(state, now_s),
            hopeless: HashSet::new(),
        };
        let mut decisions = Decisions::default();
        for Waiting { job, .. } in order {
            decisions.work.considered += 1;
            let steps = self.watched.wants(job.id).then(|| round.steps(job));
            let placement = round.place(job);
            if let Some(mut steps) = steps {
                let outcome = match &placement {
                    Some(placement) => super::outcome(round.cluster, placement),
                    None => Reason::NoRoom.to_string(),
                };
                explaining::mark(&mut steps, round.cluster, placement.as_ref());
                let (name, policy) = (job.name.clone(), self.name.to_owned());
                self.watched.record(job.id, Explanation { job: name, policy, now_s, steps, outcome });
            }
            match placement {
                Some(placement) => decisions.placed.push((job.id, placement)),
                None => decisions.left.push((job.id, Reason::NoRoom)),
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
    /// Places a job, or changes nothing.
    fn place(&mut self, job: &'a Job) -> Option<Placement> {
        if let Some(task) = self.modelled(job) {
            let kind = task.devices[0].kind;
            let at = match kind {
                DeviceKind::Nvme => self.place_on_nvmes(job, task),
                DeviceKind::Gpu => self.place_on_gpu(job, task),
            }?;
            self.usage.take_task(self.cluster, &at, task, job.profile);
            self.held.add(self.profiles, job, task, &at, self.cluster, 1.0);
            return Some(Placement { tasks: vec![at] });
        }
        let key = (job.tasks.as_slice(), job.profile);
        if self.hopeless.contains(&key) {
            return None;
        }
        let mut placed: Vec<TaskPlacement> = Vec::with_capacity(job.tasks.len());
        for task in &job.tasks {
            let hosts = self.hosts(task);
            match hosts.into_iter().find_map(|host| self.take_pooled(host, task, job.profile)) {
                Some(at) => placed.push(at),
                None => {
                    for (task, at) in job.tasks.iter().zip(&placed) {
                        self.usage.give_task(self.cluster, at, task, job.profile);
                    }
                    self.hopeless.insert(key);
                    return None;
                }
            }
        }
        for (task, at) in job.tasks.iter().zip(&placed) {
            self.held.add(self.profiles, job, task, at, self.cluster, 1.0);
        }
        Some(Placement { tasks: placed })
    }

    /// The only task of a job whose only device the strategy chooses by a model of its performance.
    fn modelled(&self, job: &'a Job) -> Option<&'a Task> {
        let ([task], Some(sharing)) = (job.tasks.as_slice(), &self.profiles.get(job.profile).sharing) else {
            return None;
        };
        let [request] = task.devices.as_slice() else { return None };
        let fits = request.count == 1 && request.kind == sharing.kind && self.strategy != Strategy::FirstFit;
        (fits && (request.kind == DeviceKind::Nvme || request.milli < crate::WHOLE)).then_some(task)
    }

    /// The nodes that have the task's cores and memory free, in the order in which the strategy tries them.
    fn hosts(&self, task: &Task) -> Vec<NodeId> {
        let nodes = (0..self.cluster.nodes().len() as u32).map(NodeId);
        let mut hosts: Vec<NodeId> =
            nodes.filter(|&node| task.allows(node) && self.usage.fits_server(node, task)).collect();
        hosts.sort_by(|&a, &b| self.cost(a, task).total_cmp(&self.cost(b, task)));
        hosts
    }

    /// How late the strategy tries a node that has a task's cores free; equals are tried in the cluster's order.
    fn cost(&self, node: NodeId, task: &Task) -> f64 {
        let free = self.usage.node(node).cpu_milli;
        self.strategy.cost_of_host(free, self.cluster.node(node).cpu_milli, task.cpu_milli)
    }

    /// Whether the task's node may be another one than the device's.
    fn is_disaggregated(&self, kind: DeviceKind) -> bool {
        self.disaggregated[kind.index()]
    }
}
