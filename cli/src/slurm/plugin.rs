//! `rgpu slurm plugin`: makes the plugin fit a release of Slurm.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSymbol};

use rgpu_control::files;

use crate::library::find_beside;
use crate::{Failure, Outcome};

/// The plugin's file name, beside this command or in `../lib`.
const FILE_NAME: &str = "librgpu_slurm.so";
/// What in it says for which release it is.
const VERSION_SYMBOL: &[u8] = b"plugin_version";

/// Write the plugin for this machine's release of Slurm, or another one.
///
/// Slurm loads a plugin only if that says it is for the same release; nothing else differs from one release to the next.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  \
    rgpu slurm plugin --output /usr/lib/x86_64-linux-gnu/slurm-wlm/rgpu.so")]
pub(super) struct Arguments {
    /// Where to write it
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    /// The release, such as 22.05 [default: what slurmd or sinfo says]
    #[arg(long, value_name = "RELEASE")]
    slurm_version: Option<String>,
    /// The plugin as it was built [default: librgpu_slurm.so beside this command, or in ../lib]
    #[arg(long, value_name = "FILE")]
    plugin: Option<PathBuf>,
}

/// Writes it.
pub(super) fn main(arguments: &Arguments) -> Outcome {
    let release = match &arguments.slurm_version {
        Some(release) => release.clone(),
        None => installed()?,
    };
    let number = number_of(&release).ok_or_else(|| {
        Failure::with_status(format!("{release:?} is no release of Slurm, such as 22.05"), 2)
    })?;
    let built = match &arguments.plugin {
        Some(path) => path.clone(),
        None => find()?,
    };
    let cannot = |what: &str, path: &Path, e: &dyn std::fmt::Display| {
        Failure::new(format!("Cannot {what} {}: {e}", path.display()))
    };
    let mut bytes = fs::read(&built).map_err(|e| cannot("read", &built, &e))?;
    let at = version_at(&bytes).ok_or_else(|| cannot("use", &built, &"it is not rgpu's Slurm plugin"))?;
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
    // In one step: Slurm may have the old one open.
    files::replace(&arguments.output, 0o644, &bytes).map_err(|e| cannot("write", &arguments.output, &e))?;
    println!("{} is for Slurm {release}", arguments.output.display());
    Ok(ExitCode::SUCCESS)
}

/// The release that is installed here.
fn installed() -> Result<String, Failure> {
    // The daemon tells it without reading Slurm's configuration, which may not be there yet; a machine for users alone has none.
    let said = [("slurmd", "-V"), ("sinfo", "--version")].into_iter().find_map(|(program, option)| {
        let output =
            Command::new(program).arg(option).output().ok().filter(|output| output.status.success())?;
        String::from_utf8_lossy(&output.stdout).split_whitespace().last().map(str::to_owned)
    });
    said.ok_or_else(|| {
        Failure::new(
            "Neither slurmd nor sinfo says which release of Slurm is here: give it by --slurm-version",
        )
    })
}

/// A release as Slurm counts it: a byte each for major, minor and micro.
fn number_of(release: &str) -> Option<u32> {
    let mut parts = release.split('.');
    let mut byte = |needed: bool| match parts.next() {
        // Such as `8-4+deb12u3`.
        Some(part) => {
            let digits = part.find(|c: char| !c.is_ascii_digit()).map_or(part, |end| &part[..end]);
            digits.parse::<u8>().ok()
        }
        None => (!needed).then_some(0),
    };
    let (major, minor, micro) = (byte(true)?, byte(true)?, byte(false)?);
    Some(u32::from(major) << 16 | u32::from(minor) << 8 | u32::from(micro))
}

/// Where in the file the release stands.
fn version_at(bytes: &[u8]) -> Option<usize> {
    let file = ElfFile64::<object::Endianness>::parse(bytes).ok()?;
    let symbol = file.dynamic_symbols().find(|symbol| symbol.name_bytes() == Ok(VERSION_SYMBOL))?;
    let section = file.section_by_index(symbol.section_index()?).ok()?;
    let (start, size) = section.file_range()?;
    let offset = symbol.address().checked_sub(section.address())?;
    (symbol.size() == 4 && offset + 4 <= size).then(|| (start + offset) as usize)
}

fn find() -> Result<PathBuf, Failure> {
    find_beside(FILE_NAME).ok_or_else(|| {
        Failure::new(format!(
            "{FILE_NAME} is neither beside this command nor in ../lib from there: cargo build --release -p rgpu-slurm builds it; \
             or say where it is with --plugin"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_counted_as_slurm_does() {
        assert_eq!(number_of("22.05.8"), Some(0x16_05_08));
        assert_eq!(number_of("22.05"), Some(0x16_05_00));
        assert_eq!(number_of("24.11.5-4+deb13u1"), Some(0x18_0B_05));
        for bad in ["", "22", "x.y", "22.", "300.1"] {
            assert_eq!(number_of(bad), None, "{bad}");
        }
        assert_eq!(version_at(b"no file of that kind"), None);
    }
}
