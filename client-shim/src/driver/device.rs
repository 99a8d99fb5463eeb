//! Devices and what they tell about themselves.

use std::ffi::{c_char, c_void};

use super::types::*;
use super::*;

/// PCI bus, device and domain numbers among the attributes.
const PCI: (u32, u32, u32) = (33, 34, 50);

/// A device's PCI address as text.
pub(crate) fn pci_bus_id(core: &Core, ordinal: u32) -> Result<String> {
    let info = core.device_info(ordinal)?;
    let [bus, device, domain] = [PCI.0, PCI.1, PCI.2].map(|number| info.attribute(number));
    Ok(format!("{domain:04x}:{bus:02x}:{device:02x}.0"))
}

/// The device with a PCI address given as text (`[domain:]bus:device[.function]`).
pub(crate) fn device_by_pci(core: &Core, text: &str) -> Result<i32> {
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
    fn cuDeviceGet(device: *mut Device, number: i32) |core| {
        set(device, ordinal(core, number)? as i32)
    }
    fn cuDeviceGetCount(count: *mut i32) |core| {
        set(count, core.device_count() as i32)
    }
    fn cuDeviceGetName(name: *mut c_char, len: i32, device: Device) |core| {
        set_text(name, len, &core.device_info(ordinal(core, device)?)?.name)
    }
    fn cuDeviceGetUuid(uuid: *mut Uuid, device: Device) |core| {
        set(uuid, Uuid(core.device_info(ordinal(core, device)?)?.uuid))
    }
    fn cuDeviceGetUuid_v2(uuid: *mut Uuid, device: Device) |core| {
        set(uuid, Uuid(core.device_info(ordinal(core, device)?)?.uuid))
    }
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: Device) |core| {
        set(bytes, core.device_info(ordinal(core, device)?)?.total_memory as usize)
    }
    fn cuDeviceGetAttribute(value: *mut i32, attribute: u32, device: Device) |core| {
        let info = core.device_info(ordinal(core, device)?)?;
        if attribute == 0 || attribute > MAX_ATTRIBUTE {
            return Err(Error::new(Code::InvalidValue, format!("device attribute {attribute} does not exist")));
        }
        set(value, info.attribute(attribute))
    }
    fn cuDeviceComputeCapability(major: *mut i32, minor: *mut i32, device: Device) |core| {
        let capability = core.device_info(ordinal(core, device)?)?.compute_capability;
        set(major, capability.0 as i32)?;
        set(minor, capability.1 as i32)
    }
    fn cuDeviceGetProperties(properties: *mut DevProp, device: Device) |core| {
        let info = core.device_info(ordinal(core, device)?)?;
        set(properties, DevProp {
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
    fn cuDeviceGetPCIBusId(text: *mut c_char, len: i32, device: Device) |core| {
        set_text(text, len, &pci_bus_id(core, ordinal(core, device)?)?)
    }
    fn cuDeviceGetByPCIBusId(device: *mut Device, name: *const c_char) |core| {
        set(device, device_by_pci(core, text(name)?)?)
    }
    fn cuDeviceCanAccessPeer(can: *mut i32, device: Device, peer: Device) |core| {
        let (from, to) = (ordinal(core, device)?, ordinal(core, peer)?);
        set(can, i32::from(core.can_access_peer(from, to)?))
    }
    fn cuDeviceGetP2PAttribute(value: *mut i32, attribute: u32, from: Device, to: Device) |core| {
        let (from, to) = (ordinal(core, from)?, ordinal(core, to)?);
        if from == to {
            return Err(Code::InvalidDevice.into());
        }
        let can = i32::from(core.can_access_peer(from, to)?);
        match attribute {
            // Performance rank, access, native atomics, array access.
            1 => set(value, 0),
            2 | 3 => set(value, can),
            4 => set(value, 0),
            _ => Err(Code::InvalidValue.into()),
        }
    }
    fn cuDeviceGetTexture1DLinearMaxWidth(width: *mut usize, _format: u32, _channels: u32, device: Device) |core| {
        let _ = ordinal(core, device)?;
        set(width, 1 << 28)
    }
    fn cuDeviceGetExecAffinitySupport(supported: *mut i32, _kind: u32, device: Device) |core| {
        let _ = ordinal(core, device)?;
        set(supported, 0)
    }
    fn cuDevicePrimaryCtxRetain(context: *mut Opaque, device: Device) |core| {
        set(context, core.primary_retain(ordinal(core, device)?)?.raw as Opaque)
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
    fn cuDevicePrimaryCtxGetState(device: Device, flags: *mut u32, active: *mut i32) |core| {
        let (its_flags, its_state) = core.primary_state(ordinal(core, device)?)?;
        set(flags, its_flags)?;
        set(active, i32::from(its_state))
    }
    fn cuFlushGPUDirectRDMAWrites(_target: u32, _scope: u32) |core| {
        Ok(())
    }
    fn cuModuleGetLoadingMode(mode: *mut u32) |core| {
        // CU_MODULE_LAZY_LOADING.
        set(mode, 2)
    }
}

/// The highest attribute number of CUDA 13.
const MAX_ATTRIBUTE: u32 = 148;

/// Not called: keeps `c_void` in use where a list has no opaque arguments.
const _: fn(*mut c_void) = |_| {};
