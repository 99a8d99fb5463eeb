//! Running one block to its end, through all its cuts.

mod checked;
mod group;
pub(super) mod rows;
pub(super) mod team;

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use rgpu_device::{Code, Error, Range, Result};

use self::rows::Rows;
use super::barrier::Barriers;
use super::check::BlockChecker;
use super::count::BlockCounter;
use super::fault::{self, Fault, Guard};
use super::grid::Grid;
use super::slot::Slot;
use super::texture;
use super::warp::{self, lanes};
use crate::abi::{
    APART, ARENA_MARGIN, Block, Cut, CutKind, FAULT_ADDRESS, Hold, RESERVED_SHARED_AT, RESERVED_SHARED_BYTES,
    STOP_EXIT, STOP_TRAP, TRAP_ADDRESS, TRAP_ASSERT, TRAP_BAD_CALL, TRAP_INSTRUCTION, TRAP_LINE,
    TRAP_MISALIGNED, TRAP_STACK, TRAP_TENSOR_MAP, Thread, WARP,
};

/// How far a block has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// All its threads have ended.
    Finished,
    /// It lets others run; step it again later.
    Yielded,
    /// Likewise, and other blocks of the grid are to go first.
    Held(Hold),
    /// Threads wait at the barrier of the cluster, and nobody else can go on.
    Waiting,
}

/// What helpers find behind [`Block::executor`].
pub(super) struct Context {
    /// The grid of the block.
    pub grid: Arc<Grid>,
    /// The guard of the thread that runs it.
    pub guard: *mut Guard,
    /// All memory that kernels may touch, and so all that may be read for them.
    pub arena: Range,
    /// What looks at the block, if anything does.
    pub check: Option<RefCell<BlockChecker>>,
    /// Whether a thread was told of an error by CUDA's device runtime.
    pub told: Cell<bool>,
    /// What counts in the block, if anything does.
    pub counter: Option<RefCell<BlockCounter>>,
    /// How many threads of a group run at once; 0 where they run one by one.
    pub lanes: usize,
    /// The texture that was used last.
    pub texture: Box<texture::Latest>,
    /// The address of the first thread, and the local memory of all.
    first: *const Thread,
    local: Range,
}

impl Context {
    /// A thread's number in its block.
    pub(super) fn index_of(&self, thread: &Thread) -> usize {
        (std::ptr::from_ref(thread) as usize - self.first as usize) / size_of::<Thread>()
    }

    /// Whether an address lies in the local memory of one of the block's threads.
    pub(super) fn is_local(&self, address: u64) -> bool {
        self.local.contains(address, 1)
    }
}

/// The lanes of a warp, by what they are doing.
#[derive(Debug, Clone, Copy, Default)]
struct Warp {
    ready: u32,
    alive: u32,
    yielded: u32,
    /// Waiting at an operation of the warp.
    waiting: u32,
    /// Waiting at a barrier of the block.
    barred: u32,
    /// Have arrived at the barrier of the cluster.
    arrived: u32,
    /// Waiting there.
    clustered: u32,
    /// Waiting at an operation of four warps.
    grouped: u32,
    /// How often lanes have let others go first while the rest of the warp waited for them without being asked to by name.
    rounds: u32,
    /// What the states of the lanes that let others go first were when that was looked at.
    looked: u64,
    /// How often lanes have gone on from one place while others of the warp waited for all at a place behind it.
    passed: u32,
    /// What their states were when that was looked at.
    seen: u64,
}

/// For so many rounds lanes that wait for their warp where the program does not say whom for wait for lanes that let others go first: these may
/// just be in a long loop, or wait for other warps and blocks.
const PATIENCE: u32 = 1000;
/// For so many where the lanes that let others go first are not as they were a round before: they get on.
const MOST_PATIENCE: u32 = 10 * PATIENCE;
/// Lanes go on from a place, in a loop most likely, while others of their warp wait behind it. After so many turns it is looked at whether a turn has
/// changed anything for them.
const TURNS: u32 = 500;
/// After so many turns the others go on in any case: the loop may count how often it has looked.
const MOST_TURNS: u32 = 200 * TURNS;
/// For so many where that has been in vain before: such lanes most likely wait for what one of the others is to do.
const LITTLE_PATIENCE: u32 = 4;

/// A block that has begun.
pub(super) struct Resident {
    /// Where it lives.
    pub slot: Box<Slot>,
    block: Box<Block>,
    context: Box<Context>,
    warps: Vec<Warp>,
    barriers: Barriers,
    rows: Rows,
    /// How many threads of a group run at once; 0 where they run one by one.
    lanes: usize,
    /// Whether nothing has run yet of a block whose code goes through all barriers by itself: of its warps nothing is noted then.
    is_untouched: bool,
    /// How many rounds lanes wait for others that let others go first.
    patience: u32,
    /// For how long a thread lets other blocks go first, if one does.
    held: Option<Hold>,
}

// SAFETY: the pointers in `block` and `context` lead into the resident's own boxes, or are set anew by each
// `step`.
unsafe impl Send for Resident {}

impl Resident {
    /// Begins the block of a rank in cluster `index` of the grid, in a slot that was prepared for it. Where nobody has asked for
    /// clusters, each block is one. The shared memory of the cluster begins at `shared_base`. `worker` is the index of the
    /// worker that runs it, and how many there are. `lanes` is what the slot was prepared for.
    fn begin(
        mut slot: Box<Slot>,
        grid: Arc<Grid>,
        (index, rank): (u64, u32),
        shared_base: u64,
        worker: (u32, u32),
        lanes: usize,
    ) -> Self {
        let (ctaid, cluster) = grid.place(index, rank, shared_base);
        let block = Box::new(Block {
            ctaid,
            nctaid: grid.grid,
            ntid: grid.block,
            dynamic_shared: grid.dynamic_shared,
            smid: worker.0,
            nsmid: worker.1,
            gridid: grid.id,
            params: grid.params.1,
            shared_base: slot.window,
            envreg: grid.workspace.rotate_left(32),
            cluster,
            cursor: std::ptr::null_mut(),
            executor: std::ptr::null_mut(),
            together: APART,
            words: [0; 6],
        });
        let check =
            grid.checker.as_ref().map(|checker| RefCell::new(BlockChecker::new(checker.clone(), &grid)));
        let counter = BlockCounter::new(&grid.kernel, slot.threads.len()).map(RefCell::new);
        let (arena, guard) = (slot.arena(), std::ptr::null_mut());
        let (first, local) = (slot.threads.as_ptr(), slot.local());
        let told = Cell::new(true);
        let texture = slot.texture.take().unwrap_or_default();
        let context =
            Box::new(Context { grid, guard, arena, check, counter, told, lanes, texture, first, local });
        let mut resident = Self {
            slot,
            block,
            context,
            warps: Vec::new(),
            barriers: Barriers::new(),
            rows: Rows::default(),
            lanes,
            is_untouched: false,
            patience: PATIENCE,
            held: None,
        };
        resident.slot.threads.iter_mut().for_each(|t| t.stop = STOP_EXIT);
        resident.rewind();
        resident
    }

    /// Begins the block of the same rank in another cluster of the same grid, in the same place.
    fn again(&mut self, index: u64) {
        let place = &self.block.cluster;
        if self.context.grid.cluster.is_none() {
            self.block.ctaid = self.context.grid.coordinates(index);
            self.block.cluster.id = self.block.ctaid;
        } else {
            (self.block.ctaid, self.block.cluster) =
                self.context.grid.place(index, place.rank, place.shared_base);
        }
        self.rewind();
    }

    /// Gives the slot back.
    fn into_slot(self) -> Box<Slot> {
        let Self { mut slot, context, .. } = self;
        slot.texture = Some(context.texture);
        slot
    }

    /// The grid that the block belongs to.
    fn grid(&self) -> &Arc<Grid> {
        &self.context.grid
    }

    fn rewind(&mut self) {
        if let Some(check) = &self.context.check {
            check.borrow_mut().begin();
        }
        if self.context.grid.kernel.reserved_shared {
            let reserved = self.slot.window + u64::from(RESERVED_SHARED_AT);
            // SAFETY: it is the end of the slot's window, which is accessible, and no thread runs.
            unsafe { (reserved as *mut u8).write_bytes(0, RESERVED_SHARED_BYTES as usize) };
        }
        if self.context.told.take() {
            self.slot.threads.iter_mut().for_each(|t| t.error = 0);
        }
        if !self.context.grid.has_cuts {
            return;
        }
        // All begin in one place.
        self.block.together = if self.lanes > 0 { STOP_EXIT } else { APART };
        let grid = &self.context.grid;
        let (kernel, count) = (&grid.kernel, self.slot.threads.len());
        let phases = kernel.vectors_of(self.lanes).is_some_and(|vectors| vectors.phases);
        let warps = !grid.has_warp_cuts || count.is_multiple_of(WARP);
        self.is_untouched = phases && warps && self.whole_block(count).is_some();
        self.rows.begin(&mut self.slot, kernel, self.lanes, !self.is_untouched);
        self.warps.clear();
        if !self.is_untouched {
            self.begin_warps();
        }
    }

    /// All warps begin, and no barrier has been come to.
    fn begin_warps(&mut self) {
        let count = self.slot.threads.len();
        self.warps.extend((0..count.div_ceil(WARP)).map(|w| {
            let lanes = (count - w * WARP).min(WARP);
            let full = if lanes == WARP { !0 } else { (1 << lanes) - 1 };
            Warp { ready: full, alive: full, ..Warp::default() }
        }));
        self.barriers.clear();
    }

    /// Runs the block until it ends or has to let others run.
    fn step(&mut self, guard: &mut Guard) -> Result<Progress> {
        let result = self.advance(guard);
        if let Some(check) = &self.context.check {
            check.borrow_mut().settle(&self.context.grid);
        }
        if let Some(counter) = &self.context.counter
            && !matches!(result, Ok(Progress::Yielded | Progress::Held(_)))
        {
            self.context.grid.count(&counter.borrow_mut().take());
        }
        result
    }

    fn advance(&mut self, guard: &mut Guard) -> Result<Progress> {
        self.context.guard = guard;
        self.block.executor = (&raw mut *self.context).cast();
        guard.runs(self.context.grid.id);
        if !self.context.grid.has_cuts {
            let count = self.slot.threads.len();
            self.run(guard, 0, count)?;
            // The function returns at once after a trap, so it can only be the last one.
            // SAFETY: the cursor is null or a thread of this block.
            if let Some(last) = unsafe { self.block.cursor.as_ref() }.filter(|t| t.stop != STOP_EXIT) {
                return Err(self.trap(last.stop));
            }
            return Ok(Progress::Finished);
        }
        let mut has_run = std::mem::take(&mut self.is_untouched);
        if has_run && self.run_untouched(guard)? {
            return Ok(Progress::Finished);
        }
        loop {
            if std::mem::take(&mut has_run) || self.run_what_is_ready(guard)? {
                if self.context.grid.aborted() {
                    return Ok(Progress::Finished);
                }
                if self.warps.iter().any(|w| w.ready != 0) {
                    continue;
                }
            }
            if self.release_groups()? || self.release() {
                continue;
            }
            if self.warps.iter().all(|w| w.alive == 0) {
                return Ok(Progress::Finished);
            }
            let mut yielded = 0;
            for warp in &mut self.warps {
                yielded |= warp.yielded;
                warp.ready = std::mem::take(&mut warp.yielded);
            }
            if yielded != 0 && guard.is_overdue() {
                return Err(self.overdue());
            }
            return if yielded != 0 {
                Ok(self.held.take().map_or(Progress::Yielded, Progress::Held))
            } else if self.warps.iter().any(|w| w.clustered != 0) {
                Ok(Progress::Waiting)
            } else {
                Err(self.deadlock())
            };
        }
    }

    /// Calls the machine code for some threads in a row: for vectors of threads where these are alike, else for one after another.
    fn run(&mut self, guard: &mut Guard, first: usize, count: usize) -> Result<()> {
        let one = self.context.grid.kernel.run as *const c_void;
        let lanes = self.lanes;
        if lanes == 0 {
            return self.call(guard, one, first, count);
        }
        let end = first + count;
        let mut at = first;
        if let Some(function) = self.whole_block(count) {
            return self.call(guard, function, first, count).map(|()| _ = self.has_trapped());
        }
        while at < end {
            let many = self.is_group(at, end);
            let mut stop = at + if many { lanes } else { 1 };
            while stop < end && self.is_group(stop, end) == many {
                stop += if many { lanes } else { 1 };
            }
            let function = match self.context.grid.kernel.vectors_of(lanes).filter(|_| many) {
                Some(vectors) => vectors.run as *const c_void,
                None => {
                    self.spread(at, stop);
                    one
                }
            };
            self.call(guard, function, at, stop - at)?;
            // A thread that traps is the last that is run.
            if self.has_trapped() {
                return Ok(());
            }
            // Code for vectors has said how they stopped, and where they all ended it has said no more than that.
            if many && stop - at == self.slot.threads.len() {
                return Ok(());
            }
            at = stop;
        }
        self.block.together = APART;
        Ok(())
    }

    /// The code for vectors of threads where all threads of the block go on in one place, as code for vectors has left them.
    fn whole_block(&self, count: usize) -> Option<*const c_void> {
        let whole = self.lanes > 0 && count == self.slot.threads.len() && count.is_multiple_of(self.lanes);
        let grid = &self.context.grid;
        let known = !grid.has_cuts || self.block.together != APART;
        let vectors = grid.kernel.vectors_of(self.lanes).filter(|_| whole && known);
        vectors.map(|vectors| vectors.run as *const c_void)
    }

    /// Whether the threads of a group from one on can go on together.
    fn is_group(&mut self, at: usize, end: usize) -> bool {
        let whole = at.is_multiple_of(self.lanes) && at + self.lanes <= end;
        let grid = &self.context.grid;
        whole && (!grid.has_cuts || self.rows.together(&mut self.slot, &grid.kernel, at / self.lanes))
    }

    /// Gives threads what they left in rows.
    fn spread(&mut self, first: usize, end: usize) {
        self.block.together = APART;
        if self.rows.are_there() {
            for group in first / self.lanes..end.div_ceil(self.lanes) {
                self.rows.spread(&mut self.slot, &self.context.grid.kernel, group);
            }
        }
    }

    /// Whether the thread that the cursor is at has trapped, or has stopped so that the block cannot go on. It has what it left then.
    fn has_trapped(&mut self) -> bool {
        // SAFETY: the cursor is null or a thread of this block.
        let Some(thread) = (unsafe { self.block.cursor.as_ref() }) else { return false };
        let index = self.context.index_of(thread);
        if self.rows.stop(&self.slot, &self.context.grid.kernel, index) < STOP_TRAP {
            return false;
        }
        self.spread(index, index + 1);
        true
    }

    fn call(&mut self, guard: &mut Guard, function: *const c_void, first: usize, count: usize) -> Result<()> {
        let threads = self.slot.threads[first..first + count].as_mut_ptr();
        self.block.cursor = threads;
        // SAFETY: the threads were prepared for this kernel, and compiled code owns nothing.
        let done =
            unsafe { guard.call(function, threads.cast(), count as u64, (&raw mut *self.block).cast()) };
        done.map_err(|fault| self.fault(fault))
    }

    /// No thread is left.
    fn all_have_ended(&mut self) {
        self.warps.iter_mut().for_each(|w| *w = Warp::default());
    }

    /// Whether code for vectors has run all threads of the block to their end: their rows do not say so then.
    fn has_ended(&mut self) -> bool {
        let ended = self.block.together == STOP_EXIT;
        if ended {
            self.all_have_ended();
        }
        ended
    }

    /// How many threads have not ended.
    fn alive(&self) -> usize {
        self.warps.iter().map(|w| w.alive.count_ones() as usize).sum()
    }

    /// Runs all threads that are ready, each to its next stop at least; whether there were any.
    fn run_what_is_ready(&mut self, guard: &mut Guard) -> Result<bool> {
        let all = self.warps.iter().all(|w| w.ready != 0 && w.ready == w.alive);
        if all && !self.context.grid.has_warp_cuts {
            self.run_all(guard)?;
            return Ok(true);
        }
        if all && self.lanes > 0 && self.alive() == self.slot.threads.len() {
            self.run_all_warps(guard)?;
            return Ok(true);
        }
        let mut any = false;
        for w in 0..self.warps.len() {
            if self.warps[w].ready != 0 {
                any = true;
                self.run_warp(guard, w)?;
            }
        }
        Ok(any)
    }

    /// Runs a block of which nothing has run yet. True if all threads have ended, as mostly: then nothing is noted of its warps.
    fn run_untouched(&mut self, guard: &mut Guard) -> Result<bool> {
        self.run(guard, 0, self.slot.threads.len())?;
        if self.block.together == STOP_EXIT {
            return Ok(true);
        }
        self.begin_warps();
        if self.context.grid.has_warp_cuts {
            self.settle_all_warps()?
        } else {
            self.settle_all()?
        }
        Ok(false)
    }

    /// Runs a block all of whose threads are ready, for kernels with operations of a warp: each thread to its next stop.
    fn run_all_warps(&mut self, guard: &mut Guard) -> Result<()> {
        self.run(guard, 0, self.slot.threads.len())?;
        if self.has_ended() { Ok(()) } else { self.settle_all_warps() }
    }

    /// Carries out what the warps of a block have come to, all of whose threads have run.
    fn settle_all_warps(&mut self) -> Result<()> {
        let count = self.slot.threads.len();
        for w in 0..self.warps.len() {
            let start = w * WARP;
            self.settle(w, start, WARP.min(count - start))?;
        }
        Ok(())
    }

    /// Runs a block all of whose threads are ready, for kernels without operations of a warp.
    fn run_all(&mut self, guard: &mut Guard) -> Result<()> {
        let count = self.slot.threads.len();
        if self.alive() != count {
            for w in 0..self.warps.len() {
                self.run_ready(guard, w)?;
            }
            return Ok(());
        }
        self.run(guard, 0, count)?;
        self.settle_all()
    }

    /// Looks at why the threads of a block have stopped, all of which have run.
    fn settle_all(&mut self) -> Result<()> {
        let count = self.slot.threads.len();
        let alike = self.alike();
        let grid = &self.context.grid;
        if matches!(alike, Some((STOP_EXIT, ..))) {
            self.all_have_ended();
            return Ok(());
        }
        if let Some((stop, number, threads)) = alike
            && grid.kernel.cuts.get(stop.wrapping_sub(1) as usize).is_some_and(|c| c.kind == CutKind::Barrier)
            && number < 16
            && (threads == 0 || threads as usize == count)
            && self.barriers.is_untouched(number)
        {
            // All have arrived at once: all stay ready.
            self.look_at_whole_barrier();
            return Ok(());
        }
        self.spread(0, count);
        for w in 0..self.warps.len() {
            let ready = std::mem::take(&mut self.warps[w].ready);
            self.sort(w, ready)?;
        }
        Ok(())
    }

    /// Runs a warp until none of its lanes can go on.
    fn run_warp(&mut self, guard: &mut Guard, w: usize) -> Result<()> {
        while self.warps[w].ready != 0 {
            if self.warps[w].ready == self.warps[w].alive && self.run_together(guard, w)? {
                if self.context.grid.aborted() {
                    return Ok(());
                }
                continue;
            }
            self.run_ready(guard, w)?;
            if self.warps[w].waiting != 0 {
                self.join(w);
            }
            if self.context.grid.aborted() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Runs a warp all of whose living lanes are ready. Where all of them come to one operation of the warp with
    /// one mask that names them all, or to one of the old form, it is carried out at once: the common case, without a look at
    /// single lanes.
    /// False if nothing was run, because the lanes do not lie in a row.
    fn run_together(&mut self, guard: &mut Guard, w: usize) -> Result<bool> {
        let alive = self.warps[w].alive;
        let (first, count) = (alive.trailing_zeros() as usize, alive.count_ones() as usize);
        if (alive >> first).trailing_ones() as usize != count {
            return Ok(false);
        }
        let start = w * WARP + first;
        self.run(guard, start, count)?;
        if !self.has_ended() {
            self.settle(w, start, count)?;
        }
        Ok(true)
    }

    /// Carries out what all living lanes of a warp, which lie in a row, have come to.
    fn settle(&mut self, w: usize, start: usize, count: usize) -> Result<()> {
        if self.go_on_in_rows(w, start, count) {
            return Ok(());
        }
        let alive = self.warps[w].alive;
        self.spread(start, start + count);
        let row = &self.slot.threads[start..start + count];
        let (stop, mask) = (row[0].stop, row[0].op[3] as u32);
        let kind = self.context.grid.kernel.cuts.get(stop.wrapping_sub(1) as usize).and_then(|cut| {
            let warp = warp::is_of_warp(cut.kind);
            let named = !cut.legacy && cut.kind != CutKind::ActiveMask && mask & alive == alive;
            (warp && (named || cut.legacy)).then_some((cut.kind, cut.legacy))
        });
        match kind {
            Some((kind, legacy))
                if row.iter().all(|t| t.stop == stop && (legacy || t.op[3] as u32 == mask)) =>
            {
                self.execute(w, kind, alive, 0);
            }
            _ => {
                self.warps[w].ready = 0;
                self.sort(w, alive)?;
                if self.warps[w].waiting != 0 {
                    self.join(w);
                }
            }
        }
        Ok(())
    }

    /// Runs the lanes of a warp that are ready, each to its next stop.
    fn run_ready(&mut self, guard: &mut Guard, w: usize) -> Result<()> {
        let ready = std::mem::take(&mut self.warps[w].ready);
        let mut rest = ready;
        while rest != 0 {
            let first = rest.trailing_zeros();
            let count = (rest >> first).trailing_ones();
            let start = w * WARP + first as usize;
            self.run(guard, start, count as usize)?;
            if self.has_ended() {
                return Ok(());
            }
            self.spread(start, start + count as usize);
            let run = (((1u64 << count) - 1) as u32) << first;
            rest &= !run;
            self.sort(w, run)?;
        }
        Ok(())
    }

    /// Looks at why lanes have stopped.
    fn sort(&mut self, w: usize, stopped: u32) -> Result<()> {
        for lane in lanes(stopped) {
            let thread = &self.slot.threads[w * WARP + lane];
            let bit = 1 << lane;
            let stop = thread.stop;
            if stop == STOP_EXIT {
                self.warps[w].alive &= !bit;
                continue;
            }
            if stop >= STOP_TRAP {
                self.block.cursor = (&raw const self.slot.threads[w * WARP + lane]).cast_mut();
                return Err(self.trap(stop));
            }
            let Some(cut) = self.context.grid.kernel.cuts.get(stop as usize - 1) else {
                return Err(Error::new(
                    Code::LaunchFailed,
                    format!("Compiled code stopped at no cut ({stop})"),
                ));
            };
            match cut.kind {
                CutKind::Yield => self.warps[w].yielded |= bit,
                CutKind::GridYield(hold) => {
                    self.warps[w].yielded |= bit;
                    self.held = Some(hold);
                }
                CutKind::Barrier | CutKind::BarrierArrive | CutKind::BarrierReduce(_) => {
                    if thread.op[0] >= 16 {
                        let message = format!("There is no barrier {}", thread.op[0]);
                        return Err(self.failure(Code::LaunchFailed, &message, Some(cut.line)));
                    }
                    let number = thread.op[0] as usize;
                    let predicate = thread.op[2] & 1 != 0;
                    self.barriers.arrive(number, thread.op[1] as u32, w, bit, predicate);
                    if cut.kind == CutKind::BarrierArrive {
                        self.warps[w].ready |= bit;
                        self.release_one(number);
                    } else {
                        self.warps[w].barred |= bit;
                    }
                }
                CutKind::ClusterArrive => {
                    self.warps[w].arrived |= bit;
                    self.warps[w].ready |= bit;
                }
                // Where all have arrived since the thread has, it need not wait.
                CutKind::ClusterWait if self.warps[w].arrived & bit == 0 => self.warps[w].ready |= bit,
                CutKind::ClusterWait => self.warps[w].clustered |= bit,
                CutKind::Group(_) => self.warps[w].grouped |= bit,
                _ => self.warps[w].waiting |= bit,
            }
        }
        Ok(())
    }

    /// Lets every barrier go whose threads have all arrived. True if some thread can go on.
    fn release(&mut self) -> bool {
        let mut any = false;
        for number in lanes(self.barriers.touched()) {
            any |= self.release_one(number);
        }
        any
    }

    fn release_one(&mut self, number: usize) -> bool {
        if !self.barriers.is_complete(number, self.warps.iter().map(|w| w.alive)) {
            return false;
        }
        self.look_at_barrier(number);
        let outcome = self.barriers.complete(number);
        let mut any = false;
        for w in 0..self.warps.len() {
            let arrived = self.barriers.arrived(number, w) & self.warps[w].barred;
            // Whose operands are in rows has come to one barrier with the whole warp.
            if arrived == !0 && self.rows.has(w * WARP) && self.barrier_of(w) == number {
                self.warps[w].barred = 0;
                self.warps[w].ready = !0;
                any = true;
                continue;
            }
            for lane in lanes(arrived) {
                let (_, cut) = self.cut(w, lane);
                let thread = &mut self.slot.threads[w * WARP + lane];
                if self.rows.has(w * WARP + lane) || thread.op[0] as usize != number {
                    continue;
                }
                if let CutKind::BarrierReduce(op) = cut.kind {
                    thread.op[0] = u64::from(outcome.of(op));
                }
                self.warps[w].barred &= !(1 << lane);
                self.warps[w].ready |= 1 << lane;
                any = true;
            }
        }
        self.barriers.reset(number);
        any
    }

    fn cut(&self, w: usize, lane: usize) -> (u32, Cut) {
        let stop = self.rows.stop(&self.slot, &self.context.grid.kernel, w * WARP + lane);
        (stop, self.context.grid.kernel.cuts[stop as usize - 1])
    }

    /// Carries out the operations of a warp whose lanes have arrived.
    fn join(&mut self, w: usize) {
        self.vote_of_others(w);
        let Warp { alive, mut waiting, .. } = self.warps[w];
        let mut rest = waiting;
        let mut alone = 0;
        while rest != 0 {
            let lane = rest.trailing_zeros() as usize;
            let (_, cut) = self.cut(w, lane);
            if cut.legacy || cut.kind == CutKind::ActiveMask {
                alone |= 1 << lane;
                rest &= !(1 << lane);
                continue;
            }
            let mask_of = |l: usize| self.slot.threads[w * WARP + l].op[3] as u32;
            let mask = mask_of(lane);
            let comes = |l: usize| {
                let (_, other) = self.cut(w, l);
                other.kind == cut.kind && !other.legacy && mask_of(l) == mask
            };
            let members = mask & alive;
            if members & waiting == members && lanes(members).all(comes) {
                let guests = lanes(waiting & !members).filter(|&l| comes(l)).fold(0, |m, l| m | 1 << l);
                self.execute(w, cut.kind, members, guests);
                rest &= !(members | guests);
                waiting &= !(members | guests);
            } else {
                rest &= !(1 << lane);
            }
        }
        // The forms without a mask take those who are here once nobody else in the warp can come, or is not likely to.
        if alone != 0 && self.warps[w].ready == 0 {
            let stops = || lanes(alone).map(|l| self.cut(w, l).0);
            let Some((first, last)) = stops().min().zip(stops().max()) else { return };
            let kind = self.context.grid.kernel.cuts[first as usize - 1].kind;
            let warp = &mut self.warps[w];
            if warp.yielded != 0 {
                // Who asks for whoever has come does not count on all, but a lane that has let others go first may just be about to come.
                let asks = kind == CutKind::ActiveMask;
                let (patience, most) = match self.patience {
                    _ if asks => (LITTLE_PATIENCE, PATIENCE),
                    PATIENCE => (PATIENCE, MOST_PATIENCE),
                    few => (few, few),
                };
                warp.rounds += 1;
                if self.get_on(w, patience, most) {
                    return;
                }
                if !asks {
                    self.patience = LITTLE_PATIENCE;
                }
            }
            self.warps[w].rounds = 0;
            let members =
                |stop| lanes(alone).filter(|&l| self.cut(w, l).0 == stop).fold(0, |m, l| m | 1 << l);
            let (mut stop, mut group, others) = (first, members(first), members(last));
            if first == last {
                self.warps[w].passed = 0;
            } else if self.waits_for_others(w, group) {
                (stop, group) = (last, others);
            }
            let kind = self.context.grid.kernel.cuts[stop as usize - 1].kind;
            self.execute(w, kind, group, 0);
        }
    }

    /// Whether lanes that let others go first are waited for longer by the rest of their warp: for so many rounds, and for
    /// as many again if the last one has changed anything for them, up to some limit.
    fn get_on(&mut self, w: usize, patience: u32, most: u32) -> bool {
        let Warp { rounds, yielded, looked, .. } = self.warps[w];
        if rounds % patience == patience - 1 && rounds + 1 < most {
            self.warps[w].looked = self.digest(w, yielded);
        }
        !rounds.is_multiple_of(patience) || rounds < most && self.digest(w, yielded) != looked
    }

    /// Lanes are to go on from a place while others of the warp wait behind it for all: whether they go round in a loop that most likely ends only by
    /// what these are to do. They do if a turn leaves them as they were, or if there have been very many turns.
    fn waits_for_others(&mut self, w: usize, group: u32) -> bool {
        self.warps[w].passed += 1;
        let turn = self.warps[w].passed;
        if turn % TURNS == TURNS - 1 {
            self.warps[w].seen = self.digest(w, group);
        }
        let waits =
            turn.is_multiple_of(TURNS) && (turn >= MOST_TURNS || self.warps[w].seen == self.digest(w, group));
        if waits {
            self.warps[w].passed = 0;
        }
        waits
    }

    /// A number that lanes' states make, and who they are.
    fn digest(&self, w: usize, group: u32) -> u64 {
        let bytes = self.context.grid.kernel.state_bytes as usize;
        let mut hasher = DefaultHasher::new();
        group.hash(&mut hasher);
        for lane in lanes(group) {
            let thread = &self.slot.threads[w * WARP + lane];
            // SAFETY: the slot was prepared for the kernel, so each of its threads has a state of so many bytes, and none of them runs now.
            hasher.write(unsafe { std::slice::from_raw_parts(thread.state, bytes) });
        }
        hasher.finish()
    }

    /// Carries out a vote that all lanes of a warp have come to, if some of them name others without themselves. PTX leaves open what comes of
    /// that; programs count on an answer from the lanes that each names.
    fn vote_of_others(&mut self, w: usize) {
        let group = self.warps[w].alive;
        if group == 0 || self.warps[w].waiting != group {
            return;
        }
        let (stop, cut) = self.cut(w, group.trailing_zeros() as usize);
        let CutKind::Vote(mode) = cut.kind else { return };
        let names_itself = |l: usize| self.slot.threads[w * WARP + l].op[3] >> l & 1 != 0;
        if cut.legacy || lanes(group).all(names_itself) || lanes(group).any(|l| self.cut(w, l).0 != stop) {
            return;
        }
        self.look_at_warp(w, cut.kind, group);
        let end = ((w + 1) * WARP).min(self.slot.threads.len());
        warp::vote_of_others(mode, &mut self.slot.threads[w * WARP..end], group);
        self.warps[w].waiting = 0;
        self.warps[w].ready |= group;
    }

    /// Carries an operation out for lanes that name each other, and for guests that have come with them and name them, but not themselves. PTX
    /// leaves open what comes of these; what the others get must not depend on them.
    fn execute(&mut self, w: usize, kind: CutKind, members: u32, guests: u32) {
        let group = members | guests;
        self.look_at_warp(w, kind, group);
        let first = w * WARP;
        let end = (first + WARP).min(self.slot.threads.len());
        if let CutKind::Matrix(index) = kind {
            let spare = self.slot.spare_state();
            let states = std::array::from_fn(|l| {
                self.slot.threads.get(first + l).filter(|_| group >> l & 1 != 0).map_or(spare, |t| t.state)
            });
            if let Some(operation) = self.context.grid.kernel.matrix_ops.get(usize::from(index)) {
                operation(&states);
            }
        } else {
            warp::execute_with_guests(kind, &mut self.slot.threads[first..end], members, guests);
        }
        self.warps[w].waiting &= !group;
        self.warps[w].ready |= group;
    }

    fn failure(&self, code: Code, what: &str, line: Option<u32>) -> Error {
        self.failure_of(code, what, line, 1)
    }

    /// What a thread has done, or one of a group of `together` that go on together.
    fn failure_of(&self, code: Code, what: &str, line: Option<u32>, together: usize) -> Error {
        let kernel = &self.context.grid.kernel;
        let name = &kernel.name;
        let [x, y, z] = self.block.ctaid;
        let line = line.filter(|&line| line != 0).map_or_else(String::new, |line| {
            let source = kernel.code.source(line).map_or_else(String::new, |source| format!(" ({source})"));
            format!(", PTX line {line}{source}")
        });
        // SAFETY: the cursor is null or a thread of this block.
        let thread = unsafe { self.block.cursor.as_ref() }.map_or_else(String::new, |thread| {
            let [x, y, z] = thread.tid;
            match together as u32 {
                1 => format!(", thread ({x}, {y}, {z})"),
                lanes => {
                    let first = x / lanes * lanes;
                    format!(", one of the threads ({first}, {y}, {z}) to ({}, {y}, {z})", first + lanes - 1)
                }
            }
        });
        Error::new(code, format!("{what} in kernel {name}, block ({x}, {y}, {z}){thread}{line}"))
    }

    fn trap(&self, stop: u32) -> Error {
        let (code, what) = match stop {
            TRAP_INSTRUCTION => (Code::LaunchFailed, "Trap instruction"),
            TRAP_ASSERT => (Code::Assert, "Assertion failed"),
            TRAP_STACK => (Code::HardwareStackError, "Stack overflow (cudaLimitStackSize sets its size)"),
            TRAP_BAD_CALL => (Code::InvalidPc, "Call through a pointer that is no function"),
            TRAP_MISALIGNED => (Code::MisalignedAddress, "Misaligned address"),
            TRAP_ADDRESS => (Code::IllegalAddress, "Illegal address"),
            TRAP_TENSOR_MAP => (
                Code::IllegalInstruction,
                "What should be a tensor map is none, or does not fit the instruction,",
            ),
            _ => (Code::LaunchFailed, "Unknown trap"),
        };
        // SAFETY: the cursor is null or a thread of this block.
        let line = unsafe { self.block.cursor.as_ref() }.map(|thread| thread.op[TRAP_LINE] as u32);
        self.failure(code, what, line)
    }

    fn too_long(&self, line: Option<u32>, together: usize) -> Error {
        let what = self.context.grid.too_long.as_deref().unwrap_or("The kernel was ended");
        self.failure_of(Code::LaunchTimeout, what, line, together)
    }

    /// Threads let others go first, and have done so for too long.
    fn overdue(&mut self) -> Error {
        let cuts = &self.context.grid.kernel.cuts;
        let yields = |stop: u32| cuts.get((stop as usize).wrapping_sub(1)).filter(|c| c.kind.yields());
        let found = self.slot.threads.iter().find_map(|t| Some((t, yields(t.stop)?.line)));
        let line = found.map(|(thread, line)| {
            self.block.cursor = std::ptr::from_ref(thread).cast_mut();
            line
        });
        self.too_long(line, 1)
    }

    fn fault(&self, fault: Fault) -> Error {
        let how = if fault.write { "write to" } else { "read of" };
        let (line, together) =
            self.context.grid.kernel.line_at(fault.at, fault.signal == fault::end_signal());
        let failure = |code, what: &str| self.failure_of(code, what, line, together);
        if fault.impossible {
            return failure(Code::MisalignedAddress, "Misaligned address");
        }
        match fault.signal {
            // An offset may lead to either side of the address that stands for all outside of the arena.
            libc::SIGSEGV if fault.address.wrapping_add(ARENA_MARGIN / 2) < FAULT_ADDRESS + ARENA_MARGIN => {
                failure(
                    Code::IllegalAddress,
                    &format!("Illegal address ({how} memory that is not the device's)"),
                )
            }
            // Compiled code confines its accesses to the arena; what is left is its own stack.
            libc::SIGSEGV if !self.slot.is_device_address(fault.address) => {
                failure(Code::HardwareStackError, "Stack overflow (too many nested calls)")
            }
            libc::SIGSEGV => {
                failure(Code::IllegalAddress, &format!("Illegal address ({how} {:#x})", fault.address))
            }
            libc::SIGBUS => failure(
                Code::OutOfMemory,
                &format!("The machine has no memory left for {:#x}", fault.address),
            ),
            signal if signal == fault::end_signal() => self.too_long(line, together),
            _ => failure(Code::IllegalInstruction, "Illegal instruction"),
        }
    }

    /// No thread can ever go on: says who waits for what.
    fn deadlock(&mut self) -> Error {
        let mut waiting: Vec<(u32, CutKind, usize)> = Vec::new();
        let mut first = None;
        for w in 0..self.warps.len() {
            let warp = &self.warps[w];
            for lane in lanes(warp.waiting | warp.barred | warp.clustered | warp.grouped) {
                let (_, cut) = self.cut(w, lane);
                first.get_or_insert(w * WARP + lane);
                match waiting.iter_mut().find(|(line, kind, _)| (*line, *kind) == (cut.line, cut.kind)) {
                    Some((_, _, count)) => *count += 1,
                    None => waiting.push((cut.line, cut.kind, 1)),
                }
            }
        }
        let alive: u32 = self.warps.iter().map(|w| w.alive.count_ones()).sum();
        let places: Vec<String> = waiting
            .iter()
            .take(4)
            .map(|(line, kind, count)| format!("{count} at {kind:?} in PTX line {line}"))
            .collect();
        self.block.cursor = first.map_or(std::ptr::null_mut(), |i| &raw mut self.slot.threads[i]);
        let what = format!("Deadlock: of {alive} threads left, waiting for ever are {};", places.join(", "));
        self.failure(Code::LaunchFailed, &what, waiting.first().map(|w| w.0))
    }
}
