//! A small test runner with the habits of Rust's own, in which a running test can find that it has to be
//! skipped, and tests can be made in loops.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::Result;

/// Returned by a test that cannot run here.
#[derive(Debug)]
pub struct Skip(pub String);

impl std::fmt::Display for Skip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}

/// One test.
pub struct Test {
    name: String,
    alone: bool,
    body: Box<dyn FnOnce() -> Result<()> + Send>,
}

impl Test {
    /// A test that may run beside others.
    pub fn new(name: impl Into<String>, body: impl FnOnce() -> Result<()> + Send + 'static) -> Self {
        Self { name: name.into(), alone: false, body: Box::new(body) }
    }

    /// A test that measures, or loads the machine, and runs while no other does.
    pub fn alone(name: impl Into<String>, body: impl FnOnce() -> Result<()> + Send + 'static) -> Self {
        Self { alone: true, ..Self::new(name, body) }
    }
}

enum Verdict {
    Passed,
    Failed(String),
    Skipped(String),
}

struct Options {
    filters: Vec<String>,
    skip: Vec<String>,
    exact: bool,
    list: bool,
    threads: usize,
}

fn options() -> Options {
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get());
    let mut options = Options { filters: vec![], skip: vec![], exact: false, list: false, threads };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--exact" => options.exact = true,
            "--list" => options.list = true,
            "--skip" => options.skip.extend(arguments.next()),
            "--test-threads" => {
                options.threads = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(threads).max(1);
            }
            // Options of Rust's own runner that make no difference here.
            "--format" | "--color" | "--logfile" | "-Z" => drop(arguments.next()),
            a if a.starts_with('-') => {}
            _ => options.filters.push(argument),
        }
    }
    options
}

/// Runs the tests that the command line asks for, and says how they went.
pub fn main(tests: Vec<Test>) -> ExitCode {
    let options = options();
    let matches =
        |name: &str, pattern: &String| if options.exact { name == pattern } else { name.contains(pattern) };
    let count = tests.len();
    let tests: Vec<Test> = tests
        .into_iter()
        .filter(|t| options.filters.is_empty() || options.filters.iter().any(|f| matches(&t.name, f)))
        .filter(|t| !options.skip.iter().any(|f| matches(&t.name, f)))
        .collect();
    let filtered = count - tests.len();
    if options.list {
        tests.iter().for_each(|t| println!("{}: test", t.name));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", tests.len());
    let start = Instant::now();
    let (alone, together): (Vec<_>, Vec<_>) = tests.into_iter().partition(|t| t.alone);
    let results = Mutex::new(vec![]);
    for (group, threads) in [(together, options.threads), (alone, 1)] {
        let queue = Mutex::new(VecDeque::from(group));
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let next = queue.lock().expect("tests are run outside the lock").pop_front();
                        let Some(test) = next else { break };
                        let name = test.name.clone();
                        let verdict = run(test);
                        results.lock().expect("nothing panics here").push((name, verdict));
                    }
                });
            }
        });
    }
    let results = results.into_inner().expect("nothing panics here");
    let mut failures: Vec<_> = results
        .iter()
        .filter_map(|(n, v)| if let Verdict::Failed(why) = v { Some((n, why)) } else { None })
        .collect();
    failures.sort();
    if !failures.is_empty() {
        println!("\nfailures:\n");
        for (name, why) in &failures {
            println!("---- {name} ----\n{why}\n");
        }
    }
    let skipped = results.iter().filter(|r| matches!(r.1, Verdict::Skipped(_))).count();
    let failed = failures.len();
    println!(
        "\ntest result: {}. {} passed; {failed} failed; {skipped} ignored; 0 measured; {filtered} filtered out; finished in {:.2}s\n",
        if failed == 0 { "ok" } else { "FAILED" },
        results.len() - failed - skipped,
        start.elapsed().as_secs_f64()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(test: Test) -> Verdict {
    let start = Instant::now();
    let verdict = match catch_unwind(AssertUnwindSafe(test.body)) {
        Ok(Ok(())) => Verdict::Passed,
        Ok(Err(e)) => match e.downcast::<Skip>() {
            Ok(Skip(why)) => Verdict::Skipped(why),
            Err(e) => Verdict::Failed(format!("{e:#}")),
        },
        Err(panic) => Verdict::Failed(
            panic
                .downcast_ref::<&str>()
                .map(|s| (*s).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "a panic".to_owned()),
        ),
    };
    let seconds = start.elapsed().as_secs_f64();
    let name = &test.name;
    match &verdict {
        Verdict::Passed => println!("test {name} ... ok ({seconds:.2} s)"),
        Verdict::Failed(_) => println!("test {name} ... FAILED ({seconds:.2} s)"),
        Verdict::Skipped(why) => println!("test {name} ... ignored, {why}"),
    }
    verdict
}
