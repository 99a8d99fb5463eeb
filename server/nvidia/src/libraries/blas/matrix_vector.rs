//! A matrix and vectors.

use super::super::table::call;
use super::super::values::{Given, complex_letter, letter, long, real_letter, refused};
use super::Blas;
use super::table::STATUS;
use rgpu_device::Result;
use rgpu_libraries::{Batch, DataType, MatrixVector, RankUpdate, Storage, Structure, TriangularVector};

impl Blas<'_> {
    /// `y = alpha op(A) x + beta y`.
    pub(super) fn matrix_vector(&self, work: &MatrixVector) -> Result<()> {
        self.factors_are(&[&work.alpha, &work.beta])?;
        if work.structure == Structure::General && work.storage == Storage::Full {
            return self.general(work);
        }
        if work.count != 1 || work.batch != Batch::Strided {
            return refused("batches of products of a vector with such a matrix");
        }
        let MatrixVector { a, x, y, .. } = work;
        let (alpha, beta) = (Given::new(&work.alpha, work.scalar), Given::new(&work.beta, work.scalar));
        let (alpha, beta) = (alpha.place(), beta.place());
        let (t, h, fill) = (self.table, self.handle, work.fill as u32);
        let (m, n, ld) = (long(work.m)?, long(work.n)?, long(a.ld)?);
        let (lower, upper) = (long(work.lower)?, long(work.upper)?);
        let (x, incx, y, incy, a, kind) = (x.addr, x.inc, y.addr, y.inc, a.addr, a.kind);
        match (work.structure, work.storage) {
            (Structure::General, Storage::Band) => {
                let op = work.op as u32;
                call!(t.gbmv[letter(kind)?](h, op, m, n, lower, upper, alpha, a, ld, x, incx, beta, y, incy))
            }
            (Structure::Symmetric, Storage::Full) => {
                call!(t.symv[letter(kind)?](h, fill, n, alpha, a, ld, x, incx, beta, y, incy))
            }
            (Structure::Hermitian, Storage::Full) => {
                call!(t.hemv[complex_letter(kind)?](h, fill, n, alpha, a, ld, x, incx, beta, y, incy))
            }
            (Structure::Symmetric, Storage::Band) => {
                call!(t.sbmv[real_letter(kind)?](h, fill, n, lower, alpha, a, ld, x, incx, beta, y, incy))
            }
            (Structure::Hermitian, Storage::Band) => {
                call!(t.hbmv[complex_letter(kind)?](h, fill, n, lower, alpha, a, ld, x, incx, beta, y, incy))
            }
            (Structure::Symmetric, Storage::Packed) => {
                call!(t.spmv[real_letter(kind)?](h, fill, n, alpha, a, x, incx, beta, y, incy))
            }
            (Structure::Hermitian, Storage::Packed) => {
                call!(t.hpmv[complex_letter(kind)?](h, fill, n, alpha, a, x, incx, beta, y, incy))
            }
            (structure, storage) => refused(format!("a {structure:?} matrix that is {storage:?}")),
        }
    }

    /// Of a matrix of which nothing is known.
    fn general(&self, work: &MatrixVector) -> Result<()> {
        let MatrixVector { a, x, y, .. } = work;
        let (alpha, beta) = (Given::new(&work.alpha, work.scalar), Given::new(&work.beta, work.scalar));
        let (alpha, beta) = (alpha.place(), beta.place());
        let (t, h, op) = (self.table, self.handle, work.op as u32);
        let (m, n, ld, count) = (long(work.m)?, long(work.n)?, long(a.ld)?, long(work.count)?);
        // Narrow elements, with factors of 32 bits.
        let narrow = match (a.kind, y.kind) {
            (DataType::F16, DataType::F16) => Some(0),
            (DataType::F16, DataType::F32) => Some(1),
            (DataType::Bf16, DataType::Bf16) => Some(2),
            (DataType::Bf16, DataType::F32) => Some(3),
            _ => None,
        };
        match (narrow, work.batch) {
            (Some(form), Batch::Pointers) => call!(t.gemv_batched_narrow[form](
                h, op, m, n, alpha, a.addr, ld, x.addr, x.inc, beta, y.addr, y.inc, count
            )),
            (Some(form), Batch::Strided) => call!(t.gemv_strided_narrow[form](
                h, op, m, n, alpha, a.addr, ld, a.stride, x.addr, x.inc, x.stride, beta, y.addr, y.inc,
                y.stride, count
            )),
            (None, Batch::Pointers) => call!(t.gemv_batched[letter(a.kind)?](
                h, op, m, n, alpha, a.addr, ld, x.addr, x.inc, beta, y.addr, y.inc, count
            )),
            (None, Batch::Strided) if count == 1 => call!(t.gemv[letter(a.kind)?](
                h, op, m, n, alpha, a.addr, ld, x.addr, x.inc, beta, y.addr, y.inc
            )),
            (None, Batch::Strided) => call!(t.gemv_strided[letter(a.kind)?](
                h, op, m, n, alpha, a.addr, ld, a.stride, x.addr, x.inc, x.stride, beta, y.addr, y.inc,
                y.stride, count
            )),
        }
    }

    /// A triangular matrix times a vector, or the equation with both.
    pub(super) fn triangular_vector(&self, work: &TriangularVector) -> Result<()> {
        let TriangularVector { a, x, .. } = work;
        let (t, h, letter) = (self.table, self.handle, letter(a.kind)?);
        let (fill, op, unit) = (work.fill as u32, work.op as u32, u32::from(work.unit));
        let (n, k, ld) = (long(work.n)?, long(work.diagonals)?, long(a.ld)?);
        let (a, x, inc) = (a.addr, x.addr, x.inc);
        match (work.storage, work.solve) {
            (Storage::Full, false) => call!(t.trmv[letter](h, fill, op, unit, n, a, ld, x, inc)),
            (Storage::Full, true) => call!(t.trsv[letter](h, fill, op, unit, n, a, ld, x, inc)),
            (Storage::Band, false) => call!(t.tbmv[letter](h, fill, op, unit, n, k, a, ld, x, inc)),
            (Storage::Band, true) => call!(t.tbsv[letter](h, fill, op, unit, n, k, a, ld, x, inc)),
            (Storage::Packed, false) => call!(t.tpmv[letter](h, fill, op, unit, n, a, x, inc)),
            (Storage::Packed, true) => call!(t.tpsv[letter](h, fill, op, unit, n, a, x, inc)),
        }
    }

    /// Products of two vectors that are added to a matrix.
    pub(super) fn rank_update(&self, work: &RankUpdate) -> Result<()> {
        self.factors_are(&[&work.alpha])?;
        let RankUpdate { x, y, a, .. } = work;
        let alpha = Given::new(&work.alpha, work.scalar);
        let (t, h, kind, alpha) = (self.table, self.handle, a.kind, alpha.place());
        let (m, n, ld, fill) = (long(work.m)?, long(work.n)?, long(a.ld)?, work.fill as u32);
        let (x, incx, y, incy, a) = (x.addr, x.inc, y.addr, y.inc, a.addr);
        match (work.structure, work.storage, work.twice) {
            (Structure::General, Storage::Full, false) if work.conjugated && letter(kind)? > 1 => {
                call!(t.gerc[complex_letter(kind)?](h, m, n, alpha, x, incx, y, incy, a, ld))
            }
            (Structure::General, Storage::Full, false) => {
                call!(t.ger[letter(kind)?](h, m, n, alpha, x, incx, y, incy, a, ld))
            }
            (Structure::Symmetric, Storage::Full, false) => {
                call!(t.syr[letter(kind)?](h, fill, n, alpha, x, incx, a, ld))
            }
            (Structure::Hermitian, Storage::Full, false) => {
                call!(t.her[complex_letter(kind)?](h, fill, n, alpha, x, incx, a, ld))
            }
            (Structure::Symmetric, Storage::Packed, false) => {
                call!(t.spr[real_letter(kind)?](h, fill, n, alpha, x, incx, a))
            }
            (Structure::Hermitian, Storage::Packed, false) => {
                call!(t.hpr[complex_letter(kind)?](h, fill, n, alpha, x, incx, a))
            }
            (Structure::Symmetric, Storage::Full, true) => {
                call!(t.syr2[letter(kind)?](h, fill, n, alpha, x, incx, y, incy, a, ld))
            }
            (Structure::Hermitian, Storage::Full, true) => {
                call!(t.her2[complex_letter(kind)?](h, fill, n, alpha, x, incx, y, incy, a, ld))
            }
            (Structure::Symmetric, Storage::Packed, true) => {
                call!(t.spr2[real_letter(kind)?](h, fill, n, alpha, x, incx, y, incy, a))
            }
            (Structure::Hermitian, Storage::Packed, true) => {
                call!(t.hpr2[complex_letter(kind)?](h, fill, n, alpha, x, incx, y, incy, a))
            }
            (structure, storage, _) => {
                refused(format!("an update of a {structure:?} matrix that is {storage:?}"))
            }
        }
    }
}
