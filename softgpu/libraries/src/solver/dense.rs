//! Matrices between device memory and the crate that computes.

use rgpu_dense::{Dense, Mat, MatRef};
use rgpu_device::{Code, Error, Result};

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
