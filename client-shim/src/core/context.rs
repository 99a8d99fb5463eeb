//! A context.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rgpu_device::Ordinal;

use super::generation;
use super::registry::Raw;
use super::stream::Stream;

/// A context. It owns the streams, events, modules and allocations made in it.
pub(crate) struct Context {
    /// The program's handle.
    pub raw: Raw,
    /// The ordinal of its device.
    pub ordinal: Ordinal,
    /// Whether it is the device's primary context.
    pub primary: bool,
    /// Scheduling and other flags, as given.
    pub flags: AtomicU32,
    /// Cleared when it is destroyed or reset.
    pub alive: AtomicBool,
    /// Its legacy default stream.
    pub legacy: Arc<Stream>,
}

impl Context {
    /// Whether it was neither destroyed nor reset.
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// From now on it is destroyed.
    pub(super) fn end(&self) {
        self.alive.store(false, Ordering::Release);
        generation::begin_new();
    }
}
