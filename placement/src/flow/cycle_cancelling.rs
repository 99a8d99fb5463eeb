//! Cycle cancelling: any flow first, then cheaper around cycles of negative cost until there are none.

use super::error::Error;
use super::network::Network;
use super::prepare;
use super::residual::{NONE, Residual};
use super::solution::Solution;
use super::solver::Solver;
use super::successive_shortest_paths::route;

/// Klein's cycle cancelling. Cycles are found by Bellman and Ford's search, all that its parents form at once.
///
/// The slowest by far; the number of cycles depends on the numbers, not only on the network's size.
#[derive(Clone, Copy, Debug, Default)]
pub struct CycleCancelling;

impl Solver for CycleCancelling {
    fn name(&self) -> &'static str {
        "cycle-cancelling"
    }

    fn solve(&mut self, network: &Network) -> Result<Solution, Error> {
        let limits = prepare::check(network)?;
        let mut residual = Residual::new(network, &limits);
        let mut excess = network.supplies.clone();
        let mut potentials = vec![0; network.node_bound()];
        // Any flow: where nothing costs, shortest paths are just paths.
        let free = vec![0; residual.cost.len()];
        let costs = std::mem::replace(&mut residual.cost, free);
        route(&mut residual, &mut excess, &mut potentials)?;
        residual.cost = costs;
        let potentials = cancel(&mut residual);
        Ok(Solution::new(network, residual.flows(network), potentials))
    }
}

/// Cancels negative cycles until there are none, and returns the distances that prove it.
fn cancel(residual: &mut Residual) -> Vec<i64> {
    let nodes = residual.first.len() - 1;
    let mut search = Search {
        distances: vec![0; nodes],
        parents: vec![NONE; nodes],
        queue: Vec::new(),
        queued: vec![false; nodes],
        seen: vec![0; nodes],
        walk: 0,
    };
    // Distances stay from cycle to cycle: only where arcs got room can one be too long.
    for node in 0..nodes as u32 {
        search.enqueue(node);
    }
    let mut round = Vec::new();
    while !search.queue.is_empty() {
        std::mem::swap(&mut round, &mut search.queue);
        for node in round.drain(..) {
            search.queued[node as usize] = false;
            for arc in residual.leaving(node) {
                if residual.room[arc] <= 0 {
                    continue;
                }
                let head = residual.head[arc] as usize;
                let distance = search.distances[node as usize] + residual.cost[arc];
                if distance < search.distances[head] {
                    search.distances[head] = distance;
                    search.parents[head] = arc as u32;
                    search.enqueue(head as u32);
                }
            }
        }
        search.cancel_parents(residual);
    }
    search.distances
}

struct Search {
    distances: Vec<i64>,
    /// The arc that gave each node its distance.
    parents: Vec<u32>,
    queue: Vec<u32>,
    queued: Vec<bool>,
    /// The last walk that came by each node.
    seen: Vec<u64>,
    walk: u64,
}

impl Search {
    fn enqueue(&mut self, node: u32) {
        if !std::mem::replace(&mut self.queued[node as usize], true) {
            self.queue.push(node);
        }
    }

    /// Cancels every cycle among the parents. Each is negative.
    fn cancel_parents(&mut self, residual: &mut Residual) {
        let first_walk = self.walk + 1;
        for start in 0..self.parents.len() {
            self.walk += 1;
            let mut node = start;
            while self.seen[node] < first_walk {
                self.seen[node] = self.walk;
                match self.parents[node] {
                    NONE => break,
                    arc => node = tail(residual, arc) as usize,
                }
            }
            if self.seen[node] == self.walk && self.parents[node] != NONE {
                self.cancel_cycle(residual, node);
            }
        }
    }

    /// Sends as much as fits around the cycle of parents through a node, and forgets those parents.
    fn cancel_cycle(&mut self, residual: &mut Residual, end: usize) {
        let mut arcs = Vec::new();
        let mut node = end;
        loop {
            let arc = self.parents[node];
            arcs.push(arc as usize);
            node = tail(residual, arc) as usize;
            if node == end {
                break;
            }
        }
        let units = arcs.iter().map(|&arc| residual.room[arc]).min().unwrap_or(0);
        for arc in arcs {
            residual.push(arc, units);
            let head = residual.head[arc];
            self.parents[head as usize] = NONE;
            // The way back has room now, and leaves from here.
            self.enqueue(head);
        }
    }
}

fn tail(residual: &Residual, arc: u32) -> u32 {
    residual.head[residual.reverse[arc as usize] as usize]
}
