//! Debian packages, made with Debian's own `dpkg-deb`.
//!
//! `rgpu` has the command, the library, manual pages and completions. `rgpu-server` and `rgpu-broker` have systemd units,
//! configurations, and what tidies up behind them; `rgpu-slurm` has the plugin, a unit and examples; `rgpu-kubernetes` the driver and
//! its manifests.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};

use super::{Contents, VERSION, run};
use crate::examples::repository;

/// A package.
struct Package {
    name: &'static str,
    /// Its short description.
    title: &'static str,
    /// Its long description, a paragraph.
    description: &'static str,
    /// The systemd unit, for services.
    unit: Option<&'static str>,
    /// A file of the build that it is for: its name, its place and its rights.
    binary: Option<(&'static str, &'static str, u32)>,
    /// Folders of `packaging/`, and where their files go as they are.
    files: &'static [(&'static str, &'static str)],
    /// Files of `packaging/` that administrators change, and where they go.
    configurations: &'static [(&'static str, &'static str)],
    /// What is removed when the package is purged.
    state: &'static str,
}

const PACKAGES: [Package; 5] = [
    Package {
        name: "rgpu",
        title: "CUDA programs on GPUs that are not in this machine",
        description: "A preloaded library takes the CUDA calls of unmodified programs and forwards them to a server with a GPU, or executes \
            them on a software GPU. This package has the command and the library, which run programs, serve GPUs and lease them.",
        unit: None,
        binary: None,
        files: &[],
        configurations: &[],
        state: "",
    },
    Package {
        name: "rgpu-server",
        title: "CUDA programs on GPUs elsewhere: service that offers GPUs",
        description: "Offers the GPUs of this machine, or software GPUs, to programs on other machines, through a broker. The service does \
            not start before `rgpu join` has made the machine a node of a broker's cluster.",
        unit: Some("rgpu-serve.service"),
        binary: None,
        files: &[],
        configurations: &[("debian/serve.env", "etc/rgpu/serve.env")],
        state: "/var/cache/private/rgpu /var/cache/rgpu",
    },
    Package {
        name: "rgpu-broker",
        title: "CUDA programs on GPUs elsewhere: service that leases GPUs",
        description: "Leases the GPUs of many machines, or parts of them, to programs. The service listens on this machine alone until \
            /etc/rgpu/broker.toml says more.",
        unit: Some("rgpu-broker.service"),
        binary: None,
        files: &[],
        configurations: &[("broker.toml", "etc/rgpu/broker.toml")],
        state: "/var/lib/private/rgpu-broker /var/lib/rgpu-broker",
    },
    Package {
        name: "rgpu-slurm",
        title: "CUDA programs on GPUs elsewhere: for Slurm's jobs",
        description: "Slurm's jobs get GPUs, or parts of them, that a broker leases. `rgpu slurm plugin` writes the plugin for the machine's \
            release of Slurm; the service, for the controller, keeps Slurm's licences true to what there is. Its examples are \
            lines for Slurm's own configuration.",
        unit: Some("rgpu-slurm.service"),
        binary: Some(("librgpu_slurm.so", "usr/lib/rgpu/librgpu_slurm.so", 0o644)),
        files: &[("slurm", "usr/share/doc/rgpu-slurm/examples")],
        configurations: &[],
        state: "",
    },
    Package {
        name: "rgpu-kubernetes",
        title: "CUDA programs on GPUs elsewhere: driver for Kubernetes",
        description: "Pods get GPUs, or parts of them, that a broker leases, by dynamic resource allocation or as a device plugin. The \
            manifests are in /usr/share/rgpu-kubernetes.",
        unit: None,
        binary: Some(("rgpu-kubernetes", "usr/bin/rgpu-kubernetes", 0o755)),
        files: &[("kubernetes", "usr/share/rgpu-kubernetes")],
        configurations: &[],
        state: "",
    },
];

/// How much is done for small files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// As much as Debian's own packages get.
    Full,
    /// Little, for packages that go with a test.
    Little,
}

/// Makes all packages in a folder, but for those whose binaries were not built; `scratch` is for what they are made of. Returns
/// their files.
///
/// # Errors
/// `dpkg-deb` or `gzip` is missing or fails.
pub fn make(contents: &Contents, scratch: &Path, folder: &Path, effort: Effort) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(folder)?;
    let built = |package: &&Package| package.binary.is_none_or(|(name, ..)| contents.more.contains_key(name));
    PACKAGES.iter().filter(built).map(|package| package.make(contents, scratch, folder, effort)).collect()
}

impl Package {
    fn make(&self, contents: &Contents, scratch: &Path, folder: &Path, effort: Effort) -> Result<PathBuf> {
        let root = scratch.join("debian").join(self.name);
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        self.fill(contents, &root)?;
        let size = size_of(&root)?.div_ceil(1024);
        self.control(contents, &root, size)?;
        settle(&root, SystemTime::UNIX_EPOCH + Duration::from_secs(contents.epoch))?;
        let file = folder.join(format!("{}_{VERSION}_{}.deb", self.name, self.architecture(contents)));
        let mut build = Command::new("dpkg-deb");
        // One thread: with several the compressed bytes depend on how many processors there are.
        build.args(["--root-owner-group", "--threads-max=1"]);
        if effort == Effort::Little {
            build.arg("-z1");
        }
        build.arg("--build").arg(&root).arg(&file);
        run(build.env("SOURCE_DATE_EPOCH", contents.epoch.to_string()))?;
        Ok(file)
    }

    fn architecture(&self, contents: &Contents) -> &'static str {
        let services_alone = self.unit.is_some() && self.binary.is_none();
        if services_alone { "all" } else { contents.architecture.debian() }
    }

    fn fill(&self, contents: &Contents, root: &Path) -> Result<()> {
        let packaging = repository().join("packaging");
        if let Some(unit) = self.unit {
            put(&packaging.join(unit), &root.join("lib/systemd/system").join(unit), 0o644)?;
        }
        match self.binary {
            Some((name, target, mode)) => put(&contents.more[name].0, &root.join(target), mode)?,
            None if self.unit.is_none() => fill_client(contents, root)?,
            None => {}
        }
        for (folder, target) in self.files {
            for file in fs::read_dir(packaging.join(folder))? {
                let file = file?;
                put(&file.path(), &root.join(target).join(file.file_name()), 0o644)?;
            }
        }
        for (source, target) in self.configurations {
            put(&packaging.join(source), &root.join(target), 0o644)?;
        }
        let documents = root.join("usr/share/doc").join(self.name);
        put(&packaging.join("debian/copyright"), &documents.join("copyright"), 0o644)?;
        let date = run(Command::new("date").args(["-R", "-u", "-d", &format!("@{}", contents.epoch)]))?;
        let changes = format!(
            "{} ({VERSION}) unstable; urgency=medium\n\n  * What changed: CHANGELOG.md of the sources.\n\n -- {}  {}\n",
            self.name,
            maintainer(),
            String::from_utf8_lossy(&date).trim()
        );
        let file = documents.join("changelog");
        fs::write(&file, changes)?;
        compress(&file)
    }

    fn control(&self, contents: &Contents, root: &Path, kibibytes: u64) -> Result<()> {
        let folder = root.join("DEBIAN");
        fs::create_dir_all(&folder)?;
        let libraries = |minor: u32| format!("libc6 (>= 2.{minor}), libgcc-s1 (>= 4.2)");
        let depends = match (self.binary, self.unit) {
            (Some((name, ..)), _) => format!("rgpu (= {VERSION}), {}", libraries(contents.more[name].1)),
            (None, Some(_)) => format!("rgpu (= {VERSION})"),
            (None, None) => libraries(contents.glibc_minor),
        };
        let control = format!(
            "Package: {}\nVersion: {VERSION}\nArchitecture: {}\nMaintainer: {}\nInstalled-Size: {kibibytes}\n\
             Depends: {depends}\nSection: utils\nPriority: optional\nDescription: {}\n{}",
            self.name,
            self.architecture(contents),
            maintainer(),
            self.title,
            wrapped(self.description)
        );
        fs::write(folder.join("control"), control)?;
        if !self.configurations.is_empty() {
            let list: String = self.configurations.iter().map(|(_, target)| format!("/{target}\n")).collect();
            fs::write(folder.join("conffiles"), list)?;
        }
        let Some(unit) = self.unit else { return Ok(()) };
        for script in ["postinst", "prerm", "postrm"] {
            let text = fs::read_to_string(repository().join("packaging/debian").join(script))?;
            let path = folder.join(script);
            fs::write(&path, text.replace("@UNIT@", unit).replace("@STATE@", self.state))?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        }
        Ok(())
    }
}

/// Who answers for the packages, as Debian's tools are told: who publishes them sets both variables.
fn maintainer() -> String {
    let said = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    format!("{} <{}>", said("DEBFULLNAME", "The rgpu contributors"), said("DEBEMAIL", "rgpu@example.org"))
}

fn fill_client(contents: &Contents, root: &Path) -> Result<()> {
    put(&contents.command, &root.join("usr/bin/rgpu"), 0o755)?;
    put(&contents.library, &root.join("usr/lib/rgpu/librgpu.so"), 0o644)?;
    for (shell, file) in &contents.completions {
        let place = match *shell {
            "bash" => "usr/share/bash-completion/completions/rgpu",
            "zsh" => "usr/share/zsh/vendor-completions/_rgpu",
            _ => "usr/share/fish/vendor_completions.d/rgpu.fish",
        };
        put(file, &root.join(place), 0o644)?;
    }
    for page in fs::read_dir(&contents.manual)? {
        let page = page?.path();
        let target = root.join("usr/share/man/man1").join(page.file_name().context("a name")?);
        put(&page, &target, 0o644)?;
        compress(&target)?;
    }
    Ok(())
}

fn put(source: &Path, target: &Path, mode: u32) -> Result<()> {
    fs::create_dir_all(target.parent().context("a path has folders")?)?;
    fs::copy(source, target).with_context(|| format!("Copying {}", source.display()))?;
    Ok(fs::set_permissions(target, fs::Permissions::from_mode(mode))?)
}

fn compress(file: &Path) -> Result<()> {
    run(Command::new("gzip").args(["-9", "-n", "-f"]).arg(file).stdin(Stdio::null())).map(drop)
}

/// The lines of a description's paragraph: each begins with a space.
fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if line.len() + word.len() > 74 {
            lines += &format!("{line}\n");
            line.clear();
        }
        line = format!("{line} {word}");
    }
    lines + &line + "\n"
}

fn size_of(folder: &Path) -> Result<u64> {
    fs::read_dir(folder)?.try_fold(0, |sum, entry| {
        let entry = entry?;
        let kind = entry.file_type()?;
        Ok(sum + if kind.is_dir() { size_of(&entry.path())? } else { entry.metadata()?.len() })
    })
}

/// Gives files and folders the same time and rights, whatever the user's mask is.
fn settle(path: &Path, time: SystemTime) -> Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            settle(&entry?.path(), time)?;
        }
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    } else if fs::metadata(path)?.permissions().mode() & 0o100 == 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o644))?;
    }
    Ok(File::open(path)?.set_modified(time)?)
}
