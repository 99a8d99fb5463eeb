//! The ideal infrastructure of section 4.4.2: one fat node that has all resources of the cluster, where every job takes as long as
//! its base execution time. The load factor (equation 4.6) is measured on it, so that it depends on no policy.

use std::collections::{BinaryHeap, VecDeque};

use super::apps::{App, GPU_GB, GPU_MBPS, NVME_GB, NVME_MBPS};
use super::experiment::Arrival;

/// From this load factor on it is measured.
pub const MEASURED_FROM: f64 = 0.7;

/// Which load factor a number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// That of the cores (chapter 4).
    Cpu,
    /// The greater one of the NVMes' bandwidth and capacity (section 5.4.3).
    Nvme,
}

/// Amounts of all resources: cores, NVMe bandwidth (MB/s) and capacity (GB), GPU bandwidth and memory.
type Amounts = [u64; 5];

/// All that a cluster has, in one node.
#[derive(Clone, Copy, Debug)]
pub struct FatNode(Amounts);

/// What came of the ideal infrastructure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ideal {
    /// When the load factor reached [`MEASURED_FROM`], in seconds; `None` if it never did.
    pub from_s: Option<f64>,
    /// The mean load factor from then to the last arrival.
    pub mean: f64,
}

fn wanted(app: App) -> Amounts {
    let ((nvme_mbps, nvme_gb), (gpu_mbps, gpu_gb)) = (app.nvme(), app.gpu());
    [app.cores(), nvme_mbps, nvme_gb, gpu_mbps, gpu_gb]
}

impl FatNode {
    /// The sum of so many cores, NVMes and GPUs.
    pub fn new(cores: u64, nvmes: u64, gpus: u64) -> FatNode {
        FatNode([cores, nvmes * NVME_MBPS, nvmes * NVME_GB, gpus * GPU_MBPS, gpus * GPU_GB])
    }

    fn load(&self, free: &Amounts, load: Load) -> f64 {
        let used = |i: usize| 1.0 - free[i] as f64 / self.0[i].max(1) as f64;
        match load {
            Load::Cpu => used(0),
            Load::Nvme => used(1).max(used(2)),
        }
    }

    /// Runs the arrivals, which come in order, with all times multiplied by `stretch`. A job starts when there is room for it; those
    /// that wait are looked at in the order of their arrival.
    pub fn run(&self, arrivals: &[Arrival], stretch: f64, load: Load) -> Ideal {
        let mut free = self.0;
        // Ends, soonest first, as the bits of times that are not negative.
        let mut ends: BinaryHeap<std::cmp::Reverse<(u64, usize)>> = BinaryHeap::new();
        let mut waiting: [VecDeque<usize>; App::ALL.len()] = Default::default();
        let (mut next, mut now_s, mut area) = (0, 0.0, 0.0);
        let mut from_s = None;
        while next < arrivals.len() {
            let at_s = arrivals[next].at_s * stretch;
            let end_s = ends.peek().map(|std::cmp::Reverse((bits, _))| f64::from_bits(*bits));
            let then_s = end_s.map_or(at_s, |end_s| end_s.min(at_s));
            if from_s.is_some() {
                area += (then_s - now_s) * self.load(&free, load);
            }
            now_s = then_s;
            if end_s.is_some_and(|end_s| end_s <= at_s) {
                if let Some(std::cmp::Reverse((_, job))) = ends.pop() {
                    wanted(arrivals[job].app)
                        .iter()
                        .zip(&mut free)
                        .for_each(|(amount, free)| *free += amount);
                }
            } else {
                waiting[arrivals[next].app as usize].push_back(next);
                next += 1;
            }
            while let Some(job) = first_that_fits(&waiting, &free) {
                let app = arrivals[job].app;
                waiting[app as usize].pop_front();
                wanted(app).iter().zip(&mut free).for_each(|(amount, free)| *free -= amount);
                ends.push(std::cmp::Reverse(((now_s + app.base_s()).to_bits(), job)));
            }
            if from_s.is_none() && self.load(&free, load) >= MEASURED_FROM {
                from_s = Some(now_s);
            }
        }
        let length = from_s.map_or(0.0, |from| now_s - from);
        Ideal { from_s, mean: if length > 0.0 { area / length } else { 0.0 } }
    }

    /// By which factor to multiply the times of arrival so that the mean load factor is `target`, and what comes of it.
    pub fn aim(&self, arrivals: &[Arrival], target: f64, load: Load) -> (f64, Ideal) {
        // Between far too fast and far too slow; the mean falls as the factor grows.
        let (mut fast, mut slow) = (1.0, 100_000.0);
        for _ in 0..60 {
            let middle: f64 = (fast + slow) / 2.0;
            if self.run(arrivals, middle, load).mean >= target { fast = middle } else { slow = middle }
        }
        (fast, self.run(arrivals, fast, load))
    }
}

/// The job that waits longest among those that there is room for.
fn first_that_fits(waiting: &[VecDeque<usize>; App::ALL.len()], free: &Amounts) -> Option<usize> {
    let heads = App::ALL.iter().filter_map(|app| Some((*app, *waiting[*app as usize].front()?)));
    let fits = |app: App| wanted(app).iter().zip(free).all(|(amount, free)| amount <= free);
    heads.filter(|(app, _)| fits(*app)).map(|(_, job)| job).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_by_hand() {
        let arrival = |at_s| Arrival { at_s, app: App::Compute, high: false };
        // 30 cores hold two jobs of 15 cores and 900 s. The third waits until 900, and the last arrives at 1800.
        let arrivals = [0.0, 100.0, 200.0, 1800.0].map(arrival);
        let ideal = FatNode::new(30, 1, 1).run(&arrivals, 1.0, Load::Cpu);
        assert_eq!(ideal.from_s, Some(100.0));
        // 100 to 1000 two jobs, 1000 to 1800 one.
        assert!((ideal.mean - (900.0 + 400.0) / 1700.0).abs() < 1e-9, "{}", ideal.mean);
        // Nothing ever loads this one.
        assert_eq!(FatNode::new(300, 1, 1).run(&arrivals, 1.0, Load::Cpu), Ideal { from_s: None, mean: 0.0 });
    }
}
