//! Symmetric matrices that need not be definite, by Bunch and Kaufman's exchanges (*Some stable methods for calculating inertia and
//! solving symmetric linear systems*, 1977). An upper triangle is a lower one when rows and columns are counted from the end, which is how LAPACK's forms
//! of the two are related, too.

use rgpu_dense::{Dense, Mat};
use rgpu_device::Result;
use rgpu_libraries::{DataType, Indefinite, Task};
use rgpu_softgpu::library::Operand;

use super::dense::all;
use super::{Solver, info, list, of_problem};
use crate::{invalid, memory};

/// One over a number.
fn inverse<T: Dense>(x: T) -> T {
    let (re, im) = x.parts();
    if !T::COMPLEX {
        return T::of(1.0 / re, 0.0);
    }
    let one = num_complex::Complex::new(1.0, 0.0) / num_complex::Complex::new(re, im);
    T::of(one.re, one.im)
}

/// The sum of the absolute values of a number's parts, by which pivots are chosen.
fn size<T: Dense>(x: T) -> f64 {
    let (re, im) = x.parts();
    re.abs() + im.abs()
}

/// The pivot of a step.
struct Pivot {
    /// The row it is exchanged with.
    row: usize,
    /// Whether it is a block of two rows.
    double: bool,
    /// Whether it is zero.
    zero: bool,
}

/// Chooses the pivot of the column `k` of the lower triangle.
fn choose<T: Dense>(a: &Mat<T>, k: usize) -> Pivot {
    let n = a.nrows();
    let alpha = (1.0 + 17f64.sqrt()) / 8.0;
    let here = size(a[(k, k)]);
    let mut most = (k, 0.0);
    for i in k + 1..n {
        if size(a[(i, k)]) > most.1 {
            most = (i, size(a[(i, k)]));
        }
    }
    let (row, in_column) = most;
    let single = |row, zero| Pivot { row, double: false, zero };
    if here.max(in_column) == 0.0 || here.is_nan() {
        return single(k, true);
    }
    if here >= alpha * in_column {
        return single(k, false);
    }
    let before = (k..row).map(|j| size(a[(row, j)]));
    let in_row = before.chain((row + 1..n).map(|i| size(a[(i, row)]))).fold(0.0, f64::max);
    if here >= alpha * in_column * (in_column / in_row) {
        single(k, false)
    } else if size(a[(row, row)]) >= alpha * in_row {
        single(row, false)
    } else {
        Pivot { row, double: true, zero: false }
    }
}

/// Exchanges rows and columns of what is left of the lower triangle from column `k` on.
fn exchange<T: Dense>(a: &mut Mat<T>, k: usize, pivot: &Pivot) {
    let (from, to, n) = (if pivot.double { k + 1 } else { k }, pivot.row, a.nrows());
    if to == from {
        return;
    }
    let mut swap = |first: (usize, usize), second: (usize, usize)| {
        let kept = a[first];
        a[first] = a[second];
        a[second] = kept;
    };
    (to + 1..n).for_each(|i| swap((i, from), (i, to)));
    (from + 1..to).for_each(|i| swap((i, from), (to, i)));
    swap((from, from), (to, to));
    if pivot.double {
        swap((k + 1, k), (to, k));
    }
}

/// Replaces a lower triangle by its factors. Pivots as LAPACK writes them, and the first one that is zero, counted from 1, or 0.
fn factor<T: Dense>(a: &mut Mat<T>, exchanges: bool) -> (Vec<i64>, i32) {
    let n = a.nrows();
    let (mut pivots, mut zero, mut k) = (Vec::with_capacity(n), 0, 0);
    while k < n {
        let mut pivot = Pivot { row: k, double: false, zero: a[(k, k)].parts() == (0.0, 0.0) };
        if exchanges {
            pivot = choose(a, k);
        }
        let row = pivot.row as i64 + 1;
        if pivot.zero {
            zero = if zero == 0 { k as i32 + 1 } else { zero };
            pivots.push(row);
            k += 1;
            continue;
        }
        exchange(a, k, &pivot);
        if !pivot.double {
            let by = inverse(a[(k, k)]);
            for j in k + 1..n {
                let factor = by * a[(j, k)];
                for i in j..n {
                    a[(i, j)] = a[(i, j)] - a[(i, k)] * factor;
                }
            }
            (k + 1..n).for_each(|i| a[(i, k)] *= by);
            pivots.push(row);
            k += 1;
            continue;
        }
        for j in k + 2..n {
            let [first, second] = block_solution(a, k, [a[(j, k)], a[(j, k + 1)]]);
            for i in j..n {
                a[(i, j)] = a[(i, j)] - a[(i, k)] * first - a[(i, k + 1)] * second;
            }
            a[(j, k)] = first;
            a[(j, k + 1)] = second;
        }
        pivots.extend([-row; 2]);
        k += 2;
    }
    (pivots, zero)
}

/// Solves with the symmetric block of the rows k and k + 1.
fn block_solution<T: Dense>(a: &Mat<T>, k: usize, [x, y]: [T; 2]) -> [T; 2] {
    // Divided by what is beside the diagonal, which is the largest of the block.
    let by = inverse(a[(k + 1, k)]);
    let (first, second) = (a[(k, k)] * by, a[(k + 1, k + 1)] * by);
    let (x, y) = (x * by, y * by);
    let left = inverse(first * second - T::of(1.0, 0.0));
    [(second * x - y) * left, (first * y - x) * left]
}

/// Replaces B by the solution, from a lower triangle's factors.
fn solve<T: Dense>(a: &Mat<T>, pivots: &[i64], b: &mut Mat<T>) -> Result<()> {
    let n = a.nrows();
    let row = |k: usize| {
        let row = pivots[k].unsigned_abs() as usize;
        if (1..=n).contains(&row) {
            Ok(row - 1)
        } else {
            invalid(format!("Row {} was exchanged with {}", k + 1, pivots[k]))
        }
    };
    for column in 0..b.ncols() {
        let b = b.col_as_slice_mut(column);
        let mut k = 0;
        while k < n {
            let double = pivots[k] < 0;
            if double && k + 1 == n {
                return invalid("A block of two rows that has one");
            }
            let width = if double { 2 } else { 1 };
            b.swap(k + width - 1, row(k)?);
            for i in k + width..n {
                for j in k..k + width {
                    b[i] -= a[(i, j)] * b[j];
                }
            }
            if double {
                [b[k], b[k + 1]] = block_solution(a, k, [b[k], b[k + 1]]);
            } else {
                b[k] *= inverse(a[(k, k)]);
            }
            k += width;
        }
        let mut end = n;
        while end > 0 {
            let k = end - 1;
            let width = if pivots[k] < 0 { 2.min(end) } else { 1 };
            for j in end - width..end {
                for i in end..n {
                    b[j] -= a[(i, j)] * b[i];
                }
            }
            b.swap(k, row(k)?);
            end -= width;
        }
    }
    Ok(())
}

/// A matrix whose rows, and columns if it is square, are counted from the end.
fn from_end<T: Dense>(a: &Mat<T>, columns: bool) -> Mat<T> {
    let (m, n) = (a.nrows(), a.ncols());
    Mat::from_fn(m, n, |i, j| a[(m - 1 - i, if columns { n - 1 - j } else { j })])
}

/// The same with the numbers of rows.
fn pivots_from_end(pivots: &[i64]) -> Vec<i64> {
    let n = pivots.len() as i64;
    let turned = |&row: &i64| if row < 0 { -(n + 1 + row) } else { n + 1 - row };
    pivots.iter().rev().map(turned).collect()
}

impl Solver for Indefinite {
    fn shape(&self) -> (DataType, u64) {
        (self.a.kind, 1)
    }

    fn operands(&self) -> Result<Vec<Operand>> {
        let solves = self.task == Task::Solve;
        if !solves && self.task != Task::Factor {
            return invalid("Symmetric factors are made, or solved with");
        }
        if solves && self.b.kind != self.a.kind {
            return invalid("A system whose right sides have another type");
        }
        let (rows, columns) = if solves { (self.n, self.columns) } else { (0, 0) };
        Ok(vec![
            memory::matrix(&self.a, self.n, self.n, 1, !solves)?,
            list(self.pivots, self.n, if self.wide { 8 } else { 4 }, !solves)?,
            memory::matrix(&self.b, rows, columns, 1, solves)?,
            info(self.info, 1)?,
        ])
    }

    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], _: usize) -> Result<i32> {
        let n = self.n as usize;
        if n == 0 {
            return Ok(0);
        }
        let place = of_problem::<T>(memory[0], &self.a, 0);
        let upper = self.upper;
        let there = |i: usize, j: usize| if upper { i <= j } else { i >= j };
        // SAFETY: the first operand is A.
        let given = unsafe { place.copy((n, n), there) }?;
        let mut lower = if upper { from_end(&given, true) } else { given };
        if self.task == Task::Factor {
            let (pivots, zero) = factor(&mut lower, self.pivots != 0);
            let (factors, pivots) =
                if upper { (from_end(&lower, true), pivots_from_end(&pivots)) } else { (lower, pivots) };
            // SAFETY: the first operand is A, and the second has n numbers if it is there.
            unsafe {
                place.store(factors.as_ref(), there);
                for (i, &row) in pivots.iter().enumerate().filter(|_| self.pivots != 0) {
                    if self.wide {
                        memory[1].cast::<i64>().add(i).write_unaligned(row);
                    } else {
                        memory[1].cast::<i32>().add(i).write_unaligned(row as i32);
                    }
                }
            }
            let zero = if upper && zero > 0 { n as i32 + 1 - zero } else { zero };
            return Ok(zero);
        }
        let pivots: Vec<i64> = if self.pivots == 0 {
            (1..=n as i64).collect()
        } else {
            // SAFETY: the second operand has n numbers.
            let pivot = |i: usize| unsafe {
                if self.wide {
                    memory[1].cast::<i64>().add(i).read_unaligned()
                } else {
                    memory[1].cast::<i32>().add(i).read_unaligned().into()
                }
            };
            let pivots: Vec<i64> = (0..n).map(pivot).collect();
            if upper { pivots_from_end(&pivots) } else { pivots }
        };
        let place = of_problem::<T>(memory[2], &self.b, 0);
        // SAFETY: the third operand is B.
        let given = unsafe { place.copy((n, self.columns as usize), all) }?;
        let mut b = if upper { from_end(&given, false) } else { given };
        solve(&lower, &pivots, &mut b)?;
        let b = if upper { from_end(&b, false) } else { b };
        // SAFETY: the third operand is B.
        unsafe { place.store(b.as_ref(), all) };
        Ok(0)
    }
}
