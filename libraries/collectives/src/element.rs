//! The types of elements, in NCCL's numbers.

/// The type of an element (`ncclDataType_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// 8 bits with a sign.
    I8 = 0,
    /// 8 bits.
    U8 = 1,
    /// 32 bits with a sign.
    I32 = 2,
    /// 32 bits.
    U32 = 3,
    /// 64 bits with a sign.
    I64 = 4,
    /// 64 bits.
    U64 = 5,
    /// IEEE half precision.
    F16 = 6,
    /// IEEE single precision.
    F32 = 7,
    /// IEEE double precision.
    F64 = 8,
    /// The upper half of single precision.
    Bf16 = 9,
    /// 8 bits, of which 4 are the exponent. It can be carried, not added.
    F8e4m3 = 10,
    /// 8 bits, of which 5 are the exponent. It can be carried, not added.
    F8e5m2 = 11,
}

impl Element {
    /// All of them, by number.
    pub const ALL: [Self; 12] = [
        Self::I8,
        Self::U8,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::F16,
        Self::F32,
        Self::F64,
        Self::Bf16,
        Self::F8e4m3,
        Self::F8e5m2,
    ];

    /// The type of this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// How many bytes one takes.
    pub fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::F8e4m3 | Self::F8e5m2 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// Whether elements can be added, multiplied and compared here.
    pub fn can_be_reduced(self) -> bool {
        !matches!(self, Self::F8e4m3 | Self::F8e5m2)
    }
}
