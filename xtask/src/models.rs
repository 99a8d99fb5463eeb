//! `cargo xtask loom`: models of what threads and processes do at the same time, in all orders (docs/models.md).

use anyhow::{Context, Result};

use crate::cargo;

pub(crate) fn models(filter: &[String]) -> Result<bool> {
    let mut command = cargo(&["test", "-p", "rgpu-models", "--features", "models"]);
    // With other features than everything else: in one directory each would have the other built again.
    command.args(["--target-dir", "target/loom", "--", "--nocapture", "--test-threads", "1"]).args(filter);
    Ok(command.status().context("Starting cargo")?.success())
}
