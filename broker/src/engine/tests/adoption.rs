//! A broker whose state is lost, or an older one, among nodes that serve on.

use super::*;

/// The state is lost, the key is not.
fn forget(world: &mut World, store: MemoryStore) {
    world.store = store;
    world.restart();
}

/// Nodes say how they are, and register where the broker does not know them.
async fn meet(world: &World, nodes: &mut [FakeNode]) {
    for _ in 0..3 {
        for node in nodes.iter_mut() {
            if node.beat(&world.engine).await.is_err() {
                node.register(&world.engine).await.unwrap();
            }
        }
        world.advance(200).await;
        world.check();
    }
}

#[tokio::test]
async fn a_broker_without_state_adopts_what_nodes_serve() {
    let (mut world, mut nodes) = with_nodes(Settings::default(), &[2, 1]).await;
    let one = world.ask("ann", world.request("machine-of-n0", 1, 600, GIB)).await.unwrap();
    nodes[0].begin(&one);
    let three = world.ask("bob", world.request("machine-of-n0", 3, 400, 2 * GIB)).await.unwrap();
    // Its program has used only one of its servers yet.
    nodes[1].begin(&three);
    meet(&world, &mut nodes).await;
    // Longer than the tokens are good for.
    world.engine.stop();
    world.clock.advance(100_000);
    forget(&mut world, MemoryStore::new());
    // Holders that come before the nodes are told to come again.
    assert_eq!(code(world.engine.renew(&tenant_named("ann"), one.id).await), ErrorCode::Unavailable);
    // The other one comes a second later; nothing that it has is given to others before.
    meet(&world, &mut nodes[..1]).await;
    let new = world.ask("cay", world.request("m", 1, 1000, GIB)).await.unwrap();
    assert_eq!(new.state, LeaseState::Waiting);
    meet(&world, &mut nodes).await;
    for (lease, tenant) in [(&one, "ann"), (&three, "bob")] {
        let now = world.engine.renew(&tenant_named(tenant), lease.id).await.unwrap();
        assert_eq!((now.state, &now.grants), (LeaseState::Active, &lease.grants));
        assert_eq!(world.claims(&now).holder, world.holder);
    }
    assert!(nodes[0].serving.contains(&one.id) && nodes[0].serving.contains(&three.id));
    assert_eq!(world.engine.counters().adopted, 2);
    assert_eq!(world.lease(new.id).await.state, LeaseState::Waiting);
    // They end as any other.
    for (lease, tenant) in [(&one, "ann"), (&three, "bob")] {
        world.engine.release(&tenant_named(tenant), lease.id).await.unwrap();
    }
    meet(&world, &mut nodes).await;
    assert_eq!(world.lease(new.id).await.state, LeaseState::Active);
    assert_eq!(world.engine.counters().active, 1);
}

#[tokio::test]
async fn what_nothing_proves_ends_and_only_then_its_devices_are_free() {
    let (mut world, mut nodes) = with_nodes(Settings::default(), &[1]).await;
    let lease = world.ask("ann", world.request("m", 1, 600, GIB)).await.unwrap();
    meet(&world, &mut nodes).await;
    let own = world.key.clone();
    forget(&mut world, MemoryStore::new());
    meet(&world, &mut nodes).await;
    assert_eq!((nodes[0].serving.as_slice(), nodes[0].asked.as_slice()), (&[lease.id][..], &[lease.id][..]));
    // Somebody else's signature, another lease's token, a role token: none of them is a proof.
    let Claims::Lease(good) = rgpu_control::token::peek(lease.token.as_ref().unwrap()).unwrap() else {
        unreachable!()
    };
    let forged = PrivateKey::generate().sign(&Claims::Lease(good.clone()));
    let other = own.sign(&Claims::Lease(LeaseClaims { lease: LeaseId(5), ..good.clone() }));
    let mut elsewhere = good.clone();
    elsewhere.grants[0].node = "n9".into();
    let elsewhere = own.sign(&Claims::Lease(elsewhere));
    let role =
        world.engine.issue_token(&boss(), &TokenRequest { role: Role::Admin, name: "x".into(), valid_s: 9 });
    for token in [forged, other, elsewhere, role.unwrap().token, "x".into()] {
        nodes[0].tokens.insert(lease.id, token);
        nodes[0].beat(&world.engine).await.unwrap();
        assert_eq!(world.engine.counters().adopted, 0);
    }
    let new = world.ask("cay", world.request("m", 1, 100, GIB)).await.unwrap();
    assert_eq!(new.state, LeaseState::Waiting);
    world.advance_with(&mut nodes, 15).await;
    assert!(!nodes[0].serving.contains(&lease.id));
    assert_eq!(world.lease(new.id).await.state, LeaseState::Active);
    assert_eq!(code(world.engine.renew(&tenant_named("ann"), lease.id).await), ErrorCode::NotFound);
    world.check();
}

#[tokio::test]
async fn an_older_state_gives_way_to_what_was_granted_since() {
    let (mut world, mut nodes) = with_nodes(Settings::default(), &[1, 1]).await;
    let stays = world.ask("ann", world.request("machine-of-n0", 1, 300, GIB)).await.unwrap();
    let ends = world.ask("ann", world.request("machine-of-n0", 1, 700, GIB)).await.unwrap();
    for lease in [&stays, &ends] {
        nodes[0].begin(lease);
    }
    meet(&world, &mut nodes).await;
    let backup = world.store.copy();
    world.engine.release(&tenant_named("ann"), ends.id).await.unwrap();
    meet(&world, &mut nodes).await;
    world.advance(1000).await;
    let since = world.ask("bob", world.request("machine-of-n0", 1, 700, GIB)).await.unwrap();
    assert_eq!(since.grants[0].node, "n0");
    nodes[0].begin(&since);
    meet(&world, &mut nodes).await;
    forget(&mut world, backup);
    assert_eq!(world.lease(ends.id).await.state, LeaseState::Active, "as it was");
    meet(&world, &mut nodes).await;
    world.advance_with(&mut nodes, 2).await;
    assert_eq!(world.lease(stays.id).await.state, LeaseState::Active);
    assert_eq!(world.lease(since.id).await.state, LeaseState::Active);
    assert_eq!(world.lease(ends.id).await.state, LeaseState::Ended);
    assert!(nodes[0].serving.contains(&since.id) && nodes[0].serving.contains(&stays.id));
    world.check();
}

#[tokio::test]
async fn a_lease_that_was_changed_is_adopted_as_it_is_now() {
    let (mut world, mut nodes) = with_nodes(Settings::default(), &[1]).await;
    let lease = world.ask("ann", world.request("m", 1, 600, GIB)).await.unwrap();
    nodes[0].begin(&lease);
    let change = LeaseChange { share_milli: Some(900), memory: Some(3 * GIB) };
    let changed = world.engine.change(&tenant_named("ann"), lease.id, change).await.unwrap();
    meet(&world, &mut nodes).await;
    forget(&mut world, MemoryStore::new());
    nodes[0].beat(&world.engine).await.unwrap_err();
    nodes[0].register(&world.engine).await.unwrap();
    let proof = LeaseProof {
        lease: lease.id,
        token: lease.token.clone().unwrap(),
        version: changed.version,
        grants: changed.grants.clone(),
        sizes: Vec::new(),
    };
    let beat = Heartbeat { proofs: vec![proof], ..nodes[0].heartbeat(Vec::new()) };
    world.engine.heartbeat(&nodes[0].caller(), "n0", beat).await.unwrap();
    let now = world.lease(lease.id).await;
    assert_eq!((now.grants, now.version), (changed.grants, changed.version));
    world.check();
}

#[tokio::test]
async fn what_cannot_be_stored_is_not_adopted_and_goes_on() {
    let (mut world, mut nodes) = with_nodes(Settings::default(), &[1]).await;
    let lease = world.ask("ann", world.request("m", 1, 600, GIB)).await.unwrap();
    nodes[0].begin(&lease);
    meet(&world, &mut nodes).await;
    forget(&mut world, MemoryStore::new());
    nodes[0].beat(&world.engine).await.unwrap_err();
    nodes[0].register(&world.engine).await.unwrap();
    world.store.fail(Some("full"));
    for _ in 0..3 {
        let _ = nodes[0].beat(&world.engine).await;
        assert_eq!((nodes[0].serving.len(), world.engine.counters().adopted), (1, 0));
        world.check();
    }
    world.store.fail(None);
    nodes[0].beat(&world.engine).await.unwrap();
    assert_eq!(world.lease(lease.id).await.state, LeaseState::Active);
    world.check();
}

#[tokio::test]
async fn an_older_state_learns_what_was_changed_since() {
    let (mut world, mut nodes) = with_nodes(Settings::default(), &[1]).await;
    let lease = world.ask("ann", world.request("m", 1, 900, 8 * GIB)).await.unwrap();
    nodes[0].begin(&lease);
    meet(&world, &mut nodes).await;
    let backup = world.store.copy();
    let change = LeaseChange { share_milli: Some(100), memory: Some(GIB) };
    let changed = world.engine.change(&tenant_named("ann"), lease.id, change).await.unwrap();
    forget(&mut world, backup);
    assert_eq!(world.lease(lease.id).await.version, 1);
    let report =
        LeaseReport { lease: lease.id, version: 2, sessions: 1, usage: Vec::new(), processors: None };
    let beat = Heartbeat { leases: vec![report], ..nodes[0].heartbeat(Vec::new()) };
    let orders = world.engine.heartbeat(&nodes[0].caller(), "n0", beat.clone()).await.unwrap();
    assert_eq!((orders.prove.as_slice(), orders.leases.len()), (&[lease.id][..], 1));
    let token = lease.token.clone().unwrap();
    let proof =
        LeaseProof { lease: lease.id, token, version: 2, grants: changed.grants.clone(), sizes: Vec::new() };
    let beat = Heartbeat { proofs: vec![proof], ..beat };
    let orders = world.engine.heartbeat(&nodes[0].caller(), "n0", beat).await.unwrap();
    assert!(orders.prove.is_empty());
    assert_eq!(world.lease(lease.id).await.grants, changed.grants);
    world.check();
}

#[tokio::test]
async fn a_later_epoch_counts_for_more_than_all_of_an_earlier_one() {
    let (mut world, mut nodes) = with_nodes(Settings { rivals: true, ..Settings::default() }, &[1]).await;
    let lease = world.ask("ann", world.request("m", 1, 600, GIB)).await.unwrap();
    nodes[0].begin(&lease);
    meet(&world, &mut nodes).await;
    // Another broker, which has an older state, or none, and a clock that is behind, takes over.
    let before = nodes[0].applied;
    let old_state = world.store.copy();
    world.settings.epoch = 1;
    forget(&mut world, old_state);
    assert_eq!(world.engine.epoch(), 1);
    assert!(
        world.engine.leases(&boss(), false).unwrap().is_empty(),
        "what it knew is older than what nodes know"
    );
    meet(&world, &mut nodes).await;
    assert!(nodes[0].applied > before + (1 << 40));
    let renewed = world.engine.renew(&tenant_named("ann"), lease.id).await.unwrap();
    assert!(world.claims(&renewed).orders > world.claims(&lease).orders + (1 << 40));
    // It stays so over restarts.
    world.settings.epoch = 0;
    world.restart();
    assert_eq!(world.engine.epoch(), 1);
    assert_eq!(world.lease(lease.id).await.state, LeaseState::Active);
    // A broker of an earlier epoch to which a node comes goes beyond the later one's.
    nodes[0].applied |= 5 << 52;
    nodes[0].beat(&world.engine).await.unwrap();
    assert_eq!(world.engine.epoch(), 6);
    // Nonsense is not believed.
    let odd = Heartbeat { orders: u64::MAX - 7, ..nodes[0].heartbeat(Vec::new()) };
    world.engine.heartbeat(&nodes[0].caller(), "n0", odd).await.unwrap();
    assert_eq!(world.engine.epoch(), 6);
    world.check();
}

#[tokio::test]
async fn after_a_pause_a_broker_with_a_rival_grants_nothing_of_nodes_that_it_has_not_heard() {
    let (world, mut nodes) = with_nodes(Settings { rivals: true, ..Settings::default() }, &[1]).await;
    world.advance_with(&mut nodes, 2).await;
    world.clock.advance(20_000);
    world.engine.settle().await;
    let lease = world.ask("ann", world.request("m", 1, 600, GIB)).await.unwrap();
    assert_eq!(lease.state, LeaseState::Waiting);
    nodes[0].beat(&world.engine).await.unwrap();
    world.engine.settle().await;
    assert_eq!(world.lease(lease.id).await.state, LeaseState::Active);
}

#[tokio::test]
async fn what_waited_when_an_older_state_was_written_is_not_granted_twice() {
    let (mut world, mut nodes) = with_nodes(Settings::default(), &[1, 1]).await;
    let first = world.ask("ann", world.request("machine-of-n1", 2, 1000, 0)).await.unwrap();
    let lease = world.ask("ann", world.request("machine-of-n1", 1, 1000, 0)).await.unwrap();
    assert_eq!(lease.state, LeaseState::Waiting);
    let backup = world.store.copy();
    meet(&world, &mut nodes).await;
    world.engine.release(&tenant_named("ann"), first.id).await.unwrap();
    meet(&world, &mut nodes).await;
    let lease = world.engine.lease(&tenant_named("ann"), lease.id, 0).await.unwrap();
    assert_eq!(lease.state, LeaseState::Active);
    // It has a device of the node that confirmed first that the other lease is over there.
    let at = usize::from(lease.grants[0].node == "n1");
    nodes[at].begin(&lease);
    world.advance(1000).await;
    forget(&mut world, backup);
    // The other node comes first.
    meet(&world, &mut nodes[1 - at..2 - at]).await;
    assert_eq!(world.lease(lease.id).await.state, LeaseState::Waiting);
    meet(&world, &mut nodes).await;
    let now = world.lease(lease.id).await;
    assert_eq!((now.state, now.grants), (LeaseState::Active, lease.grants.clone()));
    assert!(nodes[at].serving.contains(&lease.id));
    assert_eq!(
        world.lease(first.id).await.state,
        LeaseState::Ended,
        "it had ended before the other was granted"
    );
    world.check();
}
