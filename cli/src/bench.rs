//! `rgpu bench`: what forwarding costs.

use std::process::ExitCode;

pub(crate) use rgpu_bench::{Arguments, WORKER_COMMAND};

use crate::{Failure, Outcome};

/// Measures.
pub(crate) fn main(arguments: Arguments) -> Outcome {
    outcome(rgpu_bench::main(arguments))
}

/// The process that makes the CUDA calls which are measured.
pub(crate) fn worker_main() -> Outcome {
    outcome(rgpu_bench::worker_main())
}

fn outcome(result: Result<(), rgpu_bench::Failure>) -> Outcome {
    result.map(|()| ExitCode::SUCCESS).map_err(|e| Failure::new(e.to_string()))
}
