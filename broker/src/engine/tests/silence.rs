//! Silence that is the broker's own, or everybody's, and what follows from that of one node.

use super::*;

async fn state(world: &World, lease: &Lease) -> LeaseState {
    world.lease(lease.id).await.state
}

#[tokio::test]
async fn a_pause_of_the_broker_is_no_silence_of_nodes_and_holders() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[1, 1, 1]).await;
    let lease = world.ask("ann", world.request("m", 3, 600, 0)).await.unwrap();
    let waits = world.ask("bob", world.request("m", 1, 600, 0)).await.unwrap();
    world.advance_with(&mut nodes, 3).await;
    // The process is stopped for longer than leases last, or its machine sleeps.
    for pause in [9_000, 600_000] {
        world.clock.advance(pause);
        world.engine.settle().await;
        assert_eq!(state(&world, &lease).await, LeaseState::Active);
        assert_eq!(state(&world, &waits).await, LeaseState::Waiting);
        for node in &nodes {
            assert_eq!(world.engine.node(&boss(), &node.about.name).unwrap().state, "ready");
        }
        assert_eq!(world.engine.counters().nodes_lost, 0);
        // The grace is that of a restart, and not more.
        world.advance_with(&mut nodes, 2).await;
        world.engine.renew(&tenant_named("ann"), lease.id).await.unwrap();
        world.engine.renew(&tenant_named("bob"), waits.id).await.unwrap();
    }
    for _ in 0..8 {
        world.advance_with(&mut nodes[1..], 1).await;
    }
    assert_eq!(world.engine.node(&boss(), "n0").unwrap().state, "lost");
    world.check();
}

#[tokio::test]
async fn when_all_fall_silent_together_nothing_ends() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[1, 1, 1]).await;
    let lease = world.ask("ann", world.request("m", 2, 600, 0)).await.unwrap();
    let given = world.ask("ann", world.request("m", 1, 300, 0)).await.unwrap();
    world.advance_with(&mut nodes, 3).await;
    // The broker's link is down: neither nodes nor holders are heard.
    world.advance(90_000).await;
    assert_eq!(world.engine.counters().nodes_lost, 0);
    assert_eq!(world.engine.node(&boss(), "n0").unwrap().state, "silent");
    assert_eq!(state(&world, &lease).await, LeaseState::Active);
    // Nothing is given of nodes that are not heard.
    let new = world.ask("cay", world.request("m", 1, 100, GIB)).await.unwrap();
    assert_eq!(new.state, LeaseState::Waiting);
    world.engine.release(&tenant_named("ann"), given.id).await.unwrap();
    assert_eq!(state(&world, &given).await, LeaseState::Ending);
    // One comes first; the others have their time.
    nodes[0].beat(&world.engine).await.unwrap();
    world.advance(1_000).await;
    nodes[1].beat(&world.engine).await.unwrap();
    world.advance(4_000).await;
    for node in &mut nodes {
        node.beat(&world.engine).await.unwrap();
    }
    world.advance_with(&mut nodes, 2).await;
    assert_eq!(world.engine.counters().nodes_lost, 0);
    assert_eq!(
        (state(&world, &lease).await, state(&world, &given).await),
        (LeaseState::Active, LeaseState::Ended)
    );
    assert_eq!(state(&world, &new).await, LeaseState::Active);
    // Holders have all their time anew; who does not use it loses the lease.
    world.advance_with(&mut nodes, 50).await;
    assert_eq!(state(&world, &lease).await, LeaseState::Active);
    world.advance_with(&mut nodes, 20).await;
    assert_eq!(state(&world, &lease).await, LeaseState::Ended);
    world.check();
}

#[tokio::test]
async fn most_nodes_are_not_waited_for_for_ever() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[1, 1, 1]).await;
    let lease = world.ask("ann", world.request("machine-of-n2", 1, 600, 0)).await.unwrap();
    assert_eq!(lease.grants[0].node, "n2");
    world.advance_with(&mut nodes, 3).await;
    world.advance_with(&mut nodes[2..], 100).await;
    assert_eq!(world.engine.node(&boss(), "n0").unwrap().state, "silent");
    assert_eq!(state(&world, &lease).await, LeaseState::Active);
    world.advance_with(&mut nodes[2..], 600).await;
    assert_eq!(world.engine.node(&boss(), "n0").unwrap().state, "lost");
    assert_eq!(state(&world, &lease).await, LeaseState::Ended);
    world.check();
}

/// Time passes in which one node is not heard, and its lease is renewed.
async fn cut_off(world: &World, others: &mut [FakeNode], leases: &[&Lease], seconds: u64) {
    for _ in 0..seconds.div_ceil(10) {
        world.advance_with(others, 10).await;
        for lease in leases {
            world.engine.renew(&tenant_named("ann"), lease.id).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_node_that_was_cut_off_from_the_broker_comes_back_with_its_leases() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[1, 1]).await;
    let own = world.ask("ann", world.request("machine-of-n0", 1, 600, 0)).await.unwrap();
    nodes[0].begin(&own);
    let both = world.ask("ann", world.request("machine-of-n0", 2, 300, 0)).await.unwrap();
    nodes.iter_mut().for_each(|node| node.begin(&both));
    world.advance_with(&mut nodes, 2).await;
    let before = nodes[0].serving.clone();
    cut_off(&world, &mut nodes[1..], &[&own, &both], 60).await;
    assert_eq!(world.engine.node(&boss(), "n0").unwrap().state, "lost");
    // Its devices are given to nobody meanwhile.
    world.check();
    nodes[0].beat(&world.engine).await.unwrap();
    world.engine.settle().await;
    assert_eq!(world.engine.node(&boss(), "n0").unwrap().state, "ready");
    assert_eq!((state(&world, &own).await, nodes[0].serving.clone()), (LeaseState::Active, before));
    assert_eq!(state(&world, &both).await, LeaseState::Active);
    world.check();
}

#[tokio::test]
async fn a_lease_that_ended_while_its_node_was_cut_off_is_ended_there() {
    for restarted in [false, true] {
        let (mut world, mut nodes) = with_nodes(Settings::default(), &[1, 1]).await;
        let lease = world.ask("ann", world.request("machine-of-n0", 1, 600, 0)).await.unwrap();
        nodes[0].begin(&lease);
        world.advance_with(&mut nodes, 2).await;
        cut_off(&world, &mut nodes[1..], &[&lease], 10).await;
        world.engine.release(&tenant_named("ann"), lease.id).await.unwrap();
        assert_eq!(state(&world, &lease).await, LeaseState::Ended, "the tenant has given it back");
        if restarted {
            world.restart();
            nodes[1].beat(&world.engine).await.unwrap();
        }
        nodes[0].beat(&world.engine).await.unwrap();
        assert!(nodes[0].serving.is_empty(), "what was given back goes on");
        nodes[0].beat(&world.engine).await.unwrap();
        let next = world.ask("bob", world.request("machine-of-n0", 1, 1000, 0)).await.unwrap();
        assert_eq!((next.state, next.grants[0].node.as_str()), (LeaseState::Active, "n0"));
        assert!(world.engine.0.core.lock().gone.is_empty(), "it is remembered for ever");
        world.check();
    }
}

#[tokio::test]
async fn what_was_cut_off_with_its_holder_is_taken_up_again_if_it_is_free() {
    for wanted in [false, true] {
        let (world, mut nodes) = with_nodes(Settings::default(), &[1, 1, 1]).await;
        let lease = world.ask("ann", world.request("machine-of-n0", 1, 600, 0)).await.unwrap();
        nodes[0].begin(&lease);
        world.advance_with(&mut nodes, 2).await;
        // Longer than a lease is good for.
        world.advance_with(&mut nodes[1..], 70).await;
        assert_eq!(state(&world, &lease).await, LeaseState::Ended);
        if wanted {
            // The administrator gives the machine up, and sets up another one of the same name.
            world.engine.remove_node(&boss(), "n0").await.unwrap();
            let mut twin = FakeNode::new("n0", 1, 16 * GIB);
            twin.about.instance = 7;
            twin.register(&world.engine).await.unwrap();
            world.engine.settle().await;
            let other = world.ask("bob", world.request("machine-of-n0", 1, 1000, 0)).await.unwrap();
            assert_eq!((other.state, other.grants[0].node.as_str()), (LeaseState::Active, "n0"));
            world.advance_with(&mut nodes[1..], 8).await;
            nodes[0].about.instance = 8;
            nodes[0].register(&world.engine).await.unwrap();
            world.advance_with(&mut nodes, 20).await;
            assert!(!nodes[0].serving.contains(&lease.id), "one device, two leases");
            assert_eq!(state(&world, &lease).await, LeaseState::Ended);
            assert_eq!(state(&world, &other).await, LeaseState::Active);
        } else {
            nodes[0].beat(&world.engine).await.unwrap();
            nodes[0].beat(&world.engine).await.unwrap();
            assert_eq!(nodes[0].serving, [lease.id]);
            assert_eq!(state(&world, &lease).await, LeaseState::Active);
            let renewed = world.engine.renew(&tenant_named("ann"), lease.id).await.unwrap();
            assert_eq!(world.claims(&renewed).grants, lease.grants);
            // Longer than what has ended is remembered.
            world.advance_with(&mut nodes, 2).await;
            assert_eq!(world.engine.counters().adopted, 1);
        }
        world.check();
    }
}
