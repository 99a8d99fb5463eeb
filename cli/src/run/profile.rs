//! `rgpu profile`: runs a program a few times in different places, so that a broker learns what it is like.
//!
//! Each run is one of `rgpu run`'s, with a lease of its own; the broker is asked for a certain node and share. What it learns
//! of them is what it learns of any run.

use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rgpu_control::Broker;
use rgpu_control::api::{Device, LearntProfile, Lease, Node};
use rgpu_control::request::identity;
use rgpu_control::settings::{self, NODE_VARIABLE};
use rgpu_control::units::{self, parse_duration};
use rgpu_protocol::transport::Choice;

use super::child::{self, Ended, Held};
use super::lease::{self, Asked, LeaseArguments};
use super::threads::spawn_without_signals;
use super::{DeviceSource, cannot_start, container, prepare};
use crate::control::explain;
use crate::profiles::{csv, table};
use crate::table::{Table, print_lines, printable};
use crate::{Failure, Outcome};

/// A broker that remembers more runs of a program forgets the oldest ones: their number does not rise any more.
const REMEMBERED: u32 = 32;
/// How long a run waits for its place, in seconds: the devices of the run before must be given back first.
const WAIT_S: u32 = 15;
/// How long it may take until the broker has learnt from the last run: its node has to say what it used.
const LEARNING: Duration = Duration::from_secs(15);

/// Run a program a few times in different places, so that the broker learns what it is like.
///
/// The first run is where the broker puts it; the next ones are in its own machine, where that is a node, and in the others, those behind
/// links of other speeds first, and then with half the share. The program must do the same each time, and should take some
/// seconds. What it writes to its output goes to the standard error.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    rgpu profile --broker http://broker:7080 --broker-token-file token -- ./train --steps 100\n  \
    rgpu profile --runs 8 --time-limit 5m -- python3 train.py\n  \
    rgpu profile --csv -- ./train > profiles.csv")]
pub(crate) struct Arguments {
    /// How many runs there are at most
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// How long all of them may take, such as 5m: the run that is under way then is asked to end (SIGTERM), and teaches nothing
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    time_limit: Duration,
    /// Print only what was learnt, as `rgpu sim --profiles` reads it
    #[arg(long)]
    csv: bool,
    #[arg(long, value_name = "KIND", help = Choice::help("How to talk to the servers"))]
    transport: Option<Choice>,
    #[command(flatten)]
    lease: LeaseArguments,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Where a run is to be, and with which share of the GPU's time, in thousandths.
#[derive(Clone, Debug, PartialEq)]
struct Place {
    /// A node; `None` is wherever the broker puts it.
    node: Option<String>,
    share: u16,
}

/// What came of a run.
struct Run {
    place: Place,
    /// Its lease, where there was one.
    lease: Option<Lease>,
    seconds: f64,
    /// `Ok` where its program ended well.
    outcome: Result<(), String>,
}

/// Runs the program here and there, and says what was learnt.
pub(crate) fn main(arguments: Arguments) -> Outcome {
    let broker = arguments.lease.connect()?;
    let (nodes, devices) = (broker.nodes().map_err(explain)?, broker.devices().map_err(explain)?);
    let (program, input) = identity(&container::program_of(&arguments.command)?);
    let known = |profiles: &[LearntProfile]| {
        profiles.iter().find(|profile| profile.program == program).map_or(0, |profile| profile.runs)
    };
    let before = known(&broker.profiles().map_err(explain)?);
    let held = Held::new().map_err(|e| Failure::new(format!("Cannot wait for signals: {e}")))?;
    let limit = Limit::start(arguments.time_limit)?;
    let (runs, stopped) = explore(&arguments, &nodes, &devices, &held, &limit)?;
    limit.lift();
    let lines = runs_table(&runs, &nodes).lines();
    match arguments.csv {
        true => lines.iter().for_each(|line| eprintln!("{line}")),
        false => print_lines(&lines),
    }
    if let Some(why) = &stopped {
        eprintln!("rgpu: no more runs: {why}");
    }
    let good = runs.iter().filter(|run| run.outcome.is_ok()).count() as u32;
    if good == 0 {
        return Err(Failure::new(format!("Nothing was learnt of {program}: no run of it has ended well")));
    }
    let expected = (before + good).min(REMEMBERED.max(before));
    let learnt = wait_until_learnt(&broker, &program, expected, &held)?;
    let Some(profile) = learnt else {
        return Err(Failure::new(format!(
            "Nothing was learnt of {program}: runs teach nothing that are over at once, or never use a GPU"
        )));
    };
    let missing = expected.saturating_sub(profile.runs);
    if missing > 0 {
        eprintln!(
            "rgpu: of {good} runs, {missing} taught nothing: they were over at once, never used a GPU, or their node's link was not \
             watched for most of their time"
        );
    }
    let profiles = [profile];
    match arguments.csv {
        true => print_lines(&csv(&profiles)),
        false => {
            println!("\nWhat the broker has learnt of {} in {} runs:", printable(&program), profiles[0].runs);
            table(&profiles).print();
            print_lines(&advice(&profiles[0], input, &runs));
        }
    }
    // A program that failed fails the command, as `rgpu run` would.
    match runs.last().map(|run| &run.outcome) {
        Some(Err(_)) if stopped.is_some() => Ok(ExitCode::FAILURE),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Ends the run under way when the time is over.
struct Limit {
    /// The time is over.
    over: Arc<AtomicBool>,
    /// Nobody is to be stopped any more.
    lifted: Arc<AtomicBool>,
}

impl Limit {
    fn start(time: Duration) -> Result<Self, Failure> {
        let limit = Self { over: Arc::default(), lifted: Arc::default() };
        let (over, lifted) = (limit.over.clone(), limit.lifted.clone());
        let body = move || {
            std::thread::sleep(time);
            over.store(true, Ordering::SeqCst);
            if !lifted.load(Ordering::SeqCst) {
                // SAFETY: plain calls. The signal is held back in this process, which passes it on to the program that runs.
                unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
            }
        };
        spawn_without_signals("limit", body)
            .map_err(|e| Failure::new(format!("Cannot watch the time: {e}")))?;
        Ok(limit)
    }

    fn lift(&self) {
        self.lifted.store(true, Ordering::SeqCst);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

/// Makes the runs. Says, too, why there were fewer than wanted, where something stopped them.
fn explore(
    arguments: &Arguments,
    nodes: &[Node],
    devices: &[Device],
    held: &Held,
    limit: &Limit,
) -> Result<(Vec<Run>, Option<String>), Failure> {
    let share = arguments.lease.share.unwrap_or(1000);
    let wanted = arguments.lease.on_node.clone();
    let mut places = VecDeque::from([Place { node: wanted.clone(), share }]);
    let mut runs: Vec<Run> = Vec::new();
    let mut stopped = None;
    while runs.len() < arguments.runs as usize {
        let Some(place) = places.pop_front() else { break };
        let time_over =
            || format!("the time limit of {} is over", units::seconds(arguments.time_limit.as_secs()));
        if limit.is_over() {
            stopped = Some(time_over());
            break;
        }
        let name = place.node.as_deref().unwrap_or("any node");
        eprintln!(
            "rgpu: run {} of {}: {} of a GPU of {}",
            runs.len() + 1,
            arguments.runs,
            units::percent(place.share.into()),
            printable(name)
        );
        let (run, interrupted) = run_at(arguments, place, held)?;
        let failed = run.lease.is_some().then(|| run.outcome.clone().err()).flatten();
        runs.push(run);
        if interrupted || failed.is_some() {
            let why = failed.unwrap_or_else(|| "a signal came".into());
            stopped = Some(if limit.is_over() { time_over() } else { why });
            break;
        }
        if places.is_empty() {
            let seen: HashSet<(String, u16)> =
                runs.iter().filter_map(|run| Some((node_of(run)?, run.place.share))).collect();
            let home = runs.iter().find_map(|run| run.lease.as_ref()).map(|lease| lease.client_node.clone());
            let home = home.or_else(|| settings::text(NODE_VARIABLE));
            let first = runs.len() == 1;
            let next = plan(nodes, devices, wanted.as_deref(), home.as_deref(), share);
            // The first time, not where the broker has put it already.
            let is_new = |place: &Place| {
                !first || place.node.as_ref().is_none_or(|node| !seen.contains(&(node.clone(), place.share)))
            };
            places.extend(next.into_iter().filter(is_new));
        }
    }
    Ok((runs, stopped))
}

fn node_of(run: &Run) -> Option<String> {
    run.lease.as_ref()?.grants.first().map(|grant| grant.node.clone())
}

/// The places that are worth a run: each node with the whole share, the program's own first, then one behind each kind of link, then the
/// others; and the same with half the share, where GPUs can be shared.
fn plan(
    nodes: &[Node],
    devices: &[Device],
    wanted: Option<&str>,
    home: Option<&str>,
    share: u16,
) -> Vec<Place> {
    let serves = |node: &&Node| {
        node.state == "ready" && node.devices > 0 && wanted.is_none_or(|wanted| wanted == node.name)
    };
    let mut ready: Vec<&Node> = nodes.iter().filter(serves).collect();
    ready.sort_by(|a, b| (home != Some(&a.name), &a.name).cmp(&(home != Some(&b.name), &b.name)));
    let mut links = HashSet::new();
    let (first, rest): (Vec<&Node>, Vec<&Node>) =
        ready.into_iter().partition(|node| home == Some(&node.name) || links.insert(node.nic_mbps));
    let ordered: Vec<&Node> = first.into_iter().chain(rest).collect();
    let place = |node: &&Node, share| Place { node: Some(node.name.clone()), share };
    let can_share =
        |node: &&&Node| devices.iter().any(|device| device.node == node.name && device.report.partitionable);
    let halves = ordered.iter().filter(can_share).map(|node| place(node, share / 2));
    let halves: Vec<Place> = halves.filter(|place| place.share > 0).collect();
    ordered.iter().map(|node| place(node, share)).chain(halves).collect()
}

/// One run at a place, and whether a signal came before it.
fn run_at(arguments: &Arguments, place: Place, held: &Held) -> Result<(Run, bool), Failure> {
    let lease = arguments.lease.at(place.node.clone(), place.share, WAIT_S);
    let run = super::Arguments::leased(lease, arguments.transport, arguments.command.clone());
    let mut prepared = prepare(&run, DeviceSource::Leased)?;
    prepared.command.stdout(std::io::stderr());
    let none = |place, why: String| Run { place, lease: None, seconds: 0.0, outcome: Err(why) };
    let leased = match lease::obtain(&run.lease, prepared.program(&run), run.transport, held) {
        Ok(Asked::Granted(leased)) => leased,
        Ok(Asked::Interrupted(_)) => return Ok((none(place, "interrupted".into()), true)),
        // A place that is not to be had is no reason to give up the others.
        Err(failure) => return Ok((none(place, format!("not available: {}", failure.message)), false)),
    };
    prepared.hand_over(Some(&leased))?;
    let began = Instant::now();
    let ended =
        child::run(&mut prepared.command, Some(held)).map_err(|e| cannot_start(&run.command[0], &e))?;
    let seconds = began.elapsed().as_secs_f64();
    let lease = leased.lease().clone();
    leased.finish(ended != Ended::Status(0));
    let outcome = match ended {
        Ended::Status(0) => Ok(()),
        Ended::Status(status) => Err(format!("the program failed with status {status}")),
        Ended::Signal(signal) => Err(format!("the program died of signal {signal}")),
    };
    Ok((Run { place, lease: Some(lease), seconds, outcome }, false))
}

/// What is known of the program once so many runs count, or when that takes too long.
fn wait_until_learnt(
    broker: &Broker,
    program: &str,
    runs: u32,
    held: &Held,
) -> Result<Option<LearntProfile>, Failure> {
    let until = Instant::now() + LEARNING;
    loop {
        let profiles = broker.profiles().map_err(explain)?;
        let profile = profiles.into_iter().find(|profile| profile.program == program);
        let is_known = profile.as_ref().is_some_and(|profile| profile.runs >= runs);
        if is_known || Instant::now() >= until || held.wait(Duration::from_millis(250)).is_some() {
            return Ok(profile);
        }
    }
}

/// The runs, a line for each.
fn runs_table(runs: &[Run], nodes: &[Node]) -> Table {
    let titles = &["RUN", "WHERE", "LINK", "SHARE", "SECONDS", "OUTCOME"];
    let mut table = Table::new(titles, &[0, 3, 4]);
    for (number, run) in (1..).zip(runs) {
        let at = node_of(run).or_else(|| run.place.node.clone());
        let link = || {
            let lease = run.lease.as_ref()?;
            let node = nodes.iter().find(|node| Some(&node.name) == at.as_ref())?;
            Some(match lease.remote {
                0 => "local".to_owned(),
                _ => units::rate(node.nic_mbps as f64),
            })
        };
        table.row([
            number.to_string(),
            run.lease
                .as_ref()
                .map_or_else(|| at.clone().unwrap_or_else(|| "-".into()), crate::leases::places),
            link().unwrap_or_else(|| "-".into()),
            units::percent(run.place.share.into()),
            if run.lease.is_some() { format!("{:.2}", run.seconds) } else { "-".into() },
            run.outcome.as_ref().map_or_else(Clone::clone, |()| "ended well".into()),
        ]);
    }
    table
}

/// What follows from what was learnt: what to ask for, and what to write into the broker's configuration.
fn advice(profile: &LearntProfile, input: u64, runs: &[Run]) -> Vec<String> {
    let mut lines = Vec::new();
    let good = || runs.iter().filter(|run| run.outcome.is_ok()).filter_map(|run| run.lease.as_ref());
    let local = good().any(|lease| lease.remote == 0);
    if !local || good().all(|lease| lease.remote == 0) {
        let (seen, other) = if local { ("local", "remote") } else { ("remote", "local") };
        lines.push(format!(
            "All runs were {seen}: how they compare with {other} ones is guessed from their traffic and from other programs."
        ));
    }
    lines.push(
        "How it fares beside others' traffic (SENSITIVITY) shows only in runs while there is some.".into(),
    );
    if let Some(memory) = profile.memory {
        let enough = units::bytes((memory.mean + 2.0 * memory.deviation).ceil() as u64);
        lines.push(format!(
            "Each of its GPUs needs about {} of memory ({enough} to be sure).",
            units::bytes(memory.mean as u64)
        ));
    }
    if let Some(share) = profile.share_milli {
        lines.push(format!(
            "It keeps {:.0}% ±{:.0}% of a whole GPU busy: a smaller share makes it slower.",
            share.mean / 10.0,
            share.deviation / 10.0
        ));
    }
    if let Some(time) = profile.local_s.get(&input.to_string()) {
        lines.push(String::new());
        lines.push(match profile.written {
            true => "The broker's configuration has a profile of that name, which counts. What was learnt would be:".into(),
            false => "The broker uses what it has learnt. To fix it, write into the broker's configuration:".into(),
        });
        lines.push("[[profile]]".into());
        lines.push(format!("name = {:?}", profile.program));
        lines.push(format!("local_s = {:.3}", time.mean));
        lines.push(format!("remote_s = {:.3}", time.mean * profile.slowdown.mean));
        lines.push(format!("sensitivity = {:.3}", profile.sensitivity.mean));
        if let Some(traffic) = profile.traffic_mbps {
            lines.push(format!("traffic_mbps = {:.0}", traffic.mean.ceil()));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::example;

    fn node(name: &str, mbps: u64, state: &str) -> Node {
        Node {
            name: name.into(),
            nic_mbps: mbps,
            state: state.into(),
            devices: 1,
            ..example().nodes[0].clone()
        }
    }

    fn device(node: &str, partitionable: bool) -> Device {
        let mut device = Device { node: node.into(), ..example().devices[0].clone() };
        device.report.partitionable = partitionable;
        device
    }

    #[test]
    fn every_kind_of_link_comes_before_the_second_of_one() {
        let nodes = [
            node("a", 1000, "ready"),
            node("b", 1000, "ready"),
            node("c", 200, "ready"),
            node("d", 1000, "ready"),
            node("e", 10, "lost"),
        ];
        let devices = ["a", "b", "c", "d"].map(|name| device(name, name != "b"));
        let names = |places: &[Place], share| -> Vec<String> {
            places.iter().filter(|p| p.share == share).filter_map(|p| p.node.clone()).collect()
        };
        let places = plan(&nodes, &devices, None, Some("d"), 1000);
        assert_eq!(names(&places, 1000), ["d", "a", "c", "b"]);
        assert_eq!(names(&places, 500), ["d", "a", "c"], "what cannot be shared is not");
        assert_eq!(names(&plan(&nodes, &devices, Some("c"), None, 400), 400), ["c"]);
        assert!(plan(&nodes[4..], &devices, None, None, 1000).is_empty());
    }

    #[test]
    fn what_to_write_into_the_configuration_is_said() {
        let of = |mean| rgpu_control::api::Quantity { mean, deviation: mean / 10.0 };
        let profile = LearntProfile {
            program: "train".into(),
            tenant: "ann".into(),
            runs: 4,
            last: 0,
            slowdown: of(1.25),
            sensitivity: of(0.5),
            local_s: [("7".to_owned(), of(8.0))].into(),
            traffic_mbps: Some(of(99.5)),
            memory: Some(of(1e9)),
            share_milli: Some(of(400.0)),
            written: false,
        };
        let lines = advice(&profile, 7, &[]).join("\n");
        for part in
            ["name = \"train\"", "local_s = 8.000", "remote_s = 10.000", "traffic_mbps = 100", "40% ±4%"]
        {
            assert!(lines.contains(part), "{part}: {lines}");
        }
        assert!(!advice(&profile, 8, &[]).join("\n").contains("local_s"), "another input's time");
    }

    #[test]
    fn a_place_that_was_not_to_be_had_is_a_line_of_the_table() {
        let place = Place { node: Some("s1".into()), share: 500 };
        let run =
            Run { place, lease: None, seconds: 0.0, outcome: Err("not available: all are taken".into()) };
        let lines = runs_table(&[run], &[]).lines();
        for part in ["s1", "50%", "not available: all are taken"] {
            assert!(lines[1].contains(part), "{lines:?}");
        }
    }
}
