//! Successive shortest paths: supplies go to demands along paths that are shortest now, nearest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::error::Error;
use super::network::Network;
use super::prepare;
use super::residual::{NONE, Residual};
use super::solution::Solution;
use super::solver::Solver;

/// Successive shortest paths with potentials (Busacker and Gowen; Edmonds and Karp): one search by Dijkstra from all
/// nodes with excess to the nearest with a deficit, then as much flow as fits along shortest paths, and again.
#[derive(Clone, Copy, Debug, Default)]
pub struct SuccessiveShortestPaths;

impl Solver for SuccessiveShortestPaths {
    fn name(&self) -> &'static str {
        "successive-shortest-paths"
    }

    fn solve(&mut self, network: &Network) -> Result<Solution, Error> {
        let limits = prepare::check(network)?;
        let mut residual = Residual::new(network, &limits);
        let mut excess = network.supplies.clone();
        let mut potentials = vec![0i64; network.node_bound()];
        if limits.negative {
            saturate_negative(&mut residual, &mut excess, &potentials);
        }
        route(&mut residual, &mut excess, &mut potentials)?;
        Ok(Solution::new(network, residual.flows(network), potentials))
    }
}

/// Fills the arcs with negative reduced costs, so that none with room is left.
pub(super) fn saturate_negative(residual: &mut Residual, excess: &mut [i64], potentials: &[i64]) {
    for tail in 0..excess.len() {
        for arc in residual.leaving(tail as u32) {
            let (head, room) = (residual.head[arc] as usize, residual.room[arc]);
            if room > 0 && residual.cost[arc] + potentials[tail] - potentials[head] < 0 {
                residual.push(arc, room);
                excess[tail] -= room;
                excess[head] += room;
            }
        }
    }
}

/// Takes every excess to a deficit. No arc with room may have a negative reduced cost, and none will.
pub(super) fn route(
    residual: &mut Residual,
    excess: &mut [i64],
    potentials: &mut [i64],
) -> Result<(), Error> {
    let nodes = excess.len();
    let mut sources: Vec<u32> = (0..nodes as u32).filter(|&node| excess[node as usize] > 0).collect();
    let mut search = Search::new(nodes);
    while !sources.is_empty() {
        let Some(distance) = search.run(residual, excess, potentials, &sources) else {
            return Err(Error::Infeasible {
                unrouted: sources.iter().map(|&node| excess[node as usize]).sum(),
            });
        };
        // Lowered by the same for all, the potentials of nodes that were not reached stay as they are.
        for &node in &search.reached {
            potentials[node as usize] += search.distances[node as usize].min(distance) - distance;
        }
        search.augment(residual, excess, potentials, &sources);
        search.clear();
        sources.retain(|&node| excess[node as usize] > 0);
    }
    Ok(())
}

struct Search {
    distances: Vec<i64>,
    /// Every node with a distance.
    reached: Vec<u32>,
    heap: BinaryHeap<Reverse<(i64, u32)>>,
    /// Where the augmenting walk goes on at each node.
    current: Vec<u32>,
    path: Vec<u32>,
}

const FAR: i64 = i64::MAX;

impl Search {
    fn new(nodes: usize) -> Self {
        Self {
            distances: vec![FAR; nodes],
            reached: Vec::new(),
            heap: BinaryHeap::new(),
            current: vec![NONE; nodes],
            path: Vec::new(),
        }
    }

    fn clear(&mut self) {
        for &node in &self.reached {
            self.distances[node as usize] = FAR;
            self.current[node as usize] = NONE;
        }
        self.reached.clear();
        self.heap.clear();
    }

    /// The distance of the nearest deficit. Nodes nearer than that have their final distances.
    fn run(
        &mut self,
        residual: &Residual,
        excess: &[i64],
        potentials: &[i64],
        sources: &[u32],
    ) -> Option<i64> {
        for &source in sources {
            self.distances[source as usize] = 0;
            self.reached.push(source);
            self.heap.push(Reverse((0, source)));
        }
        while let Some(Reverse((distance, node))) = self.heap.pop() {
            if distance > self.distances[node as usize] {
                continue;
            }
            if excess[node as usize] < 0 {
                return Some(distance);
            }
            for arc in residual.leaving(node) {
                if residual.room[arc] <= 0 {
                    continue;
                }
                let head = residual.head[arc] as usize;
                let reduced = residual.cost[arc] + potentials[node as usize] - potentials[head];
                debug_assert!(reduced >= 0);
                let next = distance + reduced;
                if next < self.distances[head] {
                    if self.distances[head] == FAR {
                        self.reached.push(head as u32);
                    }
                    self.distances[head] = next;
                    self.heap.push(Reverse((next, head as u32)));
                }
            }
        }
        None
    }

    /// Sends flow along arcs with room and without reduced cost, each node left for good when it leads nowhere.
    fn augment(&mut self, residual: &mut Residual, excess: &mut [i64], potentials: &[i64], sources: &[u32]) {
        // A node that is on the path or led nowhere has a place in `current` (or past its row's end).
        for &source in sources {
            while excess[source as usize] > 0 && self.walk(residual, excess, potentials, source) {}
        }
    }

    /// Finds one path from a source and augments along it.
    fn walk(&mut self, residual: &mut Residual, excess: &mut [i64], potentials: &[i64], source: u32) -> bool {
        if self.current[source as usize] != NONE {
            return false;
        }
        self.path.clear();
        let mut node = source;
        self.current[node as usize] = residual.first[node as usize];
        loop {
            if excess[node as usize] < 0 {
                break;
            }
            let end = residual.first[node as usize + 1];
            let mut found = None;
            while self.current[node as usize] < end {
                let arc = self.current[node as usize] as usize;
                let head = residual.head[arc];
                if residual.room[arc] > 0
                    && self.current[head as usize] == NONE
                    && self.distances[head as usize] != FAR
                    && residual.cost[arc] + potentials[node as usize] == potentials[head as usize]
                {
                    found = Some(arc);
                    break;
                }
                self.current[node as usize] += 1;
            }
            match found {
                Some(arc) => {
                    self.path.push(arc as u32);
                    node = residual.head[arc];
                    self.current[node as usize] = residual.first[node as usize];
                }
                None => {
                    let Some(arc) = self.path.pop() else { return false };
                    node = residual.head[residual.reverse[arc as usize] as usize];
                    self.current[node as usize] += 1;
                }
            }
        }
        let mut units = excess[source as usize].min(-excess[node as usize]);
        for &arc in &self.path {
            units = units.min(residual.room[arc as usize]);
        }
        excess[source as usize] -= units;
        excess[node as usize] += units;
        // The nodes of the path may be walked again.
        self.current[source as usize] = NONE;
        for &arc in &self.path {
            self.current[residual.head[arc as usize] as usize] = NONE;
            residual.push(arc as usize, units);
        }
        true
    }
}
