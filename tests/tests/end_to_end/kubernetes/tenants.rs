//! Leases are of their claims' namespaces, and each has limits of its own.

use anyhow::{Result, ensure};
use rgpu_control::token::Role;
use rgpu_test_runner::Test;
use rgpu_tests::cluster::Setup;
use rgpu_tests::process;

use super::{Bench, SOON};

/// The tests.
pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("kubernetes::a_lease_is_its_namespaces_and_counts_for_its_limits", namespaces),
        Test::new("kubernetes::leases_of_a_tenants_token_go_on_with_an_engines", from_tenant_to_engine),
    ]
}

const HALF: (&str, &str) = ("268435456", "500m");

fn namespaces() -> Result<()> {
    let mut setup = Setup::servers(2).config("[tenant.\"kubernetes/*\"]\nmax_gpu_milli = 500\n");
    setup.lease_ttl_s = 30;
    let mut bench = Bench::with(&setup)?;
    let _controller = bench.controller()?;
    let (_node, plugin) = bench.registered("one", &[])?;
    let first = bench.claim_in("red", "a", 1, HALF)?;
    let lease = bench.wait_granted(&first)?;
    ensure!((lease.tenant.as_str(), lease.name.as_str()) == ("kubernetes/red", "red/a"), "{lease:?}");
    // A second one is more than a namespace may have; another namespace has limits of its own.
    let second = bench.claim_in("red", "b", 1, HALF)?;
    let said = bench.wait_condition(&second, "LeaseGranted", "False", "LimitReached")?;
    ensure!(said.contains("\"kubernetes/red\" is 500 thousandths"), "{said}");
    let other = bench.claim_in("blue", "a", 1, HALF)?;
    let blue = bench.wait_granted(&other)?;
    ensure!(blue.tenant == "kubernetes/blue", "{blue:?}");
    // The node's plugin finds the same leases.
    for claim in [&first, &other] {
        bench.kubelet.prepare_one(&plugin, claim)?.map_err(anyhow::Error::msg)?;
    }
    ensure!(bench.leases()?.len() == 2, "{:?}", bench.leases());
    let listed = process::run(&mut bench.cluster.admins_client(&["leases"])?)?.success()?.stdout;
    ensure!(listed.contains("kubernetes/red") && listed.contains("kubernetes/blue"), "{listed}");
    // What the first namespace gives back, it can have again.
    bench.api.delete_claim(&first)?;
    bench.api.deallocate(&first)?;
    let next = bench.wait_granted(&second)?;
    ensure!(next.tenant == "kubernetes/red" && next.id != lease.id, "{next:?}");
    for claim in [&second, &other] {
        bench.api.delete_claim(claim)?;
        bench.api.deallocate(claim)?;
    }
    bench.cluster.wait_idle(SOON)?;
    bench.no_complaints()
}

fn from_tenant_to_engine() -> Result<()> {
    let mut bench = Bench::new()?;
    bench.role = Role::Tenant;
    let controller = bench.controller()?;
    let claim = bench.claim_in("red", "a", 1, HALF)?;
    let before = bench.wait_granted(&claim)?;
    ensure!(before.tenant == "kubernetes", "{before:?}");
    controller.end()?;
    bench.role = Role::Engine;
    let _controller = bench.controller()?;
    let next = bench.claim_in("red", "b", 1, HALF)?;
    ensure!(bench.wait_granted(&next)?.tenant == "kubernetes/red");
    // Both claims were looked at, and the earlier one has no second lease.
    let leases = bench.leases()?;
    ensure!(leases.len() == 2 && leases.iter().any(|lease| lease.id == before.id), "{leases:?}");
    for claim in [&claim, &next] {
        bench.api.delete_claim(claim)?;
        bench.api.deallocate(claim)?;
    }
    bench.cluster.wait_idle(SOON)?;
    bench.no_complaints()
}
