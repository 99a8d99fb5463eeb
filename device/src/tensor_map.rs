//! Tensor maps of the software GPU: what a kernel's bulk copies of tensors go by.
//!
//! CUDA says of a `CUtensorMap` only that it has 128 bytes, which a program copies wherever it likes. Here they hold a
//! [`TensorMap`] in a layout of rgpu's own. A program can overwrite them, and kernels change single fields of them
//! (`tensormap.replace`, [`replace`]); so whoever uses a map reads it once and believes nothing that [`TensorMap::from_bytes`]
//! has not checked.

/// What eight bytes of every map are.
pub const TENSOR_MAP_MAGIC: u64 = u64::from_le_bytes(*b"rgPutma\x01");
/// Where in a map these are. Bit 21 of this word is clear: CUTLASS clears it in maps that the driver has made, where `cuDriverGetVersion` says 13.1 or less.
pub const TENSOR_MAP_MAGIC_AT: usize = 8;
const _: () = assert!(TENSOR_MAP_MAGIC & 1 << 21 == 0);

/// Bytes of a map.
pub const TENSOR_MAP_BYTES: usize = 128;

/// A map's bytes as little-endian words, as which it travels.
pub fn words_of(map: &[u8; TENSOR_MAP_BYTES]) -> [u64; TENSOR_MAP_BYTES / 8] {
    std::array::from_fn(|word| u64::from_le_bytes(std::array::from_fn(|i| map[word * 8 + i])))
}

/// The opposite of [`words_of`].
pub fn bytes_of(words: &[u64; TENSOR_MAP_BYTES / 8]) -> [u8; TENSOR_MAP_BYTES] {
    std::array::from_fn(|at| words[at / 8].to_le_bytes()[at % 8])
}

/// Bytes at whose multiples a map has to begin.
pub const TENSOR_MAP_ALIGN: u64 = 64;

/// Dimensions that a tensor has at most.
pub const MAX_RANK: usize = 5;

const ADDRESS: usize = 0;
const STRIDES: usize = 16;
const SIZES: usize = 48;
const BOX: usize = 68;
const KIND: usize = 78;
const RANK: usize = 79;
const STEPS: usize = 80;
const ELEMENT: usize = 85;
const INTERLEAVE: usize = 86;
const SWIZZLE: usize = 87;
const PROMOTION: usize = 88;
const FILL: usize = 89;
const LOWER: usize = 90;
const UPPER: usize = 96;

/// What a tensor's elements are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Element {
    U8,
    U16,
    U32,
    S32,
    U64,
    S64,
    F16,
    F32,
    F64,
    Bf16,
    /// Subnormal numbers become zeros of their sign.
    F32Ftz,
    /// Rounded to ten bits of mantissa where it is loaded.
    Tf32,
    /// Both.
    Tf32Ftz,
}

impl Element {
    /// In the order of `CUtensorMapDataType`.
    pub const ALL: [Self; 13] = [
        Self::U8,
        Self::U16,
        Self::U32,
        Self::S32,
        Self::U64,
        Self::S64,
        Self::F16,
        Self::F32,
        Self::F64,
        Self::Bf16,
        Self::F32Ftz,
        Self::Tf32,
        Self::Tf32Ftz,
    ];

    /// In the order of the numbers that `tensormap.replace` takes.
    const OF_PTX: [Self; 13] = [
        Self::U8,
        Self::U16,
        Self::U32,
        Self::S32,
        Self::U64,
        Self::S64,
        Self::F16,
        Self::F32,
        Self::F32Ftz,
        Self::F64,
        Self::Bf16,
        Self::Tf32,
        Self::Tf32Ftz,
    ];

    /// By its number in `CUtensorMapDataType`.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// Its bytes.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::U8 => 1,
            Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::U64 | Self::S64 | Self::F64 => 8,
            _ => 4,
        }
    }

    /// Whether it is a floating-point number.
    pub const fn is_float(self) -> bool {
        !matches!(self, Self::U8 | Self::U16 | Self::U32 | Self::S32 | Self::U64 | Self::S64)
    }
}

/// How 16-byte parts of a row change places in shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Swizzle {
    /// They do not.
    #[default]
    None = 0,
    /// Within 32 bytes.
    B32 = 1,
    /// Within 64 bytes.
    B64 = 2,
    /// Within 128 bytes.
    B128 = 3,
}

impl Swizzle {
    /// By its number in `CUtensorMapSwizzle`.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::None, Self::B32, Self::B64, Self::B128].get(number as usize).copied()
    }

    /// The bytes within which parts change places; `None` where they do not.
    pub const fn span(self) -> Option<u32> {
        match self {
            Self::None => None,
            Self::B32 => Some(32),
            Self::B64 => Some(64),
            Self::B128 => Some(128),
        }
    }

    /// Where the byte lies that would lie at this address of shared memory: bits 4 and up are changed by as many from bit 7 up.
    pub const fn place(self, address: u32) -> u32 {
        self.place_from(address, 0)
    }

    /// The same where the pattern begins so many rows of 128 bytes behind a multiple of eight.
    pub const fn place_from(self, address: u32, rows: u32) -> u32 {
        let mask = (1 << self as u32) - 1;
        address ^ ((address >> 7).wrapping_sub(rows) & mask) << 4
    }
}

/// How a kernel's copies find their way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A box of so many elements in each dimension.
    Tiled {
        /// Those.
        size: [u32; MAX_RANK],
    },
    /// Rows of channels of the pixels that a convolution multiplies with one place of its filter.
    Im2col {
        /// Where the pixels begin in each of the dimensions between channels and images, counted from the first.
        lower: [i32; 3],
        /// Where they end, counted from the last.
        upper: [i32; 3],
        /// Channels of a row.
        channels: u32,
        /// Rows.
        pixels: u32,
    },
}

/// What a map says of a tensor, with all that [`check`](Self::check) asks of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorMap {
    /// Where the first element lies.
    pub address: u64,
    /// Dimensions.
    pub rank: usize,
    /// Elements in each.
    pub sizes: [u64; MAX_RANK],
    /// Bytes from one element to the next in the second dimension and those that follow.
    pub strides: [u64; MAX_RANK - 1],
    /// Every how-many-th element is taken.
    pub steps: [u32; MAX_RANK],
    /// What elements are.
    pub element: Element,
    /// How rows lie in shared memory.
    pub swizzle: Swizzle,
    /// `CUtensorMapL2promotion`, which changes nothing here.
    pub promotion: u8,
    /// Whether NaN is read where there is no element, and not zero.
    pub nan: bool,
    /// What one copy takes.
    pub shape: Shape,
}

impl TensorMap {
    /// Whether there can be such a map; what is wrong with it otherwise.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.address == 0 || !self.address.is_multiple_of(16) {
            return Err("a tensor begins at a multiple of 16 bytes");
        }
        let least = if matches!(self.shape, Shape::Tiled { .. }) { 1 } else { 3 };
        if !(least..=MAX_RANK).contains(&self.rank) {
            return Err("a tensor has 1 to 5 dimensions, and for im2col 3 to 5");
        }
        if self.sizes[..self.rank].iter().any(|&size| size == 0 || size > 1 << 32) {
            return Err("a dimension of a tensor has 1 to 2^32 elements");
        }
        if self.strides[..self.rank - 1].iter().any(|&stride| !stride.is_multiple_of(16) || stride >= 1 << 40)
        {
            return Err("a tensor's strides are multiples of 16 bytes, and less than 2^40");
        }
        if self.steps[..self.rank].iter().any(|&step| step == 0 || step > 8) {
            return Err("every element, or at most every eighth is taken");
        }
        if self.promotion > 3 {
            return Err("no such promotion to the second-level cache");
        }
        if self.nan && !self.element.is_float() {
            return Err("NaN can be read for floating-point elements alone");
        }
        match self.shape {
            Shape::Tiled { size } => {
                if size[..self.rank].iter().any(|&size| size == 0 || size > 256) {
                    return Err("a box has 1 to 256 elements in each dimension");
                }
                if !self.row_bytes().is_multiple_of(16) {
                    return Err("the rows of a box are multiples of 16 bytes");
                }
            }
            Shape::Im2col { lower, upper, channels, pixels } => {
                if !(1..=256).contains(&channels) || !(1..=1024).contains(&pixels) {
                    return Err("1 to 256 channels are loaded of 1 to 1024 pixels");
                }
                if !self.row_bytes().is_multiple_of(16) {
                    return Err("the channels of a pixel are multiples of 16 bytes");
                }
                let most = [1 << 15, 1 << 7, 1 << 4][self.rank - 3];
                for axis in 0..self.rank - 2 {
                    if [lower[axis], upper[axis]].iter().any(|corner| !(-most..most).contains(corner)) {
                        return Err("a corner of the pixels' box is too far away");
                    }
                    if self.sizes[axis + 1] as i64 + i64::from(upper[axis]) <= i64::from(lower[axis]) {
                        return Err("the pixels' box is empty");
                    }
                }
            }
        }
        if self.swizzle.span().is_some_and(|span| self.row_bytes() > span) {
            return Err("a row is longer than what its parts change places in");
        }
        Ok(())
    }

    /// Bytes of a row of a box, as they are copied.
    pub fn row_bytes(&self) -> u32 {
        let elements = match self.shape {
            // Elements are never left out in the first dimension.
            Shape::Tiled { size } => size[0],
            Shape::Im2col { channels, .. } => channels,
        };
        elements * self.element.bytes()
    }

    /// Bytes from one row to the next in shared memory.
    pub fn row_pitch(&self) -> u32 {
        self.swizzle.span().map_or(self.row_bytes(), |span| span.max(self.row_bytes()))
    }

    /// Elements of a box that are taken in a dimension but the first, where boxes are tiles.
    pub fn taken(&self, dimension: usize) -> u32 {
        match self.shape {
            Shape::Tiled { size } if dimension == 0 => size[0],
            Shape::Tiled { size } => size[dimension].div_ceil(self.steps[dimension]),
            Shape::Im2col { .. } => 1,
        }
    }

    /// As bytes.
    pub fn to_bytes(&self) -> [u8; TENSOR_MAP_BYTES] {
        let mut bytes = [0; TENSOR_MAP_BYTES];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(TENSOR_MAP_MAGIC_AT, &TENSOR_MAP_MAGIC.to_le_bytes());
        put(ADDRESS, &self.address.to_le_bytes());
        for (index, stride) in self.strides.iter().enumerate() {
            put(STRIDES + index * 8, &stride.to_le_bytes());
        }
        for index in 0..MAX_RANK {
            // A size of 2^32 is kept as what is left of it, too.
            put(SIZES + index * 4, &(self.sizes[index].wrapping_sub(1) as u32).to_le_bytes());
            put(STEPS + index, &[self.steps[index] as u8]);
        }
        put(RANK, &[self.rank as u8]);
        put(ELEMENT, &[self.element as u8]);
        put(SWIZZLE, &[self.swizzle as u8]);
        put(PROMOTION, &[self.promotion]);
        put(FILL, &[u8::from(self.nan)]);
        match self.shape {
            Shape::Tiled { size } => {
                for (index, size) in size.iter().enumerate() {
                    put(BOX + index * 2, &(*size as u16).to_le_bytes());
                }
            }
            Shape::Im2col { lower, upper, channels, pixels } => {
                put(KIND, &[1]);
                put(BOX, &(channels as u16).to_le_bytes());
                put(BOX + 2, &(pixels as u16).to_le_bytes());
                for axis in 0..3 {
                    put(LOWER + axis * 2, &(lower[axis] as i16).to_le_bytes());
                    put(UPPER + axis * 2, &(upper[axis] as i16).to_le_bytes());
                }
            }
        }
        bytes
    }

    /// What these bytes say; `None` where they are no map, or one that cannot be.
    pub fn from_bytes(bytes: &[u8; TENSOR_MAP_BYTES]) -> Option<Self> {
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let signed = |at: usize| i32::from(short(at) as i16);
        if long(TENSOR_MAP_MAGIC_AT) != TENSOR_MAP_MAGIC || bytes[INTERLEAVE] != 0 || bytes[FILL] > 1 {
            return None;
        }
        let shape = match bytes[KIND] {
            0 => Shape::Tiled { size: std::array::from_fn(|i| short(BOX + i * 2).into()) },
            1 => Shape::Im2col {
                lower: std::array::from_fn(|axis| signed(LOWER + axis * 2)),
                upper: std::array::from_fn(|axis| signed(UPPER + axis * 2)),
                channels: short(BOX).into(),
                pixels: short(BOX + 2).into(),
            },
            _ => return None,
        };
        let map = Self {
            address: long(ADDRESS),
            rank: bytes[RANK].into(),
            sizes: std::array::from_fn(|i| u64::from(word(SIZES + i * 4)) + 1),
            strides: std::array::from_fn(|i| long(STRIDES + i * 8)),
            steps: std::array::from_fn(|i| bytes[STEPS + i].into()),
            element: Element::from_number(bytes[ELEMENT].into())?,
            swizzle: Swizzle::from_number(bytes[SWIZZLE].into())?,
            promotion: bytes[PROMOTION],
            nan: bytes[FILL] == 1,
            shape,
        };
        map.check().is_ok().then_some(map)
    }
}

/// A field that kernels can replace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Field {
    Address = 0,
    Rank = 1,
    Box = 2,
    Size = 3,
    Stride = 4,
    Step = 5,
    Element = 6,
    Interleave = 7,
    Swizzle = 8,
    Fill = 9,
}

impl Field {
    /// By their numbers.
    pub const ALL: [Self; 10] = {
        use Field::*;
        [Address, Rank, Box, Size, Stride, Step, Element, Interleave, Swizzle, Fill]
    };

    /// How many of it a map has.
    pub const fn count(self) -> u8 {
        match self {
            Self::Box | Self::Size | Self::Step => MAX_RANK as u8,
            Self::Stride => MAX_RANK as u8 - 1,
            _ => 1,
        }
    }
}

/// The bytes that replace a field's value, and where: `tensormap.replace`. Whatever was there becomes a map by that, because a
/// program may begin with zeros. A value that no map can have is kept as one, so that using the map fails. `None` where there is
/// no field with this ordinal number.
pub fn replace(field: Field, ordinal: u8, value: u64) -> Option<(usize, Patch)> {
    if ordinal >= field.count() {
        return None;
    }
    let index = usize::from(ordinal);
    let small = |most: u64| u8::try_from(value.min(most)).unwrap_or(u8::MAX);
    Some(match field {
        Field::Address => (ADDRESS, Patch::Long(value)),
        // Programs give one less.
        Field::Rank => (RANK, Patch::Byte(small(254) + 1)),
        Field::Box => (BOX + index * 2, Patch::Short(u16::try_from(value).unwrap_or(u16::MAX))),
        Field::Size => (SIZES + index * 4, Patch::Word((value as u32).wrapping_sub(1))),
        Field::Stride => (STRIDES + index * 8, Patch::Long(value)),
        Field::Step => (STEPS + index, Patch::Byte(small(255))),
        Field::Element => {
            let element = Element::OF_PTX.get(usize::try_from(value).unwrap_or(usize::MAX));
            (ELEMENT, Patch::Byte(element.map_or(u8::MAX, |&element| element as u8)))
        }
        Field::Interleave => (INTERLEAVE, Patch::Byte(small(255))),
        Field::Swizzle => (SWIZZLE, Patch::Byte(small(255))),
        Field::Fill => (FILL, Patch::Byte(small(255))),
    })
}

/// What replaces a field's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Patch {
    Byte(u8),
    Short(u16),
    Word(u32),
    Long(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiled() -> TensorMap {
        TensorMap {
            address: 4096,
            rank: 3,
            sizes: [100, 1 << 32, 7, 1, 1],
            strides: [416, 4160, 0, 0],
            steps: [1, 2, 8, 1, 1],
            element: Element::F32,
            swizzle: Swizzle::B64,
            promotion: 2,
            nan: true,
            shape: Shape::Tiled { size: [16, 9, 256, 0, 0] },
        }
    }

    fn im2col() -> TensorMap {
        TensorMap {
            rank: 4,
            sizes: [64, 9, 14, 64, 1],
            strides: [128, 1152, 16128, 0],
            steps: [1; 5],
            element: Element::F16,
            nan: false,
            swizzle: Swizzle::B128,
            shape: Shape::Im2col { lower: [-1, -2, 0], upper: [-1, 1, 0], channels: 64, pixels: 1024 },
            ..tiled()
        }
    }

    fn put(bytes: &mut [u8; TENSOR_MAP_BYTES], (at, patch): (usize, Patch)) {
        match patch {
            Patch::Byte(value) => bytes[at] = value,
            Patch::Short(value) => bytes[at..at + 2].copy_from_slice(&value.to_le_bytes()),
            Patch::Word(value) => bytes[at..at + 4].copy_from_slice(&value.to_le_bytes()),
            Patch::Long(value) => bytes[at..at + 8].copy_from_slice(&value.to_le_bytes()),
        }
    }

    #[test]
    fn a_map_comes_back_as_it_was() {
        for map in [tiled(), im2col()] {
            map.check().unwrap();
            assert_eq!(TensorMap::from_bytes(&map.to_bytes()), Some(map));
        }
        assert_eq!(tiled().taken(1), 5, "every other one of nine");
    }

    #[test]
    fn what_cannot_be_is_no_map() {
        let (map, columns) = (tiled(), im2col());
        let Shape::Im2col { lower, upper, channels, pixels } = columns.shape else { unreachable!() };
        for wrong in [
            TensorMap { address: 8, ..map },
            TensorMap { address: 0, ..map },
            TensorMap { rank: 0, ..map },
            TensorMap { rank: 6, ..map },
            TensorMap { sizes: [1, 0, 1, 1, 1], ..map },
            TensorMap { sizes: [1, (1 << 32) + 1, 1, 1, 1], ..map },
            TensorMap { strides: [8, 16, 0, 0], ..map },
            TensorMap { strides: [16, 1 << 40, 0, 0], ..map },
            TensorMap { steps: [1, 9, 1, 1, 1], ..map },
            TensorMap { steps: [1, 0, 1, 1, 1], ..map },
            TensorMap { shape: Shape::Tiled { size: [3, 1, 1, 1, 1] }, ..map },
            TensorMap { shape: Shape::Tiled { size: [20, 1, 1, 1, 1] }, ..map },
            TensorMap { shape: Shape::Tiled { size: [16, 257, 1, 1, 1] }, ..map },
            TensorMap { shape: Shape::Tiled { size: [16, 0, 1, 1, 1] }, ..map },
            TensorMap { element: Element::U32, ..map },
            TensorMap { promotion: 4, ..map },
            TensorMap { rank: 2, ..columns },
            TensorMap { shape: Shape::Im2col { lower: [-129, 0, 0], upper, channels, pixels }, ..columns },
            TensorMap { shape: Shape::Im2col { lower, upper: [-10, 0, 0], channels, pixels }, ..columns },
            TensorMap { shape: Shape::Im2col { lower, upper, channels, pixels: 1025 }, ..columns },
            TensorMap { shape: Shape::Im2col { lower, upper, channels: 3, pixels }, ..columns },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
        assert_eq!(TensorMap::from_bytes(&[0; TENSOR_MAP_BYTES]), None);
    }

    #[test]
    fn what_programs_clear_in_a_map_is_clear() {
        let (mut map, address) = (tiled(), 0xffff_ffff_fff0);
        map.address = address;
        let mut words = words_of(&map.to_bytes());
        words[1] &= !(1 << 21);
        assert_eq!(TensorMap::from_bytes(&bytes_of(&words)).map(|map| map.address), Some(address));
    }

    #[test]
    fn fields_are_replaced_one_by_one() {
        let mut bytes = [0; TENSOR_MAP_BYTES];
        put(&mut bytes, (TENSOR_MAP_MAGIC_AT, Patch::Long(TENSOR_MAP_MAGIC)));
        let mut set = |field, ordinal, value| {
            put(&mut bytes, replace(field, ordinal, value).unwrap());
            TensorMap::from_bytes(&bytes)
        };
        for (field, ordinal, value) in [
            (Field::Address, 0, 4096),
            (Field::Rank, 0, 1),
            (Field::Step, 0, 1),
            (Field::Step, 1, 1),
            (Field::Box, 0, 32),
            (Field::Box, 1, 8),
            (Field::Size, 0, 100),
            (Field::Size, 1, 50),
            (Field::Element, 0, 10),
        ] {
            set(field, ordinal, value);
        }
        set(Field::Stride, 0, 208);
        let map = set(Field::Swizzle, 0, 2).unwrap();
        assert_eq!((map.rank, map.element, map.swizzle), (2, Element::Bf16, Swizzle::B64));
        assert_eq!((map.sizes[..2].to_vec(), map.strides[0]), (vec![100, 50], 208));
        assert_eq!(set(Field::Swizzle, 0, 7), None);
        assert_eq!(replace(Field::Stride, 4, 16), None);
    }

    #[test]
    fn parts_of_rows_change_places_as_the_manual_says() {
        // Row 3 of a pattern of 128 bytes: parts 0, 1, 2 … lie where 3, 2, 1 … were.
        let parts: Vec<u32> =
            (0..8).map(|part| Swizzle::B128.place(3 * 128 + part * 16) % 128 / 16).collect();
        assert_eq!(parts, [3, 2, 1, 0, 7, 6, 5, 4]);
        assert_eq!(Swizzle::B64.place(128), 128 + 16);
        assert_eq!(Swizzle::B32.place(256 + 16), 256 + 16);
        assert_eq!(Swizzle::B32.place(128 + 16), 128);
        assert_eq!(Swizzle::None.place(12345), 12345);
        assert_eq!(Swizzle::B128.place_from(1024 + 256, 2), 1024 + 256);
    }
}
