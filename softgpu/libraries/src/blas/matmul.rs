//! Products of matrices with what is done to them before they are stored.

use std::marker::PhantomData;

use num_complex::Complex;
use rgpu_device::Result;
use rgpu_libraries::{Activation, BiasGradient, DataType, Gemm, Matmul, Transpose};
use rgpu_softgpu::library::{Computation, Plan};

use super::dense::{Dense, pieces, share};
use super::matrix_vector::of_op;
use crate::cells::{Cells, Items};
use crate::field::Field;
use crate::{gelu, invalid, memory, missing, scalar};

/// What [`Matmul`] comes to.
pub(crate) fn plan(mut p: Matmul) -> Result<Plan> {
    if p.m == 0 || p.n == 0 {
        p.count = 0;
    }
    if let Some(gemm) = plain(&p) {
        return super::gemm::plan(gemm);
    }
    let turned =
        |op: Transpose, rows: u64, columns: u64| if of_op(op).0 { (columns, rows) } else { (rows, columns) };
    let (a, b) = (turned(p.op_a, p.m, p.k), turned(p.op_b, p.k, p.n));
    let along = if p.by_column { p.n } else { p.m };
    let none = p.beta.addr == 0 && p.beta.value == [0.0; 2];
    let of_bias = match p.gradient {
        BiasGradient::None => along,
        BiasGradient::OfResult => along,
        BiasGradient::OfA => p.m,
        BiasGradient::OfB => p.n,
    };
    let keeps = matches!(p.activation, Activation::Relu | Activation::Gelu);
    let kept = if p.kept.addr == 0 { 0 } else { p.count };
    let operands = vec![
        memory::matrix(&p.a, a.0, a.1, p.count, false)?,
        memory::matrix(&p.b, b.0, b.1, p.count, false)?,
        memory::matrix(&p.c, p.m, p.n, if none { 0 } else { p.count }, false)?,
        memory::matrix(&p.d, p.m, p.n, p.count, true)?,
        scalar::operand(&p.alpha, p.scalar)?,
        scalar::operand(&p.beta, p.scalar)?,
        memory::array(p.alpha_vector, if p.alpha_vector == 0 { 0 } else { along }, p.scalar.bytes(), false)?,
        memory::vector(
            &p.bias,
            if p.bias.addr == 0 { 0 } else { of_bias },
            p.count,
            p.gradient != BiasGradient::None,
        )?,
        if bits(p.activation) {
            memory::matrix(&bytes_of_bits(&p)?, p.m.div_ceil(8), p.n, kept, keeps)?
        } else {
            memory::matrix(&p.kept, p.m, p.n, kept, keeps)?
        },
    ];
    if matches!(p.activation, Activation::ReluGradient | Activation::GeluGradient) && p.kept.addr == 0 {
        return invalid("A gradient of an activation of which nothing was kept");
    }
    if p.gradient != BiasGradient::None && p.bias.addr == 0 {
        return invalid("A gradient of a bias without an address");
    }
    use DataType::{Bf16, C32, C64, F16, F32, F64, I8, I32};
    let real = |kind: DataType| matches!(kind, F32 | F16 | Bf16 | F64 | I8 | I32);
    let computation: Box<dyn Computation> = match (p.compute, p.a.kind, p.b.kind) {
        (F32 | F16, a, b) if real(a) && real(b) && real(p.d.kind) => {
            Box::new(Products::<f32>(p, PhantomData))
        }
        // 64 bits hold every sum of products of small integers.
        (F64, _, _) | (I32, I8, I8) if real(p.d.kind) => Box::new(Products::<f64>(p, PhantomData)),
        (C32 | F32, C32, C32) => Box::new(Products::<Complex<f32>>(p, PhantomData)),
        (C64 | F64, C64, C64) => Box::new(Products::<Complex<f64>>(p, PhantomData)),
        (compute, a, b) => return missing(format!("a product of {a:?} and {b:?} summed in {compute:?}")),
    };
    Ok(Plan { operands, computation })
}

/// Whether what is kept is a bit for each element.
fn bits(activation: Activation) -> bool {
    matches!(activation, Activation::Relu | Activation::ReluGradient)
}

/// Bits of elements, eight to a byte, as a matrix of bytes.
fn bytes_of_bits(p: &Matmul) -> Result<rgpu_libraries::Matrix> {
    if !p.kept.ld.is_multiple_of(8) || p.kept.stride % 8 != 0 {
        return invalid("Bits of an activation that do not begin at a byte");
    }
    Ok(rgpu_libraries::Matrix {
        kind: DataType::I8,
        ld: p.kept.ld / 8,
        stride: p.kept.stride / 8,
        ..p.kept.clone()
    })
}

/// The product alone, in place, where that is all.
fn plain(p: &Matmul) -> Option<Gemm> {
    let in_place = p.c == p.d || (p.beta.addr == 0 && p.beta.value == [0.0; 2]);
    let alone = p.bias.addr == 0 && p.alpha_vector == 0 && p.activation == Activation::None;
    let scalars = p.scalar == p.compute || (p.alpha.addr == 0 && p.beta.addr == 0);
    use DataType::{Bf16, C32, C64, F16, F32, F64, I8, I32};
    let known = matches!(
        (p.a.kind, p.d.kind, p.compute),
        (F32, F32, F32)
            | (F64, F64, F64)
            | (C32, C32, C32 | F32)
            | (C64, C64, C64 | F64)
            | (F16, F16, F16 | F32)
            | (F16 | Bf16 | I8, F32, F32)
            | (Bf16, Bf16, F32)
            | (I8, I32, I32)
    );
    (in_place && alone && scalars && known && p.a.kind == p.b.kind && p.gradient == BiasGradient::None).then(
        || Gemm {
            op_a: p.op_a,
            op_b: p.op_b,
            m: p.m,
            n: p.n,
            k: p.k,
            alpha: p.alpha,
            a: p.a.clone(),
            b: p.b.clone(),
            beta: p.beta,
            c: p.d.clone(),
            compute: p.compute,
            count: p.count,
            ..Gemm::default()
        },
    )
}

struct Products<T>(Matmul, PhantomData<fn(T)>);

impl<T: Field> Products<T> {
    /// Whether columns depend on each other.
    fn whole(&self) -> bool {
        self.0.gradient != BiasGradient::None
    }

    /// One problem's columns.
    ///
    /// # Safety
    /// The operands are as the plan says.
    unsafe fn columns(&self, memory: &[*mut u8], problem: u64, from: u64, to: u64) -> Result<()> {
        let p = &self.0;
        // SAFETY: the caller's promise.
        unsafe {
            let alpha: T = scalar::read(&p.alpha, p.scalar, memory[4]);
            let beta: T = scalar::read(&p.beta, p.scalar, memory[5]);
            let a = Dense::read(Cells::of_matrix(memory[0], &p.a, problem), p.a.ld, p.op_a, 0..p.m, 0..p.k);
            let b = Dense::read(Cells::of_matrix(memory[1], &p.b, problem), p.b.ld, p.op_b, 0..p.k, from..to);
            let factor = if p.alpha_vector == 0 { alpha } else { T::ONE };
            let mut sum: Dense<T> = Dense::product(factor, &a, &b);
            let c = Cells::of_matrix(memory[2], &p.c, problem);
            let d = Cells::of_matrix(memory[3], &p.d, problem);
            let along = if p.by_column { p.n } else { p.m };
            let bias = Items::of(memory[7], &p.bias, along, problem);
            let with_bias = p.bias.addr != 0 && p.gradient == BiasGradient::None;
            let factors = Cells::new(memory[6], p.scalar);
            let kept = Cells::of_matrix(memory[8], &p.kept, problem);
            let bytes = if bits(p.activation) && p.kept.addr != 0 {
                let map = bytes_of_bits(p)?;
                memory[8].wrapping_offset(problem as isize * map.stride as isize)
            } else {
                memory[8]
            };
            for j in 0..sum.columns {
                let column = from + j as u64;
                for i in 0..sum.rows {
                    let line = if p.by_column { column as usize } else { i };
                    let mut value = sum.at(i, j);
                    if p.alpha_vector != 0 {
                        value = factors.get::<T>(line as isize) * value;
                    }
                    if beta != T::ZERO {
                        value += beta * c.get((i as u64 + column * p.c.ld) as isize);
                    }
                    if with_bias {
                        value += bias.get(line);
                    }
                    let place = (i as u64 + column * p.kept.ld) as isize;
                    let byte = bytes.wrapping_offset((i as u64 / 8 + column * (p.kept.ld / 8)) as isize);
                    let bit = 1u8 << (i % 8);
                    let [re, _] = value.parts();
                    value = match p.activation {
                        Activation::None => value,
                        Activation::Relu => {
                            if p.kept.addr != 0 {
                                let was = if i % 8 == 0 { 0 } else { byte.read() };
                                byte.write(if re > 0.0 { was | bit } else { was });
                            }
                            if re < 0.0 { T::ZERO } else { value }
                        }
                        Activation::Gelu => {
                            if p.kept.addr != 0 {
                                kept.set(place, value);
                            }
                            T::from_parts([gelu::value(re), 0.0])
                        }
                        Activation::ReluGradient => {
                            if byte.read() & bit == 0 {
                                T::ZERO
                            } else {
                                value
                            }
                        }
                        Activation::GeluGradient => {
                            let [x, _] = kept.get::<T>(place).parts();
                            T::from_parts([re * gelu::gradient(x), 0.0])
                        }
                    };
                    sum.set(i, j, value);
                    d.set((i as u64 + column * p.d.ld) as isize, value);
                }
            }
            let total = |items: &mut dyn Iterator<Item = T>| items.fold(T::ZERO, |sum, item| sum + item);
            match p.gradient {
                BiasGradient::None => {}
                BiasGradient::OfResult if p.by_column => (0..sum.columns)
                    .for_each(|j| bias.set(j, total(&mut (0..sum.rows).map(|i| sum.at(i, j))))),
                BiasGradient::OfResult => {
                    (0..sum.rows)
                        .for_each(|i| bias.set(i, total(&mut (0..sum.columns).map(|j| sum.at(i, j)))));
                }
                BiasGradient::OfA => {
                    (0..a.rows).for_each(|i| bias.set(i, total(&mut (0..a.columns).map(|l| a.at(i, l)))));
                }
                BiasGradient::OfB => {
                    (0..b.columns).for_each(|j| bias.set(j, total(&mut (0..b.rows).map(|l| b.at(l, j)))));
                }
            }
        }
        Ok(())
    }
}

impl<T: Field> Computation for Products<T> {
    fn pieces(&self, threads: usize) -> usize {
        let p = &self.0;
        let work = p.m.saturating_mul(p.n).saturating_mul(p.k.max(1));
        if p.count > 1 || self.whole() {
            return pieces(work.saturating_mul(p.count), p.count.saturating_mul(8), threads);
        }
        pieces(work, p.n, threads)
    }

    unsafe fn run(&self, memory: &[*mut u8], piece: usize, pieces: usize) -> Result<()> {
        let p = &self.0;
        if p.m == 0 || p.n == 0 {
            return Ok(());
        }
        if p.count > 1 || self.whole() {
            let (from, to) = share(p.count, piece, pieces);
            // SAFETY: the operands are as the plan says.
            return (from..to).try_for_each(|problem| unsafe { self.columns(memory, problem, 0, p.n) });
        }
        if p.count == 0 {
            return Ok(());
        }
        let (from, to) = share(p.n, piece, pieces);
        // SAFETY: as above.
        unsafe { self.columns(memory, 0, from, to) }
    }
}
