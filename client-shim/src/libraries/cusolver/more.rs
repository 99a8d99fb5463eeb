//! Symmetric matrices that are not definite, the largest singular values, eigenvalues of any matrix, and bidiagonal forms.

use rgpu_libraries::{Bidiagonal, DataType, Eigen, Indefinite, LargestSvd, Matrix, Task};

use super::handle::{check, post, queue};
use super::{CUSOLVER, WORK, count, kind_of, matrix, typed, upper, vectors};
use crate::libraries::math::{Kind, Out, Result, fail, home, invalid, math, missing};

/// Symmetric factors. Where there is no place for exchanges of rows, there are none.
fn indefinite(
    kind: DataType,
    (fill, n): (u32, i64),
    (a, lda): (usize, i64),
    (pivots, wide): (usize, bool),
    info: usize,
) -> Result<Indefinite> {
    let n = count(n)?;
    let (a, upper) = (matrix(a, kind, n, lda)?, upper(fill)?);
    Ok(Indefinite { upper, n, a, pivots: pivots as u64, wide, info: info as u64, ..Indefinite::default() })
}

/// A system with symmetric factors.
#[allow(clippy::too_many_arguments, reason = "so the calls are")]
fn system(
    (fill, n, columns): (u32, i64, i64),
    (kind, a, lda): (u32, usize, i64),
    pivots: usize,
    (kind_b, b, ldb): (u32, usize, i64),
    info: usize,
) -> Result<Indefinite> {
    let kind = kind_of(kind)?;
    if kind_of(kind_b)? != kind {
        return fail(Kind::InvalidType, "Matrices of different types");
    }
    let of = indefinite(kind, (fill, n), (a, lda), (pivots, true), info)?;
    let (b, columns) = (matrix(b, kind, of.n, ldb)?, count(columns)?);
    Ok(Indefinite { task: Task::Solve, b, columns, ..of })
}

/// An address, and the distances of columns and of problems.
type Place = (usize, i32, i64);

/// The largest singular values of a batch.
fn largest(
    kind: DataType,
    (mode, rank): (u32, i32),
    (m, n): (i32, i32),
    a: Place,
    (values, stride): (usize, i64),
    (u, v): (Place, Place),
    problems: i32,
) -> Result<LargestSvd> {
    let (m, n, rank) = (count(m.into())?, count(n.into())?, count(rank.into())?);
    if m < n || rank > n {
        return invalid(format!("{rank} singular values of {m} x {n}, of which the rows must not be less"));
    }
    let place = |(addr, ld, stride): Place, rows: u64| {
        let matrix = matrix(addr, kind, rows, ld.into())?;
        Ok::<_, crate::libraries::math::Failure>(Matrix { stride, ..matrix })
    };
    let wanted = vectors(mode)?;
    let of = |at: Place, rows: u64| if wanted { place(at, rows) } else { Ok(Matrix::default()) };
    Ok(LargestSvd {
        m,
        n,
        rank,
        a: place(a, m)?,
        values: values as u64,
        stride: count(stride)?,
        u: of(u, m)?,
        v: of(v, n)?,
        count: count(problems.into())?,
        ..LargestSvd::default()
    })
}

/// The work area of [`largest`]: a number of 64 bits for each problem, in elements.
fn work_of_largest(kind: DataType, problems: i32) -> Result<i32> {
    let elements = (count(problems.into())? * 8).div_ceil(kind.bytes()).max(1);
    i32::try_from(elements).or_else(|_| invalid(format!("A batch of {problems} problems")))
}

/// Eigenvalues of a matrix of this type, and right vectors if they are wanted.
struct Asked {
    left: u32,
    right: u32,
    n: i64,
    a: (u32, usize, i64),
    values: (u32, usize),
    vectors: (u32, usize, i64),
}

impl Asked {
    fn operation(&self, info: usize) -> Result<Eigen> {
        if vectors(self.left)? {
            return missing("cuSOLVER: left eigenvectors, which NVIDIA's library does not have either");
        }
        let kind = kind_of(self.a.0)?;
        let is_real = matches!(kind, DataType::F32 | DataType::F64);
        let complex =
            if matches!(kind, DataType::F32 | DataType::C32) { DataType::C32 } else { DataType::C64 };
        let of_values = kind_of(self.values.0)?;
        // The values of a real matrix are complex numbers, or their parts.
        let apart = is_real && of_values == kind;
        if !apart && of_values != complex {
            return fail(Kind::InvalidType, "Eigenvalues of a type that is not their matrix's");
        }
        let n = count(self.n)?;
        let vectors = if vectors(self.right)? {
            if kind_of(self.vectors.0)? != kind {
                return fail(Kind::InvalidType, "Eigenvectors of another type than their matrix");
            }
            matrix(self.vectors.1, kind, n, self.vectors.2)?
        } else {
            Matrix::default()
        };
        let (a, values) = (matrix(self.a.1, kind, n, self.a.2)?, self.values.1 as u64);
        Ok(Eigen { n, a, values, apart, vectors, info: info as u64 })
    }
}

typed! {
    [
        cusolverDnSsytrf_bufferSize => F32, cusolverDnDsytrf_bufferSize => F64,
        cusolverDnCsytrf_bufferSize => C32, cusolverDnZsytrf_bufferSize => C64
    ] (handle: usize, n: i32, a: usize, lda: i32, size: Out<i32>) {
        check(handle)?;
        indefinite(KIND, (0, n.into()), (a, lda.into()), (0, false), 0)?;
        size.set(WORK)
    }

    [
        cusolverDnSsytrf => F32, cusolverDnDsytrf => F64, cusolverDnCsytrf => C32, cusolverDnZsytrf => C64
    ] (
        handle: usize, fill: u32, n: i32, a: usize, lda: i32, pivots: usize, _work: usize, _size: i32, info: usize,
    ) {
        post(handle, &indefinite(KIND, (fill, n.into()), (a, lda.into()), (pivots, false), info)?)
    }

    [
        cusolverDnSgesvdaStridedBatched_bufferSize => F32, cusolverDnDgesvdaStridedBatched_bufferSize => F64,
        cusolverDnCgesvdaStridedBatched_bufferSize => C32, cusolverDnZgesvdaStridedBatched_bufferSize => C64
    ] (
        handle: usize, mode: u32, rank: i32, m: i32, n: i32, a: usize, lda: i32, stride_a: i64, values: usize,
        stride: i64, u: usize, ldu: i32, stride_u: i64, v: usize, ldv: i32, stride_v: i64, size: Out<i32>, problems: i32,
    ) {
        check(handle)?;
        let vectors = ((u, ldu, stride_u), (v, ldv, stride_v));
        largest(KIND, (mode, rank), (m, n), (a, lda, stride_a), (values, stride), vectors, problems)?;
        size.set(work_of_largest(KIND, problems)?)
    }

    [
        cusolverDnSgesvdaStridedBatched => F32, cusolverDnDgesvdaStridedBatched => F64,
        cusolverDnCgesvdaStridedBatched => C32, cusolverDnZgesvdaStridedBatched => C64
    ] (
        handle: usize, mode: u32, rank: i32, m: i32, n: i32, a: usize, lda: i32, stride_a: i64, values: usize,
        stride: i64, u: usize, ldu: i32, stride_u: i64, v: usize, ldv: i32, stride_v: i64, work: usize, size: i32,
        info: usize, residuals: usize, problems: i32,
    ) {
        let vectors = ((u, ldu, stride_u), (v, ldv, stride_v));
        let of = largest(KIND, (mode, rank), (m, n), (a, lda, stride_a), (values, stride), vectors, problems)?;
        let of = LargestSvd { info: info as u64, ..of };
        if residuals == 0 {
            return post(handle, &of);
        }
        if work == 0 || size < work_of_largest(KIND, problems)? {
            return invalid("The work area is too small for the residuals");
        }
        // The residuals are the program's own numbers, so this waits.
        let (queue, count) = (queue(handle)?, of.count as usize);
        queue.post(&LargestSvd { residuals: work as u64, ..of })?;
        let found: Vec<i64> = home(&queue, work as u64, count)?;
        for (index, bits) in found.into_iter().enumerate() {
            // SAFETY: by the call's description, there is room for a number for each problem.
            unsafe { (residuals as *mut i64).add(index).write_unaligned(bits) };
        }
        Ok(())
    }

    [
        cusolverDnSgebrd_bufferSize => F32, cusolverDnDgebrd_bufferSize => F64,
        cusolverDnCgebrd_bufferSize => C32, cusolverDnZgebrd_bufferSize => C64
    ] (handle: usize, m: i32, n: i32, size: Out<i32>) {
        check(handle)?;
        count(m.into())?;
        count(n.into())?;
        size.set(WORK)
    }

    [
        cusolverDnSgebrd => F32, cusolverDnDgebrd => F64, cusolverDnCgebrd => C32, cusolverDnZgebrd => C64
    ] (
        handle: usize, m: i32, n: i32, a: usize, lda: i32, diagonal: usize, beside: usize, tau_q: usize, tau_p: usize,
        _work: usize, _size: i32, info: usize,
    ) {
        let (m, n) = (count(m.into())?, count(n.into())?);
        post(handle, &Bidiagonal {
            m,
            n,
            a: matrix(a, KIND, m, lda.into())?,
            diagonal: diagonal as u64,
            beside: beside as u64,
            tau_q: tau_q as u64,
            tau_p: tau_p as u64,
            info: info as u64,
        })
    }
}

math! {
    CUSOLVER;

    fn cusolverDnXsytrs_bufferSize(
        handle: usize, fill: u32, n: i64, columns: i64, kind: u32, a: usize, lda: i64, pivots: usize, kind_b: u32,
        b: usize, ldb: i64, device: Out<usize>, host: Out<usize>,
    ) {
        check(handle)?;
        system((fill, n, columns), (kind, a, lda), pivots, (kind_b, b, ldb), 0)?;
        device.set(WORK as usize)?;
        host.set(0)
    }

    fn cusolverDnXsytrs(
        handle: usize, fill: u32, n: i64, columns: i64, kind: u32, a: usize, lda: i64, pivots: usize, kind_b: u32,
        b: usize, ldb: i64, _device: usize, _device_bytes: usize, _host: usize, _host_bytes: usize, info: usize,
    ) {
        post(handle, &system((fill, n, columns), (kind, a, lda), pivots, (kind_b, b, ldb), info)?)
    }

    fn cusolverDnXgeev_bufferSize(
        handle: usize, _parameters: usize, left: u32, right: u32, n: i64, kind: u32, a: usize, lda: i64,
        kind_values: u32, values: usize, _kind_left: u32, _vl: usize, _ldvl: i64, kind_right: u32, vr: usize, ldvr: i64,
        _computed: u32, device: Out<usize>, host: Out<usize>,
    ) {
        check(handle)?;
        let (values, vectors) = ((kind_values, values), (kind_right, vr, ldvr));
        Asked { left, right, n, a: (kind, a, lda), values, vectors }.operation(0)?;
        device.set(WORK as usize)?;
        host.set(0)
    }

    fn cusolverDnXgeev(
        handle: usize, _parameters: usize, left: u32, right: u32, n: i64, kind: u32, a: usize, lda: i64,
        kind_values: u32, values: usize, _kind_left: u32, _vl: usize, _ldvl: i64, kind_right: u32, vr: usize, ldvr: i64,
        _computed: u32, _device: usize, _device_bytes: usize, _host: usize, _host_bytes: usize, info: usize,
    ) {
        let (values, vectors) = ((kind_values, values), (kind_right, vr, ldvr));
        post(handle, &Asked { left, right, n, a: (kind, a, lda), values, vectors }.operation(info)?)
    }
}
