//! `rgpu run podman run …`: containers that are started by a real engine, with an image that is made of this machine's C library.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rgpu_control::api::LeaseState;
use rgpu_test_runner::{Skip, Test};
use rgpu_tests::cluster::{Cluster, Setup};
use rgpu_tests::container::Podman;
use rgpu_tests::process::{self, Running};
use rgpu_tests::product::{Stats, temporary};

use crate::context::{plain, product, shared_daemon};

/// Only tells hanging from working.
const LIMIT: Duration = Duration::from_secs(240);

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("containers::a_program_has_the_software_gpu_inside", in_process),
        Test::new("containers::a_program_uses_a_servers_gpu", by_server),
        Test::new("containers::a_program_uses_a_lease_that_is_renewed_meanwhile", by_lease),
        Test::new("containers::what_a_killed_command_leaves_is_removed", killed),
        Test::new("containers::what_cannot_work_is_refused_beforehand", refused),
    ]
}

static PODMAN: Mutex<Option<Podman>> = Mutex::new(None);

/// Ends the engine that the tests share.
pub(crate) fn finish() {
    if let Ok(mut podman) = PODMAN.lock() {
        drop(podman.take());
    }
}

/// The engine; the test is skipped where there is none that works.
fn podman() -> Result<MutexGuard<'static, Option<Podman>>> {
    static WHY: OnceLock<String> = OnceLock::new();
    let mut podman = PODMAN.lock().map_err(|_| anyhow::anyhow!("a test with the engine failed before"))?;
    if podman.is_none() && WHY.get().is_none() {
        let mut programs = vec![plain("vector_add")?];
        programs.extend(["/bin/sh", "/bin/sleep"].map(PathBuf::from));
        match Podman::start(&programs, &product()?.shim()) {
            Ok(started) => *podman = Some(started),
            Err(e) => drop(WHY.set(format!("{e:#}"))),
        }
    }
    match WHY.get() {
        Some(why) => Err(Skip(format!("it needs a container engine: {why}")).into()),
        None => Ok(podman),
    }
}

/// Adds `podman … run OPTIONS IMAGE CMD…` to a command.
fn in_container(mut command: Command, podman: &Podman, words: &[&str]) -> Command {
    podman.settle(&mut command);
    command.arg("--").arg("podman").args(podman.options()).args(words);
    command
}

const RUN: [&str; 4] = ["run", "--rm", "--network", "host"];

fn tickets(podman: &Podman) -> usize {
    let folder = podman.runtime_directory().join("rgpu/containers");
    fs::read_dir(folder).map_or(0, |entries| entries.flatten().count())
}

fn in_process() -> Result<()> {
    let guard = podman()?;
    let podman = guard.as_ref().context("No engine")?;
    let words = ["run", "--rm", "--network", "none", "rgpu-test", "/bin/vector_add"];
    let command = in_container(product()?.run_in_process(), podman, &words);
    let finished = process::run(&mut { command })?.success()?;
    ensure!(finished.stdout.contains("vector_add: ok"), "{}", finished.output());
    // The exit status is the program's, through the engine.
    let status = ["run", "--rm", "--network", "none", "rgpu-test", "/bin/sh", "-c", "exit 7"];
    process::run(&mut in_container(product()?.run_in_process(), podman, &status))?.expect_code(7)?;
    // And without rgpu there is no GPU in there.
    let without = process::run(podman.command().args(words))?;
    ensure!(!without.stdout.contains("vector_add: ok"), "{}", without.output());
    Ok(())
}

fn by_server() -> Result<()> {
    let guard = podman()?;
    let podman = guard.as_ref().context("No engine")?;
    let address = shared_daemon()?;
    let words = [&RUN[..], &["rgpu-test", "/bin/vector_add"]].concat();
    let file = temporary("container-stats");
    let mut run = product()?.run(address);
    run.arg(format!("--stats=json:{}", file.display()));
    let finished = process::run(&mut in_container(run, podman, &words))?.success()?;
    ensure!(finished.stdout.contains("vector_add: ok"), "{}", finished.output());
    ensure!(Stats::take(&file)?.number("round_trips")? > 0, "nothing was counted");
    // A network of its own does not lead to this machine's loopback interface.
    let apart = ["run", "--rm", "rgpu-test", "/bin/vector_add"];
    let refused = process::run(&mut in_container(product()?.run(address), podman, &apart))?.expect_code(2)?;
    ensure!(refused.stderr.contains("--network host"), "{}", refused.output());
    Ok(())
}

/// Waits in the container until the ticket is another one.
const UNTIL_RENEWED: &str = "read -r a < $RGPU_LEASE; b=$a; while [ \"$a\" = \"$b\" ]; do sleep 1; read -r b < $RGPU_LEASE; done; \
    exec /bin/vector_add";

fn by_lease() -> Result<()> {
    let guard = podman()?;
    let podman = guard.as_ref().context("No engine")?;
    let cluster = Cluster::on_loopback(product()?, &Setup::servers(1).impatient())?;
    let words = [&RUN[..], &["rgpu-test", "/bin/sh", "-c", UNTIL_RENEWED]].concat();
    let command = in_container(cluster.run("alice", &["--share", "25%"])?, podman, &words);
    let running = Running::start(&mut { command })?;
    cluster.wait("the lease is there", LIMIT, |cluster| {
        Ok(cluster.only_lease()?.state == LeaseState::Active && tickets(podman) == 1)
    })?;
    let finished = running.finish_within(LIMIT)?.success()?;
    ensure!(finished.stdout.contains("vector_add: ok"), "{}", finished.output());
    cluster.wait_idle(LIMIT)?;
    ensure!(tickets(podman) == 0, "a ticket is left");
    Ok(())
}

fn killed() -> Result<()> {
    let guard = podman()?;
    let podman = guard.as_ref().context("No engine")?;
    let cluster = Cluster::on_loopback(product()?, &Setup::servers(1).impatient())?;
    let words = [&RUN[..], &["--name", "left", "rgpu-test", "/bin/sleep", "600"]].concat();
    let command = in_container(cluster.run("alice", &[])?, podman, &words);
    let running = Running::start(&mut { command })?;
    cluster.wait("the ticket is there", LIMIT, |_| Ok(tickets(podman) == 1))?;
    running.signal(libc::SIGKILL);
    let _ = running.finish_within(LIMIT); // it was killed
    let _ = process::run(podman.command().args(["kill", "left"])); // it may not have been started yet
    cluster.wait_idle(LIMIT)?; // the lease expires
    ensure!(tickets(podman) == 1, "nobody could have removed it");
    let words = [&RUN[..], &["rgpu-test", "/bin/vector_add"]].concat();
    let next = process::run(&mut in_container(cluster.run("alice", &[])?, podman, &words))?.success()?;
    ensure!(next.stdout.contains("vector_add: ok"), "{}", next.output());
    ensure!(tickets(podman) == 0, "the killed command's ticket is still there");
    cluster.wait_idle(LIMIT)
}

fn refused() -> Result<()> {
    let guard = podman()?;
    let podman = guard.as_ref().context("No engine")?;
    let cluster = Cluster::on_loopback(product()?, &Setup::servers(1))?;
    let try_with = |words: &[&str], said: &str| -> Result<()> {
        let finished = process::run(&mut in_container(cluster.run("alice", &[])?, podman, words))?;
        ensure!(
            !finished.status.success() && finished.stderr.contains(said),
            "{words:?}: {}",
            finished.output()
        );
        Ok(())
    };
    try_with(
        &["run", "--rm", "--network", "host", "rgpu-test-bare", "/bin/nothing"],
        "has no /lib64/ld-linux",
    )?;
    try_with(&["run", "-d", "rgpu-test", "/bin/vector_add"], "without --detach")?;
    try_with(
        &["run", "-e", "LD_PRELOAD=/x.so", "rgpu-test", "/bin/vector_add"],
        "LD_PRELOAD=/opt/rgpu/lib/librgpu.so:/x.so",
    )?;
    try_with(&["run", "-e", "RGPU_SERVER=a:1", "rgpu-test", "/bin/vector_add"], "RGPU_SERVER")?;
    try_with(&["exec", "x", "/bin/vector_add"], "without `rgpu run`")?;
    try_with(&["--url", "ssh://elsewhere", "run", "rgpu-test", "/bin/vector_add"], "another machine")?;
    ensure!(cluster.leases(true)?.is_empty(), "no lease was to be asked for");
    // What depends on the granted lease gives it back.
    try_with(&["run", "--rm", "rgpu-test", "/bin/vector_add"], "--network host")?;
    try_with(
        &["run", "--rm", "--network", "host", "--user", "4711", "rgpu-test", "/bin/vector_add"],
        "--user",
    )?;
    cluster.wait_idle(LIMIT)?;
    ensure!(tickets(podman) == 0, "a ticket is left");
    Ok(())
}
