//! Operations on a matrix and vectors.

use std::marker::PhantomData;

use rgpu_device::{Error, Result};
use rgpu_libraries::{
    Batch, Fill, MatrixVector, RankUpdate, Storage, Structure, Transpose, TriangularVector,
};
use rgpu_softgpu::library::{Computation, Plan};

use super::batched::{self, Problems};
use super::stored::Form;
use crate::cells::{Cells, Items};
use crate::field::{Field, with_field};
use crate::{invalid, memory, scalar};

/// Whether rows and columns change places, and whether elements are conjugated.
pub(crate) fn of_op(op: Transpose) -> (bool, bool) {
    (
        matches!(op, Transpose::Transposed | Transpose::Adjoint),
        matches!(op, Transpose::Adjoint | Transpose::Conjugated),
    )
}

fn conjugated<T: Field>(value: T, conjugated: bool) -> T {
    if conjugated { value.conj() } else { value }
}

impl Problems for MatrixVector {
    fn count(&self) -> u64 {
        self.count
    }
    fn addresses(&mut self) -> Vec<&mut u64> {
        vec![&mut self.a.addr, &mut self.x.addr, &mut self.y.addr]
    }
    fn alone(mut self) -> Result<Plan> {
        (self.batch, self.count) = (Batch::Strided, 1);
        matrix_vector(self)
    }
}

fn form_of(p: &MatrixVector) -> Form {
    let diagonals = match (p.structure, p.fill) {
        (Structure::General, _) => (p.lower, p.upper),
        (_, Fill::Lower) => (p.lower, 0),
        (_, Fill::Upper) => (0, p.upper),
    };
    Form { storage: p.storage, structure: p.structure, fill: p.fill, shape: (p.m, p.n), diagonals }
}

/// What [`MatrixVector`] comes to.
pub(crate) fn matrix_vector(mut p: MatrixVector) -> Result<Plan> {
    if p.m == 0 || p.n == 0 {
        p.count = 0;
    }
    if p.batch == Batch::Pointers {
        return batched::plan(p);
    }
    if p.m != p.n && p.structure != Structure::General {
        return invalid("A symmetric matrix that is not square");
    }
    let turned = of_op(p.op).0;
    let (of_x, of_y) = if turned { (p.m, p.n) } else { (p.n, p.m) };
    let operands = vec![
        form_of(&p).operand(&p.a, p.count, false)?,
        memory::vector(&p.x, of_x, p.count, false)?,
        memory::vector(&p.y, of_y, p.count, true)?,
        scalar::operand(&p.alpha, p.scalar)?,
        scalar::operand(&p.beta, p.scalar)?,
    ];
    let computation = with_field!(p.compute, "a product of a matrix and a vector", T => {
        Ok::<Box<dyn Computation>, Error>(Box::new(Products::<T>(p, PhantomData)))
    })?;
    Ok(Plan { operands, computation })
}

struct Products<T>(MatrixVector, PhantomData<fn(T)>);

impl<T: Field> Computation for Products<T> {
    fn pieces(&self, threads: usize) -> usize {
        (self.0.count.min(threads as u64) as usize).max(1)
    }

    unsafe fn run(&self, memory: &[*mut u8], piece: usize, pieces: usize) -> Result<()> {
        let p = &self.0;
        let form = form_of(p);
        let (turned, conjugate) = of_op(p.op);
        let (of_x, of_y) = if turned { (p.m, p.n) } else { (p.n, p.m) };
        let (piece, pieces) = (piece as u64, pieces as u64);
        // SAFETY: the operands are as the plan says.
        unsafe {
            let alpha: T = scalar::read(&p.alpha, p.scalar, memory[3]);
            let beta: T = scalar::read(&p.beta, p.scalar, memory[4]);
            // The product in two halves, so that neither overflows.
            let share = |piece: u64| ((u128::from(p.count) * u128::from(piece)) / u128::from(pieces)) as u64;
            for problem in share(piece)..share(piece + 1) {
                let a = Cells::of_matrix(memory[0], &p.a, problem);
                let x = Items::of(memory[1], &p.x, of_x, problem);
                let y = Items::of(memory[2], &p.y, of_y, problem);
                let mut sums = vec![T::ZERO; of_y as usize];
                if alpha != T::ZERO {
                    for j in 0..p.n {
                        for i in form.rows(j) {
                            let element = conjugated(form.get::<T>(a, p.a.ld, i, j), conjugate);
                            if turned {
                                sums[j as usize] += element * x.get(i as usize);
                            } else {
                                sums[i as usize] += element * x.get(j as usize);
                            }
                        }
                    }
                }
                for (i, sum) in sums.into_iter().enumerate() {
                    let mut value = alpha * sum;
                    if beta != T::ZERO {
                        value += beta * y.get(i);
                    }
                    y.set(i, value);
                }
            }
        }
        Ok(())
    }
}

fn triangle(p: &TriangularVector) -> Form {
    let diagonals = match p.fill {
        Fill::Lower => (p.diagonals, 0),
        Fill::Upper => (0, p.diagonals),
    };
    Form { storage: p.storage, structure: Structure::General, fill: p.fill, shape: (p.n, p.n), diagonals }
}

/// What [`TriangularVector`] comes to.
pub(crate) fn triangular_vector(p: TriangularVector) -> Result<Plan> {
    let operands = vec![triangle(&p).operand(&p.a, 1, false)?, memory::vector(&p.x, p.n, 1, true)?];
    let computation = with_field!(p.compute, "work with a triangular matrix and a vector", T => {
        Ok::<Box<dyn Computation>, Error>(Box::new(Triangle::<T>(p, PhantomData)))
    })?;
    Ok(Plan { operands, computation })
}

struct Triangle<T>(TriangularVector, PhantomData<fn(T)>);

impl<T: Field> Computation for Triangle<T> {
    unsafe fn run(&self, memory: &[*mut u8], _: usize, _: usize) -> Result<()> {
        let p = &self.0;
        let form = triangle(p);
        let (turned, conjugate) = of_op(p.op);
        let a = Cells::of_matrix(memory[0], &p.a, 0);
        let x = Items::of(memory[1], &p.x, p.n, 0);
        let lower = (p.fill == Fill::Lower) != turned;
        let n = p.n;
        // SAFETY: the operands are as the plan says.
        unsafe {
            // An element of op(A) on the side that is there.
            let at = |i: u64, j: u64| -> T {
                if i == j && p.unit {
                    return T::ONE;
                }
                let (i, j) = if turned { (j, i) } else { (i, j) };
                let (below, above) = form.diagonals;
                if form.storage == Storage::Band
                    && (i > j.saturating_add(below) || j > i.saturating_add(above))
                {
                    return T::ZERO;
                }
                conjugated(a.get(form.index(p.a.ld, i, j)), conjugate)
            };
            let others = |i: u64| if lower { 0..i } else { i + 1..n };
            // Solving begins with the row that has nothing but the diagonal; multiplying ends with it.
            let forward = lower == p.solve;
            for step in 0..n {
                let i = if forward { step } else { n - 1 - step };
                let mut value: T = x.get(i as usize);
                if p.solve {
                    for j in others(i) {
                        value = value - at(i, j) * x.get(j as usize);
                    }
                    value = if p.unit { value } else { value / at(i, i) };
                } else {
                    value = at(i, i) * value;
                    for j in others(i) {
                        value += at(i, j) * x.get(j as usize);
                    }
                }
                x.set(i as usize, value);
            }
        }
        Ok(())
    }
}

/// What [`RankUpdate`] comes to.
pub(crate) fn rank_update(p: RankUpdate) -> Result<Plan> {
    if p.storage == Storage::Band || (p.storage == Storage::Packed && p.structure == Structure::General) {
        return invalid("An update of a matrix that is stored like this");
    }
    if p.m != p.n && p.structure != Structure::General {
        return invalid("A symmetric matrix that is not square");
    }
    let operands = vec![
        memory::vector(&p.x, p.m, 1, false)?,
        memory::vector(&p.y, p.n, 1, false)?,
        updated(&p).operand(&p.a, 1, true)?,
        scalar::operand(&p.alpha, p.scalar)?,
    ];
    let computation = with_field!(p.compute, "an update of a matrix by vectors", T => {
        Ok::<Box<dyn Computation>, Error>(Box::new(Update::<T>(p, PhantomData)))
    })?;
    Ok(Plan { operands, computation })
}

fn updated(p: &RankUpdate) -> Form {
    Form { storage: p.storage, structure: p.structure, fill: p.fill, shape: (p.m, p.n), diagonals: (0, 0) }
}

struct Update<T>(RankUpdate, PhantomData<fn(T)>);

impl<T: Field> Computation for Update<T> {
    unsafe fn run(&self, memory: &[*mut u8], _: usize, _: usize) -> Result<()> {
        let p = &self.0;
        let form = updated(p);
        let (x, y) = (Items::of(memory[0], &p.x, p.m, 0), Items::of(memory[1], &p.y, p.n, 0));
        let a = Cells::of_matrix(memory[2], &p.a, 0);
        let hermitian = p.structure == Structure::Hermitian;
        let conjugate = hermitian || p.conjugated;
        // SAFETY: the operands are as the plan says.
        unsafe {
            let alpha: T = scalar::read(&p.alpha, p.scalar, memory[3]);
            let again = if hermitian { alpha.conj() } else { alpha };
            for j in 0..p.n {
                for i in (0..p.m).filter(|i| form.is_there(*i, j)) {
                    let mut sum = alpha * x.get(i as usize) * conjugated(y.get(j as usize), conjugate);
                    if p.twice {
                        sum += again * y.get(i as usize) * conjugated(x.get(j as usize), conjugate);
                    }
                    let at = form.index(p.a.ld, i, j);
                    let value = a.get::<T>(at) + sum;
                    a.set(at, if hermitian && i == j { value.real() } else { value });
                }
            }
        }
        Ok(())
    }
}
