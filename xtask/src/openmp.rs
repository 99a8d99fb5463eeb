//! `cargo xtask openmp`: kernels on the software GPU beside the same work in C++ with OpenMP.
//!
//! Each file of `bench/openmp` is two programs. nvcc compiles one, which runs in-process on the software GPU; g++ compiles
//! the other twice, as plain `-O2` code without vectors and with all that `-O3 -march=native` knows. All of them run by turns on
//! the same processors, and what counts is the shortest time of each, so that the ratios are those of one run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use rgpu_tests::examples;
use rgpu_tests::process;
use rgpu_tests::product::{Product, clean};
use rgpu_tests::toolkit::{Toolkit, Version};

/// Which programs, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only programs whose name contains this
    filter: Vec<String>,
    /// How many times each program is started; they take turns
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// How often each of them does its work, after once to warm up
    #[arg(long, default_value_t = 60)]
    runs: u32,
    /// By how much the work is multiplied
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// One more column: the software GPU with these settings, `NAME=VALUE[,NAME=VALUE…]`
    #[arg(long, value_name = "SETTINGS")]
    with: Vec<String>,
    /// One more column: the `rgpu` and `librgpu.so` in this folder, as of an older build
    #[arg(long, value_name = "FOLDER")]
    beside: Vec<PathBuf>,
}

/// A way to do a program's work.
struct Way {
    /// The column's heading.
    name: String,
    kind: Kind,
}

enum Kind {
    /// What g++ made, by the ending of its name.
    Compiled { suffix: &'static str },
    /// nvcc, and this product's software GPU with these settings.
    Software { product: Product, settings: Vec<(String, String)> },
}

/// What a program printed.
struct Outcome {
    seconds: f64,
    digest: f64,
    tolerance: f64,
}

/// The C++ compilations, the slower first.
const COMPILED: [(&str, &str, &[&str]); 2] =
    [("-O2", "o2", &["-O2", "-fno-tree-vectorize"]), ("-O3 -march=native", "o3", &["-O3", "-march=native"])];

/// Compiles, runs and prints a table. Whether all results agreed.
pub(crate) fn compare(arguments: &Arguments) -> Result<bool> {
    ensure!(arguments.rounds > 0 && arguments.runs > 0, "At least one round of one run is needed");
    crate::build(crate::Parts::All)?;
    let (toolkit, _) = crate::toolkit()?;
    let sources = sources(&arguments.filter)?;
    let ways = ways(arguments)?;
    println!("Compiling {} programs", sources.len());
    for source in &sources {
        compile(&toolkit, source)?;
    }

    let names: Vec<_> = ways.iter().map(|way| way.name.as_str()).collect();
    let over: Vec<_> = names[COMPILED.len()..]
        .iter()
        .flat_map(|way| COMPILED.iter().map(move |(compiled, ..)| format!("{way} ÷ {compiled}")))
        .collect();
    println!("| program | {} (ms) | {} |", names.join(" (ms) | "), over.join(" | "));
    println!("| --- |{}", " ---: |".repeat(names.len() + over.len()));
    let mut ratios: BTreeMap<usize, Vec<(f64, String)>> = BTreeMap::new();
    let mut agree = true;
    for source in &sources {
        let name = stem(source);
        let mut best = vec![f64::INFINITY; ways.len()];
        let mut reference: Option<Outcome> = None;
        for _ in 0..arguments.rounds {
            for (way, best) in ways.iter().zip(&mut best) {
                let outcome =
                    run(way, &name, arguments).with_context(|| format!("{name} with {}", way.name))?;
                *best = best.min(outcome.seconds);
                let first = reference.get_or_insert(Outcome { ..outcome });
                let allowed = first.tolerance * first.digest.abs();
                if (outcome.digest - first.digest).abs() > allowed {
                    println!(
                        "{name}: {} found {}, {} found {}",
                        way.name, outcome.digest, names[0], first.digest
                    );
                    agree = false;
                }
            }
        }
        let mut row = vec![name.clone()];
        row.extend(best.iter().map(|seconds| format!("{:.2}", seconds * 1e3)));
        let mut column = 0;
        for software in &best[COMPILED.len()..] {
            for compiled in &best[..COMPILED.len()] {
                let ratio = software / compiled;
                row.push(format!("{ratio:.2}"));
                ratios.entry(column).or_default().push((ratio, name.clone()));
                column += 1;
            }
        }
        println!("| {} |", row.join(" | "));
    }
    for (column, ratios) in ratios {
        let mean = (ratios.iter().map(|(ratio, _)| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
        let worst = ratios.iter().max_by(|a, b| a.0.total_cmp(&b.0)).context("There is no program")?;
        println!("{}: geometric mean {mean:.2}, largest {:.2} ({})", over[column], worst.0, worst.1);
    }
    Ok(agree)
}

fn ways(arguments: &Arguments) -> Result<Vec<Way>> {
    let mut ways: Vec<_> = COMPILED
        .iter()
        .map(|&(name, suffix, _)| Way { name: name.to_owned(), kind: Kind::Compiled { suffix } })
        .collect();
    let software = |name: String, product, settings| Way { name, kind: Kind::Software { product, settings } };
    ways.push(software("rgpu".to_owned(), Product::built()?, vec![]));
    for with in &arguments.with {
        let settings = with.split(',').map(|setting| {
            let pair = setting.split_once('=').with_context(|| format!("`{setting}` is not NAME=VALUE"))?;
            Ok((pair.0.to_owned(), pair.1.to_owned()))
        });
        ways.push(software(with.clone(), Product::built()?, settings.collect::<Result<_>>()?));
    }
    for folder in &arguments.beside {
        let name = folder.display().to_string();
        ways.push(software(name, Product::in_directory(folder)?, vec![]));
    }
    Ok(ways)
}

fn directory() -> PathBuf {
    examples::repository().join("bench/openmp")
}

/// The files there whose names end so, in order.
fn files(extension: &str) -> Result<Vec<PathBuf>> {
    let mut files = fs::read_dir(directory())?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    files.sort();
    Ok(files)
}

fn sources(filter: &[String]) -> Result<Vec<PathBuf>> {
    let mut sources = files("cu")?;
    sources.retain(|path| {
        let name = stem(path);
        filter.is_empty() || filter.iter().any(|part| name.contains(part.as_str()))
    });
    ensure!(!sources.is_empty(), "No program in {} has such a name", directory().display());
    Ok(sources)
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Where a program lies once it is compiled.
fn program(name: &str, suffix: &str) -> PathBuf {
    examples::target().join("openmp").join(format!("{name}.{suffix}"))
}

/// Compiles what is older than its sources.
fn compile(toolkit: &Toolkit, source: &Path) -> Result<()> {
    let name = stem(source);
    let mut inputs = files("h")?;
    inputs.push(source.to_owned());
    let changed =
        inputs.iter().map(|file| Ok(fs::metadata(file)?.modified()?)).collect::<Result<Vec<_>>>()?;
    let changed = changed.into_iter().max();
    let current = |program: &Path| fs::metadata(program).and_then(|m| m.modified()).ok() >= changed;
    fs::create_dir_all(examples::target().join("openmp"))?;
    for (_, suffix, options) in COMPILED {
        let program = program(&name, suffix);
        if !current(&program) {
            let mut command = Command::new("g++");
            command.args(["-std=c++17", "-fopenmp", "-x", "c++"]).args(options);
            process::run(command.arg(source).arg("-o").arg(program))?.success()?;
        }
    }
    let program = program(&name, "cuda");
    if !current(&program) {
        let mut command = Command::new(toolkit.nvcc());
        command.args(toolkit.compile_options(Version::Cuda13)).args(["-std=c++17", "-O3"]);
        command.arg("-L").arg(toolkit.lib(Version::Cuda13));
        process::run(command.arg(source).arg("-o").arg(program))?.success()?;
    }
    Ok(())
}

fn run(way: &Way, name: &str, arguments: &Arguments) -> Result<Outcome> {
    let mut command = match &way.kind {
        Kind::Compiled { suffix } => clean(&program(name, suffix)),
        Kind::Software { product, settings } => {
            let mut command = product.run_in_process();
            command.envs(settings.iter().map(|(name, value)| (name, value)));
            command.arg("--").arg(program(name, "cuda"));
            command
        }
    };
    command.arg(arguments.runs.to_string()).arg(arguments.scale.to_string());
    let finished = process::run(&mut command)?.success()?;
    let number = |key: &str| -> Result<f64> {
        let line = finished.stdout.lines().find_map(|line| line.strip_prefix(key));
        let Some(text) = line else { bail!("It printed no line `{}`", key.trim()) };
        Ok(text.trim().parse()?)
    };
    Ok(Outcome { seconds: number("seconds ")?, digest: number("digest ")?, tolerance: number("tolerance ")? })
}
