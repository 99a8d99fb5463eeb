//! What nodes and devices measured over the last hour, for people who look on. No decision is made by it.
//!
//! Each heartbeat counts towards the mean of its interval of [`INTERVAL_MS`]. Of each, [`INTERVALS`] are kept, and nothing is stored.
//! That takes 2,880 bytes for a device and 5,760 for a node: 29 kB for a node with 8 devices, 288 MB for 10,000 such nodes. The
//! broker's configuration can do without (`history = false`).

use std::collections::VecDeque;

use rgpu_control::api::{DeviceHistory, NodeHistory, Problem};
use rgpu_placement::WHOLE;

use super::core::Core;
use super::nodes::no_node;

/// The length of an interval, in ms.
const INTERVAL_MS: u64 = 10_000;
/// How many intervals are kept: an hour.
const INTERVALS: usize = 360;

/// The means of an interval. Nothing was heard in one where they are all the greatest number.
type Kept<T> = [T; 4];

/// Values of which the greatest stands for none.
trait Value: Copy + PartialEq {
    const NONE: Self;
    fn of(mean: f64) -> Self;
}

impl Value for u16 {
    const NONE: Self = u16::MAX;
    fn of(mean: f64) -> Self {
        // A conversion from a float ends at the type's limits.
        (mean.round() as u16).min(u16::MAX - 1)
    }
}

impl Value for u32 {
    const NONE: Self = u32::MAX;
    fn of(mean: f64) -> Self {
        (mean.round() as u32).min(u32::MAX - 1)
    }
}

/// Four quantities over time.
struct Ring<T> {
    kept: VecDeque<Kept<T>>,
    sums: [f64; 4],
    count: u32,
}

impl<T: Value> Ring<T> {
    fn new() -> Self {
        Self { kept: VecDeque::with_capacity(INTERVALS), sums: [0.0; 4], count: 0 }
    }

    fn add(&mut self, values: [f64; 4]) {
        (0..4).for_each(|i| self.sums[i] += values[i]);
        self.count += 1;
    }

    /// The interval is over, and `silent` more in which nothing was heard.
    fn close(&mut self, silent: u64) {
        let mean = match self.count {
            0 => [T::NONE; 4],
            count => self.sums.map(|sum| T::of(sum / f64::from(count))),
        };
        (self.sums, self.count) = ([0.0; 4], 0);
        self.push(mean);
        (0..silent.min(INTERVALS as u64)).for_each(|_| self.push([T::NONE; 4]));
    }

    fn push(&mut self, values: Kept<T>) {
        if self.kept.len() == INTERVALS {
            self.kept.pop_front();
        }
        self.kept.push_back(values);
    }

    /// One of the quantities: the `count` latest, after which there were `silent` intervals in which nothing was heard.
    fn series(&self, which: usize, count: usize, silent: usize) -> Vec<Option<T>> {
        let (heard, missing) = (count.saturating_sub(silent), silent.min(count));
        let before = heard.saturating_sub(self.kept.len());
        let kept = self.kept.iter().skip(self.kept.len().saturating_sub(heard));
        let kept = kept.map(|values| (values[which] != T::NONE).then_some(values[which]));
        std::iter::repeat_n(None, before).chain(kept).chain(std::iter::repeat_n(None, missing)).collect()
    }
}

/// What was measured of a node and its devices.
pub(crate) struct History {
    /// The interval that has begun: its number since the engine's time began.
    interval: u64,
    /// Traffic into the network interface and out of it, and of that the leases', in Mbit/s.
    network: Ring<u32>,
    /// By device, in thousandths: busy, granted, memory in use, memory granted.
    devices: Vec<Ring<u16>>,
}

impl History {
    fn new(interval: u64) -> Self {
        Self { interval, network: Ring::new(), devices: Vec::new() }
    }

    fn advance(&mut self, interval: u64) {
        let Some(over) = interval.checked_sub(self.interval).filter(|over| *over > 0) else { return };
        self.network.close(over - 1);
        self.devices.iter_mut().for_each(|device| device.close(over - 1));
        self.interval = interval;
    }
}

/// So many thousandths of all.
fn milli(part: u64, all: u64) -> f64 {
    (part as f64 / all.max(1) as f64).min(1.0) * f64::from(WHOLE)
}

impl Core {
    /// A node has said how it is.
    pub(super) fn remember(&mut self, name: &str) {
        if !self.settings.history {
            return;
        }
        let interval = self.now() / INTERVAL_MS;
        let Some(entry) = self.nodes.get_mut(name) else { return };
        let live = &mut entry.live;
        let history = live.history.get_or_insert_with(|| Box::new(History::new(interval)));
        history.advance(interval);
        history.network.add(
            [live.nic_in_mbps, live.nic_out_mbps, live.own_in_mbps, live.own_out_mbps]
                .map(|mbps| mbps as f64),
        );
        let reports = &entry.record.registration.devices;
        history.devices.resize_with(reports.len(), Ring::new);
        for (report, ring) in reports.iter().zip(&mut history.devices) {
            let Some(load) = live.loads.iter().find(|load| load.index == report.index) else { continue };
            let granted = live.devices.get(report.index as usize).map_or((0, 0), |d| (d.milli, d.memory));
            ring.add([
                milli(load.utilization_percent.into(), 100),
                milli(granted.0.into(), WHOLE.into()),
                milli(load.memory_used, report.memory),
                milli(granted.1, report.memory),
            ]);
        }
    }

    /// What a node measured in the intervals that ended after a moment (in seconds since 1970).
    pub(super) fn history(&self, name: &str, since: u64) -> Result<NodeHistory, Problem> {
        let entry = self.nodes.get(name).ok_or_else(|| no_node(name))?;
        let interval = self.now() / INTERVAL_MS;
        let end = self.unix_s_at(interval * INTERVAL_MS);
        let wanted = (end.saturating_sub(since) / (INTERVAL_MS / 1000)).min(INTERVALS as u64) as usize;
        let none = History::new(interval);
        let history = entry.live.history.as_deref().unwrap_or(&none);
        // The interval of the latest heartbeat is kept when the next one comes.
        let silent = interval.saturating_sub(history.interval).min(INTERVALS as u64) as usize;
        let network = |which| history.network.series(which, wanted, silent);
        let device = |(number, ring): (usize, &Ring<u16>)| DeviceHistory {
            device: number as u32,
            busy_milli: ring.series(0, wanted, silent),
            granted_milli: ring.series(1, wanted, silent),
            memory_used_milli: ring.series(2, wanted, silent),
            memory_granted_milli: ring.series(3, wanted, silent),
        };
        Ok(NodeHistory {
            node: name.to_owned(),
            interval_s: (INTERVAL_MS / 1000) as u32,
            end,
            nic_in_mbps: network(0),
            nic_out_mbps: network(1),
            own_in_mbps: network(2),
            own_out_mbps: network(3),
            devices: history.devices.iter().enumerate().map(device).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_takes_what_the_page_says() {
        let (device, node) = (Ring::<u16>::new(), Ring::<u32>::new());
        assert_eq!(device.kept.capacity() * size_of::<Kept<u16>>(), 2880);
        assert_eq!(node.kept.capacity() * size_of::<Kept<u32>>(), 5760);
    }

    #[test]
    fn means_of_intervals_are_kept_and_silence_is_a_gap() {
        let mut history = History::new(7);
        history.network.add([10.0, 0.0, 0.0, 0.0]);
        history.network.add([20.0, 4e9, 0.0, -1.0]);
        history.advance(7);
        history.advance(10);
        history.network.add([1.0; 4]);
        history.advance(11);
        let series = |which, count, silent| history.network.series(which, count, silent);
        assert_eq!(series(0, 4, 0), [Some(15), None, None, Some(1)]);
        assert_eq!(series(0, 6, 1), [None, Some(15), None, None, Some(1), None]);
        assert_eq!(series(0, 2, 1), [Some(1), None]);
        assert_eq!(series(0, 2, 5), [None, None]);
        assert_eq!(series(3, 4, 0)[0], Some(0), "nothing is below nothing");
        history.advance(1_000_000);
        let long = history.network.series(0, INTERVALS, 0);
        assert!(long.len() == INTERVALS && long.iter().all(Option::is_none));
        assert!(history.network.kept.len() == INTERVALS && history.network.kept.capacity() == INTERVALS);
    }
}
