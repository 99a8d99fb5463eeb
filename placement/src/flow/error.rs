//! Why a network has no optimum, or cannot be built.

use super::ids::{ArcId, NodeId};

/// Why a network has no optimum, or cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not every supply can reach a demand through arcs with capacity.
    #[error("Infeasible: {unrouted} units of supply cannot reach any demand")]
    Infeasible {
        /// How much remains at its source, when as much as possible is routed by this solver.
        unrouted: i64,
    },
    /// Supplies and demands differ.
    #[error("Unbalanced: supplies add up to {supply}, demands to {demand}")]
    Unbalanced {
        /// The sum of all supplies above zero.
        supply: i128,
        /// The sum of all supplies below zero, as a positive number.
        demand: i128,
    },
    /// There is always a cheaper flow, around a cycle of arcs with unlimited capacity.
    #[error("Unbounded: arcs with unlimited capacity form a cycle of negative cost, {} of them", cycle.len())]
    Unbounded {
        /// The arcs of the cycle, in order.
        cycle: Vec<ArcId>,
    },
    /// Numbers so large that sums of them would not fit.
    #[error("Overflow: {0}")]
    Overflow(String),
    /// A node that doesn't exist, or was removed.
    #[error("Node {} is not in the network", .0.index())]
    NoSuchNode(NodeId),
    /// An arc that doesn't exist, or was removed.
    #[error("Arc {} is not in the network", .0.index())]
    NoSuchArc(ArcId),
    /// A capacity below zero.
    #[error("A capacity cannot be negative: {0}")]
    NegativeCapacity(i64),
    /// A node with arcs cannot be removed before them.
    #[error("Node {} still has {arcs} arcs", .node.index())]
    NodeInUse {
        /// The node.
        node: NodeId,
        /// How many arcs begin or end there.
        arcs: u32,
    },
    /// More nodes or arcs than 32-bit identifiers allow.
    #[error("Too many {0} for 32-bit identifiers")]
    TooMany(&'static str),
}
