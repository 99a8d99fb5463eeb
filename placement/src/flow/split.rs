//! A network in two parts: unit sources, and the core.
//!
//! In networks that schedule, nearly all nodes and arcs belong to nodes with a supply of one that no arc leads to.
//! All that such a *unit source* can do is choose one of its arcs. Solvers that know this keep a row of
//! (head, cost) pairs for it, and no more: eight bytes an arc rather than two times twenty-four. What is left, the *core*, is an
//! ordinary network.

use super::network::Network;
use super::pages::vec_in_large_pages;
use super::prepare::Limits;
use super::residual::NONE;

/// An arc of a unit source.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowArc {
    /// A node of the core.
    pub head: u32,
    pub cost: i32,
}

/// An arc of the core, in one of its directions.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoreArc {
    pub head: u32,
    /// The same arc in the other direction.
    pub reverse: u32,
    pub cost: i64,
    /// How much more may flow.
    pub room: i64,
}

/// Where a source's arcs are in the rows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    pub start: u32,
    pub end: u32,
    /// The end of the place that is set aside.
    pub limit: u32,
}

/// A network in two parts.
#[derive(Clone, Debug)]
pub(super) struct Split {
    /// The network's node for each unit source.
    pub sources: Vec<u32>,
    /// Where the arcs of each source are.
    pub spans: Vec<Span>,
    pub rows: Vec<RowArc>,
    /// The network's arc for each of `rows`.
    pub row_arcs: Vec<u32>,
    /// The network's node for each node of the core.
    pub core_nodes: Vec<u32>,
    /// The arcs that leave core node `v` are `core_first[v]..core_first[v + 1]`.
    pub core_first: Vec<u32>,
    pub core: Vec<CoreArc>,
    /// The network's arc for each of `core`, with `BACKWARD` set for the direction that it doesn't have there.
    pub core_ids: Vec<u32>,
    pub supplies: Vec<i64>,
}

/// Marks a source among names of nodes.
pub(super) const SOURCE: u32 = 1 << 31;
/// Marks an arc of the core in the direction that it doesn't have in the network.
pub(super) const BACKWARD: u32 = 1 << 31;

/// Dearer arcs are not kept in rows, so that the difference of two costs there fits as well.
const MAX_ROW_COST: i64 = (i32::MAX / 2) as i64;

/// A cost as rows keep it, if they can.
pub(super) fn row_cost(cost: i64) -> Option<i32> {
    (cost.abs() <= MAX_ROW_COST).then_some(cost as i32)
}

impl Split {
    /// Splits a network. Loops, and arcs without capacity, are left out.
    pub(super) fn new(network: &Network, limits: &Limits) -> Self {
        let nodes = network.node_bound();
        let used = |arc: usize| {
            network.is_arc(arc) && network.capacities[arc] > 0 && network.tails[arc] != network.heads[arc]
        };
        // What each node is: its number in the core, or as a source with a bit that says so.
        let mut names: Vec<u32> =
            network.supplies.iter().map(|&supply| if supply == 1 { SOURCE } else { 0 }).collect();
        let mut degrees = vec![0u32; nodes + 1];
        for arc in 0..network.arc_bound() {
            if !used(arc) {
                continue;
            }
            names[network.heads[arc] as usize] = 0;
            degrees[network.tails[arc] as usize] += 1;
            degrees[network.heads[arc] as usize] += 1;
        }
        if limits.cost > MAX_ROW_COST {
            for arc in (0..network.arc_bound()).filter(|&arc| used(arc)) {
                if row_cost(network.costs[arc]).is_none() {
                    names[network.tails[arc] as usize] = 0;
                }
            }
        }
        let (mut sources, mut core_nodes) = (Vec::new(), Vec::new());
        let (mut spans, mut core_first) = (Vec::new(), Vec::new());
        let (mut row_size, mut core_size) = (0u32, 0u32);
        for node in 0..nodes {
            if names[node] == SOURCE {
                names[node] = SOURCE | sources.len() as u32;
                sources.push(node as u32);
                let limit = row_size + degrees[node];
                spans.push(Span { start: row_size, end: row_size, limit });
                row_size = limit;
            } else {
                names[node] = core_nodes.len() as u32;
                core_nodes.push(node as u32);
            }
        }
        // The core's degrees are without arcs from sources.
        let mut fill = vec![0u32; core_nodes.len() + 1];
        for arc in 0..network.arc_bound() {
            if used(arc) && names[network.tails[arc] as usize] & SOURCE == 0 {
                fill[names[network.tails[arc] as usize] as usize] += 1;
                fill[names[network.heads[arc] as usize] as usize] += 1;
            }
        }
        for count in &mut fill {
            core_first.push(core_size);
            core_size += *count;
            *count = core_size - *count;
        }
        let mut rows = vec_in_large_pages(RowArc { head: 0, cost: 0 }, row_size as usize);
        let mut row_arcs = vec![0; row_size as usize];
        let mut core = vec![CoreArc { head: 0, reverse: 0, cost: 0, room: 0 }; core_size as usize];
        let mut core_ids = vec![0; core_size as usize];
        for arc in 0..network.arc_bound() {
            if !used(arc) {
                continue;
            }
            let (tail, head) = (names[network.tails[arc] as usize], names[network.heads[arc] as usize]);
            let cost = network.costs[arc];
            if tail & SOURCE != 0 {
                let place = &mut spans[(tail & !SOURCE) as usize].end;
                rows[*place as usize] = RowArc { head, cost: cost as i32 };
                row_arcs[*place as usize] = arc as u32;
                *place += 1;
            } else {
                let forward = fill[tail as usize];
                fill[tail as usize] += 1;
                let backward = fill[head as usize];
                fill[head as usize] += 1;
                let room = limits.capacity(network.capacities[arc]);
                core[forward as usize] = CoreArc { head, reverse: backward, cost, room };
                core[backward as usize] = CoreArc { head: tail, reverse: forward, cost: -cost, room: 0 };
                core_ids[forward as usize] = arc as u32;
                core_ids[backward as usize] = arc as u32 | BACKWARD;
            }
        }
        let supplies = core_nodes.iter().map(|&node| network.supplies[node as usize]).collect();
        Self { sources, spans, rows, row_arcs, core_nodes, core_first, core, core_ids, supplies }
    }

    /// The arcs of a source.
    #[inline]
    pub(super) fn row(&self, source: u32) -> std::ops::Range<usize> {
        let span = self.spans[source as usize];
        span.start as usize..span.end as usize
    }

    /// The arcs that leave a node of the core.
    #[inline]
    pub(super) fn leaving(&self, node: u32) -> std::ops::Range<usize> {
        self.core_first[node as usize] as usize..self.core_first[node as usize + 1] as usize
    }

    /// Sends flow through an arc of the core.
    #[inline]
    pub(super) fn push(&mut self, place: usize, units: i64) {
        let reverse = self.core[place].reverse;
        self.core[place].room -= units;
        self.core[reverse as usize].room += units;
    }

    /// The network's flows, when source `s` uses its row's arc `chosen[s]`.
    pub(super) fn flows(&self, network: &Network, chosen: impl Iterator<Item = u32>) -> Vec<i64> {
        let mut flows = vec![0; network.arc_bound()];
        for place in chosen.filter(|&place| place != NONE) {
            flows[self.row_arcs[place as usize] as usize] = 1;
        }
        for (arc, &id) in self.core.iter().zip(&self.core_ids) {
            if id & BACKWARD != 0 && id != NONE {
                flows[(id & !BACKWARD) as usize] = arc.room;
            }
        }
        fill_loops(network, &mut flows);
        flows
    }
}

/// Loops are full where that pays.
pub(super) fn fill_loops(network: &Network, flows: &mut [i64]) {
    for (arc, flow) in flows.iter_mut().enumerate() {
        if network.costs[arc] < 0 && network.tails[arc] == network.heads[arc] && network.is_arc(arc) {
            *flow = network.capacities[arc];
        }
    }
}
