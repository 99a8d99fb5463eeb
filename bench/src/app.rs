//! `rgpu bench app`: a whole program, in every way.

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use crate::measure::Samples;
use crate::report::Row;
use crate::rig::Rig;
use crate::way::{Counters, Way};
use crate::{Failure, Progress};

/// Runs the program, and returns one row a way, each beside the first way that needs no server.
pub(crate) fn measure(rig: &Rig, command: &[OsString], progress: &Progress) -> Result<Vec<Row>, Failure> {
    let (program, arguments) =
        command.split_first().ok_or_else(|| Failure::new("Say which program to run: app -- CMD"))?;
    let ways = rig.ways();
    let mut times = vec![Samples::default(); ways.len()];
    let mut counts = vec![None; ways.len()];
    let mut output = None;
    // The first round warms caches on either side and is not counted.
    for round in 0..=rig.rounds() {
        for (i, way) in ways.iter().enumerate() {
            progress.step(&format!("{way}, round {round}"));
            let counters = Counters::create()?;
            let start = Instant::now();
            let done = rig
                .launcher()
                .command(*way, Path::new(program))?
                .args(arguments)
                .env(rgpu_protocol::stats::STATS_FILE_VARIABLE, counters.path())
                .stdin(Stdio::null())
                .stderr(Stdio::inherit())
                .output()
                .map_err(|e| Failure::new(format!("Cannot start {}: {e}", Path::new(program).display())))?;
            let took = start.elapsed().as_secs_f64();
            if !done.status.success() {
                return Err(Failure::new(format!(
                    "{} failed {}: {}\n{}",
                    Path::new(program).display(),
                    if *way == Way::Native { "natively".into() } else { format!("over {way}") },
                    done.status,
                    String::from_utf8_lossy(&done.stdout)
                )));
            }
            match &output {
                None => output = Some(done.stdout),
                Some(first) if *first != done.stdout => progress.note(&format!(
                    "the program printed something else over {way} than in its first run (a time, perhaps)"
                )),
                Some(_) => {}
            }
            counts[i] = Some(counters.read()?);
            if round > 0 {
                times[i].push(took * 1e3);
            }
        }
    }
    let base = ways.iter().position(|way| !way.is_remote());
    let base_summary = base.and_then(|i| times[i].summary());
    Ok(ways
        .iter()
        .enumerate()
        .filter_map(|(i, way)| {
            let mut row = Row::new("start to exit", way.name(), "ms", times[i].summary()?);
            if let Some(base) = base.filter(|base| *base != i) {
                row = row.with_limit(ways[base].name(), base_summary);
            }
            if let Some(counts) = counts[i].as_ref().filter(|_| way.is_remote()) {
                row.bytes = Some((counts.bytes_sent, counts.bytes_received));
                row.round_trips = Some(counts.round_trips as f64);
            }
            Some(row)
        })
        .collect())
}
