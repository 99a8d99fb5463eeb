//! The living streams and events, and each thread's own default streams.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rgpu_device::{Device, MemOp, Ordinal, Target};

use super::context::Context;
use super::devices::Devices;
use super::error::{Code, Error, Result, invalid};
use super::event::{DISABLE_TIMING, Event, INTERPROCESS};
use super::generation;
use super::host::{HostFunction, Reached};
use super::lifecycle;
use super::registry::{Raw, Registry};
use super::stream::{LEGACY, NON_BLOCKING, PER_THREAD, Stream, StreamKind, URGENT};

/// A thread's own default streams, one for each context it used.
#[derive(Default)]
struct OwnStreams(Vec<(Arc<Stream>, Arc<dyn Device>)>);

impl Drop for OwnStreams {
    fn drop(&mut self) {
        for (stream, device) in self.0.drain(..) {
            if lifecycle::is_orphan() {
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
    /// They are the thread's by CUDA's rules, and go with it.
    static OWN: RefCell<OwnStreams> = const { RefCell::new(OwnStreams(Vec::new())) };
}

/// The living streams and events. Nothing here looks whether a stream is being captured.
pub(super) struct Streams {
    devices: Arc<Devices>,
    streams: Registry<Stream>,
    events: Registry<Event>,
    /// Whether there has been a stream that does not wait for the legacy one.
    non_blocking: AtomicBool,
}

impl Streams {
    /// There are none but the default streams.
    pub(super) fn new(devices: Arc<Devices>) -> Self {
        let (streams, events) = (Registry::new("stream"), Registry::new("event"));
        Self { devices, streams, events, non_blocking: AtomicBool::new(false) }
    }

    /// Whether work may be under way for which the legacy streams do not wait: a stream's goes on after its end.
    pub(super) fn any_non_blocking(&self) -> bool {
        self.non_blocking.load(Ordering::Acquire)
    }

    /// The stream behind what a program passed. 0 is the legacy default stream, or with `per_thread` (a caller compiled
    /// for per-thread default streams, `_ptds`/`_ptsz`) the thread's own; 1 and 2 are always these. A stream of
    /// another context is returned as it is.
    #[inline]
    pub(super) fn stream(&self, context: &Context, raw: Raw, per_thread: bool) -> Result<Arc<Stream>> {
        match raw {
            0 if !per_thread => Ok(context.legacy.clone()),
            LEGACY => Ok(context.legacy.clone()),
            0 | PER_THREAD => self.own_stream(context),
            _ => self.streams.get(raw),
        }
    }

    /// A stream that the program has made.
    pub(super) fn created(&self, raw: Raw) -> Result<Arc<Stream>> {
        self.streams.get(raw)
    }

    fn own_stream(&self, context: &Context) -> Result<Arc<Stream>> {
        let gone = |_| Error::new(Code::Deinitialized, "The thread is ending");
        let known = OWN.try_with(|own| {
            own.borrow().0.iter().find(|(stream, _)| stream.context == context.raw).map(|(s, _)| s.clone())
        });
        if let Some(stream) = known.map_err(gone)? {
            return Ok(stream);
        }
        let stream = self.make_stream(context, StreamKind::PerThread, 0, 0)?;
        OWN.try_with(|own| own.borrow_mut().0.push((stream.clone(), self.devices.device().clone())))
            .map_err(gone)?;
        Ok(stream)
    }

    fn make_stream(
        &self,
        context: &Context,
        kind: StreamKind,
        flags: u32,
        priority: i32,
    ) -> Result<Arc<Stream>> {
        let handle = self.devices.new_handle();
        let blocking = flags & NON_BLOCKING == 0;
        if !blocking {
            self.non_blocking.store(true, Ordering::Release);
        }
        let ordinal = context.ordinal;
        self.devices
            .note(ordinal, self.devices.device().stream_create(ordinal, handle, blocking, priority))?;
        Ok(self.streams.insert(|key| Stream {
            raw: if kind == StreamKind::PerThread { PER_THREAD } else { key },
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
    pub(super) fn stream_create(&self, context: &Context, flags: u32, priority: i32) -> Result<Arc<Stream>> {
        if flags & !NON_BLOCKING != 0 {
            return Err(invalid(format!("{flags:#x} has unknown stream flags")));
        }
        self.make_stream(context, StreamKind::Created, flags, priority.clamp(URGENT, 0))
    }

    /// Destroys a created stream; its work goes on to its end. Default streams are an invalid handle.
    pub(super) fn stream_destroy(&self, raw: Raw) -> Result<()> {
        let stream = self.streams.remove(raw)?;
        generation::begin_new();
        self.devices.note(stream.ordinal, self.devices.device().stream_destroy(stream.handle))
    }

    /// Least and greatest priority (`cudaDeviceGetStreamPriorityRange`), e.g. `(0, -5)`.
    pub(super) fn stream_priorities(&self) -> (i32, i32) {
        (0, URGENT)
    }

    /// Whether all work of the stream is done.
    pub(super) fn stream_query(&self, stream: &Stream) -> Result<bool> {
        self.devices.is_finished(stream.ordinal, Target::Stream(stream.handle))
    }

    /// Waits for all work of the stream.
    pub(super) fn stream_synchronize(&self, stream: &Stream) -> Result<()> {
        self.devices.check_sticky(stream.ordinal)?;
        self.devices.wait(stream.ordinal, Target::Stream(stream.handle))
    }

    /// Makes later work of the stream wait for the event's most recent record.
    pub(super) fn stream_wait_event(&self, stream: &Stream, event: &Event) -> Result<()> {
        if event.recorded_at.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        self.devices
            .note(stream.ordinal, self.devices.device().stream_wait_event(stream.handle, event.handle))?;
        self.devices.work_enqueued(stream);
        Ok(())
    }

    /// Calls `function` with the stream's status (a [`Code`] number, 0 if well) on a thread of the shim once
    /// the stream gets there; the stream waits for its return. With `only_if_well` it is not called after an error
    /// (`cudaLaunchHostFunc`), else it is (`cudaStreamAddCallback`).
    pub(super) fn host_function(
        &self,
        stream: &Stream,
        only_if_well: bool,
        function: Box<dyn FnOnce(u32) + Send>,
    ) -> Result<()> {
        let function = Box::new(move |status, hold| {
            function(status);
            drop(hold);
        });
        self.hold(stream, only_if_well, function)
    }

    /// As [`Streams::host_function`], but the stream waits until what the function was given is dropped, wherever that is.
    pub(super) fn hold(&self, stream: &Stream, only_if_well: bool, function: Reached) -> Result<()> {
        let (devices, ordinal) = (self.devices.clone(), stream.ordinal);
        let status = Box::new(move || devices.sticky_code(ordinal));
        let id = self.devices.host().keep_function(HostFunction { function, status, only_if_well });
        let enqueued = self
            .devices
            .before_device_work()
            .and_then(|()| self.devices.device().host_func(stream.handle, id));
        if enqueued.is_err() {
            self.devices.host().drop_function(id);
        }
        self.devices.note(stream.ordinal, enqueued)?;
        self.devices.work_enqueued(stream);
        Ok(())
    }

    /// Has the stream carry out operations on words of memory, at the device's addresses.
    pub(super) fn mem_ops(&self, stream: &Stream, ops: &[MemOp]) -> Result<()> {
        self.devices.check_sticky(stream.ordinal)?;
        self.devices.before_device_work()?;
        self.devices.note(stream.ordinal, self.devices.device().mem_ops(stream.handle, ops))?;
        self.devices.work_enqueued(stream);
        Ok(())
    }

    /// Creates an event. Unknown flags, and interprocess with timing, are an invalid value.
    pub(super) fn event_create(&self, context: &Context, flags: u32) -> Result<Arc<Event>> {
        if flags & !7 != 0 || (flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0) {
            return Err(invalid(format!("{flags:#x} are no flags for an event")));
        }
        let handle = self.devices.new_handle();
        let timing = flags & DISABLE_TIMING == 0;
        self.devices
            .note(context.ordinal, self.devices.device().event_create(context.ordinal, handle, timing))?;
        Ok(self.events.insert(|raw| Event {
            raw,
            handle,
            ordinal: context.ordinal,
            context: context.raw,
            flags,
            recorded_at: AtomicU64::new(0),
            words: Mutex::default(),
        }))
    }

    /// The event behind a handle.
    pub(super) fn event(&self, raw: Raw) -> Result<Arc<Event>> {
        self.events.get(raw)
    }

    /// Destroys an event; whoever waits for it still does.
    pub(super) fn event_destroy(&self, raw: Raw) -> Result<()> {
        let event = self.events.remove(raw)?;
        self.devices.note(event.ordinal, self.devices.device().event_destroy(event.handle))
    }

    /// Records the event in the stream, which is on the event's device.
    pub(super) fn event_record(&self, event: &Event, stream: &Stream) -> Result<()> {
        self.devices.check_sticky(stream.ordinal)?;
        self.devices.note(stream.ordinal, self.devices.device().event_record(event.handle, stream.handle))?;
        self.devices.work_enqueued(stream);
        event.recorded_at.store(self.devices.enqueued(stream.ordinal), Ordering::Release);
        Ok(())
    }

    /// Whether the last record is known to be finished without asking.
    fn event_is_past(&self, event: &Event) -> bool {
        event.recorded_at.load(Ordering::Acquire) <= self.devices.work(event.ordinal).lock().finished
    }

    /// Whether the most recent record is done (true if it was never recorded).
    pub(super) fn event_query(&self, event: &Event) -> Result<bool> {
        if self.event_is_past(event) {
            self.devices.take_pending(event.ordinal)?;
            return Ok(true);
        }
        self.devices.is_finished(event.ordinal, Target::Event(event.handle))
    }

    /// Waits for the most recent record.
    pub(super) fn event_synchronize(&self, event: &Event) -> Result<()> {
        self.devices.check_sticky(event.ordinal)?;
        if self.event_is_past(event) {
            return self.devices.take_pending(event.ordinal);
        }
        self.devices.wait(event.ordinal, Target::Event(event.handle))
    }

    /// Milliseconds between two records.
    pub(super) fn event_elapsed(&self, start: &Event, end: &Event) -> Result<f32> {
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
        self.devices.check_sticky(start.ordinal)?;
        self.devices.note(start.ordinal, self.devices.device().event_elapsed(start.handle, end.handle))
    }

    /// Destroys the streams and events of a context that is being destroyed.
    pub(super) fn destroy_all_of(&self, context: Raw) -> Result<()> {
        let device = self.devices.device();
        let mut result = Ok(());
        for stream in self.streams.remove_where(|stream| stream.context == context) {
            result = result.and(device.stream_destroy(stream.handle));
        }
        for event in self.events.remove_where(|event| event.context == context) {
            result = result.and(device.event_destroy(event.handle));
        }
        result
    }

    /// The device has just been reset: forgets what was made on it.
    pub(super) fn forget(&self, ordinal: Ordinal) {
        self.streams.remove_where(|stream| stream.ordinal == ordinal);
        self.events.remove_where(|event| event.ordinal == ordinal);
    }
}
