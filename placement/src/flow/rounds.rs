//! Searches from everywhere at once: shortest paths from all excesses to the nearest deficits, as much flow as fits
//! along them, and again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::error::Error;
use super::repair::{FAR, Pseudoflow};
use super::residual::NONE;

/// What a search needs, kept from one to the next.
#[derive(Debug, Default)]
pub(super) struct Search {
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
    /// What is missing at the deficits that were reached, up to `bound`.
    found: i64,
    /// How much of that is enough.
    wanted: i64,
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
    /// Deficits, up to this distance.
    Distance(i64),
    /// Nothing within the limit.
    Farther,
    /// Nothing at all.
    Nothing,
}

/// Distances below this are sorted into buckets.
const BUCKETS: usize = 1 << 10;
/// A round is content when it has reached deficits for one part in so many of the excess.
const ENOUGH: i64 = 2;

impl Pseudoflow {
    /// Takes every excess to a deficit. No arc with room may have a negative reduced cost, and none will.
    pub(super) fn route(&mut self) -> Result<(), Error> {
        #[cfg(test)]
        if self.meeting_alone {
            self.route_meeting();
        }
        self.route_near();
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

    /// Finds the distance of the nearest deficits, as many as are enough, or fewer if no more are within a limit, and
    /// lowers the potentials of all nodes nearer than the last of them; or than the limit, if there is none.
    ///
    /// Potentials lowered for more than the nearest are as good a proof, and save rounds.
    fn lower_potentials(&mut self, active: &[u32], limit: i64) -> Found {
        let mut search = std::mem::take(&mut self.search);
        // Nodes farther than `bound` are of no interest.
        search.bound = limit;
        let excess: i64 = active.iter().map(|&node| self.excess[node as usize]).sum();
        search.wanted = (excess + self.waiting.len() as i64) / ENOUGH;
        let mut farthest = 0;
        for &node in active {
            search.reach(node, 0);
        }
        for &source in &self.waiting {
            let best = self.split.row(source).map(|place| self.value(place)).max();
            for place in self.split.row(source) {
                let head = self.split.rows[place].head;
                let distance = best.map_or(0, |best| best - self.value(place));
                search.reach(head, distance);
            }
        }
        while let Some((distance, node)) = search.nearest() {
            if self.excess[node as usize] < 0 {
                search.found -= self.excess[node as usize];
                farthest = distance;
                if search.found >= search.wanted {
                    search.bound = distance;
                }
            }
            let potential = self.potentials[node as usize] + distance;
            for place in self.split.leaving(node) {
                let arc = self.split.core[place];
                if arc.room > 0 {
                    let next = potential + arc.cost - self.potentials[arc.head as usize];
                    search.reach(arc.head, next);
                }
            }
            for index in 0..self.users[node as usize].len() {
                let user = self.users[node as usize][index];
                let before = potential - distance;
                if potential.saturating_sub(user.level) > search.bound {
                    self.users[node as usize][index].stay(user.level, before);
                    // Without any other arc, there is nothing farther either.
                    search.pruned |= user.level != -FAR;
                    continue;
                }
                let own = i64::from(user.cost);
                let mut best = -FAR;
                for place in user.row() {
                    let arc = self.split.rows[place];
                    if arc.head == node {
                        continue;
                    }
                    let value = own + self.potentials[arc.head as usize] - i64::from(arc.cost);
                    best = best.max(value);
                    search.reach(arc.head, potential - value);
                }
                self.users[node as usize][index].stay(best, before);
            }
        }
        let found = match (search.found, search.pruned) {
            (0, true) => Found::Farther,
            (0, false) => Found::Nothing,
            _ => {
                search.bound = farthest;
                Found::Distance(farthest)
            }
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
                let row = user.row();
                let own = potential - i64::from(user.cost);
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
}

impl Search {
    /// Notes a way to a node.
    #[inline]
    fn reach(&mut self, node: u32, distance: i64) {
        if distance > self.bound {
            self.pruned = true;
            return;
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
        (self.bound, self.found, self.pruned) = (0, 0, false);
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
