//! The residual network: each arc twice, sorted by where it begins.

use super::network::Network;
use super::prepare::Limits;

/// A residual network, in compressed rows: the arcs that leave node `v` are `first[v]..first[v + 1]`.
#[derive(Debug)]
pub(super) struct Residual {
    pub first: Vec<u32>,
    pub head: Vec<u32>,
    /// The same arc, backwards.
    pub reverse: Vec<u32>,
    /// How much more may flow.
    pub room: Vec<i64>,
    pub cost: Vec<i64>,
    /// Where each arc of the network is, forwards; `NONE` for those that can carry nothing.
    pub place: Vec<u32>,
}

/// No arc, or no node.
pub(super) const NONE: u32 = u32::MAX;

impl Residual {
    /// The residual network of the empty flow. Loops are left out.
    pub(super) fn new(network: &Network, limits: &Limits) -> Self {
        let nodes = network.node_bound();
        let used = |arc: usize| {
            network.is_arc(arc) && network.capacities[arc] > 0 && network.tails[arc] != network.heads[arc]
        };
        let mut first = vec![0u32; nodes + 1];
        for arc in (0..network.arc_bound()).filter(|&arc| used(arc)) {
            first[network.tails[arc] as usize] += 1;
            first[network.heads[arc] as usize] += 1;
        }
        let mut total = 0;
        for count in &mut first {
            total += *count;
            *count = total;
        }
        // Filled backwards, so that the order of arcs stays and `first` ends up at the rows' beginnings.
        let size = total as usize;
        let mut residual = Self {
            first,
            head: vec![0; size],
            reverse: vec![0; size],
            room: vec![0; size],
            cost: vec![0; size],
            place: vec![NONE; network.arc_bound()],
        };
        for arc in (0..network.arc_bound()).rev().filter(|&arc| used(arc)) {
            let (tail, head) = (network.tails[arc], network.heads[arc]);
            let mut slot = |node: u32| {
                residual.first[node as usize] -= 1;
                residual.first[node as usize]
            };
            let (forward, backward) = (slot(tail), slot(head));
            let (f, b) = (forward as usize, backward as usize);
            (residual.head[f], residual.head[b]) = (head, tail);
            (residual.reverse[f], residual.reverse[b]) = (backward, forward);
            (residual.cost[f], residual.cost[b]) = (network.costs[arc], -network.costs[arc]);
            residual.room[f] = limits.capacity(network.capacities[arc]);
            residual.place[arc] = forward;
        }
        residual
    }

    /// The arcs that leave a node.
    #[inline]
    pub(super) fn leaving(&self, node: u32) -> std::ops::Range<usize> {
        self.first[node as usize] as usize..self.first[node as usize + 1] as usize
    }

    /// Sends flow through an arc.
    #[inline]
    pub(super) fn push(&mut self, arc: usize, units: i64) {
        self.room[arc] -= units;
        self.room[self.reverse[arc] as usize] += units;
    }

    /// The flows, by arc of the network. Loops are full where that pays.
    pub(super) fn flows(&self, network: &Network) -> Vec<i64> {
        (0..network.arc_bound())
            .map(|arc| match self.place[arc] {
                NONE if network.is_arc(arc) && network.costs[arc] < 0 => network.capacities[arc],
                NONE => 0,
                place => self.room[self.reverse[place as usize] as usize],
            })
            .collect()
    }
}
