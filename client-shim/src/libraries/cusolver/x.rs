//! The interface whose types and sizes are arguments.

use rgpu_libraries::{Cholesky, DataType, Lu, Task};

use super::eigen::{gesvd, gesvdj, hermitian};
use super::factor::{cholesky, factors, solvable};
use super::handle::{check, post};
use super::qr::reflections;
use super::{CUSOLVER, WORK, count, kind_of, matrix};
use crate::libraries::math::{Kind, Out, Result, fail, math};

/// The size of work areas: one byte on the device, none on the host.
fn work(handle: usize, device: Out<usize>, host: Out<usize>) -> Result<()> {
    check(handle)?;
    device.set(WORK as usize)?;
    host.set(0)
}

/// Another matrix's type, which must be the same.
fn same(kind: DataType, other: u32) -> Result<()> {
    if kind_of(other)? == kind { Ok(()) } else { fail(Kind::InvalidType, "Matrices of different types") }
}

/// The type of real numbers that belongs to a type of elements.
fn real(kind: DataType, values: u32) -> Result<()> {
    let wanted = if matches!(kind, DataType::F32 | DataType::C32) { DataType::F32 } else { DataType::F64 };
    same(wanted, values)
}

math! {
    CUSOLVER;

    fn cusolverDnXpotrf_bufferSize(
        handle: usize, _parameters: usize, fill: u32, n: i64, kind: u32, a: usize, lda: i64, _computed: u32,
        device: Out<usize>, host: Out<usize>,
    ) {
        cholesky(Task::Factor, kind_of(kind)?, (fill, n), (a, lda), 0)?;
        work(handle, device, host)
    }

    fn cusolverDnXpotrf(
        handle: usize, _parameters: usize, fill: u32, n: i64, kind: u32, a: usize, lda: i64, _computed: u32,
        _device: usize, _device_bytes: usize, _host: usize, _host_bytes: usize, info: usize,
    ) {
        post(handle, &cholesky(Task::Factor, kind_of(kind)?, (fill, n), (a, lda), info)?)
    }

    fn cusolverDnXpotrs(
        handle: usize, _parameters: usize, fill: u32, n: i64, columns: i64, kind: u32, a: usize, lda: i64,
        kind_b: u32, b: usize, ldb: i64, info: usize,
    ) {
        let kind = kind_of(kind)?;
        same(kind, kind_b)?;
        let of = cholesky(Task::Solve, kind, (fill, n), (a, lda), info)?;
        let b = matrix(b, kind, of.n, ldb)?;
        post(handle, &Cholesky { columns: count(columns)?, b, ..of })
    }

    fn cusolverDnXgetrf_bufferSize(
        handle: usize, _parameters: usize, m: i64, n: i64, kind: u32, a: usize, lda: i64, _computed: u32,
        device: Out<usize>, host: Out<usize>,
    ) {
        factors(kind_of(kind)?, (m, n), (a, lda), (0, true), 0)?;
        work(handle, device, host)
    }

    fn cusolverDnXgetrf(
        handle: usize, _parameters: usize, m: i64, n: i64, kind: u32, a: usize, lda: i64, pivots: usize,
        _computed: u32, _device: usize, _device_bytes: usize, _host: usize, _host_bytes: usize, info: usize,
    ) {
        post(handle, &factors(kind_of(kind)?, (m, n), (a, lda), (pivots, true), info)?)
    }

    fn cusolverDnXgetrs(
        handle: usize, _parameters: usize, trans: u32, n: i64, columns: i64, kind: u32, a: usize, lda: i64,
        pivots: usize, kind_b: u32, b: usize, ldb: i64, info: usize,
    ) {
        let kind = kind_of(kind)?;
        same(kind, kind_b)?;
        let of = factors(kind, (n, n), (a, lda), (pivots, true), info)?;
        let b = matrix(b, kind, of.n, ldb)?;
        post(handle, &Lu { task: Task::Solve, op: solvable(trans)?, columns: count(columns)?, b, ..of })
    }

    fn cusolverDnXgeqrf_bufferSize(
        handle: usize, _parameters: usize, m: i64, n: i64, kind: u32, a: usize, lda: i64, kind_tau: u32, tau: usize,
        _computed: u32, device: Out<usize>, host: Out<usize>,
    ) {
        let kind = kind_of(kind)?;
        same(kind, kind_tau)?;
        reflections(kind, (m, n), (a, lda), tau, 0)?;
        work(handle, device, host)
    }

    fn cusolverDnXgeqrf(
        handle: usize, _parameters: usize, m: i64, n: i64, kind: u32, a: usize, lda: i64, kind_tau: u32, tau: usize,
        _computed: u32, _device: usize, _device_bytes: usize, _host: usize, _host_bytes: usize, info: usize,
    ) {
        let kind = kind_of(kind)?;
        same(kind, kind_tau)?;
        post(handle, &reflections(kind, (m, n), (a, lda), tau, info)?)
    }

    fn cusolverDnXsyevd_bufferSize(
        handle: usize, _parameters: usize, mode: u32, fill: u32, n: i64, kind: u32, a: usize, lda: i64,
        kind_values: u32, values: usize, _computed: u32, device: Out<usize>, host: Out<usize>,
    ) {
        let kind = kind_of(kind)?;
        real(kind, kind_values)?;
        hermitian(kind, (mode, fill, n), (a, lda), (values, 0), 1)?;
        work(handle, device, host)
    }

    fn cusolverDnXsyevd(
        handle: usize, _parameters: usize, mode: u32, fill: u32, n: i64, kind: u32, a: usize, lda: i64,
        kind_values: u32, values: usize, _computed: u32, _device: usize, _device_bytes: usize, _host: usize,
        _host_bytes: usize, info: usize,
    ) {
        let kind = kind_of(kind)?;
        real(kind, kind_values)?;
        post(handle, &hermitian(kind, (mode, fill, n), (a, lda), (values, info), 1)?)
    }

    fn cusolverDnXsyevBatched_bufferSize(
        handle: usize, _parameters: usize, mode: u32, fill: u32, n: i64, kind: u32, a: usize, lda: i64,
        kind_values: u32, values: usize, _computed: u32, device: Out<usize>, host: Out<usize>, problems: i64,
    ) {
        let kind = kind_of(kind)?;
        real(kind, kind_values)?;
        hermitian(kind, (mode, fill, n), (a, lda), (values, 0), problems)?;
        work(handle, device, host)
    }

    fn cusolverDnXsyevBatched(
        handle: usize, _parameters: usize, mode: u32, fill: u32, n: i64, kind: u32, a: usize, lda: i64,
        kind_values: u32, values: usize, _computed: u32, _device: usize, _device_bytes: usize, _host: usize,
        _host_bytes: usize, info: usize, problems: i64,
    ) {
        let kind = kind_of(kind)?;
        real(kind, kind_values)?;
        post(handle, &hermitian(kind, (mode, fill, n), (a, lda), (values, info), problems)?)
    }

    fn cusolverDnXgesvd_bufferSize(
        handle: usize, _parameters: usize, job_u: i8, job_v: i8, m: i64, n: i64, kind: u32, a: usize, lda: i64,
        kind_values: u32, values: usize, kind_u: u32, u: usize, ldu: i64, kind_v: u32, v: usize, ldv: i64,
        _computed: u32, device: Out<usize>, host: Out<usize>,
    ) {
        let kind = kind_of(kind)?;
        real(kind, kind_values)?;
        same(kind, kind_u)?;
        same(kind, kind_v)?;
        gesvd(kind, (job_u, job_v), (m, n), (a, lda), (values, 0), (u, ldu), (v, ldv))?;
        work(handle, device, host)
    }

    fn cusolverDnXgesvd(
        handle: usize, _parameters: usize, job_u: i8, job_v: i8, m: i64, n: i64, kind: u32, a: usize, lda: i64,
        kind_values: u32, values: usize, kind_u: u32, u: usize, ldu: i64, kind_v: u32, v: usize, ldv: i64,
        _computed: u32, _device: usize, _device_bytes: usize, _host: usize, _host_bytes: usize, info: usize,
    ) {
        let kind = kind_of(kind)?;
        real(kind, kind_values)?;
        same(kind, kind_u)?;
        same(kind, kind_v)?;
        post(handle, &gesvd(kind, (job_u, job_v), (m, n), (a, lda), (values, info), (u, ldu), (v, ldv))?)
    }

    fn cusolverDnXgesvdp_bufferSize(
        handle: usize, _parameters: usize, mode: u32, thin: i32, m: i64, n: i64, kind: u32, a: usize, lda: i64,
        kind_values: u32, values: usize, kind_u: u32, u: usize, ldu: i64, kind_v: u32, v: usize, ldv: i64,
        _computed: u32, device: Out<usize>, host: Out<usize>,
    ) {
        let kind = kind_of(kind)?;
        real(kind, kind_values)?;
        same(kind, kind_u)?;
        same(kind, kind_v)?;
        gesvdj(kind, (mode, thin != 0), (m, n), (a, lda), (values, 0), (u, ldu), (v, ldv), 1)?;
        work(handle, device, host)
    }

    /// Nothing is disturbed for the sake of speed, so what is written about that is 0.
    fn cusolverDnXgesvdp(
        handle: usize, _parameters: usize, mode: u32, thin: i32, m: i64, n: i64, kind: u32, a: usize, lda: i64,
        kind_values: u32, values: usize, kind_u: u32, u: usize, ldu: i64, kind_v: u32, v: usize, ldv: i64,
        _computed: u32, _device: usize, _device_bytes: usize, _host: usize, _host_bytes: usize, info: usize,
        error: Out<f64>,
    ) {
        let kind = kind_of(kind)?;
        real(kind, kind_values)?;
        same(kind, kind_u)?;
        same(kind, kind_v)?;
        let of = gesvdj(kind, (mode, thin != 0), (m, n), (a, lda), (values, info), (u, ldu), (v, ldv), 1)?;
        post(handle, &of)?;
        error.set_if_wanted(0.0);
        Ok(())
    }
}
