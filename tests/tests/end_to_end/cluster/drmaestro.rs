//! A few of the DRMaestro paper's jobs on a living cluster, beside the simulator. Never how long they take.

use anyhow::{Result, ensure};
use rgpu_test_runner::Test;
use rgpu_tests::drmaestro::programs::Programs;
use rgpu_tests::drmaestro::{Plan, report, run};

use crate::context::{plain, product};

/// The tests.
pub(super) fn tests() -> Vec<Test> {
    vec![Test::alone("cluster::the_jobs_of_a_paper_run_as_they_are_simulated", live)]
}

fn live() -> Result<()> {
    plain("nw")?; // compiles all examples, or skips the test
    let plan = Plan { jobs: 24, time_scale: 60.0, link_mbps: 400, seed: 1, policies: vec![0, 1], repeats: 1 };
    let (measured, compared) = run(product()?, &Programs::compiled()?, &plan)?;
    println!("{}", report::text(&compared, &plan));
    ensure!(measured.programs.iter().all(|p| p.local_s > 0.0 && p.remote_s >= p.local_s && p.bytes > 0));
    let [firmament, drmaestro] = &compared[..] else { anyhow::bail!("{} policies", compared.len()) };
    for one in [firmament, drmaestro] {
        ensure!(one.jobs.len() == plan.jobs && one.lived.ended == plan.jobs, "{}", one.line());
    }
    // Half of the nodes have no cores left: Firmament gets their devices never, DRMaestro does.
    ensure!(
        firmament.lived.remote_percent == 0.0 && firmament.lived.gpu_percent <= 50.0,
        "{}",
        firmament.line()
    );
    ensure!(drmaestro.lived.remote_percent > 0.0, "{}", drmaestro.line());
    Ok(())
}
