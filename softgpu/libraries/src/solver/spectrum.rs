//! Eigenvalues of matrices that need not be Hermitian.

use rgpu_dense::Dense;
use rgpu_device::Result;
use rgpu_libraries::{DataType, Eigen};
use rgpu_softgpu::library::Operand;

use super::dense::all;
use super::eigen::real_bytes;
use super::{Solver, info, list, of_problem};
use crate::{invalid, memory};

impl Solver for Eigen {
    fn shape(&self) -> (DataType, u64) {
        (self.a.kind, 1)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        if self.values == 0 && self.n > 0 {
            return invalid("There is no place for the eigenvalues");
        }
        let wanted = self.vectors.addr != 0;
        if wanted && self.vectors.kind != self.a.kind {
            return invalid("Eigenvectors of another type than their matrix");
        }
        let n = if wanted { self.n } else { 0 };
        Ok(vec![
            memory::matrix(&self.a, self.n, self.n, 1, false)?,
            list(self.values, self.n, 2 * real_bytes(self.a.kind), true)?,
            memory::matrix(&self.vectors, n, n, 1, true)?,
            info(self.info, 1)?,
        ])
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], _: usize) -> Result<i32> {
        let n = self.n as usize;
        if n == 0 {
            return Ok(0);
        }
        // SAFETY: the first operand is A.
        let given = unsafe { of_problem::<T>(memory[0], &self.a, 0).copy((n, n), all) }?;
        let wanted = self.vectors.addr != 0;
        // Where they are not found, none of them is.
        let finite =
            (0..n).all(|j| given.col_as_slice(j).iter().all(|x| (x.parts().0 + x.parts().1).is_finite()));
        let Some(found) = finite.then(|| T::spectrum(&given, wanted)).flatten() else { return Ok(n as i32) };
        let values = memory[1].cast::<T::Absolute>();
        for (i, &(re, im)) in found.values.iter().enumerate() {
            let (first, second) = if self.apart { (i, n + i) } else { (2 * i, 2 * i + 1) };
            // SAFETY: the second operand has two real numbers for each value.
            unsafe {
                values.add(first).write_unaligned(T::absolute(re));
                values.add(second).write_unaligned(T::absolute(im));
            }
        }
        let place = of_problem::<T>(memory[2], &self.vectors, 0);
        for (j, vector) in found.vectors.iter().enumerate() {
            let length = vector.iter().map(|(re, im)| re * re + im * im).sum::<f64>().sqrt();
            // The largest element becomes real, as LAPACK has it.
            let square = |&(re, im): &(f64, f64)| re * re + im * im;
            let largest = vector.iter().fold((1.0, 0.0), |best, x| {
                if square(x) > square(&best) || best == (1.0, 0.0) { *x } else { best }
            });
            let (turn_re, turn_im) = {
                let size = square(&largest).sqrt() * length;
                if size == 0.0 { (0.0, 0.0) } else { (largest.0 / size, -largest.1 / size) }
            };
            let is_real = !T::COMPLEX && found.values[j].1 == 0.0;
            for (i, &(re, im)) in vector.iter().enumerate() {
                let (re, im) = if is_real {
                    (re / length, 0.0)
                } else {
                    (re * turn_re - im * turn_im, re * turn_im + im * turn_re)
                };
                // Of a real matrix the vector of the second of two conjugates is that of the first one, whose imaginary part stands there.
                let value = match T::COMPLEX {
                    true => T::of(re, im),
                    false if found.values[j].1 < 0.0 => T::of(-im, 0.0),
                    false => T::of(re, 0.0),
                };
                // SAFETY: the third operand has n vectors of n numbers, if they are wanted.
                unsafe { place.set(i, j, value) };
            }
        }
        Ok(0)
    }
}
