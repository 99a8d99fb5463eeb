//! Memory that graphs allocate, and who may free it.

use std::sync::Arc;

use parking_lot::Mutex;
use rgpu_device::Ordinal;

use crate::core::context::Context;
use crate::core::error::{Result, invalid};
use crate::core::lifecycle;
use crate::core::memory::Memory;
use crate::core::registry::NumberMap;

/// Memory that a node has allocated.
struct Kept {
    bytes: u64,
    ordinal: Ordinal,
    /// Whether some node still stands for it.
    owned: bool,
    /// Whether a launch has allocated it, and nobody has freed it since.
    live: bool,
}

/// Who frees memory that the program, or a graph, no longer wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freeing {
    /// It is kept for the next launch of its graph.
    Kept,
    /// Its graph is gone: it is to be freed as any other memory.
    Left,
    /// No graph has allocated it.
    Foreign,
}

/// Bytes of an ordinal, as `cudaGraphMemAttributeType` numbers them: what launches have allocated now and at most, and what is kept for that
/// now and at most.
type Marks = [u64; 4];

/// What graphs have allocated.
#[derive(Default)]
struct Allocations {
    /// By address.
    kept: NumberMap<u64, Kept>,
    marks: NumberMap<Ordinal, Marks>,
}

impl Allocations {
    /// `which` 0 is what is used, 2 what is kept.
    fn more(&mut self, ordinal: Ordinal, which: usize, bytes: u64) {
        let marks = self.marks.entry(ordinal).or_default();
        marks[which] += bytes;
        marks[which + 1] = marks[which + 1].max(marks[which]);
    }

    fn less(&mut self, ordinal: Ordinal, which: usize, bytes: u64) {
        if let Some(marks) = self.marks.get_mut(&ordinal) {
            marks[which] -= bytes;
        }
    }

    /// Changes whether memory is used. False where it was so before, or nobody knows it.
    fn set_live(&mut self, addr: u64, live: bool) -> bool {
        let Some(kept) = self.kept.get_mut(&addr).filter(|kept| kept.live != live) else { return false };
        kept.live = live;
        let (ordinal, bytes) = (kept.ordinal, kept.bytes);
        if live {
            self.more(ordinal, 0, bytes)
        } else {
            self.less(ordinal, 0, bytes)
        }
        true
    }

    /// It is to be freed by whoever asks.
    fn give_up(&mut self, addr: u64) {
        if let Some(kept) = self.kept.remove(&addr) {
            self.less(kept.ordinal, 2, kept.bytes);
        }
    }
}

/// What graphs have allocated, and who may free it.
///
/// A node's memory is there, at one address, as long as the node is. A launch allocates it and a free frees it only in name: CUDA wants a graph
/// not to be launched again before that. What is not freed when the last node goes stays until the program frees it.
pub(crate) struct GraphAllocations {
    memory: Arc<Memory>,
    all: Mutex<Allocations>,
}

impl GraphAllocations {
    /// No graph has allocated anything yet; what they will is taken from `memory`.
    pub(crate) fn new(memory: Arc<Memory>) -> Self {
        Self { memory, all: Mutex::default() }
    }

    /// Bytes of an ordinal, numbered as `cudaGraphMemAttributeType`.
    pub(crate) fn marks(&self, ordinal: Ordinal) -> [u64; 4] {
        self.all.lock().marks.get(&ordinal).copied().unwrap_or_default()
    }

    /// The most that was used (1) or kept (3) is from now on what is.
    pub(crate) fn reset_mark(&self, ordinal: Ordinal, which: usize) {
        if let Some(marks) = self.all.lock().marks.get_mut(&ordinal) {
            marks[which] = marks[which - 1];
        }
    }

    /// The device was reset: all that was on it is gone.
    pub(crate) fn forget(&self, ordinal: Ordinal) {
        let mut all = self.all.lock();
        all.kept.retain(|_, kept| kept.ordinal != ordinal);
        all.marks.remove(&ordinal);
    }

    /// Allocates memory for a node.
    pub(crate) fn allocate(self: &Arc<Self>, context: &Context, bytes: u64) -> Result<Arc<GraphAllocation>> {
        if bytes == 0 {
            return Err(invalid("a graph cannot allocate nothing"));
        }
        let (addr, ordinal) = (self.memory.alloc(context, bytes)?, context.ordinal);
        let mut all = self.all.lock();
        all.kept.insert(addr, Kept { bytes, ordinal, owned: true, live: false });
        all.more(ordinal, 2, bytes);
        Ok(Arc::new(GraphAllocation { addr, bytes, ordinal, owner: self.clone() }))
    }

    /// Whether a launch has allocated it, and nobody has freed it since.
    pub(crate) fn is_live(&self, addr: u64) -> bool {
        self.all.lock().kept.get(&addr).is_some_and(|kept| kept.live)
    }

    /// A launch allocates it.
    pub(crate) fn begin(&self, addr: u64) {
        self.all.lock().set_live(addr, true);
    }

    /// The program or a graph frees it.
    ///
    /// # Errors
    /// `InvalidValue` where no launch has allocated it, or it was freed since.
    pub(crate) fn end(&self, addr: u64) -> Result<Freeing> {
        let mut all = self.all.lock();
        let Some(kept) = all.kept.get(&addr) else { return Ok(Freeing::Foreign) };
        let owned = kept.owned;
        if !all.set_live(addr, false) {
            return Err(invalid(
                "a graph's memory is freed that no launch has allocated since it was last freed",
            ));
        }
        if owned {
            return Ok(Freeing::Kept);
        }
        all.give_up(addr);
        Ok(Freeing::Left)
    }
}

/// Memory that a graph allocates, at an address that is fixed when the node is made.
pub(crate) struct GraphAllocation {
    /// The device address where it starts.
    pub addr: u64,
    /// Bytes, as asked for.
    pub bytes: u64,
    /// The ordinal of the device it is on.
    pub ordinal: Ordinal,
    owner: Arc<GraphAllocations>,
}

impl Drop for GraphAllocation {
    fn drop(&mut self) {
        let mut all = self.owner.all.lock();
        match all.kept.get_mut(&self.addr) {
            // The device was reset since.
            None => return,
            Some(kept) if kept.live => return kept.owned = false,
            Some(_) => all.give_up(self.addr),
        }
        drop(all);
        // When the process is ending, or in a forked child, the device is no longer this process's to call.
        if lifecycle::is_usable() {
            // At worst the device is lost, and the memory with it.
            let _ = self.owner.memory.free(self.addr);
        }
    }
}
