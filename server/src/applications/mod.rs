//! What the applications of leases use of this machine beside its devices, and what they are held to there.
//!
//! An application is served by a process of its own, which computes where the device is a software GPU, and copies in any case. The
//! broker's orders say what a lease is to have of the processors ([`ProcessorOrder`]); here its processes get it: processors of
//! their own ([`cores`]), ways of the last-level cache and a part of the memory bandwidth ([`resctrl`]), a weight
//! ([`weights`]). What they use is measured ([`counters`]) and goes to the broker with the leases' reports. This is the node's part
//! of what Spread-n-Share (Tang et al., SC 2019, section 5) calls its node agent.
//!
//! What a machine cannot do is said when the server starts, in one line, and the broker is told. An order for that
//! changes nothing, and is named once.

mod cores;
mod counters;
mod groups;
mod resctrl;
mod weights;

use cores::Cores;
use counters::{Counters, Sums};
use parking_lot::Mutex;
use resctrl::{Resctrl, Wish};
use rgpu_control::LeaseId;
use rgpu_control::api::{LeaseReport, Orders, ProcessorControls, ProcessorOrder, ProcessorUsage};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weights::Weights;

/// Where Linux arranges the machine's processors.
const SYSTEM: &str = "/sys/devices/system";
/// The processors used are worked out over a time at least so long.
const WINDOW: Duration = Duration::from_secs(1);

/// How applications are held to what leases have of the processors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessorOptions {
    /// Where resctrl is mounted, if it is.
    pub resctrl: PathBuf,
    /// A cgroup (version 2) that was given to the server, for weights.
    pub cgroup: Option<PathBuf>,
}

impl Default for ProcessorOptions {
    fn default() -> Self {
        Self { resctrl: rgpu_control::settings::RESCTRL.into(), cgroup: None }
    }
}

/// The applications of this server's leases. Orders, beginnings and ends come in from any thread.
pub(crate) struct Applications {
    controls: ProcessorControls,
    inner: Mutex<Inner>,
}

struct Inner {
    cores: Cores,
    /// Or why there is none.
    resctrl: Result<Resctrl, String>,
    weights: Result<Weights, String>,
    /// Whether the processors count what processes do.
    counts: bool,
    /// The version of the latest orders.
    followed: u64,
    leases: BTreeMap<LeaseId, Held>,
    /// What was said already.
    said: HashSet<String>,
}

/// What is known of a lease.
#[derive(Default)]
struct Held {
    order: ProcessorOrder,
    /// Whether the latest orders name it.
    ordered: bool,
    processes: BTreeMap<u32, Counters>,
    /// What processes have used that have ended.
    past: Sums,
    /// When the last window ended, the processor time (ms) by then, and the thousandths of processors used in it.
    window: Option<(Instant, u64, u32)>,
}

impl Held {
    fn is_over(&self) -> bool {
        !self.ordered && self.processes.is_empty()
    }
}

impl Applications {
    /// For the leases of a node. Says what this machine can do.
    pub(crate) fn new(options: &ProcessorOptions, node: &str) -> Self {
        let cores = Cores::read(Path::new(SYSTEM)).unwrap_or_else(|e| {
            tracing::warn!("which processors there are is not known: {e}");
            Cores::default()
        });
        let resctrl = Resctrl::open(&options.resctrl, node);
        let weights = match &options.cgroup {
            Some(folder) => Weights::open(folder, node),
            None => Err("no cgroup is named (--cgroup)".to_owned()),
        };
        let counts = Counters::check();
        let controls = ProcessorControls {
            cores: cores.count() as u32,
            weights: weights.is_ok(),
            llc_ways: resctrl.as_ref().map_or(0, Resctrl::ways),
            memory_bandwidth: resctrl.as_ref().is_ok_and(Resctrl::limits_bandwidth),
        };
        say(&controls, &resctrl, &weights, &counts);
        let inner = Inner {
            cores,
            resctrl,
            weights,
            counts: counts.is_ok(),
            followed: 0,
            leases: BTreeMap::new(),
            said: HashSet::new(),
        };
        Self { controls, inner: Mutex::new(inner) }
    }

    /// What leases can be held to here.
    pub(crate) fn controls(&self) -> ProcessorControls {
        self.controls.clone()
    }

    /// A process for an application of a lease was started.
    pub(crate) fn started(&self, lease: LeaseId, process: u32) {
        let mut inner = self.inner.lock();
        let counters = if inner.counts { Counters::open(process) } else { Counters::none() };
        inner.leases.entry(lease).or_default().processes.insert(process, counters);
        inner.settle();
        // Settling has put it into groups that are new.
        inner.hold(lease, process);
    }

    /// A process has ended, and nobody has waited for it: its number is still its own.
    pub(crate) fn ended(&self, lease: LeaseId, process: u32) {
        let mut inner = self.inner.lock();
        let Some(held) = inner.leases.get_mut(&lease) else { return };
        if let Some(mut counters) = held.processes.remove(&process) {
            held.past = held.past.plus(counters.read(process));
        }
        inner.settle();
    }

    /// Takes the broker's orders, unless newer ones were taken already.
    pub(crate) fn follow(&self, orders: &Orders) {
        let mut inner = self.inner.lock();
        if orders.version <= inner.followed {
            return;
        }
        inner.followed = orders.version;
        let named: BTreeSet<LeaseId> = orders.leases.iter().map(|order| order.lease).collect();
        for (lease, held) in &mut inner.leases {
            held.ordered = named.contains(lease);
        }
        for order in &orders.leases {
            let held = inner.leases.entry(order.lease).or_default();
            held.ordered = true;
            held.order = order.processors.clone().unwrap_or_default();
        }
        inner.settle();
    }

    /// Adds to the reports of leases, and of those that have ended, what their processes use and have used. A lease that neither
    /// names, and of which nothing is left, is forgotten.
    pub(crate) fn add_to(&self, reports: &mut [LeaseReport], used: &mut [LeaseReport]) {
        let mut inner = self.inner.lock();
        let now = Instant::now();
        for report in reports.iter_mut().chain(used.iter_mut()) {
            report.processors = inner.usage(report.lease, now);
        }
        let told: HashSet<LeaseId> = reports.iter().chain(used.iter()).map(|report| report.lease).collect();
        inner.leases.retain(|lease, held| !held.is_over() || told.contains(lease));
    }

    /// Leaves nothing behind.
    pub(crate) fn stop(&self) {
        let inner = &mut *self.inner.lock();
        let _ = inner.resctrl.as_mut().map(Resctrl::clear);
        let _ = inner.weights.as_mut().map(Weights::clear);
    }
}

/// Says in one line what leases can be held to, and why not to the rest.
fn say(
    controls: &ProcessorControls,
    resctrl: &Result<Resctrl, String>,
    weights: &Result<Weights, String>,
    counts: &io::Result<()>,
) {
    let mut can = vec![format!("{} processors", controls.cores)];
    let mut cannot = Vec::new();
    match resctrl {
        Err(why) => cannot.push(format!("cache ways and memory bandwidth ({why})")),
        Ok(_) => {
            match controls.llc_ways {
                0 => cannot.push("cache ways (resctrl knows none here)".into()),
                ways => can.push(format!("{ways} ways of the last-level cache")),
            }
            match controls.memory_bandwidth {
                false => cannot.push("memory bandwidth (resctrl has no percentages of it here)".into()),
                true => can.push("memory bandwidth".into()),
            }
        }
    }
    match weights {
        Ok(_) => can.push("weights".into()),
        Err(why) => cannot.push(format!("weights ({why})")),
    }
    let counted = match counts {
        Ok(()) => String::new(),
        Err(why) => format!(
            "; instructions, cycles and cache misses are not measured ({why}: no such counters here, or not for this user)"
        ),
    };
    let cannot = match cannot.as_slice() {
        [] => String::new(),
        parts => format!("; not: {}", parts.join(", ")),
    };
    tracing::info!("leases can be given, where the broker orders it: {}{cannot}{counted}", can.join(", "));
}

impl Inner {
    /// Gives all leases what was ordered, and takes it from those that are over.
    fn settle(&mut self) {
        let alive = || self.leases.iter().filter(|(_, held)| !held.is_over());
        let cores = alive().filter_map(|(lease, held)| Some((*lease, held.order.cores?))).collect();
        let wish =
            |held: &Held| Wish { ways: held.order.llc_ways, percent: held.order.memory_bandwidth_percent };
        let wishes: BTreeMap<LeaseId, Wish> = alive().map(|(lease, held)| (*lease, wish(held))).collect();
        let weights: BTreeMap<LeaseId, Option<u32>> =
            alive().map(|(lease, held)| (*lease, held.order.weight)).collect();
        for lease in self.cores.settle(&cores) {
            self.pin_all(lease);
        }
        let (new, failed) = match &mut self.resctrl {
            Ok(resctrl) => resctrl.settle(&wishes),
            Err(why) => {
                let wished = wishes.iter().filter(|(_, wish)| **wish != Wish::default());
                (Vec::new(), wished.map(|(lease, _)| (*lease, why.clone())).collect())
            }
        };
        new.into_iter().for_each(|lease| self.for_each_process(lease, Self::add_to_resctrl));
        self.complain("ways of the last-level cache or a part of the memory bandwidth", failed);
        let (new, failed) = match &mut self.weights {
            Ok(groups) => groups.settle(&weights),
            Err(why) => {
                let wished = weights.iter().filter(|(_, weight)| weight.is_some());
                (Vec::new(), wished.map(|(lease, _)| (*lease, why.clone())).collect())
            }
        };
        new.into_iter().for_each(|lease| self.for_each_process(lease, Self::add_to_weights));
        self.complain("a weight", failed);
    }

    /// Holds a process that was just started to what its lease has.
    fn hold(&mut self, lease: LeaseId, process: u32) {
        if self.cores.has_own(lease) {
            self.pin(lease, process);
        }
        if self.resctrl.as_ref().is_ok_and(|resctrl| resctrl.of(lease).is_some()) {
            self.add_to_resctrl(lease, process);
        }
        if self.weights.as_ref().is_ok_and(|weights| weights.of(lease).is_some()) {
            self.add_to_weights(lease, process);
        }
    }

    fn for_each_process(&mut self, lease: LeaseId, act: fn(&mut Self, LeaseId, u32)) {
        let processes =
            self.leases.get(&lease).map(|held| held.processes.keys().copied().collect::<Vec<_>>());
        processes.into_iter().flatten().for_each(|process| act(self, lease, process));
    }

    fn pin_all(&mut self, lease: LeaseId) {
        self.for_each_process(lease, Self::pin);
    }

    fn pin(&mut self, lease: LeaseId, process: u32) {
        let cores = self.cores.of(lease);
        let pinned = each_thread(process, |thread| cores::pin(thread, &cores));
        self.note(lease, "processors of its own", pinned);
    }

    fn add_to_resctrl(&mut self, lease: LeaseId, process: u32) {
        let Ok(resctrl) = &self.resctrl else { return };
        let added = each_thread(process, |thread| resctrl.add(lease, thread));
        self.note(lease, "ways of the last-level cache or a part of the memory bandwidth", added);
    }

    fn add_to_weights(&mut self, lease: LeaseId, process: u32) {
        let Ok(weights) = &self.weights else { return };
        let added = weights.add(lease, process);
        self.note(lease, "a weight", added);
    }

    fn note(&mut self, lease: LeaseId, what: &str, result: io::Result<()>) {
        if let Err(e) = result {
            self.complain(what, vec![(lease, e.to_string())]);
        }
    }

    /// Says what leases do not get, each reason once.
    fn complain(&mut self, what: &str, failed: Vec<(LeaseId, String)>) {
        for (lease, why) in failed {
            let text = format!("{what}: {why}");
            if self.said.len() < 64 && self.said.insert(text) {
                tracing::warn!(
                    "lease {lease} is to have {what}, and does not get it: {why} (said once; others may lack it, too)"
                );
            }
        }
    }

    /// What a lease has used, and what it is held to.
    fn usage(&mut self, lease: LeaseId, now: Instant) -> Option<ProcessorUsage> {
        let held = self.leases.get_mut(&lease)?;
        let running = held.processes.iter_mut().map(|(process, counters)| counters.read(*process));
        let sums = running.fold(held.past, Sums::plus);
        let cpu_milli = held.window(now, sums.cpu_ms);
        let resctrl = self.resctrl.as_ref().ok();
        let has = resctrl.and_then(|resctrl| resctrl.of(lease)).unwrap_or_default();
        let seen = resctrl.map(|resctrl| resctrl.seen(lease)).unwrap_or_default();
        let [instructions, cycles, llc_misses] = sums.counts;
        Some(ProcessorUsage {
            cpu_ms: sums.cpu_ms,
            cpu_milli,
            instructions,
            cycles,
            llc_misses,
            llc_bytes: seen.llc_bytes,
            memory_bytes: seen.memory_bytes,
            cores: self.cores.has_own(lease).then(|| cores::list(&self.cores.of(lease))),
            weight: self.weights.as_ref().ok().and_then(|weights| weights.of(lease)),
            llc_mask: has.mask.map(|mask| format!("{mask:x}")),
            memory_bandwidth_percent: has.percent,
        })
    }
}

impl Held {
    /// Thousandths of processors used in the last window that is over.
    fn window(&mut self, now: Instant, cpu_ms: u64) -> u32 {
        match &mut self.window {
            None => self.window = Some((now, cpu_ms, 0)),
            Some((since, before, milli)) => {
                let time = now.saturating_duration_since(*since);
                if time >= WINDOW {
                    let used = u128::from(cpu_ms.saturating_sub(*before)) * 1000;
                    *milli = (used / time.as_millis()).min(u128::from(u32::MAX)) as u32;
                    (*since, *before) = (now, cpu_ms);
                }
            }
        }
        self.window.map_or(0, |(_, _, milli)| milli)
    }
}

/// Does something with each thread of a process, and with those that the process starts meanwhile. A thread that was done is
/// what those that it starts inherit from, so once all are done there is nothing left to do.
fn each_thread(process: u32, act: impl Fn(u32) -> io::Result<()>) -> io::Result<()> {
    /// A process that starts threads faster than they can be looked at is not waited for.
    const ROUNDS: usize = 16;
    let mut done = HashSet::new();
    for _ in 0..ROUNDS {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return Ok(()) };
        let threads = threads.flatten().filter_map(|thread| thread.file_name().to_str()?.parse().ok());
        let new: Vec<u32> = threads.filter(|thread| !done.contains(thread)).collect();
        if new.is_empty() {
            break;
        }
        for thread in new {
            match act(thread) {
                // It has ended meanwhile.
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                other => other?,
            }
            done.insert(thread);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
