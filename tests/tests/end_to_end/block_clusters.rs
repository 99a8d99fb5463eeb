//! Clusters of blocks on devices of compute capability 9.0: the example, in all ways in which it can reach one.

use anyhow::{Result, ensure};
use rgpu_test_runner::Test;
use rgpu_tests::examples::Linking;
use rgpu_tests::process;
use rgpu_tests::product::Daemon;
use rgpu_tests::toolkit::Version;

use crate::context::{product, program};

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("block_clusters::in_process", || in_process(None)),
        Test::new("block_clusters::in_vectors", || in_process(Some("first"))),
        Test::new("block_clusters::through_a_server", through_a_server),
    ]
}

const VERSIONS: [(Version, Linking); 2] =
    [(Version::Cuda13, Linking::Static), (Version::Cuda12, Linking::Shared)];

/// Runs the example with what `rgpu run` is to be told, on a device that has clusters.
fn runs(mut command: std::process::Command, version: Version, linking: Linking) -> Result<()> {
    let finished = process::run(command.arg("--").arg(program("clusters", version, linking)?))?.success()?;
    ensure!(
        finished.stdout.lines().any(|line| line == "clusters: ok clusters of up to 16 blocks"),
        "it did not launch clusters\n{}",
        finished.output()
    );
    Ok(())
}

fn in_process(vectors: Option<&str>) -> Result<()> {
    for (version, linking) in VERSIONS {
        let mut command = product()?.run_in_process();
        command.args(["--compute-capability", "9.0"]);
        if let Some(vectors) = vectors {
            command.env("RGPU_VECTORS", vectors);
        }
        runs(command, version, linking)?;
    }
    Ok(())
}

fn through_a_server() -> Result<()> {
    let daemon = Daemon::start_with(product()?, &["--compute-capability", "9.0"])?;
    for (transport, (version, linking)) in ["tcp", "shm"].into_iter().zip(VERSIONS) {
        let mut command = product()?.run(daemon.address());
        command.args(["--transport", transport]);
        runs(command, version, linking)?;
    }
    Ok(())
}
