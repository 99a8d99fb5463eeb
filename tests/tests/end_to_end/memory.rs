//! How much memory forwarding costs: in the program, in an application's server, in the daemon.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rgpu_test_runner::Test;
use rgpu_tests::process;
use rgpu_tests::product::{Daemon, clean};

use crate::context::{Followed, forwarded, plain, product, signal};

const MIB: u64 = 1 << 20;

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::alone("memory::of_the_program_the_idle_server_and_the_daemon", idle),
        Test::alone("memory::of_the_client_during_a_million_launches", many_launches),
        Test::alone("memory::of_the_device_runs_out_and_comes_back", fills),
        Test::alone("memory::comes_back_when_an_application_dies", comes_back),
    ]
}

fn idle() -> Result<()> {
    let daemon = Daemon::start(product()?)?;
    let mut alone = clean(&plain("idle")?);
    alone.arg("plain");
    let alone = Followed::start(alone, "ready")?;
    let without = process::pss(alone.program_pid())?;
    let forwarded = Followed::start(forwarded(daemon.address(), "idle")?, "ready")?;
    let with = process::pss(forwarded.program_pid())?;
    let servers = daemon.application_servers();
    ensure!(servers.len() == 1, "{} application servers", servers.len());
    let (server, main) = (process::pss(servers[0])?, process::pss(daemon.pid())?);
    let more = with.saturating_sub(without);
    let kib = |bytes: u64| bytes >> 10;
    println!(
        "Pss: program {} KiB with, {} KiB without the shim: {} KiB more; idle server {} KiB; daemon {} KiB",
        kib(with),
        kib(without),
        kib(more),
        kib(server),
        kib(main)
    );
    // Code that is little optimised takes about twice the room.
    let most = if product()?.is_built_with_tests() { 24 } else { 10 };
    ensure!(more <= most * MIB, "the shim costs the program {} KiB", kib(more));
    ensure!(server <= 40 * MIB, "an idle application server has {} KiB", kib(server));
    ensure!(main <= 20 * MIB, "the daemon has {} KiB", kib(main));
    Ok(())
}

fn many_launches() -> Result<()> {
    let daemon = Daemon::start(product()?)?;
    let mut command = forwarded(daemon.address(), "many_launches")?;
    command.arg("1000000");
    let mut running = process::Running::start(&mut command)?;
    let mut peak = 0;
    while running.is_running() {
        for pid in process::descendants(running.pid()).into_iter().chain([running.pid()]) {
            peak = peak.max(process::peak_resident(pid).unwrap_or(0));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    running.finish()?.success()?;
    println!("peak resident size of the client with a million launches: {} KiB", peak >> 10);
    ensure!(peak > 0, "nothing was measured");
    ensure!(peak <= 64 * MIB, "the client grew to {} MiB", peak / MIB);
    Ok(())
}

fn fills() -> Result<()> {
    let daemon = Daemon::start(product()?)?;
    let finished = process::run(&mut forwarded(daemon.address(), "fill_memory")?)?.success()?;
    ensure!(finished.stdout.contains("fill_memory: ok"), "{}", finished.output());
    let mut in_process = product()?.run_in_process();
    process::run(in_process.arg("--").arg(plain("fill_memory")?))?.success()?;
    Ok(())
}

fn comes_back() -> Result<()> {
    let daemon = Daemon::start(product()?)?;
    let program = Followed::start(forwarded(daemon.address(), "copying")?, "running")?;
    let server = *daemon.application_servers().first().context("No application server")?;
    // Through shared memory, the program writes the device's memory itself: it stands in the accounts of both.
    process::wait_until(
        "the program and its server hold something to give back",
        Duration::from_secs(60),
        || {
            let held = [server, program.program_pid()].map(|pid| process::pss(pid).unwrap_or(0));
            // The program's own copy has 64 MiB, the device's as much.
            held.iter().sum::<u64>() > (64 + 32) * MIB
        },
    )?;
    signal(program.program_pid(), libc::SIGKILL);
    signal(program.pid(), libc::SIGKILL);
    daemon.wait_until_idle(Duration::from_secs(60))?;
    let main = process::pss(daemon.pid())?;
    ensure!(main <= 20 * MIB, "the daemon has {} KiB afterwards", main >> 10);
    Ok(())
}
