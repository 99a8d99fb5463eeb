//! A Python wheel: `pip install` puts the command beside the interpreter, and the library where the command looks for it.
//!
//! It has no Python code of its own. A wheel is a zip file with a list of its files; Python's own `zipfile` writes it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{Contents, VERSION, run};
use crate::examples::repository;

/// Makes the wheel in a folder, and returns its file.
///
/// # Errors
/// `python3` is missing or fails.
pub fn make(contents: &Contents, folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder)?;
    // Before 2.17 there is no such tag. Newer ones say the oldest C library that has all functions.
    let tag =
        format!("py3-none-manylinux_2_{}_{}", contents.glibc_minor.max(17), contents.architecture.name());
    let mut python = Command::new("python3");
    python.arg(repository().join("packaging/python/wheel.py"));
    python.args(["--version", VERSION, "--tag", &tag, "--epoch", &contents.epoch.to_string(), "--folder"]);
    python.arg(folder).arg("--command").arg(&contents.command).arg("--library").arg(&contents.library);
    let said = run(&mut python)?;
    let name = String::from_utf8(said).context("the wheel's name")?;
    Ok(folder.join(name.trim()))
}
