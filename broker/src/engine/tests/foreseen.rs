//! When what waits is expected to be granted, what is in its way, and what would let it begin now.

use rgpu_placement::Profile;

use super::*;

/// Profiles of programs that take 20 and 100 seconds wherever they are.
fn written() -> Settings {
    let profile = |name: &str, seconds| ProfileSettings {
        profile: Profile::new(name, seconds),
        traffic_mbps: 0,
        processors: Default::default(),
    };
    Settings {
        profiles: vec![profile("short", 20.0), profile("long", 100.0)],
        lease_ttl_s: 1000,
        ..Settings::default()
    }
}

fn of(profile: &str, request: LeaseRequest) -> LeaseRequest {
    LeaseRequest { profile: Some(profile.into()), ..request }
}

/// In how many seconds a lease is expected to be granted, and why it waits.
async fn explained(world: &World, caller: &Caller, id: LeaseId) -> (Option<i64>, LeaseExplanation) {
    let why = world.engine.explain(caller, id).await.unwrap();
    let now = world.clock.unix().as_secs() as i64;
    let start = why.estimate.as_ref().and_then(|estimate| estimate.start);
    (start.map(|at| at as i64 - now), why)
}

fn blocking(why: &LeaseExplanation) -> Vec<Option<LeaseId>> {
    why.blocked_by.iter().map(|lease| lease.lease).collect()
}

#[tokio::test]
async fn the_estimate_is_the_end_of_the_last_lease_in_the_way_and_follows_it() {
    let (world, mut nodes) = with_nodes(written(), &[2, 1]).await;
    let (ann, bob) = (tenant_named("ann"), tenant_named("bob"));
    let short = world.ask("ann", of("short", world.request("m", 1, 1000, 0))).await.unwrap();
    let long = world.ask("ann", of("long", world.request("m", 1, 1000, 0))).await.unwrap();
    // A third one that is in nobody's way: the gang never gets that device first.
    let forever = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    world.advance_with(&mut nodes, 5).await;
    let gang = world.ask("bob", of("short", world.request("m", 2, 1000, 0))).await.unwrap();
    assert_eq!(gang.state, LeaseState::Waiting);
    let (start, why) = explained(&world, &boss(), gang.id).await;
    assert!((94..=96).contains(&start.unwrap()), "{why:?}");
    assert_eq!(blocking(&why), [Some(short.id), Some(long.id)], "{why:?}");
    let estimate = why.estimate.clone().unwrap();
    assert_eq!((estimate.basis, estimate.queued), (Basis::Profile, 0));
    assert!((9.0..=11.0).contains(&estimate.deviation_s.unwrap()), "{estimate:?}");
    let (first, last) = (&why.blocked_by[0], &why.blocked_by[1]);
    assert_eq!((first.end.unwrap() + 80, last.end), (last.end.unwrap(), estimate.start));
    assert!(last.expires > last.end && last.share_milli == 1000 && last.memory == 16 * GIB);
    // The other tenant sees what is in its way, and not whose it is.
    let (_, why) = explained(&world, &bob, gang.id).await;
    assert!(why.blocked_by.iter().all(|lease| lease.lease.is_none() && lease.tenant.is_none()));
    assert_eq!(why.blocked_by.len(), 2);
    // The list of leases says it, too.
    world.engine.settle().await;
    let listed = world.engine.leases(&bob, false).unwrap();
    assert_eq!(listed[0].estimate.as_ref().unwrap().basis, Basis::Profile);
    // One who comes later and wants one device, is expected to get that of the first that ends.
    let later = world.ask("bob", of("short", world.request("m", 1, 1000, 0))).await.unwrap();
    world.advance_with(&mut nodes, 3).await;
    let (start, why) = explained(&world, &bob, later.id).await;
    assert!((11..=13).contains(&start.unwrap()), "{why:?}");
    assert_eq!(why.blocked_by.len(), 1);
    // The long one ends early: what is left is the first one's time. The later one is not before the gang any more.
    world.engine.release(&ann, long.id).await.unwrap();
    world.advance_with(&mut nodes, 3).await;
    assert_eq!(world.lease(later.id).await.state, LeaseState::Active, "it takes the device at once");
    world.advance_with(&mut nodes, 3).await;
    let (start, why) = explained(&world, &bob, gang.id).await;
    assert!((12..=20).contains(&start.unwrap()), "{start:?} {why:?}");
    let mine: Vec<LeaseId> = why.blocked_by.iter().filter_map(|lease| lease.lease).collect();
    assert_eq!((mine, why.blocked_by.len()), (vec![later.id], 2), "{why:?}");
    assert_eq!(world.lease(forever.id).await.state, LeaseState::Active);
    world.check();
}

#[tokio::test]
async fn what_earlier_runs_took_tells_when_this_one_ends() {
    let (world, mut nodes) = with_nodes(Settings::default(), &[1]).await;
    for _ in 0..3 {
        learning::run(&world, &mut nodes, "app", learning::HOTSPOT).await;
    }
    let known =
        LeaseRequest { program: Some("app".into()), input: Some(7), ..world.request("m", 1, 1000, GIB) };
    let first = world.ask("ann", known.clone()).await.unwrap();
    assert_eq!(first.state, LeaseState::Active);
    let second = world.ask("ann", known.clone()).await.unwrap();
    let third = world.ask("ann", LeaseRequest { input: Some(8), ..known }).await.unwrap();
    world.advance_with(&mut nodes, 8).await;
    let ann = tenant_named("ann");
    let (start, why) = explained(&world, &ann, second.id).await;
    assert!((10..=14).contains(&start.unwrap()), "{start:?}: {why:?}");
    assert_eq!((why.estimate.unwrap().basis, why.blocked_by.len()), (Basis::Learnt, 1));
    assert_eq!(blocking(&world.engine.explain(&ann, second.id).await.unwrap()), [Some(first.id)]);
    // Behind it in the queue: two runs, and less certain.
    let (start, why) = explained(&world, &ann, third.id).await;
    assert!((28..=36).contains(&start.unwrap()), "{start:?}: {why:?}");
    assert_eq!(blocking(&why), [Some(first.id), Some(second.id)]);
    assert_eq!((why.blocked_by[1].waits, why.blocked_by[0].waits), (true, false));
    let estimate = why.estimate.unwrap();
    assert_eq!(estimate.queued, 1);
    assert!(estimate.why.contains("1 request that waits before it"), "{}", estimate.why);
    let one = why.blocked_by[0].end_deviation_s.unwrap();
    assert!(estimate.deviation_s.unwrap() > 1.3 * one, "{estimate:?} {one}");
    // An input that was never seen says less about those who wait for it.
    world.engine.complete(&ann, first.id).await.unwrap();
    world.engine.release(&ann, second.id).await.unwrap();
    world.advance_with(&mut nodes, 3).await;
    assert_eq!(world.lease(third.id).await.state, LeaseState::Active);
    let fourth = world.ask("ann", world.request("m", 1, 1000, GIB)).await.unwrap();
    world.advance_with(&mut nodes, 3).await;
    let (start, why) = explained(&world, &ann, fourth.id).await;
    assert_eq!((why.estimate.unwrap().basis, start.is_some()), (Basis::Similar, true));
}

#[tokio::test]
async fn what_nobody_can_know_is_said() {
    let settings = Settings { lease_ttl_s: 100, ..Settings::default() };
    let (world, mut nodes) = with_nodes(settings, &[1]).await;
    let ann = tenant_named("ann");
    let first = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    let second = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    let (start, why) = explained(&world, &ann, second.id).await;
    let estimate = why.estimate.clone().unwrap();
    assert_eq!((start, estimate.basis), (None, Basis::Unknown));
    assert!(estimate.why.contains("nobody knows when the lease ends"), "{}", estimate.why);
    assert_eq!(blocking(&why), [Some(first.id)]);
    assert_eq!((why.blocked_by[0].end, why.blocked_by[0].basis), (None, Basis::Unknown));
    // Nobody renews it: it ends when it expires.
    for _ in 0..6 {
        world.engine.lease(&ann, second.id, 0).await.unwrap();
        world.advance_with(&mut nodes, 10).await;
    }
    let (start, why) = explained(&world, &ann, second.id).await;
    assert!((39..=41).contains(&start.unwrap()), "{start:?} {why:?}");
    assert_eq!(why.estimate.unwrap().basis, Basis::Expiry);
    // Its holder is there after all.
    world.engine.renew(&ann, first.id).await.unwrap();
    world.advance_with(&mut nodes, 3).await;
    assert_eq!(explained(&world, &ann, second.id).await.0, None);
    // Nobody foresees what lots decide.
    let policy = PolicySettings { name: "random".into(), ..world.settings.policy.clone() };
    world.engine.set_policy(&boss(), policy).await.unwrap();
    world.advance_with(&mut nodes, 3).await;
    let (start, why) = explained(&world, &ann, second.id).await;
    let estimate = why.estimate.clone().unwrap();
    assert_eq!(start, None);
    assert!(estimate.why.contains("because the policy draws lots"), "{}", estimate.why);
    assert_eq!(blocking(&why), [Some(first.id)], "what is in the way is known even so");
}

#[tokio::test]
async fn who_comes_first_and_stays_for_ever_is_in_the_way() {
    let (world, _nodes) = with_nodes(written(), &[1]).await;
    let first = world.ask("ann", of("short", world.request("m", 1, 1000, 0))).await.unwrap();
    let second = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    let third = world.ask("ann", of("short", world.request("m", 1, 1000, 0))).await.unwrap();
    let (start, why) = explained(&world, &tenant_named("ann"), third.id).await;
    let estimate = why.estimate.clone().unwrap();
    assert_eq!(start, None);
    assert!(estimate.why.contains("nobody knows when the lease ends"), "{}", estimate.why);
    assert_eq!(blocking(&why), [Some(first.id), Some(second.id)]);
    assert_eq!((why.blocked_by[1].waits, why.blocked_by[1].end), (true, None));
}

#[tokio::test]
async fn a_lease_that_is_being_ended_is_as_good_as_gone() {
    let (world, _nodes) = with_nodes(written(), &[1]).await;
    let ann = tenant_named("ann");
    let first = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    let second = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    world.engine.release(&ann, first.id).await.unwrap();
    world.engine.settle().await;
    let (start, why) = explained(&world, &ann, second.id).await;
    assert_eq!((start, why.estimate.clone().unwrap().basis), (Some(0), Basis::Ending));
    assert_eq!(blocking(&why), [Some(first.id)]);
}

#[tokio::test]
async fn what_would_let_it_begin_now_was_tried() {
    let (world, _nodes) = with_nodes(written(), &[1]).await;
    let ann = tenant_named("ann");
    let held = world.ask("ann", world.request("m", 1, 600, 10 * GIB)).await.unwrap();
    let changes = async |request: LeaseRequest| {
        let lease = world.ask("ann", request).await.unwrap();
        assert_eq!(lease.state, LeaseState::Waiting);
        let why = world.engine.explain(&ann, lease.id).await.unwrap();
        world.engine.release(&ann, lease.id).await.unwrap();
        why.alternatives.into_iter().map(|one| (one.change, one.value, one.text)).collect::<Vec<_>>()
    };
    // A share of 40% would do, but only 37.5% of the memory are left, which a share has without --gpu-memory.
    let found = changes(world.request("m", 1, 1000, 0)).await;
    let share = ("share_milli".to_owned(), Some(370), "a smaller share: --share 37%".to_owned());
    assert_eq!(found, [share]);
    let found = changes(world.request("m", 1, 300, 8 * GIB)).await;
    let memory = ("memory".to_owned(), Some(6 * GIB), "less memory: --gpu-memory 6144MiB".to_owned());
    assert_eq!(found, [memory]);
    // Neither alone is enough.
    assert_eq!(changes(world.request("m", 1, 500, 8 * GIB)).await, []);
    // What was proposed is granted.
    let granted = world.ask("ann", world.request("m", 1, 370, 0)).await.unwrap();
    assert_eq!(granted.state, LeaseState::Active, "{}", granted.reason);
    world.engine.release(&ann, held.id).await.unwrap();
    world.check();
    // Memory is counted in MiB: what is left of 60% is 40%, although 0.6 of a MiB is lost.
    let (world, _nodes) = with_nodes(written(), &[1]).await;
    world.ask("ann", world.request("m", 1, 600, 0)).await.unwrap();
    let whole = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    let why = world.engine.explain(&ann, whole.id).await.unwrap();
    assert_eq!(why.alternatives[0].text, "a smaller share: --share 40%");
}
