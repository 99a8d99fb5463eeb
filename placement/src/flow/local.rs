//! Searches from one node at a time, for as long as they stay near.
//!
//! An excess looks for the nearest deficit, a deficit for the nearest excess, and both are content with a *hub*: a
//! node with so many arcs that it joins the whole network, as an aggregator and the sink do. What is left are excesses and deficits
//! of the hubs, of which most cancel out. Without hubs each search would go through all that is tied with them.

use super::columns::Entry;
use super::news::News;
use super::queue::Queue;
use super::repair::{FAR, Pseudoflow};
use super::residual::NONE;
use super::split::Split;

/// What a search needs, kept from one to the next.
#[derive(Debug, Default)]
pub(super) struct Local {
    /// By core node.
    marks: Vec<Mark>,
    reached: Vec<u32>,
    queue: Queue,
    /// The nearest target. Nothing at its distance or farther is of interest; without a target nothing at `limit`.
    target: u32,
    bound: i64,
    /// The arc of a source that waits, which leads to the target and is where the way begins.
    source: Option<Entry>,
    /// So many nodes and no more are looked at by one search.
    most: usize,
    /// Whether something was left out before there was a target.
    pruned: bool,
    /// How far the next search goes at first.
    limit: i64,
    /// Whether the search looked at too many nodes.
    exhausted: bool,
    /// How many arcs searches have looked at.
    work: usize,
    news: News,
    /// Whether hubs are nodes like others for now.
    beyond_hubs: bool,
}

/// How a search came to a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub distance: i64,
    /// The node from which it was reached.
    pub node: u32,
    /// The source that moves, or `NONE` for an arc of the core.
    pub source: u32,
    /// The arc; for a source its new one.
    pub place: u32,
}

pub(super) const UNREACHED: Mark = Mark { distance: FAR, node: NONE, source: NONE, place: NONE };

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The nearest target.
    Found,
    /// None within the limit.
    Farther,
    /// None at all, or none near by.
    Nothing,
}

/// How many nodes one search may look at: few at first, so that searches from both sides meet in the middle.
const NEAR: [usize; 4] = [32, 128, 512, usize::MAX];
/// No more than so many units are left to searches from both sides, each of which looks at all deficits.
const MEETING: usize = 256;
/// So many searches and no more are made for one node.
const TRIES: usize = 64;

/// While all sources wait, the attempt may cost one part in so many, and one, of what it may cost in the end.
const RISE: usize = 16;

/// So many units in the wrong place are few.
const FEW: usize = 32;

/// Which core nodes are hubs.
pub(super) fn hubs(split: &Split) -> Vec<bool> {
    let nodes = split.core_nodes.len();
    let many = 8.max(nodes / 64);
    (0..nodes as u32).map(|node| split.leaving(node).len() > many).collect()
}

impl Local {
    /// Notes a source that waits as the target, reached at a node.
    fn reach_source(&mut self, distance: i64, node: u32, entry: Entry) {
        if distance < self.bound {
            (self.target, self.bound, self.source) = (node, distance, Some(entry));
        } else {
            self.pruned |= self.target == NONE;
        }
    }

    #[inline]
    fn reach(&mut self, to: u32, mark: Mark, is_target: impl FnOnce() -> bool) {
        if mark.distance >= self.bound {
            self.pruned |= self.target == NONE;
            return;
        }
        let known = &mut self.marks[to as usize];
        if mark.distance >= known.distance {
            return;
        }
        if known.distance == FAR {
            self.reached.push(to);
        }
        *known = mark;
        if is_target() {
            (self.target, self.bound, self.source) = (to, mark.distance, None);
        } else {
            self.queue.push(mark.distance, to);
        }
    }

    fn begin(&mut self, nodes: usize) {
        self.marks.resize(nodes, UNREACHED);
        self.limit = self.limit.max(1);
        (self.target, self.bound, self.pruned) = (NONE, self.limit, false);
        self.source = None;
    }

    /// What a search that has ended found, and how far the next one goes.
    fn outcome(&mut self) -> Outcome {
        match self.target {
            NONE if self.exhausted => {
                self.exhausted = false;
                Outcome::Nothing
            }
            NONE if self.pruned => {
                self.limit = self.limit.saturating_mul(2);
                Outcome::Farther
            }
            NONE => Outcome::Nothing,
            _ => {
                self.limit = self.bound;
                Outcome::Found
            }
        }
    }

    /// The nearest node that was not looked at yet, if it is nearer than the target; not if that was too many.
    fn nearest(&mut self, left: &mut usize) -> Option<(i64, u32)> {
        while let Some((distance, node)) = self.queue.pop() {
            if distance >= self.bound {
                break;
            }
            if distance > self.marks[node as usize].distance {
                continue;
            }
            if *left == 0 {
                (self.target, self.bound, self.exhausted) = (NONE, distance, true);
                break;
            }
            *left -= 1;
            return Some((distance, node));
        }
        None
    }

    fn end(&mut self) {
        for &node in &self.reached {
            self.marks[node as usize] = UNREACHED;
        }
        self.reached.clear();
        self.queue.clear();
        self.news.clear();
    }
}

impl Pseudoflow {
    /// Routes waiting sources near by while that is easy: until searches have looked at too many arcs, or more than a few
    /// sources could not be routed. Says whether all was easy.
    ///
    /// All sources together may cost looks at `work` arcs. The last ones are the dearest, so that the first may cost only a
    /// part: where room is scarce, that is noticed long before all of `work` is done.
    pub(super) fn route_some(&mut self, work: usize) -> bool {
        let hubs: Vec<usize> = (0..self.hubs.len()).filter(|&node| self.hubs[node]).collect();
        let all = self.waiting.len();
        let mut failures = 0;
        let mut left = Vec::new();
        self.local.limit = 1;
        self.local.most = NEAR[2];
        while let Some(source) = self.waiting.pop() {
            if !self.send_source(source) {
                left.push(source);
                failures += 1;
            }
            // At once, so that the hub's price rises before others come for the same.
            if hubs.iter().any(|&node| self.excess[node] > 0) {
                self.send_from_hubs();
            }
            let allowed = work as u128 * all as u128 / (all + RISE * self.waiting.len()) as u128;
            if failures > FEW || self.local.work as u128 > allowed {
                return false;
            }
        }
        self.waiting = left;
        true
    }

    /// Routes what can be routed near by: excesses to deficits or hubs, and to deficits from hubs.
    pub(super) fn route_near(&mut self) {
        self.local.limit = 1;
        for most in NEAR {
            if most > NEAR[1] && self.columns.is_some() && self.left_off_hubs() <= MEETING {
                self.route_meeting();
                return;
            }
            if most == usize::MAX && self.left_off_hubs() > FEW {
                break;
            }
            self.local.most = most;
            let mut left = Vec::new();
            // Last come, first served; what is pushed out is routed at once.
            while let Some(source) = self.waiting.pop() {
                if !self.send_source(source) {
                    left.push(source);
                }
            }
            for source in left {
                self.wait(source);
            }
            let nodes = self.potentials.len() as u32;
            for node in 0..nodes {
                for _ in 0..TRIES {
                    if self.excess[node as usize] <= 0 || self.hubs[node as usize] || !self.send(node) {
                        break;
                    }
                }
            }
            if self.columns.is_some() {
                for node in 0..nodes {
                    for _ in 0..TRIES {
                        if self.excess[node as usize] >= 0 || self.hubs[node as usize] || !self.fetch(node) {
                            break;
                        }
                    }
                }
            }
        }
        // These searches go through much of the network anyhow; once is enough.
        self.local.limit = FAR / 2;
        self.send_from_hubs();
    }

    /// How many sources wait, and how much excess there is that is not at hubs.
    fn left_off_hubs(&self) -> usize {
        let excess =
            self.excess.iter().zip(&self.hubs).filter(|&(_, hub)| !hub).map(|(&excess, _)| excess.max(0));
        self.waiting.len() + usize::try_from(excess.sum::<i64>()).unwrap_or(usize::MAX)
    }

    /// Routes what little there is at hubs.
    fn send_from_hubs(&mut self) {
        self.local.beyond_hubs = true;
        for node in 0..self.potentials.len() as u32 {
            if self.hubs[node as usize] {
                for _ in 0..TRIES {
                    if self.excess[node as usize] <= 0 || !self.send(node) {
                        break;
                    }
                }
            }
        }
        self.local.beyond_hubs = false;
    }

    /// Routes a source that waits. Says whether it found a way.
    fn send_source(&mut self, source: u32) -> bool {
        let mut local = std::mem::take(&mut self.local);
        let found = loop {
            local.begin(self.potentials.len());
            let best = self.split.row(source).map(|place| self.value(place)).max().unwrap_or(0);
            for place in self.split.row(source) {
                let head = self.split.rows[place].head;
                let distance = best - self.value(place);
                let mark = Mark { distance, node: NONE, source, place: place as u32 };
                local.reach(head, mark, || self.excess[head as usize] < 0 || self.hubs[head as usize]);
            }
            self.spread(&mut local);
            let outcome = local.outcome();
            if outcome == Outcome::Found {
                self.follow(&local, 1);
            }
            local.end();
            if outcome != Outcome::Farther {
                break outcome == Outcome::Found;
            }
        };
        self.local = local;
        found
    }

    /// Routes excess of a node. Says whether it found a way.
    fn send(&mut self, node: u32) -> bool {
        let mut local = std::mem::take(&mut self.local);
        let found = loop {
            local.begin(self.potentials.len());
            local.reach(node, Mark { distance: 0, ..UNREACHED }, || false);
            self.spread(&mut local);
            let outcome = local.outcome();
            if outcome == Outcome::Found {
                self.follow(&local, self.excess[node as usize]);
            }
            local.end();
            if outcome != Outcome::Farther {
                break outcome == Outcome::Found;
            }
        };
        self.local = local;
        found
    }

    /// Goes on from what was reached to the nearest target, and lowers potentials so that the way costs nothing.
    fn spread(&mut self, local: &mut Local) {
        let beyond_hubs = local.beyond_hubs;
        let mut left = if beyond_hubs { usize::MAX } else { local.most };
        while let Some((distance, node)) = local.nearest(&mut left) {
            self.foresee(local.queue.next(), local.bound);
            let potential = self.potentials[node as usize] + distance;
            let is_target =
                |node: u32| self.excess[node as usize] < 0 || (self.hubs[node as usize] && !beyond_hubs);
            local.work += self.split.leaving(node).len();
            for place in self.split.leaving(node) {
                let arc = self.split.core[place];
                if arc.room > 0 {
                    let distance = potential + arc.cost - self.potentials[arc.head as usize];
                    let mark = Mark { distance, node, source: NONE, place: place as u32 };
                    local.reach(arc.head, mark, || is_target(arc.head));
                }
            }
            if local.bound <= distance {
                break;
            }
            let before = self.potentials[node as usize];
            for user in &mut self.users[node as usize] {
                if potential.saturating_sub(user.level) >= local.bound {
                    user.stay(user.level, before);
                    // Without any other arc, there is nothing farther either.
                    local.pruned |= local.target == NONE && user.level != -FAR;
                    continue;
                }
                let own = i64::from(user.cost);
                let mut best = -FAR;
                local.work += user.row().len();
                for place in user.row() {
                    let arc = self.split.rows[place];
                    if arc.head == node {
                        continue;
                    }
                    let value = own + self.potentials[arc.head as usize] - i64::from(arc.cost);
                    best = best.max(value);
                    let distance = potential - value;
                    let mark = Mark { distance, node, source: user.source, place: place as u32 };
                    local.reach(arc.head, mark, || is_target(arc.head));
                }
                user.stay(best, before);
            }
        }
        if local.target != NONE || local.pruned || local.exhausted {
            for &node in &local.reached {
                self.potentials[node as usize] -= (local.bound - local.marks[node as usize].distance).max(0);
            }
        }
    }

    /// Sends flow along the way that a search from an excess found.
    fn follow(&mut self, local: &Local, excess: i64) {
        let mut units = excess;
        let end = local.target as usize;
        if local.beyond_hubs || !self.hubs[end] {
            units = units.min(-self.excess[end]);
        }
        let mut node = local.target;
        let mut start = NONE;
        while node != NONE {
            let mark = local.marks[node as usize];
            if mark.source != NONE {
                units = units.min(1);
            } else if mark.place != NONE {
                units = units.min(self.split.core[mark.place as usize].room);
            }
            start = node;
            node = mark.node;
        }
        if local.marks[start as usize].source == NONE {
            self.excess[start as usize] -= units;
        }
        self.excess[end] += units;
        node = local.target;
        while node != NONE {
            let mark = local.marks[node as usize];
            if mark.source != NONE {
                if mark.node != NONE {
                    self.leave(mark.source, mark.node as usize);
                }
                self.choose(mark.source, mark.place);
            } else if mark.place != NONE {
                self.split.push(mark.place as usize, units);
            }
            node = mark.node;
        }
    }

    /// Fetches what a node lacks. Says whether it found a way.
    fn fetch(&mut self, node: u32) -> bool {
        let mut local = std::mem::take(&mut self.local);
        let found = loop {
            local.begin(self.potentials.len());
            local.reach(node, Mark { distance: 0, ..UNREACHED }, || false);
            self.spread_back(&mut local);
            let outcome = local.outcome();
            if outcome == Outcome::Found {
                self.follow_back(&local, node);
            }
            local.end();
            if outcome != Outcome::Farther {
                break outcome == Outcome::Found;
            }
        };
        self.local = local;
        found
    }

    /// Goes back from what was reached to the nearest target, and raises potentials so that the way costs nothing.
    fn spread_back(&mut self, local: &mut Local) {
        let Some(columns) = &self.columns else { return };
        let mut left = local.most;
        while let Some((distance, node)) = local.nearest(&mut left) {
            self.foresee_back(columns, local.queue.next());
            let potential = self.potentials[node as usize] - distance;
            let is_target = |node: u32| self.excess[node as usize] > 0 || self.hubs[node as usize];
            for place in self.split.leaving(node) {
                let arc = self.split.core[place];
                if self.split.core[arc.reverse as usize].room > 0 {
                    let distance = self.potentials[arc.head as usize] - arc.cost - potential;
                    let mark = Mark { distance, node, source: NONE, place: arc.reverse };
                    local.reach(arc.head, mark, || is_target(arc.head));
                }
            }
            if local.bound <= distance {
                break;
            }
            for entry in columns.of(node) {
                if entry.head == node {
                    continue;
                }
                if entry.head == NONE {
                    if self.is_waiting(entry.source) {
                        let best = self.split.row(entry.source).map(|place| self.value(place)).max();
                        let distance = best.unwrap_or(0) + i64::from(entry.extra) - potential;
                        local.reach_source(distance, node, *entry);
                    }
                    continue;
                }
                let distance = self.potentials[entry.head as usize] + i64::from(entry.extra) - potential;
                if distance >= local.bound {
                    local.pruned |= local.target == NONE;
                    if News::is_near(distance, local.bound) {
                        local.news.note(node, entry);
                    }
                } else {
                    local.news.note(node, entry);
                    let mark = Mark { distance, node, source: entry.source, place: entry.place };
                    local.reach(entry.head, mark, || is_target(entry.head));
                }
            }
        }
        if local.target != NONE || local.pruned || local.exhausted {
            for index in 0..local.reached.len() {
                let node = local.reached[index];
                let rise = local.bound - local.marks[node as usize].distance;
                self.potentials[node as usize] += rise.max(0);
            }
            self.tell(&local.news);
        }
    }

    /// Sends flow along the way that a search from a deficit found.
    fn follow_back(&mut self, local: &Local, end: u32) {
        let mut units = -self.excess[end as usize];
        let start = local.target;
        if let Some(entry) = local.source {
            units = 1;
            self.wait_no_longer(entry.source);
            self.choose(entry.source, entry.place);
            // It arrives, and goes on at once.
            self.excess[start as usize] += 1;
        } else if !self.hubs[start as usize] {
            units = units.min(self.excess[start as usize]);
        }
        let mut node = start;
        while node != end {
            let mark = local.marks[node as usize];
            units =
                units.min(if mark.source == NONE { self.split.core[mark.place as usize].room } else { 1 });
            node = mark.node;
        }
        self.excess[start as usize] -= units;
        self.excess[end as usize] += units;
        node = start;
        while node != end {
            let mark = local.marks[node as usize];
            if mark.source == NONE {
                self.split.push(mark.place as usize, units);
            } else {
                self.leave(mark.source, node as usize);
                self.choose(mark.source, mark.place);
            }
            node = mark.node;
        }
    }
}
