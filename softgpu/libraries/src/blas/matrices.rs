//! Operations on matrices beyond their plain product.

use std::marker::PhantomData;

use rgpu_device::{Error, Result};
use rgpu_libraries::{
    AddMatrices, Batch, Fill, Pairing, RankK, ScaleMatrix, Side, Storage, Structure, SymmetricProduct,
    Transpose, Triangular,
};
use rgpu_softgpu::library::{Computation, Plan};

use super::batched::{self, Problems};
use super::dense::{Dense, pieces, share};
use super::gemm::Product;
use super::matrix_vector::of_op;
use super::stored::Form;
use crate::cells::{Cells, Items};
use crate::field::{Field, with_field};
use crate::{invalid, memory, scalar};

type Boxed = Box<dyn Computation>;

/// What [`SymmetricProduct`] comes to.
pub(crate) fn symmetric(mut p: SymmetricProduct) -> Result<Plan> {
    if p.m == 0 || p.n == 0 {
        (p.m, p.n) = (0, 0);
    }
    if p.structure == Structure::General {
        return invalid("A symmetric product with a general matrix");
    }
    let n = if p.side == Side::Left { p.m } else { p.n };
    let operands = vec![
        memory::matrix(&p.a, n, n, 1, false)?,
        memory::matrix(&p.b, p.m, p.n, 1, false)?,
        memory::matrix(&p.c, p.m, p.n, 1, true)?,
        scalar::operand(&p.alpha, p.compute)?,
        scalar::operand(&p.beta, p.compute)?,
    ];
    let computation = with_field!(p.compute, "a product with a symmetric matrix", T => {
        Ok::<Boxed, Error>(Box::new(Symmetric::<T>(p, PhantomData)))
    })?;
    Ok(Plan { operands, computation })
}

struct Symmetric<T>(SymmetricProduct, PhantomData<fn(T)>);

/// Stores `sum + beta C`, for the columns from `first` on.
///
/// # Safety
/// The cells are those of C.
unsafe fn store<T: Field>(c: Cells, ld: u64, sum: &Dense<T>, beta: T, first: u64) {
    for j in 0..sum.columns {
        for i in 0..sum.rows {
            let at = (i as u64 + (first + j as u64) * ld) as isize;
            let mut value = sum.at(i, j);
            // SAFETY: the caller's promise.
            unsafe {
                if beta != T::ZERO {
                    value += beta * c.get(at);
                }
                c.set(at, value);
            }
        }
    }
}

impl<T: Field> Computation for Symmetric<T> {
    fn pieces(&self, threads: usize) -> usize {
        let p = &self.0;
        let inner = if p.side == Side::Left { p.m } else { p.n };
        pieces(p.m.saturating_mul(p.n).saturating_mul(inner), p.n, threads)
    }

    unsafe fn run(&self, memory: &[*mut u8], piece: usize, pieces: usize) -> Result<()> {
        let p = &self.0;
        let (from, to) = share(p.n, piece, pieces);
        let n = if p.side == Side::Left { p.m } else { p.n };
        let form = Form {
            storage: Storage::Full,
            structure: p.structure,
            fill: p.fill,
            shape: (n, n),
            diagonals: (0, 0),
        };
        let a = Cells::of_matrix(memory[0], &p.a, 0);
        let b = Cells::of_matrix(memory[1], &p.b, 0);
        // SAFETY: the operands are as the plan says.
        unsafe {
            let (alpha, beta): (T, T) =
                (scalar::read(&p.alpha, p.compute, memory[3]), scalar::read(&p.beta, p.compute, memory[4]));
            let sum = if p.side == Side::Left {
                let whole = Dense::of(n as usize, n as usize, |i, j| form.get(a, p.a.ld, i as u64, j as u64));
                let b = Dense::read(b, p.b.ld, Transpose::None, 0..p.m, from..to);
                Dense::product(alpha, &whole, &b)
            } else {
                let part = Dense::of(n as usize, (to - from) as usize, |i, j| {
                    form.get(a, p.a.ld, i as u64, from + j as u64)
                });
                let b = Dense::read(b, p.b.ld, Transpose::None, 0..p.m, 0..p.n);
                Dense::product(alpha, &b, &part)
            };
            store(Cells::of_matrix(memory[2], &p.c, 0), p.c.ld, &sum, beta, from);
        }
        Ok(())
    }
}

/// What [`RankK`] comes to.
pub(crate) fn rank_k(p: RankK) -> Result<Plan> {
    if p.structure == Structure::General {
        return invalid("An update of rank k of a general matrix");
    }
    let (rows, columns) = if of_op(p.op).0 { (p.k, p.n) } else { (p.n, p.k) };
    let mut operands = vec![memory::matrix(&p.a, rows, columns, 1, false)?];
    let of_b = if p.pairing == Pairing::Own { (0, 0) } else { (rows, columns) };
    operands.push(memory::matrix(&p.b, of_b.0, of_b.1, 1, false)?);
    operands.push(memory::matrix(&p.c, p.n, p.n, 1, true)?);
    operands.push(scalar::operand(&p.alpha, p.alpha_kind)?);
    operands.push(scalar::operand(&p.beta, p.beta_kind)?);
    let computation = with_field!(p.compute, "an update of rank k", T => {
        Ok::<Boxed, Error>(Box::new(Ranked::<T>(p, PhantomData)))
    })?;
    Ok(Plan { operands, computation })
}

struct Ranked<T>(RankK, PhantomData<fn(T)>);

impl<T: Field> Computation for Ranked<T> {
    fn pieces(&self, threads: usize) -> usize {
        let p = &self.0;
        pieces(p.n.saturating_mul(p.n).saturating_mul(p.k.max(1)), p.n, threads)
    }

    unsafe fn run(&self, memory: &[*mut u8], piece: usize, pieces: usize) -> Result<()> {
        let p = &self.0;
        let (from, to) = share(p.n, piece, pieces);
        let rows = match p.fill {
            Fill::Lower => from..p.n,
            Fill::Upper => 0..to,
        };
        let hermitian = p.structure == Structure::Hermitian;
        // op(M) is n × k, and its other side k × n.
        let (left, right) = match (of_op(p.op).0, hermitian) {
            (false, false) => (Transpose::None, Transpose::Transposed),
            (false, true) => (Transpose::None, Transpose::Adjoint),
            (true, false) => (Transpose::Transposed, Transpose::None),
            (true, true) => (Transpose::Adjoint, Transpose::None),
        };
        let a = Cells::of_matrix(memory[0], &p.a, 0);
        let b = Cells::of_matrix(memory[1], &p.b, 0);
        let c = Cells::of_matrix(memory[2], &p.c, 0);
        // SAFETY: the operands are as the plan says.
        unsafe {
            let alpha: T = scalar::read(&p.alpha, p.alpha_kind, memory[3]);
            let beta: T = scalar::read(&p.beta, p.beta_kind, memory[4]);
            let product = |alpha: T, x: Cells, x_ld: u64, y: Cells, y_ld: u64| {
                let x = Dense::read(x, x_ld, left, rows.clone(), 0..p.k);
                let y = Dense::read(y, y_ld, right, 0..p.k, from..to);
                Dense::product(alpha, &x, &y)
            };
            let sum = match p.pairing {
                Pairing::Own => product(alpha, a, p.a.ld, a, p.a.ld),
                Pairing::One => product(alpha, a, p.a.ld, b, p.b.ld),
                Pairing::Both => {
                    let mut sum = product(alpha, a, p.a.ld, b, p.b.ld);
                    let again = if hermitian { alpha.conj() } else { alpha };
                    let other = product(again, b, p.b.ld, a, p.a.ld);
                    sum.data.iter_mut().zip(other.data).for_each(|(sum, other)| *sum += other);
                    sum
                }
            };
            for j in from..to {
                let part = match p.fill {
                    Fill::Lower => j..p.n,
                    Fill::Upper => 0..j + 1,
                };
                for i in part {
                    let at = (i + j * p.c.ld) as isize;
                    let mut value = sum.at((i - rows.start) as usize, (j - from) as usize);
                    if beta != T::ZERO {
                        value += beta * c.get(at);
                    }
                    c.set(at, if hermitian && i == j { value.real() } else { value });
                }
            }
        }
        Ok(())
    }
}

impl Problems for Triangular {
    fn count(&self) -> u64 {
        self.count
    }
    fn addresses(&mut self) -> Vec<&mut u64> {
        vec![&mut self.a.addr, &mut self.b.addr, &mut self.c.addr]
    }
    fn alone(mut self) -> Result<Plan> {
        (self.batch, self.count) = (Batch::Strided, 1);
        triangular(self)
    }
}

/// What [`Triangular`] comes to.
pub(crate) fn triangular(mut p: Triangular) -> Result<Plan> {
    if p.m == 0 || p.n == 0 {
        // Columns without rows are not walked through one by one.
        (p.m, p.n) = (0, 0);
    }
    if p.batch == Batch::Pointers {
        return batched::plan(p);
    }
    if p.count > 1 {
        return invalid("A batch of triangular matrices that lie one behind the other");
    }
    let n = if p.side == Side::Left { p.m } else { p.n };
    let operands = vec![
        memory::matrix(&p.a, n, n, 1, false)?,
        memory::matrix(&p.b, p.m, p.n, 1, false)?,
        memory::matrix(&p.c, p.m, p.n, 1, true)?,
        scalar::operand(&p.alpha, p.compute)?,
    ];
    let computation = with_field!(p.compute, "work with a triangular matrix", T => {
        Ok::<Boxed, Error>(Box::new(Triangles::<T>(p, PhantomData)))
    })?;
    Ok(Plan { operands, computation })
}

struct Triangles<T>(Triangular, PhantomData<fn(T)>);

/// Rows of a diagonal block that is solved element by element.
const BLOCK: usize = 48;

/// Solves `L X = B` in place, where L is lower triangular.
pub(crate) fn solve_lower<T: Field>(l: &Dense<T>, unit: bool, b: &mut Dense<T>) {
    let (n, columns) = (b.rows, b.columns);
    let mut from = 0;
    while from < n {
        let to = (from + BLOCK).min(n);
        for column in b.data.chunks_mut(n) {
            for i in from..to {
                let mut value = column[i];
                for (j, solved) in column[from..i].iter().enumerate() {
                    value = value - l.at(i, from + j) * *solved;
                }
                column[i] = if unit { value } else { value / l.at(i, i) };
            }
        }
        if to < n {
            let solved = Dense::of(to - from, columns, |i, j| b.at(from + i, j));
            // SAFETY: the block below the diagonal one, and the rows of B beside it, are inside the matrices.
            unsafe {
                Product {
                    shape: (n - to, columns, to - from),
                    c: (b.data.as_mut_ptr().add(to), n as isize),
                    a: (l.data.as_ptr().add(to + from * l.rows), 1, l.rows as isize, false),
                    b: (solved.data.as_ptr(), 1, solved.rows as isize, false),
                    alpha: -T::ONE,
                    beta: T::ONE,
                }
                .compute();
            }
        }
        from = to;
    }
}

impl<T: Field> Computation for Triangles<T> {
    fn pieces(&self, threads: usize) -> usize {
        let p = &self.0;
        let (n, others) = if p.side == Side::Left { (p.m, p.n) } else { (p.n, p.m) };
        pieces(n.saturating_mul(n).saturating_mul(others), others, threads)
    }

    /// All cases become one: a lower triangular matrix on the left. What stands on the right is transposed, and an upper triangular
    /// matrix is one that is lower triangular when rows and columns are counted from the end.
    unsafe fn run(&self, memory: &[*mut u8], piece: usize, pieces: usize) -> Result<()> {
        let p = &self.0;
        let left = p.side == Side::Left;
        let (n, others) = if left { (p.m as usize, p.n) } else { (p.n as usize, p.m) };
        let (from, to) = share(others, piece, pieces);
        let (turned, conjugate) = of_op(p.op);
        // On the right, op(A) is transposed once more.
        let swapped = turned == left;
        let upper = (p.fill == Fill::Upper) != swapped;
        let a = Cells::of_matrix(memory[0], &p.a, 0);
        let b = Cells::of_matrix(memory[1], &p.b, 0);
        let c = Cells::of_matrix(memory[2], &p.c, 0);
        let flip = |i: usize| if upper { n - 1 - i } else { i };
        let place = |ld: u64, i: usize, j: usize| {
            let (i, j) = (flip(i) as u64, from + j as u64);
            (if left { i + j * ld } else { j + i * ld }) as isize
        };
        // SAFETY: the operands are as the plan says.
        unsafe {
            let alpha: T = scalar::read(&p.alpha, p.compute, memory[3]);
            let lower = Dense::of(n, n, |i, j| {
                if i < j {
                    return T::ZERO;
                }
                if i == j && p.unit {
                    return T::ONE;
                }
                let (i, j) = if swapped { (flip(j), flip(i)) } else { (flip(i), flip(j)) };
                let value: T = a.get((i as u64 + j as u64 * p.a.ld) as isize);
                if conjugate { value.conj() } else { value }
            });
            let mut sides = Dense::of(n, (to - from) as usize, |i, j| {
                if alpha == T::ZERO { T::ZERO } else { b.get::<T>(place(p.b.ld, i, j)) }
            });
            if p.solve {
                sides.data.iter_mut().for_each(|value| *value = alpha * *value);
                solve_lower(&lower, p.unit, &mut sides);
            } else {
                sides = Dense::product(alpha, &lower, &sides);
            }
            for j in 0..sides.columns {
                for i in 0..n {
                    c.set(place(p.c.ld, i, j), sides.at(i, j));
                }
            }
        }
        Ok(())
    }
}

/// What [`AddMatrices`] comes to.
pub(crate) fn add(mut p: AddMatrices) -> Result<Plan> {
    if p.m == 0 || p.n == 0 {
        p.count = 0;
    }
    let shape = |op: Transpose| if of_op(op).0 { (p.n, p.m) } else { (p.m, p.n) };
    // What has a factor of zero is not read, and need not be there.
    let read = |scalar: &rgpu_libraries::Scalar| {
        if scalar.addr == 0 && scalar.value == [0.0; 2] { 0 } else { p.count }
    };
    let (of_a, of_b) = (shape(p.op_a), shape(p.op_b));
    let operands = vec![
        memory::matrix(&p.a, of_a.0, of_a.1, read(&p.alpha), false)?,
        memory::matrix(&p.b, of_b.0, of_b.1, read(&p.beta), false)?,
        memory::matrix(&p.c, p.m, p.n, p.count, true)?,
        scalar::operand(&p.alpha, p.scalar)?,
        scalar::operand(&p.beta, p.scalar)?,
    ];
    let computation = with_field!(p.compute, "a sum of matrices", T => {
        Ok::<Boxed, Error>(Box::new(Sums::<T>(p, PhantomData)))
    })?;
    Ok(Plan { operands, computation })
}

struct Sums<T>(AddMatrices, PhantomData<fn(T)>);

impl<T: Field> Computation for Sums<T> {
    unsafe fn run(&self, memory: &[*mut u8], _: usize, _: usize) -> Result<()> {
        let p = &self.0;
        // SAFETY: the operands are as the plan says.
        unsafe {
            let alpha: T = scalar::read(&p.alpha, p.scalar, memory[3]);
            let beta: T = scalar::read(&p.beta, p.scalar, memory[4]);
            for problem in 0..p.count {
                let a = Cells::of_matrix(memory[0], &p.a, problem);
                let b = Cells::of_matrix(memory[1], &p.b, problem);
                let c = Cells::of_matrix(memory[2], &p.c, problem);
                let get = |cells: Cells, ld: u64, op: Transpose, i: u64, j: u64| -> T {
                    let (turned, conjugate) = of_op(op);
                    let at = if turned { j + i * ld } else { i + j * ld };
                    let value: T = cells.get(at as isize);
                    if conjugate { value.conj() } else { value }
                };
                for j in 0..p.n {
                    for i in 0..p.m {
                        let mut value = T::ZERO;
                        if alpha != T::ZERO {
                            value += alpha * get(a, p.a.ld, p.op_a, i, j);
                        }
                        if beta != T::ZERO {
                            value += beta * get(b, p.b.ld, p.op_b, i, j);
                        }
                        c.set((i + j * p.c.ld) as isize, value);
                    }
                }
            }
        }
        Ok(())
    }
}

/// What [`ScaleMatrix`] comes to.
pub(crate) fn scale(mut p: ScaleMatrix) -> Result<Plan> {
    if p.m == 0 {
        p.n = 0;
    }
    let n = if p.side == Side::Left { p.m } else { p.n };
    let operands = vec![
        memory::matrix(&p.a, p.m, p.n, 1, false)?,
        memory::vector(&p.x, n, 1, false)?,
        memory::matrix(&p.c, p.m, p.n, 1, true)?,
    ];
    let computation = with_field!(p.compute, "a product with a diagonal matrix", T => {
        Ok::<Boxed, Error>(Box::new(Scaled::<T>(p, PhantomData)))
    })?;
    Ok(Plan { operands, computation })
}

struct Scaled<T>(ScaleMatrix, PhantomData<fn(T)>);

impl<T: Field> Computation for Scaled<T> {
    unsafe fn run(&self, memory: &[*mut u8], _: usize, _: usize) -> Result<()> {
        let p = &self.0;
        let left = p.side == Side::Left;
        let a = Cells::of_matrix(memory[0], &p.a, 0);
        let x = Items::of(memory[1], &p.x, if left { p.m } else { p.n }, 0);
        let c = Cells::of_matrix(memory[2], &p.c, 0);
        for j in 0..p.n {
            for i in 0..p.m {
                // SAFETY: the operands are as the plan says.
                unsafe {
                    let factor: T = x.get(if left { i } else { j } as usize);
                    c.set((i + j * p.c.ld) as isize, factor * a.get((i + j * p.a.ld) as isize));
                }
            }
        }
        Ok(())
    }
}
