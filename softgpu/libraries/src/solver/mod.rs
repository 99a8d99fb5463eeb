//! Operations of cuSOLVER: factorisations by [`rgpu_dense`], and what stores them as LAPACK does.

mod bidiagonal;
mod cholesky;
mod dense;
mod eigen;
mod indefinite;
mod largest;
mod least_squares;
mod lu;
mod packed;
mod qr;
mod spectrum;
mod svd;

use std::marker::PhantomData;

use rgpu_dense::Dense;
use rgpu_device::Result;
use rgpu_libraries::{Cholesky, DataType, HermitianEigen, LeastSquares, Lu, Matrix, Qr, QrBatch, Svd};
use rgpu_softgpu::library::{Computation, Operand, Plan};

use crate::missing;

/// An operation that can be done problem by problem.
pub(crate) trait Solver: Send + Sync + 'static {
    /// The matrix that says which type is computed with, and how many problems there are.
    fn shape(&self) -> (DataType, u64);

    /// The operands for this type of elements, the one with [`Solver::run`]'s results for `info` at the end.
    fn operands(&self) -> Result<Vec<Operand>>;

    /// Solves a problem and yields its `info`.
    ///
    /// # Safety
    /// The pointers are to the operands.
    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], problem: usize) -> Result<i32>;
}

/// The plan of an operation.
pub(crate) fn plan<S: Solver>(solver: S) -> Result<Plan> {
    use num_complex::Complex;
    let operands = solver.operands()?;
    let (kind, count) = solver.shape();
    let computation: Box<dyn Computation> = match kind {
        DataType::F32 => Box::new(Each::<S, f32> { solver, count, of: PhantomData }),
        DataType::F64 => Box::new(Each::<S, f64> { solver, count, of: PhantomData }),
        DataType::C32 => Box::new(Each::<S, Complex<f32>> { solver, count, of: PhantomData }),
        DataType::C64 => Box::new(Each::<S, Complex<f64>> { solver, count, of: PhantomData }),
        other => return missing(format!("factorisations of matrices of {other:?}")),
    };
    Ok(Plan { operands, computation })
}

/// What [`Cholesky`] comes to.
pub(crate) fn cholesky(operation: Cholesky) -> Result<Plan> {
    cholesky::plan(operation)
}

/// What [`LeastSquares`] comes to.
pub(crate) fn least_squares(operation: LeastSquares) -> Result<Plan> {
    least_squares::plan(operation)
}

/// What [`QrBatch`] comes to.
pub(crate) fn qr_batch(operation: QrBatch) -> Result<Plan> {
    least_squares::qr_batch(operation)
}

/// What [`Lu`] comes to.
pub(crate) fn lu(operation: Lu) -> Result<Plan> {
    plan(operation)
}

/// What [`Qr`] comes to.
pub(crate) fn qr(operation: Qr) -> Result<Plan> {
    plan(operation)
}

/// What [`HermitianEigen`] comes to.
pub(crate) fn eigen(operation: HermitianEigen) -> Result<Plan> {
    plan(operation)
}

/// What [`Svd`] comes to.
pub(crate) fn svd(operation: Svd) -> Result<Plan> {
    plan(operation)
}

/// All problems of an operation, in pieces of some problems.
struct Each<S, T> {
    solver: S,
    count: u64,
    of: PhantomData<fn(T)>,
}

impl<S: Solver, T: Dense> Computation for Each<S, T> {
    fn pieces(&self, threads: usize) -> usize {
        self.count.min(2 * threads as u64).max(1) as usize
    }

    unsafe fn run(&self, memory: &[*mut u8], piece: usize, pieces: usize) -> Result<()> {
        let part = |piece: usize| (u128::from(self.count) * piece as u128 / pieces as u128) as usize;
        let has_info = memory.last().filter(|at| !at.is_null());
        for problem in part(piece)..part(piece + 1) {
            // SAFETY: the caller's promise.
            let info = unsafe { self.solver.run::<T>(memory, problem) }?;
            if let Some(at) = has_info {
                // SAFETY: the last operand has a number for each problem.
                unsafe { at.cast::<i32>().add(problem).write_unaligned(info) };
            }
        }
        Ok(())
    }
}

/// The operand for what each problem says about itself.
fn info(addr: u64, count: u64) -> Result<Operand> {
    list(addr, count, 4, true)
}

/// So many numbers of so many bytes, or nothing where there is no address.
fn list(addr: u64, count: u64, bytes: u64, written: bool) -> Result<Operand> {
    let bytes = if addr == 0 { Some(0) } else { count.checked_mul(bytes) };
    match bytes {
        Some(bytes) if addr.checked_add(bytes).is_some() => Ok(Operand { addr, bytes, written }),
        _ => crate::invalid("More numbers than the address space holds"),
    }
}

/// Where a problem's matrix is, by the operand of the whole batch.
fn of_problem<T>(at: *mut u8, matrix: &Matrix, problem: usize) -> dense::Place<T> {
    let at = at.cast::<T>().wrapping_offset(problem as isize * matrix.stride as isize);
    dense::Place { at, ld: matrix.ld as usize }
}
