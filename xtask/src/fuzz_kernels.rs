//! `cargo xtask fuzz-kernels` and `cargo xtask kernels`: execute random kernels for longer than the tests do.

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
    /// Runs them for vectors of threads where it can (RGPU_VECTORS)
    #[arg(long)]
    vectors: bool,
}

/// How many kernels to compare, and which.
#[derive(Debug, clap::Args)]
pub(crate) struct Comparison {
    /// How many kernels
    #[arg(long, default_value_t = 1_000_000)]
    count: u64,
    /// Launches of each kernel, with other blocks, parameters and memory
    #[arg(long, default_value_t = 2)]
    each: u64,
    /// The seed of the first kernel; the next ones follow
    #[arg(long, default_value_t = 1_000_000)]
    seed: u64,
}

/// Executes kernels between words that nobody may touch, and says whether nothing was found.
pub(crate) fn fuzz_kernels(arguments: &Arguments) -> Result<bool> {
    let Arguments { count, each, seed, vectors } = *arguments;
    let run = Run { suite: "containment", vectors, count, each };
    let again = if vectors { "fuzz-kernels --vectors" } else { "fuzz-kernels" };
    run.from(seed, |last| format!("{again} --seed {last} --count {each} --each {each}"))
}

/// Compares what kernels compute in an interpreter and in all tiers, and says whether nothing was found.
pub(crate) fn compare_kernels(arguments: &Comparison) -> Result<bool> {
    let Comparison { count, each, seed } = *arguments;
    let run = Run { suite: "tiers", vectors: false, count, each };
    run.from(seed, |last| format!("kernels --seed {last} --count 1 --each {each}"))
}

/// A long run of a suite of the software GPU's tests.
struct Run {
    suite: &'static str,
    vectors: bool,
    count: u64,
    each: u64,
}

impl Run {
    fn from(&self, seed: u64, again: impl Fn(&str) -> String) -> Result<bool> {
        let note = std::env::temp_dir().join(format!("rgpu-fuzz-{}", std::process::id()));
        let run = |test: &str, seed: &str| {
            let mut command = cargo(&["test", "--quiet", "--package", "rgpu-softgpu", "--lib", "--"]);
            let test = format!("exec::tests::{}::{test}", self.suite);
            command.args(["--ignored", "--nocapture", "--exact", &test]);
            command.env("RGPU_FUZZ_SEED", seed).env("RGPU_FUZZ_NOTE", &note);
            command.env("RGPU_FUZZ_COUNT", self.count.to_string());
            command.env("RGPU_FUZZ_EACH", self.each.to_string());
            command.env("RGPU_VECTORS", if self.vectors { "first" } else { "off" });
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
        eprintln!("Again: cargo xtask {}", again(last));
        Ok(false)
    }
}
