//! Programs of Debian packages, for tests that need them: those that are installed, or else the packages unpacked in the user's cache.
//!
//! Nothing is installed and root is not needed: apt downloads the packages with what they depend on and the machine lacks, by lists of
//! its own. Packages' scripts are not run. So this is for programs that can be told where their files are.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::cached;
use crate::process;

/// Where programs and libraries are, in a root directory.
const PROGRAMS: [&str; 4] = ["usr/bin", "usr/sbin", "bin", "sbin"];
const LIBRARIES: [&str; 5] = [
    "usr/lib/x86_64-linux-gnu",
    "lib/x86_64-linux-gnu",
    "usr/lib",
    "lib",
    // PulseAudio's libraries look for one of theirs at this absolute path; Chromium is linked with them.
    "usr/lib/x86_64-linux-gnu/pulseaudio",
];

/// Packages that can be used.
#[derive(Debug, Clone)]
pub struct Packages {
    root: Option<PathBuf>,
}

impl Packages {
    /// The packages, where `program` of theirs is installed, or where apt can fetch them. The error says what to install, and is a
    /// reason to skip a test.
    pub fn find(packages: &[&str], program: &str) -> Result<Self> {
        if installed(program).is_some() {
            return Ok(Self { root: None });
        }
        Self::fetch(packages).with_context(|| {
            format!("{program} is not installed (on Debian: apt-get install {})", packages.join(" "))
        })
    }

    /// The packages in the cache, whatever is installed.
    ///
    /// # Errors
    /// There is no apt, or it can't reach its servers.
    pub fn fetch(packages: &[&str]) -> Result<Self> {
        let mut hasher = DefaultHasher::new();
        packages.hash(&mut hasher);
        let name = packages.first().context("No packages are named")?;
        let root = cached::cache()?.join(format!("debian-{name}-{:016x}", hasher.finish()));
        let what = format!("the Debian packages {}", packages.join(", "));
        cached::once(&root, &what, |temporary| unpack(packages, temporary))?;
        Ok(Self { root: Some(root) })
    }

    /// The directory under which their files are: `/` where they are installed.
    pub fn root(&self) -> &Path {
        self.root.as_deref().unwrap_or(Path::new("/"))
    }

    /// A file of theirs, such as `usr/lib/x86_64-linux-gnu/slurm`.
    pub fn file(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    /// Where a program is.
    ///
    /// # Errors
    /// Neither the packages nor the machine have it.
    pub fn program(&self, name: &str) -> Result<PathBuf> {
        let own = self.root.iter().flat_map(|root| PROGRAMS.map(|dir| root.join(dir).join(name)));
        own.chain(installed(name)).find(|path| path.exists()).with_context(|| format!("There is no {name}"))
    }

    /// A command that runs one of their programs with their libraries.
    ///
    /// # Errors
    /// As [`Packages::program`].
    pub fn command(&self, name: &str) -> Result<Command> {
        let mut command = Command::new(self.program(name)?);
        command.envs(self.environment()?);
        Ok(command)
    }

    /// With which environment their programs find each other, and their libraries.
    ///
    /// # Errors
    /// A path has a colon.
    pub fn environment(&self) -> Result<Vec<(&'static str, OsString)>> {
        let Some(root) = &self.root else { return Ok(Vec::new()) };
        let with = |variable: &'static str, dirs: &[&str]| {
            let given = env::var_os(variable).unwrap_or_default();
            let all = dirs.iter().map(|dir| root.join(dir)).chain(env::split_paths(&given));
            anyhow::Ok((variable, env::join_paths(all.filter(|dir| !dir.as_os_str().is_empty()))?))
        };
        Ok(vec![with("PATH", &PROGRAMS)?, with("LD_LIBRARY_PATH", &LIBRARIES)?])
    }
}

/// An archive of a root directory with the essential packages of a release of Debian and the library that nvcc's programs are linked
/// with, made once.
///
/// # Errors
/// mmdebstrap is neither installed nor to be had, or cannot reach Debian's servers.
pub fn essential_root(release: &str) -> Result<PathBuf> {
    let folder = cached::cache()?.join(format!("debian-essential-{release}"));
    let fetch = |temporary: &Path| -> Result<PathBuf> {
        let tool = Packages::find(&["mmdebstrap"], "mmdebstrap")?;
        let mut command = tool.command("mmdebstrap")?;
        command
            .args(["--quiet", "--variant=essential", "--include=libstdc++6", release])
            .arg(temporary.join("root.tar"));
        process::run(&mut command)?.success()?;
        Ok(temporary.to_owned())
    };
    cached::once(&folder, "Debian's essential packages", fetch)?;
    Ok(folder.join("root.tar"))
}

/// Where the machine has a program; users' search paths often leave out those for administrators.
fn installed(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs = env::split_paths(&path).chain(PROGRAMS.map(|dir| Path::new("/").join(dir)));
    dirs.map(|dir| dir.join(program)).find(|path| path.is_file())
}

fn unpack(packages: &[&str], temporary: &Path) -> Result<PathBuf> {
    let (state, downloads) = (temporary.join("state"), temporary.join("cache"));
    fs::create_dir_all(state.join("lists/partial"))?;
    fs::create_dir_all(downloads.join("archives/partial"))?;
    let apt = |arguments: &[&str]| {
        let output = Command::new("apt-get")
            .args([
                "-qq",
                "-o",
                "Debug::NoLocking=true",
                "-o",
                "Acquire::Retries=3",
                "-o",
                "APT::Sandbox::User=",
            ])
            .args(["-o", "Dir::State::status=/var/lib/dpkg/status", "-o"])
            .arg(format!("Dir::State={}", state.display()))
            .arg("-o")
            .arg(format!("Dir::Cache={}", downloads.display()))
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .context("Starting apt-get")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "apt-get {}: {}", arguments.join(" "), said.trim());
        Ok(())
    };
    apt(&["update"])?;
    let install = ["install", "--yes", "--no-install-recommends", "--download-only"];
    apt(&[&install, packages].concat())?;
    let root = temporary.join("root");
    fs::create_dir_all(&root)?;
    let mut count = 0;
    for entry in fs::read_dir(downloads.join("archives"))? {
        let archive = entry?.path();
        if archive.extension().is_some_and(|extension| extension == "deb") {
            let status = Command::new("dpkg-deb").arg("-x").args([&archive, &root]).status();
            ensure!(status.context("Starting dpkg-deb")?.success(), "Cannot unpack {}", archive.display());
            count += 1;
        }
    }
    ensure!(count > 0, "apt-get downloaded nothing for {}: they are installed", packages.join(", "));
    Ok(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_installed_is_used_as_it_is() {
        let packages = Packages::find(&["dash"], "sh").unwrap();
        assert_eq!((packages.root(), packages.environment().unwrap().len()), (Path::new("/"), 0));
        assert!(packages.program("sh").unwrap().is_file());
        assert!(packages.program("no-such-program").unwrap_err().to_string().contains("no-such-program"));
        let output = packages.command("sh").unwrap().args(["-c", "echo $((6 * 7))"]).output().unwrap();
        assert_eq!(output.stdout, b"42\n");
    }
}
