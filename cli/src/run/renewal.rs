//! A lease that a program holds: its ticket, its renewal, and giving it back.

use std::process::Command;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rgpu_control::api::{ErrorCode, Lease, LeaseState};
use rgpu_control::settings::NVME_DEVICES_VARIABLE;
use rgpu_control::ticket::{Published, Ticket};
use rgpu_control::token::PrivateKey;
use rgpu_control::{Broker, LEASE_VARIABLE, LeaseId};

use super::threads::spawn_without_signals;
use crate::{Failure, control};

/// How long the program's end may be held up by giving the lease back. Only a broker that hangs takes so long; one that is away
/// is known to be at once. What isn't given back is nobody's for as long as leases are good for.
pub(crate) const RELEASE_TIME: Duration = Duration::from_secs(10);
/// Between two attempts to reach it.
pub(crate) const RETRY: Duration = Duration::from_millis(500);

/// Why a lease is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// No program has used it, or nobody knows how the program has ended.
    Unused,
    /// The program has failed, perhaps because the lease had ended.
    Failed,
    /// The program has ended well.
    Completed,
}

/// Gives a lease back. Does not wait for a broker that does not answer: then the lease expires. Where the program has failed, says why
/// the lease had ended already, if so.
pub(super) fn release(broker: &Broker, id: LeaseId, why: Why) -> Option<String> {
    let (done, results) = mpsc::channel();
    let broker = broker.clone();
    let body = move || {
        let reason = if why == Why::Failed { why_ended(&broker, id) } else { None };
        let _ = match why {
            Why::Completed => broker.complete(id),
            Why::Unused | Why::Failed => broker.release(id),
        };
        let _ = done.send(reason);
    };
    spawn_without_signals("release", body).ok()?;
    results.recv_timeout(RELEASE_TIME).ok().flatten()
}

fn why_ended(broker: &Broker, id: LeaseId) -> Option<String> {
    let lease = broker.lease(id, 0).ok()?;
    let over = matches!(lease.state, LeaseState::Ending | LeaseState::Ended);
    over.then_some(lease.reason)
}

/// What the renewing thread and the one that waits for the program share.
#[derive(Default)]
struct Renewing {
    over: Mutex<bool>,
    changed: Condvar,
    /// It was said that the lease has ended.
    said: std::sync::atomic::AtomicBool,
}

impl Renewing {
    /// Waits; true when the program has ended.
    fn wait(&self, time: Duration) -> bool {
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(over, time, |over| !*over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn finish(&self) {
        *self.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}

/// A lease, which is renewed until it is given back, at the latest when this is dropped.
pub(super) struct Leased {
    broker: Broker,
    id: LeaseId,
    /// As it was granted.
    lease: Box<Lease>,
    ticket: Arc<Published>,
    renewing: Arc<Renewing>,
    released: bool,
}

impl Leased {
    /// Publishes the ticket, and renews the lease from now on.
    pub(super) fn new(broker: Broker, lease: &Lease, key: &PrivateKey) -> Result<Self, Failure> {
        let id = lease.id;
        let ttl = time_to_live(lease);
        let ticket = Ticket::of(lease, key).ok_or_else(|| {
            Failure::new(format!("The broker granted the lease {id} without a token for it"))
        })?;
        let published = ticket.publish();
        let published =
            published.map_err(|e| Failure::new(format!("There is no place for the lease's ticket: {e}")))?;
        let published = Arc::new(published);
        let renewing = Arc::new(Renewing::default());
        let (shown, shared) = (published.clone(), renewing.clone());
        let lease = Box::new(Lease { token: None, ..lease.clone() });
        let leased = Self { broker: broker.clone(), id, lease, ticket: published, renewing, released: false };
        let body = move || renew(&broker, ticket, &shown, ttl, &shared);
        spawn_without_signals("renew", body)
            .map_err(|e| Failure::new(format!("Cannot renew the lease: {e}")))?;
        Ok(leased)
    }

    /// Sets the environment variables by which a program learns of it, and where its NVMe devices are, if it has any.
    pub(super) fn hand_to(&self, command: &mut Command) {
        command.env(LEASE_VARIABLE, self.ticket.path());
        let paths: Vec<&str> = self.lease.nvmes.iter().filter_map(|nvme| nvme.path.as_deref()).collect();
        if !paths.is_empty() {
            command.env(NVME_DEVICES_VARIABLE, paths.join(","));
        }
    }

    /// Keeps a copy of the ticket in a file, for programs that cannot open what [`Self::hand_to`] names.
    pub(super) fn copy_ticket_to(&self, path: &std::path::Path) -> std::io::Result<()> {
        self.ticket.copy_to(path)
    }

    /// The lease as it was granted, without its token.
    pub(super) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Gives it back. Where the program has failed, says why, if it was for the lease.
    pub(super) fn finish(mut self, failed: bool) {
        let said = self.renewing.said.load(std::sync::atomic::Ordering::SeqCst);
        let why = match failed {
            false => Why::Completed,
            true if said => Why::Unused,
            true => Why::Failed,
        };
        if let Some(reason) = self.end(why) {
            eprintln!("rgpu: the lease {} had ended: {}", self.id, crate::table::printable(&reason));
        }
    }

    fn end(&mut self, why: Why) -> Option<String> {
        if std::mem::replace(&mut self.released, true) {
            return None;
        }
        self.renewing.finish();
        release(&self.broker, self.id, why)
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        self.end(Why::Unused);
    }
}

/// For how long a lease is good that was just granted, by the broker's clock alone.
fn time_to_live(lease: &Lease) -> Duration {
    let ttl =
        lease.expires.zip(lease.granted).map_or(60, |(expires, granted)| expires.saturating_sub(granted));
    Duration::from_secs(ttl.clamp(1, 24 * 3600))
}

/// Renews a lease until the program has ended.
fn renew(broker: &Broker, mut ticket: Ticket, published: &Published, ttl: Duration, renewing: &Renewing) {
    let mut expires = Instant::now() + ttl;
    let mut expired = false;
    let mut wait = ttl / 3;
    while !renewing.wait(wait) {
        let asked = Instant::now();
        match broker.renew(ticket.lease) {
            Ok(lease) => {
                (expires, wait) = (asked + ttl, ttl / 3);
                if std::mem::take(&mut expired) {
                    eprintln!("rgpu: the lease {} is renewed again", ticket.lease);
                }
                let Some(token) = lease.token else { continue };
                ticket.token = token;
                ticket.servers = lease.servers;
                if renewing.wait(Duration::ZERO) {
                    return;
                }
                if let Err(e) = published.replace(&ticket) {
                    eprintln!("rgpu: cannot publish the renewed lease: {e}");
                }
            }
            Err(error) if matches!(error.code(), Some(ErrorCode::Conflict | ErrorCode::NotFound)) => {
                if !renewing.wait(Duration::ZERO) {
                    // The broker names the lease.
                    eprintln!("rgpu: {}", crate::table::printable(&error.to_string()));
                    renewing.said.store(true, std::sync::atomic::Ordering::SeqCst);
                }
                return;
            }
            Err(error) => {
                if Instant::now() >= expires && !expired {
                    eprintln!(
                        "rgpu: the lease {} could not be renewed in time, the program may lose its GPUs: {}",
                        ticket.lease,
                        control::explain(error).message
                    );
                    expired = true;
                }
                wait = (ttl / 10).max(RETRY).min(ttl / 3);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(granted: Option<u64>, expires: Option<u64>) -> Lease {
        Lease {
            id: LeaseId(1),
            name: String::new(),
            tenant: String::new(),
            state: LeaseState::Active,
            reason: String::new(),
            version: 1,
            submitted: 0,
            granted,
            expires,
            ended: None,
            grants: Vec::new(),
            sizes: Vec::new(),
            servers: Vec::new(),
            token: Some("t".into()),
            transport: "auto".into(),
            client_node: String::new(),
            remote: 0,
            usage: Vec::new(),
            sessions: 0,
            ca: None,
            deadline: None,
            deadline_kept: None,
            nvmes: Vec::new(),
            key: None,
            estimate: None,
            processors: Vec::new(),
        }
    }

    #[test]
    fn the_brokers_clock_alone_says_how_long_a_lease_is_good() {
        assert_eq!(time_to_live(&lease(Some(1000), Some(1006))), Duration::from_secs(6));
        assert_eq!(time_to_live(&lease(Some(1000), Some(900))), Duration::from_secs(1));
        assert_eq!(time_to_live(&lease(None, Some(900))), Duration::from_secs(60));
        let key = PrivateKey::generate();
        assert_eq!(Ticket::of(&lease(None, None), &key).unwrap().key, key.to_text());
        assert!(Ticket::of(&Lease { token: None, ..lease(None, None) }, &key).is_none());
    }
}
