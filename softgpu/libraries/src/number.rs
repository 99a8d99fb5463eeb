//! The types that are computed with, and how others become them.

use half::{bf16, f16};
use num_complex::Complex;

/// A type of elements that can be read as `T`, and written from it.
pub(crate) trait Element<T>: Copy {
    /// As it is computed with.
    fn read(self) -> T;
    /// As it is stored, rounded to nearest even.
    fn write(value: T) -> Self;
}

macro_rules! same {
    ($($t:ty),*) => {$(
        impl Element<$t> for $t {
            fn read(self) -> $t {
                self
            }
            fn write(value: $t) -> Self {
                value
            }
        }
    )*};
}
same!(f32, f64, i32, Complex<f32>, Complex<f64>);

macro_rules! half {
    ($($t:ty),*) => {$(
        impl Element<f32> for $t {
            fn read(self) -> f32 {
                self.to_f32()
            }
            fn write(value: f32) -> Self {
                <$t>::from_f32(value)
            }
        }
    )*};
}
half!(f16, bf16);

impl Element<f32> for i8 {
    fn read(self) -> f32 {
        f32::from(self)
    }
    fn write(value: f32) -> Self {
        value.round_ties_even() as i8
    }
}

impl Element<i32> for i8 {
    fn read(self) -> i32 {
        i32::from(self)
    }
    fn write(value: i32) -> Self {
        value.clamp(i8::MIN.into(), i8::MAX.into()) as i8
    }
}

/// A type that sums are made in.
pub(crate) trait Number:
    Copy + Send + Sync + PartialEq + std::ops::Add<Output = Self> + std::ops::Mul<Output = Self> + 'static
{
    /// Nothing.
    const ZERO: Self;
    /// From a factor's real and imaginary part.
    fn from_parts(parts: [f64; 2]) -> Self;
}

impl Number for f32 {
    const ZERO: Self = 0.0;
    fn from_parts([re, _]: [f64; 2]) -> Self {
        re as f32
    }
}

impl Number for f64 {
    const ZERO: Self = 0.0;
    fn from_parts([re, _]: [f64; 2]) -> Self {
        re
    }
}

impl Number for i32 {
    const ZERO: Self = 0;
    fn from_parts([re, _]: [f64; 2]) -> Self {
        re as i32
    }
}

impl Number for Complex<f32> {
    const ZERO: Self = Self::new(0.0, 0.0);
    fn from_parts([re, im]: [f64; 2]) -> Self {
        Self::new(re as f32, im as f32)
    }
}

impl Number for Complex<f64> {
    const ZERO: Self = Self::new(0.0, 0.0);
    fn from_parts([re, im]: [f64; 2]) -> Self {
        Self::new(re, im)
    }
}
