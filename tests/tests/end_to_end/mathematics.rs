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
    let ways = ["in_process", "shm", "tcp"];
    let test = |name: &'static str, way: &'static str| {
        Test::new(format!("mathematics::{name}::{way}"), move || through(name, way))
    };
    let programs = ["cublas", "cudnn", "dense_systems", "mathematics", "sparse_systems"];
    let all = programs.into_iter().flat_map(|name| ways.map(|way| test(name, way)));
    // What a server asks NVIDIA's libraries for is less: no pooling, and no sparse systems.
    let driven =
        ["cublas", "dense_systems", "mathematics", "transformer"].map(|name| test(name, "over_driver"));
    all.chain(driven).collect()
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
