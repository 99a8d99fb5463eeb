//! The event loop: arrivals, rounds of the scheduler, ends of jobs.

use std::sync::Arc;

use rgpu_placement::{
    Cluster, ClusterState, DeviceId, DeviceKind, Explanation, Job, JobId, Placement, Policy, Profiles, Queue,
    Reason, TaskPlacement,
};

use crate::error::Result;
use crate::events::{Event, Events};
use crate::formats::Submission;
use crate::time::{Micros, Work};

/// Tells real time in microseconds since whenever; only for how long the scheduler takes, which is no part of an
/// [`Outcome`].
pub type Clock<'a> = dyn Fn() -> u64 + Sync + 'a;

/// Is told, now and then, how many more jobs have ended.
pub type Progress<'a> = dyn Fn(usize) + Sync + 'a;

/// When the scheduler is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounds {
    /// At every multiple of an interval while jobs wait.
    Every(Micros),
    /// After arrivals and ends, as long as jobs wait, but not sooner than this after the round before.
    OnChange(Micros),
}

/// A job that runs from the beginning in a given place and is no part of the measurement.
#[derive(Clone, Debug)]
pub struct WarmUp {
    /// The job; all its tasks run in one node, without devices.
    pub submission: Submission,
    /// The node in which it runs, all of its devices there.
    pub node: rgpu_placement::NodeId,
}

/// Everything that a simulation needs.
pub struct Setup<'a> {
    /// The cluster, empty but for what is warm.
    pub cluster: Arc<Cluster>,
    /// How jobs behave.
    pub profiles: Arc<Profiles>,
    /// What runs from the beginning. The numbers of the jobs must differ from the others'.
    pub warm_up: &'a [WarmUp],
    /// What is submitted, with the numbers 0, 1, 2, …
    pub jobs: &'a [Submission],
    /// When the scheduler is called.
    pub rounds: Rounds,
    /// Which decisions are to be explained.
    pub explain: &'a [JobId],
}

/// What became of one job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobOutcome {
    /// When it started, if it ever did.
    pub start: Option<Micros>,
    /// When it ended, if it ever did.
    pub end: Option<Micros>,
    /// Devices it was given.
    pub devices: u32,
    /// Of these, those in other nodes.
    pub remote: u32,
    /// The node of its first task.
    pub node: u32,
    /// Which devices it was given, sorted.
    pub granted: Vec<DeviceId>,
    /// In how many rounds it was postponed for the sake of its objective, or of others'.
    pub postponed: u32,
}

impl JobOutcome {
    /// How long it ran.
    pub fn run(&self) -> Option<Micros> {
        Some(self.end?.since(self.start?))
    }
}

/// The cluster at one moment, from then on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The moment, since the simulation's beginning.
    pub at: Micros,
    /// Thousandths of GPUs given to jobs.
    pub gpu_milli: u64,
    /// Of these, those given to tasks in other nodes.
    pub remote_gpu_milli: u64,
    /// Thousandths of cores given to jobs.
    pub cpu_milli: u64,
    /// Jobs that run, warm-up jobs included.
    pub running: u32,
    /// Jobs that wait.
    pub waiting: u32,
}

/// What a simulation gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// By the number of the job.
    pub jobs: Vec<JobOutcome>,
    /// The cluster over time: one sample for each moment at which something changed.
    pub samples: Vec<Sample>,
    /// How often the scheduler was called.
    pub rounds: u64,
    /// How often a running job's completion time changed.
    pub reevaluations: u64,
    /// How many events were handled: submissions, ends and rounds.
    pub events: u64,
    /// The explanations asked for, of the last decision about each job.
    pub explanations: Vec<Explanation>,
}

/// After so many rounds that start nothing in a cluster where nothing happens, what waits waits for ever.
const FRUITLESS_ROUNDS: u32 = 1000;

#[derive(Debug, PartialEq, Eq)]
enum Happening {
    /// A job ends, unless its completion time was changed since (which the number tells).
    End(JobId, u32),
    /// A job is submitted.
    Arrival(u32),
    /// The scheduler is called.
    Round,
}

impl Event for Happening {
    fn rank(&self) -> u8 {
        match self {
            Happening::End(..) => 0,
            Happening::Arrival(_) => 1,
            Happening::Round => 2,
        }
    }
}

/// A running job's progress.
#[derive(Clone, Copy, Debug)]
struct Progressing {
    work: Work,
    /// The number of the only valid end event.
    number: u32,
    /// Seconds that it takes alone.
    alone_s: f64,
}

struct Engine<'a, 'b> {
    setup: &'b Setup<'a>,
    state: ClusterState,
    queue: Queue,
    events: Events<Happening>,
    running: Vec<Option<Progressing>>,
    affected: Vec<JobId>,
    outcome: Outcome,
    round_due: Option<Micros>,
    last_round: Option<Micros>,
    left: usize,
    /// Rounds in a row that started nothing while nothing ran and nobody was to arrive.
    fruitless: u32,
}

/// Runs a simulation to its end: until all jobs have ended, or no event can ever start those that wait.
///
/// `clock`, if there is one, is read before and after each round; the times taken are returned beside the outcome, in
/// microseconds.
pub fn run(
    setup: &Setup<'_>,
    policy: &mut dyn Policy,
    clock: Option<&Clock<'_>>,
    progress: &Progress<'_>,
) -> Result<(Outcome, Vec<u64>)> {
    for job in setup.explain {
        policy.watch(*job);
    }
    let mut engine = Engine::new(setup)?;
    let mut times = Vec::new();
    let mut told = 0;
    while let Some((now, first)) = engine.events.pop() {
        let mut next = Some(first);
        let mut round = false;
        while let Some(event) = next {
            engine.outcome.events += 1;
            match event {
                Happening::End(id, number) => engine.end(id, number, now)?,
                Happening::Arrival(index) => engine.arrival(index)?,
                Happening::Round => round = true,
            }
            next = if engine.events.next_time() == Some(now) {
                engine.events.pop().map(|(_, e)| e)
            } else {
                None
            };
        }
        engine.reevaluate(now);
        if round {
            engine.round_due = None;
            if !engine.queue.is_empty() {
                engine.last_round = Some(now);
                let before = clock.map(|clock| clock());
                engine.round(policy, now)?;
                if let (Some(clock), Some(before)) = (clock, before) {
                    times.push(clock().saturating_sub(before));
                }
                engine.reevaluate(now);
            }
        }
        engine.plan_round(now, round);
        engine.sample(now);
        let ended = setup.jobs.len() - engine.left;
        if ended - told >= 64 || engine.left == 0 {
            progress(ended - told);
            told = ended;
        }
        if engine.left == 0 {
            break;
        }
    }
    for job in setup.explain {
        engine.outcome.explanations.extend(policy.explain(*job).cloned());
    }
    Ok((engine.outcome, times))
}

impl<'a, 'b> Engine<'a, 'b> {
    fn new(setup: &'b Setup<'a>) -> Result<Self> {
        let mut engine = Engine {
            setup,
            state: ClusterState::new(setup.cluster.clone(), setup.profiles.clone()),
            queue: Queue::new(),
            events: Events::default(),
            running: Vec::new(),
            affected: Vec::new(),
            outcome: Outcome { jobs: vec![JobOutcome::default(); setup.jobs.len()], ..Outcome::default() },
            round_due: None,
            last_round: None,
            left: setup.jobs.len(),
            fruitless: 0,
        };
        for (index, submission) in setup.jobs.iter().enumerate() {
            engine.events.push(submission.at, Happening::Arrival(index as u32));
        }
        for warm_up in setup.warm_up {
            let job = &warm_up.submission.job;
            let task = |task| TaskPlacement {
                node: warm_up.node,
                regions: engine.state.usage().choose_regions(&setup.cluster, warm_up.node, task),
                grants: Vec::new(),
            };
            let placement = Placement { tasks: job.tasks.iter().map(task).collect() };
            engine.start(Arc::new(job.clone()), placement, warm_up.submission.alone, Micros(0))?;
        }
        engine.reevaluate(Micros(0));
        engine.sample(Micros(0));
        Ok(engine)
    }

    fn start(&mut self, job: Arc<Job>, placement: Placement, alone: Micros, now: Micros) -> Result<()> {
        let id = job.id;
        if let Some(outcome) = self.outcome.jobs.get_mut(id.index()) {
            outcome.start = Some(now);
            outcome.node = placement.tasks.first().map_or(0, |task| task.node.0);
            for task in &placement.tasks {
                outcome.devices += task.grants.len() as u32;
                outcome.granted.extend(task.grants.iter().map(|grant| grant.device));
                let remote = |device| self.setup.cluster.device(device).node != task.node;
                outcome.remote += task.grants.iter().filter(|grant| remote(grant.device)).count() as u32;
            }
            outcome.granted.sort_unstable();
        }
        let affected = self.state.start(job, placement, now.seconds())?;
        self.affected.extend(affected);
        if self.running.len() <= id.index() {
            self.running.resize(id.index() + 1, None);
        }
        // The speed is set, and the end is put among the events, by the re-evaluation that follows.
        let work = Work::new(alone, now, 1.0);
        self.running[id.index()] = Some(Progressing { work, number: 0, alone_s: alone.seconds() });
        Ok(())
    }

    fn end(&mut self, id: JobId, number: u32, now: Micros) -> Result<()> {
        if self.running[id.index()].is_none_or(|progressing| progressing.number != number) {
            return Ok(());
        }
        self.running[id.index()] = None;
        let (_, affected) = self.state.finish(id, now.seconds())?;
        self.affected.extend(affected);
        if let Some(outcome) = self.outcome.jobs.get_mut(id.index()) {
            outcome.end = Some(now);
            self.left -= 1;
        }
        Ok(())
    }

    fn arrival(&mut self, index: u32) -> Result<()> {
        self.queue.push(Arc::new(self.setup.jobs[index as usize].job.clone()))?;
        Ok(())
    }

    /// Gives everybody whose neighbours or network changed his new completion time.
    fn reevaluate(&mut self, now: Micros) {
        let mut affected = std::mem::take(&mut self.affected);
        affected.sort_unstable();
        affected.dedup();
        for id in affected.drain(..) {
            let Some(progressing) = self.running.get_mut(id.index()).and_then(Option::as_mut) else {
                continue;
            };
            let Some(completion_s) = self.state.completion_s(id) else { continue };
            let slowdown = completion_s / progressing.alone_s;
            let changed = progressing.work.change(now, slowdown);
            if changed || progressing.number == 0 {
                self.outcome.reevaluations += u64::from(progressing.number > 0);
                progressing.number += 1;
                self.events.push(progressing.work.end(), Happening::End(id, progressing.number));
            }
        }
        self.affected = affected;
    }

    fn round(&mut self, policy: &mut dyn Policy, now: Micros) -> Result<()> {
        self.outcome.rounds += 1;
        let mut decisions = policy.schedule(&self.state, self.queue.waiting(), now.seconds())?;
        for (id, reason) in &decisions.left {
            let postponed = matches!(reason, Reason::Postponed { .. } | Reason::Disturbing);
            if let Some(outcome) = self.outcome.jobs.get_mut(id.index()).filter(|_| postponed) {
                outcome.postponed += 1;
            }
        }
        let waiting = self.queue.waiting();
        let mut jobs = Vec::with_capacity(decisions.placed.len());
        if !decisions.placed.is_empty() {
            let by_id: std::collections::HashMap<JobId, &Arc<Job>> =
                waiting.iter().map(|waiting| (waiting.job.id, &waiting.job)).collect();
            for (id, _) in &decisions.placed {
                jobs.push(by_id.get(id).copied().cloned().ok_or(rgpu_placement::Error::NotRunning(*id))?);
            }
        }
        self.queue.apply(&decisions);
        for (job, (id, placement)) in jobs.into_iter().zip(decisions.placed.drain(..)) {
            let alone = self.setup.jobs[id.index()].alone;
            self.start(job, placement, alone, now)?;
        }
        Ok(())
    }

    fn plan_round(&mut self, now: Micros, just_now: bool) {
        if self.queue.is_empty() || self.round_due.is_some() {
            return;
        }
        // Where nothing runs and nobody arrives, only the costs of waiting can still change a decision.
        let idle = self.state.running_count() == 0 && self.events.is_empty();
        self.fruitless = if idle && just_now { self.fruitless + 1 } else { 0 };
        if self.fruitless > FRUITLESS_ROUNDS {
            return;
        }
        let at = match self.setup.rounds {
            Rounds::Every(interval) => {
                let interval = interval.0.max(1);
                let this = Micros(now.0.div_ceil(interval) * interval);
                if self.last_round == Some(this) { this.after(Micros(interval)) } else { this }
            }
            Rounds::OnChange(_) if just_now && !idle => return,
            Rounds::OnChange(gap) if just_now => now.after(Micros(gap.0.max(1_000_000))),
            Rounds::OnChange(gap) => self.last_round.map_or(now, |last| now.max(last.after(gap))),
        };
        self.round_due = Some(at);
        self.events.push(at, Happening::Round);
    }

    fn sample(&mut self, now: Micros) {
        let totals = self.state.usage().totals();
        let gpu = DeviceKind::Gpu.index();
        let sample = Sample {
            at: now,
            gpu_milli: totals.granted_milli[gpu],
            remote_gpu_milli: totals.remote_milli[gpu],
            cpu_milli: self.setup.cluster.totals().cpu_milli - totals.cpu_milli,
            running: self.state.running_count() as u32,
            waiting: self.queue.len() as u32,
        };
        match self.outcome.samples.last_mut() {
            Some(last) if last.at == now => *last = sample,
            Some(last) if Sample { at: now, ..*last } == sample => {}
            _ => self.outcome.samples.push(sample),
        }
    }
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
