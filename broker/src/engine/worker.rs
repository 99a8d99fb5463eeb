//! The engine's threads: one makes changes and stores them, one runs placement rounds.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rgpu_control::LeaseId;
use rgpu_control::api::{ErrorCode, Problem, RoundOutcome};
use tokio::sync::oneshot;

use super::core::Core;
use super::plan::{Planner, Round, Totals};
use super::{Inner, problem};
use crate::store::Store;

/// A change to be made; what it gives is called with whether the batch could be stored.
pub(crate) type Op = Box<dyn FnOnce(&mut Core) -> Done + Send>;
pub(crate) type Done = Box<dyn FnOnce(Result<(), Problem>) + Send>;

/// What the changing thread is told.
pub(crate) enum Message {
    Op(Op),
    Stop,
}

/// What the placement's thread is told.
pub(crate) enum Wake {
    /// Something has changed.
    Go,
    /// Answer when everything that has changed before was looked at.
    Ack(oneshot::Sender<()>),
    Stop,
}

/// How often what depends on time is looked at.
const TICK: Duration = Duration::from_millis(100);
/// How often it is tried again whether the state can be stored, at most.
const CHECK: Duration = Duration::from_millis(250);
/// The most changes in one transaction.
const BATCH: usize = 512;

/// Makes changes, batch by batch, until it is told to stop.
pub(crate) fn change(inner: &Arc<Inner>, messages: &Receiver<Message>, mut store: Box<dyn Store>) {
    let mut ticked = Instant::now();
    let mut stopping = false;
    while !stopping {
        let mut ops: Vec<Op> = Vec::new();
        match messages.recv_timeout(TICK.saturating_sub(ticked.elapsed())) {
            Ok(Message::Op(op)) => ops.push(op),
            Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => stopping = true,
            Err(RecvTimeoutError::Timeout) => {}
        }
        while ops.len() < BATCH
            && let Ok(message) = messages.try_recv()
        {
            match message {
                Message::Op(op) => ops.push(op),
                Message::Stop => stopping = true,
            }
        }
        let tick = ticked.elapsed() >= TICK;
        if tick {
            ticked = Instant::now();
            ops.push(Box::new(|core| {
                core.tick();
                Box::new(|_| {})
            }));
        }
        batch(inner, &mut *store, ops, tick);
    }
}

/// Makes changes and stores them: all or none.
pub(crate) fn batch(inner: &Inner, store: &mut dyn Store, ops: Vec<Op>, tick: bool) {
    let mut core = inner.core.lock();
    let mut done: Vec<Done> = Vec::with_capacity(ops.len());
    for op in ops {
        let mark = core.mark();
        match catch_unwind(AssertUnwindSafe(|| op(&mut core))) {
            Ok(then) => done.push(then),
            Err(_) => {
                // Whoever asked learns of it by the answer that doesn't come.
                tracing::error!("a defect: a change has panicked, and is taken back");
                core.roll_back(mark);
            }
        }
    }
    let writes = core.writes();
    let began = Instant::now();
    let mut checked = None;
    // A little may be stored even where the disk is full: only a check says that all is well again.
    let checks = std::mem::take(&mut core.probe) || tick && core.failing.is_some() && core.may_check();
    let result = match (writes.is_empty(), checks) {
        (true, false) => Ok(()),
        (true, true) => store.check(),
        (false, false) => store.commit(&writes),
        // What is stored stays so, whatever the check says.
        (false, true) => store.commit(&writes).map(|()| checked = store.check().err()),
    };
    let outcome = match result {
        Ok(()) => {
            if !writes.is_empty() {
                core.counters.commits += 1;
                core.counters.records += writes.len() as u64;
                core.counters.commit_us += began.elapsed().as_micros() as u64;
            }
            if !writes.is_empty() || checks {
                core.stored_ms = core.now();
            }
            match (checks, checked) {
                (true, None) => {
                    if let Some(why) = core.failing.take() {
                        tracing::info!("the state can be stored again; before: {why}");
                        core.changes.round = true;
                    }
                }
                (_, Some(e)) => core.is_failing(e.to_string()),
                (false, None) => {}
            }
            core.committed();
            Ok(())
        }
        Err(e) => {
            core.counters.commit_failures += 1;
            let why = e.to_string();
            core.is_failing(why.clone());
            core.failed();
            Err(problem(ErrorCode::Unavailable, format!("{why}. Nothing was changed; try again later")))
        }
    };
    let wake = core.publish(&inner.feed);
    drop(core);
    for then in done {
        then(outcome.clone());
    }
    if wake {
        inner.wake();
    }
}

impl Core {
    fn is_failing(&mut self, why: String) {
        if self.failing.is_none() {
            tracing::error!("{why}; nothing is changed until it can be");
        }
        self.failing = Some(why);
    }

    /// Whether it is time to try again whether the state can be stored.
    fn may_check(&mut self) -> bool {
        let now = Instant::now();
        let due = self.checked.is_none_or(|last| now.duration_since(last) >= CHECK);
        if due {
            self.checked = Some(now);
        }
        due
    }
}

/// The first change.
pub(crate) fn begin(core: &mut Core) -> Done {
    core.begin();
    Box::new(|_| {})
}

/// Runs placement rounds until it is told to stop.
pub(crate) fn place(inner: &Arc<Inner>, mut planner: Planner, wakes: &Receiver<Wake>) {
    let pause = Duration::from_millis(inner.settings.round_interval_ms.max(10));
    let mut acks: Vec<oneshot::Sender<()>> = Vec::new();
    loop {
        let first = match planner.waiting() {
            0 => wakes.recv().map_err(|_| RecvTimeoutError::Disconnected),
            _ => wakes.recv_timeout(pause),
        };
        let timed = matches!(first, Err(RecvTimeoutError::Timeout));
        let mut stop = matches!(first, Err(RecvTimeoutError::Disconnected));
        let more = std::iter::from_fn(|| wakes.try_recv().ok());
        for wake in first.into_iter().chain(more) {
            match wake {
                Wake::Go => {}
                Wake::Ack(ack) => acks.push(ack),
                Wake::Stop => stop = true,
            }
        }
        if stop {
            return;
        }
        inner.woken.store(false, Ordering::Release);
        let done = catch_unwind(AssertUnwindSafe(|| round(inner, &mut planner, timed)));
        let stored = match done {
            Ok(stored) => stored,
            Err(_) => {
                tracing::error!("a defect: a placement round has panicked; the model is built anew");
                let core = inner.core.lock();
                let (policy, profiles) = (core.policy.clone(), core.profiles.clone());
                drop(core);
                match Planner::new(inner.settings.clone(), &policy, profiles) {
                    Ok(new) => planner = new,
                    Err(e) => tracing::error!("{e}"),
                }
                inner.feed.renew();
                inner.wake();
                false
            }
        };
        for ack in acks.drain(..) {
            let _ = ack.send(());
        }
        if !stored {
            // The disk is full, or worse: no need to find the same again and again.
            std::thread::sleep(pause.min(Duration::from_millis(250)));
        }
    }
}

/// Takes note of what has changed, and lets the placement decide if there is anything to decide about. False if what it found could not
/// be stored.
fn round(inner: &Arc<Inner>, planner: &mut Planner, timed: bool) -> bool {
    let began = Instant::now();
    let now_s = inner.time.now_s();
    let news = inner.feed.take();
    let mut worthwhile = timed || news.round;
    let mut waited = Duration::ZERO;
    if !planner.take(&news, now_s) {
        // Only here the engine's lock is needed. Waiting for changes that others make is no part of the round.
        let waiting = Instant::now();
        let mut core = inner.core.lock();
        waited = waiting.elapsed();
        let news = core.everything(&inner.feed);
        drop(core);
        worthwhile |= news.round;
        planner.take(&news, now_s);
    }
    let updates = planner.updates();
    if planner.waiting() == 0 || !worthwhile {
        planner.totals.note_us += (began.elapsed() - waited).as_micros() as u64;
        return true;
    }
    let mut round = match planner.round(now_s) {
        Ok(round) => round,
        Err(e) => {
            tracing::error!("a defect: the placement failed, and nothing was granted: {e}");
            return false;
        }
    };
    round.update_us = updates.as_micros() as u64;
    let own = began.elapsed() - waited;
    round.round_us = own.as_micros() as u64;
    let totals = planner.totals.clone();
    let decided = Instant::now();
    let (answer, stored) = std::sync::mpsc::channel();
    inner.send(Box::new(move |core| {
        let began = Instant::now();
        core.finish(round, &totals);
        let took = began.elapsed();
        Box::new(move |outcome| {
            let _ = answer.send((outcome.is_ok(), took));
        })
    }));
    // No answer: the engine stops.
    let (stored, took) = stored.recv().unwrap_or((true, Duration::ZERO));
    planner.totals.wait_us += decided.elapsed().saturating_sub(took).as_micros() as u64;
    if planner.forecast_is_due(now_s) {
        let lapsing = inner.core.lock().lapsing();
        let forecasts = planner.forecast(now_s, &lapsing);
        inner.core.lock().foresee(forecasts);
    }
    stored
}

impl Core {
    /// Grants what a round found.
    pub(super) fn finish(&mut self, round: Round, totals: &Totals) {
        let began = Instant::now();
        let explained: HashSet<LeaseId> = round.explanations.iter().map(|(id, _)| *id).collect();
        for (id, explanation) in round.explanations {
            if let Some(entry) = self.leases.get_mut(&id) {
                entry.live.explanation = Some(explanation);
            }
        }
        let mut granted = Vec::new();
        for (id, found) in round.found {
            if let Err(why) = self.grant(id, &found) {
                // Something else was granted, changed or lost while the round ran: the next one knows.
                tracing::debug!("the lease {id} waits on: {why}");
                continue;
            }
            granted.push(id);
            if !explained.contains(&id)
                && let Some(entry) = self.leases.get_mut(&id)
            {
                // What was recorded says why it waited.
                entry.live.explanation = None;
            }
        }
        let outcome = self.outcome(self.counters.rounds + 1, &granted, &round.left);
        for (id, why) in round.left {
            self.leave(id, &why, round.counts);
        }
        let counters = &mut self.counters;
        counters.rounds += 1;
        counters.considered += round.considered;
        counters.schedule_us += round.schedule_us;
        counters.update_us += round.update_us;
        (counters.rebuilds, counters.rebuild_us) = (totals.rebuilds, totals.rebuild_us);
        (counters.note_us, counters.round_wait_us) = (totals.note_us, totals.wait_us);
        counters.last_schedule_us = round.schedule_us;
        counters.last_round_us = round.round_us + began.elapsed().as_micros() as u64;
        counters.round_us += counters.last_round_us;
        counters.round_times.add(counters.last_round_us as f64 / 1e6);
        let (round_us, considered) = (counters.last_round_us, round.considered);
        self.note_round(outcome.map(|outcome| RoundOutcome { round_us, considered, ..outcome }));
    }
}
