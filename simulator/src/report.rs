//! Results as text: aligned tables, CSV, summaries.

use std::path::Path;

use rgpu_placement::{Cluster, DeviceKind, WHOLE};
use serde_json::{Value, json};

use crate::engine::{JobOutcome, Outcome};
use crate::error::{Error, Result};
use crate::formats::Submission;
use crate::plot::Series;
use crate::statistics::{mean, quantile};
use crate::time::Micros;

/// Writes a file.
pub fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|source| Error::Write { path: path.to_owned(), source })
}

/// Rows of text with columns under each other; the first row is the header.
pub fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[column].saturating_sub(cell.chars().count()));
            // Names to the left, numbers to the right.
            if column == 0 { line += &format!("{cell}{pad}") } else { line += &format!("  {pad}{cell}") }
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// The gist of one simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// How many jobs were submitted, warm ones not counted.
    pub jobs: usize,
    /// Jobs that ended.
    pub ended: usize,
    /// From the first submission to the last end.
    pub makespan_s: f64,
    /// Jobs with an objective that took longer, or with a deadline that ended later.
    pub violations: usize,
    /// Mean time from submission to start.
    pub mean_wait_s: f64,
    /// Its 99th percentile.
    pub p99_wait_s: f64,
    /// Mean of the times from start to end, as multiples of the times alone.
    pub mean_slowdown: f64,
    /// Mean part of the GPUs given to jobs, over the makespan, in percent.
    pub gpu_percent: f64,
    /// Part of the devices given that were in other nodes, in percent.
    pub remote_percent: f64,
    /// Rounds of the scheduler.
    pub rounds: u64,
    /// Changes of running jobs' completion times.
    pub reevaluations: u64,
    /// How often jobs were postponed that would have fitted, for the sake of their objectives or of others': the sum over all jobs and rounds.
    pub postponed: u64,
}

/// How much longer than its objective a run may last without being a violation, for rounding's sake.
const ROUNDING: Micros = Micros(100);

/// Whether a job ran longer than its objective allows, or ended after its deadline.
pub fn violated(submission: &Submission, outcome: &JobOutcome) -> bool {
    let goal = submission.job.goal_s.map(Micros::from_seconds);
    goal.zip(outcome.run()).is_some_and(|(goal, run)| run > goal.after(ROUNDING)) || late(submission, outcome)
}

/// Whether a job ended after its deadline.
pub fn late(submission: &Submission, outcome: &JobOutcome) -> bool {
    let deadline = submission.job.deadline_s.map(Micros::from_seconds);
    let took = outcome.end.map(|end| end.since(submission.at));
    deadline.zip(took).is_some_and(|(deadline, took)| took > deadline.after(ROUNDING))
}

/// The time from start to end of each job that ended, as a multiple of the time that it takes alone.
pub fn normalised(jobs: &[Submission], outcome: &Outcome) -> Vec<f64> {
    let pairs = jobs.iter().zip(&outcome.jobs);
    pairs.filter_map(|(job, outcome)| Some(outcome.run()?.seconds() / job.alone.seconds())).collect()
}

/// The GPUs given to jobs over time, in GPUs.
pub fn gpus_over_time(name: &str, outcome: &Outcome) -> Series {
    let point =
        |sample: &crate::engine::Sample| (sample.at.seconds(), sample.gpu_milli as f64 / f64::from(WHOLE));
    Series { name: name.to_owned(), points: outcome.samples.iter().map(point).collect() }
}

impl Summary {
    /// Of an outcome.
    pub fn new(cluster: &Cluster, jobs: &[Submission], outcome: &Outcome) -> Summary {
        let first = jobs.iter().map(|job| job.at).min().unwrap_or_default();
        let last = outcome.jobs.iter().filter_map(|job| job.end).max().unwrap_or_default();
        let mut gpu_time = 0u128;
        for pair in outcome.samples.windows(2) {
            let duration = pair[1].at.min(last).since(pair[0].at.max(first));
            gpu_time += u128::from(pair[0].gpu_milli) * u128::from(duration.0);
        }
        let pairs = || jobs.iter().zip(&outcome.jobs);
        let mut waits: Vec<f64> =
            pairs().filter_map(|(job, outcome)| Some(outcome.start?.since(job.at).seconds())).collect();
        waits.sort_by(f64::total_cmp);
        let gpus = cluster.totals().devices[DeviceKind::Gpu.index()] * u64::from(WHOLE);
        let whole = u128::from(gpus) * u128::from(last.since(first).0);
        let devices: u64 = outcome.jobs.iter().map(|job| u64::from(job.devices)).sum();
        let remote: u64 = outcome.jobs.iter().map(|job| u64::from(job.remote)).sum();
        let percent = |part: f64, all: f64| if all == 0.0 { 0.0 } else { part / all * 100.0 };
        Summary {
            jobs: jobs.len(),
            ended: outcome.jobs.iter().filter(|job| job.end.is_some()).count(),
            makespan_s: last.since(first).seconds(),
            violations: pairs().filter(|(job, outcome)| violated(job, outcome)).count(),
            mean_wait_s: mean(&waits),
            p99_wait_s: quantile(&waits, 0.99),
            mean_slowdown: mean(&normalised(jobs, outcome)),
            gpu_percent: percent(gpu_time as f64, whole as f64),
            remote_percent: percent(remote as f64, devices as f64),
            rounds: outcome.rounds,
            reevaluations: outcome.reevaluations,
            postponed: outcome.jobs.iter().map(|job| u64::from(job.postponed)).sum(),
        }
    }

    /// The summary as a JSON object: times in seconds, shares in percent.
    pub fn json(&self) -> Value {
        json!({
            "jobs": self.jobs,
            "ended": self.ended,
            "makespan_s": self.makespan_s,
            "violations": self.violations,
            "mean_wait_s": self.mean_wait_s,
            "p99_wait_s": self.p99_wait_s,
            "mean_slowdown": self.mean_slowdown,
            "gpu_percent": self.gpu_percent,
            "remote_percent": self.remote_percent,
            "rounds": self.rounds,
            "reevaluations": self.reevaluations,
            "postponed": self.postponed,
        })
    }

    /// The header of [`Summary::row`].
    pub fn header() -> Vec<String> {
        let names = [
            "policy",
            "ended",
            "makespan s",
            "violations",
            "wait s",
            "p99 wait s",
            "slow-down",
            "GPUs %",
            "remote %",
            "rounds",
            "postponed",
        ];
        names.map(str::to_owned).to_vec()
    }

    /// As a row of a table.
    pub fn row(&self, name: &str) -> Vec<String> {
        vec![
            name.to_owned(),
            format!("{}/{}", self.ended, self.jobs),
            format!("{:.2}", self.makespan_s),
            self.violations.to_string(),
            format!("{:.2}", self.mean_wait_s),
            format!("{:.2}", self.p99_wait_s),
            format!("{:.3}", self.mean_slowdown),
            format!("{:.1}", self.gpu_percent),
            format!("{:.1}", self.remote_percent),
            self.rounds.to_string(),
            self.postponed.to_string(),
        ]
    }
}

/// The text of a CSV file. Fields are quoted where they must be.
fn csv_text<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    const MEMORY: &str = "memory takes whatever is written";
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(header).expect(MEMORY);
    rows.for_each(|row| writer.write_record(row).expect(MEMORY));
    String::from_utf8(writer.into_inner().expect(MEMORY)).expect("fields are texts")
}

/// One row for each job. Times are seconds; `normalised` is the time from start to end by the time alone.
pub fn jobs_csv(cluster: &Cluster, jobs: &[Submission], outcome: &Outcome) -> String {
    let header = [
        "name",
        "submitted_s",
        "started_s",
        "ended_s",
        "alone_s",
        "run_s",
        "normalised",
        "goal_s",
        "violated",
        "node",
        "devices",
        "remote",
        "postponed",
    ];
    let seconds = |time: Option<Micros>| time.map(|time| time.to_string()).unwrap_or_default();
    let rows = jobs.iter().zip(&outcome.jobs).map(|(job, result)| {
        let run = result.run();
        let normalised = run.map(|run| format!("{:.6}", run.seconds() / job.alone.seconds()));
        let node = result.start.map(|_| cluster.nodes()[result.node as usize].name.clone());
        [
            job.job.name.clone(),
            job.at.to_string(),
            seconds(result.start),
            seconds(result.end),
            job.alone.to_string(),
            seconds(run),
            normalised.unwrap_or_default(),
            seconds(job.job.goal_s.map(Micros::from_seconds)),
            u8::from(violated(job, result)).to_string(),
            node.unwrap_or_default(),
            result.devices.to_string(),
            result.remote.to_string(),
            result.postponed.to_string(),
        ]
    });
    csv_text(header, rows)
}

/// One row for each moment at which something changed. GPUs and cores are whole ones, with fractions.
pub fn samples_csv(outcome: &Outcome) -> String {
    let milli = |value: u64| format!("{}.{:03}", value / 1000, value % 1000);
    let rows = outcome.samples.iter().map(|sample| {
        [
            sample.at.to_string(),
            milli(sample.gpu_milli),
            milli(sample.remote_gpu_milli),
            milli(sample.cpu_milli),
            sample.running.to_string(),
            sample.waiting.to_string(),
        ]
    });
    csv_text(["time_s", "gpus", "remote_gpus", "cores", "running", "waiting"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Sample;
    use rgpu_placement::{ClusterBuilder, DeviceSpec, Job, JobId, NodeSpec, Profile, Profiles, Task};

    #[test]
    fn a_summary_by_hand() {
        let node = NodeSpec::new("n,1", 1000, 1).with_devices(2, DeviceSpec::gpu("T4", 1));
        let cluster = ClusterBuilder::new().node(node).build().unwrap();
        let profiles = Profiles::new(vec![Profile::new("p", 10.0)]).unwrap();
        let job = |id, submit_s| {
            let task = Task::new(1, 1).with_gpus(1);
            let goal_s = Some(10.5);
            Submission::new(
                Job { submit_s, goal_s, ..Job::new(JobId(id), format!("j{id}"), task) },
                &profiles,
            )
        };
        let jobs = [job(0, 1.0), job(1, 2.0)];
        let second = |s: u64| Micros(s * 1_000_000);
        let sample = |at, gpu_milli| Sample {
            at: second(at),
            gpu_milli,
            remote_gpu_milli: 0,
            cpu_milli: 2,
            running: 1,
            waiting: 0,
        };
        let ended = |start, end| JobOutcome {
            start: Some(second(start)),
            end: Some(second(end)),
            devices: 1,
            ..JobOutcome::default()
        };
        let outcome = Outcome {
            jobs: vec![ended(1, 11), JobOutcome { remote: 1, postponed: 2, ..ended(4, 21) }],
            samples: vec![sample(0, 0), sample(1, 1000), sample(4, 2000), sample(11, 1000), sample(21, 0)],
            rounds: 5,
            ..Outcome::default()
        };
        let summary = Summary::new(&cluster, &jobs, &outcome);
        assert_eq!((summary.makespan_s, summary.violations, summary.ended), (20.0, 1, 2));
        assert_eq!((summary.mean_wait_s, summary.p99_wait_s), (1.0, 2.0));
        // 3 s of one GPU, 7 s of two, 10 s of one: 27 of 40.
        assert_eq!((summary.gpu_percent, summary.remote_percent), (67.5, 50.0));
        assert!((summary.mean_slowdown - 1.35).abs() < 1e-9);
        assert_eq!(
            jobs_csv(&cluster, &jobs, &outcome).lines().nth(2).unwrap(),
            "j1,2.000000,4.000000,21.000000,10.000000,17.000000,1.700000,10.500000,1,\"n,1\",1,1,2"
        );
        assert_eq!(samples_csv(&outcome).lines().nth(2).unwrap(), "1.000000,1.000,0.000,0.002,1,0");
        assert_eq!(gpus_over_time("x", &outcome).points[2], (4.0, 2.0));
    }

    #[test]
    fn columns_stand_under_each_other() {
        let rows = [["a", "bb"], ["ccc", "d"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(align(&rows), "a    bb\nccc   d\n");
    }
}
