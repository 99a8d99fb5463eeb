//! What programs' runs have taught: the records, the estimates made of them, and how a run is watched.
//!
//! A run is what a lease was for, from its grant to the moment in which its holder said that the program had ended well. While it
//! lasts, each heartbeat of a node that serves it says what else there was on the links; the node's last word about it says
//! what it used. A tenant's runs count for its own programs only: nobody's records decide about somebody else's.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use rgpu_control::LeaseId;
use rgpu_control::api::{GrantUsage, LearntProfile, LeaseState, Quantity};
use rgpu_placement::WHOLE;
use rgpu_placement::learning::{Estimate, Run, Uncertain, estimate};

use super::core::{Core, Undo};
use super::model::{MIB, ProfileTable};
use crate::store::{LeaseRecord, RunRecord, Write};

/// How many runs of a program are kept: the latest.
const RUNS: usize = 32;
/// How many programs: those that ran last.
pub(super) const PROGRAMS: usize = 1024;
/// The placement's model is made anew for other profiles, and no more often than this (ms).
const PAUSE_MS: u64 = 2000;
/// Where no expected value has changed by more than this part, the placement isn't told.
const MATERIAL: f64 = 0.05;
/// Shorter runs say nothing about where a program runs: starting it took most of them (seconds).
const SHORTEST_S: f64 = 0.05;
/// More bytes than a program sends and receives before it does anything.
const STARTING: u64 = 64 << 10;
/// Of a remote run the network must have been watched for this part of its time.
const WATCHED: f64 = 0.5;
/// But not of one that is over within so many heartbeats.
const SHORT_BEATS: f64 = 10.0;

/// A tenant's program.
pub(crate) type Program = (String, String);

/// What is known of a program.
#[derive(Clone)]
pub(crate) struct Known {
    /// The latest runs, the oldest first.
    runs: Vec<Arc<RunRecord>>,
    /// What they say, once somebody has asked: a program may run often between two questions.
    estimate: OnceLock<Estimate>,
}

impl Known {
    fn of(runs: Vec<Arc<RunRecord>>) -> Self {
        Self { runs, estimate: OnceLock::new() }
    }

    /// What the runs say.
    pub(super) fn estimate(&self) -> &Estimate {
        self.estimate.get_or_init(|| {
            let seen: Vec<Run> = self.runs.iter().map(|run| seen(run)).collect();
            estimate(&seen)
        })
    }

    fn last_ms(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.ended_ms)
    }
}

/// A record as the placement library has it.
fn seen(run: &RunRecord) -> Run {
    Run {
        input: run.input,
        seconds: run.seconds,
        remote_share: run.remote_share,
        load: run.load,
        traffic_mbps: run.traffic_mbps,
        capacity_mbps: run.capacity_mbps,
        memory_mib: run.memory_mib,
        share: run.share,
    }
}

/// All programs of which something is known.
#[derive(Clone, Default)]
pub(crate) struct Learnt(BTreeMap<Program, Known>);

impl Learnt {
    /// From what was kept.
    pub(super) fn restore(mut kept: Vec<RunRecord>) -> Self {
        kept.sort_by_key(|run| (run.ended_ms, run.id));
        let mut programs: BTreeMap<Program, Vec<Arc<RunRecord>>> = BTreeMap::new();
        for run in kept {
            let program = (run.tenant.clone(), run.program.clone());
            programs.entry(program).or_default().push(Arc::new(run));
        }
        Self(programs.into_iter().map(|(program, runs)| (program, Known::of(runs))).collect())
    }

    /// The programs and what is known of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Program, &Known)> {
        self.0.iter()
    }

    /// Whether something is known of a program.
    pub(super) fn has(&self, program: &Program) -> bool {
        self.0.contains_key(program)
    }

    /// The program that ran longest ago, where there are too many.
    fn superfluous(&self) -> Option<Program> {
        let oldest = || self.0.iter().min_by_key(|(program, known)| (known.last_ms(), *program));
        (self.0.len() > PROGRAMS).then(oldest).flatten().map(|(program, _)| program.clone())
    }
}

/// Whether the placement would decide otherwise.
fn is_material(before: Option<&Estimate>, now: &Estimate) -> bool {
    let Some(before) = before else { return true };
    let differ = |a: f64, b: f64| (a - b).abs() > MATERIAL * a.abs().max(b.abs()).max(0.02);
    let mean = |quantity: Option<Uncertain>| quantity.map_or(0.0, |quantity| quantity.mean);
    differ(before.slowdown.mean, now.slowdown.mean)
        || differ(before.sensitivity.mean, now.sensitivity.mean)
        || differ(mean(before.traffic_mbps), mean(now.traffic_mbps))
        || now.local_s.iter().any(|(input, time)| {
            before.local_s.get(input).is_none_or(|earlier| differ(earlier.mean, time.mean))
        })
}

/// What was seen of a run besides what its nodes say that it used.
#[derive(Default)]
pub(crate) struct Watched {
    /// By node: when it was last heard, in ms of the engine's time, and what had come in and gone out by then.
    heard: BTreeMap<String, (u64, [u64; 2])>,
    /// For how long the links to remote devices were watched, in ms, and the sum of their load over that time.
    watched_ms: f64,
    load_ms: f64,
    /// When its holder said that its program had ended well, in seconds of the placement's time.
    pub finished_s: Option<f64>,
}

/// Bytes that have come in and gone out.
fn bytes(usage: &[GrantUsage]) -> [u64; 2] {
    // What a node says may be anything.
    let add = |[into, out]: [u64; 2], usage: &GrantUsage| {
        [into.saturating_add(usage.bytes_in), out.saturating_add(usage.bytes_out)]
    };
    usage.iter().fold([0, 0], add)
}

impl Core {
    /// What others put on a node's link while a program there (or with devices there) has such traffic, as a part of what it can carry.
    fn load_by_others(&self, node: &str, [own_in, own_out]: [f64; 2]) -> Option<f64> {
        let live = &self.nodes.get(node)?.live;
        let others = (live.nic_in_mbps as f64 - own_in).max(live.nic_out_mbps as f64 - own_out);
        // More than twice what it can carry is a matter of how it was measured.
        Some((others / self.nic_mbps(node)).clamp(0.0, 2.0))
    }

    fn nic_mbps(&self, node: &str) -> f64 {
        let known = self.nodes.get(node);
        let mbps = known
            .map_or(self.settings.default_nic_mbps, |node| self.settings.nic_mbps(&node.record.registration));
        mbps.max(1) as f64
    }

    /// A node has said what a lease uses there: takes note of what else was on the way to it.
    pub(super) fn watch_run(&mut self, node: &str, id: LeaseId) {
        let now = self.now();
        let Some(entry) = self.leases.get_mut(&id) else { return };
        if entry.record.state != LeaseState::Active || entry.record.home == node {
            return;
        }
        let Some((_, usage)) = entry.live.usage.get(node) else { return };
        let (home, bytes) = (entry.record.home.clone(), bytes(usage));
        let Some((then, before)) = entry.live.watched.heard.insert(node.to_owned(), (now, bytes)) else {
            return;
        };
        let ms = now.saturating_sub(then) as f64;
        if ms == 0.0 {
            return;
        }
        let mbps = |i: usize| bytes[i].saturating_sub(before[i]) as f64 * 8.0 / 1000.0 / ms;
        let (into, out) = (mbps(0), mbps(1));
        let here = self.load_by_others(node, [into, out]).unwrap_or(0.0);
        // What comes in here goes out there.
        let load = here.max(self.load_by_others(&home, [out, into]).unwrap_or(0.0));
        if let Some(entry) = self.leases.get_mut(&id) {
            entry.live.watched.watched_ms += ms;
            entry.live.watched.load_ms += ms * load;
        }
    }

    /// A lease has ended for good: keeps what its run was like, if it was one that says something.
    pub(super) fn learn(&mut self, id: LeaseId) {
        self.learn_footprint(id);
        let Some(run) = self.run_of(id) else { return };
        let program = (run.tenant.clone(), run.program.clone());
        let mut runs = self.learnt.0.get(&program).map_or_else(Vec::new, |known| known.runs.clone());
        let run = Arc::new(run);
        runs.push(run.clone());
        self.tx_write(Write::Run(run));
        let more = runs.len().saturating_sub(RUNS);
        for old in runs.drain(..more) {
            self.tx_write(Write::ForgetRun(old.id));
        }
        self.put_known(program, Some(Known::of(runs)));
        if let Some(oldest) = self.learnt.superfluous() {
            self.forget_program(&oldest);
        }
    }

    /// Forgets what was learnt of a program.
    pub(super) fn forget_program(&mut self, program: &Program) {
        self.harvest.footprints.remove(program);
        let Some(known) = self.learnt.0.get(program) else { return };
        for run in known.runs.clone() {
            self.tx_write(Write::ForgetRun(run.id));
        }
        self.put_known(program.clone(), None);
    }

    fn put_known(&mut self, program: Program, known: Option<Known>) {
        let old = self.set_known(program.clone(), known);
        self.tx_undo(Undo::Known(program, old));
    }

    /// What was known of it before.
    pub(super) fn set_known(&mut self, program: Program, known: Option<Known>) -> Option<Known> {
        self.profiles_due = true;
        match known {
            Some(known) => self.learnt.0.insert(program, known),
            None => self.learnt.0.remove(&program),
        }
    }

    /// What a lease's run was like; `None` where that says nothing about its program.
    fn run_of(&self, id: LeaseId) -> Option<RunRecord> {
        let entry = self.leases.get(&id)?;
        let (record, watched): (&LeaseRecord, _) = (&entry.record, &entry.live.watched);
        let program = record.request.program.clone()?;
        let seconds = watched.finished_s? - entry.live.granted_s;
        // How much of its device a resizable lease had from moment to moment is not known, so its time says nothing.
        if seconds < SHORTEST_S || record.grants.is_empty() || !record.sizes.is_empty() {
            return None;
        }
        let remote = record.grants.iter().filter(|grant| grant.node != record.home).count();
        let mut used = Run {
            input: record.request.input.unwrap_or(0),
            seconds,
            remote_share: remote as f64 / record.grants.len() as f64,
            load: 0.0,
            traffic_mbps: 0.0,
            capacity_mbps: self.nic_mbps(&record.home),
            memory_mib: 0.0,
            share: 0.0,
        };
        let mut moved = 0;
        let mut worked = false;
        for (node, (_, usage)) in &entry.live.usage {
            for device in usage {
                let busy = device.busy_ms as f64 / 1000.0;
                used.share = used.share.max(busy);
                used.memory_mib = used.memory_mib.max(device.peak_memory as f64 / MIB as f64);
                let copied = device.bytes_in.saturating_add(device.bytes_out);
                worked |= device.busy_ms > 0 || device.launches > 0 || copied > STARTING;
            }
            if *node != record.home {
                moved = bytes(usage).into_iter().max().unwrap_or(0).saturating_add(moved);
                used.capacity_mbps = used.capacity_mbps.min(self.nic_mbps(node));
            }
        }
        // Who never had a device do anything is no example of how it does that.
        if !worked {
            return None;
        }
        if remote > 0 {
            if watched.watched_ms < WATCHED * seconds * 1000.0
                && seconds * 1000.0 > SHORT_BEATS * self.settings.heartbeat_ms as f64
            {
                return None;
            }
            // A run that is over between two heartbeats has met what the placement saw on its nodes' links.
            used.load = match watched.watched_ms > 0.0 {
                true => watched.load_ms / watched.watched_ms,
                false => self.mean_load(record),
            };
            used.traffic_mbps = moved as f64 * 8.0 / 1e6 / seconds / remote as f64;
        }
        let share = f64::from(record.request.share_milli) / f64::from(WHOLE);
        used.seconds = Run::seconds_on_whole_devices(seconds, used.share, share);
        used.share = (used.share / used.seconds).min(1.0);
        let Run { input, seconds, remote_share, load, traffic_mbps, capacity_mbps, memory_mib, share } = used;
        let (id, tenant, ended_ms) = (record.id, record.tenant.clone(), self.unix_ms());
        Some(RunRecord {
            id,
            tenant,
            program,
            input,
            ended_ms,
            seconds,
            remote_share,
            load,
            traffic_mbps,
            capacity_mbps,
            memory_mib,
            share,
        })
    }

    /// The load of others on the links of a lease's remote devices, as the placement sees it.
    fn mean_load(&self, record: &LeaseRecord) -> f64 {
        let remote =
            record.grants.iter().map(|grant| grant.node.as_str()).filter(|node| *node != record.home);
        let load = |node: &str| {
            let others = self.nodes.get(node).map_or(0, |node| node.live.others.mbps());
            (others as f64 / self.nic_mbps(node)).min(2.0)
        };
        remote.chain([record.home.as_str()]).map(load).fold(0.0, f64::max)
    }

    /// Whether the placement would decide otherwise, if it was told what is known now.
    fn is_news(&self) -> bool {
        let differs = |(program, known): (&Program, &Known)| {
            is_material(self.profiles.taught(program), known.estimate())
        };
        self.profiles.has_others(&self.learnt) || self.learnt.iter().any(differs)
    }

    /// Tells the placement what was learnt, if that would change anything and was not done just now.
    pub(super) fn teach(&mut self) {
        let now = self.now();
        if !self.profiles_due || now < self.profiles_ms + PAUSE_MS {
            return;
        }
        (self.profiles_due, self.profiles_ms) = (false, now);
        if !self.is_news() {
            return;
        }
        match ProfileTable::new(&self.settings, &self.learnt) {
            Ok(profiles) => self.profiles = profiles,
            Err(e) => tracing::error!("a defect: what was learnt of programs cannot be used: {e}"),
        }
        // The placement's model refers to the profiles.
        self.changes.topology = true;
    }

    /// What is known of programs: the caller's, or all.
    pub(super) fn learnt_views(&self, tenant: Option<&str>) -> Vec<LearntProfile> {
        let quantity = |of: Uncertain| Quantity { mean: of.mean, deviation: of.deviation };
        let seen = self.learnt.iter().filter(|((owner, _), _)| tenant.is_none_or(|tenant| tenant == owner));
        let seen = seen.map(|(program, known)| (program, known, known.estimate()));
        seen.map(|((tenant, program), known, estimate)| LearntProfile {
            program: program.clone(),
            tenant: tenant.clone(),
            runs: estimate.runs as u32,
            last: known.last_ms() / 1000,
            slowdown: quantity(estimate.slowdown),
            sensitivity: quantity(estimate.sensitivity),
            local_s: estimate
                .local_s
                .iter()
                .map(|(input, time)| (input.to_string(), quantity(*time)))
                .collect(),
            traffic_mbps: estimate.traffic_mbps.map(quantity),
            memory: estimate
                .memory_mib
                .map(|of| Quantity { mean: of.mean * MIB as f64, deviation: of.deviation * MIB as f64 }),
            share_milli: estimate.share.map(|of| Quantity {
                mean: of.mean * f64::from(WHOLE),
                deviation: of.deviation * f64::from(WHOLE),
            }),
            written: self.settings.profiles.iter().any(|written| written.profile.name == *program),
        })
        .collect()
    }
}
