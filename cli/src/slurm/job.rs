//! What happens on each node of a job: its lease is there before its first task, good as long as it runs, and given back after its last.
//!
//! All nodes of a job ask for the same lease, by the same key, and derive the same holder's key from the broker's token, so nothing
//! secret travels through Slurm. Each node renews the lease and its own copy of the ticket. So where a node is lost, with all that runs
//! on it, the others go on, and where all are, the lease expires.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use rgpu_control::api::{ErrorCode, Lease};
use rgpu_control::slurm::{JobFiles, JobKey, JobRecord, JobRequest, REQUEST_VARIABLE, SPOOL};
use rgpu_control::ticket::Ticket;
use rgpu_control::token::{PrivateKey, lifetime};
use rgpu_control::units::parse_duration;
use rgpu_control::{Broker, LeaseId};

use super::lease::{JobLease, obtain};
use super::slurmctld::Commands;
use crate::control::{BrokerArguments, explain};
use crate::library::{self, Links};
use crate::run::RELEASE_TIME;
use crate::{Failure, Outcome};

/// How often it is looked whether a job is over.
const LOOK: Duration = Duration::from_secs(1);
/// How long one request to the broker may take.
const REQUEST_TIME: Duration = Duration::from_secs(5);

/// What stands behind the plugin's name in plugstack.conf.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Where the node keeps what it knows of jobs with leases
    #[arg(long, value_name = "FOLDER", default_value = SPOOL)]
    spool: PathBuf,
    /// How long a job waits for its lease before its first task
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    wait: Duration,
    /// Whose a job's lease is, where the broker's token is an engine's
    #[arg(long, value_name = "WHOSE", value_enum, default_value_t = Tenant::Account)]
    tenant: Tenant,
    #[command(flatten)]
    slurm: Commands,
    #[command(flatten)]
    broker: BrokerArguments,
}

/// The broker's tenant that a job's lease is counted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Tenant {
    /// The job's account
    Account,
    /// The job's user
    User,
}

/// A job on this node, as Slurm tells prolog and epilog.
#[derive(Debug)]
struct NodeJob {
    key: JobKey,
    node: String,
    user: String,
    uid: u32,
    gid: u32,
}

fn from_slurm<T: FromStr>(name: &str) -> Result<T, Failure> {
    let value = env::var(name).ok().and_then(|value| value.parse().ok());
    value.ok_or_else(|| {
        Failure::new(format!("Slurm does not say {name}: this is run by its prolog and epilog alone"))
    })
}

impl NodeJob {
    fn from_environment() -> Result<Self, Failure> {
        let key = JobKey {
            cluster: from_slurm("SLURM_CLUSTER_NAME")?,
            job: from_slurm("SLURM_JOB_ID")?,
            restart: from_slurm("SLURM_JOB_RESTART_COUNT").unwrap_or(0),
        };
        Ok(Self {
            key,
            node: from_slurm("SLURMD_NODENAME")?,
            user: from_slurm("SLURM_JOB_USER").unwrap_or_default(),
            uid: from_slurm("SLURM_JOB_UID")?,
            gid: from_slurm("SLURM_JOB_GID")?,
        })
    }

    /// On behalf of whom the job's lease is asked for.
    fn tenant(&self, kind: Tenant, slurm: &Commands) -> Result<String, Failure> {
        let (id, user) = (self.key.job, &self.user);
        match kind {
            Tenant::User if user.is_empty() => {
                Err(Failure::new(format!("Slurm does not say whose job {id} is")))
            }
            Tenant::User => Ok(user.clone()),
            // Not all releases tell a prolog.
            Tenant::Account => {
                let told = env::var("SLURM_JOB_ACCOUNT").ok().filter(|account| !account.is_empty());
                told.map_or_else(|| slurm.account(id), |account| Ok(Some(account)))?.ok_or_else(|| {
                    Failure::new(format!(
                        "Job {id} has no account whose lease it could be: give one by --account, or have the administrator write \
                         tenant=user into plugstack.conf"
                    ))
                })
            }
        }
    }

    fn files(&self, arguments: &Arguments) -> JobFiles {
        JobFiles::new(&arguments.spool, &self.node, self.key.job)
    }
}

/// Gets the job's lease. Where that fails, the reason is written down for the job's tasks, and this succeeds.
pub(super) fn prolog(arguments: &Arguments) -> Outcome {
    let job = NodeJob::from_environment()?;
    let files = job.files(arguments);
    prepare(&arguments.spool, &job.node).map_err(cannot_keep(&arguments.spool))?;
    // Of an earlier run, on a node that was lost then.
    files.remove().map_err(cannot_keep(&arguments.spool))?;
    if let Err(failure) = begin(arguments, &job, &files) {
        eprintln!("rgpu: job {}: {}", job.key.job, failure.message);
        let record = JobRecord { error: Some(failure.message), ..JobRecord::default() };
        files.write(&record).map_err(cannot_keep(&arguments.spool))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the directories: everybody can read, and this user alone can change them.
fn prepare(spool: &Path, node: &str) -> std::io::Result<()> {
    for directory in [spool.to_owned(), spool.join(node)] {
        fs::create_dir_all(&directory)?;
        let about = fs::symlink_metadata(&directory)?;
        if !about.is_dir() || about.uid() != rustix::process::geteuid().as_raw() {
            return Err(std::io::Error::other(format!("{} belongs to somebody else", directory.display())));
        }
        fs::set_permissions(&directory, Permissions::from_mode(0o755))?;
    }
    Ok(())
}

fn cannot_keep(spool: &Path) -> impl Fn(std::io::Error) -> Failure {
    move |e| Failure::new(format!("Nothing can be kept in {}: {e}", spool.display()))
}

fn begin(arguments: &Arguments, job: &NodeJob, files: &JobFiles) -> Result<(), Failure> {
    let request = env::var(REQUEST_VARIABLE).unwrap_or_default();
    let request: JobRequest = request.parse().map_err(|e: String| Failure::new(e))?;
    let library = library::find()?;
    let links = Links::create_shared(&arguments.spool, &library)?;
    let broker = connect(&arguments.broker)?;
    let key = PrivateKey::derive(arguments.broker.token()?.as_bytes(), &job.key.to_string());
    let name = format!("job {} {}", job.key.job, job.user);
    let end = Instant::now() + arguments.wait;
    let tenant = broker.is_engines().then(|| job.tenant(arguments.tenant, &arguments.slurm)).transpose()?;
    let wanted = JobLease { job: &job.key, name: name.trim(), tenant, request };
    let lease = obtain(&broker, &wanted, &key, end)?;
    let told = tell(job, files, &lease, &key, &links).and_then(|()| start_keeper());
    told.inspect_err(|_| {
        let _ = broker.release(lease.id); // nobody renews it
        let _ = files.remove();
    })
}

fn connect(arguments: &BrokerArguments) -> Result<Broker, Failure> {
    if arguments.url().is_none() {
        return Err(Failure::new(
            "The plugin does not know the broker: write broker=URL behind its name in plugstack.conf",
        ));
    }
    Ok(arguments.connect()?.with_patience(REQUEST_TIME))
}

/// Writes down what tasks are told.
fn tell(
    job: &NodeJob,
    files: &JobFiles,
    lease: &Lease,
    key: &PrivateKey,
    links: &Links,
) -> Result<(), Failure> {
    let ticket = Ticket::of(lease, key).ok_or_else(|| {
        Failure::new(format!("The broker granted the lease {} without a token for it", lease.id))
    })?;
    let record = JobRecord {
        lease: Some(lease.id),
        error: None,
        library: links.preloadable(),
        links: links.directory().to_owned(),
        ticket: files.ticket.clone(),
    };
    write_ticket(&ticket, &files.ticket, job.uid, job.gid)
        .and_then(|()| files.write(&record))
        .map_err(|e| Failure::new(format!("There is no place for the lease's ticket: {e}")))
}

/// Writes a ticket that this user alone can read, in one step.
fn write_ticket(ticket: &Ticket, path: &Path, uid: u32, gid: u32) -> std::io::Result<()> {
    let new = path.with_extension(format!("for-{}", std::process::id()));
    ticket.write(&new)?;
    if uid != rustix::process::geteuid().as_raw() {
        chown(&new, Some(uid), Some(gid))?;
    }
    fs::rename(new, path)
}

/// Starts the process that renews the lease: this command, in a session of its own, because Slurm ends what a prolog leaves behind.
fn start_keeper() -> Result<(), Failure> {
    let failed = |e: std::io::Error| Failure::new(format!("Cannot renew the lease: {e}"));
    let mut command = Command::new(env::current_exe().map_err(failed)?);
    // `rgpu slurm prolog …`
    command.args(["slurm", "keep"]).args(env::args_os().skip(3));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
    // SAFETY: setsid may be called after a fork.
    unsafe {
        command.pre_exec(|| match libc::setsid() {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        })
    };
    command.spawn().map(drop).map_err(failed)
}

/// Renews the job's lease and the ticket on this node, until the job's record is gone.
pub(super) fn keep(arguments: &Arguments) -> Outcome {
    let job = NodeJob::from_environment()?;
    let files = job.files(arguments);
    let unreadable = |e: std::io::Error| Failure::new(e.to_string());
    let mut ticket = Ticket::read(&files.ticket).map_err(unreadable)?;
    let broker = connect(&arguments.broker)?;
    let is_over =
        |id: LeaseId| !files.read().is_ok_and(|record| record.is_some_and(|record| record.lease == Some(id)));
    let mut due = Instant::now();
    while !is_over(ticket.lease) {
        if Instant::now() >= due {
            match broker.renew(ticket.lease) {
                Ok(lease) => {
                    ticket.token = lease.token.unwrap_or(ticket.token);
                    due = Instant::now() + lifetime(&ticket.token) / 3;
                    ticket.servers = lease.servers;
                    if !is_over(ticket.lease) {
                        // Where it cannot be written now, it may be the next time.
                        let _ = write_ticket(&ticket, &files.ticket, job.uid, job.gid);
                    }
                }
                // It has ended; its servers tell its programs so.
                Err(error) if matches!(error.code(), Some(ErrorCode::Conflict | ErrorCode::NotFound)) => {
                    break;
                }
                Err(_) => due = Instant::now() + LOOK,
            }
        }
        std::thread::sleep(LOOK);
    }
    if files.read().is_ok_and(|record| record.is_none()) {
        // The job ended while the ticket was being written.
        let _ = fs::remove_file(&files.ticket);
    }
    Ok(ExitCode::SUCCESS)
}

/// Gives the job's lease back. A broker that cannot be reached does not hold the node up: nobody renews the lease, and it expires.
pub(super) fn epilog(arguments: &Arguments) -> Outcome {
    let job = NodeJob::from_environment()?;
    let files = job.files(arguments);
    let record = files.read();
    files.remove().map_err(cannot_keep(&arguments.spool))?;
    let record = record.map_err(cannot_keep(&arguments.spool))?;
    if let Some(lease) = record.and_then(|record| record.lease) {
        let broker = arguments.broker.connect()?.with_patience(RELEASE_TIME);
        broker.release(lease).map_err(explain)?;
    }
    Ok(ExitCode::SUCCESS)
}
