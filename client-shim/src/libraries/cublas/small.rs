//! Sums, diagonal matrices, and many small matrices at once.

use rgpu_libraries::{AddMatrices, Factoring, Factors, ScaleMatrix, Side, Transpose};

use super::handle::{Call, matrix, vector};
use super::status::{In, Out, Result, invalid};
use super::types::{Element, extent, leading, operation, side};

blas! {
    /// `cublasSgeam` and its like.
    fn geam<T: Element, N: Count>(
        transa: u32, transb: u32, m: N, n: N, alpha: In<T>, a: *const T, lda: N, beta: In<T>, b: *const T, ldb: N,
        c: *mut T, ldc: N,
    ) |call| {
        let (op_a, op_b) = (operation(transa)?, operation(transb)?);
        let (m, n) = (extent("m", m)?, extent("n", n)?);
        let rows = |op| if op == Transpose::None { m } else { n };
        let work = AddMatrices {
            op_a,
            op_b,
            m,
            n,
            alpha: call.scalar(alpha)?,
            a: matrix(a, T::KIND, leading("lda", lda, rows(op_a))?),
            beta: call.scalar(beta)?,
            b: matrix(b, T::KIND, leading("ldb", ldb, rows(op_b))?),
            c: matrix(c, T::KIND, leading("ldc", ldc, m)?),
            scalar: T::KIND,
            compute: T::KIND,
            count: 1,
        };
        if m == 0 || n == 0 { Ok(()) } else { call.post(&work) }
    }

    /// `cublasSdgmm` and its like.
    fn dgmm<T: Element, N: Count>(
        mode: u32, m: N, n: N, a: *const T, lda: N, x: *const T, incx: N, c: *mut T, ldc: N,
    ) |call| {
        let (at, m, n) = (side(mode)?, extent("m", m)?, extent("n", n)?);
        let (a, c) = (matrix(a, T::KIND, leading("lda", lda, m)?), matrix(c, T::KIND, leading("ldc", ldc, m)?));
        let x = vector(x, T::KIND, incx.get());
        let side = if at == Side::Left { Side::Left } else { Side::Right };
        if m == 0 || n == 0 { Ok(()) } else { call.post(&ScaleMatrix { side, m, n, a, x, c, compute: T::KIND }) }
    }

    /// `cublasSgetrfBatched` and its like.
    fn getrf<T: Element>(n: i32, a: *const *mut T, lda: i32, pivots: *mut i32, info: *mut i32, count: i32) |call| {
        let work = factors(Factoring::Factor, n, (a.cast::<T>(), lda), pivots, (std::ptr::null(), lda), info, count)?;
        post(call, &work)
    }

    /// `cublasSgetriBatched` and its like.
    fn getri<T: Element>(
        n: i32, a: *const *const T, lda: i32, pivots: *const i32, c: *const *mut T, ldc: i32, info: *mut i32, count: i32,
    ) |call| {
        let (a, c) = ((a.cast::<T>(), lda), (c.cast::<T>(), ldc));
        post(call, &factors(Factoring::Invert, n, a, pivots, c, info, count)?)
    }

    /// `cublasSmatinvBatched` and its like.
    fn matinv<T: Element>(
        n: i32, a: *const *const T, lda: i32, inverse: *const *mut T, ld_inverse: i32, info: *mut i32, count: i32,
    ) |call| {
        if n > 32 {
            return invalid("a matrix of more than 32 rows");
        }
        let (a, c) = ((a.cast::<T>(), lda), (inverse.cast::<T>(), ld_inverse));
        post(call, &factors(Factoring::InvertDirectly, n, a, std::ptr::null(), c, info, count)?)
    }

    /// `cublasSgetrsBatched` and its like, whose `info` is the host's and says which argument is wrong.
    fn getrs<T: Element>(
        trans: u32, n: i32, columns: i32, a: *const *const T, lda: i32, pivots: *const i32, b: *const *mut T, ldb: i32,
        info: Out<i32>, count: i32,
    ) |call| {
        info.check()?;
        let wrong = [n < 0, columns < 0, a.is_null(), lda < n.max(1), false, b.is_null(), ldb < n.max(1), false, count < 0];
        if let Some(at) = wrong.iter().position(|wrong| *wrong) {
            info.set(-(at as i32 + 2))?;
            return invalid("an argument makes no sense");
        }
        let (a, b) = ((a.cast::<T>(), lda), (b.cast::<T>(), ldb));
        let mut work = factors(Factoring::Solve, n, a, pivots, b, std::ptr::null(), count)?;
        (work.op, work.columns) = (operation(trans)?, columns as u64);
        info.set(0)?;
        if columns == 0 { Ok(()) } else { post(call, &work) }
    }
}

fn factors<T: Element>(
    what: Factoring,
    n: i32,
    a: (*const T, i32),
    pivots: *const i32,
    b: (*const T, i32),
    info: *const i32,
    count: i32,
) -> Result<Factors> {
    let (rows, count) = (extent("n", n)?, extent("batchSize", count)?);
    Ok(Factors {
        what,
        n: rows,
        a: matrix(a.0, T::KIND, leading("lda", a.1, rows)?),
        pivots: pivots as u64,
        b: matrix(b.0, T::KIND, leading("ldb", b.1, rows)?),
        info: info as u64,
        compute: T::KIND,
        count,
        ..Factors::default()
    })
}

fn post(call: &Call, work: &Factors) -> Result<()> {
    if work.n == 0 || work.count == 0 { Ok(()) } else { call.post(work) }
}
