//! A flow, and the potentials that prove it optimal.

use super::ids::{ArcId, NodeId};
use super::network::{Network, UNLIMITED};

/// A flow of least cost, with its proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solution {
    /// By arc index.
    pub(super) flows: Vec<i64>,
    /// By node index.
    pub(super) potentials: Vec<i64>,
    pub(super) cost: i128,
}

impl Solution {
    pub(super) fn new(network: &Network, flows: Vec<i64>, potentials: Vec<i64>) -> Self {
        let cost = total_cost(network, &flows);
        Self { flows, potentials, cost }
    }

    /// What the flow costs.
    pub fn cost(&self) -> i128 {
        self.cost
    }

    /// The flow through an arc of the network that was solved.
    pub fn flow(&self, arc: ArcId) -> i64 {
        self.flows.get(arc.index()).copied().unwrap_or(0)
    }

    /// The potential of a node of the network that was solved: what one more unit there would save, up to a constant.
    pub fn potential(&self, node: NodeId) -> i64 {
        self.potentials.get(node.index()).copied().unwrap_or(0)
    }

    /// The flows, by arc index.
    pub fn flows(&self) -> &[i64] {
        &self.flows
    }

    /// The potentials, by node index.
    pub fn potentials(&self) -> &[i64] {
        &self.potentials
    }

    /// Checks the proof, without trusting who made it: flows within capacities, supplies met, and every arc's reduced
    /// cost of the right sign. A flow that passes is optimal.
    pub fn verify(&self, network: &Network) -> Result<(), Flaw> {
        verify(network, &self.flows, &self.potentials)?;
        match total_cost(network, &self.flows) {
            cost if cost == self.cost => Ok(()),
            cost => Err(Flaw::Cost { stated: self.cost, real: cost }),
        }
    }
}

/// What is wrong with a flow or its proof.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// The arrays don't have the network's lengths.
    #[error("The solution is for another network: {nodes} nodes, {arcs} arcs")]
    Shape {
        /// Nodes that the solution knows.
        nodes: usize,
        /// Arcs that it knows.
        arcs: usize,
    },
    /// A flow below zero or above the capacity.
    #[error("Arc {} carries {flow}, of {capacity}", .arc.index())]
    Capacity {
        /// The arc.
        arc: ArcId,
        /// Its flow.
        flow: i64,
        /// Its capacity.
        capacity: i64,
    },
    /// What leaves a node less what enters it is not its supply.
    #[error("Node {} supplies {supply}, but {excess} units leave it", .node.index())]
    Balance {
        /// The node.
        node: NodeId,
        /// Its supply.
        supply: i64,
        /// What leaves it less what enters it.
        excess: i128,
    },
    /// An arc that should be empty or full by its reduced cost.
    #[error("Arc {} with reduced cost {reduced_cost} carries {flow}, of {capacity}", .arc.index())]
    ReducedCost {
        /// The arc.
        arc: ArcId,
        /// Its reduced cost.
        reduced_cost: i128,
        /// Its flow.
        flow: i64,
        /// Its capacity.
        capacity: i64,
    },
    /// The stated cost is not that of the flow.
    #[error("The flow costs {real}, not {stated}")]
    Cost {
        /// What the solution says.
        stated: i128,
        /// What the flows add up to.
        real: i128,
    },
}

pub(super) fn total_cost(network: &Network, flows: &[i64]) -> i128 {
    network.costs.iter().zip(flows).map(|(&cost, &flow)| i128::from(cost) * i128::from(flow)).sum()
}

pub(super) fn verify(network: &Network, flows: &[i64], potentials: &[i64]) -> Result<(), Flaw> {
    if flows.len() != network.arc_bound() || potentials.len() != network.node_bound() {
        return Err(Flaw::Shape { nodes: potentials.len(), arcs: flows.len() });
    }
    let mut leaving = vec![0i128; network.node_bound()];
    for (id, arc) in network.arcs() {
        let flow = flows[id.index()];
        if flow < 0 || flow > arc.capacity {
            return Err(Flaw::Capacity { arc: id, flow, capacity: arc.capacity });
        }
        leaving[arc.tail.index()] += i128::from(flow);
        leaving[arc.head.index()] -= i128::from(flow);
        let potential = |node: NodeId| i128::from(potentials[node.index()]);
        let reduced_cost = i128::from(arc.cost) + potential(arc.tail) - potential(arc.head);
        let fits = match reduced_cost.signum() {
            1 => flow == 0,
            -1 => flow == arc.capacity && arc.capacity != UNLIMITED,
            _ => true,
        };
        if !fits {
            return Err(Flaw::ReducedCost { arc: id, reduced_cost, flow, capacity: arc.capacity });
        }
    }
    for node in network.nodes() {
        let supply = network.supplies[node.index()];
        if leaving[node.index()] != i128::from(supply) {
            return Err(Flaw::Balance { node, supply, excess: leaving[node.index()] });
        }
    }
    Ok(())
}
