//! What a device is.

use std::ffi::{c_char, c_int, c_uint};

use rgpu_device::telemetry::{Metric, Text};

use super::handles::index;
use super::results::{Result, Return};
use super::types::{Attributes, Device};
use super::{Out, observer, set_text};

/// `NVML_BRAND_UNKNOWN` and `NVML_DEVICE_ARCH_UNKNOWN`: what NVML answers of a device that it cannot classify.
const UNKNOWN_BRAND: u32 = 0;
const UNKNOWN_ARCHITECTURE: u32 = u32::MAX;

/// A value, or what NVML itself says where it knows none.
fn value_or(device: Device, metric: Metric, otherwise: u32) -> Result<u32> {
    match observer::value(index(device)?, metric, 0) {
        Ok(value) => Ok(value as u32),
        Err(Return::NOT_SUPPORTED) => Ok(otherwise),
        Err(e) => Err(e),
    }
}

fn put_text(device: Device, what: Text, of: u32, place: Out<c_char>, length: c_uint) -> Result<()> {
    // SAFETY: the program says that so many bytes are there.
    unsafe { set_text(place, length, &observer::text(index(device)?, what, of)?) }
}

fn attributes(device: Device, place: Out<Attributes>) -> Result<()> {
    let index = index(device)?;
    let value = |of| observer::value(index, Metric::Attributes, of);
    let mut counts = [0; 8];
    for (of, count) in counts.iter_mut().enumerate() {
        *count = value(of as u32)? as u32;
    }
    place.set(Attributes { counts, memory_mib: value(8)? })
}

nvml! {
    /// `nvmlDeviceGetBrand`.
    fn nvmlDeviceGetBrand(device: Device, brand: Out<c_uint>) {
        brand.set(value_or(device, Metric::Brand, UNKNOWN_BRAND)?)
    }
    /// `nvmlDeviceGetArchitecture`.
    fn nvmlDeviceGetArchitecture(device: Device, architecture: Out<c_uint>) {
        architecture.set(value_or(device, Metric::Architecture, UNKNOWN_ARCHITECTURE)?)
    }
    /// `nvmlDeviceGetCudaComputeCapability`.
    fn nvmlDeviceGetCudaComputeCapability(device: Device, major: Out<c_int>, minor: Out<c_int>) {
        let capability = observer::info(index(device)?)?.compute_capability;
        major.set(capability.0 as c_int)?;
        minor.set(capability.1 as c_int)
    }
    /// `nvmlDeviceGetSerial`.
    fn nvmlDeviceGetSerial(device: Device, serial: Out<c_char>, length: c_uint) {
        put_text(device, Text::Serial, 0, serial, length)
    }
    /// `nvmlDeviceGetBoardPartNumber`.
    fn nvmlDeviceGetBoardPartNumber(device: Device, number: Out<c_char>, length: c_uint) {
        put_text(device, Text::BoardPart, 0, number, length)
    }
    /// `nvmlDeviceGetVbiosVersion`.
    fn nvmlDeviceGetVbiosVersion(device: Device, version: Out<c_char>, length: c_uint) {
        put_text(device, Text::VbiosVersion, 0, version, length)
    }
    /// `nvmlDeviceGetInforomVersion`.
    fn nvmlDeviceGetInforomVersion(device: Device, object: c_uint, version: Out<c_char>, length: c_uint) {
        put_text(device, Text::Inforom, object, version, length)
    }
    /// `nvmlDeviceGetInforomImageVersion`.
    fn nvmlDeviceGetInforomImageVersion(device: Device, version: Out<c_char>, length: c_uint) {
        put_text(device, Text::InforomImage, 0, version, length)
    }
    /// `nvmlDeviceGetGspFirmwareVersion`: the header gives no length; the longest text is 80 bytes.
    fn nvmlDeviceGetGspFirmwareVersion(device: Device, version: Out<c_char>) {
        put_text(device, Text::GspFirmware, 0, version, 80)
    }
    /// `nvmlDeviceGetAttributes`.
    fn nvmlDeviceGetAttributes(device: Device, place: Out<Attributes>) {
        attributes(device, place)
    }
    /// `nvmlDeviceGetAttributes_v2`.
    fn nvmlDeviceGetAttributes_v2(device: Device, place: Out<Attributes>) {
        attributes(device, place)
    }
    /// `nvmlDeviceIsMigDeviceHandle`: parts of a GPU are devices of their own here, never such handles.
    fn nvmlDeviceIsMigDeviceHandle(device: Device, is: Out<c_uint>) {
        index(device)?;
        is.set(0)
    }
    /// `nvmlDeviceGetMaxMigDeviceCount`.
    fn nvmlDeviceGetMaxMigDeviceCount(device: Device, count: Out<c_uint>) {
        count.set(value_or(device, Metric::MaxMigDevices, 0)?)
    }
    /// `nvmlDeviceGetMigDeviceHandleByIndex`: none is forwarded.
    fn nvmlDeviceGetMigDeviceHandleByIndex(device: Device, _index: c_uint, place: Out<Device>) {
        // A device without MIG says so.
        observer::value(index(device)?, Metric::MigMode, 0)?;
        if place.is_null() { Err(Return::INVALID_ARGUMENT) } else { Err(Return::NOT_FOUND) }
    }
}
