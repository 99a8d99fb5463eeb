//! Matrices without their small elements.

use rgpu_dense::Dense;
use rgpu_device::Result;
use rgpu_libraries::{DataType, SparseCompress, SparseFormat, SparseMatrix};
use rgpu_softgpu::library::{Operand, Plan};

use super::places::{each, is_whole, number, operands, room, set_number, set_value, value};
use super::{Sparse, list, once_read};
use crate::{invalid, missing};

/// What [`SparseCompress`] comes to. How many elements there are, or stay, is read when its turn has come.
pub(crate) fn compress(operation: SparseCompress) -> Result<Plan> {
    if operation.a.format != SparseFormat::Csr || operation.b.format != SparseFormat::Csr {
        return missing("small elements that go from a matrix that is not by rows");
    }
    if operation.per_row == 0 && operation.a.rows > 0 {
        return invalid("There is no place for how many elements rows keep");
    }
    if operation.counts {
        // Those who count do not know how many elements there are: the offsets say so.
        let [offsets, ..] = operands(&SparseMatrix { stored: 0, ..operation.a.clone() }, false, false)?;
        return Ok(once_read(offsets, move |at| {
            let (rows, wide) = (operation.a.rows as usize, operation.a.wide_offsets);
            // SAFETY: the offsets are one number more than there are rows.
            let end = unsafe { number(at, rows, wide) };
            let Some(stored) =
                u64::try_from(end).ok().and_then(|end| end.checked_sub(operation.a.base.into()))
            else {
                return invalid(format!("A sparse matrix that ends at {end}"));
            };
            let a = SparseMatrix { stored, ..operation.a.clone() };
            super::plan(SparseCompress { a, ..operation.clone() })
        }));
    }
    let per_row = list(operation.per_row, operation.a.rows, 4, false)?;
    Ok(once_read(per_row, move |at| {
        // SAFETY: there is a number for each row.
        let mut kept = (0..operation.a.rows as usize).map(|row| unsafe { number(at, row, false) });
        let kept = kept.try_fold(0u64, |sum, kept| sum.checked_add(u64::try_from(kept).ok()?));
        let Some(stored) = kept else { return invalid("A row that keeps less than no elements") };
        let b = SparseMatrix { stored, ..operation.b.clone() };
        super::plan(SparseCompress { b, ..operation.clone() })
    }))
}

impl Sparse for SparseCompress {
    fn shape(&self) -> (DataType, u64) {
        (self.a.kind, 1)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        let (a, b) = (&self.a, &self.b);
        // Where they are counted, there need be no columns.
        if a.values == 0 && a.stored > 0 {
            return invalid("A sparse matrix without elements");
        }
        let mut all = operands(a, false, false)?.to_vec();
        if self.counts {
            all.extend([list(self.per_row, a.rows, 4, true)?, list(self.total, 1, 4, true)?]);
            return Ok(all);
        }
        if (a.rows, a.columns, a.kind) != (b.rows, b.columns, b.kind) {
            return invalid("A matrix does not become one of another shape or type");
        }
        is_whole(a)?;
        is_whole(b)?;
        let written = |operand| Operand { written: true, ..operand };
        all.extend(operands(b, false, true)?.map(written));
        Ok(all)
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], _: u64, _: u64) -> Result<()> {
        let mut kept: Vec<(u64, u64, T)> = Vec::new();
        // SAFETY: the operands are as said above; here and below. Each element has a value.
        unsafe {
            each(&self.a, (memory[0], memory[1]), |i, j, k| {
                let element: T = value(memory[2], k);
                let (re, im) = element.parts();
                if re.hypot(im) > self.tolerance {
                    kept.push((i, j, element));
                }
            })?;
        }
        let mut per_row = room(self.a.rows, 0i64)?;
        kept.iter().for_each(|e| per_row[e.0 as usize] += 1);
        if self.counts {
            for (row, &count) in per_row.iter().enumerate() {
                // SAFETY: a number for each row.
                unsafe { set_number(memory[3], row, false, count) };
            }
            if self.total != 0 {
                // SAFETY: a number.
                unsafe { set_number(memory[4], 0, false, kept.len() as i64) };
            }
            return Ok(());
        }
        let b = &self.b;
        if kept.len() as u64 != b.stored {
            return invalid(format!("There is room for {} elements, and {} stay", b.stored, kept.len()));
        }
        let base = i64::from(b.base);
        let mut end = base;
        for (row, count) in std::iter::once(0).chain(per_row).enumerate() {
            end += count;
            // SAFETY: a number for each row, and one more.
            unsafe { set_number(memory[3], row, b.wide_offsets, end) };
        }
        for (k, &(_, column, element)) in kept.iter().enumerate() {
            // SAFETY: the lists have places for so many elements.
            unsafe {
                set_number(memory[4], k, b.wide_indices, column as i64 + base);
                set_value(memory[5], k, element);
            }
        }
        Ok(())
    }
}
