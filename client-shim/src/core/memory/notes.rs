//! Telling a device that looks at what kernels do what the program has of its memory: what was asked for, to the byte.

use rgpu_device::{Handle, MemoryNote, Range};

use super::Memory;
use super::map::{Allocation, AllocationKind};

impl Memory {
    fn tell(&self, note: MemoryNote) {
        let device = self.devices.device();
        if device.wants_memory_notes() {
            // What is wrong with the device, its other calls tell.
            let _ = device.note_memory_blocking(note);
        }
    }

    /// An allocation is there.
    pub(super) fn add(&self, allocation: Allocation) {
        let Allocation { base, size, kind, .. } = allocation;
        self.map.insert(allocation);
        // Variables are known to the device that has put them there.
        if size > 0 && kind != AllocationKind::Variable {
            let device = matches!(kind, AllocationKind::Device(_));
            self.tell(MemoryNote::Allocated { range: Range { base, size }, device });
        }
    }

    /// An allocation goes: in the order of a stream, or at once.
    pub(super) fn going(&self, base: u64, stream: Option<Handle>) {
        self.tell(MemoryNote::Freed { base, stream });
    }

    /// The program has freed what is not allocated.
    pub(super) fn not_freed(&self, address: u64) {
        self.tell(MemoryNote::BadFree { address });
    }
}
