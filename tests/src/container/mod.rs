//! A container engine of this machine, with images and containers of the test's own, which go with it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process;
use crate::product::{clean, temporary};

mod docker;

use docker::Daemon;

/// What Podman is told: nothing that asks for rights which a test machine's root may lack, or for a network of its own.
const CONFIGURATION: &str = "[containers]\n\
    default_ulimits = [\"nofile=1024:4096\", \"nproc=1000:2000\"]\n\
    [engine]\n\
    cgroup_manager = \"cgroupfs\"\n\
    events_logger = \"none\"\n";

/// Which engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Podman, of the runtimes that the machine has with the first that works.
    Podman,
    /// Docker, with a daemon of the test's own.
    Docker,
}

impl Kind {
    /// Its command.
    pub fn name(self) -> &'static str {
        match self {
            Self::Podman => "podman",
            Self::Docker => "docker",
        }
    }
}

/// An engine that works.
#[derive(Debug)]
pub struct Engine {
    kind: Kind,
    directory: PathBuf,
    runtime: &'static str,
    daemon: Option<Daemon>,
}

impl Drop for Engine {
    fn drop(&mut self) {
        match self.daemon.take() {
            Some(daemon) => drop(daemon),
            // Files of a rootless container belong to users that only the engine can be.
            None => drop(process::run(self.command().args(["system", "reset", "--force"]))),
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Engine {
    /// Finds it, and makes an image `rgpu-test` of this machine's own C library with these programs in `/bin`, and an image
    /// `rgpu-test-bare` without any C library.
    ///
    /// # Errors
    /// Why there is none that works.
    pub fn start(kind: Kind, programs: &[PathBuf], library: &Path) -> Result<Self> {
        let directory = temporary(kind.name());
        for folder in ["bare/bin", "root/bin", "root/tmp", "root/etc", "run"] {
            fs::create_dir_all(directory.join(folder))?;
        }
        fs::set_permissions(directory.join("run"), fs::Permissions::from_mode(0o700))?;
        fs::write(directory.join("containers.conf"), CONFIGURATION)?;
        let mut engine = Self { kind, directory, runtime: "crun", daemon: None };
        match kind {
            Kind::Podman => {
                let found = Command::new("podman").arg("--version").output();
                ensure!(found.context("podman is not installed")?.status.success(), "podman does not run");
            }
            Kind::Docker => engine.daemon = Some(Daemon::start(&engine.directory)?),
        }
        engine.fill_root(programs, library)?;
        for (folder, image) in [("root", "rgpu-test"), ("bare", "rgpu-test-bare")] {
            let archive = engine.directory.join(format!("{folder}.tar"));
            let mut tar = Command::new("tar");
            tar.arg("-C").arg(engine.directory.join(folder)).arg("-cf").arg(&archive).arg(".");
            process::run(&mut tar)?.success()?;
            engine.import(&archive, image)?;
        }
        let runtimes: &[&str] = if kind == Kind::Podman { &["crun", "runc"] } else { &["runc"] };
        let mut complaints = String::new();
        for runtime in runtimes {
            engine.runtime = runtime;
            let mut trial = engine.command();
            trial.args(["run", "--rm", "--network", "none", "rgpu-test", "/bin/sh", "-c", "exit 42"]);
            let finished = process::run(&mut trial)?;
            match finished.expect_code(42) {
                Ok(_) => return Ok(engine),
                Err(e) => complaints += &format!("{runtime}: {e:#}\n"),
            }
        }
        anyhow::bail!("{} starts no containers here: {complaints}", kind.name())
    }

    /// Makes an image of an archive of its root directory.
    pub fn import(&self, archive: &Path, image: &str) -> Result<()> {
        process::run(self.command().arg("import").arg(archive).arg(image))?.success().map(drop)
    }

    fn fill_root(&self, programs: &[PathBuf], library: &Path) -> Result<()> {
        let root = self.directory.join("root");
        // As merged systems have it; `sh` is among the programs.
        symlink("bin", root.join("sbin"))?;
        let mut wanted: Vec<PathBuf> = vec![library.to_owned()];
        for program in programs {
            let name = program.file_name().context("a program has a name")?;
            fs::copy(program, root.join("bin").join(name))?;
            wanted.push(program.clone());
        }
        for file in wanted {
            let listed = process::run(Command::new("ldd").arg(&file))?;
            for path in
                listed.stdout.split_whitespace().filter(|word| word.starts_with('/') && word.contains(".so"))
            {
                let target = root.join(path.trim_start_matches('/'));
                fs::create_dir_all(target.parent().context("a path with folders")?)?;
                if !target.exists() && !path.ends_with(':') {
                    fs::copy(path, target)?;
                }
            }
        }
        fs::write(self.directory.join("bare/bin/nothing"), "")?;
        Ok(())
    }

    /// The options before the engine's command: where its files are or its daemon listens, and what runs containers.
    pub fn options(&self) -> Vec<String> {
        let path = |name: &str| self.directory.join(name).to_string_lossy().into_owned();
        match &self.daemon {
            Some(daemon) => vec!["--host".into(), daemon.url()],
            None => [
                "--storage-driver",
                "vfs",
                "--root",
                &path("storage"),
                "--runroot",
                &path("run/storage"),
                "--runtime",
                self.runtime,
            ]
            .map(str::to_owned)
            .to_vec(),
        }
    }

    /// The engine's own command, with its options.
    pub fn command(&self) -> Command {
        let program = self.daemon.as_ref().map_or_else(|| Path::new("podman"), Daemon::client);
        let mut command = clean(program);
        self.settle(&mut command);
        command.args(self.options());
        command
    }

    /// Gives a command, which may start the engine by its name, the environment that it needs here.
    pub fn settle(&self, command: &mut Command) {
        command.env("XDG_RUNTIME_DIR", self.runtime_directory());
        match &self.daemon {
            Some(daemon) => daemon.settle(command),
            None => {
                command.env("CONTAINERS_CONF", self.directory.join("containers.conf"));
                // Podman makes files there.
                command.env("XDG_CONFIG_HOME", self.directory.join("config"));
            }
        }
    }

    /// Which engine it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The user's directory for what runs, where rgpu keeps copies of tickets.
    pub fn runtime_directory(&self) -> PathBuf {
        self.directory.join("run")
    }
}
