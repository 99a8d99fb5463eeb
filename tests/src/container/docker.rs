//! A Docker daemon of a test's own: its files lie in the test's folder, and it changes nothing of the machine's networks.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::debian::Packages;
use crate::process::{self, wait_until};
use crate::product::clean;

/// How long it may take to start, and to end.
const SOON: Duration = Duration::from_secs(60);

/// The daemon; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Daemon {
    child: Child,
    /// The command that speaks to it.
    client: PathBuf,
    /// Where programs are looked for; the machine's own `docker`, if there is one, before the packages'.
    path: OsString,
    directory: PathBuf,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // SAFETY: kill takes no pointers; the child hasn't been waited for, so the id is still its own.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        let ended = wait_until("dockerd ends", SOON, || matches!(self.child.try_wait(), Ok(Some(_))));
        if ended.is_err() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Daemon {
    /// Starts the one that is installed, or else Debian's, with its files in a folder.
    ///
    /// # Errors
    /// There is none, or it does not run here.
    pub(super) fn start(folder: &Path) -> Result<Self> {
        // SAFETY: geteuid has no conditions.
        ensure!(unsafe { libc::geteuid() } == 0, "Docker's daemon needs root");
        let packages = Packages::find(&["docker.io"], "dockerd")?;
        let directory = folder.join("docker");
        fs::create_dir_all(directory.join("client"))?;
        fs::write(directory.join("daemon.json"), "{}")?;
        let own =
            packages.environment()?.into_iter().find_map(|(name, value)| (name == "PATH").then_some(value));
        let given = std::env::var_os("PATH").unwrap_or_default();
        let all = std::env::split_paths(&given).chain(own.iter().flat_map(std::env::split_paths));
        let path = std::env::join_paths(all.collect::<Vec<_>>())?;
        let log = File::create(directory.join("log"))?;
        // What it mounts goes with it.
        let mut command = clean(Path::new("unshare"));
        command.arg("--mount").arg(packages.program("dockerd")?).envs(packages.environment()?);
        for (option, file) in [
            ("--config-file", "daemon.json"),
            ("--data-root", "data"),
            ("--exec-root", "run"),
            ("--pidfile", "pid"),
        ] {
            command.arg(option).arg(directory.join(file));
        }
        command.args(["--storage-driver=vfs", "--bridge=none", "--iptables=false", "--ip6tables=false"]);
        command.args(["--ip-forward=false", "--ip-masq=false", "--host"]).arg(url(&directory));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().context("Starting unshare")?;
        let client = packages.program("docker")?;
        let mut daemon = Self { child, client, path, directory };
        let mut ended = false;
        let answered = wait_until("dockerd answers", SOON, || {
            ended = matches!(daemon.child.try_wait(), Ok(Some(_)));
            ended || daemon.answers()
        });
        let log = fs::read_to_string(daemon.directory.join("log")).unwrap_or_default();
        let last = log.lines().last().unwrap_or_default();
        ensure!(answered.is_ok() && !ended, "dockerd does not run here: {last}");
        Ok(daemon)
    }

    fn answers(&self) -> bool {
        let mut command = clean(&self.client);
        self.settle(&mut command);
        let asked = process::run(command.arg("--host").arg(self.url()).arg("version"));
        asked.is_ok_and(|finished| finished.status.success())
    }

    pub(super) fn url(&self) -> String {
        url(&self.directory)
    }

    pub(super) fn client(&self) -> &Path {
        &self.client
    }

    pub(super) fn settle(&self, command: &mut Command) {
        command.env("PATH", &self.path).env("DOCKER_CONFIG", self.directory.join("client"));
        // Recipes mount the build's context.
        command.env("DOCKER_BUILDKIT", "1");
    }
}

fn url(directory: &Path) -> String {
    format!("unix://{}", directory.join("socket").display())
}
