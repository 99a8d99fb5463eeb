//! Onto how many nodes a parallel job is spread, and which: the formulas of Spread-n-Share (Tang et al., SC 2019), section 4.
//!
//! A program's profile says how long it takes at each scale factor (1: as few nodes as possible; k: k times as many) and what cache
//! and memory bandwidth do to it. From that follow its class, what it needs of a node, and the nodes that suit it best. Pure
//! functions: whoever watches the nodes brings the profiles and what is free along. The policies that go by them are in
//! `policy/spreading.rs`.

use std::collections::BTreeSet;

use crate::cluster::{Cluster, WHOLE};
use crate::error::Error;
use crate::ids::NodeId;
use crate::job::Task;
use crate::placement::Placement;

/// What a node has, or has free, or what a job wants of each of its nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amounts {
    /// Cores.
    pub cores: f64,
    /// Ways of the last-level cache.
    pub ways: f64,
    /// Memory bandwidth in GB/s.
    pub bandwidth: f64,
}

impl Amounts {
    /// Whether `wanted` fits in here, rounding aside.
    pub fn fits(&self, wanted: &Amounts) -> bool {
        let enough = |have: f64, want: f64| have + 1e-9 >= want;
        enough(self.cores, wanted.cores)
            && enough(self.ways, wanted.ways)
            && enough(self.bandwidth, wanted.bandwidth)
    }
}

/// What is known of a program that can be spread: its `profile` in the sense of section 4.3, with what it needs worked out.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    scales: Vec<AtScale>,
}

/// A program at one scale factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AtScale {
    /// The scale factor: it has so many times as many nodes as the fewest that hold it.
    pub scale: u32,
    /// Its time alone, by that at scale factor 1.
    pub time: f64,
    /// The ways of the last-level cache that it needs of each of its nodes ([`demand`]).
    pub ways: u32,
    /// The memory bandwidth that it then takes of each of its nodes, in the unit of the nodes' own.
    pub bandwidth: f64,
}

impl Spread {
    /// Of these scale factors, of which one must be 1. They are put into their order.
    pub fn new(mut scales: Vec<AtScale>) -> Result<Spread, Error> {
        scales.sort_by_key(|at| at.scale);
        let range = |what, value: String, must| {
            Err(Error::Range { what, of: "a profile's spread".into(), value, must })
        };
        if scales.first().is_none_or(|at| at.scale != 1) {
            return range(
                "the smallest scale factor",
                format!("{:?}", scales.first().map(|at| at.scale)),
                "1",
            );
        }
        if let Some(pair) = scales.windows(2).find(|pair| pair[0].scale == pair[1].scale) {
            return range("a scale factor", pair[0].scale.to_string(), "there once");
        }
        for at in &scales {
            if !at.time.is_finite() || at.time <= 0.0 {
                return range("time", at.time.to_string(), "greater than 0");
            }
            if !at.bandwidth.is_finite() || at.bandwidth < 0.0 {
                return range("bandwidth", at.bandwidth.to_string(), "not negative");
            }
        }
        let compact = scales[0].time;
        scales.iter_mut().for_each(|at| at.time /= compact);
        Ok(Spread { scales })
    }

    /// What is known at each scale factor, the smallest first.
    pub fn scales(&self) -> &[AtScale] {
        &self.scales
    }

    /// What is known at the greatest scale factor that is not above this one.
    pub fn at(&self, scale: u32) -> &AtScale {
        let after = self.scales.partition_point(|at| at.scale <= scale);
        &self.scales[after.saturating_sub(1)]
    }

    /// The scale factors in the order in which they are tried with the slowdown threshold α ([`scales`]).
    pub fn tried(&self, alpha: f64) -> Vec<u32> {
        let times: Vec<(u32, f64)> = self.scales.iter().map(|at| (at.scale, at.time)).collect();
        scales(&times, alpha)
    }
}

/// The fewest nodes that hold tasks that are alike in equal parts: scale factor 1. `None` if no number of nodes does; of unlike tasks,
/// it is that of as many like the first.
pub fn compact_nodes(cluster: &Cluster, tasks: &[Task]) -> Option<usize> {
    let task = tasks.first().filter(|_| tasks.len() > 1);
    let Some(task) = task else { return Some(1) };
    let holds = |id: NodeId| {
        let node = cluster.node(id);
        let server = [(node.cpu_milli, task.cpu_milli), (node.memory_mib, task.memory_mib)];
        let devices = task.devices.iter().map(|request| {
            // A part of a device that is only given whole is all of it, which the placement finds out.
            let have = request.together(cluster, id) as u64 * u64::from(WHOLE);
            (have, u64::from(request.count) * u64::from(request.milli))
        });
        let wanted = server.into_iter().chain(devices).filter(|(_, each)| *each > 0);
        let most = wanted.map(|(have, each)| have / each).min().unwrap_or(u64::MAX);
        if task.allows(id) { most } else { 0 }
    };
    let mut holds: Vec<u64> = (0..cluster.nodes().len() as u32).map(NodeId).map(holds).collect();
    holds.sort_unstable_by(|a, b| b.cmp(a));
    let enough = |count: &usize| holds[count - 1] >= tasks.len().div_ceil(*count) as u64;
    (1..=holds.len().min(tasks.len())).find(enough)
}

/// The scale factor of a job with these tasks that was placed so.
pub fn scale(cluster: &Cluster, tasks: &[Task], placement: &Placement) -> u32 {
    let nodes: BTreeSet<NodeId> = placement.tasks.iter().map(|at| at.node).collect();
    compact_nodes(cluster, tasks).map_or(1, |compact| (nodes.len() / compact).max(1) as u32)
}

/// A curve through measured points, straight between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    points: Vec<(f64, f64)>,
}

impl Curve {
    /// Through these points (x, y); at least one. They are put into the order of x.
    pub fn new(mut points: Vec<(f64, f64)>) -> Option<Curve> {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        (!points.is_empty()).then_some(Curve { points })
    }

    /// Its value at x; the first or last point's beyond them.
    pub fn at(&self, x: f64) -> f64 {
        let after = self.points.partition_point(|point| point.0 <= x);
        match (after.checked_sub(1).map(|i| self.points[i]), self.points.get(after)) {
            (None, Some(first)) => first.1,
            (Some(last), None) => last.1,
            (Some(a), Some(b)) => a.1 + (b.1 - a.1) * (x - a.0) / (b.0 - a.0),
            (None, None) => f64::NAN,
        }
    }
}

/// The fewest whole ways, of `least` to `all`, with which a program still reaches the part α of its instructions per cycle with all
/// ways, and the bandwidth that it then takes (figure 10). The curves are over ways.
pub fn demand(ipc: &Curve, bandwidth: &Curve, alpha: f64, least: u32, all: u32) -> (u32, f64) {
    let tolerable = alpha * ipc.at(f64::from(all));
    let ways = (least..all).find(|ways| ipc.at(f64::from(*ways)) + 1e-9 >= tolerable).unwrap_or(all);
    (ways, bandwidth.at(f64::from(ways)))
}

/// What spreading does to a program (section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It gains by it.
    Scaling,
    /// It loses by it.
    Compact,
    /// It doesn't matter: its time varies within [`NEUTRAL`] over all scales.
    Neutral,
}

/// Within which part a neutral program's times lie.
pub const NEUTRAL: f64 = 0.05;

/// The class that follows from a program's times alone at each scale factor (scale, seconds). With one scale only it is compact.
pub fn classify(times: &[(u32, f64)]) -> Class {
    let Some(compact) = times.iter().min_by_key(|(scale, _)| *scale) else { return Class::Compact };
    if times.len() < 2 {
        return Class::Compact;
    }
    let best = times.iter().map(|(_, time)| *time).fold(f64::INFINITY, f64::min);
    let worst = times.iter().map(|(_, time)| *time).fold(0.0, f64::max);
    if worst <= compact.1 * (1.0 + NEUTRAL) && best >= compact.1 * (1.0 - NEUTRAL) {
        Class::Neutral
    } else if best < compact.1 * (1.0 - NEUTRAL) {
        Class::Scaling
    } else {
        Class::Compact
    }
}

/// The scale factors in the order in which they are tried (section 4.4): the fastest first; for neutral programs, which are spread only
/// to use what is left over, the smallest first. Those that are slower than α allows, compared with the smallest, are left out.
pub fn scales(times: &[(u32, f64)], alpha: f64) -> Vec<u32> {
    let Some(compact) = times.iter().min_by_key(|(scale, _)| *scale) else { return Vec::new() };
    let tolerable = |time: f64| time * alpha <= compact.1 * (1.0 + 1e-9);
    let mut order: Vec<(u32, f64)> = times.iter().filter(|(_, time)| tolerable(*time)).copied().collect();
    match classify(times) {
        Class::Neutral => order.sort_by_key(|(scale, _)| *scale),
        _ => order.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0))),
    }
    order.into_iter().map(|(scale, _)| scale).collect()
}

/// The weight β of occupied cache ways, as in the paper's prototype.
pub const BETA: f64 = 2.0;

/// How occupied a node is: C<sub>o</sub> + B<sub>o</sub> + β·W<sub>o</sub>, each occupied part from 0 to 1.
pub fn occupied(free: &Amounts, capacity: &Amounts, beta: f64) -> f64 {
    let part = |free: f64, all: f64| if all > 0.0 { 1.0 - free / all } else { 0.0 };
    part(free.cores, capacity.cores)
        + part(free.bandwidth, capacity.bandwidth)
        + beta * part(free.ways, capacity.ways)
}

/// The `count` least occupied nodes that have `wanted` free; `None` if there aren't so many.
///
/// Nodes with equally many idle cores are a group. The nodes come from one group if one has enough, the one with the fewest idle
/// cores first; else from all. `free` is by node, and so are `capacity` and the answer.
pub fn choose(
    free: &[Amounts],
    capacity: impl Fn(usize) -> Amounts,
    wanted: &Amounts,
    count: usize,
    beta: f64,
) -> Option<Vec<usize>> {
    if count == 0 {
        return Some(Vec::new());
    }
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut fitting = 0;
    for (node, have) in free.iter().enumerate() {
        if have.fits(wanted) {
            let idle = have.cores as usize;
            if groups.len() <= idle {
                groups.resize(idle + 1, Vec::new());
            }
            groups[idle].push(node);
            fitting += 1;
        }
    }
    if fitting < count {
        return None;
    }
    let mut nodes = match groups.iter().position(|group| group.len() >= count) {
        Some(group) => groups.swap_remove(group),
        None => groups.concat(),
    };
    let score = |node: &usize| occupied(&free[*node], &capacity(*node), beta);
    if count < nodes.len() {
        nodes.select_nth_unstable_by(count - 1, |a, b| score(a).total_cmp(&score(b)).then(a.cmp(b)));
        nodes.truncate(count);
    }
    nodes.sort_unstable();
    Some(nodes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NODE: Amounts = Amounts { cores: 28.0, ways: 20.0, bandwidth: 118.26 };

    #[test]
    fn demand_is_read_off_the_curves() {
        let curve = |points: &[(f64, f64)]| Curve::new(points.to_vec()).unwrap();
        let ipc = curve(&[(20.0, 1.0), (2.0, 0.5), (8.0, 0.8), (4.0, 0.6)]);
        let bandwidth = curve(&[(2.0, 50.0), (20.0, 32.0)]);
        // From 0.8 at 8 ways to 1 at 20: 0.9 at 14.
        assert_eq!(demand(&ipc, &bandwidth, 0.9, 2, 20), (14, 38.0));
        assert_eq!(demand(&ipc, &bandwidth, 0.3, 2, 20), (2, 50.0));
        assert_eq!(demand(&ipc, &bandwidth, 1.0, 2, 20), (20, 32.0));
        assert_eq!((ipc.at(0.0), ipc.at(99.0)), (0.5, 1.0));
        assert_eq!(Curve::new(Vec::new()), None);
    }

    #[test]
    fn what_is_known_of_a_program_is_checked() {
        let at = |scale, time| AtScale { scale, time, ways: 2, bandwidth: 1.0 };
        let spread = Spread::new(vec![at(4, 90.0), at(1, 100.0), at(2, 80.0)]).unwrap();
        assert_eq!(
            spread.scales().iter().map(|at| (at.scale, at.time)).collect::<Vec<_>>(),
            [(1, 1.0), (2, 0.8), (4, 0.9)]
        );
        assert_eq!(spread.tried(0.9), [2, 4, 1]);
        assert_eq!([0, 1, 3, 9].map(|scale| spread.at(scale).scale), [1, 1, 2, 4]);
        for bad in
            [vec![], vec![at(2, 1.0)], vec![at(1, 1.0), at(1, 2.0)], vec![at(1, 0.0)], vec![at(1, f64::NAN)]]
        {
            assert!(Spread::new(bad).is_err());
        }
        assert!(Spread::new(vec![AtScale { bandwidth: -1.0, ..at(1, 1.0) }]).is_err());
    }

    #[test]
    fn classes_are_those_of_section_4_2() {
        let grows = [(1, 100.0), (2, 88.0), (4, 95.0), (8, 102.0)];
        assert_eq!(classify(&grows), Class::Scaling);
        assert_eq!(scales(&grows, 0.9), [2, 4, 1, 8]);
        let compact = [(1, 100.0), (2, 108.0), (4, 140.0)];
        assert_eq!(classify(&compact), Class::Compact);
        assert_eq!(scales(&compact, 0.9), [1, 2]);
        let neutral = [(1, 100.0), (2, 98.0), (4, 97.0), (8, 104.0)];
        assert_eq!(classify(&neutral), Class::Neutral);
        assert_eq!(scales(&neutral, 0.9), [1, 2, 4, 8]);
        assert_eq!((classify(&[(1, 5.0)]), classify(&[])), (Class::Compact, Class::Compact));
        assert!(scales(&[], 0.9).is_empty());
    }

    #[test]
    fn the_least_occupied_of_the_tightest_group_that_is_large_enough() {
        let node = |cores, ways, bandwidth| Amounts { cores, ways, bandwidth };
        let free = [
            node(28.0, 20.0, 118.26),
            node(12.0, 10.0, 60.0),
            node(12.0, 18.0, 60.0),
            node(12.0, 14.0, 100.0),
            node(28.0, 20.0, 118.26),
        ];
        assert_eq!(occupied(&free[0], &NODE, BETA), 0.0);
        assert!((occupied(&node(14.0, 10.0, 59.13), &NODE, BETA) - 2.0).abs() < 1e-12);
        let choose = |cores, ways, count| choose(&free, |_| NODE, &node(cores, ways, 50.0), count, BETA);
        // W counts twice: 18 free ways are better than 40 GB/s more.
        assert_eq!(choose(8.0, 4.0, 1), Some(vec![2]));
        assert_eq!(choose(8.0, 4.0, 2), Some(vec![2, 3]));
        assert_eq!(choose(20.0, 4.0, 2), Some(vec![0, 4]));
        // No group has four.
        assert_eq!(choose(8.0, 4.0, 4), Some(vec![0, 2, 3, 4]));
        assert_eq!(choose(8.0, 12.0, 5), None);
        assert_eq!(choose(8.0, 12.0, 0), Some(Vec::new()));
    }

    proptest! {
        #[test]
        fn chosen_nodes_fit_and_there_are_no_idler_ones_in_their_group(
            nodes in prop::collection::vec((0..29u8, 0..21u8, 0..119u8), 1..40), cores in 1..28u8, ways in 2..20u8, count in 1..6usize,
        ) {
            let amounts = |(c, w, b): &(u8, u8, u8)| {
                Amounts { cores: f64::from(*c), ways: f64::from(*w), bandwidth: f64::from(*b) }
            };
            let free: Vec<Amounts> = nodes.iter().map(amounts).collect();
            let wanted = amounts(&(cores, ways, 10));
            let fitting = free.iter().filter(|have| have.fits(&wanted)).count();
            match choose(&free, |_| NODE, &wanted, count, BETA) {
                None => prop_assert!(fitting < count),
                Some(chosen) => {
                    prop_assert_eq!(chosen.len(), count);
                    prop_assert!(chosen.iter().all(|node| free[*node].fits(&wanted)));
                    // Those that it had to choose from: the tightest group that is large enough, or all.
                    let alike = |cores: f64| {
                        let all = (0..free.len()).filter(|node| free[*node].fits(&wanted));
                        all.filter(|node| free[*node].cores == cores).collect::<Vec<_>>()
                    };
                    let group = (0..=28).map(|cores| alike(f64::from(cores))).find(|g| g.len() >= count);
                    let pool = group.unwrap_or_else(|| (0..free.len()).filter(|n| free[*n].fits(&wanted)).collect());
                    let score = |node: &usize| occupied(&free[*node], &NODE, BETA);
                    let worst = chosen.iter().map(score).fold(0.0, f64::max);
                    prop_assert!(chosen.iter().all(|node| pool.contains(node)));
                    let rivals = pool.iter().filter(|node| !chosen.contains(node));
                    prop_assert!(rivals.map(score).all(|rival| rival + 1e-9 >= worst));
                }
            }
        }

        #[test]
        fn less_is_asked_for_with_a_smaller_alpha(values in prop::collection::vec(0.1..1.0f64, 4), low in 0.1..1.0f64, high in 0.1..1.0f64) {
            let mut sorted = values;
            sorted.sort_by(f64::total_cmp);
            let curve = Curve::new([2.0, 4.0, 8.0, 20.0].into_iter().zip(sorted).collect()).unwrap();
            let (low, high) = (low.min(high), low.max(high));
            prop_assert!(demand(&curve, &curve, low, 2, 20).0 <= demand(&curve, &curve, high, 2, 20).0);
        }
    }
}
