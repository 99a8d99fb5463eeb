//! Matrices of all forms of storage, element by element.

use rgpu_device::Result;
use rgpu_libraries::{Fill, Matrix, Storage, Structure};
use rgpu_softgpu::library::Operand;

use crate::cells::Cells;
use crate::field::Field;
use crate::{invalid, memory};

/// How a matrix lies in memory, and what is known of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) storage: Storage,
    pub(crate) structure: Structure,
    pub(crate) fill: Fill,
    /// Rows and columns.
    pub(crate) shape: (u64, u64),
    /// Diagonals of a band below and above the main one.
    pub(crate) diagonals: (u64, u64),
}

impl Form {
    /// The matrix as an operand.
    pub(crate) fn operand(&self, m: &Matrix, count: u64, written: bool) -> Result<Operand> {
        let (rows, columns) = self.shape;
        let (lower, upper) = self.diagonals;
        match self.storage {
            Storage::Full => memory::matrix(m, rows, columns, count, written),
            Storage::Band => {
                let height = lower.checked_add(upper).and_then(|sum| sum.checked_add(1));
                match height {
                    Some(height) => memory::matrix(m, height, columns, count, written),
                    None => invalid("A band of more diagonals than can be counted"),
                }
            }
            Storage::Packed => {
                let elements =
                    columns.checked_add(1).and_then(|more| columns.checked_mul(more)).map(|twice| twice / 2);
                match elements {
                    Some(elements) => memory::array(m.addr, elements, m.kind.bytes(), written),
                    None => invalid("A packed matrix that is longer than the address space"),
                }
            }
        }
    }

    /// Whether an element is one that is there, and not one that follows from another.
    pub(crate) fn is_there(&self, i: u64, j: u64) -> bool {
        let in_part = self.structure == Structure::General
            || match self.fill {
                Fill::Lower => i >= j,
                Fill::Upper => i <= j,
            };
        let (lower, upper) = self.diagonals;
        let in_band =
            self.storage != Storage::Band || (i <= j.saturating_add(lower) && j <= i.saturating_add(upper));
        in_part && in_band
    }

    /// The rows of a column that can be other than zero.
    pub(crate) fn rows(&self, j: u64) -> std::ops::Range<u64> {
        let rows = self.shape.0;
        if self.storage != Storage::Band {
            return 0..rows;
        }
        // What follows from the part that is there has as many diagonals on the other side.
        let (lower, upper) = match self.structure {
            Structure::General => self.diagonals,
            _ => (self.diagonals.0.max(self.diagonals.1), self.diagonals.0.max(self.diagonals.1)),
        };
        j.saturating_sub(upper).min(rows)..j.saturating_add(lower).saturating_add(1).min(rows)
    }

    /// Where an element that is there lies.
    pub(crate) fn index(&self, ld: u64, i: u64, j: u64) -> isize {
        let n = self.shape.1;
        let at = match (self.storage, self.fill) {
            (Storage::Full, _) => i + j * ld,
            (Storage::Band, _) => self.diagonals.1 + i - j + j * ld,
            (Storage::Packed, Fill::Upper) => i + j * (j + 1) / 2,
            (Storage::Packed, Fill::Lower) => i + j * (2 * n - j - 1) / 2,
        };
        at as isize
    }

    /// An element, whether it is there or follows.
    ///
    /// # Safety
    /// The cells are the operand's, and the element is inside the shape.
    pub(crate) unsafe fn get<T: Field>(&self, cells: Cells, ld: u64, i: u64, j: u64) -> T {
        // SAFETY: an element that is there is inside the operand.
        unsafe {
            if self.is_there(i, j) {
                let value: T = cells.get(self.index(ld, i, j));
                return if self.structure == Structure::Hermitian && i == j { value.real() } else { value };
            }
            if self.structure == Structure::General || !self.is_there(j, i) {
                return T::ZERO;
            }
            let value: T = cells.get(self.index(ld, j, i));
            if self.structure == Structure::Hermitian { value.conj() } else { value }
        }
    }
}
