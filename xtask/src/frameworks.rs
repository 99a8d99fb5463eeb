//! `cargo xtask frameworks`: Python frameworks' own programs on a software GPU, in the program and through a server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rgpu_tests::cached;
use rgpu_tests::process::{Finished, Running};
use rgpu_tests::product::{Daemon, Product};

use crate::{Parts, build};

/// How long a program may take: a first start compiles much.
const PATIENCE: Duration = Duration::from_secs(1200);

/// A program, and what it needs.
struct Program {
    name: String,
    path: PathBuf,
    packages: Vec<String>,
}

/// The programs in `tests/frameworks` whose names match. The first line of each says which packages it needs.
fn programs(filter: &[String]) -> Result<Vec<Program>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/frameworks");
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("Reading {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap_or_default();
        let Some(packages) = text.lines().next().and_then(|line| line.strip_prefix("# packages: ")) else {
            continue;
        };
        let wanted = filter.is_empty() || filter.iter().any(|part| name.contains(part));
        if wanted {
            let packages = packages.split_whitespace().map(str::to_owned).collect();
            found.push(Program { name, path: path.canonicalize()?, packages });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// A virtual environment with these packages, in the user's cache directory; made where it is not there yet.
pub(crate) fn environment(packages: &[String]) -> Result<PathBuf> {
    let name: String =
        packages.join("-").chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
    let folder = cached::cache()?.join("python").join(name);
    let python = folder.join("bin/python");
    let complete = folder.join("complete");
    if complete.exists() {
        return Ok(python);
    }
    println!("installing {} into {}", packages.join(" "), folder.display());
    let made = Command::new("python3").args(["-m", "venv"]).arg(&folder).status();
    ensure!(
        made.is_ok_and(|status| status.success()),
        "python3 -m venv does not work; on Debian: apt-get install python3-venv"
    );
    let installed = Command::new(&python)
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "5"])
        .args(packages)
        .status()?;
    ensure!(installed.success(), "pip cannot install {}", packages.join(" "));
    fs::write(&complete, "")?;
    Ok(python)
}

/// How many parts of a program were right, and the lines of those that were not.
fn verdict(finished: &Finished) -> (usize, Vec<String>) {
    let right = finished.stdout.lines().filter(|line| line.ends_with(": ok")).count();
    let mut wrong: Vec<String> =
        finished.stdout.lines().filter(|line| line.contains(": FAILED")).map(str::to_owned).collect();
    if finished.late {
        wrong.push("the program hung".into());
    } else if !finished.status.success() && wrong.is_empty() {
        let last = finished.stderr.lines().last().unwrap_or_default();
        wrong.push(format!("the program ended with {}: {last}", finished.status));
    }
    (right, wrong)
}

/// The product: what `RGPU_TEST_BINARIES` names, or the release build.
pub(crate) fn product() -> Result<Product> {
    if std::env::var_os("RGPU_TEST_BINARIES").is_none() {
        build(Parts::All)?;
    }
    Product::build()
}

/// Runs the programs whose names match, prints what came of each part, and says whether all were right. Programs whose packages
/// cannot be installed are skipped by name.
pub(crate) fn frameworks(filter: &[String]) -> Result<bool> {
    let product = product()?;
    let daemon = Daemon::start(&product)?;
    let (mut all_right, mut skipped) = (true, Vec::new());
    println!("\n  {:<18} {:<12} {:>6} {:>7} {:>9}", "program", "device", "right", "failed", "time");
    for program in programs(filter)? {
        let python = match environment(&program.packages) {
            Ok(python) => python,
            Err(error) => {
                skipped.push(format!("{}: {error:#}", program.name));
                continue;
            }
        };
        for way in ["in-process", "tcp"] {
            let mut command = match way {
                "tcp" => product.run(daemon.address()),
                _ => product.run_in_process(),
            };
            if way == "tcp" {
                command.args(["--transport", way]);
            }
            command.arg("--").arg(&python).arg(&program.path);
            let finished = Running::start(&mut command)?.finish_within(PATIENCE)?;
            let (right, wrong) = verdict(&finished);
            let took = format!("{:.1} s", finished.took.as_secs_f64());
            println!("  {:<18} {way:<12} {right:>6} {:>7} {took:>9}", program.name, wrong.len());
            wrong.iter().for_each(|line| println!("      {line}"));
            all_right &= wrong.is_empty() && right > 0;
        }
    }
    println!();
    skipped.iter().for_each(|line| println!("skipped {line}"));
    Ok(all_right)
}
