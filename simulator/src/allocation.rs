//! How much of a cluster's GPUs a policy can give away: pods come one at a time, in a random order and randomly repeated
//! until their demand is a given part of the capacity; none leaves, and one that does not fit is dropped.

use std::collections::HashMap;
use std::sync::Arc;

use rgpu_placement::{
    Cluster, ClusterState, DeviceId, DeviceKind, Job, JobId, LinkId, Policy, PolicyConfig, Profiles, Queue,
    Rng, Task, WHOLE,
};

use crate::engine::{Clock, Progress};
use crate::error::{Error, Result};
use crate::openb::{Assumptions, Pod};

/// What is to be tried.
pub struct Trial<'a> {
    /// The cluster, empty when the trial begins.
    pub cluster: &'a Arc<Cluster>,
    /// The trace's pods.
    pub pods: &'a [Pod],
    /// What the trace does not say.
    pub assumptions: &'a Assumptions,
    /// The policy that places the pods.
    pub policy: &'a PolicyConfig,
    /// How pods come.
    pub arrivals: Arrivals,
    /// Demand at the end, as a part of the capacity.
    pub demand: f64,
    /// For the order and the repetitions.
    pub seed: u64,
}

/// How the pods of a trial come. Those that are not placed wait, and are offered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Each demand is a cluster of its own: its pods wait when the first round begins, in their order. Rounds follow until one
    /// places nothing.
    AtOnce,
    /// One cluster for all demands: each pod is offered alone when it comes; those that wait, whenever demand has grown by a
    /// hundredth of the capacity.
    OneByOne,
}

impl Arrivals {
    /// As the command line and reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Arrivals::AtOnce => "at-once",
            Arrivals::OneByOne => "one-by-one",
        }
    }
}

/// What a policy gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocated {
    /// At each whole 10% of demand and at the end.
    pub marks: Vec<Mark>,
    /// Pods that came.
    pub pods: usize,
    /// Pods that were not placed.
    pub waiting: usize,
    /// The load of the most loaded NIC or uplink at the end, as a part of its capacity.
    pub busiest_link: f64,
    /// GPUs of which nothing was given at the end, in percent of the capacity.
    pub idle_percent: f64,
    /// What was left over of GPUs that were given in parts at the end, in percent of the capacity.
    pub sliver_percent: f64,
}

/// What was given away when demand had reached a certain height.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark {
    /// Demand so far, in percent of the capacity.
    pub demand_percent: u32,
    /// GPUs given, in percent of the capacity.
    pub gpus_allocated_percent: f64,
    /// Of the GPUs given, those given to pods in other nodes, in percent.
    pub remote_percent: f64,
    /// Traffic that the remote ones imply, in Gbit/s.
    pub remote_gbps: f64,
    /// Cores given, in percent.
    pub cpu_allocated_percent: f64,
    /// Memory given, in percent.
    pub memory_allocated_percent: f64,
}

/// The workload's tasks by frequency, the most frequent first: what `fgd` takes for the workload. Memory doesn't
/// distinguish them.
pub fn typical(pods: &[Pod], cluster: &Cluster, assumptions: &Assumptions) -> Vec<(Task, f64)> {
    let mut counts: HashMap<Task, u64> = HashMap::new();
    for pod in pods {
        let mut task = pod.task(cluster, assumptions);
        task.memory_mib = 0;
        *counts.entry(task).or_default() += 1;
    }
    let mut typical: Vec<(Task, u64)> = counts.into_iter().collect();
    typical.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    typical.into_iter().map(|(task, count)| (task, count as f64 / pods.len() as f64)).collect()
}

/// The pods in the order in which they come: each of the trace once, in random order, and then random ones again for as
/// long as demand stays below the limit.
fn order(pods: &[Pod], seed: u64, limit_milli: u64) -> Result<Vec<usize>> {
    let mut rng = Rng::new(seed);
    let mut order: Vec<usize> = (0..pods.len()).collect();
    rng.shuffle(&mut order);
    let mut demand: u64 = pods.iter().map(Pod::gpu_demand).sum();
    if demand == 0 {
        return Err(Error::Option("No pod of the trace wants a GPU".into()));
    }
    if demand > limit_milli {
        // More than was asked for: the last ones stay away.
        let mut sum = 0;
        order.retain(|&i| {
            let fits = sum + pods[i].gpu_demand() <= limit_milli;
            if fits {
                sum += pods[i].gpu_demand();
            }
            fits
        });
        return Ok(order);
    }
    loop {
        let i = rng.below(pods.len() as u64) as usize;
        demand += pods[i].gpu_demand();
        if demand > limit_milli {
            return Ok(order);
        }
        order.push(i);
    }
}

/// Runs a trial.
pub fn run(
    trial: &Trial<'_>,
    clock: Option<&Clock<'_>>,
    progress: &Progress<'_>,
) -> Result<(Allocated, Vec<u64>)> {
    if !trial.demand.is_finite() || !(0.01..=100.0).contains(&trial.demand) {
        return Err(Error::Option(format!(
            "A demand of {} is not between 0.01 and 100 times the capacity",
            trial.demand
        )));
    }
    match trial.arrivals {
        Arrivals::OneByOne => {
            let mut run = Run::new(trial, trial.demand, clock)?;
            run.one_by_one(progress)?;
            Ok(run.end())
        }
        Arrivals::AtOnce => {
            let (mut marks, mut times) = (Vec::new(), Vec::new());
            let tenths = demands(trial.demand);
            let mut last = None;
            for percent in tenths {
                let mut run = Run::new(trial, f64::from(percent) / 100.0, clock)?;
                run.at_once(progress)?;
                marks.push(run.mark(percent));
                let (allocated, took) = run.end();
                times.extend(took);
                last = Some(allocated);
            }
            let last = last.ok_or_else(|| Error::Option("There is no demand".into()))?;
            Ok((Allocated { marks, ..last }, times))
        }
    }
}

/// The demands at which there are results, in percent: each whole 10% and the end.
pub(crate) fn demands(end: f64) -> Vec<u32> {
    let end = (end * 100.0).round() as u32;
    let last = (!end.is_multiple_of(10)).then_some(end);
    (1..=end / 10).map(|tenth| tenth * 10).chain(last).collect()
}

/// A cluster that is filled.
struct Run<'a> {
    trial: &'a Trial<'a>,
    clock: Option<&'a Clock<'a>>,
    order: Vec<usize>,
    demand: f64,
    /// Thousandths of GPUs.
    capacity: u64,
    policy: Box<dyn Policy + Send>,
    state: ClusterState,
    queue: Queue,
    marks: Vec<Mark>,
    times: Vec<u64>,
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 * 100.0 }
}

const GPU: usize = DeviceKind::Gpu as usize;

impl<'a> Run<'a> {
    fn new(trial: &'a Trial<'a>, demand: f64, clock: Option<&'a Clock<'a>>) -> Result<Run<'a>> {
        let capacity = trial.cluster.totals().devices[GPU] * u64::from(WHOLE);
        if capacity == 0 {
            return Err(Error::Option("The cluster has no GPUs".into()));
        }
        Ok(Run {
            trial,
            clock,
            order: order(trial.pods, trial.seed, (capacity as f64 * demand).round() as u64)?,
            demand,
            capacity,
            policy: trial.policy.build()?,
            state: ClusterState::new(trial.cluster.clone(), Arc::new(Profiles::unknown())),
            queue: Queue::new(),
            marks: Vec::new(),
            times: Vec::new(),
        })
    }

    /// The pod that comes as number `number` joins the queue.
    fn arrive(&mut self, number: usize) -> Result<()> {
        let pod = &self.trial.pods[self.order[number]];
        let mut job = pod.job(JobId(number as u32), self.trial.cluster, self.trial.assumptions);
        // The trace's names are there again when its pods are.
        job.name = number.to_string();
        job.submit_s = number as f64;
        Ok(self.queue.push(Arc::new(job))?)
    }

    /// One round for these of the waiting pods; says how many were placed.
    fn round(&mut self, newest: Option<usize>, now_s: f64) -> Result<usize> {
        let waiting = self.queue.waiting();
        let waiting = &waiting[waiting.len() - newest.unwrap_or(waiting.len())..];
        let before = self.clock.map(|clock| clock());
        let decisions = self.policy.schedule(&self.state, waiting, now_s)?;
        if let (Some(clock), Some(before)) = (self.clock, before) {
            self.times.push(clock().saturating_sub(before));
        }
        let jobs: HashMap<JobId, &Arc<Job>> = waiting.iter().map(|one| (one.job.id, &one.job)).collect();
        for (id, placement) in &decisions.placed {
            if let Some(job) = jobs.get(id) {
                self.state.start(Arc::clone(job), placement.clone(), now_s)?;
            }
        }
        self.queue.apply(&decisions);
        Ok(decisions.placed.len())
    }

    /// Offers all that waits until a round places nothing.
    fn settle(&mut self, now_s: f64) -> Result<()> {
        while !self.queue.is_empty() && self.round(None, now_s)? > 0 {}
        Ok(())
    }

    fn at_once(&mut self, progress: &Progress<'_>) -> Result<()> {
        for number in 0..self.order.len() {
            self.arrive(number)?;
        }
        self.settle(self.order.len() as f64)?;
        progress(self.order.len());
        Ok(())
    }

    fn one_by_one(&mut self, progress: &Progress<'_>) -> Result<()> {
        let (mut arrived, mut tenths, mut offered) = (0u64, 1u64, 0u64);
        for number in 0..self.order.len() {
            self.arrive(number)?;
            self.round(Some(1), number as f64)?;
            arrived += self.trial.pods[self.order[number]].gpu_demand();
            if arrived * 100 >= self.capacity * (offered + 1) {
                self.round(None, number as f64)?;
                offered = arrived * 100 / self.capacity;
            }
            while arrived * 10 >= self.capacity * tenths {
                self.marks.push(self.mark(tenths as u32 * 10));
                tenths += 1;
            }
            if number % 64 == 63 {
                progress(64);
            }
        }
        self.round(None, self.order.len() as f64)?;
        progress(self.order.len() % 64);
        // The last repetition is left out where it would exceed the demand, so the last mark is just below it.
        let end = (self.demand * 100.0).round() as u32;
        if self.marks.last().is_none_or(|last| last.demand_percent < end) {
            self.marks.push(self.mark(end));
        }
        Ok(())
    }

    fn mark(&self, demand_percent: u32) -> Mark {
        let used = self.state.usage().totals();
        let totals = self.trial.cluster.totals();
        Mark {
            demand_percent,
            gpus_allocated_percent: percent(used.granted_milli[GPU], self.capacity),
            remote_percent: percent(used.remote_milli[GPU], used.granted_milli[GPU]),
            remote_gbps: used.remote_mbps as f64 / 1000.0,
            cpu_allocated_percent: percent(totals.cpu_milli - used.cpu_milli, totals.cpu_milli),
            memory_allocated_percent: percent(totals.memory_mib - used.memory_mib, totals.memory_mib),
        }
    }

    fn end(self) -> (Allocated, Vec<u64>) {
        let (cluster, usage) = (self.trial.cluster, self.state.usage());
        let free = (0..cluster.devices().len() as u32).map(DeviceId);
        let free = free.filter(|device| cluster.device(*device).kind == DeviceKind::Gpu);
        let free: Vec<u64> = free.map(|device| usage.device_milli(device).into()).collect();
        let whole = u64::from(WHOLE);
        let left_over = |which: fn(u64, u64) -> bool| {
            percent(free.iter().copied().filter(|free| which(*free, whole)).sum(), self.capacity)
        };
        let links = (0..cluster.links() as u32).map(LinkId).filter(|link| usage.link_mbps(*link) > 0);
        let allocated = Allocated {
            marks: self.marks,
            pods: self.order.len(),
            waiting: self.queue.len(),
            busiest_link: links.map(|link| self.state.link_load(link)).fold(0.0, f64::max),
            idle_percent: left_over(|free, whole| free == whole),
            sliver_percent: left_over(|free, whole| free < whole),
        };
        (allocated, self.times)
    }
}

impl Allocated {
    /// The mark at so many percent of demand.
    pub fn at(&self, demand_percent: u32) -> Option<&Mark> {
        self.marks.iter().find(|mark| mark.demand_percent == demand_percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_placement::{ClusterBuilder, DeviceSpec, NodeSpec};

    fn pod(name: &str, cpu_milli: u64, gpus: u16, gpu_milli: u16) -> Pod {
        let (name, models) = (name.to_owned(), Vec::new());
        Pod { name, cpu_milli, memory_mib: 1, gpus, gpu_milli, models, created_s: 0, deleted_s: None }
    }

    /// Two nodes with four GPUs each; the second has few cores.
    fn cluster() -> Arc<Cluster> {
        let node = |name: &str, cpu| {
            NodeSpec::new(name, cpu, 1 << 20).with_nic(100_000).with_devices(4, DeviceSpec::gpu("T4", 16384))
        };
        Arc::new(ClusterBuilder::new().node(node("a", 64_000)).node(node("b", 1000)).build().unwrap())
    }

    fn trial(name: &str, pods: &[Pod], seed: u64, demand: f64) -> Allocated {
        on(&cluster(), name, pods, seed, demand, Arrivals::OneByOne)
    }

    fn on(
        cluster: &Arc<Cluster>,
        name: &str,
        pods: &[Pod],
        seed: u64,
        demand: f64,
        arrivals: Arrivals,
    ) -> Allocated {
        let assumptions = Assumptions::default();
        let policy = PolicyConfig::named(name).unwrap().with_seed(seed);
        let trial =
            Trial { cluster, pods, assumptions: &assumptions, policy: &policy, arrivals, demand, seed };
        run(&trial, None, &|_| {}).unwrap().0
    }

    #[test]
    fn cores_strand_gpus_unless_these_can_be_remote() {
        // Each pod wants a core and a GPU: 5 GPUs can be given locally, all 8 remotely.
        let pods: Vec<Pod> = (0..4).map(|i| pod(&format!("p{i}"), 1000, 1, 1000)).collect();
        let local = trial("first-fit", &pods, 1, 1.5);
        assert_eq!((local.pods, local.waiting), (12, 7));
        assert_eq!(local.at(100).unwrap().gpus_allocated_percent, 62.5);
        assert_eq!((local.idle_percent, local.sliver_percent), (37.5, 0.0));
        assert_eq!(local.at(50).unwrap().demand_percent, 50);
        assert_eq!(local.at(150).unwrap().remote_percent, 0.0);
    }

    #[test]
    fn disaggregation_gives_all() {
        let pods: Vec<Pod> = (0..4).map(|i| pod(&format!("p{i}"), 1000, 1, 1000)).collect();
        let remote = trial("drmaestro", &pods, 1, 1.5);
        let mark = remote.at(150).unwrap();
        assert_eq!((mark.gpus_allocated_percent, mark.remote_percent, mark.remote_gbps), (100.0, 37.5, 6.0));
        // Three remote GPUs at 2 Gbit/s each, over both NICs of 100.
        assert!((remote.busiest_link - 0.06).abs() < 1e-9);
    }

    #[test]
    fn demand_below_the_trace_leaves_pods_out() {
        let pods = [pod("p", 1, 1, 1000), pod("q", 1, 8, 1000), pod("r", 1, 0, 0)];
        let few = trial("first-fit", &pods, 3, 0.5);
        assert_eq!(few.pods, 2);
        let part = trial("first-fit", &[pod("p", 1, 1, 800)], 1, 0.5);
        assert_eq!((part.pods, part.at(50).unwrap().gpus_allocated_percent), (5, 50.0));
        assert!((part.sliver_percent - 12.5).abs() < 1e-9 && part.idle_percent == 37.5);
        let none = [pod("r", 1, 0, 0)];
        let cluster = cluster();
        let policy = PolicyConfig::named("first-fit").unwrap();
        let assumptions = Assumptions::default();
        let trial = Trial {
            cluster: &cluster,
            pods: &none,
            assumptions: &assumptions,
            policy: &policy,
            arrivals: Arrivals::OneByOne,
            demand: 1.0,
            seed: 0,
        };
        assert!(run(&trial, None, &|_| {}).unwrap_err().to_string().contains("No pod"));
        assert!(run(&Trial { demand: f64::NAN, ..trial }, None, &|_| {}).is_err());
    }

    #[test]
    fn typical_tasks_come_by_frequency() {
        let mut pods: Vec<Pod> = (0..3).map(|i| pod(&format!("p{i}"), 1000, 1, 500)).collect();
        pods.push(pod("x", 7, 0, 0));
        let typical = typical(&pods, &cluster(), &Assumptions::default());
        assert_eq!(
            typical.iter().map(|(task, part)| (task.cpu_milli, *part)).collect::<Vec<_>>(),
            [(1000, 0.75), (7, 0.25)]
        );
    }

    /// Ten nodes of four GPUs, and pods of which some leave much of a GPU over.
    fn sharing() -> (Arc<Cluster>, Vec<Pod>) {
        let node = |i| {
            let gpus = DeviceSpec::gpu("T4", 16384);
            NodeSpec::new(format!("n{i}"), 48_000, 1 << 20).with_nic(100_000).with_devices(4, gpus)
        };
        let cluster = ClusterBuilder::new().nodes((0..10).map(node)).build().unwrap();
        let sizes = [1000, 1000, 1000, 810, 810, 480, 520, 300];
        let pods = sizes.iter().cycle().take(40).enumerate();
        (Arc::new(cluster), pods.map(|(i, milli)| pod(&format!("p{i}"), 4000, 1, *milli)).collect())
    }

    #[test]
    fn a_small_trace_gives_these_figures() {
        let (cluster, pods) = sharing();
        let given = |name, arrivals| on(&cluster, name, &pods, 1, 1.3, arrivals);
        let percent = |allocated: &Allocated, demands: &[u32]| -> Vec<String> {
            let at = |demand: &u32| allocated.at(*demand).unwrap().gpus_allocated_percent;
            demands.iter().map(at).map(|percent| format!("{percent:.3}")).collect()
        };
        let [ours, fgd] = ["drmaestro", "fgd"].map(|name| given(name, Arrivals::AtOnce));
        let low: Vec<u32> = (1..=9).map(|tenth| tenth * 10).collect();
        assert_eq!(percent(&ours, &low), percent(&fgd, &low));
        assert_eq!(percent(&ours, &[80, 90]), ["79.000", "88.525"], "all that is asked for");
        let high = [100, 110, 120, 130];
        assert_eq!(percent(&ours, &high), ["92.325", "92.525", "93.475", "93.750"]);
        assert_eq!(percent(&fgd, &high), ["91.025", "93.425", "93.425", "93.425"]);
        // To a policy that takes one after another, and keeps nothing back, it is the same how they come.
        let one = given("fgd", Arrivals::OneByOne);
        assert_eq!(percent(&one, &high[3..]), percent(&fgd, &high[3..]));
        assert_eq!((one.waiting, one.pods), (fgd.waiting, fgd.pods));
    }

    #[test]
    fn the_same_seed_gives_the_same() {
        let pods: Vec<Pod> =
            (0..9).map(|i| pod(&format!("p{i}"), 500 * i, 1, if i % 2 == 0 { 1000 } else { 300 })).collect();
        for name in PolicyConfig::NAMES {
            assert_eq!(trial(name, &pods, 5, 1.3), trial(name, &pods, 5, 1.3), "{name}");
        }
    }
}
