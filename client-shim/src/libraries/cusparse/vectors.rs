//! Sparse vectors, and what is done with one and a dense one.

use std::sync::LazyLock;

use parking_lot::Mutex;
use rgpu_libraries::{Scalar, SparseVector, SparseVectors, Transpose, VectorTask};

use super::descriptors::vector;
use super::handle::{check, on_device, queue, scalar};
use super::{CUSPARSE, base, count, kind_of, op, wide};
use crate::core::registry::Registry;
use crate::libraries::math::{Out, Result, copy_home, invalid, math, missing};

static VECTORS: LazyLock<Registry<Mutex<SparseVector>>> =
    LazyLock::new(|| Registry::new("cuSPARSE sparse vector"));

fn create(
    out: Out<usize>,
    (size, stored): (i64, i64),
    (indices, values): (usize, usize),
    (index_type, index_base, kind): (u32, u32, u32),
) -> Result<()> {
    out.check()?;
    let vector = SparseVector {
        size: count(size)?,
        stored: count(stored)?,
        indices: indices as u64,
        values: values as u64,
        kind: kind_of(kind)?,
        wide: wide(index_type)?,
        base: base(index_base)?,
    };
    if vector.stored > vector.size {
        return invalid(format!("{stored} elements of a vector of {size}"));
    }
    let mut raw = 0;
    VECTORS.insert(|handle| {
        raw = handle;
        Mutex::new(vector)
    });
    out.set(raw)
}

fn get(
    raw: usize,
    (size, stored): (Out<i64>, Out<i64>),
    (indices, values): (Out<usize>, Out<usize>),
    (index_type, index_base, kind): (Out<u32>, Out<u32>, Out<u32>),
) -> Result<()> {
    let vector = VECTORS.get(raw)?.lock().clone();
    size.set(vector.size as i64)?;
    stored.set(vector.stored as i64)?;
    indices.set(vector.indices as usize)?;
    values.set(vector.values as usize)?;
    index_type.set(if vector.wide { 3 } else { 2 })?;
    index_base.set(vector.base)?;
    kind.set(vector.kind as u32)
}

/// An operation on vectors that fit together, without factors.
fn operation(task: VectorTask, sparse: usize, dense: usize) -> Result<SparseVectors> {
    let (x, y) = (VECTORS.get(sparse)?.lock().clone(), vector(dense)?);
    if x.size != y.rows {
        return invalid(format!("A sparse vector of {} with a dense one of {}", x.size, y.rows));
    }
    if x.kind != y.kind {
        return missing("cuSPARSE: vectors of different types");
    }
    Ok(SparseVectors { task, x, y, ..SparseVectors::default() })
}

/// A dot product. Sums are made in the type of the elements.
fn dot(of_x: u32, x: usize, y: usize, kind: u32) -> Result<SparseVectors> {
    let of = operation(VectorTask::Dot, x, y)?;
    if kind_of(kind)? != of.x.kind {
        return missing("cuSPARSE: dot products in another type than the vectors'");
    }
    Ok(SparseVectors { conjugates: op(of_x)? == Transpose::Adjoint, ..of })
}

math! {
    CUSPARSE;

    fn cusparseCreateSpVec(
        out: Out<usize>, size: i64, stored: i64, indices: usize, values: usize, index_type: u32, base: u32, kind: u32,
    ) {
        create(out, (size, stored), (indices, values), (index_type, base, kind))
    }

    fn cusparseCreateConstSpVec(
        out: Out<usize>, size: i64, stored: i64, indices: usize, values: usize, index_type: u32, base: u32, kind: u32,
    ) {
        create(out, (size, stored), (indices, values), (index_type, base, kind))
    }

    fn cusparseDestroySpVec(raw: usize) {
        VECTORS.remove(raw)?;
        Ok(())
    }

    fn cusparseSpVecGet(
        raw: usize, size: Out<i64>, stored: Out<i64>, indices: Out<usize>, values: Out<usize>, index_type: Out<u32>,
        base: Out<u32>, kind: Out<u32>,
    ) {
        get(raw, (size, stored), (indices, values), (index_type, base, kind))
    }

    fn cusparseConstSpVecGet(
        raw: usize, size: Out<i64>, stored: Out<i64>, indices: Out<usize>, values: Out<usize>, index_type: Out<u32>,
        base: Out<u32>, kind: Out<u32>,
    ) {
        get(raw, (size, stored), (indices, values), (index_type, base, kind))
    }

    fn cusparseSpVecGetIndexBase(raw: usize, base: Out<u32>) {
        base.set(VECTORS.get(raw)?.lock().base)
    }

    fn cusparseSpVecGetValues(raw: usize, values: Out<usize>) {
        values.set(VECTORS.get(raw)?.lock().values as usize)
    }

    fn cusparseConstSpVecGetValues(raw: usize, values: Out<usize>) {
        values.set(VECTORS.get(raw)?.lock().values as usize)
    }

    fn cusparseSpVecSetValues(raw: usize, values: usize) {
        VECTORS.get(raw)?.lock().values = values as u64;
        Ok(())
    }

    fn cusparseGather(handle: usize, y: usize, x: usize) {
        queue(handle)?.post(&operation(VectorTask::Gather, x, y)?)
    }

    fn cusparseScatter(handle: usize, x: usize, y: usize) {
        queue(handle)?.post(&operation(VectorTask::Scatter, x, y)?)
    }

    fn cusparseAxpby(handle: usize, alpha: usize, x: usize, beta: usize, y: usize) {
        let of = operation(VectorTask::Add, x, y)?;
        let (alpha, beta) = (scalar(handle, alpha, of.x.kind)?, scalar(handle, beta, of.x.kind)?);
        queue(handle)?.post(&SparseVectors { alpha, beta, ..of })
    }

    fn cusparseRot(handle: usize, cosine: usize, sine: usize, x: usize, y: usize) {
        let of = operation(VectorTask::Rotate, x, y)?;
        let (alpha, beta) = (scalar(handle, cosine, of.x.kind)?, scalar(handle, sine, of.x.kind)?);
        queue(handle)?.post(&SparseVectors { alpha, beta, ..of })
    }

    /// The buffer is where a product is that the program's memory gets.
    fn cusparseSpVV_bufferSize(
        handle: usize, of_x: u32, x: usize, y: usize, _result: usize, kind: u32, size: Out<usize>,
    ) {
        check(handle)?;
        size.set(dot(of_x, x, y, kind)?.x.kind.bytes() as usize)
    }

    fn cusparseSpVV(handle: usize, of_x: u32, x: usize, y: usize, result: usize, kind: u32, buffer: usize) {
        let of = SparseVectors { alpha: Scalar::real(1.0), ..dot(of_x, x, y, kind)? };
        let queue = queue(handle)?;
        if result == 0 {
            return invalid("There is no place for the product");
        }
        if on_device(handle)? {
            return queue.post(&SparseVectors { result: result as u64, ..of });
        }
        if buffer == 0 {
            return invalid("There is no buffer");
        }
        let bytes = of.x.kind.bytes();
        queue.post(&SparseVectors { result: buffer as u64, ..of })?;
        copy_home(&queue, result, buffer as u64, bytes)
    }
}
