//! The ring in shared memory, and what it is made of here.

mod models;
#[allow(dead_code)]
#[path = "../../../../protocol/src/transport/shm/ring.rs"]
mod ring;

pub use models::*;

/// In place of the module of this name beside it.
mod words {
    pub(crate) use crate::word::fenced::{AtomicU32, AtomicU64};
    pub(crate) use loom::sync::atomic::fence;

    /// A byte that loom watches: it panics where one is read and written without an order between the two.
    pub(crate) type Byte = loom::cell::UnsafeCell<u8>;
    /// The smallest ring that is neither always full nor always empty.
    pub(crate) const CAPACITY: usize = 2;
    /// Each byte is published by itself.
    pub(crate) const STEP: usize = 1;

    pub(crate) unsafe fn put(from: *const u8, to: *mut Byte, count: usize) {
        for at in 0..count {
            // SAFETY: both places are valid, as the caller promises; loom tells of races.
            unsafe { (*to.add(at)).with_mut(|place| *place = *from.add(at)) };
        }
    }

    pub(crate) unsafe fn get(from: *const Byte, to: *mut u8, count: usize) {
        for at in 0..count {
            // SAFETY: both places are valid, as the caller promises; loom tells of races.
            unsafe { (*from.add(at)).with(|place| *to.add(at) = *place) };
        }
    }
}
