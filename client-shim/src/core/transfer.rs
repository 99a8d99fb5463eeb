//! What is copied where, and copies that are still under way to pinned memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rgpu_device::Region;

use super::error::{Code, Result, invalid};
use super::memory::map::Spot;

/// `cudaMemcpyKind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From host memory to host memory, in the stream's order.
    HostToHost,
    /// From host memory to the device.
    HostToDevice,
    /// From the device to host memory.
    DeviceToHost,
    /// From one device address to another, on whatever devices.
    DeviceToDevice,
    /// By the pointers: with unified addressing they tell.
    Infer,
}

impl Direction {
    /// From the number of a `cudaMemcpyKind`; others are [`Code::InvalidMemcpyDirection`].
    pub(crate) fn from_number(kind: u32) -> Result<Self> {
        Ok(match kind {
            0 => Self::HostToHost,
            1 => Self::HostToDevice,
            2 => Self::DeviceToHost,
            3 => Self::DeviceToDevice,
            4 => Self::Infer,
            _ => return Err(Code::InvalidMemcpyDirection.into()),
        })
    }

    /// The direction is believed only where it could be true: with unified addressing the pointers tell.
    pub(super) fn check(self, dst: Spot, src: Spot) -> Result<()> {
        let no = |what: &str| Err(invalid(format!("{what} is ordinary host memory, not the device's")));
        match self {
            Self::HostToDevice if dst == Spot::Pageable => no("The destination"),
            Self::DeviceToHost if src == Spot::Pageable => no("The source"),
            Self::DeviceToDevice if dst == Spot::Pageable => no("The destination"),
            Self::DeviceToDevice if src == Spot::Pageable => no("The source"),
            _ => Ok(()),
        }
    }
}

/// Whether a call is of the synchronous or the asynchronous family. The synchronous one waits as CUDA does (not after
/// device-to-device copies and fills); the asynchronous one waits where CUDA waits too (pageable memory).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// `cudaMemcpy` and its like.
    Sync,
    /// `cudaMemcpyAsync` and its like.
    Async,
}

/// One side of a box copy: byte `x` of row `y` of slice `z` lies at `addr + x + y * row_pitch + z * slice_pitch`. Offsets
/// of the program's parameters are already part of `addr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CopySide {
    /// Address of the first byte.
    pub addr: u64,
    /// Bytes from one row to the next.
    pub row_pitch: u64,
    /// Bytes from one slice to the next.
    pub slice_pitch: u64,
}

/// A copy of `depth` slices of `height` rows of `width` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CopyBox {
    /// The side that is written.
    pub dst: CopySide,
    /// The side that is read.
    pub src: CopySide,
    /// Bytes in a row.
    pub width: u64,
    /// Rows in a slice.
    pub height: u64,
    /// How many slices there are; 1 for 2D copies.
    pub depth: u64,
}

impl CopyBox {
    /// One side's region. A pitch smaller than the width where there are several rows is [`Code::InvalidPitchValue`].
    pub(super) fn region(&self, side: &CopySide) -> Result<Region> {
        // Pitches that mean nothing are made regular, so that contiguous boxes are seen as such.
        let row_pitch = if self.height > 1 { side.row_pitch } else { self.width };
        let rows = row_pitch.checked_mul(self.height).ok_or_else(|| invalid("The box is too large"))?;
        let slice_pitch = if self.depth > 1 { side.slice_pitch } else { rows };
        let Self { width, height, depth, .. } = *self;
        let region = Region { addr: side.addr, row_pitch, slice_pitch, width, height, depth };
        region.check()?;
        Ok(region)
    }
}

/// A copy to pinned memory that was not waited for.
pub(super) struct Landing {
    base: u64,
    len: u64,
    landed: AtomicBool,
}

impl Landing {
    /// The copy is done, well or not.
    pub(super) fn landed(&self) {
        self.landed.store(true, Ordering::Release);
    }
}

/// The copies to pinned memory that were not waited for.
#[derive(Default)]
pub(super) struct Landings(Mutex<Vec<Arc<Landing>>>);

impl Landings {
    /// A copy to the `len` bytes at `base` is under way.
    pub(super) fn add(&self, base: u64, len: u64) -> Arc<Landing> {
        let landing = Arc::new(Landing { base, len, landed: AtomicBool::new(false) });
        let mut landings = self.0.lock();
        landings.retain(|l| !l.landed.load(Ordering::Acquire));
        landings.push(landing.clone());
        landing
    }

    /// Whether a copy is under way to any of the `len` bytes at `base`.
    pub(super) fn overlap(&self, base: u64, len: u64) -> bool {
        let overlaps = |l: &Arc<Landing>| {
            !l.landed.load(Ordering::Acquire) && l.base < base.saturating_add(len) && base < l.base + l.len
        };
        self.0.lock().iter().any(overlaps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pitches_without_meaning_are_ignored() {
        let what = CopyBox { width: 8, height: 1, depth: 1, ..CopyBox::default() };
        let region = what.region(&CopySide { addr: 4096, row_pitch: 3, slice_pitch: 0 }).unwrap();
        assert_eq!(region, Region::linear(4096, 8));
        let what = CopyBox { height: 2, ..what };
        let error = what.region(&CopySide { addr: 4096, row_pitch: 7, slice_pitch: 0 }).unwrap_err();
        assert_eq!(error.code, Code::InvalidPitchValue);
    }
}
