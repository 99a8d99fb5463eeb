//! Devices: how many there are, and by what one finds them.

use std::ffi::{c_char, c_uint};

use rgpu_device::DeviceInfo;
use rgpu_device::telemetry::{Metric, Text};

use super::results::{Result, Return};
use super::types::{Device, PciInfo, PciInfoExt, PciInfoOld, Uuid, version};
use super::{CStrArg, In, Out, observer, set_text, text_array, version_at};

/// The most devices that a handle can name.
const MAX_DEVICES: usize = 64;

/// What handles point to; only the addresses matter.
static DEVICES: [u8; MAX_DEVICES] = [0; MAX_DEVICES];

/// A device's handle.
pub(super) fn handle(index: u32) -> Result<Device> {
    DEVICES.get(index as usize).map(std::ptr::from_ref).ok_or(Return::INVALID_ARGUMENT)
}

/// The device that a handle names.
pub(super) fn index(device: Device) -> Result<u32> {
    let offset = (device as usize).wrapping_sub(DEVICES.as_ptr() as usize);
    if offset >= observer::infos()?.len().min(MAX_DEVICES) {
        return Err(Return::INVALID_ARGUMENT);
    }
    Ok(offset as u32)
}

/// A UUID as NVML writes it.
pub(super) fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::from("GPU");
    for (i, byte) in uuid.iter().enumerate() {
        if [0, 4, 6, 8, 10].contains(&i) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// PCI bus, device and domain among the CUDA attributes.
const PCI: [u32; 3] = [50, 33, 34];

/// Domain, bus and device.
fn pci_address(info: &DeviceInfo) -> [u32; 3] {
    PCI.map(|number| info.attribute(number) as u32)
}

/// Where a device is, and what it is, on its PCI bus. A software GPU has an address, as CUDA has one for it, but
/// no identity, which is zero.
fn pci(device: Device) -> Result<PciInfo> {
    let index = index(device)?;
    let [domain, bus, number] = pci_address(&observer::info(index)?);
    let id = |of| match observer::value(index, Metric::Pci, of) {
        Ok(value) => Ok(value as u32),
        Err(Return::NOT_SUPPORTED) => Ok(0),
        Err(e) => Err(e),
    };
    Ok(PciInfo {
        bus_id_legacy: text_array(&format!("{domain:04X}:{bus:02X}:{number:02X}.0")),
        domain,
        bus,
        device: number,
        device_id: id(3)?,
        subsystem_id: id(4)?,
        bus_id: text_array(&format!("{domain:08X}:{bus:02X}:{number:02X}.0")),
    })
}

/// Domain, bus and device in `[domain:]bus:device[.function]`.
fn parse_pci(text: &str) -> Option<[u32; 3]> {
    let text = text.split_once('.').map_or(text, |(address, _)| address);
    let mut parts = text.rsplitn(3, ':');
    let mut next = || parts.next().map(|part| u32::from_str_radix(part, 16).ok());
    let (device, bus) = (next()??, next()??);
    Some([next().unwrap_or(Some(0))?, bus, device])
}

fn find(found: impl Fn(u32, &DeviceInfo) -> bool) -> Result<Device> {
    let infos = observer::infos()?;
    let at = infos.iter().enumerate().find(|(i, info)| found(*i as u32, info)).ok_or(Return::NOT_FOUND)?;
    handle(at.0 as u32)
}

fn by_index(index: c_uint, device: Out<Device>) -> Result<()> {
    if index as usize >= observer::infos()?.len() {
        return Err(Return::INVALID_ARGUMENT);
    }
    device.set(handle(index)?)
}

fn by_pci(bus_id: &CStrArg, device: Out<Device>) -> Result<()> {
    let wanted = parse_pci(bus_id.text()?).ok_or(Return::INVALID_ARGUMENT)?;
    device.set(find(|_, info| pci_address(info) == wanted)?)
}

fn count(place: Out<c_uint>) -> Result<()> {
    place.set(observer::infos()?.len().min(MAX_DEVICES) as c_uint)
}

nvml! {
    /// `nvmlDeviceGetCount`.
    fn nvmlDeviceGetCount(place: Out<c_uint>) {
        count(place)
    }
    /// `nvmlDeviceGetCount_v2`.
    fn nvmlDeviceGetCount_v2(place: Out<c_uint>) {
        count(place)
    }
    /// `nvmlDeviceGetHandleByIndex`.
    fn nvmlDeviceGetHandleByIndex(index: c_uint, device: Out<Device>) {
        by_index(index, device)
    }
    /// `nvmlDeviceGetHandleByIndex_v2`.
    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: Out<Device>) {
        by_index(index, device)
    }
    /// `nvmlDeviceGetHandleByUUID`.
    fn nvmlDeviceGetHandleByUUID(uuid: CStrArg, device: Out<Device>) {
        let wanted = uuid.text()?;
        device.set(find(|_, info| uuid_text(&info.uuid) == wanted)?)
    }
    /// `nvmlDeviceGetHandleByUUIDV`: in words (1) or bytes (2).
    fn nvmlDeviceGetHandleByUUIDV(uuid: In<Uuid>, device: Out<Device>) {
        let uuid = uuid.get()?;
        if uuid.version != version::<Uuid>(1) {
            return Err(Return::ARGUMENT_VERSION_MISMATCH);
        }
        let found = match uuid.kind {
            1 => find(|_, info| uuid.value.starts_with(uuid_text(&info.uuid).as_bytes()))?,
            2 => find(|_, info| uuid.value[..16] == info.uuid)?,
            _ => return Err(Return::INVALID_ARGUMENT),
        };
        device.set(found)
    }
    /// `nvmlDeviceGetHandleByPciBusId`.
    fn nvmlDeviceGetHandleByPciBusId(bus_id: CStrArg, device: Out<Device>) {
        by_pci(&bus_id, device)
    }
    /// `nvmlDeviceGetHandleByPciBusId_v2`.
    fn nvmlDeviceGetHandleByPciBusId_v2(bus_id: CStrArg, device: Out<Device>) {
        by_pci(&bus_id, device)
    }
    /// `nvmlDeviceGetHandleBySerial`.
    fn nvmlDeviceGetHandleBySerial(serial: CStrArg, device: Out<Device>) {
        let wanted = serial.text()?;
        device.set(find(|i, _| observer::text(i, Text::Serial, 0).is_ok_and(|serial| serial == wanted))?)
    }
    /// `nvmlDeviceGetIndex`.
    fn nvmlDeviceGetIndex(device: Device, place: Out<c_uint>) {
        place.set(index(device)?)
    }
    /// `nvmlDeviceGetName`.
    fn nvmlDeviceGetName(device: Device, name: Out<c_char>, length: c_uint) {
        // SAFETY: the program says that so many bytes are there.
        unsafe { set_text(name, length, &observer::info(index(device)?)?.name) }
    }
    /// `nvmlDeviceGetUUID`.
    fn nvmlDeviceGetUUID(device: Device, uuid: Out<c_char>, length: c_uint) {
        // SAFETY: the program says that so many bytes are there.
        unsafe { set_text(uuid, length, &uuid_text(&observer::info(index(device)?)?.uuid)) }
    }
    /// `nvmlDeviceGetPciInfo`, version 1: without the subsystem's id.
    fn nvmlDeviceGetPciInfo(device: Device, place: Out<PciInfoOld>) {
        let pci = pci(device)?;
        let bus_id = pci.bus_id_legacy;
        place.check()?;
        let place = place.as_ptr();
        // SAFETY: not null; the program's structure has at least these fields.
        unsafe {
            (&raw mut (*place).bus_id).write_unaligned(bus_id);
            (&raw mut (*place).domain).write_unaligned(pci.domain);
            (&raw mut (*place).bus).write_unaligned(pci.bus);
            (&raw mut (*place).device).write_unaligned(pci.device);
            (&raw mut (*place).device_id).write_unaligned(pci.device_id);
        }
        Ok(())
    }
    /// `nvmlDeviceGetPciInfo_v2`.
    fn nvmlDeviceGetPciInfo_v2(device: Device, place: Out<PciInfoOld>) {
        let PciInfo { bus_id_legacy: bus_id, domain, bus, device, device_id, subsystem_id, .. } = pci(device)?;
        place.set(PciInfoOld { bus_id, domain, bus, device, device_id, subsystem_id })
    }
    /// `nvmlDeviceGetPciInfo_v3`.
    fn nvmlDeviceGetPciInfo_v3(device: Device, place: Out<PciInfo>) {
        place.set(pci(device)?)
    }
    /// `nvmlDeviceGetPciInfoExt`: a GPU is a display controller (3) for 3D (2), where it is on a bus at all.
    fn nvmlDeviceGetPciInfoExt(device: Device, place: Out<PciInfoExt>) {
        let version_asked = version_at(place)?;
        if version_asked != version::<PciInfoExt>(1) {
            return Err(Return::ARGUMENT_VERSION_MISMATCH);
        }
        let PciInfo { domain, bus, device, device_id, subsystem_id, bus_id, .. } = pci(device)?;
        let (base_class, sub_class) = if device_id == 0 { (0, 0) } else { (3, 2) };
        let version = version_asked;
        place.set(PciInfoExt {
            version, domain, bus, device, device_id, subsystem_id, base_class, sub_class, bus_id,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_domain_and_function() {
        assert_eq!(parse_pci("00000000:01:00.0"), Some([0, 1, 0]));
        assert_eq!(parse_pci("0002:AB:1f"), Some([2, 0xab, 0x1f]));
        assert_eq!(parse_pci("ab:00.0"), Some([0, 0xab, 0]));
        for wrong in ["", "01", "x:1:0", "1:2:3:4", "0000:01:"] {
            assert_eq!(parse_pci(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn uuids_are_written_as_nvml_does() {
        let uuid = [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(uuid_text(&uuid), "GPU-12345678-9abc-def0-0102-030405060708");
    }
}
