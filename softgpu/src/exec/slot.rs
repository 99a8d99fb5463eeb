//! What one resident block occupies: rows of threads, their state and local memory, a shared-memory window.

use std::sync::Arc;

use rgpu_device::{Code, Error, Range, Result};

use super::arena::{Arena, LOCAL};
use super::grid::Grid;
use crate::abi::{Thread, WARP};

/// Local memory becomes accessible in steps of this size.
const STEP: u64 = 1 << 20;
/// What a thread may run before a yield is due, at first.
const FUEL: i32 = 256;

/// A place for one block at a time. Reused, and prepared anew only where the next kernel differs.
pub(super) struct Slot {
    arena: Arc<Arena>,
    index: u64,
    /// Address of the shared-memory window.
    pub window: u64,
    /// The block's threads.
    pub threads: Vec<Thread>,
    states: Vec<u128>,
    local_open: u64,
    shape: ([u32; 3], u64, u32),
}

// SAFETY: the pointers in `threads` lead into `states`, which the slot owns.
unsafe impl Send for Slot {}

impl Slot {
    /// Opens slot `index` of the arena.
    pub(super) fn open(arena: Arc<Arena>, index: u64) -> Result<Self> {
        let window = arena.open_window(index)?;
        Ok(Self {
            arena,
            index,
            window,
            threads: Vec::new(),
            states: Vec::new(),
            local_open: 0,
            shape: ([0; 3], 0, 0),
        })
    }

    /// Sets the threads up for a block of the grid. `resume` is the caller's to reset.
    pub(super) fn prepare(&mut self, grid: &Grid) -> Result<()> {
        let shape = (grid.block, grid.local_stride, grid.kernel.state_bytes);
        if self.shape == shape {
            return Ok(());
        }
        let count = u64::from(grid.block[0]) * u64::from(grid.block[1]) * u64::from(grid.block[2]);
        let local = count * grid.local_stride;
        if local > LOCAL {
            return Err(Error::new(
                Code::LaunchOutOfResources,
                format!("{count} threads with {} bytes of local memory are too many", grid.local_stride),
            ));
        }
        let base = self.arena.local(self.index);
        if local > self.local_open {
            let open = local.next_multiple_of(STEP).min(LOCAL);
            let part = Range { base, size: open };
            self.arena.protect(part, libc::PROT_READ | libc::PROT_WRITE)?;
            self.local_open = open;
        }
        // One more state, for lanes that a partial warp lacks.
        let state = (grid.kernel.state_bytes as usize).div_ceil(16);
        let states = state * (count as usize + 1);
        if self.states.len() < states {
            self.states = vec![0; states];
        }
        let first: *mut u128 = self.states.as_mut_ptr();
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
                state: unsafe { first.add(i as usize * state) }.cast(),
            });
        }
        self.shape = shape;
        Ok(())
    }

    /// All addresses of the device, mapped or not.
    pub(super) fn arena(&self) -> Range {
        self.arena.whole()
    }

    /// The local memory of all its threads.
    pub(super) fn local(&self) -> Range {
        Range { base: self.arena.local(self.index), size: LOCAL }
    }

    /// Whether an address is the device's, mapped or not.
    pub(super) fn is_device_address(&self, addr: u64) -> bool {
        self.arena().contains(addr, 1)
    }

    /// State memory that belongs to no thread.
    pub(super) fn spare_state(&mut self) -> *mut u8 {
        let state = (self.shape.2 as usize).div_ceil(16);
        // SAFETY: `prepare` made room for one state more than there are threads.
        unsafe { self.states.as_mut_ptr().add(state * self.threads.len()) }.cast()
    }

    /// Gives memory that only large kernels need back to the system.
    pub(super) fn shrink(&mut self) {
        const KEEP: u64 = 1 << 20;
        if self.local_open > KEEP {
            let base = self.arena.local(self.index);
            // SAFETY: advice about the slot's own local memory, which nothing uses between blocks.
            unsafe {
                libc::madvise(base as *mut _, self.local_open as usize, libc::MADV_DONTNEED);
            }
        }
        if self.states.len() * 16 > KEEP as usize {
            self.states = Vec::new();
            self.threads = Vec::new();
            self.shape = ([0; 3], 0, 0);
        }
    }
}
