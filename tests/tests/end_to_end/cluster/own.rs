//! `rgpu cluster`: a cluster on this machine by one command.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rgpu_test_runner::Test;
use rgpu_tests::process::{self, Finished, wait_until};
use rgpu_tests::product::{CLUSTER_DIRECTORY, clean, temporary};

use super::SOON;
use crate::context::{plain, product};

/// The tests.
pub(super) fn tests() -> Vec<Test> {
    vec![Test::new("cluster::one_command_makes_a_cluster_that_commands_find", own)]
}

/// A cluster's directory; the cluster in it is stopped when this is dropped.
struct Own(PathBuf);

impl Own {
    fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = clean(&product()?.rgpu());
        command.args(arguments).env(CLUSTER_DIRECTORY, &self.0);
        Ok(command)
    }

    fn rgpu(&self, arguments: &[&str]) -> Result<Finished> {
        process::run(&mut self.command(arguments)?)
    }

    fn up(&self) -> Result<Finished> {
        self.rgpu(&[
            "cluster", "up", "--nodes", "2", "--device", "software", "--memory", "512M", "--port", "0",
        ])
    }

    fn vector_add(&self, options: &[&str]) -> Result<()> {
        let mut command = self.command(&["run"])?;
        let finished = process::run(command.args(options).arg("--").arg(plain("vector_add")?))?.success()?;
        ensure!(finished.stdout.contains("vector_add: ok"), "{}", finished.output());
        Ok(())
    }

    /// The processes, each with what `rgpu cluster status` says of it: id, state, restarts, …
    fn members(&self) -> Result<BTreeMap<String, Vec<String>>> {
        let text = self.rgpu(&["cluster", "status"])?.success()?.stdout;
        let lines = text.lines().skip(2).map(|line| line.split_whitespace().map(str::to_owned));
        Ok(lines.filter_map(|mut words| Some((words.next()?, words.collect()))).collect())
    }

    fn pids(&self) -> Result<Vec<u32>> {
        let pids = self.members()?.into_values();
        pids.map(|words| words[0].parse().with_context(|| format!("{words:?}"))).collect()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Ok(mut command) = self.command(&["cluster", "down", "--forget"]) {
            let _ = process::run(&mut command);
        }
    }
}

fn lives(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

fn kill(pid: u32) {
    // SAFETY: a process of this test's own cluster.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
}

fn own() -> Result<()> {
    let own = Own(temporary("own-cluster"));
    own.rgpu(&["cluster", "status"])?.expect_code(3)?;
    // Nothing is named, and no cluster runs.
    let refused = own.rgpu(&["run", "--", "true"])?.expect_code(2)?;
    ensure!(refused.stderr.contains("rgpu cluster up"), "{}", refused.output());

    let greeting = own.up()?.success()?.stdout;
    ensure!(greeting.contains("The cluster is up") && greeting.contains("run -- ./app"), "{greeting}");
    let again = own.up()?.expect_code(1)?;
    ensure!(again.stderr.contains("runs already"), "{}", again.output());
    // Commands find it without being told.
    own.vector_add(&[])?;
    own.vector_add(&["--share", "25%", "--gpu-memory", "64MiB"])?;
    let nodes = own.rgpu(&["nodes"])?.success()?.stdout;
    ensure!(nodes.contains("node1") && nodes.contains("node2"), "{nodes}");

    // A process that is lost is started again, and served by.
    let lost: u32 = own.members()?["node1"][0].parse()?;
    kill(lost);
    wait_until("the lost node is back", SOON, || {
        own.members().is_ok_and(|members| members["node1"][1..3] == ["ready", "1"])
    })?;
    own.vector_add(&["--gpus", "2"])?;

    // With the supervisor, everything ends; and what was made for the cluster is there still.
    let token = std::fs::read(own.0.join("broker/admin.token"))?;
    let pids = own.pids()?;
    kill(std::fs::read_to_string(own.0.join("supervisor"))?.trim().parse()?);
    wait_until("nothing of the cluster is left", SOON, || !pids.iter().any(|pid| lives(*pid)))?;
    own.rgpu(&["cluster", "status"])?.expect_code(3)?;
    own.up()?.success()?;
    ensure!(std::fs::read(own.0.join("broker/admin.token"))? == token, "there is a new key");
    own.vector_add(&[])?;

    let pids = own.pids()?;
    let down = own.rgpu(&["cluster", "down", "--forget"])?.success()?;
    ensure!(down.stdout.contains("The cluster is down"), "{}", down.output());
    ensure!(!pids.iter().any(|pid| lives(*pid)), "some of {pids:?} live still");
    ensure!(!own.0.exists(), "{} is there still", own.0.display());
    Ok(())
}
