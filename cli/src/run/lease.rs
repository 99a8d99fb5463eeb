//! With a broker: a lease for the program, from before it starts until after it has ended.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use rgpu_control::Broker;
use rgpu_control::api::{LeaseRequest, this_machine};
use rgpu_control::request::identity;
use rgpu_control::settings::{self, DEADLINE_VARIABLE, ESTIMATE_VARIABLE, HARVEST_VARIABLE, NODE_VARIABLE};
use rgpu_control::token::PrivateKey;
use rgpu_control::units::{parse_bytes, parse_duration, parse_mbps, parse_share};
use rgpu_protocol::transport::{Choice, ENCRYPT_VARIABLE, TRANSPORT_VARIABLE};

use super::child::Held;
use super::renewal::{Leased, RETRY, Why, release};
use super::seeking::{Away, BRIEFLY, PATIENCE, SILENCE, Seeker, Waited, first_unreachable};
use super::threads::{Interruptible, run_interruptibly};
use crate::Failure;
use crate::control::{BrokerArguments, TRY_LATER};

/// What to ask a broker for.
#[derive(clap::Args, Debug, Clone)]
pub(super) struct LeaseArguments {
    #[command(flatten)]
    broker: BrokerArguments,
    /// How many GPUs; 0 with --nvme alone [default: 1]
    #[arg(long, value_name = "N", help_heading = "With a broker")]
    gpus: Option<u16>,
    /// Memory of each GPU, such as 4GiB [default: that part of it which --share is of its time]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, help_heading = "With a broker")]
    gpu_memory: Option<u64>,
    /// Share of each GPU's time, such as 25%; `auto` is the least that keeps the deadline, which the broker chooses [default: 100%]
    #[arg(long, value_name = "SHARE", value_parser = parse_share_or_auto, help_heading = "With a broker")]
    pub share: Option<u16>,
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
    /// How long from now until the program is to have ended, waiting included, such as 10m [default: RGPU_DEADLINE]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "With a broker")]
    deadline: Option<Duration>,
    /// How long the program would run alone on whole GPUs of this machine, such as 2m [default: RGPU_ESTIMATE, else what was learnt]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "With a broker")]
    estimate: Option<Duration>,
    /// Traffic that each remote GPU is going to make, such as 200Mbit [default: the profile's]
    #[arg(long, value_name = "RATE", value_parser = parse_mbps, help_heading = "With a broker")]
    traffic: Option<u64>,
    /// How many NVMe devices, besides; RGPU_NVME_DEVICES tells the program where they are
    #[arg(long, value_name = "N", help_heading = "With a broker")]
    nvme: Option<u16>,
    /// The least capacity of each NVMe device, such as 100G
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, requires = "nvme", help_heading = "With a broker")]
    nvme_capacity: Option<u64>,
    /// The least bandwidth of each NVMe device, such as 20Gbit
    #[arg(long, value_name = "RATE", value_parser = parse_mbps, requires = "nvme", help_heading = "With a broker")]
    nvme_bandwidth: Option<u64>,
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
    /// Let the broker resize the lease by what the program uses: GPU time that it leaves is lent to others, and it gets what they leave
    /// [default: RGPU_HARVEST]
    #[arg(long, help_heading = "With a broker")]
    harvest: bool,
    /// Which of the cluster's nodes this machine is [default: RGPU_NODE, else the broker recognises it]
    #[arg(long, value_name = "NAME", help_heading = "With a broker")]
    node: Option<String>,
    /// Only GPUs of this node of the cluster, for trying things out; else the broker decides, which knows what is loaded
    #[arg(long, value_name = "NAME", help_heading = "With a broker")]
    pub on_node: Option<String>,
    /// A name for the lease, for people [default: the program's]
    #[arg(long, value_name = "NAME", help_heading = "With a broker")]
    name: Option<String>,
}

fn parse_importance(text: &str) -> Result<f64, String> {
    let problem = || format!("{text:?} is no importance from 1 to 10");
    let number: f64 = text.parse().map_err(|_| problem())?;
    (1.0..=10.0).contains(&number).then_some(number).ok_or_else(problem)
}

/// A share in thousandths; 0 is for `auto`.
fn parse_share_or_auto(text: &str) -> Result<u16, String> {
    match text.trim() {
        "auto" => Ok(0),
        text => parse_share(text).map_err(|e| format!("{e}, or `auto`")),
    }
}

/// A time that an option gives, or else a variable.
fn time(option: Option<Duration>, variable: &str) -> Result<Option<Duration>, Failure> {
    let said = || settings::text(variable);
    let parse =
        |text: String| parse_duration(&text).map_err(|e| Failure::with_status(format!("{variable}: {e}"), 2));
    option.map(Ok).or_else(|| said().map(parse)).transpose()
}

impl LeaseArguments {
    /// Whether a lease was asked for on the command line.
    pub(super) fn given(&self) -> bool {
        self.broker.given() || self.needs().is_some()
    }

    /// The same at a node and with a share, in thousandths; where nothing is said of waiting, it waits for so many seconds.
    pub(super) fn at(&self, node: Option<String>, share: u16, wait_s: u32) -> Self {
        let wait = self.wait.or((!self.now).then_some(wait_s));
        Self { on_node: node, share: Some(share), wait, ..self.clone() }
    }

    /// Prepares to speak to the broker.
    pub(super) fn connect(&self) -> Result<Broker, Failure> {
        self.broker.connect()
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
            (self.deadline.is_some(), "--deadline"),
            (self.estimate.is_some(), "--estimate"),
            (self.traffic.is_some(), "--traffic"),
            (self.nvme.is_some(), "--nvme"),
            (self.harvest, "--harvest"),
            (self.now, "--now"),
            (self.wait.is_some(), "--wait"),
            (self.node.is_some(), "--node"),
            (self.on_node.is_some(), "--on-node"),
            (self.name.is_some(), "--name"),
        ]
        .into_iter()
        .find_map(|(given, name)| given.then_some(name))
    }

    /// The request, but for its deadline, which comes nearer while the broker is asked.
    fn request(
        &self,
        command: &[OsString],
        transport: Option<Choice>,
        key: &PrivateKey,
    ) -> Result<LeaseRequest, Failure> {
        if self.gpus == Some(0) && self.nvme.unwrap_or(0) == 0 {
            return Err(Failure::with_status("--gpus 0 asks for nothing without --nvme", 2));
        }
        let (program, input) = identity(command);
        let transport =
            transport.map(|choice| choice.name().to_owned()).or_else(|| settings::text(TRANSPORT_VARIABLE));
        Ok(LeaseRequest {
            name: self.name.clone().unwrap_or_else(|| program.clone()),
            gpus: self.gpus.unwrap_or(1),
            memory: self.gpu_memory.unwrap_or(0),
            share_milli: self.share.unwrap_or(1000),
            models: self.model.clone(),
            machine: this_machine(),
            node: self.node.clone().or_else(|| settings::text(NODE_VARIABLE)),
            holder: key.public().to_text(),
            transport: transport.unwrap_or_else(|| "auto".into()),
            profile: self.profile.clone(),
            program: Some(program),
            input: Some(input),
            scale: None,
            goal_s: self.goal.map(|goal| goal.as_secs_f64()),
            importance: self.importance,
            deadline_s: None,
            estimate_s: time(self.estimate, ESTIMATE_VARIABLE)?.map(|estimate| estimate.as_secs_f64()),
            traffic_mbps: self.traffic,
            nvmes: self.nvme.unwrap_or(0),
            nvme_capacity: self.nvme_capacity.unwrap_or(0),
            nvme_bandwidth_mbps: self.nvme_bandwidth.unwrap_or(0),
            wait_s: self.wait.map_or(SILENCE.as_secs() as u32, |wait| wait.min(SILENCE.as_secs() as u32)),
            now_or_never: self.now || self.wait == Some(0),
            encrypt: self.encrypt || settings::is_on(ENCRYPT_VARIABLE),
            on_node: self.on_node.clone(),
            harvest: self.harvest || settings::is_on(HARVEST_VARIABLE),
            key: None,
            on_behalf_of: None,
        })
    }
}

/// What came of asking for a lease.
pub(super) enum Asked {
    /// It was granted.
    Granted(Leased),
    /// A signal came first; it was given back.
    Interrupted(libc::c_int),
}

/// Asks for a lease, waits for its grant, and writes its ticket. A broker that is away is waited for; and where a server of the
/// lease cannot be reached, the lease is given back and another one asked for.
pub(super) fn obtain(
    arguments: &LeaseArguments,
    command: &[OsString],
    transport: Option<Choice>,
    signals: &Held,
) -> Result<Asked, Failure> {
    let broker = arguments.connect()?;
    let end = arguments.wait.map(|wait| Instant::now() + Duration::from_secs(wait.into()));
    let patience = if arguments.now { BRIEFLY } else { PATIENCE };
    let deadline = time(arguments.deadline, DEADLINE_VARIABLE)?;
    let deadline = deadline.and_then(|deadline| Instant::now().checked_add(deadline));
    let mut seeker = Seeker { broker: &broker, signals, end, deadline, away: Away::new(patience, end) };
    let mut unreached: Option<Instant> = None;
    loop {
        let key = PrivateKey::generate();
        let lease = match seeker.lease(&arguments.request(command, transport, &key)?)? {
            Waited::Granted(lease) => lease,
            Waited::Interrupted(signal) => return Ok(Asked::Interrupted(signal)),
        };
        let id = lease.id;
        let give_back = || release(&broker, id, Why::Unused);
        let servers = lease.servers.clone();
        match run_interruptibly(signals, move || first_unreachable(&servers)) {
            Ok(Interruptible::Done(None)) => {}
            Ok(Interruptible::Done(Some(why))) => {
                give_back();
                let since = *unreached.get_or_insert_with(Instant::now);
                let late = end.is_some_and(|end| Instant::now() >= end);
                if late || arguments.now || since.elapsed() > PATIENCE {
                    let text = format!("{why}, and the broker offers no others. Is a firewall in between?");
                    return Err(Failure::with_status(text, TRY_LATER));
                }
                eprintln!("rgpu: {why}: asking for other GPUs");
                // The broker notices by itself that a server has gone, after a few seconds.
                if let Some(signal) = signals.wait(2 * RETRY) {
                    return Ok(Asked::Interrupted(signal));
                }
                continue;
            }
            Ok(Interruptible::Interrupted(signal, _)) => {
                give_back();
                return Ok(Asked::Interrupted(signal));
            }
            Err(failure) => {
                give_back();
                return Err(failure);
            }
        }
        let lease = match seeker.attached(lease) {
            Ok(Waited::Granted(lease)) => lease,
            Ok(Waited::Interrupted(signal)) => return Ok(Asked::Interrupted(signal)),
            Err(failure) => return Err(failure),
        };
        return match Leased::new(broker.clone(), &lease, &key) {
            Ok(leased) => Ok(Asked::Granted(leased)),
            Err(failure) => {
                give_back();
                Err(failure)
            }
        };
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
        let line = "--gpus 2 --gpu-memory 4GiB --share 25% --model A --model B --traffic 1Gbit --goal 2m --node n --on-node m";
        let arguments = parse(line).unwrap();
        let key = PrivateKey::generate();
        let request =
            arguments.request(&[OsString::from("/bin/app")], Some("tcp".parse().unwrap()), &key).unwrap();
        assert_eq!((request.gpus, request.memory, request.share_milli), (2, 4 << 30, 250));
        assert_eq!((request.models.join(","), request.transport.as_str()), ("A,B".to_owned(), "tcp"));
        assert_eq!((request.traffic_mbps, request.goal_s), (Some(1000), Some(120.0)));
        assert_eq!((request.name.as_str(), request.node.as_deref()), ("app", Some("n")));
        assert_eq!((request.holder, request.on_node.as_deref()), (key.public().to_text(), Some("m")));
        assert!(!request.now_or_never && arguments.given());
    }

    #[test]
    fn without_options_it_is_one_whole_gpu() {
        let arguments = parse("").unwrap();
        let request = arguments.request(&[OsString::from("app")], None, &PrivateKey::generate()).unwrap();
        assert_eq!((request.gpus, request.memory, request.share_milli), (1, 0, 1000));
        assert!(!arguments.given());
        assert!(
            parse("--wait 0")
                .unwrap()
                .request(&[OsString::from("a")], None, &PrivateKey::generate())
                .unwrap()
                .now_or_never
        );
        let timed = parse("--share auto --deadline 10m --estimate 2m").unwrap();
        let request = timed.request(&[OsString::from("a")], None, &PrivateKey::generate()).unwrap();
        assert_eq!((request.share_milli, request.estimate_s), (0, Some(120.0)));
        assert_eq!((timed.deadline, timed.needs()), (Some(Duration::from_secs(600)), Some("--share")));
        let key = PrivateKey::generate();
        assert!(parse("--gpus 0").unwrap().request(&[OsString::from("a")], None, &key).is_err());
        let nvmes = parse("--gpus 0 --nvme 2 --nvme-capacity 100G --nvme-bandwidth 20Gbit").unwrap();
        let request = nvmes.request(&[OsString::from("a")], None, &key).unwrap();
        assert_eq!((request.gpus, request.nvmes), (0, 2));
        assert_eq!((request.nvme_capacity, request.nvme_bandwidth_mbps), (100 << 30, 20_000));
        for bad in [
            "--nvme-capacity 1G",
            "--deadline soon",
            "--share some",
            "--share 120%",
            "--gpu-memory x",
            "--importance 11",
            "--now --wait 3",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
