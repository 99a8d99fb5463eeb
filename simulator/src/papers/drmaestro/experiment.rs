//! A scenario made ready to run: the same jobs, arrivals, warm-up jobs and policies for the simulator and for a living cluster.

use std::sync::Arc;

use rgpu_placement::policy::NETWORK_AWARE;
use rgpu_placement::{
    Cluster, ClusterBuilder, DeviceSpec, Job, JobId, NodeId, NodeSpec, NumaSpec, PolicyConfig, Profiles, Task,
};

use super::Scenario;
use crate::engine::{Clock, Outcome, Progress, Rounds, Setup, WarmUp, run};
use crate::error::Result;
use crate::formats::{Applications, Submission};
use crate::time::Micros;
use crate::workload::Workload;

/// Arrivals a second.
const RATE: f64 = 16.0;
/// How long the warm-up jobs run.
const WARM_UP_S: f64 = 2000.0;
/// The objective of a job, as a multiple of its time alone.
const GOAL: f64 = 1.05;
/// Seconds between two rounds of the scheduler.
const ROUND_S: f64 = 1.0;
/// What a machine's NIC carries, in Mbit/s.
const NIC_MBPS: u64 = 100_000;
/// Thousandths of a machine's cores.
const CORES_MILLI: u64 = 20_000;

/// The paper's machines.
pub fn cluster(machines: usize) -> Result<Cluster> {
    cluster_with(machines, NIC_MBPS)
}

/// Machines as the paper's, but for what their NICs carry, in Mbit/s.
pub fn cluster_with(machines: usize, nic_mbps: u64) -> Result<Cluster> {
    let gpu = |numa| DeviceSpec { partitionable: false, numa, ..DeviceSpec::gpu("K80", 12 * 1024) };
    let region = NumaSpec { cpu_milli: CORES_MILLI / 2, memory_mib: 256 * 1024 };
    let nodes = (0..machines).map(|i| NodeSpec {
        numa: vec![region; 2],
        ..NodeSpec::new(format!("machine-{i}"), CORES_MILLI, 512 * 1024)
            .with_devices(2, gpu(0))
            .with_devices(2, gpu(1))
            .with_nic(nic_mbps)
    });
    Ok(ClusterBuilder::new().nodes(nodes).build()?)
}

/// The configuration of one of [`POLICIES`](super::POLICIES), by its place there.
pub fn policy(index: usize, seed: u64) -> Result<PolicyConfig> {
    let name = if index == 0 { "firmament" } else { "drmaestro" };
    Ok(PolicyConfig::named(name)?.with(&NETWORK_AWARE, index == 2).with_seed(seed))
}

/// All that a run needs but its policy.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The machines, empty.
    pub cluster: Arc<Cluster>,
    /// How the programs behave.
    pub profiles: Arc<Profiles>,
    /// What is submitted, numbered from 0.
    pub jobs: Vec<Submission>,
    /// What holds half of the cluster's cores, in whole machines.
    pub warm_up: Vec<WarmUp>,
    /// The time between two rounds of the scheduler.
    pub round: Micros,
}

impl Experiment {
    /// A scenario of these programs in a cluster. With a `time_scale` greater than 1 everything that has a time of its own (arrivals,
    /// rounds, the warm-up) is that much faster; the programs' times are those of their profiles.
    ///
    /// # Errors
    /// Where a job does not fit the cluster.
    pub fn new(
        scenario: &Scenario,
        cluster: Cluster,
        mut applications: Applications,
        time_scale: f64,
        seed: u64,
    ) -> Result<Experiment> {
        let Scenario { jobs, mix, .. } = *scenario;
        let workload = Workload { jobs, rate: RATE * time_scale, mix, goal: Some(GOAL), seed };
        let jobs = workload.generate(&applications);
        let neutral = applications.neutral();
        for submission in &jobs {
            submission.job.check(&cluster, applications.profiles.len(), true)?;
        }
        let warm_up = (0..scenario.machines / 2)
            .map(|i| {
                let id = JobId((jobs.len() + i) as u32);
                let mut job = Job::new(id, format!("warm-up-{i}"), Task::new(CORES_MILLI, 64 * 1024));
                job.profile = neutral;
                job.scale = WARM_UP_S / time_scale;
                WarmUp { submission: Submission::new(job, &applications.profiles), node: NodeId(i as u32) }
            })
            .collect();
        let round = Micros::from_seconds(ROUND_S / time_scale);
        let (cluster, profiles) = (Arc::new(cluster), Arc::new(applications.profiles));
        Ok(Experiment { cluster, profiles, jobs, warm_up, round })
    }

    /// Simulates it under one of [`POLICIES`](super::POLICIES); beside what came of it, how long the rounds took in microseconds,
    /// if there is a clock.
    ///
    /// # Errors
    /// Where the policy decides what is impossible.
    pub fn simulate(
        &self,
        policy_index: usize,
        seed: u64,
        clock: Option<&Clock<'_>>,
        progress: &Progress<'_>,
    ) -> Result<(Outcome, Vec<u64>)> {
        let setup = Setup {
            cluster: self.cluster.clone(),
            profiles: self.profiles.clone(),
            warm_up: &self.warm_up,
            jobs: &self.jobs,
            rounds: Rounds::Every(self.round),
            explain: &[],
        };
        let mut policy = policy(policy_index, seed)?.build()?;
        run(&setup, policy.as_mut(), clock, progress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::drmaestro::SCENARIOS;

    #[test]
    fn a_faster_experiment_has_the_same_jobs_sooner() {
        let experiment = |time_scale| {
            let cluster = cluster_with(4, 200).unwrap();
            Experiment::new(&SCENARIOS[0], cluster, Applications::rodinia(), time_scale, 1)
        };
        // A whole remote nw makes more traffic than a link of 200 Mbit/s carries, but it fits where its devices are local.
        let (slow, fast) = (experiment(1.0).unwrap(), experiment(5.0).unwrap());
        assert_eq!(slow.jobs.len(), 128);
        assert_eq!((slow.round, fast.round), (Micros(1_000_000), Micros(200_000)));
        for (slow, fast) in slow.jobs.iter().zip(&fast.jobs) {
            assert_eq!((&slow.job.name, slow.alone), (&fast.job.name, fast.alone));
            assert!((slow.at.seconds() - 5.0 * fast.at.seconds()).abs() < 1e-4);
        }
        assert_eq!(fast.warm_up[0].submission.alone, Micros(400_000_000));
    }
}
