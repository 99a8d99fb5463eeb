//! `rgpu-faults broker|nodes|standby TIMES CLIENTS SEED`: what `cargo xtask faults` runs.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use rgpu_tests::examples::{self, Linking};
use rgpu_tests::faults::{self, Kind, Plan};
use rgpu_tests::product::Product;
use rgpu_tests::toolkit::Version;

fn plan(arguments: &[String]) -> Result<Plan> {
    let [kind, times, clients, seed] = arguments else {
        bail!("give: broker|nodes|standby TIMES CLIENTS SEED");
    };
    let kind = match kind.as_str() {
        "broker" => Kind::Broker,
        "nodes" => Kind::Nodes,
        "standby" => Kind::Standby,
        other => bail!("{other:?} is none of broker, nodes and standby"),
    };
    Ok(Plan { kind, times: times.parse()?, clients: clients.parse()?, nodes: 3, seed: seed.parse()? })
}

fn run() -> Result<bool> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let plan = plan(&arguments)?;
    let product = Product::build()?;
    let programs = examples::for_tests()?;
    let puppet = programs.iter().find(|program| program.name == "puppet").context("there is no puppet.cu")?;
    let program = puppet.program(Version::Cuda13, Linking::Static);
    if !program.exists() {
        bail!("{} is missing: `cargo xtask examples` compiles it", program.display());
    }
    println!("seed {}", plan.seed);
    let report = faults::run(&product, program, plan)?;
    println!("{report}");
    Ok(report.is_clean())
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}
