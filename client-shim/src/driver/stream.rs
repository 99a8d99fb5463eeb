//! Streams, events and host functions.

use std::sync::Arc;

use super::types::*;
use super::*;
use crate::core::Stream;
use crate::graph::{HostCall, Op, capture};

/// The stream that a handle names for the calling thread's current context.
pub(crate) fn stream_of(core: &Core, raw: Opaque, per_thread: bool) -> Result<Arc<Stream>> {
    core.stream(&core.driver_context()?, raw as usize, per_thread)
}

/// `CUstreamCallback`.
type Callback = unsafe extern "C" fn(stream: Opaque, status: u32, data: *mut c_void);
/// `CUhostFn`.
type HostFunction = unsafe extern "C" fn(data: *mut c_void);

/// A pointer that a program hands over together with the function that takes it.
struct UserData(*mut c_void);
// SAFETY: CUDA calls back on a thread of its own; the program knows.
unsafe impl Send for UserData {}

impl UserData {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

fn ready(done: bool) -> Result<()> {
    if done { Ok(()) } else { Err(Code::NotReady.into()) }
}

door! {
    fn cuStreamCreate(stream: *mut Opaque, flags: u32) |core| {
        if flags > 1 || stream.is_null() {
            return Err(Code::InvalidValue.into());
        }
        set(stream, core.stream_create(&core.driver_context()?, flags, 0)?.raw as Opaque)
    }
    fn cuStreamCreateWithPriority(stream: *mut Opaque, flags: u32, priority: i32) |core| {
        if flags > 1 || stream.is_null() {
            return Err(Code::InvalidValue.into());
        }
        set(stream, core.stream_create(&core.driver_context()?, flags, priority)?.raw as Opaque)
    }
    fn cuStreamDestroy(stream: Opaque) |core| {
        core.stream_destroy(stream as usize)
    }
    fn cuStreamDestroy_v2(stream: Opaque) |core| {
        core.stream_destroy(stream as usize)
    }
    fn cuStreamQuery / cuStreamQuery_ptsz(stream: Opaque) |core, PER_THREAD| {
        let stream = stream_of(core, stream, PER_THREAD)?;
        ready(core.stream_query(&stream)?)
    }
    fn cuStreamSynchronize / cuStreamSynchronize_ptsz(stream: Opaque) |core, PER_THREAD| {
        let stream = stream_of(core, stream, PER_THREAD)?;
        core.stream_synchronize(&stream)
    }
    fn cuStreamWaitEvent / cuStreamWaitEvent_ptsz(stream: Opaque, event: Opaque, flags: u32) |core, PER_THREAD| {
        if flags > 1 {
            return Err(Code::InvalidValue.into());
        }
        let stream = stream_of(core, stream, PER_THREAD)?;
        core.stream_wait_event(&stream, &*core.event(event as usize)?)
    }
    fn cuStreamGetFlags / cuStreamGetFlags_ptsz(stream: Opaque, flags: *mut u32) |core, PER_THREAD| {
        set(flags, stream_of(core, stream, PER_THREAD)?.flags)
    }
    fn cuStreamGetPriority / cuStreamGetPriority_ptsz(stream: Opaque, priority: *mut i32) |core, PER_THREAD| {
        set(priority, stream_of(core, stream, PER_THREAD)?.priority)
    }
    fn cuStreamGetId / cuStreamGetId_ptsz(stream: Opaque, id: *mut u64) |core, PER_THREAD| {
        set(id, stream_of(core, stream, PER_THREAD)?.id)
    }
    fn cuStreamGetCtx / cuStreamGetCtx_ptsz(stream: Opaque, context: *mut Opaque) |core, PER_THREAD| {
        set(context, stream_of(core, stream, PER_THREAD)?.context as Opaque)
    }
    fn cuStreamGetDevice / cuStreamGetDevice_ptsz(stream: Opaque, device: *mut Device) |core, PER_THREAD| {
        set(device, stream_of(core, stream, PER_THREAD)?.ordinal as i32)
    }
    fn cuStreamAttachMemAsync / cuStreamAttachMemAsync_ptsz(
        stream: Opaque, _address: DevicePtr, _length: usize, flags: u32,
    ) |core, PER_THREAD| {
        // A hint on who will use managed memory; visibility is that of all streams anyway.
        stream_of(core, stream, PER_THREAD)?;
        if matches!(flags, 1 | 2 | 4) { Ok(()) } else { Err(Code::InvalidValue.into()) }
    }
    fn cuStreamAddCallback / cuStreamAddCallback_ptsz(
        stream: Opaque, function: Option<Callback>, data: *mut c_void, flags: u32,
    ) |core, PER_THREAD| {
        let Some(function) = function.filter(|_| flags == 0) else { return Err(Code::InvalidValue.into()) };
        let raw = stream as usize;
        let data = UserData(data);
        let stream = stream_of(core, stream, PER_THREAD)?;
        capture::refuse(&stream)?;
        core.host_function(&stream, false, Box::new(move |status| callback(|| {
            // SAFETY: the program's own callback with the program's own data.
            unsafe { function(raw as Opaque, status, data.get()) }
        })))
    }
    fn cuLaunchHostFunc / cuLaunchHostFunc_ptsz(
        stream: Opaque, function: Option<HostFunction>, data: *mut c_void,
    ) |core, PER_THREAD| {
        let Some(function) = function else { return Err(Code::InvalidValue.into()) };
        let call = HostCall { function, data };
        let stream = stream_of(core, stream, PER_THREAD)?;
        if let Some(captured) = capture::divert(&stream, || Ok(Op::Host(call))) {
            return captured;
        }
        core.host_function(&stream, true, Box::new(move |_| callback(|| call.call())))
    }

    fn cuEventCreate(event: *mut Opaque, flags: u32) |core| {
        if event.is_null() {
            return Err(Code::InvalidValue.into());
        }
        set(event, core.event_create(&core.driver_context()?, flags)?.raw as Opaque)
    }
    fn cuEventDestroy(event: Opaque) |core| {
        core.event_destroy(event as usize)
    }
    fn cuEventDestroy_v2(event: Opaque) |core| {
        core.event_destroy(event as usize)
    }
    fn cuEventRecord / cuEventRecord_ptsz(event: Opaque, stream: Opaque) |core, PER_THREAD| {
        let event = core.event(event as usize)?;
        core.event_record(&event, &*stream_of(core, stream, PER_THREAD)?)
    }
    fn cuEventRecordWithFlags / cuEventRecordWithFlags_ptsz(event: Opaque, stream: Opaque, flags: u32) |core, PER_THREAD| {
        if flags > 1 {
            return Err(Code::InvalidValue.into());
        }
        let event = core.event(event as usize)?;
        core.event_record(&event, &*stream_of(core, stream, PER_THREAD)?)
    }
    fn cuEventQuery(event: Opaque) |core| {
        ready(core.event_query(&*core.event(event as usize)?)?)
    }
    fn cuEventSynchronize(event: Opaque) |core| {
        core.event_synchronize(&*core.event(event as usize)?)
    }
    fn cuEventElapsedTime(milliseconds: *mut f32, start: Opaque, end: Opaque) |core| {
        let (start, end) = (core.event(start as usize)?, core.event(end as usize)?);
        set(milliseconds, core.event_elapsed(&start, &end)?)
    }
    fn cuEventElapsedTime_v2(milliseconds: *mut f32, start: Opaque, end: Opaque) |core| {
        let (start, end) = (core.event(start as usize)?, core.event(end as usize)?);
        set(milliseconds, core.event_elapsed(&start, &end)?)
    }
}
