//! With a broker: a lease for the program, from before it starts until after it has ended.

use std::path::Path;
use std::time::{Duration, Instant};

use rgpu_control::api::{Lease, LeaseRequest, LeaseState, this_machine};
use rgpu_control::ticket;
use rgpu_control::token::PrivateKey;
use rgpu_control::units::{parse_bytes, parse_duration, parse_mbps, parse_share};
use rgpu_control::{Broker, ClientError, NODE_VARIABLE, settings};
use rgpu_protocol::transport::{Choice, ENCRYPT_VARIABLE, TRANSPORT_VARIABLE};

use super::child::Held;
use super::renewal::{Leased, RELEASE_TIME, RETRY, release};
use super::threads::{Interruptible, run_interruptibly};
use crate::Failure;
use crate::control::{BrokerArguments, TRY_LATER, explain};

/// What to ask a broker for.
#[derive(clap::Args, Debug)]
pub(super) struct LeaseArguments {
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
/// How long a broker may be away while a program waits in its queue.
const PATIENCE: Duration = Duration::from_secs(60);
impl LeaseArguments {
    /// Whether a lease was asked for on the command line.
    pub(super) fn given(&self) -> bool {
        self.broker.given() || self.needs().is_some()
    }

    /// Whether a broker is known.
    pub(super) fn broker_known(&self) -> bool {
        self.broker.url().is_some()
    }

    /// The first option that makes sense with a broker only.
    pub(super) fn needs(&self) -> Option<&'static str> {
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
pub(super) enum Asked {
    /// It was granted.
    Granted(Leased),
    /// A signal came first; it was given back.
    Interrupted(libc::c_int),
}

/// Asks for a lease, waits for its grant, and writes its ticket.
pub(super) fn obtain(
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
        run_interruptibly(signals, move || broker.request_lease(&request))?
    };
    let lease = match asked {
        Interruptible::Done(lease) => lease.map_err(explain)?,
        Interruptible::Interrupted(signal, rest) => {
            // The broker may have made it by now: it has to be given back, so its id has to be known.
            if let Ok(Ok(lease)) = rest.recv_timeout(SILENCE + RELEASE_TIME) {
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
        let asked = run_interruptibly(signals, move || {
            if announce {
                let jobs = asker.jobs()?;
                let place = jobs.iter().find(|job| job.lease == id).map_or(0, |job| job.place);
                return Ok((Some(place), asker.lease(id, 0)?));
            }
            Ok::<_, ClientError>((None, asker.lease(id, 0)?))
        })?;
        let asked = match asked {
            Interruptible::Interrupted(signal, _) => return Ok(Waited::Interrupted(signal)),
            Interruptible::Done(Ok((place, now))) => {
                // It has answered: whatever comes next is another absence.
                if away.take().is_some() {
                    eprintln!("rgpu: the broker is back");
                }
                if now.state == LeaseState::Waiting {
                    say_place(&mut said, place.unwrap_or(0), &now.reason);
                    let asker = broker.clone();
                    run_interruptibly(signals, move || asker.lease(id, wait_s))?
                } else {
                    Interruptible::Done(Ok(now))
                }
            }
            Interruptible::Done(Err(error)) => Interruptible::Done(Err(error)),
        };
        match asked {
            Interruptible::Interrupted(signal, _) => return Ok(Waited::Interrupted(signal)),
            Interruptible::Done(Ok(now)) => {
                if away.take().is_some() {
                    eprintln!("rgpu: the broker is back");
                }
                lease = now;
            }
            Interruptible::Done(Err(error)) if error.is_passing() => {
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
            Interruptible::Done(Err(error)) => return Err(explain(error)),
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
}
