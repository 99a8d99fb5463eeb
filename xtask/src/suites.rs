//! `cargo xtask frameworks --suites`: the frameworks' own test suites on a software GPU.
//!
//! A suite is one file in `tests/frameworks/suites`: which packages, where their tests are, which of them are left out, and which
//! fail for a cause that is known. Each file of tests has a process of its own, which is started again for those that are left where
//! a test kills it or hangs. A failure that nobody expects fails the run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rgpu_tests::process::{Finished, Running};
use rgpu_tests::product::{Daemon, Product};
use rgpu_tests::{cached, examples};
use serde::{Deserialize, Serialize};

use crate::frameworks::{environment, product};

/// Which tests, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Instead: the frameworks' own test suites; a filter is a suite's name, or that, `/` and a part of files' names
    #[arg(long)]
    pub(crate) suites: bool,
    /// With --suites: through a server over TCP, not in the program
    #[arg(long, requires = "suites")]
    tcp: bool,
    /// With --suites: only one test of so many, always the same
    #[arg(long, requires = "suites")]
    one_in: Option<u32>,
}

/// A suite, as its file says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Suite {
    /// What pip installs: the framework in one version, pytest, and what the tests import.
    packages: Vec<String>,
    /// The package and version whose source distribution has the tests, where what pip installs doesn't.
    source: Option<String>,
    /// The tests' folder, below the installed packages or in the source distribution.
    tests: String,
    /// Options of pytest.
    #[serde(default)]
    options: Vec<String>,
    /// Environment variables.
    #[serde(default)]
    variables: BTreeMap<String, String>,
    /// How long a test may take before it counts as hanging.
    test_seconds: u64,
    /// One test of how many is run, unless the command line says otherwise.
    one_in: Option<u32>,
    /// Files that are not run.
    #[serde(default)]
    left_out: Vec<Known>,
    /// Tests that fail.
    #[serde(default)]
    expected: Vec<Known>,
}

/// Tests of which something is known.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Known {
    /// Their names, in which `*` stands for anything.
    tests: Vec<String>,
    /// Why.
    cause: String,
    /// Whether they ask for something that no software GPU can have, such as NVIDIA's machine code.
    #[serde(default)]
    inapplicable: bool,
}

impl Known {
    fn is(&self, test: &str) -> bool {
        self.tests.iter().any(|pattern| matches(pattern, test))
    }
}

/// A line of the file that `rgpu_results.py` writes.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Note {
    test: String,
    outcome: Outcome,
    why: String,
}

/// What a note says of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    Started,
    Passed,
    Failed,
    Skipped,
}

/// How many tests of a group went how.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    passed: usize,
    failed: usize,
    expected: usize,
    inapplicable: usize,
    skipped: usize,
    took: Duration,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.expected += other.expected;
        self.inapplicable += other.inapplicable;
        self.skipped += other.skipped;
        self.took += other.took;
    }

    fn print(&self, name: &str) {
        println!(
            "  {name:<44} {:>7} {:>7} {:>9} {:>13} {:>8} {:>7.0} s",
            self.passed,
            self.failed,
            self.expected,
            self.inapplicable,
            self.skipped,
            self.took.as_secs_f64()
        );
    }
}

/// Whether a name is what a pattern says, in which `*` stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let last = pieces.pop().unwrap_or_default();
    for piece in pieces {
        let Some((_, after)) = name.split_once(piece) else { return false };
        name = after;
    }
    name.ends_with(last)
}

/// The suite that a filter names, and what the names of files have to contain.
fn suite_of(filter: &str) -> (&str, &str) {
    filter.split_once('/').unwrap_or((filter, ""))
}

/// Whether one of the filters, if there are any, has this file.
fn is_meant(filters: &[String], suite: &str, file: &str) -> bool {
    let meant = |filter: &String| {
        let (name, part) = suite_of(filter);
        name == suite && file.contains(part)
    };
    filters.is_empty() || filters.iter().any(meant)
}

/// The suites' folder.
fn folder() -> PathBuf {
    examples::repository().join("tests/frameworks/suites")
}

/// All suites, by name.
fn suites() -> Result<BTreeMap<String, Suite>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = fs::read_to_string(&path)?;
            found.insert(name, toml::from_str(&text).with_context(|| format!("Reading {}", path.display()))?);
        }
    }
    Ok(found)
}

/// A suite that is ready to run.
struct Prepared<'a> {
    name: &'a str,
    suite: &'a Suite,
    python: PathBuf,
    /// Where its tests are.
    tests: PathBuf,
    /// Where notes and what processes write is kept.
    notes: PathBuf,
    product: &'a Product,
    daemon: Option<&'a Daemon>,
    one_in: u32,
}

/// The folder of an environment's packages.
fn packages(python: &Path) -> Result<PathBuf> {
    let output = Command::new(python)
        .args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
        .output()
        .context("Asking Python for its packages")?;
    ensure!(output.status.success(), "{} does not run", python.display());
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

/// A source distribution's folder, in the user's cache directory; fetched where it is not there yet.
fn source(python: &Path, package: &str) -> Result<PathBuf> {
    let parent = cached::cache()?.join("sources");
    let unpacked = parent.join(package.replace("==", "-"));
    if unpacked.exists() {
        return Ok(unpacked);
    }
    println!("fetching the source distribution of {package} into {}", unpacked.display());
    let temporary = parent.join(format!("fetching-{}", std::process::id()));
    let status =
        Command::new(python).arg(folder().join("source.py")).arg(package).arg(&temporary).status()?;
    ensure!(status.success(), "the source distribution of {package} cannot be fetched");
    fs::rename(temporary.join(package.replace("==", "-")), &unpacked).context("It is laid out otherwise")?;
    fs::remove_dir_all(&temporary)?;
    Ok(unpacked)
}

/// The notes that have been written so far. A line that is not complete was being written when the process died.
fn read(notes: &Path) -> Vec<Note> {
    let text = fs::read_to_string(notes).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn write(notes: &Path, note: &Note) -> Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(notes)?;
    writeln!(file, "{}", serde_json::to_string(note)?)?;
    Ok(())
}

/// The test that has been started last, if it has not ended.
fn unfinished(notes: &[Note]) -> Option<&str> {
    notes.last().filter(|note| note.outcome == Outcome::Started).map(|note| note.test.as_str())
}

impl Prepared<'_> {
    /// The files of tests, by their names below the tests' folder, as far as a filter has them.
    fn files(&self, filter: &[String]) -> Result<Vec<String>> {
        let mut found = BTreeSet::new();
        let mut folders = vec![self.tests.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).with_context(|| format!("Reading {}", folder.display()))? {
                let path = entry?.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                if path.is_dir() {
                    folders.push(path);
                } else if name.starts_with("test_") && name.ends_with(".py") {
                    found.insert(path.strip_prefix(&self.tests)?.to_string_lossy().into_owned());
                }
            }
        }
        Ok(found.into_iter().filter(|file| is_meant(filter, self.name, file)).collect())
    }

    /// A process that runs what a file's notes do not have yet, watched until it ends or a test takes too long.
    fn run_once(&self, file: &str, notes: &Path) -> Result<Finished> {
        let mut command = match self.daemon {
            Some(daemon) => self.product.run(daemon.address()),
            None => self.product.run_in_process(),
        };
        if self.daemon.is_some() {
            command.args(["--transport", "tcp"]);
        }
        command.arg("--").arg(&self.python);
        command.args([
            "-m",
            "pytest",
            "-q",
            "-p",
            "rgpu_results",
            "-p",
            "no:cacheprovider",
            "-c",
            "/dev/null",
        ]);
        command.arg(format!("--rootdir={}", self.tests.display()));
        command.args(&self.suite.options).arg(self.tests.join(file));
        command.envs(&self.suite.variables).env("PYTHONPATH", folder()).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("RGPU_SUITE_RESULTS", notes).env("RGPU_SUITE_ONE_IN", self.one_in.to_string());
        command.current_dir(&self.notes);
        let mut running = Running::start(&mut command)?;
        let length = || fs::metadata(notes).map_or(0, |about| about.len());
        let (mut seen, mut since) = (length(), Instant::now());
        while running.is_running() {
            if length() != seen {
                (seen, since) = (length(), Instant::now());
            } else if since.elapsed() > Duration::from_secs(self.suite.test_seconds) {
                return running.finish_within(Duration::ZERO);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        running.finish()
    }

    /// Runs a file's tests, and says what came of each.
    fn run(&self, file: &str) -> Result<Vec<Note>> {
        let stem = file.trim_end_matches(".py").replace('/', "-");
        let (notes, log) = (self.notes.join(format!("{stem}.jsonl")), self.notes.join(format!("{stem}.log")));
        let _ = fs::remove_file(&notes); // of an earlier run
        let mut written = fs::File::create(&log)?;
        loop {
            let before = read(&notes).len();
            let finished = self.run_once(file, &notes)?;
            write!(written, "{}{}", finished.stdout, finished.stderr)?;
            let now = read(&notes);
            // pytest's own: all passed, some failed, the file cannot be read, there are none.
            if !finished.late
                && matches!(finished.status.code(), Some(0 | 1 | 2 | 5))
                && unfinished(&now).is_none()
            {
                break;
            }
            let why = match finished.late {
                true => format!("it hung, and was killed after {} s", self.suite.test_seconds),
                false => format!("the process ended with {}", finished.status),
            };
            let test = unfinished(&now).unwrap_or(file).to_owned();
            write(&notes, &Note { test, outcome: Outcome::Failed, why })?;
            if now.len() == before {
                break;
            }
        }
        Ok(read(&notes).into_iter().filter(|note| note.outcome != Outcome::Started).collect())
    }

    /// Runs what a filter has, prints what came of it, and says whether nothing failed that was not expected to.
    fn run_all(&self, filter: &[String]) -> Result<bool> {
        let mut groups: BTreeMap<String, Counts> = BTreeMap::new();
        let (mut unexpected, mut no_longer, mut left_out) = (vec![], vec![], vec![]);
        let mut causes: BTreeMap<&str, usize> = BTreeMap::new();
        for file in self.files(filter)? {
            if let Some(known) = self.suite.left_out.iter().find(|known| known.is(&file)) {
                left_out.push(format!("{file}: {}", known.cause));
                continue;
            }
            let start = Instant::now();
            let notes = self.run(&file)?;
            let mut counts = Counts { took: start.elapsed(), ..Counts::default() };
            for note in notes {
                let known = self.suite.expected.iter().find(|known| known.is(&note.test));
                match (note.outcome, known) {
                    (Outcome::Started, _) => {}
                    (Outcome::Skipped, _) => counts.skipped += 1,
                    (Outcome::Passed, _) => {
                        counts.passed += 1;
                        no_longer.extend(known.map(|_| note.test));
                    }
                    (Outcome::Failed, Some(known)) => {
                        counts.inapplicable += usize::from(known.inapplicable);
                        counts.expected += usize::from(!known.inapplicable);
                        *causes.entry(&known.cause).or_default() += 1;
                    }
                    (Outcome::Failed, None) => {
                        counts.failed += 1;
                        unexpected.push(format!("{}: {}", note.test, note.why));
                    }
                }
            }
            counts.print(&file);
            let group = file.rsplit_once('/').map_or(".", |(group, _)| group);
            groups.entry(group.to_owned()).or_default().add(counts);
        }
        println!();
        let mut all = Counts::default();
        for (group, counts) in &groups {
            counts.print(group);
            all.add(*counts);
        }
        all.print("all");
        causes.iter().for_each(|(cause, count)| println!("  {count:>5} expected to fail: {cause}"));
        left_out.iter().for_each(|line| println!("  left out {line}"));
        no_longer.iter().for_each(|test| println!("  passes, though expected to fail: {test}"));
        unexpected.iter().for_each(|line| println!("  FAILED {line}"));
        println!("  what the tests wrote: {}\n", self.notes.display());
        Ok(unexpected.is_empty())
    }
}

/// Runs the suites, and says whether all went as expected.
pub(crate) fn run(filter: &[String], arguments: &Arguments) -> Result<bool> {
    let product = product()?;
    let daemon = arguments.tcp.then(|| Daemon::start(&product)).transpose()?;
    let (mut as_expected, mut ran) = (true, false);
    for (name, suite) in &suites()? {
        if !filter.is_empty() && !filter.iter().any(|part| suite_of(part).0 == name) {
            continue;
        }
        let python = environment(&suite.packages)?;
        let place = match &suite.source {
            Some(package) => source(&python, package)?,
            None => packages(&python)?,
        };
        let way = if arguments.tcp { "tcp" } else { "in-process" };
        let notes = examples::target().join("suites").join(format!("{name}-{way}"));
        fs::create_dir_all(&notes)?;
        let prepared = Prepared {
            name,
            suite,
            tests: place.join(&suite.tests),
            python,
            notes,
            product: &product,
            daemon: daemon.as_ref(),
            one_in: arguments.one_in.or(suite.one_in).unwrap_or(1).max(1),
        };
        println!(
            "\n  {:<44} {:>7} {:>7} {:>9} {:>13} {:>8} {:>9}",
            format!("{name}, {way}, one test in {}", prepared.one_in),
            "passed",
            "failed",
            "expected",
            "inapplicable",
            "skipped",
            "time"
        );
        as_expected &= prepared.run_all(filter)?;
        ran = true;
    }
    if !ran {
        bail!("no suite of {} is meant by {}", folder().display(), filter.join(" "));
    }
    Ok(as_expected)
}

#[cfg(test)]
mod tests {
    use super::{Outcome, is_meant, matches, read, suites, unfinished};

    #[test]
    fn a_star_stands_for_anything() {
        assert!(matches("a/b.py::C::d", "a/b.py::C::d"));
        assert!(!matches("a/b.py", "a/b.py::C::d"));
        assert!(matches("a/*", "a/b.py::C::d[x*]"));
        assert!(matches("*::d[*-f]", "a/b.py::C::d[e-f]"));
        assert!(!matches("*::d[*-f]", "a/b.py::C::d[e-g]"));
        // What follows a star is not looked for in what stands before it.
        assert!(!matches("ab*ba", "aba"));
    }

    #[test]
    fn filters_name_suites_and_files() {
        let meant = |filter: &str, file: &str| is_meant(&[filter.to_owned()], "numba", file);
        assert!(meant("numba", "cudapy/test_math.py") && meant("numba/test_math", "cudapy/test_math.py"));
        assert!(!meant("numba/test_math", "cudapy/test_sm.py") && !meant("cupy", "cudapy/test_math.py"));
        assert!(is_meant(&[], "numba", "cudapy/test_math.py"));
    }

    #[test]
    fn every_suite_can_be_read() {
        let suites = suites().expect("the files are well-formed");
        assert!(suites.contains_key("numba"));
        assert!(suites.values().all(|suite| suite.packages.iter().any(|package| package == "pytest")));
    }

    #[test]
    fn a_test_that_killed_its_process_is_known() {
        let path = std::env::temp_dir().join(format!("rgpu-suites-{}", std::process::id()));
        let started = r#"{"test": "f.py::a", "outcome": "started", "why": ""}"#;
        std::fs::write(&path, format!("{started}\n{{\"test\": \"f.py")).expect("a temporary file");
        let notes = read(&path);
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(notes[0].outcome, Outcome::Started);
        assert_eq!(unfinished(&notes), Some("f.py::a"));
    }
}
