//! What monitoring programs are told: what the device measures, and what only the server knows.

use super::memory::Share;
use rgpu_device::telemetry::{Group, Metric, Telemetry};
use rgpu_device::{Code, Device, Error, Ordinal, Result};

/// One group of a device's metrics. Memory is told as the application may use it; `busy` is used where the device
/// does not measure itself, and there is one device that it can be meant for.
pub(super) fn measure(
    device: &dyn Device,
    ordinal: Ordinal,
    group: Group,
    memory: Share,
    busy: u32,
) -> Result<Telemetry> {
    let infos = device.infos();
    let Some(info) = infos.get(ordinal as usize) else {
        return Err(Error::new(Code::InvalidDevice, format!("There is no device {ordinal}")));
    };
    let mut telemetry = match device.telemetry(ordinal, group) {
        Err(e) if e.code == Code::NotSupported => Telemetry::default(),
        other => other?,
    };
    if group == Group::Load {
        let total = memory.total.map_or(info.total_memory, |most| most.min(info.total_memory));
        let mut free = memory.free.min(total);
        // After a fault the device may refuse to tell.
        if let Ok(info) = device.mem_info(ordinal) {
            free = free.min(info.free);
        }
        telemetry.set(Metric::MemoryTotal, 0, total);
        telemetry.set(Metric::MemoryFree, 0, free);
        telemetry.set(Metric::MemoryUsed, 0, total - free);
        telemetry.set(Metric::OwnMemory, 0, memory.own);
        if telemetry.get(Metric::GpuUtilization, 0).is_none() && infos.len() == 1 {
            telemetry.set(Metric::GpuUtilization, 0, busy.into());
        }
    }
    Ok(telemetry)
}
