//! What several operations are made of.

use rgpu_wire::{Reader, Result, Wire};

/// Enums whose wire form is their number.
macro_rules! numbered {
    ($($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$vdoc:meta])* $variant:ident = $number:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub enum $name { $($(#[$vdoc])* $variant = $number,)* }

        impl $name {
            /// All values.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The value of this number.
            pub fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }

        impl rgpu_wire::Wire for $name {
            const MIN_BYTES: usize = 4;
            const FIXED: bool = true;
            fn put<'a>(&self, out: &'a mut [u8]) -> &'a mut [u8] {
                rgpu_wire::Wire::put(&(*self as u32), out)
            }
            fn encode(&self, out: &mut Vec<u8>) {
                rgpu_wire::Wire::encode(&(*self as u32), out);
            }
            fn decode(reader: &mut rgpu_wire::Reader<'_>) -> rgpu_wire::Result<Self> {
                let number = <u32 as rgpu_wire::Wire>::decode(reader)?;
                Self::from_number(number)
                    .ok_or(rgpu_wire::DecodeError::Unknown { what: $what, value: number.into() })
            }
        }
    )*};
}
pub(crate) use numbered;

numbered! {
    /// The type of a matrix's elements, numbered as `cudaDataType`.
    DataType, "type of elements" {
        /// 32-bit floating point.
        #[default]
        F32 = 0,
        /// 64-bit floating point.
        F64 = 1,
        /// IEEE half precision.
        F16 = 2,
        /// 8-bit signed integers.
        I8 = 3,
        /// Pairs of 32-bit floating point.
        C32 = 4,
        /// Pairs of 64-bit floating point.
        C64 = 5,
        /// 32-bit signed integers.
        I32 = 10,
        /// The upper half of 32-bit floating point.
        Bf16 = 14,
        /// 64-bit signed integers.
        I64 = 24,
    }
    /// How a matrix is used, numbered as `cublasOperation_t`.
    Transpose, "use of a matrix" {
        /// As it is.
        #[default]
        None = 0,
        /// Transposed.
        Transposed = 1,
        /// Transposed, each element conjugated.
        Adjoint = 2,
        /// Each element conjugated.
        Conjugated = 3,
    }
}

impl DataType {
    /// Bytes of an element.
    pub fn bytes(self) -> u64 {
        match self {
            Self::I8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::C32 | Self::I64 => 8,
            Self::C64 => 16,
        }
    }
}

/// A factor: the host's, which travels by value, or one that lies in device memory and is read when the operation's turn has come.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Scalar {
    /// Real and imaginary part, where it is the host's.
    pub value: [f64; 2],
    /// Where it lies in device memory, or 0.
    pub addr: u64,
}

impl Scalar {
    /// A real factor of the host's.
    pub fn real(value: f64) -> Self {
        Self { value: [value, 0.0], addr: 0 }
    }

    /// A complex factor of the host's.
    pub fn complex(re: f64, im: f64) -> Self {
        Self { value: [re, im], addr: 0 }
    }

    /// A factor in device memory.
    pub fn device(addr: u64) -> Self {
        Self { value: [0.0; 2], addr }
    }
}

impl Wire for Scalar {
    const MIN_BYTES: usize = 24;
    const FIXED: bool = true;
    fn put<'a>(&self, out: &'a mut [u8]) -> &'a mut [u8] {
        let out = self.value.put(out);
        self.addr.put(out)
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.value.encode(out);
        self.addr.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { value: Wire::decode(reader)?, addr: Wire::decode(reader)? })
    }
}
