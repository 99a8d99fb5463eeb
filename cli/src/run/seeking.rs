//! Asking a broker for a lease until it is granted: the broker may be away for a while, and there may be a queue.

use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use rgpu_control::api::{ErrorCode, Lease, LeaseRequest, LeaseState};
use rgpu_control::ticket::LeaseServer;
use rgpu_control::{Broker, ClientError};

use super::child::Held;
use super::renewal::{RELEASE_TIME, RETRY, Why, release};
use super::threads::{Interruptible, run_interruptibly};
use crate::Failure;
use crate::control::{TRY_LATER, explain};

/// After so long it is said that and why the program waits.
pub(super) const SILENCE: Duration = Duration::from_secs(1);
/// How long one request may wait for a grant; then the place in the queue is asked for again.
const POLL_S: u32 = 10;
/// How long a broker may be away at a time, or a lease's servers be out of reach, where no other limit was said.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// The same for whoever wants something at once: a broker that is restarted is back by then.
pub(super) const BRIEFLY: Duration = Duration::from_secs(5);
/// How often it is looked whether a lease's NVMe devices are attached.
const ATTACHING: Duration = Duration::from_millis(100);
/// How long connecting to a lease's server may take.
const CONNECT_TIME: Duration = Duration::from_secs(3);

/// A broker that cannot be reached, for a while.
pub(super) struct Away {
    patience: Duration,
    /// When all waiting is to be over, if that was said.
    end: Option<Instant>,
    since: Option<Instant>,
}

impl Away {
    pub(super) fn new(patience: Duration, end: Option<Instant>) -> Self {
        Self { patience, end, since: None }
    }

    /// It could not be reached. Says so once; an error where that lasts too long, or will not pass.
    fn failed(&mut self, error: ClientError) -> Result<(), Failure> {
        if !error.is_passing() {
            return Err(explain(error));
        }
        let now = Instant::now();
        let since = *self.since.get_or_insert_with(|| {
            let left = self.end.map_or(self.patience, |end| end.saturating_duration_since(now));
            eprintln!("rgpu: {error}; trying again, for {} s at most", left.as_secs().max(1));
            now
        });
        let over = match self.end {
            Some(end) => now >= end,
            None => since.elapsed() > self.patience,
        };
        if over { Err(explain(error)) } else { Ok(()) }
    }

    /// It has answered.
    fn answered(&mut self) {
        if self.since.take().is_some() {
            eprintln!("rgpu: the broker is back");
        }
    }
}

/// What came of waiting.
pub(super) enum Waited {
    Granted(Box<Lease>),
    /// A signal came first. Nothing is left at the broker.
    Interrupted(libc::c_int),
}

/// Whoever asks for a lease.
pub(super) struct Seeker<'a> {
    pub broker: &'a Broker,
    pub signals: &'a Held,
    /// When all waiting is to be over, if that was said.
    pub end: Option<Instant>,
    /// When the program is to have ended, if that was said.
    pub deadline: Option<Instant>,
    pub away: Away,
}

impl Seeker<'_> {
    /// A lease that is granted. Where the broker forgets it while it waits, it is asked for again.
    pub(super) fn lease(&mut self, request: &LeaseRequest) -> Result<Waited, Failure> {
        loop {
            if let Some(waited) = self.once(request)? {
                return Ok(waited);
            }
            eprintln!("rgpu: the broker has lost its queue; asking for GPUs again");
            if let Some(signal) = self.signals.wait(RETRY) {
                return Ok(Waited::Interrupted(signal));
            }
        }
    }

    /// The request with its deadline, which counts from when the broker takes it.
    fn with_time_left(&self, request: &LeaseRequest) -> Result<LeaseRequest, Failure> {
        let Some(deadline) = self.deadline else { return Ok(request.clone()) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let text = "The deadline has passed before the broker was reached: the program was not started";
            return Err(Failure::with_status(text, TRY_LATER));
        }
        Ok(LeaseRequest { deadline_s: Some(left.as_secs_f64()), ..request.clone() })
    }

    /// A lease that is granted; `None` where the broker has forgotten it.
    fn once(&mut self, request: &LeaseRequest) -> Result<Option<Waited>, Failure> {
        let lease = loop {
            let (broker, request) = (self.broker.clone(), self.with_time_left(request)?);
            match run_interruptibly(self.signals, move || broker.request_lease(&request))? {
                Interruptible::Done(Ok(lease)) => break lease,
                // Should it have been made all the same, nobody renews it, and it ends.
                Interruptible::Done(Err(error)) => self.away.failed(error)?,
                Interruptible::Interrupted(signal, rest) => {
                    // The broker may have made it by now: it has to be given back, so its id has to be known.
                    if let Ok(Ok(lease)) = rest.recv_timeout(SILENCE + RELEASE_TIME) {
                        release(self.broker, lease.id, Why::Unused);
                    }
                    return Ok(Some(Waited::Interrupted(signal)));
                }
            }
            if let Some(signal) = self.signals.wait(RETRY) {
                return Ok(Some(Waited::Interrupted(signal)));
            }
        };
        self.away.answered();
        let id = lease.id;
        let waited = self.wait_for_grant(lease);
        if !matches!(waited, Ok(Some(Waited::Granted(_)) | None)) {
            release(self.broker, id, Why::Unused);
        }
        waited
    }

    /// What came of waiting; `None` where the broker knows the lease no more: its state was lost, or set back to an older one, or
    /// another broker has taken over, which learns of granted leases from their servers, and of waiting ones from nobody.
    fn wait_for_grant(&mut self, mut lease: Lease) -> Result<Option<Waited>, Failure> {
        let mut said = String::new();
        loop {
            match lease.state {
                LeaseState::Active => return Ok(Some(Waited::Granted(Box::new(lease)))),
                LeaseState::Waiting => {}
                LeaseState::Ending | LeaseState::Ended => {
                    let text =
                        format!("The lease {} ended before it began: {}", lease.id, printable(&lease.reason));
                    return Err(Failure::new(text));
                }
            }
            let left = self.end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                let text = format!("Nothing has become free in time: {}", printable(&lease.reason));
                return Err(Failure::with_status(text, TRY_LATER));
            }
            let id = lease.id;
            let look = move |broker: &Broker| {
                let jobs = broker.jobs()?;
                let place = jobs.iter().find(|job| job.lease == id).map_or(0, |job| job.place);
                Ok(known(broker.lease(id, 0))?.map(|lease| (place, lease)))
            };
            match self.ask(look)? {
                Err(signal) => return Ok(Some(Waited::Interrupted(signal))),
                Ok(None) => continue,
                Ok(Some(None)) => return Ok(None),
                Ok(Some(Some((place, now)))) => {
                    if now.state == LeaseState::Waiting {
                        say_place(&mut said, place, &now.reason);
                    }
                    lease = now;
                }
            }
            if lease.state != LeaseState::Waiting {
                continue;
            }
            // Rounded up, so that the last request doesn't wait for nothing.
            let wait_s =
                left.map_or(POLL_S, |left| (left.as_millis().div_ceil(1000) as u32).clamp(1, POLL_S));
            match self.ask(move |broker| known(broker.lease(id, wait_s)))? {
                Err(signal) => return Ok(Some(Waited::Interrupted(signal))),
                Ok(None) => {}
                Ok(Some(None)) => return Ok(None),
                Ok(Some(Some(now))) => lease = now,
            }
        }
    }

    /// The lease, once its NVMe devices are attached. It is renewed meanwhile; where that fails, it is given back.
    pub(super) fn attached(&mut self, mut lease: Box<Lease>) -> Result<Waited, Failure> {
        let id = lease.id;
        while lease.nvmes.iter().any(|nvme| nvme.path.is_none()) {
            let answer = match self.signals.wait(ATTACHING) {
                Some(signal) => Ok(Err(signal)),
                None => self.ask(move |broker| broker.renew(id)),
            };
            match answer {
                // What is renewed is active: one that has ended is an error, which says why.
                Ok(Ok(Some(now))) => *lease = now,
                Ok(Ok(None)) => {}
                Ok(Err(signal)) => {
                    release(self.broker, id, Why::Unused);
                    return Ok(Waited::Interrupted(signal));
                }
                Err(failure) => {
                    release(self.broker, id, Why::Unused);
                    return Err(failure);
                }
            }
        }
        Ok(Waited::Granted(lease))
    }

    /// Asks the broker something. `None` if it is away, after a moment; the inner error is a signal that came first.
    fn ask<T: Send + 'static>(
        &mut self,
        what: impl FnOnce(&Broker) -> Result<T, ClientError> + Send + 'static,
    ) -> Result<Result<Option<T>, libc::c_int>, Failure> {
        let broker = self.broker.clone();
        match run_interruptibly(self.signals, move || what(&broker))? {
            Interruptible::Interrupted(signal, _) => Ok(Err(signal)),
            Interruptible::Done(Ok(answer)) => {
                // Each answer counts: it was there between two times that it was away.
                self.away.answered();
                Ok(Ok(Some(answer)))
            }
            Interruptible::Done(Err(error)) => {
                self.away.failed(error)?;
                Ok(match self.signals.wait(RETRY) {
                    Some(signal) => Err(signal),
                    None => Ok(None),
                })
            }
        }
    }
}

/// The lease, where the broker knows it.
fn known(answer: Result<Lease, ClientError>) -> Result<Option<Lease>, ClientError> {
    match answer {
        Err(error) if error.code() == Some(ErrorCode::NotFound) => Ok(None),
        other => other.map(Some),
    }
}

/// Says on stderr why the program waits, where that is news.
fn say_place(said: &mut String, place: u32, reason: &str) {
    let mut text = match place {
        0 => "waiting for GPUs".to_owned(),
        place => format!("waiting for GPUs: place {place} in the queue"),
    };
    if !reason.is_empty() {
        text += &format!(" ({})", printable(reason));
    }
    if *said != text {
        eprintln!("rgpu: {text}");
        *said = text;
    }
}

/// The first of a lease's servers to which no connection can be made, and why, in words.
pub(crate) fn first_unreachable(servers: &[LeaseServer]) -> Option<String> {
    servers.iter().find_map(|server| {
        let why = connect(&server.address).err()?;
        let (node, address) = (printable(&server.node), printable(&server.address));
        Some(format!("The node {node} cannot be reached at {address} ({why})"))
    })
}

fn connect(address: &str) -> std::io::Result<()> {
    let mut last = std::io::Error::other("it has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIME) {
            Ok(_) => return Ok(()),
            Err(e) => last = e,
        }
    }
    Err(last)
}

use crate::table::printable;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_that_answers_now_and_then_is_not_given_up() {
        let gone = || ClientError::Unreachable { broker: "b".into(), why: "refused".into() };
        let mut away = Away::new(Duration::from_millis(30), None);
        for _ in 0..5 {
            away.failed(gone()).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            away.answered();
        }
        away.failed(gone()).unwrap();
        std::thread::sleep(Duration::from_millis(40));
        assert!(away.failed(gone()).is_err());
        let refused = ClientError::Odd { broker: "b".into(), why: "no".into() };
        assert!(Away::new(PATIENCE, None).failed(refused).is_err(), "what does not pass is not waited for");
    }

    #[test]
    fn servers_that_are_gone_are_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = |node: &str, address: String| LeaseServer {
            node: node.into(),
            address,
            devices: 1,
            tls: false,
            fingerprint: None,
        };
        let there = server("n0", listener.local_addr().unwrap().to_string());
        assert_eq!(first_unreachable(std::slice::from_ref(&there)), None);
        let gone = server("n1", "127.0.0.1:1".into());
        assert!(first_unreachable(&[there, gone]).unwrap().contains("n1"));
    }
}
