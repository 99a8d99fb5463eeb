//! Running targets, and saying what failed such that it can be repeated.

use crate::input;
use crate::memory;
use crate::random::Random;
use crate::targets::Target;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One input takes far less; this only tells hanging from working.
const HANG: Duration = Duration::from_secs(30);

/// How long a run is.
#[derive(Debug, Clone, Copy)]
pub enum Length {
    /// For so long.
    Time(Duration),
    /// So many inputs.
    Inputs(u64),
}

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Chooses the inputs.
    pub seed: u64,
    /// The first input's number.
    pub from: u64,
    /// How long each target runs.
    pub length: Length,
    /// Where a failing input is written.
    pub failures: PathBuf,
}

/// What came of a target.
#[derive(Debug)]
pub struct Outcome {
    /// How many inputs it got.
    pub inputs: u64,
    /// How many of them the decoder accepted.
    pub accepted: u64,
    /// How long that took.
    pub took: Duration,
    /// What failed, in words for people.
    pub failure: Option<String>,
}

/// Where a target is, for whoever watches for one that hangs.
#[derive(Debug, Default)]
struct Watched {
    number: AtomicU64,
    over: AtomicBool,
}

/// Ends the process where a target does not come back from an input, saying which.
fn watch(target: &'static Target, plan: &Plan, watched: &Arc<Watched>) {
    let (plan, watched) = (plan.clone(), watched.clone());
    std::thread::spawn(move || {
        let mut last = (u64::MAX, Instant::now());
        while !watched.over.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(200));
            let number = watched.number.load(Relaxed);
            if number != last.0 {
                last = (number, Instant::now());
            } else if last.1.elapsed() > HANG {
                let mut bytes = Vec::new();
                target.input(&mut Random::of(target.name, plan.seed, number), &target.material(), &mut bytes);
                eprintln!("{}", report(target, &plan, number, &bytes, "it has not come back for 30 seconds"));
                std::process::exit(1);
            }
        }
    });
}

/// Says what failed and how to repeat it, and writes the input to a file.
fn report(target: &Target, plan: &Plan, number: u64, bytes: &[u8], why: &str) -> String {
    let name = format!("{}-{}-{number}", target.name, plan.seed);
    let path = plan.failures.join(name);
    let written = std::fs::create_dir_all(&plan.failures).and_then(|()| std::fs::write(&path, bytes));
    let mut text = format!("{} fails at input {number} of seed {}: {why}\n", target.name, plan.seed);
    let _ = match written {
        Ok(()) => writeln!(text, "  the input ({} bytes) is in {}", bytes.len(), path.display()),
        Err(e) => writeln!(text, "  the input ({} bytes) could not be written: {e}", bytes.len()),
    };
    let (name, seed) = (target.name, plan.seed);
    let _ = write!(
        text,
        "  again: cargo xtask fuzz --target {name} --seed {seed} --from {number} --frames 1\n  or: cargo xtask fuzz --target {name} --input {}",
        path.display()
    );
    text
}

/// Gives one input to a target. Says whether it was accepted, or what is wrong.
fn one(target: &Target, bytes: &[u8]) -> Result<bool, String> {
    let (result, most) = memory::most_held(|| catch_unwind(AssertUnwindSafe(|| (target.run)(bytes))));
    let allowed = target.memory + target.memory_per_byte * bytes.len();
    match result {
        Err(_) => Err(format!("it panics{}", last_panic())),
        Ok(Err(text)) => Err(text),
        Ok(Ok(_)) if most > allowed => {
            Err(format!("it holds {most} bytes for an input of {}, and {allowed} are allowed", bytes.len()))
        }
        Ok(Ok(accepted)) => Ok(accepted),
    }
}

static PANIC: Mutex<String> = Mutex::new(String::new());

fn last_panic() -> String {
    std::mem::take(&mut *PANIC.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Keeps what panics say, in place of printing it. To be called once, before anything runs.
pub fn keep_panics() {
    std::panic::set_hook(Box::new(|about| {
        let text = format!(": {about}").replace('\n', " ");
        *PANIC.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }));
}

/// Runs a target over generated inputs, until one fails.
pub fn run(target: &'static Target, plan: &Plan) -> Outcome {
    let material = target.material();
    let watched = Arc::new(Watched::default());
    watch(target, plan, &watched);
    let start = Instant::now();
    let (mut bytes, mut inputs, mut accepted, mut failure) = (Vec::new(), 0, 0, None);
    loop {
        let over = match plan.length {
            Length::Inputs(most) => inputs >= most,
            Length::Time(time) => inputs % 64 == 0 && start.elapsed() >= time,
        };
        if over {
            break;
        }
        let number = plan.from + inputs;
        watched.number.store(number, Relaxed);
        target.input(&mut Random::of(target.name, plan.seed, number), &material, &mut bytes);
        inputs += 1;
        match one(target, &bytes) {
            Ok(good) => accepted += u64::from(good),
            Err(why) => {
                failure = Some(report(target, plan, number, &bytes, &why));
                break;
            }
        }
    }
    watched.over.store(true, Relaxed);
    Outcome { inputs, accepted, took: start.elapsed(), failure }
}

/// Runs a target over the inputs that are kept for it in a directory: those that once failed.
pub fn run_kept(target: &Target, directory: &Path) -> std::io::Result<Result<usize, String>> {
    let mut count = 0;
    let files = match std::fs::read_dir(directory.join(target.name)) {
        Ok(files) => files,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Ok(0)),
        Err(e) => return Err(e),
    };
    for file in files {
        let path = file?.path();
        count += 1;
        if let Err(why) = one(target, &std::fs::read(&path)?) {
            return Ok(Err(format!("{} fails with {}: {why}", target.name, path.display())));
        }
    }
    Ok(Ok(count))
}

/// Runs a target over one input.
pub fn run_one(target: &Target, bytes: &[u8]) -> Result<bool, String> {
    one(target, bytes)
}

impl Target {
    /// Makes the input with this stream.
    pub fn input(&self, random: &mut Random, material: &input::Material, into: &mut Vec<u8>) {
        let generated = match self.generate {
            Some(generate) if random.one_in(2) => {
                into.clear();
                generate(random, into);
                true
            }
            _ => false,
        };
        input::make(random, into, generated, material);
    }
}
