//! In which order parts of devices are given.

use super::*;

fn part(id: u32, milli: u16) -> Job {
    job(id, Task::new(0, 1).with(DeviceRequest::part(milli)))
}

fn whole(id: u32) -> Job {
    job(id, Task::new(0, 1).with_gpus(1))
}

fn placed(decisions: &Decisions) -> Vec<u32> {
    let mut placed: Vec<u32> = decisions.placed.iter().map(|(id, _)| id.0).collect();
    placed.sort_unstable();
    placed
}

#[test]
fn jobs_that_leave_slivers_come_last_where_devices_are_scarce() {
    let mut state = state(vec![node("a", 8, 3)], Profiles::unknown());
    let mut policy = build(&config("drmaestro"));
    let mut queue = queue([part(0, 800), part(1, 800), part(2, 170), part(3, 960), whole(4)]);
    let decisions = round(policy.as_mut(), &mut state, &mut queue, 0.0);
    // The second 800 would leave 200 over, as the first does; 170 fits there, and 40 of 960 are few enough.
    assert_eq!(placed(&decisions), [0, 2, 3, 4]);
    assert_eq!(decisions.left, [(JobId(1), Reason::NoRoom)]);
}

#[test]
fn what_nobody_else_wants_is_given_in_the_same_round() {
    let mut state = state(vec![node("a", 8, 4)], Profiles::unknown());
    let mut policy = build(&config("drmaestro"));
    // Five want four devices. One whole one is left when the others are placed, for whoever waits longest.
    let mut queue = queue([part(0, 700), part(1, 700), part(2, 700), whole(3), whole(4)]);
    let decisions = round(policy.as_mut(), &mut state, &mut queue, 0.0);
    assert_eq!(placed(&decisions), [0, 1, 3, 4]);
}

#[test]
fn smaller_slivers_come_before_greater_ones() {
    let mut state = state(vec![node("a", 8, 5)], Profiles::unknown());
    let mut policy = build(&config("drmaestro"));
    // One 600 and one 900 open a device each, for somebody to complete; of the devices left, 900 leaves less over.
    let jobs = [part(0, 600), part(1, 600), part(2, 900), part(3, 900), part(4, 900), whole(5)];
    let decisions = round(policy.as_mut(), &mut state, &mut queue(jobs), 0.0);
    assert_eq!(placed(&decisions), [0, 2, 3, 4, 5]);
}

#[test]
fn rests_matter_only_to_those_who_want_whole_devices() {
    let nodes = vec![node("a", 8, 3)];
    let jobs = [part(0, 700), part(1, 700), part(2, 960), part(3, 700)];
    let decided = |most| {
        let mut policy = build(&config("drmaestro").with(&MAX_SLIVER, most));
        round(policy.as_mut(), &mut state(nodes.clone(), Profiles::unknown()), &mut queue(jobs.clone()), 0.0)
            .placed
    };
    assert_eq!(decided(0.04), decided(1.0));
}

#[test]
fn parts_are_local_where_there_is_room() {
    // 810 is given of a device in another node: 190 completes it, but nothing is scarce.
    let mut state = state(vec![node("a", 0, 1), node("b", 8, 2)], Profiles::unknown());
    let mut policy = build(&config("drmaestro"));
    let only_a = Task { only: vec![NodeId(0)], ..Task::new(0, 1).with(DeviceRequest::part(810)) };
    round(policy.as_mut(), &mut state, &mut queue([job(0, only_a)]), 0.0);
    let task = Task::new(1000, 1).with(DeviceRequest { traffic_mbps: 10, ..DeviceRequest::part(190) });
    let decisions = round(policy.as_mut(), &mut state, &mut queue([job(1, task)]), 1.0);
    let (node, devices) = home(&decisions, 1).unwrap();
    assert_eq!(node, 1);
    assert!(devices[0] > 0, "remote: {devices:?}");
}

/// A part waits; whenever a device is free, a job that came later wants the whole of it.
fn rounds_overtaken(config: &PolicyConfig, most: u32) -> u32 {
    let mut state = state(vec![node("a", 8, 2)], Profiles::unknown());
    let mut policy = build(config);
    let mut queue = queue([part(0, 700)]);
    round(policy.as_mut(), &mut state, &mut queue, 0.0);
    queue.push(Arc::new(Job { submit_s: 0.5, ..part(1, 700) })).unwrap();
    for now in 0..most {
        let newcomer = now + 2;
        queue.push(Arc::new(Job { submit_s: f64::from(now) + 1.0, ..whole(newcomer) })).unwrap();
        let decisions = round(policy.as_mut(), &mut state, &mut queue, f64::from(now) + 1.0);
        if placed(&decisions).contains(&1) {
            return now;
        }
        assert_eq!(placed(&decisions), [newcomer]);
        state.finish(JobId(newcomer), f64::from(now) + 1.5).unwrap();
    }
    most
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nobody_is_overtaken_in_more_rounds_than_are_set(rounds in 0u32..40) {
        let config = config("drmaestro").with(&SLIVER_ROUNDS, f64::from(rounds));
        prop_assert_eq!(rounds_overtaken(&config, 100), rounds);
        let never = config.with(&SLIVER_ROUNDS, f64::INFINITY);
        prop_assert_eq!(rounds_overtaken(&never, rounds), rounds);
    }

    #[test]
    fn nothing_is_held_back_where_there_is_plenty(
        nodes in prop::collection::vec((0u64..16, 0usize..5), 1..6),
        parts in prop::collection::vec(1u16..=1000, 1..12),
    ) {
        let nodes: Vec<NodeSpec> =
            nodes.iter().enumerate().map(|(i, (cores, gpus))| node(&format!("n{i}"), *cores, *gpus)).collect();
        let gpus: usize = nodes.iter().map(|node| node.devices.len()).sum();
        let jobs: Vec<Job> = parts.iter().zip(0..).take(gpus).map(|(milli, id)| part(id, *milli)).collect();
        let decided = |most| {
            let mut policy = build(&config("drmaestro").with(&MAX_SLIVER, most));
            let mut state = state(nodes.clone(), Profiles::unknown());
            round(policy.as_mut(), &mut state, &mut queue(jobs.clone()), 0.0).placed
        };
        prop_assert_eq!(decided(0.04), decided(1.0));
        prop_assert_eq!(decided(0.0).len(), jobs.len());
    }

    #[test]
    fn nothing_stays_free_that_somebody_who_waits_could_use(
        nodes in clusters(), jobs in jobs(), max_sliver in 0.0..=1.0f64,
    ) {
        let config = config("drmaestro").with(&NETWORK_AWARE, false).with(&MAX_SLIVER, max_sliver);
        let mut state = state(nodes, interfering());
        // Gangs can keep each other from what they want.
        let alone = jobs.into_iter().filter(|job| job.tasks.len() == 1 && job.tasks[0].devices.len() <= 1);
        let mut queue = queue(alone);
        round(build(&config).as_mut(), &mut state, &mut queue, 0.0);
        let mut unlimited = build(&config.with(&MAX_SLIVER, 1.0));
        let again = round(unlimited.as_mut(), &mut state, &mut queue, 1.0);
        prop_assert_eq!(placed(&again), Vec::<u32>::new());
    }
}
