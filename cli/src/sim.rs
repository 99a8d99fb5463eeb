//! `rgpu sim`: what policies make of clusters and workloads, in simulated time.

mod grid;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use rgpu_control::units::{parse_duration, parse_part};
use rgpu_placement::policy::{MAX_REMOTE_SHARE, NETWORK_AWARE, PolicyConfig, PolicyTable, Setting, Value};
use rgpu_simulator::allocation::Arrivals;
use rgpu_simulator::papers::{self, PAPERS};
use rgpu_simulator::study::{self, Input, Source, Study};
use rgpu_simulator::{Assumptions, Micros, Mix, Rounds, Trials, Workload, allocation, report, statistics};

use crate::{Failure, Outcome};

/// Simulate the placement of jobs on clusters
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    rgpu sim run --cluster cluster.csv --jobs jobs.csv --policy drmaestro,firmament --explain train-3\n  \
    rgpu sim run --cluster cluster.csv --generate 4096 --rate 16 --policy fgd --plots plots\n  \
    rgpu sim openb --nodes nodes.csv --pods pods.csv --policy fgd,drmaestro --demand 1.3 --seeds 10 --json out.json\n  \
    rgpu sim grid --cluster cluster.csv --workload generate:512 --policy drmaestro,fgd --out report\n  \
    rgpu sim paper drmaestro --table 5")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Run(Run),
    Openb(Openb),
    Grid(grid::Arguments),
    Paper(Paper),
}

/// Simulate a list of jobs, or made-up ones, on a cluster
#[derive(clap::Args)]
struct Run {
    /// Nodes, one a row
    #[arg(long, value_name = "CSV")]
    cluster: PathBuf,
    /// Switches, one a row
    #[arg(long, value_name = "CSV")]
    switches: Option<PathBuf>,
    /// Jobs, one a row
    #[arg(long, value_name = "CSV", required_unless_present = "generate")]
    jobs: Option<PathBuf>,
    /// Make up so many jobs of the profiles' kinds instead
    #[arg(long, value_name = "JOBS", conflicts_with = "jobs")]
    generate: Option<usize>,
    /// Draw the kinds of made-up jobs from a normal distribution instead of a uniform one
    #[arg(long, requires = "generate")]
    normal: bool,
    /// The objective of made-up jobs, as a multiple of the time that they take alone
    #[arg(long, value_name = "FACTOR", requires = "generate")]
    goal: Option<f64>,
    /// Profiles of the jobs' kinds [default: the eight Rodinia programs]
    #[arg(long, value_name = "CSV")]
    profiles: Option<PathBuf>,
    /// Arrivals a second, as a Poisson process [default: the times in the file; 16 for made-up jobs]
    #[arg(long, value_name = "RATE")]
    rate: Option<f64>,
    /// When the scheduler is called: an interval like 1s or 500ms, or on-change
    #[arg(long, value_name = "WHEN", default_value = "1s", value_parser = parse_rounds)]
    rounds: Rounds,
    /// For everything that is drawn by lot
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Explain the last decision about these jobs
    #[arg(long, value_name = "JOB", num_args = 1.., value_delimiter = ',')]
    explain: Vec<String>,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write each job's times and the cluster over time
    #[arg(long, value_name = "FOLDER")]
    csv: Option<PathBuf>,
    /// Draw GPUs over time, job times and scheduler times
    #[arg(long, value_name = "FOLDER")]
    plots: Option<PathBuf>,
    #[command(flatten)]
    policies: Policies,
    #[command(flatten)]
    assumptions: AssumptionArguments,
}

/// Place a trace's pods until the GPUs are given away
#[derive(clap::Args)]
struct Openb {
    /// The trace's node list
    #[arg(long, value_name = "CSV")]
    nodes: PathBuf,
    /// The trace's pod list
    #[arg(long, value_name = "CSV")]
    pods: PathBuf,
    /// Stop when the pods that came want so many times the GPUs that there are
    #[arg(long, value_name = "FACTOR", default_value_t = 1.3)]
    demand: f64,
    /// How many random orders to try
    #[arg(long, value_name = "N", default_value_t = 10)]
    seeds: u64,
    /// How pods come
    #[arg(long, value_enum, default_value_t = ArrivalArgument::AtOnce)]
    arrivals: ArrivalArgument,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw GPUs allocated against demand
    #[arg(long, value_name = "SVG")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    policies: Policies,
    #[command(flatten)]
    assumptions: AssumptionArguments,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ArrivalArgument {
    /// All of a demand's pods wait when the first round begins; each 10% of demand is a cluster of its own
    AtOnce,
    /// Each is offered when it comes; one cluster for all demands
    OneByOne,
}

impl From<ArrivalArgument> for Arrivals {
    fn from(argument: ArrivalArgument) -> Arrivals {
        match argument {
            ArrivalArgument::AtOnce => Arrivals::AtOnce,
            ArrivalArgument::OneByOne => Arrivals::OneByOne,
        }
    }
}

/// Repeat a paper's experiments and print what comes of them beside what is published
#[derive(clap::Args)]
struct Paper {
    #[arg(value_parser = PAPERS.iter().map(|paper| paper.name).collect::<Vec<_>>(), help = "Whose", long_help = papers_help())]
    paper: String,
    /// Only the experiments of this table or figure
    #[arg(long, value_name = "NUMBER")]
    table: Option<String>,
    /// How many seeds
    #[arg(long, value_name = "N", default_value_t = 10)]
    seeds: u64,
    /// Draw the paper's figures
    #[arg(long, value_name = "FOLDER")]
    plots: Option<PathBuf>,
    /// How many simulations to run at once [default: as many as there are cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

#[derive(clap::Args)]
struct Policies {
    #[arg(long = "policy", value_name = "NAME", value_delimiter = ',', default_value = PolicyConfig::NAMES[0],
        help = format!("{}; several with commas between", PolicyConfig::NAMES.join(", ")), long_help = policy_help())]
    names: Vec<String>,
    #[arg(long = "set", value_name = "SETTING=VALUE", value_parser = parse_setting,
        help = "Set something of the policies, such as wait_weight=0.1; --help lists what", long_help = setting_help())]
    set: Vec<(Setting, Value)>,
    /// Place without regard to the network's load and to objectives
    #[arg(long)]
    no_network_awareness: bool,
    /// The greatest part of the devices given that may be remote, like 10%
    #[arg(long, value_name = "PART", default_value = "100%", value_parser = parse_part)]
    max_remote: f64,
    /// How many simulations to run at once [default: as many as there are cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

#[derive(clap::Args)]
struct AssumptionArguments {
    /// Mbit/s that a remote GPU of an openb trace puts on the network
    #[arg(long, value_name = "MBPS", default_value_t = Assumptions::default().traffic_mbps,
        value_parser = clap::value_parser!(u64).range(..=10_000_000))]
    traffic_mbps: u64,
    /// Mbit/s of NIC for each GPU of a node of an openb trace
    #[arg(long, value_name = "MBPS", default_value_t = Assumptions::default().nic_mbps_per_gpu,
        value_parser = clap::value_parser!(u64).range(..=10_000_000))]
    nic_mbps_per_gpu: u64,
}

impl AssumptionArguments {
    fn assumptions(&self) -> Assumptions {
        Assumptions { traffic_mbps: self.traffic_mbps, nic_mbps_per_gpu: self.nic_mbps_per_gpu }
    }
}

/// The policies with what each does, for the long help.
fn policy_help() -> String {
    let table = PolicyTable::standard();
    let rows = table.rows().iter().map(|row| format!("{:<10} {}", row.name, row.about));
    ["Policies, several with commas between:".to_owned()]
        .into_iter()
        .chain(rows)
        .collect::<Vec<_>>()
        .join("\n")
}

/// The settings with what each means, for the long help.
fn setting_help() -> String {
    let settings = PolicyTable::standard().settings().into_iter().map(|setting| {
        format!(
            "{}: {}, {} [default: {}]",
            setting.name(),
            setting.about(),
            setting.limits(),
            setting.default()
        )
    });
    let first = "Sets something of all policies that know of it:".to_owned();
    [first].into_iter().chain(settings).collect::<Vec<_>>().join("\n")
}

/// Reads `NAME=VALUE`.
fn parse_setting(text: &str) -> Result<(Setting, Value), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not SETTING=VALUE"))?;
    let setting = PolicyTable::standard().setting(name.trim()).map_err(|e| e.to_string())?;
    let value = setting.parse(value.trim()).map_err(|e| e.to_string())?;
    Ok((setting, value))
}

impl Policies {
    fn configs(&self) -> Result<Vec<PolicyConfig>, Failure> {
        let config = |name: &String| {
            let mut config = PolicyConfig::named(name)
                .map_err(fail)?
                .with(&NETWORK_AWARE, !self.no_network_awareness)
                .with(&MAX_REMOTE_SHARE, self.max_remote);
            for (setting, value) in &self.set {
                config.set(*setting, *value).map_err(fail)?;
            }
            config.build().map_err(fail)?;
            Ok(config)
        };
        self.names.iter().map(config).collect()
    }
}

fn fail(error: impl std::fmt::Display) -> Failure {
    Failure::new(error.to_string())
}

/// When the scheduler is called: an interval of at least a microsecond such as `2s` or `500ms`, or `on-change`.
fn parse_rounds(text: &str) -> Result<Rounds, String> {
    if text == "on-change" {
        return Ok(Rounds::OnChange(Micros(0)));
    }
    let seconds = parse_duration(text).ok().map(|interval| interval.as_secs_f64());
    seconds
        .filter(|seconds| (1e-6..=1e6).contains(seconds))
        .map(|seconds| Rounds::Every(Micros::from_seconds(seconds)))
        .ok_or_else(|| format!("{text:?} is neither an interval like 1s or 500ms nor on-change"))
}

fn threads(wanted: Option<usize>) -> usize {
    wanted.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1)
}

/// Shows how far a simulation has come, on a terminal only.
fn bar(total: u64, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(total);
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}, {elapsed} (about {eta} more)");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(what);
    bar
}

/// How long the scheduler took; on stderr, as it is no result of the simulation.
fn tell_times(name: &str, times: &[u64]) {
    if times.is_empty() {
        return;
    }
    let mut sorted: Vec<f64> = times.iter().map(|micros| *micros as f64 / 1000.0).collect();
    sorted.sort_by(f64::total_cmp);
    let at = |share| statistics::quantile(&sorted, share);
    eprintln!(
        "{name}: {} scheduling rounds, {:.3} ms p50, {:.3} ms p99, {:.3} ms at most, {:.1} s in all",
        sorted.len(),
        at(0.5),
        at(0.99),
        at(1.0),
        sorted.iter().sum::<f64>() / 1000.0
    );
}

fn write_json(path: &Path, value: &serde_json::Value) -> Result<(), Failure> {
    report::write(path, &format!("{value:#}\n")).map_err(fail)
}

/// Simulates.
pub(crate) fn main(arguments: Arguments) -> Outcome {
    let start = Instant::now();
    let clock = move || start.elapsed().as_micros() as u64;
    match arguments.command {
        Command::Run(arguments) => run(&arguments, &clock)?,
        Command::Openb(arguments) => openb(&arguments, &clock)?,
        Command::Grid(arguments) => grid::main(&arguments)?,
        Command::Paper(arguments) => paper(&arguments, &clock)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn run(arguments: &Run, clock: &(dyn Fn() -> u64 + Sync)) -> Result<(), Failure> {
    let jobs = match (&arguments.jobs, arguments.generate) {
        (Some(path), _) => Source::File(path.clone()),
        (None, jobs) => Source::MadeUp(Workload {
            jobs: jobs.unwrap_or_default(),
            rate: arguments.rate.unwrap_or(16.0),
            mix: if arguments.normal { Mix::Normal } else { Mix::Uniform },
            goal: arguments.goal,
            seed: arguments.seed,
        }),
    };
    let input = Input {
        cluster: arguments.cluster.clone(),
        switches: arguments.switches.clone(),
        profiles: arguments.profiles.clone(),
        rate: arguments.rate.filter(|_| arguments.jobs.is_some()),
        jobs,
        seed: arguments.seed,
        assumptions: arguments.assumptions.assumptions(),
    };
    let mut policies = arguments.policies.configs()?;
    policies.iter_mut().for_each(|config| config.seed = arguments.seed);
    let study = Study::load(&input).map_err(fail)?;
    let explain = study.find(&arguments.explain).map_err(fail)?;
    let bar = bar((study.jobs.jobs.len() * policies.len()) as u64, "jobs");
    let threads = threads(arguments.policies.threads);
    let progress = |jobs: usize| bar.inc(jobs as u64);
    let studied = study.run(&policies, arguments.rounds, &explain, threads, Some(clock), &progress);
    bar.finish_and_clear();
    let studied = studied.map_err(fail)?;
    print!("{}", Study::table(&studied));
    for one in &studied {
        for explanation in &one.outcome.explanations {
            print!("\n{explanation}");
        }
    }
    for one in &studied {
        let never = one.summary.jobs - one.summary.ended;
        if never > 0 {
            eprintln!("{}: {never} jobs never started; no placement that it allows suits them", one.name);
        }
        tell_times(&one.name, &one.times);
    }
    if let Some(path) = &arguments.json {
        write_json(path, &Study::json(&studied))?;
    }
    if let Some(folder) = &arguments.csv {
        study.write_csv(folder, &studied).map_err(fail)?;
    }
    if let Some(folder) = &arguments.plots {
        study.write_plots(folder, &studied).map_err(fail)?;
    }
    Ok(())
}

fn openb(arguments: &Openb, clock: &(dyn Fn() -> u64 + Sync)) -> Result<(), Failure> {
    let assumptions = arguments.assumptions.assumptions();
    let mut policies = arguments.policies.configs()?;
    let cluster = Arc::new(rgpu_simulator::load_nodes(&arguments.nodes, &assumptions).map_err(fail)?);
    let pods = rgpu_simulator::load_pods(&arguments.pods).map_err(fail)?;
    let typical = allocation::typical(&pods, &cluster, &assumptions);
    for config in &mut policies {
        config.typical.clone_from(&typical);
    }
    let trials = Trials {
        cluster: &cluster,
        pods: &pods,
        assumptions,
        policies: &policies,
        demand: arguments.demand,
        seeds: arguments.seeds,
        arrivals: arguments.arrivals.into(),
    };
    let bar = bar(trials.estimate(), "pods");
    let tried = trials.run(threads(arguments.policies.threads), Some(clock), &|pods| bar.inc(pods as u64));
    bar.finish_and_clear();
    let tried = tried.map_err(fail)?;
    print!("{}", trials.text(&tried));
    for config in &policies {
        let of_policy = tried.iter().filter(|one| one.policy == config.name());
        let times: Vec<u64> = of_policy.flat_map(|one| one.times.iter().copied()).collect();
        tell_times(config.name(), &times);
    }
    if let Some(path) = &arguments.json {
        write_json(path, &trials.json(&tried))?;
    }
    if let Some(path) = &arguments.plot {
        trials.plot(&tried).write(path).map_err(fail)?;
    }
    Ok(())
}

fn papers_help() -> String {
    let row = |paper: &papers::Paper| {
        format!("\n- {}: {}; tables and figures {}", paper.name, paper.about, paper.parts.join(", "))
    };
    String::from("Whose:") + &PAPERS.iter().map(row).collect::<String>()
}

fn paper(arguments: &Paper, clock: &(dyn Fn() -> u64 + Sync)) -> Result<(), Failure> {
    let paper = papers::Paper::named(&arguments.paper).map_err(fail)?;
    let mut options = papers::Options {
        part: arguments.table.as_deref(),
        seeds: arguments.seeds,
        threads: threads(arguments.threads),
        clock: Some(clock),
        progress: &|_| {},
    };
    paper.check(&options).map_err(fail)?;
    let bar = bar((paper.total)(&options), paper.unit);
    let progress = |done: usize| bar.inc(done as u64);
    options.progress = &progress;
    let report = paper.run(&options);
    bar.finish_and_clear();
    let report = report.map_err(fail)?;
    println!("The experiments of the {} paper, {} seeds:\n", paper.name, arguments.seeds);
    print!("{}", report.text);
    for (name, times) in &report.times {
        tell_times(name, times);
    }
    if let Some(folder) = &arguments.plots {
        study::create(folder).map_err(fail)?;
        for (name, plot) in report.plots {
            plot.write(&folder.join(name)).map_err(fail)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        Line::try_parse_from(line.split(' ')).map(|line| line.arguments)
    }

    #[test]
    fn rounds_are_an_interval_or_each_change() {
        assert_eq!(parse_rounds("2s"), Ok(Rounds::Every(Micros(2_000_000))));
        assert_eq!(parse_rounds("250ms"), Ok(Rounds::Every(Micros(250_000))));
        assert_eq!(parse_rounds("1m"), Ok(Rounds::Every(Micros(60_000_000))));
        assert_eq!(parse_rounds("on-change"), Ok(Rounds::OnChange(Micros(0))));
        for text in ["", "s", "0s", "-1s", "nans", "1w", "infs", "never"] {
            assert!(parse_rounds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn parses_what_the_help_shows() {
        let lines = [
            "sim run --cluster c.csv --jobs j.csv --policy drmaestro,firmament --explain train-3",
            "sim run --cluster c.csv --generate 4096 --rate 16 --policy fgd --plots plots --rounds on-change",
            "sim openb --nodes n.csv --pods p.csv --policy fgd,drmaestro --demand 1.3 --seeds 10 --json o.json",
            "sim openb --nodes n.csv --pods p.csv --max-remote 10%",
            "sim run --cluster c.csv --generate 9 --policy drmaestro --set wait_weight=0.1 --set network_aware=false",
            "sim grid --cluster c.csv --workload generate:512 --policy drmaestro,fgd --out report",
            "sim paper drmaestro --table 5",
        ];
        for line in lines {
            assert!(parse(line).is_ok(), "{line}");
        }
        let Command::Openb(openb) = parse(lines[3]).unwrap().command else { panic!("not openb") };
        assert_eq!((openb.policies.max_remote, openb.demand, openb.seeds), (0.1, 1.3, 10));
    }

    #[test]
    fn refuses_what_makes_no_sense() {
        for line in [
            "sim run --cluster c.csv",
            "sim run --cluster c.csv --jobs j.csv --generate 5",
            "sim run --cluster c.csv --jobs j.csv --rounds 0s",
            "sim openb --nodes n.csv --pods p.csv --max-remote 110%",
            "sim run --cluster c.csv --generate 9 --set wait_weight=-1",
            "sim run --cluster c.csv --generate 9 --set colour=1",
            "sim run --cluster c.csv --generate 9 --set wait_weight",
            "sim paper another",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        let Command::Run(run) = parse("sim run --cluster c --jobs j --policy nope").unwrap().command else {
            panic!("not run")
        };
        assert!(run.policies.configs().unwrap_err().message.contains("\"nope\""));
    }
}
