//! What operations of one stream work with: handles, plans and room, made when they are first needed.
//!
//! Each stream has its own, since a handle's working memory must not be used by two streams at a time. When a stream
//! is destroyed, its bench is kept for another stream, which waits for the end of the first one: libraries wait for
//! the whole device when a handle is destroyed, and nobody should have to.

use super::blas::Blas;
use super::blas_lt::Lt;
use super::dnn::Plans as Graphs;
use super::fft::Plans;
use super::rand::Generators;
use super::solver::Solver;
use super::sparse::Sparse;
use super::table::Object;
use super::values::refused;
use super::{Libraries, blas, dnn, sparse};
use crate::driver::Driver;
use crate::sys::Stream;
use rgpu_device::Result;
use rgpu_libraries::Operation;

/// Room comes in multiples of this, so that it seldom has to grow.
const STEP: u64 = 1 << 20;

/// Device memory that operations of a stream work in, one after the other.
#[derive(Default)]
struct Scratch {
    addr: u64,
    size: u64,
}

/// Where an operation gets room from, once.
pub(super) struct Room<'a> {
    driver: &'a Driver,
    stream: Stream,
    scratch: &'a mut Scratch,
}

impl Room<'_> {
    /// So many bytes until the operation is done; none at address 0.
    pub(super) fn take(&mut self, bytes: u64) -> Result<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        if self.scratch.size < bytes {
            let old = std::mem::take(self.scratch);
            if old.size > 0 {
                // In the stream's order: earlier operations are done with it then.
                self.driver.free_async(old.addr, self.stream)?;
            }
            let size = bytes.next_multiple_of(STEP);
            *self.scratch = Scratch { addr: self.driver.alloc_async(size, self.stream)?, size };
        }
        Ok(self.scratch.addr)
    }
}

impl Room<'_> {
    /// Writes 64 bits to device memory, in the stream's order.
    pub(super) fn write_word(&self, addr: u64, value: u64) -> Result<()> {
        self.driver.fill(addr, value as u32, 4, 1, self.stream)?;
        self.driver.fill(addr.wrapping_add(4), (value >> 32) as u32, 4, 1, self.stream)
    }
}

/// What a stream's operations work with.
#[derive(Default)]
pub(crate) struct Bench {
    blas: Option<Object>,
    lt: Option<Lt>,
    solver: Option<Solver>,
    sparse: Option<Object>,
    dnn: Option<Object>,
    plans: Plans,
    generators: Generators,
    graphs: Graphs,
    scratch: Scratch,
}

// SAFETY: the libraries' handles may be used from any thread, by one at a time.
unsafe impl Send for Bench {}

/// Makes something if it is not there yet.
fn made<T>(place: &mut Option<T>, make: impl FnOnce() -> Result<T>) -> Result<&mut T> {
    match place {
        Some(made) => Ok(made),
        None => Ok(place.insert(make()?)),
    }
}

impl Bench {
    /// Gives an operation to its library, which puts it on the stream. The stream's context must be current.
    pub(crate) fn run(
        &mut self,
        libraries: &Libraries,
        driver: &Driver,
        operation: &Operation,
        stream: Stream,
    ) -> Result<()> {
        let Self { blas, lt, solver, sparse, dnn, plans, generators, graphs, scratch } = self;
        let raw = stream.0;
        let mut room = Room { driver, stream, scratch };
        match operation {
            Operation::Matmul(work) => {
                let table = libraries.blas_lt()?;
                made(lt, || Lt::new(table))?.matmul(table, work, raw, &mut room)
            }
            Operation::AddMatrices(work) if !Blas::adds(work) => {
                let table = libraries.blas_lt()?;
                made(lt, || Lt::new(table))?.add(table, work, raw)
            }
            Operation::Gemm(_)
            | Operation::Combine(_)
            | Operation::Reduce(_)
            | Operation::MatrixVector(_)
            | Operation::TriangularVector(_)
            | Operation::RankUpdate(_)
            | Operation::SymmetricProduct(_)
            | Operation::RankK(_)
            | Operation::Triangular(_)
            | Operation::AddMatrices(_)
            | Operation::ScaleMatrix(_)
            | Operation::Factors(_) => {
                let table = libraries.blas()?;
                let handle = *made(blas, || blas::create(table))?;
                Blas::on(table, handle, raw)?.run(operation)
            }
            Operation::Fft(work) => plans.run(libraries.fft()?, work, raw, &mut room),
            Operation::Random(work) => generators.run(libraries.rand()?, work, raw),
            Operation::Cholesky(_)
            | Operation::Lu(_)
            | Operation::Qr(_)
            | Operation::HermitianEigen(_)
            | Operation::Svd(_)
            | Operation::Indefinite(_)
            | Operation::Eigen(_)
            | Operation::Bidiagonal(_)
            | Operation::LeastSquares(_) => {
                let table = libraries.solver()?;
                made(solver, || Solver::new(table))?.run(table, operation, raw, &mut room)
            }
            Operation::LargestSvd(_) => refused("batches of the largest singular values"),
            Operation::QrBatch(_) => refused("batches of orthogonal factorisations"),
            Operation::PackTriangle(_) => refused("triangles that are packed or unpacked"),
            Operation::SparseProduct(_)
            | Operation::SampledProduct(_)
            | Operation::SparseToDense(_)
            | Operation::DenseCount(_)
            | Operation::DenseToSparse(_)
            | Operation::SparseConvert(_)
            | Operation::SparseSort(_)
            | Operation::Iota(_)
            | Operation::SparseVectors(_)
            | Operation::SparseSum(_)
            | Operation::SparseMultiply(_)
            | Operation::SparseCompress(_)
            | Operation::SparseSolve(_)
            | Operation::SparseIncomplete(_)
            | Operation::SparseSystem(_)
            | Operation::BlockProduct(_)
            | Operation::BlockSolve(_)
            | Operation::BlockIncomplete(_)
            | Operation::BandSolve(_)
            | Operation::DenseLines(_) => {
                let table = libraries.sparse()?;
                let handle = *made(sparse, || sparse::create(table))?;
                Sparse::on(table, handle, raw)?.run(operation, &mut room)
            }
            Operation::DnnGraph(work) => {
                let table = libraries.dnn()?;
                let handle = *made(dnn, || dnn::create(table))?;
                graphs.run(table, handle, work, raw, &mut room)
            }
            Operation::DnnRecurrent(_) => {
                refused("recurrent networks: how large what cuDNN keeps for gradients is, only it knows")
            }
            Operation::DnnCtc(_) => refused("the loss of connectionist temporal classification"),
            Operation::DnnSpatial(_) => refused("spatial transformers"),
        }
    }
}
