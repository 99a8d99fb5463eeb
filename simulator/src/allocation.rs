//! How much of a cluster's GPUs a policy can give away: pods come one at a time, in a random order and randomly repeated
//! until their demand is a given part of the capacity; none leaves, and one that does not fit is dropped.

use std::collections::HashMap;
use std::sync::Arc;

use rgpu_placement::{
    Cluster, ClusterState, DeviceId, DeviceKind, JobId, LinkId, PolicyConfig, Profiles, Rng, Task, Waiting,
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
    /// The policy that places each pod.
    pub policy: &'a PolicyConfig,
    /// Demand at the end, as a part of the capacity.
    pub demand: f64,
    /// For the order and the repetitions.
    pub seed: u64,
}

/// What a policy gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocated {
    /// At each whole 10% of demand and at the end.
    pub marks: Vec<Mark>,
    /// Pods that came.
    pub pods: usize,
    /// Pods that did not fit.
    pub dropped: usize,
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
    let Trial { cluster, pods, assumptions, demand, .. } = *trial;
    let gpu = DeviceKind::Gpu.index();
    let totals = cluster.totals();
    let capacity = totals.devices[gpu] * u64::from(rgpu_placement::WHOLE);
    if capacity == 0 {
        return Err(Error::Option("The cluster has no GPUs".into()));
    }
    if !demand.is_finite() || !(0.01..=100.0).contains(&demand) {
        return Err(Error::Option(format!(
            "A demand of {demand} is not between 0.01 and 100 times the capacity"
        )));
    }
    let order = order(pods, trial.seed, (capacity as f64 * demand).round() as u64)?;
    let mut policy = trial.policy.build()?;
    let mut state = ClusterState::new(cluster.clone(), Arc::new(Profiles::unknown()));
    let mut allocated = Allocated {
        marks: Vec::new(),
        pods: order.len(),
        dropped: 0,
        busiest_link: 0.0,
        idle_percent: 0.0,
        sliver_percent: 0.0,
    };
    let mut times = Vec::with_capacity(if clock.is_some() { order.len() } else { 0 });
    let percent = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 * 100.0 };
    let mark = |state: &ClusterState, demand_percent| {
        let used = state.usage().totals();
        Mark {
            demand_percent,
            gpus_allocated_percent: percent(used.granted_milli[gpu], capacity),
            remote_percent: percent(used.remote_milli[gpu], used.granted_milli[gpu]),
            remote_gbps: used.remote_mbps as f64 / 1000.0,
            cpu_allocated_percent: percent(totals.cpu_milli - used.cpu_milli, totals.cpu_milli),
            memory_allocated_percent: percent(totals.memory_mib - used.memory_mib, totals.memory_mib),
        }
    };
    let (mut arrived, mut tenths) = (0u64, 1u64);
    for (number, &i) in order.iter().enumerate() {
        let pod = &pods[i];
        let mut job = pod.job(JobId(number as u32), cluster, assumptions);
        job.submit_s = number as f64;
        let job = Arc::new(job);
        let waiting = [Waiting { job: job.clone(), rounds: 0 }];
        let before = clock.map(|clock| clock());
        let decisions = policy.schedule(&state, &waiting, number as f64)?;
        if let (Some(clock), Some(before)) = (clock, before) {
            times.push(clock().saturating_sub(before));
        }
        match decisions.placed.into_iter().next() {
            Some((_, placement)) => drop(state.start(job, placement, number as f64)?),
            None => allocated.dropped += 1,
        }
        arrived += pod.gpu_demand();
        while arrived * 10 >= capacity * tenths {
            allocated.marks.push(mark(&state, tenths as u32 * 10));
            tenths += 1;
        }
        if number % 64 == 63 {
            progress(64);
        }
    }
    progress(order.len() % 64);
    // The last repetition is left out where it would exceed the demand, so the last mark is just below it.
    let end = (demand * 100.0).round() as u32;
    if allocated.marks.last().is_none_or(|last| last.demand_percent < end) {
        allocated.marks.push(mark(&state, end));
    }
    let free = (0..cluster.devices().len() as u32).map(DeviceId);
    let free = free.filter(|device| cluster.device(*device).kind == DeviceKind::Gpu);
    let free: Vec<u64> = free.map(|device| state.usage().device_milli(device).into()).collect();
    let whole = u64::from(rgpu_placement::WHOLE);
    allocated.idle_percent = percent(free.iter().filter(|free| **free == whole).sum(), capacity);
    allocated.sliver_percent = percent(free.iter().filter(|free| **free < whole).sum(), capacity);
    let links = (0..cluster.links() as u32).map(LinkId).filter(|link| state.usage().link_mbps(*link) > 0);
    allocated.busiest_link = links.map(|link| state.link_load(link)).fold(0.0, f64::max);
    Ok((allocated, times))
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
        let cluster = cluster();
        let assumptions = Assumptions::default();
        let policy = PolicyConfig::named(name).unwrap().with_seed(seed);
        let trial =
            Trial { cluster: &cluster, pods, assumptions: &assumptions, policy: &policy, demand, seed };
        run(&trial, None, &|_| {}).unwrap().0
    }

    #[test]
    fn cores_strand_gpus_unless_these_can_be_remote() {
        // Each pod wants a core and a GPU: 5 GPUs can be given locally, all 8 remotely.
        let pods: Vec<Pod> = (0..4).map(|i| pod(&format!("p{i}"), 1000, 1, 1000)).collect();
        let local = trial("first-fit", &pods, 1, 1.5);
        assert_eq!((local.pods, local.dropped), (12, 7));
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

    #[test]
    fn the_same_seed_gives_the_same() {
        let pods: Vec<Pod> =
            (0..9).map(|i| pod(&format!("p{i}"), 500 * i, 1, if i % 2 == 0 { 1000 } else { 300 })).collect();
        for name in PolicyConfig::NAMES {
            assert_eq!(trial(name, &pods, 5, 1.3), trial(name, &pods, 5, 1.3), "{name}");
        }
    }
}
