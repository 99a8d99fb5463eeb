//! Systems of equations and least squares that may be solved in a lower precision and refined. Nothing is: the factorisation is made in
//! the precision of the matrices, so no iteration is needed and the number of iterations is 0.

use rgpu_libraries::{AddMatrices, DataType, LeastSquares, Matrix, Scalar, Task};

use super::factor::factors;
use super::handle::{check, number_at, post};
use super::{WORK, count, matrix, typed};
use crate::libraries::math::{Out, Result, invalid};

/// What is written instead of a number of iterations where a factorisation fails.
const FACTORISATION_FAILED: i32 = -3;

/// The shapes and places of a call.
struct Call {
    handle: usize,
    kind: DataType,
    /// Rows and columns of A, and columns of B and X.
    shape: (u64, u64, u64),
    a: Matrix,
    b: Matrix,
    x: Matrix,
}

impl Call {
    fn new(
        handle: usize,
        kind: DataType,
        (m, n, columns): (i32, i32, i32),
        (a, lda): (usize, i32),
        (b, ldb): (usize, i32),
        (x, ldx): (usize, i32),
    ) -> Result<Self> {
        check(handle)?;
        let (m, n, columns) = (count(m.into())?, count(n.into())?, count(columns.into())?);
        if m < n {
            return invalid(format!("Least squares of {m} equations for {n} unknowns"));
        }
        Ok(Self {
            handle,
            kind,
            shape: (m, n, columns),
            a: matrix(a, kind, m, lda.into())?,
            b: matrix(b, kind, m, ldb.into())?,
            x: matrix(x, kind, n, ldx.into())?,
        })
    }

    /// Bytes of so many columns of as many rows as A has.
    fn bytes(&self, columns: u64) -> Result<u64> {
        let bytes = self.shape.0.checked_mul(columns).and_then(|n| n.checked_mul(self.kind.bytes()));
        bytes.map_or_else(|| invalid("A matrix that is longer than the address space"), Ok)
    }

    /// A matrix in the work area.
    fn work(&self, addr: u64) -> Matrix {
        Matrix { addr, kind: self.kind, ld: self.shape.0.max(1), stride: 0 }
    }

    fn copy(&self, (m, n): (u64, u64), from: &Matrix, to: &Matrix) -> Result<()> {
        post(
            self.handle,
            &AddMatrices {
                m,
                n,
                alpha: Scalar::real(1.0),
                a: from.clone(),
                b: from.clone(),
                c: to.clone(),
                scalar: self.kind,
                compute: self.kind,
                count: 1,
                ..AddMatrices::default()
            },
        )
    }
}

/// The work area that [`solve`] needs: the factors.
fn solving_bytes(call: &Call) -> Result<usize> {
    Ok(call.bytes(call.shape.1)?.max(1) as usize)
}

/// Solves a square system. The number of iterations says whether that went well, so this waits for the device.
fn solve(
    call: &Call,
    pivots: usize,
    (work, size): (usize, usize),
    (iterations, info): (Out<i32>, usize),
) -> Result<()> {
    iterations.check()?;
    if work == 0 || size < solving_bytes(call)? || info == 0 {
        return invalid("The work area is too small, or there is no place for what is said of the result");
    }
    let (_, n, columns) = call.shape;
    let factored = call.work(work as u64);
    call.copy((n, n), &call.a, &factored)?;
    call.copy((n, columns), &call.b, &call.x)?;
    let (of, shape) = ((work, factored.ld as i64), (n as i64, n as i64));
    let lu = factors(call.kind, shape, of, (pivots, false), info)?;
    post(call.handle, &lu)?;
    let lu = rgpu_libraries::Lu { task: Task::Solve, columns, b: call.x.clone(), info: 0, ..lu };
    post(call.handle, &lu)?;
    let failed = number_at(call.handle, info as u64)? != 0;
    iterations.set(if failed { FACTORISATION_FAILED } else { 0 })
}

/// Solves for the least squares, by reflections, which need no work area. Where columns depend on each other, `info` says which
/// diagonal element of the triangle is zero, as LAPACK does, and there is no solution.
fn least_squares(call: &Call, (iterations, info): (Out<i32>, usize)) -> Result<()> {
    iterations.check()?;
    let (m, n, columns) = call.shape;
    if call.x.addr == 0 {
        return invalid("There is no place for the solution");
    }
    let (a, b, x) = (call.a.clone(), call.b.clone(), call.x.clone());
    post(
        call.handle,
        &LeastSquares { m, n, columns, a, b, x, info: info as u64, count: 1, ..LeastSquares::default() },
    )?;
    iterations.set(0)
}

typed! {
    [
        cusolverDnZZgesv_bufferSize => C64, cusolverDnZCgesv_bufferSize => C64, cusolverDnZKgesv_bufferSize => C64,
        cusolverDnZEgesv_bufferSize => C64, cusolverDnZYgesv_bufferSize => C64, cusolverDnCCgesv_bufferSize => C32,
        cusolverDnCKgesv_bufferSize => C32, cusolverDnCEgesv_bufferSize => C32, cusolverDnCYgesv_bufferSize => C32,
        cusolverDnDDgesv_bufferSize => F64, cusolverDnDSgesv_bufferSize => F64, cusolverDnDHgesv_bufferSize => F64,
        cusolverDnDBgesv_bufferSize => F64, cusolverDnDXgesv_bufferSize => F64, cusolverDnSSgesv_bufferSize => F32,
        cusolverDnSHgesv_bufferSize => F32, cusolverDnSBgesv_bufferSize => F32, cusolverDnSXgesv_bufferSize => F32
    ] (
        handle: usize, n: i32, columns: i32, a: usize, lda: i32, _pivots: usize, b: usize, ldb: i32, x: usize,
        ldx: i32, _work: usize, size: Out<usize>,
    ) {
        size.set(solving_bytes(&Call::new(handle, KIND, (n, n, columns), (a, lda), (b, ldb), (x, ldx))?)?)
    }

    [
        cusolverDnZZgesv => C64, cusolverDnZCgesv => C64, cusolverDnZKgesv => C64, cusolverDnZEgesv => C64,
        cusolverDnZYgesv => C64, cusolverDnCCgesv => C32, cusolverDnCKgesv => C32, cusolverDnCEgesv => C32,
        cusolverDnCYgesv => C32, cusolverDnDDgesv => F64, cusolverDnDSgesv => F64, cusolverDnDHgesv => F64,
        cusolverDnDBgesv => F64, cusolverDnDXgesv => F64, cusolverDnSSgesv => F32, cusolverDnSHgesv => F32,
        cusolverDnSBgesv => F32, cusolverDnSXgesv => F32
    ] (
        handle: usize, n: i32, columns: i32, a: usize, lda: i32, pivots: usize, b: usize, ldb: i32, x: usize,
        ldx: i32, work: usize, size: usize, iterations: Out<i32>, info: usize,
    ) {
        let call = Call::new(handle, KIND, (n, n, columns), (a, lda), (b, ldb), (x, ldx))?;
        solve(&call, pivots, (work, size), (iterations, info))
    }

    [
        cusolverDnZZgels_bufferSize => C64, cusolverDnZCgels_bufferSize => C64, cusolverDnZKgels_bufferSize => C64,
        cusolverDnZEgels_bufferSize => C64, cusolverDnZYgels_bufferSize => C64, cusolverDnCCgels_bufferSize => C32,
        cusolverDnCKgels_bufferSize => C32, cusolverDnCEgels_bufferSize => C32, cusolverDnCYgels_bufferSize => C32,
        cusolverDnDDgels_bufferSize => F64, cusolverDnDSgels_bufferSize => F64, cusolverDnDHgels_bufferSize => F64,
        cusolverDnDBgels_bufferSize => F64, cusolverDnDXgels_bufferSize => F64, cusolverDnSSgels_bufferSize => F32,
        cusolverDnSHgels_bufferSize => F32, cusolverDnSBgels_bufferSize => F32, cusolverDnSXgels_bufferSize => F32
    ] (
        handle: usize, m: i32, n: i32, columns: i32, a: usize, lda: i32, b: usize, ldb: i32, x: usize, ldx: i32,
        _work: usize, size: Out<usize>,
    ) {
        Call::new(handle, KIND, (m, n, columns), (a, lda), (b, ldb), (x, ldx))?;
        size.set(WORK as usize)
    }

    [
        cusolverDnZZgels => C64, cusolverDnZCgels => C64, cusolverDnZKgels => C64, cusolverDnZEgels => C64,
        cusolverDnZYgels => C64, cusolverDnCCgels => C32, cusolverDnCKgels => C32, cusolverDnCEgels => C32,
        cusolverDnCYgels => C32, cusolverDnDDgels => F64, cusolverDnDSgels => F64, cusolverDnDHgels => F64,
        cusolverDnDBgels => F64, cusolverDnDXgels => F64, cusolverDnSSgels => F32, cusolverDnSHgels => F32,
        cusolverDnSBgels => F32, cusolverDnSXgels => F32
    ] (
        handle: usize, m: i32, n: i32, columns: i32, a: usize, lda: i32, b: usize, ldb: i32, x: usize, ldx: i32,
        _work: usize, _size: usize, iterations: Out<i32>, info: usize,
    ) {
        let call = Call::new(handle, KIND, (m, n, columns), (a, lda), (b, ldb), (x, ldx))?;
        least_squares(&call, (iterations, info))
    }
}
