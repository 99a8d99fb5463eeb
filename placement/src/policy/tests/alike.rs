//! Nodes that are alike are looked at as one. That this finds the same arcs in the same order as looking at each node is checked
//! in all tests of this crate, wherever devices are looked for (`flow_model::places`); here are clusters where it matters.

use super::*;
use crate::policy::SPREAD;

/// Clusters with few sorts of nodes, behind a switch or not, and clients.
fn few_sorts() -> impl Strategy<Value = Vec<(u8, bool)>> {
    prop::collection::vec((0u8..4, any::<bool>()), 2..24)
}

fn build_state(sorts: &[(u8, bool)], loads: &[u64]) -> ClusterState {
    let switch = SwitchSpec { name: "s".into(), parent: None, uplink_mbps: 700 };
    let nodes = sorts.iter().enumerate().map(|(i, &(sort, behind))| {
        let gpu = match sort {
            1 => DeviceSpec { partitionable: false, ..DeviceSpec::gpu("T4", 16) },
            2 => DeviceSpec { alone: true, ..DeviceSpec::gpu("V100", 32) },
            _ => DeviceSpec::gpu("T4", 16),
        };
        let count = if sort == 3 { 0 } else { 3 };
        let node = NodeSpec::new(format!("n{i}"), 4000, 64).with_devices(count, gpu).with_nic(1000);
        NodeSpec { switch: behind.then(|| "s".into()), ..node }
    });
    let cluster = ClusterBuilder::new().switch(switch).nodes(nodes).build().unwrap();
    let profiles = vec![
        Profile { remote_s: 130.0, sensitivity: 0.7, ..Profile::new("a", 100.0) },
        Profile { remote_s: 55.0, ..Profile::new("b", 50.0) },
    ];
    let mut state = ClusterState::new(Arc::new(cluster), Arc::new(Profiles::new(profiles).unwrap()));
    for (link, load) in loads.iter().take(sorts.len()).enumerate() {
        state.set_external_mbps(LinkId(link as u32), *load * 100).unwrap();
    }
    state
}

fn requests() -> impl Strategy<Value = Vec<Job>> {
    // Where it runs, how many, which part, its memory, its traffic, its goal and profile.
    let one = (0u32..24, 1u16..3, 0usize..5, 0u64..10, 0u64..4, prop::option::of(90.0..140.0f64), 0u32..2);
    prop::collection::vec(one, 1..30).prop_map(|jobs| {
        let jobs = jobs.into_iter().enumerate();
        jobs.map(|(i, (home, count, part, memory_mib, traffic, goal_s, profile))| {
            let milli = [WHOLE, WHOLE, 250, 500, 300][part];
            let count = if milli == WHOLE { count } else { 1 };
            let (kind, models) = (DeviceKind::Gpu, ModelSet::ANY);
            let request = DeviceRequest {
                count,
                milli,
                memory_mib,
                traffic_mbps: traffic * 50,
                kind,
                models,
                ..DeviceRequest::gpus(1)
            };
            let task = Task { only: vec![NodeId(home)], ..Task::default().with(request) };
            Job { profile: ProfileId(profile), goal_s, submit_s: i as f64, ..job(i as u32, task) }
        })
        .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn groups_follow_what_changes(
        sorts in few_sorts(),
        jobs in requests(),
        loads in prop::collection::vec(0u64..4, 24),
        spread in any::<bool>(),
    ) {
        let mut state = build_state(&sorts, &loads);
        let mut policy = build(&config("drmaestro").with(&SPREAD, spread));
        let mut queue = Queue::new();
        let mut placed = 0;
        for (number, mut job) in jobs.into_iter().enumerate() {
            job.tasks[0].only = vec![NodeId(job.tasks[0].only[0].0 % sorts.len() as u32)];
            policy.watch(job.id);
            queue.push(Arc::new(job)).unwrap();
            placed += round(policy.as_mut(), &mut state, &mut queue, number as f64).placed.len();
            let ids: Vec<JobId> = state.all_running().map(|running| running.job.id).collect();
            if number % 3 == 0 && let Some(id) = ids.first() {
                state.finish(*id, number as f64).unwrap();
            }
            let link = LinkId((number % sorts.len()) as u32);
            state.set_external_mbps(link, loads[number % loads.len()] * 150).unwrap();
        }
        prop_assert!(placed > 0 || sorts.iter().all(|(sort, _)| *sort == 3) || state.running_count() == 0);
    }
}

/// How often a round looks at places, in a cluster of so many nodes where so many requests wait that nothing fits.
fn looks(nodes: u32, waiting: u32) -> u64 {
    let node =
        |i| NodeSpec::new(format!("n{i}"), 0, 0).with_nic(1000).with_devices(2, DeviceSpec::gpu("T4", 16));
    let client = |i| NodeSpec::new(format!("c{i}"), 0, 0).with_nic(1000);
    let cluster = ClusterBuilder::new().nodes((0..nodes).map(node)).nodes((0..waiting).map(client));
    let mut state = ClusterState::new(Arc::new(cluster.build().unwrap()), Arc::new(Profiles::unknown()));
    let mut policy = build(&config("drmaestro").with(&SPREAD, true));
    let request = |id: u32, home: u32, milli| {
        let wish = DeviceRequest { milli, traffic_mbps: 1, ..DeviceRequest::gpus(1) };
        job(id, Task { only: vec![NodeId(nodes + home)], ..Task::default().with(wish) })
    };
    // A part of each device.
    let mut queue = queue((0..2 * nodes).map(|id| request(id, id % waiting, 250)));
    assert_eq!(round(policy.as_mut(), &mut state, &mut queue, 0.0).placed.len(), 2 * nodes as usize);
    (0..waiting).for_each(|i| queue.push(Arc::new(request(2 * nodes + i, i, WHOLE))).unwrap());
    round(policy.as_mut(), &mut state, &mut queue, 1.0);
    let decisions = round(policy.as_mut(), &mut state, &mut queue, 2.0);
    assert_eq!(decisions.left.len(), waiting as usize);
    decisions.work.looks
}

#[test]
fn what_a_round_looks_at_does_not_grow_with_nodes_that_are_alike() {
    let few = looks(20, 30);
    assert_eq!(looks(200, 30), few, "more nodes that are alike");
    let most = 3 * few;
    assert!(
        (few + 1..=most).contains(&looks(20, 60)),
        "twice as many requests: more than {few}, at most {most}"
    );
}
