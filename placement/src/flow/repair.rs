//! From nearly optimal to optimal: successive shortest paths over a split network, from whatever flow and potentials
//! there are.

use super::columns::Columns;
use super::local::{self, Local};
use super::meet::Meeting;
use super::network::Network;
use super::pages::vec_in_large_pages;
use super::prefetch::prefetch;
use super::residual::NONE;
use super::rounds::Search;
use super::solution::Solution;
use super::split::{RowArc, Span, Split};

/// A flow in a split network, perhaps with excesses and deficits, and potentials.
///
/// The potential of a unit source is implied: it makes the reduced cost of the arc that the source uses zero.
#[derive(Debug)]
pub(super) struct Pseudoflow {
    pub split: Split,
    /// Of the core's nodes.
    pub potentials: Vec<i64>,
    /// What enters each node of the core, with its supply, less what leaves it.
    pub excess: Vec<i64>,
    /// The place in `split.rows` of the arc that each source uses; `NONE` while it waits.
    pub chosen: Vec<u32>,
    /// That arc; to nowhere while the source waits.
    pub using: Vec<RowArc>,
    /// For each node of the core, the sources that use an arc to it.
    pub users: Vec<Vec<User>>,
    /// Where each source is in its node's `users`.
    pub position: Vec<u32>,
    /// Sources that use no arc.
    pub waiting: Vec<u32>,
    /// By core node, whether it has so many arcs that it joins all of the network.
    pub(super) hubs: Vec<bool>,
    pub(super) columns: Option<Columns>,
    pub(super) local: Local,
    pub(super) meeting: Meeting,
    pub(super) search: Search,
    /// Whether changes are followed by searches from both sides alone, so that tests are about these.
    #[cfg(test)]
    pub(super) meeting_alone: bool,
}

/// What a source that waits uses.
pub(super) const NOWHERE: RowArc = RowArc { head: NONE, cost: 0 };

/// Further than any distance.
pub(super) const FAR: i64 = i64::MAX;

/// A source that uses an arc to a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct User {
    /// The source has nowhere better to go while the node's potential is above this. Stays true when potentials
    /// fall; where one rises, those that it concerns are told.
    pub level: i64,
    pub source: u32,
    /// What the arc costs that the source uses.
    pub cost: i32,
    /// Where its row is.
    pub start: u32,
    pub end: u32,
}

impl User {
    fn new(split: &Split, source: u32, arc: RowArc) -> Self {
        let Span { start, end, .. } = split.spans[source as usize];
        Self { level: FAR, source, cost: arc.cost, start, end }
    }

    /// The source's arcs.
    #[inline]
    pub(super) fn row(&self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }
}

impl Pseudoflow {
    pub(super) fn new(split: Split, potentials: Vec<i64>, excess: Vec<i64>, chosen: Vec<u32>) -> Self {
        let nodes = split.core_nodes.len();
        let mut counts = vec![0u32; nodes];
        for &place in chosen.iter().filter(|&&place| place != NONE) {
            counts[split.rows[place as usize].head as usize] += 1;
        }
        let mut users: Vec<Vec<User>> =
            counts.iter().map(|&count| Vec::with_capacity(count as usize)).collect();
        let mut position = vec_in_large_pages(0, chosen.len());
        let mut using = vec_in_large_pages(NOWHERE, chosen.len());
        let mut waiting = Vec::new();
        for (source, &place) in chosen.iter().enumerate() {
            if place == NONE {
                position[source] = waiting.len() as u32;
                waiting.push(source as u32);
            } else {
                let arc = split.rows[place as usize];
                let users = &mut users[arc.head as usize];
                position[source] = users.len() as u32;
                users.push(User::new(&split, source as u32, arc));
                using[source] = arc;
            }
        }
        let hubs = local::hubs(&split);
        Self {
            split,
            potentials,
            excess,
            chosen,
            using,
            users,
            position,
            waiting,
            hubs,
            columns: None,
            local: Local::default(),
            meeting: Meeting::default(),
            search: Search::default(),
            #[cfg(test)]
            meeting_alone: false,
        }
    }

    /// Without flow, save through arcs with negative costs, which are full, so that potentials of zero fit.
    pub(super) fn empty(split: Split) -> Self {
        let (potentials, chosen) = (vec![0; split.core_nodes.len()], vec![NONE; split.sources.len()]);
        let excess = split.supplies.clone();
        let mut state = Self::new(split, potentials, excess, chosen);
        for node in 0..state.potentials.len() as u32 {
            state.saturate(node);
        }
        state
    }

    /// Whether there is a flow at all, apart from costs: the same problem, with the same flow so far, but with all
    /// costs and potentials zero, so that [`Self::route`] fails only if there is none.
    pub(super) fn without_costs(mut split: Split, excess: Vec<i64>, chosen: Vec<u32>) -> Self {
        split.rows.iter_mut().for_each(|arc| arc.cost = 0);
        split.core.iter_mut().for_each(|arc| arc.cost = 0);
        let potentials = vec![0; split.core_nodes.len()];
        Self::new(split, potentials, excess, chosen)
    }

    /// Asks for what a search forwards needs next, which will look at these nodes.
    #[inline]
    pub(super) fn foresee(&self, nodes: [Option<(i64, u32)>; 2], bound: i64) {
        let [soon, later] = nodes;
        if let Some((_, node)) = later {
            prefetch(&self.users[node as usize], 5);
            prefetch(&self.split.core[self.split.leaving(node)], 1);
        }
        if let Some((distance, node)) = soon {
            let potential = self.potentials[node as usize] + distance;
            for user in &self.users[node as usize] {
                if potential.saturating_sub(user.level) < bound {
                    prefetch(&self.split.rows[user.row()], 3);
                }
            }
        }
    }

    /// Asks for what a search backwards needs next.
    #[inline]
    pub(super) fn foresee_back(&self, columns: &Columns, nodes: [Option<(i64, u32)>; 2]) {
        if let [Some((_, node)), _] = nodes {
            prefetch(columns.of(node), 8);
        }
        if let [_, Some((_, node))] = nodes {
            prefetch(columns.of(node), 2);
            prefetch(&self.split.core[self.split.leaving(node)], 1);
        }
    }

    /// What a source would gain by an arc.
    #[inline]
    pub(super) fn value(&self, place: usize) -> i64 {
        let arc = self.split.rows[place];
        self.potentials[arc.head as usize] - i64::from(arc.cost)
    }

    /// Makes a source wait.
    pub(super) fn release(&mut self, source: u32) {
        let place = std::mem::replace(&mut self.chosen[source as usize], NONE);
        if place == NONE {
            return;
        }
        let node = self.split.rows[place as usize].head as usize;
        self.using[source as usize] = NOWHERE;
        if let Some(columns) = &mut self.columns {
            columns.choose(&self.split, source, NOWHERE);
        }
        self.leave(source, node);
        self.excess[node] -= 1;
        self.wait(source);
    }

    /// Adds a source to those that wait.
    pub(super) fn wait(&mut self, source: u32) {
        self.position[source as usize] = self.waiting.len() as u32;
        self.waiting.push(source);
    }

    /// Takes a source out of the network, whether it waits or uses an arc.
    pub(super) fn withdraw(&mut self, source: u32) {
        self.release(source);
        if self.is_present(source) {
            self.wait_no_longer(source);
        }
    }

    /// Takes a source out of those that wait.
    pub(super) fn wait_no_longer(&mut self, source: u32) {
        let position = self.position[source as usize];
        self.waiting.swap_remove(position as usize);
        if let Some(&moved) = self.waiting.get(position as usize) {
            self.position[moved as usize] = position;
        }
    }

    /// Whether a source waits.
    pub(super) fn is_waiting(&self, source: u32) -> bool {
        self.chosen[source as usize] == NONE
            && self.waiting.get(self.position[source as usize] as usize) == Some(&source)
    }

    /// Whether a source waits or uses an arc.
    pub(super) fn is_present(&self, source: u32) -> bool {
        self.chosen[source as usize] != NONE
            || self.waiting.get(self.position[source as usize] as usize) == Some(&source)
    }

    /// Takes a source out of a node's users.
    pub(super) fn leave(&mut self, source: u32, node: usize) {
        let position = self.position[source as usize];
        let users = &mut self.users[node];
        users.swap_remove(position as usize);
        if let Some(&moved) = users.get(position as usize) {
            self.position[moved.source as usize] = position;
        }
    }

    /// Lets a source use an arc.
    pub(super) fn choose(&mut self, source: u32, place: u32) {
        let arc = self.split.rows[place as usize];
        let users = &mut self.users[arc.head as usize];
        self.chosen[source as usize] = place;
        self.using[source as usize] = arc;
        self.position[source as usize] = users.len() as u32;
        users.push(User::new(&self.split, source, arc));
        if let Some(columns) = &mut self.columns {
            columns.choose(&self.split, source, arc);
        }
    }

    /// Tells a source's node where the source's row is now.
    pub(super) fn note_row(&mut self, source: u32) {
        let arc = self.using[source as usize];
        if arc.head != NONE {
            let user = &mut self.users[arc.head as usize][self.position[source as usize] as usize];
            let Span { start, end, .. } = self.split.spans[source as usize];
            (user.start, user.end) = (start, end);
        }
    }

    /// Changes what a source's arc costs.
    pub(super) fn set_row_cost(&mut self, source: u32, place: u32, cost: i32) {
        let Self { split, columns, using, .. } = self;
        let arc = &mut split.rows[place as usize];
        arc.cost = cost;
        let (arc, own) = (*arc, &mut using[source as usize]);
        if self.chosen[source as usize] != place {
            if let Some(columns) = columns {
                columns.price(place, arc, *own);
            }
            return;
        }
        own.cost = cost;
        self.users[arc.head as usize][self.position[source as usize] as usize].cost = cost;
        if let Some(columns) = columns {
            columns.choose(split, source, arc);
        }
    }

    /// Takes a source off its arc if it has a better one.
    pub(super) fn release_if_worse(&mut self, source: u32) {
        let chosen = self.chosen[source as usize];
        if chosen == NONE {
            return;
        }
        let own = self.value(chosen as usize);
        let others = self.split.row(source).filter(|&place| place as u32 != chosen);
        let best = others.map(|place| self.value(place)).max();
        if best.is_some_and(|best| best > own) {
            self.release(source);
        } else {
            let arc = self.split.rows[chosen as usize];
            let level = best.map_or(-FAR, |best| best + i64::from(arc.cost));
            self.users[arc.head as usize][self.position[source as usize] as usize].level = level;
        }
    }

    /// Fills arcs of the core that leave a node and have a negative reduced cost.
    pub(super) fn saturate(&mut self, node: u32) {
        for place in self.split.leaving(node) {
            let arc = self.split.core[place];
            let reduced = arc.cost + self.potentials[node as usize] - self.potentials[arc.head as usize];
            if arc.room > 0 && reduced < 0 {
                self.split.push(place, arc.room);
                self.excess[node as usize] -= arc.room;
                self.excess[arc.head as usize] += arc.room;
            }
        }
    }

    /// The potential that the reduced costs of a source's arcs imply.
    pub(super) fn source_potential(&self, source: u32) -> i64 {
        match self.chosen[source as usize] {
            NONE => self.split.row(source).map(|place| self.value(place)).max().unwrap_or(0),
            place => self.value(place as usize),
        }
    }

    /// The whole network's solution.
    pub(super) fn solution(&self, network: &Network) -> Solution {
        let mut potentials = vec![0; network.node_bound()];
        for (core, &node) in self.split.core_nodes.iter().enumerate() {
            if node != NONE {
                potentials[node as usize] = self.potentials[core];
            }
        }
        for (source, &node) in self.split.sources.iter().enumerate() {
            if node != NONE {
                potentials[node as usize] = self.source_potential(source as u32);
            }
        }
        let flows = self.split.flows(network, self.chosen.iter().copied());
        Solution::new(network, flows, potentials)
    }
}
