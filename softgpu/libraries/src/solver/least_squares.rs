//! Least squares, and reflections of many matrices at once.

use rgpu_dense::Dense;
use rgpu_device::Result;
use rgpu_libraries::{Batch, DataType, LeastSquares, Qr, QrBatch, Task};
use rgpu_softgpu::library::{Operand, Plan};

use super::dense::all;
use super::qr::{factor, reflect, reflection};
use super::{Solver, info, of_problem};
use crate::blas::batched::{self, Problems};
use crate::{invalid, memory};

/// One problem of a batch whose addresses are known.
#[derive(Clone)]
struct Alone(LeastSquares);

impl Problems for Alone {
    fn count(&self) -> u64 {
        self.0.count
    }
    fn addresses(&mut self) -> Vec<&mut u64> {
        vec![&mut self.0.a.addr, &mut self.0.b.addr]
    }
    fn adjust(&mut self, problem: u64) {
        if self.0.info != 0 {
            self.0.info = self.0.info.wrapping_add(problem.wrapping_mul(4));
        }
    }
    fn alone(self) -> Result<Plan> {
        super::plan(LeastSquares { batch: Batch::Strided, count: 1, ..self.0 })
    }
}

/// What [`LeastSquares`] comes to.
pub(super) fn plan(work: LeastSquares) -> Result<Plan> {
    if work.batch == Batch::Strided {
        return super::plan(work);
    }
    info(work.info, work.count)?;
    batched::plan(Alone(work))
}

impl Solver for LeastSquares {
    fn shape(&self) -> (DataType, u64) {
        (self.a.kind, self.count)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        let (m, n) = (self.m, self.n);
        if m < n || self.b.kind != self.a.kind || (self.x.addr != 0 && self.x.kind != self.a.kind) {
            return invalid(format!("Least squares of {m} equations for {n} unknowns, or of several types"));
        }
        // Each problem has a place of its own, so there are no more of them than memory holds.
        if self.count > 1 && (self.a.stride < 1 || n == 0) {
            return invalid("A batch of least squares in one place, or without unknowns");
        }
        let apart = self.x.addr != 0;
        let (rows, columns) = if apart { (n, self.columns) } else { (0, 0) };
        Ok(vec![
            memory::matrix(&self.a, m, n, self.count, self.keeps)?,
            memory::matrix(&self.b, m, self.columns, self.count, !apart)?,
            memory::matrix(&self.x, rows, columns, self.count, true)?,
            info(self.info, self.count)?,
        ])
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], problem: usize) -> Result<i32> {
        let (m, n) = (self.m as usize, self.n as usize);
        // Columns without rows are not in memory.
        let columns = if m == 0 { 0 } else { self.columns as usize };
        let place = of_problem::<T>(memory[0], &self.a, problem);
        // SAFETY: the first operand is A, the second is B.
        let (mut a, mut b) = unsafe {
            let b = of_problem::<T>(memory[1], &self.b, problem).copy((m, columns), all)?;
            (place.copy((m, n), all)?, b)
        };
        for (k, tau) in factor(&mut a).into_iter().enumerate() {
            reflect(&reflection(&a, k), tau.conjugate(), k, &mut b, 0);
        }
        if self.keeps {
            // SAFETY: the first operand is A.
            unsafe { place.store(a.as_ref(), all) };
        }
        if let Some(zero) = (0..n).find(|&k| a[(k, k)].parts() == (0.0, 0.0)) {
            return Ok(zero as i32 + 1);
        }
        let triangle = a.get(..n, ..).to_owned();
        let mut x = b.get(..n, ..).to_owned();
        if n > 0 && columns > 0 {
            T::solve(&triangle, true, false, &mut x);
        }
        let (to, matrix) = if self.x.addr != 0 { (memory[2], &self.x) } else { (memory[1], &self.b) };
        // SAFETY: the third operand is X, or the second one has room for it.
        unsafe { of_problem::<T>(to, matrix, problem).store(x.as_ref(), all) };
        Ok(0)
    }
}

/// One matrix of a batch whose addresses are known.
#[derive(Clone)]
struct AloneQr(QrBatch);

impl Problems for AloneQr {
    fn count(&self) -> u64 {
        self.0.count
    }
    fn addresses(&mut self) -> Vec<&mut u64> {
        vec![&mut self.0.a.addr, &mut self.0.tau]
    }
    fn alone(self) -> Result<Plan> {
        let QrBatch { m, n, a, tau, .. } = self.0;
        super::plan(Qr { task: Task::Factor, m, n, k: m.min(n), a, tau, ..Qr::default() })
    }
}

/// What [`QrBatch`] comes to.
pub(super) fn qr_batch(work: QrBatch) -> Result<Plan> {
    batched::plan(AloneQr(work))
}
