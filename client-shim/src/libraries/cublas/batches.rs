//! Orthogonal factorisations and least squares of many matrices at once, and triangles that are stored without gaps.

use rgpu_libraries::{Batch, LeastSquares, Matrix, PackTriangle, QrBatch};

use super::handle::matrix;
use super::status::{Out, Result, invalid, unsupported};
use super::types::{extent, fill, leading, operation};

/// Says which argument is wrong, where one is; `info` is the host's.
fn check(info: Out<i32>, wrong: &[bool], first: i32) -> Result<()> {
    info.check()?;
    let Some(at) = wrong.iter().position(|wrong| *wrong) else { return info.set(0) };
    info.set(-(at as i32 + first))?;
    invalid("an argument makes no sense")
}

blas! {
    /// `cublasSgeqrfBatched` and its like.
    fn geqrf<T: Element>(
        m: i32, n: i32, a: *const *mut T, lda: i32, tau: *const *mut T, info: Out<i32>, count: i32,
    ) |call| {
        check(info, &[m < 0, n < 0, a.is_null(), lda < m.max(1), tau.is_null(), false, count < 0], 1)?;
        let work = QrBatch {
            m: extent("m", m)?,
            n: extent("n", n)?,
            a: matrix(a, T::KIND, leading("lda", lda, m as u64)?),
            tau: tau as u64,
            count: extent("batchSize", count)?,
        };
        if m == 0 || n == 0 || count == 0 { Ok(()) } else { call.post(&work) }
    }

    /// `cublasSgelsBatched` and its like. As NVIDIA's library, it solves with matrices as they are, and at least as many rows as columns.
    fn gels<T: Element>(
        trans: u32, m: i32, n: i32, columns: i32, a: *const *mut T, lda: i32, c: *const *mut T, ldc: i32,
        info: Out<i32>, on_device: *mut i32, count: i32,
    ) |call| {
        let op = operation(trans)?;
        let wrong = [
            m < 0, n < 0, columns < 0, a.is_null(), lda < m.max(1), c.is_null(), ldc < m.max(1), false, false, count < 0,
        ];
        check(info, &wrong, 2)?;
        if op != rgpu_libraries::Transpose::None || m < n {
            return unsupported("Least squares with transposed matrices, or with less equations than unknowns");
        }
        let work = LeastSquares {
            m: extent("m", m)?,
            n: extent("n", n)?,
            columns: extent("nrhs", columns)?,
            a: matrix(a, T::KIND, leading("lda", lda, m as u64)?),
            keeps: true,
            b: matrix(c, T::KIND, leading("ldc", ldc, m as u64)?),
            x: Matrix::default(),
            info: on_device as u64,
            batch: Batch::Pointers,
            count: extent("batchSize", count)?,
        };
        if m == 0 || n == 0 || count == 0 { Ok(()) } else { call.post(&work) }
    }

    /// `cublasStpttr` and its like.
    fn tpttr<T: Element>(uplo: u32, n: i32, packed: *const T, a: *mut T, lda: i32) |call| {
        let (fill, n) = (fill(uplo)?, extent("n", n)?);
        let a = matrix(a.cast_const(), T::KIND, leading("lda", lda, n)?);
        let upper = fill == rgpu_libraries::Fill::Upper;
        if n == 0 { Ok(()) } else { call.post(&PackTriangle { packs: false, upper, n, a, packed: packed as u64 }) }
    }

    /// `cublasStrttp` and its like.
    fn trttp<T: Element>(uplo: u32, n: i32, a: *const T, lda: i32, packed: *mut T) |call| {
        let (fill, n) = (fill(uplo)?, extent("n", n)?);
        let a = matrix(a, T::KIND, leading("lda", lda, n)?);
        let upper = fill == rgpu_libraries::Fill::Upper;
        if n == 0 { Ok(()) } else { call.post(&PackTriangle { packs: true, upper, n, a, packed: packed as u64 }) }
    }
}
