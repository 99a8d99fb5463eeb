//! The older interface, whose matrices are arguments and whose indices have 32 bits.

use rgpu_libraries::{DataType, Iota, SparseConvert, SparseFormat, SparseMatrix, SparseSort};

use super::handle::{check, description, queue};
use super::{CUSPARSE, base, count, kind_of};
use crate::libraries::math::{Out, Result, invalid, math};

/// The rows of a matrix by rows, or by elements, without columns and elements.
fn places(
    format: SparseFormat,
    rows: i32,
    stored: i32,
    offsets: usize,
    index_base: u32,
) -> Result<SparseMatrix> {
    Ok(SparseMatrix {
        format,
        rows: count(rows.into())?,
        // Columns are not looked at.
        columns: u64::from(u32::MAX),
        stored: count(stored.into())?,
        offsets: offsets as u64,
        kind: DataType::F32,
        base: base(index_base)?,
        ..SparseMatrix::default()
    })
}

/// Sorts elements, with a permutation.
fn sort(
    handle: usize,
    stored: i32,
    (first, lines, second): (usize, i32, usize),
    permutation: usize,
    by_second: bool,
    base: u32,
) -> Result<()> {
    queue(handle)?.post(&SparseSort {
        first: first as u64,
        lines: count(lines.into())?,
        second: second as u64,
        permutation: permutation as u64,
        count: count(stored.into())?,
        by_second,
        base,
    })
}

/// The size of a buffer, of which nothing is used.
fn no_buffer(handle: usize, sizes: [i32; 3], size: Out<usize>) -> Result<()> {
    check(handle)?;
    for n in sizes {
        count(n.into())?;
    }
    size.set(0)
}

type Parts = (usize, usize, usize);

/// A matrix by columns from one by rows.
fn transposed(
    (m, n, stored): (i32, i32, i32),
    (values, offsets, indices): Parts,
    (to_values, to_offsets, to_indices): Parts,
    kind: u32,
    copies: u32,
    index_base: u32,
) -> Result<SparseConvert> {
    if copies > 1 {
        return invalid(format!("There is no cusparseAction_t {copies}"));
    }
    let a = SparseMatrix {
        format: SparseFormat::Csr,
        rows: count(m.into())?,
        columns: count(n.into())?,
        stored: count(stored.into())?,
        offsets: offsets as u64,
        indices: indices as u64,
        values: if copies == 1 { values as u64 } else { 0 },
        kind: kind_of(kind)?,
        base: base(index_base)?,
        ..SparseMatrix::default()
    };
    let b = SparseMatrix {
        format: SparseFormat::Csc,
        offsets: to_offsets as u64,
        indices: to_indices as u64,
        values: if copies == 1 { to_values as u64 } else { 0 },
        ..a.clone()
    };
    Ok(SparseConvert { a, b })
}

math! {
    CUSPARSE;

    fn cusparseXcoo2csr(handle: usize, rows: usize, stored: i32, m: i32, offsets: usize, base: u32) {
        let a = places(SparseFormat::Coo, m, stored, rows, base)?;
        let b = places(SparseFormat::Csr, m, stored, offsets, base)?;
        queue(handle)?.post(&SparseConvert { a, b })
    }

    fn cusparseXcsr2coo(handle: usize, offsets: usize, stored: i32, m: i32, rows: usize, base: u32) {
        let b = places(SparseFormat::Coo, m, stored, rows, base)?;
        let a = places(SparseFormat::Csr, m, stored, offsets, base)?;
        queue(handle)?.post(&SparseConvert { a, b })
    }

    fn cusparseCreateIdentityPermutation(handle: usize, n: i32, out: usize) {
        queue(handle)?.post(&Iota { addr: out as u64, count: count(n.into())? })
    }

    fn cusparseXcoosort_bufferSizeExt(
        handle: usize, m: i32, n: i32, stored: i32, _rows: usize, _columns: usize, size: Out<usize>,
    ) {
        no_buffer(handle, [m, n, stored], size)
    }

    fn cusparseXcoosortByRow(
        handle: usize, _m: i32, _n: i32, stored: i32, rows: usize, columns: usize, permutation: usize,
        _buffer: usize,
    ) {
        sort(handle, stored, (rows, 0, columns), permutation, false, 0)
    }

    fn cusparseXcoosortByColumn(
        handle: usize, _m: i32, _n: i32, stored: i32, rows: usize, columns: usize, permutation: usize,
        _buffer: usize,
    ) {
        sort(handle, stored, (rows, 0, columns), permutation, true, 0)
    }

    fn cusparseXcsrsort_bufferSizeExt(
        handle: usize, m: i32, n: i32, stored: i32, _offsets: usize, _indices: usize, size: Out<usize>,
    ) {
        no_buffer(handle, [m, n, stored], size)
    }

    fn cusparseXcsrsort(
        handle: usize, m: i32, _n: i32, stored: i32, description_a: usize, offsets: usize, indices: usize,
        permutation: usize, _buffer: usize,
    ) {
        let base = description(description_a)?.base;
        sort(handle, stored, (offsets, m, indices), permutation, false, base)
    }

    fn cusparseXcscsort_bufferSizeExt(
        handle: usize, m: i32, n: i32, stored: i32, _offsets: usize, _indices: usize, size: Out<usize>,
    ) {
        no_buffer(handle, [m, n, stored], size)
    }

    fn cusparseXcscsort(
        handle: usize, _m: i32, n: i32, stored: i32, description_a: usize, offsets: usize, indices: usize,
        permutation: usize, _buffer: usize,
    ) {
        let base = description(description_a)?.base;
        sort(handle, stored, (offsets, n, indices), permutation, false, base)
    }

    fn cusparseCsr2cscEx2_bufferSize(
        handle: usize, m: i32, n: i32, stored: i32, values: usize, offsets: usize, indices: usize, to_values: usize,
        to_offsets: usize, to_indices: usize, kind: u32, copies: u32, base: u32, _algorithm: u32, size: Out<usize>,
    ) {
        check(handle)?;
        let to = (to_values, to_offsets, to_indices);
        transposed((m, n, stored), (values, offsets, indices), to, kind, copies, base)?;
        size.set(0)
    }

    fn cusparseCsr2cscEx2(
        handle: usize, m: i32, n: i32, stored: i32, values: usize, offsets: usize, indices: usize, to_values: usize,
        to_offsets: usize, to_indices: usize, kind: u32, copies: u32, base: u32, _algorithm: u32, _buffer: usize,
    ) {
        let to = (to_values, to_offsets, to_indices);
        queue(handle)?.post(&transposed((m, n, stored), (values, offsets, indices), to, kind, copies, base)?)
    }
}
