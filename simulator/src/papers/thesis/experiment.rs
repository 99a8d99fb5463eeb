//! One simulation of the thesis: who arrives, in which cluster, under which policy.

use std::sync::Arc;

use rgpu_placement::policy::{DISAGGREGATE_GPUS, DISAGGREGATE_NVMES};
use rgpu_placement::{
    Cluster, ClusterBuilder, DeviceKind, DeviceSpec, Job, JobId, NodeSpec, PolicyConfig, Rng,
};

use super::apps::{App, GB, GPU_GB, NVME_GB, profiles};
use super::ideal::{FatNode, Load};
use super::measured::Measured;
use crate::engine::{Rounds, Setup, run};
use crate::error::{Error, Result};
use crate::formats::Submission;
use crate::statistics::exponential;
use crate::time::Micros;

/// Jobs that arrive (section 4.4.1).
pub const JOBS: usize = 1500;
/// Nodes with cores (table 4.2).
pub const NODES: usize = 5;
/// Cores of each.
pub const CORES: u64 = 25;
/// The part of the jobs that has a tight deadline.
const HIGH_PRIORITY: f64 = 0.2;
/// The deadline of the others, as a multiple of their base execution time.
const RELAXED: f64 = 4.0;
/// The deadline factor of jobs of high priority where nothing else is said.
pub const TIGHT: f64 = 1.2;

/// Where the devices are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Infrastructure {
    /// In a pool that all nodes reach over the network.
    Disaggregated,
    /// In some of the nodes, and nobody else reaches them.
    Attached,
}

/// An experiment.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// What it is called, for reports that tell experiments apart by it.
    pub name: &'static str,
    /// The parts of the jobs that each [`App`] has; their sum is normalised.
    pub mix: [f64; App::ALL.len()],
    /// The mean load factor of the ideal infrastructure.
    pub target: f64,
    /// Which load factor.
    pub load: Load,
    /// NVMes of the ideal infrastructure, if not those of the cluster: so that the same jobs meet fewer devices.
    pub ideal_nvmes: Option<usize>,
    /// NVMes of the cluster.
    pub nvmes: usize,
    /// GPUs of the cluster.
    pub gpus: usize,
    /// Whether a GPU is divided among several jobs.
    pub splits: bool,
    /// Where devices are.
    pub infrastructure: Infrastructure,
    /// The deadline factor of jobs of high priority.
    pub tight: f64,
    /// By which part jobs take longer with a GPU of another node.
    pub overhead: f64,
    /// The policy's name.
    pub policy: &'static str,
    /// Whether jobs arrive at equal intervals, instead of as a Poisson process.
    pub even: bool,
    /// Whether jobs take as long as their models say; else as long as the table says, whatever they are given.
    pub models: bool,
}

/// A job that arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// When, in mean intervals.
    pub at_s: f64,
    /// What it is.
    pub app: App,
    /// Whether its priority is high.
    pub high: bool,
}

impl Experiment {
    /// The defaults of table 4.2, with that policy and the models of chapter 4.
    pub fn of_chapter_4(mix: [f64; App::ALL.len()], target: f64, policy: &'static str) -> Experiment {
        Experiment {
            name: "",
            mix,
            target,
            load: Load::Cpu,
            ideal_nvmes: None,
            nvmes: 10,
            gpus: 0,
            splits: false,
            infrastructure: Infrastructure::Disaggregated,
            tight: TIGHT,
            overhead: 0.0,
            even: false,
            policy,
            models: policy != FIRST_FIT,
        }
    }

    /// Who arrives, at one job in a second in the mean. The same seed gives the same times and, for the same
    /// mix, the same jobs, whatever else is asked.
    pub fn arrivals(&self, seed: u64) -> Vec<Arrival> {
        let mut rng = Rng::new(seed);
        let total: f64 = self.mix.iter().sum();
        let mut at_s = 0.0;
        (0..JOBS)
            .map(|_| {
                let interval = exponential(&mut rng);
                at_s += if self.even { 1.0 } else { interval };
                let (mut draw, high) = (rng.unit() * total, rng.unit() < HIGH_PRIORITY);
                let app = App::ALL.into_iter().zip(self.mix).find(|(_, part)| {
                    draw -= part;
                    draw < 0.0
                });
                Arrival { at_s, app: app.map_or(App::Compute, |(app, _)| app), high }
            })
            .collect()
    }

    /// The cluster. Attached devices are where figure 4.5 has them: six of ten NVMes in node 0, the others in node 2; GPUs are in
    /// node 1, which is a choice made here.
    pub fn cluster(&self) -> Result<Cluster> {
        let nvme = DeviceSpec { kind: DeviceKind::Nvme, ..DeviceSpec::gpu("NVMe", NVME_GB * GB) };
        let gpu = DeviceSpec { partitionable: self.splits, ..DeviceSpec::gpu("T4", GPU_GB * GB) };
        let (first, attached) =
            ((self.nvmes * 6).div_ceil(10), self.infrastructure == Infrastructure::Attached);
        let nodes = (0..NODES).map(|i| {
            let node = NodeSpec::new(format!("node-{i}"), CORES * 1000, 0).with_nic(56_000);
            match i {
                0 if attached => node.with_devices(first, nvme.clone()),
                1 if attached => node.with_devices(self.gpus, gpu.clone()),
                2 if attached => node.with_devices(self.nvmes - first, nvme.clone()),
                _ => node,
            }
        });
        let mut builder = ClusterBuilder::new().nodes(nodes);
        if !attached {
            let pool = NodeSpec::new("pool", 0, 0).with_nic(560_000);
            builder = builder
                .node(pool.with_devices(self.nvmes, nvme.clone()).with_devices(self.gpus, gpu.clone()));
        }
        Ok(builder.build()?)
    }

    /// Simulates it, with arrivals as frequent as the target load factor wants.
    pub fn run(&self, seed: u64) -> Result<Measured> {
        let mut arrivals = self.arrivals(seed);
        let nvmes = self.ideal_nvmes.unwrap_or(self.nvmes);
        let fat = FatNode::new(NODES as u64 * CORES, nvmes as u64, self.gpus as u64);
        let (stretch, ideal) = fat.aim(&arrivals, self.target, self.load);
        let Some(from_s) = ideal.from_s else {
            return Err(Error::Option(format!("The load factor {} is never reached", self.target)));
        };
        arrivals.iter_mut().for_each(|arrival| arrival.at_s *= stretch);
        let profiles = profiles(self.models, self.overhead)?;
        let jobs: Vec<Submission> = arrivals
            .iter()
            .enumerate()
            .map(|(i, arrival)| {
                let factor = if arrival.high { self.tight } else { RELAXED };
                let job = Job {
                    submit_s: arrival.at_s,
                    profile: arrival.app.profile(),
                    deadline_s: Some(arrival.app.base_s() * factor),
                    ..Job::new(JobId(i as u32), format!("{}-{i}", arrival.app.name()), arrival.app.task())
                };
                Submission::new(job, &profiles)
            })
            .collect();
        let cluster = Arc::new(self.cluster()?);
        let setup = Setup {
            cluster: cluster.clone(),
            profiles: Arc::new(profiles),
            warm_up: &[],
            jobs: &jobs,
            rounds: Rounds::OnChange(Micros(0)),
            explain: &[],
        };
        let (outcome, _) = run(&setup, self.policy()?.build()?.as_mut(), None, &|_| {})?;
        Ok(Measured::new(&cluster, &arrivals, &jobs, &outcome, from_s, ideal.mean))
    }

    fn policy(&self) -> Result<PolicyConfig> {
        let remote = self.infrastructure == Infrastructure::Disaggregated;
        Ok(PolicyConfig::named(self.policy)?
            .with(&DISAGGREGATE_NVMES, remote)
            .with(&DISAGGREGATE_GPUS, remote))
    }
}

/// The policy of the thesis's baseline.
pub const FIRST_FIT: &str = "deadline-first";
