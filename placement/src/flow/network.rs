//! Nodes with supplies, arcs with capacities and costs.

use super::error::Error;
use super::ids::{ArcId, NodeId};

/// A capacity without a limit.
pub const UNLIMITED: i64 = i64::MAX;

/// The largest cost of an arc, either way from zero.
pub const MAX_COST: i64 = 1 << 50;

/// Solvers keep each arc twice and need one value for "none".
const MAX_ARCS: usize = (1 << 31) - 1;
/// Likewise, and solvers add a node or two of their own.
const MAX_NODES: usize = (1 << 31) - 1;

/// What stands in `tails` for an arc that was removed.
const REMOVED: u32 = u32::MAX;

/// An arc, as it was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arc {
    /// Where it begins.
    pub tail: NodeId,
    /// Where it ends.
    pub head: NodeId,
    /// How much may flow through it.
    pub capacity: i64,
    /// What a unit of flow costs.
    pub cost: i64,
}

/// A flow network.
///
/// Identifiers are dense: the first node added is 0. Those of removed nodes and arcs are given to nodes and arcs that
/// are added later. What is removed keeps its place meanwhile: a node without arcs and supply, an arc without
/// capacity.
#[derive(Clone, Debug, Default)]
pub struct Network {
    pub(super) supplies: Vec<i64>,
    /// How many arcs begin or end at each node.
    degrees: Vec<u32>,
    /// Whether a node was removed.
    node_removed: Vec<bool>,
    pub(super) tails: Vec<u32>,
    pub(super) heads: Vec<u32>,
    pub(super) capacities: Vec<i64>,
    pub(super) costs: Vec<i64>,
    free_nodes: Vec<u32>,
    free_arcs: Vec<u32>,
}

impl Network {
    /// A network without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// A network without nodes, and with room for some.
    pub fn with_capacity(nodes: usize, arcs: usize) -> Self {
        Self {
            supplies: Vec::with_capacity(nodes),
            degrees: Vec::with_capacity(nodes),
            node_removed: Vec::with_capacity(nodes),
            tails: Vec::with_capacity(arcs),
            heads: Vec::with_capacity(arcs),
            capacities: Vec::with_capacity(arcs),
            costs: Vec::with_capacity(arcs),
            ..Self::default()
        }
    }

    /// Adds a node that `supply` units begin at; or end at, if it is negative.
    pub fn add_node(&mut self, supply: i64) -> Result<NodeId, Error> {
        if let Some(node) = self.free_nodes.pop() {
            self.supplies[node as usize] = supply;
            self.node_removed[node as usize] = false;
            return Ok(NodeId(node));
        }
        if self.supplies.len() >= MAX_NODES {
            return Err(Error::TooMany("nodes"));
        }
        self.supplies.push(supply);
        self.degrees.push(0);
        self.node_removed.push(false);
        Ok(NodeId(self.supplies.len() as u32 - 1))
    }

    /// Adds an arc. Its capacity may be [`UNLIMITED`] and its cost negative.
    pub fn add_arc(&mut self, tail: NodeId, head: NodeId, capacity: i64, cost: i64) -> Result<ArcId, Error> {
        self.check_node(tail)?;
        self.check_node(head)?;
        check_capacity(capacity)?;
        check_cost(cost)?;
        self.degrees[tail.index()] += 1;
        self.degrees[head.index()] += 1;
        if let Some(arc) = self.free_arcs.pop() {
            let index = arc as usize;
            (self.tails[index], self.heads[index]) = (tail.0, head.0);
            (self.capacities[index], self.costs[index]) = (capacity, cost);
            return Ok(ArcId(arc));
        }
        if self.tails.len() >= MAX_ARCS {
            return Err(Error::TooMany("arcs"));
        }
        self.tails.push(tail.0);
        self.heads.push(head.0);
        self.capacities.push(capacity);
        self.costs.push(cost);
        Ok(ArcId(self.tails.len() as u32 - 1))
    }

    /// Removes a node. It must have no arcs; [`super::Incremental::remove_node`] removes them along.
    pub fn remove_node(&mut self, node: NodeId) -> Result<(), Error> {
        self.check_node(node)?;
        match self.degrees[node.index()] {
            0 => {}
            arcs => return Err(Error::NodeInUse { node, arcs }),
        }
        self.supplies[node.index()] = 0;
        self.node_removed[node.index()] = true;
        self.free_nodes.push(node.0);
        Ok(())
    }

    /// Removes an arc.
    pub fn remove_arc(&mut self, arc: ArcId) -> Result<(), Error> {
        let index = self.check_arc(arc)?;
        self.degrees[self.tails[index] as usize] -= 1;
        self.degrees[self.heads[index] as usize] -= 1;
        (self.tails[index], self.heads[index]) = (REMOVED, REMOVED);
        (self.capacities[index], self.costs[index]) = (0, 0);
        self.free_arcs.push(arc.0);
        Ok(())
    }

    /// Changes how many units begin (or, if negative, end) at a node.
    pub fn set_supply(&mut self, node: NodeId, supply: i64) -> Result<(), Error> {
        self.check_node(node)?;
        self.supplies[node.index()] = supply;
        Ok(())
    }

    /// Changes how much may flow through an arc.
    pub fn set_capacity(&mut self, arc: ArcId, capacity: i64) -> Result<(), Error> {
        let index = self.check_arc(arc)?;
        check_capacity(capacity)?;
        self.capacities[index] = capacity;
        Ok(())
    }

    /// Changes what a unit of flow through an arc costs.
    pub fn set_cost(&mut self, arc: ArcId, cost: i64) -> Result<(), Error> {
        let index = self.check_arc(arc)?;
        check_cost(cost)?;
        self.costs[index] = cost;
        Ok(())
    }

    /// How many units begin (or, if negative, end) at a node.
    pub fn supply(&self, node: NodeId) -> Result<i64, Error> {
        self.check_node(node)?;
        Ok(self.supplies[node.index()])
    }

    /// An arc as it was added, with its capacity and cost as they are now.
    pub fn arc(&self, arc: ArcId) -> Result<Arc, Error> {
        let index = self.check_arc(arc)?;
        Ok(Arc {
            tail: NodeId(self.tails[index]),
            head: NodeId(self.heads[index]),
            capacity: self.capacities[index],
            cost: self.costs[index],
        })
    }

    /// One more than the largest node's index: how long an array by node must be.
    pub fn node_bound(&self) -> usize {
        self.supplies.len()
    }

    /// One more than the largest arc's index: how long an array by arc must be.
    pub fn arc_bound(&self) -> usize {
        self.tails.len()
    }

    /// How many nodes there are.
    pub fn node_count(&self) -> usize {
        self.supplies.len() - self.free_nodes.len()
    }

    /// How many arcs there are.
    pub fn arc_count(&self) -> usize {
        self.tails.len() - self.free_arcs.len()
    }

    /// All nodes, by index.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.supplies.len()).filter(|&index| !self.node_removed[index]).map(|index| NodeId(index as u32))
    }

    /// All arcs, by index.
    pub fn arcs(&self) -> impl Iterator<Item = (ArcId, Arc)> + '_ {
        (0..self.tails.len() as u32).filter_map(|index| Some((ArcId(index), self.arc(ArcId(index)).ok()?)))
    }

    /// The node with an index.
    pub fn node_at(&self, index: usize) -> Option<NodeId> {
        let node = NodeId(u32::try_from(index).ok()?);
        self.check_node(node).ok().map(|()| node)
    }

    /// The arc with an index.
    pub fn arc_at(&self, index: usize) -> Option<ArcId> {
        let arc = ArcId(u32::try_from(index).ok()?);
        self.check_arc(arc).ok().map(|_| arc)
    }

    /// How many arcs begin or end at a node; a loop counts twice.
    pub(super) fn degree(&self, node: NodeId) -> u32 {
        self.degrees.get(node.index()).copied().unwrap_or(0)
    }

    /// Whether there is an arc with this index: the places of removed arcs stay.
    pub(super) fn is_arc(&self, index: usize) -> bool {
        self.tails[index] != REMOVED
    }

    fn check_node(&self, node: NodeId) -> Result<(), Error> {
        match self.node_removed.get(node.index()) {
            Some(false) => Ok(()),
            _ => Err(Error::NoSuchNode(node)),
        }
    }

    fn check_arc(&self, arc: ArcId) -> Result<usize, Error> {
        match self.tails.get(arc.index()) {
            Some(&tail) if tail != REMOVED => Ok(arc.index()),
            _ => Err(Error::NoSuchArc(arc)),
        }
    }
}

fn check_capacity(capacity: i64) -> Result<(), Error> {
    if capacity < 0 { Err(Error::NegativeCapacity(capacity)) } else { Ok(()) }
}

fn check_cost(cost: i64) -> Result<(), Error> {
    if (-MAX_COST..=MAX_COST).contains(&cost) {
        Ok(())
    } else {
        Err(Error::Overflow(format!("the cost {cost} is further from zero than {MAX_COST}")))
    }
}

/// How many integer units of cost make 1.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostScale {
    /// Units that make 1.0.
    pub units: i64,
}

impl Default for CostScale {
    /// Six decimal digits less one: 100,000 units, which leaves room for costs up to ten billion.
    fn default() -> Self {
        Self { units: 100_000 }
    }
}

impl CostScale {
    /// Rounds to the nearest unit.
    pub fn to_cost(self, value: f64) -> Result<i64, Error> {
        let scaled = (value * self.units as f64).round();
        // Also false for what is not a number.
        if scaled.abs() <= MAX_COST as f64 {
            Ok(scaled as i64)
        } else {
            Err(Error::Overflow(format!("the cost {value} does not fit at {} units", self.units)))
        }
    }

    /// A cost (of an arc or of a whole flow) as a fractional number.
    pub fn to_value(self, cost: i128) -> f64 {
        cost as f64 / self.units as f64
    }
}
