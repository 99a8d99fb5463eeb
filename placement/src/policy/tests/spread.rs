//! Where parts of devices go: to devices that others use, or to free ones.

use super::*;

fn part(id: u32, milli: u16) -> Job {
    job(id, Task::new(0, 1).with(DeviceRequest::part(milli)))
}

fn spread(name: &str) -> PolicyConfig {
    config(name).with(&SPREAD, true)
}

/// The devices of each job that was placed, by its number.
fn devices(decisions: &Decisions) -> Vec<(u32, u32)> {
    let device = |placement: &crate::Placement| placement.tasks[0].grants[0].device.0;
    let mut devices: Vec<(u32, u32)> =
        decisions.placed.iter().map(|(id, placement)| (id.0, device(placement))).collect();
    devices.sort_unstable();
    devices
}

/// The devices that parts get that arrive one after another, or all in one round.
fn given(config: &PolicyConfig, nodes: &[usize], parts: &[u16], at_once: bool) -> Vec<u32> {
    let nodes = nodes.iter().enumerate().map(|(i, gpus)| node(&format!("n{i}"), 8, *gpus)).collect();
    let mut state = state(nodes, Profiles::unknown());
    let mut policy = build(config);
    let jobs = parts.iter().zip(0..).map(|(milli, id)| part(id, *milli));
    let rounds: Vec<Vec<Job>> = match at_once {
        true => vec![jobs.collect()],
        false => jobs.map(|job| vec![job]).collect(),
    };
    let mut found = Vec::new();
    for jobs in rounds {
        let decisions = round(policy.as_mut(), &mut state, &mut queue(jobs), 0.0);
        assert_eq!(decisions.left, []);
        found.extend(devices(&decisions).into_iter().map(|(_, device)| device));
    }
    found
}

#[test]
fn parts_are_spread_only_where_that_is_set() {
    for name in ["drmaestro", "firmament"] {
        for at_once in [false, true] {
            for nodes in [&[2][..], &[1, 1]] {
                let packed = given(&config(name), nodes, &[500, 500], at_once);
                assert_eq!(packed[0], packed[1], "{name} {nodes:?} {at_once}");
                let mut apart = given(&spread(name), nodes, &[500, 500], at_once);
                apart.sort_unstable();
                assert_eq!(apart, [0, 1], "{name} {nodes:?} {at_once}");
            }
        }
    }
}

#[test]
fn the_device_with_the_most_left_comes_first() {
    for nodes in [&[3][..], &[1, 1, 1], &[1, 2]] {
        // 300, 200 and 100 are given: the next ones go to 100, then to the two that have 200 and 300.
        let found = given(&spread("drmaestro"), nodes, &[300, 200, 100, 150, 150, 150], false);
        let [a, b, c] = [found[0], found[1], found[2]];
        assert!(a != b && b != c && a != c, "{nodes:?}: {found:?}");
        assert_eq!(found[3..], [c, b, c], "{nodes:?}");
        // Eight at once: as evenly as can be.
        let found = given(&spread("drmaestro"), nodes, &[100; 8], true);
        let mut counts = [0, 1, 2].map(|device| found.iter().filter(|&&d| d == device).count());
        counts.sort_unstable();
        assert_eq!(counts, [2, 3, 3], "{nodes:?}: {found:?}");
    }
}

#[test]
fn spreading_costs_less_than_anything_else() {
    // The program's own node has a device that is half used, the other one a free one: what is local is taken even so.
    let mut state = state(vec![node("a", 8, 1), node("b", 8, 1)], Profiles::unknown());
    let mut policy = build(&spread("drmaestro"));
    for id in 0..2 {
        let mut job = part(id, 500);
        job.tasks[0].only = vec![NodeId(0)];
        let decisions = round(policy.as_mut(), &mut state, &mut queue([job]), 0.0);
        assert_eq!(devices(&decisions), [(id, 0)]);
    }
}
