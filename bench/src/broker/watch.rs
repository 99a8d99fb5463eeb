//! What the broker costs: its own metrics, and what the system says about its process.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::Failure;

/// The broker at one moment.
#[derive(Debug)]
pub(super) struct Look {
    at: Instant,
    metrics: HashMap<String, f64>,
    /// Processor time and peak resident bytes, where the process is known.
    process: Option<(f64, u64)>,
}

impl Look {
    /// Asks for the metrics, and reads `/proc`.
    pub(super) fn take(url: &str, token: &str, pid: Option<u32>) -> Result<Self, Failure> {
        let text = metrics(url, token)?;
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.contains('{'));
        let metrics = lines
            .filter_map(|line| {
                let (name, value) = line.split_once(' ')?;
                Some((name.to_owned(), value.split(' ').next()?.parse().ok()?))
            })
            .collect();
        Ok(Self { at: Instant::now(), metrics, process: pid.map(process).transpose()? })
    }

    /// Seconds since an earlier look.
    pub(super) fn since(&self, before: &Self) -> f64 {
        (self.at - before.at).as_secs_f64()
    }
}

/// What the broker did between two looks.
#[derive(Debug, Serialize)]
pub(super) struct Broker {
    /// Placement rounds.
    rounds: f64,
    /// The mean time of one, in ms.
    round_ms: Option<f64>,
    /// What of it the placement library spent deciding, in ms.
    library_ms: Option<f64>,
    /// What of it the library spent being told what has changed, in ms.
    update_ms: Option<f64>,
    /// The round over the library's deciding.
    round_over_library: Option<f64>,
    /// The round over all of the library's time in it.
    round_over_all_library: Option<f64>,
    /// After it: waiting for other changes, and storing, in ms.
    wait_ms: Option<f64>,
    /// Models of the cluster that were built anew.
    rebuilds: f64,
    /// Transactions stored.
    commits: f64,
    /// The mean time of one, in ms.
    commit_ms: Option<f64>,
    /// Processor cores used, on average.
    cores: Option<f64>,
    /// The most memory it had, in bytes, since it started.
    peak_memory: Option<u64>,
}

impl Broker {
    /// Compares.
    pub(super) fn between(before: &Look, after: &Look) -> Self {
        let more = |name: &str| {
            let at = |look: &Look| look.metrics.get(name).copied();
            Some(at(after)? - at(before).unwrap_or(0.0))
        };
        let mean = |sum: Option<f64>, count: Option<f64>| {
            count.filter(|count| *count > 0.0).and_then(|count| Some(sum? * 1e3 / count))
        };
        let rounds = more("rgpu_broker_round_seconds_count");
        let commits = more("rgpu_broker_store_commits_total");
        let round_ms = mean(more("rgpu_broker_round_seconds_sum"), rounds);
        let library_ms = mean(more("rgpu_broker_placement_seconds_total"), rounds);
        let update_ms = mean(more("rgpu_broker_placement_update_seconds_total"), rounds);
        let library = library_ms.zip(update_ms).map(|(deciding, told)| deciding + told);
        let seconds = after.since(before);
        Self {
            rounds: rounds.unwrap_or(0.0),
            round_ms,
            library_ms,
            update_ms,
            round_over_library: round_ms.zip(library_ms).map(|(round, library)| round / library),
            round_over_all_library: round_ms.zip(library).map(|(round, library)| round / library),
            wait_ms: mean(more("rgpu_broker_round_wait_seconds_total"), rounds),
            rebuilds: more("rgpu_broker_cluster_rebuilds_total").unwrap_or(0.0),
            commits: commits.unwrap_or(0.0),
            commit_ms: mean(more("rgpu_broker_store_commit_seconds_total"), commits),
            cores: after.process.zip(before.process).map(|(after, before)| (after.0 - before.0) / seconds),
            peak_memory: after.process.map(|process| process.1),
        }
    }

    /// For people.
    pub(super) fn lines(&self) -> String {
        let ms = |value: Option<f64>| value.map_or("unknown".to_owned(), |v| format!("{v:.3} ms"));
        let ratio = |value: Option<f64>| value.map_or("unknown".to_owned(), |v| format!("{v:.3}"));
        let mut text = format!(
            "placement rounds             {:>8.0}, {} each; the library: deciding {} (ratio {}), being told {} (with it, ratio {})\n\
             after each, until stored     {:>8}; {:.0} models built anew\n",
            self.rounds,
            ms(self.round_ms),
            ms(self.library_ms),
            ratio(self.round_over_library),
            ms(self.update_ms),
            ratio(self.round_over_all_library),
            ms(self.wait_ms),
            self.rebuilds,
        );
        text += &format!("commits                      {:>8.0}, {} each\n", self.commits, ms(self.commit_ms));
        if let (Some(cores), Some(memory)) = (self.cores, self.peak_memory) {
            text += &format!(
                "the broker's process         {cores:>8.2} cores, {} MiB at its peak\n",
                memory >> 20
            );
        }
        text
    }
}

/// GET /metrics. The broker's API is JSON; this is not, and is asked once or twice.
fn metrics(url: &str, token: &str) -> Result<String, Failure> {
    let failed = |e: String| Failure::new(format!("{url}/metrics: {e}"));
    let host = url.strip_prefix("http://").ok_or_else(|| failed("only http:// is measured".into()))?;
    let host = host.trim_end_matches('/');
    let mut stream = TcpStream::connect(host).map_err(|e| failed(e.to_string()))?;
    let _ = stream.set_read_timeout(Some(Duration::from_secs(30)));
    let request = format!(
        "GET /metrics HTTP/1.0\r\nHost: {host}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
        token.trim()
    );
    stream.write_all(request.as_bytes()).map_err(|e| failed(e.to_string()))?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(|e| failed(e.to_string()))?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(|| failed("it is no HTTP".into()))?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status != "200" {
        return Err(failed(format!("status {status}")));
    }
    Ok(body.to_owned())
}

/// Processor time in seconds, and the peak resident size in bytes.
fn process(pid: u32) -> Result<(f64, u64), Failure> {
    let read = |name: &str| {
        let path = format!("/proc/{pid}/{name}");
        std::fs::read_to_string(&path).map_err(|e| Failure::new(format!("Cannot read {path}: {e}")))
    };
    let odd = || Failure::new("/proc is not as expected");
    let stat = read("stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|f| f.parse::<u64>().ok()).ok_or_else(odd);
    // SAFETY: sysconf takes a number.
    let rate = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    let time = (ticks(11)? + ticks(12)?) as f64 / rate.max(1) as f64;
    let status = read("status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or_else(odd)?;
    let kib: u64 = peak.split_whitespace().next().and_then(|n| n.parse().ok()).ok_or_else(odd)?;
    Ok((time, kib << 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_time_and_memory() {
        let (time, memory) = process(std::process::id()).unwrap();
        assert!(time >= 0.0 && memory > 100 << 10, "{time} {memory}");
    }

    #[test]
    fn differences_are_told() {
        let look = |rounds: f64, seconds: f64, library: f64| Look {
            at: Instant::now(),
            metrics: [
                ("rgpu_broker_round_seconds_count", rounds),
                ("rgpu_broker_round_seconds_sum", seconds),
                ("rgpu_broker_placement_seconds_total", library),
                ("rgpu_broker_placement_update_seconds_total", library / 10.0),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
            process: None,
        };
        let broker = Broker::between(&look(10.0, 1.0, 0.9), &look(20.0, 2.1, 1.9));
        assert!((broker.round_ms.unwrap() - 110.0).abs() < 1e-6);
        assert!((broker.round_over_library.unwrap() - 1.1).abs() < 1e-6);
        assert!((broker.round_over_all_library.unwrap() - 1.0).abs() < 1e-6);
        assert_eq!(broker.commit_ms, None);
    }
}
