//! Texture and surface objects of the software GPU.
//!
//! An object is a [`TextureHeader`] in device memory, and the 64-bit handle that a program holds is the header's address.
//! Whoever makes an object writes the header by an ordinary copy, so that no call of its own is needed for that. A program
//! can overwrite the header as it can all its memory; whoever reads one believes nothing of it.

/// What the first eight bytes of every header are: a handle that leads elsewhere is recognised.
pub const TEXTURE_MAGIC: u64 = u64::from_le_bytes(*b"rgputex\x01");

/// Bytes of a header.
pub const TEXTURE_HEADER_BYTES: usize = 128;

/// Rows of arrays begin at multiples of so many bytes.
const ROW_ALIGNMENT: u64 = 64;
/// Mipmap levels begin at multiples of so many bytes.
const LEVEL_ALIGNMENT: u64 = 512;

/// The shape of what a texture or surface is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum TextureKind {
    /// A line of texels in an array.
    #[default]
    Line = 0,
    /// A plane.
    Plane = 1,
    /// A volume.
    Volume = 2,
    /// Several lines.
    Lines = 3,
    /// Several planes.
    Planes = 4,
    /// The six faces of a cube.
    Cube = 5,
    /// Several cubes.
    Cubes = 6,
    /// Linear memory, fetched by whole numbers alone.
    Linear = 7,
}

impl TextureKind {
    /// By its number; `None` where there is none with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Line,
            1 => Self::Plane,
            2 => Self::Volume,
            3 => Self::Lines,
            4 => Self::Planes,
            5 => Self::Cube,
            6 => Self::Cubes,
            7 => Self::Linear,
            _ => return None,
        })
    }

    /// Whether slices are layers or faces, which neither filtering nor mipmap levels mix.
    pub fn has_layers(self) -> bool {
        matches!(self, Self::Lines | Self::Planes | Self::Cube | Self::Cubes)
    }
}

/// What a channel of a texel is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum ChannelKind {
    /// An integer with a sign.
    #[default]
    Signed = 0,
    /// An integer without a sign.
    Unsigned = 1,
    /// A floating-point number of 16 or 32 bits.
    Float = 2,
}

impl ChannelKind {
    /// By its number, which is that of `cudaChannelFormatKind`.
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Signed,
            1 => Self::Unsigned,
            2 => Self::Float,
            _ => return None,
        })
    }
}

/// What a texel consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TexelFormat {
    /// What each channel is.
    pub kind: ChannelKind,
    /// Bits of a channel: 8, 16 or 32.
    pub bits: u8,
    /// Channels: 1, 2 or 4.
    pub channels: u8,
}

impl TexelFormat {
    /// A format, if there is such a one.
    pub fn new(kind: ChannelKind, bits: u8, channels: u8) -> Option<Self> {
        let exists = match kind {
            ChannelKind::Float => matches!(bits, 16 | 32),
            _ => matches!(bits, 8 | 16 | 32),
        };
        (exists && matches!(channels, 1 | 2 | 4)).then_some(Self { kind, bits, channels })
    }

    /// Bytes of a texel.
    #[inline]
    pub fn bytes(self) -> u32 {
        u32::from(self.bits) / 8 * u32::from(self.channels)
    }
}

/// What is read where a coordinate lies outside. The numbers are those of `cudaTextureAddressMode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum AddressMode {
    /// The texture is repeated.
    Wrap = 0,
    /// The texel at the edge.
    #[default]
    Clamp = 1,
    /// The texture is repeated, every other time mirrored.
    Mirror = 2,
    /// The border's colour.
    Border = 3,
}

impl AddressMode {
    /// By its number.
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Wrap,
            1 => Self::Clamp,
            2 => Self::Mirror,
            3 => Self::Border,
            _ => return None,
        })
    }
}

/// How a texture is read. What is false here is CUDA's other choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TextureFlags {
    /// It is a surface: read and written by whole numbers.
    pub surface: bool,
    /// Coordinates go from 0 to 1.
    pub normalized: bool,
    /// Integers are read as numbers from 0 or -1 to 1.
    pub as_float: bool,
    /// Texels are mixed with their neighbours.
    pub linear: bool,
    /// Mipmap levels are mixed.
    pub linear_levels: bool,
    /// Colours are stored as sRGB has them.
    pub srgb: bool,
}

/// One mipmap level: where it begins, behind the first, and its shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// Bytes from the beginning of the first level.
    pub offset: u64,
    /// Bytes from one row to the next.
    pub row_pitch: u64,
    /// Bytes from one slice to the next.
    pub slice_pitch: u64,
    /// Texels in each direction; the last are layers where there are such.
    pub size: [u32; 3],
}

impl Level {
    /// The first level of an array of this shape, `None` where it is too large for any memory.
    pub fn first(size: [u32; 3], texel: u32) -> Option<Self> {
        let row_pitch = (u64::from(size[0]) * u64::from(texel)).checked_next_multiple_of(ROW_ALIGNMENT)?;
        let slice_pitch = row_pitch.checked_mul(u64::from(size[1].max(1)))?;
        Some(Self { offset: 0, row_pitch, slice_pitch, size })
    }

    /// Bytes of this level.
    pub fn bytes(&self) -> Option<u64> {
        self.slice_pitch.checked_mul(u64::from(self.size[2].max(1)))
    }

    /// The level after this one, whose sides are half as long; layers stay as many.
    pub fn next(&self, texel: u32, layers: bool) -> Option<Self> {
        let half = |n: u32| if n == 0 { 0 } else { (n / 2).max(1) };
        let [width, height, depth] = self.size;
        let size = [half(width), half(height), if layers { depth } else { half(depth) }];
        let offset = self.offset.checked_add(self.bytes()?)?.checked_next_multiple_of(LEVEL_ALIGNMENT)?;
        Some(Self { offset, ..Self::first(size, texel)? })
    }
}

/// A texture or surface object, as it lies in device memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TextureHeader {
    /// Address of the first texel of the first level.
    pub base: u64,
    /// Bytes from one row of the first level to the next.
    pub row_pitch: u64,
    /// Bytes from one slice of the first level to the next.
    pub slice_pitch: u64,
    /// Texels of the first level in each direction, 0 for directions that there are not; the last are layers (six for a cube)
    /// where there are such. Linear memory has its texels in the first.
    pub size: [u32; 3],
    /// Mipmap levels, at least one.
    pub levels: u32,
    /// The shape.
    pub kind: TextureKind,
    /// The texels.
    pub format: TexelFormat,
    /// How it is read.
    pub flags: TextureFlags,
    /// What is outside, in each direction.
    pub address: [AddressMode; 3],
    /// The border's colour: bits of single-precision numbers.
    pub border: [u32; 4],
    /// Added to every level that is asked for.
    pub level_bias: f32,
    /// The lowest level that is read.
    pub level_low: f32,
    /// The highest one.
    pub level_high: f32,
}

impl TextureHeader {
    /// One level of texels at an address, of which nothing else is said: clamped, not mixed, read as they are. `pitches` are those of
    /// rows and of slices, in bytes.
    pub fn plain(
        kind: TextureKind,
        format: TexelFormat,
        base: u64,
        size: [u32; 3],
        [row_pitch, slice_pitch]: [u64; 2],
    ) -> Self {
        Self {
            base,
            row_pitch,
            slice_pitch,
            size,
            levels: 1,
            kind,
            format,
            flags: TextureFlags::default(),
            address: [AddressMode::Clamp; 3],
            border: [0; 4],
            level_bias: 0.0,
            level_low: 0.0,
            level_high: 0.0,
        }
    }

    /// The header as it is written to memory.
    pub fn to_bytes(&self) -> [u8; TEXTURE_HEADER_BYTES] {
        let mut bytes = [0; TEXTURE_HEADER_BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &TEXTURE_MAGIC.to_le_bytes());
        put(8, &self.base.to_le_bytes());
        put(16, &self.row_pitch.to_le_bytes());
        put(24, &self.slice_pitch.to_le_bytes());
        for (index, size) in self.size.iter().enumerate() {
            put(32 + index * 4, &size.to_le_bytes());
        }
        put(44, &self.levels.to_le_bytes());
        put(48, &[self.kind as u8, self.format.kind as u8, self.format.bits, self.format.channels]);
        let f = self.flags;
        let flags = [f.surface, f.normalized, f.as_float, f.linear, f.linear_levels, f.srgb];
        put(52, &[flags.iter().enumerate().fold(0, |all, (bit, &set)| all | u8::from(set) << bit)]);
        put(53, &self.address.map(|mode| mode as u8));
        for (index, colour) in self.border.iter().enumerate() {
            put(56 + index * 4, &colour.to_le_bytes());
        }
        for (index, number) in [self.level_bias, self.level_low, self.level_high].iter().enumerate() {
            put(72 + index * 4, &number.to_le_bytes());
        }
        bytes
    }

    /// What a header says; `None` where it is none. Addresses and sizes are whatever stands there.
    pub fn from_bytes(bytes: &[u8; TEXTURE_HEADER_BYTES]) -> Option<Self> {
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        if long(0) != TEXTURE_MAGIC {
            return None;
        }
        let flag = |bit: u8| bytes[52] >> bit & 1 != 0;
        let mode = |index: usize| AddressMode::from_number(bytes[53 + index]);
        Some(Self {
            base: long(8),
            row_pitch: long(16),
            slice_pitch: long(24),
            size: [word(32), word(36), word(40)],
            levels: word(44),
            kind: TextureKind::from_number(bytes[48])?,
            format: TexelFormat::new(ChannelKind::from_number(bytes[49])?, bytes[50], bytes[51])?,
            flags: TextureFlags {
                surface: flag(0),
                normalized: flag(1),
                as_float: flag(2),
                linear: flag(3),
                linear_levels: flag(4),
                srgb: flag(5),
            },
            address: [mode(0)?, mode(1)?, mode(2)?],
            border: [word(56), word(60), word(64), word(68)],
            level_bias: f32::from_bits(word(72)),
            level_low: f32::from_bits(word(76)),
            level_high: f32::from_bits(word(80)),
        })
    }

    /// The first level.
    #[inline]
    pub fn first_level(&self) -> Level {
        Level { offset: 0, row_pitch: self.row_pitch, slice_pitch: self.slice_pitch, size: self.size }
    }

    /// Any level; `None` where it is beyond all memory.
    pub fn level(&self, number: u32) -> Option<Level> {
        let mut level = self.first_level();
        // No side is longer than 32 halvings.
        for _ in 0..number.min(32) {
            level = level.next(self.format.bytes(), self.kind.has_layers())?;
        }
        Some(level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_were_written() {
        let header = TextureHeader {
            base: 0x1234_5678_9abc,
            row_pitch: 512,
            slice_pitch: 4096,
            size: [100, 8, 3],
            levels: 2,
            kind: TextureKind::Volume,
            format: TexelFormat::new(ChannelKind::Unsigned, 8, 4).unwrap(),
            flags: TextureFlags { normalized: true, linear: true, srgb: true, ..TextureFlags::default() },
            address: [AddressMode::Wrap, AddressMode::Border, AddressMode::Mirror],
            border: [1, 2, 3, 4],
            level_bias: 0.5,
            level_low: 0.25,
            level_high: 7.0,
        };
        let mut bytes = header.to_bytes();
        assert_eq!(TextureHeader::from_bytes(&bytes), Some(header));
        bytes[48] = 9;
        assert_eq!(TextureHeader::from_bytes(&bytes), None, "there is no such shape");
        assert_eq!(TextureHeader::from_bytes(&[0; TEXTURE_HEADER_BYTES]), None);
        assert_eq!(TexelFormat::new(ChannelKind::Float, 8, 1), None);
        assert_eq!(TexelFormat::new(ChannelKind::Signed, 8, 3), None);
    }

    #[test]
    fn levels_lie_one_behind_the_other() {
        let first = Level::first([20, 10, 4], 4).unwrap();
        assert_eq!((first.row_pitch, first.slice_pitch, first.bytes()), (128, 1280, Some(5120)));
        let second = first.next(4, false).unwrap();
        assert_eq!((second.offset, second.size, second.row_pitch), (5120, [10, 5, 2], 64));
        let third = second.next(4, false).unwrap();
        assert_eq!((third.offset, third.size), (6144, [5, 2, 1]), "640 bytes, rounded up");
        assert_eq!(first.next(4, true).unwrap().size, [10, 5, 4], "layers stay as many");
        assert_eq!(Level { slice_pitch: u64::MAX, ..first }.next(4, false), None);
    }
}
