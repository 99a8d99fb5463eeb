//! `cargo xtask test`: everything that can be tested on this machine, and one line that counts it.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use anyhow::{Context, Result};
use rgpu_tests::product::Product;

use crate::{build, cargo, compile_all, seconds, toolkit};

#[derive(Default)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
    names_failed: Vec<String>,
    names_skipped: Vec<String>,
    broken: bool,
}

/// Runs the tests whose names match, and says whether all passed.
pub fn test(filter: &[String]) -> Result<bool> {
    let built = build()?;
    println!("Built in {}", seconds(built));
    let product = Product::built()?;
    match toolkit() {
        Ok((toolkit, _)) => compile_all(&toolkit)?,
        Err(e) => println!("Tests that need the CUDA compiler will be skipped: {e:#}"),
    }

    let mut counts = Counts::default();
    run(&mut counts, &["test", "--workspace", "--no-fail-fast", "--"], filter, &product)?;

    if !counts.names_skipped.is_empty() {
        println!("\nskipped:");
        counts.names_skipped.iter().for_each(|n| println!("  {n}"));
    }
    if !counts.names_failed.is_empty() {
        println!("\nfailed:");
        counts.names_failed.iter().for_each(|n| println!("  {n}"));
    }
    if counts.broken && counts.failed == 0 {
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
    counts.broken |= !child.wait()?.success();
    Ok(())
}

impl Counts {
    /// Learns from a line of a test runner.
    fn read(&mut self, line: &str) {
        if let Some(rest) = line.strip_prefix("test result: ") {
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
        } else if let Some((name, verdict)) = line.strip_prefix("test ").and_then(|l| l.rsplit_once(" ... "))
        {
            if verdict.starts_with("FAILED") {
                self.names_failed.push(name.to_owned());
            } else if let Some(why) = verdict.strip_prefix("ignored") {
                self.names_skipped.push(format!("{name}{why}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Counts;

    #[test]
    fn results_are_added_up() {
        let mut counts = Counts::default();
        for line in [
            "running 3 tests",
            "test a::b ... ok",
            "test c ... ignored, no compiler here",
            "test d ... FAILED (0.50 s)",
            "test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.50s",
            "test result: ok. 20 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        ] {
            counts.read(line);
        }
        assert_eq!((counts.passed, counts.failed, counts.skipped), (21, 1, 1));
        assert_eq!(counts.names_failed, ["d"]);
        assert_eq!(counts.names_skipped, ["c, no compiler here"]);
    }
}
