//! Numbers that can be divided: what linear algebra is done in.

use num_complex::Complex;
use rgpu_libraries::DataType;

use crate::number::Number;

/// A type of real or complex numbers.
pub(crate) trait Field:
    Number
    + Default
    + std::ops::Sub<Output = Self>
    + std::ops::Div<Output = Self>
    + std::ops::Neg<Output = Self>
    + std::ops::AddAssign
{
    /// Its number on the wire.
    const KIND: DataType;
    /// One.
    const ONE: Self;
    /// With the imaginary part negated.
    fn conj(self) -> Self;
    /// Real and imaginary part.
    fn parts(self) -> [f64; 2];
    /// As a sum of absolute values of parts, which BLAS takes for the size of a complex number.
    fn size(self) -> f64 {
        let [re, im] = self.parts();
        re.abs() + im.abs()
    }
    /// Its real part alone.
    fn real(self) -> Self {
        Self::from_parts([self.parts()[0], 0.0])
    }
}

macro_rules! real {
    ($($t:ty = $kind:ident),*) => {$(
        impl Field for $t {
            const KIND: DataType = DataType::$kind;
            const ONE: Self = 1.0;
            fn conj(self) -> Self {
                self
            }
            fn parts(self) -> [f64; 2] {
                [self.into(), 0.0]
            }
        }
    )*};
}
real!(f32 = F32, f64 = F64);

macro_rules! complex {
    ($($t:ty = $kind:ident),*) => {$(
        impl Field for Complex<$t> {
            const KIND: DataType = DataType::$kind;
            const ONE: Self = Self::new(1.0, 0.0);
            fn conj(self) -> Self {
                Self::new(self.re, -self.im)
            }
            fn parts(self) -> [f64; 2] {
                [self.re.into(), self.im.into()]
            }
        }
    )*};
}
complex!(f32 = C32, f64 = C64);

/// Runs an expression with `$t` as the type that an operation computes in.
macro_rules! with_field {
    ($kind:expr, $what:literal, $t:ident => $then:expr) => {
        match $kind {
            rgpu_libraries::DataType::F32 => {
                type $t = f32;
                $then
            }
            rgpu_libraries::DataType::F64 => {
                type $t = f64;
                $then
            }
            rgpu_libraries::DataType::C32 => {
                type $t = num_complex::Complex<f32>;
                $then
            }
            rgpu_libraries::DataType::C64 => {
                type $t = num_complex::Complex<f64>;
                $then
            }
            other => $crate::missing(format!("{} computed in {other:?}", $what)),
        }
    };
}
pub(crate) use with_field;
