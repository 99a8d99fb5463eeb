//! What compiled code asks of the helper for textures and surfaces.
//!
//! An operation is a number ([`TextureOp::number`]). Its operands are twelve words of 32 bits ([`Words`](super::operands::Words)): four
//! of coordinates, x first ([`COORDINATES`]; y and z where the geometry has them), of which the layer is the last ([`LAYER`]),
//! and then what else there is ([`REST`]). Results begin at word 0.

/// Where the coordinates begin.
pub const COORDINATES: usize = 0;
/// Where the layer is.
pub const LAYER: usize = 3;
/// Where levels, gradients and data begin.
pub const REST: usize = 4;

/// The coordinates that an instruction has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Geometry {
    /// `.1d`
    Line = 0,
    /// `.2d`
    Plane = 1,
    /// `.3d`
    Volume = 2,
    /// `.a1d`
    Lines = 3,
    /// `.a2d`
    Planes = 4,
    /// `.cube`
    Cube = 5,
    /// `.acube`
    Cubes = 6,
}

impl Geometry {
    const ALL: [Self; 7] =
        [Self::Line, Self::Plane, Self::Volume, Self::Lines, Self::Planes, Self::Cube, Self::Cubes];

    /// Coordinates besides the layer.
    pub const fn dimensions(self) -> usize {
        match self {
            Self::Line | Self::Lines => 1,
            Self::Plane | Self::Planes => 2,
            Self::Volume | Self::Cube | Self::Cubes => 3,
        }
    }

    /// Whether there is a layer.
    pub const fn has_layer(self) -> bool {
        matches!(self, Self::Lines | Self::Planes | Self::Cubes)
    }

    /// Whether the coordinates are a direction.
    pub const fn is_cube(self) -> bool {
        matches!(self, Self::Cube | Self::Cubes)
    }
}

/// Which mipmap level is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Detail {
    /// The first one.
    Base = 0,
    /// The one in word [`REST`], a single-precision number.
    Level = 1,
    /// What follows from how coordinates change from one pixel to the next: three words of x, y and z in one direction
    /// behind [`REST`], and three in the other one.
    Gradient = 2,
}

/// What happens where a surface is accessed outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Outside {
    /// The kernel ends.
    Trap = 0,
    /// The nearest place inside is accessed.
    Clamp = 1,
    /// Zeros are read, nothing is written.
    Zero = 2,
}

/// What is asked about a texture or surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Field {
    Width = 0,
    Height = 1,
    Depth = 2,
    Layers = 3,
    Levels = 4,
    Normalized = 5,
}

/// What is done to a place of a surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Reduce {
    Add = 0,
    MinSigned = 1,
    MaxSigned = 2,
    MinUnsigned = 3,
    MaxUnsigned = 4,
    And = 5,
    Or = 6,
}

/// An operation on a texture or surface object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextureOp {
    /// `tex`: four channels, each of them 32 bits. `whole`: coordinates are integers, which name texels.
    Sample {
        /// The coordinates.
        geometry: Geometry,
        /// The mipmap level.
        detail: Detail,
        /// Whether coordinates are integers.
        whole: bool,
    },
    /// `tld4`: one channel of the four texels that linear filtering would mix.
    Gather {
        /// The coordinates.
        geometry: Geometry,
        /// The channel.
        channel: u8,
    },
    /// `txq`, `suq`: of the level in word 0 where `level` says so.
    Query {
        /// What is asked.
        field: Field,
        /// Whether of a level.
        level: bool,
    },
    /// `suld.b`: so many elements of so many bytes (a power of two, given by its exponent).
    Load {
        /// The coordinates; x counts bytes.
        geometry: Geometry,
        /// What is read outside.
        outside: Outside,
        /// Bytes of an element, as a power of two.
        size: u8,
        /// Elements, as a power of two.
        count: u8,
    },
    /// `sust.b`: likewise.
    Store {
        /// The coordinates; x counts bytes.
        geometry: Geometry,
        /// What happens outside.
        outside: Outside,
        /// Bytes of an element, as a power of two.
        size: u8,
        /// Elements, as a power of two.
        count: u8,
    },
    /// `sust.p`: so many channels of 32 bits, which become what the surface has.
    StoreTexel {
        /// The coordinates; x counts texels.
        geometry: Geometry,
        /// What happens outside.
        outside: Outside,
        /// Channels, as a power of two.
        count: u8,
    },
    /// `sured.b`
    Reduce {
        /// The coordinates; x counts bytes.
        geometry: Geometry,
        /// What happens outside.
        outside: Outside,
        /// What is done.
        reduce: Reduce,
        /// Whether on 64 bits.
        wide: bool,
    },
    /// `istypep`: whether it is a surface, or a texture.
    Is {
        /// Whether a surface is meant.
        surface: bool,
    },
}

impl TextureOp {
    /// The operation as a number.
    pub const fn number(self) -> u64 {
        const fn pack(kind: u8, a: u8, b: u8, c: u8, d: u8) -> u64 {
            kind as u64 | (a as u64) << 8 | (b as u64) << 16 | (c as u64) << 24 | (d as u64) << 32
        }
        match self {
            Self::Sample { geometry, detail, whole } => pack(0, geometry as u8, detail as u8, whole as u8, 0),
            Self::Gather { geometry, channel } => pack(1, geometry as u8, channel, 0, 0),
            Self::Query { field, level } => pack(2, field as u8, level as u8, 0, 0),
            Self::Load { geometry, outside, size, count } => {
                pack(3, geometry as u8, outside as u8, size, count)
            }
            Self::Store { geometry, outside, size, count } => {
                pack(4, geometry as u8, outside as u8, size, count)
            }
            Self::StoreTexel { geometry, outside, count } => pack(5, geometry as u8, outside as u8, count, 0),
            Self::Reduce { geometry, outside, reduce, wide } => {
                pack(6, geometry as u8, outside as u8, reduce as u8, wide as u8)
            }
            Self::Is { surface } => pack(7, surface as u8, 0, 0, 0),
        }
    }

    /// The operation with this number, if there is one.
    pub fn from_number(number: u64) -> Option<Self> {
        let [kind, a, b, c, d, ..] = number.to_le_bytes();
        let geometry = || Geometry::ALL.get(usize::from(a)).copied();
        let outside = || [Outside::Trap, Outside::Clamp, Outside::Zero].get(usize::from(b)).copied();
        let power = |exponent: u8, most: u8| (exponent <= most).then_some(exponent);
        Some(match kind {
            0 => {
                let detail = *[Detail::Base, Detail::Level, Detail::Gradient].get(usize::from(b))?;
                Self::Sample { geometry: geometry()?, detail, whole: c != 0 }
            }
            1 => Self::Gather { geometry: geometry()?, channel: power(b, 3)? },
            2 => {
                use Field::*;
                let field = *[Width, Height, Depth, Layers, Levels, Normalized].get(usize::from(a))?;
                Self::Query { field, level: b != 0 }
            }
            3 | 4 => {
                let (size, count) = (power(c, 3)?, power(d, 2)?);
                let (geometry, outside) = (geometry()?, outside()?);
                if size + count > 4 {
                    return None;
                }
                match kind {
                    3 => Self::Load { geometry, outside, size, count },
                    _ => Self::Store { geometry, outside, size, count },
                }
            }
            5 => Self::StoreTexel { geometry: geometry()?, outside: outside()?, count: power(c, 2)? },
            6 => {
                use Reduce::*;
                let all = [Add, MinSigned, MaxSigned, MinUnsigned, MaxUnsigned, And, Or];
                let reduce = *all.get(usize::from(c))?;
                Self::Reduce { geometry: geometry()?, outside: outside()?, reduce, wide: d != 0 }
            }
            7 => Self::Is { surface: a != 0 },
            _ => return None,
        })
    }

    /// Whether it yields something.
    pub const fn has_result(self) -> bool {
        !matches!(self, Self::Store { .. } | Self::StoreTexel { .. } | Self::Reduce { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_one_operation_or_none() {
        let mut found = 0;
        for number in 0..1u64 << 24 {
            // The fields are small: all their values and some that are none.
            let spread = number & 0xf
                | (number >> 4 & 0xf) << 8
                | (number >> 8 & 0xf) << 16
                | (number >> 12 & 0xf) << 24
                | (number >> 16 & 0xf) << 32;
            if number >> 20 != 0 {
                break;
            }
            if let Some(op) = TextureOp::from_number(spread) {
                found += 1;
                assert_eq!(TextureOp::from_number(op.number()), Some(op));
            }
        }
        assert!(found > 1000, "{found}");
        assert_eq!(TextureOp::from_number(u64::MAX), None);
    }
}
