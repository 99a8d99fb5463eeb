//! Kernels for vectors of threads, in programs and in servers' confined processes.

use std::fs;

use anyhow::{Context, Result, ensure};
use rgpu_test_runner::{Skip, Test};
use rgpu_tests::process;
use rgpu_tests::product::Daemon;

use crate::context::{Followed, forwarded, plain, product};
use crate::matrix::says_ok;

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    let mut tests = vec![
        Test::alone("vectors::servers_open_what_they_need_only_where_they_are_told_to", servers),
        Test::new("vectors::programs_do_without_it_where_that_is_off", off),
    ];
    // The first counts on the lanes of a warp being abreast; the others have barriers, atomics, branches, functions and much memory.
    for name in PROGRAMS {
        tests.push(Test::new(format!("vectors::in_process::{name}"), move || in_process(name, "first")));
        tests.push(Test::new(format!("vectors::in_large_groups::{name}"), move || in_process(name, "wide")));
        tests.push(Test::new(format!("vectors::in_whole_warps::{name}"), move || in_process(name, "warp")));
        tests.push(Test::new(format!("vectors::server::{name}"), move || server(name)));
    }
    tests
}

const PROGRAMS: [&str; 8] = [
    "warp_synchronous",
    "vector_add",
    "histogram_atomics",
    "reduction_shuffle",
    "local_recursion",
    "thrust_sort",
    "textures",
    "texture_references",
];

/// The variable that says when.
const VARIABLE: &str = "RGPU_VECTORS";

fn in_process(name: &str, when: &str) -> Result<()> {
    let mut command = product()?.run_in_process();
    command.env(VARIABLE, when).arg("--").arg(plain(name)?);
    says_ok(name, process::run(&mut command)?)
}

fn off() -> Result<()> {
    in_process("vector_add", "off")
}

fn server(name: &str) -> Result<()> {
    let daemon = Daemon::start_told(product()?, (VARIABLE, "first"))?;
    says_ok(name, process::run(&mut forwarded(daemon.address(), name)?)?)
}

/// Whether an idle application's process of a daemon has opened a libLLVM.
fn opens(daemon: &Daemon) -> Result<bool> {
    let _program = Followed::start(forwarded(daemon.address(), "idle")?, "ready")?;
    let server = *daemon.application_servers().first().context("No application server")?;
    Ok(fs::read_to_string(format!("/proc/{server}/maps"))?.contains("libLLVM"))
}

fn servers() -> Result<()> {
    ensure!(!opens(&Daemon::start(product()?)?)?, "a server opens libLLVM that was not told to");
    let told = Daemon::start_told(product()?, (VARIABLE, "auto"))?;
    if !opens(&told)? {
        return Err(Skip("there is no libLLVM 14 or newer, or no AVX2".into()).into());
    }
    Ok(())
}
