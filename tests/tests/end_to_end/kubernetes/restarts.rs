//! What is killed, upgraded, cut off or contended loses nothing.

use std::fs;

use anyhow::{Context, Result, ensure};
use rgpu_control::api::LeaseState;
use rgpu_kubernetes_testing::kubelet::Version;
use rgpu_test_runner::Test;
use rgpu_tests::cluster::Setup;
use rgpu_tests::process::wait_until;

use super::{Bench, SOON};

/// The tests.
pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("kubernetes::restarts_and_upgrades_of_the_driver_lose_nothing", driver),
        Test::new("kubernetes::a_broker_that_is_away_is_waited_for", broker),
        Test::new("kubernetes::a_lease_that_was_lost_is_replaced_under_the_same_ticket", replaced),
    ]
}

fn driver() -> Result<()> {
    let mut bench = Bench::new()?;
    let controller = bench.controller()?;
    let (old, old_plugin) = bench.registered("old", &[])?;
    let claim = bench.claim("c", 1, ("0", "500m"))?;
    let lease = bench.wait_granted(&claim)?;
    ensure!(bench.kubelet.prepare_one(&old_plugin, &claim)?.is_ok(), "it is not prepared");

    // The controller is killed; a claim comes and another one goes meanwhile.
    let gone = bench.claim("gone", 1, ("0", "100m"))?;
    bench.wait_granted(&gone)?;
    drop(controller);
    bench.api.deallocate(&gone)?;
    bench.api.delete_claim(&gone)?;
    let come = bench.claim("come", 1, ("0", "100m"))?;
    bench.api.compact();
    let _controller = bench.controller()?;
    bench.wait_granted(&come)?;
    wait_until("the deleted claim is gone", SOON, || bench.api.claim(&gone).is_none())?;
    ensure!(bench.wait_granted(&claim)?.id == lease.id, "another lease");
    ensure!(bench.leases()?.len() == 2, "{:?}", bench.leases());

    // The API server forgets old versions, and others are quicker.
    bench.api.compact();
    bench.api.conflict(3);
    let later = bench.claim("later", 1, ("0", "100m"))?;
    bench.wait_granted(&later)?;

    // A new plugin beside the old one; the kubelet asks the new one from then on.
    let (new, plugin) = bench.registered("new", &[&old_plugin])?;
    let container = bench.kubelet.prepare_one(&plugin, &claim)?.map_err(anyhow::Error::msg)?;
    ensure!(
        bench.kubelet.prepare_one(&old_plugin, &claim)?.is_ok_and(|old| old.mounts == container.mounts),
        "they differ"
    );
    old.end()?;
    ensure!(!old_plugin.registration.exists() && !old_plugin.endpoint.exists(), "the old sockets are left");
    ensure!(
        bench.kubelet.info(&plugin.registration)?.endpoint == plugin.endpoint.to_string_lossy(),
        "another endpoint"
    );
    // The new one is killed, and comes back by its own name: the kubelet asks again about what is prepared.
    drop(new);
    fs::remove_dir_all(bench.kubelet.cdi())?; // as after the node's restart
    let (_new, plugin) = bench.registered("new", &[])?;
    let again = bench.kubelet.prepare_one(&plugin, &claim)?.map_err(anyhow::Error::msg)?;
    ensure!(again.mounts == container.mounts, "{again:?}");
    let done = bench.kubelet.unprepare(&plugin, Version::Stable, &[&claim, &later])?;
    ensure!(done.values().all(String::is_empty), "{done:?}");
    for claim in [&claim, &come, &later] {
        bench.api.deallocate(claim)?;
    }
    bench.cluster.wait_idle(SOON)?;
    bench.no_complaints()
}

fn broker() -> Result<()> {
    let mut setup = Setup::servers(1);
    // It comes back where it was.
    setup.port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut bench = Bench::with(&setup)?;
    let _controller = bench.controller()?;
    let (_node, plugin) = bench.registered("one", &[])?;
    let first = bench.claim("first", 1, ("0", "250m"))?;
    let lease = bench.wait_granted(&first)?;
    ensure!(bench.kubelet.prepare_one(&plugin, &first)?.is_ok(), "it is not prepared");
    bench.cluster.broker()?.kill(true);

    let second = bench.claim("second", 1, ("0", "250m"))?;
    let why = bench.wait_condition(&second, "LeaseGranted", "False", "BrokerUnavailable")?;
    ensure!(why.contains("cannot be reached"), "{why}");
    let refused = bench.kubelet.prepare_one(&plugin, &second)?.err().context("it is prepared")?;
    ensure!(refused.contains("cannot be reached"), "{refused}");
    // What was prepared is so still, and what was granted.
    ensure!(bench.kubelet.prepare_one(&plugin, &first)?.is_ok(), "it is not prepared any more");
    ensure!(
        bench.api.condition(&first, "LeaseGranted").is_some_and(|(status, ..)| status == "True"),
        "it is taken back"
    );
    // One that goes meanwhile stays until its lease is given back.
    bench.api.delete_claim(&first)?;
    bench.api.deallocate(&first)?;
    bench.cluster.start_broker()?;
    bench.wait_granted(&second)?;
    wait_until("the claim is gone", SOON, || bench.api.claim(&first).is_none())?;
    bench.cluster.wait("its lease is, too", SOON, |cluster| {
        Ok(cluster.leases(true)?.iter().any(|one| one.id == lease.id && one.state == LeaseState::Ended))
    })?;
    bench.api.deallocate(&second)?;
    bench.cluster.wait_idle(SOON)?;
    bench.no_complaints()
}

fn replaced() -> Result<()> {
    let mut bench = Bench::new()?;
    let _controller = bench.controller()?;
    let (_node, plugin) = bench.registered("one", &[])?;
    let claim = bench.claim("c", 1, ("0", "250m"))?;
    let lease = bench.wait_granted(&claim)?;
    let container = bench.kubelet.prepare_one(&plugin, &claim)?.map_err(anyhow::Error::msg)?;
    let ticket =
        container.mounts.iter().find(|mount| mount.container_path.ends_with("lease")).context("no ticket")?;
    let ticket = ticket.host_path.join("ticket");
    let before = fs::read_to_string(&ticket)?;
    let id = lease.id;
    bench.cluster.admin(move |broker| broker.release(id))?;
    bench.cluster.wait("the claim has another lease", SOON, |_| {
        let now = bench.leases()?;
        Ok(now.len() == 1 && now[0].id != id && fs::read_to_string(&ticket)? != before)
    })?;
    let now = bench.leases()?.remove(0);
    ensure!(fs::read_to_string(&ticket)?.contains(&now.id.to_string()), "the ticket is of another lease");
    bench.api.deallocate(&claim)?;
    bench.cluster.wait_idle(SOON)
}
