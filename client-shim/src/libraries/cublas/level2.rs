//! A matrix and vectors.

use rgpu_libraries::{Batch, Fill, MatrixVector, RankUpdate, Storage, Structure, TriangularVector};

use super::handle::{Call, matrix, vector};
use super::status::{In, Result};
use super::types::{Count, Element, extent, fill, is_unit, leading, operation, step};

/// Posts a product, unless there is nothing in it.
fn post(call: &Call, work: &MatrixVector) -> Result<()> {
    if work.m == 0 || work.n == 0 || work.count == 0 { Ok(()) } else { call.post(work) }
}

/// What products with symmetric matrices have in common.
fn symmetric<T: Element>(
    structure: Structure,
    storage: Storage,
    part: Fill,
    n: u64,
    diagonals: u64,
) -> MatrixVector {
    MatrixVector {
        structure,
        storage,
        fill: part,
        m: n,
        n,
        lower: diagonals,
        upper: diagonals,
        scalar: T::KIND,
        compute: T::KIND,
        count: 1,
        ..MatrixVector::default()
    }
}

/// A problem that lies behind another one.
fn general<T: Element, S: Element, Y: Element, N: Count>(
    call: &Call,
    trans: u32,
    [m, n]: [N; 2],
    [alpha, beta]: [In<S>; 2],
    a: (*const T, N, i64),
    x: (*const T, N, i64),
    y: (*mut Y, N, i64),
) -> Result<MatrixVector> {
    let (op, m, n) = (operation(trans)?, extent("m", m)?, extent("n", n)?);
    let a_matrix = matrix(a.0, T::KIND, leading("lda", a.1, m)?);
    Ok(MatrixVector {
        op,
        m,
        n,
        alpha: call.scalar(alpha)?,
        a: rgpu_libraries::Matrix { stride: a.2, ..a_matrix },
        x: rgpu_libraries::Vector { stride: x.2, ..vector(x.0, T::KIND, step("incx", x.1)?) },
        beta: call.scalar(beta)?,
        y: rgpu_libraries::Vector { stride: y.2, ..vector(y.0, Y::KIND, step("incy", y.1)?) },
        scalar: S::KIND,
        compute: S::KIND,
        count: 1,
        ..MatrixVector::default()
    })
}

blas! {
    /// `cublasSgemv_v2` and its like.
    fn gemv<T: Element, N: Count>(
        trans: u32, m: N, n: N, alpha: In<T>, a: *const T, lda: N, x: *const T, incx: N,
        beta: In<T>, y: *mut T, incy: N,
    ) |call| {
        post(call, &general(call, trans, [m, n], [alpha, beta], (a, lda, 0), (x, incx, 0), (y, incy, 0))?)
    }

    /// `cublasSgemvStridedBatched` and its like: of numbers of one type, with factors of another, into a third.
    fn gemv_strided<T: Element, S: Element, Y: Element, N: Count>(
        trans: u32, m: N, n: N, alpha: In<S>, a: *const T, lda: N, stride_a: i64, x: *const T, incx: N, stride_x: i64,
        beta: In<S>, y: *mut Y, incy: N, stride_y: i64, count: N,
    ) |call| {
        let (a, x, y) = ((a, lda, stride_a), (x, incx, stride_x), (y, incy, stride_y));
        let mut work = general(call, trans, [m, n], [alpha, beta], a, x, y)?;
        work.count = extent("batchCount", count)?;
        post(call, &work)
    }

    /// `cublasSgemvBatched` and its like.
    fn gemv_batched<T: Element, S: Element, Y: Element, N: Count>(
        trans: u32, m: N, n: N, alpha: In<S>, a: *const *const T, lda: N, x: *const *const T, incx: N,
        beta: In<S>, y: *const *mut Y, incy: N, count: N,
    ) |call| {
        let (a, x, y) = ((a.cast::<T>(), lda, 0), (x.cast::<T>(), incx, 0), (y.cast::<Y>().cast_mut(), incy, 0));
        let mut work = general(call, trans, [m, n], [alpha, beta], a, x, y)?;
        (work.batch, work.count) = (Batch::Pointers, extent("batchCount", count)?);
        post(call, &work)
    }

    /// `cublasSgbmv_v2` and its like.
    fn gbmv<T: Element, N: Count>(
        trans: u32, m: N, n: N, lower: N, upper: N, alpha: In<T>, a: *const T, lda: N, x: *const T, incx: N,
        beta: In<T>, y: *mut T, incy: N,
    ) |call| {
        let (lower, upper) = (extent("kl", lower)?, extent("ku", upper)?);
        let lda = leading("lda", lda, lower.saturating_add(upper).saturating_add(1))?;
        let work = MatrixVector {
            op: operation(trans)?,
            storage: Storage::Band,
            m: extent("m", m)?,
            n: extent("n", n)?,
            lower,
            upper,
            alpha: call.scalar(alpha)?,
            a: matrix(a, T::KIND, lda),
            x: vector(x, T::KIND, step("incx", incx)?),
            beta: call.scalar(beta)?,
            y: vector(y, T::KIND, step("incy", incy)?),
            scalar: T::KIND,
            compute: T::KIND,
            count: 1,
            ..MatrixVector::default()
        };
        post(call, &work)
    }

    /// `cublasSsymv_v2` and its like.
    fn symv<T: Element, N: Count>(
        uplo: u32, n: N, alpha: In<T>, a: *const T, lda: N, x: *const T, incx: N, beta: In<T>, y: *mut T, incy: N,
    ) |call| {
        mirrored(call, Structure::Symmetric, uplo, n, [alpha, beta], (a, lda), (x, incx), (y, incy))
    }

    /// `cublasChemv_v2` and its like.
    fn hemv<T: Element, N: Count>(
        uplo: u32, n: N, alpha: In<T>, a: *const T, lda: N, x: *const T, incx: N, beta: In<T>, y: *mut T, incy: N,
    ) |call| {
        mirrored(call, Structure::Hermitian, uplo, n, [alpha, beta], (a, lda), (x, incx), (y, incy))
    }

    /// `cublasSsbmv_v2` and its like.
    fn sbmv<T: Element, N: Count>(
        uplo: u32, n: N, k: N, alpha: In<T>, a: *const T, lda: N, x: *const T, incx: N,
        beta: In<T>, y: *mut T, incy: N,
    ) |call| {
        banded(call, Structure::Symmetric, uplo, [n, k], [alpha, beta], (a, lda), (x, incx), (y, incy))
    }

    /// `cublasChbmv_v2` and its like.
    fn hbmv<T: Element, N: Count>(
        uplo: u32, n: N, k: N, alpha: In<T>, a: *const T, lda: N, x: *const T, incx: N,
        beta: In<T>, y: *mut T, incy: N,
    ) |call| {
        banded(call, Structure::Hermitian, uplo, [n, k], [alpha, beta], (a, lda), (x, incx), (y, incy))
    }

    /// `cublasSspmv_v2` and its like.
    fn spmv<T: Element, N: Count>(
        uplo: u32, n: N, alpha: In<T>, a: *const T, x: *const T, incx: N, beta: In<T>, y: *mut T, incy: N,
    ) |call| {
        packed(call, Structure::Symmetric, uplo, n, [alpha, beta], a, (x, incx), (y, incy))
    }

    /// `cublasChpmv_v2` and its like.
    fn hpmv<T: Element, N: Count>(
        uplo: u32, n: N, alpha: In<T>, a: *const T, x: *const T, incx: N, beta: In<T>, y: *mut T, incy: N,
    ) |call| {
        packed(call, Structure::Hermitian, uplo, n, [alpha, beta], a, (x, incx), (y, incy))
    }

    /// `cublasStrmv_v2` and its like.
    fn trmv<T: Element, N: Count>(uplo: u32, trans: u32, diag: u32, n: N, a: *const T, lda: N, x: *mut T, incx: N) |call| {
        triangular(call, false, Storage::Full, [uplo, trans, diag], [n, N::of(0)], (a, Some(lda)), (x, incx))
    }

    /// `cublasStrsv_v2` and its like.
    fn trsv<T: Element, N: Count>(uplo: u32, trans: u32, diag: u32, n: N, a: *const T, lda: N, x: *mut T, incx: N) |call| {
        triangular(call, true, Storage::Full, [uplo, trans, diag], [n, N::of(0)], (a, Some(lda)), (x, incx))
    }

    /// `cublasStbmv_v2` and its like.
    fn tbmv<T: Element, N: Count>(
        uplo: u32, trans: u32, diag: u32, n: N, k: N, a: *const T, lda: N, x: *mut T, incx: N,
    ) |call| {
        triangular(call, false, Storage::Band, [uplo, trans, diag], [n, k], (a, Some(lda)), (x, incx))
    }

    /// `cublasStbsv_v2` and its like.
    fn tbsv<T: Element, N: Count>(
        uplo: u32, trans: u32, diag: u32, n: N, k: N, a: *const T, lda: N, x: *mut T, incx: N,
    ) |call| {
        triangular(call, true, Storage::Band, [uplo, trans, diag], [n, k], (a, Some(lda)), (x, incx))
    }

    /// `cublasStpmv_v2` and its like.
    fn tpmv<T: Element, N: Count>(uplo: u32, trans: u32, diag: u32, n: N, a: *const T, x: *mut T, incx: N) |call| {
        triangular(call, false, Storage::Packed, [uplo, trans, diag], [n, N::of(0)], (a, None), (x, incx))
    }

    /// `cublasStpsv_v2` and its like.
    fn tpsv<T: Element, N: Count>(uplo: u32, trans: u32, diag: u32, n: N, a: *const T, x: *mut T, incx: N) |call| {
        triangular(call, true, Storage::Packed, [uplo, trans, diag], [n, N::of(0)], (a, None), (x, incx))
    }

    /// `cublasSger_v2`, `cublasCgeru_v2` and their like.
    fn ger<T: Element, N: Count>(
        m: N, n: N, alpha: In<T>, x: *const T, incx: N, y: *const T, incy: N, a: *mut T, lda: N,
    ) |call| {
        product(call, false, [m, n], alpha, (x, incx), (y, incy), (a, lda))
    }

    /// `cublasCgerc_v2` and its like.
    fn gerc<T: Element, N: Count>(
        m: N, n: N, alpha: In<T>, x: *const T, incx: N, y: *const T, incy: N, a: *mut T, lda: N,
    ) |call| {
        product(call, true, [m, n], alpha, (x, incx), (y, incy), (a, lda))
    }

    /// `cublasSsyr_v2` and its like.
    fn syr<T: Element, N: Count>(uplo: u32, n: N, alpha: In<T>, x: *const T, incx: N, a: *mut T, lda: N) |call| {
        update(call, Structure::Symmetric, uplo, n, alpha, (x, incx), None, (a, Some(lda)))
    }

    /// `cublasCher_v2` and its like, whose factor is real.
    fn her<T: Element, S: Element, N: Count>(uplo: u32, n: N, alpha: In<S>, x: *const T, incx: N, a: *mut T, lda: N) |call| {
        update(call, Structure::Hermitian, uplo, n, alpha, (x, incx), None, (a, Some(lda)))
    }

    /// `cublasSspr_v2` and its like.
    fn spr<T: Element, N: Count>(uplo: u32, n: N, alpha: In<T>, x: *const T, incx: N, a: *mut T) |call| {
        update(call, Structure::Symmetric, uplo, n, alpha, (x, incx), None, (a, None))
    }

    /// `cublasChpr_v2` and its like, whose factor is real.
    fn hpr<T: Element, S: Element, N: Count>(uplo: u32, n: N, alpha: In<S>, x: *const T, incx: N, a: *mut T) |call| {
        update(call, Structure::Hermitian, uplo, n, alpha, (x, incx), None, (a, None))
    }

    /// `cublasSsyr2_v2` and its like.
    fn syr2<T: Element, N: Count>(
        uplo: u32, n: N, alpha: In<T>, x: *const T, incx: N, y: *const T, incy: N, a: *mut T, lda: N,
    ) |call| {
        update(call, Structure::Symmetric, uplo, n, alpha, (x, incx), Some((y, incy)), (a, Some(lda)))
    }

    /// `cublasCher2_v2` and its like.
    fn her2<T: Element, N: Count>(
        uplo: u32, n: N, alpha: In<T>, x: *const T, incx: N, y: *const T, incy: N, a: *mut T, lda: N,
    ) |call| {
        update(call, Structure::Hermitian, uplo, n, alpha, (x, incx), Some((y, incy)), (a, Some(lda)))
    }

    /// `cublasSspr2_v2` and its like.
    fn spr2<T: Element, N: Count>(
        uplo: u32, n: N, alpha: In<T>, x: *const T, incx: N, y: *const T, incy: N, a: *mut T,
    ) |call| {
        update(call, Structure::Symmetric, uplo, n, alpha, (x, incx), Some((y, incy)), (a, None))
    }

    /// `cublasChpr2_v2` and its like.
    fn hpr2<T: Element, N: Count>(
        uplo: u32, n: N, alpha: In<T>, x: *const T, incx: N, y: *const T, incy: N, a: *mut T,
    ) |call| {
        update(call, Structure::Hermitian, uplo, n, alpha, (x, incx), Some((y, incy)), (a, None))
    }
}

/// A product with a symmetric or Hermitian matrix whose form has been said.
fn finish<T: Element, N: Count>(
    call: &Call,
    mut work: MatrixVector,
    [alpha, beta]: [In<T>; 2],
    x: (*const T, N),
    y: (*mut T, N),
) -> Result<()> {
    work.x = vector(x.0, T::KIND, step("incx", x.1)?);
    work.y = vector(y.0, T::KIND, step("incy", y.1)?);
    (work.alpha, work.beta) = (call.scalar(alpha)?, call.scalar(beta)?);
    post(call, &work)
}

#[allow(clippy::too_many_arguments, reason = "those of the call")]
fn mirrored<T: Element, N: Count>(
    call: &Call,
    structure: Structure,
    uplo: u32,
    n: N,
    factors: [In<T>; 2],
    a: (*const T, N),
    x: (*const T, N),
    y: (*mut T, N),
) -> Result<()> {
    let n = extent("n", n)?;
    let mut work = symmetric::<T>(structure, Storage::Full, fill(uplo)?, n, 0);
    work.a = matrix(a.0, T::KIND, leading("lda", a.1, n)?);
    finish(call, work, factors, x, y)
}

#[allow(clippy::too_many_arguments, reason = "those of the call")]
fn banded<T: Element, N: Count>(
    call: &Call,
    structure: Structure,
    uplo: u32,
    [n, k]: [N; 2],
    factors: [In<T>; 2],
    a: (*const T, N),
    x: (*const T, N),
    y: (*mut T, N),
) -> Result<()> {
    let (n, k) = (extent("n", n)?, extent("k", k)?);
    let mut work = symmetric::<T>(structure, Storage::Band, fill(uplo)?, n, k);
    work.a = matrix(a.0, T::KIND, leading("lda", a.1, k.saturating_add(1))?);
    finish(call, work, factors, x, y)
}

#[allow(clippy::too_many_arguments, reason = "those of the call")]
fn packed<T: Element, N: Count>(
    call: &Call,
    structure: Structure,
    uplo: u32,
    n: N,
    factors: [In<T>; 2],
    a: *const T,
    x: (*const T, N),
    y: (*mut T, N),
) -> Result<()> {
    let mut work = symmetric::<T>(structure, Storage::Packed, fill(uplo)?, extent("n", n)?, 0);
    work.a = matrix(a, T::KIND, 0);
    finish(call, work, factors, x, y)
}

fn triangular<T: Element, N: Count>(
    call: &Call,
    solve: bool,
    storage: Storage,
    [uplo, trans, diag]: [u32; 3],
    [n, k]: [N; 2],
    (a, lda): (*const T, Option<N>),
    (x, incx): (*mut T, N),
) -> Result<()> {
    let (n, diagonals) = (extent("n", n)?, extent("k", k)?);
    let column = if storage == Storage::Band { diagonals.saturating_add(1) } else { n };
    let ld = lda.map_or(Ok(0), |lda| leading("lda", lda, column))?;
    let work = TriangularVector {
        solve,
        op: operation(trans)?,
        storage,
        fill: fill(uplo)?,
        unit: is_unit(diag)?,
        n,
        diagonals,
        a: matrix(a, T::KIND, ld),
        x: vector(x, T::KIND, step("incx", incx)?),
        compute: T::KIND,
    };
    if n == 0 { Ok(()) } else { call.post(&work) }
}

fn product<T: Element, N: Count>(
    call: &Call,
    conjugated: bool,
    [m, n]: [N; 2],
    alpha: In<T>,
    x: (*const T, N),
    y: (*const T, N),
    a: (*mut T, N),
) -> Result<()> {
    let (m, n) = (extent("m", m)?, extent("n", n)?);
    let work = RankUpdate {
        conjugated,
        m,
        n,
        alpha: call.scalar(alpha)?,
        x: vector(x.0, T::KIND, step("incx", x.1)?),
        y: vector(y.0, T::KIND, step("incy", y.1)?),
        a: matrix(a.0, T::KIND, leading("lda", a.1, m)?),
        scalar: T::KIND,
        compute: T::KIND,
        ..RankUpdate::default()
    };
    if m == 0 || n == 0 { Ok(()) } else { call.post(&work) }
}

#[allow(clippy::too_many_arguments, reason = "those of the call")]
fn update<T: Element, S: Element, N: Count>(
    call: &Call,
    structure: Structure,
    uplo: u32,
    n: N,
    alpha: In<S>,
    x: (*const T, N),
    y: Option<(*const T, N)>,
    (a, lda): (*mut T, Option<N>),
) -> Result<()> {
    let n = extent("n", n)?;
    let (storage, ld) = match lda {
        Some(lda) => (Storage::Full, leading("lda", lda, n)?),
        None => (Storage::Packed, 0),
    };
    let vector_x = vector(x.0, T::KIND, step("incx", x.1)?);
    let work = RankUpdate {
        structure,
        twice: y.is_some(),
        storage,
        fill: fill(uplo)?,
        m: n,
        n,
        alpha: call.scalar(alpha)?,
        y: match y {
            Some((y, incy)) => vector(y, T::KIND, step("incy", incy)?),
            None => vector_x.clone(),
        },
        x: vector_x,
        a: matrix(a, T::KIND, ld),
        scalar: S::KIND,
        compute: T::KIND,
        ..RankUpdate::default()
    };
    if n == 0 { Ok(()) } else { call.post(&work) }
}
