//! What the tables of chapter 4 show of a simulation (section 4.4.3), measured from when the ideal load factor reaches 0.7 to the
//! last arrival.

use std::collections::BTreeMap;

use rgpu_placement::policy::composes;
use rgpu_placement::{Cluster, DeviceId, DeviceKind};

use super::apps::{App, NVME_GB, NVME_MBPS};
use super::experiment::{Arrival, CORES, NODES};
use crate::engine::{JobOutcome, Outcome};
use crate::formats::Submission;
use crate::report::late;

/// The measures. Percentages are of the jobs that arrived while it was measured; means are over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// The load factor of the ideal infrastructure.
    pub ideal: f64,
    /// Jobs that arrived while it was measured.
    pub jobs: usize,
    /// Cores in use, by all cores.
    pub cpu: f64,
    /// NVMe bandwidth that running jobs ask for, by what there is.
    pub bandwidth: f64,
    /// The same of the capacity.
    pub capacity: f64,
    /// Jobs that ended after their deadlines.
    pub missed_percent: f64,
    /// Those of them of high priority (of all jobs, as well).
    pub missed_high_percent: f64,
    /// NVMes in use.
    pub nvme_percent: f64,
    /// From arrival to start, in seconds.
    pub wait_s: f64,
    /// NVMes in a composition, while there is one.
    pub composed: f64,
    /// Jobs on a composition, 0 while there is none.
    pub sharing: f64,
    /// Jobs by node and [`App`].
    pub by_node: [[u32; App::ALL.len()]; NODES],
    /// Jobs with NVMes that started while equation 4.4 told to maximise compositions, in percent of those with NVMes.
    pub composing_percent: f64,
}

/// The cluster between two moments.
#[derive(Default)]
struct Now {
    cores: u64,
    mbps: u64,
    gb: u64,
    /// Who uses which NVMes together.
    compositions: BTreeMap<Vec<DeviceId>, u32>,
}

/// Sums over time.
#[derive(Default)]
struct Sums {
    seconds: f64,
    cores: f64,
    mbps: f64,
    gb: f64,
    devices: f64,
    composed: f64,
    with_compositions: f64,
    sharing: f64,
}

impl Sums {
    fn add(&mut self, now: &Now, seconds: f64) {
        self.seconds += seconds;
        self.cores += seconds * now.cores as f64;
        self.mbps += seconds * now.mbps as f64;
        self.gb += seconds * now.gb as f64;
        let count = now.compositions.len() as f64;
        if count > 0.0 {
            let devices: usize = now.compositions.keys().map(Vec::len).sum();
            let jobs: u32 = now.compositions.values().sum();
            self.devices += seconds * devices as f64;
            self.composed += seconds * devices as f64 / count;
            self.with_compositions += seconds;
            self.sharing += seconds * f64::from(jobs) / count;
        }
    }
}

impl Measured {
    /// Of a simulation that is measured from `from_s` on.
    pub fn new(
        cluster: &Cluster,
        arrivals: &[Arrival],
        jobs: &[Submission],
        outcome: &Outcome,
        from_s: f64,
        ideal: f64,
    ) -> Measured {
        let until_s = arrivals.last().map_or(0.0, |last| last.at_s);
        let nvmes = |result: &JobOutcome| -> Vec<DeviceId> {
            let kind = |device: &DeviceId| cluster.device(*device).kind;
            result.granted.iter().copied().filter(|device| kind(device) == DeviceKind::Nvme).collect()
        };
        // Starts and ends, in the order of time; what ends makes room first.
        let mut changes: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * jobs.len());
        for (i, result) in outcome.jobs.iter().enumerate() {
            changes.extend(result.start.map(|at| (at.0, true, i)));
            changes.extend(result.end.map(|at| (at.0, false, i)));
        }
        changes.sort_unstable();
        let (mut now, mut sums, mut last_s) = (Now::default(), Sums::default(), from_s);
        for (at, starts, i) in changes {
            let at_s = (at as f64 / 1e6).clamp(from_s, until_s);
            if at_s > last_s {
                sums.add(&now, at_s - last_s);
                last_s = at_s;
            }
            now.change(arrivals[i].app, nvmes(&outcome.jobs[i]), starts);
        }
        sums.add(&now, until_s - last_s);
        let total = cluster.totals().devices[DeviceKind::Nvme.index()].max(1) as f64;
        let seconds = sums.seconds.max(1e-9);
        let mut measured = Measured {
            ideal,
            cpu: sums.cores / seconds / (NODES as f64 * CORES as f64),
            bandwidth: sums.mbps / seconds / (total * NVME_MBPS as f64),
            capacity: sums.gb / seconds / (total * NVME_GB as f64),
            nvme_percent: sums.devices / seconds / total * 100.0,
            composed: sums.composed / sums.with_compositions.max(1e-9),
            sharing: sums.sharing / seconds,
            composing_percent: composing(arrivals, outcome, total),
            ..Measured::default()
        };
        measured.count(arrivals, jobs, outcome, from_s);
        measured
    }

    fn count(&mut self, arrivals: &[Arrival], jobs: &[Submission], outcome: &Outcome, from_s: f64) {
        let (mut missed, mut high, mut wait_s) = (0u32, 0u32, 0.0);
        for ((arrival, job), result) in arrivals.iter().zip(jobs).zip(&outcome.jobs) {
            if let Some(by_app) = self.by_node.get_mut(result.node as usize) {
                by_app[arrival.app as usize] += 1;
            }
            if arrival.at_s < from_s {
                continue;
            }
            self.jobs += 1;
            wait_s += result.start.map_or(0.0, |start| start.since(job.at).seconds());
            if result.end.is_none() || late(job, result) {
                missed += 1;
                high += u32::from(arrival.high);
            }
        }
        let all = self.jobs.max(1) as f64;
        self.missed_percent = f64::from(missed) / all * 100.0;
        self.missed_high_percent = f64::from(high) / all * 100.0;
        self.wait_s = wait_s / all;
    }
}

impl Now {
    fn change(&mut self, app: App, nvmes: Vec<DeviceId>, starts: bool) {
        let (mbps, gb) = app.nvme();
        let amounts = [(&mut self.cores, app.cores()), (&mut self.mbps, mbps), (&mut self.gb, gb)];
        amounts.into_iter().for_each(|(sum, by)| if starts { *sum += by } else { *sum -= by });
        if nvmes.is_empty() {
            return;
        }
        let users = self.compositions.entry(nvmes.clone()).or_default();
        if starts {
            *users += 1;
        } else {
            *users -= 1;
            if *users == 0 {
                self.compositions.remove(&nvmes);
            }
        }
    }
}

/// The part (in percent) of the jobs with NVMes that started when equation 4.4 told to maximise compositions, for figure 4.6.
fn composing(arrivals: &[Arrival], outcome: &Outcome, nvmes: f64) -> f64 {
    let wants = |i: usize| arrivals[i].app.nvme().0 > 0;
    // At one moment jobs end, others are placed by the load that is left, and start.
    let mut changes: Vec<(u64, u8, usize)> = Vec::new();
    for (i, result) in outcome.jobs.iter().enumerate().filter(|(i, _)| wants(*i)) {
        changes.extend(result.start.into_iter().flat_map(|at| [(at.0, 1, i), (at.0, 2, i)]));
        changes.extend(result.end.map(|at| (at.0, 0, i)));
    }
    changes.sort_unstable();
    let (mut mbps, mut gb, mut placed, mut composed) = (0u64, 0u64, 0u32, 0u32);
    for (_, what, i) in changes {
        let (by_mbps, by_gb) = arrivals[i].app.nvme();
        match what {
            0 => (mbps, gb) = (mbps - by_mbps, gb - by_gb),
            1 => {
                placed += 1;
                let load = |sum: u64, each: u64| sum as f64 / (nvmes * each as f64);
                composed += u32::from(composes(load(mbps, NVME_MBPS), load(gb, NVME_GB)));
            }
            _ => (mbps, gb) = (mbps + by_mbps, gb + by_gb),
        }
    }
    f64::from(composed) / f64::from(placed.max(1)) * 100.0
}
