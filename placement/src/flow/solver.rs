//! What all algorithms have in common.

use super::error::Error;
use super::network::Network;
use super::solution::Solution;

/// Finds optimal flows.
pub trait Solver {
    /// The algorithm's name.
    fn name(&self) -> &'static str;

    /// Finds a flow of least cost and potentials that prove it, or says why there is none.
    fn solve(&mut self, network: &Network) -> Result<Solution, Error>;
}
