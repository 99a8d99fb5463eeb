//! What runs now, what is free, how loaded the network is, and how long everybody takes under these conditions.

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::error::Error;
use crate::ids::{DeviceId, JobId, LinkId, NodeId, ProfileId};
use crate::job::{Job, Task};
use crate::observed::Observed;
use crate::placement::{Grant, Placement, TaskPlacement};
use crate::profile::{Conditions, Profiles};
use crate::sharing::Sharing;
use crate::spread;
use crate::usage::Usage;

/// A job that runs.
#[derive(Clone, Debug)]
pub struct Running {
    /// The job as it was submitted.
    pub job: Arc<Job>,
    /// Where it runs.
    pub placement: Placement,
    /// When it started, in seconds of the caller's time.
    pub started_s: f64,
    /// The part of its work that was done by `since_s`.
    done: f64,
    /// When its conditions changed the last time.
    since_s: f64,
    /// Its completion time under the conditions since then.
    completion_s: f64,
}

impl Running {
    /// The part of its work that is done by `now_s`.
    pub fn done(&self, now_s: f64) -> f64 {
        (self.done + (now_s - self.since_s).max(0.0) / self.completion_s).min(1.0)
    }

    /// How long it still runs under the present conditions.
    pub fn remaining_s(&self, now_s: f64) -> f64 {
        (1.0 - self.done(now_s)) * self.completion_s
    }
}

/// The cluster and everything that runs in it.
#[derive(Clone, Debug)]
pub struct ClusterState {
    cluster: Arc<Cluster>,
    profiles: Arc<Profiles>,
    usage: Usage,
    external_mbps: Vec<u64>,
    running: Vec<Option<Box<Running>>>,
    count: usize,
    /// Per node: the tasks that run there.
    tasks_at: Vec<Vec<(JobId, u32)>>,
    /// Per device: who has a grant on it (once per grant).
    users_of: Vec<Vec<JobId>>,
    /// Per link: whose remote traffic passes it (once per grant).
    passing: Vec<Vec<JobId>>,
    /// Per link: of how many of these the jobs have an objective.
    bound: Vec<u32>,
    /// What was measured, for policies that decide by it.
    observed: Option<Box<Observed>>,
}

impl ClusterState {
    /// An empty cluster.
    pub fn new(cluster: Arc<Cluster>, profiles: Arc<Profiles>) -> ClusterState {
        ClusterState {
            usage: Usage::new(&cluster, if profiles.any_interference() { profiles.len() } else { 0 }),
            external_mbps: vec![0; cluster.links()],
            running: Vec::new(),
            count: 0,
            tasks_at: vec![Vec::new(); cluster.nodes().len()],
            users_of: vec![Vec::new(); cluster.devices().len()],
            passing: vec![Vec::new(); cluster.links()],
            bound: vec![0; cluster.links()],
            observed: None,
            cluster,
            profiles,
        }
    }

    /// The cluster that jobs are placed in; it never changes.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// How jobs behave; completion times follow from it.
    pub fn profiles(&self) -> &Arc<Profiles> {
        &self.profiles
    }

    /// What is free.
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// A running job.
    pub fn running(&self, id: JobId) -> Option<&Running> {
        self.running.get(id.index())?.as_deref()
    }

    /// All running jobs, by their numbers.
    pub fn all_running(&self) -> impl Iterator<Item = &Running> {
        self.running.iter().filter_map(Option::as_deref)
    }

    /// How many jobs run.
    pub fn running_count(&self) -> usize {
        self.count
    }

    /// Tells how much traffic on a link was measured beyond that of the jobs placed here (telemetry).
    pub fn set_external_mbps(&mut self, link: LinkId, mbps: u64) -> Result<(), Error> {
        match self.external_mbps.get_mut(link.index()) {
            Some(external) => *external = mbps.min(1 << 40),
            None => {
                return Err(Error::Dangling {
                    from: "a measurement".into(),
                    what: "link",
                    name: link.0.to_string(),
                });
            }
        }
        Ok(())
    }

    /// The measured traffic beyond the jobs', indexed by [`LinkId`].
    pub fn external_mbps(&self) -> &[u64] {
        &self.external_mbps
    }

    /// Says what was measured of devices and applications (telemetry), or that nothing is known any more.
    pub fn set_observed(&mut self, observed: Option<Observed>) {
        self.observed = observed.map(Box::new);
    }

    /// What was measured of devices and applications, if anybody said.
    pub fn observed(&self) -> Option<&Observed> {
        self.observed.as_deref()
    }

    /// The same, to add to it.
    pub fn observed_mut(&mut self) -> Option<&mut Observed> {
        self.observed.as_deref_mut()
    }

    /// All traffic on a link as a part of its capacity; what has no capacity counts as fully loaded.
    pub fn link_load(&self, link: LinkId) -> f64 {
        load(&self.cluster, link, self.usage.link_mbps(link) + self.external_mbps[link.index()])
    }

    /// Starts a job. Returns the jobs whose completion times may have changed, itself included, in order.
    /// Refuses, and changes nothing, if the placement doesn't fit.
    pub fn start(&mut self, job: Arc<Job>, placement: Placement, now_s: f64) -> Result<Vec<JobId>, Error> {
        if self.running(job.id).is_some() {
            return Err(Error::Running(job.id));
        }
        if job.profile.index() >= self.profiles.len() {
            let name = job.profile.0.to_string();
            return Err(Error::Dangling { from: format!("job {:?}", job.name), what: "profile", name });
        }
        let sharing = self.profiles.get(job.profile).sharing.as_ref();
        if let Err(why) = self.usage.check(&self.cluster, &job.tasks, &placement, sharing) {
            return Err(Error::BadPlacement { job: job.name.clone(), why });
        }
        let id = job.id;
        for (number, (task, at)) in job.tasks.iter().zip(&placement.tasks).enumerate() {
            self.usage.take_task(&self.cluster, at, task, job.profile);
            self.tasks_at[at.node.index()].push((id, number as u32));
            for grant in &at.grants {
                self.users_of[grant.device.index()].push(id);
                let to = self.cluster.device(grant.device).node;
                self.cluster.for_path(at.node, to, |link| {
                    self.passing[link.index()].push(id);
                    self.bound[link.index()] += u32::from(objective(&job).is_some());
                });
            }
        }
        if self.running.len() <= id.index() {
            self.running.resize_with(id.index() + 1, || None);
        }
        let running = Box::new(Running {
            job,
            placement,
            started_s: now_s,
            done: 0.0,
            since_s: now_s,
            completion_s: f64::INFINITY,
        });
        let mut affected = self.affected(&running);
        affected.push(id);
        affected.sort_unstable();
        affected.dedup();
        self.running[id.index()] = Some(running);
        self.count += 1;
        self.renew(&affected, now_s);
        Ok(affected)
    }

    /// Ends a job. Returns it and the other jobs whose completion times may have changed, in order.
    pub fn finish(&mut self, id: JobId, now_s: f64) -> Result<(Running, Vec<JobId>), Error> {
        let running = self.running.get_mut(id.index()).and_then(Option::take).ok_or(Error::NotRunning(id))?;
        self.count -= 1;
        for (number, (task, at)) in running.job.tasks.iter().zip(&running.placement.tasks).enumerate() {
            self.usage.give_task(&self.cluster, at, task, running.job.profile);
            remove(&mut self.tasks_at[at.node.index()], &(id, number as u32));
            for grant in &at.grants {
                remove(&mut self.users_of[grant.device.index()], &id);
                let to = self.cluster.device(grant.device).node;
                self.cluster.for_path(at.node, to, |link| {
                    remove(&mut self.passing[link.index()], &id);
                    self.bound[link.index()] -= u32::from(objective(&running.job).is_some());
                });
            }
        }
        let mut affected = self.affected(&running);
        affected.sort_unstable();
        affected.dedup();
        affected.retain(|&other| other != id);
        self.renew(&affected, now_s);
        Ok((*running, affected))
    }

    /// Counts what the jobs did under their conditions up to now, and what they are under now.
    fn renew(&mut self, affected: &[JobId], now_s: f64) {
        for &id in affected {
            let completion_s = self.completion_s(id).unwrap_or(f64::INFINITY);
            if let Some(running) = self.running[id.index()].as_deref_mut() {
                running.done = running.done(now_s);
                running.since_s = now_s;
                running.completion_s = completion_s;
            }
        }
    }

    /// Who shares a node, a device, or a loaded link with `running` (unsorted, perhaps repeated).
    fn affected(&self, running: &Running) -> Vec<JobId> {
        let mut ids = Vec::new();
        let interferes = self.profiles.any_interference();
        let shares = interferes || self.profiles.any_sharing();
        for (task, at) in running.job.tasks.iter().zip(&running.placement.tasks) {
            if interferes {
                ids.extend(self.tasks_at[at.node.index()].iter().map(|(id, _)| *id));
            }
            if task.network_mbps > 0 {
                ids.extend(&self.passing[self.cluster.nic(at.node).index()]);
            }
            for grant in &at.grants {
                if shares {
                    ids.extend(&self.users_of[grant.device.index()]);
                }
                if grant.traffic_mbps > 0 {
                    let to = self.cluster.device(grant.device).node;
                    self.cluster.for_path(at.node, to, |link| ids.extend(&self.passing[link.index()]));
                }
            }
        }
        ids
    }

    /// The conditions under which a running job's task works now.
    pub fn conditions(&self, running: &Running, task: usize) -> Conditions {
        let job = &running.job;
        let at = &running.placement.tasks[task];
        let mut conditions = conditions_at(&self.cluster, at);
        let mut own: Vec<(LinkId, u64)> = Vec::new();
        if conditions.remote_share > 0.0 {
            for (task, at) in job.tasks.iter().zip(&running.placement.tasks) {
                own_traffic(&self.cluster, task, at, &mut own);
            }
            own.sort_unstable();
            for grant in &at.grants {
                let to = self.cluster.device(grant.device).node;
                self.cluster.for_path(at.node, to, |link| {
                    let from = own.partition_point(|(l, _)| *l < link);
                    let mine: u64 = own[from..].iter().take_while(|(l, _)| *l == link).map(|(_, m)| m).sum();
                    let all = self.usage.link_mbps(link) + self.external_mbps[link.index()];
                    conditions.load =
                        conditions.load.max(load(&self.cluster, link, all.saturating_sub(mine)));
                });
            }
        }
        if self.profiles.any_interference() {
            for (other, _) in &self.tasks_at[at.node.index()] {
                if *other != job.id
                    && let Some(other) = self.running(*other)
                {
                    conditions.interference +=
                        self.profiles.interference(job.profile, other.job.profile).node;
                }
            }
            for grant in &at.grants {
                for other in &self.users_of[grant.device.index()] {
                    if *other != job.id
                        && let Some(other) = self.running(*other)
                    {
                        conditions.interference +=
                            self.profiles.interference(job.profile, other.job.profile).device;
                    }
                }
            }
        }
        if let Some(sharing) = &self.profiles.get(job.profile).sharing {
            conditions.crowding = self.crowding(sharing, at);
        }
        if let Some(spread) = &self.profiles.get(job.profile).spread {
            let scale = spread::scale(&self.cluster, &job.tasks, &running.placement);
            conditions.crowding += spread.at(scale).time - 1.0;
        }
        conditions
    }

    /// By which part a running task takes longer on its composed and shared devices than its profile says.
    fn crowding(&self, sharing: &Sharing, at: &TaskPlacement) -> f64 {
        let of_kind = |grant: &&Grant| self.cluster.device(grant.device).kind == sharing.kind;
        let mut devices: Vec<DeviceId> = at.grants.iter().filter(of_kind).map(|grant| grant.device).collect();
        devices.sort_unstable();
        devices.dedup();
        if devices.is_empty() {
            return 0.0;
        }
        let feels = |id: &JobId| {
            let profile = self.running(*id).map(|running| self.profiles.get(running.job.profile));
            let other = profile.and_then(|profile| profile.sharing.as_ref());
            other.is_some_and(|other| other.kind == sharing.kind)
        };
        let mut sharers: Vec<JobId> =
            devices.iter().flat_map(|device| &self.users_of[device.index()]).copied().collect();
        sharers.sort_unstable();
        sharers.dedup();
        sharers.retain(feels);
        sharing.time(devices.len(), sharers.len()) - 1.0
    }

    /// How much traffic a link may carry in all before one of the jobs whose remote traffic passes it would break
    /// an objective that it keeps as yet, were that traffic to last; `f64::INFINITY` if there is none.
    pub fn tolerated_mbps(&self, link: LinkId) -> f64 {
        let mut tolerated = f64::INFINITY;
        // Most links carry no such traffic, however much passes them.
        if self.bound[link.index()] == 0 {
            return tolerated;
        }
        let now = self.usage.link_mbps(link) + self.external_mbps[link.index()];
        let mut passing = self.passing[link.index()].clone();
        passing.sort_unstable();
        passing.dedup();
        for id in passing {
            let Some(running) = self.running(id) else { continue };
            let mbps = tolerance_mbps(self, &running.job, &running.placement, link);
            // Whoever is lost already isn't worth waiting for.
            if mbps >= now as f64 {
                tolerated = tolerated.min(mbps);
            }
        }
        tolerated
    }

    /// What the tasks in a node have before them, given that neighbours leave when they are done.
    pub(crate) fn neighbours(&self, node: NodeId, now_s: f64) -> Vec<Neighbour> {
        let tasks = self.tasks_at[node.index()].iter();
        let here: Vec<(&Running, usize)> =
            tasks.filter_map(|&(id, task)| Some((self.running(id)?, task as usize))).collect();
        let remaining: Vec<f64> = here.iter().map(|(running, _)| running.remaining_s(now_s)).collect();
        here.iter()
            .enumerate()
            .map(|(i, (running, task))| {
                let mut conditions = self.conditions(running, *task);
                for (j, (other, _)) in here.iter().enumerate() {
                    if other.job.id != running.job.id && remaining[j] < remaining[i] {
                        let gone = 1.0 - remaining[j] / remaining[i];
                        let by = self.profiles.interference(running.job.profile, other.job.profile);
                        conditions.interference -= by.node * gone;
                    }
                }
                let elapsed_s = now_s - running.started_s;
                let left = 1.0 - running.done(now_s);
                Neighbour::new(&self.profiles, &running.job, &conditions, elapsed_s, left)
            })
            .collect()
    }

    /// The completion time of a running job, were the present conditions to last from its start to its end:
    /// that of its slowest task. `None` if it doesn't run.
    ///
    /// A job progresses by `1 / completion_s` per second; who drives a clock recomputes this for the jobs that
    /// [`ClusterState::start`] and [`ClusterState::finish`] name.
    pub fn completion_s(&self, id: JobId) -> Option<f64> {
        let running = self.running(id)?;
        let profile = self.profiles.get(running.job.profile);
        let times = (0..running.placement.tasks.len())
            .map(|task| profile.completion_s(&self.conditions(running, task)) * running.job.scale);
        Some(times.fold(0.0, f64::max))
    }

    /// The jobs that have tasks in a node, each with the number of the task.
    pub fn tasks_at(&self, node: NodeId) -> &[(JobId, u32)] {
        &self.tasks_at[node.index()]
    }
}

/// What a newcomer must know of a task in the same node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Neighbour {
    /// The profile of the job that the neighbour belongs to.
    pub profile: ProfileId,
    /// How long it still runs.
    pub remaining_s: f64,
    /// How much more interference it can bear until its end without breaking its objective; infinite if it has
    /// none, or has broken it already.
    pub slack: f64,
}

impl Neighbour {
    /// A task of a job that runs for `elapsed_s` and has the part `left` of its work before it.
    pub(crate) fn new(
        profiles: &Profiles,
        job: &Job,
        conditions: &Conditions,
        elapsed_s: f64,
        left: f64,
    ) -> Neighbour {
        let profile = profiles.get(job.profile);
        let left = left.max(1e-6);
        let remaining_s = left * profile.completion_s(conditions) * job.scale;
        let mut slack = f64::INFINITY;
        if let Some(goal) = job.goal_s.filter(|_| job.importance < 10.0) {
            let allowed_s = goal * (1.0 + 1e-9) - elapsed_s;
            if remaining_s <= allowed_s {
                let quiet = profile.completion_s(&Conditions { interference: 0.0, ..*conditions });
                slack = allowed_s / (left * quiet * job.scale) - 1.0 - conditions.interference;
            }
        }
        Neighbour { profile: job.profile, remaining_s, slack: slack.max(0.0) }
    }
}

/// Traffic as a part of a link's capacity.
pub(crate) fn load(cluster: &Cluster, link: LinkId, mbps: u64) -> f64 {
    match cluster.capacity_mbps(link) {
        0 => 1.0,
        capacity => mbps as f64 / capacity as f64,
    }
}

/// The part of the conditions that follows from a placement alone.
pub(crate) fn conditions_at(cluster: &Cluster, at: &TaskPlacement) -> Conditions {
    let (mut all, mut remote, mut numa_crossed) = (0u64, 0u64, at.regions.len() > 1);
    for grant in &at.grants {
        let device = cluster.device(grant.device);
        all += u64::from(grant.milli);
        if device.node != at.node {
            remote += u64::from(grant.milli);
        } else {
            numa_crossed |= at.regions.first().is_some_and(|share| share.region != device.numa);
        }
    }
    let remote_share = if all == 0 { 0.0 } else { remote as f64 / all as f64 };
    Conditions { remote_share, numa_crossed, ..Conditions::default() }
}

/// The objective of a job to which it matters.
fn objective(job: &Job) -> Option<f64> {
    job.goal_s.filter(|_| job.importance < 10.0)
}

/// How much traffic a link may carry in all before a job that is placed so would break its objective: its own, and
/// of others' as much as its slack allows.
pub(crate) fn tolerance_mbps(state: &ClusterState, job: &Job, placement: &Placement, link: LinkId) -> f64 {
    let Some(goal) = objective(job) else { return f64::INFINITY };
    let profile = state.profiles.get(job.profile);
    let mut own: Vec<(LinkId, u64)> = Vec::new();
    for (task, at) in job.tasks.iter().zip(&placement.tasks) {
        own_traffic(&state.cluster, task, at, &mut own);
    }
    let mine: u64 = own.iter().filter(|(l, _)| *l == link).map(|(_, mbps)| mbps).sum();
    let capacity = state.cluster.capacity_mbps(link) as f64;
    let mut tolerated = f64::INFINITY;
    for at in &placement.tasks {
        let passes = at.grants.iter().any(|grant| {
            let mut passes = false;
            let to = state.cluster.device(grant.device).node;
            state.cluster.for_path(at.node, to, |l| passes |= l == link);
            passes
        });
        if passes {
            let load = profile.tolerated_load(&conditions_at(&state.cluster, at), goal / job.scale);
            tolerated = tolerated.min(mine as f64 + load * capacity);
        }
    }
    tolerated
}

/// The traffic that one placed task puts on links, unsorted and perhaps in several parts.
pub(crate) fn own_traffic(cluster: &Cluster, task: &Task, at: &TaskPlacement, own: &mut Vec<(LinkId, u64)>) {
    if task.network_mbps > 0 {
        own.push((cluster.nic(at.node), task.network_mbps));
    }
    for grant in at.grants.iter().filter(|grant| grant.traffic_mbps > 0) {
        cluster.for_path(at.node, cluster.device(grant.device).node, |link| {
            own.push((link, grant.traffic_mbps));
        });
    }
}

fn remove<T: PartialEq>(list: &mut Vec<T>, item: &T) {
    if let Some(i) = list.iter().position(|other| other == item) {
        list.swap_remove(i);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{ClusterBuilder, DeviceSpec, NodeSpec};
    use crate::ids::DeviceId;
    use crate::job::DeviceRequest;
    use crate::placement::Grant;
    use crate::profile::Profile;

    fn state() -> ClusterState {
        let node = |name: &str, gpus| {
            NodeSpec::new(name, 4000, 100).with_nic(1000).with_devices(gpus, DeviceSpec::gpu("T4", 16))
        };
        let cluster = ClusterBuilder::new().nodes([node("a", 0), node("b", 2)]).build().unwrap();
        let profile = Profile { remote_s: 120.0, sensitivity: 0.5, ..Profile::new("p", 100.0) };
        ClusterState::new(Arc::new(cluster), Arc::new(Profiles::new(vec![profile]).unwrap()))
    }

    fn job(id: u32, mbps: u64) -> Arc<Job> {
        let request = DeviceRequest { traffic_mbps: mbps, ..DeviceRequest::gpus(1) };
        Arc::new(Job::new(JobId(id), format!("j{id}"), Task::new(1000, 10).with(request)))
    }

    fn at(node: u32, device: u32, traffic_mbps: u64) -> Placement {
        let device = DeviceId(device);
        let grant = Grant { device, milli: 1000, memory_mib: 0, traffic_mbps, request: 0 };
        Placement {
            tasks: vec![TaskPlacement { node: NodeId(node), regions: Vec::new(), grants: vec![grant] }],
        }
    }

    #[test]
    fn completion_times_follow_the_neighbours_traffic() {
        let mut state = state();
        assert_eq!(state.start(job(0, 200), at(0, 0, 200), 0.0).unwrap(), [JobId(0)]);
        assert_eq!(state.completion_s(JobId(0)), Some(120.0));
        // 400 of 1,000 Mbit/s by the other: 120 · (1 + 0.5 · 0.4); the other sees 200.
        assert_eq!(state.start(job(1, 400), at(0, 1, 400), 60.0).unwrap(), [JobId(0), JobId(1)]);
        assert_eq!(state.completion_s(JobId(0)), Some(144.0));
        assert_eq!(state.completion_s(JobId(1)), Some(132.0));
        assert_eq!(state.link_load(LinkId(0)), 0.6);
        // The first was half done after 60 s, and takes 72 s for the rest.
        let first = state.running(JobId(0)).unwrap();
        assert_eq!((first.done(60.0), first.remaining_s(60.0)), (0.5, 72.0));
        let (gone, affected) = state.finish(JobId(0), 132.0).unwrap();
        assert_eq!((gone.job.id, affected), (JobId(0), vec![JobId(1)]));
        assert_eq!(state.completion_s(JobId(1)), Some(120.0));
        state.set_external_mbps(LinkId(1), 500).unwrap();
        assert_eq!(state.completion_s(JobId(1)), Some(150.0));
    }

    #[test]
    fn wrong_placements_change_nothing() {
        let mut state = state();
        let before = state.usage().clone();
        let refuse = |state: &mut ClusterState, placement: Placement| {
            let result = state.start(job(0, 200), placement, 0.0);
            assert!(matches!(result, Err(Error::BadPlacement { .. })), "{result:?}");
        };
        refuse(&mut state, Placement { tasks: Vec::new() });
        refuse(&mut state, at(7, 0, 200));
        refuse(&mut state, at(0, 7, 200));
        refuse(&mut state, at(0, 0, 0)); // remote, but without its traffic
        refuse(&mut state, at(1, 0, 200)); // local, but with traffic
        let mut twice = at(0, 0, 200);
        let again = twice.tasks[0].grants[0];
        twice.tasks[0].grants.push(again);
        refuse(&mut state, twice);
        let mut none = at(0, 0, 200);
        none.tasks[0].grants.clear();
        refuse(&mut state, none);
        assert_eq!(*state.usage(), before);
        state.start(job(1, 200), at(0, 0, 200), 0.0).unwrap();
        refuse(&mut state, at(0, 0, 200)); // taken
        assert!(matches!(state.start(job(1, 200), at(0, 1, 200), 0.0), Err(Error::Running(JobId(1)))));
        assert!(matches!(state.finish(JobId(5), 0.0), Err(Error::NotRunning(JobId(5)))));
        assert!(state.set_external_mbps(LinkId(9), 1).is_err());
        state.finish(JobId(1), 1.0).unwrap();
        assert_eq!(*state.usage(), before);
    }
}
