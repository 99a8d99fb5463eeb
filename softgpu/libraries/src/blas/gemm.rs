//! Products of matrices.

use std::marker::PhantomData;

use gemm::Parallelism;
use half::{bf16, f16};
use num_complex::Complex;
use rgpu_device::Result;
use rgpu_libraries::{Batch, DataType, Gemm, Matrix, Transpose};
use rgpu_softgpu::library::{Computation, Plan};

use super::batched::{self, Problems};
use crate::number::{Element, Number};
use crate::{invalid, memory, missing, scalar};

/// So many multiplications are not worth another thread.
const SMALL: u64 = 1 << 17;

/// What [`Gemm`] comes to.
pub(crate) fn plan(mut gemm: Gemm) -> Result<Plan> {
    if gemm.m == 0 || gemm.n == 0 {
        gemm.count = 0;
    }
    if gemm.batch == Batch::Pointers {
        return batched::plan(gemm);
    }
    let (m, n, k, count) = (gemm.m, gemm.n, gemm.k, gemm.count);
    let turned = |op: Transpose, rows: u64, columns: u64| {
        if matches!(op, Transpose::None | Transpose::Conjugated) { (rows, columns) } else { (columns, rows) }
    };
    let (a, b) = (turned(gemm.op_a, m, k), turned(gemm.op_b, k, n));
    let operands = vec![
        memory::matrix(&gemm.a, a.0, a.1, count, false)?,
        memory::matrix(&gemm.b, b.0, b.1, count, false)?,
        memory::matrix(&gemm.c, m, n, count, true)?,
        scalar::operand(&gemm.alpha, gemm.compute)?,
        scalar::operand(&gemm.beta, gemm.compute)?,
    ];
    if gemm.a.kind != gemm.b.kind {
        return invalid("A product of matrices of different types");
    }
    use DataType::{Bf16, C32, C64, F16, F32, F64, I8, I32};
    let computation: Box<dyn Computation> = match (gemm.a.kind, gemm.c.kind, gemm.compute) {
        (F32, F32, F32) => Box::new(Same::<f32>::new(gemm)),
        (F64, F64, F64) => Box::new(Same::<f64>::new(gemm)),
        (C32, C32, C32 | F32) => Box::new(Same::<Complex<f32>>::new(gemm)),
        (C64, C64, C64 | F64) => Box::new(Same::<Complex<f64>>::new(gemm)),
        // Sums of halves are made in 32 bits whatever is asked for, which is never less precise.
        (F16, F16, F16 | F32) => Box::new(Mixed::<f16, f16, f32>::new(gemm)),
        (F16, F32, F32) => Box::new(Mixed::<f16, f32, f32>::new(gemm)),
        (Bf16, Bf16, F32) => Box::new(Mixed::<bf16, bf16, f32>::new(gemm)),
        (Bf16, F32, F32) => Box::new(Mixed::<bf16, f32, f32>::new(gemm)),
        (I8, F32, F32) => Box::new(Mixed::<i8, f32, f32>::new(gemm)),
        (I8, I32, I32) => Box::new(Mixed::<i8, i32, i32>::new(gemm)),
        (a, c, compute) => return missing(format!("a product of {a:?} into {c:?}, summed in {compute:?}")),
    };
    Ok(Plan { operands, computation })
}

impl Problems for Gemm {
    fn count(&self) -> u64 {
        self.count
    }
    fn addresses(&mut self) -> Vec<&mut u64> {
        vec![&mut self.a.addr, &mut self.b.addr, &mut self.c.addr]
    }
    fn alone(mut self) -> Result<Plan> {
        (self.batch, self.count) = (Batch::Strided, 1);
        plan(self)
    }
}

/// How a batch of products is cut: each piece is some problems, or some columns of one.
#[derive(Debug, Clone, Copy)]
struct Cut {
    count: u64,
    columns: u64,
}

impl Cut {
    fn pieces(gemm: &Gemm, threads: usize) -> usize {
        let work = gemm.m.saturating_mul(gemm.n).saturating_mul(gemm.k.max(1));
        let most = (work.saturating_mul(gemm.count) / SMALL).clamp(1, 2 * threads.max(1) as u64);
        if threads < 2 || most < 2 {
            return 1;
        }
        if gemm.count >= most {
            return most as usize;
        }
        let columns = (most / gemm.count.max(1)).clamp(1, gemm.n.div_ceil(16).max(1));
        (gemm.count.max(1) * columns) as usize
    }

    /// Calls `f` with the problems and columns of a piece: problem, first column, end.
    fn each(gemm: &Gemm, piece: usize, pieces: usize, mut f: impl FnMut(u64, u64, u64)) {
        let (piece, pieces) = (piece as u64, pieces as u64);
        let cut = Self { count: gemm.count, columns: gemm.n };
        if pieces <= cut.count {
            let (from, to) = (cut.count * piece / pieces, cut.count * (piece + 1) / pieces);
            (from..to).for_each(|problem| f(problem, 0, cut.columns));
            return;
        }
        let per = pieces / cut.count.max(1);
        let (problem, part) = (piece / per, piece % per);
        f(problem, cut.columns * part / per, cut.columns * (part + 1) / per);
    }
}

/// Distances between a factor's rows and columns, as it is used.
fn distances(op: Transpose, matrix: &Matrix) -> (isize, isize) {
    match op {
        Transpose::None | Transpose::Conjugated => (1, matrix.ld as isize),
        Transpose::Transposed | Transpose::Adjoint => (matrix.ld as isize, 1),
    }
}

fn conjugates(op: Transpose) -> bool {
    matches!(op, Transpose::Adjoint | Transpose::Conjugated)
}

/// One problem's product: `C = alpha A B + beta C`.
pub(crate) struct Product<T> {
    pub(crate) shape: (usize, usize, usize),
    pub(crate) c: (*mut T, isize),
    pub(crate) a: (*const T, isize, isize, bool),
    pub(crate) b: (*const T, isize, isize, bool),
    pub(crate) alpha: T,
    pub(crate) beta: T,
}

impl<T: Number> Product<T> {
    /// Does it.
    ///
    /// # Safety
    /// The pointers are to matrices of the shape, at these distances.
    pub(crate) unsafe fn compute(self) {
        let (m, n, k) = self.shape;
        let (c, c_columns) = self.c;
        let (a, a_rows, a_columns, a_conjugated) = self.a;
        let (b, b_rows, b_columns, b_conjugated) = self.b;
        // SAFETY: the caller's promise. Where `beta` is zero, what C was is not read, as cuBLAS does not.
        unsafe {
            gemm::gemm(
                m,
                n,
                k,
                c,
                c_columns,
                1,
                self.beta != T::ZERO,
                a,
                a_columns,
                a_rows,
                b,
                b_columns,
                b_rows,
                self.beta,
                self.alpha,
                false,
                a_conjugated,
                b_conjugated,
                Parallelism::None,
            );
        }
    }
}

/// A product in one type throughout.
struct Same<T> {
    gemm: Gemm,
    of: PhantomData<fn(T)>,
}

impl<T> Same<T> {
    fn new(gemm: Gemm) -> Self {
        Self { gemm, of: PhantomData }
    }
}

impl<T: Number> Computation for Same<T> {
    fn pieces(&self, threads: usize) -> usize {
        Cut::pieces(&self.gemm, threads)
    }

    unsafe fn run(&self, memory: &[*mut u8], piece: usize, pieces: usize) -> Result<()> {
        let gemm = &self.gemm;
        let (a, b, c) = (memory[0].cast::<T>(), memory[1].cast::<T>(), memory[2].cast::<T>());
        // SAFETY: the operands are as the plan says.
        let (alpha, beta): (T, T) = unsafe {
            (
                scalar::read(&gemm.alpha, gemm.compute, memory[3]),
                scalar::read(&gemm.beta, gemm.compute, memory[4]),
            )
        };
        let ((a_rows, a_columns), (b_rows, b_columns)) =
            (distances(gemm.op_a, &gemm.a), distances(gemm.op_b, &gemm.b));
        Cut::each(gemm, piece, pieces, |problem, from, to| {
            if to == from || gemm.m == 0 {
                return;
            }
            let at = |matrix: &Matrix| problem as isize * matrix.stride as isize;
            // SAFETY: the operands are as long as all problems, and the columns are inside.
            unsafe {
                Product {
                    shape: (gemm.m as usize, (to - from) as usize, gemm.k as usize),
                    c: (c.offset(at(&gemm.c) + from as isize * gemm.c.ld as isize), gemm.c.ld as isize),
                    a: (a.offset(at(&gemm.a)), a_rows, a_columns, conjugates(gemm.op_a)),
                    b: (
                        b.offset(at(&gemm.b) + from as isize * b_columns),
                        b_rows,
                        b_columns,
                        conjugates(gemm.op_b),
                    ),
                    alpha,
                    beta,
                }
                .compute();
            }
        });
        Ok(())
    }
}

/// A product of `A`s that is summed in `T` and stored as `C`.
struct Mixed<A, C, T> {
    gemm: Gemm,
    of: PhantomData<fn(A, C, T)>,
}

impl<A, C, T> Mixed<A, C, T> {
    fn new(gemm: Gemm) -> Self {
        Self { gemm, of: PhantomData }
    }
}

/// A factor of `rows` × `columns` as numbers that are computed with, column by column.
///
/// # Safety
/// `at` is the first element of such a matrix, at these distances.
unsafe fn widened<A: Element<T>, T: Number>(
    at: *const A,
    (rows, columns): (usize, usize),
    (row, column): (isize, isize),
) -> Vec<T> {
    let mut wide = Vec::with_capacity(rows * columns);
    for j in 0..columns {
        for i in 0..rows {
            // SAFETY: the caller's promise.
            wide.push(unsafe { at.offset(i as isize * row + j as isize * column).read_unaligned() }.read());
        }
    }
    wide
}

/// A product of two matrices without gaps, column by column.
trait Multiply: Number {
    fn product(a: &[Self], b: &[Self], shape: (usize, usize, usize)) -> Vec<Self>;
}

impl Multiply for f32 {
    fn product(a: &[f32], b: &[f32], (m, n, k): (usize, usize, usize)) -> Vec<f32> {
        let mut sum = vec![0.0; m * n];
        let (m_distance, k_distance) = (m as isize, k as isize);
        // SAFETY: the slices are the matrices.
        unsafe {
            Product {
                shape: (m, n, k),
                c: (sum.as_mut_ptr(), m_distance),
                a: (a.as_ptr(), 1, m_distance, false),
                b: (b.as_ptr(), 1, k_distance, false),
                alpha: 1.0,
                beta: 0.0,
            }
            .compute();
        }
        sum
    }
}

impl Multiply for i32 {
    fn product(a: &[i32], b: &[i32], (m, n, k): (usize, usize, usize)) -> Vec<i32> {
        let mut sum = vec![0i32; m * n];
        for (column, of_b) in sum.chunks_mut(m.max(1)).zip(b.chunks(k.max(1))) {
            for (factor, of_a) in of_b.iter().zip(a.chunks(m.max(1))) {
                for (sum, a) in column.iter_mut().zip(of_a) {
                    *sum = sum.wrapping_add(a.wrapping_mul(*factor));
                }
            }
        }
        sum
    }
}

impl<A, C, T> Computation for Mixed<A, C, T>
where
    A: Element<T> + 'static,
    C: Element<T> + 'static,
    T: Multiply,
{
    fn pieces(&self, threads: usize) -> usize {
        Cut::pieces(&self.gemm, threads)
    }

    unsafe fn run(&self, memory: &[*mut u8], piece: usize, pieces: usize) -> Result<()> {
        let gemm = &self.gemm;
        let (a, b, c) = (memory[0].cast::<A>(), memory[1].cast::<A>(), memory[2].cast::<C>());
        // SAFETY: the operands are as the plan says.
        let (alpha, beta): (T, T) = unsafe {
            (
                scalar::read(&gemm.alpha, gemm.compute, memory[3]),
                scalar::read(&gemm.beta, gemm.compute, memory[4]),
            )
        };
        let (of_a, of_b) = (distances(gemm.op_a, &gemm.a), distances(gemm.op_b, &gemm.b));
        Cut::each(gemm, piece, pieces, |problem, from, to| {
            let (m, n, k) = (gemm.m as usize, (to - from) as usize, gemm.k as usize);
            if n == 0 || m == 0 {
                return;
            }
            let at = |matrix: &Matrix| problem as isize * matrix.stride as isize;
            // SAFETY: the operands are as long as all problems, and the columns are inside.
            unsafe {
                let wide_a = widened(a.offset(at(&gemm.a)).cast_const(), (m, k), of_a);
                let start = b.offset(at(&gemm.b) + from as isize * of_b.1);
                let wide_b = widened(start.cast_const(), (k, n), of_b);
                let sum = T::product(&wide_a, &wide_b, (m, n, k));
                let c = c.offset(at(&gemm.c) + from as isize * gemm.c.ld as isize);
                for (j, column) in sum.chunks(m).enumerate() {
                    for (i, &sum) in column.iter().enumerate() {
                        let c = c.add(j * gemm.c.ld as usize + i);
                        let mut value = alpha * sum;
                        if beta != T::ZERO {
                            value = value + beta * c.read_unaligned().read();
                        }
                        c.write_unaligned(C::write(value));
                    }
                }
            }
        });
        Ok(())
    }
}
