//! Events.

use std::sync::Arc;

use super::context::Context;
use super::error::{Result, not_implemented};
use super::process::Core;
use super::registry::Raw;
use super::stream::Stream;
use rgpu_device::{Handle, Ordinal};

/// `cudaEventDisableTiming`.
pub const DISABLE_TIMING: u32 = 2;
/// `cudaEventInterprocess`.
pub const INTERPROCESS: u32 = 4;

/// An event.
pub struct Event {
    /// The program's handle.
    pub raw: Raw,
    /// The device's handle.
    pub handle: Handle,
    /// The device.
    pub ordinal: Ordinal,
    /// Handle of the context that it belongs to.
    pub context: Raw,
    /// Flags as given: 1 blocking sync, 2 no timing, 4 interprocess.
    pub flags: u32,
}

impl Core {
    /// Creates an event. Unknown flags, and interprocess with timing, are an invalid value.
    pub fn event_create(&self, context: &Arc<Context>, flags: u32) -> Result<Arc<Event>> {
        let _ = (context, flags);
        Err(not_implemented("event_create"))
    }

    /// The event behind a handle.
    pub fn event(&self, raw: Raw) -> Result<Arc<Event>> {
        let _ = raw;
        Err(not_implemented("event"))
    }

    /// Destroys an event; whoever waits for it still does.
    pub fn event_destroy(&self, raw: Raw) -> Result<()> {
        let _ = raw;
        Err(not_implemented("event_destroy"))
    }

    /// Records the event in the stream (which must be on the event's device, or it is an invalid handle).
    pub fn event_record(&self, event: &Event, stream: &Stream) -> Result<()> {
        let _ = (event, stream);
        Err(not_implemented("event_record"))
    }

    /// Whether the most recent record is done (true if it was never recorded).
    pub fn event_query(&self, event: &Event) -> Result<bool> {
        let _ = event;
        Err(not_implemented("event_query"))
    }

    /// Waits for the most recent record.
    pub fn event_synchronize(&self, event: &Event) -> Result<()> {
        let _ = event;
        Err(not_implemented("event_synchronize"))
    }

    /// Milliseconds between two records.
    pub fn event_elapsed(&self, start: &Event, end: &Event) -> Result<f32> {
        let _ = (start, end);
        Err(not_implemented("event_elapsed"))
    }
}
