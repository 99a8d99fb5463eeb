//! Eigenvalues and eigenvectors of Hermitian matrices.

use faer::Side;
use rgpu_device::Result;
use rgpu_libraries::{DataType, HermitianEigen};
use rgpu_softgpu::library::Operand;

use super::dense::{Dense, adjoint, all};
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
            let Ok(found) = lower.self_adjoint_eigen(Side::Lower) else { return Ok(n as i32) };
            (0..n).for_each(|i| set(i, found.S().column_vector()[i].parts().0));
            // SAFETY: the first operand is A.
            unsafe { a.store(found.U(), all) };
        } else {
            let Ok(found) = lower.self_adjoint_eigenvalues(Side::Lower) else { return Ok(n as i32) };
            found.iter().enumerate().for_each(|(i, value)| set(i, T::real(value)));
        }
        Ok(0)
    }
}
