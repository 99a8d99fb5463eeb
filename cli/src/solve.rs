//! `rgpu solve`: the least cost of a flow network in a file.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use rgpu_placement::flow::{Algorithm, dimacs};

use crate::{Failure, Outcome};

/// Solve a minimum-cost-flow problem in the DIMACS format.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  rgpu solve network.min --algorithm network-simplex")]
pub(crate) struct Arguments {
    /// The problem: a line `p min NODES ARCS`, lines `n NODE SUPPLY`, lines `a TAIL HEAD LOWER CAPACITY COST`
    #[arg(value_name = "FILE.dimacs")]
    file: PathBuf,
    /// auto, cost-scaling, cycle-cancelling, network-simplex or successive-shortest-paths
    #[arg(long, value_name = "NAME", default_value_t = Algorithm::Auto)]
    algorithm: Algorithm,
}

/// Solves it.
pub(crate) fn main(arguments: Arguments) -> Outcome {
    let name = arguments.file.display();
    let text = std::fs::read_to_string(&arguments.file)
        .map_err(|e| Failure::new(format!("Cannot read {name}: {e}")))?;
    let problem = dimacs::read(&text).map_err(|e| Failure::new(format!("{name}: {e}")))?;
    drop(text);
    let start = Instant::now();
    let result = arguments.algorithm.solve(&problem.network);
    let time = start.elapsed();
    let solution = result.map_err(|e| Failure::new(format!("{name}: {e}")))?;
    // Nobody should have to trust the algorithm.
    solution
        .verify(&problem.network)
        .map_err(|e| Failure::new(format!("{name}: the proof is wrong: {e}")))?;
    println!("optimum: {}", problem.cost(&solution));
    println!("time: {:.3} ms", time.as_secs_f64() * 1e3);
    Ok(ExitCode::SUCCESS)
}
