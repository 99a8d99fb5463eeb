//! `cargo xtask fuzz`.

use anyhow::{Context, Result, ensure};
use rgpu_tests::examples;
use std::process::Command;

/// Builds the fuzzer, and runs it with these arguments.
pub(crate) fn fuzz(mut arguments: Vec<String>) -> Result<bool> {
    let before = arguments.len();
    arguments.retain(|argument| argument != "--release");
    let release = arguments.len() < before;
    // With the features of the whole workspace, whose libraries the tests have built already.
    let mut build = vec!["build", "--workspace", "--bin", "rgpu-fuzz", "--quiet"];
    if release {
        build.push("--release");
    }
    let status = super::cargo(&build).status().context("Starting cargo")?;
    ensure!(status.success(), "`cargo {}` failed", build.join(" "));
    let directory = examples::target().join(if release { "release" } else { "debug" });
    let mut command = Command::new(directory.join("rgpu-fuzz"));
    command.args(arguments).current_dir(examples::repository());
    Ok(command.status().context("Starting the fuzzer")?.success())
}
