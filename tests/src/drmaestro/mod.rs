//! Experiment 2 of the DRMaestro paper on a living cluster: its jobs through a real broker, on four hosts in network namespaces with four
//! software GPUs each, beside what the simulator says of the very same jobs. `docs/drmaestro-live.md` is its page.
//!
//! What is real: broker, servers, leases, programs, every copy and launch, the links between the hosts and their limits. What is not:
//!
//! - The programs' device time is mostly waited for (`pace=` in `examples/common/pattern.h`), because 16 software GPUs that compute
//!   would measure this machine's processor.
//! - A broker leases devices, not cores. So the nodes where programs run are chosen here ([`live`]), by the same policy with the same
//!   state of cores and devices that the simulator has; the broker then chooses the devices. How often it chose another kind of
//!   device than was planned is counted.

pub mod live;
pub mod programs;
pub mod report;

use anyhow::{Context, Result};
use rgpu_simulator::papers::drmaestro::{Experiment, SCENARIOS, Scenario, cluster_with};

use crate::cluster::{Cluster, Setup};
use crate::product::Product;
use live::Lived;
use programs::{Measured, Programs};
use report::Compared;

/// Machines of the paper's first two scenarios.
pub const MACHINES: usize = 4;
/// GPUs of a machine.
const GPUS: usize = 4;

/// What is to be done.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How many jobs are submitted.
    pub jobs: usize,
    /// By how much everything is faster than in the paper.
    pub time_scale: f64,
    /// What a machine's link carries each way, in Mbit/s.
    pub link_mbps: u32,
    /// Of the jobs, and of the policies.
    pub seed: u64,
    /// Which of [`POLICIES`](rgpu_simulator::papers::drmaestro::POLICIES), by their places there.
    pub policies: Vec<usize>,
    /// How often each program is measured alone.
    pub repeats: usize,
}

impl Plan {
    /// The scenario: the published one with this number of jobs, or one like it of which nothing was published.
    pub fn scenario(&self) -> Scenario {
        let published = SCENARIOS.into_iter().find(|s| s.jobs == self.jobs && s.machines == MACHINES);
        published.unwrap_or(Scenario {
            jobs: self.jobs,
            makespan_s: [f64::NAN; 3],
            makespan_ratio: [f64::NAN; 2],
            ..SCENARIOS[0]
        })
    }
}

/// The cluster, its links limited.
fn cluster(product: &Product, plan: &Plan, config: &str) -> Result<Cluster> {
    let device = format!("software:{GPUS}");
    let nic = plan.link_mbps.to_string();
    let options = ["--device", &device, "--memory", "1G", "--workers", "1", "--nic-mbps", &nic];
    let setup = Setup::servers(MACHINES).each(&options).config(config);
    let cluster = Cluster::on_hosts(product, &setup)?;
    for node in &cluster.nodes {
        node.host.as_ref().context("A node without a host")?.shape(plan.link_mbps)?;
    }
    Ok(cluster)
}

/// Measures the programs alone, then runs and simulates the jobs under each policy.
///
/// # Errors
/// Where something cannot be started, or a program fails. The error is a [`Skip`](rgpu_test_runner::Skip) where this machine
/// has no network namespaces.
pub fn run(product: &Product, programs: &Programs, plan: &Plan) -> Result<(Measured, Vec<Compared>)> {
    let measured = {
        let cluster = cluster(product, plan, "")?;
        programs.measure(&cluster, plan)?
    };
    println!("{}", measured.table(plan));
    let mut compared = Vec::new();
    for &policy in &plan.policies {
        let nic = u64::from(plan.link_mbps);
        let applications = measured.applications()?;
        let experiment = Experiment::new(
            &plan.scenario(),
            cluster_with(MACHINES, nic)?,
            applications,
            plan.time_scale,
            plan.seed,
        )?;
        let (simulated, _) = experiment.simulate(policy, plan.seed, None, &|_| {})?;
        let mut cluster = cluster(product, plan, &live::configuration(policy, &measured, plan)?)?;
        let lived: Lived = live::run(&mut cluster, &experiment, &measured, policy, plan)?;
        let one = Compared::new(policy, &experiment, simulated, lived);
        println!("{}", one.line());
        compared.push(one);
    }
    Ok((measured, compared))
}
