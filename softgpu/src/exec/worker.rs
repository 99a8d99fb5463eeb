//! The threads that run blocks and make copies.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use rgpu_device::{Code, Error, Ordinal, Result};

use super::block::Progress;
use super::block::team::{Next, Team};
use super::contained::contained;
use super::device_runtime::Descent;
use super::fault::{self, Guard};
use super::governor::{Governor, Seat};
use super::grid::{Grid, nanoseconds};
use super::library::Running;
use super::shared::{Job, Shared, Turn};
use super::slot::Slot;

/// Slots of a worker that holds so many blocks: of ordinary kernels, of cooperative ones, and for a kernel without cuts that runs while all
/// those wait.
pub(super) fn slots(resident: u64) -> u64 {
    2 * resident + 2
}

/// Compiled code uses little of it, but may call deeply.
const STACK: usize = 16 << 20;

struct Worker {
    shared: Arc<Shared>,
    index: u32,
    guard: Box<Guard>,
    residents: Vec<Team>,
    #[expect(clippy::vec_box, reason = "slots are handed about, and their boxes are smaller")]
    free: Vec<Box<Slot>>,
    opened: u64,
    /// What it is to do next.
    next: Option<Job>,
    /// What holds it back, and where it waits then.
    held: Option<(Arc<Governor>, Arc<Seat>)>,
}

/// Starts a worker. It blocks all signals but those that faults raise.
pub(super) fn spawn(shared: Arc<Shared>, index: u32) -> Result<()> {
    let hold = shared.governor.as_ref().map(|_| fault::hold_signal());
    let end = shared.watchdog.as_ref().map(|_| fault::end_signal());
    let also: Vec<_> = hold.into_iter().chain(end).collect();
    spawn_masked(&format!("rgpu-worker-{index}"), STACK, &also, "kernels", move || run(shared, index))
}

/// Starts a thread that blocks all signals but those that faults raise, and `also` these.
pub(super) fn spawn_masked(
    name: &str,
    stack: usize,
    also: &[libc::c_int],
    what_for: &str,
    body: impl FnOnce() + Send + 'static,
) -> Result<()> {
    // SAFETY: signal sets are plain memory, and the mask is put back below.
    let before = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        let faults = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];
        for signal in faults.into_iter().chain(also.iter().copied()) {
            libc::sigdelset(&mut all, signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        before
    };
    let thread = std::thread::Builder::new().name(name.to_owned()).stack_size(stack).spawn(body);
    // SAFETY: the mask from above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    match thread {
        Ok(_) => Ok(()),
        Err(error) => {
            Err(Error::new(Code::OperatingSystem, format!("Cannot start a thread for {what_for}: {error}")))
        }
    }
}

fn run(shared: Arc<Shared>, index: u32) {
    // There is work only once addresses are reserved.
    let Ok(runtime) = shared.runtime() else { return };
    let mut guard = Guard::new(&raw const runtime.mirror);
    let held = shared.governor.as_ref().map(|governor| (governor.clone(), governor.sit()));
    if let Some((_, seat)) = &held {
        guard.hold_at(Arc::as_ptr(seat));
    }
    let place = shared.watchdog.as_ref().map(|watchdog| {
        guard.end_at(watchdog.overdue());
        watchdog.sit()
    });
    let (residents, free) = (Vec::new(), Vec::new());
    let mut worker =
        Worker { shared: shared.clone(), index, guard, residents, free, opened: 0, next: None, held };
    loop {
        if let Some(job) = worker.next.take() {
            worker.perform(job);
        } else if worker.residents.is_empty() {
            if let Some((governor, seat)) = &worker.held {
                governor.rest(seat);
            }
            let free = &mut worker.free;
            let Some(job) = shared.next_job(|| free.iter_mut().for_each(|s| s.shrink())) else { break };
            if let Some((governor, seat)) = &worker.held {
                governor.work(seat);
            }
            worker.perform(job);
        } else {
            worker.more();
        }
        worker.round();
    }
    if let Some((governor, seat)) = &worker.held {
        governor.leave(seat);
    }
    drop(place);
}

impl Worker {
    /// Goes on with something of an ordinal, as soon as that may be.
    #[inline]
    fn enter(&self, ordinal: Ordinal) {
        if let Some((governor, seat)) = &self.held {
            governor.enter(seat, ordinal);
        }
    }

    fn perform(&mut self, job: Job) {
        match job {
            Job::Transfer(key, transfer) => {
                if self.held.is_some() {
                    let ordinal = self.shared.lock().streams.ordinal_of_key(key);
                    self.enter(ordinal);
                }
                if self.residents.is_empty() {
                    self.next = self.shared.transfer_then_next(key, *transfer);
                } else {
                    self.shared.transfer(key, *transfer);
                }
            }
            Job::Descent(descent) => self.descend(descent),
            Job::Launch(turn) => self.launch(turn),
            Job::Grid(grid) => self.work_on(grid),
            Job::Library(key, work) => {
                if let Some(running) = self.shared.begin_library(key, *work) {
                    self.compute(&running);
                }
            }
            Job::Pieces(running) => self.compute(&running),
        }
    }

    fn launch(&mut self, turn: Turn) {
        let busy = !self.residents.is_empty();
        // A kernel whose blocks may wait for each other takes its turn behind older ones.
        if let Some(grid) = self.shared.start(turn, busy)
            && !(busy || grid.waits())
        {
            self.work_on(grid);
        }
    }

    /// Carries out what grids have left to do, up to the next kernel.
    fn descend(&mut self, mut descent: Descent) {
        let arena = match self.shared.runtime() {
            Ok(runtime) => runtime.arena.whole(),
            Err(error) => return self.shared.end_descent(descent, Err(error)),
        };
        loop {
            let Some(next) = descent.rest.pop_front() else {
                return self.shared.end_descent(descent, Ok(()));
            };
            self.enter(descent.ordinal);
            match next.carry_out(&mut self.guard, arena) {
                Ok(None) => {}
                Ok(Some(launch)) => {
                    let turn = self.shared.turn_of(descent, launch);
                    return self.launch(turn);
                }
                Err(error) => return self.shared.end_descent(descent, Err(error)),
            }
        }
    }

    /// Does pieces of an operation of a library as long as there are any.
    fn compute(&mut self, running: &Arc<Running>) {
        let mut running = running.clone();
        loop {
            self.enter(running.ordinal);
            match running.work() {
                None => return,
                Some(false) => {}
                Some(true) => match self.shared.library_done(&running) {
                    Some(next) => running = next,
                    None => return,
                },
            }
            if let Some((key, transfer)) = self.shared.urgent_transfer() {
                self.shared.transfer(key, *transfer);
            }
        }
    }

    /// How many blocks are resident, of cooperative kernels or of others.
    fn count(&self, cooperative: bool) -> u64 {
        self.residents.iter().filter(|r| r.grid().cooperative == cooperative).count() as u64
    }

    /// All resident blocks let others go first: begin another one, or do something else.
    fn more(&mut self) {
        let most = self.shared.resident_blocks();
        let room = (self.count(false) < most, self.count(true) < most);
        match self.shared.another_job(room) {
            Some(job) => self.perform(job),
            None => std::thread::yield_now(),
        }
    }

    fn slot(&mut self) -> Result<Box<Slot>> {
        if let Some(slot) = self.free.pop() {
            return Ok(slot);
        }
        let slots = slots(self.shared.resident_blocks());
        if self.opened >= slots {
            return Err(Error::new(Code::LaunchOutOfResources, "Too many resident blocks"));
        }
        let arena = self.shared.runtime()?.arena.clone();
        let slot = Slot::open(arena, u64::from(self.index) * slots + self.opened)?;
        self.opened += 1;
        Ok(slot)
    }

    /// Begins a block of a kernel; one without cuts is run as far as there are blocks.
    fn work_on(&mut self, grid: Arc<Grid>) {
        let taken = grid.take(self.shared.workers as u64);
        if taken.is_empty() {
            return;
        }
        match self.begin(&grid, taken.clone()) {
            Ok(resident) if grid.has_cuts => self.residents.push(resident),
            Ok(resident) => self.run_through(resident),
            Err(error) => self.ended(&grid, taken.count() as u64, Err(error)),
        }
    }

    /// Begins the first of some blocks that were taken, of which there is one at least; the others are to follow it.
    fn begin(&mut self, grid: &Arc<Grid>, taken: Range<u64>) -> Result<Team> {
        let place = (self.index, self.shared.workers as u32);
        let mut slot = self.slot()?;
        let lanes = grid.lanes();
        if let Err(error) = slot.prepare(grid, lanes) {
            self.free.push(slot);
            return Err(error);
        }
        Ok(Team::begin(slot, grid.clone(), taken.start, taken.start + 1..taken.end, place, lanes))
    }

    /// Some blocks of a grid have ended.
    fn ended(&mut self, grid: &Arc<Grid>, blocks: u64, result: Result<()>) {
        let mut last = false;
        if let Err(error) = result {
            last |= grid.abort(Some(error));
        }
        last |= grid.finish(blocks);
        if last && grid.has_cuts {
            grid.note_turns(self.shared.workers as u64);
        }
        if last && self.residents.is_empty() {
            self.next = self.shared.grid_done_then_next(grid);
        } else if last {
            self.shared.grid_done(grid);
        }
    }

    /// Runs blocks of a kernel without cuts until none is left.
    fn run_through(&mut self, mut resident: Team) {
        let grid = resident.grid().clone();
        let begun = if grid.is_alone() { grid.begun() } else { Instant::now() };
        let (mut blocks, mut result) = (0, Ok(()));
        // Those that ran otherwise, and until when.
        let (mut before, mut since) = (0, begun);
        let note = |blocks: u64, since: Instant, until: Instant, lanes| {
            let (ns, blocks) = (nanoseconds(until - since), blocks * grid.cluster_blocks());
            grid.note_tier(blocks, ns, lanes);
        };
        let left = loop {
            blocks += 1;
            self.enter(grid.ordinal);
            let guard = &mut self.guard;
            if let Err(error) = contained(|| resident.step(guard)) {
                result = Err(error);
                break resident.left();
            }
            if grid.aborted() {
                break resident.left();
            }
            if grid.is_longer_than_thought(blocks) {
                self.shared.open(&grid);
            }
            match resident.go_on(self.shared.workers as u64) {
                Next::Begun => {}
                Next::Nothing => break 0,
                Next::Otherwise(taken) => {
                    let now = Instant::now();
                    note(blocks - before, since, now, resident.lanes());
                    (before, since) = (blocks, now);
                    self.free.push(resident.into_slot());
                    match self.begin(&grid, taken.clone()) {
                        Ok(other) => resident = other,
                        Err(error) => return self.ended(&grid, blocks + taken.count() as u64, Err(error)),
                    }
                }
            }
            if let Some((key, transfer)) = self.shared.urgent_transfer() {
                self.shared.transfer(key, *transfer);
            }
        };
        if let Some(cost) = grid.cost() {
            let now = Instant::now();
            cost.note(blocks * grid.cluster_blocks(), nanoseconds(now - begun));
            note(blocks - before, since, now, resident.lanes());
        }
        self.free.push(resident.into_slot());
        self.ended(&grid, blocks + left, result);
    }

    /// Steps the resident blocks until each has let others go first, or ended.
    fn round(&mut self) {
        let workers = self.shared.workers as u64;
        if self.residents.is_empty() {
            return;
        }
        self.shared.rounds.begin(self.index);
        let mut at = 0;
        while at < self.residents.len() {
            if self.residents[at].is_held() && !self.lets_go(at) {
                at += 1;
                continue;
            }
            let resident = &mut self.residents[at];
            if let Some((governor, seat)) = &self.held {
                governor.enter(seat, resident.grid().ordinal);
            }
            let guard = &mut self.guard;
            let result = if resident.grid().aborted() {
                Ok(Progress::Finished)
            } else {
                contained(|| resident.step(guard))
            };
            let result = match result {
                Ok(Progress::Yielded | Progress::Waiting) => {
                    at += 1;
                    continue;
                }
                Ok(Progress::Held(hold)) => {
                    resident.hold(hold, &self.shared.rounds);
                    at += 1;
                    continue;
                }
                Ok(Progress::Finished) => Ok(()),
                Err(error) => Err(error),
            };
            let next = match &result {
                Ok(()) if !resident.grid().aborted() => resident.go_on(workers),
                _ => Next::Nothing,
            };
            match next {
                // What other workers look at is not touched for each block: it would be away from them each time.
                Next::Begun => {
                    if resident.grid().is_longer_than_thought(1) {
                        self.shared.open(resident.grid());
                    }
                }
                Next::Nothing => self.end(at, result),
                Next::Otherwise(taken) => self.replace(at, taken),
            }
            if let Some((key, transfer)) = self.shared.urgent_transfer() {
                self.shared.transfer(key, *transfer);
            }
        }
        if self.residents.is_empty() {
            self.shared.rounds.rest(self.index);
        }
    }

    /// Whether a resident that lets others go first goes on.
    fn lets_go(&mut self, at: usize) -> bool {
        let (shared, grid) = (&self.shared, self.residents[at].grid());
        let is_full = self.count(grid.cooperative) >= shared.resident_blocks();
        grid.aborted() || self.residents[at].goes_on(&shared.rounds, self.index, is_full)
    }

    /// A resident, and those that were to follow it, have come to their end.
    fn end(&mut self, at: usize, result: Result<()>) {
        let resident = self.residents.remove(at);
        let (grid, blocks) = (resident.grid().clone(), resident.gone() + 1 + resident.left());
        self.free.push(resident.into_slot());
        self.ended(&grid, blocks, result);
    }

    /// The blocks that were taken behind a resident are to run otherwise.
    fn replace(&mut self, at: usize, taken: Range<u64>) {
        let resident = self.residents.remove(at);
        let (grid, blocks) = (resident.grid().clone(), resident.gone() + 1);
        self.free.push(resident.into_slot());
        match self.begin(&grid, taken.clone()) {
            Ok(other) => {
                self.residents.insert(at, other);
                self.ended(&grid, blocks, Ok(()));
            }
            Err(error) => self.ended(&grid, blocks + taken.count() as u64, Err(error)),
        }
    }
}
