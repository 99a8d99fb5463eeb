//! What every solver checks first: that an optimum can exist, and that sums will fit.

use super::error::Error;
use super::ids::ArcId;
use super::network::{Network, UNLIMITED};

/// What a network's numbers allow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// No optimal flow needs more than this through an arc, save around cycles that cost nothing. Capacities above
    /// are as good as this one.
    pub most: i64,
    /// The largest cost, either way from zero.
    pub cost: i64,
    /// Whether an arc has a negative cost.
    pub negative: bool,
}

impl Limits {
    /// A capacity as solvers see it: never unlimited.
    ///
    /// One unit above `most`, because then a full arc either is really full, or lies on a cycle that costs nothing,
    /// and the potentials prove the flow optimal for the real capacities too.
    #[inline]
    pub(super) fn capacity(&self, capacity: i64) -> i64 {
        capacity.min(self.most + 1)
    }
}

/// Sums of flows may reach this, and leave room for a few additions.
pub(super) const MAX_FLOW: i128 = 1 << 60;

/// Checks a network before solving.
pub(super) fn check(network: &Network) -> Result<Limits, Error> {
    let (mut supply, mut demand) = (0i128, 0i128);
    for &units in &network.supplies {
        if units > 0 {
            supply += i128::from(units);
        } else {
            demand -= i128::from(units);
        }
    }
    if supply != demand {
        return Err(Error::Unbalanced { supply, demand });
    }
    let (mut lowest, mut highest) = (0, 0);
    for &cost in &network.costs {
        lowest = lowest.min(cost);
        highest = highest.max(cost);
    }
    let mut most = supply;
    if lowest < 0 {
        let mut unlimited_negative = false;
        let (mut finite, mut finite_negative) = (0i128, 0i128);
        for (&capacity, &cost) in network.capacities.iter().zip(&network.costs) {
            if capacity == UNLIMITED {
                unlimited_negative |= cost < 0;
            } else {
                finite += i128::from(capacity);
                if cost < 0 {
                    finite_negative += i128::from(capacity);
                }
            }
        }
        if unlimited_negative {
            if let Some(cycle) = unlimited_negative_cycle(network) {
                return Err(Error::Unbounded { cycle });
            }
            most += finite;
        } else {
            most += finite_negative;
        }
    }
    if most > MAX_FLOW {
        let text = format!("flows may have to be as large as {most}, more than {MAX_FLOW}");
        return Err(Error::Overflow(text));
    }
    let cost = highest.max(-lowest);
    let path = i128::from(cost) * (network.node_bound() as i128 + 2);
    if path > MAX_FLOW {
        let text = format!("the cost of a path may be as large as {path}, more than {MAX_FLOW}");
        return Err(Error::Overflow(text));
    }
    Ok(Limits { most: most as i64, cost, negative: lowest < 0 })
}

/// Bellman and Ford's search over unlimited arcs alone.
fn unlimited_negative_cycle(network: &Network) -> Option<Vec<ArcId>> {
    const NONE: u32 = u32::MAX;
    let nodes = network.node_bound();
    let arcs: Vec<u32> = (0..network.arc_bound() as u32)
        .filter(|&arc| network.is_arc(arc as usize) && network.capacities[arc as usize] == UNLIMITED)
        .collect();
    let mut distances = vec![0i128; nodes];
    let mut parents = vec![NONE; nodes];
    for round in 0..=nodes {
        let mut changed = false;
        for &arc in &arcs {
            let index = arc as usize;
            let (tail, head) = (network.tails[index] as usize, network.heads[index] as usize);
            let distance = distances[tail] + i128::from(network.costs[index]);
            if distance < distances[head] {
                distances[head] = distance;
                parents[head] = arc;
                changed = true;
            }
        }
        if !changed {
            return None;
        }
        // A cycle among the parents appears long before the last round; looking costs as much as a round.
        if (round.is_power_of_two() || round == nodes)
            && let Some(cycle) = parent_cycle(network, &parents)
        {
            return Some(cycle);
        }
    }
    None
}

/// A cycle among parent arcs.
fn parent_cycle(network: &Network, parents: &[u32]) -> Option<Vec<ArcId>> {
    const NONE: u32 = u32::MAX;
    // 0: never seen; otherwise the walk that saw it first.
    let mut seen = vec![0u32; parents.len()];
    for start in 0..parents.len() {
        let walk = start as u32 + 1;
        let mut node = start;
        while seen[node] == 0 {
            seen[node] = walk;
            if parents[node] == NONE {
                break;
            }
            node = network.tails[parents[node] as usize] as usize;
        }
        if parents[node] == NONE || seen[node] != walk {
            continue;
        }
        let mut cycle = Vec::new();
        let end = node;
        loop {
            cycle.push(ArcId(parents[node]));
            node = network.tails[parents[node] as usize] as usize;
            if node == end {
                cycle.reverse();
                return Some(cycle);
            }
        }
    }
    None
}
