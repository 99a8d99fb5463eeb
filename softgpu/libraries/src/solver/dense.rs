//! The types of elements, and matrices between device memory and the crate that computes.

use faer::traits::ComplexField;
use faer::{Mat, MatRef};
use num_complex::Complex;
use rgpu_device::{Code, Error, Result};

/// A type of elements.
pub(crate) trait Dense:
    ComplexField
    + Copy
    + Send
    + Sync
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + 'static
{
    /// The type of absolute values.
    type Absolute: Copy + Into<f64>;
    /// Whether there are imaginary parts.
    const COMPLEX: bool;
    /// From parts, rounded.
    fn of(re: f64, im: f64) -> Self;
    /// Real and imaginary part.
    fn parts(self) -> (f64, f64);
    /// An absolute value, rounded.
    fn absolute(value: f64) -> Self::Absolute;

    /// The number that the crate gives for an absolute value.
    fn real(value: &<Self as ComplexField>::Real) -> f64;

    /// The conjugate.
    fn conjugate(self) -> Self {
        let (re, im) = self.parts();
        Self::of(re, -im)
    }
}

macro_rules! dense {
    ($($t:ident)*) => {$(
        impl Dense for $t {
            type Absolute = $t;
            const COMPLEX: bool = false;
            fn of(re: f64, _: f64) -> Self {
                re as $t
            }
            fn parts(self) -> (f64, f64) {
                (self.into(), 0.0)
            }
            fn absolute(value: f64) -> $t {
                value as $t
            }
            fn real(value: &$t) -> f64 {
                (*value).into()
            }
        }

        impl Dense for Complex<$t> {
            type Absolute = $t;
            const COMPLEX: bool = true;
            fn of(re: f64, im: f64) -> Self {
                Self::new(re as $t, im as $t)
            }
            fn parts(self) -> (f64, f64) {
                (self.re.into(), self.im.into())
            }
            fn absolute(value: f64) -> $t {
                value as $t
            }
            fn real(value: &$t) -> f64 {
                (*value).into()
            }
        }
    )*};
}
dense!(f32 f64);

/// A matrix in device memory: kernels of other streams may use it at the same time, so it is only copied.
#[derive(Clone, Copy)]
pub(crate) struct Place<T> {
    pub(crate) at: *mut T,
    pub(crate) ld: usize,
}

impl<T: Dense> Place<T> {
    /// An element.
    ///
    /// # Safety
    /// It is inside of the matrix.
    pub(crate) unsafe fn get(self, row: usize, column: usize) -> T {
        // SAFETY: the caller's promise.
        unsafe { self.at.add(row + column * self.ld).read_unaligned() }
    }

    /// Stores an element.
    ///
    /// # Safety
    /// It is inside of the matrix, which may be written.
    pub(crate) unsafe fn set(self, row: usize, column: usize, value: T) {
        // SAFETY: the caller's promise.
        unsafe { self.at.add(row + column * self.ld).write_unaligned(value) }
    }

    /// A copy of elements; those for which `wanted` says no are zeros.
    ///
    /// # Safety
    /// The matrix has so many rows and columns.
    pub(crate) unsafe fn copy(
        self,
        (rows, columns): (usize, usize),
        wanted: impl Fn(usize, usize) -> bool,
    ) -> Result<Mat<T>> {
        room::<T>(rows, columns)?;
        let zero = T::of(0.0, 0.0);
        // SAFETY: the caller's promise.
        Ok(Mat::from_fn(rows, columns, |i, j| if wanted(i, j) { unsafe { self.get(i, j) } } else { zero }))
    }

    /// Stores a matrix; elements for which `wanted` says no stay as they are.
    ///
    /// # Safety
    /// The matrix in memory is as large, and may be written.
    pub(crate) unsafe fn store(self, from: MatRef<'_, T>, wanted: impl Fn(usize, usize) -> bool) {
        for j in 0..from.ncols() {
            for i in (0..from.nrows()).filter(|&i| wanted(i, j)) {
                // SAFETY: the caller's promise.
                unsafe { self.set(i, j, from[(i, j)]) };
            }
        }
    }
}

/// An error where there is no memory for a copy of so many elements and for what is made of it.
pub(crate) fn room<T>(rows: usize, columns: usize) -> Result<()> {
    let none = || Error::new(Code::OutOfMemory, format!("No memory for a matrix of {rows} x {columns}"));
    let elements = rows.checked_mul(columns).and_then(|n| n.checked_mul(4)).ok_or_else(none)?;
    Vec::<T>::new().try_reserve_exact(elements).map_err(|_| none())
}

/// All elements.
pub(crate) fn all(_: usize, _: usize) -> bool {
    true
}

/// The adjoint, as a matrix of its own.
pub(crate) fn adjoint<T: Dense>(of: MatRef<'_, T>) -> Mat<T> {
    Mat::from_fn(of.ncols(), of.nrows(), |i, j| of[(j, i)].conjugate())
}
