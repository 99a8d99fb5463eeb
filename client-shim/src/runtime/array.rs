//! Arrays, and copies to and from them.

use std::ffi::{c_int, c_uint};

use super::entry::{api, enter, enter_stream};
use super::types::{ArrayRef, ChannelDesc, Extent};
use crate::abi::types::StreamRef;
use crate::abi::{In, Out, c_functions};
use crate::core::array::{Shape, array, mipmapped, pairs};
use crate::core::error::invalid;
use crate::core::{Code, CopyBox, CopySide, Direction, Error, Result, Wait};

/// Creates an array, or one with so many mipmap levels.
fn create(
    out: Out<ArrayRef>,
    desc: In<ChannelDesc>,
    extent: Extent,
    flags: c_uint,
    levels: Option<c_uint>,
) -> Result<()> {
    out.check()?;
    let desc = desc.get()?;
    let format = desc.format().ok_or_else(|| Error::new(Code::InvalidChannelDescriptor, "no such format"))?;
    let size = [extent.width, extent.height, extent.depth];
    let shape = Shape { size, format, flags };
    let (core, context) = enter()?;
    out.set(match levels {
        None => core.create_array(&context, shape)?,
        Some(levels) => core.create_mipmapped(&context, shape, levels)?,
    })
}

/// Copies `count` bytes between the rows of an array and plain memory.
#[allow(clippy::too_many_arguments)]
fn copy_rows(
    array: ArrayRef,
    (x, y): (usize, usize),
    linear: usize,
    count: usize,
    to_array: bool,
    kind: c_int,
    stream: StreamRef,
    wait: Wait,
    pt: bool,
) -> Result<()> {
    let (core, _, stream) = enter_stream(stream, pt)?;
    let direction = Direction::from_number(kind as u32)?;
    let mut linear = linear as u64;
    for (addr, len) in crate::core::array::array(array)?.runs(x, y, count)? {
        let (dst, src) = if to_array { (addr, linear) } else { (linear, addr) };
        core.copy(&stream, dst, src, len, direction, wait)?;
        linear += len;
    }
    Ok(())
}

/// Copies a rectangle (`width` in bytes) between two places.
#[allow(clippy::too_many_arguments)]
fn copy_rectangle(
    dst: CopySide,
    src: CopySide,
    width: usize,
    height: usize,
    kind: c_int,
    stream: StreamRef,
    wait: Wait,
    pt: bool,
) -> Result<()> {
    let (core, _, stream) = enter_stream(stream, pt)?;
    let direction = Direction::from_number(kind as u32)?;
    let what = CopyBox { dst, src, width: width as u64, height: height as u64, depth: 1 };
    core.copy_box(&stream, &what, direction, wait)
}

/// A rectangle in plain memory.
fn pitched(addr: usize, pitch: usize) -> CopySide {
    CopySide { addr: addr as u64, row_pitch: pitch as u64, slice_pitch: 0 }
}

c_functions! {
    /// `cudaCreateChannelDesc`
    fn create_channel_desc(
        x: c_int,
        y: c_int,
        z: c_int,
        w: c_int,
        f: c_int,
    ) -> ChannelDesc {
        ChannelDesc { x, y, z, w, f }
    }
}

api! {
    /// `cudaMallocArray`
    fn malloc_array as "cudaMallocArray" (
        array: Out<ArrayRef>, desc: In<ChannelDesc>, width: usize, height: usize, flags: c_uint,
    ) {
        create(array, desc, Extent { width, height, depth: 0 }, flags, None)
    }

    /// `cudaMalloc3DArray`
    fn malloc_3d_array as "cudaMalloc3DArray" (
        array: Out<ArrayRef>, desc: In<ChannelDesc>, extent: Extent, flags: c_uint,
    ) {
        create(array, desc, extent, flags, None)
    }

    /// `cudaFreeArray`
    fn free_array as "cudaFreeArray" (array: ArrayRef) {
        let (core, _) = enter()?;
        if array == 0 {
            return Ok(());
        }
        core.free_array(array)
    }

    /// `cudaMallocMipmappedArray`
    fn malloc_mipmapped as "cudaMallocMipmappedArray" (
        array: Out<ArrayRef>, desc: In<ChannelDesc>, extent: Extent, levels: c_uint, flags: c_uint,
    ) {
        create(array, desc, extent, flags, Some(levels))
    }

    /// `cudaGetMipmappedArrayLevel`
    fn mipmapped_level as "cudaGetMipmappedArrayLevel" (
        level: Out<ArrayRef>, array: ArrayRef, number: c_uint,
    ) {
        level.check()?;
        let array = mipmapped(array)?;
        let found = array.levels.get(number as usize).ok_or_else(|| invalid("no such mipmap level"))?;
        level.set(found.raw)
    }

    /// `cudaFreeMipmappedArray`
    fn free_mipmapped as "cudaFreeMipmappedArray" (array: ArrayRef) {
        let (core, _) = enter()?;
        if array == 0 {
            return Ok(());
        }
        core.free_mipmapped(array)
    }

    /// `cudaArrayGetInfo`
    fn get_info as "cudaArrayGetInfo" (
        desc: Out<ChannelDesc>, extent: Out<Extent>, flags: Out<c_uint>, array: ArrayRef,
    ) {
        let array = crate::core::array::array(array)?;
        let [width, height, depth] = array.shape.size;
        desc.set_if_wanted(ChannelDesc::of(array.shape.format));
        extent.set_if_wanted(Extent { width, height, depth });
        flags.set_if_wanted(array.shape.flags);
        Ok(())
    }

    /// `cudaGetChannelDesc`
    fn get_channel_desc as "cudaGetChannelDesc" (desc: Out<ChannelDesc>, array: ArrayRef) {
        desc.check()?;
        desc.set(ChannelDesc::of(crate::core::array::array(array)?.shape.format))
    }

    /// `cudaMemcpyToArray`
    fn to_array<const PT> as "cudaMemcpyToArray" (
        dst: ArrayRef, x: usize, y: usize, src: usize, count: usize, kind: c_int,
    ) {
        copy_rows(dst, (x, y), src, count, true, kind, 0, Wait::Sync, PT)
    }

    /// `cudaMemcpyToArrayAsync`
    fn to_array_async<const PT> as "cudaMemcpyToArrayAsync" (
        dst: ArrayRef, x: usize, y: usize, src: usize, count: usize, kind: c_int, stream: StreamRef,
    ) {
        copy_rows(dst, (x, y), src, count, true, kind, stream, Wait::Async, PT)
    }

    /// `cudaMemcpyFromArray`
    fn from_array<const PT> as "cudaMemcpyFromArray" (
        dst: usize, src: ArrayRef, x: usize, y: usize, count: usize, kind: c_int,
    ) {
        copy_rows(src, (x, y), dst, count, false, kind, 0, Wait::Sync, PT)
    }

    /// `cudaMemcpyFromArrayAsync`
    fn from_array_async<const PT> as "cudaMemcpyFromArrayAsync" (
        dst: usize, src: ArrayRef, x: usize, y: usize, count: usize, kind: c_int, stream: StreamRef,
    ) {
        copy_rows(src, (x, y), dst, count, false, kind, stream, Wait::Async, PT)
    }

    /// `cudaMemcpyArrayToArray`: both arrays are walked row by row.
    fn array_to_array<const PT> as "cudaMemcpyArrayToArray" (
        dst: ArrayRef, dst_x: usize, dst_y: usize, src: ArrayRef, src_x: usize, src_y: usize, count: usize,
        kind: c_int,
    ) {
        let (core, _, stream) = enter_stream(0, PT)?;
        let direction = Direction::from_number(kind as u32)?;
        let to = array(dst)?.runs(dst_x, dst_y, count)?;
        for (dst, src, len) in pairs(to, array(src)?.runs(src_x, src_y, count)?) {
            core.copy(&stream, dst, src, len, direction, Wait::Sync)?;
        }
        Ok(())
    }

    /// `cudaMemcpy2DToArray`
    fn to_array_2d<const PT> as "cudaMemcpy2DToArray" (
        dst: ArrayRef, x: usize, y: usize, src: usize, pitch: usize, width: usize, height: usize, kind: c_int,
    ) {
        let dst = array(dst)?.place((x, y, 0), (width, height, 1))?;
        copy_rectangle(dst, pitched(src, pitch), width, height, kind, 0, Wait::Sync, PT)
    }

    /// `cudaMemcpy2DToArrayAsync`
    fn to_array_2d_async<const PT> as "cudaMemcpy2DToArrayAsync" (
        dst: ArrayRef, x: usize, y: usize, src: usize, pitch: usize, width: usize, height: usize, kind: c_int,
        stream: StreamRef,
    ) {
        let dst = array(dst)?.place((x, y, 0), (width, height, 1))?;
        copy_rectangle(dst, pitched(src, pitch), width, height, kind, stream, Wait::Async, PT)
    }

    /// `cudaMemcpy2DFromArray`
    fn from_array_2d<const PT> as "cudaMemcpy2DFromArray" (
        dst: usize, pitch: usize, src: ArrayRef, x: usize, y: usize, width: usize, height: usize, kind: c_int,
    ) {
        let src = array(src)?.place((x, y, 0), (width, height, 1))?;
        copy_rectangle(pitched(dst, pitch), src, width, height, kind, 0, Wait::Sync, PT)
    }

    /// `cudaMemcpy2DFromArrayAsync`
    fn from_array_2d_async<const PT> as "cudaMemcpy2DFromArrayAsync" (
        dst: usize, pitch: usize, src: ArrayRef, x: usize, y: usize, width: usize, height: usize, kind: c_int,
        stream: StreamRef,
    ) {
        let src = array(src)?.place((x, y, 0), (width, height, 1))?;
        copy_rectangle(pitched(dst, pitch), src, width, height, kind, stream, Wait::Async, PT)
    }

    /// `cudaMemcpy2DArrayToArray`
    fn array_to_array_2d<const PT> as "cudaMemcpy2DArrayToArray" (
        dst: ArrayRef, dst_x: usize, dst_y: usize, src: ArrayRef, src_x: usize, src_y: usize, width: usize,
        height: usize, kind: c_int,
    ) {
        let dst = array(dst)?.place((dst_x, dst_y, 0), (width, height, 1))?;
        let src = array(src)?.place((src_x, src_y, 0), (width, height, 1))?;
        copy_rectangle(dst, src, width, height, kind, 0, Wait::Sync, PT)
    }
}
