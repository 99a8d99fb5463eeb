//! A split network that is kept with its optimum and follows changes.

use super::auto;
use super::columns::Columns;
use super::error::Error;
use super::network::{Arc, Network};
use super::prepare::Limits;
use super::repair::{NOWHERE, Pseudoflow};
use super::residual::NONE;
use super::solution::Solution;
use super::split::{BACKWARD, CoreArc, RowArc, SOURCE, Span, Split, row_cost};

/// Marks an arc of the core among places.
const CORE: u32 = 1 << 31;

/// Further from zero, potentials are not kept.
const MAX_POTENTIAL: i64 = 1 << 61;

/// A split network with its flow, potentials, and where everything is.
#[derive(Debug)]
pub(super) struct Live {
    state: Pseudoflow,
    limits: Limits,
    /// For each node of the network: its number in the core, or as a source with `SOURCE` set, or `NONE`.
    names: Vec<u32>,
    /// For each arc of the network: its place in a row, or in the core (forwards) with `CORE` set, or `NONE`.
    places: Vec<u32>,
    /// Arcs of the core that were added, and wait to be sorted in.
    added: Vec<(u32, Arc)>,
    /// Nodes of the core that were added and have no price yet.
    new_core: Vec<u32>,
    /// Sources and nodes of the core whose arcs changed.
    changed_sources: Vec<u32>,
    changed_core: Vec<u32>,
    free_sources: Vec<u32>,
    /// Rows' places that nobody uses.
    garbage: usize,
    /// Nodes of the core that nobody uses, and arcs of the core that were removed.
    core_garbage: usize,
    /// Something changed that needs everything sorted anew.
    stale: bool,
}

impl Live {
    /// Solves a network from scratch.
    pub(super) fn solved(network: &Network, limits: &Limits) -> Result<Self, Error> {
        Ok(Self::new(network, *limits, auto::solve(network, limits)?))
    }

    fn new(network: &Network, limits: Limits, state: Pseudoflow) -> Self {
        let mut live = Self {
            names: vec![NONE; network.node_bound()],
            places: vec![NONE; network.arc_bound()],
            added: Vec::new(),
            new_core: Vec::new(),
            changed_sources: Vec::new(),
            changed_core: Vec::new(),
            free_sources: Vec::new(),
            garbage: 0,
            core_garbage: 0,
            stale: false,
            limits,
            state,
        };
        let split = &live.state.split;
        for (source, &node) in split.sources.iter().enumerate() {
            live.names[node as usize] = source as u32 | SOURCE;
        }
        for (core, &node) in split.core_nodes.iter().enumerate() {
            live.names[node as usize] = core as u32;
        }
        for (place, &arc) in split.row_arcs.iter().enumerate() {
            live.places[arc as usize] = place as u32;
        }
        live.note_core_places();
        let columns = Columns::new(&live.state.split, &live.state.using, &live.state.hubs);
        live.state.columns = Some(columns);
        // Says how content each of them is, which spares searches much.
        (0..live.state.chosen.len() as u32).for_each(|source| live.state.release_if_worse(source));
        live
    }

    /// The same flow and potentials, sorted anew from the network.
    pub(super) fn rebuilt(&self, network: &Network, limits: &Limits) -> Self {
        let split = Split::new(network, limits);
        let kept = |node: u32| if (node as usize) < self.names.len() { self.potential(node) } else { 0 };
        let potentials: Vec<i64> = split.core_nodes.iter().map(|&node| kept(node)).collect();
        let mut excess = split.supplies.clone();
        let mut chosen = vec![NONE; split.sources.len()];
        for (source, chosen) in chosen.iter_mut().enumerate() {
            for place in split.row(source as u32) {
                if self.flow(network, split.row_arcs[place]) > 0 {
                    *chosen = place as u32;
                    excess[split.rows[place].head as usize] += 1;
                    break;
                }
            }
        }
        let mut split = split;
        for place in 0..split.core.len() {
            let id = split.core_ids[place];
            if id & BACKWARD != 0 {
                continue;
            }
            let flow = self.flow(network, id).min(split.core[place].room);
            let (head, tail) = (split.core[place].head, split.core[split.core[place].reverse as usize].head);
            split.push(place, flow);
            excess[tail as usize] -= flow;
            excess[head as usize] += flow;
        }
        let state = Pseudoflow::new(split, potentials, excess, chosen);
        let mut live = Self::new(network, *limits, state);
        live.changed_sources = (0..live.state.chosen.len() as u32).collect();
        live.changed_core = (0..live.state.potentials.len() as u32).collect();
        live
    }

    /// Tells the head of a source's arc about it.
    fn note_row_arc(&mut self, source: u32, place: u32) {
        let Pseudoflow { columns, split, using, hubs, .. } = &mut self.state;
        if let Some(columns) = columns {
            columns.add(split.rows[place as usize], source, place, using[source as usize], hubs);
        }
    }

    /// Notes that a source may have a better arc now.
    fn note_changed(&mut self, source: u32) {
        // A newcomer's arcs are added one after another.
        if self.changed_sources.last() != Some(&source) {
            self.changed_sources.push(source);
        }
    }

    fn note_core_places(&mut self) {
        for (place, &id) in self.state.split.core_ids.iter().enumerate() {
            if id & BACKWARD == 0 {
                self.places[id as usize] = place as u32 | CORE;
            }
        }
    }

    /// Whether it can be repaired, for flows up to `most`.
    pub(super) fn is_usable(&self, most: i128) -> bool {
        let split = &self.state.split;
        !self.stale
            && most <= i128::from(self.limits.most)
            && self.is_in_range()
            && self.garbage <= split.rows.len() / 2 + 1000
            && self.core_garbage <= split.core_nodes.len() + split.core.len() / 2 + 1000
    }

    /// Whether potentials are still far from overflowing; they move a little with every change.
    pub(super) fn is_in_range(&self) -> bool {
        self.state.potentials.iter().all(|potential| (-MAX_POTENTIAL..=MAX_POTENTIAL).contains(potential))
    }

    /// From now on only by searches from both sides, as far as these find a way.
    #[cfg(test)]
    pub(super) fn by_meeting_alone(&mut self) {
        self.state.meeting_alone = true;
    }

    /// Asserts that what follows changes step by step is what would be found anew.
    #[cfg(test)]
    pub(super) fn assert_consistent(&self) {
        let Pseudoflow { split, using, users, position, hubs, .. } = &self.state;
        let fresh = Columns::new(split, using, hubs);
        let sorted = |columns: &Columns, node: u32| {
            let mut entries = columns.of(node).to_vec();
            entries.sort_unstable();
            entries
        };
        for node in 0..users.len() as u32 {
            if let Some(columns) = &self.state.columns {
                assert_eq!(sorted(columns, node), sorted(&fresh, node), "node {node}");
            }
            for (place, user) in users[node as usize].iter().enumerate() {
                assert_eq!(user.row(), split.row(user.source));
                assert_eq!(
                    (node, user.cost),
                    (using[user.source as usize].head, using[user.source as usize].cost)
                );
                assert_eq!(place, position[user.source as usize] as usize);
            }
        }
    }

    /// Makes the flow optimal again.
    pub(super) fn route(&mut self) -> Result<(), Error> {
        if !self.added.is_empty() {
            self.sort_in();
        }
        for source in std::mem::take(&mut self.changed_sources) {
            self.state.release_if_worse(source);
        }
        for node in std::mem::take(&mut self.changed_core) {
            self.state.saturate(node);
        }
        self.state.route()
    }

    /// What the flow costs.
    pub(super) fn cost(&self) -> i128 {
        let split = &self.state.split;
        // A source that waits uses an arc to nowhere, which costs nothing.
        let rows: i128 = self.state.using.iter().map(|arc| i128::from(arc.cost)).sum();
        let core: i128 = split
            .core
            .iter()
            .zip(&split.core_ids)
            .filter(|&(_, &id)| id & BACKWARD != 0)
            .map(|(arc, _)| -i128::from(arc.cost) * i128::from(arc.room))
            .sum();
        rows + core
    }

    /// The flow through an arc.
    pub(super) fn flow(&self, network: &Network, arc: u32) -> i64 {
        let index = arc as usize;
        if !network.is_arc(index) {
            return 0;
        }
        match self.places.get(index).copied().unwrap_or(NONE) {
            NONE if network.tails[index] == network.heads[index] && network.costs[index] < 0 => {
                network.capacities[index]
            }
            NONE => 0,
            place if place & CORE == 0 => {
                let source = self.names[network.tails[index] as usize] & !SOURCE;
                i64::from(self.state.chosen[source as usize] == place)
            }
            place => {
                let core = &self.state.split.core;
                core[core[(place & !CORE) as usize].reverse as usize].room
            }
        }
    }

    /// The potential of a node.
    pub(super) fn potential(&self, node: u32) -> i64 {
        match self.names.get(node as usize).copied().unwrap_or(NONE) {
            NONE => 0,
            name if name & SOURCE != 0 => self.state.source_potential(name & !SOURCE),
            name => self.state.potentials[name as usize],
        }
    }

    /// Everything, for the whole network.
    pub(super) fn solution(&self, network: &Network) -> Solution {
        self.state.solution(network)
    }

    pub(super) fn add_node(&mut self, node: u32, supply: i64) {
        if self.names.len() <= node as usize {
            self.names.resize(node as usize + 1, NONE);
        }
        let state = &mut self.state;
        if supply != 1 {
            self.names[node as usize] = state.split.core_nodes.len() as u32;
            self.new_core.push(state.split.core_nodes.len() as u32);
            state.split.core_nodes.push(node);
            state.split.core_first.push(state.split.core.len() as u32);
            state.potentials.push(0);
            state.excess.push(supply);
            state.users.push(Vec::new());
            state.hubs.push(false);
            return;
        }
        let source = match self.free_sources.pop() {
            Some(source) => {
                state.split.sources[source as usize] = node;
                source
            }
            None => {
                let end = state.split.rows.len() as u32;
                state.split.sources.push(node);
                state.split.spans.push(Span { start: end, end, limit: end });
                state.chosen.push(NONE);
                state.using.push(NOWHERE);
                state.position.push(0);
                state.chosen.len() as u32 - 1
            }
        };
        self.names[node as usize] = source | SOURCE;
        state.wait(source);
    }

    pub(super) fn remove_node(&mut self, node: u32, supply: i64) {
        match std::mem::replace(&mut self.names[node as usize], NONE) {
            NONE => {}
            name if name & SOURCE != 0 => {
                let source = name & !SOURCE;
                self.state.withdraw(source);
                self.state.split.sources[source as usize] = NONE;
                self.free_sources.push(source);
            }
            core => {
                self.state.excess[core as usize] -= supply;
                self.state.split.core_nodes[core as usize] = NONE;
                self.core_garbage += 1;
            }
        }
    }

    /// Notes that a node's arcs are about to be removed, one after another.
    pub(super) fn clear_node(&mut self, node: u32) {
        let name = self.names[node as usize];
        if let Pseudoflow { columns: Some(columns), split, .. } = &mut self.state
            && name != NONE
            && name & SOURCE != 0
        {
            columns.forget(split, name & !SOURCE);
        }
    }

    pub(super) fn set_supply(&mut self, node: u32, old: i64, new: i64) {
        match self.names[node as usize] {
            NONE => {}
            name if name & SOURCE != 0 => {
                let source = name & !SOURCE;
                match new {
                    _ if new == old => {}
                    1 if !self.state.is_present(source) => self.state.wait(source),
                    1 => {}
                    _ => {
                        self.state.withdraw(source);
                        self.stale |= new != 0;
                    }
                }
            }
            core => self.state.excess[core as usize] += new - old,
        }
    }

    pub(super) fn add_arc(&mut self, id: u32, arc: Arc) {
        if self.places.len() <= id as usize {
            self.places.resize(id as usize + 1, NONE);
        }
        if arc.capacity == 0 || arc.tail == arc.head {
            return;
        }
        let (tail, head) = (self.names[arc.tail.index()], self.names[arc.head.index()]);
        if head & SOURCE != 0 {
            self.stale = true;
        } else if tail & SOURCE == 0 {
            self.added.push((id, arc));
        } else if let Some(cost) = row_cost(arc.cost) {
            self.add_row_arc(tail & !SOURCE, id, RowArc { head, cost });
        } else {
            self.stale = true;
        }
    }

    fn add_row_arc(&mut self, source: u32, id: u32, arc: RowArc) {
        let split = &mut self.state.split;
        let mut span = split.spans[source as usize];
        if span.end == span.limit && span.end as usize != split.rows.len() {
            // Moves the row to the end, with room for as many again.
            let (row_before, length) = (span, span.end - span.start);
            let old = span.start as usize..span.end as usize;
            let start = split.rows.len() as u32;
            split.rows.extend_from_within(old.clone());
            split.row_arcs.extend_from_within(old);
            for place in start..start + length {
                self.places[split.row_arcs[place as usize] as usize] = place;
            }
            let chosen = &mut self.state.chosen[source as usize];
            if *chosen != NONE {
                *chosen = *chosen - span.start + start;
            }
            self.garbage += (span.limit - span.start) as usize;
            span = Span { start, end: start + length, limit: start + length };
            if let Pseudoflow { columns: Some(columns), .. } = &mut self.state {
                for (from, to) in (row_before.start..).zip(start..start + length) {
                    columns.relocate(from, to);
                }
            }
        }
        let split = &mut self.state.split;
        if span.end as usize == split.rows.len() {
            split.rows.push(arc);
            split.row_arcs.push(id);
            span.limit = span.end + 1;
        } else {
            split.rows[span.end as usize] = arc;
            split.row_arcs[span.end as usize] = id;
        }
        self.places[id as usize] = span.end;
        span.end += 1;
        self.state.split.spans[source as usize] = span;
        self.state.note_row(source);
        self.note_row_arc(source, span.end - 1);
        self.note_changed(source);
    }

    pub(super) fn remove_arc(&mut self, id: u32, arc: Arc) {
        let place = std::mem::replace(&mut self.places[id as usize], NONE);
        if place == NONE {
            self.added.retain(|&(added, _)| added != id);
            return;
        }
        let state = &mut self.state;
        if place & CORE == 0 {
            let source = (self.names[arc.tail.index()] & !SOURCE) as usize;
            if state.chosen[source] == place {
                state.release(source as u32);
            }
            let Pseudoflow { split, columns, .. } = state;
            if let Some(columns) = columns {
                columns.remove(split.rows[place as usize].head, place);
            }
            // The last of the row takes its place.
            split.spans[source].end -= 1;
            let last = split.spans[source].end;
            if last != place {
                split.rows[place as usize] = split.rows[last as usize];
                split.row_arcs[place as usize] = split.row_arcs[last as usize];
                self.places[split.row_arcs[place as usize] as usize] = place;
                if state.chosen[source] == last {
                    state.chosen[source] = place;
                }
                if let Some(columns) = columns {
                    columns.relocate(last, place);
                }
            }
            state.note_row(source as u32);
            return;
        }
        let forward = (place & !CORE) as usize;
        self.limit_core_arc(forward, 0);
        let backward = self.state.split.core[forward].reverse as usize;
        let split = &mut self.state.split;
        (split.core_ids[forward], split.core_ids[backward]) = (NONE, NONE);
        self.core_garbage += 2;
    }

    /// Changes the capacity of an arc of the core, and takes back the flow that doesn't fit.
    fn limit_core_arc(&mut self, forward: usize, capacity: i64) {
        let state = &mut self.state;
        let arc = state.split.core[forward];
        let backward = arc.reverse as usize;
        let tail = state.split.core[backward].head;
        let flow = state.split.core[backward].room;
        let kept = flow.min(capacity);
        state.split.core[backward].room = kept;
        state.split.core[forward].room = capacity - kept;
        state.excess[tail as usize] += flow - kept;
        state.excess[arc.head as usize] -= flow - kept;
        self.changed_core.push(tail);
    }

    pub(super) fn set_capacity(&mut self, id: u32, arc: Arc) {
        match self.places[id as usize] {
            NONE => {
                self.added.retain(|&(added, _)| added != id);
                self.add_arc(id, arc);
            }
            _ if arc.capacity == 0 => self.remove_arc(id, arc),
            place if place & CORE == 0 => {}
            place => self.limit_core_arc((place & !CORE) as usize, self.limits.capacity(arc.capacity)),
        }
    }

    pub(super) fn set_cost(&mut self, id: u32, arc: Arc) {
        match self.places[id as usize] {
            NONE => {
                if let Some((_, added)) = self.added.iter_mut().find(|(added, _)| *added == id) {
                    *added = arc;
                }
            }
            place if place & CORE == 0 => match row_cost(arc.cost) {
                Some(cost) => {
                    let source = self.names[arc.tail.index()] & !SOURCE;
                    self.state.set_row_cost(source, place, cost);
                    self.note_changed(source);
                }
                None => self.stale = true,
            },
            place => {
                let core = &mut self.state.split.core;
                let forward = (place & !CORE) as usize;
                let CoreArc { head, reverse, .. } = core[forward];
                core[forward].cost = arc.cost;
                core[reverse as usize].cost = -arc.cost;
                let tail = core[reverse as usize].head;
                self.changed_core.extend([tail, head]);
            }
        }
    }

    /// The arcs of a node, of which there are `degree` ends there.
    pub(super) fn arcs_of(&self, network: &Network, node: u32, degree: u32) -> Vec<u32> {
        let split = &self.state.split;
        let mut arcs: Vec<u32> = match self.names[node as usize] {
            NONE => Vec::new(),
            name if name & SOURCE != 0 => {
                split.row(name & !SOURCE).map(|place| split.row_arcs[place]).collect()
            }
            core if (core as usize) < split.core_first.len() - 1 => split
                .leaving(core)
                .map(|place| split.core_ids[place])
                .filter(|&id| id != NONE)
                .map(|id| id & !BACKWARD)
                .collect(),
            _ => Vec::new(),
        };
        if arcs.len() != degree as usize {
            arcs = (0..network.arc_bound() as u32)
                .filter(|&arc| network.tails[arc as usize] == node || network.heads[arc as usize] == node)
                .collect();
        }
        arcs
    }

    /// Sorts added arcs of the core in.
    fn sort_in(&mut self) {
        let split = &mut self.state.split;
        let nodes = split.core_nodes.len();
        // Forward arcs: identifier, tail, head, cost, room, flow.
        let mut arcs = Vec::with_capacity(split.core.len() / 2 + self.added.len());
        for (arc, &id) in split.core.iter().zip(&split.core_ids) {
            if id & BACKWARD == 0 {
                let back = split.core[arc.reverse as usize];
                arcs.push((id, back.head, arc.head, arc.cost, arc.room, back.room));
            }
        }
        for (id, arc) in self.added.drain(..) {
            let (tail, head) = (self.names[arc.tail.index()], self.names[arc.head.index()]);
            arcs.push((id, tail, head, arc.cost, self.limits.capacity(arc.capacity), 0));
            self.changed_core.push(tail);
        }
        let mut first = vec![0u32; nodes + 1];
        for &(_, tail, head, ..) in &arcs {
            first[tail as usize] += 1;
            first[head as usize] += 1;
        }
        let mut sum = 0;
        for count in &mut first {
            sum += *count;
            *count = sum;
        }
        let mut core = vec![CoreArc { head: 0, reverse: 0, cost: 0, room: 0 }; sum as usize];
        let mut ids = vec![0; sum as usize];
        for &(id, tail, head, cost, room, flow) in arcs.iter().rev() {
            first[tail as usize] -= 1;
            let forward = first[tail as usize];
            first[head as usize] -= 1;
            let backward = first[head as usize];
            core[forward as usize] = CoreArc { head, reverse: backward, cost, room };
            core[backward as usize] = CoreArc { head: tail, reverse: forward, cost: -cost, room: flow };
            ids[forward as usize] = id;
            ids[backward as usize] = id | BACKWARD;
        }
        (split.core_first, split.core, split.core_ids) = (first, core, ids);
        self.note_core_places();
        self.price_new_nodes();
    }

    /// Gives new nodes of the core the highest potential that their arcs allow.
    fn price_new_nodes(&mut self) {
        let new = std::mem::take(&mut self.new_core);
        // Twice, for arcs between new nodes.
        for &node in new.iter().chain(&new).rev() {
            let split = &self.state.split;
            let best = split
                .leaving(node)
                .map(|place| split.core[place])
                .filter(|arc| arc.room > 0)
                .map(|arc| self.state.potentials[arc.head as usize] - arc.cost)
                .max();
            if let Some(best) = best {
                self.state.potentials[node as usize] = best;
            }
        }
    }
}
