//! Cholesky's factorisation.

use rgpu_dense::{Dense, Mat};
use rgpu_device::{Code, Error, Result};
use rgpu_libraries::{Batch, Cholesky, DataType, Matrix, Task};
use rgpu_softgpu::library::{Computation, Operand, Plan};

use super::dense::{adjoint, all};
use super::{Solver, info, list, of_problem};
use crate::{invalid, memory};

/// What [`Cholesky`] comes to.
pub(super) fn plan(operation: Cholesky) -> Result<Plan> {
    if operation.batch == Batch::Strided {
        return super::plan(operation);
    }
    let count = operation.count;
    let b = if operation.task == Task::Solve { operation.b.addr } else { 0 };
    let operands = vec![list(operation.a.addr, count, 8, false)?, list(b, count, 8, false)?];
    Ok(Plan { operands, computation: Box::new(Resolve(operation)) })
}

/// Reads the addresses of a batch's matrices once it is its turn.
struct Resolve(Cholesky);

impl Computation for Resolve {
    unsafe fn run(&self, _: &[*mut u8], _: usize, _: usize) -> Result<()> {
        Ok(())
    }

    unsafe fn then(&self, memory: &[*mut u8]) -> Result<Option<Plan>> {
        let address = |list: *mut u8, problem: usize| match list.is_null() {
            true => 0,
            // SAFETY: the operand has an address for each problem.
            false => unsafe { list.cast::<u64>().add(problem).read_unaligned() },
        };
        let problems = (0..self.0.count as usize).map(|problem| {
            let of =
                |matrix: &Matrix, list| Matrix { addr: address(list, problem), stride: 0, ..matrix.clone() };
            Cholesky {
                a: of(&self.0.a, memory[0]),
                b: of(&self.0.b, memory[1]),
                info: 0,
                count: 1,
                batch: Batch::Strided,
                ..self.0.clone()
            }
        });
        let problems = Scattered { problems: problems.collect(), info: self.0.info };
        super::plan(problems).map(Some)
    }
}

/// Problems that lie anywhere.
struct Scattered {
    problems: Vec<Cholesky>,
    info: u64,
}

impl Solver for Scattered {
    fn shape(&self) -> (DataType, u64) {
        let kind = self.problems.first().map_or(DataType::F32, |problem| problem.a.kind);
        (kind, self.problems.len() as u64)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        let mut operands = Vec::new();
        for problem in &self.problems {
            // Without the one for what a problem alone would say.
            operands.extend_from_slice(&problem.operands()?[..2]);
        }
        // A solution says no more than that its arguments make sense.
        let solves = self.problems.first().is_some_and(|problem| problem.task == Task::Solve);
        operands.push(info(self.info, if solves { 1 } else { self.problems.len() as u64 })?);
        Ok(operands)
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], problem: usize) -> Result<i32> {
        // SAFETY: the caller's promise.
        unsafe { self.problems[problem].run::<T>(&memory[2 * problem..2 * problem + 2], 0) }
    }
}

/// Solves with the lower triangle.
fn solve<T: Dense>(lower: &Mat<T>, b: &mut Mat<T>) {
    T::solve(lower, false, false, b);
    T::solve(&adjoint(lower.as_ref()), true, false, b);
}

impl Solver for Cholesky {
    fn shape(&self) -> (DataType, u64) {
        (self.a.kind, self.count)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        let solves = self.task == Task::Solve;
        let b = if solves { self.columns } else { 0 };
        if solves && self.b.kind != self.a.kind {
            return invalid("A system whose right sides have another type");
        }
        if self.task == Task::Apply {
            return invalid("There is nothing to multiply by in a Cholesky factorisation");
        }
        Ok(vec![
            memory::matrix(&self.a, self.n, self.n, self.count, !solves)?,
            memory::matrix(&self.b, if solves { self.n } else { 0 }, b, self.count, solves)?,
            info(self.info, self.count)?,
        ])
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], problem: usize) -> Result<i32> {
        let n = self.n as usize;
        if n == 0 {
            return Ok(0);
        }
        let upper = self.upper;
        let in_triangle = |i: usize, j: usize| if upper { i <= j } else { i >= j };
        let a = of_problem::<T>(memory[0], &self.a, problem);
        // SAFETY: the first operand is A; here and below, all elements are within its n rows and columns.
        let given = unsafe { a.copy((n, n), in_triangle) }?;
        let lower = if upper { adjoint(given.as_ref()) } else { given };
        match self.task {
            Task::Factor => {
                let factored = match T::cholesky(&lower) {
                    Ok(factored) => factored,
                    Err(minor) => return Ok(minor as i32 + 1),
                };
                let factor = if upper { adjoint(factored.as_ref()) } else { factored };
                // SAFETY: as above.
                unsafe { a.store(factor.as_ref(), in_triangle) };
            }
            Task::Form => {
                if let Some(zero) = (0..n).find(|&i| lower[(i, i)].parts() == (0.0, 0.0)) {
                    return Ok(zero as i32 + 1);
                }
                let one = Mat::<T>::from_fn(n, n, |i, j| T::of(if i == j { 1.0 } else { 0.0 }, 0.0));
                let mut inverse = one;
                solve(&lower, &mut inverse);
                // SAFETY: as above.
                unsafe { a.store(inverse.as_ref(), in_triangle) };
            }
            Task::Solve => {
                let at = of_problem::<T>(memory[1], &self.b, problem);
                let shape = (n, self.columns as usize);
                // SAFETY: the second operand is B.
                let mut b = unsafe { at.copy(shape, all) }?;
                solve(&lower, &mut b);
                // SAFETY: as above.
                unsafe { at.store(b.as_ref(), all) };
            }
            Task::Apply => return Err(Error::from(Code::InvalidValue)),
        }
        Ok(0)
    }
}
