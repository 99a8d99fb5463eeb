//! Boxes of bytes that copies and fills work with, and the rules for them.

use crate::{Code, Error, Result};

/// A box of bytes in device memory: `depth` slices of `height` rows of `width` bytes. Row `y` of slice
/// `z` starts at `addr + z * slice_pitch + y * row_pitch`. A plain run of bytes has height and depth 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Region {
    /// Address of the first byte.
    pub addr: u64,
    /// Bytes from one row to the next.
    pub row_pitch: u64,
    /// Bytes from one slice to the next.
    pub slice_pitch: u64,
    /// Bytes in a row.
    pub width: u64,
    /// Rows in a slice.
    pub height: u64,
    /// How many slices there are.
    pub depth: u64,
}

impl Region {
    /// A plain run of `len` bytes.
    pub fn linear(addr: u64, len: u64) -> Self {
        Self { addr, row_pitch: len, slice_pitch: len, width: len, height: 1, depth: 1 }
    }

    /// Whether it is a plain run of bytes.
    #[inline]
    pub fn is_run(&self) -> bool {
        self.height == 1 && self.depth == 1
    }

    /// How many bytes the region holds; `None` on overflow.
    #[inline]
    pub fn bytes(&self) -> Option<u64> {
        if self.is_run() {
            return Some(self.width);
        }
        self.width.checked_mul(self.height)?.checked_mul(self.depth)
    }

    /// How many bytes lie between the first and one past the last; `None` on overflow.
    #[inline]
    pub fn extent(&self) -> Option<u64> {
        if self.is_run() {
            return Some(self.width);
        }
        if self.width == 0 || self.height == 0 || self.depth == 0 {
            return Some(0);
        }
        let rows = (self.height - 1).checked_mul(self.row_pitch)?;
        let slices = (self.depth - 1).checked_mul(self.slice_pitch)?;
        rows.checked_add(slices)?.checked_add(self.width)
    }

    /// Checks that the region can be walked: no overflow, and no rows or slices inside one another.
    ///
    /// # Errors
    /// [`Code::InvalidPitchValue`], which is `CUDA_ERROR_INVALID_VALUE` to users of the driver API, where the row pitch is
    /// smaller than a row; [`Code::InvalidValue`] for everything else.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.is_run() && self.addr.checked_add(self.width).is_some() {
            return Ok(());
        }
        self.check_box()
    }

    fn check_box(&self) -> Result<()> {
        let (Some(bytes), Some(extent)) = (self.bytes(), self.extent()) else {
            return self.bad(Code::InvalidValue, "The region's size overflows");
        };
        if self.addr.checked_add(extent).is_none() {
            return self.bad(Code::InvalidValue, "The region wraps around");
        }
        if bytes == 0 {
            return Ok(());
        }
        if self.height > 1 && self.row_pitch < self.width {
            return self.bad(Code::InvalidPitchValue, "The row pitch is smaller than a row");
        }
        if self.depth > 1 {
            let slice = Region { depth: 1, ..*self }.extent().unwrap_or(u64::MAX);
            if self.slice_pitch < slice {
                return self.bad(Code::InvalidValue, "The slice pitch is smaller than a slice");
            }
        }
        Ok(())
    }

    /// Checks that the region can be filled with elements of so many bytes: 1, 2 or 4, and each aligned to its size.
    ///
    /// # Errors
    /// [`Code::InvalidValue`], besides those of [`Region::check`].
    pub fn check_fill(&self, element: u32) -> Result<()> {
        if !matches!(element, 1 | 2 | 4) {
            let text = format!("Memory cannot be filled with elements of {element} bytes");
            return Err(Error::new(Code::InvalidValue, text));
        }
        self.check()?;
        // Pitches that nothing is stepped over by mean nothing.
        let rows = if self.height > 1 { self.row_pitch } else { 0 };
        let slices = if self.depth > 1 { self.slice_pitch } else { 0 };
        if [self.addr, self.width, rows, slices].iter().any(|n| !n.is_multiple_of(u64::from(element))) {
            return self
                .bad(Code::InvalidValue, "The region is not aligned to the elements that it is filled with");
        }
        Ok(())
    }

    /// Checks that a copy can be made from `src` to this region: both can be walked, and have the same shape.
    ///
    /// # Errors
    /// [`Code::InvalidValue`] where the shapes differ, besides those of [`Region::check`].
    #[inline]
    pub fn check_copy(&self, src: &Region) -> Result<()> {
        self.check()?;
        src.check()?;
        if (self.width, self.height, self.depth) == (src.width, src.height, src.depth) {
            return Ok(());
        }
        let text = format!("The two sides of a copy differ in shape: {self:?} and {src:?}");
        Err(Error::new(Code::InvalidValue, text))
    }

    #[cold]
    fn bad(&self, code: Code, what: &str) -> Result<()> {
        Err(Error::new(code, format!("{what}: {self:?}")))
    }

    /// Whether the rows lie one after another without gaps.
    pub fn is_contiguous(&self) -> bool {
        (self.height <= 1 || self.row_pitch == self.width)
            && (self.depth <= 1 || self.slice_pitch == self.width * self.height)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(result: Result<()>) -> Option<Code> {
        result.err().map(|e| e.code)
    }

    const BOX: Region =
        Region { addr: 4096, row_pitch: 64, slice_pitch: 256, width: 32, height: 4, depth: 3 };

    #[test]
    fn regions_that_cannot_be_walked_are_refused() {
        assert_eq!(BOX.check(), Ok(()));
        let cases = [
            (Region { row_pitch: 31, ..BOX }, Code::InvalidPitchValue),
            (Region { slice_pitch: 223, ..BOX }, Code::InvalidValue),
            (Region { addr: u64::MAX - 8, ..BOX }, Code::InvalidValue),
            (Region { row_pitch: u64::MAX / 2, ..BOX }, Code::InvalidValue),
            (Region { slice_pitch: u64::MAX / 2, ..BOX }, Code::InvalidValue),
            (Region { width: u64::MAX, row_pitch: u64::MAX, ..BOX }, Code::InvalidValue),
            (Region::linear(u64::MAX, 2), Code::InvalidValue),
        ];
        for (region, expected) in cases {
            assert_eq!(code(region.check()), Some(expected), "{region:?}");
        }
        // The last row of a slice needs no gap behind it; what is not stepped over may be anything.
        assert_eq!(Region { slice_pitch: 224, ..BOX }.check(), Ok(()));
        assert_eq!(Region { row_pitch: 0, slice_pitch: 0, height: 1, depth: 1, ..BOX }.check(), Ok(()));
        assert_eq!(Region { height: 0, row_pitch: 0, ..BOX }.check(), Ok(()));
    }

    #[test]
    fn fills_are_aligned_to_their_elements() {
        for element in [1, 2, 4] {
            assert_eq!(BOX.check_fill(element), Ok(()));
        }
        for element in [0, 3, 8] {
            assert_eq!(code(BOX.check_fill(element)), Some(Code::InvalidValue));
        }
        for element in [2, 4] {
            let off = u64::from(element) / 2;
            let regions = [
                Region { addr: BOX.addr + off, ..BOX },
                Region { width: BOX.width - off, ..BOX },
                Region { row_pitch: BOX.row_pitch + off, slice_pitch: 1024, ..BOX },
                Region { slice_pitch: BOX.slice_pitch + off, ..BOX },
            ];
            for region in regions {
                assert_eq!(code(region.check_fill(element)), Some(Code::InvalidValue), "{region:?}");
                assert_eq!(region.check_fill(1), Ok(()));
            }
        }
        assert_eq!(code(Region { row_pitch: 16, ..BOX }.check_fill(1)), Some(Code::InvalidPitchValue));
        // A pitch that nothing is stepped over by need not be aligned.
        assert_eq!(
            Region { row_pitch: 33, slice_pitch: 1, height: 1, depth: 1, ..BOX }.check_fill(4),
            Ok(())
        );
    }

    #[test]
    fn both_sides_of_a_copy_have_one_shape() {
        let packed = Region { row_pitch: 32, slice_pitch: 128, ..BOX };
        assert_eq!(BOX.check_copy(&packed), Ok(()));
        let other = Region { width: 64, height: 2, row_pitch: 64, ..BOX };
        assert_eq!(other.bytes(), BOX.bytes());
        assert_eq!(code(BOX.check_copy(&other)), Some(Code::InvalidValue));
        assert_eq!(code(BOX.check_copy(&Region { row_pitch: 1, ..BOX })), Some(Code::InvalidPitchValue));
        assert_eq!(code(Region { row_pitch: 1, ..BOX }.check_copy(&BOX)), Some(Code::InvalidPitchValue));
    }
}
