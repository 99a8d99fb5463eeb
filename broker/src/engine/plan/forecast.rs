//! When what waits is expected to be granted: the rounds to come, run on a copy of the state.
//!
//! The copy is let go on by the policy that decides (built anew with the same settings): what runs ends when its program is expected to
//! end, then a round decides about what waits, in the queue's order, and so on. What a lease waits for is what ended on the devices
//! that it is given in the end. Ends that nobody knows never come, and whoever needs one of them has no estimate.
//!
//! A forecast is made by the placement's thread between two rounds. Its work has limits: so many rounds, requests and milliseconds, and
//! after it a rest of [`REST`] times as long. No forecast takes the engine's lock.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::time::{Duration, Instant};

use rgpu_control::LeaseId;
use rgpu_control::api::{Alternative, Basis, LeaseState, PolicySettings, SettingValue};
use rgpu_placement::policy::SPREAD;
use rgpu_placement::{
    ClusterState, DeviceId, DeviceKind, Error, Grant, JobId, Placement, Policy, Reason, Running, Usage,
    WHOLE, Waiting,
};

use super::super::model::{MIB, is_timed};
use super::Planner;

/// A forecast is made anew no more often than this, unless somebody asks why a lease waits (seconds).
pub(crate) const PAUSE_S: f64 = 2.0;
/// After a forecast there is none for so many times as long as it took.
const REST: u32 = 20;
/// How many rounds are run.
const MOST_ROUNDS: usize = 256;
/// How many requests are looked at: those that have waited longest.
const MOST_WAITING: usize = 256;
/// Nothing is said of what comes later than this, in seconds: 30 days.
const HORIZON_S: f64 = 30.0 * 86_400.0;
/// How many leases in a request's way are named.
const MOST_BLOCKERS: usize = 16;
/// For how many leases at a time it is tried what would let them begin.
const MOST_ASKED: usize = 4;

/// An expected moment, in seconds of the placement's time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Moment {
    pub at_s: f64,
    /// Its standard deviation, in seconds.
    pub deviation_s: f64,
    pub basis: Basis,
}

/// What is expected of a lease that waits.
#[derive(Debug)]
pub(crate) struct Forecast {
    /// When it is granted; `None` where nobody knows.
    pub start: Option<Moment>,
    /// How many that wait before it get first what it needs.
    pub queued: u32,
    /// The basis in words, or why nothing is known.
    pub why: String,
    pub blockers: Vec<Blocker>,
    /// With what it would be granted now, where somebody has asked.
    pub alternatives: Option<Vec<Alternative>>,
    /// When this was worked out, in seconds of the placement's time.
    pub made_s: f64,
}

/// A lease that has a part of a device that another one needs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Blocker {
    pub lease: LeaseId,
    /// It waits, too, and comes first.
    pub waits: bool,
    pub node: String,
    /// The device's number in its node.
    pub device: u32,
    /// It is an NVMe device, and its number counts among those.
    pub nvme: bool,
    pub share_milli: u16,
    /// In bytes.
    pub memory: u64,
    pub end: Option<Moment>,
}

/// What the planner keeps for its next forecast.
#[derive(Default)]
pub(super) struct Pending {
    /// What the last round placed: the state has it when it is granted.
    pub placed: Vec<(JobId, Placement)>,
    /// Whether the last round left something that would have fitted.
    pub postponed: bool,
    /// Leases of which somebody wants to know what would let them begin.
    pub asked: Vec<LeaseId>,
    /// When the last forecast was made, in seconds of the placement's time.
    made_s: Option<f64>,
    /// There is none before.
    rest: Option<Instant>,
}

impl Planner {
    /// Whether it is time for a forecast.
    pub(in super::super) fn forecast_is_due(&self, now_s: f64) -> bool {
        let pending = &self.pending;
        let old = pending.made_s.is_none_or(|made_s| now_s - made_s >= PAUSE_S);
        !self.queue.is_empty()
            && (old || !pending.asked.is_empty())
            && pending.rest.is_none_or(|rest| Instant::now() >= rest)
    }

    /// What is expected of everything that waits. `lapsing` says when leases expire that nobody renews any more, in seconds of the
    /// placement's time.
    pub(in super::super) fn forecast(
        &mut self,
        now_s: f64,
        lapsing: &HashMap<LeaseId, f64>,
    ) -> Vec<(LeaseId, Forecast)> {
        let began = Instant::now();
        let Some(state) = self.state.clone() else { return Vec::new() };
        let pending = std::mem::take(&mut self.pending);
        let later = pending.asked.get(MOST_ASKED..).unwrap_or_default().to_vec();
        let forecasts =
            Future::new(self, now_s, lapsing, &pending, state).and_then(|future| future.run(&pending));
        self.pending = Pending {
            asked: later,
            made_s: Some(now_s),
            rest: Some(Instant::now() + began.elapsed() * REST),
            ..Pending::default()
        };
        forecasts.unwrap_or_else(|e| {
            tracing::error!("a defect: what comes could not be foreseen: {e}");
            Vec::new()
        })
    }

    /// For a request for whole devices where parts are spread: how many devices that it could use are only partly used, if their parts
    /// would fit fewer devices.
    fn partly_used(&self, id: LeaseId) -> Option<usize> {
        let spreads = self.settings.policies.find(&self.policy_settings.name).ok()?.settings.iter();
        let is_set = self.policy_settings.settings.get(SPREAD.name) == Some(&SettingValue::Flag(true));
        if !is_set || !spreads.map(|setting| setting.name()).any(|name| name == SPREAD.name) {
            return None;
        }
        let job = self.known.get(&id)?.job;
        let waiting = self.queue.waiting().iter().find(|waiting| waiting.job.id == job)?;
        let wish = waiting.job.tasks.iter().flat_map(|task| &task.devices).next()?;
        let (state, empty) = (self.state.as_ref()?, Usage::new(self.state.as_ref()?.cluster(), 0));
        let (cluster, usage) = (state.cluster(), state.usage());
        let usable = (0..cluster.devices().len() as u32)
            .map(DeviceId)
            .filter(|device| empty.fits_device(cluster, *device, wish));
        let given: Vec<u32> = usable
            .map(|device| u32::from(WHOLE - usage.device_milli(device)))
            .filter(|given| (1..u32::from(WHOLE)).contains(given))
            .collect();
        let needed = given.iter().sum::<u32>().div_ceil(u32::from(WHOLE)) as usize;
        (wish.milli == WHOLE && needed < given.len()).then_some(given.len())
    }

    /// A policy like the one that decides, with some settings changed.
    fn policy_like(&self, settings: &PolicySettings) -> Result<Box<dyn Policy + Send>, Error> {
        super::policy_config(&self.settings.policies, settings, self.settings.seed)?.build()
    }
}

/// The copy of the state, and what has happened to it.
struct Future<'a> {
    planner: &'a Planner,
    lapsing: &'a HashMap<LeaseId, f64>,
    began: Instant,
    now_s: f64,
    state: ClusterState,
    waiting: Vec<Waiting>,
    /// The ends to come, by their time's bits: times are finite and not negative, so these have their order.
    ends: BinaryHeap<Reverse<(u64, JobId)>>,
    /// The ends that are known, of what runs and of what was let begin.
    known: HashMap<JobId, Moment>,
    /// What waited at first and was let begin.
    queued: HashSet<JobId>,
    /// What has ended on each device.
    ended: HashMap<DeviceId, Vec<(JobId, Grant)>>,
    found: Vec<(LeaseId, Forecast)>,
}

impl<'a> Future<'a> {
    fn new(
        planner: &'a Planner,
        now_s: f64,
        lapsing: &'a HashMap<LeaseId, f64>,
        pending: &Pending,
        state: ClusterState,
    ) -> Result<Self, Error> {
        let mut future = Future {
            planner,
            lapsing,
            began: Instant::now(),
            now_s,
            state,
            waiting: Vec::new(),
            ends: BinaryHeap::new(),
            known: HashMap::new(),
            queued: HashSet::new(),
            ended: HashMap::new(),
            found: Vec::new(),
        };
        let placed: HashMap<JobId, &Placement> = pending.placed.iter().map(|(id, at)| (*id, at)).collect();
        for waiting in planner.queue.waiting() {
            match placed.get(&waiting.job.id) {
                Some(placement) => {
                    future.state.start(waiting.job.clone(), (*placement).clone(), now_s)?;
                }
                None if future.waiting.len() < MOST_WAITING => future.waiting.push(waiting.clone()),
                None => {}
            }
        }
        let running: Vec<JobId> = future.state.all_running().map(|running| running.job.id).collect();
        running.into_iter().for_each(|job| future.expect(job, now_s, 0.0));
        Ok(future)
    }

    /// Whether so much of the time is used up that the forecast may take, as a part of it. A round that has begun is not interrupted.
    fn is_late(&self, part: f64) -> bool {
        let most = Duration::from_millis(self.planner.settings.forecast_ms);
        self.began.elapsed() > most.mul_f64(part)
    }

    /// Lets time pass, and gives what is expected of each that waits.
    fn run(mut self, pending: &Pending) -> Result<Vec<(LeaseId, Forecast)>, Error> {
        let mut advice: HashMap<LeaseId, Vec<Alternative>> = HashMap::new();
        for id in pending.asked.iter().take(MOST_ASKED) {
            advice.insert(*id, self.alternatives(*id)?);
        }
        let why = match self.planner.policy.foreseeable() {
            Ok(()) => self.go_on(pending.postponed)?,
            Err(why) => Some(format!("it cannot be foreseen, because {why}")),
        };
        let left: Vec<JobId> = self.planner.queue.waiting().iter().map(|waiting| waiting.job.id).collect();
        let placed: HashSet<JobId> = pending.placed.iter().map(|(id, _)| *id).collect();
        for job in left {
            if !placed.contains(&job) && !self.queued.contains(&job) {
                self.unknown(job, why.as_deref());
            }
        }
        for (id, forecast) in &mut self.found {
            forecast.alternatives = advice.remove(id);
            if let Some(partly) = self.planner.partly_used(*id) {
                forecast.why += &format!(
                    "; {partly} devices are only partly used, because parts are spread over devices (`spread` of the policy)"
                );
            }
        }
        Ok(self.found)
    }

    /// Runs the rounds to come, until nothing is left that ends or waits. Says why it stopped before.
    fn go_on(&mut self, mut postponed: bool) -> Result<Option<String>, Error> {
        let mut policy = self.planner.policy_like(&self.planner.policy_settings)?;
        let interval_s = (self.planner.settings.round_interval_ms as f64 / 1000.0).max(0.01);
        let (mut last_s, mut step_s) = (self.now_s, interval_s);
        for _ in 0..MOST_ROUNDS {
            if self.waiting.is_empty() {
                return Ok(None);
            }
            if self.is_late(1.0) {
                return Ok(Some("there is more to simulate than the broker takes the time for".into()));
            }
            let end_s = self.ends.peek().map(|Reverse((bits, _))| f64::from_bits(*bits));
            // Who is postponed begins when waiting has become dear enough, even where nothing ends.
            let patience_s = postponed.then_some(last_s + step_s);
            let Some(at_s) = [end_s, patience_s].into_iter().flatten().min_by(f64::total_cmp) else {
                return Ok(None);
            };
            if at_s - self.now_s > HORIZON_S {
                return Ok(None);
            }
            step_s = if end_s == Some(at_s) { interval_s } else { step_s * 2.0 };
            let over = self.end_until(at_s)?;
            let rounds = ((at_s - last_s) / interval_s).clamp(1.0, 1e6) as u32;
            self.waiting
                .iter_mut()
                .for_each(|waiting| waiting.rounds = waiting.rounds.saturating_add(rounds));
            last_s = at_s;
            let decisions = policy.schedule(&self.state, &self.waiting, at_s)?;
            for (job, placement) in &decisions.placed {
                self.begin(*job, placement, at_s, &over)?;
            }
            let fits = |reason: &Reason| matches!(reason, Reason::Postponed { .. } | Reason::Disturbing);
            postponed = decisions.left.iter().any(|(_, reason)| fits(reason));
        }
        Ok(Some(format!("more than {MOST_ROUNDS} leases end before, and the broker looks no further")))
    }

    /// Ends what is expected to have ended by then; the latest comes last.
    fn end_until(&mut self, at_s: f64) -> Result<Vec<JobId>, Error> {
        let mut over = Vec::new();
        while let Some(Reverse((bits, job))) = self.ends.peek().copied() {
            if f64::from_bits(bits) > at_s {
                break;
            }
            self.ends.pop();
            let (running, _) = self.state.finish(job, at_s)?;
            for grant in running.placement.tasks.iter().flat_map(|at| &at.grants) {
                self.ended.entry(grant.device).or_default().push((job, *grant));
            }
            over.push(job);
        }
        Ok(over)
    }

    /// A round has placed what waited.
    fn begin(&mut self, job: JobId, placement: &Placement, at_s: f64, over: &[JobId]) -> Result<(), Error> {
        let Some(at) = self.waiting.iter().position(|waiting| waiting.job.id == job) else { return Ok(()) };
        let waiting = self.waiting.remove(at);
        self.state.start(waiting.job.clone(), placement.clone(), at_s)?;
        let cause = over.last().and_then(|job| self.known.get(job)).copied();
        let (basis, deviation_s) =
            cause.map_or((Basis::Waiting, 0.0), |cause| (cause.basis, cause.deviation_s));
        let grants = placement.tasks.iter().flat_map(|at| &at.grants);
        let mut in_way: Vec<(JobId, Grant)> =
            grants.filter_map(|grant| self.ended.get(&grant.device)).flatten().copied().collect();
        if in_way.is_empty() {
            // What ended made room on a link, or an objective possible.
            let ended = self.ended.values().flatten().copied();
            in_way = ended.filter(|(job, _)| over.contains(job)).collect();
        }
        let mut blockers: Vec<Blocker> =
            in_way.iter().filter_map(|(job, grant)| self.blocker(*job, grant)).collect();
        sort(&mut blockers);
        let queued = blockers.iter().filter(|blocker| blocker.waits).map(|blocker| blocker.lease);
        let queued = queued.collect::<HashSet<_>>().len() as u32;
        blockers.truncate(MOST_BLOCKERS);
        if let Some(id) = self.planner.ids.get(&job) {
            let start = Moment { at_s, deviation_s, basis };
            let why = in_words(basis, queued);
            self.found.push((
                *id,
                Forecast {
                    start: Some(start),
                    queued,
                    why,
                    blockers,
                    alternatives: None,
                    made_s: self.now_s,
                },
            ));
        }
        self.queued.insert(job);
        self.expect(job, at_s, deviation_s);
        Ok(())
    }

    /// Nobody knows when a request is granted: names who has what it could use.
    fn unknown(&mut self, job: JobId, why: Option<&str>) {
        let planner = self.planner;
        let (Some(id), Some(state)) = (planner.ids.get(&job), &planner.state) else { return };
        let Some(waiting) = planner.queue.waiting().iter().find(|waiting| waiting.job.id == job) else {
            return;
        };
        let cluster = state.cluster();
        let empty = Usage::new(cluster, 0);
        let requests = || waiting.job.tasks.iter().flat_map(|task| &task.devices);
        let usable = |device| requests().any(|request| empty.fits_device(cluster, device, request));
        let mut blockers = Vec::new();
        // Who comes first out of the queue may stay for ever, too.
        let first = self.state.all_running().filter(|running| self.queued.contains(&running.job.id));
        for running in state.all_running().chain(first) {
            let grants = running.placement.tasks.iter().flat_map(|at| &at.grants);
            let grants = grants.filter(|grant| usable(grant.device));
            blockers.extend(grants.filter_map(|grant| self.blocker(running.job.id, grant)));
        }
        sort(&mut blockers);
        let endless: HashSet<LeaseId> =
            blockers.iter().filter(|b| b.end.is_none()).map(|blocker| blocker.lease).collect();
        let why = match why {
            _ if !self.waiting.iter().any(|waiting| waiting.job.id == job) => {
                format!("{MOST_WAITING} requests or more wait before it, and the broker looks no further")
            }
            Some(why) => why.to_owned(),
            None if blockers.is_empty() => {
                "no lease has what it needs: nodes that could serve it are not available, or the policy waits for something else"
                    .into()
            }
            None if endless.is_empty() => {
                "even when all leases have ended whose end is known, no placement is found for it".into()
            }
            None => format!(
                "nobody knows when {} what it needs, or {} it first: no earlier run of its program is known",
                match endless.len() {
                    1 => "the lease ends that has".to_owned(),
                    count => format!("one of {count} leases ends that have"),
                },
                if endless.len() == 1 { "gets" } else { "get" },
            ),
        };
        blockers.truncate(MOST_BLOCKERS);
        self.found.push((
            *id,
            Forecast { start: None, queued: 0, why, blockers, alternatives: None, made_s: self.now_s },
        ));
    }

    /// Takes note of when a job ends that runs in the copy, if anybody knows.
    fn expect(&mut self, job: JobId, at_s: f64, start_deviation_s: f64) {
        if let Some(end) = self.end_of(job, at_s, start_deviation_s) {
            self.known.insert(job, end);
            self.ends.push(Reverse((end.at_s.max(0.0).to_bits(), job)));
        }
    }

    fn end_of(&self, job: JobId, at_s: f64, start_deviation_s: f64) -> Option<Moment> {
        let id = self.planner.ids.get(&job)?;
        let known = self.planner.known.get(id)?;
        if known.record.state == LeaseState::Ending {
            return Some(Moment { at_s, deviation_s: 0.0, basis: Basis::Ending });
        }
        if let Some(expires_s) = self.lapsing.get(id) {
            return Some(Moment { at_s: expires_s.max(at_s), deviation_s: 0.0, basis: Basis::Expiry });
        }
        let running: &Running = self.state.running(job)?;
        let time = self.planner.profiles.run_time(&known.record.tenant, &known.record.request)?;
        let grants = || running.placement.tasks.iter().flat_map(|at| &at.grants);
        let share =
            grants().filter(|grant| self.is_gpu(grant)).map(|grant| grant.milli).min().unwrap_or(WHOLE);
        // Who may be resized has at least what it uses.
        let share = known.size.map_or(share, |size| size.promised_milli);
        let is_remote = grants().any(|grant| self.state.cluster().device(grant.device).node != known.home);
        // The job of a request with a deadline or an estimate has its share in its scale already.
        let stretch = match is_timed(&known.record.request) {
            true => 1.0,
            false => time.stretch(f64::from(share) / f64::from(WHOLE)),
        };
        let total_s = self.state.completion_s(job)? * stretch;
        let deviation_s = total_s * time.deviation(is_remote);
        // Who is late may end at any moment, and may as well be later still.
        let left_s = (total_s - (at_s - running.started_s)).max(deviation_s);
        let end_s = at_s + left_s;
        (end_s.is_finite()).then_some(Moment {
            at_s: end_s,
            deviation_s: deviation_s.hypot(start_deviation_s),
            basis: time.basis,
        })
    }

    fn is_gpu(&self, grant: &Grant) -> bool {
        self.state.cluster().device(grant.device).kind == DeviceKind::Gpu
    }

    fn blocker(&self, job: JobId, grant: &Grant) -> Option<Blocker> {
        let found = self.planner.found(self.state.cluster(), grant);
        Some(Blocker {
            lease: *self.planner.ids.get(&job)?,
            waits: self.queued.contains(&job),
            node: found.node,
            device: found.device,
            nvme: found.kind == DeviceKind::Nvme,
            share_milli: grant.milli,
            memory: grant.memory_mib * MIB,
            end: self.known.get(&job).copied(),
        })
    }
}

/// Whose end is known comes first, the earliest first of all.
fn sort(blockers: &mut Vec<Blocker>) {
    blockers.sort_by(|a, b| {
        let at = |blocker: &Blocker| blocker.end.map_or(f64::INFINITY, |end| end.at_s);
        at(a).total_cmp(&at(b)).then_with(|| (a.lease, &a.node, a.device).cmp(&(b.lease, &b.node, b.device)))
    });
    blockers.dedup();
}

fn in_words(basis: Basis, queued: u32) -> String {
    let basis = match basis {
        Basis::Learnt => "by how long earlier runs took of the program that it waits for",
        Basis::Similar => {
            "by how long the program that it waits for took with other inputs, which is uncertain"
        }
        Basis::Estimate => "by how long the program that it waits for takes, as its request says",
        Basis::Profile => "by the written profile of the program that it waits for",
        Basis::Expiry => "a lease in its way is not renewed any more, and expires then",
        Basis::Ending => "a lease in its way is being ended",
        Basis::Waiting => "the policy postpones it no longer than that",
        Basis::Unknown => "nothing is known",
    };
    match queued {
        0 => basis.to_owned(),
        1 => format!("{basis}; 1 request that waits before it comes first"),
        _ => format!("{basis}; {queued} requests that wait before it come first"),
    }
}

mod advice;
