//! The optimum again, after changes.

use super::algorithm::Algorithm;
use super::error::Error;
use super::network::{ArcId, Network, NodeId};
use super::solution::{Flaw, Solution};

/// A network with its optimum, which is found again after changes.
#[derive(Debug, Default)]
pub struct Incremental {
    network: Network,
    solution: Option<Solution>,
}

impl Incremental {
    /// Takes a network. Nothing is solved yet.
    pub fn new(network: Network) -> Self {
        Self { network, solution: None }
    }

    /// The network as it is now.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Adds a node; see [`Network::add_node`].
    pub fn add_node(&mut self, supply: i64) -> Result<NodeId, Error> {
        self.network.add_node(supply)
    }

    /// Adds an arc; see [`Network::add_arc`].
    pub fn add_arc(&mut self, tail: NodeId, head: NodeId, capacity: i64, cost: i64) -> Result<ArcId, Error> {
        self.network.add_arc(tail, head, capacity, cost)
    }

    /// Removes a node and its arcs.
    pub fn remove_node(&mut self, node: NodeId) -> Result<(), Error> {
        self.network.supply(node)?;
        let arcs: Vec<ArcId> = self
            .network
            .arcs()
            .filter(|(_, arc)| arc.tail == node || arc.head == node)
            .map(|(id, _)| id)
            .collect();
        for arc in arcs {
            self.network.remove_arc(arc)?;
        }
        self.network.remove_node(node)
    }

    /// Removes an arc.
    pub fn remove_arc(&mut self, arc: ArcId) -> Result<(), Error> {
        self.network.remove_arc(arc)
    }

    /// Changes a supply.
    pub fn set_supply(&mut self, node: NodeId, supply: i64) -> Result<(), Error> {
        self.network.set_supply(node, supply)
    }

    /// Changes a capacity.
    pub fn set_capacity(&mut self, arc: ArcId, capacity: i64) -> Result<(), Error> {
        self.network.set_capacity(arc, capacity)
    }

    /// Changes a cost.
    pub fn set_cost(&mut self, arc: ArcId, cost: i64) -> Result<(), Error> {
        self.network.set_cost(arc, cost)
    }

    /// Finds the optimum of the network as it is now, and what it costs.
    pub fn solve(&mut self) -> Result<i128, Error> {
        self.solution = None;
        let solution = Algorithm::Auto.solve(&self.network)?;
        let cost = solution.cost();
        self.solution = Some(solution);
        Ok(cost)
    }

    /// The flow through an arc, in the last optimum.
    pub fn flow(&self, arc: ArcId) -> i64 {
        self.solution.as_ref().map_or(0, |solution| solution.flow(arc))
    }

    /// The potential of a node, in the last optimum.
    pub fn potential(&self, node: NodeId) -> i64 {
        self.solution.as_ref().map_or(0, |solution| solution.potential(node))
    }

    /// A copy of the last optimum, if the network was solved.
    pub fn solution(&self) -> Option<Solution> {
        self.solution.clone()
    }

    /// Checks the last optimum's proof; see [`Solution::verify`].
    pub fn verify(&self) -> Result<(), Flaw> {
        match &self.solution {
            Some(solution) => solution.verify(&self.network),
            None => Err(Flaw::Shape { nodes: 0, arcs: 0 }),
        }
    }
}
