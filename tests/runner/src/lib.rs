//! Runs tests that Rust's own runner cannot: tests that are made in loops, that find only while they run that they have to be skipped, or
//! that need the machine for themselves; in test programs that have a main function (`harness = false`).
//!
//! [`libtest_mimic`] does the work, so options and output are those of Rust's own runner. What is added here: several filters, as that
//! takes them, tests that run [alone](Test::alone), and which tests took longest.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use anyhow::Result;
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// Returned by a test that cannot run here, with the reason.
#[derive(Debug)]
pub struct Skip(pub String);

impl std::fmt::Display for Skip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}

/// One test. It fails by an error or a panic, and is skipped by returning a [`Skip`].
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

    /// The test as the library runs it.
    fn trial(self, one_at_a_time: bool) -> Trial {
        let alone = self.alone || one_at_a_time;
        let name = self.name.clone();
        Trial::ignorable_test(self.name, move || {
            // A test that panics leaves nothing behind here.
            let _together = (!alone).then(|| RUNNING.read().unwrap_or_else(PoisonError::into_inner));
            let _alone = alone.then(|| RUNNING.write().unwrap_or_else(PoisonError::into_inner));
            let start = Instant::now();
            let outcome = (self.body)();
            TOOK.lock().unwrap_or_else(PoisonError::into_inner).push((start.elapsed(), name));
            match outcome {
                Ok(()) => Ok(Completion::Completed),
                Err(e) => match e.downcast::<Skip>() {
                    Ok(Skip(why)) => Ok(Completion::ignored_with(why)),
                    Err(e) => Err(Failed::from(format!("{e:#}"))),
                },
            }
        })
    }
}

/// So many tests run at once for each processor, where the command line does not say how many: about half of their time they wait.
const PER_PROCESSOR: usize = 2;

/// Written by a test that runs alone, read by the others while they run.
static RUNNING: RwLock<()> = RwLock::new(());

/// How long the tests took that have returned.
static TOOK: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// So many tests are named at the end, if they took longer than [`LONG`].
const SLOWEST: usize = 20;

/// What is worth a word.
const LONG: Duration = Duration::from_secs(5);

/// What the command line asks for.
struct Asked {
    arguments: Arguments,
    /// Where several are given, a test has to match one of them.
    filters: Vec<String>,
}

impl Asked {
    fn parse(words: impl IntoIterator<Item = OsString>) -> Self {
        const WITH_VALUE: [&str; 6] = ["--test-threads", "--skip", "--logfile", "--color", "--format", "-Z"];
        let (mut filters, mut options, mut words) = (Vec::new(), Vec::new(), words.into_iter());
        options.extend(words.next());
        while let Some(word) = words.next() {
            let text = word.to_string_lossy().into_owned();
            if !text.starts_with('-') {
                filters.push(text);
                continue;
            }
            options.push(word);
            if WITH_VALUE.contains(&text.as_str()) {
                options.extend(words.next());
            }
        }
        let mut arguments = Arguments::from_iter(options);
        if filters.len() == 1 {
            arguments.filter = filters.pop();
        }
        Self { arguments, filters }
    }

    fn matches(&self, name: &str) -> bool {
        let any = |filter: &String| if self.arguments.exact { name == filter } else { name.contains(filter) };
        self.filters.is_empty() || self.filters.iter().any(any)
    }
}

/// Runs the tests that the command line asks for, those that run alone last, and says how they went.
pub fn main(mut tests: Vec<Test>) -> ExitCode {
    let mut asked = Asked::parse(std::env::args_os());
    tests.retain(|test| asked.matches(&test.name));
    tests.sort_by_key(|test| test.alone);
    // With one thread the library would print a test's name before the test and the verdict after whatever it prints.
    let one_at_a_time = asked.arguments.test_threads == Some(1);
    if one_at_a_time {
        asked.arguments.test_threads = Some(2);
    }
    asked.arguments.test_threads.get_or_insert_with(|| {
        PER_PROCESSOR * std::thread::available_parallelism().map_or(1, |processors| processors.get())
    });
    let trials = tests.into_iter().map(|test| test.trial(one_at_a_time)).collect();
    let conclusion = libtest_mimic::run(&asked.arguments, trials);
    tell_slowest(&mut TOOK.lock().unwrap_or_else(PoisonError::into_inner));
    if conclusion.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Names the tests that took longest, where some took long.
fn tell_slowest(took: &mut [(Duration, String)]) {
    took.sort_by(|a, b| b.cmp(a));
    let mut long = took.iter().take(SLOWEST).take_while(|(time, _)| *time >= LONG).peekable();
    if long.peek().is_some() {
        println!("slowest:");
    }
    long.for_each(|(time, name)| println!("{:>8.1} s  {name}", time.as_secs_f64()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    fn names(words: &str, tests: &[&str]) -> Vec<String> {
        let asked = Asked::parse(words.split(' ').map(OsString::from));
        let tests = tests.iter().filter(|name| asked.matches(name));
        let trials = tests.map(|name| Test::new(*name, || Ok(())).trial(false));
        let wanted = trials.filter(|trial| !asked.arguments.is_filtered_out(trial));
        wanted.map(|trial| trial.name().to_owned()).collect()
    }

    #[test]
    fn several_filters_are_taken_as_by_rusts_own_runner() {
        let tests = ["a::one", "a::two", "b::one"];
        assert_eq!(names("x", &tests), tests);
        assert_eq!(names("x a::", &tests), ["a::one", "a::two"]);
        assert_eq!(names("x two b::", &tests), ["a::two", "b::one"]);
        assert_eq!(names("x --test-threads 1 --exact a::two one b::one", &tests), ["a::two", "b::one"]);
        assert_eq!(names("x one --skip b", &tests), ["a::one"]);
        assert_eq!(names("x --skip a --skip=b", &tests), [""; 0]);
        let asked = Asked::parse(["x", "--test-threads", "3", "a"].map(OsString::from));
        assert_eq!((asked.arguments.test_threads, asked.arguments.filter.as_deref()), (Some(3), Some("a")));
    }

    #[test]
    fn verdicts_are_those_of_the_tests_and_who_wants_to_be_alone_is() {
        static BESIDE: AtomicU32 = AtomicU32::new(0);
        let body = |most: u32| {
            move || {
                let others = BESIDE.fetch_add(1, SeqCst);
                std::thread::sleep(Duration::from_millis(20));
                BESIDE.fetch_sub(1, SeqCst);
                anyhow::ensure!(others < most, "{others} others run");
                Ok(())
            }
        };
        let tests = vec![
            Test::new("beside", body(9)),
            Test::new("beside too", body(9)),
            Test::alone("alone", body(1)),
            Test::alone("alone, too", body(1)),
            Test::new("skipped", || Err(Skip("it rains".into()).into())),
            Test::new("failing", || anyhow::bail!("no")),
            Test::new("panicking", || panic!("no")),
        ];
        // Whoever counts the lines of test runners must not see what this one says.
        let logfile = Some("/dev/null".to_owned());
        let arguments = Arguments { test_threads: Some(4), logfile, ..Arguments::default() };
        let trials = tests.into_iter().map(|test| test.trial(false)).collect();
        let conclusion = libtest_mimic::run(&arguments, trials);
        assert_eq!((conclusion.num_passed, conclusion.num_failed, conclusion.num_ignored), (4, 2, 1));
    }
}
