//! The flow networks of the phases, for a batch of jobs.
//!
//! Server-centric phase: `task → X → machine → sink` and `task → U → sink`. Tasks that ask for the same share an
//! aggregator X; a machine stands twice in the network, once for tasks that find all devices there, and once for
//! tasks whose devices are remote. Device phase: `sub-task → X → machine → sink` and `sub-task → U → sink`; the
//! sub-tasks of tasks that ask for the same *and* are in the same node share an X.
//!
//! A unit of flow is a task (a sub-task), so that none is split. The capacity of an arc into a machine is the number
//! of such tasks that fit it in every resource (equations 3 and 4); where unlike tasks compete for one machine the
//! network may promise too much. Promises are kept in the order of waiting time, and what is left over is solved
//! again with what is still free.

use std::collections::{BTreeMap, HashMap};

use super::pass::Class;
use super::solo;
use super::view::{Arc, View};
use crate::cost;
use crate::error::{Error, Phase};
use crate::flow::{Algorithm, ArcId, Network, NodeId as FlowNode};
use crate::ids::{DeviceId, DeviceKind, NodeId};
use crate::job::{DeviceRequest, Job, Task};
use crate::placement::{Placement, TaskPlacement};
use crate::queue::Waiting;

/// How often a phase is solved again for what a promise was broken to.
const ROUNDS: usize = 4;

/// Arcs from one aggregator into the device phase's machines. A batch's sub-tasks rarely need more to choose from.
const FAN_OUT: usize = 64;

/// The state of a batch.
struct Batch<'a> {
    waiting: &'a [&'a Waiting],
    /// Per job and task.
    placed: Vec<Vec<Option<TaskPlacement>>>,
    /// Jobs that can't be completed any more.
    failed: Vec<bool>,
}

/// Places what it can of a batch, leaving the others `None`; takes the resources of what it placed.
pub(super) fn place(
    view: &mut View<'_>,
    waiting: &[&Waiting],
    outcomes: &mut [Option<Placement>],
) -> Result<(), Error> {
    let mut batch = Batch {
        waiting,
        placed: waiting.iter().map(|waiting| vec![None; waiting.job.tasks.len()]).collect(),
        failed: vec![false; waiting.len()],
    };
    for _ in 0..ROUNDS {
        if !server_phase(view, &mut batch)? {
            break;
        }
    }
    batch.drop_incomplete(view);
    for kind in DeviceKind::ALL {
        for _ in 0..ROUNDS {
            if !device_phase(view, &mut batch, kind)? {
                break;
            }
        }
        batch.drop_lacking(view, kind);
    }
    for (i, outcome) in outcomes.iter_mut().enumerate() {
        if batch.failed[i] {
            continue;
        }
        let mut placed: Vec<TaskPlacement> = batch.placed[i].drain(..).flatten().collect();
        for at in &mut placed {
            at.grants.sort_by_key(|grant| (grant.request, grant.device));
        }
        *outcome = solo::accept(view, waiting[i], placed).ok();
    }
    Ok(())
}

impl Batch<'_> {
    fn job(&self, i: usize) -> &Job {
        &self.waiting[i].job
    }

    fn fail(&mut self, view: &mut View<'_>, i: usize) {
        self.failed[i] = true;
        let job = self.waiting[i].job.clone();
        for (task, at) in job.tasks.iter().zip(self.placed[i].drain(..)) {
            if let Some(at) = at {
                view.usage.give_task(view.cluster, &at, task, job.profile);
            }
        }
    }

    /// Gang scheduling: jobs with a task that found no node give everything back.
    fn drop_incomplete(&mut self, view: &mut View<'_>) {
        for i in 0..self.waiting.len() {
            if !self.failed[i] && self.placed[i].iter().any(Option::is_none) {
                self.fail(view, i);
            }
        }
    }

    /// Likewise jobs that lack a device of that kind.
    fn drop_lacking(&mut self, view: &mut View<'_>, kind: DeviceKind) {
        for i in 0..self.waiting.len() {
            if !self.failed[i] && (0..self.placed[i].len()).any(|t| !self.missing(i, t, kind).is_empty()) {
                self.fail(view, i);
            }
        }
    }

    /// The requests for that kind that a placed task still has open: their numbers and how many devices.
    fn missing(&self, i: usize, t: usize, kind: DeviceKind) -> Vec<(u16, u16)> {
        let Some(at) = &self.placed[i][t] else { return Vec::new() };
        let requests = self.job(i).tasks[t].devices.iter().enumerate();
        requests
            .filter(|(_, request)| request.kind == kind)
            .filter_map(|(number, request)| {
                let have = at.grants.iter().filter(|grant| usize::from(grant.request) == number).count();
                let open = request.count - have as u16;
                (open > 0).then_some((number as u16, open))
            })
            .collect()
    }
}

/// A network under construction, with what its nodes mean.
struct Builder {
    network: Network,
    sink: FlowNode,
    supply: i64,
    /// Machines that are in the network, each by its side (0: with devices, 1: plain).
    machines: BTreeMap<(NodeId, u8), (FlowNode, i64)>,
    phase: Phase,
}

impl Builder {
    fn new(phase: Phase) -> Result<Builder, Error> {
        let mut network = Network::new();
        let sink = network.add_node(0).map_err(|error| failed(phase, &error))?;
        Ok(Builder { network, sink, supply: 0, machines: BTreeMap::new(), phase })
    }

    fn node(&mut self, supply: i64) -> Result<FlowNode, Error> {
        self.supply += supply;
        self.network.add_node(supply).map_err(|error| failed(self.phase, &error))
    }

    fn arc(&mut self, from: FlowNode, to: FlowNode, capacity: i64, cost: f64) -> Result<ArcId, Error> {
        let cost = cost::to_units(cost)?;
        self.network.add_arc(from, to, capacity, cost).map_err(|error| failed(self.phase, &error))
    }

    /// The node of a machine, through which at least `capacity` must be able to pass.
    fn machine(&mut self, node: NodeId, side: u8, capacity: i64) -> Result<FlowNode, Error> {
        if let Some((flow_node, most)) = self.machines.get_mut(&(node, side)) {
            *most = (*most).max(capacity);
            return Ok(*flow_node);
        }
        let flow_node = self.node(0)?;
        self.machines.insert((node, side), (flow_node, capacity));
        Ok(flow_node)
    }

    /// Connects the machines to the sink, and solves.
    fn solve(mut self, view: &mut View<'_>) -> Result<crate::flow::Solution, Error> {
        let machines = std::mem::take(&mut self.machines);
        for (&(node, side), &(flow_node, most)) in &machines {
            // What finds devices in a machine takes its plain resources too.
            let next = match machines.get(&(node, 1)) {
                Some(&(plain, _)) if side == 0 => plain,
                _ => self.sink,
            };
            self.arc(flow_node, next, most, 0.0)?;
        }
        self.network.set_supply(self.sink, -self.supply).map_err(|error| failed(self.phase, &error))?;
        view.work.networks += 1;
        view.work.nodes += self.network.node_count() as u64;
        view.work.arcs += self.network.arc_count() as u64;
        Algorithm::Auto.solve(&self.network).map_err(|error| failed(self.phase, &error))
    }
}

/// For each aggregator the places that its flow goes to, each as often as there are units, in the arcs' order.
fn taken<P: Copy>(arcs: &[Vec<(ArcId, P)>], solution: &crate::flow::Solution) -> Vec<std::vec::IntoIter<P>> {
    let nodes = |arcs: &Vec<(ArcId, P)>| {
        let each = arcs.iter().flat_map(|&(arc, node)| {
            std::iter::repeat_n(node, usize::try_from(solution.flow(arc)).unwrap_or(0))
        });
        each.collect::<Vec<_>>().into_iter()
    };
    arcs.iter().map(nodes).collect()
}

/// A little more for leaving whoever comes earlier in the queue: among equals, the longest waiting go first.
fn turn(i: usize, of: usize) -> f64 {
    (of - i) as f64 * 2e-5
}

fn failed(phase: Phase, error: &dyn std::fmt::Display) -> Error {
    Error::Solver { phase, why: error.to_string() }
}

/// Keeps the `count` cheapest, in order. No task needs more to choose from: in so many machines, one at least is not
/// taken by another task.
fn cheapest(arcs: &mut Vec<Arc>, count: usize) {
    let order = |a: &Arc, b: &Arc| a.cost.total_cmp(&b.cost).then(a.node.cmp(&b.node));
    if arcs.len() > count {
        arcs.select_nth_unstable_by(count, order);
        arcs.truncate(count);
    }
    arcs.sort_by(order);
}

/// Decides the nodes of the tasks that have none yet. Says whether solving again may help.
fn server_phase(view: &mut View<'_>, batch: &mut Batch<'_>) -> Result<bool, Error> {
    let waiting = batch.waiting;
    // The same tasks of the same kind of job, in the order of first appearance.
    let mut numbers: HashMap<(Class<'_>, &Task), usize> = HashMap::new();
    let mut classes: Vec<(&Job, &Task)> = Vec::new();
    let mut items: Vec<(usize, usize, usize)> = Vec::new(); // (job, task, class)
    for (i, waiting) in waiting.iter().enumerate() {
        if batch.failed[i] {
            continue;
        }
        for (t, task) in waiting.job.tasks.iter().enumerate() {
            if batch.placed[i][t].is_none() {
                let class = *numbers.entry((Class::of(&waiting.job), task)).or_insert_with(|| {
                    classes.push((&waiting.job, task));
                    classes.len() - 1
                });
                items.push((i, t, class));
            }
        }
    }
    if items.is_empty() {
        return Ok(false);
    }
    let mut builder = Builder::new(Phase::ServerCentric)?;
    // Per class: its aggregator, and the arcs out of it, the cheapest first, with whether they promise local devices.
    let mut arcs: Vec<Vec<(ArcId, (NodeId, bool))>> = Vec::new();
    let mut aggregators: Vec<FlowNode> = Vec::new();
    for (class, &(job, task)) in classes.iter().enumerate() {
        let aggregator = builder.node(0)?;
        let mut out = Vec::new();
        let mine = items.iter().filter(|item| item.2 == class);
        let dearest =
            mine.map(|item| view.unscheduled(waiting[item.0])).fold(0.0, f64::max) + turn(0, waiting.len());
        for (arc, slots, side, fits) in server_arcs(view, job, task, items.len()) {
            // Whoever would rather be left unscheduled never takes it.
            if arc.cost > dearest {
                continue;
            }
            let plain = builder.machine(arc.node, 1, fits)?;
            let machine = if side == 1 { plain } else { builder.machine(arc.node, 0, slots)? };
            let request = task.devices.first().filter(|_| side == 0 && task.devices.len() == 1);
            for (slots, cost) in steps(view, &arc, request, slots) {
                out.push((builder.arc(aggregator, machine, slots, cost)?, (arc.node, side == 0)));
            }
        }
        aggregators.push(aggregator);
        arcs.push(out);
    }
    let mut into: Vec<ArcId> = Vec::with_capacity(items.len());
    let mut unscheduled: Option<(usize, FlowNode)> = None;
    items.retain(|item| !arcs[item.2].is_empty());
    if items.is_empty() {
        return Ok(false);
    }
    for &(i, _, class) in &items {
        let task = builder.node(1)?;
        let u = match unscheduled {
            Some((job, u)) if job == i => u,
            _ => {
                let u = builder.node(0)?;
                builder.arc(u, builder.sink, waiting[i].job.tasks.len() as i64, 0.0)?;
                unscheduled = Some((i, u));
                u
            }
        };
        builder.arc(task, u, 1, view.unscheduled(waiting[i]) + turn(i, waiting.len()))?;
        into.push(builder.arc(task, aggregators[class], 1, 0.0)?);
    }
    let solution = builder.solve(view)?;
    let mut slots = taken(&arcs, &solution);
    let (mut kept, mut broken) = (false, false);
    for (&(i, t, class), arc) in items.iter().zip(into) {
        if solution.flow(arc) == 0 {
            continue;
        }
        let Some((node, local)) = slots[class].next() else { continue };
        let job = &waiting[i].job;
        let taken = match local {
            true => view.take_local(job, &job.tasks[t], node),
            false => view.take_server(job, &job.tasks[t], node, false),
        };
        match taken {
            Some(at) => {
                batch.placed[i][t] = Some(at);
                kept = true;
            }
            None => broken = true,
        }
    }
    Ok(kept && broken)
}

/// The arcs of one class: to machines where all devices are local, and to machines for which they are remote, each
/// with how many such tasks it can take, its side of the machine, and how many the machine can take in all.
fn server_arcs(view: &mut View<'_>, job: &Job, task: &Task, count: usize) -> Vec<(Arc, i64, u8, i64)> {
    let key = view.server_key(task);
    let mut found: Vec<Arc> = Vec::new();
    for node in view.homes(task) {
        found.extend(view.server_arc(job, task, &key, node).ok());
    }
    cheapest(&mut found, count);
    let fixed = task.devices.iter().any(|request| !view.disaggregated(request));
    let mut arcs = Vec::new();
    for arc in found {
        let free = view.usage.node(arc.node);
        let per = |free: u64, wanted: u64| free.checked_div(wanted).unwrap_or(u64::MAX);
        let mut fits =
            per(free.cpu_milli, task.cpu_milli).min(per(free.memory_mib, task.memory_mib)).min(count as u64);
        if task.devices.is_empty() {
            arcs.push((arc, fits as i64, 1, fits as i64));
            continue;
        }
        let mut local = fits;
        for request in &task.devices {
            local = local.min(local_places(view, arc.node, request));
        }
        if fixed {
            // Then the fixed devices bound the remote side, too; with nothing else to know, as the local side.
            fits = local.max(u64::from(arc.remote_share > 0.0));
        }
        if arc.remote_share == 0.0 {
            arcs.push((arc, local.max(1) as i64, 0, fits as i64));
        }
        let remote = if arc.remote_share == 0.0 { fits - local.max(1).min(fits) } else { fits };
        let traffic: u64 =
            task.devices.iter().map(|request| u64::from(request.count) * request.traffic_mbps).sum();
        let carried = view.free_mbps(arc.node).map_or(0, |free| per(free, traffic));
        let all_remote = task.devices.iter().all(|request| view.disaggregated(request));
        let slots = match arc.remote_share > 0.0 {
            // A part of the devices is local, so that the traffic of one task at least has been seen to fit.
            true => remote.min(carried.max(1)),
            false => remote.min(carried),
        };
        if slots > 0 && (all_remote || arc.remote_share > 0.0) {
            let share = if arc.remote_share > 0.0 { arc.remote_share } else { 1.0 };
            arcs.push((view.remote_arc(job, task, &key, arc.node, share), slots as i64, 1, fits as i64));
        }
    }
    arcs
}

/// The arcs that stand for one into a machine with so many slots: how many slots each has, and its cost. Where parts are spread, each
/// part that a device gives makes its next one dearer; else it is a single arc.
fn steps(view: &mut View<'_>, arc: &Arc, request: Option<&DeviceRequest>, slots: i64) -> Vec<(i64, f64)> {
    let Some(request) = request.filter(|request| view.spreads(request)) else {
        return vec![(slots, arc.cost)];
    };
    let devices = view.cluster.node(arc.node).devices();
    let fitting: Vec<DeviceId> = devices.filter(|&device| view.fits(device, request)).collect();
    let mut given: Vec<u16> = Vec::new();
    for device in fitting {
        let before = crate::WHOLE - view.usage.device_milli(device);
        let count = parts(view, vec![device], request).min(slots.unsigned_abs());
        given.extend((0..count).map(|part| before.saturating_add(request.milli.saturating_mul(part as u16))));
    }
    given.sort_unstable();
    let first = given.first().copied().unwrap_or(0);
    let mut steps: Vec<(i64, f64)> = Vec::new();
    let mut left = slots;
    for same in given.chunk_by(|a, b| a == b) {
        let count = left.min(same.len() as i64);
        if count > 0 {
            steps.push((count, arc.cost + View::crowding(same[0]) - View::crowding(first)));
        }
        left -= count;
    }
    // Slots of which no device is known keep the last price.
    if left > 0 {
        steps.push((left, steps.last().map_or(arc.cost, |(_, cost)| *cost)));
    }
    steps
}

/// How many tasks with such a request find all its devices in a node.
fn local_places(view: &mut View<'_>, node: NodeId, request: &DeviceRequest) -> u64 {
    let (several, alone) = places(view, node, request);
    several / u64::from(request.count) + if request.count == 1 { alone } else { 0 }
}

/// How many devices (or parts) for such a request a node has free: those that tasks can use beside others, and those that they
/// use alone.
fn places(view: &mut View<'_>, node: NodeId, request: &DeviceRequest) -> (u64, u64) {
    let devices = view.cluster.node(node).devices();
    let fitting: Vec<_> = devices.filter(|&device| view.fits(device, request)).collect();
    let (alone, several): (Vec<_>, Vec<_>) =
        fitting.into_iter().partition(|&device| view.cluster.device(device).alone);
    let [several, alone] = [several, alone].map(|devices| parts(view, devices, request));
    (several, alone)
}

/// How many devices (or parts) for such a request these have free.
fn parts(view: &View<'_>, devices: Vec<DeviceId>, request: &DeviceRequest) -> u64 {
    devices
        .into_iter()
        .map(|device| {
            let by_milli = match view.cluster.device(device).partitionable {
                true => u64::from(view.usage.device_milli(device) / request.milli),
                false => 1,
            };
            let free = view.usage.device_memory_mib(device);
            by_milli.min(free.checked_div(request.memory_mib).unwrap_or(u64::MAX))
        })
        .sum()
}

/// Decides whence the devices of one kind come that are still missing. Says whether solving again may help.
fn device_phase(view: &mut View<'_>, batch: &mut Batch<'_>, kind: DeviceKind) -> Result<bool, Error> {
    let waiting = batch.waiting;
    // (job, task, request, open, group)
    let mut items: Vec<(usize, usize, u16, u16, usize)> = Vec::new();
    let mut numbers: HashMap<(Class<'_>, &Task, u16, NodeId), usize> = HashMap::new();
    let mut groups: Vec<(&Job, &Task, &DeviceRequest, NodeId)> = Vec::new();
    let mut subtasks = 0;
    for (i, waiting) in waiting.iter().enumerate() {
        if batch.failed[i] {
            continue;
        }
        for (t, task) in waiting.job.tasks.iter().enumerate() {
            let Some(at) = &batch.placed[i][t] else { continue };
            for (number, open) in batch.missing(i, t, kind) {
                let group =
                    *numbers.entry((Class::of(&waiting.job), task, number, at.node)).or_insert_with(|| {
                        groups.push((&waiting.job, task, &task.devices[usize::from(number)], at.node));
                        groups.len() - 1
                    });
                items.push((i, t, number, open, group));
                subtasks += usize::from(open);
            }
        }
    }
    if items.is_empty() {
        return Ok(false);
    }
    let phase = Phase::Device(kind);
    let mut builder = Builder::new(phase)?;
    let mut arcs: Vec<Vec<(ArcId, NodeId)>> = Vec::new();
    let mut aggregators: Vec<FlowNode> = Vec::new();
    // The best places apart from where the task is: the same for every home, up to the load of its own NIC.
    let mut elsewhere: HashMap<&DeviceRequest, Vec<NodeId>> = HashMap::new();
    for &(job, task, request, home) in &groups {
        let aggregator = builder.node(0)?;
        let key = view.device_key(request);
        let fan_out = subtasks.min(FAN_OUT);
        let nodes = elsewhere.entry(request).or_insert_with(|| {
            let mut ranked: Vec<(f64, NodeId)> = Vec::new();
            for node in view.nodes() {
                if let Some(rank) = view.device_rank(&key, node) {
                    ranked.push((view.path_load(node, home).max(0.0) + rank, node));
                }
            }
            ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            ranked.into_iter().map(|(_, node)| node).collect()
        });
        let mut found: Vec<Arc> = Vec::new();
        found.extend(view.device_arc(job, task, request, &key, home, home).ok());
        for &node in nodes.iter().filter(|&&node| node != home) {
            if found.len() > fan_out {
                break;
            }
            found.extend(view.device_arc(job, task, request, &key, home, node).ok());
        }
        cheapest(&mut found, fan_out.max(1));
        let mut out = Vec::new();
        for arc in found {
            // A task takes no more than one device that is used alone, if no other of the node's.
            let (several, alone) = places(view, arc.node, request);
            let mut slots = (several + alone.min(items.len() as u64)).min(subtasks as u64);
            if arc.node != home && request.traffic_mbps > 0 {
                let carried = view.free_mbps(arc.node).unwrap_or(0).min(view.free_mbps(home).unwrap_or(0));
                slots = slots.min(carried / request.traffic_mbps);
            }
            if slots > 0 {
                let machine = builder.machine(arc.node, 1, slots as i64)?;
                for (slots, cost) in steps(view, &arc, Some(request), slots as i64) {
                    out.push((builder.arc(aggregator, machine, slots, cost)?, arc.node));
                }
            }
        }
        aggregators.push(aggregator);
        arcs.push(out);
    }
    let mut into: Vec<ArcId> = Vec::with_capacity(items.len());
    for &(i, _, _, open, group) in &items {
        let open = i64::from(open);
        let subtask = builder.node(open)?;
        let u = builder.node(0)?;
        builder.arc(u, builder.sink, open, 0.0)?;
        builder.arc(subtask, u, open, view.unscheduled(waiting[i]) + turn(i, waiting.len()))?;
        into.push(builder.arc(subtask, aggregators[group], open, 0.0)?);
    }
    let solution = builder.solve(view)?;
    let mut slots = taken(&arcs, &solution);
    let (mut kept, mut broken) = (false, false);
    for (&(i, t, number, _, group), arc) in items.iter().zip(into) {
        let Some(at) = &mut batch.placed[i][t] else { continue };
        let request = &waiting[i].job.tasks[t].devices[usize::from(number)];
        for _ in 0..solution.flow(arc) {
            let Some(node) = slots[group].next() else { break };
            let milli = u64::from(request.milli);
            let allowed = node == at.node || view.may_be_remote(kind, milli, milli);
            match allowed && view.take_device(at, request, number, node) {
                true => kept = true,
                false => broken = true,
            }
        }
    }
    Ok(kept && broken)
}
