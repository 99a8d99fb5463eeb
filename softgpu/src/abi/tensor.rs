//! What compiled code asks of the helper for bulk copies and tensor maps.
//!
//! An operation is a number ([`TensorOp::number`]). Its operands are twelve words of 32 bits ([`Words`](super::operands::Words)), at
//! the places that are named here. The helper's second argument is the address of a tensor map, or of global memory.

use rgpu_device::tensor_map::Field;

/// The offset in shared memory that is copied from or to.
pub const SHARED: usize = 0;
/// How many bytes to copy, and how many were copied into shared memory.
pub const BYTES: usize = 1;
/// Where the coordinates begin, as many as the tensor has dimensions.
pub const COORDINATES: usize = 2;
/// Where the distances begin that are added to pixels' coordinates.
pub const DISTANCES: usize = 7;
/// The rank of the cluster's block whose shared memory is copied to, where there may be several.
pub const RANK: usize = 10;
/// Where a value of 64 bits begins.
pub const VALUE: usize = 2;

/// How values are combined with those that are in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum BulkReduce {
    Add = 0,
    Min = 1,
    Max = 2,
    Inc = 3,
    Dec = 4,
    And = 5,
    Or = 6,
    Xor = 7,
}

impl BulkReduce {
    /// By their numbers.
    pub const ALL: [Self; 8] =
        [Self::Add, Self::Min, Self::Max, Self::Inc, Self::Dec, Self::And, Self::Or, Self::Xor];
}

/// What is combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Number {
    U32 = 0,
    S32 = 1,
    U64 = 2,
    S64 = 3,
    F16 = 4,
    Bf16 = 5,
    F32 = 6,
    F64 = 7,
}

impl Number {
    /// By their numbers.
    pub const ALL: [Self; 8] =
        [Self::U32, Self::S32, Self::U64, Self::S64, Self::F16, Self::Bf16, Self::F32, Self::F64];

    /// Bytes of one.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::U32 | Self::S32 | Self::F32 => 4,
            Self::U64 | Self::S64 | Self::F64 => 8,
        }
    }

    /// Whether such values can be combined so.
    pub const fn allows(self, op: BulkReduce) -> bool {
        match op {
            BulkReduce::Add => true,
            BulkReduce::Min | BulkReduce::Max => !matches!(self, Self::F32 | Self::F64),
            BulkReduce::Inc | BulkReduce::Dec => matches!(self, Self::U32),
            BulkReduce::And | BulkReduce::Or | BulkReduce::Xor => {
                matches!(self, Self::U32 | Self::S32 | Self::U64 | Self::S64)
            }
        }
    }
}

/// A bulk copy, or an operation on a tensor map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorOp {
    /// `cp.async.bulk.tensor` into shared memory.
    Load {
        /// Dimensions of the tensor.
        rank: u8,
        /// Whether pixels are loaded, and not a tile.
        im2col: bool,
        /// Whether it is into the shared memory of the block that [`RANK`] names, and not of the running one.
        multicast: bool,
    },
    /// `cp.async.bulk.tensor` and `cp.reduce.async.bulk.tensor` into global memory.
    Store {
        /// Dimensions of the tensor.
        rank: u8,
        /// Whether pixels are stored, and not a tile.
        im2col: bool,
        /// How; they are only stored where this is missing.
        reduce: Option<BulkReduce>,
    },
    /// `cp.async.bulk` and `cp.reduce.async.bulk` into global memory.
    Copy {
        /// How; bytes are only stored where this is missing.
        reduce: Option<(BulkReduce, Number)>,
    },
    /// `tensormap.replace`
    Replace {
        /// What of the map.
        field: Field,
        /// Which one of several.
        ordinal: u8,
    },
    /// `tensormap.cp_fenceproxy`: a map from shared to global memory.
    CopyMap,
}

impl TensorOp {
    /// The operation as a number.
    pub const fn number(self) -> u64 {
        const fn pack(kind: u8, a: u8, b: u8, c: u8) -> u64 {
            kind as u64 | (a as u64) << 8 | (b as u64) << 16 | (c as u64) << 24
        }
        /// 0 is none.
        const fn number(reduce: Option<BulkReduce>) -> u8 {
            match reduce {
                Some(reduce) => reduce as u8 + 1,
                None => 0,
            }
        }
        match self {
            Self::Load { rank, im2col, multicast } => pack(0, rank, im2col as u8, multicast as u8),
            Self::Store { rank, im2col, reduce } => pack(1, rank, im2col as u8, number(reduce)),
            Self::Copy { reduce: Some((reduce, of)) } => pack(2, number(Some(reduce)), of as u8, 0),
            Self::Copy { reduce: None } => pack(2, 0, 0, 0),
            Self::Replace { field, ordinal } => pack(3, field as u8, ordinal, 0),
            Self::CopyMap => pack(4, 0, 0, 0),
        }
    }

    /// The operation with this number, if there is one.
    pub fn from_number(number: u64) -> Option<Self> {
        let [kind, a, b, c, 0, 0, 0, 0] = number.to_le_bytes() else { return None };
        let reduce = |number: u8| match number {
            0 => Some(None),
            _ => Some(Some(*BulkReduce::ALL.get(usize::from(number) - 1)?)),
        };
        let found = match kind {
            0 | 1 => {
                let (rank, im2col) = ((1..=5).contains(&a).then_some(a)?, b != 0);
                match kind {
                    0 => Self::Load { rank, im2col, multicast: c != 0 },
                    _ => Self::Store { rank, im2col, reduce: reduce(c)? },
                }
            }
            2 => match reduce(a)? {
                None => Self::Copy { reduce: None },
                Some(reduce) => {
                    let of = *Number::ALL.get(usize::from(b))?;
                    Self::Copy { reduce: of.allows(reduce).then_some(Some((reduce, of)))? }
                }
            },
            3 => {
                let field = *Field::ALL.get(usize::from(a))?;
                Self::Replace { field, ordinal: (b < field.count()).then_some(b)? }
            }
            4 => Self::CopyMap,
            _ => return None,
        };
        (found.number() == number).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_one_operation_or_none() {
        let mut found = 0;
        for number in 0..1u64 << 20 {
            let spread = number & 0xf
                | (number >> 4 & 0x1f) << 8
                | (number >> 9 & 0x1f) << 16
                | (number >> 14 & 0x1f) << 24;
            if let Some(op) = TensorOp::from_number(spread) {
                found += 1;
                assert_eq!(op.number(), spread);
            }
        }
        assert!(found > 100, "{found}");
        assert_eq!(TensorOp::from_number(u64::MAX), None);
    }
}
