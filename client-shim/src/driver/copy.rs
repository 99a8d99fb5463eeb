//! Copies and fills.

use rgpu_device::Region;

use std::ffi::c_void;

use super::stream::stream_of;
use super::types::*;
use super::*;
use crate::abi::In;
use crate::core::array::{array, pairs};
use crate::core::registry::Raw;
use crate::core::{CopyBox, CopySide, Direction, Wait};

/// One side of a 2D or 3D copy.
struct Side {
    kind: u32,
    host: u64,
    device: u64,
    array: Opaque,
    x: usize,
    y: usize,
    z: usize,
    pitch: usize,
    height: usize,
}

impl Side {
    /// The address of the first byte and the pitches; whether it is device memory (`None`: to be found out).
    fn place(&self, [width, height, depth]: [usize; 3]) -> Result<(CopySide, Option<bool>)> {
        let (base, device) = match self.kind {
            MEMORYTYPE_HOST => (self.host, Some(false)),
            MEMORYTYPE_DEVICE => (self.device, Some(true)),
            MEMORYTYPE_UNIFIED => (self.device, None),
            // What is empty fits everywhere.
            MEMORYTYPE_ARRAY if width == 0 || height == 0 || depth == 0 => {
                array(self.array as Raw)?;
                return Ok((CopySide::default(), Some(true)));
            }
            MEMORYTYPE_ARRAY => {
                let place =
                    array(self.array as Raw)?.place((self.x, self.y, self.z), (width, height, depth))?;
                return Ok((place, Some(true)));
            }
            other => {
                return Err(Error::new(Code::InvalidValue, format!("memory type {other} does not exist")));
            }
        };
        let row = if self.pitch == 0 { width } else { self.pitch } as u64;
        let slice = row.checked_mul(self.height.max(1) as u64);
        let addr = slice.and_then(|slice| {
            let z = slice.checked_mul(self.z as u64)?;
            let y = row.checked_mul(self.y as u64)?;
            base.checked_add(z)?.checked_add(y)?.checked_add(self.x as u64)
        });
        match (addr, slice) {
            (Some(addr), Some(slice_pitch)) => Ok((CopySide { addr, row_pitch: row, slice_pitch }, device)),
            _ => Err(Error::new(Code::InvalidValue, "a copy's offsets overflow")),
        }
    }
}

/// Both sides and the size of a copy described by a structure.
fn boxed(src: Side, dst: Side, size: [usize; 3]) -> Result<(CopyBox, Direction)> {
    let ((src, from_device), (dst, to_device)) = (src.place(size)?, dst.place(size)?);
    let [width, height, depth] = size;
    let direction = match (from_device, to_device) {
        (Some(false), Some(false)) => Direction::HostToHost,
        (Some(false), Some(true)) => Direction::HostToDevice,
        (Some(true), Some(false)) => Direction::DeviceToHost,
        (Some(true), Some(true)) => Direction::DeviceToDevice,
        _ => Direction::Infer,
    };
    Ok((CopyBox { dst, src, width: width as u64, height: height as u64, depth: depth as u64 }, direction))
}

fn from_2d(parameters: In<Memcpy2d>) -> Result<(CopyBox, Direction)> {
    let p = parameters.get()?;
    let src = Side {
        kind: p.src_memory_type,
        host: p.src_host as u64,
        device: p.src_device,
        array: p.src_array,
        x: p.src_x_in_bytes,
        y: p.src_y,
        z: 0,
        pitch: p.src_pitch,
        height: 0,
    };
    let dst = Side {
        kind: p.dst_memory_type,
        host: p.dst_host as u64,
        device: p.dst_device,
        array: p.dst_array,
        x: p.dst_x_in_bytes,
        y: p.dst_y,
        z: 0,
        pitch: p.dst_pitch,
        height: 0,
    };
    boxed(src, dst, [p.width_in_bytes, p.height, 1])
}

pub(super) fn from_3d(parameters: In<Memcpy3d>) -> Result<(CopyBox, Direction)> {
    from_3d_value(&parameters.get()?)
}

/// As [`from_3d`], of a structure that has been read.
pub(super) fn from_3d_value(p: &Memcpy3d) -> Result<(CopyBox, Direction)> {
    if p.src_lod != 0 || p.dst_lod != 0 {
        return Err(Error::new(Code::InvalidValue, "the level of detail of a copy must be 0"));
    }
    let src = Side {
        kind: p.src_memory_type,
        host: p.src_host as u64,
        device: p.src_device,
        array: p.src_array,
        x: p.src_x_in_bytes,
        y: p.src_y,
        z: p.src_z,
        pitch: p.src_pitch,
        height: if p.src_height == 0 { p.height } else { p.src_height },
    };
    let dst = Side {
        kind: p.dst_memory_type,
        host: p.dst_host as u64,
        device: p.dst_device,
        array: p.dst_array,
        x: p.dst_x_in_bytes,
        y: p.dst_y,
        z: p.dst_z,
        pitch: p.dst_pitch,
        height: if p.dst_height == 0 { p.height } else { p.dst_height },
    };
    boxed(src, dst, [p.width_in_bytes, p.height, p.depth])
}

/// A 1D copy on a stream.
fn copy(
    core: &Core,
    stream: Opaque,
    per_thread: bool,
    (dst, src, bytes): (u64, u64, usize),
    direction: Direction,
    wait: Wait,
) -> Result<()> {
    core.copy(&*stream_of(core, stream, per_thread)?, dst, src, bytes as u64, direction, wait)
}

/// Runs of bytes: addresses and lengths.
type Runs = Vec<(u64, u64)>;

/// `count` bytes of an array, from one of all its rows.
fn of_array(raw: Opaque, offset: usize, count: usize) -> Result<Runs> {
    let array = array(raw as Raw)?;
    if count == 0 { Ok(Vec::new()) } else { array.runs_from(offset, count) }
}

/// A copy of runs of bytes, of which one side is a single one where it is plain memory.
fn copy_runs(
    core: &Core,
    stream: Opaque,
    per_thread: bool,
    (to, from): (Runs, Runs),
    direction: Direction,
    wait: Wait,
) -> Result<()> {
    let stream = stream_of(core, stream, per_thread)?;
    for (dst, src, bytes) in pairs(to, from) {
        core.copy(&stream, dst, src, bytes, direction, wait)?;
    }
    Ok(())
}

/// A copy described by a structure, on a stream.
fn copy_box(
    core: &Core,
    stream: Opaque,
    per_thread: bool,
    (what, direction): (CopyBox, Direction),
    wait: Wait,
) -> Result<()> {
    core.copy_box(&*stream_of(core, stream, per_thread)?, &what, direction, wait)
}

/// Fills `height` rows of `width` elements.
fn fill(
    core: &Core,
    stream: Opaque,
    per_thread: bool,
    (addr, pitch, width, height): (u64, usize, usize, usize),
    (value, element): (u32, u32),
    wait: Wait,
) -> Result<()> {
    let width = (width as u64).checked_mul(u64::from(element));
    let Some(width) = width.filter(|_| addr % u64::from(element) == 0) else {
        return Err(Error::new(Code::InvalidValue, "a fill is misaligned or too large"));
    };
    if height > 1 && (pitch as u64) < width {
        return Err(Error::new(Code::InvalidValue, "a fill's pitch is smaller than its rows"));
    }
    let row_pitch = if height > 1 { pitch as u64 } else { width };
    let region = Region {
        addr,
        row_pitch,
        slice_pitch: row_pitch.saturating_mul(height as u64),
        width,
        height: height as u64,
        depth: 1,
    };
    core.fill(&*stream_of(core, stream, per_thread)?, region, value, element, wait)
}

/// No stream given: the default one.
const DEFAULT: Opaque = std::ptr::null_mut();

door! {
    fn cuMemcpy<const PT>(dst: DevicePtr, src: DevicePtr, bytes: usize) |core| {
        copy(core, DEFAULT, PT, (dst, src, bytes), Direction::Infer, Wait::Sync)
    }
    fn cuMemcpyAsync<const PT>(dst: DevicePtr, src: DevicePtr, bytes: usize, stream: Opaque) |core| {
        copy(core, stream, PT, (dst, src, bytes), Direction::Infer, Wait::Async)
    }
    fn cuMemcpyHtoD_v2<const PT>(dst: DevicePtr, src: *const c_void, bytes: usize) |core| {
        copy(core, DEFAULT, PT, (dst, src as u64, bytes), Direction::HostToDevice, Wait::Sync)
    }
    fn cuMemcpyHtoDAsync_v2<const PT>(
        dst: DevicePtr, src: *const c_void, bytes: usize, stream: Opaque,
    ) |core| {
        copy(core, stream, PT, (dst, src as u64, bytes), Direction::HostToDevice, Wait::Async)
    }
    fn cuMemcpyDtoH_v2<const PT>(dst: *mut c_void, src: DevicePtr, bytes: usize) |core| {
        copy(core, DEFAULT, PT, (dst as u64, src, bytes), Direction::DeviceToHost, Wait::Sync)
    }
    fn cuMemcpyDtoHAsync_v2<const PT>(
        dst: *mut c_void, src: DevicePtr, bytes: usize, stream: Opaque,
    ) |core| {
        copy(core, stream, PT, (dst as u64, src, bytes), Direction::DeviceToHost, Wait::Async)
    }
    fn cuMemcpyDtoD_v2<const PT>(dst: DevicePtr, src: DevicePtr, bytes: usize) |core| {
        copy(core, DEFAULT, PT, (dst, src, bytes), Direction::DeviceToDevice, Wait::Sync)
    }
    fn cuMemcpyDtoDAsync_v2<const PT>(
        dst: DevicePtr, src: DevicePtr, bytes: usize, stream: Opaque,
    ) |core| {
        copy(core, stream, PT, (dst, src, bytes), Direction::DeviceToDevice, Wait::Async)
    }
    fn cuMemcpyPeer<const PT>(
        dst: DevicePtr, _dst_context: Opaque, src: DevicePtr, _src_context: Opaque, bytes: usize,
    ) |core| {
        copy(core, DEFAULT, PT, (dst, src, bytes), Direction::DeviceToDevice, Wait::Sync)
    }
    fn cuMemcpyPeerAsync<const PT>(
        dst: DevicePtr, _dst_context: Opaque, src: DevicePtr, _src_context: Opaque, bytes: usize, stream: Opaque,
    ) |core| {
        copy(core, stream, PT, (dst, src, bytes), Direction::DeviceToDevice, Wait::Async)
    }
    fn cuMemcpy2D_v2<const PT>(parameters: In<Memcpy2d>) |core| {
        copy_box(core, DEFAULT, PT, from_2d(parameters)?, Wait::Sync)
    }
    fn cuMemcpy2DUnaligned_v2<const PT>(parameters: In<Memcpy2d>) |core| {
        copy_box(core, DEFAULT, PT, from_2d(parameters)?, Wait::Sync)
    }
    fn cuMemcpy2DAsync_v2<const PT>(parameters: In<Memcpy2d>, stream: Opaque) |core| {
        copy_box(core, stream, PT, from_2d(parameters)?, Wait::Async)
    }
    fn cuMemcpy3D_v2<const PT>(parameters: In<Memcpy3d>) |core| {
        copy_box(core, DEFAULT, PT, from_3d(parameters)?, Wait::Sync)
    }
    fn cuMemcpy3DAsync_v2<const PT>(parameters: In<Memcpy3d>, stream: Opaque) |core| {
        copy_box(core, stream, PT, from_3d(parameters)?, Wait::Async)
    }
    fn cuMemcpy3DPeer<const PT>(parameters: In<Memcpy3d>) |core| {
        copy_box(core, DEFAULT, PT, from_3d(parameters)?, Wait::Sync)
    }
    fn cuMemcpy3DPeerAsync<const PT>(parameters: In<Memcpy3d>, stream: Opaque) |core| {
        copy_box(core, stream, PT, from_3d(parameters)?, Wait::Async)
    }
    fn cuMemcpyAtoH_v2<const PT>(dst: *mut c_void, src: Opaque, offset: usize, bytes: usize) |core| {
        let sides = (vec![(dst as u64, bytes as u64)], of_array(src, offset, bytes)?);
        copy_runs(core, DEFAULT, PT, sides, Direction::DeviceToHost, Wait::Sync)
    }
    fn cuMemcpyAtoHAsync_v2<const PT>(
        dst: *mut c_void, src: Opaque, offset: usize, bytes: usize, stream: Opaque,
    ) |core| {
        let sides = (vec![(dst as u64, bytes as u64)], of_array(src, offset, bytes)?);
        copy_runs(core, stream, PT, sides, Direction::DeviceToHost, Wait::Async)
    }
    fn cuMemcpyHtoA_v2<const PT>(dst: Opaque, offset: usize, src: *const c_void, bytes: usize) |core| {
        let sides = (of_array(dst, offset, bytes)?, vec![(src as u64, bytes as u64)]);
        copy_runs(core, DEFAULT, PT, sides, Direction::HostToDevice, Wait::Sync)
    }
    fn cuMemcpyHtoAAsync_v2<const PT>(
        dst: Opaque, offset: usize, src: *const c_void, bytes: usize, stream: Opaque,
    ) |core| {
        let sides = (of_array(dst, offset, bytes)?, vec![(src as u64, bytes as u64)]);
        copy_runs(core, stream, PT, sides, Direction::HostToDevice, Wait::Async)
    }
    fn cuMemcpyAtoD_v2<const PT>(dst: DevicePtr, src: Opaque, offset: usize, bytes: usize) |core| {
        let sides = (vec![(dst, bytes as u64)], of_array(src, offset, bytes)?);
        copy_runs(core, DEFAULT, PT, sides, Direction::DeviceToDevice, Wait::Sync)
    }
    fn cuMemcpyDtoA_v2<const PT>(dst: Opaque, offset: usize, src: DevicePtr, bytes: usize) |core| {
        let sides = (of_array(dst, offset, bytes)?, vec![(src, bytes as u64)]);
        copy_runs(core, DEFAULT, PT, sides, Direction::DeviceToDevice, Wait::Sync)
    }
    fn cuMemcpyAtoA_v2<const PT>(
        dst: Opaque, dst_offset: usize, src: Opaque, src_offset: usize, bytes: usize,
    ) |core| {
        let sides = (of_array(dst, dst_offset, bytes)?, of_array(src, src_offset, bytes)?);
        copy_runs(core, DEFAULT, PT, sides, Direction::DeviceToDevice, Wait::Sync)
    }
    fn cuMemsetD8_v2<const PT>(dst: DevicePtr, value: u8, count: usize) |core| {
        fill(core, DEFAULT, PT, (dst, 0, count, 1), (value.into(), 1), Wait::Sync)
    }
    fn cuMemsetD16_v2<const PT>(dst: DevicePtr, value: u16, count: usize) |core| {
        fill(core, DEFAULT, PT, (dst, 0, count, 1), (value.into(), 2), Wait::Sync)
    }
    fn cuMemsetD32_v2<const PT>(dst: DevicePtr, value: u32, count: usize) |core| {
        fill(core, DEFAULT, PT, (dst, 0, count, 1), (value, 4), Wait::Sync)
    }
    fn cuMemsetD8Async<const PT>(dst: DevicePtr, value: u8, count: usize, stream: Opaque) |core| {
        fill(core, stream, PT, (dst, 0, count, 1), (value.into(), 1), Wait::Async)
    }
    fn cuMemsetD16Async<const PT>(dst: DevicePtr, value: u16, count: usize, stream: Opaque) |core| {
        fill(core, stream, PT, (dst, 0, count, 1), (value.into(), 2), Wait::Async)
    }
    fn cuMemsetD32Async<const PT>(dst: DevicePtr, value: u32, count: usize, stream: Opaque) |core| {
        fill(core, stream, PT, (dst, 0, count, 1), (value, 4), Wait::Async)
    }
    fn cuMemsetD2D8_v2<const PT>(
        dst: DevicePtr, pitch: usize, value: u8, width: usize, height: usize,
    ) |core| {
        fill(core, DEFAULT, PT, (dst, pitch, width, height), (value.into(), 1), Wait::Sync)
    }
    fn cuMemsetD2D16_v2<const PT>(
        dst: DevicePtr, pitch: usize, value: u16, width: usize, height: usize,
    ) |core| {
        fill(core, DEFAULT, PT, (dst, pitch, width, height), (value.into(), 2), Wait::Sync)
    }
    fn cuMemsetD2D32_v2<const PT>(
        dst: DevicePtr, pitch: usize, value: u32, width: usize, height: usize,
    ) |core| {
        fill(core, DEFAULT, PT, (dst, pitch, width, height), (value, 4), Wait::Sync)
    }
    fn cuMemsetD2D8Async<const PT>(
        dst: DevicePtr, pitch: usize, value: u8, width: usize, height: usize, stream: Opaque,
    ) |core| {
        fill(core, stream, PT, (dst, pitch, width, height), (value.into(), 1), Wait::Async)
    }
    fn cuMemsetD2D16Async<const PT>(
        dst: DevicePtr, pitch: usize, value: u16, width: usize, height: usize, stream: Opaque,
    ) |core| {
        fill(core, stream, PT, (dst, pitch, width, height), (value.into(), 2), Wait::Async)
    }
    fn cuMemsetD2D32Async<const PT>(
        dst: DevicePtr, pitch: usize, value: u32, width: usize, height: usize, stream: Opaque,
    ) |core| {
        fill(core, stream, PT, (dst, pitch, width, height), (value, 4), Wait::Async)
    }
}
