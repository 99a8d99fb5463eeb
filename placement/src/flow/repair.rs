//! From nearly optimal to optimal: successive shortest paths over a split network, from whatever flow and potentials
//! there are.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::error::Error;
use super::network::Network;
use super::residual::NONE;
use super::solution::Solution;
use super::split::Split;

/// A flow in a split network, perhaps with excesses and deficits, and potentials.
///
/// The potential of a unit source is implied: it makes the reduced cost of the arc that the source uses zero.
#[derive(Debug)]
pub(super) struct State {
    pub split: Split,
    /// Of the core's nodes.
    pub potentials: Vec<i64>,
    /// What enters each node of the core, with its supply, less what leaves it.
    pub excess: Vec<i64>,
    /// The place in `split.rows` of the arc that each source uses; `NONE` while it waits.
    pub chosen: Vec<u32>,
    /// For each node of the core, the sources that use an arc to it.
    pub users: Vec<Vec<User>>,
    /// Where each source is in its node's `users`.
    pub position: Vec<u32>,
    /// Sources that use no arc.
    pub waiting: Vec<u32>,
    search: Search,
}

/// A source that uses an arc to a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct User {
    /// The source has nowhere better to go while the node's potential is above this. Stays true when potentials fall,
    /// and they never rise.
    level: i64,
    source: u32,
}

/// What a search needs, kept from one to the next.
#[derive(Debug, Default)]
struct Search {
    /// By core node; `FAR` where none is known.
    distances: Vec<i64>,
    reached: Vec<u32>,
    buckets: Vec<Vec<u32>>,
    far: BinaryHeap<Reverse<(i64, u32)>>,
    /// The bucket of the nearest, and how much of it was looked at.
    bucket: usize,
    read: usize,
    /// By core node: when the search looked at its ways out; 0 if it didn't. Walks only go from earlier to later, so
    /// that a node that leads nowhere really does, whatever the path was on which that was found out.
    order: Vec<u32>,
    looked: u32,
    /// Nothing farther is of interest.
    bound: i64,
    /// Whether a deficit was reached, at `bound`.
    found: bool,
    /// Whether something farther was left out.
    pruned: bool,
    /// By core node: how far the walk has looked.
    cursors: Vec<Cursor>,
    /// Nodes whose cursor is in use.
    touched: Vec<u32>,
    path: Vec<Step>,
}

/// How far a walk has looked at a node's ways out.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    /// On the path, or led nowhere.
    closed: bool,
    /// In use at all.
    touched: bool,
    core: u32,
    user: u32,
    /// In the user's row; `NONE` at its beginning.
    place: u32,
}

const FRESH: Cursor = Cursor { closed: false, touched: false, core: NONE, user: 0, place: NONE };

/// A step of a walk: from a node through one of its arcs, or by moving a source that uses it.
#[derive(Clone, Copy, Debug)]
struct Step {
    node: u32,
    /// `NONE` for an arc of the core.
    source: u32,
    place: u32,
}

/// What a search found.
enum Found {
    /// The nearest deficit, at this distance.
    Distance(i64),
    /// Nothing within the limit.
    Farther,
    /// Nothing at all.
    Nothing,
}

const FAR: i64 = i64::MAX;
/// Distances below this are sorted into buckets.
const BUCKETS: usize = 1 << 10;

impl State {
    pub fn new(split: Split, potentials: Vec<i64>, excess: Vec<i64>, chosen: Vec<u32>) -> Self {
        let nodes = split.core_nodes.len();
        let mut counts = vec![0u32; nodes];
        for &place in chosen.iter().filter(|&&place| place != NONE) {
            counts[split.rows[place as usize].head as usize] += 1;
        }
        let mut users: Vec<Vec<User>> =
            counts.iter().map(|&count| Vec::with_capacity(count as usize)).collect();
        let mut position = vec![0; chosen.len()];
        let mut waiting = Vec::new();
        for (source, &place) in chosen.iter().enumerate() {
            if place == NONE {
                position[source] = waiting.len() as u32;
                waiting.push(source as u32);
            } else {
                let users = &mut users[split.rows[place as usize].head as usize];
                position[source] = users.len() as u32;
                users.push(User { level: FAR, source: source as u32 });
            }
        }
        Self { split, potentials, excess, chosen, users, position, waiting, search: Search::default() }
    }

    /// Whether there is a flow at all, apart from costs: the same problem, with the same flow so far, but with all
    /// costs and potentials zero, so that [`Self::route`] fails only if there is none.
    pub fn without_costs(mut split: Split, excess: Vec<i64>, chosen: Vec<u32>) -> Self {
        split.rows.iter_mut().for_each(|arc| arc.cost = 0);
        split.core.iter_mut().for_each(|arc| arc.cost = 0);
        let potentials = vec![0; split.core_nodes.len()];
        Self::new(split, potentials, excess, chosen)
    }

    /// What a source would gain by an arc.
    #[inline]
    pub fn value(&self, place: usize) -> i64 {
        let arc = self.split.rows[place];
        self.potentials[arc.head as usize] - i64::from(arc.cost)
    }

    /// Makes a source wait.
    pub fn release(&mut self, source: u32) {
        let place = std::mem::replace(&mut self.chosen[source as usize], NONE);
        if place == NONE {
            return;
        }
        let node = self.split.rows[place as usize].head as usize;
        self.leave(source, node);
        self.excess[node] -= 1;
        self.wait(source);
    }

    /// Adds a source to those that wait.
    pub fn wait(&mut self, source: u32) {
        self.position[source as usize] = self.waiting.len() as u32;
        self.waiting.push(source);
    }

    /// Takes a source out of the network, whether it waits or uses an arc.
    pub fn withdraw(&mut self, source: u32) {
        self.release(source);
        if !self.is_present(source) {
            return;
        }
        let position = self.position[source as usize];
        self.waiting.swap_remove(position as usize);
        if let Some(&moved) = self.waiting.get(position as usize) {
            self.position[moved as usize] = position;
        }
    }

    /// Whether a source waits or uses an arc.
    pub fn is_present(&self, source: u32) -> bool {
        self.chosen[source as usize] != NONE
            || self.waiting.get(self.position[source as usize] as usize) == Some(&source)
    }

    /// Takes a source out of a node's users.
    fn leave(&mut self, source: u32, node: usize) {
        let position = self.position[source as usize];
        let users = &mut self.users[node];
        users.swap_remove(position as usize);
        if let Some(&moved) = users.get(position as usize) {
            self.position[moved.source as usize] = position;
        }
    }

    /// Lets a source use an arc.
    fn choose(&mut self, source: u32, place: u32) {
        let users = &mut self.users[self.split.rows[place as usize].head as usize];
        self.chosen[source as usize] = place;
        self.position[source as usize] = users.len() as u32;
        users.push(User { level: FAR, source });
    }

    /// Takes a source off its arc if it has a better one.
    pub fn release_if_worse(&mut self, source: u32) {
        let chosen = self.chosen[source as usize];
        if chosen == NONE {
            return;
        }
        let own = self.value(chosen as usize);
        if self.split.row(source).any(|place| self.value(place) > own) {
            self.release(source);
        } else {
            // Its arcs may have changed.
            let node = self.split.rows[chosen as usize].head as usize;
            self.users[node][self.position[source as usize] as usize].level = FAR;
        }
    }

    /// Fills arcs of the core that leave a node and have a negative reduced cost.
    pub fn saturate(&mut self, node: u32) {
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

    /// Takes every excess to a deficit. No arc with room may have a negative reduced cost, and none will.
    pub fn route(&mut self) -> Result<(), Error> {
        let result = self.route_all();
        for (position, &source) in self.waiting.iter().enumerate() {
            self.position[source as usize] = position as u32;
        }
        result
    }

    fn route_all(&mut self) -> Result<(), Error> {
        let nodes = self.potentials.len();
        let search = &mut self.search;
        search.distances.resize(nodes, FAR);
        search.cursors.resize(nodes, FRESH);
        search.order.resize(nodes, 0);
        search.buckets.resize(BUCKETS, Vec::new());
        let mut active: Vec<u32> = (0..nodes as u32).filter(|&node| self.excess[node as usize] > 0).collect();
        let mut limit = 1;
        while !active.is_empty() || !self.waiting.is_empty() {
            match self.lower_potentials(&active, limit) {
                Found::Distance(distance) => {
                    self.augment(&active);
                    active.retain(|&node| self.excess[node as usize] > 0);
                    limit = 2 * distance + 1;
                }
                Found::Farther => limit = limit.saturating_mul(4),
                Found::Nothing => {
                    let unrouted = self.waiting.len() as i64
                        + active.iter().map(|&node| self.excess[node as usize]).sum::<i64>();
                    self.search.forget();
                    return Err(Error::Infeasible { unrouted });
                }
            }
            self.search.forget();
        }
        Ok(())
    }

    /// Finds the distance of the nearest deficit, if that is below a limit, and lowers the potentials of all nodes
    /// nearer than the deficit or the limit.
    fn lower_potentials(&mut self, active: &[u32], limit: i64) -> Found {
        let mut search = std::mem::take(&mut self.search);
        // Nodes at `bound` or farther are of no interest.
        search.bound = limit;
        for &node in active {
            search.reach(node, 0, false);
        }
        for &source in &self.waiting {
            let best = self.split.row(source).map(|place| self.value(place)).max();
            for place in self.split.row(source) {
                let head = self.split.rows[place].head;
                let distance = best.map_or(0, |best| best - self.value(place));
                search.reach(head, distance, self.excess[head as usize] < 0);
            }
        }
        while let Some((distance, node)) = search.nearest() {
            let potential = self.potentials[node as usize] + distance;
            for place in self.split.leaving(node) {
                let arc = self.split.core[place];
                if arc.room > 0 {
                    let next = potential + arc.cost - self.potentials[arc.head as usize];
                    search.reach(arc.head, next, self.excess[arc.head as usize] < 0);
                }
            }
            for index in 0..self.users[node as usize].len() {
                let user = self.users[node as usize][index];
                if potential.saturating_sub(user.level) > search.bound {
                    // Without any other arc, there is nothing farther either.
                    search.pruned |= user.level != -FAR;
                    continue;
                }
                let chosen = self.chosen[user.source as usize];
                let own = i64::from(self.split.rows[chosen as usize].cost);
                let mut best = -FAR;
                for place in self.split.row(user.source) {
                    if place as u32 == chosen {
                        continue;
                    }
                    let arc = self.split.rows[place];
                    let value = own + self.potentials[arc.head as usize] - i64::from(arc.cost);
                    best = best.max(value);
                    search.reach(arc.head, potential - value, self.excess[arc.head as usize] < 0);
                }
                self.users[node as usize][index].level = best;
            }
        }
        let found = match (search.found, search.pruned) {
            (true, _) => Found::Distance(search.bound),
            (false, true) => Found::Farther,
            (false, false) => Found::Nothing,
        };
        for &node in &search.reached {
            self.potentials[node as usize] -= (search.bound - search.distances[node as usize]).max(0);
        }
        self.search = search;
        found
    }

    /// Sends flow along ways without reduced cost among the nodes that the search reached, each node left for good
    /// when it leads nowhere.
    fn augment(&mut self, active: &[u32]) {
        let mut search = std::mem::take(&mut self.search);
        for &node in active {
            while self.excess[node as usize] > 0 && !search.cursors[node as usize].closed {
                let Some(end) = self.walk(&mut search, node) else { break };
                let units =
                    self.room(&search.path).min(self.excess[node as usize]).min(-self.excess[end as usize]);
                self.apply(&mut search, end, units);
                self.excess[node as usize] -= units;
                self.excess[end as usize] += units;
            }
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|&source| {
            let best = self.split.row(source).map(|place| self.value(place)).max();
            for place in self.split.row(source) {
                let head = self.split.rows[place].head;
                let is_open = search.order[head as usize] != 0 && !search.cursors[head as usize].closed;
                if Some(self.value(place)) != best || !is_open {
                    continue;
                }
                if let Some(end) = self.walk(&mut search, head) {
                    self.apply(&mut search, end, 1);
                    self.excess[end as usize] += 1;
                    self.choose(source, place as u32);
                    return false;
                }
            }
            true
        });
        self.waiting = waiting;
        self.search = search;
    }

    /// Whether a walk may go on from a node to another.
    #[inline]
    fn is_open(search: &Search, from: u32, to: u32) -> bool {
        search.order[to as usize] > search.order[from as usize] && !search.cursors[to as usize].closed
    }

    /// Finds a way from a node to a deficit, and leaves it in `path`.
    fn walk(&self, search: &mut Search, start: u32) -> Option<u32> {
        search.path.clear();
        let mut node = start;
        search.open(node, self.split.core_first[node as usize]);
        loop {
            if self.excess[node as usize] < 0 {
                return Some(node);
            }
            match self.advance(search, node) {
                Some(step) => {
                    let head = match step.source {
                        NONE => self.split.core[step.place as usize].head,
                        _ => self.split.rows[step.place as usize].head,
                    };
                    search.path.push(step);
                    search.open(head, self.split.core_first[head as usize]);
                    node = head;
                }
                // It stays closed; the one before goes on after the step that led here, because that is closed.
                None => node = search.path.pop()?.node,
            }
        }
    }

    /// The next way out of a node that leads without reduced cost to one that is not closed.
    fn advance(&self, search: &mut Search, node: u32) -> Option<Step> {
        let mut cursor = search.cursors[node as usize];
        let potential = self.potentials[node as usize];
        let end = self.split.core_first[node as usize + 1];
        while cursor.core < end {
            let arc = self.split.core[cursor.core as usize];
            if arc.room > 0
                && potential + arc.cost == self.potentials[arc.head as usize]
                && Self::is_open(search, node, arc.head)
            {
                search.cursors[node as usize] = cursor;
                return Some(Step { node, source: NONE, place: cursor.core });
            }
            cursor.core += 1;
        }
        while let Some(user) = self.users[node as usize].get(cursor.user as usize) {
            if user.level >= potential {
                let row = self.split.row(user.source);
                let own =
                    potential - i64::from(self.split.rows[self.chosen[user.source as usize] as usize].cost);
                let begin = if cursor.place == NONE { row.start } else { cursor.place as usize };
                for place in begin..row.end {
                    let arc = self.split.rows[place];
                    if own + i64::from(arc.cost) == self.potentials[arc.head as usize]
                        && Self::is_open(search, node, arc.head)
                    {
                        cursor.place = place as u32;
                        search.cursors[node as usize] = cursor;
                        return Some(Step { node, source: user.source, place: place as u32 });
                    }
                }
            }
            cursor.user += 1;
            cursor.place = NONE;
        }
        search.cursors[node as usize] = cursor;
        None
    }

    fn room(&self, path: &[Step]) -> i64 {
        path.iter()
            .map(|step| if step.source == NONE { self.split.core[step.place as usize].room } else { 1 })
            .min()
            .unwrap_or(FAR)
    }

    /// Sends units along the path, and opens its nodes to later walks.
    fn apply(&mut self, search: &mut Search, end: u32, units: i64) {
        search.cursors[end as usize].closed = false;
        for index in 0..search.path.len() {
            let step = search.path[index];
            let cursor = &mut search.cursors[step.node as usize];
            cursor.closed = false;
            if step.source == NONE {
                self.split.push(step.place as usize, units);
            } else {
                // Another user takes its position in the list; the cursor looks at that one anew.
                cursor.place = NONE;
                self.leave(step.source, step.node as usize);
                self.choose(step.source, step.place);
            }
        }
    }

    /// The potential that the reduced costs of a source's arcs imply.
    pub fn source_potential(&self, source: u32) -> i64 {
        match self.chosen[source as usize] {
            NONE => self.split.row(source).map(|place| self.value(place)).max().unwrap_or(0),
            place => self.value(place as usize),
        }
    }

    /// The whole network's solution.
    pub fn solution(&self, network: &Network) -> Solution {
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

impl Search {
    /// Notes a way to a node.
    #[inline]
    fn reach(&mut self, node: u32, distance: i64, is_deficit: bool) {
        if distance > self.bound {
            self.pruned = true;
            return;
        }
        if is_deficit {
            (self.bound, self.found) = (distance, true);
        }
        let known = &mut self.distances[node as usize];
        if distance >= *known {
            return;
        }
        if *known == FAR {
            self.reached.push(node);
        }
        *known = distance;
        match self.buckets.get_mut(distance as usize) {
            Some(bucket) => bucket.push(node),
            None => self.far.push(Reverse((distance, node))),
        }
    }

    /// The nearest node whose ways out were not looked at yet.
    fn nearest(&mut self) -> Option<(i64, u32)> {
        loop {
            let (distance, node) = match self.buckets.get_mut(self.bucket) {
                // First come, first served, which keeps paths short.
                Some(bucket) => match bucket.get(self.read) {
                    Some(&node) => {
                        self.read += 1;
                        (self.bucket as i64, node)
                    }
                    None if self.bucket as i64 >= self.bound => return None,
                    None => {
                        (self.bucket, self.read) = (self.bucket + 1, 0);
                        continue;
                    }
                },
                None => self.far.pop().map(|Reverse(nearest)| nearest)?,
            };
            if distance > self.bound {
                return None;
            }
            if distance == self.distances[node as usize] && self.order[node as usize] == 0 {
                self.looked += 1;
                self.order[node as usize] = self.looked;
                return Some((distance, node));
            }
        }
    }

    /// Ends a search and the walks that followed it.
    fn forget(&mut self) {
        for &node in &self.reached {
            self.distances[node as usize] = FAR;
            self.order[node as usize] = 0;
        }
        for &node in &self.touched {
            self.cursors[node as usize] = FRESH;
        }
        self.reached.clear();
        self.touched.clear();
        self.buckets.iter_mut().for_each(Vec::clear);
        self.far.clear();
        (self.bucket, self.read, self.looked) = (0, 0, 0);
        (self.bound, self.found, self.pruned) = (0, false, false);
    }

    fn open(&mut self, node: u32, core: u32) {
        let cursor = &mut self.cursors[node as usize];
        cursor.closed = true;
        if !cursor.touched {
            (cursor.touched, cursor.core) = (true, core);
            self.touched.push(node);
        }
    }
}
