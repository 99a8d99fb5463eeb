use std::collections::BTreeMap;

use rgpu_placement::{
    ClusterBuilder, Decisions, DeviceSpec, Interference, NodeId, NodeSpec, PolicyConfig, Profile, ProfileId,
    Task, Waiting,
};

use super::*;

fn seconds(s: u64) -> Micros {
    Micros(s * 1_000_000)
}

/// One profile of 10 s whose jobs slow each other by a half.
fn profiles() -> Arc<Profiles> {
    let mut profiles = Profiles::new(vec![Profile::new("p", 10.0)]).unwrap();
    let half = Interference { node: 0.5, ..Interference::default() };
    profiles.set_interference(ProfileId(0), ProfileId(0), half).unwrap();
    Arc::new(profiles)
}

fn one_node(gpus: usize) -> Arc<Cluster> {
    let node = NodeSpec::new("n", 4000, 4096).with_devices(gpus, DeviceSpec::gpu("T4", 100));
    Arc::new(ClusterBuilder::new().node(node).build().unwrap())
}

fn submit(id: u32, at: u64) -> Submission {
    let task = Task::new(1000, 1).with_gpus(1);
    let job = Job { submit_s: at as f64, ..Job::new(JobId(id), format!("j{id}"), task) };
    Submission::new(job, &profiles())
}

fn simulate(setup: &Setup<'_>, name: &str) -> Outcome {
    let mut policy = PolicyConfig::named(name).unwrap().build().unwrap();
    run(setup, policy.as_mut(), None, &|_| {}).unwrap().0
}

#[test]
fn a_tiny_simulation_by_hand() {
    // Two GPUs. j0 runs alone from 0 to 4 and has 6 s of work left when j1 comes; both then run at 1/1.5.
    // j0 takes 9 s more and ends at 13, when j1 has done 6 of its 10. j2, there since 5, starts at 13; j1's 4 left take
    // 6 s, to 19, when j2 has done 4; alone, its 6 left end at 25.
    let jobs = [submit(0, 0), submit(1, 4), submit(2, 5)];
    let setup = Setup {
        cluster: one_node(2),
        profiles: profiles(),
        warm_up: &[],
        jobs: &jobs,
        rounds: Rounds::OnChange(Micros(0)),
        explain: &[],
    };
    let outcome = simulate(&setup, "first-fit");
    // Speeds are rounded to about a trillionth, so ends fall on the microsecond or the next one.
    let times: Vec<(u64, u64)> =
        outcome.jobs.iter().map(|job| (job.start.unwrap().0, job.end.unwrap().0)).collect();
    let near = |time: u64, s: u64| time.abs_diff(s * 1_000_000) <= 2;
    for (&(start, end), (s, e)) in times.iter().zip([(0, 13), (4, 19), (13, 25)]) {
        assert!(near(start, s) && near(end, e), "{times:?}");
    }
    let gpus: Vec<(u64, u64, u32)> =
        outcome.samples.iter().map(|s| (s.at.0.div_euclid(999_999), s.gpu_milli, s.waiting)).collect();
    assert_eq!(gpus, [(0, 1000, 0), (4, 2000, 0), (5, 2000, 1), (13, 2000, 0), (19, 1000, 0), (25, 0, 0)]);
}

#[test]
fn periodic_rounds_keep_to_their_interval() {
    let jobs = [submit(0, 0), submit(1, 4)];
    let setup = Setup {
        cluster: one_node(1),
        profiles: profiles(),
        warm_up: &[],
        jobs: &jobs,
        rounds: Rounds::Every(seconds(3)),
        explain: &[],
    };
    let outcome = simulate(&setup, "first-fit");
    // j0 from 0 to 10; j1 waits for it, and starts with the next round, at 12.
    assert_eq!((outcome.jobs[0].start, outcome.jobs[0].end), (Some(Micros(0)), Some(seconds(10))));
    assert_eq!((outcome.jobs[1].start, outcome.jobs[1].end), (Some(seconds(12)), Some(seconds(22))));
    assert_eq!(outcome.rounds, 4); // at 0, 6, 9, 12
}

#[test]
fn what_can_never_start_does_not_hang() {
    let mut jobs = [submit(0, 0), submit(1, 0)];
    jobs[1].job.tasks[0].devices[0].count = 2;
    for rounds in [Rounds::OnChange(Micros(0)), Rounds::Every(seconds(1))] {
        let setup = Setup {
            cluster: one_node(1),
            profiles: profiles(),
            warm_up: &[],
            jobs: &jobs,
            rounds,
            explain: &[],
        };
        let outcome = simulate(&setup, "best-fit");
        assert!(outcome.jobs[0].end.is_some());
        assert_eq!(outcome.jobs[1], JobOutcome::default());
    }
}

#[test]
fn warm_up_jobs_take_room_and_are_not_counted() {
    let jobs = [submit(0, 0)];
    let mut warm = submit(1, 0);
    warm.job.tasks = vec![Task::new(4000, 1)];
    warm.job.scale = 0.7;
    let warm = Submission::new(warm.job, &profiles());
    let setup = Setup {
        cluster: one_node(1),
        profiles: profiles(),
        warm_up: &[WarmUp { submission: warm, node: NodeId(0) }],
        jobs: &jobs,
        rounds: Rounds::OnChange(Micros(0)),
        explain: &[JobId(0)],
    };
    let outcome = simulate(&setup, "first-fit");
    assert_eq!(outcome.jobs.len(), 1);
    assert_eq!((outcome.jobs[0].start, outcome.jobs[0].end), (Some(seconds(7)), Some(seconds(17))));
    assert_eq!(outcome.samples[0].cpu_milli, 4000);
    assert_eq!(outcome.explanations.len(), 1);
}

/// A policy that adds up, on its own, what runs, and compares it with what there is.
struct Auditor {
    policy: Box<dyn Policy + Send>,
    audits: usize,
}

impl Policy for Auditor {
    fn name(&self) -> &'static str {
        self.policy.name()
    }

    fn schedule(
        &mut self,
        state: &ClusterState,
        waiting: &[Waiting],
        now_s: f64,
    ) -> Result<Decisions, rgpu_placement::Error> {
        self.audits += 1;
        let mut nodes: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        let mut devices: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        let mut links: BTreeMap<u32, u64> = BTreeMap::new();
        for running in state.all_running() {
            for (task, at) in running.job.tasks.iter().zip(&running.placement.tasks) {
                let sum = nodes.entry(at.node.0).or_default();
                *sum = (sum.0 + task.cpu_milli, sum.1 + task.memory_mib);
                for grant in &at.grants {
                    let sum = devices.entry(grant.device.0).or_default();
                    *sum = (sum.0 + u64::from(grant.milli), sum.1 + grant.memory_mib);
                    let to = state.cluster().device(grant.device).node;
                    state.cluster().for_path(at.node, to, |link| {
                        *links.entry(link.0).or_default() += grant.traffic_mbps
                    });
                }
                let wanted: usize = task.devices.iter().map(|request| usize::from(request.count)).sum();
                assert_eq!(at.grants.len(), wanted, "a gang is incomplete");
            }
        }
        for (node, (cpu, memory)) in nodes {
            let have = &state.cluster().nodes()[node as usize];
            assert!(cpu <= have.cpu_milli && memory <= have.memory_mib, "node {node} is over its capacity");
        }
        for (device, (milli, memory)) in devices {
            let have = &state.cluster().devices()[device as usize];
            assert!(milli <= 1000 && memory <= have.memory_mib, "device {device} is over its capacity");
        }
        for (link, mbps) in links {
            let capacity = state.cluster().capacity_mbps(rgpu_placement::LinkId(link));
            assert!(mbps <= capacity, "link {link} has {mbps} Mbit/s of {capacity}");
        }
        self.policy.schedule(state, waiting, now_s)
    }

    fn watch(&mut self, job: JobId) {
        self.policy.watch(job);
    }

    fn unwatch(&mut self, job: JobId) {
        self.policy.unwatch(job);
    }

    fn explain(&self, job: JobId) -> Option<&Explanation> {
        self.policy.explain(job)
    }
}

/// A cluster with remote GPUs to be had, and a mix of jobs of all kinds.
fn mixed(seed: u64) -> (Arc<Cluster>, Arc<Profiles>, Vec<Submission>) {
    let nodes = (0..6).map(|i| {
        let node = NodeSpec::new(format!("n{i}"), if i % 2 == 0 { 16_000 } else { 3000 }, 64 * 1024)
            .with_nic(10_000);
        node.with_devices(if i % 3 == 0 { 1 } else { 4 }, DeviceSpec::gpu("T4", 16 * 1024))
    });
    let cluster = ClusterBuilder::new().nodes(nodes).build().unwrap();
    let mut applications = crate::formats::Applications::rodinia();
    applications.neutral();
    let mut rng = rgpu_placement::Rng::new(seed);
    let mut jobs = Vec::new();
    for id in 0..120 {
        let profile = rng.below(8) as usize;
        let application = &applications.applications[profile];
        let mut task = application.task.clone();
        task.cpu_milli = 500 * (1 + rng.below(4));
        task.memory_mib = 1024 * (1 + rng.below(8));
        task.devices[0].memory_mib = 1024;
        match rng.below(4) {
            0 => task.devices[0].milli = 100 * (1 + rng.below(9)) as u16,
            1 => task.devices[0].count = 2,
            _ => {}
        }
        let at = Micros(rng.below(60_000_000));
        let tasks = 1 + rng.below(2) as usize;
        let job = Job {
            submit_s: at.seconds(),
            tasks: vec![task; tasks],
            profile: ProfileId(profile as u32),
            goal_s: (rng.below(2) == 0).then(|| application.alone.seconds() * 1.2),
            ..Job::new(JobId(id), format!("j{id}"), Task::default())
        };
        jobs.push(Submission::new(job, &applications.profiles));
    }
    (Arc::new(cluster), Arc::new(applications.profiles), jobs)
}

#[test]
fn no_policy_ever_exceeds_a_capacity() {
    for name in PolicyConfig::NAMES {
        for rounds in [Rounds::OnChange(Micros(0)), Rounds::Every(seconds(1))] {
            let (cluster, profiles, jobs) = mixed(7);
            let setup = Setup { cluster, profiles, warm_up: &[], jobs: &jobs, rounds, explain: &[] };
            let config = PolicyConfig::named(name).unwrap().with_seed(3);
            let disaggregates = config.disaggregates();
            let mut auditor = Auditor { policy: config.build().unwrap(), audits: 0 };
            let (outcome, _) = run(&setup, &mut auditor, None, &|_| {}).unwrap();
            assert!(auditor.audits > 50, "{name}");
            let ended = outcome.jobs.iter().filter(|job| job.end.is_some()).count();
            assert_eq!(ended, jobs.len(), "{name} left jobs");
            for (job, submission) in outcome.jobs.iter().zip(&jobs) {
                assert!(job.start >= Some(submission.at));
                assert!(job.run().unwrap().0 + 1 >= submission.alone.0, "{name}: faster than alone");
                assert!(job.remote == 0 || disaggregates, "{name} used a remote device");
            }
            let last = outcome.samples.last().unwrap();
            assert_eq!((last.gpu_milli, last.cpu_milli, last.waiting), (0, 0, 0));
        }
    }
}

#[test]
fn the_same_input_gives_the_same_outcome() {
    for name in PolicyConfig::NAMES {
        let once = || {
            let (cluster, profiles, jobs) = mixed(11);
            let rounds = Rounds::Every(seconds(1));
            simulate(&Setup { cluster, profiles, warm_up: &[], jobs: &jobs, rounds, explain: &[] }, name)
        };
        assert_eq!(once(), once(), "{name}");
    }
}

#[test]
fn a_clock_changes_no_outcome() {
    let (cluster, profiles, jobs) = mixed(5);
    let rounds = Rounds::OnChange(Micros(0));
    let setup = Setup { cluster, profiles, warm_up: &[], jobs: &jobs, rounds, explain: &[] };
    let ticks = std::sync::atomic::AtomicU64::new(0);
    let clock = || ticks.fetch_add(7, std::sync::atomic::Ordering::Relaxed);
    let mut policy = PolicyConfig::named("best-fit").unwrap().build().unwrap();
    let (outcome, times) = run(&setup, policy.as_mut(), Some(&clock), &|_| {}).unwrap();
    assert_eq!(outcome, simulate(&setup, "best-fit"));
    assert_eq!(times.len() as u64, outcome.rounds);
    assert!(times.iter().all(|time| *time == 7));
}
