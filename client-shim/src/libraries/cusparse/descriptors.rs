//! Dense matrices and vectors.

use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use rgpu_libraries::DenseMatrix;

use super::{CUSPARSE, count, kind_of};
use crate::core::registry::Registry;
use crate::libraries::math::{Out, Result, invalid, math, missing};

/// A dense matrix or vector of the program's.
#[derive(Debug, Clone)]
pub(super) struct Dense {
    /// Where it is, and its shape; a vector is one column.
    pub(super) matrix: DenseMatrix,
    /// How many there are, and how far apart.
    pub(super) batch: (i32, i64),
}

impl Dense {
    /// The matrix, where it is one.
    pub(super) fn alone(&self) -> Result<DenseMatrix> {
        if self.batch.0 > 1 { missing("cuSPARSE: batches of matrices") } else { Ok(self.matrix.clone()) }
    }
}

static MATRICES: LazyLock<Registry<Mutex<Dense>>> = LazyLock::new(|| Registry::new("cuSPARSE dense matrix"));
static VECTORS: LazyLock<Registry<Mutex<Dense>>> = LazyLock::new(|| Registry::new("cuSPARSE dense vector"));

/// The matrix of a descriptor.
pub(super) fn matrix(raw: usize) -> Result<DenseMatrix> {
    let matrix = MATRICES.get(raw)?;
    matrix.lock().alone()
}

/// The vector of a descriptor, as a matrix of one column.
pub(super) fn vector(raw: usize) -> Result<DenseMatrix> {
    let vector = VECTORS.get(raw)?;
    vector.lock().alone()
}

fn insert(registry: &Registry<Mutex<Dense>>, out: Out<usize>, matrix: DenseMatrix) -> Result<()> {
    let mut raw = 0;
    registry.insert(|handle| {
        raw = handle;
        Mutex::new(Dense { matrix, batch: (1, 0) })
    });
    out.set(raw)
}

fn create_vector(out: Out<usize>, size: i64, values: usize, kind: u32) -> Result<()> {
    out.check()?;
    let (rows, kind) = (count(size)?, kind_of(kind)?);
    let ld = rows.max(1);
    insert(&VECTORS, out, DenseMatrix { addr: values as u64, kind, rows, columns: 1, ld, by_rows: false })
}

fn create_matrix(
    out: Out<usize>,
    (rows, columns, ld): (i64, i64, i64),
    values: usize,
    kind: u32,
    order: u32,
) -> Result<()> {
    out.check()?;
    let by_rows = match order {
        1 => false,
        2 => true,
        other => return invalid(format!("There is no cusparseOrder_t {other}")),
    };
    let (rows, columns, ld, kind) = (count(rows)?, count(columns)?, count(ld)?, kind_of(kind)?);
    if ld < if by_rows { columns } else { rows } {
        return invalid(format!("A leading dimension of {ld} for {rows} x {columns}"));
    }
    insert(&MATRICES, out, DenseMatrix { addr: values as u64, kind, rows, columns, ld, by_rows })
}

fn get_vector(raw: usize, size: Out<i64>, values: Out<usize>, kind: Out<u32>) -> Result<()> {
    let vector: Arc<_> = VECTORS.get(raw)?;
    let DenseMatrix { rows, addr, kind: of, .. } = vector.lock().matrix.clone();
    size.set(rows as i64)?;
    values.set(addr as usize)?;
    kind.set(of as u32)
}

type Numbers = (Out<i64>, Out<i64>, Out<i64>);

fn get_matrix(raw: usize, sizes: Numbers, values: Out<usize>, kind: Out<u32>, order: Out<u32>) -> Result<()> {
    let matrix = MATRICES.get(raw)?;
    let matrix = matrix.lock().matrix.clone();
    sizes.0.set(matrix.rows as i64)?;
    sizes.1.set(matrix.columns as i64)?;
    sizes.2.set(matrix.ld as i64)?;
    values.set(matrix.addr as usize)?;
    kind.set(matrix.kind as u32)?;
    order.set(if matrix.by_rows { 2 } else { 1 })
}

math! {
    CUSPARSE;

    fn cusparseCreateDnVec(out: Out<usize>, size: i64, values: usize, kind: u32) {
        create_vector(out, size, values, kind)
    }

    fn cusparseCreateConstDnVec(out: Out<usize>, size: i64, values: usize, kind: u32) {
        create_vector(out, size, values, kind)
    }

    fn cusparseDestroyDnVec(raw: usize) {
        VECTORS.remove(raw)?;
        Ok(())
    }

    fn cusparseDnVecGet(raw: usize, size: Out<i64>, values: Out<usize>, kind: Out<u32>) {
        get_vector(raw, size, values, kind)
    }

    fn cusparseConstDnVecGet(raw: usize, size: Out<i64>, values: Out<usize>, kind: Out<u32>) {
        get_vector(raw, size, values, kind)
    }

    fn cusparseDnVecGetValues(raw: usize, values: Out<usize>) {
        values.set(VECTORS.get(raw)?.lock().matrix.addr as usize)
    }

    fn cusparseConstDnVecGetValues(raw: usize, values: Out<usize>) {
        values.set(VECTORS.get(raw)?.lock().matrix.addr as usize)
    }

    fn cusparseDnVecSetValues(raw: usize, values: usize) {
        VECTORS.get(raw)?.lock().matrix.addr = values as u64;
        Ok(())
    }

    fn cusparseCreateDnMat(
        out: Out<usize>, rows: i64, columns: i64, ld: i64, values: usize, kind: u32, order: u32,
    ) {
        create_matrix(out, (rows, columns, ld), values, kind, order)
    }

    fn cusparseCreateConstDnMat(
        out: Out<usize>, rows: i64, columns: i64, ld: i64, values: usize, kind: u32, order: u32,
    ) {
        create_matrix(out, (rows, columns, ld), values, kind, order)
    }

    fn cusparseDestroyDnMat(raw: usize) {
        MATRICES.remove(raw)?;
        Ok(())
    }

    fn cusparseDnMatGet(
        raw: usize, rows: Out<i64>, columns: Out<i64>, ld: Out<i64>, values: Out<usize>, kind: Out<u32>,
        order: Out<u32>,
    ) {
        get_matrix(raw, (rows, columns, ld), values, kind, order)
    }

    fn cusparseConstDnMatGet(
        raw: usize, rows: Out<i64>, columns: Out<i64>, ld: Out<i64>, values: Out<usize>, kind: Out<u32>,
        order: Out<u32>,
    ) {
        get_matrix(raw, (rows, columns, ld), values, kind, order)
    }

    fn cusparseDnMatGetValues(raw: usize, values: Out<usize>) {
        values.set(MATRICES.get(raw)?.lock().matrix.addr as usize)
    }

    fn cusparseConstDnMatGetValues(raw: usize, values: Out<usize>) {
        values.set(MATRICES.get(raw)?.lock().matrix.addr as usize)
    }

    fn cusparseDnMatSetValues(raw: usize, values: usize) {
        MATRICES.get(raw)?.lock().matrix.addr = values as u64;
        Ok(())
    }

    fn cusparseDnMatSetStridedBatch(raw: usize, problems: i32, stride: i64) {
        if problems < 1 {
            return invalid(format!("A batch of {problems} matrices"));
        }
        MATRICES.get(raw)?.lock().batch = (problems, stride);
        Ok(())
    }

    fn cusparseDnMatGetStridedBatch(raw: usize, problems: Out<i32>, stride: Out<i64>) {
        let batch = MATRICES.get(raw)?.lock().batch;
        problems.set(batch.0)?;
        stride.set(batch.1)
    }
}
