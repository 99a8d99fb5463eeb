//! `cargo xtask gpu-check`: a bundle for a machine with a GPU, and its run where this machine has one.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;
use rgpu_tests::examples;
use rgpu_tests::gpu_check::{Bundle, NAME, SCRIPT};
use rgpu_tests::product::Product;
use rgpu_tests::toolkit::Version;

use crate::{Parts, build, seconds, size_of_directory, toolkit};

/// What `cargo xtask gpu-check` takes.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Only make the bundle, even where this machine has a GPU
    #[arg(long)]
    bundle_only: bool,
    /// Run it on the software GPU, which stands for the native one, too
    #[arg(long)]
    dry_run: bool,
    /// What the bundle's script takes, such as `--part errors`; `--help` lists it
    #[arg(last = true)]
    script: Vec<String>,
}

/// Makes the bundle and runs it. Says whether everything was as it should be.
pub(crate) fn gpu_check(arguments: &Arguments) -> Result<bool> {
    let built = build(Parts::All)?;
    println!("Built in {}", seconds(built));
    let (toolkit, _) = toolkit()?;
    let start = Instant::now();
    let place = examples::target().join("gpu-check");
    let bundle = Bundle::make(&place, &Product::built()?, &toolkit, Version::Gpus, &[])?;
    let (archive, size) = bundle.pack()?;
    println!(
        "Made {} in {}: {:.1} MiB, {} MiB when unpacked",
        archive.display(),
        seconds(start.elapsed()),
        size as f64 / f64::from(1 << 20),
        size_of_directory(bundle.directory()) >> 20
    );
    let runs = arguments.dry_run || (!arguments.bundle_only && Path::new("/dev/nvidiactl").exists());
    if !runs {
        println!(
            "To be carried to a machine with a GPU, a CUDA 12 or 13 driver and Python 3.12, and run there:"
        );
        println!("  tar -xzf {NAME}.tar.gz && python3 {NAME}/{SCRIPT}");
        println!("({NAME}/{SCRIPT} --list names its parts, each a few minutes; what was done is kept)");
        return Ok(true);
    }
    let mut command = Command::new("python3");
    command.arg(bundle.script()).arg("--results").arg(place.join("results"));
    if arguments.dry_run {
        command.args(["--dry-run", "--device", "software"]);
    }
    let status = command.args(&arguments.script).status().context("Starting python3")?;
    Ok(status.success())
}
