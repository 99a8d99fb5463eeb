//! Communicators: what they are, and their operations in the order of the calls.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rgpu_collectives::{Element, Factor, Stop, Transfer, Work};

use super::status::{Failure, Result, Status, fail, invalid};
use crate::core::registry::Registry;
use crate::core::{Context, Hold, Stream, current, error};

/// What a communicator's thread does at one time.
pub(super) enum Task {
    /// Operations one after another, and then messages at the same time.
    Operations(Vec<Work>, Vec<Transfer>),
    /// Which ranks are of one color, in the order of their keys, makes communicators of them; this rank's, if it has
    /// a color.
    Split { color: i32, key: i32, child: Option<Arc<Comm>> },
    /// These ranks make a communicator.
    Shrink { members: Vec<u32>, child: Arc<Comm> },
}

/// A task, and the streams that wait for it.
struct Job {
    number: u64,
    task: Task,
    /// How many streams have not got there yet.
    awaited: usize,
    /// Keeps those that have.
    holds: Vec<Hold>,
}

/// How far a communicator is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its ranks come together.
    Starting,
    /// They are together.
    Ready,
    /// Its thread has ended, or was never needed.
    Ended,
}

/// What changes about a communicator.
pub(super) struct State {
    pub(super) phase: Phase,
    /// This rank, and how many there are.
    pub(super) place: (u32, u32),
    /// What put an end to it.
    pub(super) failure: Option<Failure>,
    jobs: VecDeque<Job>,
    /// How many jobs were ever given to it.
    given: u64,
    /// Whether its thread is at work.
    busy: bool,
    /// No more work comes.
    pub(super) finalized: bool,
    /// Its thread may end when there is no work left.
    closing: bool,
    /// The program's own operators.
    pub(super) operators: Vec<Option<(Element, Factor)>>,
}

/// A communicator: one rank's side.
pub(super) struct Comm {
    pub(super) raw: usize,
    pub(super) context: Arc<Context>,
    /// Whether calls wait until they are done.
    pub(super) blocking: bool,
    pub(super) stop: Arc<Stop>,
    state: Mutex<State>,
    changed: Condvar,
    /// Held from giving it a job until its streams have it: streams shall get to jobs in the jobs' order.
    enqueuing: Mutex<()>,
}

static COMMS: LazyLock<Registry<Comm>> = LazyLock::new(|| Registry::new("NCCL communicator"));

/// The communicator behind what a program passed.
pub(super) fn get(raw: usize) -> Result<Arc<Comm>> {
    // A forked child has the communicators, but not their threads.
    current()?;
    COMMS.get(raw).or_else(|_| invalid(format!("{raw:#x} is not a living communicator")))
}

impl Comm {
    /// A new one, whose ranks have not come together.
    pub(super) fn new(context: Arc<Context>, blocking: bool, place: (u32, u32)) -> Result<Arc<Self>> {
        let stop = Stop::new().map_err(|e| Failure { status: Status::SystemError, why: e.to_string() })?;
        let state = State {
            phase: Phase::Starting,
            place,
            failure: None,
            jobs: VecDeque::new(),
            given: 0,
            busy: false,
            finalized: false,
            closing: false,
            operators: Vec::new(),
        };
        Ok(COMMS.insert(|raw| Self {
            raw,
            context,
            blocking,
            stop: Arc::new(stop),
            state: Mutex::new(state),
            changed: Condvar::new(),
            enqueuing: Mutex::new(()),
        }))
    }

    /// Its state.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Changes its state, and tells whoever waits for that.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state.lock());
        self.changed.notify_all();
        result
    }

    /// Waits until the state is like this.
    fn wait(&self, until: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        while !until(&state) {
            self.changed.wait(&mut state);
        }
        state
    }

    /// Waits until its ranks have come together; forgets it where they do not.
    pub(super) fn await_ready(&self) -> Result<()> {
        let failure = self.wait(|state| state.phase != Phase::Starting).failure.clone();
        failure.map_or(Ok(()), |failure| {
            self.forget();
            Err(failure)
        })
    }

    /// Fails where it can be given no work.
    pub(super) fn check(&self) -> Result<()> {
        let state = self.state.lock();
        match (&state.failure, state.phase) {
            (Some(failure), _) => Err(failure.clone()),
            (None, Phase::Starting) => invalid("The communicator is not ready yet"),
            (None, _) if state.finalized => fail(Status::InvalidUsage, "The communicator is finalized"),
            (None, _) => Ok(()),
        }
    }

    /// Gives it a job, which begins when all of these streams have got there; they wait until it is done.
    pub(super) fn enqueue(self: &Arc<Self>, task: Task, streams: &[Arc<Stream>]) -> Result<()> {
        let core = current()?;
        let _enqueuing = self.enqueuing.lock();
        self.check()?;
        let number = self.change(|state| {
            state.given += 1;
            let number = state.given;
            state.jobs.push_back(Job { number, task, awaited: streams.len(), holds: Vec::new() });
            number
        });
        for stream in streams {
            let comm = self.clone();
            let reached = Box::new(move |status, hold| comm.reached(number, status, hold));
            if let Err(error) = core.hold(stream, false, reached) {
                // The others wait for this rank's part in vain: they have to hear of it.
                self.fail(error.clone().into());
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// A stream has got to a job.
    fn reached(&self, number: u64, status: u32, hold: Hold) {
        if status != 0 {
            let why = format!("The device had failed with error {status} before the operation");
            self.fail(Failure { status: Status::UnhandledCudaError, why });
        }
        let needless = self.change(|state| {
            // Where the job is gone, so is the reason to wait.
            let Some(job) = state.jobs.iter_mut().find(|job| job.number == number) else { return Some(hold) };
            job.awaited -= 1;
            job.holds.push(hold);
            None
        });
        drop(needless);
    }

    /// Puts an end to it: nothing waits any more, and the others notice.
    pub(super) fn fail(&self, failure: Failure) {
        let first = self.change(|state| {
            let first = state.failure.is_none();
            state.failure.get_or_insert(failure);
            first
        });
        self.stop.raise();
        if first {
            self.drop_jobs();
        }
    }

    /// Lets go of all streams.
    pub(super) fn drop_jobs(&self) {
        let jobs = self.change(|state| std::mem::take(&mut state.jobs));
        // Letting go calls the device: not with the lock held.
        for job in jobs {
            if let Task::Split { child: Some(child), .. } | Task::Shrink { child, .. } = job.task {
                child.never_began("What it was to be made of has ended");
            }
        }
    }

    /// Its ranks will not come together: nobody waits for that any more.
    pub(super) fn never_began(&self, why: &str) {
        self.fail(Failure { status: Status::InvalidUsage, why: why.into() });
        self.change(|state| state.phase = Phase::Ended);
    }

    /// The next job that can begin; `None` where the thread is to end.
    pub(super) fn next(&self) -> Option<(Task, Vec<Hold>)> {
        let mut state = self.wait(|state| {
            let ready = state.jobs.front().is_some_and(|job| job.awaited == 0);
            ready || state.failure.is_some() || state.closing && state.jobs.is_empty()
        });
        if state.failure.is_some() {
            return None;
        }
        let job = state.jobs.pop_front()?;
        state.busy = true;
        Some((job.task, job.holds))
    }

    /// The thread is done with a job.
    pub(super) fn done(&self) {
        self.change(|state| state.busy = false);
    }

    /// Waits until all work is done, or there is nothing to wait for.
    pub(super) fn flush(&self) {
        drop(self.wait(|state| state.failure.is_some() || state.jobs.is_empty() && !state.busy));
    }

    /// Waits until its thread has done all work and ended.
    pub(super) fn close(&self) {
        self.change(|state| state.closing = true);
        drop(self.wait(|state| state.phase == Phase::Ended));
        self.forget();
    }

    /// Ends its thread whatever that is doing.
    pub(super) fn abort(&self) {
        self.fail(Failure { status: Status::InvalidUsage, why: "The communicator was aborted".into() });
        self.close();
    }

    /// Its handle means nothing from now on.
    pub(super) fn forget(&self) {
        if COMMS.remove(self.raw).is_err() {
            error::log("a communicator was destroyed twice at the same time");
        }
    }
}
