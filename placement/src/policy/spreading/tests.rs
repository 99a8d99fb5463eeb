use std::sync::Arc;

use super::*;
use crate::cluster::{ClusterBuilder, DeviceSpec, NodeSpec};
use crate::job::DeviceRequest;
use crate::profile::Profile;
use crate::queue::Queue;
use crate::spread::Spread;

const AT: AtScale = AtScale { scale: 1, time: 1.0, ways: 0, bandwidth: 0.0 };

/// Nodes of 8 cores with 20 ways and 100 GB/s, and programs by what is known of them.
fn state(nodes: usize, known: &[&[AtScale]]) -> ClusterState {
    let node = |i| NodeSpec {
        llc_ways: 20,
        memory_bandwidth: 100.0,
        ..NodeSpec::new(format!("n{i}"), 8000, 1 << 20)
    };
    let cluster = ClusterBuilder::new().nodes((0..nodes).map(node)).build().unwrap();
    let profile = |(i, scales): (usize, &&[AtScale])| Profile {
        spread: Some(Spread::new(scales.to_vec()).unwrap()),
        ..Profile::new(format!("p{i}"), 100.0)
    };
    let profiles = Profiles::new(known.iter().enumerate().map(profile).collect()).unwrap();
    ClusterState::new(Arc::new(cluster), Arc::new(profiles))
}

/// A job of so many tasks of one core.
fn job(id: u32, profile: u32, tasks: usize) -> Job {
    let tasks = vec![Task::new(1000, 1); tasks];
    Job { tasks, profile: ProfileId(profile), ..Job::new(JobId(id), format!("j{id}"), Task::default()) }
}

/// One round; starts what was placed. Where each job is: how many of its tasks are on each of its nodes.
fn round(name: &str, state: &mut ClusterState, jobs: Vec<Job>) -> Vec<Option<Vec<(u32, usize)>>> {
    let mut queue = Queue::new();
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    jobs.into_iter().for_each(|job| queue.push(Arc::new(job)).unwrap());
    let mut policy = PolicyConfig::named(name).unwrap().build().unwrap();
    let decisions = policy.schedule(state, queue.waiting(), 0.0).unwrap();
    for (id, placement) in &decisions.placed {
        let job = queue.waiting().iter().find(|waiting| waiting.job.id == *id).unwrap().job.clone();
        state.start(job, placement.clone(), 0.0).unwrap();
    }
    let places = |id: &JobId| {
        let placement = &state.running(*id)?.placement;
        let mut nodes: Vec<u32> = placement.tasks.iter().map(|at| at.node.0).collect();
        nodes.sort_unstable();
        let count = |node: &u32| (*node, nodes.iter().filter(|other| *other == node).count());
        let mut places: Vec<(u32, usize)> = nodes.iter().map(count).collect();
        places.dedup();
        Some(places)
    };
    ids.iter().map(places).collect()
}

#[test]
fn who_gains_by_it_is_spread_in_equal_parts_and_takes_less_time() {
    let grows = [AT, AtScale { scale: 2, time: 0.8, ..AT }, AtScale { scale: 4, time: 0.85, ..AT }];
    let mut state = state(4, &[&grows]);
    let places = round("spread-n-share", &mut state, vec![job(0, 0, 8), job(1, 0, 13)]);
    assert_eq!(places[0], Some(vec![(0, 4), (1, 4)]));
    assert_eq!(state.completion_s(JobId(0)), Some(80.0));
    // 13 tasks need two nodes; there is room for the double.
    assert_eq!(places[1], Some(vec![(0, 4), (1, 3), (2, 3), (3, 3)]));
    // Compact, whatever its profile says, and its time is the profile's.
    let mut compact = self::state(4, &[&grows]);
    assert_eq!(round("compact-share", &mut compact, vec![job(0, 0, 8)])[0], Some(vec![(0, 8)]));
    assert_eq!(compact.completion_s(JobId(0)), Some(100.0));
}

#[test]
fn ways_and_bandwidth_are_promised_once() {
    let cache = AtScale { ways: 12, ..AT };
    let memory = AtScale { bandwidth: 60.0, ..AT };
    let mut state = state(2, &[&[cache], &[memory]]);
    // Cores would be enough on one node. Two of a kind go apart, one of each go together, and the third of a kind waits.
    let jobs = vec![job(0, 0, 2), job(1, 1, 2), job(2, 0, 2), job(3, 1, 2), job(4, 0, 2), job(5, 1, 2)];
    let places = round("spread-n-share", &mut state, jobs.clone());
    let nodes: Vec<Option<u32>> = places.iter().map(|at| at.as_ref().map(|at| at[0].0)).collect();
    assert_eq!((nodes[4], nodes[5]), (None, None));
    assert!(
        nodes[0].is_some() && nodes[1].is_some() && nodes[0] != nodes[2] && nodes[1] != nodes[3],
        "{nodes:?}"
    );
    // Who ends gives back.
    state.finish(JobId(0), 1.0).unwrap();
    assert_eq!(
        round("spread-n-share", &mut state, vec![job(4, 0, 2)])[0],
        Some(vec![(nodes[0].unwrap(), 2)])
    );
    // The others know of cores alone.
    let mut shared = self::state(2, &[&[cache], &[memory]]);
    assert!(round("compact-share", &mut shared, jobs).iter().all(Option::is_some));
}

#[test]
fn who_is_exclusive_is_alone_on_its_nodes() {
    let mut state = state(3, &[&[AT]]);
    let places = round("compact-exclusive", &mut state, vec![job(0, 0, 1), job(1, 0, 9), job(2, 0, 1)]);
    assert_eq!(places, [Some(vec![(0, 1)]), Some(vec![(1, 5), (2, 4)]), None]);
    state.finish(JobId(0), 1.0).unwrap();
    assert_eq!(round("compact-exclusive", &mut state, vec![job(2, 0, 1)]), [Some(vec![(0, 1)])]);
}

#[test]
fn idle_cores_of_more_nodes_are_used_where_fewer_have_none() {
    let scales = [AT, AtScale { scale: 2, time: 1.3, ..AT }];
    for (name, expected) in [("compact-share", Some(vec![(0, 4), (1, 4)])), ("spread-n-share", None)] {
        let mut state = state(2, &[&[AT], &scales]);
        // Half of each node is taken: they need two ninths of a node more than one has.
        let taken = vec![job(0, 0, 4)];
        round(name, &mut state, taken);
        let only = |node| Job {
            tasks: vec![Task { only: vec![NodeId(node)], ..Task::new(4000, 1) }],
            ..job(1, 0, 1)
        };
        let free = (0..2).find(|node| state.usage().node(NodeId(*node)).cpu_milli == 8000).unwrap();
        assert!(round(name, &mut state, vec![only(free)])[0].is_some());
        // The profile's 30% are more than the threshold allows.
        assert_eq!(round(name, &mut state, vec![job(2, 1, 8)])[0], expected, "{name}");
    }
}

#[test]
fn a_job_that_needs_more_than_there_is_gets_all_of_a_node() {
    let mut state = state(1, &[&[AtScale { ways: 64, bandwidth: 1e3, ..AT }], &[AtScale { ways: 1, ..AT }]]);
    let places = round("spread-n-share", &mut state, vec![job(0, 0, 1), job(1, 1, 1)]);
    assert_eq!(places, [Some(vec![(0, 1)]), None]);
}

#[test]
fn unlike_tasks_and_devices_find_their_nodes() {
    // As in the broker: no cores are given, and one node has nothing to divide.
    let gpus = |name: &str, count, llc_ways| NodeSpec {
        llc_ways,
        ..NodeSpec::new(name, 0, 0).with_devices(count, DeviceSpec::gpu("T4", 16))
    };
    let cluster = ClusterBuilder::new().node(gpus("a", 1, 0)).node(gpus("b", 2, 10)).build().unwrap();
    let needs = [AtScale { ways: 8, ..AT }];
    let profile = Profile { spread: Some(Spread::new(needs.to_vec()).unwrap()), ..Profile::new("p", 1.0) };
    let profiles = Profiles::new(vec![profile]).unwrap();
    let mut state = ClusterState::new(Arc::new(cluster), Arc::new(profiles));
    let part =
        |id| Job { ..Job::new(JobId(id), format!("j{id}"), Task::default().with(DeviceRequest::part(500))) };
    let places = round("spread-n-share", &mut state, (0..4).map(part).collect());
    // One finds its ways in b, and two are in a, which has none to give; b has devices left, but no ways.
    assert_eq!(places, [Some(vec![(0, 1)]), Some(vec![(0, 1)]), Some(vec![(1, 1)]), None]);
    let mut gang = part(9);
    gang.tasks = vec![Task::default().with_gpus(1), Task::default().with(DeviceRequest::part(500))];
    state.finish(JobId(2), 1.0).unwrap();
    assert_eq!(round("spread-n-share", &mut state, vec![gang])[0], Some(vec![(1, 2)]));
}
