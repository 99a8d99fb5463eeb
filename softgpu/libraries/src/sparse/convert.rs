//! One form of a matrix from another.

use rgpu_dense::Dense;
use rgpu_device::Result;
use rgpu_libraries::{
    DataType, DenseCount, DenseLines, DenseMatrix, DenseToSparse, SparseConvert, SparseFormat, SparseMatrix,
    SparseToDense,
};
use rgpu_softgpu::library::Operand;

use super::places::{dense, each, is_whole, operands, place, room, set_number, set_value, value};
use super::{Sparse, list};
use crate::{invalid, missing};

fn fits(a: &DenseMatrix, b: &SparseMatrix) -> Result<()> {
    if (a.rows, a.columns, a.kind) == (b.rows, b.columns, b.kind) {
        return Ok(());
    }
    invalid("A dense and a sparse matrix of different shapes or types")
}

impl Sparse for SparseToDense {
    fn shape(&self) -> (DataType, u64) {
        (self.a.kind, 1)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        fits(&self.b, &self.a)?;
        is_whole(&self.a)?;
        let [offsets, indices, values] = operands(&self.a, false, false)?;
        Ok(vec![offsets, indices, values, dense(&self.b, true)?])
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], _: u64, _: u64) -> Result<()> {
        let rows = if self.b.columns == 0 { 0 } else { self.b.rows };
        for (row, column) in (0..rows).flat_map(|i| (0..self.b.columns).map(move |j| (i, j))) {
            // SAFETY: inside of the dense matrix.
            unsafe { set_value(memory[3], place(&self.b, row, column), T::of(0.0, 0.0)) };
        }
        // SAFETY: the first operands are the sparse matrix, whose places are inside of the dense one.
        unsafe {
            each(&self.a, (memory[0], memory[1]), |i, j, k| {
                set_value::<T>(memory[3], place(&self.b, i, j), value(memory[2], k));
            })
        }
    }
}

/// Calls `f` with all elements that are not zero, in the order in which the sparse matrix stores them.
///
/// # Safety
/// `at` is the operand of the dense matrix.
unsafe fn each_dense<T: Dense>(
    a: &DenseMatrix,
    at: *const u8,
    by_columns: bool,
    mut f: impl FnMut(u64, u64, T),
) {
    let (lines, length) = if by_columns { (a.columns, a.rows) } else { (a.rows, a.columns) };
    // As many lines as there may be say nothing of memory where they are empty.
    let lines = if length == 0 { 0 } else { lines };
    for (line, other) in (0..lines).flat_map(|i| (0..length).map(move |j| (i, j))) {
        let (row, column) = if by_columns { (other, line) } else { (line, other) };
        // SAFETY: the caller's promise.
        let element: T = unsafe { value(at, place(a, row, column)) };
        if element.parts() != (0.0, 0.0) {
            f(row, column, element);
        }
    }
}

impl Sparse for DenseCount {
    fn shape(&self) -> (DataType, u64) {
        (self.a.kind, 1)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        fits(&self.a, &self.b)?;
        let empty = SparseMatrix { stored: 0, ..self.b.clone() };
        let [offsets, ..] = operands(&empty, true, false)?;
        Ok(vec![dense(&self.a, false)?, offsets, list(self.total, 1, 8, true)?])
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], _: u64, _: u64) -> Result<()> {
        let by_columns = self.b.format == SparseFormat::Csc;
        let lines = if by_columns { self.b.columns } else { self.b.rows };
        let mut ends = room(lines, 0i64)?;
        let mut total = 0;
        // SAFETY: the first operand is the dense matrix.
        unsafe {
            each_dense::<T>(&self.a, memory[0], by_columns, |i, j, _| {
                total += 1;
                ends[if by_columns { j } else { i } as usize] += 1;
            });
        }
        if self.b.format != SparseFormat::Coo && self.b.offsets != 0 {
            let mut sum = i64::from(self.b.base);
            for (line, count) in std::iter::once(0).chain(ends).enumerate() {
                sum += count;
                // SAFETY: the second operand has a number for each line, and one more.
                unsafe { set_number(memory[1], line, self.b.wide_offsets, sum) };
            }
        }
        if self.total != 0 {
            // SAFETY: the third operand is that number.
            unsafe { set_number(memory[2], 0, true, total) };
        }
        Ok(())
    }
}

impl Sparse for DenseLines {
    fn shape(&self) -> (DataType, u64) {
        (self.a.kind, 1)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        let lines = if self.by_columns { self.a.columns } else { self.a.rows };
        if self.per_line == 0 && lines > 0 {
            return invalid("There is no place for the numbers of elements");
        }
        Ok(vec![dense(&self.a, false)?, list(self.per_line, lines, 4, true)?, list(self.total, 1, 4, true)?])
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], _: u64, _: u64) -> Result<()> {
        let lines = if self.by_columns { self.a.columns } else { self.a.rows };
        let mut counts = room(lines, 0i64)?;
        // SAFETY: the first operand is the dense matrix.
        unsafe {
            each_dense::<T>(&self.a, memory[0], self.by_columns, |i, j, _| {
                counts[if self.by_columns { j } else { i } as usize] += 1;
            });
        }
        // SAFETY: the second operand has a number for each line, and the third is one.
        unsafe {
            counts.iter().enumerate().for_each(|(line, &count)| set_number(memory[1], line, false, count));
            if self.total != 0 {
                set_number(memory[2], 0, false, counts.iter().sum());
            }
        }
        Ok(())
    }
}

impl Sparse for DenseToSparse {
    fn shape(&self) -> (DataType, u64) {
        (self.a.kind, 1)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        fits(&self.a, &self.b)?;
        is_whole(&self.b)?;
        // All places that are written must be there, as for a matrix that is read.
        operands(&self.b, false, true)?;
        let [offsets, indices, values] = operands(&self.b, self.b.format == SparseFormat::Coo, true)?;
        Ok(vec![dense(&self.a, false)?, offsets, Operand { written: true, ..indices }, values])
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], _: u64, _: u64) -> Result<()> {
        let b = &self.b;
        let by_columns = b.format == SparseFormat::Csc;
        let (mut k, base) = (0usize, i64::from(b.base));
        // SAFETY: the first operand is the dense matrix.
        unsafe {
            each_dense::<T>(&self.a, memory[0], by_columns, |i, j, element| {
                if k as u64 >= b.stored {
                    k += 1;
                    return;
                }
                // SAFETY: the lists have places for so many elements.
                if b.format == SparseFormat::Coo {
                    set_number(memory[1], k, b.wide_offsets, i as i64 + base);
                }
                let index = if by_columns { i } else { j };
                set_number(memory[2], k, b.wide_indices, index as i64 + base);
                set_value(memory[3], k, element);
                k += 1;
            });
        }
        if k as u64 != b.stored {
            return invalid(format!("There is room for {} elements, and {k} are not zero", b.stored));
        }
        Ok(())
    }
}

impl Sparse for SparseConvert {
    fn shape(&self) -> (DataType, u64) {
        (self.a.kind, 1)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        let (a, b) = (&self.a, &self.b);
        if (a.rows, a.columns, a.stored, a.kind) != (b.rows, b.columns, b.stored, b.kind) {
            return invalid("A matrix does not become one of another shape or type");
        }
        if a.format == SparseFormat::Coo && b.format == SparseFormat::Coo {
            return missing("a sparse matrix by elements from one by elements");
        }
        if a.indices == 0 && b.indices != 0 && a.stored > 0 {
            return invalid("A matrix without indices gives none");
        }
        let mut operands_all = operands(a, false, false)?.to_vec();
        operands_all.extend(operands(b, true, true)?);
        Ok(operands_all)
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], _: u64, _: u64) -> Result<()> {
        let b = &self.b;
        let by_columns = b.format == SparseFormat::Csc;
        let mut elements: Vec<(u64, u64, usize)> = room(b.stored, (0, 0, 0))?;
        elements.clear();
        // SAFETY: the first two operands.
        unsafe { each(&self.a, (memory[0], memory[1]), |i, j, k| elements.push((i, j, k))) }?;
        // Elements of one place stay in their order, and so do those of a line: that is what the counting that other implementations do
        // makes of them.
        if by_columns {
            elements.sort_by_key(|e| e.1);
        } else {
            elements.sort_by_key(|e| e.0);
        }
        let base = i64::from(b.base);
        let copies = self.a.values != 0 && b.values != 0;
        // SAFETY: the lists of the second matrix have places for so many elements as the first one stores.
        unsafe {
            for (at, &(i, j, k)) in elements.iter().enumerate().take(b.stored as usize) {
                if b.format == SparseFormat::Coo && b.offsets != 0 {
                    set_number(memory[3], at, b.wide_offsets, i as i64 + base);
                }
                if b.indices != 0 {
                    let index = if by_columns { i } else { j };
                    set_number(memory[4], at, b.wide_indices, index as i64 + base);
                }
                if copies {
                    set_value::<T>(memory[5], at, value(memory[2], k));
                }
            }
            if b.format != SparseFormat::Coo && b.offsets != 0 {
                let lines = if by_columns { b.columns } else { b.rows };
                let mut next = 0;
                for line in 0..=lines {
                    let before = |e: &(u64, u64, usize)| (if by_columns { e.1 } else { e.0 }) < line;
                    while elements.get(next).is_some_and(before) {
                        next += 1;
                    }
                    set_number(memory[3], line as usize, b.wide_offsets, next as i64 + base);
                }
            }
        }
        Ok(())
    }
}
