//! `rgpu bench start`: how long it takes from `rgpu run` until the program's first CUDA call has returned, with a broker
//! that grants a lease first, and without one.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rgpu_control::api::TokenRequest;
use rgpu_control::token::Role;
use rgpu_control::{BROKER_TOKEN_VARIABLE, BROKER_VARIABLE, Broker, Tls};
use serde::Serialize;

use crate::broker::Spawned;
use crate::measure::{Samples, Summary};
use crate::task::{Reply, Task};
use crate::way::Service;
use crate::{Failure, Progress};

/// What to measure.
#[derive(Debug, Clone, clap::Args, Serialize)]
pub(crate) struct Options {
    /// Starts of each kind, in turn
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    runs: u32,
    /// Write the results to this file
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    json: Option<PathBuf>,
}

/// In milliseconds.
#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    cores: usize,
    options: Options,
    without: Summary,
    with: Summary,
    /// What the broker adds: the medians' difference, and the 99th percentiles'.
    more_p50: f64,
    more_p99: f64,
}

/// The system's monotonic clock, which all processes share, in nanoseconds.
pub(crate) fn monotonic() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a variable of the right type.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Measures, and prints a table.
pub(crate) fn main(options: &Options) -> Result<(), Failure> {
    let rgpu = std::env::current_exe().map_err(|e| Failure::new(format!("Where is rgpu? {e}")))?;
    let serve = ["serve", "--listen", "127.0.0.1:0", "--device", "software", "--image-cache-size", "0"];
    let plain = Service::start(&rgpu, &serve)?;
    let spawned = Spawned::start()?;
    let url = spawned.url();
    let admin =
        Broker::new(&url, &spawned.admin, &Tls::default()).map_err(|e| Failure::new(e.to_string()))?;
    let token_file = |role: Role, name: &str| -> Result<PathBuf, Failure> {
        let request = TokenRequest { role, name: name.into(), valid_s: 86_400 };
        let token = admin.issue_token(&request).map_err(|e| Failure::new(e.to_string()))?.token;
        let path = spawned.directory().join(format!("bench-{name}.token"));
        let private = std::os::unix::fs::OpenOptionsExt::mode(
            std::fs::OpenOptions::new().write(true).create_new(true),
            0o600,
        )
        .open(&path);
        private
            .and_then(|mut file| file.write_all(token.as_bytes()))
            .map_err(|e| Failure::new(format!("Cannot write {}: {e}", path.display())))?;
        Ok(path)
    };
    let node = token_file(Role::Node, "bench-node")?;
    let mut command = Command::new(&rgpu);
    command.args(serve).args(["--node", "bench-node", "--broker", &url, "--broker-token-file"]).arg(node);
    let _served = Service::follow("serve --broker".into(), &mut command)?;
    let tenant = token_file(Role::Tenant, "bench-tenant")?;
    wait_for_node(&admin)?;

    let without = || {
        let mut command = Command::new(&rgpu);
        command.args(["run", "--server", &plain.address]);
        command
    };
    let with = || {
        let mut command = Command::new(&rgpu);
        command.args(["run", "--gpus", "1", "--gpu-memory", "64MiB", "--share", "25%"]);
        command.env(BROKER_VARIABLE, &url).env(BROKER_TOKEN_VARIABLE, &tenant);
        command
    };
    let progress = Progress::start();
    let (mut times_without, mut times_with) = (Samples::default(), Samples::default());
    for run in 0..=options.runs {
        let (a, b) = (first_call(without(), &rgpu)?, first_call(with(), &rgpu)?);
        // The first of each fills caches.
        if run > 0 {
            times_without.push(a);
            times_with.push(b);
        }
        progress.step("starts");
    }
    progress.0.finish_and_clear();
    let none = || Failure::new("Nothing was measured");
    let (without, with) = (times_without.summary().ok_or_else(none)?, times_with.summary().ok_or_else(none)?);
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        options: options.clone(),
        without,
        with,
        more_p50: with.p50 - without.p50,
        more_p99: with.p99 - without.p99,
    };
    println!(
        "start: from `rgpu run` to the return of the program's first CUDA call, {} runs each, in turn, {} cores\n",
        options.runs, report.cores
    );
    println!("{:<20} {:>9} {:>9} {:>9} {:>9}", "ms", "min", "median", "p75", "p99");
    for (name, s) in [("--server", without), ("by a lease", with)] {
        println!("{name:<20} {:>9.2} {:>9.2} {:>9.2} {:>9.2}", s.min, s.p50, s.p75, s.p99);
    }
    println!(
        "{:<20} {:>9} {:>9.2} {:>9} {:>9.2}",
        "more by a lease", "", report.more_p50, "", report.more_p99
    );
    if let Some(path) = &options.json {
        crate::report::write_json(&report, path)?;
    }
    Ok(())
}

fn wait_for_node(admin: &Broker) -> Result<(), Failure> {
    for _ in 0..300 {
        if admin.summary().is_ok_and(|summary| summary.nodes_ready == 1) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err(Failure::new("The server did not come to the broker"))
}

/// Milliseconds until the measuring process's first CUDA call had returned.
fn first_call(mut command: Command, rgpu: &std::path::Path) -> Result<f64, Failure> {
    let failed = |e: String| Failure::new(format!("A measured process failed: {e}"));
    let begun = monotonic();
    let mut child = command
        .arg("--")
        .arg(rgpu)
        .arg(crate::WORKER_COMMAND)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| failed(e.to_string()))?;
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(failed("it has no pipes".into()));
    };
    let task = serde_json::to_string(&Task::FirstCall).map_err(|e| failed(e.to_string()))?;
    let _ = writeln!(input, "{task}"); // where it has ended, there is no answer
    drop(input);
    let mut line = String::new();
    let read = BufReader::new(output).read_line(&mut line);
    let ended = child.wait().map_err(|e| failed(e.to_string()))?;
    read.map_err(|e| failed(e.to_string()))?;
    let reply: Reply = serde_json::from_str(&line).map_err(|e| failed(format!("{e}; `{line}`; {ended}")))?;
    match (reply.error, reply.samples.first()) {
        (None, Some(at)) => Ok(at.saturating_sub(begun) as f64 / 1e6),
        (error, _) => Err(failed(error.unwrap_or_else(|| "it told no time".into()))),
    }
}
