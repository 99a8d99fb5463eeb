//! `cargo xtask test`: everything that can be tested on this machine, and one line that counts it.
//!
//! The product that is tested end to end is built with the tests, and as they are: most of what both consist of is compiled once then.
//! It is little optimised and has its assertions. `RGPU_TEST_BINARIES` names a directory with another one, such as `target/release`.
//!
//! Tests that fail, if they are few, run once more, one at a time and with nothing beside them. Those that pass then are counted as
//! passed and named as unsteady: on a machine whose cores are taken away for seconds, a test of processes that talk to each other
//! can fail without a fault. One that fails twice has failed.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use anyhow::{Context, Result};
use rgpu_tests::product::Product;

use crate::{Parts, build, cargo, compile_all, seconds, toolkit};

#[derive(Default)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
    names_passed: Vec<String>,
    names_failed: Vec<String>,
    names_skipped: Vec<String>,
    /// Test programs that began, and those that ended with a count.
    programs: (u64, u64),
    broken: bool,
}

/// More failures than this are no accident.
const FEW: usize = 5;

/// Runs the tests whose names match, and says whether all passed.
pub(crate) fn test(filter: &[String]) -> Result<bool> {
    let built = build(Parts::WithTests)?;
    println!("Built in {}", seconds(built));
    let product = Product::built_with_tests()?;
    match toolkit() {
        Ok((toolkit, _)) => compile_all(&toolkit)?,
        Err(e) => println!("Tests that need the CUDA compiler will be skipped: {e:#}"),
    }

    let mut counts = Counts::default();
    run(&mut counts, &["test", "--workspace", "--no-fail-fast", "--"], filter, &product)?;
    let unsteady = if counts.worth_another_try() {
        println!("\nOnce more, one at a time: {}", counts.names_failed.join(", "));
        let mut again = Counts::default();
        let one_at_a_time = ["test", "--workspace", "--no-fail-fast", "--", "--test-threads", "1", "--exact"];
        run(&mut again, &one_at_a_time, &counts.names_failed, &product)?;
        counts.settle(&again)
    } else {
        vec![]
    };

    if !counts.names_skipped.is_empty() {
        println!("\nskipped:");
        counts.names_skipped.iter().for_each(|n| println!("  {n}"));
    }
    if !unsteady.is_empty() {
        println!("\nunsteady, passed at the second attempt only:");
        unsteady.iter().for_each(|n| println!("  {n}"));
    }
    if !counts.names_failed.is_empty() {
        println!("\nfailed:");
        counts.names_failed.iter().for_each(|n| println!("  {n}"));
    }
    if counts.broken {
        // A test program that didn't compile or that died counts, too.
        println!("\ncargo test failed outside of any test");
        counts.failed += 1;
    }
    println!("\n{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped);
    Ok(counts.failed == 0)
}

fn run(counts: &mut Counts, arguments: &[&str], filter: &[String], product: &Product) -> Result<()> {
    println!("Testing: cargo {}", arguments.join(" "));
    let mut child = cargo(arguments)
        .args(filter)
        .env("RGPU_TEST_BINARIES", product.directory())
        .stdout(Stdio::piped())
        .spawn()
        .context("Starting cargo")?;
    for line in BufReader::new(child.stdout.take().context("No pipe")?).lines() {
        let line = line?;
        println!("{line}");
        counts.read(&line);
    }
    let success = child.wait()?.success();
    counts.broken |= counts.died() || !success && counts.failed == 0;
    Ok(())
}

impl Counts {
    /// Whether a test program ended without saying how its tests went.
    fn died(&self) -> bool {
        self.programs.0 != self.programs.1
    }

    /// Whether failures are few, and nothing but failures of tests.
    fn worth_another_try(&self) -> bool {
        !self.broken
            && (1..=FEW).contains(&self.names_failed.len())
            && self.failed == self.names_failed.len() as u64
    }

    /// Takes what the second attempt showed: the names of those that passed in it.
    fn settle(&mut self, again: &Self) -> Vec<String> {
        if again.broken {
            return vec![];
        }
        let passed = |name: &String| again.names_passed.contains(name) && !again.names_failed.contains(name);
        let (unsteady, failed): (Vec<_>, Vec<_>) = self.names_failed.drain(..).partition(passed);
        self.names_failed = failed;
        self.failed -= unsteady.len() as u64;
        self.passed += unsteady.len() as u64;
        unsteady
    }

    /// Learns from a line of a test runner.
    fn read(&mut self, line: &str) {
        if line.strip_prefix("running ").is_some_and(|l| l.ends_with(" tests") || l.ends_with(" test")) {
            self.programs.0 += 1;
        } else if let Some(rest) = line.strip_prefix("test result: ") {
            self.programs.1 += 1;
            for part in rest.split(['.', ';']) {
                let mut words = part.split_whitespace();
                let (Some(Ok(n)), Some(what)) = (words.next().map(str::parse::<u64>), words.next()) else {
                    continue;
                };
                match what {
                    "passed" => self.passed += n,
                    "failed" => self.failed += n,
                    "ignored" => self.skipped += n,
                    _ => {}
                }
            }
        } else if let Some((name, verdict)) = line.strip_prefix("test ").and_then(|l| l.split_once(" ... ")) {
            let name = name.trim_end();
            if verdict.starts_with("ok") {
                self.names_passed.push(name.to_owned());
            } else if verdict.starts_with("FAILED") {
                self.names_failed.push(name.to_owned());
            } else if let Some(why) = verdict.strip_prefix("ignored") {
                self.names_skipped.push(format!("{name}{why}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use rgpu_tests::examples::repository;

    use super::Counts;

    fn read(lines: &[&str]) -> Counts {
        let mut counts = Counts::default();
        lines.iter().for_each(|line| counts.read(line));
        counts
    }

    #[test]
    fn results_are_added_up() {
        let counts = read(&[
            "running 3 tests",
            "test a::b ... ok",
            "test c ... ignored, no compiler here",
            "test d    ... FAILED",
            "test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.50s",
            "running 1 test",
            "test result: ok. 20 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        ]);
        assert_eq!((counts.passed, counts.failed, counts.skipped), (21, 1, 1));
        assert_eq!(counts.names_failed, ["d"]);
        assert_eq!(counts.names_skipped, ["c, no compiler here"]);
        assert!(!counts.died() && counts.worth_another_try());
    }

    #[test]
    fn who_passes_at_the_second_attempt_is_named() {
        let mut first = read(&[
            "test a ... FAILED (0.50 s)",
            "test b ... FAILED",
            "test result: FAILED. 5 passed; 2 failed",
        ]);
        let again =
            read(&["test a ... ok (0.50 s)", "test b ... FAILED", "test result: FAILED. 1 passed; 1 failed"]);
        assert_eq!(first.settle(&again), ["a"]);
        assert_eq!((first.passed, first.failed), (6, 1));
        assert_eq!(first.names_failed, ["b"]);
        // A name that is in two test programs has to pass in both, and one that didn't run has not passed.
        let mut first =
            read(&["test a ... FAILED", "test b ... FAILED", "test result: FAILED. 0 passed; 2 failed"]);
        assert!(first.settle(&read(&["test a ... ok", "test a ... FAILED"])).is_empty());
        assert_eq!(first.failed, 2);
    }

    #[test]
    fn only_a_few_failures_are_tried_again_and_no_deaths() {
        let many: Vec<String> = (0..6).map(|i| format!("test t{i} ... FAILED")).collect();
        let mut lines: Vec<&str> = many.iter().map(String::as_str).collect();
        lines.push("test result: FAILED. 1 passed; 6 failed");
        assert!(!read(&lines).worth_another_try());
        let dead = read(&["running 2 tests", "test a ... ok"]);
        assert!(dead.died() && !dead.worth_another_try());
    }

    /// The files in a directory and those below it that have tests inside.
    fn with_tests(directory: &Path) -> Vec<String> {
        let mut found = vec![];
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                found.extend(with_tests(&path));
            } else if path.extension().is_some_and(|e| e == "rs")
                && fs::read_to_string(&path)
                    .unwrap()
                    .lines()
                    .any(|line| line.trim_start().starts_with("#[test]"))
            {
                found.push(path.display().to_string());
            }
        }
        found
    }

    #[test]
    fn crates_that_are_not_tested_inside_have_no_tests_there() {
        let repository = repository();
        let read = |path: &Path| -> toml::Table { fs::read_to_string(path).unwrap().parse().unwrap() };
        let members = read(&repository.join("Cargo.toml"))["workspace"]["members"].clone();
        let mut untested = 0;
        for member in members.as_array().unwrap() {
            let directory = repository.join(member.as_str().unwrap());
            let manifest = read(&directory.join("Cargo.toml"));
            let off = |target: &toml::Value| target.get("test").and_then(toml::Value::as_bool) == Some(false);
            let bins = manifest.get("bin").and_then(toml::Value::as_array).into_iter().flatten();
            if manifest.get("lib").into_iter().chain(bins).any(off) {
                untested += 1;
                assert_eq!(with_tests(&directory.join("src")), [""; 0], "`test = false` in {member}");
            }
        }
        assert!(untested > 0, "there was nothing to look at");
    }
}
