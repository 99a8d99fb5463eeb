//! With a broker: a lease for the program, from before it starts until after it has ended.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rgpu_control::api::{ErrorCode, Lease, LeaseRequest, LeaseState, this_machine};
use rgpu_control::ticket::{self, Ticket};
use rgpu_control::token::PrivateKey;
use rgpu_control::units::{parse_bytes, parse_duration, parse_mbps, parse_share};
use rgpu_control::{Broker, ClientError, LEASE_VARIABLE, LeaseId, NODE_VARIABLE, settings};
use rgpu_protocol::transport::{Choice, ENCRYPT_VARIABLE, TRANSPORT_VARIABLE};

use super::child::{Held, Woken};
use crate::control::{BrokerArguments, TRY_LATER, explain};
use crate::{Failure, control};

/// What to ask a broker for.
#[derive(clap::Args, Debug)]
pub struct LeaseArguments {
    #[command(flatten)]
    broker: BrokerArguments,
    /// How many GPUs [default: 1]
    #[arg(long, value_name = "N", help_heading = "With a broker", value_parser = clap::value_parser!(u16).range(1..))]
    gpus: Option<u16>,
    /// Memory of each GPU, such as 4GiB [default: that part of it which --share is of its time]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, help_heading = "With a broker")]
    gpu_memory: Option<u64>,
    /// Share of each GPU's time, such as 25% [default: 100%]
    #[arg(long, value_name = "SHARE", value_parser = parse_share, help_heading = "With a broker")]
    share: Option<u16>,
    /// A GPU model that will do; can be given several times [default: any]
    #[arg(long, value_name = "NAME", help_heading = "With a broker")]
    model: Vec<String>,
    /// How the program's time depends on where its GPU is: a profile of the broker's configuration
    #[arg(long, value_name = "NAME", help_heading = "With a broker")]
    profile: Option<String>,
    /// The time from now to its end that the program is to keep, such as 90s or 1.5h
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "With a broker")]
    goal: Option<Duration>,
    /// How important that is, from 1 (most) to 10
    #[arg(long, value_name = "N", value_parser = parse_importance, help_heading = "With a broker")]
    importance: Option<f64>,
    /// Traffic that each remote GPU is going to make, such as 200Mbit [default: the profile's]
    #[arg(long, value_name = "RATE", value_parser = parse_mbps, help_heading = "With a broker")]
    traffic: Option<u64>,
    /// Fail (status 75) where nothing is free now, instead of waiting in the queue
    #[arg(long, help_heading = "With a broker")]
    now: bool,
    /// Fail (status 75) where nothing has become free after so many seconds
    #[arg(long, value_name = "SECONDS", conflicts_with = "now", help_heading = "With a broker")]
    wait: Option<u32>,
    /// Encrypt (TLS) what leaves this machine; the broker then gives GPUs of servers that can [default: RGPU_ENCRYPT].
    /// Without a broker the server's certificate is checked by RGPU_TLS_FINGERPRINT or RGPU_TLS_CA
    #[arg(long)]
    pub encrypt: bool,
    /// Which of the cluster's nodes this machine is [default: RGPU_NODE, else the broker recognises it]
    #[arg(long, value_name = "NAME", help_heading = "With a broker")]
    node: Option<String>,
    /// A name for the lease, for people [default: the program's]
    #[arg(long, value_name = "NAME", help_heading = "With a broker")]
    name: Option<String>,
}

fn parse_importance(text: &str) -> Result<f64, String> {
    let problem = || format!("{text:?} is no importance from 1 to 10");
    let number: f64 = text.parse().map_err(|_| problem())?;
    (1.0..=10.0).contains(&number).then_some(number).ok_or_else(problem)
}

/// After so long it is said that and why the program waits.
const SILENCE: Duration = Duration::from_secs(1);
/// How long one request may wait for a grant; then the place in the queue is asked for again.
const POLL_S: u32 = 10;
/// How long the program's end may be held up by giving the lease back. Only a broker that hangs takes so long; one that is away
/// is known to be at once. What isn't given back is nobody's for as long as leases are good for.
const GOODBYE: Duration = Duration::from_secs(10);
/// How long a broker may be away while a program waits in its queue.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two attempts to reach it.
const RETRY: Duration = Duration::from_millis(500);

impl LeaseArguments {
    /// Whether a lease was asked for on the command line.
    pub fn given(&self) -> bool {
        self.broker.given() || self.needs().is_some()
    }

    /// Whether a broker is known.
    pub fn broker_known(&self) -> bool {
        self.broker.url().is_some()
    }

    /// The first option that makes sense with a broker only.
    pub fn needs(&self) -> Option<&'static str> {
        [
            (self.gpus.is_some(), "--gpus"),
            (self.gpu_memory.is_some(), "--gpu-memory"),
            (self.share.is_some(), "--share"),
            (!self.model.is_empty(), "--model"),
            (self.profile.is_some(), "--profile"),
            (self.goal.is_some(), "--goal"),
            (self.importance.is_some(), "--importance"),
            (self.traffic.is_some(), "--traffic"),
            (self.now, "--now"),
            (self.wait.is_some(), "--wait"),
            (self.node.is_some(), "--node"),
            (self.name.is_some(), "--name"),
        ]
        .into_iter()
        .find_map(|(given, name)| given.then_some(name))
    }

    fn request(&self, program: &Path, transport: Option<Choice>, key: &PrivateKey) -> LeaseRequest {
        let program =
            program.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let transport =
            transport.map(|choice| choice.name().to_owned()).or_else(|| settings::text(TRANSPORT_VARIABLE));
        LeaseRequest {
            name: self.name.clone().unwrap_or(program),
            gpus: self.gpus.unwrap_or(1),
            memory: self.gpu_memory.unwrap_or(0),
            share_milli: self.share.unwrap_or(1000),
            models: self.model.clone(),
            machine: this_machine(),
            node: self.node.clone().or_else(|| settings::text(NODE_VARIABLE)),
            holder: key.public().to_text(),
            transport: transport.unwrap_or_else(|| "auto".into()),
            profile: self.profile.clone(),
            scale: None,
            goal_s: self.goal.map(|goal| goal.as_secs_f64()),
            importance: self.importance,
            traffic_mbps: self.traffic,
            wait_s: self.wait.map_or(SILENCE.as_secs() as u32, |wait| wait.min(SILENCE.as_secs() as u32)),
            now_or_never: self.now || self.wait == Some(0),
            encrypt: self.encrypt || settings::is_on(ENCRYPT_VARIABLE),
        }
    }
}

/// What came of asking for a lease.
pub enum Asked {
    /// It was granted.
    Granted(Leased),
    /// A signal came first; it was given back.
    Interrupted(libc::c_int),
}

/// Asks for a lease, waits for its grant, and writes its ticket.
pub fn obtain(
    arguments: &LeaseArguments,
    program: &Path,
    transport: Option<Choice>,
    signals: &Held,
) -> Result<Asked, Failure> {
    let broker = arguments.broker.connect()?;
    let directory = ticket::directory()
        .map_err(|e| Failure::new(format!("There is no place for the lease's ticket: {e}")))?;
    let key = PrivateKey::generate();
    let request = arguments.request(program, transport, &key);
    let end = arguments.wait.map(|wait| Instant::now() + Duration::from_secs(wait.into()));
    let asked = {
        let broker = broker.clone();
        run_aside(signals, move || broker.request_lease(&request))?
    };
    let lease = match asked {
        Aside::Done(lease) => lease.map_err(explain)?,
        Aside::Interrupted(signal, rest) => {
            // The broker may have made it by now: it has to be given back, so its id has to be known.
            if let Ok(Ok(lease)) = rest.recv_timeout(SILENCE + GOODBYE) {
                release(&broker, lease.id, false);
            }
            return Ok(Asked::Interrupted(signal));
        }
    };
    let id = lease.id;
    let lease = match wait_for_grant(&broker, lease, end, signals) {
        Ok(Waited::Granted(lease)) => lease,
        Ok(Waited::Interrupted(signal)) => {
            release(&broker, id, false);
            return Ok(Asked::Interrupted(signal));
        }
        Err(failure) => {
            release(&broker, id, false);
            return Err(failure);
        }
    };
    match Leased::new(broker.clone(), &lease, &key, &directory) {
        Ok(leased) => Ok(Asked::Granted(leased)),
        Err(failure) => {
            release(&broker, id, false);
            Err(failure)
        }
    }
}

enum Waited {
    Granted(Box<Lease>),
    Interrupted(libc::c_int),
}

fn wait_for_grant(
    broker: &Broker,
    mut lease: Lease,
    end: Option<Instant>,
    signals: &Held,
) -> Result<Waited, Failure> {
    let mut said = String::new();
    let mut away: Option<Instant> = None;
    loop {
        match lease.state {
            LeaseState::Active => return Ok(Waited::Granted(Box::new(lease))),
            LeaseState::Waiting => {}
            LeaseState::Ending | LeaseState::Ended => {
                return Err(Failure::new(format!(
                    "The lease {} ended before it began: {}",
                    lease.id, lease.reason
                )));
            }
        }
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            let text = format!("Nothing has become free in time: {}", lease.reason);
            return Err(Failure::with_status(text, TRY_LATER));
        }
        // Rounded up, so that the last request doesn't wait for nothing.
        let wait_s = left.map_or(POLL_S, |left| (left.as_millis().div_ceil(1000) as u32).clamp(1, POLL_S));
        let (asker, id, announce) = (broker.clone(), lease.id, away.is_none());
        let asked = run_aside(signals, move || {
            if announce {
                let jobs = asker.jobs()?;
                let place = jobs.iter().find(|job| job.lease == id).map_or(0, |job| job.place);
                return Ok((Some(place), asker.lease(id, 0)?));
            }
            Ok::<_, ClientError>((None, asker.lease(id, 0)?))
        })?;
        let asked = match asked {
            Aside::Interrupted(signal, _) => return Ok(Waited::Interrupted(signal)),
            Aside::Done(Ok((place, now))) => {
                if now.state == LeaseState::Waiting {
                    say_place(&mut said, place.unwrap_or(0), &now.reason);
                    let asker = broker.clone();
                    run_aside(signals, move || asker.lease(id, wait_s))?
                } else {
                    Aside::Done(Ok(now))
                }
            }
            Aside::Done(Err(error)) => Aside::Done(Err(error)),
        };
        match asked {
            Aside::Interrupted(signal, _) => return Ok(Waited::Interrupted(signal)),
            Aside::Done(Ok(now)) => {
                if away.take().is_some() {
                    eprintln!("rgpu: the broker is back");
                }
                lease = now;
            }
            Aside::Done(Err(error)) if error.is_passing() => {
                let since = *away.get_or_insert_with(|| {
                    eprintln!("rgpu: {error}; trying again");
                    Instant::now()
                });
                if since.elapsed() > PATIENCE {
                    return Err(explain(error));
                }
                if let Some(signal) = signals.wait(RETRY) {
                    return Ok(Waited::Interrupted(signal));
                }
            }
            Aside::Done(Err(error)) => return Err(explain(error)),
        }
    }
}

/// Says on stderr why the program waits, where that is news.
fn say_place(said: &mut String, place: u32, reason: &str) {
    let mut text = match place {
        0 => "waiting for GPUs".to_owned(),
        place => format!("waiting for GPUs: place {place} in the queue"),
    };
    if !reason.is_empty() {
        text += &format!(" ({})", crate::table::printable(reason));
    }
    if *said != text {
        eprintln!("rgpu: {text}");
        *said = text;
    }
}

enum Aside<T> {
    Done(T),
    /// A signal came first. The result comes here, if it comes.
    Interrupted(libc::c_int, Receiver<T>),
}

/// Runs something on a thread of its own, which a signal doesn't wait for.
fn run_aside<T: Send + 'static>(
    signals: &Held,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<Aside<T>, Failure> {
    let failed = |e: std::io::Error| Failure::new(format!("Cannot wait for the broker: {e}"));
    let woken = Woken::new().map_err(failed)?;
    let (done, results) = mpsc::channel();
    let wake = woken.waker().map_err(failed)?;
    let body = move || {
        let _ = done.send(body());
        drop(wake);
    };
    spawn_deaf("broker", body).map_err(failed)?;
    match signals.wait_for(&woken) {
        Some(signal) => Ok(Aside::Interrupted(signal, results)),
        None => match results.recv() {
            Ok(result) => Ok(Aside::Done(result)),
            Err(_) => Err(Failure::new("Asking the broker failed: this is a bug of rgpu")),
        },
    }
}

/// Gives a lease back. Does not wait for a broker that does not answer: then the lease expires. Where `ask`, says why it had
/// ended already, if so.
fn release(broker: &Broker, id: LeaseId, ask: bool) -> Option<String> {
    let (done, results) = mpsc::channel();
    let broker = broker.clone();
    let body = move || {
        let reason = if ask { why_ended(&broker, id) } else { None };
        let _ = broker.release(id);
        let _ = done.send(reason);
    };
    spawn_deaf("release", body).ok()?;
    results.recv_timeout(GOODBYE).ok().flatten()
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
pub struct Leased {
    broker: Broker,
    id: LeaseId,
    path: PathBuf,
    renewing: Arc<Renewing>,
    released: bool,
}

impl Leased {
    fn new(broker: Broker, lease: &Lease, key: &PrivateKey, directory: &Path) -> Result<Self, Failure> {
        let id = lease.id;
        let path = directory.join(format!("lease-{id}"));
        let ttl = time_to_live(lease);
        let ticket = ticket_of(lease, key).ok_or_else(|| {
            Failure::new(format!("The broker granted the lease {id} without a token for it"))
        })?;
        let cannot =
            |e: std::io::Error| Failure::new(format!("Cannot write the lease to {}: {e}", path.display()));
        ticket.write(&path).map_err(cannot)?;
        let renewing = Arc::new(Renewing::default());
        let leased = Self {
            broker: broker.clone(),
            id,
            path: path.clone(),
            renewing: renewing.clone(),
            released: false,
        };
        let body = move || renew(&broker, ticket, &path, ttl, &renewing);
        spawn_deaf("renew", body).map_err(|e| Failure::new(format!("Cannot renew the lease: {e}")))?;
        Ok(leased)
    }

    /// The environment variable by which the program learns of it.
    pub fn variable(&self) -> (&'static str, &Path) {
        (LEASE_VARIABLE, &self.path)
    }

    /// Gives it back. Where the program has failed, says why, if it was for the lease.
    pub fn finish(mut self, failed: bool) {
        let said = self.renewing.said.load(std::sync::atomic::Ordering::SeqCst);
        if let Some(reason) = self.end(failed && !said) {
            eprintln!("rgpu: the lease {} had ended: {}", self.id, crate::table::printable(&reason));
        }
    }

    fn end(&mut self, ask: bool) -> Option<String> {
        if std::mem::replace(&mut self.released, true) {
            return None;
        }
        self.renewing.finish();
        let _ = fs::remove_file(&self.path);
        let reason = release(&self.broker, self.id, ask);
        // A renewal that was under way may have written it once more.
        let _ = fs::remove_file(&self.path);
        reason
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        self.end(false);
    }
}

fn ticket_of(lease: &Lease, key: &PrivateKey) -> Option<Ticket> {
    Some(Ticket {
        lease: lease.id,
        token: lease.token.clone()?,
        key: key.to_text(),
        transport: lease.transport.clone(),
        servers: lease.servers.clone(),
        ca: lease.ca.clone(),
    })
}

/// For how long a lease is good that was just granted, by the broker's clock alone.
fn time_to_live(lease: &Lease) -> Duration {
    let ttl =
        lease.expires.zip(lease.granted).map_or(60, |(expires, granted)| expires.saturating_sub(granted));
    Duration::from_secs(ttl.clamp(1, 24 * 3600))
}

/// Renews a lease until the program has ended.
fn renew(broker: &Broker, mut ticket: Ticket, path: &Path, ttl: Duration, renewing: &Renewing) {
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
                if let Err(e) = ticket.write(path) {
                    eprintln!("rgpu: cannot write the renewed lease to {}: {e}", path.display());
                }
            }
            Err(error) if matches!(error.code(), Some(ErrorCode::Conflict | ErrorCode::NotFound)) => {
                if !renewing.wait(Duration::ZERO) {
                    eprintln!(
                        "rgpu: the lease {} has ended: {}",
                        ticket.lease,
                        crate::table::printable(&error.to_string())
                    );
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

/// Starts a thread that gets no signals. It has them blocked from its first moment: one that took the SIGCHLD by which the
/// program's end is noticed would leave the thread that waits for it waiting forever.
fn spawn_deaf(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    // SAFETY: all zeroes is a valid set; live arguments.
    let old = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut old);
        old
    };
    let thread = std::thread::Builder::new().name(name.into()).spawn(body);
    // SAFETY: the set that this thread had before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut()) };
    thread.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        lease: LeaseArguments,
    }

    fn parse(line: &str) -> Result<LeaseArguments, clap::Error> {
        Line::try_parse_from(["rgpu"].into_iter().chain(line.split_whitespace())).map(|line| line.lease)
    }

    #[test]
    fn a_request_says_what_the_options_say() {
        let line =
            "--gpus 2 --gpu-memory 4GiB --share 25% --model A --model B --traffic 1Gbit --goal 2m --node n";
        let arguments = parse(line).unwrap();
        let key = PrivateKey::generate();
        let request = arguments.request(Path::new("/bin/app"), Some("tcp".parse().unwrap()), &key);
        assert_eq!((request.gpus, request.memory, request.share_milli), (2, 4 << 30, 250));
        assert_eq!((request.models.join(","), request.transport.as_str()), ("A,B".to_owned(), "tcp"));
        assert_eq!((request.traffic_mbps, request.goal_s), (Some(1000), Some(120.0)));
        assert_eq!((request.name.as_str(), request.node.as_deref()), ("app", Some("n")));
        assert_eq!(request.holder, key.public().to_text());
        assert!(!request.now_or_never && arguments.given());
    }

    #[test]
    fn without_options_it_is_one_whole_gpu() {
        let arguments = parse("").unwrap();
        let request = arguments.request(Path::new("app"), None, &PrivateKey::generate());
        assert_eq!((request.gpus, request.memory, request.share_milli), (1, 0, 1000));
        assert!(!arguments.given());
        assert!(
            parse("--wait 0").unwrap().request(Path::new("a"), None, &PrivateKey::generate()).now_or_never
        );
        for bad in ["--gpus 0", "--share 120%", "--gpu-memory x", "--importance 11", "--now --wait 3"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn helping_threads_get_no_signals() {
        let (tell, told) = mpsc::channel();
        let blocked = || {
            // SAFETY: all zeroes is a valid set; live arguments.
            unsafe {
                let mut set: libc::sigset_t = std::mem::zeroed();
                libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut set);
                libc::sigismember(&set, libc::SIGCHLD) == 1
            }
        };
        assert!(!blocked());
        spawn_deaf("test", move || tell.send(blocked()).unwrap()).unwrap();
        assert!(told.recv().unwrap());
        assert!(!blocked(), "the thread that starts it keeps its own");
    }

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
            grants: Vec::new(),
            servers: Vec::new(),
            token: Some("t".into()),
            transport: "auto".into(),
            client_node: String::new(),
            remote: 0,
            usage: Vec::new(),
            sessions: 0,
            ca: None,
        }
    }

    #[test]
    fn the_brokers_clock_alone_says_how_long_a_lease_is_good() {
        assert_eq!(time_to_live(&lease(Some(1000), Some(1006))), Duration::from_secs(6));
        assert_eq!(time_to_live(&lease(Some(1000), Some(900))), Duration::from_secs(1));
        assert_eq!(time_to_live(&lease(None, Some(900))), Duration::from_secs(60));
        let key = PrivateKey::generate();
        assert_eq!(ticket_of(&lease(None, None), &key).unwrap().key, key.to_text());
        assert!(ticket_of(&Lease { token: None, ..lease(None, None) }, &key).is_none());
    }
}
