//! Transforms, random numbers, factorisations and sparse matrices through the doors of their libraries: in the program itself, and
//! through a server.

use anyhow::{Result, ensure};
use rgpu_test_runner::Test;
use rgpu_tests::examples::Linking;
use rgpu_tests::process;
use rgpu_tests::toolkit::Version;

use crate::context::{product, program, shared_daemon};

/// One test for each way to a device.
pub(crate) fn tests() -> Vec<Test> {
    let ways = ["in_process", "shm", "tcp"];
    ways.map(|way| Test::new(format!("mathematics::{way}"), move || through(way))).into()
}

fn through(way: &str) -> Result<()> {
    let (version, linking) = match way {
        "tcp" => (Version::Cuda12, Linking::Shared),
        _ => (Version::Cuda13, Linking::Static),
    };
    let program = program("mathematics", version, linking)?;
    let mut command = match way {
        "in_process" => product()?.run_in_process(),
        _ => product()?.run(shared_daemon()?),
    };
    if way != "in_process" {
        command.args(["--transport", way]);
    }
    let finished = process::run(command.arg("--").arg(program))?.success()?;
    ensure!(finished.stdout.contains("mathematics: ok"), "{}", finished.output());
    Ok(())
}
