//! The packages by which rgpu is installed: Debian packages ([`debian`]) and a Python wheel ([`wheel`]), made of a built product.
//!
//! The same binaries and the same time make the same bytes, wherever they lie.

pub mod debian;
pub mod wheel;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use object::read::elf::{ElfFile64, FileHeader, SectionHeader as _};
use object::{Endianness, FileKind, Object};

use crate::examples::repository;
use crate::product::clean;

/// The packages' version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What packages are made of.
#[derive(Debug)]
pub struct Contents {
    /// The command, without its symbols.
    pub command: PathBuf,
    /// The library, without its symbols.
    pub library: PathBuf,
    /// The folder of manual pages; empty where the command runs on another kind of machine than this.
    pub manual: PathBuf,
    /// The files for completion in bash, zsh and fish.
    pub completions: Vec<(&'static str, PathBuf)>,
    /// The kind of processor that the binaries are for.
    pub architecture: Architecture,
    /// The least version of glibc that the binaries run with: 2 and this.
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
}

impl Contents {
    /// Takes `rgpu` and `librgpu.so` of a folder, and makes in another one what belongs to them.
    ///
    /// # Errors
    /// A tool is missing (`strip` of binutils), or the binaries are for different machines.
    pub fn collect(binaries: &Path, folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let (command, library) = (folder.join("rgpu"), folder.join("librgpu.so"));
        let (architecture, first) = about(&binaries.join("rgpu"))?;
        let (other, second) = about(&binaries.join("librgpu.so"))?;
        ensure!(architecture == other, "rgpu is for {architecture:?}, and librgpu.so for {other:?}");
        for (target, mode) in [(&command, 0o755), (&library, 0o644)] {
            let source = binaries.join(target.file_name().context("a name")?);
            strip(&source, target, architecture)?;
            fs::set_permissions(target, fs::Permissions::from_mode(mode))?;
        }
        let manual = folder.join("manual");
        let mut completions = Vec::new();
        fs::create_dir_all(&manual)?;
        if architecture.name() == std::env::consts::ARCH {
            run(clean(&command).arg("manual").arg(&manual))?;
            for shell in ["bash", "zsh", "fish"] {
                let file = folder.join(format!("completions.{shell}"));
                fs::write(&file, run(clean(&command).args(["completions", shell]))?)?;
                completions.push((shell, file));
            }
        }
        Ok(Self {
            command,
            library,
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

fn strip(source: &Path, target: &Path, architecture: Architecture) -> Result<()> {
    let own = architecture.name() == std::env::consts::ARCH;
    let tool = if own { "strip".to_owned() } else { format!("{}-linux-gnu-strip", architecture.name()) };
    run(Command::new(tool).arg("--strip-unneeded").arg("-o").arg(target).arg(source)).map(drop)
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
