//! Allocating memory, and asking whose an address is.

use std::collections::HashSet;
use std::ffi::c_void;

use parking_lot::Mutex;

use super::stream::stream_of;
use super::types::*;
use super::*;
use crate::abi::types::MemLocation;
use crate::abi::{In, Out};
use crate::core::{PointerInfo, PointerKind};
use crate::doors::batch::{self, BoxCopy, CopyAttributes};
use crate::doors::{hints, memory, pool};

/// A size of 0 is an error in the driver API.
fn nonzero(bytes: usize) -> Result<u64> {
    if bytes == 0 { Err(Error::new(Code::InvalidValue, "a size is 0")) } else { Ok(bytes as u64) }
}

/// Allocations, by their numbers, for which the program has set `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`. Nothing depends on it:
/// the difference could be seen only by other hardware that reads a GPU's memory past CUDA, of which there is none.
static SYNCHRONOUS: Mutex<Option<HashSet<u64>>> = Mutex::new(None);

fn is_synchronous(info: &PointerInfo) -> bool {
    SYNCHRONOUS.lock().as_ref().is_some_and(|all| all.contains(&info.buffer_id))
}

/// `CU_POINTER_ATTRIBUTE_DEVICE_POINTER`.
const DEVICE_POINTER: u32 = 3;

/// Sets one attribute of a pointer.
fn set_attribute(value: In<c_void>, number: u32, info: &PointerInfo) -> Result<()> {
    if number != 6 {
        return Err(Error::new(Code::InvalidValue, format!("pointer attribute {number} cannot be set")));
    }
    if info.kind == PointerKind::Unregistered {
        return Err(Error::new(Code::InvalidValue, "this is not an address that CUDA knows"));
    }
    // SAFETY: the attribute's value is a truth value in the size of an int.
    let on = unsafe { value.cast::<u32>() }.get()? != 0;
    let mut all = SYNCHRONOUS.lock();
    let all = all.get_or_insert_default();
    if on {
        all.insert(info.buffer_id)
    } else {
        all.remove(&info.buffer_id)
    };
    Ok(())
}

/// Writes one attribute of a pointer, which is of the type that its number says; `Ok(false)` where the address is not
/// CUDA's.
fn attribute(info: &PointerInfo, number: u32, place: Out<c_void>) -> Result<bool> {
    fn set<T>(place: Out<c_void>, value: T) -> Result<()> {
        // SAFETY: the program has room for a value of the attribute's type.
        unsafe { place.cast() }.set(value)
    }
    let known = info.kind != PointerKind::Unregistered;
    let device_side = matches!(info.kind, PointerKind::Device | PointerKind::Managed);
    let memory_type = match (known, device_side) {
        (false, _) => 0,
        (true, true) => MEMORYTYPE_DEVICE,
        (true, false) => MEMORYTYPE_HOST,
    };
    match number {
        1 => set(place, info.context)?,
        2 => set(place, memory_type)?,
        DEVICE_POINTER => set(place, info.device_pointer)?,
        4 => set(place, if known { info.host_pointer } else { 0 })?,
        5 => return Err(not_implemented("CU_POINTER_ATTRIBUTE_P2P_TOKENS")),
        6 => set(place, u32::from(known && is_synchronous(info)))?,
        7 => set(place, info.buffer_id)?,
        8 => set(place, u32::from(info.kind == PointerKind::Managed))?,
        9 => set(place, if known { info.ordinal as i32 } else { -2 })?,
        10 => set(place, 0u32)?,
        11 | 19 => set(place, if known { info.base } else { 0 })?,
        12 | 18 => set(place, info.size)?,
        13 => set(place, u32::from(known))?,
        14 | 15 => set(place, 0u64)?,
        16 => set(place, if known { 3u32 } else { 0 })?,
        17 => set(place, pool::pool_of(info.base))?,
        20 => set(place, info.buffer_id)?,
        // There is no hardware for decompression.
        21 => set(place, 0u32)?,
        _ => {
            return Err(Error::new(Code::InvalidValue, format!("pointer attribute {number} does not exist")));
        }
    }
    Ok(known)
}

door! {
    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) |core| {
        let info = core.mem_info(core.driver_context()?.ordinal)?;
        free.set_if_wanted(info.free as usize);
        total.set_if_wanted(info.total as usize);
        Ok(())
    }
    fn cuMemAlloc_v2(address: Out<DevicePtr>, bytes: usize) |core| {
        let bytes = nonzero(bytes)?;
        if address.is_null() {
            return Err(Code::InvalidValue.into());
        }
        address.set(core.alloc(&core.driver_context()?, bytes)?)
    }
    fn cuMemAllocPitch_v2(address: Out<DevicePtr>, pitch: Out<usize>, width: usize, height: usize, element: u32) |core| {
        if !matches!(element, 4 | 8 | 16) || address.is_null() || pitch.is_null() {
            return Err(Code::InvalidValue.into());
        }
        let (at, step) = core.alloc_pitch(&core.driver_context()?, nonzero(width)?, nonzero(height)?)?;
        address.set(at)?;
        pitch.set(step as usize)
    }
    fn cuMemFree_v2(address: DevicePtr) |core| {
        core.check_current()?;
        memory::free(core, address)
    }
    fn cuMemAllocManaged(address: Out<DevicePtr>, bytes: usize, flags: u32) |core| {
        let bytes = nonzero(bytes)?;
        if address.is_null() || !matches!(flags, 1 | 2) {
            return Err(Code::InvalidValue.into());
        }
        address.set(core.managed_alloc(&core.driver_context()?, bytes, flags)?)
    }
    fn cuMemAllocHost_v2(address: Out<*mut c_void>, bytes: usize) |core| {
        let bytes = nonzero(bytes)?;
        if address.is_null() {
            return Err(Code::InvalidValue.into());
        }
        address.set(core.host_alloc(&core.driver_context()?, bytes, 0)? as *mut c_void)
    }
    fn cuMemHostAlloc(address: Out<*mut c_void>, bytes: usize, flags: u32) |core| {
        let bytes = nonzero(bytes)?;
        if address.is_null() || flags > 7 {
            return Err(Code::InvalidValue.into());
        }
        address.set(core.host_alloc(&core.driver_context()?, bytes, flags)? as *mut c_void)
    }
    fn cuMemFreeHost(address: *mut c_void) |core| {
        core.check_current()?;
        core.host_free(address as u64)
    }
    fn cuMemHostRegister(address: *mut c_void, bytes: usize, flags: u32) |core| {
        core.host_register(&core.driver_context()?, address as u64, nonzero(bytes)?, flags)
    }
    fn cuMemHostRegister_v2(address: *mut c_void, bytes: usize, flags: u32) |core| {
        core.host_register(&core.driver_context()?, address as u64, nonzero(bytes)?, flags)
    }
    fn cuMemHostUnregister(address: *mut c_void) |core| {
        core.check_current()?;
        core.host_unregister(address as u64)
    }
    fn cuMemHostGetDevicePointer_v2(address: Out<DevicePtr>, host: *mut c_void, flags: u32) |core| {
        core.driver_context()?;
        if flags != 0 {
            return Err(Code::InvalidValue.into());
        }
        address.set(core.host_device_pointer(host as u64)?)
    }
    fn cuMemHostGetFlags(flags: Out<u32>, host: *mut c_void) |core| {
        core.driver_context()?;
        flags.set(core.host_flags(host as u64)?)
    }
    fn cuMemGetAddressRange_v2(base: Out<DevicePtr>, bytes: Out<usize>, address: DevicePtr) |core| {
        core.driver_context()?;
        let (start, len) = core.address_range(address)?;
        base.set_if_wanted(start);
        bytes.set_if_wanted(len as usize);
        Ok(())
    }
    fn cuMemAllocAsync<const PT>(address: Out<DevicePtr>, bytes: usize, stream: Opaque) |core| {
        let bytes = nonzero(bytes)?;
        if address.is_null() {
            return Err(Code::InvalidValue.into());
        }
        let stream = stream_of(core, stream, PT)?;
        address.set(memory::alloc_async(core, &core.context(stream.context)?, &stream, bytes)?)
    }
    fn cuMemFreeAsync<const PT>(address: DevicePtr, stream: Opaque) |core| {
        memory::free_async(core, &*stream_of(core, stream, PT)?, address)
    }
    fn cuPointerGetAttribute(place: Out<c_void>, number: u32, address: DevicePtr) |core| {
        core.check_current()?;
        if number == DEVICE_POINTER {
            // This one depends on who asks.
            core.driver_context()?;
        }
        let info = core.pointer_info(address);
        if info.kind == PointerKind::Unregistered {
            return Err(Error::new(Code::InvalidValue, format!("{address:#x} is not an address that CUDA knows")));
        }
        attribute(&info, number, place).map(|_| ())
    }
    fn cuPointerGetAttributes(count: u32, numbers: In<u32>, places: In<Out<c_void>>, address: DevicePtr) |core| {
        core.check_current()?;
        if count == 0 || numbers.is_null() || places.is_null() {
            return Err(Code::InvalidValue.into());
        }
        let info = core.pointer_info(address);
        for i in 0..count as usize {
            // SAFETY: the program says that both lists have `count` entries.
            let (number, place) = unsafe { (numbers.at(i), places.at(i)) };
            attribute(&info, number.get()?, place.get()?)?;
        }
        Ok(())
    }
    fn cuPointerSetAttribute(value: In<c_void>, number: u32, address: DevicePtr) |core| {
        core.check_current()?;
        set_attribute(value, number, &core.pointer_info(address))
    }
    fn cuMemAdvise(address: DevicePtr, bytes: usize, advice: u32, device: Device) |core| {
        core.driver_context()?;
        hints::advise(core, address, bytes as u64, advice, hints::location_of(device))
    }
    fn cuMemAdvise_v2(address: DevicePtr, bytes: usize, advice: u32, place: MemLocation) |core| {
        core.driver_context()?;
        hints::advise(core, address, bytes as u64, advice, place)
    }
    fn cuMemPrefetchAsync<const PT>(address: DevicePtr, bytes: usize, device: Device, stream: Opaque) |core| {
        stream_of(core, stream, PT)?;
        hints::prefetch(core, address, bytes as u64, hints::location_of(device))
    }
    fn cuMemPrefetchAsync_v2<const PT>(
        address: DevicePtr, bytes: usize, place: MemLocation, flags: u32, stream: Opaque,
    ) |core| {
        if flags != 0 {
            return Err(Code::InvalidValue.into());
        }
        stream_of(core, stream, PT)?;
        hints::prefetch(core, address, bytes as u64, place)
    }
    fn cuMemRangeGetAttribute(data: Out<c_void>, len: usize, attribute: u32, address: DevicePtr, bytes: usize) |core| {
        core.driver_context()?;
        // SAFETY: the program says how much room there is.
        unsafe { hints::range_attribute(core, data, len, attribute, address, bytes as u64) }
    }
    fn cuMemRangeGetAttributes(
        places: In<Out<c_void>>, lens: In<usize>, attributes: In<u32>, count: usize, address: DevicePtr, bytes: usize,
    ) |core| {
        core.driver_context()?;
        // SAFETY: the program says how long its lists are, and how much room there is.
        unsafe { hints::range_attributes(core, (places, lens, attributes), count, address, bytes as u64) }
    }
    fn cuMemPrefetchBatchAsync<const PT>(
        addresses: In<u64>, sizes: In<usize>, count: usize, places: In<MemLocation>, firsts: In<usize>, number: usize,
        flags: u64, stream: Opaque,
    ) |core| {
        let stream = stream_of(core, stream, PT)?;
        // SAFETY: the program says how long its lists are.
        unsafe { batch::prefetches(core, &stream, (addresses, sizes), count, (places, firsts, number), flags) }
    }
    fn cuMemDiscardAndPrefetchBatchAsync<const PT>(
        addresses: In<u64>, sizes: In<usize>, count: usize, places: In<MemLocation>, firsts: In<usize>, number: usize,
        flags: u64, stream: Opaque,
    ) |core| {
        let stream = stream_of(core, stream, PT)?;
        // SAFETY: as above.
        unsafe { batch::prefetches(core, &stream, (addresses, sizes), count, (places, firsts, number), flags) }
    }
    fn cuMemDiscardBatchAsync<const PT>(
        addresses: In<u64>, sizes: In<usize>, count: usize, flags: u64, stream: Opaque,
    ) |core| {
        let stream = stream_of(core, stream, PT)?;
        // SAFETY: the program says how long its lists are.
        unsafe { batch::discards(core, &stream, (addresses, sizes), count, flags) }
    }
    fn cuMemcpyBatchAsync<const PT>(
        to: In<u64>, from: In<u64>, sizes: In<usize>, count: usize, attributes: In<CopyAttributes>, firsts: In<usize>,
        number: usize, failed: Out<usize>, stream: Opaque,
    ) |core| {
        let stream = stream_of(core, stream, PT)?;
        // SAFETY: the program says how long its lists are, and what memory it copies.
        unsafe { batch::copies(core, &stream, (to, from, sizes), count, (attributes, firsts, number), Some(failed)) }
    }
    fn cuMemcpyBatchAsync_v2<const PT>(
        to: In<u64>, from: In<u64>, sizes: In<usize>, count: usize, attributes: In<CopyAttributes>, firsts: In<usize>,
        number: usize, stream: Opaque,
    ) |core| {
        let stream = stream_of(core, stream, PT)?;
        // SAFETY: as above.
        unsafe { batch::copies(core, &stream, (to, from, sizes), count, (attributes, firsts, number), None) }
    }
    fn cuMemcpy3DBatchAsync<const PT>(count: usize, list: In<BoxCopy>, failed: Out<usize>, flags: u64, stream: Opaque)
        |core|
    {
        let stream = stream_of(core, stream, PT)?;
        // SAFETY: the program says how long its list is, and what memory it copies.
        unsafe { batch::boxes(core, &stream, list, count, flags, Some(failed)) }
    }
    fn cuMemcpy3DBatchAsync_v2<const PT>(count: usize, list: In<BoxCopy>, flags: u64, stream: Opaque) |core| {
        let stream = stream_of(core, stream, PT)?;
        // SAFETY: as above.
        unsafe { batch::boxes(core, &stream, list, count, flags, None) }
    }
}
