//! Two diagonals between orthogonal matrices, by reflections of columns and rows in turn (Golub and Kahan, 1965).

use rgpu_dense::{Dense, Mat};
use rgpu_device::Result;
use rgpu_libraries::{Bidiagonal, DataType};
use rgpu_softgpu::library::Operand;

use super::dense::{adjoint, all};
use super::eigen::real_bytes;
use super::qr::{make_reflection, reflect, reflection};
use super::{Solver, info, list, of_problem};
use crate::memory;

/// The diagonals and the reflections' factors.
struct Factored<T> {
    diagonal: Vec<f64>,
    beside: Vec<f64>,
    tau_q: Vec<T>,
    tau_p: Vec<T>,
}

/// Replaces a matrix with at least as many rows as columns by its reflections and an upper bidiagonal.
fn factor<T: Dense>(a: &mut Mat<T>) -> Factored<T> {
    let (m, n) = (a.nrows(), a.ncols());
    let mut of = Factored { diagonal: Vec::new(), beside: Vec::new(), tau_q: Vec::new(), tau_p: Vec::new() };
    for k in 0..n {
        let tau = make_reflection(a, k, k);
        of.diagonal.push(a[(k, k)].parts().0);
        let v = reflection(a, k);
        reflect(&v, tau.conjugate(), k, a, k + 1);
        of.tau_q.push(tau);
        if k + 1 == n {
            of.tau_p.push(T::of(0.0, 0.0));
            continue;
        }
        // The row behind the diagonal, conjugated, is a column of the adjoint.
        let mut row = Mat::from_fn(n, 1, |j, _| if j > k { a[(k, j)].conjugate() } else { T::of(0.0, 0.0) });
        let tau = make_reflection(&mut row, k + 1, 0);
        of.beside.push(row[(k + 1, 0)].parts().0);
        let v: Vec<T> = (k + 1..n).map(|j| if j == k + 1 { T::of(1.0, 0.0) } else { row[(j, 0)] }).collect();
        // A (I - tau v vᴴ) is the adjoint of (I - conj(tau) v vᴴ) Aᴴ.
        let below = a.get(k + 1..m, ..).to_owned();
        let mut turned = adjoint(below.as_ref());
        reflect(&v, tau.conjugate(), k + 1, &mut turned, 0);
        for (i, j) in (k + 1..m).flat_map(|i| (k + 1..n).map(move |j| (i, j))) {
            a[(i, j)] = turned[(j, i - k - 1)].conjugate();
        }
        for j in k + 1..n {
            a[(k, j)] = if j == k + 1 { row[(j, 0)] } else { row[(j, 0)].conjugate() };
        }
        of.tau_p.push(tau);
    }
    of
}

impl Solver for Bidiagonal {
    fn shape(&self) -> (DataType, u64) {
        (self.a.kind, 1)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        let least = self.m.min(self.n);
        let (real, each) = (real_bytes(self.a.kind), self.a.kind.bytes());
        let places = [self.diagonal, self.tau_q, self.tau_p];
        if least > 0 && (places.contains(&0) || (least > 1 && self.beside == 0)) {
            return crate::invalid("There is no place for diagonals or for the factors of reflections");
        }
        Ok(vec![
            memory::matrix(&self.a, self.m, self.n, 1, true)?,
            list(self.diagonal, least, real, true)?,
            list(self.beside, least.saturating_sub(1), real, true)?,
            list(self.tau_q, least, each, true)?,
            list(self.tau_p, least, each, true)?,
            info(self.info, 1)?,
        ])
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], _: usize) -> Result<i32> {
        let (m, n) = (self.m as usize, self.n as usize);
        if m == 0 || n == 0 {
            return Ok(0);
        }
        let place = of_problem::<T>(memory[0], &self.a, 0);
        // SAFETY: the first operand is A.
        let mut a = unsafe { place.copy((m, n), all) }?;
        // A matrix with less rows is the adjoint of one with more, and columns and rows change their parts.
        let of = if m >= n {
            factor(&mut a)
        } else {
            let mut turned = adjoint(a.as_ref());
            let of = factor(&mut turned);
            a = adjoint(turned.as_ref());
            Factored { tau_q: of.tau_p, tau_p: of.tau_q, ..of }
        };
        // SAFETY: the operands are as said above.
        unsafe {
            place.store(a.as_ref(), all);
            for (list, at) in [(&of.diagonal, memory[1]), (&of.beside, memory[2])] {
                for (i, &value) in list.iter().enumerate() {
                    at.cast::<T::Absolute>().add(i).write_unaligned(T::absolute(value));
                }
            }
            for (list, at) in [(&of.tau_q, memory[3]), (&of.tau_p, memory[4])] {
                for (i, &value) in list.iter().enumerate() {
                    at.cast::<T>().add(i).write_unaligned(value);
                }
            }
        }
        Ok(0)
    }
}
