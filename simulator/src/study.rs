//! One cluster, one list of jobs, several policies: loads, runs, and writes results down.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rgpu_placement::{Cluster, JobId, PolicyConfig, Profiles};
use serde_json::{Value, json};

use crate::engine::{Clock, Outcome, Progress, Rounds, Setup, run};
use crate::error::{Error, Result};
use crate::formats::{Applications, Jobs, Submission, load_cluster, load_jobs};
use crate::openb::{self, Assumptions};
use crate::parallel;
use crate::plot::{Plot, Series, cdf, worst_to_best};
use crate::report::{Summary, align, gpus_over_time, jobs_csv, normalised, samples_csv, write};
use crate::workload::{Workload, poisson_arrivals};

/// Where jobs come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A file: the simulator's own format, or pods of an `openb` trace.
    File(PathBuf),
    /// Made up from the profiles.
    MadeUp(Workload),
}

/// What to load.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Nodes: the simulator's own format, or a node list of an `openb` trace.
    pub cluster: PathBuf,
    /// Switches, one a row; without them, all nodes are at the core of the network.
    pub switches: Option<PathBuf>,
    /// Profiles; without them, the Rodinia programs.
    pub profiles: Option<PathBuf>,
    /// Where the jobs come from.
    pub jobs: Source,
    /// New arrival times, so many a second, for the jobs of a file.
    pub rate: Option<f64>,
    /// For new arrival times.
    pub seed: u64,
    /// What an `openb` trace does not say.
    pub assumptions: Assumptions,
}

/// A cluster and jobs, ready to be simulated under any policy.
pub struct Study {
    /// The cluster, empty when each simulation begins.
    pub cluster: Arc<Cluster>,
    /// How jobs behave.
    pub profiles: Arc<Profiles>,
    /// The jobs to submit, and those that run from the beginning.
    pub jobs: Jobs,
}

/// What came of a study under one policy.
pub struct Studied {
    /// The policy's label: its name, and what is set unlike the defaults.
    pub name: String,
    /// Makespan, violated objectives, waiting times and use of the devices.
    pub summary: Summary,
    /// What became of every job, and the cluster over time.
    pub outcome: Outcome,
    /// How long the rounds took in microseconds, if there was a clock.
    pub times: Vec<u64>,
}

/// Whether the first line that says anything names a column.
fn has_column(path: &Path, column: &str) -> Result<bool> {
    let text =
        std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let header = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with('#'));
    Ok(header.is_some_and(|header| header.split(',').any(|name| name.trim() == column)))
}

impl Study {
    /// Loads a study.
    pub fn load(input: &Input) -> Result<Study> {
        if let Some(rate) = input.rate
            && !(rate.is_finite() && rate > 0.0)
        {
            return Err(Error::Option(format!("{rate} arrivals a second are not possible")));
        }
        let cluster = match has_column(&input.cluster, "sn")? {
            true => openb::load_nodes(&input.cluster, &input.assumptions)?,
            false => load_cluster(&input.cluster, input.switches.as_deref())?,
        };
        let mut applications = match &input.profiles {
            Some(path) => Applications::load(path)?,
            None => Applications::rodinia(),
        };
        let mut jobs = match &input.jobs {
            Source::File(path) if has_column(path, "num_gpu")? => {
                pods(path, &cluster, &mut applications, &input.assumptions)?
            }
            Source::File(path) => load_jobs(path, &cluster, &mut applications)?,
            Source::MadeUp(workload) => {
                let jobs = workload.generate(&applications);
                for submission in &jobs {
                    submission.job.check(&cluster, applications.profiles.len(), true)?;
                }
                Jobs { jobs, warm_up: Vec::new() }
            }
        };
        if let Some(rate) = input.rate {
            poisson_arrivals(&mut jobs.jobs, rate, input.seed);
        }
        Ok(Study { cluster: Arc::new(cluster), profiles: Arc::new(applications.profiles), jobs })
    }

    /// The jobs of these names.
    pub fn find(&self, names: &[String]) -> Result<Vec<JobId>> {
        let find = |name: &String| {
            let found = self.jobs.jobs.iter().find(|submission| submission.job.name == *name);
            found
                .map(|submission| submission.job.id)
                .ok_or_else(|| Error::Option(format!("No job is named {name:?}")))
        };
        names.iter().map(find).collect()
    }

    /// Simulates under each of the policies, on up to so many threads.
    pub fn run(
        &self,
        policies: &[PolicyConfig],
        rounds: Rounds,
        explain: &[JobId],
        threads: usize,
        clock: Option<&Clock<'_>>,
        progress: &Progress<'_>,
    ) -> Result<Vec<Studied>> {
        parallel::map(policies, threads, |config| {
            let setup = Setup {
                cluster: self.cluster.clone(),
                profiles: self.profiles.clone(),
                warm_up: &self.jobs.warm_up,
                jobs: &self.jobs.jobs,
                rounds,
                explain,
            };
            let mut policy = config.build()?;
            let (outcome, times) = run(&setup, policy.as_mut(), clock, progress)?;
            let summary = Summary::new(&self.cluster, &self.jobs.jobs, &outcome);
            Ok(Studied { name: config.label(), summary, outcome, times })
        })
    }

    /// The gist of all as a table.
    pub fn table(studied: &[Studied]) -> String {
        let mut rows = vec![Summary::header()];
        rows.extend(studied.iter().map(|one| one.summary.row(&one.name)));
        align(&rows)
    }

    /// The gist of all as JSON.
    pub fn json(studied: &[Studied]) -> Value {
        let one = |one: &Studied| {
            let mut value = one.summary.json();
            value["policy"] = json!(one.name);
            value
        };
        Value::Array(studied.iter().map(one).collect())
    }

    /// Writes, for each policy, a file of jobs and one of the cluster over time.
    pub fn write_csv(&self, folder: &Path, studied: &[Studied]) -> Result<()> {
        create(folder)?;
        for one in studied {
            let jobs = jobs_csv(&self.cluster, &self.jobs.jobs, &one.outcome);
            write(&folder.join(format!("{}-jobs.csv", one.name)), &jobs)?;
            write(&folder.join(format!("{}-cluster.csv", one.name)), &samples_csv(&one.outcome))?;
        }
        Ok(())
    }

    /// Draws the policies beside each other.
    pub fn write_plots(&self, folder: &Path, studied: &[Studied]) -> Result<()> {
        create(folder)?;
        for (name, plot) in plots(&self.jobs.jobs, studied) {
            plot.write(&folder.join(name))?;
        }
        Ok(())
    }
}

/// Creates a folder for results.
pub fn create(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|source| Error::Write { path: folder.to_owned(), source })
}

fn plots(jobs: &[Submission], studied: &[Studied]) -> Vec<(&'static str, Plot)> {
    let series = |draw: &dyn Fn(&Studied) -> Series| studied.iter().map(draw).collect::<Vec<_>>();
    let plot = |title: &str, x: &str, y: &str, steps, log_x, series| Plot {
        title: title.into(),
        x: x.into(),
        y: y.into(),
        steps,
        log_x,
        series,
    };
    let mut plots = vec![
        (
            "gpus.svg",
            plot(
                "GPUs allocated",
                "time [s]",
                "GPUs",
                true,
                false,
                series(&|one| gpus_over_time(&one.name, &one.outcome)),
            ),
        ),
        (
            "job-times.svg",
            plot(
                "Job time as a multiple of the time alone",
                "job, worst to best",
                "multiple",
                false,
                false,
                series(&|one| worst_to_best(&one.name, normalised(jobs, &one.outcome))),
            ),
        ),
    ];
    if studied.iter().any(|one| !one.times.is_empty()) {
        let draw =
            |one: &Studied| cdf(&one.name, one.times.iter().map(|micros| *micros as f64 / 1000.0).collect());
        let title = "Time of a scheduling round";
        plots.push(("scheduler-time.svg", plot(title, "time [ms]", "rounds [%]", true, true, series(&draw))));
    }
    plots
}

/// The pods of an `openb` trace as jobs that live as long as they did.
fn pods(
    path: &Path,
    cluster: &Cluster,
    applications: &mut Applications,
    assumptions: &Assumptions,
) -> Result<Jobs> {
    let profile = applications.neutral();
    let mut jobs = Vec::new();
    for pod in openb::load_pods(path)? {
        let Some(deleted_s) = pod.deleted_s else {
            return Err(Error::file(path, format!("the pod {:?} has no deletion_time", pod.name)));
        };
        let mut job = pod.job(JobId(jobs.len() as u32), cluster, assumptions);
        job.profile = profile;
        job.submit_s = pod.created_s as f64;
        // One that was deleted in the second in which it was created lived for less than one.
        job.scale = (deleted_s.saturating_sub(pod.created_s) as f64).max(0.5);
        job.check(cluster, applications.profiles.len(), true)
            .map_err(|error| Error::file(path, error.to_string()))?;
        jobs.push(Submission::new(job, &applications.profiles));
    }
    Ok(Jobs { jobs, warm_up: Vec::new() })
}
