//! CUDA arrays, kept as pitched memory, and copies to and from them.
//!
//! Textures and surfaces are not supported, so copying is all that can be done with an array.

use std::ffi::{c_int, c_uint};
use std::sync::{Arc, LazyLock};

use rgpu_device::Region;

use super::entry::{api, enter, enter_stream};
use super::types::{ArrayRef, ChannelDesc, Extent};
use crate::abi::types::StreamRef;
use crate::abi::{In, Out, c_functions};
use crate::core::error::{invalid, not_implemented};
use crate::core::registry::Registry;
use crate::core::{Code, CopyBox, CopySide, Direction, Result, Wait};

/// `cudaArraySurfaceLoadStore | cudaArrayTextureGather`, which change nothing about the memory.
const PLAIN_FLAGS: c_uint = 0x02 | 0x08;
/// `cudaArrayLayered`, `cudaArrayCubemap`: depth counts layers, or faces.
const LAYER_FLAGS: c_uint = 0x01 | 0x04;

/// An array.
pub(crate) struct Array {
    raw: ArrayRef,
    desc: ChannelDesc,
    /// In elements; zeros for the dimensions it does not have.
    extent: Extent,
    flags: c_uint,
    /// Bytes of an element.
    pub(crate) element: usize,
    addr: u64,
    pitch: u64,
}

static ARRAYS: LazyLock<Registry<Array>> = LazyLock::new(|| Registry::new("array"));

impl Array {
    /// Rows of a slice.
    fn rows(&self) -> usize {
        self.extent.height.max(1)
    }

    /// Slices.
    fn slices(&self) -> usize {
        self.extent.depth.max(1)
    }

    /// Bytes in a row.
    fn row_bytes(&self) -> usize {
        self.extent.width * self.element
    }

    /// The place of a box inside the array: `x` and `width` in bytes. Reaching over an edge is an error.
    pub(crate) fn place(
        &self,
        (x, y, z): (usize, usize, usize),
        (width, height, depth): (usize, usize, usize),
    ) -> Result<CopySide> {
        let fits =
            |start: usize, len: usize, room: usize| start.checked_add(len).is_some_and(|end| end <= room);
        if !fits(x, width, self.row_bytes())
            || !fits(y, height, self.rows())
            || !fits(z, depth, self.slices())
        {
            return Err(invalid("the copy reaches over the array's edge"));
        }
        let slice = self.pitch * self.rows() as u64;
        Ok(CopySide {
            addr: self.addr + x as u64 + y as u64 * self.pitch + z as u64 * slice,
            row_pitch: self.pitch,
            slice_pitch: slice,
        })
    }

    /// The runs of bytes that `count` bytes make, row after row, from byte `x` of row `y`: address, length.
    fn runs(&self, x: usize, y: usize, count: usize) -> Result<Vec<(u64, u64)>> {
        let row = self.row_bytes();
        let start = y.checked_mul(row).and_then(|s| s.checked_add(x));
        let end = start.and_then(|s| s.checked_add(count));
        if x >= row.max(1) || end.is_none_or(|end| end > row * self.rows()) {
            return Err(invalid("the copy reaches over the array's edge"));
        }
        let (mut x, mut y, mut left) = (x, y, count);
        let mut runs = Vec::new();
        while left > 0 {
            let len = left.min(row - x);
            runs.push((self.addr + y as u64 * self.pitch + x as u64, len as u64));
            (x, y, left) = (0, y + 1, left - len);
        }
        Ok(runs)
    }
}

/// The array behind a handle.
pub(crate) fn array(raw: ArrayRef) -> Result<Arc<Array>> {
    ARRAYS.get(raw)
}

/// Makes an array.
fn create(out: Out<ArrayRef>, desc: In<ChannelDesc>, extent: Extent, flags: c_uint) -> Result<()> {
    out.check()?;
    let desc = desc.get()?;
    let element = desc.element_bytes().ok_or_else(|| invalid("no such channel format"))?;
    if flags & !(PLAIN_FLAGS | LAYER_FLAGS) != 0 {
        return Err(not_implemented("a sparse, deferred or colour-attached array"));
    }
    let flat = extent.height == 0 && extent.depth != 0 && flags & LAYER_FLAGS == 0;
    if extent.width == 0 || flat {
        return Err(invalid("an array needs a width, and a height if it has a depth"));
    }
    let (core, context) = enter()?;
    let width = extent.width.checked_mul(element).ok_or(Code::OutOfMemory)?;
    let rows = extent.height.max(1).checked_mul(extent.depth.max(1)).ok_or(Code::OutOfMemory)?;
    let (addr, pitch) = core.alloc_pitch(&context, width as u64, rows as u64)?;
    // An array's contents are undefined at first; other kinds of memory start as zeros here, so do these.
    let stream = core.stream(&context, 0, false)?;
    core.fill(&stream, Region::linear(addr, pitch * rows as u64), 0, 1, Wait::Async)?;
    out.set(ARRAYS.insert(|raw| Array { raw, desc, extent, flags, element, addr, pitch }).raw)
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
    for (addr, len) in self::array(array)?.runs(x, y, count)? {
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
        create(array, desc, Extent { width, height, depth: 0 }, flags)
    }

    /// `cudaMalloc3DArray`
    fn malloc_3d_array as "cudaMalloc3DArray" (
        array: Out<ArrayRef>, desc: In<ChannelDesc>, extent: Extent, flags: c_uint,
    ) {
        create(array, desc, extent, flags)
    }

    /// `cudaFreeArray`
    fn free_array as "cudaFreeArray" (array: ArrayRef) {
        let (core, _) = enter()?;
        if array == 0 {
            return Ok(());
        }
        core.free(ARRAYS.remove(array)?.addr)
    }

    /// `cudaArrayGetInfo`
    fn get_info as "cudaArrayGetInfo" (
        desc: Out<ChannelDesc>, extent: Out<Extent>, flags: Out<c_uint>, array: ArrayRef,
    ) {
        let array = self::array(array)?;
        desc.set_if_wanted(array.desc);
        extent.set_if_wanted(array.extent);
        flags.set_if_wanted(array.flags);
        Ok(())
    }

    /// `cudaGetChannelDesc`
    fn get_channel_desc as "cudaGetChannelDesc" (desc: Out<ChannelDesc>, array: ArrayRef) {
        desc.check()?;
        desc.set(self::array(array)?.desc)
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
        let mut to = array(dst)?.runs(dst_x, dst_y, count)?.into_iter();
        let mut from = array(src)?.runs(src_x, src_y, count)?.into_iter();
        let (mut a, mut b) = ((0, 0), (0, 0));
        loop {
            if a.1 == 0 {
                a = to.next().unwrap_or_default();
            }
            if b.1 == 0 {
                b = from.next().unwrap_or_default();
            }
            let len = a.1.min(b.1);
            if len == 0 {
                return Ok(());
            }
            core.copy(&stream, a.0, b.0, len, direction, Wait::Sync)?;
            a = (a.0 + len, a.1 - len);
            b = (b.0 + len, b.1 - len);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn array_of(width: usize, height: usize, depth: usize) -> Array {
        let desc = ChannelDesc { x: 32, y: 0, z: 0, w: 0, f: 2 };
        let extent = Extent { width, height, depth };
        Array { raw: 0, desc, extent, flags: 0, element: 4, addr: 0x1000, pitch: 256 }
    }

    #[test]
    fn boxes_stay_inside() {
        let array = array_of(10, 5, 3);
        let place = array.place((8, 1, 2), (32, 4, 1)).unwrap();
        assert_eq!(
            place,
            CopySide { addr: 0x1000 + 8 + 256 + 2 * 5 * 256, row_pitch: 256, slice_pitch: 5 * 256 }
        );
        assert!(array.place((8, 1, 2), (33, 4, 1)).is_err());
        assert!(array.place((8, 2, 2), (32, 4, 1)).is_err());
        assert!(array.place((usize::MAX, 0, 0), (2, 1, 1)).is_err());
    }

    #[test]
    fn runs_go_row_by_row() {
        let array = array_of(10, 3, 0);
        assert_eq!(array.runs(36, 0, 50).unwrap(), [(0x1024, 4), (0x1100, 40), (0x1200, 6)]);
        assert_eq!(array.runs(0, 0, 120).unwrap().len(), 3);
        assert!(array.runs(1, 0, 120).is_err());
        assert!(array_of(10, 0, 0).runs(0, 0, 40).is_ok());
    }
}
