//! Factorisations that have elements where their matrix has them.

use rgpu_dense::Dense;
use rgpu_device::Result;
use rgpu_libraries::{DataType, IncompleteTask, SparseFormat, SparseIncomplete};
use rgpu_softgpu::library::Operand;

use super::places::{each, is_whole, operands, room, set_number, set_value, value};
use super::solve::{divided, squared};
use super::{Sparse, list};
use crate::{invalid, missing};

/// The elements of a matrix, row by row, ascending, and where each row's diagonal is.
pub(super) struct Rows<T> {
    /// Column, number in memory, value.
    elements: Vec<(u64, usize, T)>,
    /// Where each row begins, and the last one ends.
    begins: Vec<usize>,
    diagonal: Vec<Option<usize>>,
}

impl<T: Dense> Rows<T> {
    /// The rows of elements: row, column, number in memory, value.
    pub(super) fn new(mut all: Vec<(u64, u64, usize, T)>, rows: u64) -> Result<Self> {
        all.sort_by_key(|e| (e.0, e.1));
        let (mut begins, mut diagonal) = (room(rows.saturating_add(1), all.len())?, room(rows, None)?);
        for (at, &(row, column, ..)) in all.iter().enumerate().rev() {
            begins[row as usize] = at;
            if row == column {
                diagonal[row as usize] = Some(at);
            }
        }
        for row in (0..rows as usize).rev() {
            begins[row] = begins[row].min(begins[row + 1]);
        }
        let elements = all.into_iter().map(|(_, column, k, value)| (column, k, value)).collect();
        Ok(Self { elements, begins, diagonal })
    }

    /// Where the element of a row and a column is.
    fn find(&self, row: usize, column: u64) -> Option<usize> {
        let these = &self.elements[self.begins[row]..self.begins[row + 1]];
        these.binary_search_by_key(&column, |e| e.0).ok().map(|at| self.begins[row] + at)
    }

    /// Which row has no element of the diagonal.
    pub(super) fn missing(&self) -> Option<usize> {
        self.diagonal.iter().position(Option::is_none)
    }

    /// Each element's number in memory, and its value.
    pub(super) fn values(&self) -> impl Iterator<Item = (usize, T)> {
        self.elements.iter().map(|&(_, k, value)| (k, value))
    }

    /// Both triangles. Pivots that are not greater than a tolerance become another number, if there is one. Which pivot is zero or missing.
    pub(super) fn lu(&mut self, boost: Option<(f64, T)>) -> Option<usize> {
        let mut zero = None;
        for row in 0..self.diagonal.len() {
            for at in self.begins[row]..self.begins[row + 1] {
                let column = self.elements[at].0 as usize;
                if column >= row {
                    break;
                }
                let Some(pivot) = self.diagonal[column] else { continue };
                let by = divided(self.elements[at].2, self.elements[pivot].2);
                self.elements[at].2 = by;
                for above in pivot + 1..self.begins[column + 1] {
                    let (other, _, of) = self.elements[above];
                    if let Some(to) = self.find(row, other) {
                        self.elements[to].2 -= by * of;
                    }
                }
            }
            if let (Some(at), Some((tolerance, by))) = (self.diagonal[row], boost)
                && squared(self.elements[at].2).sqrt() <= tolerance
            {
                self.elements[at].2 = by;
            }
            let pivot = self.diagonal[row].map_or(0.0, |at| squared(self.elements[at].2));
            if pivot == 0.0 && zero.is_none() {
                zero = Some(row);
            }
        }
        zero
    }

    /// The lower triangle. Which pivot is missing or not positive.
    pub(super) fn cholesky(&mut self) -> Option<usize> {
        let mut wrong = None;
        for row in 0..self.diagonal.len() {
            let mut left = 0.0;
            for at in self.begins[row]..self.begins[row + 1] {
                let column = self.elements[at].0 as usize;
                if column >= row {
                    break;
                }
                let mut sum = self.elements[at].2;
                for before in self.begins[row]..at {
                    let (other, _, of) = self.elements[before];
                    if let Some(above) = self.find(column, other) {
                        sum -= of * self.elements[above].2.conjugate();
                    }
                }
                let pivot = self.diagonal[column].map_or(T::of(0.0, 0.0), |pivot| self.elements[pivot].2);
                self.elements[at].2 = divided(sum, pivot);
                left -= squared(self.elements[at].2);
            }
            if let Some(at) = self.diagonal[row] {
                left += self.elements[at].2.parts().0;
                self.elements[at].2 = T::of(left.sqrt(), 0.0);
            }
            // A number that is none is not positive, either.
            let positive = self.diagonal[row].is_some() && left > 0.0;
            if wrong.is_none() && !positive {
                wrong = Some(row);
            }
        }
        wrong
    }
}

impl Sparse for SparseIncomplete {
    fn shape(&self) -> (DataType, u64) {
        (self.a.kind, 1)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        let a = &self.a;
        if a.format != SparseFormat::Csr {
            return missing("incomplete factorisations of matrices that are not by rows");
        }
        if a.rows != a.columns {
            return invalid("An incomplete factorisation of a matrix that is not square");
        }
        is_whole(a)?;
        let mut all = operands(a, false, self.task != IncompleteTask::Analyse)?.to_vec();
        all.push(list(self.position, 1, 4, true)?);
        Ok(all)
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], _: u64, _: u64) -> Result<()> {
        let mut all = Vec::new();
        // SAFETY: the operands are as said above; here and below.
        unsafe {
            each(&self.a, (memory[0], memory[1]), |i, j, k| {
                all.push((i, j, k, value::<T>(memory[2], k)));
            })?;
        }
        let mut rows = Rows::new(all, self.a.rows)?;
        let position = match self.task {
            IncompleteTask::Analyse => rows.missing(),
            IncompleteTask::Lu => rows.lu(None),
            IncompleteTask::Cholesky => rows.cholesky(),
        };
        if self.task != IncompleteTask::Analyse {
            for (k, element) in rows.values() {
                // SAFETY: each element has a value.
                unsafe { set_value(memory[2], k, element) };
            }
        }
        if self.position != 0 {
            let position = position.map_or(-1, |row| row as i64 + i64::from(self.a.base));
            // SAFETY: one number.
            unsafe { set_number(memory[3], 0, false, position) };
        }
        Ok(())
    }
}
