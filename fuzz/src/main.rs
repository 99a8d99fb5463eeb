//! `cargo xtask fuzz`.

use clap::Parser;
use rgpu_fuzz::memory::Counting;
use rgpu_fuzz::run::{self, Length, Plan};
use rgpu_fuzz::{TARGETS, Target};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Feeds generated and damaged inputs to every decoder that reads what another party sends
#[derive(Debug, Parser)]
#[command(name = "cargo xtask fuzz")]
struct Arguments {
    /// Only the target of this name; may be given more than once
    #[arg(long, value_name = "NAME")]
    target: Vec<String>,
    /// So many seconds in all, shared by the targets
    #[arg(long, value_name = "N", default_value_t = 60, conflicts_with = "frames")]
    seconds: u64,
    /// So many inputs for each target, in place of a time
    #[arg(long, value_name = "N")]
    frames: Option<u64>,
    /// Chooses the inputs: the same seed gives the same ones
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// The number of the first input
    #[arg(long, value_name = "N", default_value_t = 0)]
    from: u64,
    /// How many targets run at a time [default: as many as there are processors]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Gives this file to the target, and nothing else
    #[arg(long, value_name = "FILE", requires = "target")]
    input: Option<PathBuf>,
    /// Where failing inputs are written
    #[arg(long, value_name = "DIR", default_value = "target/fuzz")]
    failures: PathBuf,
    /// Lists the targets
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    match go(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn go(arguments: &Arguments) -> anyhow::Result<bool> {
    if arguments.list {
        TARGETS.iter().for_each(|target| println!("{:14} {}", target.name, target.about));
        return Ok(true);
    }
    let targets = chosen(&arguments.target)?;
    run::keep_panics();
    if let Some(path) = &arguments.input {
        let bytes = std::fs::read(path)?;
        for target in targets {
            match run::run_one(target, &bytes) {
                Ok(accepted) => {
                    println!("{}: {}", target.name, if accepted { "accepted" } else { "refused" })
                }
                Err(why) => {
                    println!("{}: {why}", target.name);
                    return Ok(false);
                }
            }
        }
        return Ok(true);
    }
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for target in &targets {
        if let Err(why) = run::run_kept(target, &kept)? {
            eprintln!("{why}");
            return Ok(false);
        }
    }
    Ok(run_all(&targets, arguments))
}

fn chosen(names: &[String]) -> anyhow::Result<Vec<&'static Target>> {
    let named = |name: &String| {
        Target::named(name).ok_or_else(|| anyhow::anyhow!("there is no target {name:?}: --list names them"))
    };
    if names.is_empty() { Ok(TARGETS.iter().collect()) } else { names.iter().map(named).collect() }
}

/// Runs targets, a few at a time; says how each went.
fn run_all(targets: &[&'static Target], arguments: &Arguments) -> bool {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.unwrap_or(processors).clamp(1, targets.len());
    let length = match arguments.frames {
        Some(inputs) => Length::Inputs(inputs),
        None => Length::Time(Duration::from_secs(arguments.seconds) * jobs as u32 / targets.len() as u32),
    };
    let plan =
        Plan { seed: arguments.seed, from: arguments.from, length, failures: arguments.failures.clone() };
    let start = Instant::now();
    let next = std::sync::Mutex::new(targets.iter());
    let totals = std::sync::Mutex::new((0u64, true));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let Some(target) = next.lock().ok().and_then(|mut next| next.next().copied()) else {
                        return;
                    };
                    let outcome = run::run(target, &plan);
                    let rate = outcome.inputs as f64 / outcome.took.as_secs_f64().max(1e-9);
                    let (inputs, accepted) = (outcome.inputs, outcome.accepted);
                    println!(
                        "{:14} {inputs:>12} inputs, {accepted:>12} accepted, {rate:>10.0} in a second",
                        target.name
                    );
                    if let Some(failure) = &outcome.failure {
                        eprintln!("{failure}");
                    }
                    if let Ok(mut totals) = totals.lock() {
                        totals.0 += inputs;
                        totals.1 &= outcome.failure.is_none();
                    }
                }
            });
        }
    });
    let (inputs, good) = totals.into_inner().unwrap_or_default();
    println!(
        "{} targets, {inputs} inputs, seed {}, {:.1} s: {}",
        targets.len(),
        plan.seed,
        start.elapsed().as_secs_f64(),
        if good { "nothing failed" } else { "something failed" }
    );
    good
}
