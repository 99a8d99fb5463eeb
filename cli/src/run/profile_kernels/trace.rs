//! Launches over time, in the form that Perfetto and Chrome read.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::part::Profile;

/// The trace. Each process is one there, and each of its streams a thread.
pub(super) fn text(profile: &Profile) -> String {
    let mut events: Vec<Value> = Vec::new();
    for process in &profile.processes {
        events.push(json!({
            "ph": "M", "name": "process_name", "pid": process.pid, "tid": 0, "args": { "name": process.program },
        }));
    }
    let streams: BTreeSet<_> = profile.launches.iter().map(|l| (l.pid, l.stream, l.device)).collect();
    for (pid, stream, device) in streams {
        let name = format!("GPU {device}, stream {stream}");
        events.push(json!({
            "ph": "M", "name": "thread_name", "pid": pid, "tid": stream + 1, "args": { "name": name },
        }));
    }
    for launch in &profile.launches {
        events.push(json!({
            "ph": "X",
            "cat": "kernel",
            "name": launch.kernel,
            "pid": launch.pid,
            "tid": launch.stream + 1,
            "ts": launch.begun_ns as f64 / 1000.0,
            "dur": launch.took_ns as f64 / 1000.0,
            "args": {
                "grid": launch.grid,
                "block": launch.block,
                "dynamic_shared": launch.dynamic_shared,
                "failed": launch.failed,
            },
        }));
    }
    json!({ "displayTimeUnit": "ns", "traceEvents": events }).to_string() + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::part::tests::example;
    use super::*;

    #[test]
    fn launches_are_events() {
        let trace: Value = serde_json::from_str(&text(&example())).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let of = |kind: &str| events.iter().filter(|event| event["ph"] == kind).collect::<Vec<_>>();
        assert_eq!((of("M").len(), of("X").len()), (4, 2));
        let last = of("X")[1];
        assert_eq!((&last["ts"], &last["dur"], &last["pid"]), (&json!(0.5), &json!(0.4), &json!(8)));
    }
}
