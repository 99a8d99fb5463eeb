//! NVMe devices: who gets them, and what becomes of leases whose devices cannot be attached.

use super::*;

/// A node with GPUs and NVMe devices of these capacities (GiB) and bandwidths (Mbit/s).
async fn joined(world: &World, name: &str, gpus: u32, nvmes: &[(u64, u64)]) -> FakeNode {
    let mut node = FakeNode::new(name, gpus, 16 * GIB);
    let nvme = |(i, (capacity, bandwidth_mbps)): (usize, &(u64, u64))| NvmeReport {
        name: format!("nvme{i}"),
        capacity: capacity * GIB,
        bandwidth_mbps: *bandwidth_mbps,
    };
    node.about.nvmes = nvmes.iter().enumerate().map(nvme).collect();
    node.register(&world.engine).await.unwrap();
    world.engine.settle().await;
    node
}

fn wish(world: &World, gpus: u16, nvmes: u16, capacity: u64, mbps: u64) -> LeaseRequest {
    LeaseRequest {
        nvmes,
        nvme_capacity: capacity * GIB,
        nvme_bandwidth_mbps: mbps,
        ..world.request("m", gpus, 500, GIB)
    }
}

fn names(lease: &Lease) -> Vec<String> {
    lease.nvmes.iter().map(|nvme| format!("{}:{}", nvme.node, nvme.device)).collect()
}

/// What a node says of a lease's device.
async fn say(world: &World, node: &FakeNode, lease: LeaseId, path: Option<&str>, failure: Option<&str>) {
    let state = NvmeState {
        lease,
        device: "nvme0".into(),
        path: path.map(str::to_owned),
        failure: failure.map(str::to_owned),
    };
    let beat = Heartbeat { nvmes: vec![state], ..node.heartbeat(Vec::new()) };
    world.engine.heartbeat(&node.caller(), &node.about.name, beat).await.unwrap();
    world.engine.settle().await;
}

#[tokio::test]
async fn a_lease_gets_devices_that_are_large_and_fast_enough_whatever_the_policy() {
    for name in ["drmaestro", "max-composition", "heterogeneity-aware"] {
        let settings = Settings::default();
        let named = PolicySettings { name: name.into(), settings: BTreeMap::new() };
        let policy = super::super::settings::complete(&settings.policies, named);
        let world = World::new(Settings { policy, ..settings });
        let mut pool = joined(&world, "pool", 0, &[(100, 1000), (500, 1000), (500, 5000)]).await;
        let _gpus = joined(&world, "gpus", 1, &[]).await;
        let both = world.ask("ann", wish(&world, 1, 1, 200, 2000)).await.unwrap();
        assert_eq!(both.state, LeaseState::Active, "{name}: {}", both.reason);
        assert_eq!((both.grants.len(), both.grants[0].node.as_str()), (1, "gpus"), "{name}");
        assert_eq!(names(&both), ["pool:nvme2"], "{name}");
        assert_eq!((both.nvmes[0].capacity, both.nvmes[0].bandwidth_mbps), (500 * GIB, 5000));
        // Its node is told where to bring it; and the other one is not.
        let orders = world.engine.orders(&boss(), "pool", 0, 0).await.unwrap();
        let order = orders.leases.iter().find(|order| order.lease == both.id).unwrap();
        assert_eq!((order.nvmes[0].device.as_str(), order.nvmes[0].host.as_str()), ("nvme2", "client-m"));
        let others = world.engine.orders(&boss(), "gpus", 0, 0).await.unwrap();
        assert!(others.leases[0].nvmes.is_empty());
        // NVMe devices alone.
        let alone = world.ask("ann", wish(&world, 0, 2, 0, 0)).await.unwrap();
        assert_eq!((alone.grants.len(), names(&alone).len()), (0, 2), "{name}: {}", alone.reason);
        let waits = world.ask("ann", wish(&world, 0, 1, 0, 0)).await.unwrap();
        assert_eq!(waits.state, LeaseState::Waiting, "{name}");
        // What is ending is nobody's before its node says so.
        pool.beat(&world.engine).await.unwrap();
        world.engine.release(&tenant_named("ann"), alone.id).await.unwrap();
        world.engine.settle().await;
        assert_eq!(world.lease(waits.id).await.state, LeaseState::Waiting, "{name}");
        pool.beat(&world.engine).await.unwrap();
        world.engine.settle().await;
        assert_eq!(world.lease(waits.id).await.state, LeaseState::Active, "{name}");
        world.check();
    }
}

#[tokio::test]
async fn a_share_that_the_broker_chooses_is_of_the_gpu() {
    let world = World::new(Settings::default());
    let _pool = joined(&world, "pool", 1, &[(100, 1000)]).await;
    let request = LeaseRequest {
        share_milli: 0,
        deadline_s: Some(1000.0),
        estimate_s: Some(1.0),
        ..wish(&world, 1, 1, 0, 0)
    };
    let lease = world.ask("ann", request).await.unwrap();
    assert_eq!((lease.grants[0].share_milli, lease.nvmes.len()), (125, 1), "{}", lease.reason);
}

#[tokio::test]
async fn what_can_never_be_had_is_refused_at_once() {
    let world = World::new(Settings::default());
    let _pool = joined(&world, "pool", 1, &[(100, 1000)]).await;
    let asked = |request| world.ask("ann", request);
    for (gpus, nvmes, capacity, mbps) in [(1, 2, 0, 0), (1, 1, 101, 0), (0, 1, 0, 1001)] {
        let refused = asked(wish(&world, gpus, nvmes, capacity, mbps)).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Impossible, "{}", refused.message);
        assert!(refused.message.contains("NVMe"), "{}", refused.message);
    }
    for (gpus, nvmes, capacity) in [(0, 0, 0), (1, 0, 1), (0, 65, 0)] {
        assert_eq!(code(asked(wish(&world, gpus, nvmes, capacity, 0)).await), ErrorCode::BadRequest);
    }
    for name in ["", "-rf", "a b", "a;b"] {
        let mut node = FakeNode::new("odd", 1, GIB);
        node.about.nvmes = vec![NvmeReport { name: name.into(), capacity: GIB, bandwidth_mbps: 1 }];
        assert_eq!(code(node.register(&world.engine).await), ErrorCode::BadRequest, "{name:?}");
    }
}

#[tokio::test]
async fn the_program_is_told_where_its_device_is_and_why_it_is_not_there() {
    let mut world = World::new(Settings::default());
    let mut pool = joined(&world, "pool", 0, &[(100, 1000)]).await;
    let lease = world.ask("ann", wish(&world, 0, 1, 0, 0)).await.unwrap();
    assert_eq!(lease.nvmes[0].path, None);
    pool.beat(&world.engine).await.unwrap();
    say(&world, &pool, lease.id, Some("/dev/nvme7n1"), None).await;
    assert_eq!(world.lease(lease.id).await.nvmes[0].path.as_deref(), Some("/dev/nvme7n1"));
    // A node that says something of a lease that has nothing of it is not heard.
    let mut other = joined(&world, "other", 0, &[(10, 1000)]).await;
    other.beat(&world.engine).await.unwrap();
    say(&world, &other, lease.id, None, Some("down with it")).await;
    assert_eq!(world.lease(lease.id).await.state, LeaseState::Active);
    // It outlives the broker, which hears of the path again.
    world.restart();
    pool.register(&world.engine).await.unwrap();
    assert_eq!(names(&world.lease(lease.id).await), ["pool:nvme0"]);
    say(&world, &pool, lease.id, None, Some("no path to host")).await;
    let ended = world.lease(lease.id).await;
    assert_ne!(ended.state, LeaseState::Active);
    assert_eq!(ended.reason, "node pool could not attach its NVMe device nvme0: no path to host");
    pool.beat(&world.engine).await.unwrap();
    assert_eq!(world.lease(lease.id).await.state, LeaseState::Ended);
    world.check();
}

#[tokio::test]
async fn a_lease_ends_whose_device_its_node_does_not_offer_any_more() {
    let world = World::new(Settings::default());
    let mut pool = joined(&world, "pool", 0, &[(100, 1000), (100, 1000)]).await;
    let lease = world.ask("ann", wish(&world, 0, 2, 0, 0)).await.unwrap();
    pool.beat(&world.engine).await.unwrap();
    pool.about.nvmes.pop();
    pool.register(&world.engine).await.unwrap();
    let ended = world.lease(lease.id).await;
    assert!(
        ended.state != LeaseState::Active && ended.reason.contains("does not have its device"),
        "{ended:?}"
    );
}
