//! Running programs of another kind of processor, by QEMU's emulation of user mode.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::packages::Architecture;
use crate::product::clean;

/// A command that runs a program for a processor: itself on such a machine, else emulated, with the libraries of Debian's cross
/// compilers.
///
/// # Errors
/// There is no emulator; it says what to install.
pub fn command(program: &Path, architecture: Architecture) -> Result<Command> {
    if architecture.is_own() {
        return Ok(clean(program));
    }
    let libraries = Path::new("/usr").join(architecture.triplet());
    let name = format!("qemu-{}", architecture.name());
    let there = |name: &str| {
        let mut tried = Command::new(name);
        tried.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    let Some(emulator) = [format!("{name}-static"), name.clone()].into_iter().find(|name| there(name)) else {
        bail!("{name} is not installed (on Debian: apt-get install qemu-user-static)");
    };
    if !libraries.join("lib/libc.so.6").exists() {
        bail!(
            "{} has no C library (on Debian: apt-get install g++-{})",
            libraries.display(),
            architecture.triplet()
        );
    }
    let mut command = clean(Path::new(&emulator));
    command.arg("-L").arg(libraries).arg(program);
    Ok(command)
}
