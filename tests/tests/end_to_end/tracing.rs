//! `RGPU_TRACE`: the file is JSON, every call is in it, and the server's times lie where they must.

use std::fs;

use anyhow::{Context, Result, ensure};
use rgpu_test_runner::Test;
use rgpu_tests::process;
use rgpu_tests::product::{Daemon, temporary};
use serde_json::Value;

use crate::context::{forwarded, plain, product};

/// The tests.
pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("tracing::every_call_of_a_program_is_there_on_both_sides", both_sides),
        Test::new("tracing::in_process_the_programs_calls_are_there", in_process),
    ]
}

/// Calls of the program that `many_small_kernels` makes: name and count.
const CALLS: [(&str, usize); 4] =
    [("cudaMalloc", 2), ("cudaLaunchKernel", 20 * 139), ("cudaMemcpy", 1 + 20), ("cudaFree", 2)];

fn events(mut command: std::process::Command) -> Result<Vec<Value>> {
    let file = temporary("trace.json");
    process::run(command.env("RGPU_TRACE", &file))?.success()?;
    let text = fs::read_to_string(&file).context("There is no trace")?;
    fs::remove_file(&file)?;
    let events: Vec<Value> = serde_json::from_str(&text).context("The trace is not JSON")?;
    Ok(events)
}

/// The spans of a category with a name; of all names where it is empty.
fn spans<'a>(events: &'a [Value], category: &str, name: &str) -> Vec<&'a Value> {
    let fits = |e: &&Value| e["cat"] == category && (name.is_empty() || e["name"] == name);
    events.iter().filter(|e| e["ph"] == "X").filter(fits).collect()
}

fn number(event: &Value, key: &str) -> Result<f64> {
    event[key].as_f64().with_context(|| format!("No number `{key}` in {event}"))
}

fn programs_calls(events: &[Value]) -> Result<()> {
    for (name, count) in CALLS {
        // 13.x programs launch by another name, which is the same function.
        let found = spans(events, "api", name).len();
        ensure!(found == count, "{found} calls of {name} were traced, {count} were made");
    }
    Ok(())
}

fn both_sides() -> Result<()> {
    let daemon = Daemon::start(product()?)?;
    let events = events(forwarded(daemon.address(), "many_small_kernels")?)?;
    programs_calls(&events)?;
    for (category, name, count) in [
        ("posted", "launch_brief", 20 * 139),
        ("server", "launch_brief", 20 * 139),
        ("executed", "launch_brief", 20 * 139),
        ("asked", "copy_from_device", 20),
        ("server", "copy_from_device", 20),
    ] {
        let found = spans(&events, category, name).len();
        ensure!(found == count, "{found} {category} spans of {name}, not {count}");
    }
    // What the server did for a call that was waited for, it did while that was waited for. The clocks' error is at
    // most half a round trip.
    let answered = spans(&events, "server", "copy_from_device");
    for asked in spans(&events, "asked", "copy_from_device") {
        let there = answered.iter().find(|e| e["args"]["sequence"] == asked["args"]["sequence"]);
        let there = there.with_context(|| format!("The server did nothing for {asked}"))?;
        let (start, end) = (number(asked, "ts")?, number(asked, "ts")? + number(asked, "dur")?);
        let begun = number(there, "ts")?;
        let slack = number(asked, "dur")? / 2.0 + 1.0;
        ensure!(
            (start - slack..=end + slack).contains(&begun),
            "asked from {start} to {end} us, executed at {begun}"
        );
    }
    for event in &events {
        ensure!(event["pid"].is_u64() && event["name"].is_string(), "{event}");
        ensure!(event["ph"] != "X" || number(event, "dur")? >= 0.0, "{event}");
    }
    Ok(())
}

fn in_process() -> Result<()> {
    let mut command = product()?.run_in_process();
    command.arg("--").arg(plain("many_small_kernels")?);
    let events = events(command)?;
    programs_calls(&events)?;
    ensure!(spans(&events, "server", "").is_empty(), "there was no server");
    Ok(())
}
