//! `rgpu check` through servers: the same reports as with the software GPU inside the program.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rgpu_test_runner::Test;
use rgpu_tests::examples::Linking;
use rgpu_tests::process::{self, Finished, Running};
use rgpu_tests::product::{Daemon, Stats, temporary};
use rgpu_tests::toolkit::Version;

use crate::check::{CLEAN, PLANTED, check};
use crate::context::{driver_daemon, plain, product, program, shared_daemon};

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("check_forwarded::reports_are_those_of_the_program_itself", same),
        Test::new("check_forwarded::finds_nothing_where_nothing_is", nothing),
        Test::new("check_forwarded::limits_logs_processes_and_statistics", options),
        Test::new("check_forwarded::several_servers_are_looked_at_as_one", several),
        Test::new("check_forwarded::what_is_not_looked_at_is_said", not_looked_at),
    ]
}

fn run(address: SocketAddr, transport: &str, options: &[&str], kind: &str) -> Result<Finished> {
    let address = address.to_string();
    let mut all = vec!["--server", &address, "--transport", transport];
    all.extend(options);
    process::run(check(&all)?.arg(plain("planted")?).arg(kind))
}

/// The reports without what differs from run to run: their order, and where the program's memory lies.
fn reports(finished: &Finished) -> Vec<String> {
    let lines: String = finished
        .stderr
        .lines()
        .filter_map(|line| line.strip_prefix("========="))
        .filter(|line| !line.starts_with(" RGPU CHECK:"))
        .map(|line| line.split(' ').map(without_address).collect::<Vec<_>>().join(" ") + "\n")
        .collect();
    let mut all: Vec<String> = lines.split("\n\n").map(str::to_owned).collect();
    all.sort();
    all
}

/// Addresses of global and local memory have so many digits, those of shared memory fewer.
fn without_address(word: &str) -> &str {
    let digits = word.strip_prefix("0x").map(|digits| digits.trim_end_matches([',', '.']));
    match digits {
        Some(digits) if digits.len() > 8 && digits.bytes().all(|b| b.is_ascii_hexdigit()) => "ADDRESS",
        _ => word,
    }
}

fn same() -> Result<()> {
    let address = shared_daemon()?;
    let others =
        [("memcheck", "double"), ("memcheck", "leak"), ("memcheck,initcheck,racecheck,synccheck", "none")];
    let planted = PLANTED.iter().map(|(tool, kind, ..)| (*tool, *kind));
    for (tool, kind) in planted.chain(others) {
        let options = ["--tool", tool, "--leak-check", "full", "--error-exitcode", "9"];
        let own = process::run(check(&options)?.arg(plain("planted")?).arg(kind))?;
        let expected = reports(&own);
        ensure!(expected.concat().contains("ERROR SUMMARY"), "{}", own.output());
        for transport in ["tcp", "shm"] {
            let finished = run(address, transport, &options, kind)?;
            ensure!(
                reports(&finished) == expected && finished.status.code() == own.status.code(),
                "{tool} of {kind} over {transport}:\n{}\nin the program:\n{}",
                finished.output(),
                own.output()
            );
            ensure!(finished.stdout == own.stdout, "{}", finished.output());
        }
    }
    // Which block comes to it first is not the same each time.
    let finished = run(address, "tcp", &["--tool", "racecheck"], "trap")?.success()?;
    for part in ["Kernel failed.", "Trap instruction in kernel", "ERROR SUMMARY: 1 error\n"] {
        ensure!(finished.stderr.contains(part), "no {part:?} in\n{}", finished.output());
    }
    Ok(())
}

fn nothing() -> Result<()> {
    let address = shared_daemon()?.to_string();
    for transport in ["tcp", "shm"] {
        let tools = "memcheck,initcheck,racecheck,synccheck";
        let options =
            ["--server", &address, "--transport", transport, "--tool", tools, "--error-exitcode", "9"];
        for name in CLEAN {
            let program = program(name, Version::Cuda13, Linking::Static)?;
            let finished = process::run(check(&options)?.arg(program))?;
            let finished = finished.success().with_context(|| format!("{name} over {transport}"))?;
            ensure!(finished.stderr.contains("ERROR SUMMARY: 0 errors"), "{name}: {}", finished.output());
        }
    }
    Ok(())
}

fn options() -> Result<()> {
    let address = shared_daemon()?;
    let (log, stats) = (temporary("check-log"), temporary("check-stats"));
    let file = log.to_str().context("a path of text")?;
    let finished = run(address, "tcp", &["--print-limit", "2", "--log-file", file], "called")?.success()?;
    ensure!(!finished.stderr.contains("========="), "{}", finished.output());
    let text = std::fs::read_to_string(&log)?;
    std::fs::remove_file(&log)?;
    ensure!(text.matches("Invalid __global__").count() == 2, "{text}");
    ensure!(text.contains("ERROR SUMMARY: 48 errors\n"), "{text}");
    ensure!(text.contains("ERROR SUMMARY: 46 errors were not printed."), "{text}");
    // Processes that run at the same time, a server that the environment names, and statistics that show it was used.
    let json = format!("--stats=json:{}", stats.display());
    let mut command = check(&["--error-exitcode", "9", &json])?;
    command.env("RGPU_SERVER", address.to_string()).args(["bash", "-c"]);
    command.arg("for kind in beyond misaligned none; do \"$0\" $kind & done; wait").arg(plain("planted")?);
    let finished = process::run(&mut command)?.expect_code(9)?;
    for part in ["ERROR SUMMARY: 2 errors\n", "is out of bounds", "is misaligned"] {
        ensure!(finished.stderr.contains(part), "no {part:?} in\n{}", finished.output());
    }
    ensure!(Stats::take(&stats)?.number("sessions")? == 3, "{}", finished.output());
    Ok(())
}

fn several() -> Result<()> {
    let second = Daemon::start(product()?)?;
    let both = format!("{},{}", shared_daemon()?, second.address());
    for (tool, kind, says) in [
        ("memcheck", "beyond", "Invalid __global__ write of size 4 bytes"),
        ("memcheck", "freed", "that was freed"),
        ("initcheck", "uninitialised", "Uninitialized __global__ memory read"),
    ] {
        let options = ["--server", &both, "--tool", tool, "--error-exitcode", "9"];
        let finished = process::run(check(&options)?.arg(plain("planted")?).arg(kind))?.expect_code(9)?;
        ensure!(finished.stderr.contains(says), "{}", finished.output());
    }
    // What one server copies to the other is not told as written, so that initcheck is left out.
    let options = ["--server", &both, "--tool", "memcheck", "--error-exitcode", "9"];
    let finished = process::run(check(&options)?.arg(plain("two_servers")?).arg("01"))?.success()?;
    ensure!(finished.stderr.contains("ERROR SUMMARY: 0 errors"), "{}", finished.output());
    Ok(())
}

fn not_looked_at() -> Result<()> {
    // By a GPU that is none of software.
    let finished = run(driver_daemon()?, "tcp", &["--error-exitcode", "9"], "beyond")?.expect_code(9)?;
    for part in ["only software GPUs do", "Not all kernels of process", "ERROR SUMMARY: 0 errors"] {
        ensure!(finished.stderr.contains(part), "no {part:?} in\n{}", finished.output());
    }
    // By a server that ends meanwhile.
    let mut daemon = Daemon::start(product()?)?;
    let address = daemon.address().to_string();
    let mut command = check(&["--server", &address, "--error-exitcode", "9"])?;
    let running = Running::start(command.arg(plain("planted")?).arg("endless"))?;
    process::wait_until("the program has a server", Duration::from_secs(30), || {
        !daemon.application_servers().is_empty()
    })?;
    daemon.kill();
    let finished = running.finish()?.expect_code(9)?;
    ensure!(finished.stderr.contains("Not all kernels"), "{}", finished.output());
    Ok(())
}
