//! What many tests need: the built product, compiled programs, a daemon.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use rgpu_test_runner::Skip;
use rgpu_tests::examples::{self, Example, Linking};
use rgpu_tests::process::{self, Finished, Running};
use rgpu_tests::product::{Daemon, Product};
use rgpu_tests::toolkit::{Toolkit, Version};

static DAEMON: Mutex<Option<Daemon>> = Mutex::new(None);
static OVER_DRIVER: Mutex<Option<Daemon>> = Mutex::new(None);

/// The built product.
pub(crate) fn product() -> Result<&'static Product> {
    static PRODUCT: OnceLock<Result<Product, String>> = OnceLock::new();
    PRODUCT
        .get_or_init(|| Product::build_with_tests().map_err(|e| format!("{e:#}")))
        .as_ref()
        .map_err(|e| anyhow!("{e}"))
}

fn programs() -> Result<&'static [Example]> {
    static PROGRAMS: OnceLock<Result<Vec<Example>, Option<String>>> = OnceLock::new();
    let all = PROGRAMS.get_or_init(|| {
        let toolkit = Toolkit::find().map_err(|e| {
            println!("No CUDA programs can be compiled: {e:#}");
            None
        })?;
        let build = || -> Result<Vec<Example>> {
            let mut all = examples::all()?;
            all.extend(examples::for_tests()?);
            examples::build(&toolkit, &all, &Version::ALL)?;
            Ok(all)
        };
        build().map_err(|e| Some(format!("{e:#}")))
    });
    match all {
        Ok(programs) => Ok(programs),
        Err(None) => {
            Err(Skip("it needs the CUDA compiler, which `cargo xtask toolkit` fetches".into()).into())
        }
        Err(Some(e)) => Err(anyhow!("{e}")),
    }
}

/// A compiled program; the test is skipped where there is no compiler.
pub(crate) fn program(name: &str, version: Version, linking: Linking) -> Result<PathBuf> {
    let found = programs()?.iter().find(|e| e.name == name);
    Ok(found.with_context(|| format!("There is no program `{name}`"))?.program(version, linking))
}

/// A compiled program as nvcc makes it without being told anything.
pub(crate) fn plain(name: &str) -> Result<PathBuf> {
    program(name, Version::Cuda13, Linking::Static)
}

/// The address of a daemon that many tests use.
pub(crate) fn shared_daemon() -> Result<SocketAddr> {
    let mut daemon = DAEMON.lock().map_err(|_| anyhow!("the shared daemon failed to start before"))?;
    if daemon.is_none() {
        *daemon = Some(Daemon::start(product()?)?);
    }
    Ok(daemon.as_ref().context("No daemon")?.address())
}

/// The address of a daemon that uses its device by the NVIDIA driver's interface.
pub(crate) fn driver_daemon() -> Result<SocketAddr> {
    let mut daemon = OVER_DRIVER.lock().map_err(|_| anyhow!("that daemon failed to start before"))?;
    if daemon.is_none() {
        *daemon = Some(Daemon::start_over_driver(product()?)?);
    }
    Ok(daemon.as_ref().context("No daemon")?.address())
}

/// Ends the shared daemons.
pub(crate) fn finish() {
    for shared in [&DAEMON, &OVER_DRIVER] {
        if let Ok(mut daemon) = shared.lock() {
            drop(daemon.take());
        }
    }
}

/// A command that runs a plainly compiled program through a daemon.
pub(crate) fn forwarded(address: SocketAddr, name: &str) -> Result<Command> {
    let mut command = product()?.run(address);
    command.arg("--").arg(plain(name)?);
    Ok(command)
}

/// Checks that a daemon still serves: vector_add passes.
pub(crate) fn serves(address: SocketAddr) -> Result<Finished> {
    process::run(&mut forwarded(address, "vector_add")?)?
        .success()
        .context("The daemon does not serve any more")
}

/// A program whose standard error is followed while it runs.
pub(crate) struct Followed {
    running: Running,
    log: PathBuf,
}

impl Followed {
    /// Starts a command (made by `Product::run`, ending in a program) and waits until it has written
    /// `word` to standard error, which goes to a file.
    pub(crate) fn start(mut command: Command, word: &str) -> Result<Self> {
        let log = rgpu_tests::product::temporary("stderr");
        command.env("RGPU_TEST_LOG", &log);
        let mut wrapped = Command::new("/bin/bash");
        wrapped.arg("-c").arg("exec \"$@\" 2>\"$RGPU_TEST_LOG\"").arg("bash");
        wrapped.arg(command.get_program()).args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => wrapped.env(key, value),
                None => wrapped.env_remove(key),
            };
        }
        let mut followed = Self { running: Running::start(&mut wrapped)?, log };
        let started =
            process::wait_until(&format!("the program says `{word}`"), Duration::from_secs(60), || {
                followed.text().contains(word) || !followed.running.is_running()
            });
        let text = followed.text();
        started.and_then(|_| {
            anyhow::ensure!(text.contains(word), "the program ended early:\n{text}");
            Ok(())
        })?;
        Ok(followed)
    }

    /// The process that was started (`rgpu run`, which may be or become the program).
    pub(crate) fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// What the program has written to standard error.
    pub(crate) fn text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The program itself: the last in a chain of children.
    pub(crate) fn program_pid(&self) -> u32 {
        process::descendants(self.pid()).last().copied().unwrap_or_else(|| self.pid())
    }

    /// Sends a signal to the process that was started.
    pub(crate) fn signal(&self, signal: i32) {
        self.running.signal(signal);
    }

    /// Waits for the end; standard error is what the file holds.
    pub(crate) fn finish_within(self, limit: Duration) -> Result<Finished> {
        let log = self.log;
        let started = std::time::Instant::now();
        let mut finished = self.running.finish_within(limit + Duration::from_secs(120))?;
        let waited = started.elapsed();
        finished.stderr = std::fs::read_to_string(&log).unwrap_or_default();
        let _ = std::fs::remove_file(log); // only tidiness
        anyhow::ensure!(waited < limit, "its end took {waited:?}\n{}", finished.output());
        Ok(finished)
    }
}

/// Sends a signal to a process.
pub(crate) fn signal(pid: u32, signal: i32) {
    // SAFETY: kill takes no pointers; callers name processes that the tests started.
    unsafe { libc::kill(pid as i32, signal) };
}
