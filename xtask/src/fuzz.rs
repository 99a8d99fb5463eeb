//! `cargo xtask fuzz`.

use anyhow::{Context, Result, ensure};
use rgpu_tests::examples;
use rgpu_tests::product::Product;
use std::process::Command;

/// Builds the fuzzer, and runs it with these arguments.
pub(crate) fn fuzz(mut arguments: Vec<String>) -> Result<bool> {
    let before = arguments.len();
    arguments.retain(|argument| argument != "--release");
    let release = arguments.len() < before;
    // With the tests, which need the same libraries: where they have been built, nothing is left to do.
    let mut build = if release {
        vec!["build", "--workspace", "--bin", "rgpu-fuzz", "--release"]
    } else {
        Product::BUILD_WITH_TESTS.to_vec()
    };
    build.push("--quiet");
    let status = super::cargo(&build).status().context("Starting cargo")?;
    ensure!(status.success(), "`cargo {}` failed", build.join(" "));
    let directory = examples::target().join(if release { "release" } else { "debug" });
    let mut command = Command::new(directory.join("rgpu-fuzz"));
    command.args(arguments).current_dir(examples::repository());
    Ok(command.status().context("Starting the fuzzer")?.success())
}
