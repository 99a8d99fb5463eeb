//! `rgpu slurm sync`: keeps Slurm and the broker of one mind.
//!
//! - A licence of Slurm's counts thousandths of GPUs. The configuration says how many there are at most; a reservation of licences alone
//!   keeps those from jobs that the broker cannot give to jobs now. It is changed without reconfiguring Slurm.
//! - Leases of jobs that Slurm does not run any more are given back.
//! - Running jobs' comments for administrators say which lease they have, and how much of GPUs that was so far.

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rgpu_control::api::{Lease, LeaseState};
use rgpu_control::slurm::JobKey;
use rgpu_control::units::parse_duration;
use rgpu_control::{Broker, LeaseId, unix_time};

use super::licences::{account, milli, usable};
use super::slurmctld::{Commands, Job};
use crate::control::{BrokerArguments, explain};
use crate::{Failure, Outcome};

/// Keep the count of Slurm's licences true to what the broker has, and give back leases of jobs that are over.
///
/// Runs beside Slurm's controller, as a user who may change reservations and jobs' comments, with the same token as the nodes.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  \
    rgpu slurm sync --broker https://broker:7080 --broker-token-file /etc/rgpu/slurm.token")]
pub(super) struct Arguments {
    /// Slurm's name of the cluster [default: what scontrol says]
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// The licence that counts thousandths of GPUs
    #[arg(long, value_name = "NAME", default_value = "rgpu")]
    licence: String,
    /// The reservation that keeps licences from jobs
    #[arg(long, value_name = "NAME", default_value = "rgpu-elsewhere")]
    reservation: String,
    /// How often Slurm and the broker are compared
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    interval: Duration,
    /// How often a job's comment is written
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    comments: Duration,
    /// Compare once, and end
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    slurm: Commands,
    #[command(flatten)]
    broker: BrokerArguments,
}

/// Compares again and again.
pub(super) fn main(arguments: &Arguments) -> Outcome {
    let broker = arguments.broker.connect()?;
    let mut sync =
        Sync { arguments, broker, cluster: arguments.cluster.clone(), commented: HashMap::new(), few: false };
    let mut said = None;
    loop {
        match sync.compare() {
            Ok(()) if said.take().is_some() => eprintln!("rgpu: all is well again"),
            Ok(()) => {}
            Err(failure) if arguments.once => return Err(failure),
            Err(failure) => {
                if said.as_ref() != Some(&failure.message) {
                    eprintln!("rgpu: {}; trying again", failure.message);
                }
                said = Some(failure.message);
            }
        }
        if arguments.once {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(arguments.interval);
    }
}

struct Sync<'a> {
    arguments: &'a Arguments,
    broker: Broker,
    cluster: Option<String>,
    /// When which lease was last written into its job's comment.
    commented: HashMap<LeaseId, Instant>,
    /// It was said that the configuration counts too few licences.
    few: bool,
}

impl Sync<'_> {
    fn compare(&mut self) -> Result<(), Failure> {
        let cluster = match &self.cluster {
            Some(cluster) => cluster.clone(),
            None => self.cluster.insert(self.arguments.slurm.cluster()?).clone(),
        };
        // Leases first: the job of one that is seen now was started before Slurm is asked.
        let leases = match self.broker.leases(false) {
            Ok(leases) => leases,
            Err(error) => {
                // Jobs that are started now would get nothing.
                self.count(0)?;
                return Err(explain(error));
            }
        };
        // At once, as what leases have is taken from what devices have given.
        let devices = self.broker.devices().map_err(explain)?;
        let own: Vec<(JobKey, &Lease)> = leases
            .iter()
            .filter_map(|lease| Some((lease.key.as_ref()?.parse::<JobKey>().ok()?, lease)))
            .filter(|(key, _)| key.cluster == cluster)
            .collect();
        let jobs: HashMap<u32, Job> =
            self.arguments.slurm.jobs()?.into_iter().map(|job| (job.id, job)).collect();
        for (key, lease) in &own {
            let job = jobs.get(&key.job);
            if is_over(key, lease.state, job) {
                self.broker.release(lease.id).map_err(explain)?;
                let state = job.map_or("unknown to Slurm", |job| &job.state);
                eprintln!("rgpu: job {} is {state}: its lease {} is given back", key.job, lease.id);
            }
        }
        let own_leases: Vec<&Lease> = own.iter().map(|(_, lease)| *lease).collect();
        self.count(usable(&devices, &own_leases))?;
        self.comment(&own, &jobs);
        Ok(())
    }

    /// Lets jobs have so many licences.
    fn count(&mut self, usable: u64) -> Result<(), Failure> {
        let (licence, reservation) = (&self.arguments.licence, &self.arguments.reservation);
        let total = self.arguments.slurm.licences(licence)?.ok_or_else(|| {
            Failure::new(format!(
                "Slurm knows no licence {licence}: write Licenses={licence}:{usable} (a thousand for each GPU) into slurm.conf"
            ))
        })?;
        if usable > total && !std::mem::replace(&mut self.few, true) {
            eprintln!(
                "rgpu: the broker has {usable} thousandths of GPUs for jobs, and slurm.conf counts {total} licences: \
                 Licenses={licence}:{usable} would let jobs have all"
            );
        }
        let reserved = self.arguments.slurm.reserved(reservation, licence);
        let wanted = total.saturating_sub(usable);
        if reserved == Some(wanted) {
            return Ok(());
        }
        self.arguments.slurm.reserve(reservation, licence, wanted, reserved.is_some())?;
        eprintln!("rgpu: jobs can have {} of {total} licences {licence}", total - wanted);
        Ok(())
    }

    /// Writes of running jobs what they have. It is only for people: what fails is tried again.
    fn comment(&mut self, own: &[(JobKey, &Lease)], jobs: &HashMap<u32, Job>) {
        let now = Instant::now();
        self.commented.retain(|id, _| own.iter().any(|(_, lease)| lease.id == *id));
        for (key, lease) in own {
            let running =
                jobs.get(&key.job).is_some_and(Job::is_running) && lease.state == LeaseState::Active;
            let due = self.commented.get(&lease.id).is_none_or(|then| now - *then >= self.arguments.comments);
            let Some(granted) = lease.granted.filter(|_| running && due) else { continue };
            let text = account(lease.id, milli(lease), unix_time().saturating_sub(granted));
            if self.arguments.slurm.comment(key.job, &text).is_ok() {
                self.commented.insert(lease.id, now);
            }
        }
    }
}

/// Whether a lease is of no use any more. While a job completes, its nodes give the lease back; but one that still waits is waited for
/// by a prolog, which nothing else ends.
fn is_over(key: &JobKey, state: LeaseState, job: Option<&Job>) -> bool {
    let holds = matches!(state, LeaseState::Waiting | LeaseState::Active);
    let lives = job.is_some_and(|job| {
        let completing = job.is_completing() && state == LeaseState::Active;
        job.restart == key.restart && (job.is_running() || completing)
    });
    holds && !lives
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_over_with_its_jobs_run() {
        let key = JobKey { cluster: "c".into(), job: 7, restart: 1 };
        let job = |state: &str, restart| Job { id: 7, state: state.into(), restart };
        let over = |state, job: Option<Job>| is_over(&key, state, job.as_ref());
        use LeaseState::{Active, Ended, Waiting};
        for running in ["RUNNING", "CONFIGURING", "SUSPENDED"] {
            assert!(!over(Active, Some(job(running, 1))) && !over(Waiting, Some(job(running, 1))));
            assert!(over(Active, Some(job(running, 2))), "it was started again");
        }
        for ended in ["COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PENDING"] {
            assert!(over(Active, Some(job(ended, 1))), "{ended}");
        }
        assert!(over(Active, None) && !over(Ended, None));
        assert!(!over(Active, Some(job("COMPLETING", 1))) && over(Waiting, Some(job("COMPLETING", 1))));
    }
}
