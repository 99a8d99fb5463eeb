//! Copies and fills, over every mixture of device, pinned, managed, registered and ordinary memory.

use super::error::{Result, not_implemented};
use super::process::Core;
use super::stream::Stream;
use rgpu_device::Region;

/// `cudaMemcpyKind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Direction {
    HostToHost,
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    /// By the pointers.
    Infer,
}

impl Direction {
    /// From the number of a `cudaMemcpyKind`; others are [`super::Code::InvalidMemcpyDirection`].
    pub fn from_number(kind: u32) -> Result<Self> {
        Ok(match kind {
            0 => Self::HostToHost,
            1 => Self::HostToDevice,
            2 => Self::DeviceToHost,
            3 => Self::DeviceToDevice,
            4 => Self::Infer,
            _ => return Err(super::Code::InvalidMemcpyDirection.into()),
        })
    }
}

/// Whether a call is of the synchronous or the asynchronous family. The synchronous one waits as CUDA does (not after
/// device-to-device copies and fills); the asynchronous one waits where CUDA waits too (pageable memory).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Wait {
    Sync,
    Async,
}

/// One side of a box copy: byte `x` of row `y` of slice `z` lies at `addr + x + y * row_pitch + z * slice_pitch`. Offsets
/// of the program's parameters are already part of `addr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// Address of the first byte.
    pub addr: u64,
    /// Bytes from one row to the next.
    pub row_pitch: u64,
    /// Bytes from one slice to the next.
    pub slice_pitch: u64,
}

/// A copy of `depth` slices of `height` rows of `width` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopyBox {
    /// Where to.
    pub dst: Place,
    /// Where from.
    pub src: Place,
    /// Bytes in a row.
    pub width: u64,
    /// Rows in a slice.
    pub height: u64,
    /// Slices.
    pub depth: u64,
}

impl Core {
    /// Copies `bytes` bytes; 0 bytes are fine whatever the pointers.
    pub fn copy(
        &self,
        stream: &Stream,
        dst: u64,
        src: u64,
        bytes: u64,
        direction: Direction,
        wait: Wait,
    ) -> Result<()> {
        let _ = (stream, dst, src, bytes, direction, wait);
        Err(not_implemented("copy"))
    }

    /// Copies a box (2D: depth 1). A width, height or depth of 0 copies nothing. A pitch smaller than the width where
    /// there are several rows is [`super::Code::InvalidPitchValue`].
    pub fn copy_box(&self, stream: &Stream, what: &CopyBox, direction: Direction, wait: Wait) -> Result<()> {
        let _ = (stream, what, direction, wait);
        Err(not_implemented("copy_box"))
    }

    /// Fills a region (its width in bytes) with the low `element` (1, 2 or 4) bytes of `value`. Plain runs:
    /// [`Region::linear`]. A region without bytes is fine.
    pub fn fill(&self, stream: &Stream, region: Region, value: u32, element: u32, wait: Wait) -> Result<()> {
        let _ = (stream, region, value, element, wait);
        Err(not_implemented("fill"))
    }
}
