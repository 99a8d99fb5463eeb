//! What runs teach, and what comes of it.

use rgpu_placement::Profile;

use super::*;

/// How a program behaves in truth: seconds of a local run, what a remote one takes on a quiet network, and how sensitive it is.
#[derive(Clone, Copy)]
pub(super) struct Truth {
    local_s: f64,
    slowdown: f64,
    sensitivity: f64,
}

const NW: Truth = Truth { local_s: 20.0, slowdown: 1.2, sensitivity: 1.5 };
pub(super) const HOTSPOT: Truth = Truth { local_s: 20.0, slowdown: 1.0, sensitivity: 0.0 };

/// Runs a program of machine `m` to its end; gives the node where it was.
pub(super) async fn run(world: &World, nodes: &mut [FakeNode], program: &str, truth: Truth) -> usize {
    let ann = tenant_named("ann");
    let request =
        LeaseRequest { program: Some(program.into()), input: Some(7), ..world.request("m", 1, 1000, GIB) };
    let lease = world.ask("ann", request).await.unwrap();
    assert_eq!(lease.state, LeaseState::Active, "{}", lease.reason);
    let node: usize = lease.grants[0].node[1..].parse().unwrap();
    let load = nodes[node].nic_mbps as f64 / 10_000.0;
    let seconds = (truth.local_s * truth.slowdown * (1.0 + truth.sensitivity * load)).round() as u64;
    for second in 1..=seconds {
        let busy_ms = (truth.local_s * 1000.0) as u64 * second / seconds;
        let used = GrantUsage { busy_ms, launches: second, peak_memory: GIB, ..GrantUsage::default() };
        nodes[node].used.insert(lease.id, used);
        world.advance_with(nodes, 1).await;
    }
    world.engine.complete(&ann, lease.id).await.unwrap();
    // The node confirms it; then the placement is told.
    world.advance_with(nodes, 3).await;
    assert_eq!(world.lease(lease.id).await.state, LeaseState::Ended);
    node
}

fn learnt(world: &World, program: &str) -> LearntProfile {
    let all = world.engine.profiles(&tenant_named("ann")).unwrap();
    all.into_iter().find(|profile| profile.program == program).unwrap()
}

#[tokio::test]
async fn a_program_never_seen_avoids_a_loaded_link() {
    for loaded in [0, 1] {
        let (world, mut nodes) = with_nodes(Settings::default(), &[1, 1]).await;
        nodes[loaded].nic_mbps = 8_000;
        world.advance_with(&mut nodes, 8).await;
        assert_eq!(run(&world, &mut nodes, "new", NW).await, 1 - loaded);
    }
}

#[tokio::test]
async fn a_network_bound_program_leaves_a_loaded_link_within_three_runs() {
    // Only one node has room in the first two runs, and its link is loaded; what the program is like shows on both of them.
    let (world, mut nodes) = with_nodes(Settings::default(), &[1, 1]).await;
    for (runs, loads) in [(1, [0, 8_000]), (2, [8_000, 0])] {
        (nodes[0].nic_mbps, nodes[1].nic_mbps) = (loads[0], loads[1]);
        world.engine.drain(&boss(), "n1", true).await.unwrap();
        world.advance_with(&mut nodes, 8).await;
        assert_eq!(run(&world, &mut nodes, "nw", NW).await, 0);
        assert_eq!(learnt(&world, "nw").runs, runs);
    }
    world.engine.drain(&boss(), "n1", false).await.unwrap();
    world.advance_with(&mut nodes, 3).await;
    assert_eq!(run(&world, &mut nodes, "nw", NW).await, 1);
    let known = learnt(&world, "nw");
    assert!(known.sensitivity.mean > 0.8, "{known:?}");
    assert_eq!(known.memory.unwrap().mean, GIB as f64);
}

#[tokio::test]
async fn what_was_learnt_outlives_the_broker_and_is_its_tenants_alone() {
    let (mut world, mut nodes) = with_nodes(Settings::default(), &[1]).await;
    for load in [0, 9_000, 0, 9_000] {
        nodes[0].nic_mbps = load;
        world.advance_with(&mut nodes, 8).await;
        run(&world, &mut nodes, "hotspot", HOTSPOT).await;
    }
    let known = learnt(&world, "hotspot");
    assert!(known.runs == 4 && known.sensitivity.mean < 0.15, "{known:?}");
    assert!((18.0..22.0).contains(&known.local_s["7"].mean), "{known:?}");
    assert!(!known.written && known.tenant == "ann");
    assert!(world.engine.profiles(&tenant_named("bob")).unwrap().is_empty());
    assert_eq!(code(world.engine.forget_profile(&tenant_named("bob"), "hotspot").await), ErrorCode::NotFound);
    world.restart();
    assert_eq!(learnt(&world, "hotspot"), known);
    world.engine.forget_profile(&tenant_named("ann"), "hotspot").await.unwrap();
    assert!(world.engine.profiles(&boss()).unwrap().is_empty());
    world.restart();
    assert!(world.engine.profiles(&boss()).unwrap().is_empty());
}

#[tokio::test]
async fn runs_that_say_nothing_teach_nothing() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[1]).await;
    let ann = tenant_named("ann");
    let named = LeaseRequest { program: Some("app".into()), ..world.request("m", 1, 1000, GIB) };
    // It failed; it never used a device; nobody knows which program it was.
    for (program, works, completes) in [(true, true, false), (true, false, true), (false, true, true)] {
        let request = LeaseRequest { program: named.program.clone().filter(|_| program), ..named.clone() };
        let lease = world.ask("ann", request).await.unwrap();
        let used = GrantUsage { launches: u64::from(works), ..GrantUsage::default() };
        nodes[0].used.insert(lease.id, used);
        world.advance_with(&mut nodes, 5).await;
        match completes {
            true => world.engine.complete(&ann, lease.id).await.unwrap(),
            false => world.engine.release(&ann, lease.id).await.unwrap(),
        }
        world.advance_with(&mut nodes, 3).await;
        assert_eq!(world.lease(lease.id).await.state, LeaseState::Ended);
    }
    assert!(world.engine.profiles(&boss()).unwrap().is_empty());
}

#[tokio::test]
async fn a_run_that_cannot_be_stored_is_not_learnt() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[1]).await;
    run(&world, &mut nodes, "app", HOTSPOT).await;
    let before = learnt(&world, "app");
    let request = LeaseRequest { program: Some("app".into()), ..world.request("m", 1, 1000, GIB) };
    let lease = world.ask("ann", request).await.unwrap();
    nodes[0].used.insert(lease.id, GrantUsage { launches: 1, ..GrantUsage::default() });
    world.advance_with(&mut nodes, 5).await;
    world.engine.complete(&tenant_named("ann"), lease.id).await.unwrap();
    world.store.fail(Some("no room"));
    assert!(nodes[0].beat(&world.engine).await.is_err());
    assert_eq!(learnt(&world, "app"), before);
}

#[tokio::test]
async fn what_somebody_has_written_counts_instead() {
    let profile = Profile { remote_s: 10.0, sensitivity: 0.0, ..Profile::new("nw", 10.0) };
    let settings = Settings {
        profiles: vec![ProfileSettings { profile, traffic_mbps: 0, processors: Default::default() }],
        ..Settings::default()
    };
    let (world, mut nodes) = with_nodes(settings, &[1]).await;
    run(&world, &mut nodes, "nw", NW).await;
    assert!(learnt(&world, "nw").written);
    let request = LeaseRequest { program: Some("nw".into()), ..world.request("m", 1, 1000, GIB) };
    world.ask("ann", request).await.unwrap();
    assert_eq!(world.engine.jobs(&tenant_named("ann")).unwrap()[0].expected_s, Some(10.0));
}
