//! Events.

use std::ffi::c_uint;

use super::entry::{api, enter, enter_stream};
use crate::abi::Out;
use crate::abi::types::{EventRef, StreamRef};
use crate::core::error::invalid;
use crate::core::{Code, Result, current};
use crate::graph::{Op, capture};

/// Creates an event.
fn create_event(out: Out<EventRef>, flags: c_uint) -> Result<()> {
    out.check()?;
    if flags & !7 != 0 {
        return Err(invalid("unknown event flags"));
    }
    let (core, context) = enter()?;
    out.set(core.event_create(&context, flags)?.raw)
}

/// Records an event.
fn record_event(event: EventRef, stream: StreamRef, pt: bool) -> Result<()> {
    let (core, _, stream) = enter_stream(stream, pt)?;
    core.event_record(&*core.event(event)?, &stream)
}

api! {
    /// `cudaEventCreate`
    fn create as "cudaEventCreate" (event: Out<EventRef>) {
        create_event(event, 0)
    }

    /// `cudaEventCreateWithFlags`
    fn create_with_flags as "cudaEventCreateWithFlags" (event: Out<EventRef>, flags: c_uint) {
        create_event(event, flags)
    }

    /// `cudaEventDestroy`
    fn destroy as "cudaEventDestroy" (event: EventRef) {
        current()?.event_destroy(event)
    }

    /// `cudaEventRecord`
    fn record<const PT> as "cudaEventRecord" (event: EventRef, stream: StreamRef) {
        record_event(event, stream, PT)
    }

    /// `cudaEventRecordWithFlags`: in a capture, an external event is recorded by the graph, for others.
    fn record_with_flags<const PT> as "cudaEventRecordWithFlags" (
        event: EventRef, stream: StreamRef, flags: c_uint,
    ) {
        if flags > 1 {
            return Err(invalid("unknown flags"));
        }
        if flags == 1 {
            let (core, _, stream) = enter_stream(stream, PT)?;
            let external = core.event(event)?;
            if let Some(captured) = capture::divert(&stream, || Ok(Op::Record(external))) {
                return captured;
            }
        }
        record_event(event, stream, PT)
    }

    /// `cudaEventQuery`
    fn query as "cudaEventQuery" (event: EventRef) {
        let core = current()?;
        if core.event_query(&*core.event(event)?)? { Ok(()) } else { Err(Code::NotReady.into()) }
    }

    /// `cudaEventSynchronize`
    fn synchronize as "cudaEventSynchronize" (event: EventRef) {
        let core = current()?;
        core.event_synchronize(&*core.event(event)?)
    }

    /// `cudaEventElapsedTime`
    fn elapsed_time as "cudaEventElapsedTime" (ms: Out<f32>, start: EventRef, end: EventRef) {
        ms.check()?;
        let core = current()?;
        ms.set(core.event_elapsed(&*core.event(start)?, &*core.event(end)?)?)
    }
}
