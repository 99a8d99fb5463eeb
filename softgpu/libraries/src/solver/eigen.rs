//! Eigenvalues and eigenvectors of Hermitian matrices.

use rgpu_dense::Dense;
use rgpu_device::Result;
use rgpu_libraries::{DataType, HermitianEigen};
use rgpu_softgpu::library::Operand;

use super::dense::{adjoint, all};
use super::{Solver, info, list, of_problem};
use crate::{invalid, memory};

/// Bytes of a real number of the type.
pub(super) fn real_bytes(kind: DataType) -> u64 {
    if matches!(kind, DataType::F32 | DataType::C32) { 4 } else { 8 }
}

impl Solver for HermitianEigen {
    fn shape(&self) -> (DataType, u64) {
        (self.a.kind, self.count)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        let Some(values) = self.n.checked_mul(self.count) else {
            return invalid("More eigenvalues than the address space holds");
        };
        if self.values == 0 && values > 0 {
            return invalid("There is no place for the eigenvalues");
        }
        Ok(vec![
            memory::matrix(&self.a, self.n, self.n, self.count, true)?,
            list(self.values, values, real_bytes(self.a.kind), true)?,
            info(self.info, self.count)?,
        ])
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], problem: usize) -> Result<i32> {
        let n = self.n as usize;
        if n == 0 {
            return Ok(0);
        }
        let a = of_problem::<T>(memory[0], &self.a, problem);
        let upper = self.upper;
        // SAFETY: the first operand is A.
        let given = unsafe { a.copy((n, n), |i, j| if upper { i <= j } else { i >= j }) }?;
        let lower = if upper { adjoint(given.as_ref()) } else { given };
        let values = memory[1].cast::<T::Absolute>().wrapping_add(problem * n);
        let set = |index: usize, value: f64| {
            // SAFETY: the second operand has n numbers for each problem.
            unsafe { values.add(index).write_unaligned(T::absolute(value)) };
        };
        // Where it does not converge, as many elements off the diagonal are not zero as there can be.
        if self.vectors {
            let Some((found, of_them)) = T::eigenvectors(&lower) else { return Ok(n as i32) };
            found.into_iter().enumerate().for_each(|(i, value)| set(i, value));
            // SAFETY: the first operand is A.
            unsafe { a.store(of_them.as_ref(), all) };
        } else {
            let Some(found) = T::eigenvalues(&lower) else { return Ok(n as i32) };
            found.into_iter().enumerate().for_each(|(i, value)| set(i, value));
        }
        Ok(0)
    }
}
