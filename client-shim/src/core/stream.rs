//! Streams: the program's handles, the default streams, and what can be asked of a stream.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rgpu_device::{Device, Handle, Ordinal, Target};

use super::context::Context;
use super::error::{Code, Error, Result, invalid};
use super::event::Event;
use super::host::HostFunction;
use super::process::Core;
use super::registry::Raw;
use crate::graph::capture;

/// `cudaStreamLegacy`.
pub const LEGACY: Raw = 1;
/// `cudaStreamPerThread`.
pub const PER_THREAD: Raw = 2;
/// `cudaStreamNonBlocking`.
pub const NON_BLOCKING: u32 = 1;
/// The most urgent priority.
const URGENT: i32 = -5;

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
    /// Its place in the registry; 0 for the legacy stream.
    pub(super) key: Raw,
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

impl Stream {
    /// Whether it is its device's legacy stream.
    pub(super) fn is_legacy(&self) -> bool {
        self.handle == Handle::from(self.ordinal)
    }
}

/// A thread's own default streams, one for each context it used.
#[derive(Default)]
struct OwnStreams(Vec<(Arc<Stream>, Arc<dyn Device>)>);

impl Drop for OwnStreams {
    fn drop(&mut self) {
        for (stream, device) in self.0.drain(..) {
            if super::process::is_orphan() {
                // The device is the parent's.
                std::mem::forget(device);
                continue;
            }
            // The registry forgets it with its context; the device need not keep it so long.
            let _ = device.stream_destroy(stream.handle);
        }
    }
}

thread_local! {
    static OWN: RefCell<OwnStreams> = const { RefCell::new(OwnStreams(Vec::new())) };
}

impl Core {
    /// The stream behind what a program passed. 0 is the legacy default stream, or with `per_thread` (a caller compiled
    /// for per-thread default streams, `_ptds`/`_ptsz`) the thread's own; 1 and 2 are always these. A stream of
    /// another context is returned as it is.
    #[inline]
    pub fn stream(&self, context: &Arc<Context>, raw: Raw, per_thread: bool) -> Result<Arc<Stream>> {
        match raw {
            0 if !per_thread => Ok(context.legacy.clone()),
            LEGACY => Ok(context.legacy.clone()),
            0 | PER_THREAD => self.own_stream(context),
            _ => self.streams.get(raw),
        }
    }

    fn own_stream(&self, context: &Arc<Context>) -> Result<Arc<Stream>> {
        let gone = |_| Error::new(Code::Deinitialized, "The thread is ending");
        let known = OWN.try_with(|own| {
            own.borrow().0.iter().find(|(stream, _)| stream.context == context.raw).map(|(s, _)| s.clone())
        });
        if let Some(stream) = known.map_err(gone)? {
            return Ok(stream);
        }
        let stream = self.make_stream(context, StreamKind::PerThread, 0, 0)?;
        OWN.try_with(|own| own.borrow_mut().0.push((stream.clone(), self.device.clone()))).map_err(gone)?;
        Ok(stream)
    }

    fn make_stream(
        &self,
        context: &Arc<Context>,
        kind: StreamKind,
        flags: u32,
        priority: i32,
    ) -> Result<Arc<Stream>> {
        let handle = self.device_handle();
        let blocking = flags & NON_BLOCKING == 0;
        let ordinal = context.ordinal;
        self.note(ordinal, self.device.stream_create(ordinal, handle, blocking, priority))?;
        Ok(self.streams.insert(|key| Stream {
            raw: if kind == StreamKind::PerThread { PER_THREAD } else { key },
            key,
            handle,
            ordinal,
            context: context.raw,
            kind,
            flags,
            priority,
            id: handle,
        }))
    }

    /// Creates a stream; `flags` 1 is non-blocking.
    pub fn stream_create(&self, context: &Arc<Context>, flags: u32, priority: i32) -> Result<Arc<Stream>> {
        if flags & !NON_BLOCKING != 0 {
            return Err(invalid(format!("{flags:#x} has unknown stream flags")));
        }
        self.make_stream(context, StreamKind::Created, flags, priority.clamp(URGENT, 0))
    }

    /// Destroys a created stream; its work goes on to its end. Default streams are an invalid handle.
    pub fn stream_destroy(&self, raw: Raw) -> Result<()> {
        let stream = self.streams.remove(raw)?;
        super::fatbin::forget_functions();
        self.note(stream.ordinal, self.device.stream_destroy(stream.handle))
    }

    /// Least and greatest priority (`cudaDeviceGetStreamPriorityRange`), e.g. `(0, -5)`.
    pub fn stream_priorities(&self) -> (i32, i32) {
        (0, URGENT)
    }

    /// Whether all work of the stream is done.
    pub fn stream_query(&self, stream: &Stream) -> Result<bool> {
        capture::refuse(stream)?;
        self.is_finished(stream.ordinal, Target::Stream(stream.handle))
    }

    /// Waits for all work of the stream.
    pub fn stream_synchronize(&self, stream: &Stream) -> Result<()> {
        capture::refuse(stream)?;
        self.check_sticky(stream.ordinal)?;
        self.wait(stream.ordinal, Target::Stream(stream.handle))
    }

    /// Makes later work of the stream wait for the event's most recent record.
    pub fn stream_wait_event(&self, stream: &Stream, event: &Event) -> Result<()> {
        if let Some(captured) = capture::wait(stream, event.raw) {
            return captured;
        }
        if event.recorded_at.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        self.note(stream.ordinal, self.device.stream_wait_event(stream.handle, event.handle))?;
        self.work_enqueued(stream);
        Ok(())
    }

    /// Calls `function` with the stream's status (a [`Code`] number, 0 if well) on a thread of the shim once
    /// the stream gets there; the stream waits for its return. With `only_if_well` it is not called after an error
    /// (`cudaLaunchHostFunc`), else it is (`cudaStreamAddCallback`).
    pub fn host_function(
        &self,
        stream: &Stream,
        only_if_well: bool,
        function: Box<dyn FnOnce(u32) + Send>,
    ) -> Result<()> {
        let sticky = self.of(stream.ordinal).sticky.clone();
        let status = Box::new(move || sticky.load(Ordering::Relaxed));
        let id = self.host.keep_function(HostFunction { function, status, only_if_well });
        let enqueued = self.before_device_work().and_then(|()| self.device.host_func(stream.handle, id));
        if enqueued.is_err() {
            self.host.drop_function(id);
        }
        self.note(stream.ordinal, enqueued)?;
        self.work_enqueued(stream);
        Ok(())
    }
}
