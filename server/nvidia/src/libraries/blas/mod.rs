//! Products of matrices and vectors, by cuBLAS.

mod matrices;
mod matrix_vector;
mod table;
mod vectors;

use super::table::{Object, assembled, call, made};
use super::values::{DEVICE, Given, invalid, long, mode, refused};
use rgpu_device::Result;
use rgpu_libraries::{Batch, DataType, Gemm, Operation, Scalar};
pub(super) use table::STATUS;
pub(super) use table::Table;

/// `CUBLAS_GEMM_DEFAULT`.
const ALGORITHM: i32 = -1;

/// A handle of cuBLAS, set up for the stream at hand.
pub(super) struct Blas<'a> {
    table: &'a Table,
    handle: Object,
}

/// A new handle in the current context.
pub(super) fn create(table: &Table) -> Result<Object> {
    made(|handle| call!(table.create(handle)))
}

/// Major version, minor version and what comes then.
pub(super) fn version(table: &Table) -> Result<u32> {
    assembled(10_000, |which, part| call!(table.property(which, part)))
}

/// `cublasComputeType_t`.
pub(super) fn compute_type(kind: DataType) -> Result<u32> {
    match kind {
        DataType::F16 => Ok(64),
        DataType::F32 | DataType::C32 => Ok(68),
        DataType::F64 | DataType::C64 => Ok(70),
        DataType::I32 => Ok(72),
        other => refused(format!("products that are summed in {other:?}")),
    }
}

impl<'a> Blas<'a> {
    /// Takes a handle, and lets it work on a stream.
    pub(super) fn on(table: &'a Table, handle: Object, stream: Object) -> Result<Self> {
        call!(table.set_stream(handle, stream))?;
        Ok(Self { table, handle })
    }

    /// Carries out one of cuBLAS's operations.
    pub(super) fn run(&self, operation: &Operation) -> Result<()> {
        match operation {
            Operation::Gemm(work) => self.gemm(work),
            Operation::Combine(work) => self.combine(work),
            Operation::Reduce(work) => self.reduce(work),
            Operation::MatrixVector(work) => self.matrix_vector(work),
            Operation::TriangularVector(work) => self.triangular_vector(work),
            Operation::RankUpdate(work) => self.rank_update(work),
            Operation::SymmetricProduct(work) => self.symmetric(work),
            Operation::RankK(work) => self.rank_k(work),
            Operation::Triangular(work) => self.triangular(work),
            Operation::AddMatrices(work) => self.add(work),
            Operation::ScaleMatrix(work) => self.scale_matrix(work),
            Operation::Factors(work) => self.factors(work),
            other => invalid(format!("No operation of cuBLAS: {other:?}")),
        }
    }

    /// Says where the factors of the next call lie.
    fn factors_are(&self, factors: &[&Scalar]) -> Result<()> {
        let (table, mode) = (self.table, mode(factors)?);
        call!(table.set_mode(self.handle, mode))
    }

    /// The next call's results go to device memory.
    fn results_are_the_devices(&self) -> Result<()> {
        let table = self.table;
        call!(table.set_mode(self.handle, DEVICE))
    }

    fn gemm(&self, work: &Gemm) -> Result<()> {
        let Gemm { op_a, op_b, alpha, a, b, beta, c, .. } = work;
        self.factors_are(&[alpha, beta])?;
        let (alpha, beta) = (Given::new(alpha, work.compute), Given::new(beta, work.compute));
        let (alpha, beta) = (alpha.place(), beta.place());
        let (t, h, compute) = (self.table, self.handle, compute_type(work.compute)?);
        let (op_a, op_b) = (*op_a as u32, *op_b as u32);
        let (m, n, k, count) = (long(work.m)?, long(work.n)?, long(work.k)?, long(work.count)?);
        let (lda, ldb, ldc) = (long(a.ld)?, long(b.ld)?, long(c.ld)?);
        let (kind_a, kind_b, kind_c) = (a.kind as u32, b.kind as u32, c.kind as u32);
        if work.batch == Batch::Pointers {
            return call!(t.gemm_batched(
                h, op_a, op_b, m, n, k, alpha, a.addr, kind_a, lda, b.addr, kind_b, ldb, beta, c.addr,
                kind_c, ldc, count, compute, ALGORITHM
            ));
        }
        if count == 1 {
            return call!(t.gemm(
                h, op_a, op_b, m, n, k, alpha, a.addr, kind_a, lda, b.addr, kind_b, ldb, beta, c.addr,
                kind_c, ldc, compute, ALGORITHM
            ));
        }
        call!(t.gemm_strided(
            h, op_a, op_b, m, n, k, alpha, a.addr, kind_a, lda, a.stride, b.addr, kind_b, ldb, b.stride,
            beta, c.addr, kind_c, ldc, c.stride, count, compute, ALGORITHM
        ))
    }
}
