//! Asking a broker for a job's lease.

use std::time::{Duration, Instant};

use rgpu_control::Broker;
use rgpu_control::api::{Lease, LeaseRequest, LeaseState, this_machine};
use rgpu_control::slurm::{JobKey, JobRequest};
use rgpu_control::token::PrivateKey;

use crate::Failure;
use crate::control::explain;
use crate::run::{RETRY, first_unreachable};

/// How long one request may wait for a grant.
const POLL: Duration = Duration::from_secs(5);

/// The lease that a job wants.
pub(super) struct JobLease<'a> {
    pub job: &'a JobKey,
    /// For people.
    pub name: &'a str,
    /// On behalf of whom, with an engine's token.
    pub tenant: Option<String>,
    pub request: JobRequest,
}

/// A lease that is granted, and whose servers can be reached. All nodes of a job do this at the same time, and get the same lease.
pub(super) fn obtain(
    broker: &Broker,
    wanted: &JobLease<'_>,
    key: &PrivateKey,
    end: Instant,
) -> Result<Box<Lease>, Failure> {
    let request = LeaseRequest {
        gpus: wanted.request.gpus,
        memory: wanted.request.memory,
        share_milli: wanted.request.share_milli,
        key: Some(wanted.job.to_string()),
        on_behalf_of: wanted.tenant.clone(),
        ..LeaseRequest::new(wanted.name.to_owned(), this_machine(), key.public().to_text())
    };
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let request = LeaseRequest { wait_s: left.min(POLL).as_secs() as u32, ..request.clone() };
        let late = left.is_zero();
        match broker.request_lease(&request) {
            Ok(lease) => match lease.state {
                LeaseState::Active => return reachable(broker, lease),
                LeaseState::Waiting if !late => {}
                LeaseState::Waiting => {
                    let _ = broker.release(lease.id); // nobody asks for it any more
                    return Err(Failure::new(format!("none was free in time: {}", lease.reason)));
                }
                // Somebody has given it back: another node of the job, or `rgpu slurm sync`, because the job was cancelled.
                LeaseState::Ending | LeaseState::Ended => {
                    return Err(Failure::new(format!("the lease {} has ended: {}", lease.id, lease.reason)));
                }
            },
            Err(error) if error.is_passing() && !late => std::thread::sleep(RETRY),
            Err(error) => return Err(explain(error)),
        }
    }
}

fn reachable(broker: &Broker, lease: Lease) -> Result<Box<Lease>, Failure> {
    match first_unreachable(&lease.servers) {
        None => Ok(Box::new(lease)),
        Some(why) => {
            let _ = broker.release(lease.id); // it would be of no use
            Err(Failure::new(format!("{why}. Is a firewall in between?")))
        }
    }
}
