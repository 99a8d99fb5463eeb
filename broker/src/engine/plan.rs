//! The placement's own view of the cluster, and its rounds.
//!
//! The planner mirrors the engine's state: it takes note of leases that are different, and is built anew when nodes come or go.
//! Machines that are no nodes, where programs only run, take spare places that every model has, so that a new client doesn't cost
//! a new model. What a round finds is only a proposal: the engine grants it if it is still free then.

mod explained;
mod forecast;
mod links;
mod shares;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rgpu_control::LeaseId;
use rgpu_control::api::*;
use rgpu_placement::{
    CapabilitySet, Cluster, ClusterState, DeviceKind, DeviceRequest, Grant, JobId, ModelSet, NodeId,
    Placement, Policy, Queue, Reason, Size, Task, TaskPlacement,
};

pub(crate) use self::forecast::{Blocker, Forecast, PAUSE_S};
use super::core::held_grants;
use super::deadlines;
use super::feed::{News, Seen};
use super::leases::Found;
use super::model::{self, MIB, ProfileTable};
use super::observations::Observations;
use super::settings::policy_config;
use super::{Settings, nvmes};
use crate::store::{LeaseRecord, NodeRecord};
use shares::Choice;

/// Job numbers are used once, because policies learn from each new one; at this one, all begins anew.
const LAST_JOB: u32 = 1 << 20;
/// Places for clients that a model has beyond those in use.
const SPARE_PLACES: usize = 64;
/// What is said of jobs that a round didn't look at.
const NOT_CONSIDERED: &str = "others that have waited longer took what was free";

/// What a round came to.
#[derive(Default)]
pub(crate) struct Round {
    pub found: Vec<(LeaseId, Vec<Found>)>,
    pub left: Vec<(LeaseId, String)>,
    pub explanations: Vec<(LeaseId, Arc<LeaseExplanation>)>,
    /// Whether this round counts as one that jobs have waited.
    pub counts: bool,
    pub schedule_us: u64,
    /// What of taking note of what changed was the library's.
    pub update_us: u64,
    pub considered: u64,
    /// The time from when the round began to take note of what changed.
    pub round_us: u64,
}

/// What the model has of a lease: a version of the record, how many nodes have yet to confirm its end, and how much memory counts
/// although the lease does not give it any more; and how much of its device is set aside for it.
type Version = (LeaseState, u64, usize, u64, Option<u16>);

fn version(record: &LeaseRecord, seen: &Seen) -> Version {
    let outstanding = record.outstanding.iter().fold(0, |sum: u64, one| sum.saturating_add(one.memory));
    (record.state, record.version, record.unconfirmed.len(), outstanding, seen.set_aside_milli)
}

/// A lease in the model.
pub(super) struct Known {
    pub(super) job: JobId,
    home: NodeId,
    /// The client whose place that is, where it is no node.
    client: Option<String>,
    version: Version,
    /// Where it waits and leaves its share to the broker.
    choice: Option<Choice>,
    record: Arc<LeaseRecord>,
    /// How much of its device it has, or would have, if it may be resized.
    pub(super) size: Option<Size>,
}

/// How many decisions may be explained besides those that somebody asked for: explaining one takes as long as making it.
struct Allowance {
    left: f64,
    /// When that was worked out.
    at_s: f64,
}

impl Allowance {
    /// How many there are now, where `rate` more come in a second and no more than these are kept.
    fn now(&mut self, now_s: f64, rate: usize) -> usize {
        let more = (now_s - self.at_s).max(0.0) * rate as f64;
        (self.left, self.at_s) = ((self.left + more).min(rate as f64), now_s);
        self.left as usize
    }
}

pub(crate) struct Planner {
    pub(super) settings: Arc<Settings>,
    pub profiles: ProfileTable,
    policy: Box<dyn Policy + Send>,
    policy_settings: PolicySettings,
    disaggregates: bool,
    pub(super) harvests: bool,
    pub(super) state: Option<ClusterState>,
    queue: Queue,
    pub(super) nodes: HashMap<String, NodeId>,
    /// By node: the names of its NVMe devices.
    offered: HashMap<String, Vec<String>>,
    /// By node: its name outside of the model.
    names: Vec<String>,
    /// Places of clients that are free.
    free: Vec<NodeId>,
    /// How many leases each client has.
    clients: HashMap<String, (NodeId, u32)>,
    pub(super) known: HashMap<LeaseId, Known>,
    ids: HashMap<JobId, LeaseId>,
    next_job: u32,
    /// Measured traffic by node, as it was told.
    measured: HashMap<String, u64>,
    /// What was measured of nodes' devices, and of programs' use of them.
    pub(super) observed: Observations,
    /// By node: traffic that programs running there have with devices elsewhere, as declared.
    declared: Vec<u64>,
    /// When the last round counted, in seconds.
    counted_s: f64,
    watched: Vec<JobId>,
    /// Leases whose next decision somebody wants to have explained.
    wanted: Vec<LeaseId>,
    allowance: Allowance,
    /// What the next forecast needs to know.
    pending: forecast::Pending,
    /// Time spent in the library to tell it what has changed.
    updates: Duration,
    pub totals: Totals,
}

/// What the placement's thread has spent since it began, apart from rounds.
#[derive(Clone, Default)]
pub(crate) struct Totals {
    /// Models that were built anew, and the time of that (which is a part of rounds, or of `note_us`).
    pub rebuilds: u64,
    pub rebuild_us: u64,
    /// Taking note of what changed when nothing waited.
    pub note_us: u64,
    /// From decisions until they were stored, without making the grants.
    pub wait_us: u64,
}

impl Planner {
    pub(super) fn new(
        settings: Arc<Settings>,
        policy: &PolicySettings,
        profiles: ProfileTable,
    ) -> Result<Self, rgpu_placement::Error> {
        let config = policy_config(&settings.policies, policy, settings.seed)?;
        Ok(Self {
            profiles,
            policy: config.build()?,
            disaggregates: config.disaggregates(),
            harvests: config.harvests(),
            policy_settings: policy.clone(),
            settings,
            state: None,
            queue: Queue::new(),
            nodes: HashMap::new(),
            offered: HashMap::new(),
            names: Vec::new(),
            free: Vec::new(),
            clients: HashMap::new(),
            known: HashMap::new(),
            ids: HashMap::new(),
            next_job: 0,
            measured: HashMap::new(),
            observed: Observations::default(),
            declared: Vec::new(),
            counted_s: f64::NEG_INFINITY,
            watched: Vec::new(),
            wanted: Vec::new(),
            allowance: Allowance { left: 0.0, at_s: f64::NEG_INFINITY },
            pending: forecast::Pending::default(),
            updates: Duration::ZERO,
            totals: Totals::default(),
        })
    }

    /// How many jobs wait.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Takes note of what has changed. False if the model has to be built anew: come again with everything.
    pub(super) fn take(&mut self, news: &News, now_s: f64) -> bool {
        self.wanted.extend(&news.wanted);
        if news.incomplete {
            return false;
        }
        let mut rebuilt = false;
        if let Some(settings) = &news.policy
            && (*settings != self.policy_settings || self.next_job >= LAST_JOB)
        {
            let config = policy_config(&self.settings.policies, settings, self.settings.seed);
            match config.and_then(|config| Ok((config.build()?, config))) {
                Ok((policy, config)) => {
                    self.policy = policy;
                    self.watched.clear();
                    // What jobs may use depends on it: the model is built anew, too.
                    let same =
                        config.disaggregates() == self.disaggregates && config.harvests() == self.harvests;
                    (self.disaggregates, self.harvests) = (config.disaggregates(), config.harvests());
                    self.policy_settings = settings.clone();
                    if news.nodes.is_none() && !same {
                        return false;
                    }
                }
                Err(e) => tracing::error!("the policy cannot be used: {e}"),
            }
        }
        self.observed.take(news);
        if let Some(nodes) = &news.nodes {
            let began = Instant::now();
            if let Some(profiles) = &news.profiles {
                self.profiles = profiles.clone();
            }
            self.rebuild(nodes, &news.leases);
            self.totals.rebuilds += 1;
            rebuilt = true;
            let mut leases: Vec<&Seen> = news.leases.iter().collect();
            // What runs gets its progress from when it was granted: in this order, neighbours do, too.
            leases.sort_by(|a, b| a.granted_s.total_cmp(&b.granted_s));
            let complete = leases.into_iter().all(|seen| self.note(seen, now_s));
            self.totals.rebuild_us += began.elapsed().as_micros() as u64;
            debug_assert!(complete, "a new model has places for all");
        }
        for (name, mbps) in &news.traffic {
            self.measured.insert(name.clone(), *mbps);
            self.measure(name);
        }
        if rebuilt {
            return true;
        }
        // What became of a lease lately is all that counts.
        let mut seen_before = HashSet::new();
        let latest: Vec<bool> = news.leases.iter().rev().map(|seen| seen_before.insert(seen.id)).collect();
        let latest = news.leases.iter().zip(latest.into_iter().rev()).filter(|(_, latest)| *latest);
        latest.map(|(seen, _)| seen).all(|seen| self.note(seen, now_s)) && self.next_job < LAST_JOB
    }

    /// Builds the model without leases.
    fn rebuild(&mut self, nodes: &[(Arc<NodeRecord>, bool)], leases: &[Seen]) {
        self.queue = Queue::new();
        self.known.clear();
        self.ids.clear();
        self.nodes.clear();
        self.names.clear();
        self.clients.clear();
        if self.next_job >= LAST_JOB {
            self.next_job = 0;
        }
        let mut clients: Vec<&str> = leases
            .iter()
            .filter_map(|seen| seen.record.as_ref())
            .filter(|record| record.state != LeaseState::Ended)
            .map(|record| record.home.as_str())
            .filter(|home| !nodes.iter().any(|(node, _)| node.registration.name == *home))
            .collect();
        clients.sort_unstable();
        clients.dedup();
        let places = 2 * clients.len() + SPARE_PLACES;
        let specs = nodes.iter().map(|(node, available)| model::node_spec(&self.settings, node, *available));
        let spare = (0..places).map(|i| model::client_spec(&self.settings, format!("\u{0}{i}")));
        let cluster = match model::cluster(&self.settings, specs.chain(spare)) {
            Ok(cluster) => cluster,
            Err(e) => {
                // Registrations and settings were checked: nothing is granted until somebody looks at the log.
                tracing::error!("the cluster's model cannot be built, and nothing is granted: {e}");
                self.state = None;
                return;
            }
        };
        let offered = nodes.iter().map(|(node, _)| {
            let about = &node.registration;
            (about.name.clone(), about.nvmes.iter().map(|nvme| nvme.name.clone()).collect())
        });
        self.offered = offered.collect();
        self.names = cluster.nodes().iter().map(|node| node.name.clone()).collect();
        self.nodes = model::numbers(&cluster);
        self.free = (nodes.len()..nodes.len() + places).rev().map(|i| NodeId(i as u32)).collect();
        self.declared = vec![0; cluster.nodes().len()];
        self.state = Some(ClusterState::new(cluster, self.profiles.profiles.clone()));
    }

    /// Makes the model's part of a lease what the lease is now. False if there is no place for its client.
    fn note(&mut self, seen: &Seen, now_s: f64) -> bool {
        let target = seen.record.as_ref().filter(|record| record.state != LeaseState::Ended);
        if let Some(known) = self.known.get(&seen.id) {
            if Some(known.version) == target.map(|record| version(record, seen)) {
                return true;
            }
            self.forget(seen.id, now_s);
        }
        let (Some(record), Some(_)) = (target, &self.state) else { return true };
        let Some(home) = self.place(&record.home) else { return false };
        let job = JobId(self.next_job);
        self.next_job += 1;
        let client = self.clients.contains_key(&record.home).then(|| record.home.clone());
        let (version, kept) = (version(record, seen), record.clone());
        let size = self.size(seen, record);
        self.known.insert(seen.id, Known { job, home, client, version, choice: None, record: kept, size });
        self.ids.insert(job, seen.id);
        let result = match record.state {
            LeaseState::Waiting => self.enqueue(seen, record, job, home, now_s),
            _ => self.run(seen, record, job, home),
        };
        if let Err(e) = result {
            tracing::error!("the lease {} is missing in the cluster's model: {e}", seen.id);
        }
        true
    }

    fn enqueue(
        &mut self,
        seen: &Seen,
        record: &Arc<LeaseRecord>,
        job: JobId,
        home: NodeId,
        now_s: f64,
    ) -> Result<(), rgpu_placement::Error> {
        let Some(state) = &self.state else { return Ok(()) };
        let (cluster, tenant) = (state.cluster(), &record.tenant);
        let milli = self.share(record, home, seen.submit_s, now_s);
        let request = deadlines::decided(&record.request, milli);
        let request: &LeaseRequest = &request;
        let resizable = self.known.get(&seen.id).is_some_and(|known| known.size.is_some());
        let task = self.task(cluster, tenant, request, home, resizable);
        let job = self.profiles.job(tenant, request, job, seen.id.to_string(), seen.submit_s, task);
        if record.request.share_milli == 0
            && let Some(known) = self.known.get_mut(&seen.id)
        {
            known.choice = Some(Choice { milli, submit_s: seen.submit_s });
        }
        let began = Instant::now();
        let result = self.queue.push_waited(Arc::new(job), seen.rounds);
        self.updates += began.elapsed();
        result
    }

    /// What a tenant's request, whose share is decided, wants of a cluster, and whether its lease may be resized.
    fn task(
        &self,
        cluster: &Cluster,
        tenant: &str,
        request: &LeaseRequest,
        home: NodeId,
        resizable: bool,
    ) -> Task {
        let traffic = self.profiles.traffic_mbps(tenant, request);
        let mut wish = model::device_request(cluster, request, traffic);
        if resizable {
            // What is promised to it then is what is left; whether there is room for it, its size says.
            wish.milli = 0;
        }
        let wishes = [wish].into_iter().chain(nvmes::device_request(cluster, request));
        model::task(wishes, home, self.disaggregates)
    }

    /// Makes the model count what a lease has, of devices that the model has.
    fn run(
        &mut self,
        seen: &Seen,
        record: &LeaseRecord,
        job: JobId,
        home: NodeId,
    ) -> Result<(), rgpu_placement::Error> {
        let Some(state) = &mut self.state else { return Ok(()) };
        let traffic = self.profiles.traffic_mbps(&record.tenant, &record.request);
        let mut task = Task::default();
        let mut grants = Vec::new();
        for grant in held_grants(record) {
            let Some(&node) = self.nodes.get(&grant.node) else { continue };
            let Some(device) = state.cluster().node(node).devices().nth(grant.device as usize) else {
                continue;
            };
            let free_mib = state.usage().device_memory_mib(device);
            // Amounts that were rounded up to MiB must not come to more than there is.
            let memory_mib = record.counted(grant).div_ceil(MIB).min(free_mib);
            grants.push(Grant {
                device,
                milli: record.firm_milli(grant),
                memory_mib,
                traffic_mbps: if node == home { 0 } else { traffic },
                request: grants.len() as u16,
            });
            if node != home {
                self.declared[home.index()] += traffic;
            }
            task.devices.push(DeviceRequest {
                kind: DeviceKind::Gpu,
                count: 1,
                milli: record.firm_milli(grant),
                memory_mib,
                models: ModelSet::ANY,
                needs: CapabilitySet::NONE,
                node: None,
                traffic_mbps: traffic,
            });
        }
        let nvme = |nvme: &LeasedNvme| {
            let node = *self.nodes.get(&nvme.node)?;
            let known = self.offered.get(&nvme.node)?.iter().position(|name| *name == nvme.device)?;
            nvmes::of_kind(state.cluster(), node, DeviceKind::Nvme).nth(known)
        };
        for (request, grant) in nvmes::grants(state, record, home, nvme, grants.len()) {
            self.declared[home.index()] += grant.traffic_mbps;
            task.devices.push(request);
            grants.push(grant);
        }
        let job =
            self.profiles.job(&record.tenant, &record.request, job, seen.id.to_string(), seen.submit_s, task);
        let placement = Placement { tasks: vec![TaskPlacement { node: home, regions: Vec::new(), grants }] };
        let began = Instant::now();
        let result = state.start(Arc::new(job), placement, seen.granted_s).map(drop);
        self.updates += began.elapsed();
        result
    }

    fn forget(&mut self, id: LeaseId, now_s: f64) {
        let Some(known) = self.known.remove(&id) else { return };
        self.ids.remove(&known.job);
        if let Some(state) = &mut self.state {
            if state.running(known.job).is_some() {
                let began = Instant::now();
                let finished = state.finish(known.job, now_s);
                self.updates += began.elapsed();
                if let Ok((running, _)) = finished {
                    let grants = running.placement.tasks.iter().flat_map(|at| &at.grants);
                    let sum: u64 = grants.map(|grant| grant.traffic_mbps).sum();
                    let declared = &mut self.declared[known.home.index()];
                    *declared = declared.saturating_sub(sum);
                }
            } else {
                let began = Instant::now();
                self.queue.remove(known.job);
                self.updates += began.elapsed();
            }
        }
        if let Some(name) = known.client
            && let Some((place, count)) = self.clients.get_mut(&name)
        {
            *count -= 1;
            if *count == 0 {
                self.free.push(*place);
                self.clients.remove(&name);
            }
        }
    }

    /// The place of a node or client; a client without one gets one, if one is free.
    fn place(&mut self, home: &str) -> Option<NodeId> {
        if let Some(node) = self.nodes.get(home) {
            return Some(*node);
        }
        if let Some((place, count)) = self.clients.get_mut(home) {
            *count += 1;
            return Some(*place);
        }
        let place = self.free.pop()?;
        self.names[place.index()] = home.to_owned();
        self.clients.insert(home.to_owned(), (place, 1));
        Some(place)
    }

    /// Time spent in the library to tell it what has changed, since this was asked the last time.
    pub(super) fn updates(&mut self) -> Duration {
        std::mem::take(&mut self.updates)
    }

    /// Decides about what waits.
    pub(super) fn round(&mut self, now_s: f64) -> Result<Round, rgpu_placement::Error> {
        let mut round = Round::default();
        self.choose_again(now_s);
        if self.queue.is_empty() {
            return Ok(round);
        }
        self.observe(now_s);
        let Some(state) = &self.state else { return Ok(round) };
        for job in self.watched.drain(..) {
            self.policy.unwatch(job);
        }
        // The newest are those that somebody may be looking at.
        let allowed = self.allowance.now(now_s, self.settings.explained);
        let newest = self.queue.waiting().iter().rev().take(allowed);
        self.watched.extend(newest.map(|waiting| waiting.job.id));
        self.allowance.left -= self.watched.len() as f64;
        let asked = self.wanted.iter().filter_map(|id| self.known.get(id).map(|known| known.job));
        self.watched.extend(asked);
        self.pending.asked.append(&mut self.wanted);
        self.watched.sort_unstable();
        self.watched.dedup();
        self.watched.iter().for_each(|job| self.policy.watch(*job));
        let began = Instant::now();
        let mut decisions = self.policy.schedule(state, self.queue.waiting(), now_s)?;
        round.schedule_us = began.elapsed().as_micros() as u64;
        round.considered = decisions.work.considered;
        round.counts = (now_s - self.counted_s) * 1000.0 >= self.settings.round_interval_ms as f64;
        if round.counts {
            self.counted_s = now_s;
        }
        let mut decided: HashSet<JobId> = HashSet::new();
        for (job, placement) in &decisions.placed {
            decided.insert(*job);
            let grants = placement.tasks.iter().flat_map(|at| &at.grants);
            if let Some(id) = self.ids.get(job) {
                let grants = grants.map(|grant| self.found(state.cluster(), grant));
                round.found.push((*id, grants.collect()));
            }
        }
        for (job, reason) in &decisions.left {
            decided.insert(*job);
            if let Some(id) = self.ids.get(job) {
                round.left.push((*id, reason.to_string()));
            }
        }
        for waiting in self.queue.waiting() {
            if !decided.contains(&waiting.job.id)
                && let Some(id) = self.ids.get(&waiting.job.id)
            {
                round.left.push((*id, NOT_CONSIDERED.into()));
            }
        }
        for job in &self.watched {
            if let (Some(id), Some(explanation)) = (self.ids.get(job), self.policy.explain(*job)) {
                round.explanations.push((*id, Arc::new(self.explain(*id, explanation))));
            }
        }
        self.pending.placed = std::mem::take(&mut decisions.placed);
        self.pending.postponed = decisions
            .left
            .iter()
            .any(|(_, reason)| matches!(reason, Reason::Postponed { .. } | Reason::Disturbing));
        if round.counts {
            // What was placed leaves the queue when it is granted.
            self.queue.apply(&decisions);
        }
        Ok(round)
    }

    /// A part of a device of the model by its node and its number among those of its kind there.
    fn found(&self, cluster: &Cluster, grant: &Grant) -> Found {
        let &Grant { device, milli, .. } = grant;
        let (node, kind) = (cluster.device(device).node, cluster.device(device).kind);
        let first = nvmes::of_kind(cluster, node, kind).next().map_or(0, |first| first.0);
        Found { node: self.names[node.index()].clone(), device: device.0 - first, kind, milli }
    }
}
