//! What people type, against a living cluster.

use anyhow::{Context, Result, ensure};
use rgpu_test_runner::Test;
use rgpu_tests::cluster::Setup;
use rgpu_tests::process;
use rgpu_tests::product::{clean, temporary};
use rgpu_tests::terminal::Terminal;

use super::{SOON, on_loopback, puppet};
use crate::context::{plain, product};

/// The tests.
pub(super) fn tests() -> Vec<Test> {
    vec![
        Test::new("cluster::a_program_runs_by_a_lease_and_gives_it_back", runs),
        Test::new("cluster::commands_show_nodes_leases_and_reasons", shows),
        Test::new("cluster::status_is_drawn_on_a_terminal_until_q", drawn),
        Test::new("cluster::bad_requests_are_told_what_is_wrong", refuses),
        Test::alone("cluster::bench_broker_counts_grants", bench_broker),
        Test::alone("cluster::bench_start_compares", bench_start),
    ]
}

fn runs() -> Result<()> {
    let cluster = on_loopback(&Setup::servers(1))?;
    let run = |options: &[&str]| -> Result<process::Finished> {
        process::run(cluster.run("ann", options)?.arg("--").arg(plain("vector_add")?))
    };
    let finished = run(&["--gpus", "1", "--gpu-memory", "256MiB", "--share", "25%"])?.success()?;
    ensure!(finished.stdout.contains("vector_add: ok"), "{}", finished.output());
    // Without saying what it needs, a program gets one whole device.
    run(&["--gpus", "1"])?.success()?;
    cluster.wait_idle(SOON)?;
    let leases = cluster.leases(true)?;
    ensure!(leases.len() == 2, "{leases:?}");
    // The program's own end is what `rgpu run` reports.
    let mut command = cluster.run("ann", &["--gpus", "1", "--share", "10%"])?;
    process::run(command.args(["--", "sh", "-c", "exit 7"]))?.expect_code(7)?;
    cluster.wait_idle(SOON)
}

fn shows() -> Result<()> {
    let cluster = on_loopback(&Setup::servers(2))?;
    let mut puppet = puppet(&cluster, "ann", &["--gpus", "1", "--gpu-memory", "512MiB", "--share", "30%"])?;
    puppet.success("launch 0")?;
    let lease = cluster.only_lease()?;
    let id = lease.id.to_string();
    let node = &lease.grants[0].node;
    for (arguments, expected) in [
        (vec!["status", "--once"], vec!["s0", "s1"]),
        (vec!["leases"], vec![id.as_str(), "puppet", node]),
        (vec!["explain", &id], vec![node.as_str()]),
        (vec!["nodes"], vec!["s0", "s1"]),
    ] {
        let finished = process::run(&mut cluster.client("ann", &arguments)?)?.success()?;
        for word in expected {
            ensure!(
                finished.stdout.contains(word),
                "`rgpu {}` doesn't show {word}\n{}",
                arguments.join(" "),
                finished.output()
            );
        }
    }
    // A shorter run would teach nothing.
    puppet.ask("sleep 0.2")?;
    puppet.finish()?;
    cluster.wait_idle(SOON)?;
    // It has run to its end, and something was learnt from that.
    let profiles = || -> Result<String> {
        Ok(process::run(&mut cluster.client("ann", &["profiles"])?)?.success()?.stdout)
    };
    ensure!(profiles()?.contains("puppet"), "{}", profiles()?);
    process::run(&mut cluster.client("ann", &["profiles", "forget", "puppet"])?)?.success()?;
    ensure!(!profiles()?.contains("puppet"), "{}", profiles()?);
    Ok(())
}

fn drawn() -> Result<()> {
    let cluster = on_loopback(&Setup::servers(2))?;
    let mut puppet = puppet(&cluster, "ann", &["--gpus", "1", "--gpu-memory", "512MiB", "--share", "30%"])?;
    puppet.success("launch 0")?;
    let first = cluster.only_lease()?.id.to_string();
    let mut terminal = Terminal::start(cluster.client("ann", &["status"])?, 160, 50)?;
    terminal.wait_for(&["s0", "s1", "GPUs", &first, "puppet", "ann"], SOON)?;
    ensure!(!terminal.is_as_before()?, "the terminal is not the view's");
    // What happens while it is looked at is drawn, too.
    let options = ["--gpus", "1", "--gpu-memory", "256MiB", "--share", "10%"];
    let mut another = super::puppet(&cluster, "ann", &options)?;
    another.success("launch 0")?;
    let leases = cluster.leases(false)?;
    let second = leases.iter().map(|lease| lease.id.to_string()).find(|id| *id != first);
    terminal.wait_for(&[&second.context("there is no second lease")?], SOON)?;
    terminal.press("j")?;
    terminal.press("q")?;
    let status = terminal.end_within(SOON)?;
    ensure!(status.success(), "it ended with {status}:\n{}", terminal.text());
    // The screen is what it was before.
    ensure!(terminal.is_as_before()?, "the terminal is not as it was");
    terminal.wait_for(&["\u{1b}[?1049l"], SOON)?;
    puppet.finish()?;
    another.finish()?;
    cluster.wait_idle(SOON)
}

fn refuses() -> Result<()> {
    let cluster = on_loopback(&Setup::servers(1))?;
    let run = |options: &[&str]| -> Result<process::Finished> {
        process::run(cluster.run("ann", options)?.args(["--", "true"]))
    };
    // More than the cluster has is never granted, so nobody waits for it.
    for options in [
        &["--gpus", "2"][..],
        &["--gpus", "1", "--gpu-memory", "64GiB"],
        &["--gpus", "1", "--model", "none-such"],
    ] {
        let finished = run(options)?;
        ensure!(!finished.late, "{options:?}: it waits\n{}", finished.output());
        ensure!(
            !finished.status.success() && !finished.stderr.is_empty(),
            "{options:?}: {}",
            finished.output()
        );
    }
    // What is taken now is refused to those who cannot wait.
    let mut holder = puppet(&cluster, "bob", &["--gpus", "1"])?;
    holder.success("launch 0")?;
    run(&["--gpus", "1", "--now"])?.expect_code(75)?;
    // A broker that isn't there.
    let mut command =
        cluster.run("ann", &["--gpus", "1", "--broker", "http://127.0.0.1:1", "--wait", "2"])?;
    let finished = process::run(command.args(["--", "true"]))?;
    ensure!(
        !finished.status.success() && finished.stderr.contains("127.0.0.1:1"),
        "nothing names the broker\n{}",
        finished.output()
    );
    holder.finish()
}

fn bench_broker() -> Result<()> {
    let json = temporary("bench-broker.json");
    let mut command = clean(&product()?.rgpu());
    command.args(["bench", "broker", "--nodes", "20", "--leases-per-minute", "600", "--duration", "3"]);
    command.args(["--warm-up", "1", "--hold", "0.5", "--json"]).arg(&json);
    let finished = process::run(&mut command)?.success()?;
    let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json)?)?;
    let _ = std::fs::remove_file(json); // only tidiness
    let times = report["times"].as_array().map_or(&[][..], Vec::as_slice);
    for what in ["grant", "renewal", "release", "heartbeat"] {
        let found = times.iter().find(|t| t["what"] == what);
        let count = found.and_then(|t| t["count"].as_u64()).unwrap_or(0);
        ensure!(count >= 10, "{count} of {what}\n{}", finished.output());
    }
    let failures = report["failures"].as_array().map_or(0, Vec::len);
    ensure!(failures == 0, "{}", finished.output());
    ensure!(report["broker"]["round_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{}", finished.output());
    ensure!(report["broker"]["peak_memory"].as_u64().is_some_and(|b| b > 1 << 20), "{}", finished.output());
    Ok(())
}

fn bench_start() -> Result<()> {
    let finished =
        process::run(clean(&product()?.rgpu()).args(["bench", "start", "--runs", "3"]))?.success()?;
    println!("{}", finished.stdout);
    ensure!(finished.stdout.contains("more by a lease"), "{}", finished.output());
    Ok(())
}
