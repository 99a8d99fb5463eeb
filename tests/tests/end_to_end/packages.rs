//! Packages of the built product: installed, used and removed in a root directory of Debian's own packages.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rgpu_test_runner::{Skip, Test};
use rgpu_tests::debian::{Packages, essential_root};
use rgpu_tests::packages::debian::{self, Effort};
use rgpu_tests::packages::{Architecture, Contents, MORE, wheel};
use rgpu_tests::process::{self, Finished};
use rgpu_tests::product::temporary;

use crate::context::{plain, product};

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("packages::debian_packages_are_installed_used_and_removed", debian_packages),
        Test::new("packages::command_and_library_run_where_the_c_library_is_older", older_c_library),
        Test::new("packages::debian_packages_from_other_folders_are_the_same_bytes", same_bytes),
        Test::new("packages::a_wheel_is_installed_used_and_removed", wheels),
    ]
}

/// A directory that goes when the test has ended.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Scratch {
    fn new(name: &str) -> Result<Self> {
        let path = temporary(name);
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

fn contents(scratch: &Scratch) -> Result<Contents> {
    // The driver is no part of the product's default build; `cargo test --workspace` has put it here.
    let own = std::env::current_exe()?;
    let built = own.parent().and_then(Path::parent).context("tests are in a folder")?;
    let folders = [product()?.directory(), built];
    let contents = Contents::collect(&folders, &scratch.0.join("contents"))?;
    let needed = contents.more.values().map(|(_, minor)| *minor).chain([contents.glibc_minor]).max();
    ensure!(needed <= Some(28), "the binaries need glibc {needed:?}");
    Ok(contents)
}

/// A root directory with Debian's essential packages and the library that nvcc's programs are linked with, in which commands run as its root user.
struct Root {
    directory: PathBuf,
    bwrap: Packages,
}

impl Root {
    fn create(scratch: &Scratch, release: &str) -> Result<Self> {
        let skip = |e: anyhow::Error| Skip(format!("it needs a root directory of Debian packages: {e:#}"));
        let bwrap = Packages::find(&["bubblewrap"], "bwrap").map_err(skip)?;
        let archive = essential_root(release).map_err(skip)?;
        let directory = scratch.0.join("root");
        fs::create_dir_all(&directory)?;
        let mut tar = Command::new("tar");
        tar.args(["--no-same-owner", "--exclude=./dev/*", "-xf"]).arg(archive);
        process::run(tar.arg("-C").arg(&directory))?.success()?;
        let root = Self { directory, bwrap };
        root.run(&["/bin/true"]).and_then(Finished::success).map_err(skip)?;
        Ok(root)
    }

    fn run(&self, words: &[&str]) -> Result<Finished> {
        let mut command = self.bwrap.command("bwrap")?;
        command.args([
            "--unshare-user",
            "--unshare-pid",
            "--unshare-net",
            "--uid",
            "0",
            "--gid",
            "0",
            "--die-with-parent",
            "--bind",
        ]);
        command.arg(&self.directory).args([
            "/",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "--tmpfs",
            "/tmp",
            "--clearenv",
        ]);
        command.args(["--setenv", "PATH", "/usr/sbin:/usr/bin:/sbin:/bin", "--setenv", "HOME", "/tmp"]);
        process::run(command.args(words))
    }

    /// Copies files into it, and returns their names there.
    fn take(&self, files: &[PathBuf]) -> Result<Vec<String>> {
        let take = |file: &PathBuf| {
            let name = file.file_name().context("a name")?;
            fs::copy(file, self.directory.join(name))?;
            Ok(format!("/{}", name.to_string_lossy()))
        };
        files.iter().map(take).collect()
    }

    fn files(&self) -> Result<BTreeSet<PathBuf>> {
        let mut found = BTreeSet::new();
        let mut folders = vec![self.directory.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    folders.push(entry.path());
                }
                found.insert(entry.path());
            }
        }
        Ok(found)
    }
}

fn debian_packages() -> Result<()> {
    let program = plain("vector_add")?;
    let scratch = Scratch::new("debian-packages")?;
    let contents = contents(&scratch)?;
    if let Some(missing) = MORE.iter().find(|name| !contents.more.contains_key(*name)) {
        let advice = "cargo build -p rgpu-slurm -p rgpu-kubernetes";
        return Err(Skip(format!("it needs {missing}: {advice}")).into());
    }
    let root = Root::create(&scratch, "bookworm")?;
    let made = debian::make(&contents, &scratch.0, &scratch.0.join("out"), Effort::Little)?;
    fs::copy(program, root.directory.join("vector_add"))?;
    let names = root.take(&made)?;
    // dpkg's own lists of what is there are kept by it; they are no part of what is compared.
    let own = |path: &PathBuf| {
        !path.starts_with(root.directory.join("var/lib/dpkg"))
            && !path.starts_with(root.directory.join("var/log"))
    };
    let before: BTreeSet<PathBuf> = root.files()?.into_iter().filter(own).collect();

    let mut install = vec!["dpkg", "--install"];
    install.extend(names.iter().map(String::as_str));
    root.run(&install)?.success()?;
    let used =
        root.run(&["rgpu", "run", "--in-process", "--workers", "2", "--", "/vector_add"])?.success()?;
    ensure!(used.stdout.contains("vector_add: ok"), "{}", used.output());
    root.run(&["rgpu", "broker", "--config", "/etc/rgpu/broker.toml", "--help"])?.success()?;
    let unit = fs::read_to_string(root.directory.join("lib/systemd/system/rgpu-broker.service"))?;
    ensure!(unit.contains("ExecStart=/usr/bin/rgpu broker --config /etc/rgpu/broker.toml"), "{unit}");
    for installed in ["usr/share/man/man1/rgpu-run.1.gz", "usr/share/bash-completion/completions/rgpu"] {
        // Essential systems leave manual pages out where dpkg is told so; the package has them.
        let listed = root.run(&["dpkg", "--listfiles", "rgpu"])?.success()?;
        ensure!(listed.stdout.contains(installed), "{installed} is missing: {}", listed.stdout);
    }
    // It lies where the command looks for it.
    let plugin = ["rgpu", "slurm", "plugin", "--slurm-version", "22.05.8", "--output", "/plugin.so"];
    root.run(&plugin)?.success()?;
    let written = fs::read(root.directory.join("plugin.so"))?;
    let built = fs::read(root.directory.join("usr/lib/rgpu/librgpu_slurm.so"))?;
    ensure!(written.len() == built.len() && written != built, "the plugin was not made for Slurm 22.05.8");
    fs::remove_file(root.directory.join("plugin.so"))?;
    let unit = fs::read_to_string(root.directory.join("lib/systemd/system/rgpu-slurm.service"))?;
    ensure!(unit.contains("ExecStart=/usr/bin/rgpu slurm sync "), "{unit}");
    root.run(&["rgpu", "slurm", "sync", "--help"])?.success()?;
    for part in ["controller", "node", "device-plugin"] {
        root.run(&["rgpu-kubernetes", part, "--help"])?.success()?;
    }
    for (package, file) in [
        ("rgpu-slurm", "usr/share/doc/rgpu-slurm/examples/plugstack.conf"),
        ("rgpu-kubernetes", "usr/share/rgpu-kubernetes/kustomization.yaml"),
    ] {
        let listed = root.run(&["dpkg", "--listfiles", package])?.success()?;
        ensure!(listed.stdout.contains(file), "{file} is missing: {}", listed.stdout);
    }
    let audit = root.run(&["dpkg", "--audit"])?.success()?;
    ensure!(audit.stdout.trim().is_empty(), "{}", audit.stdout);
    // A service cannot be there without the command.
    let alone = root.run(&["dpkg", "--remove", "rgpu"])?;
    ensure!(!alone.status.success(), "rgpu-broker depends on it: {}", alone.output());

    let all = ["rgpu-server", "rgpu-broker", "rgpu-slurm", "rgpu-kubernetes", "rgpu"];
    root.run(&[&["dpkg", "--purge"], &all[..]].concat())?.success()?;
    let after: BTreeSet<PathBuf> = root.files()?.into_iter().filter(own).collect();
    let left: Vec<&PathBuf> = after.difference(&before).collect();
    ensure!(
        left.is_empty() && before.is_subset(&after),
        "left: {left:?}, gone: {:?}",
        before.difference(&after)
    );
    Ok(())
}

/// Programs' constructors are run by another part of the C library there.
fn older_c_library() -> Result<()> {
    let scratch = Scratch::new("older-c-library")?;
    let mut contents = contents(&scratch)?;
    contents.more.clear();
    // glibc 2.31
    let root = Root::create(&scratch, "bullseye")?;
    let made = debian::make(&contents, &scratch.0, &scratch.0.join("out"), Effort::Little)?;
    let names = root.take(&made)?;
    let package = names.iter().find(|name| name.starts_with("/rgpu_")).context("the command's package")?;
    root.run(&["dpkg", "--install", package])?.success()?;
    let serve = "rgpu serve --listen 127.0.0.1:7070 --device software >/tmp/log 2>&1 &
        for attempt in $(seq 100); do
            rgpu devices --server 127.0.0.1:7070 2>/dev/null && exit 0
            sleep 0.1
        done
        cat /tmp/log; exit 1";
    let devices = root.run(&["sh", "-c", serve])?.success()?;
    ensure!(devices.stdout.contains("rgpu"), "{}", devices.output());
    // The library is loaded, with all that it needs.
    let preload = "LD_PRELOAD=/usr/lib/rgpu/librgpu.so";
    let loaded = root.run(&["env", preload, "LD_BIND_NOW=1", "/bin/echo", "loaded"])?.success()?;
    ensure!(loaded.stdout == "loaded\n" && loaded.stderr.is_empty(), "{}", loaded.output());
    Ok(())
}

fn same_bytes() -> Result<()> {
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        return Err(Skip("it needs dpkg-deb (on Debian it is always there)".into()).into());
    }
    let scratch = Scratch::new("same-bytes")?;
    let make = |folder: &str| -> Result<Vec<Vec<u8>>> {
        let place = scratch.0.join(folder);
        fs::create_dir_all(place.join("manual"))?;
        // Small files in place of the product: what dpkg-deb is given is what is looked at.
        for name in ["rgpu", "librgpu.so", "completions.bash", "manual/rgpu.1"].iter().chain(&MORE) {
            fs::write(place.join(name), name)?;
        }
        let contents = Contents {
            command: place.join("rgpu"),
            library: place.join("librgpu.so"),
            more: MORE.map(|name| (name, (place.join(name), 28))).into(),
            manual: place.join("manual"),
            completions: vec![("bash", place.join("completions.bash"))],
            architecture: Architecture::X86_64,
            glibc_minor: 35,
            epoch: 1_700_000_000,
        };
        let made = debian::make(&contents, &place.join("scratch"), &place.join("out"), Effort::Full)?;
        made.iter().map(|file| Ok(fs::read(file)?)).collect()
    };
    let first = make("a")?;
    // Times are whole seconds in a package.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let second = make("another folder")?;
    ensure!(first.len() == 5 && first == second, "the same contents made other packages");
    Ok(())
}

fn wheels() -> Result<()> {
    let program = plain("vector_add")?;
    let scratch = Scratch::new("wheel")?;
    let contents = contents(&scratch)?;
    let file = wheel::make(&contents, &scratch.0.join("out"))?;
    // Its bytes depend on nothing but what it is made of.
    let again = wheel::make(&contents, &scratch.0.join("again"))?;
    ensure!(fs::read(&file)? == fs::read(&again)?, "the same binaries made another wheel");
    let environment = scratch.0.join("environment");
    let mut create = Command::new("python3");
    let created = process::run(create.args(["-m", "venv"]).arg(&environment))?;
    if !created.status.success() {
        return Err(Skip(format!(
            "it needs Python's venv (on Debian: apt-get install python3-venv): {}",
            created.stderr.trim()
        ))
        .into());
    }
    let pip = |words: &[&str]| -> Result<Finished> {
        let mut command = Command::new(environment.join("bin/pip"));
        command.args(["--disable-pip-version-check", "--quiet"]).args(words);
        process::run(&mut command)?.success()
    };
    let name = file.to_str().context("a path in UTF-8")?;
    pip(&["install", "--no-index", name])?;
    let mut run = rgpu_tests::product::clean(&environment.join("bin/rgpu"));
    run.args(["run", "--in-process", "--"]).arg(program);
    let used = process::run(&mut run)?.success()?;
    ensure!(used.stdout.contains("vector_add: ok"), "{}", used.output());
    pip(&["uninstall", "--yes", "rgpu"])?;
    ensure!(
        !environment.join("bin/rgpu").exists() && !environment.join("lib/rgpu").exists(),
        "something is left"
    );
    Ok(())
}
