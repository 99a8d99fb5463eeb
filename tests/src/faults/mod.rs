//! Faults, again and again: brokers and servers are killed, stopped and cut off while programs run, and what must never happen is
//! counted. `cargo xtask faults` runs it for long, a test for a short time.

mod client;
pub mod cut;
mod standby;
mod touched;

use std::fmt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::cluster::{Cluster, Setup};
use crate::process;
use crate::product::Product;
use cut::Way;
use touched::Touched;

/// So many programs fit onto a device at a time: each asks for a quarter.
const PLACES: usize = 4;
/// How long everything may take to be idle after the last fault, before it counts as hanging.
const CALM: Duration = Duration::from_secs(120);

/// What is disturbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The broker: killed, told to end, stopped, cut off, set back to an older state, its state lost.
    Broker,
    /// Servers: killed, stopped, cut off from the broker.
    Nodes,
    /// The active one of two brokers: killed, stopped.
    Standby,
}

/// What is to be done.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// What is disturbed.
    pub kind: Kind,
    /// How many faults there are.
    pub times: u32,
    /// How many programs run, or wait, at a time.
    pub clients: u32,
    /// How many servers there are.
    pub nodes: usize,
    /// What chance begins with.
    pub seed: u64,
}

/// What was counted.
#[derive(Debug, Default)]
pub struct Report {
    /// Faults that were done, by name.
    pub faults: std::collections::BTreeMap<&'static str, u32>,
    /// Programs that began to use a device.
    pub begun: AtomicU64,
    /// Kernels whose results were compared.
    pub kernels: AtomicU64,
    /// Programs that ended early, or whose calls failed, and whose own server was killed or stopped while they ran.
    pub touched: AtomicU64,
    /// Programs that could not begin, because a fault was under way; tried again.
    pub not_begun: AtomicU64,
    /// The longest time, in milliseconds, until another broker had taken over.
    pub longest_ms: AtomicU64,
    /// Why programs could not begin, and how often.
    reasons: Mutex<std::collections::BTreeMap<String, u32>>,
    /// What must not be, in words, each with its kind.
    wrong: Mutex<Vec<(Wrong, String)>>,
}

/// What must not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    /// Something did not end or answer in time.
    Hang,
    /// A broker or server ended by itself.
    Death,
    /// More programs on a device than fit, or more granted or used than there is.
    Double,
    /// A kernel's result is wrong.
    Result,
    /// A program failed although nobody killed or stopped its server while it ran.
    Killed,
    /// Processes, files or memory that nobody has any more.
    Leak,
}

impl Report {
    /// A program could not begin.
    fn not_begun(&self, why: &str) {
        self.not_begun.fetch_add(1, SeqCst);
        // Without what differs: ids, addresses, places.
        let line = why.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("");
        let words = line.split(' ').filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
        let text: String = words.collect::<Vec<_>>().join(" ").chars().take(110).collect();
        *self.reasons.lock().expect("no thread panics").entry(text).or_insert(0) += 1;
    }

    fn wrong(&self, kind: Wrong, what: String) {
        eprintln!("faults: {kind:?}: {what}");
        self.wrong.lock().expect("no thread panics").push((kind, what));
    }

    /// How often something was that must not be.
    pub fn count(&self, kind: Wrong) -> usize {
        self.wrong.lock().expect("no thread panics").iter().filter(|(found, _)| *found == kind).count()
    }

    /// Whether nothing was that must not be.
    pub fn is_clean(&self) -> bool {
        self.wrong.lock().expect("no thread panics").is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "faults: {} {:?}", self.faults.values().sum::<u32>(), self.faults)?;
        writeln!(
            f,
            "programs begun: {}, kernels compared: {}, ended by a fault at their own server: {}, begun at a later try: {}",
            self.begun.load(SeqCst),
            self.kernels.load(SeqCst),
            self.touched.load(SeqCst),
            self.not_begun.load(SeqCst)
        )?;
        if self.longest_ms.load(SeqCst) > 0 {
            writeln!(
                f,
                "longest time to a take-over: {:.1} s",
                self.longest_ms.load(SeqCst) as f64 / 1000.0
            )?;
        }
        for (why, times) in &*self.reasons.lock().expect("no thread panics") {
            writeln!(f, "  {times} × {why}")?;
        }
        let kinds = [
            (Wrong::Hang, "hangs"),
            (Wrong::Death, "deaths of daemons"),
            (Wrong::Double, "double grants"),
            (Wrong::Result, "wrong results"),
            (Wrong::Killed, "programs killed for nothing"),
            (Wrong::Leak, "leaks"),
        ];
        let counts: Vec<String> =
            kinds.iter().map(|(kind, name)| format!("{} {name}", self.count(*kind))).collect();
        write!(f, "{}", counts.join(", "))
    }
}

/// Numbers that look random (SplitMix64).
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ (x >> 31)) % limit
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}

/// What the threads of a run share.
pub(crate) struct Run {
    report: Report,
    /// The puppet.
    program: PathBuf,
    cluster: Mutex<Cluster>,
    /// No new programs.
    ending: AtomicBool,
    /// Everything is over.
    over: AtomicBool,
    /// A broker that has ended has ended by itself.
    watches_broker: bool,
    /// The faults that programs may feel.
    touched: Touched,
}

impl Run {
    fn cluster(&self) -> std::sync::MutexGuard<'_, Cluster> {
        self.cluster.lock().expect("no thread panics")
    }
}

/// Does what a plan says, with `program` (`tests/programs/puppet.cu`), and counts.
///
/// # Errors
/// The cluster cannot be set up, or a fault cannot be done. What must not be is no error, but counted.
pub fn run(product: &Product, program: PathBuf, plan: Plan) -> Result<Report> {
    let setup = Setup { lease_ttl_s: 12, node_timeout_s: 4, ..Setup::servers(plan.nodes) };
    if plan.kind == Kind::Standby {
        let (cluster, pair) = standby::cluster(product, setup)?;
        return disturb(cluster, plan, program, Vec::new(), Some(pair));
    }
    let mut cluster = Cluster::on_loopback(product, &setup)?;
    // Each server reaches the broker by a way of its own, and so do the clients.
    let broker = cluster.broker()?.address().parse()?;
    let ways: Vec<Way> = (0..=plan.nodes).map(|_| Way::to(broker)).collect::<Result<_>>()?;
    cluster.clients_via(ways[plan.nodes].url());
    for (at, way) in ways[..plan.nodes].iter().enumerate() {
        cluster.nodes[at].service()?.kill(true);
        cluster.nodes[at].via = Some(way.url());
        cluster.start_node(at)?;
    }
    cluster.wait_ready()?;
    disturb(cluster, plan, program, ways, None)
}

fn disturb(
    cluster: Cluster,
    plan: Plan,
    program: PathBuf,
    ways: Vec<Way>,
    mut pair: Option<standby::Pair>,
) -> Result<Report> {
    let run = Run {
        watches_broker: pair.is_none(),
        report: Report::default(),
        program,
        cluster: Mutex::new(cluster),
        ending: AtomicBool::new(false),
        over: AtomicBool::new(false),
        touched: Touched::default(),
    };
    let mut faults = std::collections::BTreeMap::new();
    let done = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..plan.clients)
            .map(|number| {
                let run = &run;
                scope.spawn(move || client::programs(run, number))
            })
            .collect();
        scope.spawn(|| watch(&run));
        let mut chance = Chance(plan.seed);
        let mut done = Ok(());
        for time in 0..plan.times {
            std::thread::sleep(chance.millis(200, 2000));
            let what = match plan.kind {
                Kind::Broker => disturb_broker(&run, &ways, &mut chance),
                Kind::Nodes => disturb_node(&run, &ways, &mut chance),
                Kind::Standby => match &mut pair {
                    Some(pair) => pair.disturb(&run, &mut chance).map(|(name, took)| {
                        run.report.longest_ms.fetch_max(took.as_millis() as u64, SeqCst);
                        name
                    }),
                    None => Err(anyhow::anyhow!("there is one broker")),
                },
            };
            match what {
                Ok(name) => {
                    println!("{time}: {name}");
                    *faults.entry(name).or_insert(0) += 1;
                }
                Err(e) => {
                    done = Err(e.context(format!("fault {time}")));
                    break;
                }
            }
            if time % 10 == 9 {
                println!("{} faults, {} programs begun", time + 1, run.report.begun.load(SeqCst));
            }
        }
        run.ending.store(true, SeqCst);
        for client in clients {
            let _ = client.join(); // a panic of its own was reported
        }
        run.over.store(true, SeqCst);
        done
    });
    done?;
    let Run { mut report, cluster, .. } = run;
    report.faults = faults;
    let cluster = cluster.into_inner().expect("no thread panics");
    if let Some(pair) = pair.as_ref().filter(|_| !report.is_clean()) {
        eprintln!("the second broker: {}", pair.log());
    }
    if let Err(e) = cluster.wait_idle(CALM) {
        report.wrong(Wrong::Leak, format!("devices or leases are not given back: {e:#}"));
    }
    let idle = || cluster.nodes.iter().all(|node| node.application_servers().is_empty());
    if process::wait_until("no application is served any more", CALM, idle).is_err() {
        report.wrong(Wrong::Leak, "servers of applications are left".into());
    }
    drop(cluster);
    Ok(report)
}

/// Looks again and again for what must never be.
fn watch(run: &Run) {
    while !run.over.load(SeqCst) {
        {
            let mut cluster = run.cluster();
            for node in &cluster.nodes {
                let programs = node.application_servers().len();
                if programs > PLACES {
                    let what = format!("{programs} programs on {}, which has {PLACES} places", node.name);
                    run.report.wrong(Wrong::Double, what);
                }
            }
            for at in 0..cluster.nodes.len() {
                let name = cluster.nodes[at].name.clone();
                if let Ok(service) = cluster.nodes[at].service()
                    && !service.is_running()
                {
                    run.report.wrong(Wrong::Death, format!("{name}: {}", service.log_text()));
                    let _ = cluster.start_node(at); // what follows is not to fail for that
                }
            }
            if run.watches_broker
                && let Ok(service) = cluster.broker()
                && !service.is_running()
            {
                run.report.wrong(Wrong::Death, format!("the broker: {}", service.log_text()));
                let _ = cluster.start_broker();
            }
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn disturb_broker(run: &Run, ways: &[Way], chance: &mut Chance) -> Result<&'static str> {
    match chance.below(7) {
        0 | 1 => {
            // Killed and started while nothing else looks: the watcher would call it a death.
            let mut cluster = run.cluster();
            cluster.broker()?.kill(false);
            std::thread::sleep(chance.millis(0, 3000));
            cluster.start_broker()?;
            Ok("killed")
        }
        2 => {
            let mut cluster = run.cluster();
            cluster.broker()?.signal(libc::SIGTERM);
            if cluster.broker()?.ends_within(Duration::from_secs(30)).is_err() {
                run.report.wrong(Wrong::Hang, "the broker does not end when it is told to".into());
                cluster.broker()?.kill(true);
            }
            cluster.start_broker()?;
            Ok("told to end")
        }
        3 => {
            run.cluster().broker()?.signal(libc::SIGSTOP);
            // Longer than nodes may be silent, sometimes.
            std::thread::sleep(chance.millis(200, 9000));
            run.cluster().broker()?.signal(libc::SIGCONT);
            Ok("stopped")
        }
        4 => {
            ways.iter().for_each(|way| way.cut(true));
            std::thread::sleep(chance.millis(500, 9000));
            ways.iter().for_each(|way| way.cut(false));
            Ok("cut off")
        }
        5 => {
            let mut cluster = run.cluster();
            cluster.broker()?.kill(false);
            for suffix in ["", "-wal", "-shm"] {
                let _ = std::fs::remove_file(cluster.state().join(format!("broker.sqlite{suffix}")));
            }
            cluster.start_broker()?;
            Ok("state lost")
        }
        _ => {
            let copy = run.cluster().directory().join("copy.sqlite");
            let _ = std::fs::remove_file(&copy); // an earlier one's
            run.cluster().broker_tool(&["backup"], &copy)?;
            std::thread::sleep(chance.millis(500, 4000));
            let mut cluster = run.cluster();
            cluster.broker()?.kill(false);
            cluster.broker_tool(&["restore"], &copy)?;
            cluster.start_broker()?;
            Ok("older state")
        }
    }
}

fn disturb_node(run: &Run, ways: &[Way], chance: &mut Chance) -> Result<&'static str> {
    let at = chance.below(ways.len() as u64 - 1) as usize;
    let node = run.cluster().nodes[at].name.clone();
    match chance.below(4) {
        0 | 1 => {
            let mut cluster = run.cluster();
            run.touched.during(&node, || {
                cluster.nodes[at].service()?.kill(true);
                std::thread::sleep(chance.millis(0, 2000));
                cluster.start_node(at)
            })?;
            Ok("killed")
        }
        2 => run.touched.during(&node, || {
            run.cluster().nodes[at].service()?.signal_all(libc::SIGSTOP);
            std::thread::sleep(chance.millis(200, 9000));
            run.cluster().nodes[at].service()?.signal_all(libc::SIGCONT);
            Ok("stopped")
        }),
        3 => {
            // Its programs may not feel it: this excuses nothing.
            ways[at].cut(true);
            std::thread::sleep(chance.millis(500, 20_000));
            ways[at].cut(false);
            Ok("cut off from the broker")
        }
        _ => bail!("there is no such fault"),
    }
}
