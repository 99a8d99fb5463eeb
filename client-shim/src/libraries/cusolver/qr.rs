//! Orthogonal factorisation.

use rgpu_libraries::{DataType, Qr, Task, Transpose};

use super::handle::{check, post};
use super::{WORK, count, matrix, op, typed};
use crate::libraries::math::{Out, Result, invalid};

/// The reflections of a matrix.
pub(super) fn reflections(
    kind: DataType,
    (m, n): (i64, i64),
    (a, lda): (usize, i64),
    tau: usize,
    info: usize,
) -> Result<Qr> {
    let (m, n) = (count(m)?, count(n)?);
    let a = matrix(a, kind, m, lda)?;
    Ok(Qr { task: Task::Factor, m, n, k: m.min(n), a, tau: tau as u64, info: info as u64, ..Qr::default() })
}

/// The first columns of Q.
fn columns(
    kind: DataType,
    (m, n, k): (i32, i32, i32),
    (a, lda): (usize, i32),
    tau: usize,
    info: usize,
) -> Result<Qr> {
    let of = reflections(kind, (m.into(), n.into()), (a, lda.into()), tau, info)?;
    let k = count(k.into())?;
    if k > of.n || of.n > of.m {
        return invalid(format!("{} columns of {k} reflections of {} rows", of.n, of.m));
    }
    Ok(Qr { task: Task::Form, k, ..of })
}

/// A product with Q.
fn product(
    kind: DataType,
    (side, trans): (u32, u32),
    (m, n, k): (i32, i32, i32),
    (a, lda): (usize, i32),
    (c, ldc): (usize, i32),
    (tau, info): (usize, usize),
) -> Result<Qr> {
    let right = match side {
        0 => false,
        1 => true,
        other => return invalid(format!("There is no cublasSideMode_t {other}")),
    };
    let op = op(trans)?;
    if op == Transpose::Transposed && matches!(kind, DataType::C32 | DataType::C64) {
        return invalid("A complex Q is used as it is, or as its adjoint");
    }
    let (m, n, k) = (count(m.into())?, count(n.into())?, count(k.into())?);
    let rows = if right { n } else { m };
    if k > rows {
        return invalid(format!("{k} reflections of {rows} rows"));
    }
    let (a, c) = (matrix(a, kind, rows, lda.into())?, matrix(c, kind, m, ldc.into())?);
    Ok(Qr { task: Task::Apply, m, n, k, a, tau: tau as u64, right, op, c, info: info as u64 })
}

typed! {
    [
        cusolverDnSgeqrf_bufferSize => F32, cusolverDnDgeqrf_bufferSize => F64,
        cusolverDnCgeqrf_bufferSize => C32, cusolverDnZgeqrf_bufferSize => C64
    ] (handle: usize, m: i32, n: i32, a: usize, lda: i32, size: Out<i32>) {
        check(handle)?;
        reflections(KIND, (m.into(), n.into()), (a, lda.into()), 0, 0)?;
        size.set(WORK)
    }

    [
        cusolverDnSgeqrf => F32, cusolverDnDgeqrf => F64, cusolverDnCgeqrf => C32, cusolverDnZgeqrf => C64
    ] (handle: usize, m: i32, n: i32, a: usize, lda: i32, tau: usize, _work: usize, _size: i32, info: usize) {
        post(handle, &reflections(KIND, (m.into(), n.into()), (a, lda.into()), tau, info)?)
    }

    [
        cusolverDnSorgqr_bufferSize => F32, cusolverDnDorgqr_bufferSize => F64,
        cusolverDnCungqr_bufferSize => C32, cusolverDnZungqr_bufferSize => C64
    ] (handle: usize, m: i32, n: i32, k: i32, a: usize, lda: i32, tau: usize, size: Out<i32>) {
        check(handle)?;
        columns(KIND, (m, n, k), (a, lda), tau, 0)?;
        size.set(WORK)
    }

    [
        cusolverDnSorgqr => F32, cusolverDnDorgqr => F64, cusolverDnCungqr => C32, cusolverDnZungqr => C64
    ] (
        handle: usize, m: i32, n: i32, k: i32, a: usize, lda: i32, tau: usize, _work: usize, _size: i32, info: usize,
    ) {
        post(handle, &columns(KIND, (m, n, k), (a, lda), tau, info)?)
    }

    [
        cusolverDnSormqr_bufferSize => F32, cusolverDnDormqr_bufferSize => F64,
        cusolverDnCunmqr_bufferSize => C32, cusolverDnZunmqr_bufferSize => C64
    ] (
        handle: usize, side: u32, trans: u32, m: i32, n: i32, k: i32, a: usize, lda: i32, tau: usize, c: usize,
        ldc: i32, size: Out<i32>,
    ) {
        check(handle)?;
        product(KIND, (side, trans), (m, n, k), (a, lda), (c, ldc), (tau, 0))?;
        size.set(WORK)
    }

    [
        cusolverDnSormqr => F32, cusolverDnDormqr => F64, cusolverDnCunmqr => C32, cusolverDnZunmqr => C64
    ] (
        handle: usize, side: u32, trans: u32, m: i32, n: i32, k: i32, a: usize, lda: i32, tau: usize, c: usize,
        ldc: i32, _work: usize, _size: i32, info: usize,
    ) {
        post(handle, &product(KIND, (side, trans), (m, n, k), (a, lda), (c, ldc), (tau, info))?)
    }
}
