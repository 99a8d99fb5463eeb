//! A container engine of this machine, with images and containers of the test's own, which go with it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process;
use crate::product::{clean, temporary};

/// What the engine is told: nothing that asks for rights which a test machine's root may lack, or for a network of its own.
const CONFIGURATION: &str = "[containers]\n\
    default_ulimits = [\"nofile=1024:4096\", \"nproc=1000:2000\"]\n\
    [engine]\n\
    cgroup_manager = \"cgroupfs\"\n\
    events_logger = \"none\"\n";

/// Podman, of the runtimes that the machine has the first that works.
#[derive(Debug)]
pub struct Podman {
    directory: PathBuf,
    runtime: &'static str,
}

impl Drop for Podman {
    fn drop(&mut self) {
        // Files of a rootless container belong to users that only the engine can be.
        let _ = process::run(self.command().args(["system", "reset", "--force"]));
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Podman {
    /// Finds it, and makes an image `rgpu-test` of this machine's own C library with these programs in `/bin`, and an image
    /// `rgpu-test-bare` without any C library.
    ///
    /// # Errors
    /// Why there is none that works.
    pub fn start(programs: &[PathBuf], library: &Path) -> Result<Self> {
        let found = Command::new("podman").arg("--version").output().context("podman is not installed")?;
        ensure!(found.status.success(), "podman does not run");
        let directory = temporary("podman");
        for folder in ["bare/bin", "root/bin", "root/tmp", "root/etc", "run"] {
            fs::create_dir_all(directory.join(folder))?;
        }
        fs::set_permissions(directory.join("run"), fs::Permissions::from_mode(0o700))?;
        fs::write(directory.join("containers.conf"), CONFIGURATION)?;
        let mut podman = Self { directory, runtime: "crun" };
        podman.fill_root(programs, library)?;
        for (folder, image) in [("root", "rgpu-test"), ("bare", "rgpu-test-bare")] {
            let archive = podman.directory.join(format!("{folder}.tar"));
            let mut tar = Command::new("tar");
            tar.arg("-C").arg(podman.directory.join(folder)).arg("-cf").arg(&archive).arg(".");
            process::run(&mut tar)?.success()?;
            process::run(podman.command().arg("import").arg(archive).arg(image))?.success()?;
        }
        let mut complaints = String::new();
        for runtime in ["crun", "runc"] {
            podman.runtime = runtime;
            let mut trial = podman.command();
            trial.args(["run", "--rm", "--network", "none", "rgpu-test", "/bin/sh", "-c", "exit 42"]);
            let finished = process::run(&mut trial)?;
            match finished.expect_code(42) {
                Ok(_) => return Ok(podman),
                Err(e) => complaints += &format!("{runtime}: {e:#}\n"),
            }
        }
        anyhow::bail!("podman starts no containers here: {complaints}")
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

    /// The options before Podman's command: where its files are, and what runs containers.
    pub fn options(&self) -> Vec<String> {
        let path = |name: &str| self.directory.join(name).to_string_lossy().into_owned();
        [
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
        .to_vec()
    }

    /// Podman, with its options.
    pub fn command(&self) -> Command {
        let mut command = clean(Path::new("podman"));
        self.settle(&mut command);
        command.args(self.options());
        command
    }

    /// Gives a command, which may start Podman, the environment that it needs here.
    pub fn settle(&self, command: &mut Command) {
        command.env("CONTAINERS_CONF", self.directory.join("containers.conf"));
        command.env("XDG_RUNTIME_DIR", self.runtime_directory());
        // Podman makes files there.
        command.env("XDG_CONFIG_HOME", self.directory.join("config"));
    }

    /// The user's directory for what runs, where rgpu keeps copies of tickets.
    pub fn runtime_directory(&self) -> PathBuf {
        self.directory.join("run")
    }
}
