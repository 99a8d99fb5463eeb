//! Cholesky's factorisation, and the one into triangles.

use rgpu_libraries::{Batch, Cholesky, DataType, Lu, Task};

use super::handle::{check, post};
use super::{WORK, count, matrix, op, typed, upper};
use crate::libraries::math::{Out, Result, invalid};

/// A Cholesky factorisation, or what is done with it, without right sides.
pub(super) fn cholesky(
    task: Task,
    kind: DataType,
    (fill, n): (u32, i64),
    (a, lda): (usize, i64),
    info: usize,
) -> Result<Cholesky> {
    let n = count(n)?;
    let a = matrix(a, kind, n, lda)?;
    Ok(Cholesky { task, upper: upper(fill)?, n, a, info: info as u64, count: 1, ..Cholesky::default() })
}

/// The factors of a matrix. Where there is no place for exchanges of rows, there are none.
pub(super) fn factors(
    kind: DataType,
    (m, n): (i64, i64),
    (a, lda): (usize, i64),
    (pivots, wide): (usize, bool),
    info: usize,
) -> Result<Lu> {
    let (m, n) = (count(m)?, count(n)?);
    let a = matrix(a, kind, m, lda)?;
    Ok(Lu { m, n, a, pivots: pivots as u64, wide, info: info as u64, count: 1, ..Lu::default() })
}

typed! {
    [
        cusolverDnSpotrf_bufferSize => F32, cusolverDnDpotrf_bufferSize => F64,
        cusolverDnCpotrf_bufferSize => C32, cusolverDnZpotrf_bufferSize => C64,
        cusolverDnSpotri_bufferSize => F32, cusolverDnDpotri_bufferSize => F64,
        cusolverDnCpotri_bufferSize => C32, cusolverDnZpotri_bufferSize => C64
    ] (handle: usize, fill: u32, n: i32, a: usize, lda: i32, size: Out<i32>) {
        check(handle)?;
        cholesky(Task::Factor, KIND, (fill, n.into()), (a, lda.into()), 0)?;
        size.set(WORK)
    }

    [
        cusolverDnSpotrf => F32, cusolverDnDpotrf => F64, cusolverDnCpotrf => C32, cusolverDnZpotrf => C64
    ] (handle: usize, fill: u32, n: i32, a: usize, lda: i32, _work: usize, _size: i32, info: usize) {
        post(handle, &cholesky(Task::Factor, KIND, (fill, n.into()), (a, lda.into()), info)?)
    }

    [
        cusolverDnSpotri => F32, cusolverDnDpotri => F64, cusolverDnCpotri => C32, cusolverDnZpotri => C64
    ] (handle: usize, fill: u32, n: i32, a: usize, lda: i32, _work: usize, _size: i32, info: usize) {
        post(handle, &cholesky(Task::Form, KIND, (fill, n.into()), (a, lda.into()), info)?)
    }

    [
        cusolverDnSpotrs => F32, cusolverDnDpotrs => F64, cusolverDnCpotrs => C32, cusolverDnZpotrs => C64
    ] (handle: usize, fill: u32, n: i32, columns: i32, a: usize, lda: i32, b: usize, ldb: i32, info: usize) {
        let of = cholesky(Task::Solve, KIND, (fill, n.into()), (a, lda.into()), info)?;
        let b = matrix(b, KIND, of.n, ldb.into())?;
        post(handle, &Cholesky { columns: count(columns.into())?, b, ..of })
    }

    [
        cusolverDnSpotrfBatched => F32, cusolverDnDpotrfBatched => F64,
        cusolverDnCpotrfBatched => C32, cusolverDnZpotrfBatched => C64
    ] (handle: usize, fill: u32, n: i32, a: usize, lda: i32, info: usize, problems: i32) {
        let of = cholesky(Task::Factor, KIND, (fill, n.into()), (a, lda.into()), info)?;
        post(handle, &Cholesky { batch: Batch::Pointers, count: count(problems.into())?, ..of })
    }

    [
        cusolverDnSpotrsBatched => F32, cusolverDnDpotrsBatched => F64,
        cusolverDnCpotrsBatched => C32, cusolverDnZpotrsBatched => C64
    ] (
        handle: usize, fill: u32, n: i32, columns: i32, a: usize, lda: i32, b: usize, ldb: i32, info: usize,
        problems: i32,
    ) {
        let of = cholesky(Task::Solve, KIND, (fill, n.into()), (a, lda.into()), info)?;
        let b = matrix(b, KIND, of.n, ldb.into())?;
        let (columns, count) = (count(columns.into())?, count(problems.into())?);
        post(handle, &Cholesky { columns, b, batch: Batch::Pointers, count, ..of })
    }

    [
        cusolverDnSgetrf_bufferSize => F32, cusolverDnDgetrf_bufferSize => F64,
        cusolverDnCgetrf_bufferSize => C32, cusolverDnZgetrf_bufferSize => C64
    ] (handle: usize, m: i32, n: i32, a: usize, lda: i32, size: Out<i32>) {
        check(handle)?;
        factors(KIND, (m.into(), n.into()), (a, lda.into()), (0, false), 0)?;
        size.set(WORK)
    }

    [
        cusolverDnSgetrf => F32, cusolverDnDgetrf => F64, cusolverDnCgetrf => C32, cusolverDnZgetrf => C64
    ] (handle: usize, m: i32, n: i32, a: usize, lda: i32, _work: usize, pivots: usize, info: usize) {
        post(handle, &factors(KIND, (m.into(), n.into()), (a, lda.into()), (pivots, false), info)?)
    }

    [
        cusolverDnSgetrs => F32, cusolverDnDgetrs => F64, cusolverDnCgetrs => C32, cusolverDnZgetrs => C64
    ] (
        handle: usize, trans: u32, n: i32, columns: i32, a: usize, lda: i32, pivots: usize, b: usize, ldb: i32,
        info: usize,
    ) {
        let n = i64::from(n);
        let of = factors(KIND, (n, n), (a, lda.into()), (pivots, false), info)?;
        let b = matrix(b, KIND, of.n, ldb.into())?;
        post(handle, &Lu { task: Task::Solve, op: op(trans)?, columns: count(columns.into())?, b, ..of })
    }
}

/// As [`op`]; for what cannot be solved with there is an error at once.
pub(super) fn solvable(trans: u32) -> Result<rgpu_libraries::Transpose> {
    if trans > 2 { invalid(format!("There is no cublasOperation_t {trans}")) } else { op(trans) }
}
