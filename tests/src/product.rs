//! The built product: `rgpu`, `librgpu.so`, and a daemon to run programs against.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::examples;
use crate::process;

/// The two files that people use.
#[derive(Debug, Clone)]
pub struct Product {
    directory: PathBuf,
}

/// Runs cargo in the repository.
fn cargo(arguments: &[&str]) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(arguments)
        .arg("--quiet")
        .current_dir(examples::repository())
        .status()
        .context("Starting cargo")?;
    ensure!(status.success(), "`cargo {}` failed", arguments.join(" "));
    Ok(())
}

impl Product {
    /// What cargo is told so that it builds the product and all tests for each other: with the same features, so that no library is
    /// built twice.
    pub const BUILD_WITH_TESTS: [&str; 5] = ["build", "--workspace", "--lib", "--bins", "--tests"];

    /// Builds the release binaries, unless `RGPU_TEST_BINARIES` names a directory that has them.
    pub fn build() -> Result<Self> {
        if let Some(directory) = std::env::var_os("RGPU_TEST_BINARIES") {
            return Self::in_directory(Path::new(&directory));
        }
        cargo(&["build", "--release"])?;
        Self::built()
    }

    /// Builds the binaries together with the tests, unless `RGPU_TEST_BINARIES` names a directory that has them.
    pub fn build_with_tests() -> Result<Self> {
        if std::env::var_os("RGPU_TEST_BINARIES").is_none() {
            cargo(&Self::BUILD_WITH_TESTS)?;
        }
        Self::built_with_tests()
    }

    /// The binaries in the directory that `RGPU_TEST_BINARIES` names, or those that were built with the tests before.
    pub fn built_with_tests() -> Result<Self> {
        match std::env::var_os("RGPU_TEST_BINARIES") {
            Some(directory) => Self::in_directory(Path::new(&directory)),
            None => Self::in_directory(&examples::target().join("debug")),
        }
    }

    /// The release binaries that were built before.
    pub fn built() -> Result<Self> {
        Self::in_directory(&examples::target().join("release"))
    }

    /// The binaries that lie in a directory.
    pub fn in_directory(directory: &Path) -> Result<Self> {
        let product = Self { directory: directory.to_owned() };
        ensure!(product.rgpu().exists(), "{} is missing", product.rgpu().display());
        ensure!(product.shim().exists(), "{} is missing", product.shim().display());
        Ok(product)
    }

    /// Whether it was built with the tests, and not optimised as for people.
    pub fn is_built_with_tests(&self) -> bool {
        self.directory.ends_with("debug")
    }

    /// Where the two files lie.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The command.
    pub fn rgpu(&self) -> PathBuf {
        self.directory.join("rgpu")
    }

    /// The client shim.
    pub fn shim(&self) -> PathBuf {
        self.directory.join("librgpu.so")
    }

    /// A command `rgpu run --server …`; what to run is to be added.
    pub fn run(&self, server: SocketAddr) -> Command {
        let mut command = clean(&self.rgpu());
        command.args(["run", "--server", &server.to_string()]);
        command
    }

    /// A command `rgpu run --in-process`; what to run is to be added.
    pub fn run_in_process(&self) -> Command {
        let mut command = clean(&self.rgpu());
        command.args(["run", "--in-process"]);
        command
    }
}

/// The variable that says where the cluster of `rgpu cluster` is.
pub const CLUSTER_DIRECTORY: &str = "RGPU_CLUSTER_DIR";

/// Nothing is there, and not even root can make anything there.
const NOWHERE: &str = "/proc/nonexistent";

/// A command without any of rgpu's own variables, and without anything preloaded. It finds no cluster of this user's,
/// and no machine code that earlier programs have kept.
pub fn clean(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (key, _) in std::env::vars_os() {
        let name = key.to_string_lossy();
        if name.starts_with("RGPU_") || name.starts_with("LD_") || name.starts_with("CUDA_") {
            command.env_remove(&key);
        }
    }
    command.env(CLUSTER_DIRECTORY, NOWHERE);
    command.env("XDG_CONFIG_HOME", NOWHERE); // where a cluster that was joined would be
    command.env("RGPU_CODE_CACHE", "0");
    command
}

/// A file's name that nobody else uses, in the system's directory for temporary files.
pub fn temporary(name: &str) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("rgpu-test-{}-{n}-{name}", std::process::id()))
}

/// What `rgpu run --stats=json:FILE` wrote.
#[derive(Debug, Clone)]
pub struct Stats(pub serde_json::Value);

impl Stats {
    /// Reads and removes the file.
    pub fn take(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file)
            .with_context(|| format!("Reading statistics from {}", file.display()))?;
        fs::remove_file(file)?;
        Ok(Self(serde_json::from_str(&text).context("The statistics are not JSON")?))
    }

    /// A top-level number.
    pub fn number(&self, key: &str) -> Result<u64> {
        self.0[key].as_u64().with_context(|| format!("The statistics have no number `{key}`: {}", self.0))
    }
}

/// `rgpu serve`, ended when dropped.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    address: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
}

impl Daemon {
    /// Starts a daemon with the software GPU on a free port.
    pub fn start(product: &Product) -> Result<Self> {
        Self::start_with(product, &[])
    }

    /// Starts a daemon with further options. Unless they say otherwise, it keeps nothing across sessions.
    pub fn start_with(product: &Product, options: &[&str]) -> Result<Self> {
        let mut all = options.to_vec();
        if !options.contains(&"--device") {
            all.extend(["--device", "software"]);
        }
        Self::start_device(product, &all, &[])
    }

    /// Starts a daemon with the software GPU and a variable in its environment.
    pub fn start_told(product: &Product, variable: (&str, &str)) -> Result<Self> {
        Self::start_device(product, &["--device", "software"], &[variable])
    }

    /// Starts a daemon whose device is the NVIDIA driver, for which our own library stands in: what
    /// applications ask goes through the code that drives real GPUs, and is executed by the software GPU
    /// behind the driver's interface.
    pub fn start_over_driver(product: &Product) -> Result<Self> {
        let shim = product.shim();
        let driver = shim.to_str().context("The library's path is not UTF-8")?;
        Self::start_device(product, &["--device", "nvidia", "--driver", driver], &[])
    }

    /// Starts a daemon that finds out by itself which device there is.
    pub fn start_auto(product: &Product) -> Result<Self> {
        Self::start_device(product, &[], &[])
    }

    fn start_device(product: &Product, options: &[&str], environment: &[(&str, &str)]) -> Result<Self> {
        let keeps = options.iter().any(|o| o.starts_with("--image-cache"));
        let nothing: &[&str] = if keeps { &[] } else { &["--image-cache-size", "0"] };
        let mut child = clean(&product.rgpu())
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(options)
            .args(nothing)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("Starting rgpu serve")?;
        let log = Arc::new(Mutex::new(vec![]));
        let (found, address) = mpsc::channel();
        let follow = |pipe: Box<dyn std::io::Read + Send>, announces: bool| {
            let (log, found) = (log.clone(), found.clone());
            std::thread::spawn(move || {
                for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                    if let Some(address) = announces.then(|| address_in(&line)).flatten() {
                        let _ = found.send(address); // later lines find nobody waiting
                    }
                    log.lock().expect("no thread panics").push(line);
                }
            });
        };
        follow(Box::new(child.stdout.take().context("No pipe")?), true);
        follow(Box::new(child.stderr.take().context("No pipe")?), false);
        drop(found);
        match address.recv_timeout(Duration::from_secs(60)) {
            Ok(address) => Ok(Self { child, address, log }),
            Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                bail!(
                    "rgpu serve did not say where it listens:\n{}",
                    log.lock().expect("no panics").join("\n")
                )
            }
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has written so far.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().expect("no thread panics").clone()
    }

    /// Whether the daemon itself is running.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The processes that it has started for applications.
    pub fn application_servers(&self) -> Vec<u32> {
        process::descendants(self.pid())
    }

    /// Waits until no application is served any more.
    pub fn wait_until_idle(&self, limit: Duration) -> Result<Duration> {
        process::wait_until("the application servers end", limit, || self.application_servers().is_empty())
    }

    /// Kills the daemon and everything it has started.
    pub fn kill(&mut self) {
        let servers = self.application_servers();
        let _ = self.child.kill(); // may have ended already
        for pid in servers {
            // SAFETY: kill takes no pointers; these are processes that our own daemon started.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        }
        let _ = self.child.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The address in the line with which the daemon says that it listens.
fn address_in(line: &str) -> Option<SocketAddr> {
    line.split(|c: char| c.is_whitespace() || c == '"' || c == ',' || c == '=')
        .filter_map(|word| word.trim_end_matches('.').parse::<SocketAddr>().ok())
        .find(|a| a.port() != 0)
}
