//! What one resident block occupies: rows of threads, their state and local memory, a shared-memory window.

use std::sync::Arc;

use rgpu_device::{Code, Error, Range, Result};

use super::arena::{Arena, CLUSTER_LOCAL, LOCAL};
use super::grid::Grid;
use super::texture;
use crate::abi::{MOST_LANES, Row, Thread, WARP, state_stride};

/// Local memory becomes accessible in steps of this size.
const STEP: u64 = 1 << 20;
/// What a thread may run before a yield is due, at first.
const FUEL: i32 = 256;

/// A place for one block at a time, or for one cluster of blocks. Reused, and prepared anew only where the next kernel differs.
pub(super) struct Slot {
    arena: Arc<Arena>,
    index: u64,
    /// Which of a cluster's blocks it is for.
    rank: u64,
    /// For the other blocks of a cluster, in the order of their ranks.
    #[expect(clippy::vec_box, reason = "slots are handed about, and their boxes are smaller")]
    pub others: Vec<Box<Slot>>,
    /// The texture that blocks which lived here have used last: it is the next one's as well. None while a block has it.
    pub texture: Option<Box<texture::Latest>>,
    /// Address of the shared-memory window.
    pub window: u64,
    /// The block's threads.
    pub threads: Vec<Thread>,
    states: Vec<Line>,
    local_open: u64,
    shape: Shape,
}

/// So much of a group's states, aligned as vectors like it.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// What states begin with. Kernels write what they read; in builds for tests it is found out where they don't, whatever ran there before.
const FRESH: Line = Line([if cfg!(debug_assertions) { 0xA5 } else { 0 }; 64]);

/// What a slot was prepared for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Shape {
    block: [u32; 3],
    local_stride: u64,
    state_bytes: u32,
    /// Threads of a group, of which each has a row behind their states; 0 where there are no rows.
    lanes: usize,
}

impl Shape {
    /// How many threads' states lie side by side.
    fn side_by_side(self) -> usize {
        if self.lanes == 0 { MOST_LANES } else { self.lanes }
    }

    /// From the state of a group's first thread to the next group's.
    fn group_bytes(self) -> usize {
        match self.lanes {
            0 => Row::offset(self.state_bytes, self.side_by_side()),
            lanes => Row::group_bytes(self.state_bytes, lanes),
        }
    }
}

// SAFETY: the pointers in `threads` lead into `states`, which the slot owns.
unsafe impl Send for Slot {}

impl Slot {
    /// Opens slot `index` of the arena.
    pub(super) fn open(arena: Arc<Arena>, index: u64) -> Result<Box<Self>> {
        Self::open_for(arena, index, 0)
    }

    fn open_for(arena: Arc<Arena>, index: u64, rank: u64) -> Result<Box<Self>> {
        let window = arena.open_window(index, rank)?;
        Ok(Box::new(Self {
            arena,
            index,
            rank,
            others: Vec::new(),
            texture: None,
            window,
            threads: Vec::new(),
            states: Vec::new(),
            local_open: 0,
            shape: Shape::default(),
        }))
    }

    /// Sets the threads up for a block of the grid, or for the blocks of a cluster, whose threads run in groups of so many or,
    /// with 0, one by one. `resume` is the caller's to reset.
    pub(super) fn prepare(&mut self, grid: &Grid, lanes: usize) -> Result<()> {
        let others = grid.cluster_blocks() as usize - 1;
        if self.others.len() != others {
            self.close(others);
            while self.others.len() < others {
                let rank = self.others.len() as u64 + 1;
                self.others.push(Self::open_for(self.arena.clone(), self.index, rank)?);
            }
        }
        let most = if others == 0 { LOCAL } else { CLUSTER_LOCAL };
        self.prepare_one(grid, most, lanes)?;
        self.others.iter_mut().try_for_each(|other| other.prepare_one(grid, most, lanes))
    }

    /// Makes the shared memory of all blocks of a cluster but so many and the first inaccessible: no address leads there any more.
    fn close(&mut self, others: usize) {
        while self.others.len() > others
            && let Some(mut other) = self.others.pop()
        {
            self.arena.close_window(self.index, other.rank);
            other.shrink();
        }
    }

    fn prepare_one(&mut self, grid: &Grid, most: u64, lanes: usize) -> Result<()> {
        let (block, local_stride, state_bytes) = (grid.block, grid.local_stride, grid.kernel.state_bytes);
        let shape = Shape { block, local_stride, state_bytes, lanes };
        if cfg!(debug_assertions) {
            self.states.fill(FRESH);
        }
        if self.shape == shape {
            return Ok(());
        }
        let count = u64::from(grid.block[0]) * u64::from(grid.block[1]) * u64::from(grid.block[2]);
        let local = count * grid.local_stride;
        if local > most {
            return Err(Error::new(
                Code::LaunchOutOfResources,
                format!("{count} threads with {} bytes of local memory are too many", grid.local_stride),
            ));
        }
        let base = self.local_base();
        if local > self.local_open {
            let open = local.next_multiple_of(STEP).min(most);
            let part = Range { base, size: open };
            self.arena.protect(part, libc::PROT_READ | libc::PROT_WRITE)?;
            self.local_open = open;
        }
        // One more group, whose first state is for lanes that a partial warp lacks.
        let (stride, group, lanes) = (state_stride(state_bytes), shape.group_bytes(), shape.side_by_side());
        let lines = group / size_of::<Line>() * (count as usize / lanes + 2);
        if self.states.len() < lines {
            self.states = vec![FRESH; lines];
        }
        let first: *mut u8 = self.states.as_mut_ptr().cast();
        self.threads.clear();
        self.threads.reserve_exact(count as usize);
        for i in 0..count {
            let local_base = base + i * grid.local_stride;
            let (x, y) = (u64::from(grid.block[0]), u64::from(grid.block[1]));
            self.threads.push(Thread {
                tid: [(i % x) as u32, (i / x % y) as u32, (i / x / y) as u32],
                lane: (i % WARP as u64) as u32,
                resume: 0,
                stop: 0,
                fuel: FUEL,
                error: 0,
                op: [0; 6],
                local_base,
                local_end: local_base + grid.local_stride,
                // SAFETY: `states` is as long as that.
                state: unsafe { first.add(i as usize / lanes * group + i as usize % lanes * stride) },
            });
        }
        self.shape = shape;
        Ok(())
    }

    /// All addresses of the device, mapped or not.
    pub(super) fn arena(&self) -> Range {
        self.arena.whole()
    }

    fn local_base(&self) -> u64 {
        self.arena.local(self.index) + self.rank * CLUSTER_LOCAL
    }

    /// The local memory of all its threads.
    pub(super) fn local(&self) -> Range {
        let size = if self.rank == 0 && self.others.is_empty() { LOCAL } else { CLUSTER_LOCAL };
        Range { base: self.local_base(), size }
    }

    /// Whether an address is the device's, mapped or not.
    pub(super) fn is_device_address(&self, addr: u64) -> bool {
        self.arena().contains(addr, 1)
    }

    /// State memory that belongs to no thread.
    pub(super) fn spare_state(&mut self) -> *mut u8 {
        let (group, lanes) = (self.shape.group_bytes(), self.shape.side_by_side());
        // SAFETY: `prepare` made room for a group more than there are threads.
        unsafe { self.states.as_mut_ptr().cast::<u8>().add(group * (self.threads.len() / lanes + 1)) }
    }

    /// Gives memory that only large kernels need back to the system.
    pub(super) fn shrink(&mut self) {
        const KEEP: u64 = 1 << 20;
        self.close(0);
        if self.local_open > KEEP {
            let base = self.local_base();
            // SAFETY: advice about the slot's own local memory, which nothing uses between blocks.
            unsafe {
                libc::madvise(base as *mut _, self.local_open as usize, libc::MADV_DONTNEED);
            }
        }
        if size_of_val(&self.states[..]) > KEEP as usize {
            self.states = Vec::new();
            self.threads = Vec::new();
            self.shape = Shape::default();
        }
    }
}
