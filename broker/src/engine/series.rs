//! What nodes measure of their devices and of leases, over time.
//!
//! Each heartbeat is a sample. Of a device the latest [`DEVICE_SAMPLES`] are kept, the five metrics of Kube-Knots (Thinakaran et al.,
//! CLUSTER 2019, section IV-A); of a lease its use over the whole run, from which its program's [`Footprint`] is made, and
//! the latest of its shares, by which it is resized. Nothing here is stored: it is known again soon after a restart.
//!
//! A node may say anything. What cannot be is clamped to what can, which harms nobody but those who have something of that node,
//! and is said once.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rgpu_control::LeaseId;
use rgpu_control::api::{DeviceLoad, DeviceReport, GrantUsage};
use rgpu_placement::WHOLE;
use rgpu_placement::harvest::{Footprint, Sample};
use rgpu_placement::series::percentile;

use super::core::Core;
use super::model::MIB;

/// So many samples of a device are kept.
pub(super) const DEVICE_SAMPLES: usize = 50;
/// After so many heartbeats that did not come, a node's samples say nothing any more.
pub(super) const STALE_BEATS: u64 = 4;
/// By so many of its latest samples a lease is resized.
const RECENT: usize = 16;
/// With fewer samples than these nothing is known of a lease's use.
const ENOUGH: usize = 3;
/// What is set aside beyond typical use: this part of it, and so many thousandths of a device.
const MARGIN: (f64, f64) = (0.2, 20.0);
/// Less than this is not set aside for a lease, unless it was promised less.
const LEAST_MILLI: u16 = 50;
/// From this part of what is set aside for it, a lease that uses it counts as one that grows.
const GROWS: f64 = 0.95;
/// No GPU draws more (watts).
const MOST_POWER_W: f64 = 10_000.0;

/// What was measured of a node's devices.
#[derive(Default)]
pub(crate) struct NodeSeries {
    /// When the latest sample was taken, in ms of the engine's time.
    sampled: Option<u64>,
    /// What each lease had received and sent by each device then, in bytes.
    moved: BTreeMap<(LeaseId, u32), [u64; 2]>,
    /// By device, the oldest first. The placement reads them, too.
    devices: Arc<Vec<VecDeque<Sample>>>,
    /// Its server says what is set aside for leases: it can lend.
    pub lends: bool,
    /// It has said something that cannot be.
    odd: bool,
}

/// The same, as the placement is told.
#[derive(Clone)]
pub(crate) struct Measured {
    /// When the latest sample was taken, in seconds of the placement's time.
    pub at_s: f64,
    /// By device, the oldest first.
    pub devices: Arc<Vec<VecDeque<Sample>>>,
    /// By device: whether time that a lease leaves can be lent to others.
    pub lends: Vec<bool>,
}

/// A series over a whole run. When it gets long, every second value goes.
#[derive(Default)]
struct Whole {
    values: Vec<f64>,
    /// Of so many values one is kept: 1 << this.
    thinned: u32,
    seen: u64,
}

impl Whole {
    /// Four times as many as a footprint has.
    const MOST: usize = 4 * Footprint::POINTS;

    fn push(&mut self, value: f64) {
        if self.seen.is_multiple_of(1 << self.thinned) {
            if self.values.len() == Self::MOST {
                let mut at = 0;
                self.values.retain(|_| {
                    at += 1;
                    at % 2 == 1
                });
                self.thinned += 1;
            }
            self.values.push(value);
        }
        self.seen += 1;
    }
}

/// What was measured of a lease of one device.
#[derive(Default)]
pub(crate) struct LeaseSeries {
    sampled: Option<u64>,
    memory_mib: Whole,
    /// In percent of the device's time.
    sm: Whole,
    /// The latest shares, in thousandths.
    recent: VecDeque<f64>,
    /// How many samples there are since it was resized.
    settled: usize,
    /// The version by which it was resized, and when that was decided, until its node says that it holds.
    pub ordered: Option<(u64, Duration)>,
}

impl LeaseSeries {
    fn push(&mut self, memory_mib: f64, milli: f64) {
        self.memory_mib.push(memory_mib);
        self.sm.push(milli / 10.0);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(milli);
        self.settled += 1;
    }

    /// How its program used its device, if enough was seen of that.
    pub(super) fn footprint(&self) -> Option<Footprint> {
        let enough = self.sm.values.len() >= ENOUGH;
        enough.then(|| Footprint::new(&self.memory_mib.values, &self.sm.values)).flatten()
    }

    /// What is to be set aside for a lease for which `now` thousandths are, and which was promised these. Who grows has at once
    /// what it was promised; less is set aside when that has been enough for a while, and not for every trifle.
    pub(super) fn size(&self, promised: u16, now: u16) -> u16 {
        let Some(latest) = self.recent.back() else { return now };
        if self.settled > 0 && *latest > GROWS * f64::from(now) {
            return promised;
        }
        if self.recent.len() < ENOUGH {
            return now;
        }
        let recent: Vec<f64> = self.recent.iter().copied().collect();
        let typical = with_margin(percentile(&recent, Footprint::TYPICAL), promised);
        let trifle = (now / 10).max(20);
        if typical > now || (self.settled >= ENOUGH && typical.saturating_add(trifle) < now) {
            return typical;
        }
        now
    }

    /// It has another size from now on. Of what was before it grew, nothing follows any more.
    pub(super) fn resized(&mut self, grew: bool, version: u64, at: Duration) {
        self.settled = 0;
        self.ordered = Some((version, at));
        if grew {
            self.recent.clear();
        }
    }
}

/// What is set aside for a use of so many thousandths, of those that were promised.
pub(super) fn with_margin(typical_milli: f64, promised: u16) -> u16 {
    let milli = (typical_milli * (1.0 + MARGIN.0) + MARGIN.1).ceil().clamp(0.0, f64::from(WHOLE)) as u16;
    milli.clamp(LEAST_MILLI.min(promised), promised)
}

/// A number that can be, and whether it is the one that was said.
fn believable(said: f64, most: f64) -> (f64, bool) {
    let number = if said.is_finite() { said.clamp(0.0, most) } else { 0.0 };
    (number, number == said)
}

/// What a node says of a device, as far as that can be; and whether all of it can.
fn sample(load: &DeviceLoad, report: &DeviceReport, moved: [u64; 2], ms: u64) -> (Sample, bool) {
    let (sm, sm_fine) = believable(f64::from(load.utilization_percent), 100.0);
    let memory = load.memory_used.min(report.memory);
    let (power_w, power_fine) = believable(load.power_w.unwrap_or(0.0), MOST_POWER_W);
    let mb_s = |bytes: u64| bytes as f64 / 1000.0 / ms.max(1) as f64;
    let sample = Sample {
        sm,
        memory_mib: memory as f64 / MIB as f64,
        power_w,
        tx_mb_s: mb_s(moved[1]),
        rx_mb_s: mb_s(moved[0]),
    };
    (sample, sm_fine && power_fine && memory == load.memory_used)
}

/// Whether time of a device can be lent where its server knows how: workers of a software GPU can be stopped at any moment, so what is
/// lent is given back at once. A kernel on another GPU cannot.
pub(super) fn is_lendable(report: &DeviceReport) -> bool {
    report.partitionable && report.enforced_by == "workers"
}

impl Core {
    /// A node has said how its devices and leases are: takes a sample of them, where somebody wants that.
    pub(super) fn observe(&mut self, name: &str) {
        if !self.harvests() {
            return;
        }
        let (now, apart) = (self.now(), self.settings.heartbeat_ms / 2);
        let Some(node) = self.nodes.get(name) else { return };
        let (live, reports) = (&node.live, &node.record.registration.devices);
        let before = live.series.sampled;
        // Heartbeats that come because something has happened say the same once more.
        if before.is_some_and(|before| now < before + apart) {
            return;
        }
        let mut odd = false;
        let mut moved = BTreeMap::new();
        let mut by_device: BTreeMap<u32, [u64; 2]> = BTreeMap::new();
        let mut lends = live.series.lends;
        for id in &live.leases {
            let Some((_, usage)) = self.leases.get(id).and_then(|entry| entry.live.usage.get(name)) else {
                continue;
            };
            for one in usage {
                lends |= one.set_aside_milli.is_some();
                let total = [one.bytes_in, one.bytes_out];
                moved.insert((*id, one.device), total);
                // Of one that was not seen before it is not known when it moved what it has.
                let earlier = live.series.moved.get(&(*id, one.device)).copied().unwrap_or(total);
                let sum = by_device.entry(one.device).or_default();
                (0..2).for_each(|i| sum[i] = sum[i].saturating_add(total[i].saturating_sub(earlier[i])));
            }
        }
        let ms = before.map_or(self.settings.heartbeat_ms, |before| now - before);
        let mut devices = live.series.devices.clone();
        let series = Arc::make_mut(&mut devices);
        series.resize_with(reports.len(), VecDeque::new);
        for load in &live.loads {
            let Some((report, series)) =
                reports.get(load.index as usize).zip(series.get_mut(load.index as usize))
            else {
                odd = true;
                continue;
            };
            let bytes = by_device.get(&load.index).copied().unwrap_or_default();
            let (sample, fine) = sample(load, report, bytes, ms);
            odd |= !fine;
            if series.len() == DEVICE_SAMPLES {
                series.pop_front();
            }
            series.push_back(sample);
        }
        for id in live.leases.clone() {
            odd |= !self.observe_lease(name, id, now);
        }
        let series = &mut self.live_node(name).series;
        (series.sampled, series.moved, series.devices, series.lends) = (Some(now), moved, devices, lends);
        if odd && !std::mem::replace(&mut self.live_node(name).series.odd, true) {
            let text = format!("node {name} reports more than its devices have: what is more is not counted");
            tracing::warn!("{text}");
            self.note("node_odd", Some(name), None, text);
        }
        self.changes.measured.insert(name.to_owned());
    }

    /// Takes a sample of a lease. False if what its node says of it cannot be.
    fn observe_lease(&mut self, node: &str, id: LeaseId, now: u64) -> bool {
        let Some(entry) = self.leases.get(&id) else { return true };
        // A program that has not begun, or is gone, is no example of its use.
        let usage = entry.live.usage.get(node).filter(|(sessions, _)| *sessions > 0);
        let Some((_, usage)) = usage else { return true };
        let ([grant], [GrantUsage { memory, share_milli, .. }]) =
            (entry.record.grants.as_slice(), usage.as_slice())
        else {
            return true;
        };
        // It may still have what it was given before.
        let most = entry.record.counted(grant) as f64;
        let (memory, memory_fine) = believable(*memory as f64, most);
        // Its clock and the workers' are not read in the same instant.
        let (milli, milli_fine) = believable(f64::from(*share_milli), f64::from(WHOLE));
        let milli_fine = milli_fine || *share_milli <= u32::from(WHOLE) * 11 / 10;
        let series = self.harvest.series.entry(id).or_default();
        series.sampled = Some(now);
        series.push(memory / MIB as f64, milli);
        memory_fine && milli_fine
    }

    /// What is told to the placement of a node's devices.
    pub(super) fn measured_of(&self, name: &str) -> Option<Measured> {
        let node = self.nodes.get(name)?;
        let series = &node.live.series;
        let ago_s = self.now().saturating_sub(series.sampled?) as f64 / 1000.0;
        let devices = node.record.registration.devices.iter();
        let lends = devices.map(|device| series.lends && is_lendable(device)).collect();
        Some(Measured { at_s: self.now_s() - ago_s, devices: series.devices.clone(), lends })
    }

    /// Whether a node was measured lately.
    pub(super) fn is_measured(&self, name: &str) -> bool {
        let fresh = |at: u64| self.now().saturating_sub(at) <= STALE_BEATS * self.settings.heartbeat_ms;
        let node = self.nodes.get(name).filter(|node| !node.live.lost && !node.live.silent);
        node.and_then(|node| node.live.series.sampled).is_some_and(fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> DeviceReport {
        let text = r#"{"index":0,"model":"T4","uuid":"u","memory":1073741824,"partitionable":true,
            "compute_capability":"7.5","software":true,"enforced_by":"workers"}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_cannot_be_is_clamped() {
        let load = DeviceLoad { utilization_percent: 40, memory_used: 512 << 20, ..DeviceLoad::default() };
        let (seen, fine) = sample(&load, &device(), [3_000_000, 1_000_000], 1000);
        assert!(fine);
        assert_eq!((seen.sm, seen.memory_mib, seen.rx_mb_s, seen.tx_mb_s), (40.0, 512.0, 3.0, 1.0));
        for odd in [
            DeviceLoad { utilization_percent: 400, ..load.clone() },
            DeviceLoad { memory_used: u64::MAX, ..load.clone() },
            DeviceLoad { power_w: Some(-1.0), ..load.clone() },
            DeviceLoad { power_w: Some(f64::NAN), ..load.clone() },
            DeviceLoad { power_w: Some(f64::INFINITY), ..load.clone() },
        ] {
            let (seen, fine) = sample(&odd, &device(), [0, 0], 0);
            assert!(!fine, "{odd:?}");
            assert!(seen.sm <= 100.0 && seen.memory_mib <= 1024.0, "{seen:?}");
            assert!((0.0..=MOST_POWER_W).contains(&seen.power_w), "{seen:?}");
        }
        assert!(is_lendable(&device()));
        assert!(!is_lendable(&DeviceReport { enforced_by: "pacing".into(), ..device() }));
    }

    #[test]
    fn a_lease_is_sized_by_what_it_uses_within_what_it_was_promised() {
        let mut series = LeaseSeries::default();
        let feed = |series: &mut LeaseSeries, milli: f64, times: usize| {
            (0..times).for_each(|_| series.push(1.0, milli));
        };
        feed(&mut series, 100.0, ENOUGH - 1);
        assert_eq!(series.size(500, 500), 500);
        feed(&mut series, 100.0, 1);
        // 100 and a fifth, and 20.
        assert_eq!(series.size(500, 500), 140);
        series.resized(false, 2, Duration::ZERO);
        feed(&mut series, 110.0, 8);
        assert_eq!(series.size(500, 140), 152);
        // Less than a tenth of a difference is none; idle leases keep a little.
        assert_eq!(series.size(500, 160), 160);
        feed(&mut series, 0.0, RECENT);
        assert_eq!((series.size(500, 140), series.size(30, 30)), (LEAST_MILLI, 30));
        // Who grows has all of it at once, and the past counts no more.
        feed(&mut series, 140.0, 1);
        assert_eq!(series.size(500, 140), 500);
        series.resized(true, 3, Duration::ZERO);
        assert_eq!(series.size(500, 500), 500);
        feed(&mut series, 700.0, RECENT);
        assert_eq!(series.size(500, 500), 500);
    }

    #[test]
    fn a_long_run_is_thinned_evenly() {
        let mut whole = Whole::default();
        (0..10_000).for_each(|i| whole.push(f64::from(i)));
        assert!(whole.values.len() <= Whole::MOST && whole.values.len() >= Whole::MOST / 2);
        let step = whole.values[1] - whole.values[0];
        assert!(whole.values.windows(2).all(|pair| pair[1] - pair[0] == step), "{:?}", whole.values);
    }
}
