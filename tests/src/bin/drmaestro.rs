//! `rgpu-drmaestro JOBS POLICIES TIME_SCALE LINK_MBPS SEED REPEATS`: what `cargo xtask paper-drmaestro` runs.

use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use rgpu_tests::drmaestro::programs::Programs;
use rgpu_tests::drmaestro::{Plan, report, run};
use rgpu_tests::product::Product;

/// The policies' names here, in the order of the paper's tables.
const NAMES: [&str; 3] = ["firmament", "drmaestro", "drmaestro-na"];

fn plan(arguments: &[String]) -> Result<Plan> {
    let [jobs, policies, time_scale, link_mbps, seed, repeats] = arguments else {
        bail!("give: JOBS POLICIES TIME_SCALE LINK_MBPS SEED REPEATS");
    };
    let of_name = |name: &str| {
        NAMES
            .iter()
            .position(|known| *known == name)
            .with_context(|| format!("{name:?} is none of {NAMES:?}"))
    };
    let policies = match policies.as_str() {
        "all" => (0..NAMES.len()).collect(),
        names => names.split(',').map(of_name).collect::<Result<_>>()?,
    };
    let time_scale: f64 = time_scale.parse()?;
    ensure!(time_scale > 0.0 && time_scale.is_finite(), "The time scale is greater than 0");
    Ok(Plan {
        jobs: jobs.parse()?,
        time_scale,
        link_mbps: link_mbps.parse()?,
        seed: seed.parse()?,
        policies,
        repeats: repeats.parse()?,
    })
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = plan(&arguments).and_then(|plan| {
        let (_, compared) = run(&Product::build()?, &Programs::compiled()?, &plan)?;
        println!("{}", report::text(&compared, &plan));
        Ok(())
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}
