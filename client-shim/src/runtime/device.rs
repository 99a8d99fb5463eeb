//! Devices: how many, what they are, which one is used, and what can be set about them.

use std::ffi::{c_char, c_int, c_uint};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use rgpu_device::{DeviceInfo, Limit};

use super::entry::{api, enter};
use super::types::{ChannelDesc, DEVICE_PROP_11_BYTES, DeviceProp12, DeviceProp13};
use super::version::{RUNTIME_VERSION, RUNTIME_VERSION_12};
use crate::abi::{CStrArg, In, Out};
use crate::core::error::invalid;
use crate::core::{Code, Result, current, thread};
use crate::doors::ordinal;

/// The highest `cudaDeviceAttr` there is room for.
const LAST_ATTRIBUTE: c_int = 151;
/// `cudaDeviceMapHost`, which every device with unified addresses has.
const MAP_HOST: c_uint = 8;
/// Flags that `cudaSetDeviceFlags` takes.
const DEVICE_FLAGS: c_uint = 0x07 | MAP_HOST | 0x10 | 0x80;

/// What a device tells about itself.
fn info(device: c_int) -> Result<&'static DeviceInfo> {
    let core = current()?;
    core.device_info(ordinal(core, device)?)
}

/// The bus address of a device: domain, bus, device.
fn pci_address(info: &DeviceInfo) -> (u32, u32, u32) {
    (info.attribute(50) as u32, info.attribute(33) as u32, info.attribute(34) as u32)
}

/// Reads `[domain:]bus:device[.function]`, all hexadecimal.
fn parse_pci_address(text: &str) -> Option<(u32, u32, u32)> {
    let text = text.split_once('.').map_or(text, |(address, _)| address);
    let parts: Option<Vec<u32>> = text.split(':').map(|p| u32::from_str_radix(p, 16).ok()).collect();
    match parts?[..] {
        [domain, bus, device] => Some((domain, bus, device)),
        [bus, device] => Some((0, bus, device)),
        _ => None,
    }
}

/// `cudaLimit`s that are hints, which only need to be remembered: L2 fetch granularity and persisting L2.
static HINT_LIMITS: [AtomicU64; 2] = [AtomicU64::new(64), AtomicU64::new(0)];
/// `cudaDeviceSetCacheConfig` and `cudaDeviceSetSharedMemConfig`: hints.
static CACHE_CONFIG: AtomicI32 = AtomicI32::new(0);
/// Four-byte banks are all there is; see [`CACHE_CONFIG`].
static BANK_SIZE: AtomicI32 = AtomicI32::new(1);

api! {
    /// `cudaGetDeviceCount`
    fn get_device_count as "cudaGetDeviceCount" (count: Out<c_int>) {
        count.check()?;
        count.set_if_wanted(0);
        count.set(current()?.device_count() as c_int)
    }

    /// `cudaGetDevice`
    fn get_device as "cudaGetDevice" (device: Out<c_int>) {
        device.check()?;
        device.set(current()?.get_device() as c_int)
    }

    /// `cudaSetDevice`
    fn set_device as "cudaSetDevice" (device: c_int) {
        let core = current()?;
        core.set_device(ordinal(core, device)?)
    }

    /// `cudaInitDevice`
    fn init_device as "cudaInitDevice" (device: c_int, device_flags: c_uint, flags: c_uint) {
        let core = current()?;
        let ordinal = ordinal(core, device)?;
        match flags {
            0 => Ok(()),
            1 if device_flags & !DEVICE_FLAGS == 0 => core.primary_set_flags(ordinal, device_flags),
            _ => Err(invalid("unknown device flags")),
        }
    }

    /// `cudaSetDeviceFlags`
    fn set_device_flags as "cudaSetDeviceFlags" (flags: c_uint) {
        let core = current()?;
        if flags & !DEVICE_FLAGS != 0 || !matches!(flags & 7, 0 | 1 | 2 | 4) {
            return Err(invalid("unknown device flags"));
        }
        core.primary_set_flags(core.get_device(), flags)
    }

    /// `cudaGetDeviceFlags`
    fn get_device_flags as "cudaGetDeviceFlags" (flags: Out<c_uint>) {
        flags.check()?;
        let core = current()?;
        flags.set(core.primary_state(core.get_device())?.0 | MAP_HOST)
    }

    /// `cudaSetValidDevices`: the first one is used by threads that have not chosen.
    fn set_valid_devices as "cudaSetValidDevices" (devices: In<c_int>, len: c_int) {
        let core = current()?;
        let len = usize::try_from(len).map_err(|_| invalid("a negative number of devices"))?;
        // SAFETY: the program says that so many are there.
        let ordinals: Vec<u32> =
            unsafe { devices.list(len) }?.into_iter().map(|d| ordinal(core, d)).collect::<Result<_>>()?;
        if let Some(&first) = ordinals.first()
            && thread::top().is_none()
        {
            thread::select(first);
        }
        Ok(())
    }

    /// `cudaChooseDevice`: major, minor and memory stand at the same place in all layouts.
    fn choose_device as "cudaChooseDevice" (device: Out<c_int>, prop: In<DeviceProp13>) {
        device.check()?;
        let core = current()?;
        // The 13.x layout is the smaller one, so this reads nothing that is not there.
        let wanted = prop.get()?;
        let mut best = (0, 0);
        for ordinal in 0..core.device_count() {
            let info = core.device_info(ordinal)?;
            let (major, minor) = info.compute_capability;
            let capable = (major, minor) >= (wanted.major.max(0) as u32, wanted.minor.max(0) as u32);
            let roomy = info.total_memory as usize >= wanted.totalGlobalMem;
            let score = 1 + 2 * i32::from(capable) + i32::from(roomy);
            if score > best.0 {
                best = (score, ordinal as c_int);
            }
        }
        device.set(best.1)
    }

    /// `cudaGetDeviceProperties` of 13.x
    fn get_device_properties_13 as "cudaGetDeviceProperties" (prop: Out<DeviceProp13>, device: c_int) {
        prop.check()?;
        prop.set(info(device)?.into())
    }

    /// `cudaGetDeviceProperties_v2` of 12.x
    fn get_device_properties_12 as "cudaGetDeviceProperties" (prop: Out<DeviceProp12>, device: c_int) {
        prop.check()?;
        prop.set(info(device)?.into())
    }

    /// `cudaGetDeviceProperties` of 12.x, which programs built against 11.x headers expect
    fn get_device_properties_11 as "cudaGetDeviceProperties" (prop: Out<[u8; DEVICE_PROP_11_BYTES]>, device: c_int) {
        prop.check()?;
        let full = DeviceProp12::from(info(device)?);
        // SAFETY: the shorter layout is the beginning of the longer one, which has no uninitialised bytes in
        // use: it was zeroed before it was filled.
        prop.set(unsafe { std::mem::transmute_copy(&full) })
    }

    /// `cudaDeviceGetAttribute`
    fn get_attribute as "cudaDeviceGetAttribute" (value: Out<c_int>, attribute: c_int, device: c_int) {
        value.check()?;
        if !(1..=LAST_ATTRIBUTE).contains(&attribute) {
            return Err(invalid("no such device attribute"));
        }
        value.set(info(device)?.attribute(attribute as u32))
    }

    /// `cudaDeviceSynchronize`, `cudaThreadSynchronize`
    fn synchronize as "cudaDeviceSynchronize" () {
        let (core, context) = enter()?;
        core.device_synchronize(context.ordinal)
    }

    /// `cudaDeviceReset`, `cudaThreadExit`
    fn reset as "cudaDeviceReset" () {
        let core = current()?;
        core.device_reset(core.get_device())
    }

    /// `cudaDeviceGetLimit`, `cudaThreadGetLimit`
    fn get_limit as "cudaDeviceGetLimit" (value: Out<usize>, limit: c_uint) {
        value.check()?;
        let (core, context) = enter()?;
        match limit {
            5 | 6 => value.set(HINT_LIMITS[limit as usize - 5].load(Ordering::Relaxed) as usize),
            _ => value.set(core.get_limit(context.ordinal, Limit::try_from(limit)?)? as usize),
        }
    }

    /// `cudaDeviceSetLimit`, `cudaThreadSetLimit`
    fn set_limit as "cudaDeviceSetLimit" (limit: c_uint, value: usize) {
        let (core, context) = enter()?;
        match limit {
            5 | 6 => {
                HINT_LIMITS[limit as usize - 5].store(value as u64, Ordering::Relaxed);
                Ok(())
            }
            _ => core.set_limit(context.ordinal, Limit::try_from(limit)?, value as u64),
        }
    }

    /// `cudaDeviceGetCacheConfig`, `cudaThreadGetCacheConfig`
    fn get_cache_config as "cudaDeviceGetCacheConfig" (config: Out<c_int>) {
        config.set(CACHE_CONFIG.load(Ordering::Relaxed))
    }

    /// `cudaDeviceSetCacheConfig`, `cudaThreadSetCacheConfig`
    fn set_cache_config as "cudaDeviceSetCacheConfig" (config: c_int) {
        if !(0..=3).contains(&config) {
            return Err(invalid("no such cache configuration"));
        }
        CACHE_CONFIG.store(config, Ordering::Relaxed);
        Ok(())
    }

    /// `cudaDeviceGetSharedMemConfig`
    fn get_shared_config as "cudaDeviceGetSharedMemConfig" (config: Out<c_int>) {
        config.set(BANK_SIZE.load(Ordering::Relaxed))
    }

    /// `cudaDeviceSetSharedMemConfig`: the bank size cannot be changed, which CUDA does not report either.
    fn set_shared_config as "cudaDeviceSetSharedMemConfig" (config: c_int) {
        if (0..=2).contains(&config) { Ok(()) } else { Err(invalid("no such shared memory configuration")) }
    }

    /// `cudaDeviceGetStreamPriorityRange`
    fn stream_priority_range as "cudaDeviceGetStreamPriorityRange" (least: Out<c_int>, greatest: Out<c_int>) {
        let range = current()?.stream_priorities();
        least.set_if_wanted(range.0);
        greatest.set_if_wanted(range.1);
        Ok(())
    }

    /// `cudaDeviceGetPCIBusId`
    fn pci_bus_id as "cudaDeviceGetPCIBusId" (text: Out<c_char>, len: c_int, device: c_int) {
        text.check()?;
        let (domain, bus, slot) = pci_address(info(device)?);
        let address = format!("{domain:04x}:{bus:02x}:{slot:02x}.0");
        // SAFETY: the program says that so many bytes are there.
        unsafe { text.set_text(len.max(0) as usize, &address) }
    }

    /// `cudaDeviceGetByPCIBusId`
    fn by_pci_bus_id as "cudaDeviceGetByPCIBusId" (device: Out<c_int>, text: CStrArg) {
        device.check()?;
        let text = text.c_str()?;
        let address = text.to_str().ok().and_then(parse_pci_address);
        let address = address.ok_or_else(|| invalid("this is not a bus id"))?;
        let core = current()?;
        for ordinal in 0..core.device_count() {
            if pci_address(core.device_info(ordinal)?) == address {
                return device.set(ordinal as c_int);
            }
        }
        Err(Code::InvalidDevice.into())
    }

    /// `cudaDeviceCanAccessPeer`
    fn can_access_peer as "cudaDeviceCanAccessPeer" (can: Out<c_int>, device: c_int, peer: c_int) {
        can.check()?;
        let core = current()?;
        let (device, peer) = (ordinal(core, device)?, ordinal(core, peer)?);
        can.set(c_int::from(device != peer && core.can_access_peer(device, peer)?))
    }

    /// `cudaDeviceEnablePeerAccess`
    fn enable_peer_access as "cudaDeviceEnablePeerAccess" (peer: c_int, flags: c_uint) {
        let (core, context) = enter()?;
        let peer = ordinal(core, peer)?;
        if flags != 0 {
            return Err(invalid("flags must be 0"));
        }
        if peer == context.ordinal {
            return Err(Code::InvalidDevice.into());
        }
        core.enable_peer_access(context.ordinal, peer)
    }

    /// `cudaDeviceDisablePeerAccess`
    fn disable_peer_access as "cudaDeviceDisablePeerAccess" (peer: c_int) {
        let (core, context) = enter()?;
        core.disable_peer_access(context.ordinal, ordinal(core, peer)?)
    }

    /// `cudaDeviceGetP2PAttribute`
    fn p2p_attribute as "cudaDeviceGetP2PAttribute" (value: Out<c_int>, attribute: c_int, from: c_int, to: c_int) {
        value.check()?;
        let core = current()?;
        let (from, to) = (ordinal(core, from)?, ordinal(core, to)?);
        if from == to {
            return Err(Code::InvalidDevice.into());
        }
        let access = c_int::from(core.can_access_peer(from, to)?);
        value.set(match attribute {
            1 => 0,          // performance rank: the best there is
            2 | 3 => access, // access, native atomics
            4 | 5 => 0,      // arrays, partial atomics
            _ => return Err(invalid("no such peer attribute")),
        })
    }

    /// `cudaDeviceGetTexture1DLinearMaxWidth`
    fn texture_1d_linear_max_width as "cudaDeviceGetTexture1DLinearMaxWidth" (
        width: Out<usize>, desc: In<ChannelDesc>, device: c_int,
    ) {
        width.check()?;
        let info = info(device)?;
        desc.get()?.format().ok_or_else(|| invalid("no such channel format"))?;
        width.set(info.attribute(69).max(0) as usize)
    }

    /// `cudaCtxResetPersistingL2Cache`: a hint.
    fn reset_persisting_l2 as "cudaCtxResetPersistingL2Cache" () {
        enter().map(drop)
    }

    /// `cudaMemGetInfo`
    fn mem_get_info as "cudaMemGetInfo" (free: Out<usize>, total: Out<usize>) {
        free.check()?;
        total.check()?;
        let (core, context) = enter()?;
        let info = core.mem_info(context.ordinal)?;
        free.set_if_wanted(info.free as usize);
        total.set_if_wanted(info.total as usize);
        Ok(())
    }

    /// `cudaDriverGetVersion`: 0 where there is no driver, which is no error.
    fn driver_get_version as "cudaDriverGetVersion" (version: Out<c_int>) {
        version.check()?;
        let known = current().and_then(|core| core.device_info(0)).map_or(0, |info| info.driver_version);
        version.set(known as c_int)
    }

    /// `cudaRuntimeGetVersion` of 13.x
    fn runtime_get_version as "cudaRuntimeGetVersion" (version: Out<c_int>) {
        version.set(RUNTIME_VERSION.load(Ordering::Relaxed) as c_int)
    }

    /// `cudaRuntimeGetVersion` of 12.x
    fn runtime_get_version_12 as "cudaRuntimeGetVersion" (version: Out<c_int>) {
        version.set(RUNTIME_VERSION_12.load(Ordering::Relaxed) as c_int)
    }

    /// `cudaProfilerStart` and `cudaProfilerStop`: they speak to a profiler that watches, and none does.
    fn profiler as "cudaProfilerStart" () {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_ids() {
        assert_eq!(parse_pci_address("0000:3b:00.0"), Some((0, 0x3b, 0)));
        assert_eq!(parse_pci_address("3b:1f"), Some((0, 0x3b, 0x1f)));
        assert_eq!(parse_pci_address("1:2:3:4"), None);
        assert_eq!(parse_pci_address("gpu"), None);
    }

    #[test]
    fn the_old_layout_ends_where_the_new_fields_begin() {
        assert_eq!(DEVICE_PROP_11_BYTES, 728);
    }
}
