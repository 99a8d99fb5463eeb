//! Copies and fills, over every mixture of device, pinned, managed, registered and ordinary memory.
//!
//! | from ↓ to → | device | direct | mirrored, registered, pageable |
//! | --- | --- | --- | --- |
//! | device | on the device | on the device | received |
//! | direct | on the device | on the device | received |
//! | mirrored, registered, pageable | sent | sent | by the host, after the stream |
//!
//! Registered memory that the program asked a device pointer for is, to the device, memory that it copies itself.
//!
//! What is *sent* is read before the call returns, except from registered memory in the asynchronous family. What is
//! *received* is in place when the call returns, or for pinned memory in the asynchronous family when the stream is next
//! waited for.

use rgpu_device::{HostData, HostSource, HostTarget, Region, RegionCursor, Target};

use crate::core::error::{Result, invalid};
use crate::core::graph::captures::Captures;
use crate::core::graph::op::Op;
use crate::core::memory::map::Spot;
use crate::core::process::Core;
use crate::core::stream::Stream;
use crate::core::transfer::{CopyBox, CopySide, Direction, Wait};

/// Below this many bytes a copy from pageable memory is cheaper than waiting for its stream.
const STAGED: u64 = 64 << 10;

/// Makes a node of the copy if the stream is being captured, which a call that waits breaks.
fn capture_copy(
    captures: &Captures,
    stream: &Stream,
    what: &CopyBox,
    direction: Direction,
    wait: Wait,
) -> Option<Result<()>> {
    if wait == Wait::Sync
        && let Err(error) = captures.refuse(stream)
    {
        return Some(Err(error));
    }
    captures.divert(stream, || Ok(Op::Copy(*what, direction)))
}

impl Core {
    /// Copies `bytes` bytes; 0 bytes are fine whatever the pointers.
    pub(crate) fn copy(
        &self,
        stream: &Stream,
        dst: u64,
        src: u64,
        bytes: u64,
        direction: Direction,
        wait: Wait,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let place = |addr| CopySide { addr, row_pitch: bytes, slice_pitch: bytes };
        let what = CopyBox { dst: place(dst), src: place(src), width: bytes, height: 1, depth: 1 };
        if let Some(captured) = capture_copy(&self.captures, stream, &what, direction, wait) {
            return captured;
        }
        self.transfer(stream, Region::linear(dst, bytes), Region::linear(src, bytes), direction, wait)
    }

    /// Copies a box (2D: depth 1). A width, height or depth of 0 copies nothing. A pitch smaller than the width where
    /// there are several rows is [`InvalidPitchValue`](crate::core::Code::InvalidPitchValue).
    pub(crate) fn copy_box(
        &self,
        stream: &Stream,
        what: &CopyBox,
        direction: Direction,
        wait: Wait,
    ) -> Result<()> {
        if what.width == 0 || what.height == 0 || what.depth == 0 {
            return Ok(());
        }
        if let Some(captured) = capture_copy(&self.captures, stream, what, direction, wait) {
            return captured;
        }
        self.transfer(stream, what.region(&what.dst)?, what.region(&what.src)?, direction, wait)
    }

    /// Where a region lies, with the address that this process knows it by.
    fn spot(&self, region: &mut Region) -> Result<Spot> {
        let extent = region.extent().ok_or_else(|| invalid("The box is too large"))?;
        let (spot, addr) = self.locate(region.addr, extent)?;
        region.addr = addr;
        Ok(spot)
    }

    /// Copies, whatever is captured.
    pub(super) fn transfer(
        &self,
        stream: &Stream,
        mut dst: Region,
        mut src: Region,
        direction: Direction,
        wait: Wait,
    ) -> Result<()> {
        self.devices.check_sticky(stream.ordinal)?;
        dst.bytes().ok_or_else(|| invalid("The box is too large"))?;
        let (to, from) = (self.spot(&mut dst)?, self.spot(&mut src)?);
        direction.check(to, from)?;
        // What the device knows registered memory by, it copies itself, in order with what kernels do to it.
        let alias = |spot: Spot, region: &Region| match spot {
            Spot::Registered => Some(self.memory.alias_of(region.addr)).filter(|alias| *alias != region.addr),
            _ => None,
        };
        let near = |spot: Spot| matches!(spot, Spot::Device | Spot::Direct);
        let (mut near_to, mut near_from) = (near(to), near(from));
        let mut mirrored = false;
        if let Some(alias) = alias(to, &dst).filter(|_| near_from) {
            dst.addr = alias;
            (near_to, mirrored) = (true, true);
        }
        if let Some(alias) = alias(from, &src).filter(|_| near(to) && self.devices.sees_host_memory()) {
            src.addr = alias;
            (near_from, mirrored) = (true, true);
        }
        match (near_from, near_to) {
            (true, true) => {
                if mirrored {
                    self.devices.before_device_work()?;
                }
                self.work_elsewhere(stream, &[dst.addr, src.addr]);
                self.devices
                    .note(stream.ordinal, self.devices.device().copy_on_device(stream.handle, dst, src))?;
                self.devices.work_enqueued(stream);
                let host_sees = mirrored || to == Spot::Direct || from == Spot::Direct;
                if wait == Wait::Sync && host_sees { self.stream_synchronize(stream) } else { Ok(()) }
            }
            (false, true) => {
                self.send(stream, dst, src, from, wait)?;
                // The host looks there itself.
                if wait == Wait::Sync && to == Spot::Direct {
                    self.stream_synchronize(stream)
                } else {
                    Ok(())
                }
            }
            (true, false) => self.receive(stream, dst, src, to, wait),
            (false, false) => self.copy_on_host(stream, dst, src, to),
        }
    }

    /// Work on a stream concerns memory of other servers' devices, too: they are not idle until it is done.
    fn work_elsewhere(&self, stream: &Stream, addresses: &[u64]) {
        if !self.devices.are_of_several_servers() {
            return;
        }
        for addr in addresses {
            if let Some(ordinal) =
                self.memory.ordinal_of(*addr).filter(|o| !self.devices.are_together(*o, stream.ordinal))
            {
                self.devices.work_of_our_own(ordinal);
            }
        }
    }

    /// Copies from the host to the device.
    fn send(&self, stream: &Stream, dst: Region, src: Region, from: Spot, wait: Wait) -> Result<()> {
        if from != Spot::Pageable {
            self.before_reading(stream, &src)?;
        }
        self.work_elsewhere(stream, &[dst.addr]);
        let bytes = src.bytes().unwrap_or(0);
        let known_as = if from == Spot::Registered { self.memory.alias_of(src.addr) } else { src.addr };
        let must_wait;
        // SAFETY: the program passed memory that it says is readable; a bad pointer is its own fault. Where the copy may be
        // read after this returns, it is pinned, and stays mapped until work that uses it is done.
        let src = unsafe { HostSource::new(src) };
        let data = if !self.devices.sees_host_memory() {
            // The bytes are on their way when the call returns.
            must_wait = false;
            HostData::Borrowed(src)
        } else if bytes <= STAGED && (from == Spot::Pageable || wait == Wait::Sync) {
            must_wait = false;
            HostData::Owned(src.gather())
        } else {
            must_wait = from == Spot::Pageable || wait == Wait::Sync;
            HostData::Borrowed(src)
        };
        let result = match data {
            // CUDA waits here, too, unless the copy is small.
            HostData::Borrowed(src)
                if !self.devices.sees_host_memory() && (from == Spot::Pageable || wait == Wait::Sync) =>
            {
                self.devices.device().copy_to_device_blocking(stream.handle, dst, known_as, src)
            }
            data => self.devices.device().copy_to_device(stream.handle, dst, known_as, data),
        };
        self.devices.note(stream.ordinal, result)?;
        self.devices.work_enqueued(stream);
        if must_wait {
            return self.stream_synchronize(stream);
        }
        if wait == Wait::Sync {
            // To the program the copy is over: what it puts on any stream from now on must find it so.
            self.devices.note(stream.ordinal, self.devices.device().fence(stream.handle))?;
        }
        Ok(())
    }

    /// Copies from the device to the host.
    fn receive(&self, stream: &Stream, dst: Region, src: Region, to: Spot, wait: Wait) -> Result<()> {
        let ordinal = stream.ordinal;
        self.work_elsewhere(stream, &[src.addr]);
        if wait == Wait::Sync || to == Spot::Pageable {
            self.devices.work_enqueued(stream);
            let until = self.devices.enqueued(ordinal);
            // SAFETY: the program passed memory that it says is writable; a bad pointer is its own fault.
            let dst = unsafe { HostTarget::new(dst) };
            let result = self.devices.device().copy_from_device_blocking(stream.handle, src, dst);
            self.devices.note(ordinal, result)?;
            // What the device changed in mirrored memory has come with the answer.
            self.devices.after_wait();
            self.devices.work_finished(ordinal, Target::Stream(stream.handle), until);
            return self.devices.take_pending(ordinal);
        }
        let landing = self.landings.add(dst.addr, dst.extent().unwrap_or(0));
        let devices = self.devices.clone();
        let done = Box::new(move |result: Result<()>| {
            if let Err(error) = result {
                devices.note_asynchronous(ordinal, error);
            }
            landing.landed();
        });
        // SAFETY: pinned memory stays mapped until work that uses it is done: freeing and unregistering wait.
        let dst = unsafe { HostTarget::new(dst) };
        self.devices.device().copy_from_device_into(stream.handle, src, dst, done);
        self.devices.work_enqueued(stream);
        self.devices.check_sticky(ordinal)
    }

    /// Copies from the host to the host, in the stream's order.
    fn copy_on_host(&self, stream: &Stream, dst: Region, src: Region, to: Spot) -> Result<()> {
        self.stream_synchronize(stream)?;
        // SAFETY: the program passed memory that it says is readable and writable; a bad pointer is its own fault.
        unsafe { move_region(dst, src) };
        if to == Spot::Mirrored {
            self.devices.shared().host_wrote();
        }
        Ok(())
    }

    /// Before pinned memory is read at call time that CUDA would read in stream order: whatever the program put before
    /// this copy and may write there must be done.
    fn before_reading(&self, stream: &Stream, src: &Region) -> Result<()> {
        let (base, len) = (src.addr, src.extent().unwrap_or(0));
        if self.devices.host().waiting_functions() > 0 || self.landings.overlap(base, len) {
            self.stream_synchronize(stream)?;
        }
        Ok(())
    }

    /// Fills a region (its width in bytes) with the low `element` (1, 2 or 4) bytes of `value`. Plain runs:
    /// [`Region::linear`]. A region without bytes is fine.
    pub(crate) fn fill(
        &self,
        stream: &Stream,
        region: Region,
        value: u32,
        element: u32,
        wait: Wait,
    ) -> Result<()> {
        if region.width == 0 || region.height == 0 || region.depth == 0 {
            return Ok(());
        }
        if let Some(captured) = self.captures.divert(stream, || Ok(Op::Fill(region, value, element))) {
            return captured;
        }
        self.devices.check_sticky(stream.ordinal)?;
        let shape =
            CopyBox { width: region.width, height: region.height, depth: region.depth, ..CopyBox::default() };
        let place =
            CopySide { addr: region.addr, row_pitch: region.row_pitch, slice_pitch: region.slice_pitch };
        let mut region = shape.region(&place)?;
        region.check_fill(element)?;
        let spot = self.spot(&mut region)?;
        match spot {
            Spot::Pageable => Err(invalid("Ordinary host memory cannot be filled by the device")),
            Spot::Registered => {
                self.stream_synchronize(stream)?;
                let mut cursor = RegionCursor::new(region);
                let pattern = value.to_le_bytes();
                while let Some((addr, run)) = cursor.run() {
                    // SAFETY: the region lies in memory that the program registered.
                    let row = unsafe { std::slice::from_raw_parts_mut(addr as *mut u8, run as usize) };
                    row.iter_mut().zip(pattern[..element as usize].iter().cycle()).for_each(|(b, p)| *b = *p);
                    cursor.advance(run);
                }
                Ok(())
            }
            Spot::Device | Spot::Direct | Spot::Mirrored => {
                if spot == Spot::Mirrored {
                    self.devices.before_device_work()?;
                }
                self.work_elsewhere(stream, &[region.addr]);
                self.devices.note(
                    stream.ordinal,
                    self.devices.device().memset(stream.handle, region, value, element),
                )?;
                self.devices.work_enqueued(stream);
                if wait == Wait::Sync && spot != Spot::Device {
                    self.stream_synchronize(stream)?;
                }
                Ok(())
            }
        }
    }
}

/// Moves a region to another of the same shape.
///
/// # Safety
/// The source must be readable and the destination writable.
unsafe fn move_region(dst: Region, src: Region) {
    let (mut to, mut from) = (RegionCursor::new(dst), RegionCursor::new(src));
    while let (Some((d, room)), Some((s, run))) = (to.run(), from.run()) {
        let n = room.min(run);
        // SAFETY: the caller says so; `copy` allows overlap.
        unsafe { std::ptr::copy(s as *const u8, d as *mut u8, n as usize) };
        to.advance(n);
        from.advance(n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_moved_row_by_row() {
        let src: Vec<u8> = (0..64).collect();
        let mut dst = vec![0u8; 64];
        let shape = |addr: u64, row_pitch: u64| Region {
            addr,
            row_pitch,
            slice_pitch: row_pitch * 2,
            width: 3,
            height: 2,
            depth: 2,
        };
        // SAFETY: both regions lie within their vectors.
        unsafe { move_region(shape(dst.as_mut_ptr() as u64, 4), shape(src.as_ptr() as u64, 8)) };
        assert_eq!(dst[..16], [0, 1, 2, 0, 8, 9, 10, 0, 16, 17, 18, 0, 24, 25, 26, 0]);
        // SAFETY: as above.
        let packed = unsafe { HostSource::new(shape(src.as_ptr() as u64, 8)) }.gather();
        assert_eq!(packed, [0, 1, 2, 8, 9, 10, 16, 17, 18, 24, 25, 26]);
    }
}
