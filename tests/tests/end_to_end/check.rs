//! `rgpu check`: mistakes that were planted are found, each with its kind, kernel, thread and line, and none in programs without.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use rgpu_test_runner::Test;
use rgpu_tests::examples::{Linking, repository};
use rgpu_tests::process::{self, Finished};
use rgpu_tests::product::{clean, temporary};
use rgpu_tests::toolkit::Version;

use crate::context::{plain, product, program};

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("check::finds_what_was_planted", planted),
        Test::new("check::finds_nothing_where_nothing_is", nothing),
        Test::new("check::writes_what_it_is_told_to", options),
        Test::new("check::faults_name_source_lines_without_it", faults),
        Test::new("check::kernels_without_end_are_ended", endless),
    ]
}

pub(crate) fn check(options: &[&str]) -> Result<Command> {
    let mut command = clean(&product()?.rgpu());
    command.arg("check").args(options).arg("--");
    Ok(command)
}

fn run(options: &[&str], kind: &str) -> Result<Finished> {
    process::run(check(options)?.arg(plain("planted")?).arg(kind))
}

/// The source line that ends in a kind's name.
fn line_of(kind: &str) -> Result<String> {
    let source = std::fs::read_to_string(repository().join("tests/programs/planted.cu"))?;
    let line = source.lines().position(|line| line.ends_with(&format!("// {kind}")));
    Ok(format!("planted.cu:{}", line.with_context(|| format!("no line has {kind}"))? + 1))
}

/// A tool, what is planted, its kernel, and what the report says. Where there is a line, the report names it.
pub(crate) const PLANTED: [(&str, &str, &str, &[&str]); 10] = [
    (
        "memcheck",
        "beyond",
        "beyond",
        &[
            "Invalid __global__ write of size 4 bytes",
            "by thread (100,0,0) in block (0,0,0)",
            "and is 1 byte after the nearest allocation",
            "of size 400 bytes",
        ],
    ),
    ("memcheck", "called", "calls", &["Invalid __global__ write of size 4 bytes", "by thread (84,0,0)"]),
    ("memcheck", "misaligned", "misaligned", &["Invalid __global__ write of size 4 bytes", "is misaligned"]),
    ("memcheck", "freed", "use", &["Invalid __global__ write of size 4 bytes", "that was freed"]),
    ("memcheck", "local", "own", &["Invalid __local__ write of size 4 bytes", "is out of bounds"]),
    (
        "memcheck",
        "shared",
        "shared_beyond",
        &["Invalid __shared__ write of size 4 bytes", "by thread (32,0,0)", "Address 0x80 is out of bounds"],
    ),
    ("initcheck", "uninitialised", "read", &["Uninitialized __global__ memory read of size 4 bytes"]),
    ("racecheck", "race", "race", &["Error: Race reported between", "and Read access at"]),
    ("synccheck", "divergent", "divergent", &["Barrier error detected. Divergent thread(s) in warp"]),
    ("synccheck", "mask", "mask", &["Barrier error detected. Invalid arguments"]),
];

fn planted() -> Result<()> {
    for (tool, kind, kernel, says) in PLANTED {
        let finished = run(&["--tool", tool, "--error-exitcode", "9"], kind)?.expect_code(9)?;
        let line = line_of(kind)?;
        for part in says.iter().chain([&line.as_str(), &kernel]) {
            ensure!(finished.stderr.contains(part), "{kind}: no {part:?} in\n{}", finished.output());
        }
        ensure!(!finished.stderr.contains("ERROR SUMMARY: 0 errors"), "{}", finished.output());
    }
    // What fails is the kernel, and the program hears of it.
    let finished = run(&[], "beyond")?.success()?;
    ensure!(finished.stdout.contains("planted: cudaErrorLaunchFailure"), "{}", finished.output());
    let finished = run(&[], "double")?.success()?;
    ensure!(finished.stderr.contains("was freed before: a double free"), "{}", finished.output());
    let finished = run(&["--leak-check", "full"], "leak")?.success()?;
    ensure!(
        finished.stderr.contains("========= Leaked 400 bytes at 0x"),
        "no leak was found: {}",
        finished.output()
    );
    let finished = run(&["--tool", "racecheck"], "trap")?.success()?;
    ensure!(finished.stderr.contains("Kernel failed."), "{}", finished.output());
    ensure!(finished.stderr.contains("Trap instruction in kernel"), "{}", finished.output());
    Ok(())
}

/// Examples with all kinds of memory, of barriers and of ways to allocate, that have no mistakes.
pub(crate) const CLEAN: [&str; 23] = [
    "async_pool",
    "backprop",
    "cub_reduce",
    "device_malloc",
    "graphs",
    "grid_sync",
    "half_precision",
    "histogram_atomics",
    "host_memory",
    "hotspot",
    "local_recursion",
    "managed_memory",
    "matmul_tiled",
    "memcpy2d3d",
    "module_variables",
    "nw",
    "ordered_atomics",
    "pathfinder",
    "scan_cooperative_groups",
    "stencil2d_constant",
    "streams_events_threads",
    "thrust_sort",
    "vector_add",
];

fn nothing() -> Result<()> {
    let tools = ["--tool", "memcheck,initcheck,synccheck", "--error-exitcode", "9"];
    let races = ["--tool", "racecheck", "--error-exitcode", "9"];
    for options in [tools, races] {
        let finished = run(&options, "none")?.success()?;
        ensure!(finished.stderr.contains("ERROR SUMMARY: 0 errors"), "{}", finished.output());
        for name in CLEAN {
            let program = program(name, Version::Cuda13, Linking::Static)?;
            let finished = process::run(check(&options)?.arg(program))?;
            let finished = finished.success().with_context(|| format!("{name} with {options:?}"))?;
            ensure!(finished.stderr.contains("ERROR SUMMARY: 0 errors"), "{name}: {}", finished.output());
        }
    }
    Ok(())
}

fn options() -> Result<()> {
    let log = temporary("check-log");
    let file = log.to_str().context("a path of text")?;
    let finished = run(&["--print-limit", "2", "--log-file", file], "called")?.success()?;
    ensure!(!finished.stderr.contains("========="), "{}", finished.output());
    let text = std::fs::read_to_string(&log)?;
    std::fs::remove_file(&log)?;
    ensure!(text.matches("Invalid __global__").count() == 2, "{text}");
    // Four blocks in which the last twelve of 96 threads are beyond the end.
    ensure!(text.contains("ERROR SUMMARY: 48 errors\n"), "{text}");
    ensure!(text.contains("ERROR SUMMARY: 46 errors were not printed."), "{text}");
    // With the environment alone the program itself says how many there were.
    let mut command = product()?.run_in_process();
    command.env("RGPU_CHECK", "memcheck").env("RGPU_CHECK_LIMIT", "2");
    let finished = process::run(command.arg("--").arg(plain("planted")?).arg("called"))?.success()?;
    for part in ["ERROR SUMMARY: 48 errors\n", "ERROR SUMMARY: 46 errors were not printed\n"] {
        ensure!(finished.stderr.contains(part), "{}", finished.output());
    }
    Ok(())
}

fn faults() -> Result<()> {
    let mut command = product()?.run_in_process();
    let finished = process::run(command.arg("--").arg(plain("planted")?).arg("trap"))?.success()?;
    let line = line_of("trap")?;
    for part in ["rgpu: Trap instruction in kernel", "block (", "thread (", "PTX line", line.as_str()] {
        ensure!(finished.stderr.contains(part), "no {part:?} in\n{}", finished.output());
    }
    ensure!(finished.stdout.contains("planted: cudaErrorLaunchFailure"), "{}", finished.output());
    Ok(())
}

fn endless() -> Result<()> {
    let mut command = product()?.run_in_process();
    command.env("RGPU_KERNEL_LIMIT", "300ms").arg("--").arg(plain("planted")?).arg("endless");
    let finished = process::run(&mut command)?.success()?;
    ensure!(finished.stdout.contains("planted: cudaErrorLaunchTimeout"), "{}", finished.output());
    let line = line_of("endless")?;
    for part in ["rgpu: Time limit of 300ms exceeded in kernel", "thread (0, 0, 0)", line.as_str()] {
        ensure!(finished.stderr.contains(part), "no {part:?} in\n{}", finished.output());
    }
    Ok(())
}
