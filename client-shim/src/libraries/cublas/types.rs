//! The types of cuBLAS's arguments.

use rgpu_libraries::{DataType, Fill, Side, Transpose};

use super::status::{Result, invalid, unsupported};

/// A number of elements: each function has a form for 32 bits and one for 64.
pub(in crate::libraries) trait Count: Copy + 'static {
    /// The type of such a number in device memory.
    const KIND: DataType;
    /// As the wider type.
    fn get(self) -> i64;
    /// From the wider type.
    fn of(value: i64) -> Self;
}

impl Count for i32 {
    const KIND: DataType = DataType::I32;
    fn get(self) -> i64 {
        self.into()
    }
    fn of(value: i64) -> Self {
        value as Self
    }
}

impl Count for i64 {
    const KIND: DataType = DataType::I64;
    fn get(self) -> i64 {
        self
    }
    fn of(value: i64) -> Self {
        value
    }
}

/// `cuComplex`.
pub(in crate::libraries) type C32 = [f32; 2];
/// `cuDoubleComplex`.
pub(in crate::libraries) type C64 = [f64; 2];

/// `__half`.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(in crate::libraries) struct F16(u16);

/// `__nv_bfloat16`.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(in crate::libraries) struct Bf16(u16);

/// A type of elements of matrices.
pub(in crate::libraries) trait Element: Copy + 'static {
    /// Its number.
    const KIND: DataType;
    /// The type of its parts.
    type Real: Element;
    /// Real and imaginary part.
    fn parts(self) -> [f64; 2];
}

impl Element for f32 {
    const KIND: DataType = DataType::F32;
    type Real = Self;
    fn parts(self) -> [f64; 2] {
        [self.into(), 0.0]
    }
}

impl Element for f64 {
    const KIND: DataType = DataType::F64;
    type Real = Self;
    fn parts(self) -> [f64; 2] {
        [self, 0.0]
    }
}

impl Element for C32 {
    const KIND: DataType = DataType::C32;
    type Real = f32;
    fn parts(self) -> [f64; 2] {
        self.map(f64::from)
    }
}

impl Element for C64 {
    const KIND: DataType = DataType::C64;
    type Real = f64;
    fn parts(self) -> [f64; 2] {
        self
    }
}

impl Element for F16 {
    const KIND: DataType = DataType::F16;
    type Real = Self;
    fn parts(self) -> [f64; 2] {
        let (sign, exponent, fraction) = (self.0 >> 15, (self.0 >> 10) & 0x1f, f64::from(self.0 & 0x3ff));
        let size = match exponent {
            0 => fraction * 2f64.powi(-24),
            0x1f if fraction == 0.0 => f64::INFINITY,
            0x1f => f64::NAN,
            _ => (1.0 + fraction / 1024.0) * 2f64.powi(i32::from(exponent) - 15),
        };
        [if sign == 1 { -size } else { size }, 0.0]
    }
}

impl Element for Bf16 {
    const KIND: DataType = DataType::Bf16;
    type Real = Self;
    fn parts(self) -> [f64; 2] {
        [f32::from_bits(u32::from(self.0) << 16).into(), 0.0]
    }
}

/// The value of a type that a program points to, by the type's number.
///
/// # Safety
/// So much can be read there.
pub(in crate::libraries) unsafe fn parts_at(at: *const u8, kind: DataType) -> [f64; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        match kind {
            DataType::F32 => at.cast::<f32>().read_unaligned().parts(),
            DataType::F64 => at.cast::<f64>().read_unaligned().parts(),
            DataType::C32 => at.cast::<C32>().read_unaligned().parts(),
            DataType::C64 => at.cast::<C64>().read_unaligned().parts(),
            DataType::F16 => at.cast::<F16>().read_unaligned().parts(),
            DataType::Bf16 => at.cast::<Bf16>().read_unaligned().parts(),
            DataType::I8 => [at.cast::<i8>().read_unaligned().into(), 0.0],
            DataType::I32 => [at.cast::<i32>().read_unaligned().into(), 0.0],
            DataType::I64 => [at.cast::<i64>().read_unaligned() as f64, 0.0],
        }
    }
}

/// `cudaDataType`.
pub(in crate::libraries) fn data_type(number: u32) -> Result<DataType> {
    match DataType::from_number(number) {
        Some(kind) => Ok(kind),
        None => unsupported(&format!("Computing with the cudaDataType {number}")),
    }
}

/// `cublasComputeType_t`, with whether elements are complex: the type that products are summed in.
pub(in crate::libraries) fn compute_type(number: u32, complex: bool) -> Result<DataType> {
    Ok(match (number, complex) {
        (64 | 65, false) => DataType::F16,
        (68 | 69 | 74 | 75 | 77 | 78, false) => DataType::F32,
        (68 | 69 | 74 | 75 | 77 | 78, true) => DataType::C32,
        (70 | 71 | 79, false) => DataType::F64,
        (70 | 71 | 79, true) => DataType::C64,
        (72 | 73, false) => DataType::I32,
        _ => return invalid(format!("{number} is no cublasComputeType_t for such elements")),
    })
}

/// Whether a type is one of complex numbers.
pub(in crate::libraries) fn is_complex(kind: DataType) -> bool {
    matches!(kind, DataType::C32 | DataType::C64)
}

/// `cublasOperation_t`.
pub(in crate::libraries) fn operation(number: u32) -> Result<Transpose> {
    match Transpose::from_number(number) {
        Some(op) => Ok(op),
        None => invalid(format!("{number} is no cublasOperation_t")),
    }
}

/// `cublasFillMode_t`.
pub(in crate::libraries) fn fill(number: u32) -> Result<Fill> {
    match Fill::from_number(number) {
        Some(fill) => Ok(fill),
        None => invalid(format!("{number} is no cublasFillMode_t that says which part of a matrix is there")),
    }
}

/// `cublasSideMode_t`.
pub(in crate::libraries) fn side(number: u32) -> Result<Side> {
    match Side::from_number(number) {
        Some(side) => Ok(side),
        None => invalid(format!("{number} is no cublasSideMode_t")),
    }
}

/// `cublasDiagType_t`: whether the diagonal is taken to be ones.
pub(in crate::libraries) fn is_unit(number: u32) -> Result<bool> {
    match number {
        0 => Ok(false),
        1 => Ok(true),
        _ => invalid(format!("{number} is no cublasDiagType_t")),
    }
}

/// A number of rows, columns or problems, which is not negative.
pub(in crate::libraries) fn extent<N: Count>(name: &str, value: N) -> Result<u64> {
    match u64::try_from(value.get()) {
        Ok(value) => Ok(value),
        Err(_) => invalid(format!("{name} is {}", value.get())),
    }
}

/// A leading dimension, at least as long as a column.
pub(in crate::libraries) fn leading<N: Count>(name: &str, value: N, rows: u64) -> Result<u64> {
    match u64::try_from(value.get()) {
        Ok(value) if value >= rows.max(1) => Ok(value),
        _ => invalid(format!("{name} is {}, for columns of {rows}", value.get())),
    }
}

/// A distance between elements, which is not 0.
pub(in crate::libraries) fn step<N: Count>(name: &str, value: N) -> Result<i64> {
    if value.get() == 0 { invalid(format!("{name} is 0")) } else { Ok(value.get()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_read() {
        let half = |bits| F16(bits).parts()[0];
        assert_eq!([0x3c00, 0xc000, 0x0001, 0x7bff].map(half), [1.0, -2.0, 2f64.powi(-24), 65504.0]);
        assert!(half(0x7c00).is_infinite());
        assert_eq!(half(0xfc00), f64::NEG_INFINITY);
        assert!(half(0x7e00).is_nan());
        assert_eq!(Bf16(0x3fc0).parts(), [1.5, 0.0]);
    }

    #[test]
    fn arguments_that_make_no_sense_are_refused() {
        assert!(extent("n", -1).is_err() && leading("lda", 3, 4).is_err() && leading("lda", 0, 0).is_err());
        assert!(
            step("incx", 0i64).is_err() && operation(4).is_err() && fill(2).is_err() && is_unit(2).is_err()
        );
        assert_eq!(leading("lda", 4i64, 4), Ok(4));
    }
}
