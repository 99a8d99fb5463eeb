//! An event.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use rgpu_device::{Handle, Ordinal};

use super::calls::ipc_event::SharedWords;
use super::registry::Raw;

/// `cudaEventDisableTiming`.
pub(crate) const DISABLE_TIMING: u32 = 2;
/// `cudaEventInterprocess`.
pub(crate) const INTERPROCESS: u32 = 4;

/// An event: a place in a stream's work that can be waited for, and that keeps its time.
pub(crate) struct Event {
    /// The program's handle.
    pub raw: Raw,
    /// The device's handle.
    pub handle: Handle,
    /// The ordinal of the device it was made on.
    pub ordinal: Ordinal,
    /// Handle of the context that it belongs to.
    pub context: Raw,
    /// Flags as given: 1 blocking sync, 2 no timing, 4 interprocess.
    pub flags: u32,
    /// How much work its device had been given with its last record; 0 if it was never recorded.
    pub(super) recorded_at: AtomicU64,
    /// What other processes know it by, if they may have it.
    pub(super) words: Mutex<Option<Arc<SharedWords>>>,
}
