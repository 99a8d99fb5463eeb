//! The dry run of `cargo xtask gpu-check`: the bundle and its script, on the software GPU.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rgpu_test_runner::{Skip, Test};
use rgpu_tests::gpu_check::Bundle;
use rgpu_tests::process::{Finished, Running};
use rgpu_tests::product::temporary;
use rgpu_tests::toolkit::{Toolkit, Version};
use serde_json::Value;

use crate::context::product;

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    vec![Test::new("gpu_check::dry_run", dry_run)]
}

/// Runs the script with a part's name and further options.
fn script(bundle: &Bundle, results: &Path, options: &[&str]) -> Result<Finished> {
    let mut command = Command::new("python3");
    command.arg(bundle.script()).args(["--dry-run", "--device", "software", "--quick", "--workers", "1"]);
    command.arg("--results").arg(results).args(options);
    Running::start(&mut command)?.finish_within(Duration::from_secs(300))
}

fn report(results: &Path) -> Result<Value> {
    Ok(serde_json::from_str(&fs::read_to_string(results.join("report.json"))?)?)
}

fn dry_run() -> Result<()> {
    let toolkit = Toolkit::find()
        .map_err(|_| Skip("it needs the CUDA compiler, which `cargo xtask toolkit` fetches".into()))?;
    let python = Command::new("python3").arg("--version").output();
    ensure!(python.is_ok(), Skip("it needs python3".into()));
    let place = temporary("gpu-check");
    fs::create_dir_all(&place)?;
    let outcome = check(&place, &toolkit);
    let _ = fs::remove_dir_all(&place); // only tidiness
    outcome
}

fn check(place: &Path, toolkit: &Toolkit) -> Result<()> {
    // As they are compiled for the other tests.
    let some = ["vector_add", "driver_api", "dlopen_kernel", "errors"];
    let bundle = Bundle::make(place, product()?, toolkit, Version::Cuda13, &some)?;
    let (_, size) = bundle.pack()?;
    ensure!(size > 1 << 20, "the archive has {size} bytes");

    // Time that is up before anything began: nothing is done, and a later run goes on.
    let results = place.join("results");
    script(&bundle, &results, &["--part", "errors", "--budget", "0"])?.success()?;
    ensure!(report(&results)?["errors"].as_object().is_some_and(|e| e.is_empty()), "something was done");
    let first = script(&bundle, &results, &["--part", "examples-1,errors"])?.success()?;
    ensure!(first.stdout.contains("errors/illegal_write: same"), "{}", first.output());
    let all = script(&bundle, &results, &[])?.success()?;
    ensure!(!all.stdout.contains("errors/illegal_write"), "a step was done again\n{}", all.output());

    let report = report(&results)?;
    let list = |key: &str| report[key].as_object().with_context(|| format!("The report lacks `{key}`"));
    let examples = list("examples")?;
    ensure!(examples.len() == 4, "{} examples were run", examples.len());
    for (name, example) in examples {
        ensure!(example["verdict"] == "right", "{name}: {example}");
        let ways = example["right"].as_object().context("No ways")?;
        ensure!(ways.len() == 3 && ways.values().all(|v| v == true), "{name}: {example}");
    }
    let libraries = list("libraries")?;
    ensure!(libraries.len() == 3, "{} programs of libraries were run", libraries.len());
    for (name, program) in libraries {
        ensure!(program["verdict"] == "right", "{name}: {program}");
    }
    let errors = list("errors")?;
    ensure!(errors.len() >= 10, "{} error cases were run", errors.len());
    for (name, case) in errors {
        ensure!(case["verdict"] == "same", "{name}: {case}");
    }
    // The comparison is of something: the transcripts say what CUDA says.
    let transcript = errors["illegal_write"]["transcript"].to_string();
    ensure!(transcript.contains("cudaErrorIllegalAddress"), "{transcript}");
    let transcript = errors["out_of_memory"]["transcript"].to_string();
    ensure!(transcript.contains("cudaErrorMemoryAllocation"), "{transcript}");
    ensure!(report["nvml"]["verdict"] == "answered", "{}", report["nvml"]);
    let measured = report["measurements"].as_array().context("No measurements")?;
    for what in ["a launch, to the program", "cudaMemGetInfo", "4 KiB to the host, pinned", "the whole chain"]
    {
        let row = measured.iter().find(|row| row["what"] == what).with_context(|| format!("No {what}"))?;
        let values = row["values"].as_object().context("No values")?;
        ensure!(values.len() == 3 && values.values().all(|v| v.as_f64() > Some(0.0)), "{row}");
        ensure!(row["ratio"].as_object().is_some_and(|r| r.len() == 2), "{row}");
    }
    ensure!(report["gpus"][0] == "rgpu software GPU" && report["date"].is_string(), "{report}");
    let text = fs::read_to_string(results.join("report.md"))?;
    ensure!(text.contains("A dry run: no GPU was used"), "the report does not say that it is a dry run");

    // Over the code that drives real GPUs, with rgpu's own library as the driver.
    let driven = place.join("driven");
    let device = [
        "--device",
        "nvidia",
        "--driver",
        "shim",
        "--memory",
        "256M",
        "--part",
        "examples,errors,libraries,nvml",
    ];
    let finished = script(&bundle, &driven, &device)?.success()?;
    ensure!(finished.stdout.contains("errors/bad_arguments: same"), "{}", finished.output());
    ensure!(finished.stdout.contains("libraries/cublas: right"), "{}", finished.output());

    // A difference is one: a script that compares with a server that is not there finds fault.
    let broken = place.join("broken");
    let options = ["--part", "examples-1", "--device", "nvidia", "--driver", "/nonexistent/libcuda.so.1"];
    let finished = script(&bundle, &broken, &options)?.expect_code(1)?;
    ensure!(finished.stdout.contains("NOT AS IT SHOULD BE"), "{}", finished.output());
    Ok(())
}
