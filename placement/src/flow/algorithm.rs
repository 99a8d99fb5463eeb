//! The algorithms, by name.

use std::fmt;
use std::str::FromStr;

use super::auto::Auto;
use super::cost_scaling::CostScaling;
use super::cycle_cancelling::CycleCancelling;
use super::error::Error;
use super::network::Network;
use super::network_simplex::NetworkSimplex;
use super::solution::Solution;
use super::solver::Solver;
use super::successive_shortest_paths::SuccessiveShortestPaths;

/// The algorithms that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Algorithm {
    /// [`Auto`], the one that measures best for the network's shape.
    #[default]
    Auto,
    /// [`CostScaling`].
    CostScaling,
    /// [`CycleCancelling`].
    CycleCancelling,
    /// [`NetworkSimplex`].
    NetworkSimplex,
    /// [`SuccessiveShortestPaths`].
    SuccessiveShortestPaths,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Auto,
        Self::CostScaling,
        Self::CycleCancelling,
        Self::NetworkSimplex,
        Self::SuccessiveShortestPaths,
    ];

    /// Its name, as commands take it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::CostScaling => "cost-scaling",
            Self::CycleCancelling => "cycle-cancelling",
            Self::NetworkSimplex => "network-simplex",
            Self::SuccessiveShortestPaths => "successive-shortest-paths",
        }
    }

    /// A solver that uses this algorithm.
    pub fn solver(self) -> Box<dyn Solver> {
        match self {
            Self::Auto => Box::new(Auto),
            Self::CostScaling => Box::new(CostScaling),
            Self::CycleCancelling => Box::new(CycleCancelling),
            Self::NetworkSimplex => Box::new(NetworkSimplex),
            Self::SuccessiveShortestPaths => Box::new(SuccessiveShortestPaths),
        }
    }

    /// Solves one network.
    pub fn solve(self, network: &Network) -> Result<Solution, Error> {
        self.solver().solve(network)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no algorithm has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("No algorithm is called {0:?}; there are {names}", names = Algorithm::ALL.map(Algorithm::name).join(", "))]
pub struct UnknownAlgorithm(pub String);

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
            .ok_or_else(|| UnknownAlgorithm(name.to_owned()))
    }
}
