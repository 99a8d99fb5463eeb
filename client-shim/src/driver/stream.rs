//! Streams, events and host functions.

use std::ffi::c_void;
use std::sync::Arc;

use super::types::*;
use super::*;
use crate::abi::types::AttributeValue;
use crate::abi::{In, Out};
use crate::core::Stream;
use crate::doors::stream as attributes;
use crate::graph::{HostCall, Op, capture};

/// The stream that a handle names for the calling thread's current context, or one that the program has made where none is current.
pub(crate) fn stream_of(core: &Core, raw: Opaque, per_thread: bool) -> Result<Arc<Stream>> {
    core.stream(&core.stream_context(raw as usize)?, raw as usize, per_thread)
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

/// Destroys a stream, which the legacy stream and threads' own cannot be.
fn destroy(core: &Core, raw: usize) -> Result<()> {
    if raw <= 2 {
        return Err(Code::InvalidHandle.into());
    }
    // After a kernel's fault this fails, and the stream can be destroyed all the same.
    let stream = core.stream_context(raw).and_then(|context| core.stream(&context, raw, false));
    core.stream_destroy(raw)?;
    if let Ok(stream) = stream {
        capture::forget_stream(&*stream);
        attributes::forget_attributes(&stream);
    }
    Ok(())
}

fn ready(done: bool) -> Result<()> {
    if done { Ok(()) } else { Err(Code::NotReady.into()) }
}

door! {
    fn cuStreamCreate(stream: Out<Opaque>, flags: u32) |core| {
        if flags > 1 || stream.is_null() {
            return Err(Code::InvalidValue.into());
        }
        stream.set(core.stream_create(&core.driver_context()?, flags, 0)?.raw as Opaque)
    }
    fn cuStreamCreateWithPriority(stream: Out<Opaque>, flags: u32, priority: i32) |core| {
        if flags > 1 || stream.is_null() {
            return Err(Code::InvalidValue.into());
        }
        stream.set(core.stream_create(&core.driver_context()?, flags, priority)?.raw as Opaque)
    }
    fn cuStreamDestroy(stream: Opaque) |core| {
        destroy(core, stream as usize)
    }
    fn cuStreamDestroy_v2(stream: Opaque) |core| {
        destroy(core, stream as usize)
    }
    fn cuStreamQuery<const PT>(stream: Opaque) |core| {
        let stream = stream_of(core, stream, PT)?;
        ready(core.stream_query(&stream)?)
    }
    fn cuStreamSynchronize<const PT>(stream: Opaque) |core| {
        let stream = stream_of(core, stream, PT)?;
        core.stream_synchronize(&stream)
    }
    fn cuStreamWaitEvent<const PT>(stream: Opaque, event: Opaque, flags: u32) |core| {
        if flags > 1 {
            return Err(Code::InvalidValue.into());
        }
        let stream = stream_of(core, stream, PT)?;
        core.stream_wait_event(&stream, &*core.event(event as usize)?)
    }
    fn cuStreamGetFlags<const PT>(stream: Opaque, flags: Out<u32>) |core| {
        flags.set(stream_of(core, stream, PT)?.flags)
    }
    fn cuStreamGetPriority<const PT>(stream: Opaque, priority: Out<i32>) |core| {
        priority.set(stream_of(core, stream, PT)?.priority)
    }
    fn cuStreamGetAttribute<const PT>(stream: Opaque, attribute: u32, value: Out<AttributeValue>) |core| {
        attributes::get_attribute(&*stream_of(core, stream, PT)?, attribute, value)
    }
    fn cuStreamSetAttribute<const PT>(stream: Opaque, attribute: u32, value: In<AttributeValue>) |core| {
        attributes::set_attribute(&*stream_of(core, stream, PT)?, attribute, value)
    }
    fn cuStreamCopyAttributes<const PT>(to: Opaque, from: Opaque) |core| {
        attributes::copy_attributes(&*stream_of(core, to, PT)?, &*stream_of(core, from, PT)?);
        Ok(())
    }
    fn cuStreamGetId<const PT>(stream: Opaque, id: Out<u64>) |core| {
        id.set(stream_of(core, stream, PT)?.id)
    }
    fn cuStreamGetCtx<const PT>(stream: Opaque, context: Out<Opaque>) |core| {
        context.set(stream_of(core, stream, PT)?.context as Opaque)
    }
    fn cuStreamGetDevice<const PT>(stream: Opaque, device: Out<Device>) |core| {
        device.set(stream_of(core, stream, PT)?.ordinal as i32)
    }
    fn cuStreamAttachMemAsync<const PT>(
        stream: Opaque, _address: DevicePtr, _length: usize, flags: u32,
    ) |core| {
        // A hint on who will use managed memory; visibility is that of all streams anyway.
        stream_of(core, stream, PT)?;
        if matches!(flags, 1 | 2 | 4) { Ok(()) } else { Err(Code::InvalidValue.into()) }
    }
    fn cuStreamAddCallback<const PT>(
        stream: Opaque, function: Option<Callback>, data: *mut c_void, flags: u32,
    ) |core| {
        let Some(function) = function.filter(|_| flags == 0) else { return Err(Code::InvalidValue.into()) };
        let raw = stream as usize;
        let data = UserData(data);
        let stream = stream_of(core, stream, PT)?;
        capture::refuse(&stream)?;
        core.host_function(&stream, false, Box::new(move |status| callback(|| {
            // SAFETY: the program's own callback with the program's own data.
            unsafe { function(raw as Opaque, status, data.get()) }
        })))
    }
    fn cuLaunchHostFunc<const PT>(
        stream: Opaque, function: Option<HostFunction>, data: *mut c_void,
    ) |core| {
        let Some(function) = function else { return Err(Code::InvalidValue.into()) };
        let call = HostCall { function, data };
        let stream = stream_of(core, stream, PT)?;
        if let Some(captured) = capture::divert(&stream, || Ok(Op::Host(call))) {
            return captured;
        }
        core.host_function(&stream, true, Box::new(move |_| callback(|| call.call())))
    }

    fn cuEventCreate(event: Out<Opaque>, flags: u32) |core| {
        if event.is_null() {
            return Err(Code::InvalidValue.into());
        }
        event.set(core.event_create(&core.driver_context()?, flags)?.raw as Opaque)
    }
    fn cuEventDestroy(event: Opaque) |core| {
        core.event_destroy(event as usize)
    }
    fn cuEventDestroy_v2(event: Opaque) |core| {
        core.event_destroy(event as usize)
    }
    fn cuEventRecord<const PT>(event: Opaque, stream: Opaque) |core| {
        let event = core.event(event as usize)?;
        core.event_record(&event, &*stream_of(core, stream, PT)?)
    }
    fn cuEventRecordWithFlags<const PT>(event: Opaque, stream: Opaque, flags: u32) |core| {
        if flags > 1 {
            return Err(Code::InvalidValue.into());
        }
        let event = core.event(event as usize)?;
        core.event_record(&event, &*stream_of(core, stream, PT)?)
    }
    fn cuEventQuery(event: Opaque) |core| {
        ready(core.event_query(&*core.event(event as usize)?)?)
    }
    fn cuEventSynchronize(event: Opaque) |core| {
        core.event_synchronize(&*core.event(event as usize)?)
    }
    fn cuEventElapsedTime(milliseconds: Out<f32>, start: Opaque, end: Opaque) |core| {
        let (start, end) = (core.event(start as usize)?, core.event(end as usize)?);
        milliseconds.set(core.event_elapsed(&start, &end)?)
    }
    fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: Opaque, end: Opaque) |core| {
        let (start, end) = (core.event(start as usize)?, core.event(end as usize)?);
        milliseconds.set(core.event_elapsed(&start, &end)?)
    }
}
