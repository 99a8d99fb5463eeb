//! Products of matrices, layers of neural networks, transforms, random numbers, factorisations and sparse matrices through the doors of their
//! libraries: in the program itself, and through a server; also one whose NVIDIA device drives rgpu's own library,
//! which stands for NVIDIA's driver and NVIDIA's libraries.

use anyhow::{Result, ensure};
use rgpu_test_runner::Test;
use rgpu_tests::examples::Linking;
use rgpu_tests::process;
use rgpu_tests::toolkit::Version;

use crate::context::{driver_daemon, product, program, shared_daemon};

/// One test for each program and way to a device.
pub(crate) fn tests() -> Vec<Test> {
    let ways = ["in_process", "shm", "tcp", "over_driver"];
    let of = |name: &'static str| {
        ways.map(|way| Test::new(format!("mathematics::{name}::{way}"), move || through(name, way)))
    };
    let transformer = || through("transformer", "over_driver");
    let mut tests: Vec<Test> =
        ["cublas", "cudnn", "mathematics", "sparse_systems"].into_iter().flat_map(of).collect();
    tests.push(Test::new("mathematics::transformer::over_driver", transformer));
    tests
}

fn through(name: &str, way: &str) -> Result<()> {
    let (version, linking) = match way {
        "tcp" => (Version::Cuda12, Linking::Shared),
        _ => (Version::Cuda13, Linking::Static),
    };
    let program = program(name, version, linking)?;
    let mut command = match way {
        "in_process" => product()?.run_in_process(),
        "over_driver" => product()?.run(driver_daemon()?),
        _ => product()?.run(shared_daemon()?),
    };
    if ["shm", "tcp"].contains(&way) {
        command.args(["--transport", way]);
    }
    let finished = process::run(command.arg("--").arg(program))?.success()?;
    ensure!(finished.stdout.contains(&format!("{name}: ok")), "{}", finished.output());
    Ok(())
}
