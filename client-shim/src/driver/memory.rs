//! Allocating memory, and asking whose an address is.

use super::stream::stream_of;
use super::types::*;
use super::*;
use crate::core::{PointerInfo, PointerKind};

/// A size of 0 is an error in the driver API.
fn nonzero(bytes: usize) -> Result<u64> {
    if bytes == 0 { Err(Error::new(Code::InvalidValue, "a size is 0")) } else { Ok(bytes as u64) }
}

/// Writes one attribute of a pointer; `Ok(false)` where the address is not CUDA's.
fn attribute(info: &PointerInfo, number: u32, place: *mut c_void) -> Result<bool> {
    let known = info.kind != PointerKind::Unregistered;
    let device_side = matches!(info.kind, PointerKind::Device | PointerKind::Managed);
    match number {
        1 => set(place.cast(), info.context)?,
        2 => set(
            place.cast(),
            if !known {
                0u32
            } else if device_side {
                MEMORYTYPE_DEVICE
            } else {
                MEMORYTYPE_HOST
            },
        )?,
        3 => set(place.cast(), info.device_pointer)?,
        4 => set(place.cast(), if known { info.host_pointer } else { 0 })?,
        6 => set(place.cast(), 0u32)?,
        7 => set(place.cast(), info.buffer_id)?,
        8 => set(place.cast(), u32::from(info.kind == PointerKind::Managed))?,
        9 => set(place.cast(), if known { info.ordinal as i32 } else { -2 })?,
        10 => set(place.cast(), 0u32)?,
        11 | 19 => set(place.cast(), if known { info.base } else { 0 })?,
        12 | 18 => set(place.cast(), info.size)?,
        13 => set(place.cast(), u32::from(known))?,
        14 | 15 => set(place.cast(), 0u64)?,
        16 => set(place.cast(), if known { 3u32 } else { 0 })?,
        17 => set(place.cast(), 0usize)?,
        20 => set(place.cast(), info.buffer_id)?,
        _ => {
            return Err(Error::new(Code::InvalidValue, format!("pointer attribute {number} does not exist")));
        }
    }
    Ok(known)
}

door! {
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |core| {
        let info = core.mem_info(core.driver_context()?.ordinal)?;
        set_if_wanted(free, info.free as usize);
        set_if_wanted(total, info.total as usize);
        Ok(())
    }
    fn cuMemAlloc_v2(address: *mut DevicePtr, bytes: usize) |core| {
        let bytes = nonzero(bytes)?;
        if address.is_null() {
            return Err(Code::InvalidValue.into());
        }
        set(address, core.alloc(&core.driver_context()?, bytes)?)
    }
    fn cuMemAllocPitch_v2(address: *mut DevicePtr, pitch: *mut usize, width: usize, height: usize, element: u32) |core| {
        if !matches!(element, 4 | 8 | 16) || address.is_null() || pitch.is_null() {
            return Err(Code::InvalidValue.into());
        }
        let (at, step) = core.alloc_pitch(&core.driver_context()?, nonzero(width)?, nonzero(height)?)?;
        set(address, at)?;
        set(pitch, step as usize)
    }
    fn cuMemFree_v2(address: DevicePtr) |core| {
        core.driver_context()?;
        core.free(address)
    }
    fn cuMemAllocManaged(address: *mut DevicePtr, bytes: usize, flags: u32) |core| {
        let bytes = nonzero(bytes)?;
        if address.is_null() || !matches!(flags, 1 | 2) {
            return Err(Code::InvalidValue.into());
        }
        set(address, core.managed_alloc(&core.driver_context()?, bytes, flags)?)
    }
    fn cuMemAllocHost_v2(address: *mut *mut c_void, bytes: usize) |core| {
        let bytes = nonzero(bytes)?;
        if address.is_null() {
            return Err(Code::InvalidValue.into());
        }
        set(address, core.host_alloc(&core.driver_context()?, bytes, 0)? as *mut c_void)
    }
    fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: u32) |core| {
        let bytes = nonzero(bytes)?;
        if address.is_null() || flags > 7 {
            return Err(Code::InvalidValue.into());
        }
        set(address, core.host_alloc(&core.driver_context()?, bytes, flags)? as *mut c_void)
    }
    fn cuMemFreeHost(address: *mut c_void) |core| {
        core.driver_context()?;
        core.host_free(address as u64)
    }
    fn cuMemHostRegister(address: *mut c_void, bytes: usize, flags: u32) |core| {
        core.host_register(&core.driver_context()?, address as u64, nonzero(bytes)?, flags)
    }
    fn cuMemHostRegister_v2(address: *mut c_void, bytes: usize, flags: u32) |core| {
        core.host_register(&core.driver_context()?, address as u64, nonzero(bytes)?, flags)
    }
    fn cuMemHostUnregister(address: *mut c_void) |core| {
        core.driver_context()?;
        core.host_unregister(address as u64)
    }
    fn cuMemHostGetDevicePointer_v2(address: *mut DevicePtr, host: *mut c_void, flags: u32) |core| {
        core.driver_context()?;
        if flags != 0 {
            return Err(Code::InvalidValue.into());
        }
        set(address, core.host_device_pointer(host as u64)?)
    }
    fn cuMemHostGetFlags(flags: *mut u32, host: *mut c_void) |core| {
        core.driver_context()?;
        set(flags, core.host_flags(host as u64)?)
    }
    fn cuMemGetAddressRange_v2(base: *mut DevicePtr, bytes: *mut usize, address: DevicePtr) |core| {
        core.driver_context()?;
        let (start, len) = core.address_range(address)?;
        set_if_wanted(base, start);
        set_if_wanted(bytes, len as usize);
        Ok(())
    }
    fn cuMemAllocAsync / cuMemAllocAsync_ptsz(address: *mut DevicePtr, bytes: usize, stream: Opaque) |core, PER_THREAD| {
        let bytes = nonzero(bytes)?;
        if address.is_null() {
            return Err(Code::InvalidValue.into());
        }
        let stream = stream_of(core, stream, PER_THREAD)?;
        set(address, core.alloc_async(&core.driver_context()?, &stream, bytes)?)
    }
    fn cuMemFreeAsync / cuMemFreeAsync_ptsz(address: DevicePtr, stream: Opaque) |core, PER_THREAD| {
        core.free_async(&*stream_of(core, stream, PER_THREAD)?, address)
    }
    fn cuPointerGetAttribute(place: *mut c_void, number: u32, address: DevicePtr) |core| {
        core.driver_context()?;
        let info = core.pointer_info(address);
        if info.kind == PointerKind::Unregistered {
            return Err(Error::new(Code::InvalidValue, format!("{address:#x} is not an address that CUDA knows")));
        }
        attribute(&info, number, place).map(|_| ())
    }
    fn cuPointerGetAttributes(count: u32, numbers: *const u32, places: *mut *mut c_void, address: DevicePtr) |core| {
        core.driver_context()?;
        if count == 0 || numbers.is_null() || places.is_null() {
            return Err(Code::InvalidValue.into());
        }
        let info = core.pointer_info(address);
        for i in 0..count as usize {
            // SAFETY: the caller says that both lists have `count` entries.
            let (number, place) = unsafe { (numbers.add(i).read_unaligned(), places.add(i).read_unaligned()) };
            attribute(&info, number, place)?;
        }
        Ok(())
    }
    fn cuPointerSetAttribute(value: *const c_void, number: u32, address: DevicePtr) |core| {
        // Only SYNC_MEMOPS can be set, and copies are ordered as it asks.
        if number != 6 || value.is_null() || core.pointer_info(address).kind == PointerKind::Unregistered {
            return Err(Code::InvalidValue.into());
        }
        Ok(())
    }
    fn cuMemAdvise(_address: DevicePtr, _bytes: usize, advice: u32, _device: Device) |core| {
        // Advice is a hint.
        if matches!(advice, 1..=6) { Ok(()) } else { Err(Code::InvalidValue.into()) }
    }
    fn cuMemAdvise_v2(_address: DevicePtr, _bytes: usize, advice: u32, _location: u64) |core| {
        if matches!(advice, 1..=6) { Ok(()) } else { Err(Code::InvalidValue.into()) }
    }
    fn cuMemPrefetchAsync / cuMemPrefetchAsync_ptsz(address: DevicePtr, _bytes: usize, _device: Device, stream: Opaque)
        |core, PER_THREAD|
    {
        stream_of(core, stream, PER_THREAD)?;
        managed(core, address)
    }
    fn cuMemPrefetchAsync_v2 / cuMemPrefetchAsync_v2_ptsz(
        address: DevicePtr, _bytes: usize, _location: u64, flags: u32, stream: Opaque,
    ) |core, PER_THREAD| {
        if flags != 0 {
            return Err(Code::InvalidValue.into());
        }
        stream_of(core, stream, PER_THREAD)?;
        managed(core, address)
    }
}

/// Prefetching is a hint, but its address must be managed memory.
fn managed(core: &Core, address: u64) -> Result<()> {
    match core.pointer_info(address).kind {
        PointerKind::Managed => Ok(()),
        _ => Err(Error::new(Code::InvalidValue, format!("{address:#x} is not managed memory"))),
    }
}
