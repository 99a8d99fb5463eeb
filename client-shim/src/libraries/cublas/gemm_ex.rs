//! Products of matrices whose types are arguments.

use std::ffi::c_void;

use rgpu_libraries::{Batch, DataType, Gemm, Matmul};

use super::gemm::{post, shape, strided};
use super::handle::Call;
use super::status::{Result, invalid};
use super::types::{compute_type, data_type, extent, is_complex};

/// Types and factors of a product.
struct Types {
    a: DataType,
    b: DataType,
    c: DataType,
    compute: DataType,
}

impl Types {
    fn of([a, b, c]: [u32; 3], compute: u32) -> Result<Self> {
        let (a, b, c) = (data_type(a)?, data_type(b)?, data_type(c)?);
        Ok(Self { a, b, c, compute: compute_type(compute, is_complex(a))? })
    }

    /// The type of alpha and beta.
    fn scale(&self) -> DataType {
        match (self.compute, self.c) {
            (DataType::I32, DataType::I8 | DataType::F32) => DataType::F32,
            (compute, _) => compute,
        }
    }

    fn finish(
        &self,
        call: &Call,
        mut gemm: Gemm,
        [alpha, beta]: [*const c_void; 2],
        [a, b, c]: [(*const c_void, i64); 3],
    ) -> Result<()> {
        gemm.alpha = call.scalar_of(alpha, self.scale())?;
        gemm.beta = call.scalar_of(beta, self.scale())?;
        strided(&mut gemm.a, a.0, self.a, a.1);
        strided(&mut gemm.b, b.0, self.b, b.1);
        strided(&mut gemm.c, c.0, self.c, c.1);
        gemm.compute = self.compute;
        if self.scale() == self.compute || gemm.batch == Batch::Pointers {
            return post(call, &gemm);
        }
        if gemm.m == 0 || gemm.n == 0 || gemm.count == 0 {
            return Ok(());
        }
        // Sums of integers that are scaled by other numbers.
        let Gemm { op_a, op_b, m, n, k, alpha, a, b, beta, c, compute, count, .. } = gemm;
        let (d, scalar) = (c.clone(), self.scale());
        let matmul = Matmul {
            op_a,
            op_b,
            m,
            n,
            k,
            alpha,
            a,
            b,
            beta,
            c,
            d,
            scalar,
            compute,
            count,
            ..Matmul::default()
        };
        call.post(&matmul)
    }
}

/// An algorithm is a hint; but it is one of those that there are.
fn check_algorithm(algorithm: i32) -> Result<()> {
    match algorithm {
        -1..=23 | 99..=115 | 999 => Ok(()),
        _ => invalid(format!("{algorithm} is no cublasGemmAlgo_t")),
    }
}

blas! {
    /// `cublasGemmEx`
    fn gemm_ex<N: Count>(
        transa: u32, transb: u32, m: N, n: N, k: N,
        alpha: *const c_void, a: *const c_void, a_type: u32, lda: N, b: *const c_void, b_type: u32, ldb: N,
        beta: *const c_void, c: *mut c_void, c_type: u32, ldc: N, compute: u32, algorithm: i32,
    ) |call| {
        check_algorithm(algorithm)?;
        let gemm = shape([transa, transb], [m, n, k], [lda, ldb, ldc])?;
        Types::of([a_type, b_type, c_type], compute)?
            .finish(call, gemm, [alpha, beta], [(a, 0), (b, 0), (c.cast_const(), 0)])
    }

    /// `cublasGemmStridedBatchedEx`
    fn gemm_strided_ex<N: Count>(
        transa: u32, transb: u32, m: N, n: N, k: N,
        alpha: *const c_void, a: *const c_void, a_type: u32, lda: N, stride_a: i64,
        b: *const c_void, b_type: u32, ldb: N, stride_b: i64,
        beta: *const c_void, c: *mut c_void, c_type: u32, ldc: N, stride_c: i64,
        count: N, compute: u32, algorithm: i32,
    ) |call| {
        check_algorithm(algorithm)?;
        let mut gemm = shape([transa, transb], [m, n, k], [lda, ldb, ldc])?;
        gemm.count = extent("batchCount", count)?;
        Types::of([a_type, b_type, c_type], compute)?
            .finish(call, gemm, [alpha, beta], [(a, stride_a), (b, stride_b), (c.cast_const(), stride_c)])
    }

    /// `cublasGemmBatchedEx`
    fn gemm_batched_ex<N: Count>(
        transa: u32, transb: u32, m: N, n: N, k: N,
        alpha: *const c_void, a: *const *const c_void, a_type: u32, lda: N,
        b: *const *const c_void, b_type: u32, ldb: N,
        beta: *const c_void, c: *const *mut c_void, c_type: u32, ldc: N,
        count: N, compute: u32, algorithm: i32,
    ) |call| {
        check_algorithm(algorithm)?;
        let mut gemm = shape([transa, transb], [m, n, k], [lda, ldb, ldc])?;
        gemm.count = extent("batchCount", count)?;
        gemm.batch = Batch::Pointers;
        Types::of([a_type, b_type, c_type], compute)?
            .finish(call, gemm, [alpha, beta], [(a.cast(), 0), (b.cast(), 0), (c.cast(), 0)])
    }
}
