//! Sparse matrices.

use std::sync::LazyLock;

use parking_lot::Mutex;
use rgpu_libraries::{SparseFormat, SparseMatrix};

use super::{CUSPARSE, base, count, kind_of, wide};
use crate::core::registry::Registry;
use crate::libraries::math::{In, Kind, Out, Result, fail, invalid, math, missing};

/// A sparse matrix of the program's.
#[derive(Debug, Clone, Default)]
pub(super) struct Sparse {
    /// Where its parts are.
    pub(super) matrix: SparseMatrix,
    /// How many of the same places there are.
    problems: i32,
    /// Attributes that were set: triangle and diagonal, for solving.
    attributes: [u32; 4],
}

static MATRICES: LazyLock<Registry<Mutex<Sparse>>> =
    LazyLock::new(|| Registry::new("cuSPARSE sparse matrix"));

/// The matrix of a descriptor.
pub(super) fn matrix(raw: usize) -> Result<SparseMatrix> {
    let sparse = MATRICES.get(raw)?;
    let sparse = sparse.lock();
    if sparse.problems > 1 {
        return missing("cuSPARSE: batches of sparse matrices");
    }
    Ok(sparse.matrix.clone())
}

/// Attributes of a matrix that were set: which triangle it is, and what its diagonal is.
pub(super) fn attributes(raw: usize) -> Result<[u32; 4]> {
    Ok(MATRICES.get(raw)?.lock().attributes)
}

/// A matrix has so many elements from now on.
pub(super) fn set_stored(raw: usize, stored: u64) -> Result<()> {
    MATRICES.get(raw)?.lock().matrix.stored = stored;
    Ok(())
}

/// Rows, columns, elements.
type Sizes<T> = (T, T, T);
/// Offsets, indices, elements.
type Parts<T> = (T, T, T);

fn create(
    out: Out<usize>,
    format: SparseFormat,
    (rows, columns, stored): Sizes<i64>,
    (offsets, indices, values): Parts<usize>,
    (offsets_type, indices_type): (u32, u32),
    (index_base, kind): (u32, u32),
) -> Result<()> {
    out.check()?;
    let matrix = SparseMatrix {
        format,
        rows: count(rows)?,
        columns: count(columns)?,
        stored: count(stored)?,
        offsets: offsets as u64,
        indices: indices as u64,
        values: values as u64,
        kind: kind_of(kind)?,
        wide_offsets: wide(offsets_type)?,
        wide_indices: wide(indices_type)?,
        base: base(index_base)?,
    };
    let mut raw = 0;
    MATRICES.insert(|handle| {
        raw = handle;
        Mutex::new(Sparse { matrix, problems: 1, attributes: [0; 4] })
    });
    out.set(raw)
}

fn of_format(raw: usize, format: SparseFormat) -> Result<SparseMatrix> {
    let matrix = MATRICES.get(raw)?.lock().matrix.clone();
    if matrix.format == format {
        Ok(matrix)
    } else {
        fail(Kind::InvalidValue, "The matrix has another format")
    }
}

fn get(
    raw: usize,
    format: SparseFormat,
    sizes: Sizes<Out<i64>>,
    parts: Parts<Out<usize>>,
    types: (Out<u32>, Out<u32>),
    (index_base, kind): (Out<u32>, Out<u32>),
) -> Result<()> {
    let matrix = of_format(raw, format)?;
    let number = |wide| if wide { 3 } else { 2 };
    sizes.0.set(matrix.rows as i64)?;
    sizes.1.set(matrix.columns as i64)?;
    sizes.2.set(matrix.stored as i64)?;
    parts.0.set(matrix.offsets as usize)?;
    parts.1.set(matrix.indices as usize)?;
    parts.2.set(matrix.values as usize)?;
    types.0.set(number(matrix.wide_offsets))?;
    types.1.set(number(matrix.wide_indices))?;
    index_base.set(matrix.base)?;
    kind.set(matrix.kind as u32)
}

fn set_parts(raw: usize, format: SparseFormat, (offsets, indices, values): Parts<usize>) -> Result<()> {
    of_format(raw, format)?;
    let sparse = MATRICES.get(raw)?;
    let matrix = &mut sparse.lock().matrix;
    (matrix.offsets, matrix.indices, matrix.values) = (offsets as u64, indices as u64, values as u64);
    Ok(())
}

fn set_batch(raw: usize, problems: i32) -> Result<()> {
    if problems < 1 {
        return invalid(format!("A batch of {problems} matrices"));
    }
    MATRICES.get(raw)?.lock().problems = problems;
    Ok(())
}

fn get_values(raw: usize, values: Out<usize>) -> Result<()> {
    values.set(MATRICES.get(raw)?.lock().matrix.values as usize)
}

/// The place of an attribute, which is a number of 32 bits.
fn attribute(which: u32, bytes: usize) -> Result<usize> {
    match which {
        0..=3 if bytes == 4 => Ok(which as usize),
        0..=3 => invalid(format!("An attribute of {bytes} bytes")),
        other => invalid(format!("There is no cusparseSpMatAttribute_t {other}")),
    }
}

math! {
    CUSPARSE;

    fn cusparseCreateCsr(
        out: Out<usize>, rows: i64, columns: i64, stored: i64, offsets: usize, indices: usize, values: usize,
        offsets_type: u32, indices_type: u32, base: u32, kind: u32,
    ) {
        let parts = (offsets, indices, values);
        create(out, SparseFormat::Csr, (rows, columns, stored), parts, (offsets_type, indices_type), (base, kind))
    }

    fn cusparseCreateConstCsr(
        out: Out<usize>, rows: i64, columns: i64, stored: i64, offsets: usize, indices: usize, values: usize,
        offsets_type: u32, indices_type: u32, base: u32, kind: u32,
    ) {
        let parts = (offsets, indices, values);
        create(out, SparseFormat::Csr, (rows, columns, stored), parts, (offsets_type, indices_type), (base, kind))
    }

    fn cusparseCreateCsc(
        out: Out<usize>, rows: i64, columns: i64, stored: i64, offsets: usize, indices: usize, values: usize,
        offsets_type: u32, indices_type: u32, base: u32, kind: u32,
    ) {
        let parts = (offsets, indices, values);
        create(out, SparseFormat::Csc, (rows, columns, stored), parts, (offsets_type, indices_type), (base, kind))
    }

    fn cusparseCreateConstCsc(
        out: Out<usize>, rows: i64, columns: i64, stored: i64, offsets: usize, indices: usize, values: usize,
        offsets_type: u32, indices_type: u32, base: u32, kind: u32,
    ) {
        let parts = (offsets, indices, values);
        create(out, SparseFormat::Csc, (rows, columns, stored), parts, (offsets_type, indices_type), (base, kind))
    }

    fn cusparseCreateCoo(
        out: Out<usize>, rows: i64, columns: i64, stored: i64, of_rows: usize, of_columns: usize, values: usize,
        indices_type: u32, base: u32, kind: u32,
    ) {
        let parts = (of_rows, of_columns, values);
        create(out, SparseFormat::Coo, (rows, columns, stored), parts, (indices_type, indices_type), (base, kind))
    }

    fn cusparseCreateConstCoo(
        out: Out<usize>, rows: i64, columns: i64, stored: i64, of_rows: usize, of_columns: usize, values: usize,
        indices_type: u32, base: u32, kind: u32,
    ) {
        let parts = (of_rows, of_columns, values);
        create(out, SparseFormat::Coo, (rows, columns, stored), parts, (indices_type, indices_type), (base, kind))
    }

    fn cusparseDestroySpMat(raw: usize) {
        MATRICES.remove(raw)?;
        Ok(())
    }

    fn cusparseCsrGet(
        raw: usize, rows: Out<i64>, columns: Out<i64>, stored: Out<i64>, offsets: Out<usize>, indices: Out<usize>,
        values: Out<usize>, offsets_type: Out<u32>, indices_type: Out<u32>, base: Out<u32>, kind: Out<u32>,
    ) {
        let parts = (offsets, indices, values);
        get(raw, SparseFormat::Csr, (rows, columns, stored), parts, (offsets_type, indices_type), (base, kind))
    }

    fn cusparseConstCsrGet(
        raw: usize, rows: Out<i64>, columns: Out<i64>, stored: Out<i64>, offsets: Out<usize>, indices: Out<usize>,
        values: Out<usize>, offsets_type: Out<u32>, indices_type: Out<u32>, base: Out<u32>, kind: Out<u32>,
    ) {
        let parts = (offsets, indices, values);
        get(raw, SparseFormat::Csr, (rows, columns, stored), parts, (offsets_type, indices_type), (base, kind))
    }

    fn cusparseCscGet(
        raw: usize, rows: Out<i64>, columns: Out<i64>, stored: Out<i64>, offsets: Out<usize>, indices: Out<usize>,
        values: Out<usize>, offsets_type: Out<u32>, indices_type: Out<u32>, base: Out<u32>, kind: Out<u32>,
    ) {
        let parts = (offsets, indices, values);
        get(raw, SparseFormat::Csc, (rows, columns, stored), parts, (offsets_type, indices_type), (base, kind))
    }

    fn cusparseCooGet(
        raw: usize, rows: Out<i64>, columns: Out<i64>, stored: Out<i64>, of_rows: Out<usize>, of_columns: Out<usize>,
        values: Out<usize>, indices_type: Out<u32>, base: Out<u32>, kind: Out<u32>,
    ) {
        let parts = (of_rows, of_columns, values);
        get(raw, SparseFormat::Coo, (rows, columns, stored), parts, (indices_type, indices_type), (base, kind))
    }

    fn cusparseCsrSetPointers(raw: usize, offsets: usize, indices: usize, values: usize) {
        set_parts(raw, SparseFormat::Csr, (offsets, indices, values))
    }

    fn cusparseCscSetPointers(raw: usize, offsets: usize, indices: usize, values: usize) {
        set_parts(raw, SparseFormat::Csc, (offsets, indices, values))
    }

    fn cusparseCooSetPointers(raw: usize, rows: usize, columns: usize, values: usize) {
        set_parts(raw, SparseFormat::Coo, (rows, columns, values))
    }

    fn cusparseCsrSetStridedBatch(raw: usize, problems: i32, _offsets: i64, _values: i64) {
        set_batch(raw, problems)
    }

    fn cusparseCooSetStridedBatch(raw: usize, problems: i32, _stride: i64) {
        set_batch(raw, problems)
    }

    fn cusparseSpMatGetStridedBatch(raw: usize, problems: Out<i32>) {
        problems.set(MATRICES.get(raw)?.lock().problems)
    }

    fn cusparseSpMatGetSize(raw: usize, rows: Out<i64>, columns: Out<i64>, stored: Out<i64>) {
        let matrix = MATRICES.get(raw)?.lock().matrix.clone();
        rows.set(matrix.rows as i64)?;
        columns.set(matrix.columns as i64)?;
        stored.set(matrix.stored as i64)
    }

    fn cusparseSpMatGetFormat(raw: usize, format: Out<u32>) {
        format.set(match MATRICES.get(raw)?.lock().matrix.format {
            SparseFormat::Csr => 1,
            SparseFormat::Csc => 2,
            SparseFormat::Coo => 3,
        })
    }

    fn cusparseSpMatGetIndexBase(raw: usize, base: Out<u32>) {
        base.set(MATRICES.get(raw)?.lock().matrix.base)
    }

    fn cusparseSpMatGetValues(raw: usize, values: Out<usize>) {
        get_values(raw, values)
    }

    fn cusparseConstSpMatGetValues(raw: usize, values: Out<usize>) {
        get_values(raw, values)
    }

    fn cusparseSpMatSetValues(raw: usize, values: usize) {
        MATRICES.get(raw)?.lock().matrix.values = values as u64;
        Ok(())
    }

    fn cusparseSpMatSetAttribute(raw: usize, which: u32, data: In<u32>, bytes: usize) {
        let place = attribute(which, bytes)?;
        let value = data.get()?;
        MATRICES.get(raw)?.lock().attributes[place] = value;
        Ok(())
    }

    fn cusparseSpMatGetAttribute(raw: usize, which: u32, data: Out<u32>, bytes: usize) {
        let place = attribute(which, bytes)?;
        data.set(MATRICES.get(raw)?.lock().attributes[place])
    }
}
