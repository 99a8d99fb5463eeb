//! Products with sparse matrices.

use rgpu_dense::Dense;
use rgpu_device::Result;
use rgpu_libraries::{DataType, DenseMatrix, SampledProduct, SparseProduct, Transpose};
use rgpu_softgpu::library::Operand;

use super::places::{dense, each, is_whole, operands, place, room, set_value, value};
use super::{Sparse, factor, factor_now};
use crate::invalid;

pub(super) fn turns(op: Transpose) -> bool {
    matches!(op, Transpose::Transposed | Transpose::Adjoint)
}

pub(super) fn conjugates(op: Transpose) -> bool {
    matches!(op, Transpose::Conjugated | Transpose::Adjoint)
}

/// Rows and columns of a matrix as it is used.
pub(super) fn used(op: Transpose, rows: u64, columns: u64) -> (u64, u64) {
    if turns(op) { (columns, rows) } else { (rows, columns) }
}

/// An element of a dense matrix as it is used.
///
/// # Safety
/// `at` is the operand of the matrix, which as it is used has this element.
pub(super) unsafe fn element<T: Dense>(
    m: &DenseMatrix,
    at: *const u8,
    op: Transpose,
    row: u64,
    column: u64,
) -> T {
    let (row, column) = if turns(op) { (column, row) } else { (row, column) };
    // SAFETY: the caller's promise.
    let element: T = unsafe { value(at, place(m, row, column)) };
    if conjugates(op) { element.conjugate() } else { element }
}

/// Checks that matrices of these rows and columns, of one type, are a product.
fn fits(a: (u64, u64), b: (u64, u64), c: (u64, u64), kinds: [DataType; 3]) -> Result<()> {
    if a.1 != b.0 || c != (a.0, b.1) {
        return invalid(format!("{a:?} times {b:?} is not {} x {}", c.0, c.1));
    }
    if kinds[0] != kinds[2] || kinds[1] != kinds[2] {
        return crate::missing("products of sparse matrices in several types");
    }
    Ok(())
}

impl Sparse for SparseProduct {
    fn shape(&self) -> (DataType, u64) {
        // Each thread makes columns of its own.
        (self.c.kind, self.c.columns)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        let a = used(self.op_a, self.a.rows, self.a.columns);
        let b = used(self.op_b, self.b.rows, self.b.columns);
        fits(a, b, (self.c.rows, self.c.columns), [self.a.kind, self.b.kind, self.c.kind])?;
        is_whole(&self.a)?;
        let [offsets, indices, values] = operands(&self.a, false, false)?;
        Ok(vec![
            offsets,
            indices,
            values,
            dense(&self.b, false)?,
            dense(&self.c, true)?,
            factor(&self.alpha, self.c.kind),
            factor(&self.beta, self.c.kind),
        ])
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], from: u64, to: u64) -> Result<()> {
        // SAFETY: the operands are as said above; here and below.
        let (alpha, beta): (T, T) =
            unsafe { (factor_now(&self.alpha, memory[5]), factor_now(&self.beta, memory[6])) };
        let rows = self.c.rows;
        if rows == 0 {
            return Ok(());
        }
        let Some(count) = rows.checked_mul(to - from) else { return invalid("A product without end") };
        let mut sums = room(count, T::of(0.0, 0.0))?;
        // SAFETY: the first two operands.
        unsafe {
            each(&self.a, (memory[0], memory[1]), |i, j, k| {
                // SAFETY: each element has a value.
                let a: T = value(memory[2], k);
                let a = if conjugates(self.op_a) { a.conjugate() } else { a };
                let (i, j) = if turns(self.op_a) { (j, i) } else { (i, j) };
                for column in from..to {
                    // SAFETY: B has as many rows as A has columns.
                    let b: T = element(&self.b, memory[3], self.op_b, j, column);
                    let sum = &mut sums[((column - from) * rows + i) as usize];
                    *sum += a * b;
                }
            })?;
        }
        let keeps = self.beta.addr != 0 || self.beta.value != [0.0; 2];
        for column in from..to {
            for row in 0..rows {
                let at = place(&self.c, row, column);
                let mut sum = alpha * sums[((column - from) * rows + row) as usize];
                // SAFETY: inside of C.
                unsafe {
                    if keeps {
                        sum += beta * value::<T>(memory[4], at);
                    }
                    set_value(memory[4], at, sum);
                }
            }
        }
        Ok(())
    }
}

impl Sparse for SampledProduct {
    fn shape(&self) -> (DataType, u64) {
        (self.c.kind, 1)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        let a = used(self.op_a, self.a.rows, self.a.columns);
        let b = used(self.op_b, self.b.rows, self.b.columns);
        fits(a, b, (self.c.rows, self.c.columns), [self.a.kind, self.b.kind, self.c.kind])?;
        is_whole(&self.c)?;
        let [offsets, indices, values] = operands(&self.c, false, true)?;
        Ok(vec![
            offsets,
            indices,
            values,
            dense(&self.a, false)?,
            dense(&self.b, false)?,
            factor(&self.alpha, self.c.kind),
            factor(&self.beta, self.c.kind),
        ])
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], _: u64, _: u64) -> Result<()> {
        // SAFETY: the operands are as said above; here and below.
        let (alpha, beta): (T, T) =
            unsafe { (factor_now(&self.alpha, memory[5]), factor_now(&self.beta, memory[6])) };
        let inner = used(self.op_a, self.a.rows, self.a.columns).1;
        let keeps = self.beta.addr != 0 || self.beta.value != [0.0; 2];
        // SAFETY: the first two operands.
        unsafe {
            each(&self.c, (memory[0], memory[1]), |i, j, k| {
                let mut sum = T::of(0.0, 0.0);
                for l in 0..inner {
                    // SAFETY: A has row i, B has column j.
                    let a: T = element(&self.a, memory[3], self.op_a, i, l);
                    sum += a * element::<T>(&self.b, memory[4], self.op_b, l, j);
                }
                sum = alpha * sum;
                if keeps {
                    // SAFETY: each element has a value.
                    sum += beta * value::<T>(memory[2], k);
                }
                // SAFETY: as above.
                set_value(memory[2], k, sum);
            })
        }
    }
}
