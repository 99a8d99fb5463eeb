//! Deadlines, compositions and parts of GPUs on small clusters, by hand.

use std::sync::Arc;

use super::super::PolicyConfig;
use crate::cluster::{ClusterBuilder, DeviceSpec, NodeSpec};
use crate::ids::{DeviceKind, JobId, ProfileId};
use crate::job::{DeviceRequest, Job, Task};
use crate::placement::Placement;
use crate::profile::{Profile, Profiles};
use crate::queue::Queue;
use crate::sharing::Sharing;
use crate::state::ClusterState;

/// 100 s alone on one device, 80 s on two, 90 s on two with another; 40% more on a GPU with another, three times as long with two.
fn profiles() -> Profiles {
    let times = vec![vec![1.0, 1.3, 2.0], vec![0.8, 0.9, 1.2], vec![0.8, 0.85, 0.9]];
    let nvme = Sharing { kind: DeviceKind::Nvme, times, reserves: false };
    let gpu = Sharing { kind: DeviceKind::Gpu, times: vec![vec![1.0, 1.4, 3.0]], reserves: true };
    let with = |name: &str, sharing| Profile { sharing: Some(sharing), ..Profile::new(name, 100.0) };
    Profiles::new(vec![with("nvme", nvme), with("gpu", gpu), Profile::new("plain", 100.0)]).unwrap()
}

/// Two nodes with cores, and a pool of three NVMes and a GPU.
fn state() -> ClusterState {
    let nvme = DeviceSpec { kind: DeviceKind::Nvme, ..DeviceSpec::gpu("P4800X", 100) };
    let pool = NodeSpec::new("pool", 0, 0).with_nic(1000);
    let nodes = ["a", "b"].map(|name| NodeSpec::new(name, 8000, 0).with_nic(1000));
    let pool = pool.with_devices(3, nvme).with_devices(1, DeviceSpec::gpu("T4", 16));
    let cluster = ClusterBuilder::new().nodes(nodes).node(pool).build().unwrap();
    ClusterState::new(Arc::new(cluster), Arc::new(profiles()))
}

fn job(id: u32, profile: u32, deadline_s: Option<f64>) -> Job {
    let request = match profile {
        0 => DeviceRequest { kind: DeviceKind::Nvme, memory_mib: 10, ..DeviceRequest::part(900) },
        _ => DeviceRequest { memory_mib: 4, ..DeviceRequest::part(250) },
    };
    let profile = ProfileId(profile);
    Job { profile, deadline_s, ..Job::new(JobId(id), format!("j{id}"), Task::new(2000, 0).with(request)) }
}

/// Submits jobs one at a time; what each was given: its node and its devices. `None` if it waits.
fn placed(policy: &str, state: &mut ClusterState, jobs: Vec<Job>) -> Vec<Option<(u32, Vec<u32>)>> {
    let mut policy = PolicyConfig::named(policy).unwrap().build().unwrap();
    let mut one = |job: Job| {
        let mut queue = Queue::new();
        queue.push(Arc::new(job.clone())).unwrap();
        let decisions = policy.schedule(state, queue.waiting(), 0.0).unwrap();
        let (_, placement) = decisions.placed.into_iter().next()?;
        let at = &placement.tasks[0];
        let devices = at.grants.iter().map(|grant| grant.device.0).collect();
        let place = (at.node.0, devices);
        state.start(Arc::new(job), placement, 0.0).unwrap();
        Some(place)
    };
    jobs.into_iter().map(&mut one).collect()
}

#[test]
fn the_earliest_deadline_comes_first() {
    let state = state();
    let mut queue = Queue::new();
    let whole = |id, deadline_s| Job {
        profile: ProfileId(2),
        tasks: vec![Task::new(1000, 0).with_gpus(1)],
        ..job(id, 2, deadline_s)
    };
    for job in [whole(0, None), whole(1, Some(500.0)), whole(2, Some(400.0))] {
        queue.push(Arc::new(job)).unwrap();
    }
    let mut policy = PolicyConfig::named("deadline-first").unwrap().build().unwrap();
    let decisions = policy.schedule(&state, queue.waiting(), 0.0).unwrap();
    let first: Vec<JobId> = decisions.placed.iter().map(|(id, _)| *id).collect();
    let left: Vec<JobId> = decisions.left.iter().map(|(id, _)| *id).collect();
    assert_eq!((first, left), (vec![JobId(2)], vec![JobId(1), JobId(0)]));
}

#[test]
fn nvmes_are_composed_and_shared_as_long_as_deadlines_are_kept() {
    let mut state = state();
    let relaxed = Some(1000.0);
    let jobs = vec![job(0, 0, Some(100.0)), job(1, 0, relaxed), job(2, 0, relaxed), job(3, 0, Some(100.0))];
    // Two devices are best for a lone job; a second one joins it. A third would spoil the first one's deadline (120 s), so that
    // it gets the third device; there, the fourth would take 130 s, and waits.
    let given = placed("max-composition", &mut state, jobs);
    assert_eq!(given, [Some((0, vec![0, 1])), Some((0, vec![0, 1])), Some((0, vec![2])), None]);
    let takes = |id| state.completion_s(JobId(id)).unwrap();
    assert!((takes(0) - 90.0).abs() < 1e-9 && (takes(2) - 100.0).abs() < 1e-9);
    // When the first has gone, the one beside it is alone.
    state.finish(JobId(0), 10.0).unwrap();
    assert!((state.completion_s(JobId(1)).unwrap() - 80.0).abs() < 1e-9);
}

#[test]
fn fragmentation_is_minimised_and_first_fit_knows_nothing_of_sharing() {
    let jobs = || vec![job(0, 0, None), job(1, 0, None), job(2, 2, None)];
    let gpu = Some((1, vec![3]));
    // The third, which has no model, goes to the node that is emptier.
    assert_eq!(
        placed("min-fragmentation", &mut state(), jobs()),
        [Some((0, vec![0])), Some((0, vec![0])), gpu]
    );
    let apart = [Some((0, vec![0])), Some((0, vec![1])), Some((0, vec![3]))];
    assert_eq!(placed("deadline-first", &mut state(), jobs()), apart);
}

#[test]
fn parts_of_a_gpu_are_given_as_long_as_deadlines_are_kept() {
    let mut state = state();
    let jobs = vec![job(0, 1, Some(200.0)), job(1, 1, Some(150.0)), job(2, 1, Some(1000.0))];
    // The third would take 300 s, and so would the others. Each goes to the node with the most cores left.
    let given = placed("heterogeneity-aware", &mut state, jobs);
    assert_eq!(given, [Some((0, vec![3])), Some((1, vec![3])), None]);
    assert!((state.completion_s(JobId(0)).unwrap() - 140.0).abs() < 1e-9);
    // Whoever has lost his deadline keeps nobody out, and joins nobody.
    let late = placed("heterogeneity-aware", &mut state, vec![job(3, 1, Some(50.0))]);
    assert_eq!(late, [None]);
}

#[test]
fn a_composition_that_gives_too_little_is_refused() {
    let mut state = state();
    let job = Arc::new(job(0, 0, None));
    let mut policy = PolicyConfig::named("max-composition").unwrap().build().unwrap();
    let mut queue = Queue::new();
    queue.push(job.clone()).unwrap();
    let decisions = policy.schedule(&state, queue.waiting(), 0.0).unwrap();
    let good = decisions.placed[0].1.clone();
    let mut refused = |change: &dyn Fn(&mut Placement)| {
        let mut placement = good.clone();
        change(&mut placement);
        let error = state.start(job.clone(), placement, 0.0).unwrap_err().to_string();
        assert!(error.contains("j0"), "{error}");
    };
    refused(&|placement| placement.tasks[0].grants.truncate(1));
    refused(&|placement| placement.tasks[0].grants.clear());
    refused(&|placement| placement.tasks[0].grants[0].milli = 0);
    refused(&|placement| placement.tasks[0].grants[0].traffic_mbps = 1);
    refused(&|placement| {
        let again = placement.tasks[0].grants[0];
        placement.tasks[0].grants.push(again);
    });
    state.start(job, good, 0.0).unwrap();
}
