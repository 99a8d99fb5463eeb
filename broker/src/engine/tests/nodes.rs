//! Nodes come, go and come back.

use super::*;

#[tokio::test]
async fn a_lost_nodes_leases_end_the_queue_moves_and_it_comes_back() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[1, 1]).await;
    // One lease on both nodes, another one that waits.
    let both = world.ask("ann", world.request("m", 2, 600, 0)).await.unwrap();
    let waits = world.ask("bob", world.request("m", 1, 600, 0)).await.unwrap();
    assert_eq!(waits.state, LeaseState::Waiting);
    for node in &mut nodes {
        node.beat(&world.engine).await.unwrap();
    }
    for _ in 0..4 {
        world.clock.advance(2000);
        nodes[1].beat(&world.engine).await.unwrap();
        world.engine.settle().await;
    }
    nodes[1].beat(&world.engine).await.unwrap();
    world.engine.settle().await;
    let ended = world.lease(both.id).await;
    assert_eq!(ended.state, LeaseState::Ended);
    assert!(ended.reason.contains("n0 was not heard of"), "{}", ended.reason);
    let granted = world.lease(waits.id).await;
    assert_eq!((granted.state, granted.grants[0].node.as_str()), (LeaseState::Active, "n1"));
    assert_eq!(world.engine.node(&boss(), "n0").unwrap().state, "lost");
    world.check();
    // It comes back, and still serves what has ended: nothing of it is granted before that is gone.
    let stale = nodes[0].heartbeat(Vec::new());
    let orders = world.engine.heartbeat(&nodes[0].caller(), "n0", stale).await.unwrap();
    assert!(orders.leases.is_empty());
    let third = world.ask("cay", world.request("m", 1, 600, 0)).await.unwrap();
    assert_eq!(third.state, LeaseState::Waiting);
    assert_eq!(world.engine.node(&boss(), "n0").unwrap().state, "joining");
    nodes[0].beat(&world.engine).await.unwrap();
    world.engine.settle().await;
    assert_eq!(world.lease(third.id).await.grants[0].node, "n0");
    assert_eq!(world.engine.counters().nodes_lost, 1);
    world.check();
}

#[tokio::test]
async fn one_server_for_one_name() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[1]).await;
    let mut twin = nodes[0].clone();
    twin.about.instance = 2;
    assert_eq!(code(twin.register(&world.engine).await), ErrorCode::Conflict);
    // The same one may say it again; another one, when the first is silent.
    nodes[0].register(&world.engine).await.unwrap();
    world.advance(3_500).await;
    twin.register(&world.engine).await.unwrap();
    assert_eq!(code(nodes[0].beat(&world.engine).await), ErrorCode::Conflict);
    let stranger = Caller { role: Role::Node, name: "other".into() };
    assert_eq!(code(world.engine.register(&stranger, twin.about.clone()).await), ErrorCode::Forbidden);
    let beat = twin.heartbeat(Vec::new());
    assert_eq!(code(world.engine.heartbeat(&stranger, "n0", beat.clone()).await), ErrorCode::Forbidden);
    assert_eq!(code(world.engine.heartbeat(&boss(), "n7", beat).await), ErrorCode::Conflict);
}

#[tokio::test]
async fn a_second_living_server_does_not_take_over() {
    let (mut world, mut nodes) = with_nodes(Settings::default(), &[1, 1, 1]).await;
    let lease = world.ask("ann", world.request("machine-of-n0", 1, 500, GIB)).await.unwrap();
    nodes[0].begin(&lease);
    nodes[0].beat(&world.engine).await.unwrap();
    // The same token on another machine, or in another server of the same machine.
    let mut elsewhere = FakeNode::new("n0", 1, 16 * GIB);
    (elsewhere.about.instance, elsewhere.about.machine) = (2, "another".into());
    elsewhere.about.address = "another.example:7070".into();
    let mut beside = FakeNode::new("n0", 1, 16 * GIB);
    (beside.about.instance, beside.about.address) = (3, "n0.example:7071".into());
    for twin in [&mut elsewhere, &mut beside] {
        let refused = twin.register(&world.engine).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Conflict);
        assert!(refused.message.contains("n0.example:7070"), "{}", refused.message);
    }
    // Nor while the first one is slow, or the broker has just started.
    world.advance_with(&mut nodes[1..], 4).await;
    assert_eq!(code(elsewhere.register(&world.engine).await), ErrorCode::Conflict);
    world.restart();
    assert_eq!(code(elsewhere.register(&world.engine).await), ErrorCode::Conflict);
    assert_eq!(code(beside.register(&world.engine).await), ErrorCode::Conflict);
    nodes[0].beat(&world.engine).await.unwrap();
    assert_eq!(world.lease(lease.id).await.state, LeaseState::Active);
    // When the first one is lost, the name is free; what the first one ran is over.
    for node in &mut nodes[1..] {
        node.beat(&world.engine).await.unwrap();
    }
    world.advance_with(&mut nodes[1..], 8).await;
    elsewhere.register(&world.engine).await.unwrap();
    elsewhere.beat(&world.engine).await.unwrap();
    assert_eq!(world.lease(lease.id).await.state, LeaseState::Ended);
    assert_eq!(code(nodes[0].beat(&world.engine).await), ErrorCode::Conflict);
    assert_eq!(code(nodes[0].register(&world.engine).await), ErrorCode::Conflict);
    world.check();
}

#[tokio::test]
async fn odd_registrations_are_refused() {
    let world = World::new(Settings::default());
    let good = FakeNode::new("n0", 2, GIB).about;
    let mut gap = good.clone();
    gap.devices[1].index = 2;
    let mut empty = good.clone();
    empty.devices[0].memory = 0;
    for bad in [
        Registration { name: "a/b".into(), ..good.clone() },
        Registration { name: "client-1".into(), ..good.clone() },
        Registration { address: "here".into(), ..good.clone() },
        Registration { tls_fingerprint: Some("sha256:12".into()), ..good.clone() },
        Registration { switch: Some("none".into()), ..good.clone() },
        Registration { machine: String::new(), ..good.clone() },
        gap,
        empty,
    ] {
        assert_eq!(code(world.engine.register(&boss(), bad.clone()).await), ErrorCode::BadRequest, "{bad:?}");
    }
    world.engine.register(&boss(), good).await.unwrap();
}

#[tokio::test]
async fn a_restarted_server_keeps_its_leases_and_loses_those_of_devices_that_are_gone() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[2]).await;
    let mut leases = Vec::new();
    for _ in 0..2 {
        leases.push(world.ask("ann", world.request("machine-of-n0", 1, 1000, 0)).await.unwrap());
    }
    world.advance(4_000).await;
    nodes[0].about.instance = 2;
    nodes[0].serving.clear();
    nodes[0].register(&world.engine).await.unwrap();
    world.engine.settle().await;
    for lease in &leases {
        assert_eq!(world.lease(lease.id).await.state, LeaseState::Active);
    }
    world.advance(4_000).await;
    nodes[0].about.instance = 3;
    nodes[0].about.devices.truncate(1);
    nodes[0].register(&world.engine).await.unwrap();
    nodes[0].beat(&world.engine).await.unwrap();
    for lease in &leases {
        let kept = lease.grants[0].device == 0;
        let state = world.lease(lease.id).await.state;
        assert_eq!(state, if kept { LeaseState::Active } else { LeaseState::Ended });
    }
    world.check();
}

#[tokio::test]
async fn a_draining_node_gets_nothing_new_and_can_then_be_removed() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[1, 1]).await;
    let lease = world.ask("ann", world.request("machine-of-n0", 1, 500, 0)).await.unwrap();
    assert_eq!(lease.grants[0].node, "n0");
    nodes[0].beat(&world.engine).await.unwrap();
    assert_eq!(code(world.engine.remove_node(&boss(), "n0").await), ErrorCode::Conflict);
    world.engine.drain(&boss(), "n0", true).await.unwrap();
    let other = world.ask("ann", world.request("machine-of-n0", 1, 500, 0)).await.unwrap();
    assert_eq!((other.grants[0].node.as_str(), other.remote), ("n1", 1));
    assert_eq!(world.engine.node(&boss(), "n0").unwrap().state, "draining");
    assert_eq!(code(world.engine.remove_node(&boss(), "n0").await), ErrorCode::Conflict);
    world.engine.release(&boss(), lease.id).await.unwrap();
    nodes[0].beat(&world.engine).await.unwrap();
    world.engine.remove_node(&boss(), "n0").await.unwrap();
    assert_eq!(code(world.engine.node(&boss(), "n0")), ErrorCode::NotFound);
    assert_eq!(code(nodes[0].beat(&world.engine).await), ErrorCode::Conflict);
    // It may come again.
    nodes[0].register(&world.engine).await.unwrap();
    world.engine.settle().await;
    assert_eq!(world.engine.node(&boss(), "n0").unwrap().state, "ready");
    world.check();
}

#[tokio::test]
async fn a_node_that_leaves_is_lost_at_once() {
    let (world, nodes) = with_nodes(Settings::default(), &[1]).await;
    let lease = world.ask("ann", world.request("m", 1, 500, 0)).await.unwrap();
    let beat = Heartbeat { leaving: true, ..nodes[0].heartbeat(Vec::new()) };
    world.engine.heartbeat(&nodes[0].caller(), "n0", beat).await.unwrap();
    let ended = world.lease(lease.id).await;
    assert_eq!(ended.state, LeaseState::Ended);
    assert!(ended.reason.contains("was stopped"), "{}", ended.reason);
}

#[tokio::test]
async fn devices_that_cannot_be_shared_are_given_whole() {
    let world = World::new(Settings::default());
    let mut node = FakeNode::new("n0", 1, 8 * GIB);
    node.about.devices[0].partitionable = false;
    node.register(&world.engine).await.unwrap();
    let lease = world.ask("ann", world.request("m", 1, 100, GIB)).await.unwrap();
    assert_eq!((lease.grants[0].share_milli, lease.grants[0].memory), (1000, 8 * GIB));
    let other = world.ask("ann", world.request("m", 1, 100, GIB)).await.unwrap();
    assert_eq!(other.state, LeaseState::Waiting);
    let change = LeaseChange { share_milli: Some(50), memory: None };
    assert_eq!(code(world.engine.change(&tenant_named("ann"), lease.id, change).await), ErrorCode::Conflict);
    world.check();
}

#[tokio::test]
async fn what_nodes_measure_is_shown() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[1]).await;
    let lease = world.ask("ann", world.request("m", 1, 500, GIB)).await.unwrap();
    nodes[0].beat(&world.engine).await.unwrap();
    world.advance(1000).await;
    let usage = |launches| GrantUsage { memory: 5, launches, ..GrantUsage::default() };
    let mut beat = nodes[0].heartbeat(Vec::new());
    beat.leases[0].usage = vec![usage(1000)];
    (beat.own_in_mbps, beat.own_out_mbps) = (30, 40);
    beat.devices = vec![DeviceLoad { index: 0, utilization_percent: 70, ..DeviceLoad::default() }];
    world.engine.heartbeat(&nodes[0].caller(), "n0", beat).await.unwrap();
    let seen = world.lease(lease.id).await;
    assert_eq!((seen.sessions, seen.usage[0].memory), (1, 5));
    let summary = world.engine.summary(&boss()).unwrap();
    assert_eq!((summary.launches_per_s, summary.traffic_mbps), (1000.0, 70.0));
    assert_eq!((summary.nodes_ready, summary.devices, summary.granted_milli), (1, 1, 500));
    let device = &world.engine.devices(&boss()).unwrap()[0];
    assert_eq!((device.load.utilization_percent, device.granted_memory), (70, GIB));
    assert_eq!((device.leases.as_slice(), device.available), ([lease.id].as_slice(), true));
}

#[tokio::test]
async fn a_heartbeat_that_another_one_overtook_changes_nothing() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[1]).await;
    let lease = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    nodes[0].beat(&world.engine).await.unwrap();
    assert_eq!(nodes[0].serving, [lease.id]);
    let early = nodes[0].heartbeat(Vec::new());
    world.engine.release(&tenant_named("ann"), lease.id).await.unwrap();
    nodes[0].beat(&world.engine).await.unwrap();
    assert_eq!(world.lease(lease.id).await.state, LeaseState::Ended);
    world.engine.settle().await;
    let rebuilds = world.engine.counters().rebuilds;
    // It says that the lease is served, but is from before the node was told to end it.
    world.engine.heartbeat(&nodes[0].caller(), "n0", early.clone()).await.unwrap();
    assert_eq!(world.engine.node(&boss(), "n0").unwrap().state, "ready");
    let next = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    assert_eq!((next.state, world.engine.counters().rebuilds), (LeaseState::Active, rebuilds));
    // Where the node does follow the latest orders, what it says counts.
    let late = Heartbeat { orders: world.engine.orders(&boss(), "n0", 0, 0).await.unwrap().version, ..early };
    world.engine.heartbeat(&nodes[0].caller(), "n0", late).await.unwrap();
    assert_eq!(world.engine.node(&boss(), "n0").unwrap().state, "joining");
    world.check();
}

#[tokio::test]
async fn what_a_lease_used_is_known_after_its_end() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[1]).await;
    let lease = world.ask("ann", world.request("m", 1, 500, GIB)).await.unwrap();
    nodes[0].beat(&world.engine).await.unwrap();
    world.engine.release(&tenant_named("ann"), lease.id).await.unwrap();
    let usage = GrantUsage { peak_memory: 6, launches: 3, bytes_in: 9, ..GrantUsage::default() };
    let used = LeaseReport {
        lease: lease.id,
        version: 1,
        sessions: 0,
        usage: vec![usage.clone()],
        processors: None,
    };
    nodes[0].serving.clear();
    nodes[0].applied = world.engine.orders(&boss(), "n0", 0, 0).await.unwrap().version;
    let last = Heartbeat { used: vec![used.clone()], ..nodes[0].heartbeat(vec![lease.id]) };
    world.engine.heartbeat(&nodes[0].caller(), "n0", last).await.unwrap();
    nodes[0].beat(&world.engine).await.unwrap();
    let seen = world.lease(lease.id).await;
    assert_eq!((seen.state, seen.sessions, &seen.usage[0]), (LeaseState::Ended, 0, &usage));
    // A node tells nothing of leases that it does not have.
    let other = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    let odd = LeaseReport { lease: other.id, ..used };
    let odd = Heartbeat { used: vec![odd], ..nodes[0].heartbeat(Vec::new()) };
    world.engine.heartbeat(&nodes[0].caller(), "n0", odd).await.unwrap();
    assert_eq!(world.lease(other.id).await.usage[0].peak_memory, 0);
    world.check();
}
