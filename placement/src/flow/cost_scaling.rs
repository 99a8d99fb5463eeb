//! Cost scaling: approximate optima, each from the last, until what is missing can be repaired exactly.

use std::collections::{BinaryHeap, VecDeque};

use super::error::Error;
use super::network::Network;
use super::prepare::{self, Limits};
use super::repair;
use super::residual::NONE;
use super::solution::Solution;
use super::solver::Solver;
use super::split::Split;

/// Cost scaling by push and relabel (Goldberg and Tarjan), in which unit sources bid for their arcs as in Bertsekas's
/// auction.
///
/// The phases end at a tolerance of a fraction of one unit of cost. Potentials rounded to whole units then leave
/// few sources or none with a better arc than theirs, each better by a unit or so; successive shortest paths from
/// there make the optimum exact, and prove it.
#[derive(Clone, Copy, Debug, Default)]
pub struct CostScaling;

/// By how much the tolerance shrinks from phase to phase.
const FACTOR: i64 = 6;
/// Costs are multiplied by this while tolerances are smaller than one unit.
const SCALE: i64 = 64;

impl Solver for CostScaling {
    fn name(&self) -> &'static str {
        "cost-scaling"
    }

    fn solve(&mut self, network: &Network) -> Result<Solution, Error> {
        let limits = prepare::check(network)?;
        let split = Split::new(network, &limits);
        Ok(solve(network, &limits, split)?.solution(network))
    }
}

/// Solves, and keeps what later repairs need.
pub(super) fn solve(network: &Network, limits: &Limits, split: Split) -> Result<repair::Pseudoflow, Error> {
    // Potentials fall by a few times the tolerance for each node of a path, and sums of two are taken.
    let largest =
        i128::from(limits.cost.max(1)) * i128::from(SCALE) * (network.node_bound() as i128 + 2) * 16;
    let mut state = if largest > i128::from(-LOWEST) {
        // Shortest paths alone need no room for a scale.
        repair::Pseudoflow::empty(split)
    } else {
        scale(split, limits).map_err(|error| count_unrouted(network, limits, error))?.into_repair()
    };
    state.route()?;
    Ok(state)
}

/// Finds out how much cannot be routed, which scaling doesn't know when it fails.
fn count_unrouted(network: &Network, limits: &Limits, error: Error) -> Error {
    let split = Split::new(network, limits);
    let (excess, chosen) = (split.supplies.clone(), vec![NONE; split.sources.len()]);
    match (&error, repair::Pseudoflow::without_costs(split, excess, chosen).route()) {
        (Error::Infeasible { .. }, Err(counted)) => counted,
        _ => error,
    }
}

/// Runs the phases.
fn scale(split: Split, limits: &Limits) -> Result<Refinement, Error> {
    let mut state = Refinement::new(split);
    let mut epsilon = limits.cost.max(1) * SCALE;
    loop {
        epsilon = (epsilon / FACTOR).max(1);
        state.refine(epsilon)?;
        if epsilon == 1 || (epsilon <= SCALE / 8 && state.is_nearly_exact()) {
            return Ok(state);
        }
    }
}

struct Refinement {
    /// With scaled costs in its core, but not in its rows.
    split: Split,
    /// Of the core; scaled.
    potentials: Vec<i64>,
    /// Of the core.
    nodes: Vec<Node>,
    /// The arc in its row that each source uses.
    chosen: Vec<u32>,
    /// Sources that use no arc.
    waiting: Vec<u32>,
    /// Nodes of the core with excess.
    active: VecDeque<u32>,
    epsilon: i64,
    /// How many bids and relabels until it is time to ask whether there is a flow at all.
    patience: Option<usize>,
}

/// What a bid changes at a node of the core, in one line of the processor's cache.
#[derive(Debug)]
#[repr(align(64))]
struct Node {
    excess: i64,
    /// How far the node has looked at its arcs for one to push through.
    current: u32,
    /// How many of `first` are there.
    few: u32,
    /// The sources that use arcs to the node, by the potential below which each would rather leave. The two that would leave
    /// first are here, in order; many nodes never have more.
    first: [User; 2],
    rest: BinaryHeap<User>,
}

/// A source that uses an arc, ordered by the potential below which it would rather leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C, packed(4))]
struct User {
    level: i64,
    source: u32,
}

impl Node {
    fn new(excess: i64, current: u32) -> Self {
        Self {
            excess,
            current,
            few: 0,
            first: [User { level: LOWEST, source: NONE }; 2],
            rest: BinaryHeap::new(),
        }
    }

    fn forget_users(&mut self) {
        self.few = 0;
        self.rest.clear();
    }

    #[inline]
    fn push(&mut self, user: User) {
        match self.few {
            0 => (self.first[0], self.few) = (user, 1),
            1 => {
                self.first = if user > self.first[0] { [user, self.first[0]] } else { [self.first[0], user] };
                self.few = 2;
            }
            _ => {
                let last = if user > self.first[0] {
                    let last = self.first[1];
                    self.first = [user, self.first[0]];
                    last
                } else if user > self.first[1] {
                    std::mem::replace(&mut self.first[1], user)
                } else {
                    user
                };
                self.rest.push(last);
            }
        }
    }

    /// The user that would leave first.
    #[inline]
    fn peek(&self) -> Option<User> {
        (self.few > 0).then_some(self.first[0])
    }

    /// Takes the user out that would leave first.
    #[inline]
    fn pop(&mut self) {
        self.first[0] = self.first[1];
        match self.rest.pop() {
            Some(next) => self.first[1] = next,
            None => self.few = self.few.saturating_sub(1),
        }
    }
}

/// Below every potential, and far from overflowing.
const LOWEST: i64 = i64::MIN / 4;

/// Nodes with at most so many arcs look at all of them once more to find out what their next unit would cost.
const FEW: u32 = 8;

impl Refinement {
    fn new(mut split: Split) -> Self {
        for arc in &mut split.core {
            arc.cost *= SCALE;
        }
        let nodes = split.core_nodes.len();
        Self {
            potentials: vec![0; nodes],
            nodes: split
                .supplies
                .iter()
                .zip(&split.core_first)
                .map(|(&s, &first)| Node::new(s, first))
                .collect(),
            chosen: vec![NONE; split.sources.len()],
            waiting: Vec::new(),
            active: VecDeque::new(),
            epsilon: 0,
            patience: Some(1000 + 10 * (nodes + split.sources.len())),
            split,
        }
    }

    /// Makes the flow optimal within a smaller tolerance.
    fn refine(&mut self, epsilon: i64) -> Result<(), Error> {
        self.epsilon = epsilon;
        self.take_back();
        loop {
            while let Some(node) = self.active.pop_front() {
                if self.nodes[node as usize].excess > 0 {
                    self.discharge(node)?;
                }
            }
            let Some(source) = self.waiting.pop() else {
                break;
            };
            self.bid(source)?;
        }
        // There is a flow.
        self.patience = None;
        Ok(())
    }

    /// Takes back what is not optimal at the potentials as they are.
    fn take_back(&mut self) {
        let nodes = self.potentials.len();
        self.nodes.iter_mut().for_each(Node::forget_users);
        for source in 0..self.chosen.len() {
            let chosen = self.chosen[source];
            if chosen == NONE {
                self.waiting.push(source as u32);
                continue;
            }
            let (mut own, mut other) = (LOWEST, LOWEST);
            for place in self.split.row(source as u32) {
                let value = self.value(place);
                if place as u32 == chosen { own = value } else { other = other.max(value) }
            }
            let arc = self.split.rows[chosen as usize];
            if own >= other {
                let level = i64::from(arc.cost) * SCALE + other - self.epsilon;
                self.nodes[arc.head as usize].push(User { level, source: source as u32 });
            } else {
                self.chosen[source] = NONE;
                self.nodes[arc.head as usize].excess -= 1;
                self.waiting.push(source as u32);
            }
        }
        for tail in 0..nodes {
            for place in self.split.leaving(tail as u32) {
                let arc = self.split.core[place];
                if arc.room > 0 && arc.cost + self.potentials[tail] < self.potentials[arc.head as usize] {
                    self.nodes[tail].excess -= arc.room;
                    self.nodes[arc.head as usize].excess += arc.room;
                    self.split.push(place, arc.room);
                }
            }
        }
        for node in 0..nodes {
            self.nodes[node].current = self.split.core_first[node];
            if self.nodes[node].excess > 0 {
                self.active.push_back(node as u32);
            }
        }
    }

    /// The scaled potential that a source would have through an arc.
    #[inline]
    fn value(&self, place: usize) -> i64 {
        let arc = self.split.rows[place];
        self.potentials[arc.head as usize] - i64::from(arc.cost) * SCALE
    }

    /// Lets a source choose its best arc, at the price of the second best.
    fn bid(&mut self, source: u32) -> Result<(), Error> {
        let (mut best, mut second, mut choice) = (LOWEST, LOWEST, NONE);
        for place in self.split.row(source) {
            let value = self.value(place);
            if value > best {
                (second, best, choice) = (best, value, place as u32);
            } else if value > second {
                second = value;
            }
        }
        if choice == NONE {
            return Err(Error::Infeasible { unrouted: 1 });
        }
        self.wait_no_longer()?;
        let arc = self.split.rows[choice as usize];
        self.chosen[source as usize] = choice;
        let level = i64::from(arc.cost) * SCALE + second - self.epsilon;
        let node = &mut self.nodes[arc.head as usize];
        node.push(User { level, source });
        node.excess += 1;
        if node.excess == 1 {
            self.active.push_back(arc.head);
        }
        Ok(())
    }

    /// Takes a node's excess elsewhere, and lowers its potential as far as that needs.
    fn discharge(&mut self, node: u32) -> Result<(), Error> {
        let n = node as usize;
        let end = self.split.core_first[n + 1];
        loop {
            let potential = self.potentials[n];
            while self.nodes[n].current < end {
                let place = self.nodes[n].current as usize;
                let arc = self.split.core[place];
                if arc.room > 0 && arc.cost + potential < self.potentials[arc.head as usize] {
                    let units = arc.room.min(self.nodes[n].excess);
                    self.split.push(place, units);
                    self.nodes[n].excess -= units;
                    let head = &mut self.nodes[arc.head as usize];
                    let before = head.excess;
                    head.excess += units;
                    if before <= 0 && before + units > 0 {
                        self.active.push_back(arc.head);
                    }
                    if self.nodes[n].excess == 0 {
                        return Ok(());
                    }
                }
                self.nodes[n].current += 1;
            }
            while let Some(User { level, source }) = self.nodes[n].peek() {
                if level <= potential {
                    break;
                }
                self.nodes[n].pop();
                self.chosen[source as usize] = NONE;
                self.waiting.push(source);
                self.nodes[n].excess -= 1;
                if self.nodes[n].excess == 0 {
                    // The price of the next unit, so that nobody comes for less.
                    if end - self.split.core_first[n] <= FEW {
                        self.relabel(n);
                    }
                    return Ok(());
                }
            }
            if !self.relabel(n) {
                return Err(Error::Infeasible { unrouted: self.nodes[n].excess });
            }
            self.wait_no_longer()?;
        }
    }

    /// Lowers a node's potential until it has an arc to push through. Says whether any arc leaves it at all.
    fn relabel(&mut self, n: usize) -> bool {
        let mut best = self.nodes[n].peek().map_or(LOWEST, |user| user.level);
        for place in self.split.leaving(n as u32) {
            let arc = self.split.core[place];
            if arc.room > 0 {
                best = best.max(self.potentials[arc.head as usize] - arc.cost);
            }
        }
        if best <= LOWEST / 2 {
            return false;
        }
        self.potentials[n] = self.potentials[n].min(best - self.epsilon);
        self.nodes[n].current = self.split.core_first[n];
        true
    }

    /// Potentials fall for long where there is no flow. After many bids and relabels, finds out whether there is one.
    fn wait_no_longer(&mut self) -> Result<(), Error> {
        match &mut self.patience {
            None => Ok(()),
            Some(0) => {
                self.patience = None;
                repair::Pseudoflow::without_costs(self.split.clone(), self.excess(), self.chosen.clone())
                    .route()
            }
            Some(patience) => {
                *patience -= 1;
                Ok(())
            }
        }
    }

    /// Of the core's nodes.
    fn excess(&self) -> Vec<i64> {
        self.nodes.iter().map(|node| node.excess).collect()
    }

    /// Whether few sources would rather have another arc, at potentials rounded to whole units.
    fn is_nearly_exact(&self) -> bool {
        let potentials: Vec<i64> =
            self.potentials.iter().map(|potential| potential.div_euclid(SCALE)).collect();
        let value = |place: usize| {
            let arc = self.split.rows[place];
            potentials[arc.head as usize] - i64::from(arc.cost)
        };
        let discontent = (0..self.chosen.len())
            .filter(|&source| {
                let own = value(self.chosen[source] as usize);
                self.split.row(source as u32).any(|place| value(place) > own)
            })
            .count();
        discontent <= 16 + self.chosen.len() / 64
    }

    /// Rounds potentials to whole units, and takes back what is not optimal at those.
    fn into_repair(mut self) -> repair::Pseudoflow {
        for arc in &mut self.split.core {
            arc.cost /= SCALE;
        }
        let potentials = self.potentials.iter().map(|potential| potential.div_euclid(SCALE)).collect();
        let excess = self.excess();
        let mut state = repair::Pseudoflow::new(self.split, potentials, excess, self.chosen);
        for source in 0..state.chosen.len() as u32 {
            state.release_if_worse(source);
        }
        for node in 0..state.potentials.len() as u32 {
            state.saturate(node);
        }
        state
    }
}
