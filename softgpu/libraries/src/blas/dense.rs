//! Matrices without gaps, column by column, which an operation works on before it stores its result.

use rgpu_libraries::Transpose;

use super::gemm::Product;
use super::matrix_vector::of_op;
use crate::cells::Cells;
use crate::field::Field;

/// So many multiplications are not worth another thread.
const SMALL: u64 = 1 << 17;

/// Into how many pieces so much work on so many columns is cut.
pub(crate) fn pieces(work: u64, columns: u64, threads: usize) -> usize {
    if threads < 2 {
        return 1;
    }
    (work / SMALL).clamp(1, 2 * threads as u64).min(columns.div_ceil(8).max(1)) as usize
}

/// The columns of a piece.
pub(crate) fn share(columns: u64, piece: usize, pieces: usize) -> (u64, u64) {
    let at = |piece: usize| (u128::from(columns) * piece as u128 / pieces as u128) as u64;
    (at(piece), at(piece + 1))
}

/// A matrix.
#[derive(Debug, Clone)]
pub(crate) struct Dense<T> {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) data: Vec<T>,
}

impl<T: Field> Dense<T> {
    /// Zeros.
    pub(crate) fn zero(rows: usize, columns: usize) -> Self {
        Self { rows, columns, data: vec![T::ZERO; rows * columns] }
    }

    /// A matrix whose elements a function says.
    pub(crate) fn of(rows: usize, columns: usize, mut element: impl FnMut(usize, usize) -> T) -> Self {
        let mut data = Vec::with_capacity(rows * columns);
        for j in 0..columns {
            data.extend((0..rows).map(|i| element(i, j)));
        }
        Self { rows, columns, data }
    }

    /// The part of op(M) with these rows and columns.
    ///
    /// # Safety
    /// The cells are those of a matrix M, `ld` apart, that has them.
    pub(crate) unsafe fn read(
        cells: Cells,
        ld: u64,
        op: Transpose,
        rows: std::ops::Range<u64>,
        columns: std::ops::Range<u64>,
    ) -> Self {
        let (turned, conjugate) = of_op(op);
        let ld = ld as isize;
        let (row, column) = if turned { (ld, 1) } else { (1, ld) };
        let (first, top) = (columns.start as isize, rows.start as isize);
        Self::of((rows.end - rows.start) as usize, (columns.end - columns.start) as usize, |i, j| {
            // SAFETY: the caller's promise.
            let value: T = unsafe { cells.get((i as isize + top) * row + (j as isize + first) * column) };
            if conjugate { value.conj() } else { value }
        })
    }

    pub(crate) fn at(&self, i: usize, j: usize) -> T {
        self.data[i + j * self.rows]
    }

    pub(crate) fn set(&mut self, i: usize, j: usize, value: T) {
        self.data[i + j * self.rows] = value;
    }

    /// `alpha A B`.
    pub(crate) fn product(alpha: T, a: &Self, b: &Self) -> Self {
        debug_assert_eq!(a.columns, b.rows);
        let mut c = Self::zero(a.rows, b.columns);
        // SAFETY: the matrices are as long as their shapes say, and C is another one.
        unsafe {
            Product {
                shape: (a.rows, b.columns, a.columns),
                c: (c.data.as_mut_ptr(), c.rows as isize),
                a: (a.data.as_ptr(), 1, a.rows as isize, false),
                b: (b.data.as_ptr(), 1, b.rows as isize, false),
                alpha,
                beta: T::ZERO,
            }
            .compute();
        }
        c
    }
}
