//! Blocks that live together: those of a cluster, or one block alone.
//!
//! One worker runs all blocks of a cluster, one after the other, each as far as it comes: so they may wait for one another, and an
//! access to another block's shared memory has no other at the same time.

use std::ops::Range;
use std::sync::Arc;

use rgpu_device::Result;

use super::{Progress, Resident, Warp};
use crate::abi::Hold;
use crate::exec::fault::Guard;
use crate::exec::grid::Grid;
use crate::exec::rounds::{Rounds, Then};
use crate::exec::slot::Slot;

/// The blocks of a cluster that have begun.
pub(in crate::exec) struct Team {
    /// The one of rank 0.
    first: Resident,
    /// The others, in the order of their ranks.
    others: Vec<Resident>,
    /// The ranks of those that have ended, as bits.
    ended: u32,
    /// The clusters that are to live in the same place after this one.
    next: Range<u64>,
    /// How many clusters have lived in the place before this one.
    gone: u64,
    /// How many threads of a group run at once; 0 where they run one by one.
    lanes: usize,
    /// If others of the grid are to go first: until when.
    held: Option<Until>,
}

/// Until when others go first.
enum Until {
    /// Until all have ended, or let others go first as well.
    Ended,
    /// Until all workers have gone round since then.
    Over(Then),
}

/// What follows a cluster that has ended.
pub(in crate::exec) enum Next {
    /// Another one of the same grid has begun in the same place.
    Begun,
    /// Others of the same grid, whose threads are to run otherwise: in a place that is prepared for that.
    Otherwise(Range<u64>),
    /// None is left.
    Nothing,
}

impl Team {
    /// Begins cluster `index` of the grid in a slot that was prepared for it; `next` are to follow there. `worker` is the index of the
    /// worker that runs it, and how many there are; `lanes` says how many threads of a group run at once, as the slot was prepared for.
    pub(in crate::exec) fn begin(
        mut slot: Box<Slot>,
        grid: Arc<Grid>,
        index: u64,
        next: Range<u64>,
        worker: (u32, u32),
        lanes: usize,
    ) -> Self {
        let (others, base) = (std::mem::take(&mut slot.others), slot.window);
        let first = Resident::begin(slot, grid.clone(), (index, 0), base, worker, lanes);
        let others = others.into_iter().zip(1..);
        let others = others
            .map(|(slot, rank)| Resident::begin(slot, grid.clone(), (index, rank), base, worker, lanes));
        Self { first, others: others.collect(), ended: 0, next, gone: 0, lanes, held: None }
    }

    /// Begins another cluster of the same grid in the same place, for one of so many workers.
    pub(in crate::exec) fn go_on(&mut self, workers: u64) -> Next {
        if self.next.is_empty() {
            let grid = self.first.grid();
            self.next = grid.take(workers);
            if !self.next.is_empty() {
                grid.improve();
            }
            if grid.lanes() != self.lanes && !self.next.is_empty() {
                return Next::Otherwise(std::mem::take(&mut self.next));
            }
        }
        let Some(index) = self.next.next() else { return Next::Nothing };
        self.ended = 0;
        self.gone += 1;
        self.first.again(index);
        self.others.iter_mut().for_each(|block| block.again(index));
        Next::Begun
    }

    /// How many threads of a group run at once; 0 where they run one by one.
    pub(in crate::exec) fn lanes(&self) -> usize {
        self.lanes
    }

    /// How many clusters have ended in the place before the one that is there.
    pub(in crate::exec) fn gone(&self) -> u64 {
        self.gone
    }

    /// Other clusters of the grid are to go first.
    pub(in crate::exec) fn hold(&mut self, hold: Hold, rounds: &Rounds) {
        self.held = Some(match hold {
            Hold::ForATurn => Until::Over(rounds.look()),
            Hold::ToTheEnd => {
                let grid = self.first.grid();
                // Those that have ended in the place before are done with.
                grid.finish(std::mem::take(&mut self.gone));
                grid.hold();
                Until::Ended
            }
        });
    }

    /// Whether others are to go first.
    pub(in crate::exec) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Whether it goes on; not while others are to go first and can, which is not so where the worker has room for no more (`is_full`).
    pub(in crate::exec) fn goes_on(&mut self, rounds: &Rounds, worker: u32, is_full: bool) -> bool {
        let grid = self.first.grid();
        let goes_on = match &self.held {
            None => return true,
            Some(Until::Over(then)) => rounds.is_over(then, worker),
            Some(Until::Ended) => grid.is_held_everywhere() || is_full && !grid.exhausted(),
        };
        if goes_on && matches!(self.held.take(), Some(Until::Ended)) {
            grid.let_go();
        }
        goes_on
    }

    /// How many clusters were to follow that will not, where the grid has been aborted.
    pub(in crate::exec) fn left(&self) -> u64 {
        self.next.end - self.next.start
    }

    /// The grid that the blocks belong to.
    pub(in crate::exec) fn grid(&self) -> &Arc<Grid> {
        self.first.grid()
    }

    /// Gives the slot back.
    pub(in crate::exec) fn into_slot(self) -> Box<Slot> {
        let Self { first, others, .. } = self;
        let mut slot = first.into_slot();
        slot.others.extend(others.into_iter().map(Resident::into_slot));
        slot
    }

    /// Runs the blocks until all have ended, or they have to let others run.
    #[inline]
    pub(in crate::exec) fn step(&mut self, guard: &mut Guard) -> Result<Progress> {
        if !self.others.is_empty() {
            return self.step_all(guard);
        }
        loop {
            match self.first.step(guard)? {
                Progress::Waiting if self.first.has_arrived() => self.first.pass(),
                Progress::Waiting => return Err(self.first.deadlock()),
                progress => return Ok(progress),
            }
        }
    }

    fn step_all(&mut self, guard: &mut Guard) -> Result<Progress> {
        loop {
            let mut yielded = false;
            for (rank, block) in std::iter::once(&mut self.first).chain(&mut self.others).enumerate() {
                if self.ended >> rank & 1 != 0 {
                    continue;
                }
                match block.step(guard)? {
                    Progress::Finished => self.ended |= 1 << rank,
                    Progress::Yielded | Progress::Held(_) => yielded = true,
                    Progress::Waiting => {}
                }
                if block.grid().aborted() {
                    return Ok(Progress::Finished);
                }
            }
            if self.ended.count_ones() as usize == 1 + self.others.len() {
                return Ok(Progress::Finished);
            }
            let mut blocks = std::iter::once(&self.first).chain(&self.others);
            if blocks.clone().all(Resident::has_arrived) && blocks.any(Resident::waits_for_cluster) {
                std::iter::once(&mut self.first).chain(&mut self.others).for_each(Resident::pass);
                continue;
            }
            if yielded {
                return Ok(Progress::Yielded);
            }
            let mut blocks = std::iter::once(&mut self.first).chain(&mut self.others);
            return match blocks.find(|block| block.waits_for_cluster()) {
                Some(block) => Err(block.deadlock()),
                None => Ok(Progress::Yielded),
            };
        }
    }
}

impl Resident {
    /// Whether all threads that have not ended have arrived at the barrier of the cluster.
    fn has_arrived(&self) -> bool {
        self.warps.iter().all(|w| w.alive & !w.arrived == 0)
    }

    /// Whether threads wait there.
    fn waits_for_cluster(&self) -> bool {
        self.warps.iter().any(|w| w.clustered != 0)
    }

    /// All threads of the cluster have arrived at its barrier: those that wait there go on.
    fn pass(&mut self) {
        self.look_at_whole_barrier();
        for warp in &mut self.warps {
            let Warp { ready, arrived, clustered, .. } = warp;
            *ready |= std::mem::take(clustered);
            *arrived = 0;
        }
    }
}
