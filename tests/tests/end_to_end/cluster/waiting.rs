//! Where leases are that need not share a device, and what those are told that wait.

use anyhow::{Context, Result, ensure};
use rgpu_control::api::LeaseState;
use rgpu_test_runner::Test;
use rgpu_tests::cluster::Setup;
use rgpu_tests::process::{self, Running};

use super::{SOON, on_loopback, puppet};
use crate::context::plain;

/// The tests.
pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("cluster::who_waits_is_told_for_whom_and_for_how_long", told),
        Test::new("cluster::halves_are_on_different_gpus_unless_they_are_packed", spread),
    ]
}

fn told() -> Result<()> {
    let cluster = on_loopback(&Setup::servers(1))?;
    let mut holder = puppet(&cluster, "ann", &["--gpus", "1", "--share", "60%"])?;
    holder.success("launch 0")?;
    let held = cluster.only_lease()?.id;
    let mut command = cluster.run("bob", &["--gpus", "1"])?;
    let waiting = Running::start(command.arg("--").arg(plain("vector_add")?))?;
    let mut id = None;
    cluster.wait("a lease waits, and it is known for whom", SOON, |cluster| {
        let leases = cluster.leases(false)?;
        let found =
            leases.iter().find(|lease| lease.state == LeaseState::Waiting && lease.estimate.is_some());
        id = found.map(|lease| lease.id.to_string());
        Ok(id.is_some())
    })?;
    let id = id.context("no lease")?;
    let explained = |tenant: &str| -> Result<String> {
        Ok(process::run(&mut cluster.client(tenant, &["explain", &id])?)?.success()?.stdout)
    };
    let text = explained("bob")?;
    println!("{text}");
    for part in [
        "it waits: ",
        "when it begins is unknown",
        "in its way:",
        "another tenant's",
        "60%",
        "nobody knows",
        "--share 40%",
    ] {
        ensure!(text.contains(part), "{part} is missing:\n{text}");
    }
    ensure!(!text.contains(&held.to_string()) && !text.contains("ann"), "{text}");
    let why = cluster.admin(|broker| broker.explain(id.parse().unwrap_or(held)))?;
    ensure!(why.blocked_by.len() == 1 && why.blocked_by[0].lease == Some(held), "{why:?}");
    let listed = process::run(&mut cluster.client("bob", &["leases"])?)?.success()?.stdout;
    ensure!(listed.contains("begins: unknown"), "{listed}");
    // It gets what it waits for, and nothing is said of that any more.
    holder.finish()?;
    waiting.finish_within(SOON)?.success()?;
    cluster.wait_idle(SOON)
}

fn spread() -> Result<()> {
    for (config, devices) in [("", 2), ("[policy]\nspread = false\n", 1)] {
        let setup = Setup::servers(1).each(&["--device", "software:2"]).config(config);
        let cluster = on_loopback(&setup)?;
        let part = ["--gpus", "1", "--gpu-memory", "256MiB", "--share", "30%"];
        let mut puppets = [puppet(&cluster, "ann", &part)?, puppet(&cluster, "bob", &part)?];
        puppets.iter_mut().try_for_each(|puppet| puppet.success("launch 0").map(drop))?;
        let leases = cluster.leases(false)?;
        let mut at: Vec<u32> = leases.iter().map(|lease| lease.grants[0].device).collect();
        at.sort_unstable();
        at.dedup();
        ensure!(leases.len() == 2 && at.len() == devices, "{config:?}: {leases:?}");
    }
    Ok(())
}
