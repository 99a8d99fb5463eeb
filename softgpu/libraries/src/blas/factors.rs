//! Many small square matrices and their triangular factors.

use std::marker::PhantomData;

use rgpu_device::{Error, Result};
use rgpu_libraries::{Factoring, Factors, Transpose};
use rgpu_softgpu::library::{Computation, Plan};

use super::batched::{self, Problems};
use super::dense::Dense;
use super::matrices::solve_lower;
use super::matrix_vector::of_op;
use crate::cells::Cells;
use crate::field::{Field, with_field};
use crate::memory;

/// One problem of a batch whose addresses are known.
#[derive(Clone)]
struct Batched(Factors);

impl Problems for Batched {
    fn count(&self) -> u64 {
        self.0.count
    }
    fn addresses(&mut self) -> Vec<&mut u64> {
        match self.0.what {
            Factoring::Factor => vec![&mut self.0.a.addr],
            _ => vec![&mut self.0.a.addr, &mut self.0.b.addr],
        }
    }
    fn adjust(&mut self, problem: u64) {
        let behind = |addr: u64, bytes: u64| if addr == 0 { 0 } else { addr.wrapping_add(bytes) };
        let rows = problem.wrapping_mul(self.0.n).wrapping_mul(4);
        self.0.pivots = behind(self.0.pivots, rows);
        self.0.info = behind(self.0.info, problem.wrapping_mul(4));
    }
    fn alone(self) -> Result<Plan> {
        alone(self.0)
    }
}

/// What [`Factors`] comes to.
pub(crate) fn plan(p: Factors) -> Result<Plan> {
    // The arrays of all problems have to exist before any problem is begun, and their lengths to be numbers.
    memory::array(p.pivots, p.count.saturating_mul(p.n), 4, true)?;
    memory::array(p.info, p.count, 4, true)?;
    batched::plan(Batched(p))
}

fn alone(p: Factors) -> Result<Plan> {
    let factor = p.what == Factoring::Factor;
    let columns = match p.what {
        Factoring::Factor => 0,
        Factoring::Solve => p.columns,
        Factoring::Invert | Factoring::InvertDirectly => p.n,
    };
    let there = |addr: u64, count: u64| if addr == 0 { 0 } else { count };
    let operands = vec![
        memory::matrix(&p.a, p.n, p.n, 1, factor)?,
        memory::matrix(&p.b, p.n, columns, 1, true)?,
        memory::array(p.pivots, there(p.pivots, p.n), 4, factor)?,
        memory::array(p.info, there(p.info, 1), 4, true)?,
    ];
    let computation = with_field!(p.compute, "work with triangular factors", T => {
        Ok::<Box<dyn Computation>, Error>(Box::new(One::<T>(p, PhantomData)))
    })?;
    Ok(Plan { operands, computation })
}

struct One<T>(Factors, PhantomData<fn(T)>);

/// Factors a matrix in place, with row exchanges unless there are to be none. The exchanges, and the first column (counted from 1)
/// without a pivot, or 0.
fn factor<T: Field>(a: &mut Dense<T>, exchange: bool) -> (Vec<usize>, usize) {
    let n = a.rows;
    let (mut exchanges, mut singular) = (Vec::with_capacity(n), 0);
    for k in 0..n {
        let mut best = k;
        if exchange {
            for i in k + 1..n {
                if a.at(i, k).size() > a.at(best, k).size() {
                    best = i;
                }
            }
        }
        exchanges.push(best);
        if a.at(best, k) == T::ZERO {
            singular = if singular == 0 { k + 1 } else { singular };
            continue;
        }
        if best != k {
            (0..n).for_each(|j| a.data.swap(k + j * n, best + j * n));
        }
        let pivot = a.at(k, k);
        for i in k + 1..n {
            let ratio = a.at(i, k) / pivot;
            a.set(i, k, ratio);
        }
        for j in k + 1..n {
            let above = a.at(k, j);
            for i in k + 1..n {
                let value = a.at(i, j) - a.at(i, k) * above;
                a.set(i, j, value);
            }
        }
    }
    (exchanges, singular)
}

/// Replaces B by the X with `op(A) X = B`, where A has factors and rows were exchanged.
fn solve<T: Field>(a: &Dense<T>, exchanges: &[usize], op: Transpose, b: &mut Dense<T>) {
    let n = a.rows;
    let (turned, conjugate) = of_op(op);
    let get = |i: usize, j: usize| if conjugate { a.at(i, j).conj() } else { a.at(i, j) };
    // An upper triangular matrix is a lower one when rows and columns are counted from the end.
    let backwards =
        |matrix: &Dense<T>| Dense::of(matrix.rows, matrix.columns, |i, j| matrix.at(matrix.rows - 1 - i, j));
    let solve_upper = |element: &dyn Fn(usize, usize) -> T, unit: bool, b: &mut Dense<T>| {
        let reversed = Dense::of(n, n, |i, j| if i < j { T::ZERO } else { element(n - 1 - i, n - 1 - j) });
        let mut turned = backwards(b);
        solve_lower(&reversed, unit, &mut turned);
        *b = backwards(&turned);
    };
    let swap =
        |b: &mut Dense<T>, i: usize, k: usize| (0..b.columns).for_each(|j| b.data.swap(i + j * n, k + j * n));
    if turned {
        let upper = Dense::of(n, n, |i, j| if i < j { T::ZERO } else { get(j, i) });
        solve_lower(&upper, false, b);
        solve_upper(&|i, j| get(j, i), true, b);
        for (k, other) in exchanges.iter().enumerate().rev() {
            swap(b, k, *other);
        }
    } else {
        for (k, other) in exchanges.iter().enumerate() {
            swap(b, k, *other);
        }
        solve_lower(&Dense::of(n, n, |i, j| if i < j { T::ZERO } else { get(i, j) }), true, b);
        solve_upper(&|i, j| get(i, j), false, b);
    }
}

impl<T: Field> Computation for One<T> {
    unsafe fn run(&self, memory: &[*mut u8], _: usize, _: usize) -> Result<()> {
        let p = &self.0;
        let n = p.n as usize;
        let (a_cells, b_cells) = (Cells::of_matrix(memory[0], &p.a, 0), Cells::of_matrix(memory[1], &p.b, 0));
        let pivots = memory[2].cast::<i32>();
        let mut singular = 0;
        // SAFETY: the operands are as the plan says.
        unsafe {
            let mut a: Dense<T> = Dense::read(a_cells, p.a.ld, Transpose::None, 0..p.n, 0..p.n);
            let write = |cells: Cells, ld: u64, from: &Dense<T>| {
                for j in 0..from.columns {
                    for i in 0..from.rows {
                        cells.set((i as u64 + j as u64 * ld) as isize, from.at(i, j));
                    }
                }
            };
            if p.what == Factoring::Factor {
                let (exchanges, at) = factor(&mut a, p.pivots != 0);
                singular = at;
                write(a_cells, p.a.ld, &a);
                if p.pivots != 0 {
                    for (i, exchange) in exchanges.iter().enumerate() {
                        pivots.add(i).write_unaligned(*exchange as i32 + 1);
                    }
                }
            } else {
                let exchanges: Vec<usize> = if p.what == Factoring::InvertDirectly {
                    let (exchanges, at) = factor(&mut a, true);
                    singular = at;
                    exchanges
                } else {
                    // What the program has written there itself may be no row.
                    let row = |i: usize| {
                        if p.pivots == 0 {
                            i
                        } else {
                            (pivots.add(i).read_unaligned() as usize).wrapping_sub(1)
                        }
                    };
                    (0..n).map(row).map(|row| row.min(n - 1)).collect()
                };
                if p.what == Factoring::Invert {
                    singular = (0..n).find(|i| a.at(*i, *i) == T::ZERO).map_or(0, |i| i + 1);
                }
                let columns = if p.what == Factoring::Solve { p.columns } else { p.n };
                let mut b: Dense<T> = match p.what {
                    Factoring::Solve => Dense::read(b_cells, p.b.ld, Transpose::None, 0..p.n, 0..columns),
                    _ => Dense::of(n, n, |i, j| if i == j { T::ONE } else { T::ZERO }),
                };
                if singular == 0 {
                    let op = if p.what == Factoring::Solve { p.op } else { Transpose::None };
                    solve(&a, &exchanges, op, &mut b);
                    write(b_cells, p.b.ld, &b);
                }
            }
            if p.info != 0 {
                memory[3].cast::<i32>().write_unaligned(singular as i32);
            }
        }
        Ok(())
    }
}
