//! No policy reads the future: whatever comes after a moment, everything decided before it stays the same.

use std::sync::Arc;

use rgpu_placement::{
    ClusterBuilder, ClusterState, Decisions, DeviceKind, DeviceRequest, DeviceSpec, Error, Explanation, Job,
    JobId, NodeSpec, Policy, PolicyTable, Profile, ProfileId, Profiles, Rng, Sharing, Task, Waiting,
};
use rgpu_simulator::{JobOutcome, Micros, Rounds, Setup, Submission, run};

/// Before this moment, all must stay the same.
const MOMENT_S: f64 = 90.0;

fn profiles() -> Profiles {
    let nvme = Sharing {
        kind: DeviceKind::Nvme,
        times: vec![vec![1.0, 1.1, 1.4], vec![0.8, 0.9, 1.0]],
        reserves: false,
    };
    let gpu = Sharing { kind: DeviceKind::Gpu, times: vec![vec![1.0, 1.2, 1.9]], reserves: true };
    Profiles::new(vec![
        Profile { remote_s: 22.0, sensitivity: 0.5, ..Profile::new("plain", 20.0) },
        Profile { sharing: Some(nvme), ..Profile::new("composed", 30.0) },
        Profile { sharing: Some(gpu), ..Profile::new("partitioned", 15.0) },
    ])
    .unwrap()
}

/// Jobs of all sorts, more than the cluster has room for at once.
fn jobs(profiles: &Profiles, seed: u64) -> Vec<Submission> {
    let mut rng = Rng::new(seed);
    let job = |i: u32| {
        let sort = rng.below(3) as u32;
        let task = Task::new(1000 * (1 + rng.below(4)), 1);
        let part = DeviceRequest { memory_mib: 2, traffic_mbps: 10, ..DeviceRequest::part(300) };
        let task = match sort {
            0 => {
                task.with(DeviceRequest { traffic_mbps: 100, ..DeviceRequest::gpus(1 + rng.below(2) as u16) })
            }
            1 => task.with(DeviceRequest { kind: DeviceKind::Nvme, milli: 900, ..part }),
            _ => task.with(part),
        };
        let deadline_s = (rng.below(3) > 0).then(|| 40.0 + rng.below(100) as f64);
        let goal_s = (rng.below(2) > 0).then(|| 20.0 + rng.below(20) as f64);
        let profile = ProfileId(sort);
        let at = f64::from(i) + 0.25;
        Job { submit_s: at, profile, deadline_s, goal_s, ..Job::new(JobId(i), format!("j{i}"), task) }
    };
    (0..120).map(job).map(|job| Submission::new(job, profiles)).collect()
}

/// The same, with the jobs that are submitted after the moment in another order.
fn with_another_future(jobs: &[Submission], profiles: &Profiles, seed: u64) -> Vec<Submission> {
    let first = jobs.partition_point(|submission| submission.job.submit_s < MOMENT_S);
    let mut later: Vec<&Submission> = jobs[first..].iter().collect();
    Rng::new(seed).shuffle(&mut later);
    let moved = jobs[first..].iter().zip(later).map(|(at, what)| {
        let Job { id, ref name, submit_s, .. } = at.job;
        Submission::new(Job { id, name: name.clone(), submit_s, ..what.job.clone() }, profiles)
    });
    jobs[..first].iter().cloned().chain(moved).collect()
}

fn simulate(policy: &mut dyn Policy, jobs: &[Submission], profiles: &Profiles) -> Vec<JobOutcome> {
    let gpu = || DeviceSpec::gpu("T4", 16);
    let nvme = DeviceSpec { kind: DeviceKind::Nvme, ..DeviceSpec::gpu("P4800X", 100) };
    let node = |name: &str| NodeSpec::new(name, 12_000, 64).with_nic(1000);
    let nodes = [
        node("a").with_devices(2, gpu()).with_devices(2, nvme.clone()),
        node("b").with_devices(1, gpu()),
        node("c").with_devices(3, nvme),
        NodeSpec::new("pool", 0, 0).with_nic(4000).with_devices(2, gpu()),
    ];
    let setup = Setup {
        cluster: Arc::new(ClusterBuilder::new().nodes(nodes).build().unwrap()),
        profiles: Arc::new(profiles.clone()),
        warm_up: &[],
        jobs,
        rounds: Rounds::Every(Micros(1_000_000)),
        explain: &[],
    };
    run(&setup, policy, None, &|_| {}).unwrap().0.jobs
}

/// What was decided before the moment: which jobs started, when, where, and with what.
fn decided(outcomes: &[JobOutcome]) -> Vec<(usize, &JobOutcome)> {
    let moment = Micros::from_seconds(MOMENT_S);
    outcomes.iter().enumerate().filter(|(_, one)| one.start.is_some_and(|start| start < moment)).collect()
}

/// Whether what is decided before the moment depends on what comes after it.
fn reads_the_future(build: &mut dyn FnMut(&[Submission]) -> Box<dyn Policy + Send>) -> bool {
    let profiles = profiles();
    let mut different = false;
    for seed in 1..=3 {
        let one = jobs(&profiles, seed);
        let other = with_another_future(&one, &profiles, seed + 100);
        assert_ne!(one, other);
        let [first, second] = [&one, &other].map(|jobs| simulate(build(jobs).as_mut(), jobs, &profiles));
        assert!(decided(&first).len() > 10, "{} decisions are too few to tell", decided(&first).len());
        let place = |(i, one): (usize, &JobOutcome)| (i, one.start, one.node, one.granted.clone());
        different |= decided(&first).into_iter().map(place).ne(decided(&second).into_iter().map(place));
    }
    different
}

#[test]
fn no_policy_of_the_table_reads_the_future() {
    let table = PolicyTable::standard();
    for row in table.rows() {
        let config = table.config(row.name).unwrap().with_seed(7);
        assert!(!reads_the_future(&mut |_| config.build().unwrap()), "{}", row.name);
    }
}

/// A policy that was told everything, and lets nobody start early if the last job is a big one.
struct Clairvoyant {
    inner: Box<dyn Policy + Send>,
    holds_back: bool,
}

impl Policy for Clairvoyant {
    fn name(&self) -> &'static str {
        "clairvoyant"
    }

    fn schedule(
        &mut self,
        state: &ClusterState,
        waiting: &[Waiting],
        now_s: f64,
    ) -> Result<Decisions, Error> {
        if self.holds_back && now_s < 5.0 {
            return Ok(Decisions::default());
        }
        self.inner.schedule(state, waiting, now_s)
    }

    fn watch(&mut self, _job: JobId) {}

    fn unwatch(&mut self, _job: JobId) {}

    fn explain(&self, _job: JobId) -> Option<&Explanation> {
        None
    }
}

#[test]
fn one_that_does_is_found_out() {
    let mut build = |jobs: &[Submission]| -> Box<dyn Policy + Send> {
        let inner = PolicyTable::standard().config("first-fit").unwrap().build().unwrap();
        let holds_back = jobs.last().is_some_and(|last| last.job.tasks[0].cpu_milli > 2000);
        Box::new(Clairvoyant { inner, holds_back })
    };
    assert!(reads_the_future(&mut build));
}
