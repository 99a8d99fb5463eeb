//! What forwarding costs: `rgpu bench` measures each figure beside its limit, in the same run.
//!
//! A measuring process for each way to a GPU (in the program, over each transport, natively) makes the same
//! CUDA calls; the commanding process has them measure in turn, round by round, so that whatever else the
//! machine does falls on all alike, and measures the limit (a raw socket, a plain copy) in between.

mod app;
mod broker;
mod cuda;
mod interference;
mod many;
mod measure;
mod micro;
#[cfg(feature = "plot")]
mod plot;
#[cfg(feature = "plot")]
mod plots;
mod raw;
mod report;
mod rig;
mod shape;
mod start;
mod task;
mod way;
mod worker;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use rgpu_control::units;

use report::{Conditions, Report};
use rig::Rig;
use way::Way;

/// The hidden subcommand of `rgpu` that runs [`worker_main`].
pub const WORKER_COMMAND: &str = "__bench-worker";

/// Why a benchmark failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Failure(String);

impl Failure {
    fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// Measure what forwarding costs, beside what the connection itself allows
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    rgpu bench latency\n  \
    rgpu bench bandwidth --json bandwidth.json --svg plots\n  \
    rgpu bench app -- ./train --epochs 1\n  \
    rgpu bench app --delay 5ms --rate 1Gbit -- ./train --epochs 1\n  \
    rgpu bench interference --rate 1Gbit --traffic 50,90 -- ./train --epochs 1\n  \
    rgpu bench latency --server gpuhost:7070 --peer gpuhost:7071   # there: rgpu bench peer --listen 0.0.0.0:7071")]
pub struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, clap::Subcommand)]
enum Benchmark {
    /// Time of calls that a program waits for: the smallest one that must be asked, and four bytes copied to the host
    Latency {
        #[command(flatten)]
        common: Common,
        /// Calls a round
        #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        count: u32,
    },
    /// Bytes a second to and from the device, for sizes from 4 B to 256 MiB
    Bandwidth {
        #[command(flatten)]
        common: Common,
        /// Sizes of copies in bytes, such as 4K,64M
        #[arg(long, value_delimiter = ',', value_parser = parse_size,
              default_value = "4,64,1K,4K,16K,64K,256K,1M,4M,16M,64M,256M")]
        sizes: Vec<usize>,
    },
    /// Time of a kernel launch for the program, and until it is done
    Launch {
        #[command(flatten)]
        common: Common,
        /// Launches a round
        #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
        count: u32,
    },
    /// Time, bytes and round trips of the calls that programs make often
    Calls {
        #[command(flatten)]
        common: Common,
        /// Calls of each kind a round
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        count: u32,
    },
    /// Time of a whole program, from start to exit
    App {
        #[command(flatten)]
        common: Common,
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
        command: Vec<OsString>,
    },
    /// A program's time in the network, on the device and on the processor, alone and beside traffic on the same link
    Interference(interference::Options),
    /// How a broker bears many nodes and many leases: times of grants, its rounds, its memory
    Broker(broker::Options),
    /// Time from `rgpu run` to the program's first CUDA call, with a broker and without
    Start(start::Options),
    /// Launches a second of many programs at once on one server, beside few; memory of those that are idle
    Many(many::Options),
    /// The other end of raw connections, for limits between two machines
    Peer {
        /// Where to listen
        #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
        listen: String,
    },
}

/// Options of every benchmark.
#[derive(Debug, Clone, clap::Args)]
struct Common {
    /// The ways to compare [default: in-process, tcp, and what else is possible]
    #[arg(long, value_delimiter = ',', value_name = "WAY")]
    ways: Vec<Way>,
    /// A server that runs already [default: one that is started here]
    #[arg(long, value_name = "HOST:PORT")]
    server: Option<String>,
    /// `rgpu bench peer` on the server's machine, for the raw limits
    #[arg(long, value_name = "HOST:PORT", requires = "server")]
    peer: Option<String>,
    /// A file with the token that the server asks for
    #[arg(long, value_name = "FILE", requires = "server")]
    token_file: Option<PathBuf>,
    /// The GPU of the server that is started here
    #[arg(long, value_name = "KIND", default_value = "software", conflicts_with = "server")]
    device: String,
    /// Rounds that count; one more comes first
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Add this to each round trip over TCP, such as 5ms
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = shape::parse_delay)]
    delay: Duration,
    /// Limit TCP to this many bits a second, such as 1Gbit
    #[arg(long, value_name = "RATE", value_parser = shape::parse_rate)]
    rate: Option<f64>,
    /// Write the results to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw plots into this directory
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
}

fn parse_size(text: &str) -> Result<usize, String> {
    let size = units::parse_bytes(text).ok().and_then(|size| usize::try_from(size).ok());
    size.filter(|n| (1..=1 << 30).contains(n))
        .ok_or_else(|| format!("{text:?} is no size from 1 byte to 1024M, such as 4K"))
}

/// Shows on a terminal what is being measured.
struct Progress(ProgressBar);

impl Progress {
    fn start() -> Self {
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} [{elapsed}] {pos} measurements: {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        Self(bar)
    }

    fn step(&self, what: &str) {
        self.0.set_message(what.to_owned());
        self.0.inc(1);
    }

    fn note(&self, what: &str) {
        self.0.suspend(|| eprintln!("rgpu bench: {what}"));
    }
}

/// Does what was asked for, and prints a table.
///
/// # Errors
/// Where something could not be started, a call failed, or results could not be written.
pub fn main(arguments: Arguments) -> Result<(), Failure> {
    let (name, common) = match &arguments.benchmark {
        Benchmark::Peer { listen } => return raw::peer(listen),
        Benchmark::Interference(options) => return interference::main(options),
        Benchmark::Broker(options) => return broker::main(options),
        Benchmark::Start(options) => return start::main(options),
        Benchmark::Many(options) => return many::main(options),
        Benchmark::Latency { common, .. } => ("latency", common),
        Benchmark::Bandwidth { common, .. } => ("bandwidth", common),
        Benchmark::Launch { common, .. } => ("launch", common),
        Benchmark::Calls { common, .. } => ("calls", common),
        Benchmark::App { common, .. } => ("app", common),
    };
    if common.svg.is_some() && !cfg!(feature = "plot") {
        return Err(Failure::new("--svg is left out of this build: it comes with the Cargo feature `plot`"));
    }
    let rig = Rig::start(common)?;
    let progress = Progress::start();
    let rows = match &arguments.benchmark {
        Benchmark::Latency { count, .. } => micro::latency(&rig, *count, &progress)?,
        Benchmark::Bandwidth { sizes, .. } => micro::bandwidth(&rig, sizes, &progress)?,
        Benchmark::Launch { count, .. } => micro::launch(&rig, *count, &progress)?,
        Benchmark::Calls { count, .. } => micro::calls(&rig, *count, &progress)?,
        Benchmark::App { command, .. } => app::measure(&rig, command, &progress)?,
        Benchmark::Peer { .. }
        | Benchmark::Interference(_)
        | Benchmark::Broker(_)
        | Benchmark::Start(_)
        | Benchmark::Many(_) => Vec::new(),
    };
    progress.0.finish_and_clear();
    let device = match rig.ways().first() {
        Some(way) => way::Worker::start(rig.launcher(), *way)?.ask(&task::Task::Describe)?.device,
        None => String::new(),
    };
    let conditions = Conditions {
        version: env!("CARGO_PKG_VERSION").into(),
        device,
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        rounds: common.rounds,
        added_delay: common.delay.as_secs_f64(),
        rate: common.rate,
    };
    let report = Report { benchmark: name.into(), conditions, rows };
    print!("{}", report.table());
    if let Some(path) = &common.json {
        report.write_json(path)?;
    }
    #[cfg(feature = "plot")]
    if let Some(directory) = &common.svg {
        plots::draw(directory, &report)?;
    }
    Ok(())
}

/// Executes tasks from standard input.
///
/// # Errors
/// Where a task is malformed; what fails in a task is in its reply.
pub fn worker_main() -> Result<(), Failure> {
    worker::main()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        <Line as clap::Parser>::try_parse_from(line.split(' ')).map(|line| line.arguments)
    }

    #[test]
    fn parses_what_the_help_shows() {
        let lines = [
            "bench latency",
            "bench bandwidth --json bandwidth.json --svg plots",
            "bench app -- ./train --epochs 1",
            "bench app --delay 5ms --rate 1Gbit -- ./train --epochs 1",
            "bench interference --rate 1Gbit --traffic 50,90 -- ./train --epochs 1",
            "bench latency --server gpuhost:7070 --peer gpuhost:7071",
            "bench peer --listen 0.0.0.0:7071",
        ];
        for line in lines {
            assert!(parse(line).is_ok(), "{line}");
        }
        let Benchmark::Bandwidth { sizes, .. } = parse("bench bandwidth").unwrap().benchmark else {
            panic!("another benchmark")
        };
        assert_eq!((sizes.first(), sizes.last(), sizes.len()), (Some(&4), Some(&(256 << 20)), 12));
        let Benchmark::App { common, .. } = parse(lines[3]).unwrap().benchmark else {
            panic!("another benchmark")
        };
        assert_eq!((common.delay, common.rate), (Duration::from_millis(5), Some(1e9)));
        for bad in
            ["bench latency --peer a:1", "bench latency --delay 5", "bench launch --count 0", "bench app"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_parsed() {
        assert_eq!(parse_size("4K"), Ok(4096));
        assert_eq!(parse_size("256M"), Ok(256 << 20));
        for bad in ["", "0", "K", "-4", "2048M", "1.5K", "ü"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
