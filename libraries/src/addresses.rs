//! Where the operands of an operation lie.

use crate::blas::{Matrix, Vector};
use crate::dnn::DnnTensor;
use crate::operation::Operation;
use crate::sparse::SparseMatrix;
use crate::types::Scalar;

/// What has addresses in device memory.
trait Places {
    fn list(&self, all: &mut Vec<u64>);
}

impl Places for u64 {
    fn list(&self, all: &mut Vec<u64>) {
        all.push(*self);
    }
}

impl Places for Scalar {
    fn list(&self, all: &mut Vec<u64>) {
        all.push(self.addr);
    }
}

impl Places for Vector {
    fn list(&self, all: &mut Vec<u64>) {
        all.push(self.addr);
    }
}

impl Places for Matrix {
    fn list(&self, all: &mut Vec<u64>) {
        all.push(self.addr);
    }
}

impl Places for SparseMatrix {
    fn list(&self, all: &mut Vec<u64>) {
        all.extend([self.offsets, self.indices, self.values]);
    }
}

impl Places for crate::sparse_blocks::BlockMatrix {
    fn list(&self, all: &mut Vec<u64>) {
        self.blocks.list(all);
    }
}

impl Places for crate::sparse::SparseVector {
    fn list(&self, all: &mut Vec<u64>) {
        all.extend([self.indices, self.values]);
    }
}

impl Places for crate::sparse::DenseMatrix {
    fn list(&self, all: &mut Vec<u64>) {
        all.push(self.addr);
    }
}

impl Places for crate::fft::FftLayout {
    fn list(&self, all: &mut Vec<u64>) {
        all.push(self.addr);
    }
}

impl Places for DnnTensor {
    fn list(&self, all: &mut Vec<u64>) {
        all.push(self.addr);
    }
}

impl Places for Vec<DnnTensor> {
    fn list(&self, all: &mut Vec<u64>) {
        all.extend(self.iter().map(|tensor| tensor.addr));
    }
}

impl Operation {
    /// Where the operands begin in device memory, those that are there: what a device can check, or bring up to date,
    /// before it gives the operation to somebody else. Of operands whose addresses stand in an array of pointers it
    /// is the array.
    pub fn addresses(&self) -> Vec<u64> {
        let mut all = Vec::new();
        let mut places = |list: &[&dyn Places]| list.iter().for_each(|place| place.list(&mut all));
        match self {
            Self::Gemm(w) => places(&[&w.alpha, &w.a, &w.b, &w.beta, &w.c]),
            Self::Combine(w) => places(&[&w.alpha, &w.beta, &w.numbers_addr, &w.x, &w.y]),
            Self::Reduce(w) => places(&[&w.x, &w.y, &w.result]),
            Self::MatrixVector(w) => places(&[&w.alpha, &w.a, &w.x, &w.beta, &w.y]),
            Self::TriangularVector(w) => places(&[&w.a, &w.x]),
            Self::RankUpdate(w) => places(&[&w.alpha, &w.x, &w.y, &w.a]),
            Self::SymmetricProduct(w) => places(&[&w.alpha, &w.a, &w.b, &w.beta, &w.c]),
            Self::RankK(w) => places(&[&w.alpha, &w.a, &w.b, &w.beta, &w.c]),
            Self::Triangular(w) => places(&[&w.alpha, &w.a, &w.b, &w.c]),
            Self::AddMatrices(w) => places(&[&w.alpha, &w.a, &w.beta, &w.b, &w.c]),
            Self::ScaleMatrix(w) => places(&[&w.a, &w.x, &w.c]),
            Self::Factors(w) => places(&[&w.a, &w.pivots, &w.b, &w.info]),
            Self::Matmul(w) => {
                places(&[&w.alpha, &w.alpha_vector, &w.a, &w.b, &w.beta, &w.c, &w.d, &w.bias, &w.kept]);
            }
            Self::Fft(w) => places(&[&w.input, &w.output]),
            Self::Random(w) => places(&[&w.addr]),
            Self::Cholesky(w) => places(&[&w.a, &w.b, &w.info]),
            Self::Lu(w) => places(&[&w.a, &w.pivots, &w.b, &w.info]),
            Self::Qr(w) => places(&[&w.a, &w.tau, &w.c, &w.info]),
            Self::HermitianEigen(w) => places(&[&w.a, &w.values, &w.info]),
            Self::Svd(w) => places(&[&w.a, &w.values, &w.u, &w.v, &w.info]),
            Self::Indefinite(w) => places(&[&w.a, &w.pivots, &w.b, &w.info]),
            Self::Eigen(w) => places(&[&w.a, &w.values, &w.vectors, &w.info]),
            Self::LargestSvd(w) => places(&[&w.a, &w.values, &w.u, &w.v, &w.residuals, &w.info]),
            Self::Bidiagonal(w) => {
                places(&[&w.a, &w.diagonal, &w.beside, &w.tau_q, &w.tau_p, &w.info]);
            }
            Self::LeastSquares(w) => places(&[&w.a, &w.b, &w.x, &w.info]),
            Self::QrBatch(w) => places(&[&w.a, &w.tau]),
            Self::PackTriangle(w) => places(&[&w.a, &w.packed]),
            Self::SparseProduct(w) => places(&[&w.alpha, &w.a, &w.b, &w.beta, &w.c]),
            Self::SampledProduct(w) => places(&[&w.alpha, &w.a, &w.b, &w.beta, &w.c]),
            Self::SparseToDense(w) => places(&[&w.a, &w.b]),
            Self::DenseCount(w) => places(&[&w.a, &w.b, &w.total]),
            Self::DenseToSparse(w) => places(&[&w.a, &w.b]),
            Self::SparseConvert(w) => places(&[&w.a, &w.b]),
            Self::SparseSort(w) => places(&[&w.first, &w.second, &w.permutation]),
            Self::Iota(w) => places(&[&w.addr]),
            Self::SparseVectors(w) => places(&[&w.alpha, &w.beta, &w.x, &w.y, &w.result]),
            Self::SparseSum(w) => places(&[&w.alpha, &w.a, &w.beta, &w.b, &w.c, &w.total]),
            Self::SparseMultiply(w) => places(&[&w.alpha, &w.a, &w.b, &w.c, &w.total]),
            Self::SparseCompress(w) => places(&[&w.a, &w.per_row, &w.b, &w.total]),
            Self::SparseSolve(w) => places(&[&w.alpha, &w.a, &w.b, &w.c]),
            Self::SparseIncomplete(w) => places(&[&w.a, &w.position]),
            Self::SparseSystem(w) => places(&[&w.a, &w.b, &w.x, &w.singular]),
            Self::BlockProduct(w) => places(&[&w.alpha, &w.a, &w.b, &w.beta, &w.c]),
            Self::BlockSolve(w) => places(&[&w.alpha, &w.a, &w.b, &w.c, &w.position]),
            Self::BlockIncomplete(w) => places(&[&w.a, &w.tolerance, &w.boost, &w.position]),
            Self::BandSolve(w) => {
                places(&[&w.lowest, &w.lower, &w.diagonal, &w.upper, &w.highest, &w.x]);
            }
            Self::DenseLines(w) => places(&[&w.a, &w.per_line, &w.total]),
            Self::DnnGraph(w) => places(&[&w.tensors]),
            Self::DnnRecurrent(w) => {
                places(&[&w.weights, &w.kept, &w.x, &w.y, &w.hx, &w.hy, &w.cx, &w.cy, &w.dy, &w.dx]);
                places(&[&w.dhy, &w.dhx, &w.dcy, &w.dcx, &w.dweights]);
            }
            Self::DnnCtc(w) => {
                places(&[&w.probabilities, &w.gradient, &w.costs]);
                places(&[&w.labels_at, &w.label_lengths_at, &w.input_lengths_at]);
            }
            Self::DnnSpatial(w) => places(&[&w.theta, &w.grid, &w.x, &w.y, &w.dx, &w.dgrid]),
        }
        all.retain(|addr| *addr != 0);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gemm, Matmul};

    #[test]
    fn operands_that_are_there_are_listed() {
        let at = |addr| Matrix { addr, ..Matrix::default() };
        let gemm = Gemm { alpha: Scalar::device(8), a: at(16), b: at(32), c: at(48), ..Gemm::default() };
        assert_eq!(Operation::Gemm(gemm).addresses(), [8, 16, 32, 48]);
        let matmul = Matmul { alpha: Scalar::real(2.0), a: at(16), kept: at(64), ..Matmul::default() };
        assert_eq!(Operation::Matmul(matmul).addresses(), [16, 64]);
    }
}
