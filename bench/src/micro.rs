//! The measurements of single calls: `latency`, `launch`, `calls`, `bandwidth`.

use crate::measure::{Samples, Summary};
use crate::raw::{self, Exchange};
use crate::report::Row;
use crate::rig::Rig;
use crate::task::{Asked, Reply, Task};
use crate::way::{Way, Worker};
use crate::{Failure, Progress};

/// Scales a summary of nanoseconds.
fn scaled(s: Summary, by: f64) -> Summary {
    Summary { min: s.min * by, p25: s.p25 * by, p50: s.p50 * by, p75: s.p75 * by, p99: s.p99 * by, ..s }
}

/// Bytes a second from the nanoseconds that `bytes` took, in GiB/s.
fn gib_a_second(bytes: f64, nanoseconds: f64) -> f64 {
    bytes / nanoseconds * 1e9 / f64::from(1u32 << 30)
}

fn median(samples: &[u64]) -> Option<f64> {
    let mut all = Samples::default();
    all.extend(samples);
    Some(all.summary()?.p50)
}

/// The smallest and the largest.
fn spread(ratios: &[f64]) -> Option<(f64, f64)> {
    let low = ratios.iter().copied().min_by(f64::total_cmp)?;
    Some((low, ratios.iter().copied().max_by(f64::total_cmp)?))
}

/// Samples of one way and of its limit, round by round.
#[derive(Default)]
struct Pair {
    value: Samples,
    limit: Samples,
    ratios: Vec<f64>,
}

impl Pair {
    fn add(&mut self, value: &[u64], limit: Option<&[u64]>) {
        self.value.extend(value);
        if let Some(limit) = limit {
            self.limit.extend(limit);
            self.ratios.extend(median(value).zip(median(limit)).map(|(v, l)| v / l));
        }
    }

    fn row(&self, what: &str, way: Way, unit: &'static str, by: f64, limit: &str) -> Option<Row> {
        let value = scaled(self.value.summary()?, by);
        let mut row = Row::new(what, way.name(), unit, value);
        if !self.limit.is_empty() {
            let limit_summary = self.limit.summary().map(|s| scaled(s, by));
            row = row.with_limit(limit, limit_summary);
            row.ratio_p99 = limit_summary.filter(|l| l.count >= 100).map(|l| value.p99 / l.p99);
            row.ratio_spread = spread(&self.ratios);
        }
        Some(row)
    }
}

/// Calls that are waited for: one that must be asked, and four bytes copied to the host.
pub(crate) fn latency(rig: &Rig, count: u32, progress: &Progress) -> Result<Vec<Row>, Failure> {
    let mut workers = rig.workers()?;
    let mut rows = Vec::new();
    for call in [Asked::FreeMemory, Asked::FourBytes] {
        let mut pairs: Vec<Pair> = workers.iter().map(|_| Pair::default()).collect();
        let mut bytes = vec![None; workers.len()];
        let mut raws = Vec::new();
        for (worker, bytes) in workers.iter_mut().zip(&mut bytes) {
            // A first, uncounted round finds out how many bytes a call is, so that the limit sends as many.
            let reply = worker.ask(&Task::Asked { call, count })?;
            let calls = u64::from(count) + 2;
            *bytes = worker.way.is_remote().then(|| reply.bytes_a_call(calls));
            raws.push(match *bytes {
                // Where nothing is sent, there is no such limit.
                Some((sent, received)) if sent > 0 && received > 0 => {
                    rig.raw(worker.way, Exchange::PingPong { sent, received })?
                }
                _ => None,
            });
        }
        for round in 0..rig.rounds() {
            for ((worker, pair), raw) in workers.iter_mut().zip(&mut pairs).zip(&mut raws) {
                progress.step(&format!("{}, {}, round {round}", worker.way, call.name()));
                let limit = raw.as_mut().map(|raw| raw.exchange(count)).transpose()?;
                let reply = worker.ask(&Task::Asked { call, count })?;
                pair.add(&reply.samples, limit.as_deref());
            }
        }
        for ((worker, pair), bytes) in workers.iter().zip(&pairs).zip(bytes) {
            let row = pair.row(call.name(), worker.way, "µs", 1e-3, "raw ping-pong");
            rows.extend(row.map(|row| Row { bytes, ..row }));
        }
    }
    Ok(rows)
}

/// Posted launches of a kernel with four arguments.
pub(crate) fn launch(rig: &Rig, count: u32, progress: &Progress) -> Result<Vec<Row>, Failure> {
    let mut workers = rig.workers()?;
    let mut last: Vec<Option<Reply>> = vec![None; workers.len()];
    let mut times = vec![(Samples::default(), Samples::default()); workers.len()];
    for round in 0..=rig.rounds() {
        for ((worker, last), (returned, done)) in workers.iter_mut().zip(&mut last).zip(&mut times) {
            progress.step(&format!("{}, round {round}", worker.way));
            let reply = worker.ask(&Task::Launches { count })?;
            if let (true, [first, second]) = (round > 0, &reply.samples[..]) {
                returned.push(*first as f64 / f64::from(count));
                done.push(*second as f64 / f64::from(count));
            }
            *last = Some(reply);
        }
    }
    let base = workers.iter().position(|w| !w.way.is_remote());
    let mut rows = Vec::new();
    for (what, second) in [("launch, until it returns", false), ("launch, until it is done", true)] {
        let of = |i: usize| if second { times[i].1.summary() } else { times[i].0.summary() };
        for (i, worker) in workers.iter().enumerate() {
            let Some(summary) = of(i) else { continue };
            let mut row = Row::new(what, worker.way.name(), "ns", summary);
            if let Some(base) = base.filter(|base| *base != i) {
                row = row.with_limit(workers[base].way.name(), of(base));
            }
            if let Some(reply) = last[i].as_ref().filter(|_| worker.way.is_remote()) {
                row.bytes = Some(reply.bytes_a_call(u64::from(count)));
                row.round_trips = Some(reply.round_trips as f64 / f64::from(count));
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Every call that programs make often.
pub(crate) fn calls(rig: &Rig, count: u32, progress: &Progress) -> Result<Vec<Row>, Failure> {
    let mut workers = rig.workers()?;
    let names = match workers.first_mut() {
        Some(worker) => worker.ask(&Task::Describe)?.calls,
        None => return Ok(Vec::new()),
    };
    let mut rows = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let mut times = vec![Samples::default(); workers.len()];
        let mut counts = vec![(0, (0, 0)); workers.len()];
        for round in 0..rig.rounds() {
            for (i, worker) in workers.iter_mut().enumerate() {
                progress.step(&format!("{name}, {}, round {round}", worker.way));
                let reply = worker.ask(&Task::Call { index, count })?;
                times[i].extend(&reply.samples);
                counts[i] = (reply.round_trips, reply.bytes_a_call(u64::from(count)));
            }
        }
        let base = workers.iter().position(|w| !w.way.is_remote());
        for (i, worker) in workers.iter().enumerate() {
            let Some(summary) = times[i].summary() else { continue };
            let mut row = Row::new(name, worker.way.name(), "µs", scaled(summary, 1e-3));
            if let Some(base) = base.filter(|base| *base != i) {
                let limit = times[base].summary().map(|s| scaled(s, 1e-3));
                row = row.with_limit(workers[base].way.name(), limit);
            }
            if worker.way.is_remote() {
                row.bytes = Some(counts[i].1);
                row.round_trips = Some(counts[i].0 as f64 / f64::from(count));
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

/// How many copies of a size make one sample: enough to be worth timing, few enough to be quick.
fn repeats(bytes: usize) -> u32 {
    let wanted = (64 << 20) / bytes.max(1);
    wanted.clamp(1, 200) as u32
}

/// Copies of each size in both directions, of pageable and pinned memory.
pub(crate) fn bandwidth(rig: &Rig, sizes: &[usize], progress: &Progress) -> Result<Vec<Row>, Failure> {
    let mut workers = rig.workers()?;
    let mut rows = Vec::new();
    for &bytes in sizes {
        for to_device in [true, false] {
            for pinned in [false, true] {
                rows.extend(copies(rig, &mut workers, (bytes, to_device, pinned), progress)?);
            }
        }
    }
    Ok(rows)
}

/// The name of a row of `bandwidth`.
pub(crate) fn copy_name(to_device: bool, pinned: bool) -> String {
    let direction = if to_device { "host to device" } else { "device to host" };
    format!("{direction}, {}", if pinned { "pinned" } else { "pageable" })
}

fn copies(
    rig: &Rig,
    workers: &mut [Worker],
    (bytes, to_device, pinned): (usize, bool, bool),
    progress: &Progress,
) -> Result<Vec<Row>, Failure> {
    let count = repeats(bytes);
    let task = Task::Copies { to_device, pinned, bytes, count };
    let what = format!("{}, {}", copy_name(to_device, pinned), size_name(bytes));
    let total = bytes as f64 * f64::from(count);
    let exchange = match to_device {
        true => Exchange::Swallow { bytes: total as u64 },
        false => Exchange::Produce { bytes: bytes as u64 },
    };
    let mut raw = rig.raw(Way::Tcp, exchange)?;
    let mut values = vec![Samples::default(); workers.len()];
    let mut ratios = vec![Vec::new(); workers.len()];
    let (mut stream, mut memory) = (Samples::default(), Samples::default());
    for round in 0..=rig.rounds() {
        // A stream to the device is one way: it is acknowledged once, as the last copy's synchronisation is.
        let raw_time = match &mut raw {
            Some(raw) => Some(raw.exchange(if to_device { 1 } else { count })?.iter().sum::<u64>()),
            None => None,
        };
        let memcpy_time = raw::memcpy(bytes, count);
        for (i, worker) in workers.iter_mut().enumerate() {
            progress.step(&format!("{what}, {}, round {round}", worker.way));
            let reply = worker.ask(&task)?;
            let Some(time) = reply.samples.first().filter(|_| round > 0) else { continue };
            let value = gib_a_second(total, *time as f64);
            values[i].push(value);
            let limit = if worker.way.is_tcp() { raw_time } else { Some(memcpy_time) };
            ratios[i].extend(limit.map(|l| value / gib_a_second(total, l as f64)));
        }
        if round > 0 {
            memory.push(gib_a_second(total, memcpy_time as f64));
            stream.extend_from(raw_time.map(|t| gib_a_second(total, t as f64)));
        }
    }
    let mut rows = Vec::new();
    for (i, worker) in workers.iter().enumerate() {
        let Some(summary) = values[i].summary() else { continue };
        let (name, limit) = match worker.way {
            Way::Tcp | Way::Tls => ("raw stream", stream.summary()),
            _ => ("memcpy", memory.summary()),
        };
        let mut row = Row::new(&what, worker.way.name(), "GiB/s", summary).with_limit(name, limit);
        row.ratio_spread = spread(&ratios[i]);
        rows.push(row);
    }
    Ok(rows)
}

/// A size as people write it.
pub(crate) fn size_name(bytes: usize) -> String {
    match bytes {
        b if b >= 1 << 30 && b % (1 << 30) == 0 => format!("{} GiB", b >> 30),
        b if b >= 1 << 20 && b % (1 << 20) == 0 => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 && b % (1 << 10) == 0 => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_named() {
        for (bytes, name) in
            [(4, "4 B"), (4096, "4 KiB"), (64 << 20, "64 MiB"), (1 << 30, "1 GiB"), (1500, "1500 B")]
        {
            assert_eq!(size_name(bytes), name);
        }
    }

    #[test]
    fn nothing_measured_is_no_figure() {
        assert_eq!((median(&[]), spread(&[])), (None, None));
        assert!(Pair::default().row("x", Way::Tcp, "µs", 1.0, "raw").is_none());
        let mut alone = Pair::default();
        alone.add(&[100, 200, 300], None);
        let row = alone.row("x", Way::Shm, "µs", 1e-3, "raw").unwrap();
        assert_eq!((row.value.p50, row.limit, row.ratio, row.ratio_spread), (0.2, None, None, None));
        assert_eq!(row.limit_name, "");
    }

    #[test]
    fn bandwidth_is_in_powers_of_1024() {
        assert_eq!(gib_a_second(f64::from(1u32 << 30), 1e9), 1.0);
        assert_eq!(gib_a_second(f64::from(1u32 << 29), 0.25e9), 2.0);
        assert_eq!((median(&[7, 1, 3]), spread(&[2.0, 0.5, 1.0])), (Some(3.0), Some((0.5, 2.0))));
    }

    #[test]
    fn ratios_are_of_medians() {
        let mut pair = Pair::default();
        pair.add(&[200, 300, 400], Some(&[100, 200, 300]));
        pair.add(&[300, 300, 300], Some(&[100, 100, 100]));
        let row = pair.row("x", Way::Tcp, "µs", 1e-3, "raw").unwrap();
        assert_eq!(row.value.p50, 0.3);
        assert_eq!(row.ratio_spread, Some((1.5, 3.0)));
        assert_eq!(repeats(4), 200);
        assert_eq!(repeats(256 << 20), 1);
    }
}
