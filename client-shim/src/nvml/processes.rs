//! Which processes use a device: of those that share it through servers, a process sees itself.

use std::ffi::c_uint;

use rgpu_device::telemetry::Metric;

use super::handles::index;
use super::results::{Result, Return};
use super::types::{Device, ProcessDetail, ProcessDetailList, ProcessV1, ProcessV2, version};
use super::{Out, observer};

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

/// Puts processes where there is room for so many; says how many there are, and whether there was room.
fn put<T>(
    found: Option<ProcessDetail>,
    room: c_uint,
    places: Out<T>,
    make: impl Fn(ProcessDetail) -> T,
) -> (c_uint, Result<()>) {
    match found {
        None => (0, Ok(())),
        Some(_) if room == 0 => (1, Err(Return::INSUFFICIENT_SIZE)),
        Some(found) => (1, places.set(make(found))),
    }
}

/// Puts processes where there is room for `count` of them, which becomes how many there are.
fn list<T>(
    found: Option<ProcessDetail>,
    count: Out<c_uint>,
    places: Out<T>,
    make: impl Fn(ProcessDetail) -> T,
) -> Result<()> {
    let (number, result) = put(found, count.get()?, places, make);
    count.set(number)?;
    result
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
    fn nvmlDeviceGetComputeRunningProcesses(device: Device, count: Out<c_uint>, places: Out<ProcessV1>) {
        list(computing(device)?, count, places, first)
    }
    /// `nvmlDeviceGetComputeRunningProcesses_v2`.
    fn nvmlDeviceGetComputeRunningProcesses_v2(device: Device, count: Out<c_uint>, places: Out<ProcessV2>) {
        list(computing(device)?, count, places, second)
    }
    /// `nvmlDeviceGetComputeRunningProcesses_v3`.
    fn nvmlDeviceGetComputeRunningProcesses_v3(device: Device, count: Out<c_uint>, places: Out<ProcessV2>) {
        list(computing(device)?, count, places, second)
    }
    /// `nvmlDeviceGetGraphicsRunningProcesses`.
    fn nvmlDeviceGetGraphicsRunningProcesses(device: Device, count: Out<c_uint>, places: Out<ProcessV1>) {
        list(nobody(device)?, count, places, first)
    }
    /// `nvmlDeviceGetGraphicsRunningProcesses_v2`.
    fn nvmlDeviceGetGraphicsRunningProcesses_v2(device: Device, count: Out<c_uint>, places: Out<ProcessV2>) {
        list(nobody(device)?, count, places, second)
    }
    /// `nvmlDeviceGetGraphicsRunningProcesses_v3`.
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(device: Device, count: Out<c_uint>, places: Out<ProcessV2>) {
        list(nobody(device)?, count, places, second)
    }
    /// `nvmlDeviceGetMPSComputeRunningProcesses`.
    fn nvmlDeviceGetMPSComputeRunningProcesses(device: Device, count: Out<c_uint>, places: Out<ProcessV1>) {
        list(nobody(device)?, count, places, first)
    }
    /// `nvmlDeviceGetMPSComputeRunningProcesses_v2`.
    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(device: Device, count: Out<c_uint>, places: Out<ProcessV2>) {
        list(nobody(device)?, count, places, second)
    }
    /// `nvmlDeviceGetMPSComputeRunningProcesses_v3`.
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(device: Device, count: Out<c_uint>, places: Out<ProcessV2>) {
        list(nobody(device)?, count, places, second)
    }
    /// `nvmlDeviceGetRunningProcessDetailList`: mode 0 is compute, 1 graphics, 2 MPS.
    fn nvmlDeviceGetRunningProcessDetailList(device: Device, place: Out<ProcessDetailList>) {
        let asked = place.get()?;
        if asked.version != version::<ProcessDetailList>(1) {
            return Err(Return::ARGUMENT_VERSION_MISMATCH);
        }
        let found = match asked.mode {
            0 => computing(device)?,
            1 | 2 => nobody(device)?,
            _ => return Err(Return::INVALID_ARGUMENT),
        };
        let (count, result) = put(found, asked.count, asked.entries, |process| process);
        place.set(ProcessDetailList { count, ..asked })?;
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
        // SAFETY: both variables outlive their places.
        let (room, to) = unsafe { (Out::new(&raw mut count), Out::new(&raw mut place)) };
        assert_eq!(list(Some(process), room, to, first), Err(Return::INSUFFICIENT_SIZE));
        assert_eq!((room.get(), to.get().map(|p| p.pid)), (Ok(1), Ok(0)));
        assert_eq!(list(Some(process), room, to, first), Ok(()));
        assert_eq!((room.get(), to.get().map(|p| (p.pid, p.used_memory))), (Ok(1), Ok((7, 4096))));
        room.set(5).unwrap();
        assert_eq!(list(None, room, to, first), Ok(()));
        assert_eq!(room.get(), Ok(0));
    }
}
