//! Copies and fills.

use std::ffi::{c_int, c_void};

use rgpu_device::Region;

use super::entry::{api, enter_stream};
use super::types::{ArrayRef, Extent, Memcpy3DParms, Memcpy3DPeerParms, PitchedPtr, Pos, kind};
use crate::abi::In;
use crate::abi::types::StreamRef;
use crate::core::array::array;
use crate::core::error::invalid;
use crate::core::{Code, CopyBox, CopySide, Direction, Result, Wait, current};
use crate::doors::ordinal;

/// A plain copy.
fn copy(
    dst: usize,
    src: usize,
    count: usize,
    kind: c_int,
    stream: StreamRef,
    wait: Wait,
    pt: bool,
) -> Result<()> {
    let direction = Direction::from_number(kind as u32)?;
    let (core, _, stream) = enter_stream(stream, pt)?;
    core.copy(&stream, dst as u64, src as u64, count as u64, direction, wait)
}

/// A copy of a rectangle.
#[allow(clippy::too_many_arguments)]
fn copy_2d(
    dst: usize,
    dst_pitch: usize,
    src: usize,
    src_pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
    stream: StreamRef,
    wait: Wait,
    pt: bool,
) -> Result<()> {
    let direction = Direction::from_number(kind as u32)?;
    if width > dst_pitch || width > src_pitch {
        return Err(Code::InvalidPitchValue.into());
    }
    let (core, _, stream) = enter_stream(stream, pt)?;
    let what = CopyBox {
        dst: CopySide { addr: dst as u64, row_pitch: dst_pitch as u64, slice_pitch: 0 },
        src: CopySide { addr: src as u64, row_pitch: src_pitch as u64, slice_pitch: 0 },
        width: width as u64,
        height: height as u64,
        depth: 1,
    };
    core.copy_box(&stream, &what, direction, wait)
}

/// One side of a box copy: an array or a pointer, of which exactly one must be given.
fn side(array_ref: ArrayRef, pos: Pos, ptr: PitchedPtr, extent: Extent, element: usize) -> Result<CopySide> {
    let bytes = |n: usize, size: usize| n.checked_mul(size).ok_or_else(|| invalid("a copy is too large"));
    let width = bytes(extent.width, element)?;
    match (array_ref, ptr.ptr) {
        (0, 0) => Err(invalid("one side of the copy has neither an array nor a pointer")),
        (0, addr) => {
            let slice = bytes(ptr.pitch, ptr.ysize)?;
            let offset = bytes(pos.y, ptr.pitch)?
                .checked_add(bytes(pos.z, slice)?)
                .and_then(|o| o.checked_add(pos.x))
                .and_then(|o| o.checked_add(addr))
                .ok_or_else(|| invalid("a copy begins beyond all memory"))?;
            Ok(CopySide { addr: offset as u64, row_pitch: ptr.pitch as u64, slice_pitch: slice as u64 })
        }
        (raw, 0) => {
            let array = array(raw)?;
            array.place((bytes(pos.x, array.element())?, pos.y, pos.z), (width, extent.height, extent.depth))
        }
        _ => Err(invalid("one side of the copy has both an array and a pointer")),
    }
}

/// What a 3D copy's parameters describe. Where an array takes part, widths count its elements.
pub(crate) fn copy_box_of(p: &Memcpy3DParms) -> Result<CopyBox> {
    let element_of = |raw: ArrayRef| if raw == 0 { Ok(1) } else { array(raw).map(|a| a.element()) };
    let (from, to) = (element_of(p.src_array)?, element_of(p.dst_array)?);
    if p.src_array != 0 && p.dst_array != 0 && from != to {
        return Err(invalid("the arrays' elements have different sizes"));
    }
    let element = from.max(to);
    let what = CopyBox {
        src: side(p.src_array, p.src_pos, p.src_ptr, p.extent, element)?,
        dst: side(p.dst_array, p.dst_pos, p.dst_ptr, p.extent, element)?,
        width: (p.extent.width as u64).saturating_mul(element as u64),
        height: p.extent.height as u64,
        depth: p.extent.depth as u64,
    };
    let rows = what.height > 1 || what.depth > 1;
    if rows && (what.src.row_pitch < what.width || what.dst.row_pitch < what.width) {
        return Err(Code::InvalidPitchValue.into());
    }
    Ok(what)
}

/// A copy of a box. An empty one is fine whatever else is in the parameters.
pub(crate) fn copy_3d(p: &Memcpy3DParms, stream: StreamRef, wait: Wait, pt: bool) -> Result<()> {
    let direction = Direction::from_number(p.kind as u32)?;
    let (core, _, stream) = enter_stream(stream, pt)?;
    let Extent { width, height, depth } = p.extent;
    if width == 0 || height == 0 || depth == 0 {
        return Ok(());
    }
    core.copy_box(&stream, &copy_box_of(p)?, direction, wait)
}

/// A 3D copy between devices, which the addresses tell already.
fn copy_3d_peer(p: In<Memcpy3DPeerParms>, stream: StreamRef, wait: Wait, pt: bool) -> Result<()> {
    let p = p.get()?;
    let core = current()?;
    ordinal(core, p.src_device)?;
    ordinal(core, p.dst_device)?;
    let params = Memcpy3DParms {
        src_array: p.src_array,
        src_pos: p.src_pos,
        src_ptr: p.src_ptr,
        dst_array: p.dst_array,
        dst_pos: p.dst_pos,
        dst_ptr: p.dst_ptr,
        extent: p.extent,
        kind: kind::DEFAULT,
    };
    copy_3d(&params, stream, wait, pt)
}

/// A copy between two devices.
fn copy_peer(
    (dst, dst_device): (usize, c_int),
    (src, src_device): (usize, c_int),
    count: usize,
    stream: StreamRef,
    wait: Wait,
    pt: bool,
) -> Result<()> {
    let core = current()?;
    ordinal(core, dst_device)?;
    ordinal(core, src_device)?;
    copy(dst, src, count, kind::DEFAULT, stream, wait, pt)
}

/// A copy to or from a module-level variable.
#[allow(clippy::too_many_arguments)]
fn copy_symbol(
    symbol: *const c_void,
    offset: usize,
    other: usize,
    count: usize,
    to_symbol: bool,
    number: c_int,
    stream: StreamRef,
    wait: Wait,
    pt: bool,
) -> Result<()> {
    let direction = Direction::from_number(number as u32)?;
    let wrong = if to_symbol { kind::DEVICE_TO_HOST } else { kind::HOST_TO_DEVICE };
    if number == wrong || number == kind::HOST_TO_HOST {
        return Err(Code::InvalidMemcpyDirection.into());
    }
    let (core, context, stream) = enter_stream(stream, pt)?;
    let (addr, size) = core.symbol_for(&context, symbol)?;
    let end = (offset as u64).checked_add(count as u64);
    if end.is_none_or(|end| end > size) {
        return Err(invalid("the copy reaches over the end of the variable"));
    }
    let place = addr + offset as u64;
    let (dst, src) = if to_symbol { (place, other as u64) } else { (other as u64, place) };
    core.copy(&stream, dst, src, count as u64, direction, wait)
}

/// Fills a run of bytes.
fn fill(ptr: usize, value: c_int, count: usize, stream: StreamRef, wait: Wait, pt: bool) -> Result<()> {
    let (core, _, stream) = enter_stream(stream, pt)?;
    core.fill(&stream, Region::linear(ptr as u64, count as u64), value as u8 as u32, 1, wait)
}

/// Fills a box.
#[allow(clippy::too_many_arguments)]
fn fill_box(
    ptr: PitchedPtr,
    value: c_int,
    extent: Extent,
    stream: StreamRef,
    wait: Wait,
    pt: bool,
) -> Result<()> {
    let (core, _, stream) = enter_stream(stream, pt)?;
    if extent.width > ptr.pitch && (extent.height > 1 || extent.depth > 1) {
        return Err(invalid("the rows are wider than the pitch"));
    }
    let slice = ptr.pitch.checked_mul(ptr.ysize).ok_or_else(|| invalid("a slice is too large"))?;
    let region = Region {
        addr: ptr.ptr as u64,
        row_pitch: ptr.pitch as u64,
        slice_pitch: slice as u64,
        width: extent.width as u64,
        height: extent.height as u64,
        depth: extent.depth as u64,
    };
    core.fill(&stream, region, value as u8 as u32, 1, wait)
}

/// Fills a rectangle.
#[allow(clippy::too_many_arguments)]
fn fill_2d(
    ptr: usize,
    pitch: usize,
    value: c_int,
    width: usize,
    height: usize,
    stream: StreamRef,
    wait: Wait,
    pt: bool,
) -> Result<()> {
    let ptr = PitchedPtr { ptr, pitch, xsize: width, ysize: height };
    fill_box(ptr, value, Extent { width, height, depth: 1 }, stream, wait, pt)
}

api! {
    /// `cudaMemcpy`
    fn memcpy<const PT> as "cudaMemcpy" (dst: usize, src: usize, count: usize, kind: c_int) {
        copy(dst, src, count, kind, 0, Wait::Sync, PT)
    }

    /// `cudaMemcpyAsync`
    fn memcpy_async<const PT> as "cudaMemcpyAsync" (
        dst: usize, src: usize, count: usize, kind: c_int, stream: StreamRef,
    ) {
        copy(dst, src, count, kind, stream, Wait::Async, PT)
    }

    /// `cudaMemcpy2D`
    fn memcpy_2d<const PT> as "cudaMemcpy2D" (
        dst: usize, dpitch: usize, src: usize, spitch: usize, width: usize, height: usize, kind: c_int,
    ) {
        copy_2d(dst, dpitch, src, spitch, width, height, kind, 0, Wait::Sync, PT)
    }

    /// `cudaMemcpy2DAsync`
    fn memcpy_2d_async<const PT> as "cudaMemcpy2DAsync" (
        dst: usize, dpitch: usize, src: usize, spitch: usize, width: usize, height: usize, kind: c_int,
        stream: StreamRef,
    ) {
        copy_2d(dst, dpitch, src, spitch, width, height, kind, stream, Wait::Async, PT)
    }

    /// `cudaMemcpy3D`
    fn memcpy_3d<const PT> as "cudaMemcpy3D" (p: In<Memcpy3DParms>) {
        copy_3d(&p.get()?, 0, Wait::Sync, PT)
    }

    /// `cudaMemcpy3DAsync`
    fn memcpy_3d_async<const PT> as "cudaMemcpy3DAsync" (p: In<Memcpy3DParms>, stream: StreamRef) {
        copy_3d(&p.get()?, stream, Wait::Async, PT)
    }

    /// `cudaMemcpy3DPeer`
    fn memcpy_3d_peer<const PT> as "cudaMemcpy3DPeer" (p: In<Memcpy3DPeerParms>) {
        copy_3d_peer(p, 0, Wait::Sync, PT)
    }

    /// `cudaMemcpy3DPeerAsync`
    fn memcpy_3d_peer_async<const PT> as "cudaMemcpy3DPeerAsync" (p: In<Memcpy3DPeerParms>, stream: StreamRef) {
        copy_3d_peer(p, stream, Wait::Async, PT)
    }

    /// `cudaMemcpyPeer`
    fn memcpy_peer as "cudaMemcpyPeer" (
        dst: usize, dst_device: c_int, src: usize, src_device: c_int, count: usize,
    ) {
        copy_peer((dst, dst_device), (src, src_device), count, 0, Wait::Sync, false)
    }

    /// `cudaMemcpyPeerAsync`
    fn memcpy_peer_async as "cudaMemcpyPeerAsync" (
        dst: usize, dst_device: c_int, src: usize, src_device: c_int, count: usize, stream: StreamRef,
    ) {
        copy_peer((dst, dst_device), (src, src_device), count, stream, Wait::Async, false)
    }

    /// `cudaMemcpyToSymbol`
    fn memcpy_to_symbol<const PT> as "cudaMemcpyToSymbol" (
        symbol: *const c_void, src: usize, count: usize, offset: usize, kind: c_int,
    ) {
        copy_symbol(symbol, offset, src, count, true, kind, 0, Wait::Sync, PT)
    }

    /// `cudaMemcpyToSymbolAsync`
    fn memcpy_to_symbol_async<const PT> as "cudaMemcpyToSymbolAsync" (
        symbol: *const c_void, src: usize, count: usize, offset: usize, kind: c_int, stream: StreamRef,
    ) {
        copy_symbol(symbol, offset, src, count, true, kind, stream, Wait::Async, PT)
    }

    /// `cudaMemcpyFromSymbol`
    fn memcpy_from_symbol<const PT> as "cudaMemcpyFromSymbol" (
        dst: usize, symbol: *const c_void, count: usize, offset: usize, kind: c_int,
    ) {
        copy_symbol(symbol, offset, dst, count, false, kind, 0, Wait::Sync, PT)
    }

    /// `cudaMemcpyFromSymbolAsync`
    fn memcpy_from_symbol_async<const PT> as "cudaMemcpyFromSymbolAsync" (
        dst: usize, symbol: *const c_void, count: usize, offset: usize, kind: c_int, stream: StreamRef,
    ) {
        copy_symbol(symbol, offset, dst, count, false, kind, stream, Wait::Async, PT)
    }

    /// `cudaMemset`
    fn memset<const PT> as "cudaMemset" (ptr: usize, value: c_int, count: usize) {
        fill(ptr, value, count, 0, Wait::Sync, PT)
    }

    /// `cudaMemsetAsync`
    fn memset_async<const PT> as "cudaMemsetAsync" (ptr: usize, value: c_int, count: usize, stream: StreamRef) {
        fill(ptr, value, count, stream, Wait::Async, PT)
    }

    /// `cudaMemset2D`
    fn memset_2d<const PT> as "cudaMemset2D" (
        ptr: usize, pitch: usize, value: c_int, width: usize, height: usize,
    ) {
        fill_2d(ptr, pitch, value, width, height, 0, Wait::Sync, PT)
    }

    /// `cudaMemset2DAsync`
    fn memset_2d_async<const PT> as "cudaMemset2DAsync" (
        ptr: usize, pitch: usize, value: c_int, width: usize, height: usize, stream: StreamRef,
    ) {
        fill_2d(ptr, pitch, value, width, height, stream, Wait::Async, PT)
    }

    /// `cudaMemset3D`
    fn memset_3d<const PT> as "cudaMemset3D" (ptr: PitchedPtr, value: c_int, extent: Extent) {
        fill_box(ptr, value, extent, 0, Wait::Sync, PT)
    }

    /// `cudaMemset3DAsync`
    fn memset_3d_async<const PT> as "cudaMemset3DAsync" (
        ptr: PitchedPtr, value: c_int, extent: Extent, stream: StreamRef,
    ) {
        fill_box(ptr, value, extent, stream, Wait::Async, PT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_in_plain_memory() {
        let p = Memcpy3DParms {
            src_pos: Pos { x: 3, y: 2, z: 1 },
            src_ptr: PitchedPtr { ptr: 0x1000, pitch: 64, xsize: 60, ysize: 10 },
            dst_ptr: PitchedPtr { ptr: 0x9000, pitch: 32, xsize: 32, ysize: 4 },
            extent: Extent { width: 16, height: 4, depth: 2 },
            kind: kind::DEVICE_TO_HOST,
            ..Memcpy3DParms::default()
        };
        let what = copy_box_of(&p).unwrap();
        assert_eq!(what.src, CopySide { addr: 0x1000 + 640 + 128 + 3, row_pitch: 64, slice_pitch: 640 });
        assert_eq!(what.dst, CopySide { addr: 0x9000, row_pitch: 32, slice_pitch: 128 });
        assert_eq!((what.width, what.height, what.depth), (16, 4, 2));

        let narrow = Memcpy3DParms { dst_ptr: PitchedPtr { pitch: 8, ..p.dst_ptr }, ..p };
        assert_eq!(copy_box_of(&narrow).unwrap_err().code, Code::InvalidPitchValue);
        let nowhere = Memcpy3DParms { dst_ptr: PitchedPtr::default(), ..p };
        assert_eq!(copy_box_of(&nowhere).unwrap_err().code, Code::InvalidValue);
    }
}
