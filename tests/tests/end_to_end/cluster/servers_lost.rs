//! Brokers, servers and clients that disappear while programs run.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rgpu_control::api::{ErrorCode, Lease, LeaseState};
use rgpu_control::ticket::Ticket;
use rgpu_test_runner::Test;
use rgpu_tests::cluster::puppet::Puppet;
use rgpu_tests::cluster::{Cluster, Setup, watch};
use rgpu_tests::process::{self, Running};

use super::{SOON, on_hosts, on_loopback, puppet};
use crate::context::plain;

/// The tests.
pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("cluster::a_killed_broker_comes_back_to_the_same_leases", broker_killed),
        Test::new("cluster::a_broker_that_stood_still_ends_nothing", broker_stopped),
        Test::new("cluster::a_killed_servers_lease_ends_and_the_queue_moves", || server_lost(Loss::Killed)),
        Test::new("cluster::a_stopped_servers_lease_ends_and_the_queue_moves", || server_lost(Loss::Stopped)),
        Test::new("cluster::a_disconnected_servers_lease_ends_and_the_queue_moves", || {
            server_lost(Loss::Disconnected)
        }),
        Test::new("cluster::a_killed_clients_memory_is_free_though_its_lease_goes_on", client_killed),
        Test::new("cluster::a_disconnected_clients_memory_is_free_in_the_end", client_disconnected),
        Test::new("cluster::a_lease_that_nobody_renews_expires", run_killed),
        Test::new("cluster::an_interrupted_run_gives_its_lease_back", interrupted),
        Test::new(
            "cluster::a_program_that_is_started_while_the_broker_is_away_waits_for_it",
            broker_away_at_the_start,
        ),
        Test::new("cluster::a_node_that_has_just_died_is_not_the_end_of_a_run", node_just_died),
        Test::new("cluster::a_lost_queue_is_not_the_end_of_a_run", queue_is_lost),
        Test::new("cluster::a_tickets_private_key_is_gone_with_a_killed_run", ticket_is_gone),
        Test::new("cluster::a_run_that_is_interrupted_while_it_waits_withdraws_its_request", withdrawn),
    ]
}

fn broker_killed() -> Result<()> {
    let setup = Setup { lease_ttl_s: 8, ..Setup::servers(2) };
    let ttl = setup.lease_ttl_s;
    let mut cluster = on_loopback(&setup)?;
    let mut puppets = [
        puppet(&cluster, "ann", &["--gpus", "1", "--gpu-memory", "1536MiB", "--share", "75%"])?,
        puppet(&cluster, "bob", &["--gpus", "1", "--gpu-memory", "1536MiB", "--share", "75%"])?,
    ];
    for puppet in &mut puppets {
        puppet.success("alloc 0 1000")?;
        puppet.success("launch 0")?;
    }
    let before = cluster.leases(false)?;
    ensure!(before.len() == 2 && before.iter().all(|l| l.state == LeaseState::Active), "{before:?}");
    cluster.broker()?.kill(false);
    // Longer than a lease is good for: servers end nothing because a broker is away.
    for _ in 0..ttl + 2 {
        for puppet in &mut puppets {
            puppet.success("launch 0").context("while the broker is away")?;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    cluster.start_broker()?;
    let ((), _) = watch::while_watching(&cluster, || {
        // At once, before any server has come back: nothing of what is taken may be granted.
        let tried = process::run(
            cluster.run("eve", &["--gpus", "1", "--gpu-memory", "1GiB", "--now"])?.args(["--", "true"]),
        )?;
        ensure!(!tried.status.success(), "a taken device was granted again\n{}", tried.output());
        cluster.wait_ready()?;
        // A while later, too, when all have been heard.
        std::thread::sleep(Duration::from_secs(2));
        let tried = process::run(
            cluster.run("eve", &["--gpus", "1", "--gpu-memory", "1GiB", "--now"])?.args(["--", "true"]),
        )?;
        ensure!(!tried.status.success(), "a taken device was granted again\n{}", tried.output());
        Ok(())
    })?;
    let after = cluster.leases(false)?;
    for old in &before {
        let new = after
            .iter()
            .find(|l| l.id == old.id)
            .with_context(|| format!("{} is gone: {after:?}", old.id))?;
        ensure!(new.state == LeaseState::Active && new.grants == old.grants, "{old:?} became {new:?}");
    }
    for puppet in &mut puppets {
        puppet.success("launch 0").context("after the broker's return")?;
        puppet.success("alloc 0 300").context("after the broker's return")?;
    }
    // Renewed again, too.
    std::thread::sleep(Duration::from_secs(ttl + 2));
    ensure!(
        cluster.leases(false)?.len() == 2,
        "a lease ended although it is in use\n{}",
        cluster.broker_log()
    );
    for puppet in puppets {
        puppet.finish()?;
    }
    cluster.wait_idle(SOON)
}

fn broker_stopped() -> Result<()> {
    let setup = Setup { lease_ttl_s: 8, node_timeout_s: 4, ..Setup::servers(2) };
    let mut cluster = on_loopback(&setup)?;
    let options = ["--gpus", "1", "--gpu-memory", "1536MiB", "--share", "75%"];
    let mut puppets = [puppet(&cluster, "ann", &options)?, puppet(&cluster, "bob", &options)?];
    for puppet in &mut puppets {
        puppet.success("launch 0")?;
    }
    let before = cluster.leases(false)?;
    // Longer than nodes may be silent, and than leases are good for.
    cluster.broker()?.signal(libc::SIGSTOP);
    for _ in 0..setup.lease_ttl_s + 4 {
        for puppet in &mut puppets {
            puppet.success("launch 0").context("while the broker stands still")?;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    cluster.broker()?.signal(libc::SIGCONT);
    cluster.wait_ready()?;
    std::thread::sleep(Duration::from_secs(2));
    let after = cluster.leases(false)?;
    let same = |old: &Lease| {
        after
            .iter()
            .any(|new| new.id == old.id && new.state == LeaseState::Active && new.grants == old.grants)
    };
    let log = || cluster.broker_log();
    ensure!(before.len() == 2 && before.iter().all(same), "{before:?} became {after:?}\n{}", log());
    for mut puppet in puppets {
        puppet.success("launch 0").context("after the broker's return")?;
        puppet.finish()?;
    }
    cluster.wait_idle(SOON)
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Loss {
    /// The server's processes are killed.
    Killed,
    /// They are stopped: they keep their connections, and say nothing.
    Stopped,
    /// The host's link goes down.
    Disconnected,
}

/// The program learns that its device is gone: an error, and no hanging.
fn learns(puppet: &mut Puppet, command: &str) -> Result<()> {
    puppet.tell(command)?;
    let answer = puppet.answer(command, SOON)?;
    let error = answer.first().cloned().unwrap_or_default();
    ensure!(error.starts_with("cudaError"), "`{command}` on a lost server: {answer:?}");
    Ok(())
}

fn server_lost(loss: Loss) -> Result<()> {
    let setup = Setup { lease_ttl_s: 600, ..Setup::servers(2).impatient() };
    let mut cluster = if loss == Loss::Disconnected { on_hosts(&setup)? } else { on_loopback(&setup)? };
    // One program with both devices, and one that waits for any.
    let mut both = puppet(&cluster, "ann", &["--gpus", "2"])?;
    both.success("launch 0")?;
    both.success("launch 1")?;
    let lease = cluster.only_lease()?;
    let mut command = cluster.run("bob", &["--gpus", "1"])?;
    let waiting = Running::start(command.arg("--").arg(plain("vector_add")?))?;
    cluster.wait("the second waits", SOON, |cluster| {
        Ok(cluster.leases(false)?.iter().any(|l| l.tenant == "bob" && l.state == LeaseState::Waiting))
    })?;
    // The server of device 0.
    let lost = cluster.nodes.iter().position(|n| n.name == lease.grants[0].node).context("no such node")?;
    match loss {
        Loss::Killed => cluster.nodes[lost].service()?.kill(true),
        Loss::Stopped => cluster.nodes[lost].service()?.signal_all(libc::SIGSTOP),
        Loss::Disconnected => cluster.nodes[lost].host.clone().context("no host")?.connected(false)?,
    }
    learns(&mut both, "launch 0")?;
    let id = lease.id;
    cluster.wait("the lost server's lease ends", SOON, |cluster| {
        Ok(cluster.lease(id)?.state == LeaseState::Ended)
    })?;
    // What waited gets the other server's device, which the lease had, too.
    let finished = waiting.finish()?.success()?;
    ensure!(finished.stdout.contains("vector_add: ok"), "{}", finished.output());
    drop(both);
    // The server comes back, without what it had.
    match loss {
        Loss::Killed => cluster.start_node(lost)?,
        Loss::Stopped => cluster.nodes[lost].service()?.signal_all(libc::SIGCONT),
        Loss::Disconnected => cluster.nodes[lost].host.clone().context("no host")?.connected(true)?,
    }
    cluster.wait_ready()?;
    let run = |cluster: &Cluster| -> Result<()> {
        let mut command = cluster.run("ann", &["--gpus", "2"])?;
        process::run(command.arg("--").arg(plain("vector_add")?))?.success()?;
        Ok(())
    };
    run(&cluster).context("after the server's return")?;
    cluster.wait_idle(SOON)
}

/// Waits until nothing of the first server's device is in use.
fn memory_is_free(cluster: &Cluster) -> Result<()> {
    cluster.wait("the device's memory is free", SOON, |cluster| {
        Ok(cluster.devices()?.iter().all(|d| d.load.memory_used == 0))
    })
}

fn with_memory(cluster: &Cluster) -> Result<Puppet> {
    let mut puppet = puppet(cluster, "ann", &["--gpus", "1", "--gpu-memory", "1GiB", "--share", "50%"])?;
    puppet.success("alloc 0 700")?;
    cluster.wait("the memory is seen to be used", SOON, |cluster| {
        Ok(cluster.devices()?.iter().any(|d| d.load.memory_used >= 700 << 20))
    })?;
    Ok(puppet)
}

fn client_killed() -> Result<()> {
    let cluster = on_loopback(&Setup::servers(1))?;
    let puppet = with_memory(&cluster)?;
    puppet.signal(libc::SIGKILL, true);
    memory_is_free(&cluster)?;
    // It was the connection's end that freed it: nobody has given the lease back, whose time is long.
    ensure!(cluster.only_lease()?.state == LeaseState::Active, "the lease has ended");
    Ok(())
}

fn client_disconnected() -> Result<()> {
    let cluster = on_hosts(&Setup { node_timeout_s: 300, ..Setup::servers(1).impatient() })?;
    let puppet = with_memory(&cluster)?;
    cluster.client_host().context("no host")?.connected(false)?;
    // The lease is not renewed any more: at the latest its end frees the memory.
    memory_is_free(&cluster)?;
    cluster.wait_idle(SOON)?;
    drop(puppet);
    Ok(())
}

fn run_killed() -> Result<()> {
    let cluster = on_loopback(&Setup { node_timeout_s: 300, ..Setup::servers(1).impatient() })?;
    let mut puppet = with_memory(&cluster)?;
    let id = cluster.only_lease()?.id;
    // Only `rgpu run`; the program goes on, but nobody renews.
    puppet.signal(libc::SIGKILL, false);
    cluster.wait("the lease expires", SOON, |cluster| Ok(cluster.lease(id)?.state == LeaseState::Ended))?;
    memory_is_free(&cluster)?;
    if puppet.tell("launch 0").is_ok() {
        let answer = puppet.answer("launch 0", SOON);
        let went_on = answer.as_ref().is_ok_and(|a| a.first().is_some_and(|e| e == "cudaSuccess"));
        ensure!(!went_on, "the program goes on without a lease");
    }
    let renewed = cluster.tenant("ann", move |broker| Ok(broker.renew(id).map_err(|e| e.code())))?;
    ensure!(
        renewed.as_ref().is_err_and(|c| *c == Some(ErrorCode::Conflict)),
        "renewing what has ended: {renewed:?}"
    );
    cluster.wait_idle(SOON)
}

fn interrupted() -> Result<()> {
    let cluster = on_loopback(&Setup::servers(1))?;
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let mut puppet = with_memory(&cluster)?;
        let id = cluster.only_lease()?.id;
        puppet.signal(signal, false);
        puppet.end_within(SOON)?;
        cluster.wait_idle(SOON)?;
        let lease = cluster.lease(id)?;
        ensure!(!lease.reason.to_lowercase().contains("expire"), "it was not given back, but {lease:?}");
    }
    Ok(())
}

/// The ticket holds a private key: it is readable for the program and what that starts, and gone with `rgpu run`.
fn ticket_is_gone() -> Result<()> {
    let cluster = on_loopback(&Setup::servers(1))?;
    let told = rgpu_tests::product::temporary("ticket-path");
    let script = format!(
        "(cat \"$RGPU_LEASE\" > /dev/null) && echo \"$RGPU_LEASE\" > {0}.new && mv {0}.new {0}; exec sleep 20",
        told.display()
    );
    let mut command = cluster.run("ann", &["--gpus", "1"])?;
    let running = Running::start(command.args(["--", "sh", "-c"]).arg(script))?;
    process::wait_until("the program says where its ticket is", SOON, || told.exists())?;
    let ticket = std::path::PathBuf::from(std::fs::read_to_string(&told)?.trim());
    std::fs::remove_file(&told)?;
    ensure!(Ticket::read(&ticket).is_ok(), "{ticket:?} cannot be read while the program runs");
    let children = process::descendants(running.pid());
    running.signal(libc::SIGKILL);
    process::wait_until("the ticket is gone", SOON, || Ticket::read(&ticket).is_err())?;
    ensure!(!ticket.exists(), "{ticket:?} is there still");
    for child in children {
        // SAFETY: a plain call; the process is one that this test has started.
        unsafe { libc::kill(child as i32, libc::SIGKILL) };
    }
    let _ = running.finish_within(SOON)?;
    Ok(())
}

fn broker_away_at_the_start() -> Result<()> {
    let mut cluster = on_loopback(&Setup::servers(1))?;
    cluster.broker()?.kill(false);
    let mut command = cluster.run("ann", &["--gpus", "1"])?;
    let waiting = Running::start(command.arg("--").arg(plain("vector_add")?))?;
    std::thread::sleep(Duration::from_secs(1));
    cluster.start_broker()?;
    let finished = waiting.finish()?.success()?;
    ensure!(finished.stdout.contains("vector_add: ok"), "{}", finished.output());
    for part in ["trying again", "the broker is back"] {
        ensure!(finished.stderr.matches(part).count() == 1, "{part}\n{}", finished.output());
    }
    cluster.wait_idle(SOON)
}

fn queue_is_lost() -> Result<()> {
    let mut cluster = on_loopback(&Setup::servers(1))?;
    let mut holder = puppet(&cluster, "bob", &["--gpus", "1"])?;
    holder.success("launch 0")?;
    let mut waiting = puppet(&cluster, "ann", &["--gpus", "1"])?;
    process::wait_until("the second waits", SOON, || waiting.errors().contains("waiting for GPUs"))?;
    cluster.broker()?.kill(false);
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(cluster.state().join(format!("broker.sqlite{suffix}")));
    }
    cluster.start_broker()?;
    process::wait_until("the second asks again", SOON, || {
        waiting.errors().contains("asking for GPUs again")
    })?;
    holder.success("launch 0")?;
    holder.finish()?;
    waiting.success("launch 0")?;
    waiting.finish()?;
    cluster.wait_idle(SOON)
}

fn node_just_died() -> Result<()> {
    let mut cluster = on_loopback(&Setup { lease_ttl_s: 600, ..Setup::servers(2).impatient() })?;
    let mut holder = puppet(&cluster, "bob", &["--gpus", "1"])?;
    holder.success("launch 0")?;
    let held = cluster.only_lease()?.grants[0].node.clone();
    let other = cluster.nodes.iter().position(|node| node.name != held).context("no other node")?;
    cluster.nodes[other].service()?.kill(true);
    // The broker does not know that yet, and grants what is there no more.
    let mut command = cluster.run("ann", &["--gpus", "1"])?;
    let waiting = Running::start(command.arg("--").arg(plain("vector_add")?))?;
    cluster.wait("the node is lost", SOON, |cluster| {
        Ok(cluster.node_infos()?.iter().any(|node| node.state == "lost"))
    })?;
    holder.finish()?;
    let finished = waiting.finish()?.success()?;
    ensure!(finished.stdout.contains("vector_add: ok"), "{}", finished.output());
    ensure!(finished.stderr.contains("asking for other GPUs"), "{}", finished.output());
    cluster.wait_idle(SOON)
}

fn withdrawn() -> Result<()> {
    let cluster = on_loopback(&Setup::servers(1))?;
    let mut holder = puppet(&cluster, "ann", &["--gpus", "1"])?;
    holder.success("launch 0")?;
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let mut command = cluster.run("bob", &["--gpus", "1"])?;
        let waiting = Running::start(command.arg("--").arg(plain("vector_add")?))?;
        let mut request = None;
        cluster.wait("the second waits", SOON, |cluster| {
            let leases = cluster.leases(false)?;
            let waits = |lease: &&Lease| lease.tenant == "bob" && lease.state == LeaseState::Waiting;
            request = leases.iter().find(waits).map(|lease| lease.id);
            Ok(request.is_some())
        })?;
        let request = request.context("it does not wait")?;
        waiting.signal(signal);
        let finished = waiting.finish_within(SOON)?;
        ensure!(!finished.late && !finished.status.success(), "{}", finished.output());
        cluster.wait("the request is taken back", SOON, |cluster| {
            Ok(cluster.lease(request)?.state == LeaseState::Ended)
        })?;
        let lease = cluster.lease(request)?;
        ensure!(lease.reason.contains("withdrawn") && lease.grants.is_empty(), "{lease:?}");
    }
    // Who has the device notices nothing.
    holder.success("launch 0")?;
    holder.finish()?;
    cluster.wait_idle(SOON)
}
