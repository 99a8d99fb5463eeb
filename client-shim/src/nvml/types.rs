//! NVML's structures, laid out as the public header `nvml.h` has them.

use super::Out;

/// `nvmlDevice_t`: points into a table of ours, and is never read through.
pub(super) type Device = *const u8;

/// The version that a structure with a version field carries: its size and its number.
pub(super) const fn version<T>(number: u32) -> u32 {
    size_of::<T>() as u32 | number << 24
}

/// `nvmlPciInfo_t` of version 3.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct PciInfo {
    pub bus_id_legacy: [u8; 16],
    pub domain: u32,
    pub bus: u32,
    pub device: u32,
    pub device_id: u32,
    pub subsystem_id: u32,
    pub bus_id: [u8; 32],
}

/// The part of `nvmlPciInfo_t` that versions 1 and 2 share.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct PciInfoOld {
    pub bus_id: [u8; 16],
    pub domain: u32,
    pub bus: u32,
    pub device: u32,
    pub device_id: u32,
    pub subsystem_id: u32,
}

/// `nvmlPciInfoExt_v1_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct PciInfoExt {
    pub version: u32,
    pub domain: u32,
    pub bus: u32,
    pub device: u32,
    pub device_id: u32,
    pub subsystem_id: u32,
    pub base_class: u32,
    pub sub_class: u32,
    pub bus_id: [u8; 32],
}

/// `nvmlMemory_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Memory {
    pub total: u64,
    pub free: u64,
    pub used: u64,
}

/// `nvmlMemory_v2_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct MemoryV2 {
    pub version: u32,
    pub total: u64,
    pub reserved: u64,
    pub free: u64,
    pub used: u64,
}

/// `nvmlUtilization_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Utilization {
    pub gpu: u32,
    pub memory: u32,
}

/// `nvmlProcessInfo_v1_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ProcessV1 {
    pub pid: u32,
    pub used_memory: u64,
}

/// `nvmlProcessInfo_v2_t`, which version 3 of the calls uses, too.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ProcessV2 {
    pub pid: u32,
    pub used_memory: u64,
    pub gpu_instance: u32,
    pub compute_instance: u32,
}

/// `nvmlProcessDetail_v1_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ProcessDetail {
    pub pid: u32,
    pub used_memory: u64,
    pub gpu_instance: u32,
    pub compute_instance: u32,
    pub protected_memory: u64,
}

/// `nvmlProcessDetailList_v1_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ProcessDetailList {
    pub version: u32,
    pub mode: u32,
    pub count: u32,
    pub entries: Out<ProcessDetail>,
}

/// `nvmlDeviceAttributes_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Attributes {
    pub counts: [u32; 8],
    pub memory_mib: u64,
}

/// `nvmlViolationTime_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Violation {
    pub reference: u64,
    pub time: u64,
}

/// `nvmlEccErrorCounts_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct EccCounts {
    pub l1: u64,
    pub l2: u64,
    pub memory: u64,
    pub registers: u64,
}

/// `nvmlTemperature_v1_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Temperature {
    pub version: u32,
    pub sensor: u32,
    pub degrees: i32,
}

/// `nvmlFieldValue_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct FieldValue {
    pub field: u32,
    pub scope: u32,
    pub timestamp: i64,
    pub latency: i64,
    pub value_type: u32,
    pub result: u32,
    pub value: u64,
}

/// `nvmlEventData_t`; version 1 of the call knows the first three fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct EventData {
    pub device: Device,
    pub event_type: u64,
    pub event_data: u64,
    pub gpu_instance: u32,
    pub compute_instance: u32,
}

/// `nvmlUUID_v1_t`
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Uuid {
    pub version: u32,
    pub kind: u32,
    pub value: [u8; 41],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_the_headers() {
        assert_eq!(size_of::<PciInfo>(), 68);
        assert_eq!(version::<PciInfoExt>(1), 0x0100_0040);
        assert_eq!(version::<MemoryV2>(2), 0x0200_0028);
        assert_eq!(version::<ProcessDetailList>(1), 0x0100_0018);
        assert_eq!((size_of::<ProcessV1>(), size_of::<ProcessV2>()), (16, 24));
        assert_eq!((size_of::<ProcessDetail>(), size_of::<Attributes>()), (32, 40));
        assert_eq!(version::<Temperature>(1), 0x0100_000c);
        assert_eq!((size_of::<FieldValue>(), size_of::<EventData>()), (40, 32));
        assert_eq!(version::<Uuid>(1), 0x0100_0034);
    }
}
