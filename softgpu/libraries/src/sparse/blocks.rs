//! Matrices of dense blocks. A thread that needs one makes a list of its elements; what is done with these is what is done with other
//! sparse matrices.

use rgpu_dense::Dense;
use rgpu_device::{Code, Error, Result};
use rgpu_libraries::{
    BlockIncomplete, BlockMatrix, BlockProduct, BlockSolve, DataType, IncompleteTask, SparseFormat,
    SparseMatrix, SparseProduct, SparseSolve,
};
use rgpu_softgpu::library::Operand;

use super::incomplete::Rows;
use super::places::{dense, each, is_whole, operands, room, set_number, set_value, value};
use super::product::used;
use super::solve::squared;
use super::{Sparse, factor, factor_now, list};
use crate::invalid;

/// The operands of a matrix of blocks: offsets, indices, elements.
fn block_operands(a: &BlockMatrix, written: bool) -> Result<[Operand; 3]> {
    let blocks = &a.blocks;
    if blocks.format != SparseFormat::Csr || a.size == 0 {
        return invalid("A matrix of blocks that are not stored by rows, or have no elements");
    }
    is_whole(blocks)?;
    let [offsets, indices, _] = operands(blocks, false, false)?;
    let elements = a.size.checked_mul(a.size).and_then(|each| each.checked_mul(blocks.stored));
    let Some(elements) = elements else { return invalid("More blocks than the address space holds") };
    Ok([offsets, indices, list(blocks.values, elements, blocks.kind.bytes(), written)?])
}

/// Rows and columns of elements.
fn shape(a: &BlockMatrix) -> Result<(u64, u64)> {
    match (a.blocks.rows.checked_mul(a.size), a.blocks.columns.checked_mul(a.size)) {
        (Some(rows), Some(columns)) => Ok((rows, columns)),
        _ => invalid("More blocks than the address space holds"),
    }
}

/// The elements of a matrix of blocks.
struct Elements<T> {
    rows: Vec<i64>,
    columns: Vec<i64>,
    values: Vec<T>,
    /// Each element's number in memory.
    numbers: Vec<usize>,
}

impl<T: Dense> Elements<T> {
    /// # Safety
    /// The pointers are to the operands of the matrix.
    unsafe fn new(a: &BlockMatrix, memory: &[*mut u8]) -> Result<Self> {
        let size = a.size;
        let none = || Error::new(Code::OutOfMemory, "No memory for a matrix of blocks");
        let mut all = Self { rows: Vec::new(), columns: Vec::new(), values: Vec::new(), numbers: Vec::new() };
        let count = (a.blocks.stored * size * size) as usize;
        all.rows.try_reserve_exact(count).map_err(|_| none())?;
        all.columns.try_reserve_exact(count).map_err(|_| none())?;
        all.values.try_reserve_exact(count).map_err(|_| none())?;
        all.numbers.try_reserve_exact(count).map_err(|_| none())?;
        // SAFETY: the caller's promise; each block has all of its elements.
        unsafe {
            each(&a.blocks, (memory[0], memory[1]), |i, j, k| {
                for (row, column) in (0..size).flat_map(|row| (0..size).map(move |column| (row, column))) {
                    let inside = if a.by_columns { column * size + row } else { row * size + column };
                    let number = k * (size * size) as usize + inside as usize;
                    all.rows.push((i * size + row) as i64);
                    all.columns.push((j * size + column) as i64);
                    all.values.push(value(memory[2], number));
                    all.numbers.push(number);
                }
            })?;
        }
        Ok(all)
    }

    /// The form of a matrix by elements that this is. Its addresses only say that there is something.
    fn form(&self, a: &BlockMatrix) -> Result<SparseMatrix> {
        let (rows, columns) = shape(a)?;
        Ok(SparseMatrix {
            format: SparseFormat::Coo,
            rows,
            columns,
            stored: self.values.len() as u64,
            offsets: 1,
            indices: 1,
            values: 1,
            kind: a.blocks.kind,
            wide_offsets: true,
            wide_indices: true,
            base: 0,
        })
    }

    /// Where its lists are, to be read.
    fn memory(&self) -> [*mut u8; 3] {
        let at = [self.rows.as_ptr().cast::<u8>(), self.columns.as_ptr().cast(), self.values.as_ptr().cast()];
        at.map(<*const u8>::cast_mut)
    }
}

impl Sparse for BlockProduct {
    fn shape(&self) -> (DataType, u64) {
        (self.c.kind, self.c.columns)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        let (rows, columns) = shape(&self.a)?;
        let (a, b) = (used(self.op_a, rows, columns), used(self.op_b, self.b.rows, self.b.columns));
        if a.1 != b.0 || (self.c.rows, self.c.columns) != (a.0, b.1) {
            return invalid(format!("{a:?} times {b:?} is not {} x {}", self.c.rows, self.c.columns));
        }
        if [self.a.blocks.kind, self.b.kind] != [self.c.kind; 2] {
            return crate::missing("products of sparse matrices in several types");
        }
        let mut all = block_operands(&self.a, false)?.to_vec();
        all.extend([
            dense(&self.b, false)?,
            dense(&self.c, true)?,
            factor(&self.alpha, self.c.kind),
            factor(&self.beta, self.c.kind),
        ]);
        Ok(all)
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], from: u64, to: u64) -> Result<()> {
        // SAFETY: the first three operands.
        let elements = unsafe { Elements::<T>::new(&self.a, memory) }?;
        let product = SparseProduct {
            op_a: self.op_a,
            op_b: self.op_b,
            alpha: self.alpha,
            a: elements.form(&self.a)?,
            b: self.b.clone(),
            beta: self.beta,
            c: self.c.clone(),
        };
        let all = [&elements.memory()[..], &memory[3..]].concat();
        // SAFETY: the lists are the matrix's parts, and the others are the operands of such a product.
        unsafe { product.run::<T>(&all, from, to) }
    }
}

impl Sparse for BlockSolve {
    fn shape(&self) -> (DataType, u64) {
        // One thread does it, because one says which pivot is zero.
        (self.c.kind, 1)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        let (rows, columns) = shape(&self.a)?;
        let fits =
            [(self.b.rows, self.b.columns), (self.c.rows, self.c.columns)] == [(rows, self.c.columns); 2];
        if rows != columns || !(self.analyses || fits) {
            return invalid("A triangular system of matrices whose shapes do not fit");
        }
        if [self.a.blocks.kind, self.b.kind] != [self.c.kind; 2] {
            return crate::missing("triangular systems in several types");
        }
        let mut all = block_operands(&self.a, false)?.to_vec();
        let none = Operand { addr: 0, bytes: 0, written: false };
        all.extend([
            if self.analyses { none } else { dense(&self.b, false)? },
            if self.analyses { none } else { dense(&self.c, true)? },
            factor(&self.alpha, self.c.kind),
            list(self.position, 1, 4, true)?,
        ]);
        Ok(all)
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], _: u64, _: u64) -> Result<()> {
        // SAFETY: the first three operands.
        let elements = unsafe { Elements::<T>::new(&self.a, memory) }?;
        let mut wrong = room(self.a.blocks.rows, !self.unit)?;
        for (at, (&row, &column)) in elements.rows.iter().zip(&elements.columns).enumerate() {
            let block = (row as u64 / self.a.size) as usize;
            if row == column && (row as u64).is_multiple_of(self.a.size) {
                wrong[block] = false;
            }
            let zero = !self.unit && !self.analyses && squared(elements.values[at]) == 0.0;
            if row == column && zero {
                wrong[block] = true;
            }
        }
        // Columns without rows are not in memory.
        if !self.analyses && self.c.rows > 0 {
            let solve = SparseSolve {
                op_a: self.op,
                op_b: rgpu_libraries::Transpose::None,
                upper: self.upper,
                unit: self.unit,
                alpha: self.alpha,
                a: elements.form(&self.a)?,
                b: self.b.clone(),
                c: self.c.clone(),
            };
            let all = [&elements.memory()[..], &memory[3..6]].concat();
            // SAFETY: the lists are the matrix's parts, and the others are the operands of such a system.
            unsafe { solve.run::<T>(&all, 0, self.c.columns) }?;
        }
        let first = wrong.iter().position(|&wrong| wrong);
        // SAFETY: the last operand.
        unsafe { say(self.position, memory[6], first, &self.a) };
        Ok(())
    }
}

/// Writes which block of the diagonal is wrong, where that is wanted.
///
/// # Safety
/// `at` is the operand of that number.
unsafe fn say(addr: u64, at: *mut u8, wrong: Option<usize>, a: &BlockMatrix) {
    if addr != 0 {
        let number = wrong.map_or(-1, |block| block as i64 + i64::from(a.blocks.base));
        // SAFETY: the caller's promise.
        unsafe { set_number(at, 0, false, number) };
    }
}

impl Sparse for BlockIncomplete {
    fn shape(&self) -> (DataType, u64) {
        (self.a.blocks.kind, 1)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        if self.a.blocks.rows != self.a.blocks.columns {
            return invalid("An incomplete factorisation of a matrix that is not square");
        }
        let (rows, _) = shape(&self.a)?;
        // Lists of rows are made: of many rows most must be in memory.
        if rows > 1 << 24 && rows / self.a.size > self.a.blocks.stored.saturating_mul(self.a.size) {
            return invalid("An incomplete factorisation of a matrix most of whose rows are empty");
        }
        let mut all = block_operands(&self.a, self.task != IncompleteTask::Analyse)?.to_vec();
        let (number, element) = (DataType::F64, self.a.blocks.kind);
        let boost = |scalar, kind| {
            if self.boosts { factor(scalar, kind) } else { Operand { addr: 0, bytes: 0, written: false } }
        };
        all.extend([
            list(self.position, 1, 4, true)?,
            boost(&self.tolerance, number),
            boost(&self.boost, element),
        ]);
        Ok(all)
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], _: u64, _: u64) -> Result<()> {
        // SAFETY: the operands are as said above; here and below.
        let elements = unsafe { Elements::<T>::new(&self.a, memory) }?;
        let places = elements.rows.iter().zip(&elements.columns).zip(&elements.numbers).zip(&elements.values);
        let all = places.map(|(((&i, &j), &k), &value)| (i as u64, j as u64, k, value)).collect();
        let mut rows = Rows::new(all, shape(&self.a)?.0)?;
        let position = match self.task {
            IncompleteTask::Analyse => rows.missing(),
            IncompleteTask::Lu if self.boosts => {
                // SAFETY: see above.
                let (tolerance, boost) = unsafe {
                    (factor_now::<f64>(&self.tolerance, memory[4]), factor_now::<T>(&self.boost, memory[5]))
                };
                rows.lu(Some((tolerance, boost)))
            }
            IncompleteTask::Lu => rows.lu(None),
            IncompleteTask::Cholesky => rows.cholesky(),
        };
        if self.task != IncompleteTask::Analyse {
            for (number, element) in rows.values() {
                // SAFETY: each element has a value.
                unsafe { set_value(memory[2], number, element) };
            }
        }
        let block = position.map(|row| row / self.a.size as usize);
        // SAFETY: see above.
        unsafe { say(self.position, memory[3], block, &self.a) };
        Ok(())
    }
}
