//! How fragmented a node's GPUs are, for a workload of typical tasks (Weng et al., "Beware of Fragmentation",
//! USENIX ATC 2023).
//!
//! For one typical task m, the fragment F<sub>n</sub>(m) of node n is the amount of its idle GPUs that m can't
//! use: all of it if m doesn't fit the node (or wants no GPU at all), else the idle parts that are each too small
//! for m (or of another model). The node's fragmentation is the expectation over the workload:
//! F<sub>n</sub> = Σ<sub>m</sub> p<sub>m</sub> F<sub>n</sub>(m). Amounts are in thousandths of GPUs.

use std::collections::HashMap;
use std::sync::Arc;

use super::local::{Pick, grant_locally};
use crate::cluster::{Cluster, WHOLE};
use crate::ids::{CapabilitySet, DeviceId, DeviceKind, ModelSet, NodeId};
use crate::job::Task;
use crate::placement::TaskPlacement;
use crate::usage::Usage;

/// The tasks that make up this part of the workload, the most frequent first, are the typical ones.
const POPULAR: f64 = 0.95;

/// How many caches of scores (one per shape of tasks) are kept before all are thrown away.
const CACHES: usize = 4096;

/// Tasks that ask for the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape(usize);

/// A typical task.
#[derive(Clone, Debug)]
struct Typical {
    cpu_milli: u64,
    memory_mib: u64,
    count: u16,
    milli: u16,
    models: ModelSet,
    needs: CapabilitySet,
    frequency: f64,
}

/// The free amounts of one node.
#[derive(Clone, Debug, Default)]
struct View {
    cpu_milli: u64,
    memory_mib: u64,
    offers: CapabilitySet,
    gpus: Vec<Gpu>,
}

/// A GPU of it: what is free of it, its model, and whether it is partitionable, and used alone.
type Gpu = (u16, crate::ids::ModelId, bool, bool);

/// The score of one shape of tasks on one node.
#[derive(Clone, Copy, Debug)]
struct Score {
    fingerprint: u64,
    /// Not a number if the task doesn't fit.
    growth: f64,
    /// Where a part of a GPU goes best.
    device: u32,
}

/// Fragmentation under a workload, with what was computed before.
#[derive(Debug, Default)]
pub(super) struct Fragmentation {
    typical: Vec<Typical>,
    /// The frequency of typical tasks that want no GPU.
    without: f64,
    /// The cluster whose nodes were scored.
    cluster: Option<Arc<Cluster>>,
    shapes: HashMap<Task, Shape>,
    scores: Vec<Vec<Score>>,
    /// Tasks seen, when the workload is learnt.
    seen: HashMap<Task, u64>,
    seen_count: u64,
    learn: bool,
    /// How often all scores became void.
    generation: u64,
    view: View,
}

impl Fragmentation {
    /// For this workload; one that is learnt from the tasks if `typical` is empty.
    pub(super) fn new(typical: &[(Task, f64)]) -> Fragmentation {
        let mut new = Fragmentation { learn: typical.is_empty(), ..Fragmentation::default() };
        new.set_typical(typical.to_vec());
        new
    }

    fn set_typical(&mut self, mut tasks: Vec<(Task, f64)>) {
        tasks.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let all: f64 = tasks.iter().map(|(_, frequency)| frequency).sum();
        let mut sum = 0.0;
        tasks.retain(|(_, frequency)| {
            let keep = sum < all * POPULAR;
            sum += frequency;
            keep
        });
        let kept: f64 = tasks.iter().map(|(_, frequency)| frequency).sum();
        self.typical.clear();
        self.without = 0.0;
        for (task, frequency) in tasks {
            let frequency = frequency / kept;
            match task.devices.iter().find(|request| request.kind == DeviceKind::Gpu) {
                None => self.without += frequency,
                Some(request) => self.typical.push(Typical {
                    cpu_milli: task.cpu_milli,
                    memory_mib: task.memory_mib,
                    count: request.count,
                    milli: request.milli,
                    models: request.models,
                    needs: request.needs,
                    frequency,
                }),
            }
        }
        self.shapes.clear();
        self.scores.clear();
        self.generation += 1;
    }

    /// Changes whenever what was computed before holds no more, even for nodes that are as they were.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Takes note of a task that arrived, if the workload is to be learnt. The typical tasks are renewed
    /// whenever twice as many tasks were seen as the last time.
    pub(super) fn observe(&mut self, task: &Task) {
        if !self.learn {
            return;
        }
        self.seen_count += 1;
        // Where a task or its devices may be is no matter of what it leaves over.
        let mut task = Task { only: Vec::new(), preferred: Vec::new(), ..task.clone() };
        task.devices.iter_mut().for_each(|request| request.node = None);
        *self.seen.entry(task).or_default() += 1;
        if self.seen_count.is_power_of_two() {
            let tasks = self.seen.iter().map(|(task, count)| (task.clone(), *count as f64)).collect();
            self.set_typical(tasks);
        }
    }

    /// The number under which scores of tasks like this one are remembered, until the next
    /// [`Fragmentation::observe`] or [`Fragmentation::trim`]. Where the task may run doesn't matter to them.
    pub(super) fn shape(&mut self, task: &Task) -> Shape {
        if !task.only.is_empty() || !task.preferred.is_empty() {
            let anywhere = Task { only: Vec::new(), preferred: Vec::new(), ..task.clone() };
            return self.shape(&anywhere);
        }
        if let Some(shape) = self.shapes.get(task) {
            return *shape;
        }
        let shape = Shape(self.scores.len());
        self.shapes.insert(task.clone(), shape);
        self.scores.push(Vec::new());
        shape
    }

    /// Forgets the scores of all shapes if there are too many, or if they are another cluster's.
    pub(super) fn trim(&mut self, cluster: &Arc<Cluster>) {
        let same = self.cluster.as_ref().is_some_and(|known| Arc::ptr_eq(known, cluster));
        if !same || self.shapes.len() >= CACHES {
            self.cluster = Some(cluster.clone());
            self.shapes.clear();
            self.scores.clear();
        }
    }

    /// By how much the node's fragmentation grows if the task, of that shape, goes there with all its devices (it
    /// may shrink); `None` if it doesn't fit, or may not run there.
    pub(super) fn growth(
        &mut self,
        cluster: &Cluster,
        usage: &Usage,
        node: NodeId,
        task: &Task,
        shape: Shape,
    ) -> Option<f64> {
        let growth = self.score(cluster, usage, node, task, shape).growth;
        (!growth.is_nan() && task.allows(node)).then_some(growth)
    }

    /// Gives the task devices of the node such that fragmentation grows the least.
    pub(super) fn grant(
        &mut self,
        cluster: &Cluster,
        usage: &Usage,
        node: NodeId,
        task: &Task,
    ) -> Option<TaskPlacement> {
        let shape = self.shape(task);
        let score = self.score(cluster, usage, node, task, shape);
        if score.growth.is_nan() || !task.allows(node) {
            return None;
        }
        match only_part(task) {
            Some(number) => {
                let request = &task.devices[number];
                let device = DeviceId(score.device);
                let grants = vec![usage.grant(cluster, node, device, request, number as u16)];
                Some(TaskPlacement { node, regions: usage.choose_regions(cluster, node, task), grants })
            }
            None => grant_locally(cluster, usage, node, task, Pick::Fullest),
        }
    }

    fn score(&mut self, cluster: &Cluster, usage: &Usage, node: NodeId, task: &Task, shape: Shape) -> Score {
        let fingerprint = usage.node(node).fingerprint;
        let scores = &mut self.scores[shape.0];
        if scores.is_empty() {
            // No node has this fingerprint at first, whatever it is.
            let nodes = usage.nodes().iter();
            scores.extend(nodes.map(|node| Score { fingerprint: !node.fingerprint, growth: 0.0, device: 0 }));
        }
        let known = scores[node.index()];
        if known.fingerprint == fingerprint {
            return known;
        }
        let (growth, device) = self.compute(cluster, usage, node, task).unwrap_or((f64::NAN, 0));
        let score = Score { fingerprint, growth, device };
        self.scores[shape.0][node.index()] = score;
        score
    }

    fn compute(&mut self, cluster: &Cluster, usage: &Usage, node: NodeId, task: &Task) -> Option<(f64, u32)> {
        let mut view = std::mem::take(&mut self.view);
        let result = self.compute_in(cluster, usage, node, task, &mut view);
        self.view = view;
        result
    }

    fn compute_in(
        &self,
        cluster: &Cluster,
        usage: &Usage,
        node: NodeId,
        task: &Task,
        view: &mut View,
    ) -> Option<(f64, u32)> {
        let free = usage.node(node);
        if free.cpu_milli < task.cpu_milli || free.memory_mib < task.memory_mib {
            return None;
        }
        view.cpu_milli = free.cpu_milli;
        view.memory_mib = free.memory_mib;
        view.offers = cluster.node(node).offers;
        view.gpus.clear();
        let devices = cluster.node(node).devices().filter(|&d| cluster.device(d).kind == DeviceKind::Gpu);
        view.gpus.extend(devices.clone().map(|device| {
            let spec = cluster.device(device);
            (usage.device_milli(device), spec.model, spec.partitionable, spec.alone)
        }));
        if let Some(number) = only_part(task) {
            let request = &task.devices[number];
            let fits = |device: DeviceId| usage.fits_device(cluster, device, request);
            if !devices.clone().any(fits) {
                return None;
            }
            let before = self.fragmentation(view);
            view.cpu_milli -= task.cpu_milli;
            view.memory_mib -= task.memory_mib;
            let mut best: Option<(f64, u32)> = None;
            let mut tried: Vec<Gpu> = Vec::new();
            for (i, device) in devices.enumerate() {
                let gpu = view.gpus[i];
                if !fits(device) || (request.memory_mib == 0 && tried.contains(&gpu)) {
                    continue;
                }
                tried.push(gpu);
                view.gpus[i].0 -= if gpu.2 { request.milli } else { WHOLE };
                let growth = self.fragmentation(view) - before;
                view.gpus[i] = gpu;
                if best.is_none_or(|(least, _)| growth < least) {
                    best = Some((growth, device.0));
                }
            }
            best
        } else {
            let at = grant_locally(cluster, usage, node, task, Pick::Fullest)?;
            let before = self.fragmentation(view);
            view.cpu_milli -= task.cpu_milli;
            view.memory_mib -= task.memory_mib;
            for grant in &at.grants {
                if let Some(i) = devices.clone().position(|device| device == grant.device) {
                    view.gpus[i].0 -= grant.milli;
                }
            }
            Some((self.fragmentation(view) - before, 0))
        }
    }

    fn fragmentation(&self, view: &View) -> f64 {
        let idle: u32 = view.gpus.iter().map(|gpu| u32::from(gpu.0)).sum();
        if idle == 0 {
            return 0.0;
        }
        let mut sum = self.without * f64::from(idle);
        for typical in &self.typical {
            let mut unusable = idle;
            if view.cpu_milli >= typical.cpu_milli
                && view.memory_mib >= typical.memory_mib
                && view.offers.has_all(typical.needs)
            {
                let (mut usable, mut count) = (0, 0);
                for &(milli, model, partitionable, alone) in &view.gpus {
                    let wanted = if partitionable { typical.milli } else { WHOLE };
                    if milli >= wanted && typical.models.contains(model) && !(alone && typical.count > 1) {
                        usable += u32::from(milli);
                        count += 1;
                    }
                }
                if count >= typical.count {
                    unusable -= usable;
                }
            }
            sum += typical.frequency * f64::from(unusable);
        }
        sum
    }

    /// The expected fragmentation of a node as it is now.
    #[cfg(test)]
    fn of_node(&self, cluster: &Cluster, usage: &Usage, node: NodeId) -> f64 {
        let free = usage.node(node);
        let gpus = cluster.node(node).devices().map(|device| {
            let spec = cluster.device(device);
            (usage.device_milli(device), spec.model, spec.partitionable, spec.alone)
        });
        self.fragmentation(&View {
            cpu_milli: free.cpu_milli,
            memory_mib: free.memory_mib,
            offers: cluster.node(node).offers,
            gpus: gpus.collect(),
        })
    }
}

/// From 0 (the best) to 100: in steps, so that nodes that are about as good count as equal, and the first of them
/// is taken. The steps are those of the published scheduler (a score of 100 · sigmoid(−growth), rounded down);
/// without them, jobs are spread over more nodes and two points fewer of the GPUs can be given.
pub(super) fn fgd_cost(growth: f64) -> f64 {
    let score = 100.0 / (1.0 + (growth / f64::from(crate::WHOLE)).exp());
    100.0 - score.floor()
}

/// The only request of a task, if it is for a part of a GPU.
fn only_part(task: &Task) -> Option<usize> {
    match task.devices.as_slice() {
        [request] if request.kind == DeviceKind::Gpu && request.count == 1 && request.milli < WHOLE => {
            Some(0)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{ClusterBuilder, DeviceSpec, NodeSpec};
    use crate::ids::ProfileId;
    use crate::job::DeviceRequest;

    /// One node with 2 GPUs and 8 cores; half of the workload wants 4 cores and a GPU, a quarter wants 2 cores
    /// and 300/1000 of a GPU, a quarter only a core.
    fn example() -> (Cluster, Usage, Fragmentation) {
        let node = NodeSpec::new("n", 8000, 1000).with_devices(2, DeviceSpec::gpu("T4", 0));
        let cluster = ClusterBuilder::new().node(node).build().unwrap();
        let usage = Usage::new(&cluster, 0);
        let workload = [
            (Task::new(4000, 0).with_gpus(1), 2.0),
            (Task::new(2000, 0).with(DeviceRequest::part(300)), 1.0),
            (Task::new(1000, 0), 1.0),
        ];
        (cluster, usage, Fragmentation::new(&workload))
    }

    #[test]
    fn fragmentation_by_hand() {
        let (cluster, mut usage, fragmentation) = example();
        // Empty: only the task without GPU sees fragments, all 2000 of them.
        assert_eq!(fragmentation.of_node(&cluster, &usage, NodeId(0)), 0.25 * 2000.0);
        // 800 of GPU 0 and 2 cores taken. Idle are 200 + 1000. Whole-GPU tasks can't use 200, 300/1000 can't
        // either, the third can use nothing.
        let task = Task::new(2000, 0).with(DeviceRequest::part(800));
        let at = grant_locally(&cluster, &usage, NodeId(0), &task, Pick::First).unwrap();
        usage.take_task(&cluster, &at, &task, ProfileId(0));
        let expected = 0.5 * 200.0 + 0.25 * 200.0 + 0.25 * 1200.0;
        assert_eq!(fragmentation.of_node(&cluster, &usage, NodeId(0)), expected);
        // 3 cores more: 3 are left, so that nothing of a whole GPU's tasks runs here.
        usage.take_server(&cluster, NodeId(0), &[], &Task::new(3000, 0), ProfileId(0));
        let expected = 0.5 * 1200.0 + 0.25 * 200.0 + 0.25 * 1200.0;
        assert_eq!(fragmentation.of_node(&cluster, &usage, NodeId(0)), expected);
    }

    #[test]
    fn growth_is_the_difference_and_picks_the_device() {
        let (cluster, mut usage, mut fragmentation) = example();
        let growth = |fragmentation: &mut Fragmentation, usage: &Usage, task: &Task| {
            let shape = fragmentation.shape(task);
            fragmentation.growth(&cluster, usage, NodeId(0), task, shape)
        };
        let part = Task::new(1000, 0).with(DeviceRequest::part(600));
        // 2000 idle; then 400 + 1000: whole tasks lose 400, the parts nothing, the rest has 1400 of 2000.
        let grown = growth(&mut fragmentation, &usage, &part).unwrap();
        assert_eq!(grown, 0.5 * 400.0 + 0.25 * (1400.0 - 2000.0));
        let at = fragmentation.grant(&cluster, &usage, NodeId(0), &part).unwrap();
        usage.take_task(&cluster, &at, &part, ProfileId(0));
        // A part of 400 fills the first GPU up rather than breaking the second one.
        let rest = Task::new(1000, 0).with(DeviceRequest::part(400));
        let second = fragmentation.grant(&cluster, &usage, NodeId(0), &rest).unwrap();
        assert_eq!(second.grants[0].device, at.grants[0].device);
        // What was computed before doesn't outlive the node's change.
        usage.take_task(&cluster, &second, &rest, ProfileId(0));
        let third = fragmentation.grant(&cluster, &usage, NodeId(0), &rest).unwrap();
        assert_ne!(third.grants[0].device, at.grants[0].device);
        assert_eq!(growth(&mut fragmentation, &usage, &Task::new(9000, 0)), None);
    }

    #[test]
    fn learns_the_workload() {
        let mut learnt = Fragmentation::new(&[]);
        assert!(learnt.typical.is_empty());
        for _ in 0..4 {
            learnt.observe(&Task::new(1, 1).with_gpus(1));
        }
        assert_eq!(learnt.typical.len(), 1);
        assert_eq!(learnt.typical[0].frequency, 1.0);
    }
}
