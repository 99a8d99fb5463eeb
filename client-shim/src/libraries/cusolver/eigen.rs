//! Eigenvalues and singular values.

use rgpu_libraries::{DataType, HermitianEigen, Matrix, Svd, Vectors};

use super::handle::{check, post};
use super::{WORK, count, matrix, typed, upper, vectors};
use crate::libraries::math::{Out, Result, invalid};

/// Eigenvalues of a batch of matrices that lie one behind the other.
pub(super) fn hermitian(
    kind: DataType,
    (mode, fill, n): (u32, u32, i64),
    (a, lda): (usize, i64),
    (values, info): (usize, usize),
    problems: i64,
) -> Result<HermitianEigen> {
    let n = count(n)?;
    let a = matrix(a, kind, n, lda)?;
    let Some(stride) = n.checked_mul(a.ld).and_then(|stride| i64::try_from(stride).ok()) else {
        return invalid("A matrix that is longer than the address space");
    };
    Ok(HermitianEigen {
        vectors: vectors(mode)?,
        upper: upper(fill)?,
        n,
        a: Matrix { stride, ..a },
        values: values as u64,
        info: info as u64,
        count: count(problems)?,
    })
}

/// Which vectors a letter of LAPACK's asks for.
fn job(letter: i8) -> Result<Vectors> {
    match letter as u8 {
        b'N' => Ok(Vectors::None),
        // As many as there are values, in a place of their own or in the matrix's.
        b'S' | b'O' => Ok(Vectors::Thin),
        b'A' => Ok(Vectors::All),
        other => invalid(format!("There is no job {:?}", char::from(other))),
    }
}

/// A matrix of vectors, if any are wanted.
fn place(wanted: Vectors, addr: usize, kind: DataType, rows: u64, ld: i64) -> Result<Matrix> {
    if wanted == Vectors::None { Ok(Matrix::default()) } else { matrix(addr, kind, rows, ld) }
}

/// Singular values and vectors, as LAPACK's `gesvd` has them.
pub(super) fn gesvd(
    kind: DataType,
    (job_u, job_v): (i8, i8),
    (m, n): (i64, i64),
    (a, lda): (usize, i64),
    (values, info): (usize, usize),
    (u, ldu): (usize, i64),
    (v, ldv): (usize, i64),
) -> Result<Svd> {
    let (m, n) = (count(m)?, count(n)?);
    let (left, right) = (job(job_u)?, job(job_v)?);
    let in_place = |letter: i8| letter as u8 == b'O';
    if in_place(job_u) && in_place(job_v) {
        return invalid("Both kinds of vectors cannot take the matrix's place");
    }
    let (u, ldu) = if in_place(job_u) { (a, lda) } else { (u, ldu) };
    let (v, ldv) = if in_place(job_v) { (a, lda) } else { (v, ldv) };
    let rows = if right == Vectors::All { n } else { m.min(n) };
    Ok(Svd {
        m,
        n,
        a: matrix(a, kind, m, lda)?,
        values: values as u64,
        left,
        u: place(left, u, kind, m, ldu)?,
        right,
        v: place(right, v, kind, rows, ldv)?,
        adjoint: true,
        info: info as u64,
        count: 1,
    })
}

/// Singular values and vectors of a batch, the right ones as columns.
#[allow(clippy::too_many_arguments, reason = "so the calls are")]
pub(super) fn gesvdj(
    kind: DataType,
    (mode, thin): (u32, bool),
    (m, n): (i64, i64),
    (a, lda): (usize, i64),
    (values, info): (usize, usize),
    (u, ldu): (usize, i64),
    (v, ldv): (usize, i64),
    problems: i64,
) -> Result<Svd> {
    let (m, n) = (count(m)?, count(n)?);
    let wanted = match (vectors(mode)?, thin) {
        (false, _) => Vectors::None,
        (true, true) => Vectors::Thin,
        (true, false) => Vectors::All,
    };
    let least = m.min(n);
    let apart = |matrix: Matrix, columns: u64| match columns.checked_mul(matrix.ld).map(i64::try_from) {
        Some(Ok(stride)) => Ok(Matrix { stride, ..matrix }),
        _ => invalid("A matrix that is longer than the address space"),
    };
    Ok(Svd {
        m,
        n,
        a: apart(matrix(a, kind, m, lda)?, n)?,
        values: values as u64,
        left: wanted,
        u: apart(place(wanted, u, kind, m, ldu)?, if thin { least } else { m })?,
        right: wanted,
        v: apart(place(wanted, v, kind, n, ldv)?, if thin { least } else { n })?,
        adjoint: false,
        info: info as u64,
        count: count(problems)?,
    })
}

typed! {
    [
        cusolverDnSsyevd_bufferSize => F32, cusolverDnDsyevd_bufferSize => F64,
        cusolverDnCheevd_bufferSize => C32, cusolverDnZheevd_bufferSize => C64
    ] (handle: usize, mode: u32, fill: u32, n: i32, a: usize, lda: i32, values: usize, size: Out<i32>) {
        check(handle)?;
        hermitian(KIND, (mode, fill, n.into()), (a, lda.into()), (values, 0), 1)?;
        size.set(WORK)
    }

    [
        cusolverDnSsyevd => F32, cusolverDnDsyevd => F64, cusolverDnCheevd => C32, cusolverDnZheevd => C64
    ] (
        handle: usize, mode: u32, fill: u32, n: i32, a: usize, lda: i32, values: usize, _work: usize, _size: i32,
        info: usize,
    ) {
        post(handle, &hermitian(KIND, (mode, fill, n.into()), (a, lda.into()), (values, info), 1)?)
    }

    [
        cusolverDnSsyevj_bufferSize => F32, cusolverDnDsyevj_bufferSize => F64,
        cusolverDnCheevj_bufferSize => C32, cusolverDnZheevj_bufferSize => C64
    ] (
        handle: usize, mode: u32, fill: u32, n: i32, a: usize, lda: i32, values: usize, size: Out<i32>,
        _parameters: usize,
    ) {
        check(handle)?;
        hermitian(KIND, (mode, fill, n.into()), (a, lda.into()), (values, 0), 1)?;
        size.set(WORK)
    }

    [
        cusolverDnSsyevj => F32, cusolverDnDsyevj => F64, cusolverDnCheevj => C32, cusolverDnZheevj => C64
    ] (
        handle: usize, mode: u32, fill: u32, n: i32, a: usize, lda: i32, values: usize, _work: usize, _size: i32,
        info: usize, _parameters: usize,
    ) {
        post(handle, &hermitian(KIND, (mode, fill, n.into()), (a, lda.into()), (values, info), 1)?)
    }

    [
        cusolverDnSsyevjBatched_bufferSize => F32, cusolverDnDsyevjBatched_bufferSize => F64,
        cusolverDnCheevjBatched_bufferSize => C32, cusolverDnZheevjBatched_bufferSize => C64
    ] (
        handle: usize, mode: u32, fill: u32, n: i32, a: usize, lda: i32, values: usize, size: Out<i32>,
        _parameters: usize, problems: i32,
    ) {
        check(handle)?;
        hermitian(KIND, (mode, fill, n.into()), (a, lda.into()), (values, 0), problems.into())?;
        size.set(WORK)
    }

    [
        cusolverDnSsyevjBatched => F32, cusolverDnDsyevjBatched => F64,
        cusolverDnCheevjBatched => C32, cusolverDnZheevjBatched => C64
    ] (
        handle: usize, mode: u32, fill: u32, n: i32, a: usize, lda: i32, values: usize, _work: usize, _size: i32,
        info: usize, _parameters: usize, problems: i32,
    ) {
        post(handle, &hermitian(KIND, (mode, fill, n.into()), (a, lda.into()), (values, info), problems.into())?)
    }

    [
        cusolverDnSgesvd_bufferSize => F32, cusolverDnDgesvd_bufferSize => F64,
        cusolverDnCgesvd_bufferSize => C32, cusolverDnZgesvd_bufferSize => C64
    ] (handle: usize, m: i32, n: i32, size: Out<i32>) {
        check(handle)?;
        count(m.into())?;
        count(n.into())?;
        size.set(WORK)
    }

    [
        cusolverDnSgesvd => F32, cusolverDnDgesvd => F64, cusolverDnCgesvd => C32, cusolverDnZgesvd => C64
    ] (
        handle: usize, job_u: i8, job_v: i8, m: i32, n: i32, a: usize, lda: i32, values: usize, u: usize, ldu: i32,
        v: usize, ldv: i32, _work: usize, _size: i32, _more: usize, info: usize,
    ) {
        let (u, v) = ((u, ldu.into()), (v, ldv.into()));
        let of = gesvd(KIND, (job_u, job_v), (m.into(), n.into()), (a, lda.into()), (values, info), u, v)?;
        post(handle, &of)
    }

    [
        cusolverDnSgesvdj_bufferSize => F32, cusolverDnDgesvdj_bufferSize => F64,
        cusolverDnCgesvdj_bufferSize => C32, cusolverDnZgesvdj_bufferSize => C64
    ] (
        handle: usize, mode: u32, thin: i32, m: i32, n: i32, a: usize, lda: i32, values: usize, u: usize, ldu: i32,
        v: usize, ldv: i32, size: Out<i32>, _parameters: usize,
    ) {
        check(handle)?;
        let (u, v) = ((u, ldu.into()), (v, ldv.into()));
        gesvdj(KIND, (mode, thin != 0), (m.into(), n.into()), (a, lda.into()), (values, 0), u, v, 1)?;
        size.set(WORK)
    }

    [
        cusolverDnSgesvdj => F32, cusolverDnDgesvdj => F64, cusolverDnCgesvdj => C32, cusolverDnZgesvdj => C64
    ] (
        handle: usize, mode: u32, thin: i32, m: i32, n: i32, a: usize, lda: i32, values: usize, u: usize, ldu: i32,
        v: usize, ldv: i32, _work: usize, _size: i32, info: usize, _parameters: usize,
    ) {
        let (u, v) = ((u, ldu.into()), (v, ldv.into()));
        let of = gesvdj(KIND, (mode, thin != 0), (m.into(), n.into()), (a, lda.into()), (values, info), u, v, 1)?;
        post(handle, &of)
    }

    [
        cusolverDnSgesvdjBatched_bufferSize => F32, cusolverDnDgesvdjBatched_bufferSize => F64,
        cusolverDnCgesvdjBatched_bufferSize => C32, cusolverDnZgesvdjBatched_bufferSize => C64
    ] (
        handle: usize, mode: u32, m: i32, n: i32, a: usize, lda: i32, values: usize, u: usize, ldu: i32, v: usize,
        ldv: i32, size: Out<i32>, _parameters: usize, problems: i32,
    ) {
        check(handle)?;
        let (u, v) = ((u, ldu.into()), (v, ldv.into()));
        let shape = (m.into(), n.into());
        gesvdj(KIND, (mode, false), shape, (a, lda.into()), (values, 0), u, v, problems.into())?;
        size.set(WORK)
    }

    [
        cusolverDnSgesvdjBatched => F32, cusolverDnDgesvdjBatched => F64,
        cusolverDnCgesvdjBatched => C32, cusolverDnZgesvdjBatched => C64
    ] (
        handle: usize, mode: u32, m: i32, n: i32, a: usize, lda: i32, values: usize, u: usize, ldu: i32, v: usize,
        ldv: i32, _work: usize, _size: i32, info: usize, _parameters: usize, problems: i32,
    ) {
        let (u, v) = ((u, ldu.into()), (v, ldv.into()));
        let shape = (m.into(), n.into());
        post(handle, &gesvdj(KIND, (mode, false), shape, (a, lda.into()), (values, info), u, v, problems.into())?)
    }
}
