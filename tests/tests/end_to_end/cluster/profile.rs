//! `rgpu profile`: a program is run here and there, so that the broker learns what it is like.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use rgpu_control::api::LeaseState;
use rgpu_test_runner::Test;
use rgpu_tests::cluster::{Cluster, Setup};
use rgpu_tests::process::{self, Running};

use super::{SOON, on_loopback, puppet};
use crate::context::plain;

/// The tests.
pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("cluster::profile_runs_a_program_here_and_there_and_says_what_was_learnt", explored),
        Test::new("cluster::profile_says_where_nothing_was_to_be_had_and_ends_with_ctrl_c", disturbed),
    ]
}

/// `rgpu profile` of a puppet that does this.
fn profile(cluster: &Cluster, options: &[&str], what: &str) -> Result<Command> {
    let mut command = cluster.client("ann", &[&["profile", "--gpu-memory", "256MiB"], options].concat())?;
    command.arg("--").arg(plain("puppet")?).arg(what);
    Ok(command)
}

/// Long enough to teach something, and the same each time.
const WORK: &str = "launch 0,sleep 0.4,launch 0";

fn explored() -> Result<()> {
    let cluster = on_loopback(&Setup::servers(2))?;
    let finished = process::run(&mut profile(&cluster, &["--runs", "4"], WORK)?)?.success()?;
    println!("{}", finished.output());
    // Both servers are this machine's nodes: one is the program's own, the other one is behind a link.
    let text = &finished.stdout;
    let lines = |part: &str| text.lines().filter(|line| line.contains(part)).count();
    ensure!(lines("ended well") == 4, "{text}");
    for part in [
        "s0:0",
        "s1:0",
        " 50%",
        " 100%",
        "local",
        "bit/s",
        "puppet",
        "[[profile]]",
        "local_s = ",
        "sensitivity = ",
    ] {
        ensure!(text.contains(part), "{part} is missing:\n{text}");
    }
    ensure!(!text.contains("All runs were"), "{text}");
    let known = cluster.tenant("ann", |broker| broker.profiles())?;
    ensure!(known.len() == 1 && known[0].runs == 4 && known[0].program == "puppet", "{known:?}");
    // One input, whose time is that of the runs.
    let times: Vec<f64> = known[0].local_s.values().map(|time| time.mean).collect();
    ensure!(times.len() == 1 && (0.05..30.0).contains(&times[0]), "{known:?}");
    cluster.wait_idle(SOON)?;
    let ended = cluster.leases(true)?;
    ensure!(ended.len() == 4 && ended.iter().all(|lease| lease.state == LeaseState::Ended), "{ended:?}");
    // As the simulator reads it, and nothing else; the program's own output is elsewhere.
    let finished = process::run(&mut profile(&cluster, &["--runs", "1", "--csv"], WORK)?)?.success()?;
    let lines: Vec<&str> = finished.stdout.lines().collect();
    ensure!(lines.len() == 2 && lines[0].starts_with("name,local_seconds,"), "{}", finished.output());
    ensure!(lines[1].starts_with("puppet,"), "{}", finished.output());
    ensure!(finished.stderr.contains("launch cudaSuccess"), "{}", finished.output());
    cluster.wait_idle(SOON)
}

fn disturbed() -> Result<()> {
    let cluster = on_loopback(&Setup::servers(2))?;
    let mut holder = puppet(&cluster, "bob", &["--gpus", "1", "--on-node", "s0"])?;
    holder.success("launch 0")?;
    ensure!(cluster.only_lease()?.grants[0].node == "s0");
    // What is not to be had is a line of the table; the others are tried even so.
    let finished = process::run(&mut profile(&cluster, &["--runs", "2", "--now"], WORK)?)?.success()?;
    println!("{}", finished.output());
    ensure!(
        finished.stdout.contains("s1:0") && finished.stdout.contains("not available: "),
        "{}",
        finished.output()
    );
    let wrong = process::run(&mut profile(&cluster, &["--runs", "1", "--on-node", "s7"], WORK)?)?;
    ensure!(
        !wrong.status.success() && wrong.output().contains("there is no node \"s7\""),
        "{}",
        wrong.output()
    );
    holder.finish()?;
    cluster.wait_idle(SOON)?;
    // Interrupted, it gives its lease back.
    let running = Running::start(&mut profile(&cluster, &["--runs", "3"], "launch 0,sleep 600")?)?;
    cluster.wait("the program runs", SOON, |cluster| {
        Ok(cluster.leases(false)?.iter().any(|lease| lease.sessions > 0))
    })?;
    running.signal(libc::SIGINT);
    let finished = running.finish_within(SOON)?;
    ensure!(!finished.status.success(), "{}", finished.output());
    ensure!(finished.stderr.contains("no more runs"), "{}", finished.output());
    cluster.wait_idle(SOON)?;
    // So it does when the time is over.
    let mut late = profile(&cluster, &["--runs", "3", "--time-limit", "3s"], "launch 0,sleep 600")?;
    let finished = Running::start(&mut late)?.finish_within(Duration::from_secs(120))?;
    ensure!(finished.stderr.contains("time limit of 3s is over"), "{}", finished.output());
    cluster.wait_idle(SOON)
}
