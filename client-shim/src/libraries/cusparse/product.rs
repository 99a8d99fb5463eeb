//! Products.

use rgpu_libraries::{DenseMatrix, SampledProduct, SparseProduct};

use super::descriptors::{matrix, vector};
use super::handle::{check, queue, scalar};
use super::{CUSPARSE, kind_of, matrices, op};
use crate::libraries::math::{Out, Result, invalid, math, missing};

/// An error where the type that is computed in is not that of the result.
fn computes(kind: u32, c: &DenseMatrix) -> Result<()> {
    if kind_of(kind)? == c.kind { Ok(()) } else { missing("cuSPARSE: products in several types") }
}

/// What a product has of its call, besides its factors.
struct Call {
    handle: usize,
    op_a: u32,
    op_b: u32,
    a: usize,
    kind: u32,
}

impl Call {
    /// The product, with its factors, or without where it is not to be done yet.
    fn product(
        &self,
        b: DenseMatrix,
        c: DenseMatrix,
        factors: Option<(usize, usize)>,
    ) -> Result<SparseProduct> {
        check(self.handle)?;
        computes(self.kind, &c)?;
        let (alpha, beta) = match factors {
            Some((alpha, beta)) => (scalar(self.handle, alpha, c.kind)?, scalar(self.handle, beta, c.kind)?),
            None => Default::default(),
        };
        let (op_a, op_b) = (op(self.op_a)?, op(self.op_b)?);
        let a = matrices::matrix(self.a)?;
        let turned =
            |op: u32, rows: u64, columns: u64| if op == 0 { (rows, columns) } else { (columns, rows) };
        let (of_a, of_b) = (turned(self.op_a, a.rows, a.columns), turned(self.op_b, b.rows, b.columns));
        if of_a.1 != of_b.0 || (c.rows, c.columns) != (of_a.0, of_b.1) {
            return invalid(format!("{of_a:?} times {of_b:?} is not {} x {}", c.rows, c.columns));
        }
        Ok(SparseProduct { op_a, op_b, alpha, a, b, beta, c })
    }
}

/// What [`SampledProduct`] takes of a call.
fn sampled(call: &Call, b: usize, c: usize, factors: Option<(usize, usize)>) -> Result<SampledProduct> {
    check(call.handle)?;
    let (a, b, c) = (matrix(call.a)?, matrix(b)?, matrices::matrix(c)?);
    if kind_of(call.kind)? != c.kind || a.kind != c.kind || b.kind != c.kind {
        return missing("cuSPARSE: products in several types");
    }
    let (alpha, beta) = match factors {
        Some((alpha, beta)) => (scalar(call.handle, alpha, c.kind)?, scalar(call.handle, beta, c.kind)?),
        None => Default::default(),
    };
    Ok(SampledProduct { op_a: op(call.op_a)?, op_b: op(call.op_b)?, alpha, a, b, beta, c })
}

math! {
    CUSPARSE;

    fn cusparseSpMV_bufferSize(
        handle: usize, op_a: u32, _alpha: usize, a: usize, x: usize, _beta: usize, y: usize, kind: u32,
        _algorithm: u32, size: Out<usize>,
    ) {
        Call { handle, op_a, op_b: 0, a, kind }.product(vector(x)?, vector(y)?, None)?;
        size.set(0)
    }

    fn cusparseSpMV_preprocess(
        handle: usize, op_a: u32, _alpha: usize, a: usize, x: usize, _beta: usize, y: usize, kind: u32,
        _algorithm: u32, _buffer: usize,
    ) {
        Call { handle, op_a, op_b: 0, a, kind }.product(vector(x)?, vector(y)?, None).map(drop)
    }

    fn cusparseSpMV(
        handle: usize, op_a: u32, alpha: usize, a: usize, x: usize, beta: usize, y: usize, kind: u32,
        _algorithm: u32, _buffer: usize,
    ) {
        let call = Call { handle, op_a, op_b: 0, a, kind };
        queue(handle)?.post(&call.product(vector(x)?, vector(y)?, Some((alpha, beta)))?)
    }

    fn cusparseSpMM_bufferSize(
        handle: usize, op_a: u32, op_b: u32, _alpha: usize, a: usize, b: usize, _beta: usize, c: usize, kind: u32,
        _algorithm: u32, size: Out<usize>,
    ) {
        Call { handle, op_a, op_b, a, kind }.product(matrix(b)?, matrix(c)?, None)?;
        size.set(0)
    }

    fn cusparseSpMM_preprocess(
        handle: usize, op_a: u32, op_b: u32, _alpha: usize, a: usize, b: usize, _beta: usize, c: usize, kind: u32,
        _algorithm: u32, _buffer: usize,
    ) {
        Call { handle, op_a, op_b, a, kind }.product(matrix(b)?, matrix(c)?, None).map(drop)
    }

    fn cusparseSpMM(
        handle: usize, op_a: u32, op_b: u32, alpha: usize, a: usize, b: usize, beta: usize, c: usize, kind: u32,
        _algorithm: u32, _buffer: usize,
    ) {
        let call = Call { handle, op_a, op_b, a, kind };
        queue(handle)?.post(&call.product(matrix(b)?, matrix(c)?, Some((alpha, beta)))?)
    }

    fn cusparseSDDMM_bufferSize(
        handle: usize, op_a: u32, op_b: u32, _alpha: usize, a: usize, b: usize, _beta: usize, c: usize, kind: u32,
        _algorithm: u32, size: Out<usize>,
    ) {
        sampled(&Call { handle, op_a, op_b, a, kind }, b, c, None)?;
        size.set(0)
    }

    fn cusparseSDDMM_preprocess(
        handle: usize, op_a: u32, op_b: u32, _alpha: usize, a: usize, b: usize, _beta: usize, c: usize, kind: u32,
        _algorithm: u32, _buffer: usize,
    ) {
        sampled(&Call { handle, op_a, op_b, a, kind }, b, c, None).map(drop)
    }

    fn cusparseSDDMM(
        handle: usize, op_a: u32, op_b: u32, alpha: usize, a: usize, b: usize, beta: usize, c: usize, kind: u32,
        _algorithm: u32, _buffer: usize,
    ) {
        queue(handle)?.post(&sampled(&Call { handle, op_a, op_b, a, kind }, b, c, Some((alpha, beta)))?)
    }
}
