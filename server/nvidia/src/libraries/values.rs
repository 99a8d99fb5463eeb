//! What the libraries' calls take: factors, types, lengths.

use super::table::Factor;
use half::{bf16, f16};
use rgpu_device::{Code, Error, Result};
use rgpu_libraries::{DataType, Scalar};

/// What the server's libraries cannot be asked for, by name.
pub(crate) fn refused<T>(what: impl std::fmt::Display) -> Result<T> {
    Err(Error::new(Code::NotSupported, format!("NVIDIA's libraries on the server are not asked for {what}")))
}

/// Arguments that no call of a library could have.
pub(crate) fn invalid<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::new(Code::InvalidValue, what))
}

/// A length, as 64-bit interfaces take it.
pub(crate) fn long(value: u64) -> Result<i64> {
    i64::try_from(value)
        .map_err(|_| Error::new(Code::InvalidValue, format!("{value} is longer than any memory")))
}

/// A length, as interfaces of 32 bits take it.
pub(crate) fn short(value: u64) -> Result<i32> {
    i32::try_from(value).map_err(|_| {
        let text =
            format!("{value} is more than this function of NVIDIA's takes, whose lengths have 32 bits");
        Error::new(Code::NotSupported, text)
    })
}

/// Which of S, D, C and Z a type is.
pub(crate) fn letter(kind: DataType) -> Result<usize> {
    match kind {
        DataType::F32 => Ok(0),
        DataType::F64 => Ok(1),
        DataType::C32 => Ok(2),
        DataType::C64 => Ok(3),
        other => refused(format!("matrices of {other:?} here")),
    }
}

/// Which of S and D a type is.
pub(crate) fn real_letter(kind: DataType) -> Result<usize> {
    match letter(kind)? {
        letter @ 0..=1 => Ok(letter),
        _ => refused(format!("matrices of {kind:?} here")),
    }
}

/// Which of C and Z a type is.
pub(crate) fn complex_letter(kind: DataType) -> Result<usize> {
    match letter(kind)? {
        letter @ 2..=3 => Ok(letter - 2),
        _ => refused(format!("matrices of {kind:?} here")),
    }
}

/// Whether numbers of a type have two parts.
pub(crate) fn is_complex(kind: DataType) -> bool {
    matches!(kind, DataType::C32 | DataType::C64)
}

/// The type of the parts of a type's numbers.
pub(crate) fn part(kind: DataType) -> DataType {
    match kind {
        DataType::C32 => DataType::F32,
        DataType::C64 => DataType::F64,
        other => other,
    }
}

/// A number as it lies in memory.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C, align(16))]
pub(crate) struct Number([u8; 16]);

impl Number {
    /// A value of a type.
    pub(crate) fn new([re, im]: [f64; 2], kind: DataType) -> Self {
        let mut bytes = [0; 16];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        match kind {
            DataType::F32 => put(0, &(re as f32).to_ne_bytes()),
            DataType::F64 => put(0, &re.to_ne_bytes()),
            DataType::F16 => put(0, &f16::from_f64(re).to_ne_bytes()),
            DataType::Bf16 => put(0, &bf16::from_f64(re).to_ne_bytes()),
            DataType::I8 => put(0, &(re as i8).to_ne_bytes()),
            DataType::I32 => put(0, &(re as i32).to_ne_bytes()),
            DataType::I64 => put(0, &(re as i64).to_ne_bytes()),
            DataType::C32 => {
                put(0, &(re as f32).to_ne_bytes());
                put(4, &(im as f32).to_ne_bytes());
            }
            DataType::C64 => {
                put(0, &re.to_ne_bytes());
                put(8, &im.to_ne_bytes());
            }
        }
        Self(bytes)
    }

    /// Where it lies.
    pub(crate) fn place(&self) -> Factor {
        self.0.as_ptr().cast()
    }
}

/// A factor, to be pointed to while a function is called.
pub(crate) struct Given {
    number: Number,
    addr: u64,
}

impl Given {
    /// A factor of a type.
    pub(crate) fn new(scalar: &Scalar, kind: DataType) -> Self {
        Self { number: Number::new(scalar.value, kind), addr: scalar.addr }
    }

    /// What the function gets.
    pub(crate) fn place(&self) -> Factor {
        if self.addr == 0 { self.number.place() } else { std::ptr::without_provenance(self.addr as usize) }
    }
}

/// Where the factors of a call lie: 0 for the host, 1 for the device, which is what all libraries call these modes.
pub(crate) fn mode(factors: &[&Scalar]) -> Result<u32> {
    let on_device = factors.iter().filter(|factor| factor.addr != 0).count();
    match on_device {
        0 => Ok(HOST),
        n if n == factors.len() => Ok(DEVICE),
        _ => refused("a product of whose factors one is the program's and one is in device memory"),
    }
}

/// `CUBLAS_POINTER_MODE_HOST` and its like.
pub(crate) const HOST: u32 = 0;
/// `CUBLAS_POINTER_MODE_DEVICE` and its like.
pub(crate) const DEVICE: u32 = 1;
