//! What only devices of capability 9.0 have: bulk copies by tensor maps, and products of four warps. In-process, with both tiers,
//! and through a server.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use rgpu_test_runner::Test;
use rgpu_tests::examples::Linking;
use rgpu_tests::process;
use rgpu_tests::product::Daemon;
use rgpu_tests::toolkit::Version;

use crate::context::{plain, product, program};

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("tensor_maps::products_are_right", products),
        Test::new("tensor_maps::copies_are_right", copies),
        Test::new("tensor_maps::several_blocks_get_one_copy", several),
        Test::new("tensor_maps::what_is_wrong_ends_the_kernel", wrong),
        Test::new("tensor_maps::rgpu_check_knows_what_copies_write", checked),
    ]
}

const CAPABILITY: [&str; 2] = ["--compute-capability", "9.0"];

fn in_process() -> Result<Command> {
    let mut command = product()?.run_in_process();
    command.args(CAPABILITY);
    Ok(command)
}

/// Runs a program, which has to say how much of what was right.
fn ends_well(command: &mut Command, said: &str) -> Result<()> {
    let finished = process::run(command)?.success()?;
    ensure!(finished.stdout.contains(said), "it did not say {said:?}\n{}", finished.output());
    Ok(())
}

fn products() -> Result<()> {
    let said = "wgmma_matmul: ok 5 products";
    for version in Version::ALL {
        ends_well(in_process()?.arg("--").arg(program("wgmma_matmul", version, Linking::Static)?), said)?;
    }
    let program = program("wgmma_matmul", Version::Cuda13, Linking::Shared)?;
    ends_well(in_process()?.env("RGPU_VECTORS", "first").arg("--").arg(&program), said)?;
    let daemon = Daemon::start_with(product()?, &CAPABILITY)?;
    ends_well(product()?.run(daemon.address()).arg("--").arg(&program), said)
}

fn copies() -> Result<()> {
    let program = plain("tensor_copies")?;
    for seed in ["1", "2"] {
        ends_well(in_process()?.arg("--").arg(&program).args(["20", seed]), "tensor_copies: ok 160 boxes")?;
    }
    ends_well(in_process()?.env("RGPU_VECTORS", "first").arg("--").arg(&program), "tensor_copies: ok")?;
    let daemon = Daemon::start_with(product()?, &CAPABILITY)?;
    ends_well(product()?.run(daemon.address()).arg("--").arg(&program), "tensor_copies: ok")
}

fn several() -> Result<()> {
    let (program, said) = (plain("multicast")?, "multicast: ok 36 tiles to 12 blocks");
    for tier in ["off", "first", "wide", "warp"] {
        ends_well(in_process()?.env("RGPU_VECTORS", tier).arg("--").arg(&program), said)?;
    }
    let daemon = Daemon::start_with(product()?, &CAPABILITY)?;
    ends_well(product()?.run(daemon.address()).arg("--").arg(&program), said)
}

fn wrong() -> Result<()> {
    for (fault, message) in [
        ("garbage", "What should be a tensor map is none"),
        ("place", "Misaligned address"),
        ("map", "Misaligned address"),
        ("room", "Illegal address"),
    ] {
        let finished =
            process::run(in_process()?.arg("--").arg(plain("tensor_copies")?).args(["--fault", fault]))?;
        let finished = finished.success().with_context(|| fault.to_owned())?;
        ensure!(finished.stderr.contains(message), "{fault}: it did not say why\n{}", finished.output());
    }
    Ok(())
}

fn checked() -> Result<()> {
    for (tool, program) in [
        ("memcheck", "tensor_copies"),
        ("initcheck", "tensor_copies"),
        ("memcheck", "multicast"),
        ("initcheck", "multicast"),
        ("racecheck", "multicast"),
    ] {
        let mut command = rgpu_tests::product::clean(&product()?.rgpu());
        command.args(["check", "--tool", tool, "--error-exitcode", "7", "--"]).arg(plain(program)?);
        let finished = process::run(command.env("RGPU_SOFT_CC", "9.0"))?.success()?;
        ensure!(finished.stdout.contains(&format!("{program}: ok")), "{tool}\n{}", finished.output());
        ensure!(!finished.stderr.contains("Invalid __"), "{tool} found something\n{}", finished.output());
        ensure!(!finished.stderr.contains("Uninitialized"), "{tool} found something\n{}", finished.output());
    }
    Ok(())
}
