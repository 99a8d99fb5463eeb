//! Minimum-cost flow, on its own: nothing here knows of clusters or jobs.
//!
//! A [`Network`] has nodes with supplies and directed arcs with capacities and costs, all of them `i64`. A
//! [`Solver`] finds the flow that takes every supply to the demands (supplies below zero) at the least cost, and
//! potentials that prove it. [`Solution::verify`] checks that proof without trusting the solver. An
//! [`Incremental`] keeps a network and its optimum, and finds the optimum again after changes, in time that depends
//! on the changes.
//!
//! # Numbers
//!
//! Costs are integers, so that the optimum is exact and the same on every machine. Whoever has fractional costs picks
//! a [`CostScale`], how many units make 1.0, and rounds to it once. Potentials are in the same units. The reduced
//! cost of an arc `u → v` is `cost + potential(u) − potential(v)`; a flow is optimal when no arc with a reduced cost
//! above zero carries flow, and every arc with one below zero is full.
//!
//! Capacities may be [`UNLIMITED`]. A cycle of such arcs with a cost below zero makes the problem unbounded, which is
//! an error, as are supplies that don't add up to zero, supplies that cannot all reach a demand, and numbers so large
//! that sums of them would overflow.
//!
//! ```
//! use rgpu_placement::flow::{Algorithm, Network, UNLIMITED};
//!
//! let mut network = Network::new();
//! let task = network.add_node(1)?;
//! let near = network.add_node(0)?;
//! let far = network.add_node(0)?;
//! let sink = network.add_node(-1)?;
//! let direct = network.add_arc(task, near, 1, 3)?;
//! network.add_arc(task, far, 1, 5)?;
//! network.add_arc(near, sink, UNLIMITED, 0)?;
//! network.add_arc(far, sink, UNLIMITED, 0)?;
//! let solution = Algorithm::Auto.solve(&network)?;
//! assert_eq!((solution.cost(), solution.flow(direct)), (3, 1));
//! solution.verify(&network)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod algorithm;
mod auto;
mod columns;
mod cost_scaling;
mod cycle_cancelling;
pub mod dimacs;
mod error;
pub mod generate;
mod ids;
mod incremental;
mod live;
mod local;
mod meet;
mod network;
mod network_simplex;
mod news;
mod pages;
mod prefetch;
mod prepare;
mod queue;
mod repair;
mod residual;
mod rounds;
mod solution;
mod solver;
mod split;
mod successive_shortest_paths;

pub use algorithm::{Algorithm, UnknownAlgorithm};
pub use auto::Auto;
pub use cost_scaling::CostScaling;
pub use cycle_cancelling::CycleCancelling;
pub use error::Error;
pub use ids::{ArcId, NodeId};
pub use incremental::Incremental;
pub use network::{Arc, CostScale, MAX_COST, Network, UNLIMITED};
pub use network_simplex::NetworkSimplex;
pub use solution::{Flaw, Solution};
pub use solver::Solver;
pub use successive_shortest_paths::SuccessiveShortestPaths;
