//! Streams and events, those of a capture included: what is captured goes into a graph instead.

use std::sync::Arc;

use super::forward;
use crate::core::context::Context;
use crate::core::error::{Code, Error, Result, invalid, not_implemented};
use crate::core::event::Event;
use crate::core::graph::op::Op;
use crate::core::host::Reached;
use crate::core::mem_op::{self, RawMemOp};
use crate::core::memory::map::Spot;
use crate::core::process::Core;
use crate::core::registry::Raw;
use crate::core::stream::{PER_THREAD, Stream};

forward! { streams:
    /// The stream behind what a program passed. 0 is the legacy default stream, or with `per_thread` (a caller compiled
    /// for per-thread default streams, `_ptds`/`_ptsz`) the thread's own; 1 and 2 are always these. A stream of
    /// another context is returned as it is.
    fn stream(&self, context: &Arc<Context>, raw: Raw, per_thread: bool) -> Result<Arc<Stream>>;
    /// Creates a stream; `flags` 1 is non-blocking.
    fn stream_create(&self, context: &Arc<Context>, flags: u32, priority: i32) -> Result<Arc<Stream>>;
    /// Destroys a created stream; its work goes on to its end. Default streams are an invalid handle.
    fn stream_destroy(&self, raw: Raw) -> Result<()>;
    /// Least and greatest priority (`cudaDeviceGetStreamPriorityRange`), e.g. `(0, -5)`.
    fn stream_priorities(&self) -> (i32, i32);
    /// Calls `function` with the stream's status (a [`Code`] number, 0 if well) on a thread of the shim once
    /// the stream gets there; the stream waits for its return. With `only_if_well` it is not called after an error
    /// (`cudaLaunchHostFunc`), else it is (`cudaStreamAddCallback`).
    fn host_function(
        &self, stream: &Stream, only_if_well: bool, function: Box<dyn FnOnce(u32) + Send>
    ) -> Result<()>;
    /// As [`Core::host_function`], but the stream waits until what the function was given is dropped, wherever that
    /// is: the thread of host functions goes on meanwhile.
    fn hold(&self, stream: &Stream, only_if_well: bool, function: Reached) -> Result<()>;
    /// Creates an event. Unknown flags, and interprocess with timing, are an invalid value.
    fn event_create(&self, context: &Arc<Context>, flags: u32) -> Result<Arc<Event>>;
    /// The event behind a handle.
    fn event(&self, raw: Raw) -> Result<Arc<Event>>;
    /// Milliseconds between two records.
    fn event_elapsed(&self, start: &Event, end: &Event) -> Result<f32>;
}

impl Core {
    /// Whether all work of the stream is done.
    pub(crate) fn stream_query(&self, stream: &Stream) -> Result<bool> {
        self.captures.refuse(stream)?;
        self.streams.stream_query(stream)
    }

    /// Waits for all work of the stream.
    pub(crate) fn stream_synchronize(&self, stream: &Stream) -> Result<()> {
        self.captures.refuse(stream)?;
        self.streams.stream_synchronize(stream)
    }

    /// Makes later work of the stream wait for the event's most recent record.
    pub(crate) fn stream_wait_event(&self, stream: &Stream, event: &Event) -> Result<()> {
        match self.captures.wait(stream, event.raw) {
            Some(captured) => captured,
            None => {
                self.streams.stream_wait_event(stream, event)?;
                self.follow_shared_record(stream, event)
            }
        }
    }

    /// The context that a driver call on a stream works in: the thread's current one. Where none is current, the context of a stream that
    /// the program has made; default streams are of no context then.
    pub(crate) fn stream_context(&self, raw: Raw) -> Result<Arc<Context>> {
        if raw <= PER_THREAD || self.contexts.context_current_raw() != 0 {
            return self.contexts.driver_context();
        }
        let context = self.context(self.streams.created(raw)?.context)?;
        self.devices.check_sticky(context.ordinal)?;
        Ok(context)
    }

    /// Has the stream write words of memory, and wait until words have values.
    pub(crate) fn mem_ops(&self, stream: &Stream, raw: &Arc<[RawMemOp]>) -> Result<()> {
        let mut ops = raw.iter().map(mem_op::read).collect::<Result<Vec<_>>>()?;
        for op in ops.iter_mut().filter(|op| op.width() > 0) {
            let (spot, addr) = self.locate(op.addr, op.width())?;
            match spot {
                Spot::Device | Spot::Direct => {}
                Spot::Registered if self.devices.sees_host_memory() => {}
                Spot::Pageable => return Err(invalid(format!("{addr:#x} is ordinary host memory"))),
                Spot::Registered | Spot::Mirrored => {
                    return Err(not_implemented(
                        "a stream's memory operation (cuStreamWaitValue and its like) on host memory of which the server has a \
                         copy of its own",
                    ));
                }
            }
            op.addr = addr;
        }
        match self.captures.divert(stream, || Ok(Op::MemOps(raw.clone()))) {
            Some(captured) => captured,
            None => self.streams.mem_ops(stream, &ops),
        }
    }

    /// Records the event in the stream (which must be on the event's device, or it is an invalid handle).
    pub(crate) fn event_record(&self, event: &Event, stream: &Stream) -> Result<()> {
        if event.ordinal != stream.ordinal {
            return Err(Error::new(Code::InvalidHandle, "The event and the stream are on different devices"));
        }
        match self.captures.record(event.raw, stream) {
            Some(captured) => captured,
            None => {
                self.streams.event_record(event, stream)?;
                self.share_record(event)
            }
        }
    }

    /// Whether the most recent record is done (true if it was never recorded).
    pub(crate) fn event_query(&self, event: &Event) -> Result<bool> {
        self.captures.refuse_event(event.raw)?;
        Ok(self.streams.event_query(event)? && self.shared_record_is_reached(event)?)
    }

    /// Waits for the most recent record.
    pub(crate) fn event_synchronize(&self, event: &Event) -> Result<()> {
        self.captures.refuse_event(event.raw)?;
        self.streams.event_synchronize(event)?;
        self.wait_for_shared_record(event)
    }
}
