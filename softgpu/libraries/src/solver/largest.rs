//! The largest singular values of matrices that have at least as many rows as columns.

use rgpu_dense::{Dense, Mat};
use rgpu_device::Result;
use rgpu_libraries::{DataType, LargestSvd};
use rgpu_softgpu::library::Operand;

use super::dense::all;
use super::eigen::real_bytes;
use super::{Solver, info, list, of_problem};
use crate::{invalid, memory};

impl Solver for LargestSvd {
    fn shape(&self) -> (DataType, u64) {
        (self.a.kind, self.count)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        let (m, n, rank) = (self.m, self.n, self.rank);
        if rank > n || n > m || (self.count > 1 && self.stride < rank.max(1)) {
            return invalid(format!("{rank} singular values of {m} x {n}"));
        }
        let wanted = |matrix: &rgpu_libraries::Matrix| matrix.addr != 0;
        if [&self.u, &self.v].iter().any(|of| wanted(of) && of.kind != self.a.kind) {
            return invalid("Singular vectors of another type than their matrix");
        }
        let values = match self.count.checked_sub(1) {
            None => Some(0),
            Some(others) => others.checked_mul(self.stride).and_then(|values| values.checked_add(rank)),
        };
        let Some(values) = values else {
            return invalid("More singular values than the address space holds");
        };
        if self.values == 0 && values > 0 {
            return invalid("There is no place for the singular values");
        }
        let rows = |matrix, rows| if wanted(matrix) { (rows, rank) } else { (0, 0) };
        let (of_u, of_v) = (rows(&self.u, m), rows(&self.v, n));
        Ok(vec![
            memory::matrix(&self.a, m, n, self.count, false)?,
            list(self.values, values, real_bytes(self.a.kind), true)?,
            memory::matrix(&self.u, of_u.0, of_u.1, self.count, true)?,
            memory::matrix(&self.v, of_v.0, of_v.1, self.count, true)?,
            list(self.residuals, self.count, 8, true)?,
            info(self.info, self.count)?,
        ])
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], problem: usize) -> Result<i32> {
        let (m, n, rank) = (self.m as usize, self.n as usize, self.rank as usize);
        let residual = |value: f64| {
            if self.residuals != 0 {
                // SAFETY: the fifth operand has a number for each problem.
                unsafe { memory[4].cast::<f64>().add(problem).write_unaligned(value) };
            }
        };
        if n == 0 {
            residual(0.0);
            return Ok(0);
        }
        // SAFETY: the first operand is A.
        let given = unsafe { of_problem::<T>(memory[0], &self.a, problem).copy((m, n), all) }?;
        let Some(found) = T::singular_vectors(&given, false) else { return Ok(n as i32) };
        let values = memory[1].cast::<T::Absolute>().wrapping_add(problem * self.stride as usize);
        for (i, &value) in found.values.iter().take(rank).enumerate() {
            // SAFETY: the second operand has so many numbers for each problem.
            unsafe { values.add(i).write_unaligned(T::absolute(value)) };
        }
        for (index, matrix, vectors) in [(2, &self.u, &found.left), (3, &self.v, &found.right)] {
            if matrix.addr != 0 {
                // SAFETY: the operand has so many vectors for each problem.
                unsafe {
                    of_problem::<T>(memory[index], matrix, problem).store(vectors.get(.., ..rank), all)
                };
            }
        }
        // What the product of the factors misses.
        let scaled = Mat::<T>::from_fn(m, rank, |i, j| found.left[(i, j)] * T::of(found.values[j], 0.0));
        let mut sum = 0.0;
        for (i, j) in (0..n).flat_map(|j| (0..m).map(move |i| (i, j))) {
            let mut left = given[(i, j)];
            for k in 0..rank {
                left -= scaled[(i, k)] * found.right[(j, k)].conjugate();
            }
            let (re, im) = left.parts();
            sum += re * re + im * im;
        }
        residual(sum.sqrt());
        Ok(0)
    }
}
