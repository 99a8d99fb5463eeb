//! `cargo xtask faults`: disturbs a cluster again and again while programs run, and counts what must never be.

use anyhow::{Context, Result};
use rgpu_tests::toolkit::Toolkit;

use crate::{Parts, build, cargo, compile_all};

/// What is disturbed, and how often.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// What is disturbed: `broker` (killed, stopped, cut off, set back to an older state), `nodes`, or `standby` (the
    /// active one of two brokers)
    #[arg(value_parser = ["broker", "nodes", "standby"])]
    what: String,
    /// How many faults there are
    #[arg(long, default_value_t = 20)]
    times: u32,
    /// How many programs run or wait at a time
    #[arg(long, default_value_t = 20)]
    clients: u32,
    /// What chance begins with: the same number gives the same faults, at other moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn faults(arguments: &Arguments) -> Result<bool> {
    if std::env::var_os("RGPU_TEST_BINARIES").is_none() {
        build(Parts::All)?;
    }
    compile_all(&Toolkit::fetch()?.toolkit)?;
    let mut command = cargo(&["run", "--quiet", "-p", "rgpu-tests", "--bin", "rgpu-faults", "--"]);
    command.arg(&arguments.what);
    command.args([arguments.times, arguments.clients].map(|number| number.to_string()));
    let status = command.arg(arguments.seed.to_string()).status().context("Starting cargo")?;
    Ok(status.success())
}
