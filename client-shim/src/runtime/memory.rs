//! Allocating and freeing memory of every kind, and asking what an address is.

use std::ffi::{c_int, c_uint, c_void};

use super::entry::{api, enter, enter_stream};
use super::types::{Extent, PitchedPtr, PointerAttributes12, PointerAttributes13};
use crate::abi::types::{MemLocation, StreamRef};
use crate::abi::{In, Out};
use crate::core::error::invalid;
use crate::core::{Code, PointerKind, Result};
use crate::doors::batch::{self, BoxCopy, CopyAttributes};
use crate::doors::hints::{self, NO_DEVICE, location_of};
use crate::doors::memory;

/// `cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined`.
const HOST_ALLOC_FLAGS: c_uint = 7;
/// The same for `cudaHostRegister`, with I/O memory and read-only.
const HOST_REGISTER_FLAGS: c_uint = 15;

/// What `cudaPointerGetAttributes` tells.
fn pointer_attributes(addr: usize) -> Result<PointerAttributes12> {
    let (core, _) = enter()?;
    let info = core.pointer_info(addr as u64);
    Ok(PointerAttributes12 {
        kind: match info.kind {
            PointerKind::Unregistered => 0,
            PointerKind::Host => 1,
            PointerKind::Device => 2,
            PointerKind::Managed => 3,
        },
        device: if info.kind == PointerKind::Unregistered { NO_DEVICE } else { info.ordinal as c_int },
        device_pointer: info.device_pointer as usize,
        host_pointer: info.host_pointer as usize,
    })
}

/// `cudaMemAdvise`.
fn advise(addr: usize, bytes: usize, advice: c_int, place: MemLocation) -> Result<()> {
    let (core, _) = enter()?;
    hints::advise(core, addr as u64, bytes as u64, advice.cast_unsigned(), place)
}

/// `cudaMemPrefetchAsync`.
fn prefetch(
    addr: usize,
    bytes: usize,
    place: MemLocation,
    flags: c_uint,
    stream: StreamRef,
    pt: bool,
) -> Result<()> {
    let (core, _, _) = enter_stream(stream, pt)?;
    if flags != 0 {
        return Err(invalid("flags must be 0"));
    }
    hints::prefetch(core, addr as u64, bytes as u64, place)
}

api! {
    /// `cudaMalloc`
    fn malloc as "cudaMalloc" (ptr: Out<usize>, size: usize) {
        ptr.check()?;
        let (core, context) = enter()?;
        match core.alloc(&context, size as u64) {
            Ok(addr) => ptr.set(addr as usize),
            Err(error) => {
                ptr.set(0)?;
                Err(error)
            }
        }
    }

    /// `cudaFree`: with null it is how programs bring the runtime to life.
    fn free as "cudaFree" (ptr: usize) {
        let (core, _) = enter()?;
        if ptr == 0 {
            return Ok(());
        }
        memory::free(core, ptr as u64)
    }

    /// `cudaMallocPitch`
    fn malloc_pitch as "cudaMallocPitch" (ptr: Out<usize>, pitch: Out<usize>, width: usize, height: usize) {
        ptr.check()?;
        pitch.check()?;
        let (core, context) = enter()?;
        let (addr, row) = core.alloc_pitch(&context, width as u64, height as u64)?;
        ptr.set_if_wanted(addr as usize);
        pitch.set(row as usize)
    }

    /// `cudaMalloc3D`
    fn malloc_3d as "cudaMalloc3D" (ptr: Out<PitchedPtr>, extent: Extent) {
        ptr.check()?;
        let (core, context) = enter()?;
        let rows = extent.height.checked_mul(extent.depth).ok_or(Code::OutOfMemory)?;
        let (addr, row) = core.alloc_pitch(&context, extent.width as u64, rows as u64)?;
        ptr.set(PitchedPtr {
            ptr: addr as usize,
            pitch: row as usize,
            xsize: extent.width,
            ysize: extent.height,
        })
    }

    /// `cudaMallocHost`
    fn malloc_host as "cudaMallocHost" (ptr: Out<usize>, size: usize) {
        ptr.check()?;
        let (core, context) = enter()?;
        ptr.set(core.host_alloc(&context, size as u64, 0)? as usize)
    }

    /// `cudaHostAlloc`
    fn host_alloc as "cudaHostAlloc" (ptr: Out<usize>, size: usize, flags: c_uint) {
        ptr.check()?;
        if flags & !HOST_ALLOC_FLAGS != 0 {
            return Err(invalid("unknown flags"));
        }
        let (core, context) = enter()?;
        ptr.set(core.host_alloc(&context, size as u64, flags)? as usize)
    }

    /// `cudaFreeHost`
    fn free_host as "cudaFreeHost" (ptr: usize) {
        let (core, _) = enter()?;
        if ptr == 0 { Ok(()) } else { core.host_free(ptr as u64) }
    }

    /// `cudaHostRegister`
    fn host_register as "cudaHostRegister" (ptr: usize, size: usize, flags: c_uint) {
        if ptr == 0 || size == 0 || flags & !HOST_REGISTER_FLAGS != 0 {
            return Err(invalid("nothing to register, or unknown flags"));
        }
        let (core, context) = enter()?;
        core.host_register(&context, ptr as u64, size as u64, flags)
    }

    /// `cudaHostUnregister`
    fn host_unregister as "cudaHostUnregister" (ptr: usize) {
        if ptr == 0 {
            return Err(invalid("a null pointer was never registered"));
        }
        enter()?.0.host_unregister(ptr as u64)
    }

    /// `cudaHostGetDevicePointer`
    fn host_get_device_pointer as "cudaHostGetDevicePointer" (device: Out<usize>, host: usize, flags: c_uint) {
        device.check()?;
        if flags != 0 {
            return Err(invalid("flags must be 0"));
        }
        device.set(enter()?.0.host_device_pointer(host as u64)? as usize)
    }

    /// `cudaHostGetFlags`
    fn host_get_flags as "cudaHostGetFlags" (flags: Out<c_uint>, host: usize) {
        flags.check()?;
        flags.set(enter()?.0.host_flags(host as u64)?)
    }

    /// `cudaMallocManaged`
    fn malloc_managed as "cudaMallocManaged" (ptr: Out<usize>, size: usize, flags: c_uint) {
        ptr.check()?;
        if size == 0 || !matches!(flags, 1 | 2) {
            return Err(invalid("managed memory needs a size, and to be attached globally or to the host"));
        }
        let (core, context) = enter()?;
        ptr.set(core.managed_alloc(&context, size as u64, flags)? as usize)
    }

    /// `cudaPointerGetAttributes` of 12.x
    fn pointer_get_attributes_12 as "cudaPointerGetAttributes" (
        attributes: Out<PointerAttributes12>, ptr: usize,
    ) {
        attributes.check()?;
        attributes.set(pointer_attributes(ptr)?)
    }

    /// `cudaPointerGetAttributes` of 13.x
    fn pointer_get_attributes_13 as "cudaPointerGetAttributes" (
        attributes: Out<PointerAttributes13>, ptr: usize,
    ) {
        attributes.check()?;
        attributes.set(PointerAttributes13 { base: pointer_attributes(ptr)?, reserved: [0; 8] })
    }

    /// `cudaMemAdvise` of 12.x
    fn mem_advise_12 as "cudaMemAdvise" (ptr: usize, count: usize, advice: c_int, device: c_int) {
        advise(ptr, count, advice, location_of(device))
    }

    /// `cudaMemAdvise` of 13.x, `cudaMemAdvise_v2` of 12.x
    fn mem_advise as "cudaMemAdvise" (ptr: usize, count: usize, advice: c_int, place: MemLocation) {
        advise(ptr, count, advice, place)
    }

    /// `cudaMemPrefetchAsync` of 12.x
    fn mem_prefetch_12<const PT> as "cudaMemPrefetchAsync" (
        ptr: usize, count: usize, device: c_int, stream: StreamRef,
    ) {
        prefetch(ptr, count, location_of(device), 0, stream, PT)
    }

    /// `cudaMemPrefetchAsync` of 13.x, `cudaMemPrefetchAsync_v2` of 12.x
    fn mem_prefetch<const PT> as "cudaMemPrefetchAsync" (
        ptr: usize, count: usize, place: MemLocation, flags: c_uint, stream: StreamRef,
    ) {
        prefetch(ptr, count, place, flags, stream, PT)
    }

    /// `cudaMemRangeGetAttribute`
    fn mem_range_get_attribute as "cudaMemRangeGetAttribute" (
        data: Out<c_void>, len: usize, attribute: c_int, ptr: usize, count: usize,
    ) {
        let (core, _) = enter()?;
        // SAFETY: the program says how much room there is.
        unsafe { hints::range_attribute(core, data, len, attribute.cast_unsigned(), ptr as u64, count as u64) }
    }

    /// `cudaMemRangeGetAttributes`
    fn mem_range_get_attributes as "cudaMemRangeGetAttributes" (
        places: In<Out<c_void>>, lens: In<usize>, attributes: In<u32>, number: usize, ptr: usize, count: usize,
    ) {
        let (core, _) = enter()?;
        // SAFETY: the program says how long its lists are, and how much room there is.
        unsafe { hints::range_attributes(core, (places, lens, attributes), number, ptr as u64, count as u64) }
    }

    /// `cudaMemPrefetchBatchAsync`
    fn prefetch_batch<const PT> as "cudaMemPrefetchBatchAsync" (
        ptrs: In<u64>, sizes: In<usize>, count: usize, places: In<MemLocation>, firsts: In<usize>, number: usize,
        flags: u64, stream: StreamRef,
    ) {
        let (core, _, stream) = enter_stream(stream, PT)?;
        // SAFETY: the program says how long its lists are.
        unsafe { batch::prefetches(core, &stream, (ptrs, sizes), count, (places, firsts, number), flags) }
    }

    /// `cudaMemDiscardAndPrefetchBatchAsync`
    fn discard_and_prefetch_batch<const PT> as "cudaMemDiscardAndPrefetchBatchAsync" (
        ptrs: In<u64>, sizes: In<usize>, count: usize, places: In<MemLocation>, firsts: In<usize>, number: usize,
        flags: u64, stream: StreamRef,
    ) {
        let (core, _, stream) = enter_stream(stream, PT)?;
        // SAFETY: as above.
        unsafe { batch::prefetches(core, &stream, (ptrs, sizes), count, (places, firsts, number), flags) }
    }

    /// `cudaMemDiscardBatchAsync`
    fn discard_batch<const PT> as "cudaMemDiscardBatchAsync" (
        ptrs: In<u64>, sizes: In<usize>, count: usize, flags: u64, stream: StreamRef,
    ) {
        let (core, _, stream) = enter_stream(stream, PT)?;
        // SAFETY: the program says how long its lists are.
        unsafe { batch::discards(core, &stream, (ptrs, sizes), count, flags) }
    }

    /// `cudaMemcpyBatchAsync` of 12.8 and 12.9
    fn copy_batch_12<const PT> as "cudaMemcpyBatchAsync" (
        dsts: In<u64>, srcs: In<u64>, sizes: In<usize>, count: usize, attributes: In<CopyAttributes>,
        firsts: In<usize>, number: usize, failed: Out<usize>, stream: StreamRef,
    ) {
        let (core, _, stream) = enter_stream(stream, PT)?;
        // SAFETY: the program says how long its lists are, and what memory it copies.
        unsafe { batch::copies(core, &stream, (dsts, srcs, sizes), count, (attributes, firsts, number), Some(failed)) }
    }

    /// `cudaMemcpyBatchAsync` of 13.x
    fn copy_batch<const PT> as "cudaMemcpyBatchAsync" (
        dsts: In<u64>, srcs: In<u64>, sizes: In<usize>, count: usize, attributes: In<CopyAttributes>,
        firsts: In<usize>, number: usize, stream: StreamRef,
    ) {
        let (core, _, stream) = enter_stream(stream, PT)?;
        // SAFETY: as above.
        unsafe { batch::copies(core, &stream, (dsts, srcs, sizes), count, (attributes, firsts, number), None) }
    }

    /// `cudaMemcpy3DBatchAsync` of 12.8 and 12.9
    fn box_batch_12<const PT> as "cudaMemcpy3DBatchAsync" (
        count: usize, list: In<BoxCopy>, failed: Out<usize>, flags: u64, stream: StreamRef,
    ) {
        let (core, _, stream) = enter_stream(stream, PT)?;
        // SAFETY: the program says how long its list is, and what memory it copies.
        unsafe { batch::boxes(core, &stream, list, count, flags, Some(failed)) }
    }

    /// `cudaMemcpy3DBatchAsync` of 13.x
    fn box_batch<const PT> as "cudaMemcpy3DBatchAsync" (
        count: usize, list: In<BoxCopy>, flags: u64, stream: StreamRef,
    ) {
        let (core, _, stream) = enter_stream(stream, PT)?;
        // SAFETY: as above.
        unsafe { batch::boxes(core, &stream, list, count, flags, None) }
    }

    /// `cudaGetSymbolAddress`
    fn get_symbol_address as "cudaGetSymbolAddress" (ptr: Out<usize>, symbol: *const c_void) {
        ptr.check()?;
        let (core, context) = enter()?;
        ptr.set(core.symbol_for(&context, symbol)?.0 as usize)
    }

    /// `cudaGetSymbolSize`
    fn get_symbol_size as "cudaGetSymbolSize" (size: Out<usize>, symbol: *const c_void) {
        size.check()?;
        let (core, context) = enter()?;
        size.set(core.symbol_for(&context, symbol)?.1 as usize)
    }

    /// `cudaMallocAsync`
    fn malloc_async<const PT> as "cudaMallocAsync" (ptr: Out<usize>, size: usize, stream: StreamRef) {
        ptr.check()?;
        let (core, context, stream) = enter_stream(stream, PT)?;
        ptr.set(memory::alloc_async(core, &context, &stream, size as u64)? as usize)
    }

    /// `cudaFreeAsync`
    fn free_async<const PT> as "cudaFreeAsync" (ptr: usize, stream: StreamRef) {
        let (core, _, stream) = enter_stream(stream, PT)?;
        if ptr == 0 {
            return Err(invalid("null was never allocated"));
        }
        memory::free_async(core, &stream, ptr as u64)
    }

    /// `cudaStreamAttachMemAsync`: which stream uses managed memory is a hint here, where host and device may
    /// use it at the same time.
    fn stream_attach_mem<const PT> as "cudaStreamAttachMemAsync" (
        stream: StreamRef, ptr: usize, length: usize, flags: c_uint,
    ) {
        let (core, _, _) = enter_stream(stream, PT)?;
        if !matches!(flags, 1 | 2 | 4) {
            return Err(invalid("unknown flags"));
        }
        let info = core.pointer_info(ptr as u64);
        let whole = length == 0 || length as u64 == info.size;
        if info.kind == PointerKind::Managed && info.base == ptr as u64 && whole {
            Ok(())
        } else {
            Err(invalid("this is not a whole piece of managed memory"))
        }
    }
}
