//! Arrays: texels in device memory whose layout is the device's business, with or without mipmap levels.

use std::sync::{Arc, LazyLock};

use rgpu_device::attribute;
use rgpu_device::texture::{Level, TexelFormat, TextureKind};

use super::Code;
use super::error::{Error, Result, invalid, not_implemented};
use super::registry::{Raw, Registry};
use super::transfer::CopySide;

/// Its depth counts layers.
pub(crate) const LAYERED: u32 = 0x01;
/// It may be a surface.
pub(crate) const SURFACE: u32 = 0x02;
/// Its depth counts the faces of cubes.
pub(crate) const CUBEMAP: u32 = 0x04;
/// `CUDA_ARRAY3D_TEXTURE_GATHER`, which changes nothing here.
const GATHER: u32 = 0x08;

/// What a program asks for when it creates an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// In texels; zeros for the dimensions that it does not have. The last may be layers.
    pub(crate) size: [usize; 3],
    /// The texels.
    pub(crate) format: TexelFormat,
    /// `CUDA_ARRAY3D_LAYERED` and its like.
    pub(crate) flags: u32,
}

impl Shape {
    /// What a texture of it looks like.
    pub(crate) fn kind(&self) -> TextureKind {
        let [_, height, depth] = self.size;
        match (self.flags & CUBEMAP != 0, self.flags & LAYERED != 0) {
            (true, true) => TextureKind::Cubes,
            (true, false) => TextureKind::Cube,
            (false, true) if height == 0 => TextureKind::Lines,
            (false, true) => TextureKind::Planes,
            (false, false) if depth != 0 => TextureKind::Volume,
            (false, false) if height != 0 => TextureKind::Plane,
            (false, false) => TextureKind::Line,
        }
    }

    /// Checks it against what CUDA has, and what a device with these attributes has. Attributes of 0 say nothing.
    pub(crate) fn check(&self, of_device: &dyn Fn(u32) -> i32) -> Result<()> {
        if self.flags & !(LAYERED | SURFACE | CUBEMAP | GATHER) != 0 {
            return Err(not_implemented("a sparse, deferred, depth or colour-attached array"));
        }
        let [width, height, depth] = self.size;
        if width == 0 || height == 0 && depth != 0 && self.flags & LAYERED == 0 {
            return Err(invalid("an array needs a width, and a height if it has a depth"));
        }
        if self.flags & LAYERED != 0 && depth == 0 {
            return Err(invalid("a layered array needs layers"));
        }
        let faces = if self.flags & LAYERED != 0 { depth % 6 == 0 } else { depth == 6 };
        if self.flags & CUBEMAP != 0 && (width != height || !faces) {
            return Err(invalid("the faces of a cube are squares, and six"));
        }
        use attribute as a;
        let most = match self.kind() {
            TextureKind::Line | TextureKind::Linear => [a::MAXIMUM_TEXTURE1D_WIDTH, 0, 0],
            TextureKind::Plane => [a::MAXIMUM_TEXTURE2D_WIDTH, a::MAXIMUM_TEXTURE2D_HEIGHT, 0],
            TextureKind::Volume => {
                [a::MAXIMUM_TEXTURE3D_WIDTH, a::MAXIMUM_TEXTURE3D_HEIGHT, a::MAXIMUM_TEXTURE3D_DEPTH]
            }
            TextureKind::Lines => {
                [a::MAXIMUM_TEXTURE1D_LAYERED_WIDTH, 0, a::MAXIMUM_TEXTURE1D_LAYERED_LAYERS]
            }
            TextureKind::Planes => [
                a::MAXIMUM_TEXTURE2D_LAYERED_WIDTH,
                a::MAXIMUM_TEXTURE2D_LAYERED_HEIGHT,
                a::MAXIMUM_TEXTURE2D_LAYERED_LAYERS,
            ],
            TextureKind::Cube => [a::MAXIMUM_TEXTURECUBEMAP_WIDTH, 0, 0],
            TextureKind::Cubes => {
                [a::MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH, 0, a::MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS]
            }
        };
        for (size, number) in self.size.into_iter().zip(most) {
            let most = if number == 0 { 0 } else { of_device(number) };
            if most > 0 && size > most as usize || size > i32::MAX as usize {
                return Err(invalid(format!("the array is larger than the device's {most} texels")));
            }
        }
        Ok(())
    }

    /// Where its levels lie, and how many bytes they have together.
    pub(crate) fn levels(&self, count: u32) -> Result<(Vec<Level>, u64)> {
        let too_large = || Error::new(Code::OutOfMemory, "the array is too large");
        let texel = self.format.bytes();
        let mut level = Level::first(self.size.map(|n| n as u32), texel).ok_or_else(too_large)?;
        let mut all = vec![level];
        while all.len() < count as usize {
            level = level.next(texel, self.kind().has_layers()).ok_or_else(too_large)?;
            all.push(level);
        }
        let bytes = level.bytes().and_then(|bytes| bytes.checked_add(level.offset)).ok_or_else(too_large)?;
        Ok((all, bytes))
    }

    /// Levels until there is one texel.
    pub(crate) fn most_levels(&self) -> u32 {
        let [width, height, depth] = self.size;
        let depth = if self.kind().has_layers() { 0 } else { depth };
        width.max(height).max(depth).max(1).ilog2() + 1
    }
}

/// An array.
#[derive(Debug)]
pub(crate) struct Array {
    /// Its handle.
    pub(crate) raw: Raw,
    /// Its own size, also where it is a level of others.
    pub(crate) shape: Shape,
    /// Where its rows are, from [`Array::addr`].
    pub(crate) level: Level,
    /// The address of its first texel.
    pub(crate) addr: u64,
    /// Whether it is a level of an array with mipmap levels, which it is freed with.
    pub(crate) is_level: bool,
}

/// An array with mipmap levels.
#[derive(Debug)]
pub(crate) struct Mipmapped {
    /// Its handle.
    pub(crate) raw: Raw,
    /// Its levels.
    pub(crate) levels: Vec<Arc<Array>>,
}

static ARRAYS: LazyLock<Registry<Array>> = LazyLock::new(|| Registry::new("array"));
static MIPMAPPED: LazyLock<Registry<Mipmapped>> = LazyLock::new(|| Registry::new("mipmapped array"));

/// The array behind a handle.
pub(crate) fn array(raw: Raw) -> Result<Arc<Array>> {
    ARRAYS.get(raw)
}

/// The mipmapped array behind a handle.
pub(crate) fn mipmapped(raw: Raw) -> Result<Arc<Mipmapped>> {
    MIPMAPPED.get(raw)
}

/// Registers what lies at an address: an array, or one with so many levels.
pub(super) fn insert(shape: Shape, level: Level, addr: u64, is_level: bool) -> Arc<Array> {
    let size = level.size.map(|n| n as usize);
    let addr = addr + level.offset;
    ARRAYS.insert(|raw| Array { raw, shape: Shape { size, ..shape }, level, addr, is_level })
}

/// Registers an array with mipmap levels.
pub(super) fn insert_mipmapped(levels: Vec<Arc<Array>>) -> Raw {
    MIPMAPPED.insert(|raw| Mipmapped { raw, levels }).raw
}

/// Takes an array out, and says where it was.
pub(super) fn remove(raw: Raw) -> Result<u64> {
    if array(raw)?.is_level {
        return Err(invalid("a mipmap level is freed with its array"));
    }
    Ok(ARRAYS.remove(raw)?.addr)
}

/// Takes an array with mipmap levels out, with these, and says where it was.
pub(super) fn remove_mipmapped(raw: Raw) -> Result<u64> {
    let gone = MIPMAPPED.remove(raw)?;
    for level in &gone.levels {
        ARRAYS.remove(level.raw)?;
    }
    Ok(gone.levels.first().map_or(0, |level| level.addr))
}

impl Array {
    /// Bytes of a texel.
    pub(crate) fn element(&self) -> usize {
        self.shape.format.bytes() as usize
    }

    /// Rows of a slice.
    fn rows(&self) -> usize {
        self.shape.size[1].max(1)
    }

    /// Slices.
    fn slices(&self) -> usize {
        self.shape.size[2].max(1)
    }

    /// Bytes in a row.
    fn row_bytes(&self) -> usize {
        self.shape.size[0] * self.element()
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
        let Level { row_pitch, slice_pitch, .. } = self.level;
        let addr = self.addr + x as u64 + y as u64 * row_pitch + z as u64 * slice_pitch;
        Ok(CopySide { addr, row_pitch, slice_pitch })
    }

    /// The runs of bytes that `count` bytes make, row after row, from byte `x` of row `y`: address, length.
    pub(crate) fn runs(&self, x: usize, y: usize, count: usize) -> Result<Vec<(u64, u64)>> {
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
            runs.push((self.addr + y as u64 * self.level.row_pitch + x as u64, len as u64));
            (x, y, left) = (0, y + 1, left - len);
        }
        Ok(runs)
    }

    /// The same, from a byte of all the rows together.
    pub(crate) fn runs_from(&self, offset: usize, count: usize) -> Result<Vec<(u64, u64)>> {
        let row = self.row_bytes().max(1);
        self.runs(offset % row, offset / row, count)
    }
}

/// Pairs the runs of two sides: addresses of both, and lengths.
pub(crate) fn pairs(to: Vec<(u64, u64)>, from: Vec<(u64, u64)>) -> Vec<(u64, u64, u64)> {
    let (mut to, mut from) = (to.into_iter(), from.into_iter());
    let (mut a, mut b) = ((0, 0), (0, 0));
    let mut all = Vec::new();
    loop {
        if a.1 == 0 {
            a = to.next().unwrap_or_default();
        }
        if b.1 == 0 {
            b = from.next().unwrap_or_default();
        }
        let len = a.1.min(b.1);
        if len == 0 {
            return all;
        }
        all.push((a.0, b.0, len));
        a = (a.0 + len, a.1 - len);
        b = (b.0 + len, b.1 - len);
    }
}

#[cfg(test)]
mod tests {
    use rgpu_device::texture::ChannelKind;

    use super::*;

    fn shape(size: [usize; 3], flags: u32) -> Shape {
        Shape { size, format: TexelFormat::new(ChannelKind::Float, 32, 1).unwrap(), flags }
    }

    fn array_of(width: usize, height: usize, depth: usize) -> Array {
        let shape = shape([width, height, depth], 0);
        let level = Level { row_pitch: 256, ..shape.levels(1).unwrap().0[0] };
        let level = Level { slice_pitch: 256 * height.max(1) as u64, ..level };
        Array { raw: 0, shape, level, addr: 0x1000, is_level: false }
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
        assert_eq!(array.runs_from(36, 50).unwrap(), array.runs(36, 0, 50).unwrap());
        assert_eq!(array.runs(0, 0, 120).unwrap().len(), 3);
        assert!(array.runs(1, 0, 120).is_err());
        assert!(array_of(10, 0, 0).runs(0, 0, 40).is_ok());
        let both = pairs(vec![(0, 10), (100, 5)], vec![(50, 4), (70, 11)]);
        assert_eq!(both, [(0, 50, 4), (4, 70, 6), (100, 76, 5)]);
    }

    #[test]
    fn shapes_that_there_are_not_are_refused() {
        let none = |_: u32| 0;
        for (size, flags, kind) in [
            ([5, 0, 0], 0, TextureKind::Line),
            ([5, 4, 0], 0, TextureKind::Plane),
            ([5, 4, 3], SURFACE, TextureKind::Volume),
            ([5, 0, 3], LAYERED, TextureKind::Lines),
            ([5, 4, 3], LAYERED, TextureKind::Planes),
            ([4, 4, 6], CUBEMAP, TextureKind::Cube),
            ([4, 4, 12], CUBEMAP | LAYERED, TextureKind::Cubes),
        ] {
            assert_eq!(shape(size, flags).kind(), kind);
            shape(size, flags).check(&none).unwrap();
            assert!(shape(size, flags).check(&|_| 3).is_err(), "{size:?}: larger than the device can");
        }
        for (size, flags) in [
            ([0, 4, 0], 0),
            ([5, 0, 3], 0),
            ([5, 4, 0], LAYERED),
            ([4, 5, 6], CUBEMAP),
            ([4, 4, 5], CUBEMAP),
            ([4, 4, 13], CUBEMAP | LAYERED),
        ] {
            assert_eq!(shape(size, flags).check(&none).unwrap_err().code, Code::InvalidValue);
        }
        assert_eq!(shape([20, 10, 0], 0).most_levels(), 5);
        assert_eq!(shape([4, 4, 60], LAYERED).most_levels(), 3, "layers have no levels of their own");
    }
}
