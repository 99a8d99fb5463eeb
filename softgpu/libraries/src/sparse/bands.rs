//! Systems of equations with three or five diagonals, by Gauss's elimination with exchanges of rows.

use rgpu_dense::Dense;
use rgpu_device::Result;
use rgpu_libraries::{BandSolve, DataType};
use rgpu_softgpu::library::Operand;

use super::Sparse;
use super::places::{room, set_value, value};
use super::solve::{divided, squared};
use crate::{invalid, memory};

/// Diagonals below the main one, at most.
const BELOW: usize = 2;
/// Diagonals that a row has on the way, from that of its first element on: exchanges bring some from below.
const WIDTH: usize = 2 * BELOW + 1;

/// A row that is being eliminated: its elements from its first one's column on, and its right side.
#[derive(Clone, Copy)]
struct Row<T> {
    elements: [T; WIDTH],
    right: T,
}

/// Elements from the first one to the last one's end of all systems that lie so far apart.
fn extent(work: &BandSolve, stride: u64) -> Option<u64> {
    let rows = work.n.checked_sub(1)?.checked_mul(work.step)?;
    work.count.checked_sub(1)?.checked_mul(stride)?.checked_add(rows)?.checked_add(1)
}

impl Sparse for BandSolve {
    fn shape(&self) -> (DataType, u64) {
        (self.kind, self.count)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        let lists = [self.lowest, self.lower, self.diagonal, self.upper, self.highest];
        let nothing = self.n == 0 || self.count == 0;
        let (Some(of_matrix), Some(of_x)) = (
            if nothing { Some(0) } else { extent(self, self.stride) },
            if nothing { Some(0) } else { extent(self, self.stride_x) },
        ) else {
            return invalid("Systems that are longer than the address space");
        };
        if !nothing && (lists[1..4].contains(&0) || self.x == 0 || (self.lowest == 0) != (self.highest == 0))
        {
            return invalid("A system without one of its diagonals, or without right sides");
        }
        // Each row and each solution has a place of its own, so there are no more of them than memory holds.
        if (self.n > 1 && self.step == 0) || (self.count > 1 && self.stride_x == 0) {
            return invalid("Systems whose solutions lie in one place");
        }
        let bytes = self.kind.bytes();
        let mut all = Vec::new();
        for addr in lists {
            all.push(memory::array(addr, if addr == 0 { 0 } else { of_matrix }, bytes, false)?);
        }
        all.push(memory::array(self.x, of_x, bytes, true)?);
        Ok(all)
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], from: u64, to: u64) -> Result<()> {
        let (n, step) = (self.n as usize, self.step as usize);
        let zero = T::of(0.0, 0.0);
        if n == 0 {
            return Ok(());
        }
        let below = if self.lowest == 0 { 1 } else { BELOW };
        for system in from..to {
            let (first, first_x) = ((system * self.stride) as usize, (system * self.stride_x) as usize);
            let mut rows = room(self.n, Row { elements: [zero; WIDTH], right: zero })?;
            for (i, row) in rows.iter_mut().enumerate() {
                // The row's first element is in this column.
                let begin = i.saturating_sub(below);
                for j in begin..(i + below + 1).min(n) {
                    let list = memory[BELOW + j - i];
                    // SAFETY: each list has an element for each row of each system.
                    row.elements[j - begin] = unsafe { value(list, first + i * step) };
                }
                // SAFETY: as above.
                row.right = unsafe { value(memory[5], first_x + i * step) };
            }
            for column in 0..n {
                // Rows that have an element here begin with it.
                let last = (column + below).min(n - 1);
                let size = |row: &Row<T>| squared(row.elements[0]);
                let pivot = (column..=last)
                    .fold(column, |best, i| if size(&rows[i]) > size(&rows[best]) { i } else { best });
                rows.swap(column, pivot);
                let above = rows[column];
                for row in &mut rows[column + 1..=last] {
                    let by = divided(row.elements[0], above.elements[0]);
                    let mut left = [zero; WIDTH];
                    for k in 1..WIDTH {
                        left[k - 1] = row.elements[k] - by * above.elements[k];
                    }
                    *row = Row { elements: left, right: row.right - by * above.right };
                }
            }
            for i in (0..n).rev() {
                let mut sum = rows[i].right;
                for k in 1..WIDTH.min(n - i) {
                    sum -= rows[i].elements[k] * rows[i + k].right;
                }
                rows[i].right = divided(sum, rows[i].elements[0]);
                // SAFETY: as above.
                unsafe { set_value(memory[5], first_x + i * step, rows[i].right) };
            }
        }
        Ok(())
    }
}
