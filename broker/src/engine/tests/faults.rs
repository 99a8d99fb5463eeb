//! The disk fails, the broker dies.

use super::*;

#[tokio::test]
async fn what_cannot_be_stored_does_not_happen_and_works_again_later() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[2]).await;
    let ann = tenant_named("ann");
    let lease = world.ask("ann", world.request("m", 1, 500, GIB)).await.unwrap();
    nodes[0].beat(&world.engine).await.unwrap();
    world.store.fail(Some("disk full"));
    let refused = world.ask("ann", world.request("m", 1, 500, GIB)).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unavailable);
    assert!(refused.message.contains("disk full"), "{}", refused.message);
    let change = LeaseChange { share_milli: Some(100), memory: None };
    assert_eq!(code(world.engine.change(&ann, lease.id, change.clone()).await), ErrorCode::Unavailable);
    assert_eq!(code(world.engine.release(&ann, lease.id).await), ErrorCode::Unavailable);
    assert_eq!(code(world.engine.drain(&boss(), "n0", true).await), ErrorCode::Unavailable);
    assert!(world.engine.health().await.status.contains("disk full"));
    let seen = world.lease(lease.id).await;
    assert_eq!(
        (seen.state, seen.version, seen.grants.clone()),
        (LeaseState::Active, 1, lease.grants.clone())
    );
    world.check();
    // Renewing and heartbeats need no disk; a lease whose end cannot be stored ends when it can.
    nodes[0].beat(&world.engine).await.unwrap();
    world.engine.renew(&ann, lease.id).await.unwrap();
    world.advance_with(&mut nodes, 61).await;
    assert_eq!(world.lease(lease.id).await.state, LeaseState::Active);
    world.store.fail(None);
    nodes[0].beat(&world.engine).await.unwrap();
    world.engine.settle().await;
    nodes[0].beat(&world.engine).await.unwrap();
    assert_eq!(world.lease(lease.id).await.state, LeaseState::Ended);
    while world.engine.health().await.status != "ok" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let again = world.ask("ann", world.request("m", 1, 500, GIB)).await.unwrap();
    assert_eq!(again.state, LeaseState::Active);
    world.check();
}

#[tokio::test]
async fn health_says_that_nothing_can_be_stored_before_anybody_wants_to() {
    let (world, _nodes) = with_nodes(Settings::default(), &[1]).await;
    assert_eq!(world.engine.health().await.status, "ok");
    world.store.fail(Some("disk full"));
    world.advance(1500).await;
    for _ in 0..60 {
        assert!(world.engine.health().await.status.contains("disk full"));
    }
    // Little things can be stored again, and what needs more cannot: that is not well.
    world.store.fail(None);
    world.store.fail_checks(Some("nearly full"));
    world.engine.drain(&boss(), "n0", true).await.unwrap();
    for _ in 0..60 {
        let status = world.engine.health().await.status;
        assert!(status.contains("full"), "{status}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.store.fail_checks(None);
    while world.engine.health().await.status != "ok" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_grant_that_cannot_be_stored_is_made_when_it_can() {
    let (world, mut nodes) =
        with_nodes(Settings { round_interval_ms: 20, ..Settings::default() }, &[1]).await;
    let first = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    let waits = world.ask("bob", world.request("m", 1, 1000, 0)).await.unwrap();
    nodes[0].beat(&world.engine).await.unwrap();
    world.engine.release(&tenant_named("ann"), first.id).await.unwrap();
    world.store.fail(Some("read-only"));
    // What the node says of the end cannot be stored, and it is told so.
    assert_eq!(code(nodes[0].beat(&world.engine).await), ErrorCode::Unavailable);
    assert_eq!(world.lease(first.id).await.state, LeaseState::Ending);
    world.engine.settle().await;
    assert_eq!(world.lease(waits.id).await.state, LeaseState::Waiting);
    world.store.fail(None);
    nodes[0].beat(&world.engine).await.unwrap();
    world.engine.settle().await;
    assert_eq!(world.lease(waits.id).await.state, LeaseState::Active);
    world.check();
}

#[tokio::test]
async fn after_a_restart_leases_go_on_and_nothing_is_granted_before_nodes_are_heard() {
    let (mut world, mut nodes) = with_nodes(Settings::default(), &[1, 1]).await;
    let first = world.ask("ann", world.request("machine-of-n0", 1, 600, GIB)).await.unwrap();
    let ending = world.ask("ann", world.request("machine-of-n1", 1, 600, GIB)).await.unwrap();
    for node in &mut nodes {
        node.beat(&world.engine).await.unwrap();
    }
    world.clock.advance(1000);
    let waits = world.ask("bob", world.request("m", 2, 600, GIB)).await.unwrap();
    world.engine.release(&tenant_named("ann"), ending.id).await.unwrap();
    let before = world.engine.orders(&boss(), "n0", 0, 0).await.unwrap().version;
    world.restart();
    assert_eq!(world.lease(first.id).await.state, LeaseState::Active);
    assert_eq!(world.lease(ending.id).await.state, LeaseState::Ending);
    assert_eq!(world.lease(waits.id).await.state, LeaseState::Waiting);
    // Nodes get no orders before they have said what they serve: it may be more than the state tells.
    assert_eq!(world.engine.orders(&boss(), "n0", 0, 0).await.unwrap().version, 0);
    // Nothing is known of what nodes serve.
    let new = world.ask("cay", world.request("m", 1, 100, GIB)).await.unwrap();
    assert_eq!(new.state, LeaseState::Waiting);
    for node in &mut nodes {
        node.beat(&world.engine).await.unwrap();
    }
    world.engine.settle().await;
    assert!(world.engine.orders(&boss(), "n0", 0, 0).await.unwrap().version > before);
    assert_eq!(world.lease(ending.id).await.state, LeaseState::Ended);
    assert_eq!(world.lease(new.id).await.state, LeaseState::Active);
    assert!(world.engine.renew(&tenant_named("ann"), first.id).await.unwrap().token.is_some());
    assert!(nodes[0].serving.contains(&first.id));
    world.check();
    // A node that isn't heard of in time is lost, as ever.
    world.restart();
    world.advance(5_000).await;
    nodes[0].beat(&world.engine).await.unwrap();
    world.advance(2_000).await;
    assert_eq!(world.engine.node(&boss(), "n0").unwrap().state, "ready");
    assert_eq!(world.engine.node(&boss(), "n1").unwrap().state, "lost");
}

#[tokio::test]
async fn how_often_a_request_was_left_counts_on_after_a_restart() {
    let (mut world, mut nodes) = with_nodes(Settings::default(), &[1]).await;
    let first = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    let waits = world.ask("bob", world.request("m", 1, 1000, 0)).await.unwrap();
    let rounds = |world: &World| {
        let jobs = world.engine.jobs(&boss()).unwrap();
        let job = jobs.into_iter().find(|job| job.lease == waits.id).unwrap();
        assert_eq!((job.state.as_str(), job.place), ("waiting", 1));
        job.rounds
    };
    for _ in 0..3 {
        // Something that begins a round, and the time after which it counts.
        world.clock.advance(1_000);
        nodes[0].beat(&world.engine).await.unwrap();
        world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    }
    let before = rounds(&world);
    assert!(before >= 3, "{before}");
    let stored = |world: &World| world.store.clone().load().unwrap().rounds[&waits.id];
    assert_eq!(stored(&world), before);
    world.restart();
    // It goes on from there; the start begins a round, too.
    assert!((before..before + 2).contains(&rounds(&world)));
    nodes[0].beat(&world.engine).await.unwrap();
    world.clock.advance(1_000);
    world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    let after = rounds(&world);
    assert!(after > before, "{after} {before}");
    assert_eq!(stored(&world), after);
    // What is over is forgotten.
    world.engine.release(&tenant_named("ann"), first.id).await.unwrap();
    nodes[0].beat(&world.engine).await.unwrap();
    world.engine.settle().await;
    assert_eq!(world.lease(waits.id).await.state, LeaseState::Active);
    world.engine.release(&tenant_named("bob"), waits.id).await.unwrap();
    nodes[0].beat(&world.engine).await.unwrap();
    assert!(!world.store.clone().load().unwrap().rounds.contains_key(&waits.id));
    world.check();
}

/// Something is done that needs some commits; the broker dies after each number of them.
#[tokio::test]
async fn at_whichever_commit_the_broker_dies_nothing_is_lost_or_granted_twice() {
    let mut died = 0;
    for commits in 0.. {
        let (mut world, mut nodes) = with_nodes(Settings::default(), &[1, 1]).await;
        let before = world.store.commits();
        world.store.fail_after(commits);
        // What was promised: leases, and whether they were given back.
        let mut promised: Vec<(Lease, bool)> = Vec::new();
        for (share, gpus) in [(600, 1), (300, 2), (1000, 1), (400, 1)] {
            if let Ok(lease) = world.ask("ann", world.request("m", gpus, share, GIB)).await {
                promised.push((lease, false));
            }
            for node in &mut nodes {
                let _ = node.beat(&world.engine).await;
            }
            if let Some((lease, given)) = promised.first_mut()
                && world.engine.release(&tenant_named("ann"), lease.id).await.is_ok()
            {
                *given = true;
            }
        }
        let all = world.store.commits() - before < commits;
        died += u32::from(!all);
        world.restart();
        world.check();
        for (lease, given) in &promised {
            let now = world.engine.lease(&tenant_named("ann"), lease.id, 0).await;
            match (lease.state, given) {
                // It was said to be active: it still is, with what it had.
                (LeaseState::Active, false) => assert_eq!(now.unwrap().grants, lease.grants),
                (_, true) => assert!(now.is_err() || now.unwrap().token.is_none()),
                _ => assert!(now.is_ok(), "a lease was lost"),
            }
        }
        for _ in 0..3 {
            for node in &mut nodes {
                node.beat(&world.engine).await.unwrap();
            }
            world.engine.settle().await;
            world.check();
        }
        for node in &nodes {
            // Nodes serve what they are to serve, and nothing else.
            let orders = world.engine.orders(&boss(), &node.about.name, 0, 0).await.unwrap();
            let mut ordered: Vec<LeaseId> = orders.leases.iter().map(|lease| lease.lease).collect();
            let mut serving = node.serving.clone();
            ordered.sort();
            serving.sort();
            assert_eq!(ordered, serving);
        }
        if all {
            break;
        }
    }
    assert!(died > 5, "{died}");
}

#[tokio::test]
async fn a_node_that_follows_orders_from_the_future_gets_newer_ones() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[1]).await;
    let future = world.engine.orders(&boss(), "n0", 0, 0).await.unwrap().version + 1_000_000_000;
    nodes[0].applied = future;
    let beat = nodes[0].heartbeat(Vec::new());
    let orders = world.engine.heartbeat(&nodes[0].caller(), "n0", beat).await.unwrap();
    assert!(orders.version > future);
}
