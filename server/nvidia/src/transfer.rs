//! Copies and fills, given to the driver piece by piece through pinned buffers.

use super::core::{Belongings, Core, Stream};
use super::memory::CheckedRegion;
use super::mirror::Latch;
use super::staging::{Buffer, LARGE, Marker};
use super::sys;
use super::wait::Wait;
use parking_lot::Mutex;
use rgpu_device::{CopySink, Error, HostData, Ordinal, Region, RegionCursor, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// The most bytes from one row to the next that the driver is asked to step over; every device can do this.
const MAX_PITCH: u64 = (1 << 31) - 1;

/// A stream that gets work.
pub(crate) struct On<'a> {
    pub core: &'a Arc<Core>,
    pub ordinal: Ordinal,
    pub stream: &'a Stream,
    pub belongings: &'a Belongings,
    /// When the work was put in order.
    pub turn: u64,
}

/// A piece of a region that one call can move: rows of one slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rows {
    addr: u64,
    pitch: u64,
    width: u64,
    height: u64,
}

impl Rows {
    fn bytes(&self) -> u64 {
        self.width * self.height
    }
}

/// Cuts a region into pieces of at most `most` bytes, in order.
fn pieces(region: Region, most: u64) -> impl Iterator<Item = Rows> {
    let mut cursor = RegionCursor::new(region);
    let strided = !region.is_contiguous() && region.row_pitch != region.width;
    let tall = strided && region.width <= most && region.row_pitch <= MAX_PITCH;
    let mut row = 0;
    std::iter::from_fn(move || {
        let (addr, run) = cursor.run()?;
        if !tall {
            let width = run.min(most);
            cursor.advance(width);
            return Some(Rows { addr, pitch: width, width, height: 1 });
        }
        // Whole rows, as many as fit and are left in this slice.
        let height = (most / region.width).min(region.height - row).max(1);
        cursor.advance(height * region.width);
        row = (row + height) % region.height;
        Some(Rows { addr, pitch: region.row_pitch, width: region.width, height })
    })
}

/// Tells the mirror when a copy to the host is over, however it ends.
struct Landed(Option<Arc<Latch>>);

impl Drop for Landed {
    fn drop(&mut self) {
        if let Some(latch) = self.0.take() {
            latch.open();
        }
    }
}

/// Counts copies to the host that the driver has been given and that have not been handed on.
struct UnderWay(Arc<AtomicU64>);

impl UnderWay {
    fn new(core: &Core) -> Self {
        core.copies_out.fetch_add(1, SeqCst);
        Self(core.copies_out.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// A copy to the host that is under way.
struct Outgoing {
    sink: Option<Box<dyn CopySink>>,
    failed: Option<Error>,
}

impl On<'_> {
    fn before(&self, place: &CheckedRegion) -> Result<()> {
        if place.mirrored {
            self.core.mirror.before_access(self.core, self.turn, place.region.addr)?;
            self.core.enter(self.ordinal)?;
        }
        Ok(())
    }

    /// Something to be done when the stream gets here.
    fn then(&self, then: impl FnOnce(Result<()>) + Send + 'static) -> Result<Arc<Marker>> {
        let marker = self.belongings.plain.take()?;
        self.core.driver.event_record(marker.raw, self.stream.raw)?;
        let (ordinal, then) = (self.ordinal, Box::new(then));
        let markers = vec![marker.clone()];
        self.core.waits.push(Wait { ordinal, markers, launches: 0, tells: false, then });
        Ok(marker)
    }

    /// Fills a region.
    pub(crate) fn fill(&self, to: CheckedRegion, value: u32, element: u32) -> Result<()> {
        self.before(&to)?;
        let size = u64::from(element);
        for rows in pieces(to.region, u64::MAX) {
            let stream = self.stream.raw;
            if rows.height == 1 {
                self.core.driver.fill(rows.addr, value, element, rows.width / size, stream)?;
            } else {
                let shape = (rows.width / size, rows.height);
                self.core.driver.fill_2d((rows.addr, rows.pitch), value, element, shape, stream)?;
            }
        }
        Ok(())
    }

    /// Copies from the host.
    pub(crate) fn copy_in(&self, to: CheckedRegion, host_addr: u64, data: HostData) -> Result<()> {
        self.before(&to)?;
        let core = self.core;
        let mut data = match data {
            HostData::Owned(bytes) => bytes,
            HostData::Borrowed(source) => source.gather(),
        };
        if core.mirror.may_overlay(self.turn, host_addr, data.len() as u64) {
            // What earlier work of the stream writes there counts, and is known only once it is done.
            core.driver.stream_synchronize(self.stream.raw)?;
            core.mirror.overlay(core, self.turn, host_addr, &mut data)?;
            core.enter(self.ordinal)?;
        }
        let mut rest = &data[..];
        for rows in pieces(to.region, LARGE as u64) {
            let len = rows.bytes() as usize;
            let mut buffer = self.belongings.staging.take(len)?;
            let part;
            (part, rest) = rest.split_at(len.min(rest.len()));
            // Piece by piece, so that the processor still has each at hand when it is copied.
            if rows.addr.is_multiple_of(8) {
                core.mirror.look_for_addresses(self.turn, part, 8);
            }
            buffer.bytes_mut(part.len()).copy_from_slice(part);
            self.move_rows(&rows, &buffer, true)?;
            self.then(move |_| drop(buffer)).map(drop)?;
        }
        Ok(())
    }

    /// Copies to the host; what becomes of it is told to the sink, at the end of the wait that is returned.
    pub(crate) fn copy_out(&self, from: CheckedRegion, host_addr: u64, sink: Box<dyn CopySink>) -> Wait {
        let landed = Landed(match from.region.bytes() {
            Some(bytes) => self.core.mirror.landing(self.turn, host_addr, bytes),
            None => None,
        });
        let under_way = UnderWay::new(self.core);
        let outgoing = Arc::new(Mutex::new(Outgoing { sink: Some(sink), failed: None }));
        let submitted = self.before(&from).and_then(|()| self.send(from.region, &outgoing));
        let finish = {
            let outgoing = outgoing.clone();
            move |result: Result<()>| {
                let mut outgoing = outgoing.lock();
                let (sink, failed) = (outgoing.sink.take(), outgoing.failed.take());
                drop(outgoing);
                if let Some(sink) = sink {
                    sink.done(failed.map_or(result, Err));
                }
                drop((landed, under_way));
            }
        };
        let (ordinal, launches) = (self.ordinal, 0);
        match submitted {
            Ok(marker) => {
                Wait { ordinal, markers: vec![marker], launches, tells: true, then: Box::new(finish) }
            }
            Err(error) => {
                // What fails for good fails for everybody; the rest concerns the copy alone.
                let failed = self.core.note::<()>(ordinal, Err(error));
                let then = Box::new(move |_: Result<()>| finish(failed));
                Wait { ordinal, markers: Vec::new(), launches, tells: false, then }
            }
        }
    }

    fn send(&self, from: Region, outgoing: &Arc<Mutex<Outgoing>>) -> Result<Arc<Marker>> {
        let mut last = None;
        for rows in pieces(from, LARGE as u64) {
            let len = rows.bytes() as usize;
            let buffer = self.belongings.staging.take(len)?;
            self.move_rows(&rows, &buffer, false)?;
            let outgoing = outgoing.clone();
            last = Some(self.then(move |result| {
                let mut guard = outgoing.lock();
                let outgoing = &mut *guard;
                match (result, &mut outgoing.sink) {
                    (Ok(()), Some(sink)) if outgoing.failed.is_none() => sink.chunk(&[buffer.bytes(len)]),
                    (Err(error), _) => drop(outgoing.failed.get_or_insert(error)),
                    _ => {}
                }
            })?);
        }
        match last {
            Some(last) => Ok(last),
            // A copy of nothing is over when the stream gets here, too.
            None => self.then(|_| {}),
        }
    }

    /// Moves rows between a device and a buffer in which they lie without gaps.
    fn move_rows(&self, rows: &Rows, buffer: &Buffer, inwards: bool) -> Result<()> {
        let (driver, stream) = (&self.core.driver, self.stream.raw);
        let len = rows.bytes() as usize;
        // SAFETY: the buffer is as long as the rows together, and is given back only after the stream has come
        // past this.
        unsafe {
            if rows.height == 1 {
                return match inwards {
                    true => driver.copy_in(rows.addr, buffer.at, len, stream),
                    false => driver.copy_out(buffer.at, rows.addr, len, stream),
                };
            }
            let mut copy = between(rows, rows);
            match inwards {
                true => {
                    copy.src_kind = sys::HOST;
                    copy.src_host = buffer.at.cast();
                    copy.src_pitch = rows.width as usize;
                }
                false => {
                    copy.dst_kind = sys::HOST;
                    copy.dst_host = buffer.at.cast();
                    copy.dst_pitch = rows.width as usize;
                }
            }
            driver.copy_2d(&copy, stream)
        }
    }

    /// Copies between devices, or on one.
    pub(crate) fn copy_across(&self, to: CheckedRegion, from: CheckedRegion) -> Result<()> {
        self.before(&to)?;
        self.before(&from)?;
        let core = self.core;
        let (driver, stream) = (&core.driver, self.stream.raw);
        if to.ordinal != from.ordinal {
            let context = |ordinal| core.gpu(ordinal).map(|gpu| gpu.belongings.lock().context);
            let (dst, src) = (context(to.ordinal)?, context(from.ordinal)?);
            return runs(to.region, from.region, |to, from, len| {
                driver.copy_peer((to, dst), (from, src), len, stream)
            });
        }
        let tall = |region: &Region| region.height > 1 && region.row_pitch <= MAX_PITCH;
        let same = to.region.width == from.region.width
            && to.region.height == from.region.height
            && to.region.depth == from.region.depth;
        if !same || !tall(&to.region) || !tall(&from.region) || both_plain(&to.region, &from.region) {
            return runs(to.region, from.region, |to, from, len| driver.copy(to, from, len, stream));
        }
        let slice = |region: &Region, z: u64| Rows {
            addr: region.addr + z * region.slice_pitch,
            pitch: region.row_pitch,
            width: region.width,
            height: region.height,
        };
        for z in 0..to.region.depth {
            let copy = between(&slice(&to.region, z), &slice(&from.region, z));
            // SAFETY: no side is on the host.
            unsafe { driver.copy_2d(&copy, stream) }?;
        }
        Ok(())
    }
}

fn both_plain(to: &Region, from: &Region) -> bool {
    to.is_contiguous() && from.is_contiguous()
}

fn between(to: &Rows, from: &Rows) -> sys::Memcpy2d {
    sys::Memcpy2d {
        src_x: 0,
        src_y: 0,
        src_kind: sys::DEVICE,
        src_host: std::ptr::null(),
        src_device: from.addr,
        src_array: std::ptr::null_mut(),
        src_pitch: from.pitch as usize,
        dst_x: 0,
        dst_y: 0,
        dst_kind: sys::DEVICE,
        dst_host: std::ptr::null_mut(),
        dst_device: to.addr,
        dst_array: std::ptr::null_mut(),
        dst_pitch: to.pitch as usize,
        width: to.width as usize,
        height: to.height as usize,
    }
}

/// Calls `copy` for each run of bytes that lies in one piece on both sides.
fn runs(to: Region, from: Region, mut copy: impl FnMut(u64, u64, u64) -> Result<()>) -> Result<()> {
    let (mut to, mut from) = (RegionCursor::new(to), RegionCursor::new(from));
    while let (Some((dst, dst_run)), Some((src, src_run))) = (to.run(), from.run()) {
        let run = dst_run.min(src_run);
        copy(dst, src, run)?;
        to.advance(run);
        from.advance(run);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_cut_into_pieces() {
        let linear: Vec<_> = pieces(Region::linear(1000, 25), 10).map(|r| (r.addr, r.bytes())).collect();
        assert_eq!(linear, [(1000, 10), (1010, 10), (1020, 5)]);
        let region = Region { addr: 0, row_pitch: 100, slice_pitch: 1000, width: 8, height: 5, depth: 2 };
        let rows: Vec<_> = pieces(region, 20).map(|r| (r.addr, r.width, r.height)).collect();
        assert_eq!(rows, [(0, 8, 2), (200, 8, 2), (400, 8, 1), (1000, 8, 2), (1200, 8, 2), (1400, 8, 1)]);
        // Rows that are too long are cut as well.
        let long = Region { addr: 0, row_pitch: 100, slice_pitch: 200, width: 30, height: 2, depth: 1 };
        let cut: Vec<_> = pieces(long, 20).map(|r| (r.addr, r.width, r.height)).collect();
        assert_eq!(cut, [(0, 20, 1), (20, 10, 1), (100, 20, 1), (120, 10, 1)]);
        assert_eq!(pieces(Region::linear(0, 0), 10).count(), 0);
        // Slices without gaps in them.
        let slices = Region { addr: 0, row_pitch: 4, slice_pitch: 64, width: 4, height: 4, depth: 2 };
        let cut: Vec<_> = pieces(slices, 100).map(|r| (r.addr, r.bytes())).collect();
        assert_eq!(cut, [(0, 16), (64, 16)]);
    }
}
