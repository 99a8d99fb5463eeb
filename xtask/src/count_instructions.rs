//! `cargo xtask count-instructions`: how many instructions a launch costs the program's side.
//!
//! Callgrind counts a program that launches a kernel with four arguments, twice with different numbers of launches. The
//! difference, divided by the launches between, is what one costs from the redirected entries on: everything outside
//! of the program's own file, sending included, while the server runs outside of Callgrind.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use rgpu_tests::examples;
use rgpu_tests::process;
use rgpu_tests::product::{Daemon, Product, clean, temporary};
use rgpu_tests::toolkit::Version;

const PROGRAM: &str = "launch_four";
const FEW: u64 = 2_000;
const MANY: u64 = 22_000;
/// What a launch may cost.
const AIM: f64 = 400.0;

/// Instructions by the function's name.
type Costs = HashMap<String, f64>;

/// Counts, prints, and says whether the aim was reached.
pub(crate) fn count_instructions() -> Result<bool> {
    crate::build(crate::Parts::All)?;
    let (toolkit, _) = crate::toolkit()?;
    let program = examples::for_tests()?;
    let program = program.iter().find(|p| p.name == PROGRAM).context("The program is not there")?;
    examples::build(&toolkit, std::slice::from_ref(program), &[Version::Cuda13])?;
    let product = Product::built()?;
    // Over TCP, where what is waited for is not spun for.
    let daemon = Daemon::start_with(&product, &["--transport", "tcp"])?;
    let path = program.program(Version::Cuda13, examples::Linking::Static);
    let mut reached = true;
    for (call, how) in [("<<<>>>", None), ("cuLaunchKernel", Some("driver"))] {
        let count = |launches| counted(&product, &daemon, &path, launches, how);
        let (few, many) = (count(FEW)?, count(MANY)?);
        let mut per_launch: Vec<(f64, &str)> = many
            .iter()
            .map(|(name, n)| ((n - few.get(name).unwrap_or(&0.0)) / (MANY - FEW) as f64, name.as_str()))
            .filter(|(n, _)| n.abs() >= 0.05)
            .collect();
        per_launch.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (n, name) in per_launch.iter().take(20) {
            println!("{n:8.1}  {name}");
        }
        let total: f64 = per_launch.iter().map(|(n, _)| n).sum();
        println!("{total:.1} instructions for a {call} with four arguments; the aim is at most {AIM}");
        reached &= total <= AIM;
    }
    Ok(reached)
}

fn counted(
    product: &Product,
    daemon: &Daemon,
    program: &Path,
    launches: u64,
    how: Option<&str>,
) -> Result<Costs> {
    let out = temporary("callgrind");
    let mut command: Command = clean(Path::new("valgrind"));
    command
        .args(["--tool=callgrind", &format!("--callgrind-out-file={}", out.display())])
        .arg(program)
        .arg(launches.to_string())
        .args(how)
        .env("RGPU_SERVER", daemon.address().to_string())
        .env("RGPU_TRANSPORT", "tcp")
        .env("LD_PRELOAD", product.shim());
    process::run(&mut command)
        .context("Starting valgrind; on Debian: apt-get install valgrind")?
        .success()?;
    let text = fs::read_to_string(&out).context("Callgrind wrote nothing")?;
    fs::remove_file(&out)?;
    let name = program.file_name().context("The program has no name")?.to_string_lossy();
    parse(&text, &name)
}

/// Reads Callgrind's file: the instructions of each function itself, but for those in the program's own file.
fn parse(text: &str, program: &str) -> Result<Costs> {
    let mut names: HashMap<(bool, &str), &str> = HashMap::new();
    let (mut object, mut function) = ("", "");
    let mut of_callee = false;
    let mut costs = Costs::new();
    for line in text.lines() {
        // A name is given in full once, and by its number from then on.
        if let Some((key, rest)) = line.split_once('=') {
            let is_object = matches!(key, "ob" | "cob");
            if is_object || matches!(key, "fn" | "cfn") {
                let (number, full) = rest.split_once(')').context("A name without a number")?;
                let full = full.trim_start();
                if !full.is_empty() {
                    names.insert((is_object, number), full);
                }
                let full = names.get(&(is_object, number)).copied().context("A name that was not given")?;
                match key {
                    "ob" => object = full,
                    "fn" => function = full,
                    _ => {}
                }
                continue;
            }
            if key == "calls" {
                of_callee = true;
                continue;
            }
        }
        if line.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '*')) {
            // What follows a call is its callee's cost.
            if !std::mem::take(&mut of_callee) && !object.ends_with(&format!("/{program}")) {
                let n: f64 = line.split(' ').nth(1).context("A line without a cost")?.parse()?;
                *costs.entry(function.to_owned()).or_default() += n;
            }
        }
    }
    if costs.is_empty() {
        bail!("Callgrind's file names no cost");
    }
    Ok(costs)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn costs_are_each_functions_own() {
        let text = "version: 1\nevents: Ir\n\nob=(1) /lib/librgpu.so\nfl=(1) a.rs\nfn=(1) launch\n10 5\n+1 7\n\
                    cfn=(2) post\ncalls=3 20\n12 900\n\nfn=(2)\n20 30\n\nob=(2) /x/program\nfn=(3) main\n1 1000\n";
        let costs = parse(text, "program").unwrap();
        assert_eq!((costs["launch"], costs["post"], costs.len()), (12.0, 30.0, 2));
        assert!(parse("nothing", "program").is_err());
    }
}
