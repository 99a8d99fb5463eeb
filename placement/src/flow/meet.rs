//! Searches from both sides: from one excess forwards and from all deficits backwards, until they meet.
//!
//! Where few excesses and deficits are left in a large network, a search from one side alone looks at nearly all of it
//! before it finds another. Two that meet look at about the square root of that each.

use super::local::{Mark, UNREACHED};
use super::news::News;
use super::queue::Queue;
use super::repair::{FAR, Pseudoflow};
use super::residual::NONE;

/// What a search from both sides needs, kept from one to the next.
#[derive(Debug, Default)]
pub(super) struct Meeting {
    forward: Side,
    backward: Side,
    /// The length of the shortest way known, or how far the search goes without one.
    bound: i64,
    /// Where that way's halves meet; `NONE` without one.
    node: u32,
    /// How far the next search goes at first.
    limit: i64,
    news: News,
    /// Nodes with a deficit.
    deficits: Vec<u32>,
    /// The way that was found.
    path: Vec<Step>,
}

/// A search's side.
#[derive(Debug, Default)]
struct Side {
    /// By core node: how far it is from where the side begins, and from where it was reached.
    marks: Vec<Mark>,
    reached: Vec<u32>,
    queue: Queue,
    /// The least distance that was left out. What is nearer is known exactly.
    pruned: i64,
    /// How many arcs it looked at.
    work: usize,
}

/// A step of a way, from a node: by a source that moves, or through an arc of the core (source `NONE`).
#[derive(Clone, Copy, Debug)]
struct Step {
    tail: u32,
    source: u32,
    place: u32,
}

/// Where a search begins.
#[derive(Clone, Copy, Debug)]
enum Start {
    /// At a source that waits.
    Source(u32),
    /// At a node with an excess.
    Node(u32),
}

/// So many searches and no more are made for one node.
const TRIES: usize = 64;
/// A search that finds nothing is followed by one that goes so many times as far.
const FARTHER: i64 = 4;

impl Side {
    fn begin(&mut self, nodes: usize) {
        self.marks.resize(nodes, UNREACHED);
        (self.pruned, self.work) = (FAR, 0);
    }

    /// The distance of the nearest node that was not looked at; nothing nearer is unknown.
    fn nearest(&mut self) -> i64 {
        while let Some((distance, node)) = self.queue.peek() {
            if distance <= self.marks[node as usize].distance {
                return distance.min(self.pruned);
            }
            self.queue.pop();
        }
        self.pruned
    }

    /// Whether there is nothing farther either: nothing was left out, and there is nothing left to look at.
    fn has_seen_all(&mut self) -> bool {
        self.nearest() == FAR
    }

    /// Notes a way to a node, or that one was left out. Says whether the way is the best to that node.
    #[inline]
    fn reach(&mut self, to: u32, mark: Mark, bound: i64) -> bool {
        if mark.distance >= bound {
            self.pruned = self.pruned.min(mark.distance);
            return false;
        }
        let known = &mut self.marks[to as usize];
        if mark.distance >= known.distance {
            return false;
        }
        if known.distance == FAR {
            self.reached.push(to);
        }
        *known = mark;
        self.queue.push(mark.distance, to);
        true
    }

    fn end(&mut self) {
        for &node in &self.reached {
            self.marks[node as usize] = UNREACHED;
        }
        self.reached.clear();
        self.queue.clear();
    }
}

impl Meeting {
    #[inline]
    fn reach_forward(&mut self, to: u32, mark: Mark) {
        if self.forward.reach(to, mark, self.bound) {
            self.join(to);
        }
    }

    #[inline]
    fn reach_backward(&mut self, to: u32, mark: Mark) {
        if self.backward.reach(to, mark, self.bound) {
            self.join(to);
        }
    }

    /// Notes the way through a node, if both sides have reached it.
    #[inline]
    fn join(&mut self, node: u32) {
        let (ahead, behind) =
            (self.forward.marks[node as usize].distance, self.backward.marks[node as usize].distance);
        if ahead != FAR && behind != FAR && ahead + behind < self.bound {
            (self.bound, self.node) = (ahead + behind, node);
        }
    }

    /// Finds the steps of the way that was found. Where its halves run into each other before they meet, which they do only
    /// where that costs nothing, it changes over at once, so that it passes no node twice. Gives the nodes where it begins and ends.
    fn trace(&mut self) -> (u32, u32) {
        let (forward, backward) = (&self.forward.marks, &self.backward.marks);
        let mut behind = Vec::new();
        let mut node = self.node;
        while node != NONE {
            behind.push(node);
            node = backward[node as usize].node;
        }
        let mut ahead = Vec::new();
        node = self.node;
        while node != NONE {
            ahead.push(node);
            node = forward[node as usize].node;
        }
        ahead.reverse();
        let sorted = {
            let mut sorted = behind.clone();
            sorted.sort_unstable();
            sorted
        };
        let meet =
            ahead.iter().position(|node| sorted.binary_search(node).is_ok()).unwrap_or(ahead.len() - 1);
        let from = behind.iter().position(|&node| node == ahead[meet]).unwrap_or(0);
        self.path.clear();
        for &head in &ahead[..=meet] {
            let Mark { node: tail, source, place, .. } = forward[head as usize];
            if place != NONE {
                self.path.push(Step { tail, source, place });
            }
        }
        for &tail in &behind[from..behind.len() - 1] {
            let Mark { source, place, .. } = backward[tail as usize];
            self.path.push(Step { tail, source, place });
        }
        (ahead[0], behind[behind.len() - 1])
    }
}

impl Pseudoflow {
    /// Routes what is left, one excess after another. Leaves what it cannot route.
    pub(super) fn route_meeting(&mut self) {
        if self.columns.is_none() {
            return;
        }
        let mut meeting = std::mem::take(&mut self.meeting);
        let nodes = self.potentials.len();
        meeting.deficits = (0..nodes as u32).filter(|&node| self.excess[node as usize] < 0).collect();
        meeting.limit = 1;
        let mut left = Vec::new();
        while let Some(source) = self.waiting.pop() {
            if !self.meet(&mut meeting, Start::Source(source)) {
                left.push(source);
            }
        }
        for source in left {
            self.wait(source);
        }
        // Hubs last, because excesses of others may end there.
        for hubs in [false, true] {
            for node in 0..nodes as u32 {
                for _ in 0..TRIES {
                    if self.excess[node as usize] <= 0
                        || self.hubs[node as usize] != hubs
                        || !self.meet(&mut meeting, Start::Node(node))
                    {
                        break;
                    }
                }
            }
        }
        self.meeting = meeting;
    }

    /// Routes one excess, or a part of it. Says whether it found a way.
    fn meet(&mut self, meeting: &mut Meeting, start: Start) -> bool {
        let nodes = self.potentials.len();
        loop {
            meeting.forward.begin(nodes);
            meeting.backward.begin(nodes);
            (meeting.bound, meeting.node) = (meeting.limit, NONE);
            let excess = &self.excess;
            meeting.deficits.retain(|&node| excess[node as usize] < 0);
            for index in 0..meeting.deficits.len() {
                meeting.reach_backward(meeting.deficits[index], Mark { distance: 0, ..UNREACHED });
            }
            match start {
                Start::Source(source) => {
                    let best = self.split.row(source).map(|place| self.value(place)).max().unwrap_or(0);
                    for place in self.split.row(source) {
                        let distance = best - self.value(place);
                        let mark = Mark { distance, node: NONE, source, place: place as u32 };
                        meeting.reach_forward(self.split.rows[place].head, mark);
                    }
                }
                Start::Node(node) => meeting.reach_forward(node, Mark { distance: 0, ..UNREACHED }),
            }
            let ahead = self.approach(meeting);
            let found = meeting.node != NONE;
            let more = !found && !meeting.forward.has_seen_all() && !meeting.backward.has_seen_all();
            if found || more {
                self.reprice(meeting, ahead);
            }
            if found {
                self.follow_both(meeting);
                meeting.limit = meeting.bound.max(1);
            } else {
                meeting.limit = meeting.limit.saturating_mul(FARTHER);
            }
            meeting.forward.end();
            meeting.backward.end();
            meeting.news.clear();
            if !more {
                return found;
            }
        }
    }

    /// Lets both sides grow, always the one that had less to do, until no shorter way is possible. Gives up to where the
    /// forward side knows everything; the backward side does at least for the rest of the way.
    fn approach(&mut self, meeting: &mut Meeting) -> i64 {
        loop {
            let (ahead, behind) = (meeting.forward.nearest(), meeting.backward.nearest());
            if ahead.saturating_add(behind) >= meeting.bound {
                return ahead;
            }
            // A side that has left something nearer out cannot grow, nor one that has seen everything.
            let can = |side: &Side, nearest: i64| nearest < side.pruned;
            let forward = match (can(&meeting.forward, ahead), can(&meeting.backward, behind)) {
                (true, true) => meeting.forward.work <= meeting.backward.work,
                (forward, _) => forward,
            };
            if forward {
                if let Some((distance, node)) = meeting.forward.queue.pop() {
                    self.grow_forward(meeting, distance, node);
                }
            } else if let Some((distance, node)) = meeting.backward.queue.pop() {
                self.grow_backward(meeting, distance, node);
            } else {
                return ahead;
            }
        }
    }

    fn grow_forward(&mut self, meeting: &mut Meeting, distance: i64, node: u32) {
        self.foresee(meeting.forward.queue.next(), meeting.bound);
        let before = self.potentials[node as usize];
        let potential = before + distance;
        meeting.forward.work += self.split.leaving(node).len() + self.users[node as usize].len();
        for place in self.split.leaving(node) {
            let arc = self.split.core[place];
            if arc.room > 0 {
                let distance = potential + arc.cost - self.potentials[arc.head as usize];
                let mark = Mark { distance, node, source: NONE, place: place as u32 };
                meeting.reach_forward(arc.head, mark);
            }
        }
        for user in &mut self.users[node as usize] {
            let least = potential.saturating_sub(user.level);
            if least >= meeting.bound {
                user.stay(user.level, before);
                // Without any other arc, there is nothing farther either.
                if user.level != -FAR {
                    meeting.forward.pruned = meeting.forward.pruned.min(least);
                }
                continue;
            }
            let own = i64::from(user.cost);
            let mut best = -FAR;
            meeting.forward.work += user.row().len();
            for place in user.row() {
                let arc = self.split.rows[place];
                if arc.head == node {
                    continue;
                }
                let value = own + self.potentials[arc.head as usize] - i64::from(arc.cost);
                best = best.max(value);
                let mark =
                    Mark { distance: potential - value, node, source: user.source, place: place as u32 };
                meeting.reach_forward(arc.head, mark);
            }
            user.stay(best, before);
        }
    }

    fn grow_backward(&self, meeting: &mut Meeting, distance: i64, node: u32) {
        let Some(columns) = &self.columns else { return };
        if columns.is_hidden(node) {
            // Who has arcs to it is not known: this side ends here.
            meeting.backward.pruned = meeting.backward.pruned.min(distance);
            return;
        }
        self.foresee_back(columns, meeting.backward.queue.next());
        let potential = self.potentials[node as usize] - distance;
        meeting.backward.work += self.split.leaving(node).len() + columns.of(node).len();
        for place in self.split.leaving(node) {
            let arc = self.split.core[place];
            if self.split.core[arc.reverse as usize].room > 0 {
                let distance = self.potentials[arc.head as usize] - arc.cost - potential;
                meeting.reach_backward(arc.head, Mark { distance, node, source: NONE, place: arc.reverse });
            }
        }
        for entry in columns.of(node) {
            if entry.head == node || entry.head == NONE {
                continue;
            }
            let distance = self.potentials[entry.head as usize] + i64::from(entry.extra) - potential;
            if distance >= meeting.bound {
                meeting.backward.pruned = meeting.backward.pruned.min(distance);
                if News::is_near(distance, meeting.bound) {
                    meeting.news.note(node, entry);
                }
            } else {
                meeting.news.note(node, entry);
                let mark = Mark { distance, node, source: entry.source, place: entry.place };
                meeting.reach_backward(entry.head, mark);
            }
        }
    }

    /// Lowers potentials on one side and raises them on the other, so that the way that was found costs nothing, or
    /// nothing is nearer than the search went.
    fn reprice(&mut self, meeting: &Meeting, ahead: i64) {
        let fall = ahead.min(meeting.bound);
        let rise = meeting.bound - fall;
        for &node in &meeting.forward.reached {
            self.potentials[node as usize] -= (fall - meeting.forward.marks[node as usize].distance).max(0);
        }
        for &node in &meeting.backward.reached {
            self.potentials[node as usize] += (rise - meeting.backward.marks[node as usize].distance).max(0);
        }
        self.tell(&meeting.news);
    }

    /// Sends flow along the way that was found.
    fn follow_both(&mut self, meeting: &mut Meeting) {
        let (start, end) = meeting.trace();
        let waited = matches!(meeting.path.first(), Some(step) if step.tail == NONE);
        let mut units = -self.excess[end as usize];
        if !waited {
            units = units.min(self.excess[start as usize]);
        }
        for step in &meeting.path {
            units =
                units.min(if step.source == NONE { self.split.core[step.place as usize].room } else { 1 });
        }
        if !waited {
            self.excess[start as usize] -= units;
        }
        self.excess[end as usize] += units;
        for step in &meeting.path {
            if step.source == NONE {
                self.split.push(step.place as usize, units);
            } else {
                if step.tail != NONE {
                    self.leave(step.source, step.tail as usize);
                }
                self.choose(step.source, step.place);
            }
        }
    }
}
