//! `cargo xtask demo`: every example through a daemon on this machine.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use rgpu_tests::examples::{self, Linking};
use rgpu_tests::process;
use rgpu_tests::product::{CLUSTER_DIRECTORY, Daemon, Product, Stats, clean, temporary};
use rgpu_tests::toolkit::Version;

use crate::{Parts, build, seconds, size_of_directory, toolkit};

/// Runs the examples whose names match, and says whether all were right.
pub(crate) fn demo(filter: &[String]) -> Result<bool> {
    let built = build(Parts::RunAndServe)?;
    let (toolkit, fetched) = toolkit()?;
    let mut programs = examples::all()?;
    programs.retain(|e| filter.is_empty() || filter.iter().any(|f| e.name.contains(f)));
    let start = Instant::now();
    let compiled = examples::build(&toolkit, &programs, &[Version::Cuda13])?;
    let compile_time = start.elapsed();

    let product = Product::built()?;
    let daemon = Daemon::start(&product)?;
    println!();
    println!("$ rgpu serve --listen 127.0.0.1:0 --device software");
    daemon.log().iter().for_each(|line| println!("  {line}"));
    println!("$ rgpu run --server {} -- target/examples/static13/NAME", daemon.address());
    println!();
    println!("  {:<26} {:<10} {:>8} {:>12}", "example", "self-check", "time", "round trips");
    let (mut passed, mut failed, mut run_time) = (0, vec![], Duration::ZERO);
    for example in &programs {
        let file = temporary("stats.json");
        let mut command = product.run(daemon.address());
        command.arg(format!("--stats=json:{}", file.display()));
        command.arg("--").arg(example.program(Version::Cuda13, Linking::Static));
        let finished = process::run(&mut command)?;
        let took = finished.took;
        run_time += took;
        let round_trips = Stats::take(&file).and_then(|s| s.number("round_trips"));
        let round_trips = round_trips.map_or_else(|_| "?".to_owned(), |n| n.to_string());
        let says_ok = finished.stdout.lines().any(|l| l.starts_with(&format!("{}: ok", example.name)));
        let verdict = match (finished.late, finished.status.success() && says_ok) {
            (true, _) => "HUNG",
            (_, true) => "ok",
            _ => "FAILED",
        };
        let took = format!("{:.2} s", took.as_secs_f64());
        println!("  {:<26} {:<10} {took:>8} {round_trips:>12}", example.name, verdict);
        if verdict == "ok" {
            passed += 1;
        } else {
            failed.push((example.name.clone(), finished));
        }
    }
    for (name, finished) in &failed {
        println!("\n{name} ended with {}:\n{}", finished.status, finished.output());
    }
    println!();
    println!("{passed} examples passed their self-check, {} failed", failed.len());
    drop(daemon);
    if let Some(example) = programs.iter().find(|e| e.name == "vector_add").or(programs.first()) {
        println!();
        cluster(&product, &example.program(Version::Cuda13, Linking::Static))?;
    }
    println!();
    println!("time: building rgpu {}, fetching the CUDA compiler {},", seconds(built), seconds(fetched));
    println!(
        "      compiling {compiled} examples {}, running them {}",
        seconds(compile_time),
        seconds(run_time)
    );
    println!("installed: {} ({} MB)", toolkit.root().display(), size_of_directory(toolkit.root()) >> 20);
    println!("built:     {} and {}", product.rgpu().display(), product.shim().display());
    println!("           {}", examples::directory(Version::Cuda13, Linking::Static).display());
    println!("next:      {} cluster up", shown(product.rgpu()).display());
    Ok(failed.is_empty())
}

/// The file, as somebody in the current directory writes it.
fn shown(path: PathBuf) -> PathBuf {
    let current = std::env::current_dir().ok();
    current.and_then(|current| Some(path.strip_prefix(current).ok()?.to_owned())).unwrap_or(path)
}

/// Makes a cluster on this machine, runs a program with a part of one of its GPUs, and stops the cluster.
fn cluster(product: &Product, program: &Path) -> Result<()> {
    let directory = temporary("cluster");
    let program = shown(program.to_owned()).to_string_lossy().into_owned();
    let outcome = (|| {
        for arguments in [
            &["cluster", "up", "--device", "software", "--port", "0"][..],
            &["run", "--share", "25%", "--gpu-memory", "256MiB", "--", &program],
            &["leases", "--all"],
        ] {
            let mut command = clean(&product.rgpu());
            let finished = process::run(command.args(arguments).env(CLUSTER_DIRECTORY, &directory))?;
            println!("$ rgpu {}", arguments.join(" "));
            let lines = finished.stdout.lines().chain(finished.stderr.lines());
            lines.for_each(|line| println!("  {line}"));
            finished.success()?;
        }
        Ok(())
    })();
    let mut command = clean(&product.rgpu());
    process::run(command.args(["cluster", "down", "--forget"]).env(CLUSTER_DIRECTORY, &directory))?
        .success()?;
    outcome
}
