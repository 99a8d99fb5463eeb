//! Events, of which none is ever forwarded, and values by field number.

use std::ffi::{c_int, c_uint};
use std::time::{Duration, SystemTime};

use rgpu_device::telemetry::{Group, Metric};

use super::handles::index;
use super::results::{Result, Return};
use super::types::{Device, EventData, FieldValue};
use super::{Out, observer};

/// `nvmlEventSet_t`: all sets are the same, because nothing can be put into one.
type EventSet = *const u8;
static EVENT_SET: u8 = 0;

fn wait(events: EventSet, place: Out<EventData>, milliseconds: c_uint) -> Result<()> {
    if events.is_null() || place.is_null() {
        return Err(Return::INVALID_ARGUMENT);
    }
    // Nothing will happen.
    std::thread::sleep(Duration::from_millis(milliseconds.into()));
    Err(Return::TIMEOUT)
}

/// One field of a device, as its owner wants it answered.
fn field(device: u32, asked: FieldValue) -> FieldValue {
    let mut answer = asked;
    let found = || -> Result<(u64, u64)> {
        if asked.scope != 0 || asked.field > 0xffff {
            return Err(Return::NOT_SUPPORTED);
        }
        let measured = observer::measured(device, Group::Details)?;
        let get = |metric| measured.get(metric, asked.field).ok_or(Return::NOT_SUPPORTED);
        Ok((get(Metric::Field)?, get(Metric::FieldType)?))
    };
    match found() {
        Ok((value, kind)) => {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            answer.timestamp = now.as_micros() as i64;
            answer.latency = 0;
            answer.value = value;
            answer.value_type = kind as u32;
            answer.result = 0;
        }
        Err(code) => answer.result = code.0,
    }
    answer
}

nvml! {
    /// `nvmlEventSetCreate`.
    fn nvmlEventSetCreate(place: Out<EventSet>) {
        place.set(&raw const EVENT_SET)
    }
    /// `nvmlEventSetFree`.
    fn nvmlEventSetFree(events: EventSet) {
        if events.is_null() { Err(Return::INVALID_ARGUMENT) } else { Ok(()) }
    }
    /// `nvmlEventSetWait`, which knows the first three fields.
    fn nvmlEventSetWait(events: EventSet, place: Out<EventData>, milliseconds: c_uint) {
        wait(events, place, milliseconds)
    }
    /// `nvmlEventSetWait_v2`.
    fn nvmlEventSetWait_v2(events: EventSet, place: Out<EventData>, milliseconds: c_uint) {
        wait(events, place, milliseconds)
    }
    /// `nvmlDeviceGetSupportedEventTypes`.
    fn nvmlDeviceGetSupportedEventTypes(device: Device, types: Out<u64>) {
        index(device)?;
        types.set(0)
    }
    /// `nvmlDeviceRegisterEvents`.
    fn nvmlDeviceRegisterEvents(device: Device, _types: u64, events: EventSet) {
        index(device)?;
        if events.is_null() { Err(Return::INVALID_ARGUMENT) } else { Err(Return::NOT_SUPPORTED) }
    }
    /// `nvmlDeviceGetFieldValues`: each value says for itself whether it is there.
    fn nvmlDeviceGetFieldValues(device: Device, count: c_int, values: Out<FieldValue>) {
        let device = index(device)?;
        if count <= 0 || values.is_null() {
            return Err(Return::INVALID_ARGUMENT);
        }
        for i in 0..count as usize {
            // SAFETY: the program says that `count` of them are there.
            let place = unsafe { values.at(i) };
            place.set(field(device, place.get()?))?;
        }
        Ok(())
    }
}
