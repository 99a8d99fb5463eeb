//! What the placement decides, and why.

use rgpu_placement::Profile;

use super::*;

fn sensitive() -> Settings {
    let profile = Profile { remote_s: 100.0, sensitivity: 2.0, ..Profile::new("sensitive", 90.0) };
    Settings {
        profiles: vec![ProfileSettings { profile, traffic_mbps: 500, processors: Default::default() }],
        ..Settings::default()
    }
}

#[tokio::test]
async fn a_sensitive_program_avoids_the_loaded_link_and_the_explanation_says_so() {
    let (world, mut nodes) = with_nodes(sensitive(), &[1, 1]).await;
    for loaded in [0, 1] {
        nodes[loaded].nic_mbps = 8_000;
        nodes[1 - loaded].nic_mbps = 0;
        // A load that has lasted for a while.
        for _ in 0..8 {
            world.advance(1000).await;
            for node in &mut nodes {
                node.beat(&world.engine).await.unwrap();
            }
        }
        let request = LeaseRequest { profile: Some("sensitive".into()), ..world.request("m", 1, 300, GIB) };
        let lease = world.ask("ann", request).await.unwrap();
        assert_eq!(lease.grants[0].node, format!("n{}", 1 - loaded));
        let why = world.engine.explain(&tenant_named("ann"), lease.id).await.unwrap();
        assert_eq!(why.policy, "drmaestro");
        let devices = why.steps.last().unwrap();
        assert_eq!((devices.phase.as_str(), devices.places), ("GPU", 2));
        let at = |name: &str| devices.candidates.iter().find(|c| c.place == name).unwrap();
        let (quiet, busy) = (at(&format!("n{}", 1 - loaded)), at(&format!("n{loaded}")));
        assert!(quiet.chosen && !busy.chosen && quiet.cost < busy.cost, "{}", why.text);
        assert!(busy.load > 0.79 && busy.expected_s.unwrap() > quiet.expected_s.unwrap(), "{}", why.text);
        assert!(!why.text.contains('\u{0}'), "{}", why.text);
        assert!(why.steps[0].candidates.iter().any(|c| c.place == "client-m"), "{}", why.text);
    }
}

#[tokio::test]
async fn one_heartbeat_does_not_make_a_link_loaded() {
    let (world, mut nodes) = with_nodes(sensitive(), &[1, 1]).await;
    let others = async |world: &World| world.engine.node(&boss(), "n0").unwrap().others_mbps;
    let load = async |world: &World| {
        let request = LeaseRequest { profile: Some("sensitive".into()), ..world.request("m", 1, 300, GIB) };
        let lease = world.ask("ann", request).await.unwrap();
        let why = world.engine.explain(&tenant_named("ann"), lease.id).await.unwrap();
        world.engine.release(&tenant_named("ann"), lease.id).await.unwrap();
        why.steps.last().unwrap().candidates.iter().find(|c| c.place == "n0").unwrap().load
    };
    for node in &mut nodes {
        node.beat(&world.engine).await.unwrap();
    }
    // A program's own bytes have passed the interface, and are counted as its own a heartbeat later.
    let mut seen = vec![];
    for measured in [8_000, 0, 0] {
        world.advance(1000).await;
        let beat = Heartbeat { nic_in_mbps: measured, ..nodes[0].heartbeat(Vec::new()) };
        world.engine.heartbeat(&nodes[0].caller(), "n0", beat.clone()).await.unwrap();
        // Said again at once, it is the same.
        world.engine.heartbeat(&nodes[0].caller(), "n0", beat).await.unwrap();
        let mbps = others(&world).await;
        // The placement sees it in hundredths of the link.
        assert_eq!(load(&world).await, (mbps as f64 / 100.0).round() / 100.0);
        seen.push(mbps);
    }
    assert_eq!(seen, [3148, 1909, 1158]);
    // What lasts is seen.
    nodes[0].nic_mbps = 8_000;
    for _ in 0..8 {
        world.advance(1000).await;
        for node in &mut nodes {
            node.beat(&world.engine).await.unwrap();
        }
    }
    assert!((7_800..=8_000).contains(&others(&world).await));
    assert!(load(&world).await >= 0.78);
}

#[tokio::test]
async fn what_waits_is_explained_when_somebody_asks() {
    let settings = Settings { explained: 0, round_interval_ms: 50, ..Settings::default() };
    let (world, _nodes) = with_nodes(settings, &[1]).await;
    let first = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    let second = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    let why = world.engine.explain(&tenant_named("ann"), second.id).await.unwrap();
    assert_eq!(why.policy, "drmaestro");
    assert!(!why.steps.is_empty() && why.text.contains("ruled out"), "{}", why.text);
    // The decision about the first one was not recorded, and the answer says so.
    let why = world.engine.explain(&tenant_named("ann"), first.id).await.unwrap();
    assert!(why.steps.is_empty() && why.text.contains("not recorded"), "{}", why.text);
    assert_eq!(why.outcome, "placed on n0's device 0");
}

#[tokio::test]
async fn a_wanted_node_is_the_only_one_under_every_policy() {
    let settings = Settings { round_interval_ms: 50, ..Settings::default() };
    let (world, mut nodes) = with_nodes(settings, &[1, 2, 1]).await;
    for name in world.engine.policies(&boss()).unwrap().names {
        let policy = PolicySettings { name: name.clone(), ..world.settings.policy.clone() };
        world.engine.set_policy(&boss(), policy).await.unwrap();
        let on = |node: &str, share, memory| LeaseRequest {
            on_node: Some(node.into()),
            ..world.request("machine-of-n0", 1, share, memory)
        };
        let mut leases = Vec::new();
        let wanted = [("n2", 1000), ("n1", 500), ("n1", 1000)];
        // One policy gives a whole node to one lease.
        let several = if name == "compact-exclusive" { 2 } else { 3 };
        for (node, share) in wanted.into_iter().take(several) {
            let lease = world.ask("ann", on(node, share, GIB)).await.unwrap();
            assert_eq!(lease.state, LeaseState::Active, "{name}: {}", lease.reason);
            assert_eq!(lease.grants[0].node, node, "{name}");
            leases.push(lease);
        }
        // Another node has a device free, and it waits all the same.
        let waits = world.ask("ann", on("n2", 1000, 0)).await.unwrap();
        assert_eq!(waits.state, LeaseState::Waiting, "{name}");
        let why = world.engine.explain(&tenant_named("ann"), waits.id).await.unwrap();
        assert_eq!(why.alternatives.iter().map(|one| one.change.as_str()).collect::<Vec<_>>(), ["on_node"]);
        let in_way: Vec<Option<LeaseId>> = why.blocked_by.iter().map(|lease| lease.lease).collect();
        assert_eq!(in_way, [Some(leases[0].id)], "{name}");
        leases.push(waits);
        for lease in leases {
            world.engine.release(&tenant_named("ann"), lease.id).await.unwrap();
        }
        for node in &mut nodes {
            node.beat(&world.engine).await.unwrap();
        }
        world.check();
    }
    let nowhere = LeaseRequest { on_node: Some("n9".into()), ..world.request("m", 1, 1000, 0) };
    let refused = world.ask("ann", nowhere).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::NotFound);
    assert!(refused.message.contains("n9"), "{}", refused.message);
    // What that node never has is refused at once, whatever others have.
    let two = LeaseRequest { on_node: Some("n0".into()), ..world.request("m", 2, 1000, 0) };
    let policy = PolicySettings { name: "drmaestro".into(), ..world.settings.policy.clone() };
    world.engine.set_policy(&boss(), policy).await.unwrap();
    let refused = world.ask("ann", two).await.unwrap_err();
    assert!(refused.code == ErrorCode::Impossible && refused.message.contains("\"n0\" only"), "{refused:?}");
}

#[tokio::test]
async fn every_policy_serves_clients_elsewhere_and_the_choice_is_kept() {
    let (mut world, mut nodes) = with_nodes(Settings::default(), &[2, 2]).await;
    let names = world.engine.policies(&boss()).unwrap().names;
    assert_eq!(names, rgpu_placement::PolicyConfig::NAMES);
    let last = names[names.len() - 1].clone();
    for name in names {
        let policy = PolicySettings { name: name.clone(), ..world.settings.policy.clone() };
        world.engine.set_policy(&boss(), policy).await.unwrap();
        let lease = world.ask("ann", world.request("m", 2, 1000, 0)).await.unwrap();
        assert_eq!(lease.state, LeaseState::Active, "{name}: {}", lease.reason);
        for node in &mut nodes {
            node.beat(&world.engine).await.unwrap();
        }
        world.engine.release(&tenant_named("ann"), lease.id).await.unwrap();
        for node in &mut nodes {
            node.beat(&world.engine).await.unwrap();
        }
        world.check();
    }
    let good = &world.settings.policy;
    let number = |name: &str, value| {
        let mut policy = good.clone();
        policy.settings.insert(name.into(), SettingValue::Number(value));
        policy
    };
    let mut incomplete = good.clone();
    incomplete.settings.remove("link_limit");
    for (odd, part) in [
        (incomplete, "link_limit is missing"),
        (number("network_aware", 1.0), "network_aware"),
        (number("max_sliver", 0.5), "max_sliver"),
        (PolicySettings { name: "dice".into(), ..good.clone() }, "dice"),
        (number("link_limit", 1e300), "link_limit"),
        (number("link_limit", -0.1), "link_limit"),
        (number("link_limit", f64::NAN), "link_limit"),
        (number("max_remote_share", 1.01), "max_remote_share"),
        (number("max_remote_share", -1.0), "max_remote_share"),
        (number("remote_preference", 0.99), "remote_preference"),
        (number("remote_preference", f64::INFINITY), "remote_preference"),
    ] {
        let refused = world.engine.set_policy(&boss(), odd).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::BadRequest);
        assert!(refused.message.contains(part), "{}", refused.message);
    }
    assert_eq!(world.engine.policies(&boss()).unwrap().active.name, last);
    assert_eq!(
        code(world.engine.set_policy(&tenant_named("ann"), world.settings.policy.clone()).await),
        ErrorCode::Forbidden
    );
    world.restart();
    assert_eq!(world.engine.policies(&boss()).unwrap().active.name, last);
    // A new configuration counts more than what was set under the old one.
    world.settings.policy.name = "best-fit".into();
    world.restart();
    assert_eq!(world.engine.policies(&boss()).unwrap().active.name, "best-fit");
}

#[tokio::test]
async fn more_clients_than_spare_places_are_no_problem() {
    let (world, _nodes) = with_nodes(Settings::default(), &[8, 8]).await;
    for i in 0..150 {
        let lease = world.ask("ann", world.request(&format!("{i:08}"), 1, 100, GIB)).await.unwrap();
        assert_eq!(lease.state, LeaseState::Active, "{i}: {}", lease.reason);
    }
    let counters = world.engine.counters();
    assert!(counters.rebuilds <= 6, "{}", counters.rebuilds);
    assert_eq!(counters.grants, 150);
    world.check();
}

#[tokio::test]
async fn gangs_get_all_their_devices_or_none() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[1, 1, 1]).await;
    let one = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    let gang = world.ask("ann", world.request("m", 3, 1000, 0)).await.unwrap();
    assert_eq!((gang.state, gang.grants.len()), (LeaseState::Waiting, 0));
    world.engine.release(&tenant_named("ann"), one.id).await.unwrap();
    for node in &mut nodes {
        node.beat(&world.engine).await.unwrap();
    }
    world.engine.settle().await;
    assert_eq!(world.lease(gang.id).await.grants.len(), 3);
    world.check();
}

/// A node with instances of a partitioned GPU, and `whole` other GPUs.
fn divided(name: &str, instances: u32, whole: u32) -> FakeNode {
    let mut node = FakeNode::new(name, instances + whole, 16 * GIB);
    for device in node.about.devices.iter_mut().take(instances as usize) {
        (device.alone, device.partitionable, device.enforced_by) = (true, false, "mig".into());
    }
    node
}

#[tokio::test]
async fn a_lease_has_one_instance_of_a_node_and_nothing_beside_it() {
    let world = World::new(Settings { round_interval_ms: 50, ..Settings::default() });
    let mut nodes = [divided("a", 3, 0), divided("b", 2, 0), divided("c", 1, 2)];
    nodes[0].register(&world.engine).await.unwrap();
    world.engine.settle().await;
    // All that there is, but not for one program.
    let refused = world.ask("ann", world.request("m", 2, 1000, 0)).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::Impossible);
    let why = "3 such devices exist, of which one program can use 1 at a time";
    assert!(refused.message.contains(why), "{}", refused.message);
    // Of two nodes, a gang gets one each, from whatever machine it asks.
    nodes[1].register(&world.engine).await.unwrap();
    world.engine.settle().await;
    let homes = [world.request("m", 2, 1000, 0), world.request("machine-of-a", 2, 1000, 0)];
    let mut gangs = Vec::new();
    for request in homes {
        let gang = world.ask("ann", request).await.unwrap();
        assert_eq!(gang.state, LeaseState::Active, "{}", gang.reason);
        let mut at: Vec<&str> = gang.grants.iter().map(|grant| grant.node.as_str()).collect();
        at.sort_unstable();
        assert_eq!(at, ["a", "b"]);
        gangs.push(gang);
    }
    // One instance is left, in a node of which the third gang could have that alone.
    let third = world.ask("ann", world.request("m", 2, 1000, 0)).await.unwrap();
    assert_eq!(third.state, LeaseState::Waiting);
    let single = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    assert_eq!((single.state, single.grants[0].node.as_str()), (LeaseState::Active, "a"));
    // Where whole ones are, it gets these: an instance would be its only device there.
    nodes[2].register(&world.engine).await.unwrap();
    world.engine.settle().await;
    let third = world.lease(third.id).await;
    assert_eq!(third.state, LeaseState::Active, "{}", third.reason);
    let at: Vec<(&str, u32)> = third.grants.iter().map(|grant| (grant.node.as_str(), grant.device)).collect();
    assert_eq!(at, [("c", 1), ("c", 2)]);
    world.check();
}

#[tokio::test]
async fn what_a_node_does_not_offer_is_said() {
    let settings = Settings { round_interval_ms: 50, ..Settings::default() };
    let (world, mut nodes) = with_nodes(settings, &[1, 1, 1]).await;
    nodes[2].about.tls = true;
    nodes[2].register(&world.engine).await.unwrap();
    nodes[2].beat(&world.engine).await.unwrap();
    let asked = LeaseRequest { encrypt: true, ..world.request("m", 1, 1000, 0) };
    let first = world.ask("ann", asked.clone()).await.unwrap();
    assert_eq!(first.grants[0].node, "n2");
    let second = world.ask("ann", asked).await.unwrap();
    assert_eq!(second.state, LeaseState::Waiting);
    let why = world.engine.explain(&tenant_named("ann"), second.id).await.unwrap();
    let said = "needs encryption, which nodes n0 and n1 don't offer";
    assert!(why.text.contains(said), "{}", why.text);
    let steps = why.steps.iter().flat_map(|step| &step.ruled_out);
    assert!(steps.clone().any(|(why, nodes)| why == said && *nodes == 2), "{}", why.text);
    // Whoever doesn't need it gets what is left.
    let open = world.ask("ann", world.request("m", 2, 1000, 0)).await.unwrap();
    assert_eq!(open.state, LeaseState::Active, "{}", open.reason);
}
