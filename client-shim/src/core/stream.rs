//! Streams: the program's handles, the default streams, and what can be asked of a stream.

use std::sync::Arc;

use super::context::Context;
use super::error::{Result, not_implemented};
use super::event::Event;
use super::process::Core;
use super::registry::Raw;
use rgpu_device::{Handle, Ordinal};

/// `cudaStreamLegacy`.
pub const LEGACY: Raw = 1;
/// `cudaStreamPerThread`.
pub const PER_THREAD: Raw = 2;

/// What kind of stream it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamKind {
    /// The legacy default stream.
    Legacy,
    /// A thread's own default stream.
    PerThread,
    /// Made by the program.
    Created,
}

/// A stream.
pub struct Stream {
    /// The program's handle (0 for the legacy stream, [`PER_THREAD`] for a per-thread one).
    pub raw: Raw,
    /// The device's handle.
    pub handle: Handle,
    /// The device.
    pub ordinal: Ordinal,
    /// Handle of the context that it belongs to.
    pub context: Raw,
    /// Its kind.
    pub kind: StreamKind,
    /// Flags as given: 1 is non-blocking.
    pub flags: u32,
    /// Priority as given, clamped.
    pub priority: i32,
    /// A number of its own (`cudaStreamGetId`).
    pub id: u64,
}

impl Core {
    /// The stream behind what a program passed. 0 is the legacy default stream, or with `per_thread` (a caller compiled
    /// for per-thread default streams, `_ptds`/`_ptsz`) the thread's own; 1 and 2 are always these. A stream of
    /// another context is returned as it is.
    pub fn stream(&self, context: &Arc<Context>, raw: Raw, per_thread: bool) -> Result<Arc<Stream>> {
        let _ = (context, raw, per_thread);
        Err(not_implemented("stream"))
    }

    /// Creates a stream; `flags` 1 is non-blocking.
    pub fn stream_create(&self, context: &Arc<Context>, flags: u32, priority: i32) -> Result<Arc<Stream>> {
        let _ = (context, flags, priority);
        Err(not_implemented("stream_create"))
    }

    /// Destroys a created stream; its work goes on to its end. Default streams are an invalid handle.
    pub fn stream_destroy(&self, raw: Raw) -> Result<()> {
        let _ = raw;
        Err(not_implemented("stream_destroy"))
    }

    /// Least and greatest priority (`cudaDeviceGetStreamPriorityRange`), e.g. `(0, -5)`.
    pub fn stream_priorities(&self) -> (i32, i32) {
        (0, -5)
    }

    /// Whether all work of the stream is done.
    pub fn stream_query(&self, stream: &Stream) -> Result<bool> {
        let _ = stream;
        Err(not_implemented("stream_query"))
    }

    /// Waits for all work of the stream.
    pub fn stream_synchronize(&self, stream: &Stream) -> Result<()> {
        let _ = stream;
        Err(not_implemented("stream_synchronize"))
    }

    /// Makes later work of the stream wait for the event's most recent record.
    pub fn stream_wait_event(&self, stream: &Stream, event: &Event) -> Result<()> {
        let _ = (stream, event);
        Err(not_implemented("stream_wait_event"))
    }

    /// Calls `function` with the stream's status (a [`super::Code`] number, 0 if well) on a thread of the shim once
    /// the stream gets there; the stream waits for its return. With `only_if_well` it is not called after an error
    /// (`cudaLaunchHostFunc`), else it is (`cudaStreamAddCallback`).
    pub fn host_function(
        &self,
        stream: &Stream,
        only_if_well: bool,
        function: Box<dyn FnOnce(u32) + Send>,
    ) -> Result<()> {
        let _ = (stream, only_if_well, function);
        Err(not_implemented("host_function"))
    }

    /// Waits for all work of the device (`cudaDeviceSynchronize`, `cuCtxSynchronize`).
    pub fn device_synchronize(&self, ordinal: Ordinal) -> Result<()> {
        let _ = ordinal;
        Err(not_implemented("device_synchronize"))
    }
}
