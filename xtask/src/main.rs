//! The commands that work on this repository: `cargo xtask demo`, `test`, `fuzz`, `gpu-check`, `toolkit` and
//! `examples`.

mod count_instructions;
mod demo;
mod deny;
mod faults;
mod frameworks;
mod fuzz;
mod fuzz_kernels;
mod gpu_check;
mod imports;
mod models;
mod openmp;
mod package;
mod paper_drmaestro;
mod rdma;
mod slurm;
mod suites;
mod test;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use rgpu_tests::examples;
use rgpu_tests::product::Product;
use rgpu_tests::toolkit::{Toolkit, Version};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The commands that work on this repository")]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Builds rgpu, fetches a CUDA compiler, and runs every example through a daemon on this machine
    Demo {
        /// Only examples whose name contains this
        filter: Vec<String>,
    },
    /// Runs all tests: the crates' own, every example in every way, and the end-to-end tests
    Test {
        /// Only tests whose name contains this
        filter: Vec<String>,
        /// Instead: the examples and the transport's own tests over RDMA, in a virtual machine that has a device for it
        #[arg(long)]
        rdma: bool,
    },
    /// Feeds generated and damaged inputs to every decoder that reads what another party sends (docs/fuzzing.md)
    #[command(disable_help_flag = true)]
    Fuzz {
        /// `--release`: without the checks of a debug build, for long runs; all others: see `--help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Holds our dependencies to deny.toml: licences, sources and, where the database can be had, advisories
    Deny,
    /// Counts the instructions that a launch costs the program's side; needs valgrind
    CountInstructions,
    /// Kills, stops and cuts off brokers and servers while programs run, and counts what must never be
    Faults(faults::Arguments),
    /// Runs the jobs of the DRMaestro paper's experiment 2 on a living cluster, beside the simulator (docs/drmaestro-live.md)
    PaperDrmaestro(paper_drmaestro::Arguments),
    /// Runs jobs of mixed sizes on a Slurm cluster: with whole GPUs of Slurm's, and with parts of GPUs of rgpu's (docs/slurm.md)
    Slurm(slurm::Arguments),
    /// Executes random kernels on the software GPU, between words that no kernel may see or change (docs/containment.md)
    FuzzKernels(fuzz_kernels::Arguments),
    /// Compares what random kernels compute in an interpreter and in both tiers of the software GPU (docs/fuzzing.md)
    Kernels(fuzz_kernels::Comparison),
    /// Tries models of what threads and processes do at the same time in all orders (docs/models.md)
    Loom {
        /// Only models whose name contains this
        filter: Vec<String>,
    },
    /// Runs Python frameworks' programs on a software GPU, with packages from PyPI in the user's cache directory (docs/frameworks.md)
    Frameworks {
        /// Only programs whose name contains this
        filter: Vec<String>,
        #[command(flatten)]
        suites: suites::Arguments,
    },
    /// Lists which of NVIDIA's functions the binaries below folders of Python packages import, and which of them rgpu implements
    Imports {
        /// Folders with packages, as `…/site-packages/torch`
        #[arg(required = true)]
        folders: Vec<std::path::PathBuf>,
    },
    /// Makes the Debian packages and the Python wheel (docs/packages.md)
    Package(package::Arguments),
    /// Compares kernels on the software GPU with the same work in C++ with OpenMP (docs/bench.md)
    Openmp(openmp::Arguments),
    /// Fetches the CUDA compiler
    Toolkit,
    /// Compiles the examples and the tests' programs
    Examples,
    /// Makes a bundle that compares rgpu with a GPU's own driver, and runs it where this machine has a GPU
    GpuCheck(gpu_check::Arguments),
}

fn main() -> ExitCode {
    if let Some(status) = package::as_rustc() {
        return status;
    }
    let outcome = match Arguments::parse().command {
        Task::Demo { filter } => demo::demo(&filter),
        Task::Test { filter, rdma: true } => rdma::test(&filter),
        Task::Test { filter, rdma: false } => test::test(&filter),
        Task::Faults(arguments) => faults::faults(&arguments),
        Task::PaperDrmaestro(arguments) => paper_drmaestro::run(&arguments),
        Task::Slurm(arguments) => slurm::run(&arguments),
        Task::Fuzz { arguments } => fuzz::fuzz(arguments),
        Task::Deny => deny::deny(),
        Task::CountInstructions => count_instructions::count_instructions(),
        Task::FuzzKernels(arguments) => fuzz_kernels::fuzz_kernels(&arguments),
        Task::Kernels(arguments) => fuzz_kernels::compare_kernels(&arguments),
        Task::Loom { filter } => models::models(&filter),
        Task::Frameworks { filter, suites } if suites.suites => suites::run(&filter, &suites),
        Task::Frameworks { filter, .. } => frameworks::frameworks(&filter),
        Task::Imports { folders } => imports::print(&folders).map(|()| true),
        Task::Package(arguments) => package::package(&arguments),
        Task::Openmp(arguments) => openmp::compare(&arguments),
        Task::Toolkit => toolkit().map(|_| true),
        Task::GpuCheck(arguments) => gpu_check::gpu_check(&arguments),
        Task::Examples => toolkit().and_then(|(toolkit, _)| compile_all(&toolkit)).map(|()| true),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// Fetches the toolkit and says where it is. Returns how long that took.
fn toolkit() -> Result<(Toolkit, Duration)> {
    let start = Instant::now();
    let fetched = Toolkit::fetch()?;
    let place = fetched.toolkit.root().display();
    match fetched.took {
        Some(took) => println!("Installed the CUDA compiler in {place} in {}", seconds(took)),
        None => println!("The CUDA compiler is in {place} already"),
    }
    println!("(shared by all clones; delete that directory to remove it, nothing else was installed)");
    Ok((fetched.toolkit, start.elapsed()))
}

/// Compiles all CUDA programs of this repository that aren't compiled yet.
fn compile_all(toolkit: &Toolkit) -> Result<()> {
    let start = Instant::now();
    let mut programs = examples::all()?;
    programs.extend(examples::for_tests()?);
    programs.extend(examples::for_gpu_check()?);
    // One of them is a test's.
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    programs.dedup_by(|a, b| a.name == b.name);
    let compiled = examples::build(toolkit, &programs, &Version::ALL)?;
    if compiled > 0 {
        println!("Compiled {compiled} in {}", seconds(start.elapsed()));
    }
    Ok(())
}

/// Runs cargo in the repository, with the environment that it has when a person types it: what `cargo run` tells about
/// `xtask` itself would have some build scripts run again, and all that depends on them compiled a second time.
fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let of_xtask = |name: &str| {
        ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"].iter().any(|of| name.starts_with(of))
            || matches!(name, "CARGO" | "CARGO_PRIMARY_PACKAGE" | "OUT_DIR")
    };
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(of_xtask) {
            command.env_remove(name);
        }
    }
    command.args(arguments).current_dir(examples::repository());
    command
}

/// What is built of the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parts {
    /// All of it.
    All,
    /// What running programs through a server and in a cluster takes: no simulator or benchmarks.
    RunAndServe,
    /// All of it and all tests, as they are built for each other: little optimised, and with assertions.
    WithTests,
}

impl Parts {
    /// What cargo is told.
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::All => &["build", "--release"],
            Self::RunAndServe => &[
                "build",
                "--release",
                "--no-default-features",
                "--features",
                "rgpu/serve,rgpu/broker,rgpu-client/in-process",
            ],
            Self::WithTests => &Product::BUILD_WITH_TESTS,
        }
    }
}

/// Builds the product. Returns how long that took.
fn build(parts: Parts) -> Result<Duration> {
    let start = Instant::now();
    let arguments = parts.arguments();
    println!("Building rgpu: cargo {}", arguments.join(" "));
    let status = cargo(arguments).status().context("Starting cargo")?;
    ensure!(status.success(), "`cargo {}` failed", arguments.join(" "));
    Ok(start.elapsed())
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn size_of_directory(path: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    entries
        .flatten()
        .map(|e| match e.metadata() {
            Ok(m) if m.is_dir() => size_of_directory(&e.path()),
            Ok(m) => m.len(),
            Err(_) => 0,
        })
        .sum()
}
