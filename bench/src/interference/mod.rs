//! `rgpu bench interference`: what traffic on the same link does to a program (experiment 1 of the DRMaestro paper, its figure 3).
//!
//! The program runs alone and beside traffic of each intensity, in turn, round by round. Its [trace](breakdown) tells how much of its
//! time was the network's. On one machine, program and server are hosts in network namespaces whose links the kernel limits; else
//! the link is the one to the server that was named.

mod breakdown;
mod traffic;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use rgpu_network::{Host, Network};

use crate::measure::{Samples, Summary};
use crate::report::{aligned, write_json};
use crate::way::{Launcher, Service, Way};
use crate::{Failure, Progress, shape};
use breakdown::Breakdown;
use traffic::Traffic;

/// The variable by which a program is told to write its trace.
const TRACE_VARIABLE: &str = "RGPU_TRACE";

/// How long traffic passes before a program starts, so that its connections have found their speed.
const LEAD: Duration = Duration::from_millis(300);

/// What to measure.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Intensities of the traffic, in percent of the link, each way; alone is always measured
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "25,50,75,90",
          value_parser = clap::value_parser!(u32).range(1..=100))]
    traffic: Vec<u32>,
    /// What the link carries each way: the one that is made here has this rate, that to a server is taken to have it
    #[arg(long, value_name = "RATE", default_value = "1Gbit", value_parser = shape::parse_rate)]
    rate: f64,
    /// A server that runs already [default: one on a host of its own in a network namespace of this machine, which needs root]
    #[arg(long, value_name = "HOST:PORT", requires = "peer")]
    server: Option<String>,
    /// `rgpu bench peer` on the server's machine, for the traffic
    #[arg(long, value_name = "HOST:PORT", requires = "server")]
    peer: Option<String>,
    /// A file with the token that the server asks for
    #[arg(long, value_name = "FILE", requires = "server")]
    token_file: Option<PathBuf>,
    /// The GPU of the server that is started here
    #[arg(long, value_name = "KIND", default_value = "software", conflicts_with = "server")]
    device: String,
    /// Rounds that count; one more comes first
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Write the results to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw a plot into this directory
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Both ends of the link. What was started for them ends when this is dropped, the services before their network.
struct Ends {
    launcher: Launcher,
    peer: String,
    _services: Vec<Service>,
    /// Where programs and traffic run, where that is not this machine's own network.
    here: Option<Host>,
    _network: Option<Network>,
}

impl Ends {
    fn new(options: &Options) -> Result<Self, Failure> {
        let rgpu = std::env::current_exe().map_err(|e| Failure::new(format!("Where is rgpu? {e}")))?;
        let launcher = |server: String| Launcher {
            rgpu: rgpu.clone(),
            server: Some(server),
            shaped: None,
            token_file: options.token_file.clone(),
            fingerprint: None,
        };
        if let (Some(server), Some(peer)) = (&options.server, &options.peer) {
            let (launcher, peer) = (launcher(server.clone()), peer.clone());
            return Ok(Self { launcher, peer, _services: Vec::new(), here: None, _network: None });
        }
        let mbps = options.rate / 1e6;
        if !(1.0..=1e5).contains(&mbps) {
            return Err(Failure::new("The link that is made here has a rate from 1 Mbit/s to 100 Gbit/s"));
        }
        let no_network = |e: rgpu_network::Error| {
            Failure::new(format!("{e}. Without it, measure a server on another machine: --server and --peer"))
        };
        let mut network = Network::create().map_err(no_network)?;
        let mut host = |name| {
            let host = network.host(name)?;
            host.shape(mbps.round() as u32).map(|()| host)
        };
        let (here, there) = (host("program").map_err(no_network)?, host("server").map_err(no_network)?);
        let start = |arguments: &[&str]| {
            let mut command = Command::new(&rgpu);
            there.place(command.args(arguments));
            Service::follow(arguments.join(" "), &mut command)
        };
        let listen = |port: u16| format!("{}:{port}", there.address());
        let server = start(&["serve", "--listen", &listen(7070), "--insecure", "--device", &options.device])?;
        let peer = start(&["bench", "peer", "--listen", &listen(7071)])?;
        Ok(Self {
            launcher: launcher(server.address.clone()),
            peer: peer.address.clone(),
            _services: vec![server, peer],
            here: Some(here),
            _network: Some(network),
        })
    }

    fn traffic(&self, bits: f64) -> Result<Traffic, Failure> {
        match &self.here {
            Some(here) => {
                here.enter(|| Traffic::start(&self.peer, bits)).map_err(|e| Failure::new(e.to_string()))?
            }
            None => Traffic::start(&self.peer, bits),
        }
    }

    /// Runs the program once.
    fn run(&self, command: &[OsString]) -> Result<Breakdown, Failure> {
        let (program, arguments) = command
            .split_first()
            .ok_or_else(|| Failure::new("Say which program to run: interference -- CMD"))?;
        let program = Path::new(program);
        let trace = Trace::new();
        let mut command = self.launcher.command(Way::Tcp, program)?;
        command.args(arguments).env(TRACE_VARIABLE, &trace.0).stdin(Stdio::null());
        if let Some(here) = &self.here {
            here.place(&mut command);
        }
        let start = Instant::now();
        let done = command
            .stderr(Stdio::inherit())
            .output()
            .map_err(|e| Failure::new(format!("Cannot start {}: {e}", program.display())))?;
        let took = start.elapsed().as_secs_f64();
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stdout);
            return Err(Failure::new(format!("{} failed: {}\n{said}", program.display(), done.status)));
        }
        Breakdown::of_trace(&trace.0, took)
    }
}

/// A file for a trace, removed when dropped.
struct Trace(PathBuf);

impl Trace {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("rgpu-bench-{}.trace", std::process::id())))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0); // a temporary file, at worst left over
    }
}

/// What was measured beside traffic of one intensity.
#[derive(Debug, Serialize)]
struct Point {
    /// Percent of the link, each way; 0 is alone.
    traffic_percent: u32,
    /// Mbit/s of traffic that passed, to the server and from it.
    passed_mbps: Option<[Summary; 2]>,
    /// Seconds from start to exit.
    total_s: Summary,
    /// Seconds of these on the device.
    device_s: Summary,
    /// Seconds of these in the network.
    network_s: Summary,
    /// Seconds of these on the program's processor.
    processor_s: Summary,
    /// The network's part of each run, in percent.
    network_percent: Summary,
    /// How much longer the network takes than alone, median by median.
    network_ratio: f64,
}

/// All that was measured, for `--json`.
#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    cores: usize,
    /// What the link carries, in Mbit/s each way.
    link_mbps: f64,
    /// Whether the link was made here, in network namespaces.
    link_made_here: bool,
    rounds: u32,
    command: Vec<String>,
    points: Vec<Point>,
}

/// Samples beside one intensity.
#[derive(Default)]
struct Series {
    runs: Vec<Breakdown>,
    passed: [Samples; 2],
}

impl Series {
    fn point(&self, traffic_percent: u32) -> Option<Point> {
        let of = |value: fn(&Breakdown) -> f64| self.runs.iter().map(value).collect::<Samples>().summary();
        let [to, from] = &self.passed;
        Some(Point {
            traffic_percent,
            passed_mbps: to.summary().zip(from.summary()).map(<[Summary; 2]>::from),
            total_s: of(|run| run.total)?,
            device_s: of(|run| run.device)?,
            network_s: of(|run| run.network)?,
            processor_s: of(Breakdown::processor)?,
            network_percent: of(Breakdown::network_percent)?,
            network_ratio: 1.0,
        })
    }
}

/// Measures, and prints a table.
pub(crate) fn main(options: &Options) -> Result<(), Failure> {
    if options.svg.is_some() && !cfg!(feature = "plot") {
        return Err(Failure::new("--svg is left out of this build: it comes with the Cargo feature `plot`"));
    }
    let ends = Ends::new(options)?;
    let progress = Progress::start();
    let intensities: Vec<u32> = [0].iter().chain(&options.traffic).copied().collect();
    let mut series: Vec<Series> = intensities.iter().map(|_| Series::default()).collect();
    for round in 0..=options.rounds {
        for (percent, series) in intensities.iter().zip(&mut series) {
            progress.step(&format!("beside {percent}% of traffic, round {round}"));
            let traffic = match percent {
                0 => None,
                _ => Some(ends.traffic(options.rate * f64::from(*percent) / 100.0)?),
            };
            if traffic.is_some() {
                std::thread::sleep(LEAD);
            }
            let run = ends.run(&options.command)?;
            // The first round warms caches on either side and is not counted.
            if round > 0 {
                series.runs.push(run);
                for (samples, bits) in series.passed.iter_mut().zip(traffic.iter().flat_map(Traffic::rates)) {
                    samples.push(bits / 1e6);
                }
            }
        }
    }
    progress.0.finish_and_clear();
    let points = intensities.iter().zip(&series).map(|(percent, series)| series.point(*percent));
    let points: Option<Vec<Point>> = points.collect();
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        link_mbps: options.rate / 1e6,
        link_made_here: ends.here.is_some(),
        rounds: options.rounds,
        command: options.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        points: beside_alone(points.ok_or_else(|| Failure::new("Nothing was measured"))?),
    };
    print!("{}", report.table());
    if let Some(path) = &options.json {
        write_json(&report, path)?;
    }
    #[cfg(feature = "plot")]
    if let Some(directory) = &options.svg {
        report.draw(directory)?;
    }
    Ok(())
}

/// Compares each point with the first one, which is alone.
fn beside_alone(mut points: Vec<Point>) -> Vec<Point> {
    let alone = points.first().map_or(f64::NAN, |point| point.network_s.p50);
    points.iter_mut().for_each(|point| point.network_ratio = point.network_s.p50 / alone);
    points
}

impl Report {
    /// The table; times are medians over the rounds.
    fn table(&self) -> String {
        let head = [
            "traffic",
            "passed [Mbit/s]",
            "total [s]",
            "device",
            "network",
            "processor",
            "network's part",
            "× alone",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(self.points.iter().map(|point| {
            let seconds = |summary: &Summary| format!("{:.3}", summary.p50);
            let part = &point.network_percent;
            vec![
                point.name(),
                point
                    .passed_mbps
                    .map_or(String::new(), |[to, from]| format!("{:.0}+{:.0}", to.p50, from.p50)),
                seconds(&point.total_s),
                seconds(&point.device_s),
                seconds(&point.network_s),
                seconds(&point.processor_s),
                format!("{:.1}% ({:.1}–{:.1})", part.p50, part.p25, part.p75),
                format!("{:.2}", point.network_ratio),
            ]
        }));
        format!(
            "interference: {}, a link of {} Mbit/s{}, {} cores, {} interleaved rounds\n{}",
            self.command.join(" "),
            self.link_mbps,
            if self.link_made_here { " made here" } else { "" },
            self.cores,
            self.rounds,
            aligned(&rows, |column| column == 0)
        )
    }

    /// A bar for each kind of time and intensity, as parts of the whole.
    #[cfg(feature = "plot")]
    fn draw(&self, directory: &Path) -> Result<(), Failure> {
        use crate::report::Row;
        std::fs::create_dir_all(directory)
            .map_err(|e| Failure::new(format!("Cannot create {}: {e}", directory.display())))?;
        let rows: Vec<Row> = self
            .points
            .iter()
            .flat_map(|point| {
                let parts = [
                    ("network", &point.network_s),
                    ("device", &point.device_s),
                    ("processor", &point.processor_s),
                ];
                parts.map(|(kind, seconds)| {
                    let percent = |s: f64| 100.0 * s / point.total_s.p50;
                    let value = Summary {
                        count: seconds.count,
                        min: percent(seconds.min),
                        p25: percent(seconds.p25),
                        p50: percent(seconds.p50),
                        p75: percent(seconds.p75),
                        p99: percent(seconds.p99),
                    };
                    Row::new(point.name(), kind, "% of the time", value)
                })
            })
            .collect();
        crate::plot::bars(&directory.join("interference.svg"), "interference", &rows)
    }
}

impl Point {
    fn name(&self) -> String {
        match self.traffic_percent {
            0 => "alone".into(),
            percent => format!("beside {percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_sums_up_its_runs() {
        let run = |network| Breakdown { total: 10.0, device: 4.0, network };
        let mut series = Series { runs: vec![run(1.0), run(2.0), run(3.0)], ..Series::default() };
        series.passed = [40.0, 30.0].map(|rate| Samples::from_iter([rate]));
        let point = series.point(50).unwrap();
        assert_eq!((point.network_s.p50, point.processor_s.p50, point.network_percent.p50), (2.0, 4.0, 20.0));
        let report = Report {
            version: "1",
            cores: 2,
            link_mbps: 100.0,
            link_made_here: true,
            rounds: 3,
            command: vec!["./app".into(), "n=1".into()],
            points: beside_alone(vec![
                Series { runs: vec![run(1.0)], ..Series::default() }.point(0).unwrap(),
                point,
            ]),
        };
        let table = report.table();
        assert!(
            table.starts_with("interference: ./app n=1, a link of 100 Mbit/s made here, 2 cores"),
            "{table}"
        );
        let beside = table.lines().last().unwrap();
        let cells = ["beside 50%", " 40+30 ", " 20.0% (15.0–25.0) ", " 2.00"];
        assert!(cells.iter().all(|cell| beside.contains(cell)), "{table}");
        assert_eq!(serde_json::to_value(&report).unwrap()["points"][1]["network_percent"]["p50"], 20.0);
        assert!(Series::default().point(0).is_none());
    }
}
