//! Requests with a deadline: what is refused, which part of a device they get, and what becomes of the deadline.

use super::*;

/// A request that leaves its share to the broker, of a program that is said to take so long.
fn auto(world: &World, machine: &str, estimate_s: f64, deadline_s: f64) -> LeaseRequest {
    LeaseRequest {
        estimate_s: Some(estimate_s),
        deadline_s: Some(deadline_s),
        ..world.request(machine, 1, 0, 0)
    }
}

fn share(lease: &Lease) -> u16 {
    lease.grants[0].share_milli
}

#[tokio::test]
async fn nonsense_is_refused_in_clear_words() {
    let (world, _nodes) = with_nodes(Settings::default(), &[1]).await;
    let good = auto(&world, "machine-of-n0", 10.0, 20.0);
    for (bad, words) in [
        (LeaseRequest { deadline_s: Some(-3.0), ..good.clone() }, "over already"),
        (LeaseRequest { deadline_s: Some(0.0), ..good.clone() }, "over already"),
        (LeaseRequest { deadline_s: Some(f64::NAN), ..good.clone() }, "within ten years"),
        (LeaseRequest { deadline_s: Some(1e12), ..good.clone() }, "within ten years"),
        (LeaseRequest { estimate_s: Some(0.0), ..good.clone() }, "estimate_s is 0"),
        (LeaseRequest { estimate_s: Some(21.0), ..good.clone() }, "takes 21 s on whole devices"),
        (LeaseRequest { deadline_s: None, ..good.clone() }, "by a deadline, and none is given"),
    ] {
        let problem = world.ask("ann", bad).await.unwrap_err();
        assert_eq!(problem.code, ErrorCode::BadRequest);
        assert!(problem.message.contains(words), "{}", problem.message);
    }
    world.ask("ann", good).await.unwrap();
}

#[tokio::test]
async fn a_tight_deadline_gets_a_whole_device_and_a_lax_one_a_part_whatever_the_policy() {
    for name in ["drmaestro", "deadline-first", "heterogeneity-aware", "first-fit"] {
        let settings = Settings::default();
        let named = PolicySettings { name: name.into(), settings: BTreeMap::new() };
        let policy = super::super::settings::complete(&settings.policies, named);
        let (world, _nodes) = with_nodes(Settings { policy, ..settings }, &[2]).await;
        let tight = world.ask("ann", auto(&world, "machine-of-n0", 100.0, 150.0)).await.unwrap();
        let lax = world.ask("ann", auto(&world, "machine-of-n0", 100.0, 450.0)).await.unwrap();
        // A quarter of a device takes four times as long.
        assert_eq!((share(&tight), share(&lax)), (1000, 250), "{name}");
        assert_eq!((tight.deadline_kept, lax.deadline_kept), (Some(true), Some(true)), "{name}");
        assert_eq!(lax.grants[0].memory, 16 * GIB / 1000 * 250);
        let now = world.clock.unix().as_secs();
        assert_eq!((tight.deadline, lax.deadline), (Some(now + 150), Some(now + 450)));
        let claims = world.claims(&lax);
        assert_eq!(claims.grants[0].share_milli, 250);
        world.check();
    }
}

#[tokio::test]
async fn memory_bounds_how_small_a_part_is() {
    let (world, _nodes) = with_nodes(Settings::default(), &[1]).await;
    let request = LeaseRequest { memory: 6 * GIB, ..auto(&world, "machine-of-n0", 1.0, 1000.0) };
    let lease = world.ask("ann", request).await.unwrap();
    assert_eq!((share(&lease), lease.grants[0].memory), (500, 6 * GIB));
}

#[tokio::test]
async fn what_was_learnt_stands_in_for_an_estimate_and_who_is_unknown_gets_a_whole_device() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[1]).await;
    let program = |deadline_s| LeaseRequest {
        program: Some("app".into()),
        input: Some(7),
        estimate_s: None,
        ..auto(&world, "machine-of-n0", 1.0, deadline_s)
    };
    let unknown = world.ask("ann", program(1000.0)).await.unwrap();
    assert_eq!((share(&unknown), unknown.deadline_kept), (1000, None));
    for second in 1..=20 {
        let used =
            GrantUsage { busy_ms: second * 100, launches: 1, peak_memory: GIB, ..GrantUsage::default() };
        nodes[0].used.insert(unknown.id, used);
        world.advance_with(&mut nodes, 1).await;
    }
    world.engine.complete(&tenant_named("ann"), unknown.id).await.unwrap();
    world.advance_with(&mut nodes, 5).await;
    assert_eq!(world.lease(unknown.id).await.deadline_kept, Some(true));
    // It took 20 s, a tenth of that on the device: at most 15% with caution, and at most 1.5 GiB of 16.
    let known = world.ask("ann", program(50.0)).await.unwrap();
    assert_eq!((share(&known), known.deadline_kept), (125, Some(true)), "{}", known.reason);
    // It is another tenant's program.
    let bobs = world.ask("bob", program(50.0)).await.unwrap();
    assert_eq!(bobs.state, LeaseState::Waiting);
}

#[tokio::test]
async fn the_part_grows_while_a_request_waits_and_it_is_told_when_its_deadline_cannot_be_kept() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[1]).await;
    let ann = tenant_named("ann");
    let holds = world.ask("ann", world.request("machine-of-n0", 1, 1000, 0)).await.unwrap();
    nodes[0].beat(&world.engine).await.unwrap();
    let waits = world.ask("ann", auto(&world, "machine-of-n0", 10.0, 45.0)).await.unwrap();
    let late = world.ask("ann", auto(&world, "machine-of-n0", 10.0, 15.0)).await.unwrap();
    assert_eq!((waits.state, waits.deadline_kept), (LeaseState::Waiting, Some(true)));
    assert!(!waits.reason.contains("deadline"), "{}", waits.reason);
    for _ in 0..20 {
        world.advance_with(&mut nodes, 1).await;
        for lease in [&holds, &waits, &late] {
            world.engine.renew(&ann, lease.id).await.unwrap();
        }
    }
    let told = world.lease(late.id).await;
    assert_eq!((told.state, told.deadline_kept), (LeaseState::Waiting, Some(false)));
    assert!(told.reason.contains("its deadline was 5s ago: it is missed"), "{}", told.reason);
    let why = world.engine.explain(&ann, late.id).await.unwrap();
    assert!(why.text.contains("it is missed"), "{}", why.text);
    assert_eq!(world.engine.counters().deadlines_missed, 1);
    world.engine.release(&ann, late.id).await.unwrap();
    world.engine.release(&ann, holds.id).await.unwrap();
    world.advance_with(&mut nodes, 2).await;
    // A quarter would have done at first; now 23 s are left for 10.
    let granted = world.lease(waits.id).await;
    assert_eq!((granted.state, share(&granted)), (LeaseState::Active, 500), "{}", granted.reason);
    world.check();
}

#[tokio::test]
async fn deadlines_order_what_waits_by_the_policies_that_follow_them() {
    for (name, first) in [("deadline-first", 1), ("drmaestro", 0)] {
        let settings = Settings::default();
        let named = PolicySettings { name: name.into(), settings: BTreeMap::new() };
        let policy = super::super::settings::complete(&settings.policies, named);
        let (world, mut nodes) = with_nodes(Settings { policy, ..settings }, &[1]).await;
        let ann = tenant_named("ann");
        let holds = world.ask("ann", world.request("machine-of-n0", 1, 1000, 0)).await.unwrap();
        nodes[0].beat(&world.engine).await.unwrap();
        let whole = |deadline_s| LeaseRequest {
            deadline_s: Some(deadline_s),
            ..world.request("machine-of-n0", 1, 1000, 0)
        };
        let mut asked = Vec::new();
        for deadline_s in [900.0, 300.0, 600.0] {
            asked.push(world.ask("ann", whole(deadline_s)).await.unwrap().id);
            world.advance(100).await;
        }
        world.engine.release(&ann, holds.id).await.unwrap();
        world.advance_with(&mut nodes, 2).await;
        let mut granted = Vec::new();
        for id in asked {
            granted.push(world.lease(id).await.state == LeaseState::Active);
        }
        assert_eq!(granted.iter().position(|granted| *granted), Some(first), "{name}: {granted:?}");
        assert_eq!(granted.iter().filter(|granted| **granted).count(), 1, "{name}");
    }
}

#[tokio::test]
async fn a_deadline_outlives_the_broker_and_counts_from_the_request() {
    let (mut world, mut nodes) = with_nodes(Settings::default(), &[1]).await;
    let lease = world.ask("ann", auto(&world, "machine-of-n0", 10.0, 30.0)).await.unwrap();
    let deadline = lease.deadline;
    // A third of a device would take a moment longer than 30 s.
    assert_eq!(share(&lease), 500);
    world.advance_with(&mut nodes, 10).await;
    world.restart();
    nodes[0].register(&world.engine).await.unwrap();
    let restored = world.lease(lease.id).await;
    assert_eq!((restored.deadline, share(&restored)), (deadline, 500));
    for _ in 0..4 {
        world.advance_with(&mut nodes, 6).await;
        world.engine.renew(&tenant_named("ann"), lease.id).await.unwrap();
    }
    assert_eq!(world.engine.counters().deadlines_missed, 1);
    world.engine.complete(&tenant_named("ann"), lease.id).await.unwrap();
    world.advance_with(&mut nodes, 2).await;
    assert_eq!(world.lease(lease.id).await.deadline_kept, Some(false));
    let counters = world.engine.counters();
    assert_eq!((counters.deadlines_missed, counters.deadlines_kept), (1, 0));
}
