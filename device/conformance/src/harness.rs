//! A harness for test programs that have a `main` of their own, because they are started again as something else.
//!
//! It understands what libtest's users pass most (`--list`, `--exact`, `--test-threads=N`, a filter) and prints what
//! libtest prints.

use crate::{CASES, Needs, Open};
use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What the command line asks for.
#[derive(Default)]
struct Wanted {
    filters: Vec<String>,
    exact: bool,
    list: bool,
    threads: Option<usize>,
}

impl Wanted {
    fn from_arguments() -> Self {
        let mut wanted = Self::default();
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            match argument.split_once('=').unwrap_or((&argument, "")) {
                ("--exact", _) => wanted.exact = true,
                ("--list", _) => wanted.list = true,
                ("--test-threads", "") => wanted.threads = arguments.next().and_then(|n| n.parse().ok()),
                ("--test-threads", count) => wanted.threads = count.parse().ok(),
                (other, _) if other.starts_with('-') => {}
                _ => wanted.filters.push(argument),
            }
        }
        wanted
    }

    fn is(&self, name: &str) -> bool {
        let fits = |filter: &String| if self.exact { name == filter } else { name.contains(filter.as_str()) };
        self.filters.is_empty() || self.filters.iter().any(fits)
    }
}

/// Runs all cases over each of these devices, each case as a test named after both; but for those that need what the
/// devices lack.
pub fn run(devices: &[(&str, Open)], lacking: &[Needs]) -> ExitCode {
    let wanted = Wanted::from_arguments();
    let mut tests = Vec::new();
    for (device, open) in devices {
        for case in CASES.iter().filter(|case| !lacking.contains(&case.needs)) {
            tests.push((format!("{device}::{}", case.name), case.run, *open));
        }
    }
    let all = tests.len();
    tests.retain(|test| wanted.is(&test.0));
    if wanted.list {
        tests.iter().for_each(|test| println!("{}: test", test.0));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", tests.len());
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = wanted.threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from));
    std::thread::scope(|scope| {
        for _ in 0..threads.unwrap_or(1).max(1) {
            scope.spawn(|| {
                while let Some((name, case, open)) = tests.get(next.fetch_add(1, Relaxed)) {
                    let outcome = catch_unwind(|| case(*open));
                    println!("test {name} ... {}", if outcome.is_ok() { "ok" } else { "FAILED" });
                    if outcome.is_err() {
                        failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(name.as_str());
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    if !failed.is_empty() {
        println!("\nfailures:");
        failed.iter().for_each(|name| println!("    {name}"));
    }
    let (verdict, passed) = (if failed.is_empty() { "ok" } else { "FAILED" }, tests.len() - failed.len());
    let (failures, left_out) = (failed.len(), all - tests.len());
    println!(
        "\ntest result: {verdict}. {passed} passed; {failures} failed; 0 ignored; 0 measured; {left_out} filtered out\n"
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
