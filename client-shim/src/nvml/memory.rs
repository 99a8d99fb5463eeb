//! A device's memory.

use std::ffi::c_uint;

use rgpu_device::telemetry::Metric;

use super::handles::index;
use super::results::{Result, Return};
use super::types::{Device, Memory, MemoryV2, Utilization, version};
use super::{Out, observer, version_at};

/// What a device's memory is used for, in bytes.
fn measure(device: Device) -> Result<MemoryV2> {
    let index = index(device)?;
    let value = |metric| observer::value(index, metric, 0);
    let reserved = match value(Metric::MemoryReserved) {
        Err(Return::NOT_SUPPORTED) => 0,
        other => other?,
    };
    let used = value(Metric::MemoryUsed)?;
    Ok(MemoryV2 {
        version: version::<MemoryV2>(2),
        total: value(Metric::MemoryTotal)?,
        reserved: reserved.min(used),
        free: value(Metric::MemoryFree)?,
        used: used.saturating_sub(reserved),
    })
}

nvml! {
    /// `nvmlDeviceGetMemoryInfo`: what is reserved counts as used.
    fn nvmlDeviceGetMemoryInfo(device: Device, place: Out<Memory>) {
        let MemoryV2 { total, reserved, free, used, .. } = measure(device)?;
        place.set(Memory { total, free, used: used + reserved })
    }
    /// `nvmlDeviceGetMemoryInfo_v2`.
    fn nvmlDeviceGetMemoryInfo_v2(device: Device, place: Out<MemoryV2>) {
        if version_at(place)? != version::<MemoryV2>(2) {
            return Err(Return::ARGUMENT_VERSION_MISMATCH);
        }
        place.set(measure(device)?)
    }
    /// `nvmlDeviceGetBAR1MemoryInfo`.
    fn nvmlDeviceGetBAR1MemoryInfo(device: Device, place: Out<Memory>) {
        let index = index(device)?;
        let value = |metric| observer::value(index, metric, 0);
        let (total, free, used) = (Metric::Bar1Total, Metric::Bar1Free, Metric::Bar1Used);
        place.set(Memory { total: value(total)?, free: value(free)?, used: value(used)? })
    }
    /// `nvmlDeviceGetUtilizationRates`: where nobody measures the memory's, it is 0, as there is no saying that
    /// it is not there.
    fn nvmlDeviceGetUtilizationRates(device: Device, place: Out<Utilization>) {
        let index = index(device)?;
        let gpu = observer::value(index, Metric::GpuUtilization, 0)? as c_uint;
        let memory = match observer::value(index, Metric::MemoryUtilization, 0) {
            Err(Return::NOT_SUPPORTED) => 0,
            other => other? as c_uint,
        };
        place.set(Utilization { gpu, memory })
    }
}
