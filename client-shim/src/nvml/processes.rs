//! Which processes use a device: of those that share it through servers, a process sees itself.

use std::ffi::c_uint;

use rgpu_device::telemetry::Metric;

use super::handles::index;
use super::results::{Result, Return};
use super::types::{Device, ProcessDetail, ProcessDetailList, ProcessV1, ProcessV2, version};
use super::{get, observer, set};

/// `NVML_VALUE_NOT_AVAILABLE`.
const UNKNOWN: u64 = u64::MAX;
/// No MIG instance.
const NO_INSTANCE: u32 = u32::MAX;

/// This process, if it computes on the device: with the memory that it uses there.
fn computing(device: Device) -> Result<Option<ProcessDetail>> {
    let index = index(device)?;
    let Some(core) = crate::core::existing() else { return Ok(None) };
    let active = core.primary_state(index).is_ok_and(|(_, active)| active);
    let memory = match observer::value(index, Metric::OwnMemory, 0) {
        Err(Return::NOT_SUPPORTED) => None,
        other => Some(other?),
    };
    if !active && memory.unwrap_or(0) == 0 {
        return Ok(None);
    }
    Ok(Some(ProcessDetail {
        pid: std::process::id(),
        used_memory: memory.unwrap_or(UNKNOWN),
        gpu_instance: NO_INSTANCE,
        compute_instance: NO_INSTANCE,
        protected_memory: 0,
    }))
}

/// Puts processes where there is room for `count` of them.
fn list<T>(
    found: Option<ProcessDetail>,
    count: *mut c_uint,
    places: *mut T,
    make: impl Fn(ProcessDetail) -> T,
) -> Result<()> {
    let room = get(count)?;
    let Some(found) = found else { return set(count, 0) };
    set(count, 1)?;
    if room == 0 {
        return Err(Return::INSUFFICIENT_SIZE);
    }
    set(places, make(found))
}

fn first(p: ProcessDetail) -> ProcessV1 {
    ProcessV1 { pid: p.pid, used_memory: p.used_memory }
}

fn second(p: ProcessDetail) -> ProcessV2 {
    let ProcessDetail { pid, used_memory, gpu_instance, compute_instance, .. } = p;
    ProcessV2 { pid, used_memory, gpu_instance, compute_instance }
}

/// Graphics and MPS are not forwarded, so nobody uses the device for them.
fn nobody(device: Device) -> Result<Option<ProcessDetail>> {
    index(device).map(|_| None)
}

nvml! {
    /// `nvmlDeviceGetComputeRunningProcesses`.
    fn nvmlDeviceGetComputeRunningProcesses(device: Device, count: *mut c_uint, places: *mut ProcessV1) {
        list(computing(device)?, count, places, first)
    }
    /// `nvmlDeviceGetComputeRunningProcesses_v2`.
    fn nvmlDeviceGetComputeRunningProcesses_v2(device: Device, count: *mut c_uint, places: *mut ProcessV2) {
        list(computing(device)?, count, places, second)
    }
    /// `nvmlDeviceGetComputeRunningProcesses_v3`.
    fn nvmlDeviceGetComputeRunningProcesses_v3(device: Device, count: *mut c_uint, places: *mut ProcessV2) {
        list(computing(device)?, count, places, second)
    }
    /// `nvmlDeviceGetGraphicsRunningProcesses`.
    fn nvmlDeviceGetGraphicsRunningProcesses(device: Device, count: *mut c_uint, places: *mut ProcessV1) {
        list(nobody(device)?, count, places, first)
    }
    /// `nvmlDeviceGetGraphicsRunningProcesses_v2`.
    fn nvmlDeviceGetGraphicsRunningProcesses_v2(device: Device, count: *mut c_uint, places: *mut ProcessV2) {
        list(nobody(device)?, count, places, second)
    }
    /// `nvmlDeviceGetGraphicsRunningProcesses_v3`.
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(device: Device, count: *mut c_uint, places: *mut ProcessV2) {
        list(nobody(device)?, count, places, second)
    }
    /// `nvmlDeviceGetMPSComputeRunningProcesses`.
    fn nvmlDeviceGetMPSComputeRunningProcesses(device: Device, count: *mut c_uint, places: *mut ProcessV1) {
        list(nobody(device)?, count, places, first)
    }
    /// `nvmlDeviceGetMPSComputeRunningProcesses_v2`.
    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(device: Device, count: *mut c_uint, places: *mut ProcessV2) {
        list(nobody(device)?, count, places, second)
    }
    /// `nvmlDeviceGetMPSComputeRunningProcesses_v3`.
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(device: Device, count: *mut c_uint, places: *mut ProcessV2) {
        list(nobody(device)?, count, places, second)
    }
    /// `nvmlDeviceGetRunningProcessDetailList`: mode 0 is compute, 1 graphics, 2 MPS.
    fn nvmlDeviceGetRunningProcessDetailList(device: Device, place: *mut ProcessDetailList) {
        let asked = get(place)?;
        if asked.version != version::<ProcessDetailList>(1) {
            return Err(Return::ARGUMENT_VERSION_MISMATCH);
        }
        let found = match asked.mode {
            0 => computing(device)?,
            1 | 2 => nobody(device)?,
            _ => return Err(Return::INVALID_ARGUMENT),
        };
        let mut count = asked.count;
        let result = list(found, &mut count, asked.entries, |process| process);
        set(place, ProcessDetailList { count, ..asked })?;
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_says_how_much_room_it_needs() {
        let process = ProcessDetail {
            pid: 7,
            used_memory: 4096,
            gpu_instance: NO_INSTANCE,
            compute_instance: NO_INSTANCE,
            protected_memory: 0,
        };
        let mut place = ProcessV1 { pid: 0, used_memory: 0 };
        let mut count = 0;
        assert_eq!(list(Some(process), &mut count, &mut place, first), Err(Return::INSUFFICIENT_SIZE));
        assert_eq!((count, place.pid), (1, 0));
        assert_eq!(list(Some(process), &mut count, &mut place, first), Ok(()));
        assert_eq!((count, place.pid, place.used_memory), (1, 7, 4096));
        count = 5;
        assert_eq!(list(None, &mut count, &mut place, first), Ok(()));
        assert_eq!(count, 0);
    }
}
