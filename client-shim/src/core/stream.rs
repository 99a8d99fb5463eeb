//! A stream, and the handles that stand for default streams.

use rgpu_device::{Handle, Ordinal};

use super::registry::Raw;

/// `cudaStreamLegacy`.
pub(super) const LEGACY: Raw = 1;
/// `cudaStreamPerThread`.
pub(super) const PER_THREAD: Raw = 2;
/// `cudaStreamNonBlocking`.
pub(super) const NON_BLOCKING: u32 = 1;
/// The most urgent priority.
pub(super) const URGENT: i32 = -5;

/// What kind of stream it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// The legacy default stream.
    Legacy,
    /// A thread's own default stream.
    PerThread,
    /// Made by the program.
    Created,
}

/// A stream: work that a device does in order.
pub(crate) struct Stream {
    /// The program's handle (0 for the legacy stream, [`PER_THREAD`] for a per-thread one).
    pub raw: Raw,
    /// The device's handle.
    pub handle: Handle,
    /// The ordinal of its device.
    pub ordinal: Ordinal,
    /// Handle of the context that it belongs to.
    pub context: Raw,
    /// Whether it is a default stream, and which.
    pub kind: StreamKind,
    /// Flags as given: 1 is non-blocking.
    pub flags: u32,
    /// Priority as given, clamped.
    pub priority: i32,
    /// A number of its own (`cudaStreamGetId`).
    pub id: u64,
}

impl Stream {
    /// Whether it is its device's legacy stream.
    #[inline(always)]
    pub(crate) fn is_legacy(&self) -> bool {
        self.handle == Handle::from(self.ordinal)
    }
}
