//! Whether leases of parts of devices share a device while another one is free.

use super::*;

fn devices(leases: &[&Lease]) -> Vec<(String, u32)> {
    let mut devices: Vec<(String, u32)> =
        leases.iter().map(|lease| (lease.grants[0].node.clone(), lease.grants[0].device)).collect();
    devices.sort();
    devices.dedup();
    devices
}

#[tokio::test]
async fn two_halves_are_on_two_devices_unless_packing_is_asked_for() {
    for (spread, nodes, expected) in
        [(true, vec![2], 2), (false, vec![2], 1), (true, vec![1, 1], 2), (false, vec![1, 1], 1)]
    {
        let (world, _nodes) = with_nodes(Settings::default(), &nodes).await;
        let mut policy = world.engine.policies(&boss()).unwrap().active;
        assert_eq!(policy.settings["spread"], SettingValue::Flag(true), "the default");
        policy.settings.insert("spread".into(), SettingValue::Flag(spread));
        world.engine.set_policy(&boss(), policy).await.unwrap();
        let half = || world.request("m", 1, 500, 4 * GIB);
        let first = world.ask("ann", half()).await.unwrap();
        let second = world.ask("bob", half()).await.unwrap();
        assert_eq!(devices(&[&first, &second]).len(), expected, "{spread} {nodes:?}");
        world.check();
    }
}

#[tokio::test]
async fn who_waits_for_a_whole_device_because_of_spreading_is_told() {
    let (world, _nodes) = with_nodes(Settings::default(), &[2]).await;
    let half = || world.request("m", 1, 500, 4 * GIB);
    let halves = [world.ask("ann", half()).await.unwrap(), world.ask("ann", half()).await.unwrap()];
    let whole = world.ask("ann", world.request("m", 1, 1000, 0)).await.unwrap();
    assert_eq!(whole.state, LeaseState::Waiting);
    let why = world.engine.explain(&tenant_named("ann"), whole.id).await.unwrap();
    let estimate = why.estimate.unwrap();
    assert!(estimate.why.contains("2 devices are only partly used"), "{}", estimate.why);
    let mut in_way: Vec<LeaseId> = why.blocked_by.iter().filter_map(|lease| lease.lease).collect();
    let mut expected = halves.map(|lease| lease.id).to_vec();
    in_way.sort();
    expected.sort();
    assert_eq!(in_way, expected);
    assert_eq!(why.alternatives[0].text, "a smaller share: --share 50%");
    // Who waits for a part that nobody would have packed for reads nothing of it.
    let big = world.ask("ann", world.request("m", 1, 600, 0)).await.unwrap();
    let why = world.engine.explain(&tenant_named("ann"), big.id).await.unwrap();
    assert!(!why.estimate.unwrap().why.contains("partly used"));
}
