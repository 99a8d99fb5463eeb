//! Matrices that are symmetric or triangular.

use std::ffi::c_void;

use rgpu_libraries::{Batch, Pairing, RankK, Side, Structure, SymmetricProduct, Transpose, Triangular};

use super::handle::{Call, matrix};
use super::status::{In, Result, unsupported};
use super::types::{C32, Count, Element, data_type, extent, fill, is_unit, leading, operation, side};

blas! {
    /// `cublasSsymm_v2` and its like.
    fn symm<T: Element, N: Count>(
        side: u32, uplo: u32, m: N, n: N, alpha: In<T>, a: *const T, lda: N, b: *const T, ldb: N,
        beta: In<T>, c: *mut T, ldc: N,
    ) |call| {
        symmetric(call, Structure::Symmetric, [side, uplo], [m, n], [alpha, beta], (a, lda), (b, ldb), (c, ldc))
    }

    /// `cublasChemm_v2` and its like.
    fn hemm<T: Element, N: Count>(
        side: u32, uplo: u32, m: N, n: N, alpha: In<T>, a: *const T, lda: N, b: *const T, ldb: N,
        beta: In<T>, c: *mut T, ldc: N,
    ) |call| {
        symmetric(call, Structure::Hermitian, [side, uplo], [m, n], [alpha, beta], (a, lda), (b, ldb), (c, ldc))
    }

    /// `cublasSsyrk_v2` and its like.
    fn syrk<T: Element, N: Count>(
        uplo: u32, trans: u32, n: N, k: N, alpha: In<T>, a: *const T, lda: N, beta: In<T>, c: *mut T, ldc: N,
    ) |call| {
        rank(call, (Structure::Symmetric, Pairing::Own), [uplo, trans], [n, k], alpha, beta, (a, lda), (a, lda), (c, ldc))
    }

    /// `cublasCherk_v2` and its like, whose factors are real.
    fn herk<T: Element, S: Element, N: Count>(
        uplo: u32, trans: u32, n: N, k: N, alpha: In<S>, a: *const T, lda: N, beta: In<S>, c: *mut T, ldc: N,
    ) |call| {
        rank(call, (Structure::Hermitian, Pairing::Own), [uplo, trans], [n, k], alpha, beta, (a, lda), (a, lda), (c, ldc))
    }

    /// `cublasSsyr2k_v2` and its like.
    fn syr2k<T: Element, N: Count>(
        uplo: u32, trans: u32, n: N, k: N, alpha: In<T>, a: *const T, lda: N, b: *const T, ldb: N,
        beta: In<T>, c: *mut T, ldc: N,
    ) |call| {
        rank(call, (Structure::Symmetric, Pairing::Both), [uplo, trans], [n, k], alpha, beta, (a, lda), (b, ldb), (c, ldc))
    }

    /// `cublasCher2k_v2` and its like, whose second factor is real.
    fn her2k<T: Element, S: Element, N: Count>(
        uplo: u32, trans: u32, n: N, k: N, alpha: In<T>, a: *const T, lda: N, b: *const T, ldb: N,
        beta: In<S>, c: *mut T, ldc: N,
    ) |call| {
        rank(call, (Structure::Hermitian, Pairing::Both), [uplo, trans], [n, k], alpha, beta, (a, lda), (b, ldb), (c, ldc))
    }

    /// `cublasSsyrkx` and its like.
    fn syrkx<T: Element, N: Count>(
        uplo: u32, trans: u32, n: N, k: N, alpha: In<T>, a: *const T, lda: N, b: *const T, ldb: N,
        beta: In<T>, c: *mut T, ldc: N,
    ) |call| {
        rank(call, (Structure::Symmetric, Pairing::One), [uplo, trans], [n, k], alpha, beta, (a, lda), (b, ldb), (c, ldc))
    }

    /// `cublasCherkx` and its like, whose second factor is real.
    fn herkx<T: Element, S: Element, N: Count>(
        uplo: u32, trans: u32, n: N, k: N, alpha: In<T>, a: *const T, lda: N, b: *const T, ldb: N,
        beta: In<S>, c: *mut T, ldc: N,
    ) |call| {
        rank(call, (Structure::Hermitian, Pairing::One), [uplo, trans], [n, k], alpha, beta, (a, lda), (b, ldb), (c, ldc))
    }

    /// `cublasCsyrkEx`, `cublasCsyrk3mEx`.
    fn syrk_ex<T: Element, N: Count>(
        uplo: u32, trans: u32, n: N, k: N, alpha: In<T>, a: *const c_void, a_type: u32, lda: N,
        beta: In<T>, c: *mut c_void, c_type: u32, ldc: N,
    ) |call| {
        check_complex::<T>([a_type, c_type])?;
        let (a, c) = ((a.cast::<T>(), lda), (c.cast::<T>(), ldc));
        rank(call, (Structure::Symmetric, Pairing::Own), [uplo, trans], [n, k], alpha, beta, a, a, c)
    }

    /// `cublasCherkEx`, `cublasCherk3mEx`.
    fn herk_ex<S: Element, N: Count>(
        uplo: u32, trans: u32, n: N, k: N, alpha: In<S>, a: *const c_void, a_type: u32, lda: N,
        beta: In<S>, c: *mut c_void, c_type: u32, ldc: N,
    ) |call| {
        check_complex::<C32>([a_type, c_type])?;
        let (a, c) = ((a.cast::<C32>(), lda), (c.cast::<C32>(), ldc));
        rank(call, (Structure::Hermitian, Pairing::Own), [uplo, trans], [n, k], alpha, beta, a, a, c)
    }

    /// `cublasStrmm_v2` and its like.
    fn trmm<T: Element, N: Count>(
        side: u32, uplo: u32, trans: u32, diag: u32, m: N, n: N, alpha: In<T>, a: *const T, lda: N,
        b: *const T, ldb: N, c: *mut T, ldc: N,
    ) |call| {
        let mut work = triangular(call, [side, uplo, trans, diag], [m, n], alpha, (a, lda), (b, ldb))?;
        work.c = matrix(c, T::KIND, leading("ldc", ldc, work.m)?);
        post(call, &work)
    }

    /// `cublasStrsm_v2` and its like.
    fn trsm<T: Element, N: Count>(
        side: u32, uplo: u32, trans: u32, diag: u32, m: N, n: N, alpha: In<T>, a: *const T, lda: N, b: *mut T, ldb: N,
    ) |call| {
        let mut work = triangular(call, [side, uplo, trans, diag], [m, n], alpha, (a, lda), (b.cast_const(), ldb))?;
        (work.solve, work.c) = (true, work.b.clone());
        post(call, &work)
    }

    /// `cublasStrsmBatched` and its like.
    fn trsm_batched<T: Element, N: Count>(
        side: u32, uplo: u32, trans: u32, diag: u32, m: N, n: N, alpha: In<T>, a: *const *const T, lda: N,
        b: *const *mut T, ldb: N, count: N,
    ) |call| {
        let (a, b) = ((a.cast::<T>(), lda), (b.cast::<T>(), ldb));
        let mut work = triangular(call, [side, uplo, trans, diag], [m, n], alpha, a, b)?;
        (work.solve, work.c) = (true, work.b.clone());
        (work.batch, work.count) = (Batch::Pointers, extent("batchCount", count)?);
        post(call, &work)
    }
}

/// Only matrices of the factors' own type are multiplied here.
fn check_complex<T: Element>(types: [u32; 2]) -> Result<()> {
    for kind in types {
        let kind = data_type(kind)?;
        if kind != T::KIND {
            return unsupported(&format!("An update of rank k with matrices of {kind:?}"));
        }
    }
    Ok(())
}

#[allow(clippy::too_many_arguments, reason = "those of the call")]
fn symmetric<T: Element, N: Count>(
    call: &Call,
    structure: Structure,
    [at, uplo]: [u32; 2],
    [m, n]: [N; 2],
    [alpha, beta]: [In<T>; 2],
    a: (*const T, N),
    b: (*const T, N),
    c: (*mut T, N),
) -> Result<()> {
    let (at, m, n) = (side(at)?, extent("m", m)?, extent("n", n)?);
    let work = SymmetricProduct {
        side: at,
        structure,
        fill: fill(uplo)?,
        m,
        n,
        alpha: call.scalar(alpha)?,
        a: matrix(a.0, T::KIND, leading("lda", a.1, if at == Side::Left { m } else { n })?),
        b: matrix(b.0, T::KIND, leading("ldb", b.1, m)?),
        beta: call.scalar(beta)?,
        c: matrix(c.0, T::KIND, leading("ldc", c.1, m)?),
        compute: T::KIND,
    };
    if m == 0 || n == 0 { Ok(()) } else { call.post(&work) }
}

#[allow(clippy::too_many_arguments, reason = "those of the call")]
fn rank<T: Element, A: Element, B: Element, N: Count>(
    call: &Call,
    (structure, pairing): (Structure, Pairing),
    [uplo, trans]: [u32; 2],
    [n, k]: [N; 2],
    alpha: In<A>,
    beta: In<B>,
    a: (*const T, N),
    b: (*const T, N),
    c: (*mut T, N),
) -> Result<()> {
    let (op, n, k) = (operation(trans)?, extent("n", n)?, extent("k", k)?);
    let rows = if op == Transpose::None { n } else { k };
    let work = RankK {
        structure,
        pairing,
        fill: fill(uplo)?,
        op,
        n,
        k,
        alpha: call.scalar(alpha)?,
        a: matrix(a.0, T::KIND, leading("lda", a.1, rows)?),
        b: matrix(b.0, T::KIND, leading("ldb", b.1, rows)?),
        beta: call.scalar(beta)?,
        c: matrix(c.0, T::KIND, leading("ldc", c.1, n)?),
        alpha_kind: A::KIND,
        beta_kind: B::KIND,
        compute: T::KIND,
    };
    if n == 0 { Ok(()) } else { call.post(&work) }
}

fn triangular<T: Element, N: Count>(
    call: &Call,
    [at, uplo, trans, diag]: [u32; 4],
    [m, n]: [N; 2],
    alpha: In<T>,
    a: (*const T, N),
    b: (*const T, N),
) -> Result<Triangular> {
    let (at, m, n) = (side(at)?, extent("m", m)?, extent("n", n)?);
    Ok(Triangular {
        side: at,
        fill: fill(uplo)?,
        op: operation(trans)?,
        unit: is_unit(diag)?,
        m,
        n,
        alpha: call.scalar(alpha)?,
        a: matrix(a.0, T::KIND, leading("lda", a.1, if at == Side::Left { m } else { n })?),
        b: matrix(b.0, T::KIND, leading("ldb", b.1, m)?),
        compute: T::KIND,
        count: 1,
        ..Triangular::default()
    })
}

fn post(call: &Call, work: &Triangular) -> Result<()> {
    if work.m == 0 || work.n == 0 || work.count == 0 { Ok(()) } else { call.post(work) }
}
