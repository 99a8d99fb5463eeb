//! Matrices that are symmetric or triangular, sums, and many small matrices at once.

use super::super::table::call;
use super::super::values::{Given, complex_letter, invalid, letter, long, refused, short};
use super::Blas;
use super::table::STATUS;
use rgpu_device::Result;
use rgpu_libraries::{
    AddMatrices, Batch, Factoring, Factors, Pairing, RankK, ScaleMatrix, Structure, SymmetricProduct,
    Triangular,
};

impl Blas<'_> {
    /// A symmetric or Hermitian matrix times another one.
    pub(super) fn symmetric(&self, work: &SymmetricProduct) -> Result<()> {
        self.factors_are(&[&work.alpha, &work.beta])?;
        let SymmetricProduct { a, b, c, compute, .. } = work;
        let (alpha, beta) = (Given::new(&work.alpha, *compute), Given::new(&work.beta, *compute));
        let (alpha, beta) = (alpha.place(), beta.place());
        let (t, h, side, fill) = (self.table, self.handle, work.side as u32, work.fill as u32);
        let (m, n, lda, ldb, ldc) = (long(work.m)?, long(work.n)?, long(a.ld)?, long(b.ld)?, long(c.ld)?);
        let (a, b, c) = (a.addr, b.addr, c.addr);
        match work.structure {
            Structure::Hermitian => call!(t.hemm[complex_letter(*compute)?](
                h, side, fill, m, n, alpha, a, lda, b, ldb, beta, c, ldc
            )),
            _ => call!(t.symm[letter(*compute)?](h, side, fill, m, n, alpha, a, lda, b, ldb, beta, c, ldc)),
        }
    }

    /// Products of matrices of which a triangle is stored.
    pub(super) fn rank_k(&self, work: &RankK) -> Result<()> {
        self.factors_are(&[&work.alpha, &work.beta])?;
        let RankK { a, b, c, compute, .. } = work;
        let (alpha, beta) =
            (Given::new(&work.alpha, work.alpha_kind), Given::new(&work.beta, work.beta_kind));
        let (alpha, beta) = (alpha.place(), beta.place());
        let (t, h, fill, op) = (self.table, self.handle, work.fill as u32, work.op as u32);
        let (n, k, lda, ldb, ldc) = (long(work.n)?, long(work.k)?, long(a.ld)?, long(b.ld)?, long(c.ld)?);
        let (a, b, c) = (a.addr, b.addr, c.addr);
        match (work.structure, work.pairing) {
            (Structure::Symmetric, Pairing::Own) => {
                call!(t.syrk[letter(*compute)?](h, fill, op, n, k, alpha, a, lda, beta, c, ldc))
            }
            (Structure::Hermitian, Pairing::Own) => {
                call!(t.herk[complex_letter(*compute)?](h, fill, op, n, k, alpha, a, lda, beta, c, ldc))
            }
            (Structure::Symmetric, Pairing::Both) => {
                call!(t.syr2k[letter(*compute)?](h, fill, op, n, k, alpha, a, lda, b, ldb, beta, c, ldc))
            }
            (Structure::Hermitian, Pairing::Both) => call!(t.her2k[complex_letter(*compute)?](
                h, fill, op, n, k, alpha, a, lda, b, ldb, beta, c, ldc
            )),
            (Structure::Symmetric, Pairing::One) => {
                call!(t.syrkx[letter(*compute)?](h, fill, op, n, k, alpha, a, lda, b, ldb, beta, c, ldc))
            }
            (Structure::Hermitian, Pairing::One) => call!(t.herkx[complex_letter(*compute)?](
                h, fill, op, n, k, alpha, a, lda, b, ldb, beta, c, ldc
            )),
            (Structure::General, _) => invalid("An update of rank k of a matrix of which nothing is known"),
        }
    }

    /// A triangular matrix times another one, or the equation with both.
    pub(super) fn triangular(&self, work: &Triangular) -> Result<()> {
        self.factors_are(&[&work.alpha])?;
        let Triangular { a, b, c, compute, .. } = work;
        let alpha = Given::new(&work.alpha, *compute);
        let (t, h, alpha, letter) = (self.table, self.handle, alpha.place(), letter(*compute)?);
        let (side, fill, op, unit) =
            (work.side as u32, work.fill as u32, work.op as u32, u32::from(work.unit));
        let (m, n, lda, ldb, ldc, count) =
            (long(work.m)?, long(work.n)?, long(a.ld)?, long(b.ld)?, long(c.ld)?, long(work.count)?);
        if work.solve && (c.addr, c.ld) != (b.addr, b.ld) {
            return refused("solutions of triangular systems in another place than the right sides");
        }
        let (a, b, c) = (a.addr, b.addr, c.addr);
        match (work.solve, work.batch, count) {
            (true, Batch::Pointers, _) => {
                call!(t.trsm_batched[letter](h, side, fill, op, unit, m, n, alpha, a, lda, b, ldb, count))
            }
            (true, Batch::Strided, 1) => {
                call!(t.trsm[letter](h, side, fill, op, unit, m, n, alpha, a, lda, b, ldb))
            }
            (false, Batch::Strided, 1) => {
                call!(t.trmm[letter](h, side, fill, op, unit, m, n, alpha, a, lda, b, ldb, c, ldc))
            }
            _ => refused("such batches of triangular matrices"),
        }
    }

    /// Whether [`Blas::add`] does it; else it is a transform of cuBLASLt.
    pub(in super::super) fn adds(work: &AddMatrices) -> bool {
        let kinds = [work.a.kind, work.b.kind, work.c.kind, work.scalar];
        work.count == 1
            && work.a.addr != 0
            && work.b.addr != 0
            && letter(work.compute).is_ok()
            && kinds.iter().all(|kind| *kind == work.compute)
    }

    /// `C = alpha op(A) + beta op(B)`.
    pub(super) fn add(&self, work: &AddMatrices) -> Result<()> {
        self.factors_are(&[&work.alpha, &work.beta])?;
        let AddMatrices { a, b, c, .. } = work;
        let (alpha, beta) = (Given::new(&work.alpha, work.scalar), Given::new(&work.beta, work.scalar));
        let (alpha, beta) = (alpha.place(), beta.place());
        let (t, h, op_a, op_b) = (self.table, self.handle, work.op_a as u32, work.op_b as u32);
        let (m, n, lda, ldb, ldc) = (long(work.m)?, long(work.n)?, long(a.ld)?, long(b.ld)?, long(c.ld)?);
        call!(t.geam[letter(work.compute)?](
            h, op_a, op_b, m, n, alpha, a.addr, lda, beta, b.addr, ldb, c.addr, ldc
        ))
    }

    /// A matrix and a diagonal one.
    pub(super) fn scale_matrix(&self, work: &ScaleMatrix) -> Result<()> {
        let ScaleMatrix { a, x, c, .. } = work;
        let (t, h, side) = (self.table, self.handle, work.side as u32);
        let (m, n, lda, ldc) = (long(work.m)?, long(work.n)?, long(a.ld)?, long(c.ld)?);
        call!(t.dgmm[letter(work.compute)?](h, side, m, n, a.addr, lda, x.addr, x.inc, c.addr, ldc))
    }

    /// Many small matrices and their factors.
    pub(super) fn factors(&self, work: &Factors) -> Result<()> {
        let Factors { a, b, pivots, info, .. } = work;
        let (t, h, letter) = (self.table, self.handle, letter(work.compute)?);
        let (n, columns, count) = (short(work.n)?, short(work.columns)?, short(work.count)?);
        let (lda, ldb, a, b, pivots, info) = (short(a.ld)?, short(b.ld)?, a.addr, b.addr, *pivots, *info);
        match work.what {
            Factoring::Factor => call!(t.getrf[letter](h, n, a, lda, pivots, info, count)),
            Factoring::Invert => call!(t.getri[letter](h, n, a, lda, pivots, b, ldb, info, count)),
            Factoring::InvertDirectly => call!(t.matinv[letter](h, n, a, lda, b, ldb, info, count)),
            Factoring::Solve => {
                // What it says about the arguments is the status as well.
                let mut wrong = 0;
                let op = work.op as u32;
                call!(t.getrs[letter](h, op, n, columns, a, lda, pivots, b, ldb, &mut wrong, count))
            }
        }
    }
}
