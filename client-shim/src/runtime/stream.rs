//! Streams, and host functions in them.

use std::ffi::{c_int, c_uint, c_void};

use super::entry::{api, enter, enter_stream};
use crate::abi::types::{AttributeValue, EventRef, HostFn, StreamCallback, StreamRef};
use crate::abi::{In, Out};
use crate::core::error::invalid;
use crate::core::{Code, Result};
use crate::doors::stream as attributes;
use crate::graph::{HostCall, Op, capture};

/// `cudaEventWaitExternal`: in a capture, the graph waits for the event when it is launched.
const EXTERNAL: c_uint = 1;

/// A pointer of the program's that goes to another thread with the function it belongs to.
struct UserData(*mut c_void);

// SAFETY: CUDA hands the pointer to its own thread as well; the program knows.
unsafe impl Send for UserData {}

impl UserData {
    /// The pointer. A method, so that closures capture the wrapper as a whole.
    fn get(&self) -> *mut c_void {
        self.0
    }
}

/// Creates a stream.
fn create_stream(out: Out<StreamRef>, flags: c_uint, priority: c_int) -> Result<()> {
    out.check()?;
    if flags > 1 {
        return Err(invalid("unknown stream flags"));
    }
    let (core, context) = enter()?;
    out.set(core.stream_create(&context, flags, priority)?.raw)
}

api! {
    /// `cudaStreamCreate`
    fn create as "cudaStreamCreate" (stream: Out<StreamRef>) {
        create_stream(stream, 0, 0)
    }

    /// `cudaStreamCreateWithFlags`
    fn create_with_flags as "cudaStreamCreateWithFlags" (stream: Out<StreamRef>, flags: c_uint) {
        create_stream(stream, flags, 0)
    }

    /// `cudaStreamCreateWithPriority`
    fn create_with_priority as "cudaStreamCreateWithPriority" (
        stream: Out<StreamRef>, flags: c_uint, priority: c_int,
    ) {
        create_stream(stream, flags, priority)
    }

    /// `cudaStreamDestroy`
    fn destroy as "cudaStreamDestroy" (stream: StreamRef) {
        if stream <= 2 {
            return Err(Code::InvalidHandle.into());
        }
        let (core, context) = enter()?;
        let object = core.stream(&context, stream, false)?;
        capture::forget_stream(&*object);
        core.stream_destroy(stream)?;
        attributes::forget_attributes(&object);
        Ok(())
    }

    /// `cudaStreamQuery`
    fn query<const PT> as "cudaStreamQuery" (stream: StreamRef) {
        let (core, _, stream) = enter_stream(stream, PT)?;
        if core.stream_query(&stream)? { Ok(()) } else { Err(Code::NotReady.into()) }
    }

    /// `cudaStreamSynchronize`
    fn synchronize<const PT> as "cudaStreamSynchronize" (stream: StreamRef) {
        let (core, _, stream) = enter_stream(stream, PT)?;
        core.stream_synchronize(&stream)
    }

    /// `cudaStreamWaitEvent`
    fn wait_event<const PT> as "cudaStreamWaitEvent" (stream: StreamRef, event: EventRef, flags: c_uint) {
        let (core, _, stream) = enter_stream(stream, PT)?;
        if flags > 1 {
            return Err(invalid("unknown flags"));
        }
        let event = core.event(event)?;
        if flags == EXTERNAL
            && let Some(captured) = capture::divert(&stream, || Ok(Op::Wait(event.clone())))
        {
            return captured;
        }
        core.stream_wait_event(&stream, &event)
    }

    /// `cudaStreamGetFlags`
    fn get_flags<const PT> as "cudaStreamGetFlags" (stream: StreamRef, flags: Out<c_uint>) {
        flags.check()?;
        flags.set(enter_stream(stream, PT)?.2.flags)
    }

    /// `cudaStreamGetPriority`
    fn get_priority<const PT> as "cudaStreamGetPriority" (stream: StreamRef, priority: Out<c_int>) {
        priority.check()?;
        priority.set(enter_stream(stream, PT)?.2.priority)
    }

    /// `cudaStreamGetId`
    fn get_id<const PT> as "cudaStreamGetId" (stream: StreamRef, id: Out<u64>) {
        id.check()?;
        id.set(enter_stream(stream, PT)?.2.id)
    }

    /// `cudaStreamGetDevice`
    fn get_device<const PT> as "cudaStreamGetDevice" (stream: StreamRef, device: Out<c_int>) {
        device.check()?;
        device.set(enter_stream(stream, PT)?.2.ordinal as c_int)
    }

    /// `cudaStreamGetAttribute`
    fn get_attribute<const PT> as "cudaStreamGetAttribute" (
        stream: StreamRef, attribute: c_uint, value: Out<AttributeValue>,
    ) {
        value.check()?;
        attributes::get_attribute(&enter_stream(stream, PT)?.2, attribute, value)
    }

    /// `cudaStreamSetAttribute`: hints.
    fn set_attribute<const PT> as "cudaStreamSetAttribute" (
        stream: StreamRef, attribute: c_uint, value: In<AttributeValue>,
    ) {
        attributes::set_attribute(&enter_stream(stream, PT)?.2, attribute, value)
    }

    /// `cudaStreamCopyAttributes`
    fn copy_attributes<const PT> as "cudaStreamCopyAttributes" (to: StreamRef, from: StreamRef) {
        let (to, from) = (enter_stream(to, PT)?.2, enter_stream(from, PT)?.2);
        attributes::copy_attributes(&to, &from);
        Ok(())
    }

    /// `cudaLaunchHostFunc`
    fn launch_host_func<const PT> as "cudaLaunchHostFunc" (
        stream: StreamRef, function: Option<HostFn>, data: *mut c_void,
    ) {
        let (core, _, stream) = enter_stream(stream, PT)?;
        let function = function.ok_or_else(|| invalid("the function is null"))?;
        let call = HostCall { function, data };
        if let Some(captured) = capture::divert(&stream, || Ok(Op::Host(call))) {
            return captured;
        }
        core.host_function(&stream, true, Box::new(move |_| call.call()))
    }

    /// `cudaStreamAddCallback`
    fn add_callback<const PT> as "cudaStreamAddCallback" (
        raw: StreamRef, callback: Option<StreamCallback>, data: *mut c_void, flags: c_uint,
    ) {
        let (core, _, stream) = enter_stream(raw, PT)?;
        let callback = callback.ok_or_else(|| invalid("the callback is null"))?;
        if flags != 0 {
            return Err(invalid("flags must be 0"));
        }
        capture::refuse(&stream)?;
        let data = UserData(data);
        core.host_function(
            &stream,
            false,
            // SAFETY: the program promised that the callback may be called so.
            Box::new(move |status| unsafe { callback(raw, status as c_int, data.get()) }),
        )
    }
}
