//! Sparse and dense matrices in device memory.

use rgpu_dense::Dense;
use rgpu_device::{Code, Error, Result};
use rgpu_libraries::{DenseMatrix, SparseFormat, SparseMatrix};
use rgpu_softgpu::library::Operand;

use super::list;
use crate::invalid;

/// The operands of a sparse matrix: offsets, indices, elements.
pub(super) fn operands(m: &SparseMatrix, places_written: bool, written: bool) -> Result<[Operand; 3]> {
    if m.base > 1 {
        return invalid(format!("Places that begin with {}", m.base));
    }
    let offsets = match m.format {
        SparseFormat::Csr => m.rows.checked_add(1),
        SparseFormat::Csc => m.columns.checked_add(1),
        SparseFormat::Coo => Some(m.stored),
    };
    let Some(offsets) = offsets else { return invalid("More rows than the address space holds") };
    if !places_written && m.offsets == 0 && offsets > 0 {
        return invalid("A sparse matrix without places");
    }
    let bytes = |wide| if wide { 8 } else { 4 };
    Ok([
        list(m.offsets, offsets, bytes(m.wide_offsets), places_written)?,
        list(m.indices, m.stored, bytes(m.wide_indices), places_written)?,
        list(m.values, m.stored, m.kind.bytes(), written)?,
    ])
}

/// An error where a matrix has no elements to be read or written, or no indices.
pub(super) fn is_whole(m: &SparseMatrix) -> Result<()> {
    if (m.values == 0 || m.indices == 0) && m.stored > 0 {
        return invalid("A sparse matrix without elements or indices");
    }
    Ok(())
}

/// The operand of a dense matrix.
pub(super) fn dense(m: &DenseMatrix, written: bool) -> Result<Operand> {
    let none = Operand { addr: m.addr, bytes: 0, written };
    let (lines, length) = if m.by_rows { (m.rows, m.columns) } else { (m.columns, m.rows) };
    if lines == 0 || length == 0 {
        return Ok(none);
    }
    if m.ld < length {
        return invalid(format!("A leading dimension of {} is less than {length}", m.ld));
    }
    let extent =
        (lines - 1).checked_mul(m.ld).and_then(|n| n.checked_add(length)?.checked_mul(m.kind.bytes()));
    match extent {
        Some(bytes) if m.addr.checked_add(bytes).is_some() => Ok(Operand { bytes, ..none }),
        _ => invalid("A matrix that is longer than the address space"),
    }
}

/// Where an element of a dense matrix is, in elements.
pub(super) fn place(m: &DenseMatrix, row: u64, column: u64) -> usize {
    (if m.by_rows { row * m.ld + column } else { column * m.ld + row }) as usize
}

/// A number of a list of places.
///
/// # Safety
/// The list is that long.
pub(super) unsafe fn number(at: *const u8, index: usize, wide: bool) -> i64 {
    // SAFETY: the caller's promise.
    unsafe {
        if wide {
            at.cast::<i64>().add(index).read_unaligned()
        } else {
            at.cast::<i32>().add(index).read_unaligned().into()
        }
    }
}

/// Stores a number in a list of places.
///
/// # Safety
/// The list is that long, and may be written.
pub(super) unsafe fn set_number(at: *mut u8, index: usize, wide: bool, value: i64) {
    // SAFETY: the caller's promise.
    unsafe {
        if wide {
            at.cast::<i64>().add(index).write_unaligned(value);
        } else {
            at.cast::<i32>().add(index).write_unaligned(value as i32);
        }
    }
}

/// An index that leads out of a matrix is for an operation what an address is for a kernel.
fn outside(what: &str, number: i64, end: u64) -> Error {
    Error::new(Code::IllegalAddress, format!("A sparse matrix has {what} {number} of {end}"))
}

/// A place, without what places begin with; an error where it is outside.
pub(super) fn inside(what: &str, number: i64, base: u32, end: u64) -> Result<u64> {
    let place = u64::try_from(number.wrapping_sub(base.into())).ok().filter(|&place| place < end);
    place.ok_or_else(|| outside(what, number, end))
}

/// Calls `f` with row, column and number of each element that a matrix stores.
///
/// # Safety
/// The pointers are to the matrix's offsets and indices.
pub(super) unsafe fn each(
    m: &SparseMatrix,
    (offsets, indices): (*const u8, *const u8),
    mut f: impl FnMut(u64, u64, usize),
) -> Result<()> {
    // SAFETY (of all blocks below): the operands have a number for each element, or one for each line and one more.
    let index = |k: usize, end| {
        // Where an operation looks at the lines alone, there may be no indices.
        if m.indices == 0 {
            return Ok(0);
        }
        // SAFETY: see above.
        inside("index", unsafe { number(indices, k, m.wide_indices) }, m.base, end)
    };
    if m.format == SparseFormat::Coo {
        for k in 0..m.stored as usize {
            // SAFETY: see above.
            let row = inside("row", unsafe { number(offsets, k, m.wide_offsets) }, m.base, m.rows)?;
            f(row, index(k, m.columns)?, k);
        }
        return Ok(());
    }
    let by_rows = m.format == SparseFormat::Csr;
    let (lines, length) = if by_rows { (m.rows, m.columns) } else { (m.columns, m.rows) };
    if lines == 0 {
        return Ok(());
    }
    let edge = |at: u64| {
        // SAFETY: see above.
        let offset = unsafe { number(offsets, at as usize, m.wide_offsets) };
        inside("offset", offset, m.base, m.stored.saturating_add(1))
    };
    let mut end = edge(0)?;
    for line in 0..lines {
        let from = end;
        end = edge(line + 1)?;
        // Lines that overlap would be more elements than there are.
        if end < from {
            return Err(outside("an end before its beginning, offset", end as i64, from));
        }
        for k in from as usize..end as usize {
            let other = index(k, length)?;
            if by_rows { f(line, other, k) } else { f(other, line, k) }
        }
    }
    Ok(())
}

/// Room for so many numbers.
pub(super) fn room<T: Clone>(count: u64, value: T) -> Result<Vec<T>> {
    let mut room = Vec::new();
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    room.try_reserve_exact(count)
        .map_err(|_| Error::new(Code::OutOfMemory, format!("No memory for {count} numbers")))?;
    room.resize(count, value);
    Ok(room)
}

/// An element of a list.
///
/// # Safety
/// The list is that long.
pub(super) unsafe fn value<T: Dense>(at: *const u8, index: usize) -> T {
    // SAFETY: the caller's promise.
    unsafe { at.cast::<T>().add(index).read_unaligned() }
}

/// Stores an element in a list.
///
/// # Safety
/// The list is that long, and may be written.
pub(super) unsafe fn set_value<T: Dense>(at: *mut u8, index: usize, value: T) {
    // SAFETY: the caller's promise.
    unsafe { at.cast::<T>().add(index).write_unaligned(value) };
}
