//! Devices and what they tell about themselves.

use std::ffi::c_char;

use super::types::*;
use super::*;
use crate::abi::{CStrArg, Out};

/// PCI bus, device and domain numbers among the attributes.
const PCI: (u32, u32, u32) = (33, 34, 50);

/// A device's PCI address as text.
fn pci_bus_id(core: &Core, ordinal: u32) -> Result<String> {
    let info = core.device_info(ordinal)?;
    let [bus, device, domain] = [PCI.0, PCI.1, PCI.2].map(|number| info.attribute(number));
    Ok(format!("{domain:04x}:{bus:02x}:{device:02x}.0"))
}

/// The device with a PCI address given as text (`[domain:]bus:device[.function]`).
fn device_by_pci(core: &Core, text: &str) -> Result<i32> {
    let wanted = text.trim().to_ascii_lowercase();
    for ordinal in 0..core.device_count() {
        let full = pci_bus_id(core, ordinal)?;
        let short = full.trim_end_matches(".0");
        let without_domain = &short[short.find(':').map_or(0, |at| at + 1)..];
        if [full.as_str(), short, without_domain].contains(&wanted.as_str())
            || wanted.strip_suffix(".0") == Some(without_domain)
        {
            return Ok(ordinal as i32);
        }
    }
    Err(Error::new(Code::InvalidDevice, format!("there is no device at PCI address {text:?}")))
}

door! {
    fn cuDeviceGet(device: Out<Device>, number: i32) |core| {
        device.set(ordinal(core, number)? as i32)
    }
    fn cuDeviceGetCount(count: Out<i32>) |core| {
        count.set(core.device_count() as i32)
    }
    fn cuDeviceGetName(name: Out<c_char>, len: i32, device: Device) |core| {
        let info = core.device_info(ordinal(core, device)?)?;
        // SAFETY: the program says that so many bytes are there.
        unsafe { name.set_text(len.max(0) as usize, &info.name) }
    }
    fn cuDeviceGetUuid(uuid: Out<Uuid>, device: Device) |core| {
        uuid.set(Uuid(core.device_info(ordinal(core, device)?)?.uuid))
    }
    fn cuDeviceGetUuid_v2(uuid: Out<Uuid>, device: Device) |core| {
        uuid.set(Uuid(core.device_info(ordinal(core, device)?)?.uuid))
    }
    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: Device) |core| {
        bytes.set(core.device_info(ordinal(core, device)?)?.total_memory as usize)
    }
    fn cuDeviceGetAttribute(value: Out<i32>, attribute: u32, device: Device) |core| {
        let info = core.device_info(ordinal(core, device)?)?;
        if attribute == 0 || attribute > MAX_ATTRIBUTE {
            return Err(Error::new(Code::InvalidValue, format!("device attribute {attribute} does not exist")));
        }
        value.set(info.attribute(attribute))
    }
    fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: Device) |core| {
        let capability = core.device_info(ordinal(core, device)?)?.compute_capability;
        major.set(capability.0 as i32)?;
        minor.set(capability.1 as i32)
    }
    fn cuDeviceGetProperties(properties: Out<DevProp>, device: Device) |core| {
        let info = core.device_info(ordinal(core, device)?)?;
        properties.set(DevProp {
            max_threads_per_block: info.attribute(1),
            max_threads_dim: [2, 3, 4].map(|n| info.attribute(n)),
            max_grid_size: [5, 6, 7].map(|n| info.attribute(n)),
            shared_mem_per_block: info.attribute(8),
            total_constant_memory: info.attribute(9),
            simd_width: info.attribute(10),
            mem_pitch: info.attribute(11),
            regs_per_block: info.attribute(12),
            clock_rate: info.attribute(13),
            texture_align: info.attribute(14),
        })
    }
    fn cuDeviceGetPCIBusId(text: Out<c_char>, len: i32, device: Device) |core| {
        let id = pci_bus_id(core, ordinal(core, device)?)?;
        // SAFETY: the program says that so many bytes are there.
        unsafe { text.set_text(len.max(0) as usize, &id) }
    }
    fn cuDeviceGetByPCIBusId(device: Out<Device>, name: CStrArg) |core| {
        device.set(device_by_pci(core, name.text()?)?)
    }
    fn cuDeviceCanAccessPeer(can: Out<i32>, device: Device, peer: Device) |core| {
        let (from, to) = (ordinal(core, device)?, ordinal(core, peer)?);
        can.set(i32::from(core.can_access_peer(from, to)?))
    }
    fn cuDeviceGetP2PAttribute(value: Out<i32>, attribute: u32, from: Device, to: Device) |core| {
        let (from, to) = (ordinal(core, from)?, ordinal(core, to)?);
        if from == to {
            return Err(Code::InvalidDevice.into());
        }
        let can = i32::from(core.can_access_peer(from, to)?);
        match attribute {
            // Performance rank, access, native atomics, array access.
            1 => value.set(0),
            2 | 3 => value.set(can),
            4 => value.set(0),
            _ => Err(Code::InvalidValue.into()),
        }
    }
    fn cuDeviceGetTexture1DLinearMaxWidth(width: Out<usize>, _format: u32, _channels: u32, device: Device) |core| {
        let _ = ordinal(core, device)?;
        width.set(1 << 28)
    }
    fn cuDeviceGetExecAffinitySupport(supported: Out<i32>, _kind: u32, device: Device) |core| {
        let _ = ordinal(core, device)?;
        supported.set(0)
    }
    fn cuDevicePrimaryCtxRetain(context: Out<Opaque>, device: Device) |core| {
        context.set(core.primary_retain(ordinal(core, device)?)?.raw as Opaque)
    }
    fn cuDevicePrimaryCtxRelease(device: Device) |core| {
        core.primary_release(ordinal(core, device)?)
    }
    fn cuDevicePrimaryCtxRelease_v2(device: Device) |core| {
        core.primary_release(ordinal(core, device)?)
    }
    fn cuDevicePrimaryCtxReset(device: Device) |core| {
        core.device_reset(ordinal(core, device)?)
    }
    fn cuDevicePrimaryCtxReset_v2(device: Device) |core| {
        core.device_reset(ordinal(core, device)?)
    }
    fn cuDevicePrimaryCtxSetFlags(device: Device, flags: u32) |core| {
        core.primary_set_flags(ordinal(core, device)?, flags)
    }
    fn cuDevicePrimaryCtxSetFlags_v2(device: Device, flags: u32) |core| {
        core.primary_set_flags(ordinal(core, device)?, flags)
    }
    fn cuDevicePrimaryCtxGetState(device: Device, flags: Out<u32>, active: Out<i32>) |core| {
        let (its_flags, its_state) = core.primary_state(ordinal(core, device)?)?;
        flags.set(its_flags)?;
        active.set(i32::from(its_state))
    }
    fn cuFlushGPUDirectRDMAWrites(_target: u32, _scope: u32) |core| {
        Ok(())
    }
    fn cuModuleGetLoadingMode(mode: Out<u32>) |core| {
        // CU_MODULE_LAZY_LOADING.
        mode.set(2)
    }
}

/// The highest attribute number of CUDA 13.
const MAX_ATTRIBUTE: u32 = 148;
