//! Leases that are resized by what they use.

use super::super::settings::complete;
use super::*;

/// With that policy.
fn settings(policy: &str) -> Settings {
    let settings = Settings::default();
    let policy = PolicySettings { name: policy.into(), settings: BTreeMap::new() };
    Settings { policy: complete(&settings.policies, policy), ..settings }
}

fn resizable(world: &World, share_milli: u16) -> LeaseRequest {
    LeaseRequest { harvest: true, ..world.request("m", 1, share_milli, GIB) }
}

/// From now on the lease uses so much of its device's time.
fn uses(node: &mut FakeNode, lease: &Lease, share_milli: u32) {
    node.used.insert(lease.id, GrantUsage { share_milli, ..GrantUsage::default() });
}

fn size(firm_milli: u16, set_aside_milli: u16) -> Vec<LeaseSize> {
    vec![LeaseSize { firm_milli, set_aside_milli }]
}

/// Two leases with half of the only device each, that use a tenth.
async fn two(settings: Settings, lends: bool) -> (World, Vec<FakeNode>, [Lease; 2]) {
    let (world, mut nodes) = with_nodes(settings, &[1]).await;
    nodes[0].lends = lends;
    let a = world.ask("ann", resizable(&world, 500)).await.unwrap();
    let b = world.ask("ann", resizable(&world, 500)).await.unwrap();
    uses(&mut nodes[0], &a, 100);
    uses(&mut nodes[0], &b, 100);
    world.advance_with(&mut nodes, 6).await;
    (world, nodes, [a, b])
}

#[tokio::test]
async fn what_a_lease_leaves_is_lent_and_given_back() {
    for policy in ["cbp", "cbp-pp"] {
        let (world, mut nodes, [a, b]) = two(settings(policy), true).await;
        // A tenth, a fifth of that, and 2%.
        assert_eq!(world.lease(a.id).await.sizes, size(500, 140));
        // What it was promised stands in its grant, and in its token.
        assert_eq!(world.lease(a.id).await.grants[0].share_milli, 500);
        assert!(world.lease(a.id).await.version > a.version);
        let c = world.ask("bob", resizable(&world, 500)).await.unwrap();
        assert_eq!((c.state, c.sizes.clone()), (LeaseState::Active, size(0, 500)), "{}", c.reason);
        assert_eq!(world.claims(&c).grants[0].share_milli, 500);
        world.check();
        assert_eq!(world.engine.counters().lent, 1);
        // As much as is asked for is not set aside any more, however much is left of the memory; and nothing is promised twice.
        let d = world.ask("bob", resizable(&world, 500)).await.unwrap();
        let fixed = world.ask("bob", world.request("m", 1, 100, GIB)).await.unwrap();
        assert_eq!((d.state, fixed.state), (LeaseState::Waiting, LeaseState::Waiting));
        // The owner grows: all of its promise is set aside as soon as that is heard. It was firm all the time.
        uses(&mut nodes[0], &a, 300);
        nodes[0].beat(&world.engine).await.unwrap();
        world.advance_with(&mut nodes, 1).await;
        assert_eq!(world.lease(a.id).await.sizes, size(500, 500));
        assert_eq!(world.lease(b.id).await.sizes, size(500, 140));
        world.check();
        // It is less again when it has been for a while, but never less than what is used.
        world.advance_with(&mut nodes, 8).await;
        assert_eq!(world.lease(a.id).await.sizes, size(500, 380));
        // Others end: what they had becomes the borrower's for good, before anybody else's.
        world.engine.release(&tenant_named("ann"), b.id).await.unwrap();
        world.advance_with(&mut nodes, 2).await;
        assert_eq!(world.lease(c.id).await.sizes[0].firm_milli, 500);
        world.check();
        let counters = world.engine.counters();
        assert!(counters.resizes >= 5, "{counters:?}");
        // All of them were heard of again but the last, perhaps.
        assert!(counters.resize_times.count() + 1 >= counters.resizes, "{counters:?}");
    }
}

#[tokio::test]
async fn a_lease_that_does_not_ask_for_it_is_never_resized() {
    let (world, mut nodes) = with_nodes(settings("cbp-pp"), &[1]).await;
    let fixed = world.ask("ann", world.request("m", 1, 600, GIB)).await.unwrap();
    let other = world.ask("ann", resizable(&world, 400)).await.unwrap();
    world.advance_with(&mut nodes, 20).await;
    let now = world.lease(fixed.id).await;
    assert_eq!((now.version, now.sizes, now.grants), (fixed.version, Vec::new(), fixed.grants));
    assert_eq!(world.lease(other.id).await.sizes, size(400, 50));
    // All of a whole device's memory leaves nobody room; and leases of several devices are not resized.
    for request in [
        LeaseRequest { memory: 0, ..resizable(&world, 1000) },
        LeaseRequest { gpus: 2, ..resizable(&world, 1000) },
    ] {
        assert!(!request.is_resizable());
    }
}

#[tokio::test]
async fn only_policies_that_harvest_resize() {
    for policy in ["drmaestro", "first-fit"] {
        let (world, _, [a, b]) = two(settings(policy), true).await;
        let now = world.lease(a.id).await;
        assert_eq!((now.version, now.sizes), (a.version, Vec::new()));
        assert_eq!(world.lease(b.id).await.version, b.version);
        let c = world.ask("bob", resizable(&world, 500)).await.unwrap();
        assert_eq!(c.state, LeaseState::Waiting);
    }
    // When another one decides, all have again what they were promised.
    let (world, mut nodes, [a, _]) = two(settings("cbp"), true).await;
    assert_eq!(world.lease(a.id).await.sizes, size(500, 140));
    world.engine.set_policy(&boss(), settings("drmaestro").policy).await.unwrap();
    world.advance_with(&mut nodes, 1).await;
    assert_eq!(world.lease(a.id).await.sizes, size(500, 500));
    let c = world.ask("bob", resizable(&world, 500)).await.unwrap();
    assert_eq!(c.state, LeaseState::Waiting);
}

#[tokio::test]
async fn a_node_that_does_not_know_of_it_lends_nothing() {
    let (world, mut nodes, [a, _]) = two(settings("cbp-pp"), false).await;
    world.advance_with(&mut nodes, 6).await;
    assert_eq!(world.lease(a.id).await.sizes[0].firm_milli, 500);
    let c = world.ask("bob", resizable(&world, 500)).await.unwrap();
    assert_eq!(c.state, LeaseState::Waiting);
    // Devices whose kernels cannot be interrupted are leased as ever.
    let world = World::new(settings("cbp-pp"));
    let mut node = FakeNode::new("n0", 1, 16 * GIB);
    node.about.devices[0].enforced_by = "pacing".into();
    node.register(&world.engine).await.unwrap();
    let lease = world.ask("ann", resizable(&world, 500)).await.unwrap();
    assert_eq!((lease.state, lease.sizes), (LeaseState::Active, Vec::new()));
}

#[tokio::test]
async fn when_a_node_says_nothing_any_more_its_leases_have_what_they_were_promised() {
    let (world, mut nodes, [a, b]) = two(settings("cbp-pp"), true).await;
    assert_eq!(world.lease(a.id).await.sizes, size(500, 140));
    // It is not lost yet.
    world.advance(4500).await;
    assert_eq!(world.lease(a.id).await.sizes, size(500, 500));
    assert_eq!(world.lease(b.id).await.sizes, size(500, 500));
    let c = world.ask("bob", resizable(&world, 500)).await.unwrap();
    assert_eq!(c.state, LeaseState::Waiting);
    // It speaks again, and they are resized again; who waits gets a place.
    world.advance_with(&mut nodes, 10).await;
    assert_eq!(world.lease(a.id).await.sizes, size(500, 140));
    assert_eq!(world.lease(c.id).await.state, LeaseState::Active);
    world.check();
}

#[tokio::test]
async fn a_node_that_lies_harms_nobody_and_is_named_once() {
    let (world, mut nodes, [a, b]) = two(settings("cbp-pp"), true).await;
    let odd = DeviceLoad {
        utilization_percent: u32::MAX,
        memory_used: u64::MAX,
        power_w: Some(-1e300),
        ..DeviceLoad::default()
    };
    nodes[0].loads = vec![odd.clone(), DeviceLoad { index: 77, ..odd }];
    let lie = GrantUsage { share_milli: u32::MAX, bytes_in: u64::MAX, ..GrantUsage::default() };
    nodes[0].used.insert(a.id, lie);
    nodes[0].memory.insert(a.id, u64::MAX);
    world.advance_with(&mut nodes, 10).await;
    // More than was promised is not set aside.
    assert_eq!(world.lease(a.id).await.sizes, size(500, 500));
    assert_eq!(world.lease(b.id).await.sizes, size(500, 140));
    let c = world.ask("bob", resizable(&world, 300)).await.unwrap();
    assert_eq!((c.state, c.sizes[0].firm_milli), (LeaseState::Active, 0), "{}", c.reason);
    world.check();
    let events = world.engine.events_after(0, &boss()).0;
    assert_eq!(events.iter().filter(|event| event.kind == "node_odd").count(), 1);
    // That everybody uses nothing is a lie that makes room for borrowers; what is firm stays so.
    nodes[0].used.clear();
    world.advance_with(&mut nodes, 20).await;
    assert_eq!(world.lease(a.id).await.sizes, size(500, 50));
    world.check();
}

#[tokio::test]
async fn programs_that_were_seen_begin_with_what_is_typical_of_them() {
    let (world, mut nodes, [a, b]) = two(settings("cbp"), true).await;
    let request = |program: &str, share_milli| LeaseRequest {
        program: Some(program.into()),
        ..resizable(&world, share_milli)
    };
    let first = world.ask("bob", request("app", 500)).await.unwrap();
    assert_eq!(first.sizes, size(0, 500));
    uses(&mut nodes[0], &first, 200);
    world.advance_with(&mut nodes, 6).await;
    world.engine.complete(&tenant_named("bob"), first.id).await.unwrap();
    world.advance_with(&mut nodes, 2).await;
    let again = world.ask("bob", request("app", 500)).await.unwrap();
    assert_eq!(again.sizes, size(0, 260));
    // Another tenant's program of that name is another program.
    let other = world.ask("eve", request("app", 450)).await.unwrap();
    assert_eq!(other.sizes, size(0, 450));
    for lease in [a, b] {
        assert_eq!(world.lease(lease.id).await.sizes, size(500, 140));
    }
    world.check();
}

#[tokio::test]
async fn sizes_are_kept_over_restarts_and_adopted() {
    let (mut world, mut nodes, [a, b]) = two(settings("cbp"), true).await;
    let c = world.ask("bob", resizable(&world, 500)).await.unwrap();
    let tokens = [world.lease_of("ann", a.id).await, world.lease_of("ann", b.id).await, c.clone()];
    tokens.iter().for_each(|lease| nodes[0].begin(lease));
    world.advance_with(&mut nodes, 1).await;
    world.restart();
    nodes[0].register(&world.engine).await.unwrap();
    world.engine.settle().await;
    assert_eq!(world.lease(c.id).await.sizes[0].firm_milli, 0);
    world.check();
    // A broker that knows nothing hears of them from the node.
    world.store = MemoryStore::new();
    world.restart();
    nodes[0].beat(&world.engine).await.unwrap_err();
    nodes[0].register(&world.engine).await.unwrap();
    let firm = |id: LeaseId| if id == c.id { 0 } else { 500 };
    let proofs = tokens.iter().map(|lease| LeaseProof {
        lease: lease.id,
        token: lease.token.clone().unwrap(),
        version: lease.version + 9,
        grants: lease.grants.clone(),
        sizes: size(firm(lease.id), 200),
    });
    let beat = Heartbeat { proofs: proofs.collect(), ..nodes[0].heartbeat(Vec::new()) };
    world.engine.heartbeat(&nodes[0].caller(), "n0", beat).await.unwrap();
    for lease in &tokens {
        let now = world.lease(lease.id).await;
        assert_eq!((now.state, now.sizes), (LeaseState::Active, size(firm(lease.id), 200)));
    }
    world.check();
}

impl World {
    /// A lease as its tenant sees it.
    async fn lease_of(&self, tenant: &str, id: LeaseId) -> Lease {
        self.engine.lease(&tenant_named(tenant), id, 0).await.unwrap()
    }
}
