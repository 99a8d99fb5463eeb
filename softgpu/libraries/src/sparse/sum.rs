//! Sums and products of which all matrices are sparse.

use rgpu_dense::Dense;
use rgpu_device::Result;
use rgpu_libraries::{DataType, SparseFormat, SparseMatrix, SparseMultiply, SparseSum};
use rgpu_softgpu::library::{Operand, Plan};

use super::places::{each, is_whole, number, operands, set_number, set_value, value};
use super::{Sparse, factor, factor_now, list, once_read};
use crate::{invalid, missing};

/// What [`SparseSum`] comes to. How many elements C has say its offsets when its turn has come.
pub(crate) fn sum(operation: SparseSum) -> Result<Plan> {
    by_rows(&operation.c)?;
    let (rows, wide) = (operation.c.rows, operation.c.wide_offsets);
    if operation.counts {
        return super::plan(operation);
    }
    let [offsets, ..] = operands(&SparseMatrix { stored: 0, ..operation.c.clone() }, false, false)?;
    Ok(once_read(offsets, move |at| {
        // SAFETY: the offsets are one number more than there are rows.
        let (first, last) = unsafe { (number(at, 0, wide), number(at, rows as usize, wide)) };
        let Some(stored) = last.checked_sub(first).and_then(|stored| u64::try_from(stored).ok()) else {
            return invalid(format!("A sparse matrix that ends at {last} and begins at {first}"));
        };
        let c = SparseMatrix { stored, ..operation.c.clone() };
        super::plan(SparseSum { c, ..operation.clone() })
    }))
}

/// An error where a result is not by rows.
fn by_rows(c: &SparseMatrix) -> Result<()> {
    if c.format == SparseFormat::Csr { Ok(()) } else { missing("sparse results that are not by rows") }
}

/// Adds up elements of one place, of which each is a row, a column and a value. They come out in order.
fn combined<T: Dense>(mut elements: Vec<(u64, u64, T)>) -> Vec<(u64, u64, T)> {
    elements.sort_by_key(|e| (e.0, e.1));
    elements.dedup_by(|next, kept| {
        let same = (next.0, next.1) == (kept.0, kept.1);
        if same {
            kept.2 += next.2;
        }
        same
    });
    elements
}

/// Stores where rows begin, each of whose elements is one of these.
///
/// # Safety
/// `at` has a number for each row, and one more.
unsafe fn set_offsets<T>(c: &SparseMatrix, at: *mut u8, elements: &[(u64, u64, T)]) {
    let mut next = 0;
    for row in 0..=c.rows {
        while elements.get(next).is_some_and(|e| e.0 < row) {
            next += 1;
        }
        // SAFETY: the caller's promise.
        unsafe { set_number(at, row as usize, c.wide_offsets, next as i64 + i64::from(c.base)) };
    }
}

/// Stores columns and values.
///
/// # Safety
/// The lists are those of C, and as long as it says.
unsafe fn set_elements<T: Dense>(
    c: &SparseMatrix,
    (indices, values): (*mut u8, *mut u8),
    elements: &[(u64, u64, T)],
) -> Result<()> {
    if elements.len() as u64 != c.stored {
        return invalid(format!("There is room for {} elements of {}", c.stored, elements.len()));
    }
    for (k, &(_, column, element)) in elements.iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe {
            set_number(indices, k, c.wide_indices, column as i64 + i64::from(c.base));
            set_value(values, k, element);
        }
    }
    Ok(())
}

impl Sparse for SparseSum {
    fn shape(&self) -> (DataType, u64) {
        (self.c.kind, 1)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        let (a, b, c) = (&self.a, &self.b, &self.c);
        if (a.rows, a.columns) != (c.rows, c.columns) || (b.rows, b.columns) != (c.rows, c.columns) {
            return invalid("A sum of sparse matrices of different shapes");
        }
        if a.kind != c.kind || b.kind != c.kind {
            return missing("sums of sparse matrices in several types");
        }
        if !self.counts {
            is_whole(a)?;
            is_whole(b)?;
            is_whole(c)?;
        }
        let c = if self.counts { SparseMatrix { stored: 0, ..c.clone() } } else { c.clone() };
        let [c_offsets, c_indices, c_values] = operands(&c, false, true)?;
        let mut all = operands(a, false, false)?.to_vec();
        all.extend(operands(b, false, false)?);
        all.extend([
            Operand { written: self.counts, ..c_offsets },
            Operand { written: true, ..c_indices },
            c_values,
            list(self.total, 1, 4, true)?,
            factor(&self.alpha, c.kind),
            factor(&self.beta, c.kind),
        ]);
        Ok(all)
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], _: u64, _: u64) -> Result<()> {
        let mut elements: Vec<(u64, u64, T)> = Vec::new();
        let sides = [(&self.a, 0, (&self.alpha, memory[10])), (&self.b, 3, (&self.beta, memory[11]))];
        for (m, first, (scalar, at)) in sides {
            // SAFETY: the operands are as said above; here and below.
            let by: T = if self.counts { T::of(0.0, 0.0) } else { unsafe { factor_now(scalar, at) } };
            // SAFETY: the matrix's places; each of its elements has a value, where they are not only counted.
            unsafe {
                each(m, (memory[first], memory[first + 1]), |i, j, k| {
                    let element = if self.counts { by } else { by * value::<T>(memory[first + 2], k) };
                    elements.push((i, j, element));
                })?;
            }
        }
        let elements = combined(elements);
        if !self.counts {
            // SAFETY: the operands of C.
            return unsafe { set_elements(&self.c, (memory[7], memory[8]), &elements) };
        }
        // SAFETY: C's offsets, and a number of 32 bits.
        unsafe {
            set_offsets(&self.c, memory[6], &elements);
            if self.total != 0 {
                set_number(memory[9], 0, false, elements.len() as i64);
            }
        }
        Ok(())
    }
}

impl Sparse for SparseMultiply {
    fn shape(&self) -> (DataType, u64) {
        (self.c.kind, 1)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        let (a, b, c) = (&self.a, &self.b, &self.c);
        by_rows(c)?;
        if a.columns != b.rows || (a.rows, b.columns) != (c.rows, c.columns) {
            return invalid("Sparse matrices of these shapes are no product");
        }
        if a.kind != c.kind || b.kind != c.kind {
            return missing("products of sparse matrices in several types");
        }
        is_whole(a)?;
        is_whole(b)?;
        if self.counts && self.total == 0 {
            return invalid("There is no place for the number of elements");
        }
        let mut all = operands(a, false, false)?.to_vec();
        all.extend(operands(b, false, false)?);
        if self.counts {
            let none = Operand { addr: 0, bytes: 0, written: false };
            all.extend([none; 3]);
        } else {
            is_whole(c)?;
            let [offsets, indices, values] = operands(c, false, true)?;
            all.extend([offsets, indices, values].map(|operand| Operand { written: true, ..operand }));
        }
        all.extend([list(self.total, 1, 8, true)?, factor(&self.alpha, c.kind)]);
        Ok(all)
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], _: u64, _: u64) -> Result<()> {
        // SAFETY: the operands are as said above; here and below.
        let alpha: T = unsafe { factor_now(&self.alpha, memory[10]) };
        let mut a: Vec<(u64, u64, T)> = Vec::new();
        let mut b: Vec<(u64, u64, T)> = Vec::new();
        for (m, first, into) in [(&self.a, 0, &mut a), (&self.b, 3, &mut b)] {
            // SAFETY: the matrix's places, and each of its elements has a value.
            unsafe {
                each(m, (memory[first], memory[first + 1]), |i, j, k| {
                    into.push((i, j, value(memory[first + 2], k)));
                })?;
            }
        }
        a.sort_by_key(|e| e.0);
        b.sort_by_key(|e| e.0);
        let row_of_b = |row: u64| {
            let rest = &b[b.partition_point(|e| e.0 < row)..];
            &rest[..rest.partition_point(|e| e.0 == row)]
        };
        // Row by row, so that no more than a row's products are in memory at once.
        let mut elements = Vec::new();
        for row in a.chunk_by(|x, y| x.0 == y.0) {
            let products = row.iter().flat_map(|&(i, j, of_a)| {
                row_of_b(j).iter().map(move |&(_, column, of_b)| (i, column, of_a * of_b))
            });
            elements.extend(combined(products.collect()));
        }
        if self.counts {
            // SAFETY: a number of 64 bits.
            unsafe { set_number(memory[9], 0, true, elements.len() as i64) };
            return Ok(());
        }
        for element in &mut elements {
            element.2 = alpha * element.2;
        }
        // SAFETY: the operands of C. Nothing is stored where the elements are not as many as there is room for.
        unsafe {
            set_elements(&self.c, (memory[7], memory[8]), &elements)?;
            set_offsets(&self.c, memory[6], &elements);
        }
        Ok(())
    }
}
