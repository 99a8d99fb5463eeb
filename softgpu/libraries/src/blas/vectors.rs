//! Operations on vectors.

use std::marker::PhantomData;

use rgpu_device::Result;
use rgpu_libraries::{Combination, Combine, Reduce, Reduction};
use rgpu_softgpu::library::{Computation, Plan};

use crate::cells::{Items, store_at};
use crate::field::{Field, with_field};
use crate::{memory, scalar};

/// What [`Combine`] comes to.
pub(crate) fn combine(c: Combine) -> Result<Plan> {
    let with_y = c.what != Combination::Scale;
    let writes_x = !matches!(c.what, Combination::Axpy | Combination::Copy);
    let numbers =
        memory::array(c.numbers_addr, if c.numbers_addr == 0 { 0 } else { 5 }, c.alpha_kind.bytes(), false)?;
    let operands = vec![
        memory::vector(&c.x, c.n, 1, writes_x)?,
        memory::vector(&c.y, if with_y { c.n } else { 0 }, 1, with_y)?,
        scalar::operand(&c.alpha, c.alpha_kind)?,
        scalar::operand(&c.beta, c.beta_kind)?,
        numbers,
    ];
    let computation = with_field!(c.compute, "an operation on vectors", T => {
        Ok::<Box<dyn Computation>, rgpu_device::Error>(Box::new(Elements::<T>(c, PhantomData)))
    })?;
    Ok(Plan { operands, computation })
}

struct Elements<T>(Combine, PhantomData<fn(T)>);

impl<T: Field> Elements<T> {
    /// The matrix that each pair of elements is multiplied by, for a modified rotation.
    ///
    /// # Safety
    /// `at` is the operand with the numbers.
    unsafe fn modified(&self, at: *mut u8) -> [T; 4] {
        let c = &self.0;
        let mut numbers = c.numbers;
        if c.numbers_addr != 0 {
            let cells = crate::cells::Cells::new(at, c.alpha_kind);
            for (i, number) in numbers.iter_mut().enumerate() {
                // SAFETY: the operand has five numbers.
                *number = unsafe { cells.get::<f64>(i as isize) };
            }
        }
        let [flag, h11, h21, h12, h22] = numbers;
        let h = match flag {
            -1.0 => [h11, h12, h21, h22],
            0.0 => [1.0, h12, h21, 1.0],
            1.0 => [h11, 1.0, -1.0, h22],
            _ => [1.0, 0.0, 0.0, 1.0],
        };
        h.map(|number| T::from_parts([number, 0.0]))
    }
}

impl<T: Field> Computation for Elements<T> {
    unsafe fn run(&self, memory: &[*mut u8], _: usize, _: usize) -> Result<()> {
        let c = &self.0;
        let (x, y) = (Items::of(memory[0], &c.x, c.n, 0), Items::of(memory[1], &c.y, c.n, 0));
        let n = c.n as usize;
        // SAFETY: the operands are as the plan says.
        unsafe {
            let alpha: T = scalar::read(&c.alpha, c.alpha_kind, memory[2]);
            let beta: T = scalar::read(&c.beta, c.beta_kind, memory[3]);
            match c.what {
                Combination::Axpy => (0..n).for_each(|i| y.set(i, alpha * x.get::<T>(i) + y.get(i))),
                Combination::Scale => (0..n).for_each(|i| x.set(i, alpha * x.get::<T>(i))),
                Combination::Copy => (0..n).for_each(|i| y.set(i, x.get::<T>(i))),
                Combination::Swap => (0..n).for_each(|i| {
                    let was: T = x.get(i);
                    x.set(i, y.get::<T>(i));
                    y.set(i, was);
                }),
                Combination::Rotate => (0..n).for_each(|i| {
                    let (a, b): (T, T) = (x.get(i), y.get(i));
                    x.set(i, alpha * a + beta * b);
                    y.set(i, alpha * b - beta.conj() * a);
                }),
                Combination::RotateModified => {
                    let [h11, h12, h21, h22] = self.modified(memory[4]);
                    (0..n).for_each(|i| {
                        let (a, b): (T, T) = (x.get(i), y.get(i));
                        x.set(i, h11 * a + h12 * b);
                        y.set(i, h21 * a + h22 * b);
                    });
                }
            }
        }
        Ok(())
    }
}

/// What [`Reduce`] comes to.
pub(crate) fn reduce(r: Reduce) -> Result<Plan> {
    let with_y = matches!(r.what, Reduction::Dot | Reduction::DotConjugated);
    let operands = vec![
        memory::vector(&r.x, r.n, 1, false)?,
        memory::vector(&r.y, if with_y { r.n } else { 0 }, 1, false)?,
        memory::array(r.result, 1, r.result_kind.bytes(), true)?,
    ];
    let computation = with_field!(r.compute, "a reduction", T => {
        Ok::<Box<dyn Computation>, rgpu_device::Error>(Box::new(Reducing::<T>(r, PhantomData)))
    })?;
    Ok(Plan { operands, computation })
}

struct Reducing<T>(Reduce, PhantomData<fn(T)>);

impl<T: Field> Computation for Reducing<T> {
    unsafe fn run(&self, memory: &[*mut u8], _: usize, _: usize) -> Result<()> {
        let r = &self.0;
        let (x, y) = (Items::of(memory[0], &r.x, r.n, 0), Items::of(memory[1], &r.y, r.n, 0));
        let n = r.n as usize;
        // SAFETY: the operands are as the plan says.
        unsafe {
            let dot = |conjugated: bool| {
                (0..n).fold([0.0, 0.0], |[re, im], i| {
                    let ([a, b], [c, d]) = (x.get::<T>(i).parts(), y.get::<T>(i).parts());
                    let b = if conjugated { -b } else { b };
                    [re + (a * c - b * d), im + (a * d + b * c)]
                })
            };
            let result = match r.what {
                // Sums are made in 64 bits, whatever is asked for.
                Reduction::Dot => dot(false),
                Reduction::DotConjugated => dot(true),
                Reduction::Norm => [norm((0..n).flat_map(|i| x.get::<T>(i).parts())), 0.0],
                Reduction::AbsoluteSum => [(0..n).map(|i| x.get::<T>(i).size()).sum(), 0.0],
                Reduction::Greatest => {
                    [place((0..n).map(|i| x.get::<T>(i).size()), |new, old| new > old), 0.0]
                }
                Reduction::Least => [place((0..n).map(|i| x.get::<T>(i).size()), |new, old| new < old), 0.0],
            };
            store_at(memory[2], r.result_kind, result);
        }
        Ok(())
    }
}

/// The Euclidean norm, of numbers of any size.
fn norm(numbers: impl Iterator<Item = f64> + Clone) -> f64 {
    let greatest =
        numbers.clone().fold(0.0, |greatest: f64, x| if x.is_nan() { x } else { greatest.max(x.abs()) });
    if greatest == 0.0 || !greatest.is_finite() {
        return greatest;
    }
    greatest * numbers.map(|x| (x / greatest) * (x / greatest)).sum::<f64>().sqrt()
}

/// The place, counted from 1, of the first number that no other one is better than; 0 where there is none.
fn place(numbers: impl Iterator<Item = f64>, better: impl Fn(f64, f64) -> bool) -> f64 {
    let mut best: Option<(usize, f64)> = None;
    for (i, x) in numbers.enumerate() {
        if best.is_none_or(|(_, old)| better(x, old)) {
            best = Some((i + 1, x));
        }
    }
    best.map_or(0.0, |(at, _)| at as f64)
}
