//! What a round looks at: the free amounts as they are while it decides, and what costs follow from them.

use super::places::Places;
use super::settings::FlowSettings;
use crate::cluster::{Cluster, WHOLE};
use crate::cost;
use crate::ids::{DeviceId, DeviceKind, LinkId, NodeId};
use crate::job::{DeviceRequest, Job, Task};
use crate::placement::TaskPlacement;
use crate::policy::Work;
use crate::policy::fragmentation::{Fragmentation, Shape, fgd_cost};
use crate::policy::local::{Pick, grant_locally};
use crate::profile::{Conditions, Profiles};
use crate::queue::Waiting;
use crate::state::{ClusterState, Neighbour};
use crate::usage::Usage;

/// So much the growth of fragmentation (0 to 100) weighs in a cost: it decides between places that are equal
/// otherwise.
const FRAGMENTATION: f64 = 1e-4;

/// Where parts are spread, so much more it costs to take a part of a device of which nearly all is given than of one that is free: no
/// more than fragmentation weighs at most.
const CROWDING: f64 = 1e-2;

/// So much it costs to use up a neighbour's slack: whoever breaks his objective anyway goes where others have, too.
const SLACK: f64 = 1.0;

/// W grows no further than this: more than any placement costs, and little enough for the solver's integers.
const MOST_WAITED: f64 = 1e4;

/// A batch's jobs may want this many times what is free: not every job will take its share.
const OVERBOOK: u64 = 2;

/// A round's view of the cluster.
pub(super) struct View<'a> {
    pub cluster: &'a Cluster,
    pub profiles: &'a Profiles,
    pub external: &'a [u64],
    pub usage: Usage,
    pub settings: &'a FlowSettings,
    pub fragmentation: &'a mut Fragmentation,
    pub work: Work,
    pub state: &'a ClusterState,
    /// How much traffic each link may carry before a job breaks its objective: not a number until it is asked for.
    pub tolerated: Vec<f64>,
    /// Per node, what the tasks there have before them; `None` until it is asked for.
    pub neighbours: Vec<Option<Vec<Neighbour>>>,
    pub now_s: f64,
    /// Nodes that are alike, as places for devices.
    pub places: &'a mut Places,
    /// The greatest sliver that a part may leave over in this pass, in thousandths; [`WHOLE`]: any.
    pub max_sliver: u16,
    /// The mean, over the jobs seen so far, of their best completion times.
    pub mean_work_s: f64,
}

/// An arc: where a task or sub-task can go, and what that costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Arc {
    pub node: NodeId,
    /// Equation 7 with everything that is added to it.
    pub cost: f64,
    pub expected_s: f64,
    pub load: f64,
    pub utility: f64,
    pub preference: f64,
    /// The share of the devices that would be remote.
    pub remote_share: f64,
}

/// What the arcs of one task's phase have in common.
pub(super) struct ServerKey {
    with: Shape,
    alone: Task,
    alone_shape: Shape,
}

/// What the arcs of one request's sub-tasks have in common.
#[derive(Clone)]
pub(super) struct DeviceKey {
    one: Task,
    shape: Shape,
}

impl DeviceKey {
    /// A task that wants one of the devices, and nothing else.
    pub(super) fn task(&self) -> &Task {
        &self.one
    }

    /// What each of the devices has to be.
    pub(super) fn request(&self) -> &DeviceRequest {
        &self.one.devices[0]
    }
}

/// Why a node is no candidate.
pub(super) type RuledOut = &'static str;

/// There is no device that would do, or not enough of it is free.
pub(super) const NOTHING_SUITABLE: RuledOut = "no suitable devices free";

/// The aggregate amounts that a batch may want.
pub(super) struct Budget {
    cpu_milli: u64,
    memory_mib: u64,
    device_milli: [u64; DeviceKind::COUNT],
}

impl Budget {
    pub(super) fn spend(&mut self, job: &Job) {
        for task in &job.tasks {
            self.cpu_milli = self.cpu_milli.saturating_sub(task.cpu_milli);
            self.memory_mib = self.memory_mib.saturating_sub(task.memory_mib);
            for kind in DeviceKind::ALL {
                let left = &mut self.device_milli[kind.index()];
                *left = left.saturating_sub(task.device_milli(kind));
            }
        }
    }

    /// Whether cores or memory ran out. (Devices don't count: jobs without them must not wait for those with.)
    pub(super) fn is_spent(&self) -> bool {
        self.cpu_milli == 0 || self.memory_mib == 0
    }
}

impl View<'_> {
    pub(super) fn budget(&self) -> Budget {
        let free = self.usage.totals();
        Budget {
            cpu_milli: free.cpu_milli * OVERBOOK,
            memory_mib: free.memory_mib * OVERBOOK,
            device_milli: DeviceKind::ALL.map(|kind| self.free_milli(kind) * OVERBOOK),
        }
    }

    fn free_milli(&self, kind: DeviceKind) -> u64 {
        let all = self.cluster.totals().devices[kind.index()] * u64::from(WHOLE);
        all - self.usage.totals().granted_milli[kind.index()]
    }

    /// Whether the cluster as a whole has as much free as a job wants.
    pub(super) fn plenty(&self, job: &Job) -> bool {
        let free = self.usage.totals();
        job.tasks.iter().map(|task| task.cpu_milli).sum::<u64>() <= free.cpu_milli
            && job.tasks.iter().map(|task| task.memory_mib).sum::<u64>() <= free.memory_mib
            && DeviceKind::ALL.into_iter().all(|kind| {
                let wanted: u64 = job.tasks.iter().map(|task| task.device_milli(kind)).sum();
                wanted <= self.free_milli(kind)
            })
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.cluster.nodes().len() as u32).map(NodeId)
    }

    /// The nodes where a task may run, in their order.
    pub(super) fn homes(&self, task: &Task) -> Vec<NodeId> {
        if task.only.is_empty() {
            return self.nodes().collect();
        }
        let mut homes = task.only.clone();
        homes.sort_unstable();
        homes.dedup();
        homes.retain(|home| home.index() < self.cluster.nodes().len());
        homes
    }

    fn link_load(&self, link: LinkId) -> f64 {
        let mbps = self.usage.link_mbps(link) + self.external[link.index()];
        crate::state::load(self.cluster, link, mbps)
    }

    pub(super) fn path_load(&self, from: NodeId, to: NodeId) -> f64 {
        let mut load: f64 = 0.0;
        self.cluster.for_path(from, to, |link| load = load.max(self.link_load(link)));
        load
    }

    pub(super) fn fits_path(&self, from: NodeId, to: NodeId, mbps: u64) -> bool {
        let limit = self.settings.link_limit;
        self.usage.fits_path(self.cluster, from, to, mbps, self.external, limit)
    }

    /// Whether so many more thousandths may be remote, of so many more given in all.
    pub(super) fn may_be_remote(&self, kind: DeviceKind, remote_milli: u64, all_milli: u64) -> bool {
        if self.settings.max_remote_share >= 1.0 {
            return true;
        }
        let totals = self.usage.totals();
        let remote = totals.remote_milli[kind.index()] + remote_milli;
        let all = totals.granted_milli[kind.index()] + all_milli;
        remote as f64 <= self.settings.max_remote_share * all as f64
    }

    /// The arc of a job's task to a node, the given share of its devices being remote over a path of that load.
    pub(super) fn arc(&mut self, job: &Job, task: &Task, node: NodeId, remote_share: f64, load: f64) -> Arc {
        let profile = self.profiles.get(job.profile);
        let mut conditions = Conditions { remote_share, load, ..Conditions::default() };
        let alone_s = cost::expected_s(job, profile, conditions, self.settings.network_aware);
        conditions.interference = self.interference(job, node, alone_s);
        let expected_s = cost::expected_s(job, profile, conditions, self.settings.network_aware);
        let mut preference = 1.0;
        if !task.preferred.is_empty() && !task.preferred.contains(&node) {
            preference *= self.settings.affinity_preference;
        }
        if remote_share > 0.0 {
            preference *= self.settings.remote_preference;
        }
        let cost = self.placing_cost(job, expected_s, preference);
        let utility = cost::utility(expected_s, cost::goal_s(job, profile), job.importance);
        Arc { node, cost, expected_s, load, utility, preference, remote_share }
    }

    /// Equation 7. The network-aware policy adds to placements that break the goal so much that leaving the task
    /// unscheduled is cheaper, until it has waited (W) for as long as the violation weighs.
    pub(super) fn placing_cost(&self, job: &Job, expected_s: f64, preference: f64) -> f64 {
        let goal = cost::goal_s(job, self.profiles.get(job.profile));
        let utility = cost::utility(expected_s, goal, job.importance);
        let cost = cost::arc_cost(utility, preference);
        if self.settings.network_aware && cost::violates(job, expected_s) {
            return cost + self.unscheduled_at_first();
        }
        // Never above what leaving the task would cost: without a goal to keep, running late is better than not. What would be above it
        // keeps its order below it: the later, the dearer.
        let most = self.unscheduled_at_first() - 0.01;
        if cost <= most { cost } else { most + 0.01 * (1.0 - most / cost) }
    }

    /// Equation 8, before any waiting.
    pub(super) fn unscheduled_at_first(&self) -> f64 {
        cost::unscheduled_cost(self.settings.worst_preference(), 0.0)
    }

    /// What it costs to leave the job waiting: equation 8, with the rounds it has waited.
    pub(super) fn unscheduled(&self, waiting: &Waiting) -> f64 {
        cost::unscheduled_cost(self.settings.worst_preference(), self.waited(waiting))
    }

    /// W of equation 8: it grows with the work that a job holds back. A job as long as the mean of those seen so
    /// far gains `wait_weight` a round, one twice as long eight times as much: if objectives must be broken at all,
    /// then those of few long jobs, which keep neighbours away for long, and not those of many short ones.
    pub(super) fn waited(&self, waiting: &Waiting) -> f64 {
        let job = &waiting.job;
        let work = self.profiles.get(job.profile).best_s() * job.scale / self.mean_work_s;
        (f64::from(waiting.rounds) * self.settings.wait_weight * work * work * work).min(MOST_WAITED)
    }

    /// Whether requests for such devices may be answered by other nodes.
    pub(super) fn disaggregated(&self, request: &DeviceRequest) -> bool {
        self.settings.disaggregated[request.kind.index()]
    }

    /// The arc of a task's server-centric part to a node, looking ahead to the devices: as many as possible of
    /// the node's own, the others remote.
    pub(super) fn server_arc(
        &mut self,
        job: &Job,
        task: &Task,
        key: &ServerKey,
        node: NodeId,
    ) -> Result<Arc, RuledOut> {
        self.work.looks += 1;
        let free = self.usage.node(node);
        if free.cpu_milli < task.cpu_milli {
            return Err("too few cores free");
        }
        if free.memory_mib < task.memory_mib {
            return Err("too little memory free");
        }
        if !task.allows(node) {
            return Err("not among the nodes it may use");
        }
        if task.devices.is_empty() {
            let arc = self.arc(job, task, node, 0.0, 0.0);
            return Ok(self.ranked(job, arc, task, key));
        }
        let (mut all, mut remote, mut mbps) = (0u64, 0u64, 0u64);
        for request in &task.devices {
            let have = self.fitting(node, request) as u64;
            let want = u64::from(request.count);
            let milli = u64::from(request.milli);
            all += want * milli;
            if have < want {
                if !self.disaggregated(request) {
                    return Err(NOTHING_SUITABLE);
                }
                remote += (want - have) * milli;
                mbps += (want - have) * request.traffic_mbps;
            }
        }
        if remote == 0 {
            let arc = self.arc(job, task, node, 0.0, 0.0);
            return Ok(self.ranked(job, arc, task, key));
        }
        if self.free_mbps(node).is_none_or(|free| free < mbps) {
            return Err("too little bandwidth free at its own interface");
        }
        Ok(self.remote_arc(job, task, key, node, remote as f64 / all as f64))
    }

    /// The arc to a node for which this share of the devices is remote.
    pub(super) fn remote_arc(
        &mut self,
        job: &Job,
        task: &Task,
        key: &ServerKey,
        node: NodeId,
        share: f64,
    ) -> Arc {
        let load = self.link_load(self.cluster.nic(node));
        let arc = self.arc(job, task, node, share, load);
        self.ranked(job, arc, task, key)
    }

    /// What a node's NIC has free up to the limit; `None` if it has none at all.
    pub(super) fn free_mbps(&self, node: NodeId) -> Option<u64> {
        let nic = self.cluster.nic(node);
        let used = self.usage.link_mbps(nic) + self.external[nic.index()];
        let capacity = self.cluster.capacity_mbps(nic) as f64 * self.settings.link_limit;
        // Of an infinite capacity, enough.
        (capacity > 0.0).then(|| (capacity.min(1e15) as u64).saturating_sub(used))
    }

    /// Whether parts of devices are given with an eye on what they leave over.
    pub(super) fn spares_slivers(&self) -> bool {
        self.max_sliver < WHOLE
    }

    /// How many of a node's devices a task could have for the request, each serving one of it.
    fn fitting(&self, node: NodeId, request: &DeviceRequest) -> usize {
        if self.usage.node(node).device_milli[request.kind.index()] < u32::from(request.milli) {
            return 0;
        }
        if request.milli == WHOLE || !self.spares_slivers() {
            return self.usage.fitting_devices(self.cluster, node, request);
        }
        let cluster = self.cluster;
        cluster.usable_together(cluster.node(node).devices().filter(|&device| self.fits(device, request)))
    }

    /// Whether a device can serve one of the request. If slivers are to be spared, a part may leave over no more than
    /// one, unless no other device has just as much left over: then somebody who fits will complete it.
    pub(super) fn fits(&self, device: DeviceId, request: &DeviceRequest) -> bool {
        if !self.usage.fits_device(self.cluster, device, request) {
            return false;
        }
        if request.milli == WHOLE || !self.spares_slivers() || !self.cluster.device(device).partitionable {
            return true;
        }
        let left = self.usage.device_milli(device) - request.milli;
        left <= self.max_sliver || self.usage.devices_with(left) == 0
    }

    /// Whether parts for such a request go to the devices of which most is free.
    pub(super) fn spreads(&self, request: &DeviceRequest) -> bool {
        self.settings.spread && request.milli < WHOLE
    }

    /// Where parts are spread: what it adds to a cost to take so many thousandths of a device when so many of it are given.
    pub(super) fn crowding(given: u16) -> f64 {
        CROWDING * f64::from(given) / f64::from(WHOLE)
    }

    /// The least that it adds to take a part of one of a node's devices.
    fn least_crowding(&self, node: NodeId, request: &DeviceRequest) -> f64 {
        let mut most_free = 0;
        for device in self.cluster.node(node).devices() {
            if self.fits(device, request) {
                most_free = most_free.max(self.usage.device_milli(device));
            }
        }
        Self::crowding(WHOLE - most_free)
    }

    /// Gives a task devices of a node: where parts are spread, those of which most is free, else those where fragmentation grows the
    /// least.
    pub(super) fn grant_in(&mut self, node: NodeId, task: &Task) -> Option<TaskPlacement> {
        match task.devices.iter().any(|request| self.spreads(request)) {
            true => grant_locally(self.cluster, &self.usage, node, task, Pick::Emptiest),
            false => self.fragmentation.grant(self.cluster, &self.usage, node, task),
        }
    }

    /// What the server-centric arcs of a task have in common.
    pub(super) fn server_key(&mut self, task: &Task) -> ServerKey {
        let alone = Task::new(task.cpu_milli, task.memory_mib);
        ServerKey {
            with: self.fragmentation.shape(task),
            alone_shape: self.fragmentation.shape(&alone),
            alone,
        }
    }

    /// What the arcs of a request's devices have in common.
    pub(super) fn device_key(&mut self, request: &DeviceRequest) -> DeviceKey {
        // Traffic doesn't matter to fragmentation.
        let one = Task::default().with(DeviceRequest { count: 1, traffic_mbps: 0, ..request.clone() });
        DeviceKey { shape: self.fragmentation.shape(&one), one }
    }

    /// Adds harm to neighbours and the weight of fragmentation to an arc's cost.
    fn ranked(&mut self, job: &Job, mut arc: Arc, task: &Task, key: &ServerKey) -> Arc {
        let (broken, used) = self.harms(job, arc.node, arc.expected_s);
        arc.cost += broken as f64 * self.unscheduled_at_first() + used * SLACK;
        let (task, shape) =
            if arc.remote_share == 0.0 { (task, key.with) } else { (&key.alone, key.alone_shape) };
        if task.devices.iter().any(|request| self.spreads(request)) {
            for request in task.devices.iter().filter(|request| request.milli < WHOLE) {
                arc.cost += self.least_crowding(arc.node, request);
            }
            return arc;
        }
        let growth = self.fragmentation.growth(self.cluster, &self.usage, arc.node, task, shape);
        arc.cost += fgd_cost(growth.unwrap_or(f64::INFINITY)) * FRAGMENTATION;
        arc
    }

    /// What taking one device of a node does to fragmentation, as a part of costs; `None` if none fits.
    pub(super) fn device_rank(&mut self, key: &DeviceKey, node: NodeId) -> Option<f64> {
        let growth = self.fragmentation.growth(self.cluster, &self.usage, node, &key.one, key.shape)?;
        Some(fgd_cost(growth) * FRAGMENTATION)
    }

    /// The arc of one device wanted by a task that is in `home` to the devices of a node.
    pub(super) fn device_arc(
        &mut self,
        job: &Job,
        task: &Task,
        request: &DeviceRequest,
        key: &DeviceKey,
        home: NodeId,
        node: NodeId,
    ) -> Result<Arc, RuledOut> {
        self.work.looks += 1;
        if u32::from(request.milli) > self.usage.node(node).device_milli[request.kind.index()] {
            return Err(NOTHING_SUITABLE);
        }
        let rank = match self.fitting(node, request) {
            0 => return Err(NOTHING_SUITABLE),
            _ if self.spreads(request) => self.least_crowding(node, request),
            _ => self.device_rank(key, node).unwrap_or(0.0),
        };
        let mut arc = if node == home {
            self.arc(job, task, home, 0.0, 0.0)
        } else {
            if !self.fits_path(home, node, request.traffic_mbps) {
                return Err("too little bandwidth free on the way");
            }
            let load = self.path_load(home, node);
            let mut arc = self.arc(job, task, home, 1.0, load);
            if self.disturbs(home, node, request.traffic_mbps) {
                arc.cost += self.unscheduled_at_first();
            }
            arc
        };
        arc.node = node;
        arc.cost += rank;
        Ok(arc)
    }
}
