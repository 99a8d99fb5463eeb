//! `rgpu bench`: that it measures what it says, beside a limit, and says so when it can't. Never how fast.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use rgpu_test_runner::{Skip, Test};
use rgpu_tests::cluster::service::Service;
use rgpu_tests::process;
use rgpu_tests::product::{Daemon, clean, temporary};
use serde_json::Value;

use crate::context::{plain, product};

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("bench::latency_stands_beside_a_raw_ping_pong", latency),
        Test::new("bench::bandwidth_is_drawn", bandwidth),
        Test::new("bench::a_launch_needs_no_round_trip", launch),
        Test::new("bench::calls_are_counted", calls),
        Test::new("bench::an_added_delay_is_felt_once_a_round_trip", delay),
        Test::new("bench::many_programs_share_the_launches", many),
        Test::new("bench::a_program_beside_traffic_is_broken_down", interference),
        Test::alone("bench::a_link_is_made_for_program_and_traffic", interference_on_hosts),
        Test::new("bench::what_cannot_be_measured_is_said", failures),
    ]
}

fn bench(arguments: &[&str]) -> Result<Command> {
    let mut command = clean(&product()?.rgpu());
    command.arg("bench").args(arguments);
    Ok(command)
}

/// Runs a benchmark, and returns its rows.
fn rows(arguments: &[&str], more: &[&std::path::Path]) -> Result<Vec<Value>> {
    let file = temporary("bench.json");
    let mut command = bench(arguments)?;
    command.arg("--json").arg(&file).args(more);
    let finished = process::run(&mut command)?.success()?;
    let text =
        std::fs::read_to_string(&file).with_context(|| format!("No results were written; {finished:?}"))?;
    std::fs::remove_file(&file)?;
    let report: Value = serde_json::from_str(&text)?;
    ensure!(report["conditions"]["device"].as_str().is_some_and(|d| !d.is_empty()), "No device: {report}");
    let rows = report["rows"].as_array().context("No rows")?.clone();
    ensure!(!rows.is_empty(), "No rows");
    Ok(rows)
}

fn of_way<'a>(rows: &'a [Value], way: &str) -> Result<&'a Value> {
    rows.iter().find(|row| row["way"] == way).with_context(|| format!("No row for {way}: {rows:?}"))
}

fn latency() -> Result<()> {
    let rows = rows(&["latency", "--ways", "in-process,tcp", "--rounds", "1", "--count", "50"], &[])?;
    let tcp = of_way(&rows, "tcp")?;
    ensure!(tcp["limit_name"] == "raw ping-pong" && tcp["ratio"].as_f64().is_some_and(|r| r > 0.0), "{tcp}");
    ensure!(tcp["bytes"][0].as_u64().is_some_and(|n| n >= 16), "a call has a header: {tcp}");
    ensure!(of_way(&rows, "in-process")?["bytes"].is_null(), "nothing is sent in-process");
    Ok(())
}

fn bandwidth() -> Result<()> {
    let directory = temporary("plots");
    let arguments = ["bandwidth", "--ways", "in-process,tcp", "--rounds", "1", "--sizes", "4,64K", "--svg"];
    let rows = rows(&[&arguments[..], &[directory.to_str().context("a path")?]].concat(), &[])?;
    ensure!(rows.len() == 2 * 2 * 2 * 2, "sizes, directions, kinds of memory and ways: {}", rows.len());
    ensure!(rows.iter().all(|row| row["ratio"].as_f64().is_some_and(|r| r > 0.0)), "{rows:?}");
    let plot = std::fs::read_to_string(directory.join("host-to-device-pinned.svg"))?;
    for word in ["GiB/s", "bytes", "raw stream", "memcpy"] {
        ensure!(plot.contains(word), "The plot does not say {word:?}");
    }
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}

fn many() -> Result<()> {
    let file = temporary("many.json");
    let arguments = ["many", "--programs", "1,3", "--launches", "3000", "--ways", "tcp", "--rounds", "1"];
    process::run(bench(&arguments)?.arg("--json").arg(&file))?.success()?;
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
    std::fs::remove_file(&file)?;
    let rows = report["rows"].as_array().context("No rows")?;
    let programs: Vec<_> = rows.iter().map(|row| row["programs"].as_u64()).collect();
    ensure!(programs == [Some(1), Some(3)], "{report}");
    ensure!(rows.iter().all(|row| row["rate"]["p50"].as_f64().is_some_and(|rate| rate > 0.0)), "{report}");
    ensure!(rows.iter().all(|row| row["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0)), "{report}");
    ensure!(rows.iter().all(|row| row["idle_server"].as_u64() != Some(0)), "{report}");
    Ok(())
}

fn launch() -> Result<()> {
    let rows = rows(&["launch", "--ways", "in-process,tcp", "--rounds", "1", "--count", "1000"], &[])?;
    let tcp = of_way(&rows, "tcp")?;
    ensure!(tcp["round_trips"].as_f64().is_some_and(|n| n < 0.1), "{tcp}");
    ensure!(tcp["bytes"][0].as_u64().is_some_and(|n| n > 0), "{tcp}");
    Ok(())
}

fn calls() -> Result<()> {
    let rows = rows(&["calls", "--ways", "tcp", "--rounds", "1", "--count", "10"], &[])?;
    let call = |name: &str| {
        rows.iter().find(|row| row["what"] == name).with_context(|| format!("{name} is not among the rows"))
    };
    // A read-back must wait; an allocation from credit and a launch need not.
    ensure!(call("cuMemcpyDtoH 4 B")?["round_trips"].as_f64().is_some_and(|n| n >= 1.0));
    // But for one over shared memory, once the device is known to be idle.
    let shared = self::rows(&["calls", "--ways", "shm", "--rounds", "1", "--count", "10"], &[])?;
    for free in ["cuMemcpyDtoH 4 B", "cuStreamSynchronize, idle"] {
        let row = shared.iter().find(|row| row["what"] == free).with_context(|| format!("no {free}"))?;
        ensure!(row["round_trips"].as_f64().is_some_and(|n| n < 0.5), "{row}");
    }
    for free in ["cuLaunchKernel", "cuMemsetD8Async", "cuDeviceGetAttribute"] {
        ensure!(call(free)?["round_trips"].as_f64().is_some_and(|n| n < 0.5), "{}", call(free)?);
    }
    Ok(())
}

fn delay() -> Result<()> {
    let arguments =
        ["latency", "--ways", "tcp", "--rounds", "1", "--count", "5", "--delay", "40ms", "--rate", "100Mbit"];
    for attempt in 1.. {
        let rows = rows(&arguments, &[])?;
        let tcp = of_way(&rows, "tcp")?;
        // Never less than the delay, and the same number of round trips as the raw ping-pong has: one. A busy machine may add
        // as much as a round trip, but not to all of them.
        let quickest = |what: &str| tcp[what]["min"].as_f64().with_context(|| format!("no {what}: {tcp}"));
        let (value, limit) = (quickest("value")?, quickest("limit")?);
        ensure!(value >= 40e3 && limit >= 40e3, "{value} and {limit} µs with 40 ms added");
        if value < 1.9 * limit {
            return Ok(());
        }
        ensure!(attempt < 3, "more than one round trip, three times: {tcp}");
    }
    unreachable!("it has returned")
}

/// Runs `nw` alone and beside traffic, and returns both points.
fn beside_traffic(arguments: &[&str]) -> Result<Value> {
    let file = temporary("interference.json");
    let mut command = bench(&["interference", "--rounds", "1", "--rate", "80Mbit", "--traffic", "50"])?;
    command.args(arguments).arg("--json").arg(&file).arg("--").arg(plain("nw")?).arg("n=640");
    let finished = process::run(&mut command)?;
    if finished.stderr.contains("cannot be had here") {
        return Err(Skip(finished.stderr).into());
    }
    finished.success()?;
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
    std::fs::remove_file(&file)?;
    let points = report["points"].as_array().context("No points")?;
    ensure!(points.len() == 2 && points[0]["passed_mbps"].is_null(), "{report}");
    let passed = points[1]["passed_mbps"].as_array().context("No traffic")?;
    // Both directions, never more than was asked for, but for what is on the way.
    ensure!(
        passed.iter().all(|way| way["p50"].as_f64().is_some_and(|mbps| mbps > 1.0 && mbps < 60.0)),
        "{report}"
    );
    for point in points {
        let of = |kind: &str| point[kind]["p50"].as_f64().with_context(|| format!("no {kind}: {point}"));
        let (device, network) = (of("device_s")?, of("network_s")?);
        let sum = device + network + of("processor_s")?;
        ensure!(device > 0.0 && network > 0.0 && (sum / of("total_s")? - 1.0).abs() < 0.01, "{point}");
    }
    Ok(report)
}

fn interference() -> Result<()> {
    let daemon = Daemon::start(product()?)?;
    let peer = Service::start("rgpu bench peer", bench(&["peer", "--listen", "127.0.0.1:0"])?)?;
    let report = beside_traffic(&["--server", &daemon.address().to_string(), "--peer", peer.address()])?;
    ensure!(report["link_made_here"] == false, "{report}");
    let alone = process::run(&mut bench(&["interference", "--server", "127.0.0.1:1", "--", "/bin/true"])?)?;
    ensure!(!alone.status.success() && alone.stderr.contains("--peer"), "{alone:?}");
    Ok(())
}

fn interference_on_hosts() -> Result<()> {
    let report = beside_traffic(&[])?;
    ensure!(report["link_made_here"] == true, "{report}");
    // 641² integers three times, at 80 Mbit/s: never sooner.
    let network = report["points"][0]["network_s"]["p50"].as_f64().context("no time")?;
    ensure!(network > 0.25, "{report}");
    Ok(())
}

fn failures() -> Result<()> {
    let nobody = process::run(&mut bench(&["latency", "--server", "127.0.0.1:1", "--ways", "tcp"])?)?;
    ensure!(!nobody.status.success() && nobody.stderr.contains("127.0.0.1:1"), "{nobody:?}");
    let shaped = process::run(&mut bench(&["latency", "--ways", "shm", "--delay", "1ms"])?)?;
    ensure!(!shaped.status.success() && shaped.stderr.contains("TCP only"), "{shaped:?}");
    let mut failing = bench(&["app", "--ways", "in-process", "--rounds", "1", "--", "/bin/false"])?;
    let failing = process::run(&mut failing)?;
    ensure!(!failing.status.success() && failing.stderr.contains("/bin/false failed"), "{failing:?}");
    let file = temporary("app.json");
    let mut command = bench(&[
        "app",
        "--ways",
        "in-process,tcp",
        "--rounds",
        "1",
        "--json",
        &file.to_string_lossy(),
        "--",
    ])?;
    process::run(command.arg(plain("vector_add")?))?.success()?;
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
    std::fs::remove_file(&file)?;
    let rows = report["rows"].as_array().context("No rows")?;
    ensure!(of_way(rows, "tcp")?["round_trips"].as_f64().is_some_and(|n| n >= 2.0), "{rows:?}");
    Ok(())
}
