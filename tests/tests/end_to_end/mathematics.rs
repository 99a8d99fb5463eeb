//! Products of matrices, transforms, random numbers, factorisations and sparse matrices through the doors of their libraries: in
//! the program itself, and through a server.

use anyhow::{Result, ensure};
use rgpu_test_runner::Test;
use rgpu_tests::examples::Linking;
use rgpu_tests::process;
use rgpu_tests::toolkit::Version;

use crate::context::{product, program, shared_daemon};

/// One test for each program and way to a device.
pub(crate) fn tests() -> Vec<Test> {
    let ways = ["in_process", "shm", "tcp"];
    let of = |name: &'static str| {
        ways.map(|way| Test::new(format!("mathematics::{name}::{way}"), move || through(name, way)))
    };
    ["cublas", "mathematics", "sparse_systems"].into_iter().flat_map(of).collect()
}

fn through(name: &str, way: &str) -> Result<()> {
    let (version, linking) = match way {
        "tcp" => (Version::Cuda12, Linking::Shared),
        _ => (Version::Cuda13, Linking::Static),
    };
    let program = program(name, version, linking)?;
    let mut command = match way {
        "in_process" => product()?.run_in_process(),
        _ => product()?.run(shared_daemon()?),
    };
    if way != "in_process" {
        command.args(["--transport", way]);
    }
    let finished = process::run(command.arg("--").arg(program))?.success()?;
    ensure!(finished.stdout.contains(&format!("{name}: ok")), "{}", finished.output());
    Ok(())
}
