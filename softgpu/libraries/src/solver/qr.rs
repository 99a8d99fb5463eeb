//! Orthogonal factorisation. Programs see the reflections themselves, as LAPACK stores them (`H = I - tau v vᴴ`, the first element of `v`
//! being 1), which is not how other crates do; so they are made here.

use rgpu_dense::{Dense, Mat};
use rgpu_device::Result;
use rgpu_libraries::{DataType, Qr, Task, Transpose};
use rgpu_softgpu::library::Operand;

use super::dense::all;
use super::{Solver, info, list, of_problem};
use crate::{invalid, memory};

impl Solver for Qr {
    fn shape(&self) -> (DataType, u64) {
        (self.a.kind, 1)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        let (m, n, k) = (self.m, self.n, self.k);
        let ((rows, columns), (rows_c, columns_c)) = match self.task {
            Task::Factor if k == m.min(n) => ((m, n), (0, 0)),
            Task::Form if k <= n && n <= m => ((m, n), (0, 0)),
            Task::Apply if k <= if self.right { n } else { m } => {
                ((if self.right { n } else { m }, k), (m, n))
            }
            other => return invalid(format!("{other:?} of {k} reflections in {m} x {n}")),
        };
        let applies = self.task == Task::Apply;
        if applies && self.c.kind != self.a.kind {
            return invalid("A product with a matrix of another type");
        }
        if k > 0 && self.tau == 0 {
            return invalid("Reflections without factors");
        }
        Ok(vec![
            memory::matrix(&self.a, rows, columns, 1, !applies)?,
            list(self.tau, k, self.a.kind.bytes(), self.task == Task::Factor)?,
            memory::matrix(&self.c, rows_c, columns_c, 1, applies)?,
            info(self.info, 1)?,
        ])
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], _: usize) -> Result<i32> {
        let (m, n, k) = (self.m as usize, self.n as usize, self.k as usize);
        let a = of_problem::<T>(memory[0], &self.a, 0);
        let tau = memory[1].cast::<T>();
        // SAFETY: the second operand has k numbers.
        let factors = || (0..k).map(|i| unsafe { tau.add(i).read_unaligned() }).collect::<Vec<T>>();
        match self.task {
            Task::Factor => {
                // SAFETY: the first operand is A.
                let mut matrix = unsafe { a.copy((m, n), all) }?;
                for (i, factor) in factor(&mut matrix).into_iter().enumerate() {
                    // SAFETY: the second operand has k numbers.
                    unsafe { tau.add(i).write_unaligned(factor) };
                }
                // SAFETY: the first operand is A.
                unsafe { a.store(matrix.as_ref(), all) };
            }
            Task::Form => {
                // SAFETY: the first operand is A.
                let reflections = unsafe { a.copy((m, n), all) }?;
                let mut q = Mat::from_fn(m, n, |i, j| T::of(if i == j { 1.0 } else { 0.0 }, 0.0));
                for (i, tau) in factors().into_iter().enumerate().rev() {
                    // The columns before are still those of the identity, and stay so.
                    reflect(&reflection(&reflections, i), tau, i, &mut q, i);
                }
                // SAFETY: the first operand is A.
                unsafe { a.store(q.as_ref(), all) };
            }
            _ => {
                let c = of_problem::<T>(memory[2], &self.c, 0);
                let rows = if self.right { n } else { m };
                // SAFETY: the first operand is A.
                let reflections = unsafe { a.copy((rows, k), all) }?;
                // SAFETY: the third operand is C.
                let given = unsafe { c.copy((m, n), all) }?;
                let adjoint = match self.op {
                    Transpose::None => false,
                    Transpose::Adjoint => true,
                    Transpose::Transposed if !T::COMPLEX => true,
                    other => return invalid(format!("Q is not used as {other:?}")),
                };
                // C Q is the adjoint of Qᴴ Cᴴ.
                let mut product = if self.right { super::dense::adjoint(given.as_ref()) } else { given };
                let steps: Box<dyn Iterator<Item = usize>> =
                    if adjoint != self.right { Box::new(0..k) } else { Box::new((0..k).rev()) };
                let factors = factors();
                for i in steps {
                    let tau = if adjoint != self.right { factors[i].conjugate() } else { factors[i] };
                    reflect(&reflection(&reflections, i), tau, i, &mut product, 0);
                }
                let product = if self.right { super::dense::adjoint(product.as_ref()) } else { product };
                // SAFETY: the third operand is C.
                unsafe { c.store(product.as_ref(), all) };
            }
        }
        Ok(0)
    }
}

/// The vector of the reflection of this number, from its 1 on.
pub(super) fn reflection<T: Dense>(stored: &Mat<T>, index: usize) -> Vec<T> {
    let below = (index + 1..stored.nrows()).map(|i| stored[(i, index)]);
    std::iter::once(T::of(1.0, 0.0)).chain(below).collect()
}

/// Replaces the rows from `first` on of the columns from `column` on by what `I - tau v vᴴ` makes of them.
pub(super) fn reflect<T: Dense>(v: &[T], tau: T, first: usize, matrix: &mut Mat<T>, column: usize) {
    for j in column..matrix.ncols() {
        let of_column = &mut matrix.col_as_slice_mut(j)[first..];
        let mut product = T::of(0.0, 0.0);
        for (v, x) in v.iter().zip(of_column.iter()) {
            product += v.conjugate() * *x;
        }
        let product = product * tau;
        for (v, x) in v.iter().zip(of_column) {
            *x -= *v * product;
        }
    }
}

/// Makes the reflection that leaves nothing of a column below this row; its vector takes the place of that, and its factor is the result.
pub(super) fn make_reflection<T: Dense>(a: &mut Mat<T>, row: usize, column: usize) -> T {
    let m = a.nrows();
    let (re, im) = a[(row, column)].parts();
    // Scaled, so that nothing overflows on the way.
    let below = || (row + 1..m).map(|i| a[(i, column)].parts());
    let largest = below().fold(0.0f64, |l, (re, im)| l.max(re.abs()).max(im.abs()));
    let norm = if largest == 0.0 {
        0.0
    } else {
        below().map(|(re, im)| (re / largest).powi(2) + (im / largest).powi(2)).sum::<f64>().sqrt() * largest
    };
    if norm == 0.0 && im == 0.0 {
        return T::of(0.0, 0.0);
    }
    let beta = -re.hypot(im).hypot(norm).copysign(re);
    let tau = T::of((beta - re) / beta, -im / beta);
    // 1 / (alpha - beta)
    let (d_re, d_im) = (re - beta, im);
    let size = d_re * d_re + d_im * d_im;
    let scale = T::of(d_re / size, -d_im / size);
    for i in row + 1..m {
        a[(i, column)] *= scale;
    }
    a[(row, column)] = T::of(beta, 0.0);
    tau
}

/// Replaces a matrix by its reflections and the upper triangle, and yields the reflections' factors.
pub(super) fn factor<T: Dense>(a: &mut Mat<T>) -> Vec<T> {
    let mut factors = Vec::with_capacity(a.nrows().min(a.ncols()));
    for k in 0..a.nrows().min(a.ncols()) {
        let tau = make_reflection(a, k, k);
        if tau.parts() != (0.0, 0.0) {
            let v = reflection(a, k);
            reflect(&v, tau.conjugate(), k, a, k + 1);
        }
        factors.push(tau);
    }
    factors
}
