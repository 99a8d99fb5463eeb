//! What the callers' threads and the workers share: the state, and who wakes whom.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rgpu_device::{Code, CopySink, Counters, Error, Host, Ordinal, Result};
use rustc_hash::FxHashMap;

use super::arena::{Arena, PARAM_SLOTS};
use super::check::Checker;
use super::count::Profiler;
use super::device_runtime::{About, Descendant, Descent};
use super::governor::Governor;
use super::grid::Grid;
use super::heap::Heap;
use super::launch::{LaunchWork, STACK, Site};
use super::lending::Tickets;
use super::library::{LibraryWork, Running};
use super::look::{FOR_WORK, look};
use super::memory::Memory;
use super::mirror::Mirror;
use super::modules::Loaded;
use super::rounds::Rounds;
use super::stream::{Actions, Key, Streams, Work};
use super::transfer::Transfer;
use super::watchdog::Watchdog;
use super::{Config, fault, info, worker};

/// Copies up to this size are made by the caller, when it is their turn at once.
const QUICK: u64 = 64 << 10;
/// A worker that has slept so long gives memory back.
const SHRINK_AFTER: Duration = Duration::from_millis(500);

/// What exists once addresses are reserved.
pub(super) struct Runtime {
    /// The addresses that all devices' memory lies in.
    pub arena: Arc<Arena>,
    /// The device's copies of mirrored memory.
    pub mirror: Mirror,
    /// The kernels' heaps, by ordinal.
    pub heaps: Vec<Arc<Heap>>,
}

/// Everything that the lock protects.
pub(super) struct DeviceState {
    /// Streams and events.
    pub streams: Streams,
    /// What is allocated, once addresses are reserved.
    pub memory: Option<Memory>,
    /// Kernels that are executing, in the order in which they were started.
    active: Vec<Arc<Grid>>,
    /// Operations of libraries that are being carried out, of which there is more than one piece.
    pub(super) computing: Vec<Arc<Running>>,
    /// How many operations of libraries have begun and not ended.
    computations: usize,
    /// What grids that have ended left to do.
    descents: VecDeque<Descent>,
    /// Launches that wait for a parameter slot, or for another cooperative launch to end.
    delayed: VecDeque<Key>,
    cooperative: bool,
    params: Vec<u64>,
    next_grid: u64,
    launches: u64,
    busy: Duration,
    busy_since: Option<Instant>,
    threads: usize,
    /// Workers that sleep and have not been called.
    idle: usize,
    /// Calls that no worker has answered yet.
    calls: usize,
    /// Whether there is a thread that looks at words of memory.
    pub(super) looker: bool,
    stop: bool,
}

/// One application's software GPU.
pub(super) struct Shared {
    /// How it was opened.
    pub config: Config,
    /// The most workers that execute blocks at a time.
    pub workers: usize,
    /// What is known of the devices.
    pub about: Arc<About>,
    /// The application's side.
    pub host: Arc<dyn Host>,
    /// What other processes may open without anybody's help.
    pub tickets: Tickets,
    /// What holds the workers back, if anything does.
    pub governor: Option<Arc<Governor>>,
    /// What ends kernels that run for too long, if anything does.
    pub watchdog: Option<Arc<Watchdog>>,
    too_long: Option<Arc<str>>,
    /// How often workers have gone round their blocks.
    pub rounds: Rounds,
    /// What looks at kernels, if anything does.
    pub checker: Option<Arc<Checker>>,
    /// What is told what was counted in kernels, if anything is.
    pub profiler: Option<Arc<Profiler>>,
    /// What launches are checked against.
    pub loaded: Mutex<Loaded>,
    runtime: OnceLock<Runtime>,
    state: Mutex<DeviceState>,
    wake: Condvar,
    quiet: Condvar,
    /// A stream waits for a word of memory, or the device is closed.
    pub(super) words_begun: Condvar,
    /// Workers that look for work without sleeping.
    looking: AtomicUsize,
    posted: AtomicU64,
    /// Pieces of work that are ready, roughly.
    urgent: AtomicUsize,
}

/// What a worker is given to do.
pub(super) enum Job {
    /// A kernel to be started.
    Launch(Turn),
    /// What a grid has left to do.
    Descent(Descent),
    /// A copy.
    Transfer(Key, Box<Transfer>),
    /// Blocks of a kernel.
    Grid(Arc<Grid>),
    /// An operation of a library to be started.
    Library(Key, Box<LibraryWork>),
    /// Pieces of an operation of a library.
    Pieces(Arc<Running>),
}

/// A kernel whose turn has come.
pub(super) struct Turn {
    key: Key,
    launch: Box<LaunchWork>,
    ordinal: Ordinal,
    priority: i32,
    /// Its parameter slot.
    slot: u64,
    /// Its number.
    id: u64,
    /// What comes behind it before its stream goes on.
    behind: VecDeque<Descendant>,
}

impl DeviceState {
    /// Whether the device is closed.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop
    }

    /// An operation of a library begins: the device is busy.
    pub(super) fn computation_begins(&mut self) {
        self.computations += 1;
        self.busy_since.get_or_insert_with(Instant::now);
    }

    /// An operation of a library has ended. It counts as a kernel where it was `done`.
    pub(super) fn computation_ends(&mut self, done: bool) {
        self.computations -= 1;
        self.launches += u64::from(done);
        self.rest(Instant::now());
    }

    /// Counts the time until `now` as busy, if nothing executes any more.
    fn rest(&mut self, now: Instant) {
        if self.active.is_empty()
            && self.computations == 0
            && let Some(since) = self.busy_since.take()
        {
            self.busy += now.saturating_duration_since(since);
        }
    }
}

/// Room for blocks of ordinary and of cooperative kernels.
const BOTH: (bool, bool) = (true, true);

impl Shared {
    /// A device without memory or threads.
    pub(super) fn new(
        config: Config,
        workers: usize,
        host: Arc<dyn Host>,
        governor: Option<Arc<Governor>>,
    ) -> Self {
        let state = DeviceState {
            streams: Streams::new(config.devices),
            memory: None,
            active: Vec::new(),
            computing: Vec::new(),
            computations: 0,
            descents: VecDeque::new(),
            delayed: VecDeque::new(),
            cooperative: false,
            params: (0..PARAM_SLOTS).rev().collect(),
            next_grid: 1,
            launches: 0,
            busy: Duration::ZERO,
            busy_since: None,
            threads: 0,
            idle: 0,
            calls: 0,
            looker: false,
            stop: false,
        };
        let loaded = Loaded { modules: FxHashMap::default(), stack: vec![STACK; config.devices as usize] };
        let about = Arc::new(About::new(&config, workers));
        let watchdog = config.kernel_limit.map(Watchdog::new);
        let checker = config.check.map(|check| Checker::new(check, host.clone()));
        Self {
            config,
            workers,
            about,
            rounds: Rounds::new(workers),
            host,
            tickets: Tickets::default(),
            governor,
            too_long: watchdog.as_ref().map(|watchdog| watchdog.words().into()),
            watchdog,
            checker,
            profiler: None,
            loaded: Mutex::new(loaded),
            runtime: OnceLock::new(),
            state: Mutex::new(state),
            wake: Condvar::new(),
            quiet: Condvar::new(),
            words_begun: Condvar::new(),
            looking: AtomicUsize::new(0),
            posted: AtomicU64::new(0),
            urgent: AtomicUsize::new(0),
        }
    }

    /// Locks the state.
    pub(super) fn lock(&self) -> MutexGuard<'_, DeviceState> {
        self.state.lock()
    }

    /// What exists once addresses are reserved.
    pub(super) fn runtime(&self) -> Result<&Runtime> {
        self.runtime
            .get()
            .ok_or_else(|| Error::new(Code::NotInitialized, "The device's addresses are not reserved yet"))
    }

    /// Addresses have been reserved; once.
    pub(super) fn set_runtime(&self, runtime: Runtime) -> Result<()> {
        self.runtime
            .set(runtime)
            .map_err(|_| Error::new(Code::IllegalState, "The device's addresses are reserved already"))
    }

    /// Puts work on a stream; a quick copy whose turn it is at once is made right here.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, DeviceState>,
        key: Key,
        work: Work,
        after: &[(u64, u64)],
    ) {
        let quick = match &work {
            Work::Transfer(transfer) => transfer.bytes() <= QUICK && !transfer.may_fetch(),
            _ => false,
        };
        let mut actions = Actions::default();
        let is_ready = state.streams.push(key, work, after, &mut actions);
        let mut here = None;
        if quick && is_ready {
            state.streams.ready.pop_back();
            here = state.streams.take(key);
        }
        self.call_workers(&mut state);
        drop(state);
        self.act(actions);
        if let Some(Work::Transfer(transfer)) = here {
            self.transfer(key, *transfer);
        }
    }

    /// Makes a copy whose turn it is.
    pub(super) fn transfer(self: &Arc<Self>, key: Key, transfer: Transfer) {
        self.make(key, transfer, false);
    }

    /// Makes a copy whose turn it is; what the calling worker, which has nothing else to do, is to do next.
    pub(super) fn transfer_then_next(self: &Arc<Self>, key: Key, transfer: Transfer) -> Option<Job> {
        self.make(key, transfer, true)
    }

    fn make(self: &Arc<Self>, key: Key, transfer: Transfer, next: bool) -> Option<Job> {
        if let Some(checker) = &self.checker {
            checker.transferred(&transfer);
        }
        let (result, sink) = match self.runtime() {
            // SAFETY: the regions were checked against the table of memory when the copy was enqueued, and
            // memory is unmapped after the work that was enqueued before its release.
            Ok(runtime) => unsafe { transfer.execute(&runtime.mirror) },
            Err(error) => {
                transfer.cancel(error);
                return None;
            }
        };
        self.complete(key, result, sink, next)
    }

    /// The work that was taken from a stream is done. With `next`, the caller does what comes next, if there is anything.
    pub(super) fn complete(
        self: &Arc<Self>,
        key: Key,
        result: Result<()>,
        sink: Option<Box<dyn CopySink>>,
        next: bool,
    ) -> Option<Job> {
        let mut actions = Actions::default();
        let outcome = result.clone();
        let mut state = self.lock();
        // What a sink is told nobody else is, unless it sticks.
        let untold = result.or_else(|e| if sink.is_some() && !e.code.is_sticky() { Ok(()) } else { Err(e) });
        state.streams.complete(key, untold, &mut actions);
        self.settle(&mut state);
        let job = if next { self.pick(&mut state, BOTH) } else { None };
        self.call_workers(&mut state);
        drop(state);
        if let Some(sink) = sink {
            sink.done(outcome);
        }
        self.act(actions);
        job
    }

    /// After work was done: releases memory that nobody needs any more, and tells who waits for quiet.
    pub(super) fn settle(&self, state: &mut DeviceState) {
        let DeviceState { streams, memory, .. } = state;
        if let (Some(memory), Ok(runtime)) = (memory, self.runtime())
            && memory.is_unsettled()
        {
            memory.settle(&runtime.mirror, |point| streams.reached(point));
        }
        self.quiet.notify_all();
    }

    /// Blocks of ordinary kernels that one worker holds at most, and of cooperative ones.
    pub(super) fn resident_blocks(&self) -> u64 {
        let multiprocessors = self.config.multiprocessor_count(self.workers);
        info::blocks_of_a_worker(self.workers as u64, multiprocessors as u64)
    }

    /// Makes sure that somebody takes care of what can be done now.
    pub(super) fn call_workers(self: &Arc<Self>, state: &mut DeviceState) {
        let ready = state.streams.ready.len();
        self.urgent.store(ready, Ordering::Relaxed);
        let open = state.active.iter().filter(|g| !g.is_alone());
        let blocks: u64 = open.map(|g| g.remaining()).fold(0, u64::saturating_add);
        let pieces: usize = state.computing.iter().map(|running| running.remaining()).sum();
        let ready = ready.saturating_add(pieces).saturating_add(state.descents.len());
        let mut need = usize::try_from(blocks).unwrap_or(usize::MAX).saturating_add(ready).min(self.workers);
        if need == 0 {
            return;
        }
        self.posted.fetch_add(1, Ordering::Release);
        need = need.saturating_sub(self.looking.load(Ordering::Acquire) + state.calls);
        let called = need.min(state.idle);
        state.idle -= called;
        state.calls += called;
        for _ in 0..called {
            self.wake.notify_one();
        }
        // One at a time: who finds more to do than it can calls the next.
        if need > called && state.threads < self.workers {
            let index = state.threads;
            match worker::spawn(self.clone(), index as u32) {
                Ok(()) => state.threads += 1,
                Err(error) if state.threads == 0 => {
                    for ordinal in 0..self.config.devices {
                        state.streams.fail(ordinal, error.clone());
                    }
                }
                Err(_) => {}
            }
        }
    }

    /// Something for a worker to do, if there is anything. `room` says whether it can begin blocks of
    /// ordinary and of cooperative kernels.
    ///
    /// Copies go first. Blocks are begun in the order in which their kernels were started, the more urgent
    /// ones first: so a kernel whose blocks all fit gets them all running before any younger one, and may
    /// let them wait for each other.
    fn pick(self: &Arc<Self>, state: &mut DeviceState, room: (bool, bool)) -> Option<Job> {
        if let Some(descent) = state.descents.pop_front() {
            self.call_workers(state);
            return Some(Job::Descent(descent));
        }
        let open = state.active.iter().filter(|g| !g.exhausted() && !g.is_alone());
        // A kernel without cuts is run through beside all that wait, for whom it may be what they wait for.
        let fit = open.filter(|g| !g.has_cuts || if g.cooperative { room.1 } else { room.0 });
        // Of equally urgent ones the first, which was started first.
        let grid = fit.min_by_key(|g| g.priority).cloned();
        let mut at = 0;
        while let Some(&key) = state.streams.ready.get(at) {
            let wanted = match state.streams.peek(key) {
                Some(Work::Launch(launch)) => {
                    let urgency = state.streams.priority(key);
                    if state.params.is_empty() || launch.cooperative && state.cooperative {
                        state.streams.ready.remove(at);
                        state.delayed.push_back(key);
                        continue;
                    }
                    grid.as_ref().is_none_or(|g| urgency < g.priority)
                }
                // A copy; or an entry whose work was taken by its twin.
                _ => true,
            };
            if !wanted {
                at += 1;
                continue;
            }
            state.streams.ready.remove(at);
            match state.streams.take(key) {
                Some(Work::Launch(launch)) => {
                    state.cooperative |= launch.cooperative;
                    let id = state.next_grid;
                    state.next_grid += 1;
                    // There is one, or the launch would have been delayed.
                    let slot = state.params.pop().unwrap_or(0);
                    let priority = state.streams.priority(key);
                    let ordinal = state.streams.ordinal_of_key(key);
                    self.call_workers(state);
                    let behind = VecDeque::new();
                    return Some(Job::Launch(Turn { key, launch, ordinal, priority, slot, id, behind }));
                }
                Some(Work::Transfer(transfer)) => {
                    self.call_workers(state);
                    return Some(Job::Transfer(key, transfer));
                }
                Some(Work::Library(work)) => {
                    self.call_workers(state);
                    return Some(Job::Library(key, work));
                }
                Some(_) | None => {}
            }
        }
        let pieces = state.computing.iter().find(|running| running.remaining() > 0).cloned();
        if (pieces.is_some() || grid.is_some()) && state.threads < self.workers {
            // This thread was called for it; there may be enough for another one.
            self.call_workers(state);
        }
        if let Some(running) = pieces {
            return Some(Job::Pieces(running));
        }
        grid.map(Job::Grid)
    }

    /// Something to do for a worker that has nothing else, after waiting for it; `None` is the end.
    pub(super) fn next_job(self: &Arc<Self>, mut shrink: impl FnMut()) -> Option<Job> {
        if let Some(job) = self.pick(&mut self.lock(), BOTH) {
            return Some(job);
        }
        let seen = self.posted.load(Ordering::Acquire);
        self.looking.fetch_add(1, Ordering::AcqRel);
        look(FOR_WORK, || self.posted.load(Ordering::Acquire) != seen);
        let mut state = self.lock();
        self.looking.fetch_sub(1, Ordering::AcqRel);
        let mut rested = false;
        loop {
            if state.stop {
                return None;
            }
            if let Some(job) = self.pick(&mut state, BOTH) {
                return Some(job);
            }
            state.idle += 1;
            while state.calls == 0 && !state.stop {
                if rested {
                    self.wake.wait(&mut state);
                } else if self.wake.wait_for(&mut state, SHRINK_AFTER).timed_out() && state.calls == 0 {
                    rested = true;
                    MutexGuard::unlocked(&mut state, &mut shrink);
                }
            }
            // With a call somebody has been taken off the idle ones.
            if state.calls > 0 {
                state.calls -= 1;
            }
        }
    }

    /// Something more to do for a worker all of whose blocks let others go first.
    pub(super) fn another_job(self: &Arc<Self>, room: (bool, bool)) -> Option<Job> {
        let mut state = self.state.try_lock()?;
        self.pick(&mut state, room)
    }

    /// A copy that is ready while all workers may be busy with kernels.
    pub(super) fn urgent_transfer(&self) -> Option<(Key, Box<Transfer>)> {
        if self.urgent.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut state = self.state.try_lock()?;
        let streams = &mut state.streams;
        let is_copy = |key: &Key| matches!(streams.peek(*key), Some(Work::Transfer(_)));
        let at = streams.ready.iter().position(is_copy)?;
        let key = streams.ready.remove(at)?;
        match streams.take(key) {
            Some(Work::Transfer(transfer)) => Some((key, transfer)),
            _ => None,
        }
    }

    /// Starts a kernel whose turn it is: its blocks can be picked from now on, or are the caller's to run. `busy` says that the
    /// caller has other blocks, and may not begin any of these.
    pub(super) fn start(self: &Arc<Self>, turn: Turn, busy: bool) -> Option<Arc<Grid>> {
        let Turn { key, launch, ordinal, priority, slot, id, behind } = turn;
        let cooperative = launch.cooperative;
        if !self.config.own_process {
            fault::install();
        }
        let grid = self.runtime().and_then(|runtime| {
            launch.start(Site {
                stream: key,
                ordinal,
                priority,
                params: (slot, runtime.arena.param_slot(slot)),
                id,
                heap: runtime.heaps[ordinal as usize].clone(),
                host: self.host.clone(),
                about: self.about.clone(),
                behind,
                too_long: self.too_long.clone(),
                checker: self.checker.clone(),
            })
        });
        match grid {
            Ok(grid) => {
                if busy {
                    grid.open();
                }
                let mut state = self.lock();
                state.active.push(grid.clone());
                state.busy_since.get_or_insert(grid.begun());
                // The device may have been reset meanwhile.
                let failed = state.streams.check(ordinal).is_err();
                if !failed && !grid.is_alone() {
                    self.call_workers(&mut state);
                }
                drop(state);
                if !failed {
                    return Some(grid);
                }
                if grid.abort(None) {
                    self.grid_done(&grid);
                }
            }
            Err(error) => {
                self.give_back(&mut self.lock(), slot, cooperative);
                self.complete(key, Err(error), None, false);
            }
        }
        None
    }

    /// The next kernel of those that grids have launched.
    pub(super) fn turn_of(&self, descent: Descent, launch: Box<LaunchWork>) -> Turn {
        let Descent { stream, ordinal, priority, slot, rest } = descent;
        let mut state = self.lock();
        let id = state.next_grid;
        state.next_grid += 1;
        Turn { key: stream, launch, ordinal, priority, slot, id, behind: rest }
    }

    /// Nothing is left of what grids have launched, or something of it went wrong: the stream goes on.
    pub(super) fn end_descent(self: &Arc<Self>, descent: Descent, result: Result<()>) {
        self.give_back(&mut self.lock(), descent.slot, false);
        self.complete(descent.stream, result, None, false);
    }

    /// Lets other workers take part in a kernel that was thought to be small.
    pub(super) fn open(self: &Arc<Self>, grid: &Grid) {
        if grid.is_alone() && grid.open() {
            self.call_workers(&mut self.lock());
        }
    }

    fn give_back(&self, state: &mut DeviceState, slot: u64, cooperative: bool) {
        state.params.push(slot);
        Self::admit(state, cooperative);
    }

    /// Lets delayed launches try again, after the end of a cooperative one where `cooperative` says so.
    fn admit(state: &mut DeviceState, cooperative: bool) {
        state.cooperative &= !cooperative;
        while let Some(key) = state.delayed.pop_back() {
            state.streams.ready.push_front(key);
        }
    }

    /// All blocks of a kernel have ended.
    pub(super) fn grid_done(self: &Arc<Self>, grid: &Arc<Grid>) {
        self.grid_is_done(grid, false);
    }

    /// All blocks of a kernel have ended; what the calling worker, which has nothing else to do, is to do next.
    pub(super) fn grid_done_then_next(self: &Arc<Self>, grid: &Arc<Grid>) -> Option<Job> {
        self.grid_is_done(grid, true)
    }

    fn grid_is_done(self: &Arc<Self>, grid: &Arc<Grid>, next: bool) -> Option<Job> {
        grid.flush();
        let mut error = grid.take_error();
        if let Some(checker) = &self.checker {
            error = checker.ended(grid, error);
        }
        if let Some(profiler) = &self.profiler {
            profiler.ended(grid, error.is_some());
        }
        let mut actions = Actions::default();
        // The clock is looked at while others can have the lock.
        let now = Instant::now();
        let mut state = self.lock();
        state.active.retain(|g| !Arc::ptr_eq(g, grid));
        state.rest(now);
        if error.is_none() && !grid.aborted() {
            state.launches += 1;
            if let Some(governor) = &self.governor {
                governor.launched(grid.ordinal);
            }
        }
        let rest = if error.is_none() && !grid.aborted() { grid.take_descendants() } else { VecDeque::new() };
        if rest.is_empty() {
            self.give_back(&mut state, grid.params.0, grid.cooperative);
            state.streams.complete(grid.stream, error.map_or(Ok(()), Err), &mut actions);
        } else {
            if grid.cooperative {
                Self::admit(&mut state, true);
            }
            let (stream, ordinal, priority) = (grid.stream, grid.ordinal, grid.priority);
            state.descents.push_back(Descent { stream, ordinal, priority, slot: grid.params.0, rest });
        }
        if state.streams.check(grid.ordinal).is_err() {
            // The ordinal's other kernels end with it.
            let others: Vec<_> =
                state.active.iter().filter(|g| g.ordinal == grid.ordinal && !g.aborted()).cloned().collect();
            drop(state);
            for other in others {
                if other.abort(None) {
                    self.grid_done(&other);
                }
            }
            state = self.lock();
        }
        self.settle(&mut state);
        let job = if next { self.pick(&mut state, BOTH) } else { None };
        self.call_workers(&mut state);
        drop(state);
        self.act(actions);
        job
    }

    /// The first kernel that is executing and of which this holds.
    pub(super) fn executing(&self, which: impl Fn(&Arc<Grid>) -> bool) -> Option<Arc<Grid>> {
        self.lock().active.iter().find(|grid| which(grid)).cloned()
    }

    /// Ends all work of an ordinal and waits until none is left.
    pub(super) fn abandon(self: &Arc<Self>, ordinal: Ordinal) {
        let mut actions = Actions::default();
        let mut state = self.lock();
        state.streams.abandon(ordinal, &mut actions);
        let running: Vec<_> = state.active.iter().filter(|g| g.ordinal == ordinal).cloned().collect();
        drop(state);
        for grid in running {
            if grid.abort(None) {
                self.grid_done(&grid);
            }
        }
        self.act(actions);
    }

    /// Waits until an ordinal has no work left.
    pub(super) fn wait_until_idle(&self, ordinal: Ordinal) -> MutexGuard<'_, DeviceState> {
        let mut state = self.lock();
        while !state.streams.is_idle(ordinal) {
            self.quiet.wait(&mut state);
        }
        state
    }

    /// What was counted.
    pub(super) fn counters(&self) -> Counters {
        if let Some(governor) = &self.governor {
            governor.tell();
        }
        let state = self.lock();
        let busy = state.busy + state.busy_since.map_or(Duration::ZERO, |since| since.elapsed());
        Counters { launches: state.launches, busy_ns: busy.as_nanos() as u64 }
    }

    /// Ends the workers as soon as they notice.
    pub(super) fn stop(self: &Arc<Self>) {
        if let Some(governor) = &self.governor {
            governor.stop();
        }
        for ordinal in 0..self.config.devices {
            self.abandon(ordinal);
        }
        let mut state = self.lock();
        state.stop = true;
        drop(state);
        self.wake.notify_all();
        self.words_begun.notify_all();
    }
}
