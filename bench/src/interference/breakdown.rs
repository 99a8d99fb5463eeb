//! Where a program's time goes, from its trace (`RGPU_TRACE`, `docs/tracing.md`).
//!
//! Every moment from the program's start to its exit is of one kind, the first of these that holds:
//!
//! - *device*: a kernel executes, or the server executes a call (it compiles a module, say);
//! - *network*: the program is in a CUDA call, or bytes of a call that it made earlier are under way to the server;
//! - *processor*: neither; the program computes or starts, or its session does: what comes before the first call that is sent.
//!
//! So what the network does while a kernel executes costs nothing, as it does in truth.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Failure;

/// Seconds of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Breakdown {
    /// From start to exit.
    pub total: f64,
    /// The device, or its server, works.
    pub device: f64,
    /// The program waits while nothing works at the server, or data are under way.
    pub network: f64,
}

impl Breakdown {
    /// What is neither the device's nor the network's.
    pub(crate) fn processor(&self) -> f64 {
        (self.total - self.device - self.network).max(0.0)
    }

    /// The network's part of the time, in percent.
    pub(crate) fn network_percent(&self) -> f64 {
        100.0 * self.network / self.total
    }

    /// Reads a trace of a program that took `total` seconds from start to exit.
    pub(crate) fn of_trace(path: &Path, total: f64) -> Result<Self, Failure> {
        let problem = |e: String| Failure::new(format!("The trace {}: {e}", path.display()));
        let file = std::fs::File::open(path).map_err(|e| {
            problem(format!("{e}; a program that makes no CUDA call has none, and cannot be measured so"))
        })?;
        let mut spans = Spans::default();
        for line in BufReader::new(file).lines() {
            let line = line.map_err(|e| problem(e.to_string()))?;
            let event = line.trim_start_matches('[').trim().trim_end_matches([',', ']']).trim();
            if event.is_empty() {
                continue;
            }
            let span: Span = serde_json::from_str(event).map_err(|e| problem(format!("{e}: `{event}`")))?;
            spans.add(&span);
        }
        Ok(spans.breakdown(total))
    }
}

/// A line of the trace.
#[derive(Debug, Deserialize)]
struct Span {
    name: String,
    #[serde(default)]
    cat: String,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: Args,
}

#[derive(Debug, Default, Deserialize)]
struct Args {
    sequence: Option<u64>,
}

/// The names of calls whose execution is a kernel's.
fn is_kernel(name: &str) -> bool {
    name.starts_with("launch")
}

/// Times in microseconds, begin and end.
#[derive(Debug, Default)]
struct Spans {
    device: Vec<(f64, f64)>,
    /// In a call of CUDA.
    calls: Vec<(f64, f64)>,
    /// When the first call was sent.
    session: Option<f64>,
    /// When a call was sent that nobody waits for.
    posted: HashMap<u64, f64>,
    /// From then until the server had it.
    under_way: Vec<(f64, f64)>,
}

impl Spans {
    fn add(&mut self, span: &Span) {
        let times = (span.ts, span.ts + span.dur);
        if matches!(span.cat.as_str(), "posted" | "asked") {
            self.session = Some(self.session.unwrap_or(span.ts).min(span.ts));
        }
        match span.cat.as_str() {
            "api" => self.calls.push(times),
            "posted" => {
                self.posted.extend(span.args.sequence.map(|sequence| (sequence, times.0)));
            }
            // The server's spans come last: the trace is written so.
            "server" => {
                self.device.push(times);
                let sent = span.args.sequence.and_then(|sequence| self.posted.remove(&sequence));
                self.under_way.extend(sent.filter(|sent| *sent < times.0).map(|sent| (sent, times.0)));
            }
            "executed" if is_kernel(&span.name) => self.device.push(times),
            _ => {}
        }
    }

    fn breakdown(mut self, total: f64) -> Breakdown {
        let device = length(&mut self.device);
        let mut any = self.device;
        let session = self.session.unwrap_or(f64::INFINITY);
        any.extend(self.calls.iter().map(|(begin, end)| (begin.max(session), end.max(session))));
        any.extend(self.under_way);
        let busy = length(&mut any);
        let seconds = 1e-6;
        Breakdown { total, device: device * seconds, network: (busy - device) * seconds }
    }
}

/// The length of the union of intervals.
fn length(intervals: &mut [(f64, f64)]) -> f64 {
    intervals.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut sum, mut until) = (0.0, f64::NEG_INFINITY);
    for &mut (begin, end) in intervals {
        sum += (end - begin.max(until)).max(0.0);
        until = until.max(end);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_intervals_count_once() {
        assert_eq!(length(&mut [(5.0, 9.0), (1.0, 3.0), (2.0, 6.0), (20.0, 21.0), (2.5, 2.6)]), 9.0);
        assert_eq!(length(&mut []), 0.0);
    }

    #[test]
    fn each_moment_is_of_one_kind() {
        let path = std::env::temp_dir().join(format!("rgpu-bench-trace-{}", std::process::id()));
        // A session that starts, which is nobody's; a copy of 4 s; a kernel of 10 s, 8 of which the program waits for; 2 s to bring back.
        let text = r#"[
{"name":"process_name","ph":"M","pid":1,"tid":0,"args":{"name":"p"}},
{"name":"cudaMalloc","cat":"api","ph":"X","ts":-3e6,"dur":2e6,"pid":1,"tid":1,"args":{}},
{"name":"info","cat":"asked","ph":"X","ts":0,"dur":1,"pid":1,"tid":1,"args":{"sequence":0}},
{"name":"cudaMemcpy","cat":"api","ph":"X","ts":0,"dur":4e6,"pid":1,"tid":1,"args":{}},
{"name":"launch","cat":"posted","ph":"X","ts":4e6,"dur":1,"pid":1,"tid":1,"args":{"sequence":2}},
{"name":"cudaMemcpy","cat":"api","ph":"X","ts":7e6,"dur":10e6,"pid":1,"tid":1,"args":{}},
{"name":"launch","cat":"server","ph":"X","ts":5e6,"dur":0,"pid":2,"tid":0,"args":{"sequence":2}},
{"name":"write","cat":"executed","ph":"X","ts":1e6,"dur":2e6,"pid":2,"tid":1,"args":{"sequence":1}},
{"name":"launch","cat":"executed","ph":"X","ts":5e6,"dur":10e6,"pid":2,"tid":1,"args":{"sequence":2}}
]
"#;
        std::fs::write(&path, text).unwrap();
        let found = Breakdown::of_trace(&path, 20.0);
        std::fs::remove_file(&path).unwrap();
        let found = found.unwrap();
        // Before the kernel 4 s of the copy and 1 s until the launch was there; after it 2 s.
        assert!((found.device - 10.0).abs() < 1e-6 && (found.network - 7.0).abs() < 1e-6, "{found:?}");
        assert!((found.processor() - 3.0).abs() < 1e-6);
        assert!((found.network_percent() - 35.0).abs() < 1e-6);
        assert!(
            Breakdown::of_trace(Path::new("/proc/nonexistent"), 1.0)
                .unwrap_err()
                .to_string()
                .contains("trace")
        );
    }
}
