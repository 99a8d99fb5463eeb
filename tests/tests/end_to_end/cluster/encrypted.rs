//! Leases of which nothing can be read on the network.

use anyhow::{Context, Result, ensure};
use rgpu_control::api::LeaseState;
use rgpu_test_runner::Test;
use rgpu_tests::cluster::{Cluster, Setup};
use rgpu_tests::process;
use rgpu_tests::product::{Stats, temporary};

use super::{SOON, on_hosts, on_loopback, puppet};
use crate::between_servers::{Counted, counted};
use crate::context::plain;

/// The tests.
pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("cluster::encrypted_leases_are_served_by_the_server_that_the_broker_knows", encrypted),
        Test::new("cluster::encrypted_copies_between_servers_pass_through_the_program", copies),
        Test::new("cluster::encrypted_between_hosts_whose_network_is_lost", lost),
        Test::new("cluster::a_broker_can_require_encryption_and_servers_can_lack_it", lacking),
    ]
}

fn encrypted() -> Result<()> {
    let cluster = on_loopback(&Setup::servers(2))?;
    for (options, sessions) in [(&["--transport", "tcp"][..], 0), (&["--transport", "tcp", "--encrypt"], 1)] {
        let file = temporary("stats.json");
        let mut command = cluster.run("ann", options)?;
        command.arg(format!("--stats=json:{}", file.display())).arg("--").arg(plain("vector_add")?);
        process::run(&mut command)?.success()?;
        let stats = Stats::take(&file)?;
        let told = stats.number("encrypted_sessions")?;
        ensure!(told == sessions, "{told} encrypted sessions with {options:?}: {}", stats.0);
    }
    // Two servers, each by its own certificate.
    let mut both = cluster.run("ann", &["--transport", "tcp", "--encrypt", "--gpus", "2"])?;
    process::run(both.arg("--").arg(plain("vector_add")?))?.success()?;
    Ok(())
}

/// Nothing is encrypted between servers, so nothing of a program that asked for that goes there.
fn copies() -> Result<()> {
    let cluster = on_loopback(&Setup::servers(2))?;
    let file = temporary("stats.json");
    let stats = format!("--stats=json:{}", file.display());
    let options = ["--transport", "tcp", "--encrypt", "--gpus", "2", "--gpu-memory", "256MiB", &stats];
    let mut command = cluster.run("ann", &options)?;
    command.arg("--").arg(plain("server_copies")?).arg("check");
    let Counted { copied, straight, relayed, encrypted, .. } = counted(&mut command, &file)?;
    ensure!(encrypted == 2, "{encrypted} of two sessions were encrypted");
    ensure!(
        straight == 0 && relayed == copied,
        "of {copied} bytes {straight} went straight, {relayed} did not"
    );
    cluster.wait_idle(SOON)
}

/// Hosts of their own: the program's link goes down, and nobody is told. Both sides learn it by the connection's silence; the
/// lease has a long time left.
fn lost() -> Result<()> {
    let cluster = on_hosts(&Setup::servers(1))?;
    let options = ["--gpus", "1", "--gpu-memory", "1GiB", "--transport", "tcp", "--encrypt"];
    let mut puppet = puppet(&cluster, "ann", &options)?;
    puppet.success("alloc 0 700")?;
    puppet.success("launch 0")?;
    let log = cluster.nodes[0].log();
    ensure!(log.contains(", encrypted, begins"), "the session is not encrypted\n{log}");
    let memory = |cluster: &Cluster| -> Result<u64> {
        Ok(cluster.devices()?.iter().map(|device| device.load.memory_used).sum())
    };
    cluster.wait("the memory is seen to be used", SOON, |cluster| Ok(memory(cluster)? >= 700 << 20))?;
    let host = cluster.client_host().context("no host")?.clone();
    host.connected(false)?;
    puppet.tell("launch 0")?;
    let answer = puppet.answer("launch 0", SOON)?;
    let error = answer.first().cloned().unwrap_or_default();
    ensure!(error.starts_with("cudaError"), "a launch over a lost network: {answer:?}");
    cluster.wait("the device's memory is free", SOON, |cluster| Ok(memory(cluster)? == 0))?;
    ensure!(cluster.only_lease()?.state == LeaseState::Active, "the lease has ended");
    host.connected(true)?;
    drop(puppet);
    Ok(())
}

fn lacking() -> Result<()> {
    let mut setup = Setup::servers(1);
    setup.servers[0].extend(["--tls".to_owned(), "off".to_owned()]);
    let cluster = on_loopback(&setup.config("encrypt = true"))?;
    let mut refused = cluster.run("ann", &[])?;
    let refused = process::run(refused.arg("--").arg(plain("vector_add")?))?;
    ensure!(!refused.status.success() && refused.stderr.contains("encrypt"), "{}", refused.output());
    Ok(())
}
