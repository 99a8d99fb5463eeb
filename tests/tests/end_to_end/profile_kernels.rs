//! `rgpu profile-kernels`: what it counts is what follows from the program, by kernel and source line, and what it writes can be read.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use rgpu_test_runner::Test;
use rgpu_tests::examples::repository;
use rgpu_tests::process::{self, Finished};
use rgpu_tests::product::{clean, temporary};
use serde_json::Value;

use crate::context::{plain, product};

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("profile_kernels::counts_by_source_line", lines),
        Test::new("profile_kernels::writes_what_can_be_read", files),
        Test::new("profile_kernels::gathers_processes", processes),
        Test::new("profile_kernels::says_what_is_not_there", nothing),
    ]
}

fn profile(options: &[&str]) -> Result<Command> {
    let mut command = clean(&product()?.rgpu());
    command.arg("profile-kernels").args(options).arg("--").arg(plain("profiled")?);
    Ok(command)
}

fn run(options: &[&str], arguments: &[&str]) -> Result<Finished> {
    process::run(profile(options)?.args(arguments))
}

/// Everything that was counted.
fn counted(options: &[&str], arguments: &[&str]) -> Result<Value> {
    let file = temporary("profile.json");
    let path = file.to_str().context("a path of text")?;
    let finished = run(&[&["--json", path][..], options].concat(), arguments)?.success()?;
    ensure!(finished.stdout.contains("profiled: ok 1"), "{}", finished.output());
    let text = std::fs::read_to_string(&file)?;
    std::fs::remove_file(&file)?;
    Ok(serde_json::from_str(&text)?)
}

fn kernel<'a>(all: &'a Value, name: &str) -> Result<&'a Value> {
    let kernels = all["kernels"].as_array().context("no list of kernels")?;
    let found = kernels.iter().find(|kernel| kernel["name"].as_str().is_some_and(|n| n.contains(name)));
    found.with_context(|| format!("no kernel {name} in {all}"))
}

/// A number that was counted of the source line that ends in a name, in all of its lines of PTX.
fn sum(kernel: &Value, marker: &str, pointer: &str) -> Result<u64> {
    let source = std::fs::read_to_string(repository().join("tests/programs/profiled.cu"))?;
    let line = source.lines().position(|line| line.ends_with(&format!("// {marker}")));
    let place = format!("profiled.cu:{}", line.with_context(|| format!("no line has {marker}"))? + 1);
    let lines = kernel["lines"].as_array().context("no list of lines")?;
    let at = |line: &&Value| line["source"][0].as_str().is_some_and(|source| source.ends_with(&place));
    let found: Vec<_> = lines.iter().filter(at).collect();
    ensure!(!found.is_empty(), "nothing was counted of {place} in {kernel}");
    Ok(found.iter().filter_map(|line| line.pointer(pointer)?.as_u64()).sum())
}

/// Of each kind of access in a line: kernel, line, memory, and how many accesses, requests and transactions there are, and bytes that are
/// read and written.
const ACCESSES: [(&str, &str, &str, [u64; 5]); 6] = [
    // Three launches of 1024 threads, in both directions.
    ("clean", "clean", "global", [6144, 192, 768, 12288, 12288]),
    ("strided", "read far apart", "global", [32, 1, 32, 128, 0]),
    ("strided", "write side by side", "global", [32, 1, 4, 0, 128]),
    ("divergent", "together", "global", [64, 2, 8, 0, 256]),
    ("banks", "one bank", "shared", [32, 1, 32, 0, 128]),
    ("banks", "all banks", "shared", [32, 1, 1, 128, 0]),
];

fn lines() -> Result<()> {
    let all = counted(&[], &[])?;
    for (name, line, memory, wanted) in ACCESSES {
        let kernel = kernel(&all, name)?;
        for (what, wanted) in ["accesses", "requests", "transactions", "read", "written"].iter().zip(wanted) {
            let found = sum(kernel, line, &format!("/{memory}/{what}"))?;
            ensure!(found == wanted, "{name}, {line}: {found} {what} instead of {wanted}: {kernel}");
        }
    }
    let launches = |name| Ok::<_, anyhow::Error>(kernel(&all, name)?["launches"].as_u64());
    ensure!(launches("clean")? == Some(3) && launches("banks")? == Some(1), "{all}");
    // Eight lanes of each warp are in the loop together, and 32 behind it.
    let divergent = kernel(&all, "divergent")?;
    for (line, lanes) in [("inlined", 8), ("together", 32)] {
        let threads = sum(divergent, line, "/thread_instructions")?;
        let warps = sum(divergent, line, "/warp_instructions")?;
        ensure!(warps > 0 && threads == lanes * warps, "{line}: {threads} and {warps}: {divergent}");
    }
    let of = |kernel: &Value, what: &str| kernel["counts"][what].as_u64().unwrap_or(u64::MAX);
    ensure!(of(divergent, "diverged") == 2, "each of two warps parts once: {divergent}");
    let clean = kernel(&all, "clean")?;
    ensure!(
        of(clean, "diverged") == 0 && of(clean, "thread_instructions") == 32 * of(clean, "warp_instructions"),
        "{clean}"
    );
    // What was inlined names the line of the call, too.
    let inlined = divergent["lines"].as_array().into_iter().flatten().any(|line| {
        let source = line["source"].as_array();
        source.is_some_and(|chain| chain.len() == 2)
    });
    ensure!(inlined, "{divergent}");
    Ok(())
}

fn files() -> Result<()> {
    let folder = temporary("profile");
    let path = folder.to_str().context("a path of text")?;
    let finished = run(&["--output", path, "--lines", "2"], &[])?.success()?;
    for part in ["RGPU PROFILE: 6 launches of 4 kernels in 1 process", "Lanes", "Sect/Req", "more lines"] {
        ensure!(finished.stderr.contains(part), "no {part:?} in\n{}", finished.output());
    }
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).with_context(|| name.to_owned());
    ensure!(finished.stderr.contains(&read("report.txt")?), "{}", finished.output());
    let trace: Value = serde_json::from_str(&read("trace.json")?)?;
    let events = trace["traceEvents"].as_array().context("no events")?;
    let launches: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
    ensure!(launches.len() == 6, "{trace}");
    let streams: std::collections::HashSet<_> = launches.iter().map(|l| l["tid"].as_u64()).collect();
    ensure!(streams.len() == 2, "two streams: {trace}");
    ensure!(launches.iter().all(|l| l["dur"].as_f64().is_some_and(|time| time > 0.0)), "{trace}");
    let parsed: Value = serde_json::from_str(&read("profile.json")?)?;
    ensure!(parsed["launches"].as_array().is_some_and(|all| all.len() == 6), "{parsed}");
    for (name, lines) in [("kernels.csv", 5), ("lines.csv", 10)] {
        let text = read(name)?;
        let fields: Vec<_> = text.lines().map(|line| line.split(',').count()).collect();
        ensure!(fields.len() >= lines && fields.iter().all(|count| *count == fields[0]), "{text}");
    }
    let folded = read("flame.folded")?;
    for line in folded.lines() {
        let (stack, time) = line.rsplit_once(' ').with_context(|| line.to_owned())?;
        ensure!(stack.contains(';') && time.parse::<u64>().is_ok(), "{line}");
    }
    ensure!(folded.lines().any(|line| line.matches("profiled.cu:").count() == 2), "{folded}");
    let svg = read("flame.svg")?;
    ensure!(svg.starts_with("<?xml") && svg.trim_end().ends_with("</svg>"), "{svg}");
    ensure!(
        svg.matches("<g>").count() == svg.matches("</g>").count() && svg.contains("profiled.cu"),
        "{svg}"
    );
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

fn processes() -> Result<()> {
    let all = counted(&["--kernel", "strided", "--kernel", "banks"], &["child"])?;
    ensure!(all["processes"].as_array().is_some_and(|all| all.len() == 2), "{all}");
    ensure!(all["kernels"].as_array().is_some_and(|all| all.len() == 2), "{all}");
    let strided = kernel(&all, "strided")?;
    ensure!(strided["launches"] == 2, "{strided}");
    ensure!(sum(strided, "read far apart", "/global/transactions")? == 64, "{strided}");
    Ok(())
}

fn nothing() -> Result<()> {
    let finished = run(&[], &["none"])?.success()?;
    ensure!(finished.stderr.contains("has launched no kernels"), "{}", finished.output());
    let finished = run(&["--kernel", "unheard"], &[])?.success()?;
    ensure!(finished.stderr.contains("whose name contains unheard"), "{}", finished.output());
    let finished = run(&["--json", "/nowhere/profile.json"], &[])?;
    ensure!(finished.stderr.contains("Cannot write to /nowhere/profile.json"), "{}", finished.output());
    ensure!(!finished.stdout.contains("profiled: ok"), "the program was run: {}", finished.output());
    // A server's kernels are not counted, and nobody is left to think that they were.
    let mut command = product()?.run("127.0.0.1:9".parse()?);
    let finished =
        process::run(command.env("RGPU_PROFILE_KERNELS", "/tmp").arg("--").arg(plain("profiled")?))?;
    let said = "RGPU_PROFILE_KERNELS is for the software GPU inside a program";
    ensure!(finished.stderr.contains(said), "{}", finished.output());
    Ok(())
}
