//! The packages by which rgpu is installed: Debian packages ([`debian`]) and a Python wheel ([`wheel`]), made of a built product.
//!
//! The same binaries and the same time make the same bytes, wherever they lie.

pub mod debian;
pub mod wheel;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use object::read::elf::{ElfFile64, FileHeader, SectionHeader as _};
use object::{Endianness, FileKind, Object};

use crate::emulator;
use crate::examples::repository;

/// The packages' version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What is packaged besides the command and the library, where it was built: the Slurm plugin and the Kubernetes driver.
pub const MORE: [&str; 2] = ["librgpu_slurm.so", "rgpu-kubernetes"];

/// What packages are made of.
#[derive(Debug)]
pub struct Contents {
    /// The command, without its symbols.
    pub command: PathBuf,
    /// The library, without its symbols.
    pub library: PathBuf,
    /// What else was built, of [`MORE`]: by name, its file without symbols, and the least minor version of glibc 2 for it.
    pub more: BTreeMap<&'static str, (PathBuf, u32)>,
    /// The folder of manual pages; empty where the command runs neither on this machine nor emulated.
    pub manual: PathBuf,
    /// The files for completion in bash, zsh and fish.
    pub completions: Vec<(&'static str, PathBuf)>,
    /// The kind of processor that the binaries are for.
    pub architecture: Architecture,
    /// The least version of glibc that command and library run with: 2 and this.
    pub glibc_minor: u32,
    /// The time that all files get, in seconds since 1970.
    pub epoch: u64,
}

/// A kind of processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// 64-bit x86.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

impl Architecture {
    /// What Debian calls it.
    pub fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// What the kernel, Python and Rust call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// What GNU's tools for it begin with, and Debian's folders.
    pub fn triplet(self) -> String {
        format!("{}-linux-gnu", self.name())
    }

    /// Whether it is this machine's.
    pub fn is_own(self) -> bool {
        self.name() == std::env::consts::ARCH
    }
}

impl Contents {
    /// Takes `rgpu` and `librgpu.so`, and of [`MORE`] what is there, from the first of some folders that has it, and makes in another
    /// one what belongs to them.
    ///
    /// # Errors
    /// A tool is missing (`strip` of binutils), or the binaries are for different machines.
    pub fn collect(binaries: &[&Path], folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let (command, library) = (folder.join("rgpu"), folder.join("librgpu.so"));
        let find = |name: &str| binaries.iter().map(|folder| folder.join(name)).find(|path| path.exists());
        let mut architecture = None;
        let mut take = |name: &str, target: &Path| -> Result<Option<u32>> {
            let Some(source) = find(name) else { return Ok(None) };
            let (own, minor) = about(&source)?;
            let first = *architecture.get_or_insert(own);
            ensure!(first == own, "{} is for {own:?}, and not for {first:?}", source.display());
            strip(&source, target, own)?;
            Ok(Some(minor))
        };
        let needed = "is in none of the folders given";
        let first = take("rgpu", &command)?.with_context(|| format!("rgpu {needed}"))?;
        let second = take("librgpu.so", &library)?.with_context(|| format!("librgpu.so {needed}"))?;
        let mut more = BTreeMap::new();
        for name in MORE {
            let target = folder.join(name);
            if let Some(minor) = take(name, &target)? {
                more.insert(name, (target, minor));
            }
        }
        let architecture = architecture.context("a command")?;
        let manual = folder.join("manual");
        let mut completions = Vec::new();
        fs::create_dir_all(&manual)?;
        if let Ok(mut said) = emulator::command(&command, architecture) {
            run(said.arg("manual").arg(&manual))?;
            for shell in ["bash", "zsh", "fish"] {
                let file = folder.join(format!("completions.{shell}"));
                let mut command = emulator::command(&command, architecture)?;
                fs::write(&file, run(command.args(["completions", shell]))?)?;
                completions.push((shell, file));
            }
        }
        Ok(Self {
            command,
            library,
            more,
            manual,
            completions,
            architecture,
            glibc_minor: first.max(second),
            epoch: epoch()?,
        })
    }
}

/// The time of what is packaged: SOURCE_DATE_EPOCH, else that of the last commit.
fn epoch() -> Result<u64> {
    if let Ok(text) = std::env::var("SOURCE_DATE_EPOCH") {
        return text.trim().parse().context("SOURCE_DATE_EPOCH is no number of seconds");
    }
    let mut git = Command::new("git");
    let text = run(git.args(["log", "-1", "--format=%ct"]).current_dir(repository()))
        .context("Set SOURCE_DATE_EPOCH: this is no clone of a repository")?;
    String::from_utf8_lossy(&text).trim().parse().context("git said no time")
}

/// Runs a tool and returns what it wrote.
fn run(command: &mut Command) -> Result<Vec<u8>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("{name} cannot be started: is it installed?"))?;
    if !output.status.success() {
        bail!("{name} failed with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

/// Copies a binary without its symbols. Programs, and no libraries, can be executed then.
fn strip(source: &Path, target: &Path, architecture: Architecture) -> Result<()> {
    let tool =
        if architecture.is_own() { "strip".to_owned() } else { format!("{}-strip", architecture.triplet()) };
    run(Command::new(tool).arg("--strip-unneeded").arg("-o").arg(target).arg(source))?;
    let mode = if target.extension().is_some_and(|extension| extension == "so") { 0o644 } else { 0o755 };
    Ok(fs::set_permissions(target, fs::Permissions::from_mode(mode))?)
}

/// The machine that a binary is for, and the least minor version of glibc 2 that has all that it needs.
fn about(binary: &Path) -> Result<(Architecture, u32)> {
    let bytes = fs::read(binary).with_context(|| format!("Reading {}", binary.display()))?;
    ensure!(FileKind::parse(&*bytes)? == FileKind::Elf64, "{} is no program", binary.display());
    let file = ElfFile64::<Endianness>::parse(&*bytes)?;
    let architecture = match file.architecture() {
        object::Architecture::X86_64 => Architecture::X86_64,
        object::Architecture::Aarch64 => Architecture::Aarch64,
        other => bail!("{} is for {other:?}", binary.display()),
    };
    let endian = file.endian();
    let sections = file.elf_header().sections(endian, &*bytes)?;
    let mut minor = 0;
    for section in sections.iter() {
        let Some((mut needed, strings)) = section.gnu_verneed(endian, &*bytes)? else { continue };
        let strings = sections.strings(endian, &*bytes, strings)?;
        while let Some((_, mut versions)) = needed.next()? {
            while let Some(version) = versions.next()? {
                let name = String::from_utf8_lossy(version.name(endian, strings)?);
                let found =
                    name.strip_prefix("GLIBC_2.").and_then(|rest| rest.split('.').next()?.parse().ok());
                minor = minor.max(found.unwrap_or(0));
            }
        }
    }
    Ok((architecture, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_says_what_it_needs() {
        let (architecture, minor) = about(&std::env::current_exe().unwrap()).unwrap();
        assert_eq!(architecture.name(), std::env::consts::ARCH);
        assert!((2..100).contains(&minor), "{minor}");
        assert!(about(Path::new("/etc/passwd")).is_err());
    }
}
