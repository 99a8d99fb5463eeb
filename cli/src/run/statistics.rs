//! `--stats`: what went over the wire, counted by the program's processes in a file that they share.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use rgpu_protocol::stats::{STATS_FILE_VARIABLE, Snapshot, Stats};
use serde_json::json;

use super::scratch;
use crate::Failure;

/// How to report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Report {
    /// A table on stderr.
    Text,
    /// A JSON file.
    Json(PathBuf),
}

impl FromStr for Report {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("json", file)) if !file.is_empty() => Ok(Self::Json(file.into())),
            None if text == "text" => Ok(Self::Text),
            _ => Err("give --stats for a table, or --stats=json:FILE".to_owned()),
        }
    }
}

/// The file that is counted in, and what to do with it at the end.
pub(super) struct Statistics {
    path: PathBuf,
    stats: &'static Stats,
    report: Report,
}

impl Statistics {
    /// Makes an empty file.
    pub(super) fn create(report: Report) -> Result<Self, Failure> {
        if let Report::Json(file) = &report {
            // Better before the program has run for hours than after.
            File::create(file).map_err(|e| cannot_write(file, &e))?;
        }
        let path = scratch::path("stats");
        let file = File::options().create_new(true).read(true).write(true).mode(0o600).open(&path);
        let file = file.map_err(|e| cannot_write(&path, &e))?;
        let stats = Stats::map_file(&file).map_err(|e| cannot_write(&path, &e))?;
        Ok(Self { path, stats, report })
    }

    /// [`Statistics::create`], if a report is wanted, for a command that is told of it.
    pub(super) fn of(report: Option<&Report>, command: &mut Command) -> Result<Option<Self>, Failure> {
        let statistics = report.cloned().map(Self::create).transpose()?;
        if let Some(statistics) = &statistics {
            command.env(STATS_FILE_VARIABLE, statistics.path());
        }
        Ok(statistics)
    }

    /// The file's path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reports what was counted.
    pub(super) fn report(&self) -> Result<(), Failure> {
        let snapshot = self.stats.snapshot();
        match &self.report {
            Report::Text => eprint!("{}", table(&snapshot)),
            Report::Json(path) => {
                let mut file = File::create(path).map_err(|e| cannot_write(path, &e))?;
                let text = format!("{:#}\n", to_json(&snapshot));
                file.write_all(text.as_bytes()).map_err(|e| cannot_write(path, &e))?;
            }
        }
        Ok(())
    }
}

impl Drop for Statistics {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("Cannot write the statistics to {}: {error}", path.display()))
}

fn to_json(snapshot: &Snapshot) -> serde_json::Value {
    let calls: serde_json::Map<_, _> = snapshot
        .calls
        .iter()
        .map(|(name, count, nanoseconds)| {
            (name.clone(), json!({ "count": count, "seconds": *nanoseconds as f64 * 1e-9 }))
        })
        .collect();
    json!({
        "round_trips": snapshot.round_trips,
        "posted_calls": snapshot.posted_calls,
        "bytes_sent": snapshot.bytes_sent,
        "bytes_received": snapshot.bytes_received,
        "bytes_between_servers": snapshot.peer_bytes,
        "bytes_relayed": snapshot.relayed_bytes,
        "sessions": snapshot.sessions,
        "encrypted_sessions": snapshot.encrypted,
        "failures": snapshot.failures,
        "calls": calls,
    })
}

fn table(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    let nanoseconds: u64 = snapshot.calls.iter().map(|call| call.2).sum();
    let seconds = nanoseconds as f64 * 1e-9;
    let _ = writeln!(text, "rgpu: {:>14}  round trips", snapshot.round_trips);
    let _ = writeln!(text, "rgpu: {:>14}  posted calls", snapshot.posted_calls);
    let _ = writeln!(text, "rgpu: {:>14}  bytes sent", snapshot.bytes_sent);
    let _ = writeln!(text, "rgpu: {:>14}  bytes received", snapshot.bytes_received);
    if snapshot.peer_bytes + snapshot.relayed_bytes > 0 {
        let _ = writeln!(text, "rgpu: {:>14}  bytes copied from server to server", snapshot.peer_bytes);
        let _ = writeln!(
            text,
            "rgpu: {:>14}  bytes copied between servers by the program",
            snapshot.relayed_bytes
        );
    }
    let _ = writeln!(text, "rgpu: {seconds:>14.6}  seconds in calls");
    if snapshot.encrypted > 0 {
        let _ = writeln!(text, "rgpu: {:>14}  encrypted sessions (TLS 1.3)", snapshot.encrypted);
    }
    if snapshot.sessions != 1 || snapshot.failures != 0 {
        let _ = writeln!(text, "rgpu: {:>14}  sessions", snapshot.sessions);
        let _ = writeln!(text, "rgpu: {:>14}  sessions that failed", snapshot.failures);
    }
    if !snapshot.calls.is_empty() {
        let _ = writeln!(text, "rgpu: {:>14}  {:>14}  call", "calls", "seconds");
    }
    let mut calls: Vec<_> = snapshot.calls.iter().collect();
    calls.sort_by(|a, b| b.2.cmp(&a.2).then_with(|| a.0.cmp(&b.0)));
    for (name, count, nanoseconds) in calls {
        let _ = writeln!(text, "rgpu: {count:>14}  {:>14.6}  {name}", *nanoseconds as f64 * 1e-9);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Snapshot {
        Snapshot {
            round_trips: 4,
            posted_calls: 12,
            bytes_sent: 1000,
            bytes_received: 500,
            peer_bytes: 300,
            relayed_bytes: 200,
            sessions: 1,
            encrypted: 1,
            failures: 0,
            calls: vec![("launch".into(), 3, 1_500), ("synchronize".into(), 1, 2_000_000_000)],
        }
    }

    #[test]
    fn reports_are_parsed() {
        assert_eq!("text".parse(), Ok(Report::Text));
        assert_eq!("json:a:b".parse(), Ok(Report::Json("a:b".into())));
        for bad in ["", "json", "json:", "xml:file"] {
            assert!(bad.parse::<Report>().is_err(), "{bad}");
        }
    }

    #[test]
    fn json_has_the_documented_keys() {
        let value = to_json(&example());
        assert_eq!(value["round_trips"], 4);
        assert_eq!(value["posted_calls"], 12);
        assert_eq!(value["bytes_sent"], 1000);
        assert_eq!(value["bytes_received"], 500);
        assert_eq!((&value["bytes_between_servers"], &value["bytes_relayed"]), (&json!(300), &json!(200)));
        assert_eq!(value["calls"]["synchronize"]["count"], 1);
        assert_eq!(value["calls"]["synchronize"]["seconds"], 2.0);
    }

    #[test]
    fn the_table_names_the_most_expensive_call_first() {
        let text = table(&example());
        assert!(text.contains("4  round trips"));
        assert!(text.contains("1  encrypted sessions"), "{text}");
        assert!(text.contains("300  bytes copied from server to server"), "{text}");
        assert!(text.find("synchronize").unwrap() < text.find("launch").unwrap());
        assert!(text.lines().all(|line| line.starts_with("rgpu: ")));
    }
}
