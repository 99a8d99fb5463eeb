//! `cargo xtask fuzz-kernels`: executes random kernels for longer than the tests do.

use std::fs;

use anyhow::{Context, Result};

use crate::cargo;

/// How long, and with what.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How many launches
    #[arg(long, default_value_t = 1_000_000)]
    count: u64,
    /// Launches of each kernel, with other parameters and memory
    #[arg(long, default_value_t = 250)]
    each: u64,
    /// The seed of the first kernel; the next ones follow
    #[arg(long, default_value_t = 1_000_000)]
    seed: u64,
}

/// Runs, and says whether nothing was found.
pub(crate) fn fuzz_kernels(arguments: &Arguments) -> Result<bool> {
    let Arguments { count, each, seed } = arguments;
    let note = std::env::temp_dir().join(format!("rgpu-fuzz-{}", std::process::id()));
    let run = |test: &str, seed: &str| {
        let mut command = cargo(&["test", "--quiet", "--package", "rgpu-softgpu", "--lib", "--"]);
        command.args(["--ignored", "--nocapture", "--exact", &format!("exec::tests::containment::{test}")]);
        command.env("RGPU_FUZZ_SEED", seed).env("RGPU_FUZZ_NOTE", &note);
        command.env("RGPU_FUZZ_COUNT", count.to_string()).env("RGPU_FUZZ_EACH", each.to_string());
        command.status().context("Starting cargo")
    };
    let status = run("long_run", &seed.to_string())?;
    let last = fs::read_to_string(&note).unwrap_or_default();
    let _ = fs::remove_file(&note);
    if status.success() {
        return Ok(true);
    }
    // What ended the process could not say so itself.
    let last = last.trim();
    eprintln!("The run ended ({status}) with the kernel of seed {last}:");
    if !last.is_empty() {
        run("show", last)?;
    }
    eprintln!("Again: cargo xtask fuzz-kernels --seed {last} --count {each} --each {each}");
    Ok(false)
}
