//! Every policy on small clusters, by hand, and all of them on random ones.

mod alike;
mod slivers;
mod spread;

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::cluster::{ClusterBuilder, DeviceSpec, NodeSpec, NumaSpec, SwitchSpec, WHOLE};
use crate::ids::{CapabilitySet, DeviceId, DeviceKind, LinkId, ModelSet, NodeId, ProfileId};
use crate::job::{DeviceRequest, Job, Task};
use crate::profile::{Interference, Profile, Profiles};
use crate::queue::Queue;

fn state(nodes: Vec<NodeSpec>, profiles: Profiles) -> ClusterState {
    ClusterState::new(Arc::new(ClusterBuilder::new().nodes(nodes).build().unwrap()), Arc::new(profiles))
}

fn node(name: &str, cores: u64, gpus: usize) -> NodeSpec {
    NodeSpec::new(name, cores * 1000, 1024).with_nic(10_000).with_devices(gpus, DeviceSpec::gpu("T4", 16))
}

fn gpu_task(cores: u64, mbps: u64) -> Task {
    Task::new(cores * 1000, 1).with(DeviceRequest { traffic_mbps: mbps, ..DeviceRequest::gpus(1) })
}

fn job(id: u32, task: Task) -> Job {
    Job::new(JobId(id), format!("job-{id}"), task)
}

fn queue(jobs: impl IntoIterator<Item = Job>) -> Queue {
    let mut queue = Queue::new();
    jobs.into_iter().for_each(|job| queue.push(Arc::new(job)).unwrap());
    queue
}

fn config(name: &str) -> PolicyConfig {
    PolicyConfig::named(name).unwrap()
}

fn build(config: &PolicyConfig) -> Box<dyn Policy + Send> {
    config.build().unwrap()
}

/// One round; starts what was placed.
fn round(policy: &mut dyn Policy, state: &mut ClusterState, queue: &mut Queue, now_s: f64) -> Decisions {
    let decisions = policy.schedule(state, queue.waiting(), now_s).unwrap();
    for (id, placement) in &decisions.placed {
        let job = queue.waiting().iter().find(|waiting| waiting.job.id == *id).unwrap().job.clone();
        state.start(job, placement.clone(), now_s).unwrap();
    }
    queue.apply(&decisions);
    decisions
}

fn home(decisions: &Decisions, id: u32) -> Option<(u32, Vec<u32>)> {
    let (_, placement) = decisions.placed.iter().find(|(job, _)| *job == JobId(id))?;
    let at = &placement.tasks[0];
    Some((at.node.0, at.grants.iter().map(|grant| grant.device.0).collect()))
}

#[test]
fn names_are_checked() {
    for name in PolicyConfig::NAMES {
        assert_eq!(build(&config(name)).name(), name);
    }
    let unknown = PolicyConfig::named("worst-fit").err().unwrap();
    assert!(unknown.to_string().contains("fgd"), "{unknown}");
    let negative = config("drmaestro").with(&LINK_LIMIT, -1.0);
    assert!(matches!(negative.build(), Err(Error::Setting { name: "link_limit", .. })));
    let endless = config("drmaestro").with(&WAIT_WEIGHT, f64::INFINITY);
    assert!(endless.build().is_err());
}

#[test]
fn disaggregation_uses_what_is_stranded() {
    // All cores are in a, all GPUs in b.
    let nodes = || vec![node("a", 8, 0), node("b", 0, 2)];
    for name in PolicyConfig::NAMES {
        let mut state = state(nodes(), Profiles::unknown());
        let mut queue = queue([job(0, gpu_task(1, 100)), job(1, gpu_task(1, 100)), job(2, gpu_task(1, 100))]);
        let decisions = round(build(&config(name)).as_mut(), &mut state, &mut queue, 0.0);
        if config(name).disaggregates() {
            assert_eq!(decisions.placed.len(), 2);
            assert_eq!(decisions.left, [(JobId(2), Reason::NoRoom)]);
            assert_eq!(state.usage().totals().remote_milli[0], 2000);
            assert_eq!(state.usage().link_mbps(LinkId(0)), 200);
            assert_eq!(state.usage().link_mbps(LinkId(1)), 200);
        } else {
            assert!(decisions.placed.is_empty(), "{name}");
            assert_eq!(decisions.left.len(), 3);
        }
    }
}

#[test]
fn local_devices_come_first_and_go_to_whom_they_are_worth_most() {
    // a has cores for both and a GPU, b only a GPU. "far" suffers from a remote GPU, "near" doesn't.
    let profiles = Profiles::new(vec![
        Profile { remote_s: 101.0, ..Profile::new("near", 100.0) },
        Profile { remote_s: 200.0, ..Profile::new("far", 100.0) },
    ])
    .unwrap();
    let mut state = state(vec![node("a", 8, 1), node("b", 0, 1)], profiles);
    let mut jobs = [job(0, gpu_task(1, 10)), job(1, gpu_task(1, 10))];
    jobs[1].profile = ProfileId(1);
    let mut queue = queue(jobs);
    let mut policy = build(&config("drmaestro").with(&NETWORK_AWARE, false));
    let decisions = round(policy.as_mut(), &mut state, &mut queue, 0.0);
    assert_eq!(home(&decisions, 0), Some((0, vec![1])));
    assert_eq!(home(&decisions, 1), Some((0, vec![0])));
    assert!(decisions.work.networks >= 2 && decisions.work.arcs > 0);
}

#[test]
fn bandwidth_is_a_limit() {
    let mut state = state(vec![node("a", 8, 0), node("b", 0, 4)], Profiles::unknown());
    // 10,000 Mbit/s carry two of 4,000.
    let mut queue = queue((0..3).map(|id| job(id, gpu_task(1, 4000))));
    let mut policy = build(&config("drmaestro"));
    let decisions = round(policy.as_mut(), &mut state, &mut queue, 0.0);
    assert_eq!(decisions.placed.len(), 2);
    assert_eq!(decisions.left, [(JobId(2), Reason::NoBandwidth)]);
    assert!(state.link_load(LinkId(0)) <= 1.0);
    // What others were measured to send counts, too.
    state.set_external_mbps(LinkId(1), 9000).unwrap();
    state.finish(JobId(0), 1.0).unwrap();
    state.finish(JobId(1), 1.0).unwrap();
    assert!(round(policy.as_mut(), &mut state, &mut queue, 1.0).placed.is_empty());
}

#[test]
fn the_share_of_remote_devices_is_a_limit() {
    let config = config("drmaestro").with(&MAX_REMOTE_SHARE, 0.5);
    let mut state = state(vec![node("a", 8, 2), node("b", 0, 8)], Profiles::unknown());
    let mut policy = build(&config);
    let mut queue = queue((0..8).map(|id| job(id, gpu_task(1, 1))));
    for now in 0..4 {
        round(policy.as_mut(), &mut state, &mut queue, f64::from(now));
    }
    let totals = state.usage().totals();
    assert_eq!((totals.granted_milli[0], totals.remote_milli[0]), (4000, 2000));
}

/// Goal 130 s; 120 s with a remote GPU and a quiet network, 180 s when others load it fully.
fn sensitive() -> Profiles {
    Profiles::new(vec![Profile { remote_s: 120.0, sensitivity: 0.5, ..Profile::new("nw", 100.0) }]).unwrap()
}

#[test]
fn placements_that_break_the_goal_are_postponed_until_they_have_waited() {
    let nodes = || vec![node("a", 8, 0), node("b", 0, 4)];
    let goal = |id| Job { goal_s: Some(130.0), ..job(id, gpu_task(1, 100)) };
    for (load_mbps, aware, placed) in [(0, true, 1), (5000, true, 0), (5000, false, 1)] {
        let mut state = state(nodes(), sensitive());
        state.set_external_mbps(LinkId(1), load_mbps).unwrap();
        let mut queue = queue([goal(0)]);
        let config = config("drmaestro").with(&NETWORK_AWARE, aware);
        let decisions = round(build(&config).as_mut(), &mut state, &mut queue, 0.0);
        assert_eq!(decisions.placed.len(), placed, "{load_mbps} {aware}");
        if placed == 0 {
            // 120 · (1 + 0.5 · 0.5) = 150.
            assert!(matches!(&decisions.left[..], [(JobId(0), Reason::Postponed { expected_s, goal_s })]
                if (expected_s - 150.0).abs() < 1e-6 && *goal_s == 130.0));
        }
    }
    // W grows by 0.4 a round; the placement costs 150 / 130 · 1.25 = 1.44 or less more than leaving it.
    let mut state = state(nodes(), sensitive());
    state.set_external_mbps(LinkId(1), 5000).unwrap();
    let mut queue = queue([goal(0)]);
    let mut policy = build(&config("drmaestro").with(&WAIT_WEIGHT, 0.4));
    let waits = (0..10)
        .position(|now| !round(policy.as_mut(), &mut state, &mut queue, f64::from(now)).placed.is_empty());
    assert_eq!(waits, Some(3));
}

#[test]
fn a_goal_that_cannot_be_kept_is_not_waited_for() {
    let mut state = state(vec![node("a", 8, 0), node("b", 0, 4)], sensitive());
    let mut queue = queue([Job { goal_s: Some(50.0), ..job(0, gpu_task(1, 100)) }]);
    let decisions = round(build(&config("drmaestro")).as_mut(), &mut state, &mut queue, 0.0);
    assert_eq!(decisions.placed.len(), 1);
}

#[test]
fn running_jobs_are_not_disturbed() {
    // The first tolerates a load of (130 / 120 − 1) / 0.5 = 1/6 by others: 1,667 Mbit/s.
    let mut state = state(vec![node("a", 8, 0), node("b", 0, 4)], sensitive());
    let mut policy = build(&config("drmaestro"));
    let mut queue = queue([Job { goal_s: Some(130.0), ..job(0, gpu_task(1, 100)) }]);
    assert_eq!(round(policy.as_mut(), &mut state, &mut queue, 0.0).placed.len(), 1);
    let tolerated = state.tolerated_mbps(LinkId(1));
    assert!((tolerated - (100.0 + 10_000.0 / 6.0)).abs() < 0.1, "{tolerated}");
    for (id, mbps, disturbs) in [(1, 1600, false), (2, 1700, true)] {
        queue.push(Arc::new(job(id, gpu_task(1, mbps)))).unwrap();
        let mut trial = state.clone();
        let decisions = round(policy.as_mut(), &mut trial, &mut queue, 1.0);
        assert_eq!(decisions.placed.is_empty(), disturbs);
        if disturbs {
            assert_eq!(decisions.left, [(JobId(id), Reason::Disturbing)]);
        }
    }
}

#[test]
fn neighbours_are_not_harmed() {
    let mut profiles =
        Profiles::new(vec![Profile::new("calm", 100.0), Profile::new("noisy", 100.0)]).unwrap();
    profiles.set_interference(ProfileId(0), ProfileId(1), Interference { node: 0.2, device: 0.0 }).unwrap();
    let mut state = state(vec![node("a", 8, 1), node("b", 8, 1)], profiles);
    let mut queue = queue([
        Job { goal_s: Some(110.0), ..job(0, Task::new(1000, 1)) },
        Job { profile: ProfileId(1), ..job(1, Task { only: vec![NodeId(0)], ..Task::new(1000, 1) }) },
        Job { profile: ProfileId(1), ..job(2, Task::new(1000, 1)) },
    ]);
    let mut policy = build(&config("drmaestro"));
    let decisions = round(policy.as_mut(), &mut state, &mut queue, 0.0);
    let calm = home(&decisions, 0).unwrap().0;
    assert_ne!(home(&decisions, 2).unwrap().0, calm);
    // Bound to node 0, the other noisy one waits if the calm one is there.
    assert_eq!(home(&decisions, 1).is_none(), calm == 0);
}

#[test]
fn gangs_start_together_or_not_at_all() {
    // Three GPUs, two gangs of two: a flow that gives one to each would start none.
    for name in PolicyConfig::NAMES {
        let nodes = vec![node("a", 2, 1), node("b", 2, 1), node("c", 2, 1)];
        let mut state = state(nodes, Profiles::unknown());
        let gang = |id| Job { tasks: vec![gpu_task(1, 1); 2], ..job(id, Task::default()) };
        let mut queue = queue([gang(0), gang(1)]);
        let decisions = round(build(&config(name)).as_mut(), &mut state, &mut queue, 0.0);
        assert_eq!(decisions.placed.len(), 1, "{name}");
        assert_eq!(decisions.placed[0].1.tasks.len(), 2);
        assert!(matches!(decisions.left[..], [(_, Reason::NoRoom)]), "{name}");
        assert_eq!(state.usage().totals().granted_milli[0], 2000);
    }
}

#[test]
fn sub_tasks_come_from_several_nodes() {
    let mut state = state(vec![node("a", 8, 1), node("b", 0, 2), node("c", 0, 1)], Profiles::unknown());
    let task = Task::new(1000, 1).with_gpus(4);
    let mut queue = queue([job(0, task)]);
    let decisions = round(build(&config("drmaestro")).as_mut(), &mut state, &mut queue, 0.0);
    let (home, mut devices) = home(&decisions, 0).unwrap();
    devices.sort();
    assert_eq!((home, devices), (0, vec![0, 1, 2, 3]));
    let conditions = state.conditions(state.running(JobId(0)).unwrap(), 0);
    assert_eq!(conditions.remote_share, 0.75);
}

#[test]
fn affinity_models_and_numa() {
    let mut fast = node("b", 4, 0).with_devices(1, DeviceSpec::gpu("A100", 80));
    fast.numa = vec![NumaSpec { cpu_milli: 2000, memory_mib: 512 }; 2];
    fast.devices[0].numa = 1;
    let nodes = vec![node("a", 8, 2), fast];
    for name in ["drmaestro", "first-fit", "best-fit", "fgd", "firmament"] {
        let mut state = state(nodes.clone(), Profiles::unknown());
        let a100 = state.cluster().model("A100").unwrap();
        let mut wants = gpu_task(3, 0);
        wants.devices[0].models = ModelSet::EMPTY.with(a100);
        let mut queue = queue([job(0, wants), job(1, Task { only: vec![NodeId(1)], ..Task::new(1000, 1) })]);
        let decisions = round(build(&config(name)).as_mut(), &mut state, &mut queue, 0.0);
        let placement = &decisions.placed.iter().find(|(id, _)| *id == JobId(0)).unwrap().1;
        assert_eq!(placement.tasks[0].grants[0].device, DeviceId(2), "{name}");
        if placement.tasks[0].node == NodeId(1) {
            // Three cores are in no region; the placement says how they are spread.
            assert_eq!(placement.tasks[0].regions.iter().map(|r| r.cpu_milli).sum::<u64>(), 3000);
        }
        assert_eq!(home(&decisions, 1).map(|(node, _)| node), Some(1), "{name}");
    }
    let mut state = state(nodes, Profiles::unknown());
    let mut queue = queue([job(0, Task { preferred: vec![NodeId(1)], ..Task::new(1000, 1) })]);
    let decisions = round(build(&config("drmaestro")).as_mut(), &mut state, &mut queue, 0.0);
    assert_eq!(home(&decisions, 0).unwrap().0, 1);
}

#[test]
fn decisions_are_explained() {
    for name in PolicyConfig::NAMES {
        let mut state = state(vec![node("a", 8, 1), node("b", 0, 1)], Profiles::unknown());
        let mut policy = build(&config(name));
        let mut queue = queue([job(0, gpu_task(1, 10)), job(1, gpu_task(9, 10))]);
        policy.watch(JobId(0));
        policy.watch(JobId(1));
        assert!(policy.explain(JobId(0)).is_none());
        round(policy.as_mut(), &mut state, &mut queue, 2.0);
        let text = policy.explain(JobId(0)).unwrap().to_string();
        assert!(text.contains("placed in a") && text.contains("* a: cost"), "{name}: {text}");
        let text = policy.explain(JobId(1)).unwrap().to_string();
        assert!(text.contains("too few cores free"), "{name}: {text}");
        assert!(policy.explain(JobId(7)).is_none());
        if name == "drmaestro" {
            assert!(text.contains("unscheduled: cost"), "{text}");
        }
    }
}

fn instance() -> DeviceSpec {
    DeviceSpec { alone: true, partitionable: false, ..DeviceSpec::gpu("1g.5gb", 5) }
}

fn divided(name: &str, instances: usize, whole: usize) -> NodeSpec {
    node(name, 8, whole).with_devices(instances, instance())
}

#[test]
fn a_program_gets_one_instance_of_a_node_and_nothing_beside_it() {
    let gang = |id, count| job(id, Task::new(0, 0).with_gpus(count));
    for name in PolicyConfig::NAMES {
        let mut policy = build(&config(name));
        // Two in one node are too many, though both are free. Two programs have one each.
        let mut state = state(vec![divided("a", 2, 0)], Profiles::unknown());
        let mut queue = queue([gang(0, 2), gang(1, 1), gang(2, 1)]);
        let decisions = round(policy.as_mut(), &mut state, &mut queue, 0.0);
        // With this one, a job has its node alone.
        let both = if name == "compact-exclusive" { 1 } else { 2 };
        assert_eq!(decisions.left[0], (JobId(0), Reason::NoRoom), "{name}");
        assert_eq!((decisions.left.len(), decisions.placed.len()), (3 - both, both), "{name}");
        // Nor does one go with a whole one: the whole ones it is, however little is left of the others.
        let mut state = self::state(vec![divided("a", 2, 2)], Profiles::unknown());
        let mut queue = self::queue([gang(0, 2)]);
        let decisions = round(policy.as_mut(), &mut state, &mut queue, 0.0);
        let (_, devices) = home(&decisions, 0).unwrap_or_else(|| panic!("{name}: {decisions:?}"));
        assert!(devices.iter().all(|&device| device < 2), "{name}: {devices:?}");
    }
}

#[test]
fn a_gang_gets_instances_of_several_nodes() {
    // Two gangs of three at once, and then the same again one by one.
    for at_once in [true, false] {
        let nodes = ["a", "b", "c"].map(|name| divided(name, 2, 0)).to_vec();
        let mut state = state(nodes, Profiles::unknown());
        let mut policy = build(&config("drmaestro"));
        let gang = |id| job(id, Task::new(0, 0).with_gpus(3));
        let rounds = if at_once { vec![vec![gang(0), gang(1)]] } else { vec![vec![gang(0)], vec![gang(1)]] };
        for jobs in rounds {
            let mut queue = queue(jobs);
            let decisions = round(policy.as_mut(), &mut state, &mut queue, 0.0);
            assert!(decisions.left.is_empty(), "{decisions:?}");
            for (_, placement) in &decisions.placed {
                let devices = placement.tasks[0].grants.iter().map(|grant| grant.device);
                let mut nodes: Vec<_> = devices.map(|device| state.cluster().device(device).node).collect();
                nodes.sort_unstable();
                assert_eq!(nodes, [NodeId(0), NodeId(1), NodeId(2)]);
            }
        }
        assert_eq!(state.running_count(), 2);
    }
}

#[test]
fn a_placement_beside_an_instance_is_refused() {
    let mut state = state(vec![divided("a", 1, 1), divided("b", 1, 0)], Profiles::unknown());
    let task = Task::new(0, 0).with_gpus(2);
    let place = |devices: [u32; 2]| {
        let request = &task.devices[0];
        let usage = state.usage();
        let grants =
            devices.map(|device| usage.grant(state.cluster(), NodeId(0), DeviceId(device), request, 0));
        let at = crate::TaskPlacement { node: NodeId(0), regions: Vec::new(), grants: grants.to_vec() };
        Placement { tasks: vec![at] }
    };
    let (beside, apart) = (place([0, 1]), place([1, 2]));
    let refused = state.start(Arc::new(job(0, task.clone())), beside, 0.0).unwrap_err();
    assert!(refused.to_string().contains("used alone"), "{refused}");
    state.start(Arc::new(job(0, task.clone())), apart, 0.0).unwrap();
}

#[test]
fn what_is_needed_is_where_it_is_offered_and_explained_where_it_is_not() {
    let nodes = || {
        let plain = ["a", "b"].map(|name| node(name, 8, 2));
        plain.into_iter().chain([node("c", 8, 1).offering("encryption"), node("d", 8, 0)]).collect::<Vec<_>>()
    };
    for name in PolicyConfig::NAMES {
        let mut state = state(nodes(), Profiles::unknown());
        let needs = state.cluster().capability("encryption").unwrap();
        let task = Task::new(1000, 1).with(DeviceRequest { needs, ..DeviceRequest::gpus(1) });
        let mut policy = build(&config(name));
        let mut queue = queue([job(0, task.clone()), job(1, task)]);
        policy.watch(JobId(0));
        policy.watch(JobId(1));
        let decisions = round(policy.as_mut(), &mut state, &mut queue, 0.0);
        let (_, devices) = home(&decisions, 0).unwrap();
        assert_eq!(devices, [4], "{name}");
        assert_eq!(decisions.left, [(JobId(1), Reason::NoRoom)], "{name}");
        for id in [0, 1] {
            let text = policy.explain(JobId(id)).unwrap().to_string();
            let why = "2 ruled out: needs encryption, which nodes a and b don't offer";
            assert!(text.contains(why), "{name}: {text}");
        }
    }
}

/// A random cluster: per node cores, GPUs (their sharing, how many are used alone, what it offers), NVMes, NIC.
fn clusters() -> impl Strategy<Value = Vec<NodeSpec>> {
    let gpus = (0usize..4, any::<bool>(), 0usize..4, any::<bool>());
    let one = (0u64..8, gpus, 0usize..2, 0u64..20, any::<bool>());
    prop::collection::vec(one, 1..8).prop_map(|nodes| {
        let nodes = nodes.into_iter().enumerate();
        nodes
            .map(|(i, (cores, (gpus, partitionable, alone, capable), nvmes, nic, numa))| {
                let gpu = DeviceSpec { partitionable, ..DeviceSpec::gpu("T4", 16) };
                let nvme = DeviceSpec { kind: DeviceKind::Nvme, ..DeviceSpec::gpu("P4800X", 100) };
                let mut node = NodeSpec::new(format!("n{i}"), cores * 2000, 64)
                    .with_devices(gpus, gpu)
                    .with_devices(nvmes, nvme)
                    .with_nic(nic * 100);
                // The first ones, as many as there are of these.
                node.devices.iter_mut().take(alone.min(gpus)).for_each(|gpu| gpu.alone = true);
                if capable {
                    node = node.offering("encryption");
                }
                if numa {
                    node.numa = vec![NumaSpec { cpu_milli: cores * 1000, memory_mib: 32 }; 2];
                }
                node
            })
            .collect()
    })
}

fn jobs() -> impl Strategy<Value = Vec<Job>> {
    let request = (0usize..2, 1u16..4, 1u16..1000, any::<bool>(), 0u64..500, (0u64..10, 0u8..4));
    let task = (0u64..4000, 0u64..20, prop::collection::vec(request, 0..3), 0u64..100);
    let one = (prop::collection::vec(task, 1..3), 0u32..2, 0u32..100, prop::option::of(50.0..400.0f64));
    prop::collection::vec(one, 1..24).prop_map(|jobs| {
        let jobs = jobs.into_iter().enumerate();
        jobs.map(|(i, (tasks, profile, submit, goal_s))| {
            let tasks = tasks.into_iter().map(|(cpu, memory, requests, network_mbps)| {
                let requests =
                    requests.into_iter().map(|(kind, count, milli, whole, mbps, (memory_mib, needy))| {
                        let (count, milli) = if whole { (count, WHOLE) } else { (1, milli) };
                        let kind = DeviceKind::ALL[kind];
                        let models = ModelSet::ANY;
                        // The only one that a node may offer, which is the first.
                        let needs = if needy == 0 { CapabilitySet::only(0) } else { CapabilitySet::NONE };
                        DeviceRequest {
                            kind,
                            count,
                            milli,
                            memory_mib,
                            models,
                            needs,
                            node: None,
                            traffic_mbps: mbps,
                        }
                    });
                let task = Task { network_mbps, ..Task::new(cpu, memory) };
                requests.fold(task, Task::with)
            });
            Job {
                tasks: tasks.collect(),
                profile: ProfileId(profile),
                submit_s: f64::from(submit),
                goal_s,
                ..job(i as u32, Task::default())
            }
        })
        .collect()
    })
}

fn interfering() -> Profiles {
    let mut profiles = Profiles::new(vec![
        Profile { remote_s: 130.0, sensitivity: 0.7, ..Profile::new("a", 100.0) },
        Profile { numa_slowdown: 0.1, ..Profile::new("b", 50.0) },
    ])
    .unwrap();
    let some = Interference { node: 0.1, device: 0.2 };
    profiles.set_interference(ProfileId(0), ProfileId(1), some).unwrap();
    profiles.set_interference(ProfileId(0), ProfileId(0), some).unwrap();
    profiles
}

/// Several rounds in which jobs end now and then. `ClusterState::start` refuses whatever doesn't fit or isn't whole.
fn history(config: &PolicyConfig, nodes: &[NodeSpec], jobs: &[Job]) -> Vec<(JobId, Placement)> {
    let mut state = state(nodes.to_vec(), interfering());
    let empty = state.usage().clone();
    let mut policy = build(config);
    let mut queue = queue(jobs.to_vec());
    let mut log = Vec::new();
    for now in 0..6 {
        let now = f64::from(now);
        let decisions = round(policy.as_mut(), &mut state, &mut queue, now);
        for (id, placement) in &decisions.placed {
            for at in &placement.tasks {
                for grant in &at.grants {
                    let remote = state.cluster().device(grant.device).node != at.node;
                    assert!(!remote || config.disaggregates());
                }
            }
            log.push((*id, placement.clone()));
        }
        if config.disaggregates() {
            for link in 0..state.cluster().links() as u32 {
                let own: u64 = state
                    .all_running()
                    .flat_map(|r| r.job.tasks.iter().zip(&r.placement.tasks))
                    .filter(|(_, at)| at.node.0 == link)
                    .map(|(task, _)| task.network_mbps)
                    .sum();
                let remote = state.usage().link_mbps(LinkId(link)) - own;
                // Jobs' own traffic isn't a matter of placement; what remote devices add must fit.
                assert!(remote == 0 || remote <= state.cluster().capacity_mbps(LinkId(link)));
            }
        }
        for id in state.all_running().map(|running| running.job.id).collect::<Vec<_>>() {
            assert!(state.completion_s(id).unwrap() >= 49.999);
            if (id.0 + now as u32).is_multiple_of(3) {
                state.finish(id, now + 0.5).unwrap();
            }
        }
    }
    for id in state.all_running().map(|running| running.job.id).collect::<Vec<_>>() {
        state.finish(id, 10.0).unwrap();
    }
    assert_eq!(*state.usage(), empty, "everything comes back");
    log
}

#[test]
fn a_gang_goes_to_a_server_whose_network_carries_its_remote_devices() {
    // Three devices of 150 Mbit/s each, one on each node: two are remote wherever the program is. From a, both would cross the uplink of a's
    // rack, which carries one.
    let rack =
        |name: &str, uplink_mbps| SwitchSpec { name: name.into(), parent: Some("spine".into()), uplink_mbps };
    let cluster = |uplink_mbps| {
        let nodes = [("a", "one"), ("b", "two"), ("c", "two")];
        let nodes = nodes.map(|(name, rack)| NodeSpec { switch: Some(rack.into()), ..node(name, 8, 1) });
        let spine = SwitchSpec { name: "spine".into(), parent: None, uplink_mbps: 10_000 };
        let builder =
            ClusterBuilder::new().switch(spine).switch(rack("one", uplink_mbps)).switch(rack("two", 10_000));
        let cluster = Arc::new(builder.nodes(nodes).build().unwrap());
        ClusterState::new(cluster, Arc::new(Profiles::unknown()))
    };
    let three = DeviceRequest { traffic_mbps: 150, ..DeviceRequest::gpus(3) };
    let gang = job(0, Task::new(1000, 1).with(three));
    for (uplink_mbps, at) in [(10_000, Some(0)), (200, Some(1)), (100, None)] {
        let mut state = cluster(uplink_mbps);
        let decisions =
            round(build(&config("drmaestro")).as_mut(), &mut state, &mut queue([gang.clone()]), 0.0);
        assert_eq!(home(&decisions, 0).map(|(home, _)| home), at, "{uplink_mbps}: {:?}", decisions.left);
        if at.is_none() {
            assert_eq!(decisions.left, [(JobId(0), Reason::NoBandwidth)]);
            assert_eq!(state.usage().totals().remote_milli[0], 0, "what was tried is given back");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_over_capacity_and_the_same_again(nodes in clusters(), jobs in jobs(), seed in 0u64..4) {
        for name in PolicyConfig::NAMES {
            for network_aware in [false, true] {
                let config = config(name).with_seed(seed).with(&NETWORK_AWARE, network_aware);
                let first = history(&config, &nodes, &jobs);
                prop_assert_eq!(&first, &history(&config, &nodes, &jobs), "{} is not deterministic", name);
                if name != "drmaestro" {
                    break;
                }
            }
        }
    }

    #[test]
    fn what_is_checked_can_run(nodes in clusters(), jobs in jobs()) {
        // A job of one task and one request that passes the check starts in the empty cluster.
        for name in ["drmaestro", "firmament", "first-fit"] {
            let config = config(name).with(&LINK_LIMIT, f64::INFINITY);
            for job in &jobs {
                let nodes: Vec<_> = nodes.iter().map(|n| NodeSpec { nic_mbps: n.nic_mbps + 1, ..n.clone() }).collect();
                let mut state = state(nodes, interfering());
                let simple = job.tasks.len() == 1 && job.tasks[0].devices.len() <= 1;
                let job = Job { goal_s: None, ..job.clone() };
                if simple && job.check(state.cluster(), 2, config.disaggregates()).is_ok() {
                    let mut queue = queue([job]);
                    let decisions = round(build(&config).as_mut(), &mut state, &mut queue, 0.0);
                    prop_assert_eq!(decisions.placed.len(), 1, "{}: {:?}", name, decisions.left);
                }
            }
        }
    }
}
