//! Factorisation into triangles.

use rgpu_dense::{Dense, Mat};
use rgpu_device::Result;
use rgpu_libraries::{DataType, Lu, Task, Transpose};
use rgpu_softgpu::library::Operand;

use super::dense::all;
use super::{Solver, info, list, of_problem};
use crate::{invalid, memory};

/// The exchanges that lead to an order of rows: with which row, counted from 1, each was exchanged.
fn exchanges(order: &[usize], count: usize) -> Vec<i64> {
    let mut row_at: Vec<usize> = (0..order.len()).collect();
    let mut place_of = row_at.clone();
    (0..count)
        .map(|i| {
            let from = place_of[order[i]];
            let moved = row_at[i];
            row_at.swap(i, from);
            place_of[moved] = from;
            place_of[order[i]] = i;
            from as i64 + 1
        })
        .collect()
}

/// Bytes of a pivot.
fn pivot_bytes(lu: &Lu) -> usize {
    if lu.wide { 8 } else { 4 }
}

/// A pivot.
///
/// # Safety
/// `at` is the operand of the pivots, which has this one.
unsafe fn pivot(lu: &Lu, at: *mut u8, index: usize) -> i64 {
    // SAFETY: the caller's promise.
    unsafe {
        if lu.wide {
            at.cast::<i64>().add(index).read_unaligned()
        } else {
            at.cast::<i32>().add(index).read_unaligned().into()
        }
    }
}

impl Solver for Lu {
    fn shape(&self) -> (DataType, u64) {
        (self.a.kind, self.count)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        let solves = self.task == Task::Solve;
        if !solves && self.task != Task::Factor {
            return invalid("Triangles are made, or solved with");
        }
        if solves && (self.m != self.n || self.b.kind != self.a.kind) {
            return invalid("A system that is not square, or whose right sides have another type");
        }
        let (rows, columns) = if solves { (self.n, self.columns) } else { (0, 0) };
        let Some(pivots) = self.m.min(self.n).checked_mul(self.count) else {
            return invalid("More pivots than the address space holds");
        };
        Ok(vec![
            memory::matrix(&self.a, self.m, self.n, self.count, !solves)?,
            list(self.pivots, pivots, pivot_bytes(self) as u64, !solves)?,
            memory::matrix(&self.b, rows, columns, self.count, solves)?,
            info(self.info, self.count)?,
        ])
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], problem: usize) -> Result<i32> {
        let (m, n) = (self.m as usize, self.n as usize);
        let least = m.min(n);
        if least == 0 {
            return Ok(0);
        }
        let a = of_problem::<T>(memory[0], &self.a, problem);
        let pivots =
            (!memory[1].is_null()).then(|| memory[1].wrapping_add(problem * least * pivot_bytes(self)));
        // SAFETY: the first operand is A.
        let given = unsafe { a.copy((m, n), all) }?;
        if self.task == Task::Factor {
            return if let Some(pivots) = pivots {
                let factored = T::triangles(&given);
                let (lower, upper) = (&factored.lower, &factored.upper);
                for j in 0..n {
                    for i in 0..m {
                        let value = if i > j { lower[(i, j)] } else { upper[(i, j)] };
                        // SAFETY: inside of A.
                        unsafe { a.set(i, j, value) };
                    }
                }
                for (i, from) in exchanges(&factored.order, least).into_iter().enumerate() {
                    // SAFETY: the second operand has so many numbers for each problem.
                    unsafe {
                        if self.wide {
                            pivots.cast::<i64>().add(i).write_unaligned(from);
                        } else {
                            pivots.cast::<i32>().add(i).write_unaligned(from as i32);
                        }
                    }
                }
                Ok(first_zero(least, |i| upper[(i, i)]))
            } else {
                let factored = without_exchanges(given);
                // SAFETY: the first operand is A.
                unsafe { a.store(factored.as_ref(), all) };
                Ok(first_zero(least, |i| factored[(i, i)]))
            };
        }
        let place = of_problem::<T>(memory[2], &self.b, problem);
        // SAFETY: the third operand is B.
        let mut b = unsafe { place.copy((n, self.columns as usize), all) }?;
        let exchange = |b: &mut Mat<T>, i: usize| -> Result<()> {
            let Some(pivots) = pivots else { return Ok(()) };
            // SAFETY: the second operand has n numbers for each problem.
            let from = unsafe { pivot(self, pivots, i) };
            if !(1..=n as i64).contains(&from) {
                return invalid(format!("Row {} was exchanged with row {from} of {n}", i + 1));
            }
            for j in 0..b.ncols() {
                let other = b[(from as usize - 1, j)];
                b[(from as usize - 1, j)] = b[(i, j)];
                b[(i, j)] = other;
            }
            Ok(())
        };
        match self.op {
            Transpose::None => {
                for i in 0..n {
                    exchange(&mut b, i)?;
                }
                T::solve(&given, false, true, &mut b);
                T::solve(&given, true, false, &mut b);
            }
            op => {
                let conjugated = op == Transpose::Adjoint;
                if op == Transpose::Conjugated {
                    return invalid("A system is not solved with a conjugated matrix");
                }
                let turned = Mat::<T>::from_fn(n, n, |i, j| {
                    if conjugated { given[(j, i)].conjugate() } else { given[(j, i)] }
                });
                T::solve(&turned, false, false, &mut b);
                T::solve(&turned, true, true, &mut b);
                for i in (0..n).rev() {
                    exchange(&mut b, i)?;
                }
            }
        }
        // SAFETY: the third operand is B.
        unsafe { place.store(b.as_ref(), all) };
        Ok(0)
    }
}

fn first_zero<T: Dense>(count: usize, diagonal: impl Fn(usize) -> T) -> i32 {
    (0..count).find(|&i| diagonal(i).parts() == (0.0, 0.0)).map_or(0, |i| i as i32 + 1)
}

/// Triangles without exchanges of rows, as the caller asks for by giving no place for them.
fn without_exchanges<T: Dense>(mut a: Mat<T>) -> Mat<T> {
    let (m, n) = (a.nrows(), a.ncols());
    for k in 0..m.min(n) {
        let (re, im) = a[(k, k)].parts();
        let size = re * re + im * im;
        if size == 0.0 {
            continue;
        }
        let inverse = T::of(re / size, -im / size);
        for i in k + 1..m {
            a[(i, k)] *= inverse;
        }
        for j in k + 1..n {
            let factor = a[(k, j)];
            for i in k + 1..m {
                a[(i, j)] = a[(i, j)] - a[(i, k)] * factor;
            }
        }
    }
    a
}
