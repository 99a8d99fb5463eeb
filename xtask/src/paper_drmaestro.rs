//! `cargo xtask paper-drmaestro`: experiment 2 of the DRMaestro paper on a living cluster, beside the simulator.

use anyhow::{Context, Result};
use rgpu_tests::toolkit::Toolkit;

use crate::{Parts, build, cargo, compile_all};

/// What is run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many jobs are submitted; the paper has 128 and 512
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=4096))]
    jobs: u32,
    /// Only these policies [default: firmament, drmaestro and drmaestro-na, the network-aware one]
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = ["firmament", "drmaestro", "drmaestro-na"])]
    policy: Vec<String>,
    /// By how much everything is faster than in the paper
    #[arg(long, value_name = "FACTOR", default_value_t = 5.0)]
    time_scale: f64,
    /// What a machine's link carries each way, in Mbit/s
    #[arg(long, value_name = "MBPS", default_value_t = 200, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    link: u32,
    /// Of the jobs and of the policies
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How often each program is measured alone
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
}

pub(crate) fn run(arguments: &Arguments) -> Result<bool> {
    if std::env::var_os("RGPU_TEST_BINARIES").is_none() {
        build(Parts::All)?;
    }
    compile_all(&Toolkit::fetch()?.toolkit)?;
    let mut command = cargo(&["run", "--quiet", "-p", "rgpu-tests", "--bin", "rgpu-drmaestro", "--"]);
    let Arguments { jobs, policy, time_scale, link, seed, repeats } = arguments;
    let policies = if policy.is_empty() { "all".to_owned() } else { policy.join(",") };
    command.args([jobs.to_string(), policies, time_scale.to_string()]);
    command.args([link.to_string(), seed.to_string(), repeats.to_string()]);
    Ok(command.status().context("Starting cargo")?.success())
}
