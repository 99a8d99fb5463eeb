//! Singular values and vectors.

use rgpu_dense::Dense;
use rgpu_device::Result;
use rgpu_libraries::{DataType, Svd, Vectors};
use rgpu_softgpu::library::Operand;

use super::dense::{adjoint, all};
use super::eigen::real_bytes;
use super::{Solver, info, list, of_problem};
use crate::{invalid, memory};

/// How many vectors of this length are wanted.
fn wanted(vectors: Vectors, least: u64, length: u64) -> u64 {
    match vectors {
        Vectors::None => 0,
        Vectors::Thin => least,
        Vectors::All => length,
    }
}

impl Solver for Svd {
    fn shape(&self) -> (DataType, u64) {
        (self.a.kind, self.count)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        let (m, n, least) = (self.m, self.n, self.m.min(self.n));
        let (left, right) = (wanted(self.left, least, m), wanted(self.right, least, n));
        if (left > 0 && self.u.kind != self.a.kind) || (right > 0 && self.v.kind != self.a.kind) {
            return invalid("Singular vectors of another type than their matrix");
        }
        let Some(values) = least.checked_mul(self.count) else {
            return invalid("More singular values than the address space holds");
        };
        if self.values == 0 && values > 0 {
            return invalid("There is no place for the singular values");
        }
        let shape = |vectors, length, adjoint| match vectors {
            0 => (0, 0),
            _ if adjoint => (vectors, length),
            _ => (length, vectors),
        };
        let (of_u, of_v) = (shape(left, m, false), shape(right, n, self.adjoint));
        Ok(vec![
            memory::matrix(&self.a, m, n, self.count, false)?,
            list(self.values, values, real_bytes(self.a.kind), true)?,
            memory::matrix(&self.u, of_u.0, of_u.1, self.count, true)?,
            memory::matrix(&self.v, of_v.0, of_v.1, self.count, true)?,
            info(self.info, self.count)?,
        ])
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], problem: usize) -> Result<i32> {
        let (m, n) = (self.m as usize, self.n as usize);
        let least = m.min(n);
        if least == 0 {
            return Ok(0);
        }
        let values = memory[1].cast::<T::Absolute>().wrapping_add(problem * least);
        let set = |index: usize, value: f64| {
            // SAFETY: the second operand has so many numbers for each problem.
            unsafe { values.add(index).write_unaligned(T::absolute(value)) };
        };
        let a = of_problem::<T>(memory[0], &self.a, problem);
        // SAFETY: the first operand is A.
        let given = unsafe { a.copy((m, n), all) }?;
        if self.left == Vectors::None && self.right == Vectors::None {
            let Some(found) = T::singular_values(&given) else { return Ok(least as i32) };
            found.into_iter().enumerate().for_each(|(i, value)| set(i, value));
            return Ok(0);
        }
        // On the shorter side, as many as there are values are a whole basis.
        let whole = (self.left == Vectors::All && m > n) || (self.right == Vectors::All && n > m);
        let Some(found) = T::singular_vectors(&given, whole) else { return Ok(least as i32) };
        found.values.iter().enumerate().for_each(|(i, &value)| set(i, value));
        let count = |vectors, length: usize| wanted(vectors, least as u64, length as u64) as usize;
        let (left, right) = (count(self.left, m), count(self.right, n));
        let (u, v) =
            (of_problem::<T>(memory[2], &self.u, problem), of_problem::<T>(memory[3], &self.v, problem));
        let v_found = found.right.get(.., ..right);
        // SAFETY: the third operand is U, the fourth V or its adjoint, of as many vectors as are wanted.
        unsafe {
            u.store(found.left.get(.., ..left), all);
            if self.adjoint {
                v.store(adjoint(v_found).as_ref(), all);
            } else {
                v.store(v_found, all);
            }
        }
        Ok(0)
    }
}
