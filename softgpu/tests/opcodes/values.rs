//! Operands: edge values of every type, and random ones from a fixed seed.

/// A small generator of random numbers (SplitMix64).
pub(crate) struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.bits() % limit as u64) as usize
    }
}

/// The low `bits` bits.
pub(crate) fn mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// Sign-extends the low `bits` bits.
pub(crate) fn signed(value: u64, bits: u32) -> i128 {
    let shift = 128 - bits;
    ((u128::from(value) << shift) as i128) >> shift
}

/// Where the values of an operand come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Domain {
    /// Integers of a width.
    Int(u32),
    /// Shift amounts and the like: small numbers, and a few large ones.
    Small,
    /// Numbers below a limit.
    Below(u64),
    /// Non-zero integers of a width.
    NonZero(u32),
    F16,
    Bf16,
    F32,
    F64,
    /// Two halves.
    F16x2,
    Bf16x2,
    /// Floats of at most this size (its bits), where functions like the sine are specified.
    F32Within(u32),
    /// 0 or 1.
    Bool,
}

impl Domain {
    /// Its edge values.
    pub(crate) fn edges(self) -> Vec<u64> {
        match self {
            Self::Int(bits) | Self::NonZero(bits) => {
                let top = 1u64 << (bits - 1);
                let mut all = vec![
                    0,
                    1,
                    2,
                    3,
                    7,
                    8,
                    31,
                    32,
                    33,
                    0x55,
                    0x7F,
                    0x80,
                    0xFF,
                    0xAAAA,
                    0x7FFF,
                    0x8000,
                    0xFFFF,
                    0x1_0000,
                    0x1234_5678,
                    0x7FFF_FFFF,
                    0x8000_0000,
                    0x8000_0001,
                    0xFFFF_FFFF,
                    0x1_0000_0000,
                    0x0123_4567_89AB_CDEF,
                    top - 1,
                    top,
                    top.wrapping_add(1),
                    mask(bits),
                    mask(bits) - 1,
                ];
                all.iter_mut().for_each(|v| *v &= mask(bits));
                all.sort_unstable();
                all.dedup();
                all.retain(|v| *v != 0 || matches!(self, Self::Int(_)));
                all
            }
            Self::Small => vec![
                0,
                1,
                2,
                7,
                8,
                15,
                16,
                17,
                31,
                32,
                33,
                63,
                64,
                65,
                127,
                128,
                255,
                256,
                0x8000_0000,
                0xFFFF_FFFF,
            ],
            Self::Below(limit) => (0..limit.min(40)).chain([limit - 1]).collect(),
            Self::Bool => vec![0, 1],
            Self::F16 => [
                0, 1, 0x3FF, 0x400, 0x3555, 0x3800, 0x3BFF, 0x3C00, 0x3C01, 0x3E00, 0x4000, 0x4248, 0x5BFF,
                0x63FF, 0x6400, 0x7BFF, 0x7C00, 0x7E00,
            ]
            .iter()
            .flat_map(|v| [*v, *v | 0x8000])
            .collect(),
            Self::Bf16 => [
                0, 1, 0x7F, 0x80, 0x3EAA, 0x3F00, 0x3F7F, 0x3F80, 0x3F81, 0x3FC0, 0x4000, 0x4049, 0x7F7F,
                0x7F80, 0x7FC0,
            ]
            .iter()
            .flat_map(|v| [*v, *v | 0x8000])
            .collect(),
            Self::F32 => [
                0,
                1,
                2,
                0x7F_FFFF,
                0x80_0000,
                0x80_0001,
                0x3300_0000,
                0x3EAA_AAAB,
                0x3EFF_FFFF,
                0x3F00_0000,
                0x3F00_0001,
                0x3F7F_FFFF,
                0x3F80_0000,
                0x3F80_0001,
                0x3FC0_0000,
                0x4000_0000,
                0x4020_0000,
                0x4060_0000,
                0x4049_0FDB,
                0x42FF_FFFF,
                0x4AFF_FFFF,
                0x4B00_0001,
                0x4EFF_FFFF,
                0x4F00_0000,
                0x4F7F_FFFF,
                0x4F80_0000,
                0x5F00_0000,
                0x5F80_0000,
                0x7E80_0000,
                0x7F7F_FFFF,
                0x7F80_0000,
                0x7FC0_0000,
                0x7F80_0001,
            ]
            .iter()
            .flat_map(|v| [*v, *v | 0x8000_0000])
            .collect(),
            Self::F64 => [
                0u64,
                1,
                2,
                0xF_FFFF_FFFF_FFFF,
                0x10_0000_0000_0000,
                0x10_0000_0000_0001,
                0x3CB0_0000_0000_0000,
                0x36A0_0000_0000_0000,
                0x3810_0000_0000_0000,
                0x3FD5_5555_5555_5555,
                0x3FDF_FFFF_FFFF_FFFF,
                0x3FE0_0000_0000_0000,
                0x3FEF_FFFF_FFFF_FFFF,
                0x3FF0_0000_0000_0000,
                0x3FF0_0000_0000_0001,
                0x3FF0_0000_1000_0000,
                0x3FF0_0000_3000_0001,
                0x3FF8_0000_0000_0000,
                0x4000_0000_0000_0000,
                0x4004_0000_0000_0000,
                0x4009_21FB_5444_2D18,
                0x41DF_FFFF_FFC0_0000,
                0x41E0_0000_0000_0000,
                0x41EF_FFFF_FFE0_0000,
                0x41F0_0000_0000_0000,
                0x4330_0000_0000_0001,
                0x43DF_FFFF_FFFF_FFFF,
                0x43E0_0000_0000_0000,
                0x43EF_FFFF_FFFF_FFFF,
                0x43F0_0000_0000_0000,
                0x47EF_FFFF_E000_0000,
                0x47EF_FFFF_F000_0000,
                0x7FEF_FFFF_FFFF_FFFF,
                0x7FF0_0000_0000_0000,
                0x7FF8_0000_0000_0000,
                0x7FF0_0000_0000_0001,
            ]
            .iter()
            .flat_map(|v| [*v, *v | 1 << 63])
            .collect(),
            Self::F16x2 => pairs(&Self::F16.edges()),
            Self::Bf16x2 => pairs(&Self::Bf16.edges()),
            Self::F32Within(limit) => {
                let limit = f32::from_bits(limit);
                Self::F32.edges().into_iter().filter(|v| f32::from_bits(*v as u32).abs() <= limit).collect()
            }
        }
    }

    /// A random value.
    pub(crate) fn random(self, random: &mut Random) -> u64 {
        let bits = random.bits();
        match self {
            Self::Int(width) => {
                // All magnitudes are equally likely.
                bits & mask(width) & mask(1 + random.below(width as usize) as u32)
                    ^ if random.below(2) == 0 { 0 } else { mask(width) }
            }
            Self::NonZero(width) => Self::Int(width).random(random).max(1),
            Self::Small => bits % 80,
            Self::Below(limit) => bits % limit,
            Self::Bool => bits & 1,
            Self::F16 | Self::Bf16 => match random.below(3) {
                0 => bits & 0xFFFF,
                // Numbers near one with few bits: their products and sums are often just between two halves, or nearly.
                _ => {
                    let (width, one) = if self == Self::F16 { (10, 15) } else { (7, 127) };
                    let few = bits & bits >> 16 & mask(width) | u64::from(bits >> 32 & 3 == 0);
                    bits & 0x8000 | (one - 7 + (bits >> 40) % 14) << width | few
                }
            },
            Self::F32 => match random.below(3) {
                0 => bits & 0xFFFF_FFFF,
                // Numbers near one, whose sums and products cancel and round.
                1 => bits & 0x807F_FFFF | (120 + (bits >> 40) % 16) << 23,
                // Multiples of a quarter: ties when rounded to integers.
                _ => u64::from((((bits >> 32) % 8000) as f32 * 0.25 - 1000.0).to_bits()),
            },
            Self::F64 => match random.below(3) {
                0 => bits,
                1 => bits & 0x800F_FFFF_FFFF_FFFF | (1000 + random.bits() % 48) << 52,
                _ => (f64::from(bits as i32) * 0.25).to_bits(),
            },
            Self::F16x2 => Self::F16.random(random) | Self::F16.random(random) << 16,
            Self::Bf16x2 => Self::Bf16.random(random) | Self::Bf16.random(random) << 16,
            Self::F32Within(limit) => {
                let limit = f64::from(f32::from_bits(limit));
                let unit = (bits >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
                u64::from(((unit * limit) as f32).to_bits())
            }
        }
    }
}

fn pairs(halves: &[u64]) -> Vec<u64> {
    let count = halves.len();
    (0..count * 2).map(|i| halves[i % count] | halves[(i * 7 + i / count * 3 + 1) % count] << 16).collect()
}
