//! Products of matrices of one type.

use std::ffi::c_void;

use rgpu_libraries::{Batch, DataType, Gemm, Matrix};

use super::handle::{Call, matrix};
use super::status::{In, Result, unsupported};
use super::types::{Count, data_type, extent, leading, operation};

/// The part of a product's arguments that all its forms have: how A and B are used, and how large all is.
pub(super) fn shape<N: Count>(
    [transa, transb]: [u32; 2],
    [m, n, k]: [N; 3],
    [lda, ldb, ldc]: [N; 3],
) -> Result<Gemm> {
    let (op_a, op_b) = (operation(transa)?, operation(transb)?);
    let (m, n, k) = (extent("m", m)?, extent("n", n)?, extent("k", k)?);
    let is_turned =
        |op| matches!(op, rgpu_libraries::Transpose::Transposed | rgpu_libraries::Transpose::Adjoint);
    let lda = leading("lda", lda, if is_turned(op_a) { k } else { m })?;
    let ldb = leading("ldb", ldb, if is_turned(op_b) { n } else { k })?;
    let of = |ld| Matrix { ld, ..Matrix::default() };
    let (a, b, c) = (of(lda), of(ldb), of(leading("ldc", ldc, m)?));
    Ok(Gemm { op_a, op_b, m, n, k, a, b, c, count: 1, ..Gemm::default() })
}

/// Whether there is such a product.
pub(super) fn check_types(a: DataType, b: DataType, c: DataType, compute: DataType) -> Result<()> {
    use DataType::{Bf16, C32, C64, F16, F32, F64, I8, I32};
    let known = matches!(
        (a, c, compute),
        (F32, F32, F32)
            | (F64, F64, F64)
            | (C32, C32, C32)
            | (C64, C64, C64)
            | (F16, F16, F16 | F32)
            | (F16 | Bf16 | I8, F32, F32)
            | (Bf16, Bf16, F32)
            | (I8, I32, I32)
    );
    if known && a == b {
        return Ok(());
    }
    unsupported(&format!("The product of matrices of {a:?} and {b:?} into {c:?}, summed in {compute:?},"))
}

/// Posts a product, unless there is nothing in it.
pub(super) fn post(call: &Call, gemm: &Gemm) -> Result<()> {
    check_types(gemm.a.kind, gemm.b.kind, gemm.c.kind, gemm.compute)?;
    if gemm.m == 0 || gemm.n == 0 || gemm.count == 0 {
        return Ok(());
    }
    call.post(gemm)
}

/// Elements from one problem to the next; those of a result do not overlap.
pub(super) fn strided<T>(place: &mut Matrix, at: *const T, kind: DataType, stride: i64) {
    *place = Matrix { stride, ..matrix(at, kind, place.ld) };
}

blas! {
    /// `cublasSgemm_v2` and its like.
    fn gemm<T: Element, N: Count>(
        transa: u32, transb: u32, m: N, n: N, k: N,
        alpha: In<T>, a: *const T, lda: N, b: *const T, ldb: N, beta: In<T>, c: *mut T, ldc: N,
    ) |call| {
        let mut gemm = shape([transa, transb], [m, n, k], [lda, ldb, ldc])?;
        (gemm.alpha, gemm.beta) = (call.scalar(alpha)?, call.scalar(beta)?);
        strided(&mut gemm.a, a, T::KIND, 0);
        strided(&mut gemm.b, b, T::KIND, 0);
        strided(&mut gemm.c, c, T::KIND, 0);
        gemm.compute = T::KIND;
        post(call, &gemm)
    }

    /// `cublasSgemmStridedBatched` and its like.
    fn gemm_strided<T: Element, N: Count>(
        transa: u32, transb: u32, m: N, n: N, k: N,
        alpha: In<T>, a: *const T, lda: N, stride_a: i64, b: *const T, ldb: N, stride_b: i64,
        beta: In<T>, c: *mut T, ldc: N, stride_c: i64, count: N,
    ) |call| {
        let mut gemm = shape([transa, transb], [m, n, k], [lda, ldb, ldc])?;
        (gemm.alpha, gemm.beta) = (call.scalar(alpha)?, call.scalar(beta)?);
        strided(&mut gemm.a, a, T::KIND, stride_a);
        strided(&mut gemm.b, b, T::KIND, stride_b);
        strided(&mut gemm.c, c, T::KIND, stride_c);
        (gemm.compute, gemm.count) = (T::KIND, extent("batchCount", count)?);
        post(call, &gemm)
    }

    /// `cublasSgemmBatched` and its like.
    fn gemm_batched<T: Element, N: Count>(
        transa: u32, transb: u32, m: N, n: N, k: N,
        alpha: In<T>, a: *const *const T, lda: N, b: *const *const T, ldb: N,
        beta: In<T>, c: *const *mut T, ldc: N, count: N,
    ) |call| {
        let mut gemm = shape([transa, transb], [m, n, k], [lda, ldb, ldc])?;
        (gemm.alpha, gemm.beta) = (call.scalar(alpha)?, call.scalar(beta)?);
        strided(&mut gemm.a, a, T::KIND, 0);
        strided(&mut gemm.b, b, T::KIND, 0);
        strided(&mut gemm.c, c, T::KIND, 0);
        (gemm.compute, gemm.count) = (T::KIND, extent("batchCount", count)?);
        gemm.batch = Batch::Pointers;
        post(call, &gemm)
    }

    /// `cublasSgemmEx` and `cublasCgemmEx`: products summed in `T` of matrices of other types.
    fn gemm_of_types<T: Element, N: Count>(
        transa: u32, transb: u32, m: N, n: N, k: N,
        alpha: In<T>, a: *const c_void, a_type: u32, lda: N, b: *const c_void, b_type: u32, ldb: N,
        beta: In<T>, c: *mut c_void, c_type: u32, ldc: N,
    ) |call| {
        let mut gemm = shape([transa, transb], [m, n, k], [lda, ldb, ldc])?;
        (gemm.alpha, gemm.beta) = (call.scalar(alpha)?, call.scalar(beta)?);
        strided(&mut gemm.a, a, data_type(a_type)?, 0);
        strided(&mut gemm.b, b, data_type(b_type)?, 0);
        strided(&mut gemm.c, c, data_type(c_type)?, 0);
        gemm.compute = T::KIND;
        post(call, &gemm)
    }
}
