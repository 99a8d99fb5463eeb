//! A lease's life.

use super::*;

#[tokio::test]
async fn a_program_gets_its_own_nodes_device_first_and_a_token_that_says_so() {
    let (world, _nodes) = with_nodes(Settings::default(), &[1, 2]).await;
    let lease = world.ask("ann", world.request("machine-of-n0", 1, 250, 4 * GIB)).await.unwrap();
    assert_eq!((lease.state, lease.remote, lease.client_node.as_str()), (LeaseState::Active, 0, "n0"));
    assert_eq!(lease.servers.len(), 1);
    assert_eq!((lease.servers[0].address.as_str(), lease.servers[0].devices), ("127.0.0.1:7070", 1));
    let claims = world.claims(&lease);
    assert_eq!((claims.lease, claims.tenant.as_str()), (lease.id, "ann"));
    assert_eq!((claims.holder.as_str(), &claims.grants), (world.holder.as_str(), &lease.grants));
    assert_eq!((claims.grants[0].share_milli, claims.grants[0].memory), (250, 4 * GIB));
    // The node's orders name it from the version on that the token tells.
    let orders = world.engine.orders(&boss(), "n0", 0, 0).await.unwrap();
    assert!(orders.version >= claims.orders && orders.leases[0].lease == lease.id);
    assert!(world.engine.orders(&boss(), "n1", 0, 0).await.unwrap().leases.is_empty());
    // Three devices: the local one is ordinal 0, though only a part of it is left; no: all three whole ones aren't there.
    let parts = world.ask("ann", world.request("machine-of-n0", 3, 500, 0)).await.unwrap();
    let places: Vec<(&str, u32)> = parts.grants.iter().map(|g| (g.node.as_str(), g.device)).collect();
    assert_eq!(places, [("n0", 0), ("n1", 0), ("n1", 1)]);
    assert_eq!(parts.grants[0].memory, 16 * GIB / 1000 * 500);
    let servers: Vec<(&str, u32)> = parts.servers.iter().map(|s| (s.address.as_str(), s.devices)).collect();
    assert_eq!(servers, [("127.0.0.1:7070", 1), ("n1.example:7070", 2)]);
    // Somebody elsewhere is a client.
    let far = world.ask("bob", world.request("abcdefghijkl", 1, 100, GIB)).await.unwrap();
    assert_eq!((far.client_node.as_str(), far.remote), ("client-abcdefgh", 1));
    assert!(world.engine.nodes(&boss()).unwrap().iter().any(|node| node.state == "client"));
    world.check();
}

#[tokio::test]
async fn tenants_see_and_touch_only_what_is_theirs() {
    let (world, _nodes) = with_nodes(Settings::default(), &[1]).await;
    let lease = world.ask("ann", world.request("m", 1, 100, GIB)).await.unwrap();
    let bob = tenant_named("bob");
    assert_eq!(code(world.engine.lease(&bob, lease.id, 0).await), ErrorCode::Forbidden);
    assert_eq!(code(world.engine.renew(&bob, lease.id).await), ErrorCode::Forbidden);
    assert_eq!(code(world.engine.release(&bob, lease.id).await), ErrorCode::Forbidden);
    assert_eq!(code(world.engine.change(&bob, lease.id, LeaseChange::default()).await), ErrorCode::Forbidden);
    assert_eq!(code(world.engine.explain(&bob, lease.id).await), ErrorCode::Forbidden);
    assert!(world.engine.leases(&bob, true).unwrap().is_empty());
    assert!(world.engine.jobs(&bob).unwrap().is_empty());
    assert_eq!(code(world.engine.tenants(&bob)), ErrorCode::Forbidden);
    assert_eq!(code(world.engine.drain(&bob, "n0", true).await), ErrorCode::Forbidden);
    // An administrator sees it, but not its token.
    let seen = world.engine.lease(&boss(), lease.id, 0).await.unwrap();
    assert_eq!((seen.state, seen.token), (LeaseState::Active, None));
    assert_eq!(code(world.engine.lease(&boss(), LeaseId(1), 0).await), ErrorCode::NotFound);
}

#[tokio::test]
async fn what_was_given_back_is_granted_only_when_its_node_confirms() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[1]).await;
    let first = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    assert_eq!((first.state, first.grants[0].memory), (LeaseState::Active, 16 * GIB));
    nodes[0].beat(&world.engine).await.unwrap();
    let second = world.ask("bob", world.request("m", 1, 10, GIB)).await.unwrap();
    assert_eq!(second.state, LeaseState::Waiting);
    assert!(second.reason.contains("no placement fits"), "{}", second.reason);
    world.engine.release(&tenant_named("ann"), first.id).await.unwrap();
    world.engine.release(&tenant_named("ann"), first.id).await.unwrap();
    world.engine.settle().await;
    assert_eq!(world.lease(first.id).await.state, LeaseState::Ending);
    assert_eq!(world.lease(second.id).await.state, LeaseState::Waiting);
    world.check();
    nodes[0].beat(&world.engine).await.unwrap();
    world.engine.settle().await;
    assert_eq!(world.lease(first.id).await.state, LeaseState::Ended);
    assert_eq!(world.lease(second.id).await.state, LeaseState::Active);
    world.check();
}

#[tokio::test]
async fn a_lease_that_the_node_never_heard_of_ends_once_it_follows_later_orders() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[1]).await;
    let lease = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    world.engine.release(&tenant_named("ann"), lease.id).await.unwrap();
    // This says nothing of the lease, because the node follows orders from before it.
    let node = nodes[0].clone();
    let old = node.heartbeat(Vec::new());
    world.engine.heartbeat(&node.caller(), "n0", old).await.unwrap();
    assert_eq!(world.lease(lease.id).await.state, LeaseState::Ending);
    nodes[0].beat(&world.engine).await.unwrap();
    assert_eq!(world.lease(lease.id).await.state, LeaseState::Ended);
}

#[tokio::test]
async fn who_does_not_renew_loses_the_lease_and_who_does_not_ask_his_place() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[1]).await;
    let (ann, bob) = (tenant_named("ann"), tenant_named("bob"));
    let lease = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    let waits = world.ask("bob", world.request("m", 1, 1000, 0)).await.unwrap();
    for _ in 0..30 {
        world.advance_with(&mut nodes, 5).await;
        let renewed = world.engine.renew(&ann, lease.id).await.unwrap();
        assert_eq!(world.claims(&renewed).expires, world.clock.unix().as_secs() + 60);
        world.engine.renew(&bob, waits.id).await.unwrap();
        world.engine.settle().await;
    }
    assert_eq!(world.lease(lease.id).await.state, LeaseState::Active);
    assert_eq!(world.lease(waits.id).await.state, LeaseState::Waiting);
    for _ in 0..13 {
        world.advance_with(&mut nodes, 5).await;
        world.engine.settle().await;
    }
    let (gone, lapsed) = (world.lease(lease.id).await, world.lease(waits.id).await);
    assert!(gone.state != LeaseState::Active && gone.reason.contains("not renewed"), "{gone:?}");
    assert_eq!(lapsed.state, LeaseState::Ended);
    assert!(lapsed.reason.contains("nobody asked"), "{}", lapsed.reason);
    assert_eq!(code(world.engine.renew(&ann, lease.id).await), ErrorCode::Conflict);
    assert_eq!(world.engine.counters().expired, 2);
    world.check();
}

#[tokio::test]
async fn leases_grow_where_there_is_room_and_shrink_always() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[1]).await;
    let ann = tenant_named("ann");
    let lease = world.ask("ann", world.request("m", 1, 500, 8 * GIB)).await.unwrap();
    let other = world.ask("bob", world.request("m", 1, 400, 6 * GIB)).await.unwrap();
    let change = |memory: u64, share| LeaseChange { memory: Some(memory), share_milli: Some(share) };
    let grown = world.engine.change(&ann, lease.id, change(10 * GIB, 600)).await.unwrap();
    assert_eq!((grown.grants[0].memory, grown.grants[0].share_milli), (10 * GIB, 600));
    assert!(grown.version > lease.version);
    assert!(world.claims(&grown).orders > world.claims(&lease).orders);
    for (memory, share) in [(10 * GIB, 601), (10 * GIB + 1, 600), (17 * GIB, 1)] {
        let refused = world.engine.change(&ann, lease.id, change(memory, share)).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Conflict);
        assert!(refused.message.contains("600 thousandths"), "{}", refused.message);
    }
    assert_eq!(code(world.engine.change(&ann, lease.id, change(GIB, 0)).await), ErrorCode::BadRequest);
    // What waits gets what is given up, as soon as the node says that it is not in use.
    let waits = world.ask("cay", world.request("m", 1, 300, 4 * GIB)).await.unwrap();
    assert_eq!(waits.state, LeaseState::Waiting);
    world.engine.change(&ann, lease.id, change(2 * GIB, 100)).await.unwrap();
    nodes[0].beat(&world.engine).await.unwrap();
    world.engine.settle().await;
    assert_eq!(world.lease(waits.id).await.state, LeaseState::Active);
    world.check();
    assert_eq!(world.lease(other.id).await.version, other.version);
}

#[tokio::test]
async fn memory_that_a_smaller_lease_still_uses_is_nobody_elses() {
    let mut settings = Settings::default();
    let limits = Limits { max_gpu_milli: None, max_memory: Some(10 * GIB), max_leases: None };
    settings.tenants.insert("ann".into(), limits);
    let (mut world, mut nodes) = with_nodes(settings, &[1]).await;
    let ann = tenant_named("ann");
    let lease = world.ask("ann", world.request("m", 1, 100, 9 * GIB)).await.unwrap();
    nodes[0].beat(&world.engine).await.unwrap();
    nodes[0].memory.insert(lease.id, 9 * GIB);
    let change = |memory: u64| LeaseChange { memory: Some(memory), share_milli: None };
    let smaller = world.engine.change(&ann, lease.id, change(GIB)).await.unwrap();
    assert_eq!(smaller.grants[0].memory, GIB);
    // Until the node has spoken, the old amount counts, for the tenant and for the device.
    assert_eq!(code(world.ask("ann", world.request("m", 1, 100, 5 * GIB)).await), ErrorCode::Limit);
    let waits = world.ask("bob", world.request("m", 1, 100, 8 * GIB)).await.unwrap();
    assert_eq!(waits.state, LeaseState::Waiting);
    assert_eq!(world.engine.devices(&boss()).unwrap()[0].granted_memory, 9 * GIB);
    // It speaks, and its programs have all of it still; also after a restart of the broker.
    nodes[0].beat(&world.engine).await.unwrap();
    world.check();
    assert_eq!(code(world.ask("ann", world.request("m", 1, 100, 5 * GIB)).await), ErrorCode::Limit);
    world.restart();
    nodes[0].applied = 0;
    nodes[0].register(&world.engine).await.unwrap();
    nodes[0].beat(&world.engine).await.unwrap();
    world.engine.settle().await;
    assert_eq!(world.lease(waits.id).await.state, LeaseState::Waiting);
    assert_eq!(code(world.ask("ann", world.request("m", 1, 100, 5 * GIB)).await), ErrorCode::Limit);
    // A part is freed: that much is there for others. The lease itself may have it back.
    nodes[0].memory.insert(lease.id, 6 * GIB);
    nodes[0].beat(&world.engine).await.unwrap();
    world.engine.settle().await;
    assert_eq!(world.lease(waits.id).await.state, LeaseState::Active);
    world.check();
    let back = world.engine.change(&ann, lease.id, change(6 * GIB)).await.unwrap();
    assert_eq!(back.grants[0].memory, 6 * GIB);
    world.engine.change(&ann, lease.id, change(GIB)).await.unwrap();
    nodes[0].memory.insert(lease.id, GIB / 2);
    nodes[0].beat(&world.engine).await.unwrap();
    nodes[0].beat(&world.engine).await.unwrap();
    world.engine.settle().await;
    assert_eq!(world.engine.tenants(&boss()).unwrap()[0].memory, GIB);
    assert_eq!(
        world.ask("ann", world.request("m", 1, 100, 5 * GIB)).await.unwrap().state,
        LeaseState::Active
    );
    world.check();
}

#[tokio::test]
async fn limits_hold_for_what_waits_and_what_grows() {
    let mut settings = Settings::default();
    let limits = Limits { max_gpu_milli: Some(1000), max_memory: Some(20 * GIB), max_leases: Some(3) };
    settings.tenants.insert("ann".into(), limits);
    let (world, _nodes) = with_nodes(settings, &[4]).await;
    let lease = world.ask("ann", world.request("m", 1, 500, GIB)).await.unwrap();
    let over = world.ask("ann", world.request("m", 1, 501, GIB)).await.unwrap_err();
    assert_eq!(over.code, ErrorCode::Limit);
    assert!(over.message.contains("1000 thousandths"), "{}", over.message);
    let memory = world.ask("ann", world.request("m", 2, 10, 10 * GIB)).await;
    assert_eq!(code(memory), ErrorCode::Limit);
    let change = LeaseChange { share_milli: Some(1000), memory: Some(2 * GIB) };
    world.engine.change(&tenant_named("ann"), lease.id, change).await.unwrap();
    assert_eq!(code(world.ask("ann", world.request("m", 1, 1, GIB)).await), ErrorCode::Limit);
    world.ask("bob", world.request("m", 4, 500, 0)).await.unwrap();
    let tenants = world.engine.tenants(&boss()).unwrap();
    assert_eq!((tenants[0].name.as_str(), tenants[0].gpu_milli, tenants[0].memory), ("ann", 1000, 2 * GIB));
    assert_eq!(world.engine.counters().limited, 3);
}

#[tokio::test]
async fn nonsense_and_the_impossible_are_refused_and_say_why() {
    let (world, _nodes) = with_nodes(Settings::default(), &[2]).await;
    let good = world.request("m", 1, 100, GIB);
    let bad: [LeaseRequest; 11] = [
        LeaseRequest { gpus: 0, ..good.clone() },
        LeaseRequest { gpus: 17, ..good.clone() },
        LeaseRequest { share_milli: 0, ..good.clone() },
        LeaseRequest { share_milli: 1001, ..good.clone() },
        LeaseRequest { holder: "me".into(), ..good.clone() },
        LeaseRequest { transport: "pigeon".into(), ..good.clone() },
        LeaseRequest { transport: "rdma".into(), encrypt: true, ..good.clone() },
        LeaseRequest { profile: Some("unheard-of".into()), ..good.clone() },
        LeaseRequest { scale: Some(f64::NAN), ..good.clone() },
        LeaseRequest { importance: Some(11.0), ..good.clone() },
        LeaseRequest { machine: String::new(), ..good.clone() },
    ];
    for request in bad {
        assert_eq!(code(world.ask("ann", request.clone()).await), ErrorCode::BadRequest, "{request:?}");
    }
    let nowhere = LeaseRequest { node: Some("n9".into()), ..good.clone() };
    assert_eq!(code(world.ask("ann", nowhere).await), ErrorCode::NotFound);
    let impossible = [
        LeaseRequest { gpus: 3, ..good.clone() },
        LeaseRequest { memory: 17 * GIB, ..good.clone() },
        LeaseRequest { models: vec!["H200".into()], ..good.clone() },
    ];
    for request in impossible {
        let refused = world.ask("ann", request).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Impossible);
        assert!(refused.message.contains("exist"), "{}", refused.message);
    }
    let model = LeaseRequest { models: vec!["H200".into(), "T4".into()], ..good };
    assert_eq!(world.ask("ann", model).await.unwrap().state, LeaseState::Active);
    assert_eq!(world.engine.counters().impossible, 3);
}

#[tokio::test]
async fn traffic_that_no_link_carries_is_refused_unless_the_device_is_near() {
    // Nodes and machines that are no nodes have links of 10,000 Mbit/s.
    let (world, mut nodes) = with_nodes(Settings::default(), &[2, 1]).await;
    let asks = |machine: &str, gpus, mbps| LeaseRequest {
        traffic_mbps: Some(mbps),
        ..world.request(machine, gpus, 100, GIB)
    };
    let refused = world.ask("ann", asks("m", 1, 10_001)).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Impossible);
    for word in ["10001 Mbit/s", "--traffic", "could use 0 of the 1"] {
        assert!(refused.message.contains(word), "{word}: {}", refused.message);
    }
    // Two at a time do not fit through the program's own link; one beside a near one does.
    assert_eq!(code(world.ask("ann", asks("m", 2, 6000)).await), ErrorCode::Impossible);
    let leases = [asks("m", 1, 6000), asks("machine-of-n0", 2, 20_000), asks("machine-of-n1", 2, 6000)];
    for request in leases {
        let lease = world.ask("ann", request.clone()).await.unwrap();
        assert_eq!(lease.state, LeaseState::Active, "{request:?}: {}", lease.reason);
        world.engine.release(&tenant_named("ann"), lease.id).await.unwrap();
        for node in &mut nodes {
            node.beat(&world.engine).await.unwrap();
        }
    }
    assert_eq!(world.engine.counters().impossible, 2);
}

#[tokio::test]
async fn what_is_to_be_encrypted_goes_to_servers_that_encrypt() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[2, 1]).await;
    let asked = LeaseRequest { encrypt: true, ..world.request("m", 1, 500, GIB) };
    let refused = world.ask("ann", asked.clone()).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Impossible);
    let both = "needs encryption, which nodes n0 and n1 don't offer";
    assert!(refused.message.contains("--tls offer") && refused.message.contains(both), "{}", refused.message);
    let known = format!("sha256:{}", "0a".repeat(32));
    (nodes[1].about.tls, nodes[1].about.tls_fingerprint) = (true, Some(known.clone()));
    nodes[1].register(&world.engine).await.unwrap();
    nodes[1].beat(&world.engine).await.unwrap();
    for models in [Vec::new(), vec![nodes[1].about.devices[0].model.clone()]] {
        let lease = world.ask("ann", LeaseRequest { models, ..asked.clone() }).await.unwrap();
        assert_eq!(lease.state, LeaseState::Active);
        let server = &lease.servers[0];
        assert_eq!((&server.node, server.tls), (&nodes[1].about.name, true));
        assert_eq!(server.fingerprint.as_ref(), Some(&known));
        assert!(world.claims(&lease).encrypt);
    }
    // Others are given the rest, by the same names.
    let model = nodes[0].about.devices[0].model.clone();
    let open = LeaseRequest { models: vec![model], ..world.request("m", 1, 1000, 0) };
    let lease = world.ask("ann", open).await.unwrap();
    assert_eq!((lease.state, lease.servers[0].tls), (LeaseState::Active, false));
}

#[tokio::test]
async fn a_broker_can_require_encryption() {
    let (world, _nodes) = with_nodes(Settings { encrypt: true, ..Settings::default() }, &[1]).await;
    let refused = world.ask("ann", world.request("m", 1, 500, GIB)).await.unwrap_err();
    assert!(refused.message.contains("--tls offer"), "{}", refused.message);
}

#[tokio::test]
async fn now_or_never_does_not_wait() {
    let (world, _nodes) = with_nodes(Settings::default(), &[1]).await;
    let never = |world: &World| LeaseRequest { now_or_never: true, ..world.request("m", 1, 600, GIB) };
    let first = world.engine.request_lease(&tenant_named("ann"), never(&world)).await.unwrap();
    assert_eq!(first.state, LeaseState::Active);
    assert!(first.token.is_some());
    let refused = world.engine.request_lease(&tenant_named("bob"), never(&world)).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict);
    assert!(refused.message.contains("no placement fits"), "{}", refused.message);
    assert_eq!(world.engine.counters().waiting, 0);
}

#[tokio::test]
async fn whoever_waits_is_told_when_it_is_granted_and_when_the_engine_stops() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[1]).await;
    let ann = tenant_named("ann");
    let first = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    nodes[0].beat(&world.engine).await.unwrap();
    let waiting = LeaseRequest { wait_s: 60, ..world.request("m", 1, 1000, 0) };
    let (engine, bob) = (world.engine.clone(), tenant_named("bob"));
    let task = tokio::spawn(async move { engine.request_lease(&bob, waiting).await });
    while world.engine.counters().waiting == 0 {
        tokio::task::yield_now().await;
    }
    world.engine.release(&ann, first.id).await.unwrap();
    nodes[0].beat(&world.engine).await.unwrap();
    let granted = task.await.unwrap().unwrap();
    assert_eq!(granted.state, LeaseState::Active);
    // Orders wake those who wait for them, too.
    let (engine, node) = (world.engine.clone(), nodes[0].clone());
    let seen = nodes[0].applied.max(world.engine.orders(&boss(), "n0", 0, 0).await.unwrap().version);
    let task = tokio::spawn(async move { engine.orders(&node.caller(), "n0", seen, 60).await });
    tokio::task::yield_now().await;
    world.engine.release(&boss(), granted.id).await.unwrap();
    let orders = task.await.unwrap().unwrap();
    assert!(orders.version > seen && orders.leases.is_empty());
    let (engine, node) = (world.engine.clone(), nodes[0].clone());
    let task = tokio::spawn(async move { engine.orders(&node.caller(), "n0", orders.version, 60).await });
    tokio::task::yield_now().await;
    let engine = world.engine.clone();
    tokio::task::spawn_blocking(move || engine.stop()).await.unwrap();
    assert_eq!(code(task.await.unwrap()), ErrorCode::Unavailable);
    assert_eq!(code(world.engine.release(&ann, first.id).await), ErrorCode::Unavailable);
}

#[tokio::test]
async fn the_longest_waiting_is_served_first() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[1]).await;
    let first = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    let mut queue = Vec::new();
    for _ in 0..3 {
        world.clock.advance(10);
        queue.push(world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap().id);
    }
    let jobs = world.engine.jobs(&tenant_named("ann")).unwrap();
    let places: Vec<(LeaseId, u32)> = jobs.iter().map(|job| (job.lease, job.place)).collect();
    assert_eq!(places, [(queue[0], 1), (queue[1], 2), (queue[2], 3), (first.id, 0)]);
    let mut holder = first.id;
    for next in queue {
        nodes[0].beat(&world.engine).await.unwrap();
        world.engine.release(&tenant_named("ann"), holder).await.unwrap();
        nodes[0].beat(&world.engine).await.unwrap();
        world.engine.settle().await;
        assert_eq!(world.lease(next).await.state, LeaseState::Active);
        holder = next;
    }
}

#[tokio::test]
async fn events_tell_what_happened() {
    let (world, _nodes) = with_nodes(Settings::default(), &[1]).await;
    let mut all = world.engine.events(&boss(), Some(0)).unwrap();
    let mut bobs = world.engine.events(&tenant_named("bob"), None).unwrap();
    let lease = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    world.engine.release(&tenant_named("ann"), lease.id).await.unwrap();
    world.engine.drain(&boss(), "n0", true).await.unwrap();
    let mut kinds = Vec::new();
    while kinds.last().is_none_or(|kind| kind != "node_drained") {
        kinds.push(all.next().await.unwrap().kind);
    }
    assert_eq!(kinds, ["broker_started", "node_joined", "lease_granted", "lease_ended", "node_drained"]);
    assert_eq!(bobs.next().await.unwrap().kind, "node_drained");
}

#[tokio::test]
async fn a_request_that_is_taken_back_while_it_waits_is_withdrawn() {
    let (mut world, mut nodes) = with_nodes(Settings::default(), &[1]).await;
    let holder = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    let waiting = world.ask("bob", world.request("m", 1, 1000, 0)).await.unwrap();
    let next = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    let eve = world.engine.release(&tenant_named("eve"), waiting.id).await;
    assert_eq!(code(eve), ErrorCode::Forbidden);
    world.engine.release(&tenant_named("bob"), waiting.id).await.unwrap();
    // Nothing has to be confirmed by anybody.
    let seen = world.lease(waiting.id).await;
    assert_eq!((seen.state, seen.grants.len(), seen.granted), (LeaseState::Ended, 0, None));
    assert!(seen.reason.contains("withdrawn while it waited"), "{}", seen.reason);
    let counters = world.engine.counters();
    assert_eq!((counters.withdrawn, counters.released, counters.waiting), (1, 0, 1));
    // Once more changes nothing, and who waited behind it moves up.
    world.engine.release(&tenant_named("bob"), waiting.id).await.unwrap();
    assert_eq!(world.engine.counters().withdrawn, 1);
    let jobs = world.engine.jobs(&boss()).unwrap();
    assert_eq!(jobs.iter().find(|job| job.lease == next.id).map(|job| job.place), Some(1));
    world.engine.release(&tenant_named("ann"), holder.id).await.unwrap();
    nodes[0].beat(&world.engine).await.unwrap();
    world.engine.settle().await;
    assert_eq!(world.lease(next.id).await.state, LeaseState::Active);
    assert_eq!(world.engine.counters().released, 1);
    world.check();
    // It does not come back with the broker.
    world.restart();
    assert!(world.engine.leases(&boss(), false).unwrap().iter().all(|lease| lease.id != waiting.id));
}

#[tokio::test]
async fn a_request_with_a_key_finds_the_lease_that_the_key_has() {
    let (mut world, mut nodes) = with_nodes(Settings::default(), &[1]).await;
    let keyed = LeaseRequest { key: Some("batch/7".into()), ..world.request("m", 1, 1000, 0) };
    let first = world.ask("ann", keyed.clone()).await.unwrap();
    assert_eq!((first.state, first.key.as_deref()), (LeaseState::Active, Some("batch/7")));
    // Again, from another machine: the same lease, with its token.
    let again = world.ask("ann", LeaseRequest { machine: "other".into(), ..keyed.clone() }).await.unwrap();
    assert_eq!((again.id, again.token.is_some()), (first.id, true));
    // Keys are the tenants' own, and a key's holder is one.
    let other = world.ask("bob", keyed.clone()).await.unwrap();
    assert_ne!(other.id, first.id);
    assert_eq!(other.state, LeaseState::Waiting);
    assert_eq!(world.ask("bob", keyed.clone()).await.unwrap().id, other.id);
    let holder = PrivateKey::generate().public().to_text();
    let refused = world.ask("ann", LeaseRequest { holder, ..keyed.clone() }).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Conflict);
    assert!(refused.message.contains("another holder"), "{}", refused.message);
    // A broker that starts again knows it.
    world.restart();
    nodes[0].register(&world.engine).await.unwrap();
    assert_eq!(world.ask("ann", keyed.clone()).await.unwrap().id, first.id);
    // What is given back frees the key at once.
    world.engine.release(&tenant_named("ann"), first.id).await.unwrap();
    let next = world.ask("ann", keyed.clone()).await.unwrap();
    assert_ne!(next.id, first.id);
    let long = LeaseRequest { key: Some("x".repeat(300)), ..keyed };
    assert_eq!(world.ask("ann", long).await.unwrap_err().code, ErrorCode::BadRequest);
    world.check();
}
