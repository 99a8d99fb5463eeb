//! The choice between algorithms, made by trying.

use super::cost_scaling;
use super::error::Error;
use super::network::Network;
use super::prepare::{self, Limits};
use super::repair::Pseudoflow;
use super::solution::Solution;
use super::solver::Solver;
use super::split::Split;

/// Shortest paths from one supply after another while they stay short, as they do where there is room to spare; else
/// [`super::CostScaling`].
///
/// Whether supplies get in each other's way is not seen from the network's numbers. Trying costs little: the attempt
/// ends when it has looked at a few times as many arcs as there are, or when more than a few supplies found no way near
/// by.
#[derive(Clone, Copy, Debug, Default)]
pub struct Auto;

/// The attempt looks at so many times the arcs that there are; in large networks not at more than `MOST`, unless
/// that is less than `LARGE_TIMES`. More than that takes as long as cost scaling.
const TIMES: usize = 20;
const MOST: usize = 5_000_000;
const LARGE_TIMES: usize = 4;

impl Solver for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn solve(&mut self, network: &Network) -> Result<Solution, Error> {
        let limits = prepare::check(network)?;
        Ok(solve(network, &limits)?.solution(network))
    }
}

/// Solves, and keeps what later repairs need.
pub(super) fn solve(network: &Network, limits: &Limits) -> Result<Pseudoflow, Error> {
    let split = Split::new(network, limits);
    let core = split.core.clone();
    let mut state = Pseudoflow::empty(split);
    let arcs = state.split.rows.len() + core.len();
    let work = (TIMES * arcs).min(MOST).max(LARGE_TIMES * arcs);
    if state.route_some(work) {
        state.route()?;
        return Ok(state);
    }
    let mut split = state.split;
    split.core = core;
    cost_scaling::solve(network, limits, split)
}
