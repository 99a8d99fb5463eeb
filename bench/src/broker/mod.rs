//! `rgpu bench broker`: how a broker bears many nodes and many leases.
//!
//! Simulated nodes register, send heartbeats, and wait for orders over the API, as servers do; clients ask for leases at a
//! given rate, renew and release them. Each request's time counts from when it was due, so that a broker that falls behind
//! is not asked less.

mod load;
mod nodes;
mod watch;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rgpu_control::{Broker, Tls};
use serde::Serialize;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Failure;
use crate::measure::{Samples, Summary};
use crate::way::Service;

/// What to put onto the broker.
#[derive(Debug, Clone, clap::Args, Serialize)]
pub(crate) struct Options {
    /// A broker that runs already [default: one that is started here, with an empty state in a temporary directory]
    #[arg(long, value_name = "URL", requires = "token_file")]
    url: Option<String>,
    /// A file with an administrator's token for it
    #[arg(long, value_name = "FILE", requires = "url")]
    token_file: Option<PathBuf>,
    /// Nodes that are simulated
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    nodes: u32,
    /// Devices of each node
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    devices: u32,
    /// Leases that are asked for in a minute
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    leases_per_minute: u32,
    /// How long each is held, in seconds; it is renewed once in that time
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    hold: f64,
    /// Leases of a quarter of a device that are there before anything is measured, and stay
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    standing: u32,
    /// How often each node sends a heartbeat, in milliseconds; of a broker that is started here
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(50..=60_000), conflicts_with = "url")]
    heartbeat_ms: u32,
    /// For how long leases are good that are not renewed, in seconds; of a broker that is started here. Standing leases are not renewed
    #[arg(long, value_name = "S", default_value_t = 3600, value_parser = clap::value_parser!(u32).range(60..=86_400), conflicts_with = "url")]
    lease_ttl_s: u32,
    /// How long to measure, in seconds
    #[arg(long, value_name = "S", default_value_t = 60)]
    duration: u32,
    /// How long to do the same before, in seconds
    #[arg(long, value_name = "S", default_value_t = 10)]
    warm_up: u32,
    /// Requests of clients that may be under way at a time
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = clap::value_parser!(u32).range(1..=1000))]
    workers: u32,
    /// Write the results to this file
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    json: Option<PathBuf>,
}

/// The times of one kind of request, in milliseconds.
#[derive(Debug, Serialize)]
struct Times {
    what: &'static str,
    #[serde(flatten)]
    summary: Summary,
    max: f64,
}

/// What came of it.
#[derive(Debug, Serialize)]
struct Report {
    version: &'static str,
    cores: usize,
    options: Options,
    /// Leases granted a minute.
    granted_per_minute: f64,
    /// Requests a second, of all kinds.
    requests_per_second: f64,
    /// Standing leases granted a second, while they were asked for one after the other by all clients.
    standing_per_second: Option<f64>,
    /// The broker's state on the disk, in bytes, with what is not yet merged into the database.
    state_bytes: Option<u64>,
    times: Vec<Times>,
    /// Requests that failed, by what was answered.
    failures: Vec<(String, u64)>,
    /// What the broker says about itself.
    broker: watch::Broker,
}

impl Options {
    /// How the configuration of a broker that is started here differs from the example's.
    fn settings(&self) -> [(&'static str, String); 5] {
        // All simulated machines have one address.
        let connections = (self.nodes + 8192).to_string();
        [
            ("max_connections", connections.clone()),
            ("max_connections_per_address", connections),
            ("heartbeat_ms", self.heartbeat_ms.to_string()),
            // A node that is heard seldom is silent for longer before it is lost.
            ("node_timeout_s", (self.heartbeat_ms * 6).div_ceil(1000).to_string()),
            ("lease_ttl_s", self.lease_ttl_s.to_string()),
        ]
    }
}

/// Measures, and prints a table.
pub(crate) fn main(options: &Options) -> Result<(), Failure> {
    // Each simulated node has a connection that waits for orders.
    raise_file_limit(u64::from(options.nodes) + 4096)?;
    let spawned = match options.url {
        Some(_) => None,
        None => Some(Spawned::with(&options.settings())?),
    };
    let (url, token, pid) = match (&spawned, &options.url, &options.token_file) {
        (Some(spawned), ..) => (spawned.url(), spawned.admin.clone(), Some(spawned.service.pid())),
        (None, Some(url), Some(file)) => (url.clone(), read(file)?, None),
        _ => return Err(Failure::new("Say --url and --token-file, or neither")),
    };
    let admin = Broker::new(&url, &token, &Tls::default()).map_err(|e| Failure::new(e.to_string()))?;
    let progress = crate::Progress::start();
    progress.note(&format!("registering {} nodes at {url}", options.nodes));
    let nodes = nodes::Nodes::register(options, &url, &admin)?;
    if options.standing > 0 {
        progress.note(&format!("asking for {} leases that stay", options.standing));
    }
    let standing = load::stand(options, &url, &admin)?;
    let load = load::Load::start(options, &url, &admin, &nodes)?;
    std::thread::sleep(Duration::from_secs(options.warm_up.into()));
    progress.note("measuring");
    let before = watch::Look::take(&url, &token, pid)?;
    load.measure(true);
    for _ in 0..options.duration {
        std::thread::sleep(Duration::from_secs(1));
        progress.step(&load.state());
    }
    load.measure(false);
    let after = watch::Look::take(&url, &token, pid)?;
    let state_bytes = spawned.as_ref().map(|spawned| spawned.state_bytes());
    let measured = load.finish();
    nodes.finish();
    progress.0.finish_and_clear();
    let seconds = after.since(&before);
    let requests: usize = measured.kinds.iter().map(|(_, samples)| samples.len()).sum();
    let granted = measured.kinds.iter().find(|k| k.0 == load::GRANT).map_or(0, |k| k.1.len());
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        options: options.clone(),
        granted_per_minute: granted as f64 * 60.0 / seconds,
        requests_per_second: requests as f64 / seconds,
        standing_per_second: standing,
        state_bytes,
        times: measured.kinds.iter().filter_map(|(what, samples)| times(what, samples)).collect(),
        failures: measured.failures,
        broker: watch::Broker::between(&before, &after),
    };
    print!("{}", report.table());
    if let Some(path) = &options.json {
        crate::report::write_json(&report, path)?;
    }
    if granted == 0 {
        return Err(Failure::new("No lease was granted"));
    }
    Ok(())
}

fn times(what: &'static str, nanoseconds: &[u64]) -> Option<Times> {
    let mut samples = Samples::default();
    nanoseconds.iter().for_each(|n| samples.push(*n as f64 / 1e6));
    let max = nanoseconds.iter().max().map_or(0.0, |n| *n as f64 / 1e6);
    samples.summary().map(|summary| Times { what, summary, max })
}

impl Report {
    fn table(&self) -> String {
        let o = &self.options;
        let mut text = format!(
            "broker: {} nodes of {} devices, {} leases a minute asked, {:.0} granted, {:.0} requests a second, \
             {} s, {} cores for the broker and this load together\n\n{:<28} {:>8} {:>9} {:>9} {:>9} {:>9}\n",
            o.nodes,
            o.devices,
            o.leases_per_minute,
            self.granted_per_minute,
            self.requests_per_second,
            o.duration,
            self.cores,
            "ms",
            "count",
            "median",
            "p75",
            "p99",
            "max"
        );
        for t in &self.times {
            let s = &t.summary;
            text += &format!(
                "{:<28} {:>8} {:>9.2} {:>9.2} {:>9.2} {:>9.2}\n",
                t.what, s.count, s.p50, s.p75, s.p99, t.max
            );
        }
        text += "\n";
        if let Some(each) = self.standing_per_second {
            text +=
                &format!("standing leases              {:>8}, granted at {each:.0} a second\n", o.standing);
        }
        text += &self.broker.lines();
        if let Some(bytes) = self.state_bytes {
            text += &format!("state on the disk            {:>8.1} MiB\n", bytes as f64 / f64::from(1 << 20));
        }
        for (what, count) in &self.failures {
            text += &format!("failed {count} times: {what}\n");
        }
        text
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|e| Failure::new(format!("Cannot read {}: {e}", path.display())))
}

fn raise_file_limit(wanted: u64) -> Result<(), Failure> {
    let limit = getrlimit(Resource::Nofile);
    // No limit is none.
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let raised = Rlimit { current: Some(wanted), ..limit };
    if limit.maximum.is_some_and(|most| most < wanted) || setrlimit(Resource::Nofile, raised).is_err() {
        let most = limit.maximum.or(limit.current).unwrap_or(wanted);
        let text = format!("{wanted} open files are needed, and {most} allowed: raise `ulimit -n`");
        return Err(Failure::new(text));
    }
    Ok(())
}

/// A broker of one's own, with its files in a temporary directory; both go when this is dropped.
#[derive(Debug)]
pub(crate) struct Spawned {
    /// The broker's process.
    pub service: Service,
    /// An administrator's token.
    pub admin: String,
    directory: PathBuf,
}

impl Spawned {
    /// Starts one with the example configuration.
    pub(crate) fn start() -> Result<Self, Failure> {
        Self::with(&[])
    }

    /// Starts one with other settings, by key.
    fn with(settings: &[(&str, String)]) -> Result<Self, Failure> {
        let rgpu = std::env::current_exe().map_err(|e| Failure::new(format!("Where is rgpu? {e}")))?;
        let directory = std::env::temp_dir().join(format!("rgpu-bench-broker-{}", std::process::id()));
        let text = directory.to_str().ok_or_else(|| Failure::new("The temporary directory's name is odd"))?;
        let init = std::process::Command::new(&rgpu)
            .args(["broker", "init", text])
            .stdin(std::process::Stdio::null())
            .output()
            .map_err(|e| Failure::new(format!("Cannot start {}: {e}", rgpu.display())))?;
        if !init.status.success() {
            let said = String::from_utf8_lossy(&init.stderr);
            return Err(Failure::new(format!("`rgpu broker init` failed: {}", said.trim())));
        }
        let admin = read(&directory.join("admin.token"))?;
        let config = format!("{text}/broker.toml");
        let mut lines: Vec<String> = read(Path::new(&config))?.lines().map(str::to_owned).collect();
        for (key, value) in settings {
            let start = format!("{key} = ");
            let line = lines.iter_mut().find(|line| line.starts_with(&start));
            *line.ok_or_else(|| Failure::new(format!("The configuration has no {key}")))? = start + value;
        }
        std::fs::write(&config, lines.join("\n") + "\n")
            .map_err(|e| Failure::new(format!("Cannot write {config}: {e}")))?;
        let service = Service::start(&rgpu, &["broker", "--config", &config, "--listen", "127.0.0.1:0"])?;
        Ok(Self { service, admin, directory })
    }

    /// Its address.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.service.address)
    }

    /// How much its state takes on the disk.
    fn state_bytes(&self) -> u64 {
        let files =
            ["broker.sqlite", "broker.sqlite-wal"].map(|name| self.directory.join("state").join(name));
        files.iter().filter_map(|file| std::fs::metadata(file).ok()).map(|about| about.len()).sum()
    }

    /// Where its files are.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory); // only tidiness
    }
}
