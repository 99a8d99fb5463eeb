//! Events.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rgpu_device::{Handle, Ordinal, Target};

use super::context::Context;
use super::error::{Code, Error, Result, invalid};
use super::process::Core;
use super::registry::Raw;
use super::stream::Stream;
use crate::graph::capture;

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
    /// How much work its device had been given with its last record; 0 if it was never recorded.
    pub(super) recorded_at: AtomicU64,
}

impl Core {
    /// Creates an event. Unknown flags, and interprocess with timing, are an invalid value.
    pub fn event_create(&self, context: &Arc<Context>, flags: u32) -> Result<Arc<Event>> {
        if flags & !7 != 0 || (flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0) {
            return Err(invalid(format!("{flags:#x} are no flags for an event")));
        }
        let handle = self.device_handle();
        let timing = flags & DISABLE_TIMING == 0;
        self.note(context.ordinal, self.device.event_create(context.ordinal, handle, timing))?;
        Ok(self.events.insert(|raw| Event {
            raw,
            handle,
            ordinal: context.ordinal,
            context: context.raw,
            flags,
            recorded_at: AtomicU64::new(0),
        }))
    }

    /// The event behind a handle.
    pub fn event(&self, raw: Raw) -> Result<Arc<Event>> {
        self.events.get(raw)
    }

    /// Destroys an event; whoever waits for it still does.
    pub fn event_destroy(&self, raw: Raw) -> Result<()> {
        let event = self.events.remove(raw)?;
        self.note(event.ordinal, self.device.event_destroy(event.handle))
    }

    /// Records the event in the stream (which must be on the event's device, or it is an invalid handle).
    pub fn event_record(&self, event: &Event, stream: &Stream) -> Result<()> {
        if event.ordinal != stream.ordinal {
            return Err(Error::new(Code::InvalidHandle, "The event and the stream are on different devices"));
        }
        if let Some(captured) = capture::record(event.raw, stream) {
            return captured;
        }
        self.check_sticky(stream.ordinal)?;
        self.note(stream.ordinal, self.device.event_record(event.handle, stream.handle))?;
        self.work_enqueued(stream);
        event.recorded_at.store(self.enqueued(stream.ordinal), Ordering::Release);
        Ok(())
    }

    /// Whether the last record is known to be finished without asking.
    fn event_is_past(&self, event: &Event) -> bool {
        event.recorded_at.load(Ordering::Acquire) <= self.of(event.ordinal).work.lock().finished
    }

    /// Whether the most recent record is done (true if it was never recorded).
    pub fn event_query(&self, event: &Event) -> Result<bool> {
        capture::refuse_event(event.raw)?;
        if self.event_is_past(event) {
            self.take_pending(event.ordinal)?;
            return Ok(true);
        }
        self.is_finished(event.ordinal, Target::Event(event.handle))
    }

    /// Waits for the most recent record.
    pub fn event_synchronize(&self, event: &Event) -> Result<()> {
        capture::refuse_event(event.raw)?;
        self.check_sticky(event.ordinal)?;
        if self.event_is_past(event) {
            return self.take_pending(event.ordinal);
        }
        self.wait(event.ordinal, Target::Event(event.handle))
    }

    /// Milliseconds between two records.
    pub fn event_elapsed(&self, start: &Event, end: &Event) -> Result<f32> {
        for event in [start, end] {
            let never = event.recorded_at.load(Ordering::Acquire) == 0;
            if never || event.flags & DISABLE_TIMING != 0 {
                let why = if never { "was never recorded" } else { "keeps no time" };
                return Err(Error::new(Code::InvalidHandle, format!("The event {:#x} {why}", event.raw)));
            }
        }
        if start.ordinal != end.ordinal {
            return Err(Error::new(Code::InvalidHandle, "The events are on different devices"));
        }
        self.check_sticky(start.ordinal)?;
        self.note(start.ordinal, self.device.event_elapsed(start.handle, end.handle))
    }
}
