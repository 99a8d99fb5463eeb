//! `cargo xtask slurm`: jobs of mixed sizes on a Slurm cluster, with whole GPUs of Slurm's and with parts of GPUs of rgpu's.

use anyhow::{Context, Result};
use rgpu_tests::toolkit::Toolkit;

use crate::{Parts, build, cargo, compile_all};

/// Which jobs are run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many
    #[arg(long, default_value_t = 200)]
    jobs: u32,
    /// Of their sizes and times
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<bool> {
    if std::env::var_os("RGPU_TEST_BINARIES").is_none() {
        build(Parts::All)?;
    }
    compile_all(&Toolkit::fetch()?.toolkit)?;
    let mut command = cargo(&["run", "--quiet", "-p", "rgpu-tests", "--bin", "rgpu-slurm-jobs", "--"]);
    command.args([arguments.jobs.to_string(), arguments.seed.to_string()]);
    Ok(command.status().context("Starting cargo")?.success())
}
