//! Whatever happens in whatever order, nothing is granted twice.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Act {
    Ask { machine: u8, gpus: u16, share: u16, gib: u64 },
    Release(u8),
    Renew(u8),
    Change { which: u8, share: u16, gib: u64 },
    Beat(u8),
    Stale(u8),
    Advance(u16),
    Drain(u8, bool),
    Reregister(u8),
    Remove(u8),
    Fail(bool),
    Restart,
}

fn act() -> impl Strategy<Value = Act> {
    let share = prop_oneof![Just(1000u16), 1..1000u16];
    prop_oneof![
        8 => (0..5u8, 1..4u16, share.clone(), 0..12u64)
            .prop_map(|(machine, gpus, share, gib)| Act::Ask { machine, gpus, share, gib }),
        4 => any::<u8>().prop_map(Act::Release),
        2 => any::<u8>().prop_map(Act::Renew),
        3 => (any::<u8>(), share, 0..17u64)
            .prop_map(|(which, share, gib)| Act::Change { which, share, gib }),
        8 => (0..3u8).prop_map(Act::Beat),
        1 => (0..3u8).prop_map(Act::Stale),
        3 => (0..8000u16).prop_map(Act::Advance),
        1 => (0..3u8, any::<bool>()).prop_map(|(node, drain)| Act::Drain(node, drain)),
        1 => (0..3u8).prop_map(Act::Reregister),
        1 => (0..3u8).prop_map(Act::Remove),
        1 => any::<bool>().prop_map(Act::Fail),
        1 => Just(Act::Restart),
    ]
}

async fn run(acts: Vec<Act>) {
    let (mut world, mut nodes) =
        with_nodes(Settings { lease_ttl_s: 20, ..Settings::default() }, &[1, 2, 2]).await;
    let ann = tenant_named("ann");
    let mut ids: Vec<LeaseId> = Vec::new();
    let pick = |ids: &[LeaseId], which: u8| (!ids.is_empty()).then(|| ids[usize::from(which) % ids.len()]);
    for act in acts {
        match act {
            Act::Ask { machine, gpus, share, gib } => {
                let machine = format!("machine-of-n{machine}");
                let request = world.request(&machine, gpus, share, gib * GIB + gib);
                if let Ok(lease) = world.engine.request_lease(&ann, request).await {
                    ids.push(lease.id);
                }
            }
            Act::Release(which) => {
                if let Some(id) = pick(&ids, which) {
                    let _ = world.engine.release(&ann, id).await;
                }
            }
            Act::Renew(which) => {
                if let Some(id) = pick(&ids, which) {
                    let _ = world.engine.renew(&ann, id).await;
                }
            }
            Act::Change { which, share, gib } => {
                if let Some(id) = pick(&ids, which) {
                    let change =
                        LeaseChange { share_milli: Some(share), memory: (gib > 0).then(|| gib * GIB - 1) };
                    let _ = world.engine.change(&ann, id, change).await;
                }
            }
            Act::Beat(i) => {
                let node = &mut nodes[usize::from(i)];
                if matches!(node.beat(&world.engine).await, Err(problem) if problem.code == ErrorCode::Conflict)
                {
                    let _ = node.register(&world.engine).await;
                }
            }
            Act::Stale(i) => {
                let node = &mut nodes[usize::from(i)];
                node.serving.push(LeaseId::random());
            }
            Act::Advance(ms) => world.clock.advance(ms.into()),
            Act::Drain(i, drain) => drop(world.engine.drain(&boss(), &format!("n{i}"), drain).await),
            Act::Reregister(i) => {
                let node = &mut nodes[usize::from(i)];
                node.about.instance += 1;
                if node.register(&world.engine).await.is_err() {
                    node.about.instance -= 1;
                }
            }
            Act::Remove(i) => drop(world.engine.remove_node(&boss(), &format!("n{i}")).await),
            Act::Fail(fail) => world.store.fail(fail.then_some("full")),
            Act::Restart => world.restart(),
        }
        world.engine.settle().await;
        world.check();
    }
    // When all is well again, all that was given back is free, and everybody who waits can be served.
    world.store.fail(None);
    for id in ids {
        let _ = world.engine.release(&ann, id).await;
    }
    for _ in 0..3 {
        for node in &mut nodes {
            if node.beat(&world.engine).await.is_err() {
                node.about.instance += 1;
                world.clock.advance(3_000);
                node.register(&world.engine).await.unwrap();
            }
            world.engine.drain(&boss(), &node.about.name, false).await.unwrap();
        }
        world.engine.settle().await;
    }
    // What nothing proves is to be ended after a while.
    world.advance_with(&mut nodes, 15).await;
    world.check();
    let counters = world.engine.counters();
    assert_eq!((counters.active, counters.waiting, counters.ending), (0, 0, 0));
    let all = world.ask("ann", world.request("m", 5, 1000, 0)).await.unwrap();
    assert_eq!(all.state, LeaseState::Active, "{}", all.reason);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, ..ProptestConfig::default() })]
    #[test]
    fn nothing_is_granted_twice(acts in prop::collection::vec(act(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(acts));
    }
}
