//! `rgpu run podman run …`, and with Docker: containers that are started by a real engine, with an image that is made of this machine's C
//! library; and images of rgpu itself.

mod images;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rgpu_control::api::LeaseState;
use rgpu_test_runner::{Skip, Test};
use rgpu_tests::cluster::{Cluster, Setup};
use rgpu_tests::container::{Engine, Kind};
use rgpu_tests::process::{self, Running};
use rgpu_tests::product::{Stats, temporary};

use crate::context::{plain, product, shared_daemon};

/// Only tells hanging from working.
const LIMIT: Duration = Duration::from_secs(240);

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    let mut tests = Vec::new();
    for (kind, begin) in [(Kind::Podman, "containers"), (Kind::Docker, "containers::docker")] {
        let mut add = |name: &str, body: fn(Kind) -> Result<()>| {
            tests.push(Test::new(format!("{begin}::{name}"), move || body(kind)));
        };
        add("a_program_has_the_software_gpu_inside", in_process);
        add("a_program_uses_a_servers_gpu", by_server);
        add("a_program_uses_a_lease_that_is_renewed_meanwhile", by_lease);
        add("what_a_killed_command_leaves_is_removed", killed);
        add("what_cannot_work_is_refused_beforehand", refused);
        add("images_of_rgpu_are_built_and_serve_each_other", images::serve_each_other);
    }
    tests
}

/// An engine that tests share, or why there is none that works.
type Shared = Mutex<Option<Result<Engine, String>>>;

static PODMAN: Shared = Mutex::new(None);
static DOCKER: Shared = Mutex::new(None);

/// Ends the engines that the tests share.
pub(crate) fn finish() {
    for shared in [&PODMAN, &DOCKER] {
        if let Ok(mut engine) = shared.lock() {
            drop(engine.take());
        }
    }
}

/// An engine that is nobody else's meanwhile.
struct Guard(MutexGuard<'static, Option<Result<Engine, String>>>);

impl Guard {
    fn engine(&self) -> Result<&Engine> {
        self.0.as_ref().and_then(|found| found.as_ref().ok()).context("No engine")
    }
}

/// The engine; the test is skipped where there is none that works.
fn engine(kind: Kind) -> Result<Guard> {
    let shared = if kind == Kind::Podman { &PODMAN } else { &DOCKER };
    let mut engine = shared.lock().map_err(|_| anyhow::anyhow!("a test with the engine failed before"))?;
    if engine.is_none() {
        let mut programs = vec![plain("vector_add")?];
        programs.extend(["/bin/sh", "/bin/sleep"].map(PathBuf::from));
        let started = Engine::start(kind, &programs, &product()?.shim());
        *engine = Some(started.map_err(|e| format!("{e:#}")));
    }
    match engine.as_ref() {
        Some(Err(why)) => Err(Skip(format!("it needs a container engine: {why}")).into()),
        _ => Ok(Guard(engine)),
    }
}

/// Adds `podman … run OPTIONS IMAGE CMD…` to a command, or `docker …`.
fn in_container(mut command: Command, engine: &Engine, words: &[&str]) -> Command {
    engine.settle(&mut command);
    command.arg("--").arg(engine.kind().name()).args(engine.options()).args(words);
    command
}

const RUN: [&str; 4] = ["run", "--rm", "--network", "host"];

fn tickets(engine: &Engine) -> usize {
    let folder = engine.runtime_directory().join("rgpu/containers");
    fs::read_dir(folder).map_or(0, |entries| entries.flatten().count())
}

fn in_process(kind: Kind) -> Result<()> {
    let guard = engine(kind)?;
    let engine = guard.engine()?;
    let words = ["run", "--rm", "--network", "none", "rgpu-test", "/bin/vector_add"];
    let command = in_container(product()?.run_in_process(), engine, &words);
    let finished = process::run(&mut { command })?.success()?;
    ensure!(finished.stdout.contains("vector_add: ok"), "{}", finished.output());
    // The exit status is the program's, through the engine.
    let status = ["run", "--rm", "--network", "none", "rgpu-test", "/bin/sh", "-c", "exit 7"];
    process::run(&mut in_container(product()?.run_in_process(), engine, &status))?.expect_code(7)?;
    // And without rgpu there is no GPU in there.
    let without = process::run(engine.command().args(words))?;
    ensure!(!without.stdout.contains("vector_add: ok"), "{}", without.output());
    Ok(())
}

fn by_server(kind: Kind) -> Result<()> {
    let guard = engine(kind)?;
    let engine = guard.engine()?;
    let address = shared_daemon()?;
    let words = [&RUN[..], &["rgpu-test", "/bin/vector_add"]].concat();
    let file = temporary("container-stats");
    let mut run = product()?.run(address);
    run.arg(format!("--stats=json:{}", file.display()));
    let finished = process::run(&mut in_container(run, engine, &words))?.success()?;
    ensure!(finished.stdout.contains("vector_add: ok"), "{}", finished.output());
    ensure!(Stats::take(&file)?.number("round_trips")? > 0, "nothing was counted");
    // A network of its own does not lead to this machine's loopback interface.
    let apart = ["run", "--rm", "rgpu-test", "/bin/vector_add"];
    let refused = process::run(&mut in_container(product()?.run(address), engine, &apart))?.expect_code(2)?;
    ensure!(refused.stderr.contains("--network host"), "{}", refused.output());
    Ok(())
}

/// Waits in the container until the ticket is another one.
const UNTIL_RENEWED: &str = "read -r a < $RGPU_LEASE; b=$a; while [ \"$a\" = \"$b\" ]; do sleep 1; read -r b < $RGPU_LEASE; done; \
    exec /bin/vector_add";

fn by_lease(kind: Kind) -> Result<()> {
    let guard = engine(kind)?;
    let engine = guard.engine()?;
    let cluster = Cluster::on_loopback(product()?, &Setup::servers(1).impatient())?;
    let words = [&RUN[..], &["rgpu-test", "/bin/sh", "-c", UNTIL_RENEWED]].concat();
    let command = in_container(cluster.run("alice", &["--share", "25%"])?, engine, &words);
    let running = Running::start(&mut { command })?;
    cluster.wait("the lease is there", LIMIT, |cluster| {
        Ok(cluster.only_lease()?.state == LeaseState::Active && tickets(engine) == 1)
    })?;
    let finished = running.finish_within(LIMIT)?.success()?;
    ensure!(finished.stdout.contains("vector_add: ok"), "{}", finished.output());
    cluster.wait_idle(LIMIT)?;
    ensure!(tickets(engine) == 0, "a ticket is left");
    Ok(())
}

fn killed(kind: Kind) -> Result<()> {
    let guard = engine(kind)?;
    let engine = guard.engine()?;
    let cluster = Cluster::on_loopback(product()?, &Setup::servers(1).impatient())?;
    let words = [&RUN[..], &["--name", "left", "rgpu-test", "/bin/sleep", "600"]].concat();
    let command = in_container(cluster.run("alice", &[])?, engine, &words);
    let running = Running::start(&mut { command })?;
    cluster.wait("the ticket is there", LIMIT, |_| Ok(tickets(engine) == 1))?;
    running.signal(libc::SIGKILL);
    let _ = running.finish_within(LIMIT); // it was killed
    let _ = process::run(engine.command().args(["kill", "left"])); // it may not have been started yet
    cluster.wait_idle(LIMIT)?; // the lease expires
    ensure!(tickets(engine) == 1, "nobody could have removed it");
    let words = [&RUN[..], &["rgpu-test", "/bin/vector_add"]].concat();
    let next = process::run(&mut in_container(cluster.run("alice", &[])?, engine, &words))?.success()?;
    ensure!(next.stdout.contains("vector_add: ok"), "{}", next.output());
    ensure!(tickets(engine) == 0, "the killed command's ticket is still there");
    cluster.wait_idle(LIMIT)
}

fn refused(kind: Kind) -> Result<()> {
    let guard = engine(kind)?;
    let engine = guard.engine()?;
    let cluster = Cluster::on_loopback(product()?, &Setup::servers(1))?;
    let try_with = |words: &[&str], said: &str| -> Result<()> {
        let finished = process::run(&mut in_container(cluster.run("alice", &[])?, engine, words))?;
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
    let remote = if kind == Kind::Podman { "--url" } else { "--host" };
    try_with(&[remote, "ssh://elsewhere", "run", "rgpu-test", "/bin/vector_add"], "another machine")?;
    ensure!(cluster.leases(true)?.is_empty(), "no lease was to be asked for");
    // What depends on the granted lease gives it back.
    try_with(&["run", "--rm", "rgpu-test", "/bin/vector_add"], "--network host")?;
    try_with(
        &["run", "--rm", "--network", "host", "--user", "4711", "rgpu-test", "/bin/vector_add"],
        "--user",
    )?;
    cluster.wait_idle(LIMIT)?;
    ensure!(tickets(engine) == 0, "a ticket is left");
    Ok(())
}
