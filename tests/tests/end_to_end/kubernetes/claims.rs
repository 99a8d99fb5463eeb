//! From a claim to a program that computes, and back.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, ensure};
use rgpu_control::LEASE_VARIABLE;
use rgpu_kubernetes_testing::kubelet::Version;
use rgpu_test_runner::Test;
use rgpu_tests::process::wait_until;

use super::{Bench, SOON, need_containers, run_contained};

/// The tests.
pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("kubernetes::a_claim_gets_a_lease_and_its_container_computes", computes),
        Test::new("kubernetes::the_pool_follows_what_the_broker_lists", pool),
    ]
}

fn computes() -> Result<()> {
    need_containers()?;
    let mut bench = Bench::new()?;
    let _controller = bench.controller()?;
    let (_node, plugin) = bench.registered("one", &[])?;
    let claim = bench.claim("c", 1, ("268435456", "250m"))?;
    let lease = bench.wait_granted(&claim)?;
    ensure!((lease.grants[0].memory, lease.grants[0].share_milli) == (256 << 20, 250), "{lease:?}");
    // The pod's node is one of the cluster, and has a GPU: that one is near.
    ensure!(lease.client_node == "s0" && lease.name == "default/c", "{lease:?}");
    let object = bench.api.claim(&claim).context("the claim is gone")?;
    ensure!(object["metadata"]["finalizers"] == serde_json::json!(["rgpu.dev/lease"]), "{object}");
    ensure!(!object.to_string().contains("rgpu1."), "no token goes through the API server: {object}");

    // The kubelet asks, and asks again, also in the words of an earlier version.
    let container = bench.kubelet.prepare_one(&plugin, &claim)?.map_err(anyhow::Error::msg)?;
    for version in [Version::Stable, Version::Beta, Version::Stable] {
        let again = bench.kubelet.prepare(&plugin, version, &[&claim])?;
        ensure!(again[&claim.uid].is_ok(), "{again:?}");
    }
    ensure!(bench.leases()?.len() == 1 && bench.leases()?[0].id == lease.id, "{:?}", bench.leases());
    ensure!(container.environment[LEASE_VARIABLE] == "/opt/rgpu/lease/ticket", "{container:?}");
    ensure!(fs::metadata(bench.state())?.permissions().mode() & 0o777 == 0o700, "others can enter");

    let finished = run_contained(&container, "vector_add")?.success()?;
    ensure!(finished.stdout.contains("vector_add: ok"), "{}", finished.output());
    bench.cluster.wait("the program's time was counted for the lease", SOON, |cluster| {
        let now = cluster.lease(lease.id)?;
        Ok(now.usage.first().is_some_and(|usage| usage.memory == 0) && now.sessions == 0)
    })?;

    for _ in 0..2 {
        let done = bench.kubelet.unprepare(&plugin, Version::Stable, &[&claim])?;
        ensure!(done[&claim.uid].is_empty(), "{done:?}");
    }
    ensure!(fs::read_dir(bench.kubelet.cdi())?.next().is_none(), "a CDI description is left");
    ensure!(fs::read_dir(bench.state().join("claims"))?.next().is_none(), "a ticket is left");
    // The lease is the claim's, which another pod may use.
    ensure!(bench.leases()?.len() == 1, "{:?}", bench.leases());
    bench.api.delete_claim(&claim)?;
    ensure!(bench.api.claim(&claim).is_some(), "a claim goes before its lease");
    bench.api.deallocate(&claim)?;
    bench.cluster.wait_idle(SOON)?;
    wait_until("the claim is gone", SOON, || bench.api.claim(&claim).is_none())?;
    bench.no_complaints()
}

fn pool() -> Result<()> {
    let mut bench = Bench::new()?;
    let _controller = bench.controller()?;
    bench.device()?;
    let device = bench.api.devices().remove(0);
    ensure!(device["capacity"]["share"]["value"] == "2", "{device}");
    ensure!(device["capacity"]["memory"]["value"] == "4294967296", "{device}");
    ensure!(device["attributes"]["encryption"]["bool"] == true, "{device}");
    ensure!(device["attributes"]["software"]["bool"] == true, "{device}");
    ensure!(device["bindingConditions"] == serde_json::json!(["LeaseGranted"]), "{device}");
    let generation = |slice: &serde_json::Value| slice["spec"]["pool"]["generation"].as_i64();
    let first = generation(&bench.api.slices()[0]);
    // What others write there is put right, whoever else is quicker at first.
    bench.api.conflict(2);
    bench.cluster.admin(|broker| broker.drain("s1", true))?;
    let share = |bench: &Bench| {
        bench.api.devices().first().map(|device| device["capacity"]["share"]["value"].clone())
    };
    wait_until("the pool is smaller", SOON, || share(&bench).is_some_and(|share| share == "1"))?;
    ensure!(generation(&bench.api.slices()[0]) > first, "the generation is {first:?} still");
    bench.cluster.admin(|broker| broker.drain("s0", true))?;
    wait_until("the pool is empty", SOON, || bench.api.slices().is_empty())?;
    bench.cluster.admin(|broker| broker.drain("s0", false))?;
    wait_until("the pool is back", SOON, || share(&bench).is_some_and(|share| share == "1"))?;
    // Nothing is written where nothing has changed.
    let writes = |bench: &Bench| {
        bench.api.requests("update resourceslices") + bench.api.requests("create resourceslices")
    };
    let (before, lists) = (writes(&bench), bench.api.requests("list resourceslices"));
    wait_until("it is compared again", SOON, || bench.api.requests("list resourceslices") > lists + 2)?;
    ensure!(writes(&bench) == before, "what is the same is written again");
    bench.no_complaints()
}
