//! What leases are ordered to have of their nodes' processors, and what nodes say of that.

use super::*;

const CONTROLS: ProcessorControls =
    ProcessorControls { cores: 16, weights: true, llc_ways: 11, memory_bandwidth: true };

fn settings() -> Settings {
    let processors = ProfileProcessors { llc_ways: Some(8), memory_bandwidth_percent: Some(30) };
    let profile = rgpu_placement::Profile {
        spread: processors.spread(),
        ..rgpu_placement::Profile::new("cached", 1.0)
    };
    Settings {
        profiles: vec![ProfileSettings { profile, traffic_mbps: 0, processors }],
        processors: ProcessorSettings { cores: true, weights: true },
        ..Settings::default()
    }
}

/// Nodes of these numbers of devices, with controls or without.
async fn with_controls(
    settings: Settings,
    devices: &[(u32, Option<ProcessorControls>)],
) -> (World, Vec<FakeNode>) {
    let world = World::new(settings);
    let mut nodes = Vec::new();
    for (i, (devices, controls)) in devices.iter().enumerate() {
        let mut node = FakeNode::new(&format!("n{i}"), *devices, 16 * GIB);
        node.about.controls.clone_from(controls);
        node.register(&world.engine).await.unwrap();
        node.beat(&world.engine).await.unwrap();
        nodes.push(node);
    }
    world.engine.settle().await;
    (world, nodes)
}

async fn order(world: &World, node: &FakeNode, lease: LeaseId) -> Option<ProcessorOrder> {
    let orders = world.engine.orders(&node.caller(), &node.about.name, 0, 0).await.unwrap();
    orders.leases.into_iter().find(|order| order.lease == lease).unwrap().processors
}

#[tokio::test]
async fn a_lease_is_ordered_its_part_of_a_node_and_what_its_profile_says() {
    let (world, nodes) = with_controls(settings(), &[(2, Some(CONTROLS))]).await;
    let plain = world.ask("ann", world.request("m", 1, 250, GIB)).await.unwrap();
    // An eighth of the node's devices.
    let expected = ProcessorOrder { cores: Some(2), weight: Some(25), ..ProcessorOrder::default() };
    assert_eq!(order(&world, &nodes[0], plain.id).await, Some(expected));
    let request = LeaseRequest { profile: Some("cached".into()), ..world.request("m", 1, 1000, GIB) };
    let cached = world.ask("ann", request).await.unwrap();
    let expected = ProcessorOrder {
        cores: Some(8),
        weight: Some(100),
        llc_ways: Some(8),
        memory_bandwidth_percent: Some(30),
    };
    assert_eq!(order(&world, &nodes[0], cached.id).await, Some(expected));
    let change = LeaseChange { share_milli: Some(500), memory: None };
    world.engine.change(&tenant_named("ann"), plain.id, change).await.unwrap();
    assert_eq!(order(&world, &nodes[0], plain.id).await.unwrap().cores, Some(4));
}

#[tokio::test]
async fn nothing_is_ordered_of_a_node_that_does_not_know_of_it_or_where_nobody_said_so() {
    for (settings, controls) in [(settings(), None), (Settings::default(), Some(CONTROLS))] {
        let (world, nodes) = with_controls(settings, &[(1, controls)]).await;
        let lease = world.ask("ann", world.request("m", 1, 250, GIB)).await.unwrap();
        assert_eq!(order(&world, &nodes[0], lease.id).await, None);
    }
}

#[tokio::test]
async fn what_a_node_says_of_a_lease_is_shown_and_kept_when_it_ends() {
    let (world, mut nodes) = with_controls(settings(), &[(1, Some(CONTROLS))]).await;
    assert_eq!(world.engine.node(&boss(), "n0").unwrap().controls, Some(CONTROLS));
    let lease = world.ask("ann", world.request("m", 1, 250, GIB)).await.unwrap();
    assert!(lease.processors.is_empty());
    let usage =
        ProcessorUsage { cpu_ms: 7, cpu_milli: 900, cores: Some("0-3".into()), ..ProcessorUsage::default() };
    nodes[0].processors.insert(lease.id, usage.clone());
    nodes[0].beat(&world.engine).await.unwrap();
    let seen = world.lease(lease.id).await.processors;
    assert_eq!(seen, [NodeProcessors { node: "n0".into(), usage }]);
    nodes[0].processors.clear();
    nodes[0].beat(&world.engine).await.unwrap();
    assert!(world.lease(lease.id).await.processors.is_empty());
}

#[tokio::test]
async fn spread_n_share_leaves_a_node_whose_ways_are_given() {
    let mut settings = settings();
    settings.policy.name = "spread-n-share".into();
    let (world, _nodes) = with_controls(settings, &[(2, Some(CONTROLS)), (1, Some(CONTROLS))]).await;
    let ask = async || {
        let request = LeaseRequest { profile: Some("cached".into()), ..world.request("m", 1, 100, GIB) };
        world.ask("ann", request).await.unwrap()
    };
    let (first, second, third) = (ask().await, ask().await, ask().await);
    // There are devices enough on either node, and ways for one such program on each.
    let nodes = [&first, &second].map(|lease| lease.grants[0].node.clone());
    assert!(nodes[0] != nodes[1], "{nodes:?}");
    assert_eq!(third.state, LeaseState::Waiting);
    let why = world.engine.explain(&tenant_named("ann"), third.id).await.unwrap();
    assert!(why.text.contains("too few cache ways free"), "{}", why.text);
    // One that needs none is not kept waiting.
    let plain = world.ask("ann", world.request("m", 1, 100, GIB)).await.unwrap();
    assert_eq!(plain.state, LeaseState::Active);
}
