//! What groups of threads leave at their cuts, where code for vectors of threads runs them: in a row for each group
//! ([`Row`]), until something needs it in the threads themselves.

use super::super::slot::Slot;
use super::super::warp;
use super::{Context, Resident};
use crate::abi::{
    APART, Block, CutKind, Kernel, MOST_LANES, ROW_OPERANDS, ReduceOp, Row, STOP_EXIT, Thread, WARP,
};
use crate::exec::barrier::Outcome;

/// Which groups have theirs in rows.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// By group; empty where there are no rows.
    in_row: Vec<bool>,
    /// Threads of a group.
    lanes: usize,
}

/// Whether all of a row are this value. Every lane is looked at, so that it is done without branches.
fn are_all<T>(row: &[T], value: T) -> bool
where
    T: Copy + Default + PartialEq + std::ops::BitXor<Output = T> + std::ops::BitOr<Output = T>,
{
    row.iter().fold(T::default(), |differs, &own| differs | (own ^ value)) == T::default()
}

impl Rows {
    /// All groups of so many threads begin anew: whole ones in rows. With 0 threads run one by one, and have none. `looks` says whether the code
    /// looks into rows for where they go on.
    pub(super) fn begin(&mut self, slot: &mut Slot, kernel: &Kernel, lanes: usize, looks: bool) {
        self.in_row.clear();
        self.lanes = lanes;
        if lanes == 0 {
            slot.threads.iter_mut().for_each(|t| t.resume = 0);
            return;
        }
        let whole = slot.threads.len() / lanes;
        self.in_row.resize(whole, true);
        if looks {
            (0..whole).for_each(|group| self.row_mut(slot, kernel, group).resume = [0; MOST_LANES]);
        }
        slot.threads[whole * lanes..].iter_mut().for_each(|t| t.resume = 0);
    }

    /// Whether there are rows.
    pub(super) fn are_there(&self) -> bool {
        !self.in_row.is_empty()
    }

    /// Whether a thread's group has a row.
    pub(super) fn has(&self, thread: usize) -> bool {
        !self.in_row.is_empty() && self.in_row.get(thread / self.lanes).is_some_and(|row| *row)
    }

    fn at(&self, slot: &Slot, kernel: &Kernel, group: usize) -> *mut Row {
        // SAFETY: `Slot::prepare` made room for a row behind the states of each group.
        unsafe {
            slot.threads[group * self.lanes].state.add(Row::offset(kernel.state_bytes, self.lanes)).cast()
        }
    }

    /// The row of a group.
    pub(super) fn row<'a>(&self, slot: &'a Slot, kernel: &Kernel, group: usize) -> &'a Row {
        // SAFETY: it lies there, aligned, in memory of the slot that was written; and no compiled code runs.
        unsafe { &*self.at(slot, kernel, group) }
    }

    /// The row of a group, to change it.
    pub(super) fn row_mut<'a>(&mut self, slot: &'a mut Slot, kernel: &Kernel, group: usize) -> &'a mut Row {
        // SAFETY: as above.
        unsafe { &mut *self.at(slot, kernel, group) }
    }

    /// Whether a whole group of threads goes on in one place. Then it has a row.
    pub(super) fn together(&mut self, slot: &mut Slot, kernel: &Kernel, group: usize) -> bool {
        if self.in_row[group] {
            let resume = &self.row(slot, kernel, group).resume[..self.lanes];
            return resume.iter().all(|at| *at == resume[0]);
        }
        let threads = &slot.threads[group * self.lanes..][..self.lanes];
        if threads.iter().any(|t| t.resume != threads[0].resume) {
            return false;
        }
        self.collect(slot, kernel, group);
        true
    }

    /// Makes the row of a group from its threads.
    fn collect(&mut self, slot: &mut Slot, kernel: &Kernel, group: usize) {
        self.in_row[group] = true;
        let (at, lanes) = (self.at(slot, kernel, group), self.lanes);
        let threads = &slot.threads[group * lanes..][..lanes];
        // SAFETY: as in `row`; the threads lie elsewhere.
        let row = unsafe { &mut *at };
        for (lane, thread) in threads.iter().enumerate() {
            row.resume[lane] = thread.resume;
            row.stop[lane] = thread.stop;
            (0..ROW_OPERANDS).for_each(|n| row.op[n][lane] = thread.op[n]);
        }
        let Some(vectors) = kernel.vectors_of(lanes) else { return };
        for cell in &vectors.cells {
            let (offset, bytes) = (cell.offset as usize, cell.bytes as usize);
            // SAFETY: the cells lie behind the row, `lanes` times as far as in a state, and both are as long as the kernel's state.
            unsafe {
                let place = at.add(1).cast::<u8>().add(lanes * offset);
                let own = if cell.step.is_some() { 1 } else { lanes };
                for (lane, thread) in threads[..own].iter().enumerate() {
                    place.add(lane * bytes).copy_from_nonoverlapping(thread.state.add(offset), bytes);
                }
            }
        }
    }

    /// Gives the threads of a group back what its row has.
    pub(super) fn spread(&mut self, slot: &mut Slot, kernel: &Kernel, group: usize) {
        if !self.in_row.get_mut(group).is_some_and(|row| std::mem::replace(row, false)) {
            return;
        }
        let (at, lanes) = (self.at(slot, kernel, group), self.lanes);
        let threads = &mut slot.threads[group * lanes..][..lanes];
        // SAFETY: as in `row`; the threads lie elsewhere.
        let row = unsafe { &*at };
        for (lane, thread) in threads.iter_mut().enumerate() {
            thread.resume = row.resume[lane];
            thread.stop = row.stop[lane];
            (0..ROW_OPERANDS).for_each(|n| thread.op[n] = row.op[n][lane]);
        }
        let Some(vectors) = kernel.vectors_of(lanes) else { return };
        for cell in &vectors.cells {
            let (offset, bytes) = (cell.offset as usize, cell.bytes as usize);
            // SAFETY: as in `collect`.
            unsafe {
                let place = at.add(1).cast::<u8>().add(lanes * offset);
                for (lane, thread) in threads.iter_mut().enumerate() {
                    let to = thread.state.add(offset);
                    match cell.step {
                        None => to.copy_from_nonoverlapping(place.add(lane * bytes), bytes),
                        Some(step) => follow(to, place, bytes, step.wrapping_mul(lane as i64)),
                    }
                }
            }
        }
    }

    /// [`Thread::stop`]
    pub(super) fn stop(&self, slot: &Slot, kernel: &Kernel, thread: usize) -> u32 {
        if self.has(thread) {
            self.row(slot, kernel, thread / self.lanes).stop[thread % self.lanes]
        } else {
            slot.threads[thread].stop
        }
    }

    /// How all threads have stopped, if they have stopped alike and with the same first two operands.
    pub(super) fn alike(&self, slot: &Slot, kernel: &Kernel) -> Option<(u32, u64, u64)> {
        let (mut first, whole, lanes) = (None, self.in_row.len(), self.lanes);
        let mut alike = |stop: u32, op: [u64; 2]| {
            let (was, operands) = *first.get_or_insert((stop, op));
            was == stop && (stop == STOP_EXIT || operands == op)
        };
        for group in 0..whole {
            if !self.in_row[group] {
                if !slot.threads[group * lanes..][..lanes].iter().all(|t| alike(t.stop, [t.op[0], t.op[1]])) {
                    return None;
                }
                continue;
            }
            let row = self.row(slot, kernel, group);
            let stop = row.stop[0];
            let same = |n: usize| are_all(&row.op[n][..lanes], row.op[n][0]);
            if !are_all(&row.stop[..lanes], stop)
                || stop != STOP_EXIT && !(same(0) & same(1))
                || !alike(stop, [row.op[0][0], row.op[1][0]])
            {
                return None;
            }
        }
        let rest: &[Thread] = &slot.threads[whole * lanes..];
        rest.iter().all(|t| alike(t.stop, [t.op[0], t.op[1]])).then_some(())?;
        first.map(|(stop, [a, b])| (stop, a, b))
    }
}

impl Resident {
    /// How all threads have stopped, and with which two operands, if that is alike.
    pub(super) fn alike(&mut self) -> Option<(u32, u64, u64)> {
        let kernel = &self.context.grid.kernel;
        if self.block.together != APART {
            let row = self.rows.row(&self.slot, kernel, 0);
            return Some((self.block.together, row.op[0][0], row.op[1][0]));
        }
        let alike = self.rows.alike(&self.slot, kernel)?;
        let whole = self.rows.are_there() && self.slot.threads.len().is_multiple_of(self.lanes);
        if whole && self.rows.in_row.iter().all(|row| *row) {
            self.block.together = alike.0;
        }
        Some(alike)
    }

    /// The number of the barrier that a warp with its operands in rows waits at.
    pub(super) fn barrier_of(&self, w: usize) -> usize {
        self.rows.row(&self.slot, &self.context.grid.kernel, w * WARP / self.lanes).op[0][0] as usize
    }

    /// Carries out at once what all lanes of a warp have come to together, where all have their operands in rows: an operation of the warp with one
    /// mask that names them all, or one barrier. False if nothing was done.
    pub(super) fn go_on_in_rows(&mut self, w: usize, start: usize, count: usize) -> bool {
        let lanes = self.lanes;
        if lanes == 0 || count != WARP || !(0..WARP / lanes).all(|group| self.rows.has(start + group * lanes))
        {
            return false;
        }
        let grid = self.context.grid.clone();
        let first = start / lanes;
        let row = |group: usize| self.rows.row(&self.slot, &grid.kernel, first + group);
        let (stop, mask) = (row(0).stop[0], row(0).op[3][0]);
        let Some(cut) = grid.kernel.cuts.get(stop.wrapping_sub(1) as usize) else { return false };
        let masked = !cut.legacy && cut.kind != CutKind::ActiveMask;
        let good = match cut.kind {
            CutKind::Matrix(_) => false,
            CutKind::Barrier => row(0).op[0][0] < 16,
            kind => warp::is_of_warp(kind) && (cut.legacy || masked && mask as u32 == !0),
        };
        let operands: &[usize] = if cut.kind == CutKind::Barrier { &[0, 1] } else { &[3] };
        let alike = |group: usize| {
            let row = row(group);
            let same = |n: usize| {
                let first = self.rows.row(&self.slot, &grid.kernel, first).op[n][0];
                are_all(&row.op[n][..lanes], first)
            };
            are_all(&row.stop[..lanes], stop) && (cut.legacy || operands.iter().all(|&n| same(n)))
        };
        if !good || !(0..WARP / lanes).all(alike) {
            return false;
        }
        if cut.kind == CutKind::Barrier {
            let (number, threads) = (row(0).op[0][0] as usize, row(0).op[1][0] as u32);
            self.barriers.arrive_all(number, threads, w);
            self.warps[w].ready = 0;
            self.warps[w].barred = !0;
            return true;
        }
        self.look_at_warp(w, cut.kind, !0);
        // SAFETY: each of the warp's groups has a row, and no compiled code runs.
        unsafe { exchange_in(&self.slot.threads[start..start + WARP], &grid.kernel, lanes, cut.kind) };
        self.warps[w].ready = !0;
        true
    }
}

/// Has a warp make an operation whose operands are in the rows of its groups of so many threads.
///
/// # Safety
/// They have rows, which nobody else uses meanwhile.
unsafe fn exchange_in(threads: &[Thread], kernel: &Kernel, lanes: usize, kind: CutKind) {
    // SAFETY: as the caller promises.
    warp::execute_in_rows(kind, unsafe { operands_in(threads, kernel, lanes) });
}

/// The operands in the rows of a warp's groups.
///
/// # Safety
/// They have rows, which nobody else uses meanwhile.
unsafe fn operands_in<'a>(warp: &[Thread], kernel: &Kernel, lanes: usize) -> warp::OperandsOfGroups<'a> {
    // SAFETY: as the caller promises; each group has its own.
    let rows = warp.chunks_exact(lanes).map(|group| unsafe { operands_of(&group[0], kernel, lanes) });
    warp::OperandsOfGroups { lanes, rows: rows.collect() }
}

/// The operands in the row of a group, which begins with this thread.
///
/// # Safety
/// It has a row, which nobody else uses meanwhile.
unsafe fn operands_of<'a>(
    first: &Thread,
    kernel: &Kernel,
    lanes: usize,
) -> &'a mut [[u64; MOST_LANES]; ROW_OPERANDS] {
    // SAFETY: the row lies behind the states of the group.
    unsafe { &mut (*first.state.add(Row::offset(kernel.state_bytes, lanes)).cast::<Row>()).op }
}

/// [`Helpers::exchange`](crate::abi::Helpers::exchange).
pub(in super::super) extern "C" fn exchange(block: *mut Block, first: *mut Thread, count: u32, cut: u32) {
    // SAFETY: called by code for vectors with its own block, whose executor is the context, and threads of it, whose groups have rows. That code
    // waits, and nothing here has to be dropped.
    unsafe {
        let context = &*(*block).executor.cast::<Context>();
        let kernel = &context.grid.kernel;
        let Some(cut) = kernel.cuts.get(cut.wrapping_sub(1) as usize) else { return };
        let threads = std::slice::from_raw_parts(first, count as usize);
        if let CutKind::BarrierReduce(op) = cut.kind {
            return reduce_in(threads, kernel, context.lanes, op);
        }
        threads.chunks_exact(WARP).for_each(|warp| exchange_in(warp, kernel, context.lanes, cut.kind));
    }
}

/// Gives all threads of a block what comes of the predicates that they have in rows.
///
/// # Safety
/// As of [`exchange_in`].
unsafe fn reduce_in(threads: &[Thread], kernel: &Kernel, lanes: usize, op: ReduceOp) {
    // SAFETY: as the caller promises; each group has its own.
    let rows = || threads.chunks_exact(lanes).map(|group| unsafe { operands_of(&group[0], kernel, lanes) });
    let mut outcome = Outcome::default();
    rows().for_each(|row| row[2][..lanes].iter().for_each(|predicate| outcome.count(predicate & 1 != 0)));
    rows().for_each(|row| row[0].fill(outcome.of(op).into()));
}

/// [`Helpers::exchange_by_name`](crate::abi::Helpers::exchange_by_name).
pub(in super::super) extern "C" fn exchange_by_name(
    block: *mut Block,
    first: *mut Thread,
    cut: u32,
    waiting: u32,
) -> u32 {
    // SAFETY: as in `exchange`, with the threads of one warp.
    unsafe {
        let context = &*(*block).executor.cast::<Context>();
        let kernel = &context.grid.kernel;
        let Some(cut) = kernel.cuts.get(cut.wrapping_sub(1) as usize) else { return 0 };
        let warp = std::slice::from_raw_parts(first, WARP);
        warp::execute_by_name(cut.kind, operands_in(warp, kernel, context.lanes), waiting)
    }
}

/// Writes the number at `from`, and so much more, to `to`; both have so many bytes.
///
/// # Safety
/// Both must be valid.
unsafe fn follow(to: *mut u8, from: *const u8, bytes: usize, more: i64) {
    let mut number = [0; 8];
    // SAFETY: as the caller promises; a number has at most eight bytes.
    unsafe {
        from.copy_to_nonoverlapping(number.as_mut_ptr(), bytes);
        let number = i64::from_le_bytes(number).wrapping_add(more).to_le_bytes();
        number.as_ptr().copy_to_nonoverlapping(to, bytes);
    }
}
