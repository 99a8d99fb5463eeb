//! `rgpu bench many`: many programs at once on one server, beside few.
//!
//! Each round starts the programs anew, has all of them connect, and then has all launch at the same time. The launches are the
//! same in all, however many programs share them; starting and connecting do not count. Before they launch, all are idle, and then
//! it is looked how much memory each of them and each of their servers has.

use std::path::PathBuf;
use std::time::Instant;

use serde::Serialize;

use crate::measure::{Samples, Summary};
use crate::task::Task;
use crate::way::{Launcher, Service, Way, Worker};
use crate::{Failure, Progress};

/// What to measure.
#[derive(Debug, Clone, clap::Args, Serialize)]
pub(crate) struct Options {
    /// How many programs at once; what comes after the first is compared with that
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "2,64",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    programs: Vec<u32>,
    /// Launches a round, of all programs together
    #[arg(long, value_name = "N", default_value_t = 2_000_000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    launches: u32,
    /// The ways to the server
    #[arg(long, value_delimiter = ',', value_name = "WAY", default_value = "shm,tcp")]
    ways: Vec<Way>,
    /// Rounds that count; one more comes first
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// The GPU of the server
    #[arg(long, value_name = "KIND", default_value = "software")]
    device: String,
    /// Write the results to this file
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    json: Option<PathBuf>,
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    cores: usize,
    options: Options,
    rows: Vec<Row>,
}

/// One way, and one number of programs.
#[derive(Debug, Serialize)]
struct Row {
    way: Way,
    programs: u32,
    /// Launches a second, of all programs together.
    rate: Summary,
    /// The median in proportion to that of the first number of programs.
    ratio: f64,
    /// Bytes (Pss) that an idle program has, and its server; nothing where the system doesn't tell.
    idle_program: Option<u64>,
    idle_server: Option<u64>,
}

/// What a round has found.
struct Round {
    rate: f64,
    idle_program: Option<u64>,
    idle_server: Option<u64>,
}

/// Measures, and prints a table.
pub(crate) fn main(options: &Options) -> Result<(), Failure> {
    if let Some(way) = options.ways.iter().find(|way| !matches!(way, Way::Shm | Way::Tcp | Way::Rdma)) {
        return Err(Failure::new(format!(
            "The programs share a server, which {way} has none of, or no use for"
        )));
    }
    let rgpu = std::env::current_exe().map_err(|e| Failure::new(format!("Where is rgpu? {e}")))?;
    let service = Service::start(&rgpu, &["serve", "--listen", "127.0.0.1:0", "--device", &options.device])?;
    let server = Some(service.address.clone());
    let launcher = Launcher { rgpu, server, shaped: None, token_file: None, fingerprint: None };
    let kinds: Vec<(Way, u32)> =
        options.ways.iter().flat_map(|way| options.programs.iter().map(|n| (*way, *n))).collect();
    let mut rounds: Vec<Vec<Round>> = kinds.iter().map(|_| Vec::new()).collect();
    let progress = Progress::start();
    for number in 0..=options.rounds {
        for ((way, programs), rounds) in kinds.iter().zip(&mut rounds) {
            progress.step(&format!("{programs} programs over {way}"));
            let round = measure(&launcher, &service, *way, *programs, options.launches)?;
            if number > 0 {
                rounds.push(round);
            }
        }
    }
    progress.0.finish_and_clear();
    let mut rows: Vec<Row> = Vec::new();
    for ((way, programs), rounds) in kinds.into_iter().zip(rounds) {
        let rates: Samples = rounds.iter().map(|round| round.rate).collect();
        let rate = rates.summary().ok_or_else(|| Failure::new("Nothing was measured"))?;
        let first = rows.iter().find(|row| row.way == way).map_or(rate.p50, |row| row.rate.p50);
        rows.push(Row {
            way,
            programs,
            rate,
            ratio: rate.p50 / first,
            idle_program: rounds.last().and_then(|round| round.idle_program),
            idle_server: rounds.last().and_then(|round| round.idle_server),
        });
    }
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        options: options.clone(),
        rows,
    };
    print(&report);
    if let Some(path) = &options.json {
        crate::report::write_json(&report, path)?;
    }
    Ok(())
}

fn print(report: &Report) {
    println!(
        "many: {} launches a round, shared by all programs, {} rounds, {} cores\n",
        report.options.launches, report.options.rounds, report.cores
    );
    println!(
        "{:<6} {:>9} {:>12} {:>12} {:>12} {:>7} {:>14} {:>14}",
        "way", "programs", "launches/s", "slowest", "p75", "ratio", "idle program", "its server"
    );
    let memory = |bytes: Option<u64>| match bytes {
        Some(bytes) => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
        None => "unknown".into(),
    };
    for row in &report.rows {
        println!(
            "{:<6} {:>9} {:>12.0} {:>12.0} {:>12.0} {:>7.2} {:>14} {:>14}",
            row.way.name(),
            row.programs,
            row.rate.p50,
            row.rate.min,
            row.rate.p75,
            row.ratio,
            memory(row.idle_program),
            memory(row.idle_server)
        );
    }
}

/// Starts programs, has them launch, and ends them.
fn measure(
    launcher: &Launcher,
    service: &Service,
    way: Way,
    programs: u32,
    launches: u32,
) -> Result<Round, Failure> {
    let mut workers =
        (0..programs).map(|_| Worker::start(launcher, way)).collect::<Result<Vec<_>, Failure>>()?;
    let mean = |pids: &[u32]| {
        let each: Option<Vec<u64>> = pids.iter().map(|pid| pss(*pid)).collect();
        each.filter(|each| !each.is_empty()).map(|each| each.iter().sum::<u64>() / each.len() as u64)
    };
    let ids: Vec<u32> = workers.iter().map(Worker::pid).collect();
    let (idle_program, idle_server) = (mean(&ids), mean(&children(service.pid())));
    let task = Task::Launches { count: launches.div_ceil(programs) };
    // Once beforehand, so that each has loaded its kernel.
    workers.iter_mut().try_for_each(|worker| worker.ask(&Task::Launches { count: 1 }).map(drop))?;
    let begun = Instant::now();
    workers.iter_mut().try_for_each(|worker| worker.begin(&task))?;
    workers.iter_mut().try_for_each(|worker| worker.finish().map(drop))?;
    let took = begun.elapsed().as_secs_f64();
    let all = f64::from(launches.div_ceil(programs)) * f64::from(programs);
    Ok(Round { rate: all / took, idle_program, idle_server })
}

/// The memory of a process, with its part of what it shares, in bytes.
fn pss(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// The processes that a process has started.
fn children(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|text| text.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_children_of_this_process_are_found() {
        let me = std::process::id();
        assert!(pss(me).is_none_or(|bytes| bytes > 64 << 10));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(children(me).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
