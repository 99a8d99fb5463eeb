//! The mathematical libraries of the software GPU: each operation of [`rgpu_libraries`], computed on the processor by crates
//! made for that ([`gemm`] for products of matrices).
//!
//! An operation becomes a [`Plan`]: the memory that it uses, which the software GPU checks, and a [`Computation`](rgpu_softgpu::library::Computation), which
//! its workers carry out in pieces.

mod blas;
mod cells;
mod dnn;
mod fft;
mod field;
mod gelu;
mod memory;
mod number;
mod random;
mod scalar;
mod solver;
mod sparse;

use rgpu_device::{Code, Error, Result};
use rgpu_libraries::{Library, Operation};
use rgpu_softgpu::library::{Libraries, Plan};

/// The libraries of the software GPU, to be named in its [`Config`](rgpu_softgpu::Config).
pub static LIBRARIES: &dyn Libraries = &SoftLibraries;

#[derive(Debug)]
struct SoftLibraries;

/// An operation that cannot be done like this.
fn invalid<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::new(Code::InvalidValue, what))
}

/// An operation that nobody has written yet.
fn missing<T>(what: impl Into<String>) -> Result<T> {
    Err(Error::new(Code::NotSupported, format!("The software GPU does not have {}", what.into())))
}

impl Libraries for SoftLibraries {
    fn version(&self, library: u32) -> Result<u32> {
        match Library::from_number(library) {
            // What there is behaves as these versions do.
            Some(Library::Blas | Library::BlasLt) => Ok(130_001),
            Some(Library::Fft) => Ok(12_000),
            Some(Library::Dnn) => Ok(90_800),
            Some(Library::Rand) => Ok(10_400),
            Some(Library::Solver) => Ok(12_000),
            Some(Library::Sparse) => Ok(12_500),
            None => invalid(format!("There is no library number {library}")),
        }
    }

    fn plan(&self, operation: u32, params: &[u8]) -> Result<Plan> {
        let operation = Operation::read(operation, params)
            .map_err(|error| Error::new(Code::InvalidValue, format!("An operation of a library: {error}")))?;
        let plan = match operation {
            Operation::Gemm(gemm) => blas::gemm::plan(gemm),
            Operation::DnnGraph(graph) => dnn::plan(graph),
            Operation::DnnRecurrent(network) => dnn::recurrent::plan(network),
            Operation::DnnCtc(loss) => dnn::ctc::plan(loss),
            Operation::DnnSpatial(transformer) => dnn::spatial::plan(transformer),
            Operation::Combine(vectors) => blas::vectors::combine(vectors),
            Operation::Reduce(vectors) => blas::vectors::reduce(vectors),
            Operation::MatrixVector(product) => blas::matrix_vector::matrix_vector(product),
            Operation::TriangularVector(work) => blas::matrix_vector::triangular_vector(work),
            Operation::RankUpdate(update) => blas::matrix_vector::rank_update(update),
            Operation::SymmetricProduct(product) => blas::matrices::symmetric(product),
            Operation::RankK(update) => blas::matrices::rank_k(update),
            Operation::Triangular(work) => blas::matrices::triangular(work),
            Operation::AddMatrices(sum) => blas::matrices::add(sum),
            Operation::ScaleMatrix(product) => blas::matrices::scale(product),
            Operation::Factors(factors) => blas::factors::plan(factors),
            Operation::Matmul(product) => blas::matmul::plan(product),
            Operation::Fft(fft) => fft::plan(fft),
            Operation::Random(random) => random::plan(random),
            Operation::Cholesky(operation) => solver::cholesky(operation),
            Operation::Lu(operation) => solver::lu(operation),
            Operation::Qr(operation) => solver::qr(operation),
            Operation::HermitianEigen(operation) => solver::eigen(operation),
            Operation::Svd(operation) => solver::svd(operation),
            Operation::Indefinite(operation) => solver::plan(operation),
            Operation::Eigen(operation) => solver::plan(operation),
            Operation::LargestSvd(operation) => solver::plan(operation),
            Operation::Bidiagonal(operation) => solver::plan(operation),
            Operation::LeastSquares(operation) => solver::least_squares(operation),
            Operation::QrBatch(operation) => solver::qr_batch(operation),
            Operation::PackTriangle(operation) => solver::plan(operation),
            Operation::SparseProduct(operation) => sparse::plan(operation),
            Operation::SampledProduct(operation) => sparse::plan(operation),
            Operation::SparseToDense(operation) => sparse::plan(operation),
            Operation::DenseCount(operation) => sparse::plan(operation),
            Operation::DenseToSparse(operation) => sparse::plan(operation),
            Operation::SparseConvert(operation) => sparse::plan(operation),
            Operation::SparseSort(operation) => sparse::sort(operation),
            Operation::Iota(operation) => sparse::iota(operation),
            Operation::SparseVectors(operation) => sparse::plan(operation),
            Operation::SparseSum(operation) => sparse::sum(operation),
            Operation::SparseMultiply(operation) => sparse::plan(operation),
            Operation::SparseCompress(operation) => sparse::compress(operation),
            Operation::SparseSolve(operation) => sparse::plan(operation),
            Operation::SparseIncomplete(operation) => sparse::plan(operation),
            Operation::SparseSystem(operation) => sparse::plan(operation),
            Operation::BlockProduct(operation) => sparse::plan(operation),
            Operation::BlockSolve(operation) => sparse::plan(operation),
            Operation::BlockIncomplete(operation) => sparse::plan(operation),
            Operation::BandSolve(operation) => sparse::plan(operation),
            Operation::DenseLines(operation) => sparse::plan(operation),
        }?;
        match plan.operands.iter().find(|operand| operand.addr.checked_add(operand.bytes).is_none()) {
            Some(operand) => {
                invalid(format!("An operand that is longer than the address space: {operand:?}"))
            }
            None => Ok(plan),
        }
    }
}
