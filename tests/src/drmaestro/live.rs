//! The jobs on the living cluster: they arrive when the experiment says so, and run where the policy says so.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rgpu_placement::{ClusterState, JobId, Placement, Policy, Queue, TaskPlacement};
use rgpu_simulator::papers::drmaestro::{Experiment, policy};
use rgpu_simulator::{JobOutcome, Micros, Outcome, Sample};

use super::Plan;
use super::programs::Measured;
use crate::cluster::Cluster;
use crate::process::Running;

/// How often it is looked whether a program has ended.
const LOOK: Duration = Duration::from_millis(10);
/// How often the broker is asked which devices it gave, and which it has back.
const ASK: Duration = Duration::from_millis(100);
/// How much longer than four devices would need the jobs may take all together. Only tells hanging from working.
const PATIENCE: u32 = 20;

/// What became of the jobs.
#[derive(Debug, Default)]
pub struct Lived {
    /// As the simulator tells it; the devices' places are the broker's choice.
    pub outcome: Outcome,
    /// Jobs whose device was to be remote and was local, or the other way round.
    pub otherwise: usize,
}

/// The broker's configuration: the policy, and the measured profiles.
pub(super) fn configuration(policy_index: usize, measured: &Measured, plan: &Plan) -> Result<String> {
    let name = policy(policy_index, plan.seed)?.name().to_owned();
    let mut text = format!("[policy]\nname = {name:?}\nnetwork_aware = {}\n", policy_index == 2);
    for program in &measured.programs {
        text += &format!(
            "[[profile]]\nname = {:?}\nlocal_s = {:.4}\nremote_s = {:.4}\nsensitivity = {:.4}\ntraffic_mbps = {}\n",
            program.name,
            program.local_s,
            program.remote_s,
            program.sensitivity(),
            program.traffic_mbps()
        );
    }
    Ok(text)
}

/// A job that runs.
struct Started {
    running: Running,
    planned_remote: bool,
}

struct Driver<'a> {
    cluster: &'a Cluster,
    experiment: &'a Experiment,
    measured: &'a Measured,
    state: ClusterState,
    queue: Queue,
    running: HashMap<JobId, Started>,
    /// Jobs that have ended, and whose devices the broker may not have back yet.
    leaving: Vec<JobId>,
    lived: Lived,
    begun: Instant,
    /// Whether the broker's choice is known.
    known: Vec<bool>,
}

/// Runs the jobs to their ends.
pub(super) fn run(
    cluster: &mut Cluster,
    experiment: &Experiment,
    measured: &Measured,
    policy_index: usize,
    plan: &Plan,
) -> Result<Lived> {
    let mut policy = policy(policy_index, plan.seed)?.build()?;
    let jobs = experiment.jobs.len();
    let mut driver = Driver {
        cluster,
        experiment,
        measured,
        state: ClusterState::new(experiment.cluster.clone(), experiment.profiles.clone()),
        queue: Queue::new(),
        running: HashMap::new(),
        leaving: Vec::new(),
        lived: Lived {
            outcome: Outcome { jobs: vec![JobOutcome::default(); jobs], ..Outcome::default() },
            otherwise: 0,
        },
        begun: Instant::now(),
        known: vec![false; jobs],
    };
    driver.warm_up()?;
    let work: f64 = experiment.jobs.iter().map(|job| job.alone.seconds()).sum();
    let limit = Duration::from_secs_f64(30.0 + work / 4.0) * PATIENCE;
    let round = Duration::from_secs_f64(experiment.round.seconds());
    driver.begun = Instant::now();
    let (mut arrived, mut ended, mut next_round, mut next_ask) = (0, 0, Duration::ZERO, ASK);
    while ended < jobs {
        let now = driver.begun.elapsed();
        ensure!(now < limit, "{} of {jobs} jobs have not ended after {} s", jobs - ended, now.as_secs());
        while let Some(job) = experiment.jobs.get(arrived).filter(|job| job.at <= micros(now)) {
            driver.queue.push(Arc::new(job.job.clone()))?;
            arrived += 1;
        }
        driver.cool_down()?;
        ended += driver.ends()?;
        if now >= next_round {
            next_round = now + round;
            driver.round(policy.as_mut())?;
        }
        if now >= next_ask || ended == jobs {
            next_ask = now + ASK;
            driver.ask()?;
        }
        std::thread::sleep(LOOK);
    }
    Ok(driver.lived)
}

fn micros(time: Duration) -> Micros {
    Micros(time.as_micros() as u64)
}

impl Driver<'_> {
    fn now(&self) -> Micros {
        micros(self.begun.elapsed())
    }

    /// Gives the warm-up jobs their cores.
    fn warm_up(&mut self) -> Result<()> {
        for warm in &self.experiment.warm_up {
            let job = &warm.submission.job;
            let place = |task| TaskPlacement {
                node: warm.node,
                regions: self.state.usage().choose_regions(&self.experiment.cluster, warm.node, task),
                grants: Vec::new(),
            };
            let placement = Placement { tasks: job.tasks.iter().map(place).collect() };
            self.state.start(Arc::new(job.clone()), placement, 0.0)?;
        }
        self.sample();
        Ok(())
    }

    /// Takes the cores back from warm-up jobs whose time is over.
    fn cool_down(&mut self) -> Result<()> {
        let now = self.now();
        for warm in &self.experiment.warm_up {
            let id = warm.submission.job.id;
            if now >= warm.submission.alone && self.state.running(id).is_some() {
                self.state.finish(id, now.seconds())?;
                self.sample();
            }
        }
        Ok(())
    }

    /// Takes note of the programs that have ended.
    fn ends(&mut self) -> Result<usize> {
        let ended: Vec<JobId> = self
            .running
            .iter_mut()
            .filter_map(|(id, job)| (!job.running.is_running()).then_some(*id))
            .collect();
        for id in &ended {
            let now = self.now();
            let job = self.running.remove(id).context("it was just there")?;
            let name = &self.experiment.jobs[id.index()].job.name;
            job.running.finish()?.success().with_context(|| format!("The job {name}"))?;
            self.leaving.push(*id);
            self.lived.outcome.jobs[id.index()].end = Some(now);
        }
        Ok(ended.len())
    }

    fn round(&mut self, policy: &mut dyn Policy) -> Result<()> {
        if self.queue.is_empty() {
            return Ok(());
        }
        self.lived.outcome.rounds += 1;
        let decisions = policy.schedule(&self.state, self.queue.waiting(), self.now().seconds())?;
        let jobs: HashMap<JobId, _> =
            self.queue.waiting().iter().map(|waiting| (waiting.job.id, waiting.job.clone())).collect();
        self.queue.apply(&decisions);
        for (id, placement) in decisions.placed {
            let job = jobs.get(&id).context("A job was placed that does not wait")?.clone();
            let node = placement.tasks[0].node;
            let remote =
                |grant: &rgpu_placement::Grant| self.experiment.cluster.device(grant.device).node != node;
            let planned_remote = placement.tasks[0].grants.iter().any(remote);
            let program = &self.measured.programs[job.profile.index()];
            let at = &self.cluster.nodes[node.index()];
            let host = at.host.as_ref().context("A node without a host")?;
            let mut options = ["--profile", program.name, "--name", &job.name].map(str::to_owned).to_vec();
            if let Some(goal) = job.goal_s {
                options.extend(["--goal".to_owned(), format!("{goal:.3}s")]);
            }
            let mut command = program.command(self.cluster, host, &at.name, &options)?;
            let outcome = &mut self.lived.outcome.jobs[id.index()];
            (outcome.start, outcome.node, outcome.devices) = (Some(micros(self.begun.elapsed())), node.0, 1);
            // Until the broker has said it.
            outcome.remote = planned_remote.into();
            self.state.start(job, placement, micros(self.begun.elapsed()).seconds())?;
            let running = Running::start(&mut command)?;
            self.running.insert(id, Started { running, planned_remote });
        }
        self.sample();
        Ok(())
    }

    /// Asks the broker which devices it gave, and whether it can give those of the jobs that have ended.
    fn ask(&mut self) -> Result<()> {
        let leases = self.cluster.leases(false)?;
        for (at, job) in self.experiment.jobs.iter().enumerate() {
            if self.known[at] {
                continue;
            }
            let Some(lease) = leases.iter().find(|lease| lease.name == job.job.name) else { continue };
            let Some(running) = self.running.get(&JobId(at as u32)) else { continue };
            if !lease.grants.is_empty() {
                self.known[at] = true;
                self.lived.outcome.jobs[at].remote = lease.remote;
                self.lived.otherwise += usize::from(running.planned_remote != (lease.remote > 0));
            }
        }
        // A lease is in the list until its servers have confirmed that nothing of it is left.
        let jobs = &self.experiment.jobs;
        let held = |id: &JobId| leases.iter().any(|lease| lease.name == jobs[id.index()].job.name);
        let (leaving, gone): (Vec<_>, Vec<_>) = self.leaving.drain(..).partition(held);
        self.leaving = leaving;
        for id in gone {
            self.state.finish(id, self.now().seconds())?;
            self.sample();
        }
        Ok(())
    }

    fn sample(&mut self) {
        let totals = self.state.usage().totals();
        let gpu = rgpu_placement::DeviceKind::Gpu.index();
        let sample = Sample {
            at: self.now(),
            gpu_milli: totals.granted_milli[gpu],
            remote_gpu_milli: totals.remote_milli[gpu],
            cpu_milli: self.experiment.cluster.totals().cpu_milli - totals.cpu_milli,
            running: self.state.running_count() as u32,
            waiting: self.queue.len() as u32,
        };
        self.lived.outcome.samples.push(sample);
    }
}
