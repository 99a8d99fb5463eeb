//! Walking through a region, row by row.

use crate::Region;

/// Walks a [`Region`] of this process's own memory in order, one contiguous run at a time.
#[derive(Debug, Clone)]
pub struct RegionCursor {
    region: Region,
    offset: u64,
    total: u64,
}

impl RegionCursor {
    /// A cursor at the region's first byte. A region whose size overflows counts as empty.
    pub fn new(region: Region) -> Self {
        Self { region, offset: 0, total: region.bytes().unwrap_or(0) }
    }

    /// How many bytes lie ahead.
    pub fn remaining(&self) -> u64 {
        self.total - self.offset
    }

    /// Address and length of the longest contiguous run that lies ahead; `None` at the end.
    pub fn run(&self) -> Option<(u64, u64)> {
        if self.offset >= self.total {
            return None;
        }
        let r = &self.region;
        if r.is_contiguous() {
            return Some((r.addr.wrapping_add(self.offset), self.total - self.offset));
        }
        let slice_bytes = r.width * r.height;
        let (z, in_slice) = (self.offset / slice_bytes, self.offset % slice_bytes);
        let (y, x) = (in_slice / r.width, in_slice % r.width);
        let at = r
            .addr
            .wrapping_add(z.wrapping_mul(r.slice_pitch))
            .wrapping_add(y.wrapping_mul(r.row_pitch))
            .wrapping_add(x);
        let run = if r.row_pitch == r.width { slice_bytes - in_slice } else { r.width - x };
        Some((at, run))
    }

    /// The largest box of at most `most` bytes that lies ahead and can be copied at once; `None` at the end.
    pub fn part(&self, most: u64) -> Option<Region> {
        let (addr, run) = self.run()?;
        let r = &self.region;
        let x = if r.is_contiguous() { 0 } else { self.offset % r.width };
        if run >= most || x != 0 || r.is_contiguous() || r.row_pitch == r.width {
            return Some(Region::linear(addr, run.min(most)));
        }
        let y = self.offset % (r.width * r.height) / r.width;
        Some(Region { addr, height: (most / r.width).min(r.height - y), depth: 1, ..*r })
    }

    /// Goes `bytes` ahead.
    pub fn advance(&mut self, bytes: u64) {
        self.offset = self.total.min(self.offset.saturating_add(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_whole_and_fit() {
        let strided =
            |width, height| Region { addr: 1000, row_pitch: 64, slice_pitch: 4096, width, height, depth: 3 };
        let regions = [
            (Region::linear(7, 1000), 10),
            (strided(10, 25), 3 * 3),
            (strided(64, 25), 3 * 16),
            (Region { row_pitch: 1000, slice_pitch: 100_000, ..strided(250, 4) }, 3 * 4 * 3),
            (Region::linear(7, 0), 0),
        ];
        for (region, count) in regions {
            let mut cursor = RegionCursor::new(region);
            let mut walked = RegionCursor::new(region);
            let mut parts = 0;
            while let Some(part) = cursor.part(100) {
                assert!(part.check().is_ok() && part.bytes().is_some_and(|n| n > 0 && n <= 100), "{part:?}");
                let mut inside = RegionCursor::new(part);
                while let Some((addr, run)) = inside.run() {
                    let (at, there) = walked.run().unwrap();
                    assert_eq!(addr, at, "{region:?} {part:?}");
                    let n = run.min(there);
                    inside.advance(n);
                    walked.advance(n);
                }
                cursor.advance(part.bytes().unwrap());
                parts += 1;
            }
            assert_eq!((walked.remaining(), parts), (0, count), "{region:?}");
        }
    }
}
