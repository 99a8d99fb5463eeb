//! Fourier transforms. What `rustfft` and `realfft` do with numbers side by side is done here with those of any layout and of up to
//! three dimensions: a problem is gathered, transformed along one dimension after the other, and put where it belongs.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use num_complex::Complex;
use realfft::RealFftPlanner;
use rgpu_device::{Code, Error, Result};
use rgpu_libraries::{Fft, FftLayout, Transform};
use rgpu_softgpu::library::{Computation, Operand, Plan};
use rustfft::{FftNum, FftPlanner};

use crate::invalid;

/// So many numbers are not worth another thread.
const SMALL: u64 = 1 << 14;

/// What [`Fft`] comes to.
pub(crate) fn plan(fft: Fft) -> Result<Plan> {
    if fft.n.contains(&0) {
        return invalid("A transform of no numbers");
    }
    let half = half(fft.n);
    let (input, output) = match fft.transform {
        Transform::Forward | Transform::Inverse => (fft.n, fft.n),
        Transform::RealToComplex => (fft.n, half),
        Transform::ComplexToReal => (half, fft.n),
    };
    let real = if fft.double { 8 } else { 4 };
    let is_real = |transform| if fft.transform == transform { real } else { 2 * real };
    let operands = vec![
        operand(&fft.input, input, fft.count, is_real(Transform::RealToComplex), false)?,
        operand(&fft.output, output, fft.count, is_real(Transform::ComplexToReal), true)?,
    ];
    let computation: Box<dyn Computation> = if fft.double {
        Box::new(Transforms::<f64> { fft, half, of: PhantomData })
    } else {
        Box::new(Transforms::<f32> { fft, half, of: PhantomData })
    };
    Ok(Plan { operands, computation })
}

/// What a spectrum of real numbers needs of the last dimension.
fn half(n: [u64; 3]) -> [u64; 3] {
    [n[0], n[1], n[2] / 2 + 1]
}

fn operand(layout: &FftLayout, n: [u64; 3], count: u64, bytes: u64, written: bool) -> Result<Operand> {
    let none = Operand { addr: layout.addr, bytes: 0, written };
    if count == 0 {
        return Ok(none);
    }
    if layout.stride == 0 || (count > 1 && layout.distance == 0) {
        return invalid("A transform whose numbers or problems lie on top of each other");
    }
    // So that no more numbers are transformed than the memory holds.
    let outer = [1, n[0], n[0].saturating_mul(n[1])];
    if (1..3).any(|dimension| outer[dimension] > 1 && layout.pitch[dimension] < n[dimension]) {
        return invalid(format!("A transform of {n:?} numbers in memory for {:?}", layout.pitch));
    }
    let extent = || {
        let row = (n[0] - 1).checked_mul(layout.pitch[1])?.checked_add(n[1] - 1)?;
        let last = row.checked_mul(layout.pitch[2])?.checked_add(n[2] - 1)?.checked_mul(layout.stride)?;
        let problems = (count - 1).checked_mul(layout.distance)?;
        problems.checked_add(last)?.checked_add(1)?.checked_mul(bytes).filter(|&all| all < 1 << 62)
    };
    match extent() {
        Some(bytes) if layout.addr.checked_add(bytes).is_some() => Ok(Operand { bytes, ..none }),
        _ => invalid("A transform of more numbers than the address space holds"),
    }
}

/// The planners of one precision, which keep what they have planned.
struct Planners<T: FftNum> {
    complex: FftPlanner<T>,
    real: RealFftPlanner<T>,
}

/// A type that is transformed.
trait Real: FftNum + Default {}
impl Real for f32 {}
impl Real for f64 {}

/// Runs `f` with the planners of a type, which the process has once.
fn planners<T: Real, R>(f: impl FnOnce(&mut Planners<T>) -> R) -> R {
    static ALL: LazyLock<Mutex<HashMap<TypeId, Box<dyn Any + Send>>>> = LazyLock::new(Mutex::default);
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let of = all.entry(TypeId::of::<T>()).or_insert_with(|| {
        Box::new(Planners::<T> { complex: FftPlanner::new(), real: RealFftPlanner::new() })
    });
    let of = of.downcast_mut();
    f(of.expect("a type's planners are kept under the type"))
}

/// Room for so many numbers.
fn room<T: Clone + Default>(count: usize) -> Result<Vec<T>> {
    let mut room = Vec::new();
    room.try_reserve_exact(count).map_err(|_| {
        Error::new(Code::OutOfMemory, format!("No memory for a transform of {count} numbers"))
    })?;
    room.resize(count, T::default());
    Ok(room)
}

/// A batch of transforms.
struct Transforms<T> {
    fft: Fft,
    half: [u64; 3],
    of: PhantomData<fn(T)>,
}

/// Calls `f` with the place of each number of a problem, in the order of the last dimension first.
fn each(layout: &FftLayout, n: [u64; 3], problem: u64, mut f: impl FnMut(usize)) {
    let first = problem * layout.distance;
    for x in 0..n[0] {
        for y in 0..n[1] {
            let row = (x * layout.pitch[1] + y) * layout.pitch[2];
            for z in 0..n[2] {
                f((first + (row + z) * layout.stride) as usize);
            }
        }
    }
}

/// # Safety
/// `from` is an operand with this layout.
unsafe fn gather<E: Copy>(from: *const E, layout: &FftLayout, n: [u64; 3], problem: u64, into: &mut [E]) {
    let mut into = into.iter_mut();
    each(layout, n, problem, |at| {
        if let Some(into) = into.next() {
            // SAFETY: the caller's promise.
            *into = unsafe { from.add(at).read_unaligned() };
        }
    });
}

/// # Safety
/// `to` is an operand with this layout.
unsafe fn scatter<E: Copy>(to: *mut E, layout: &FftLayout, n: [u64; 3], problem: u64, from: &[E]) {
    let mut from = from.iter();
    each(layout, n, problem, |at| {
        if let Some(&from) = from.next() {
            // SAFETY: the caller's promise.
            unsafe { to.add(at).write_unaligned(from) };
        }
    });
}

/// Transforms numbers along one dimension.
fn along<T: Real>(numbers: &mut [Complex<T>], n: [u64; 3], dimension: usize, inverse: bool) -> Result<()> {
    let length = n[dimension] as usize;
    if length == 1 {
        return Ok(());
    }
    let fft: Arc<dyn rustfft::Fft<T>> = planners(|planners| {
        if inverse {
            planners.complex.plan_fft_inverse(length)
        } else {
            planners.complex.plan_fft_forward(length)
        }
    });
    let mut scratch = room(fft.get_inplace_scratch_len())?;
    let inner: usize = n[dimension + 1..].iter().product::<u64>() as usize;
    if inner == 1 {
        fft.process_with_scratch(numbers, &mut scratch);
        return Ok(());
    }
    // Several lines at a time, so that what one cache line holds is used together.
    const LINES: usize = 8;
    let mut lines: Vec<Complex<T>> = room(LINES.min(inner) * length)?;
    for block in numbers.chunks_exact_mut(length * inner) {
        for first in (0..inner).step_by(LINES) {
            let count = LINES.min(inner - first);
            let lines = &mut lines[..count * length];
            for i in 0..length {
                for line in 0..count {
                    lines[line * length + i] = block[i * inner + first + line];
                }
            }
            fft.process_with_scratch(lines, &mut scratch);
            for i in 0..length {
                for line in 0..count {
                    block[i * inner + first + line] = lines[line * length + i];
                }
            }
        }
    }
    Ok(())
}

/// Real numbers and the half of their spectrum, row by row of the last dimension.
fn rows_to_spectra<T: Real>(real: &mut [T], spectra: &mut [Complex<T>], length: usize) -> Result<()> {
    let fft = planners::<T, _>(|planners| planners.real.plan_fft_forward(length));
    let mut scratch = room(fft.get_scratch_len())?;
    for (real, spectrum) in real.chunks_exact_mut(length).zip(spectra.chunks_exact_mut(length / 2 + 1)) {
        fft.process_with_scratch(real, spectrum, &mut scratch)
            .map_err(|error| Error::new(Code::Unknown, error.to_string()))?;
    }
    Ok(())
}

fn spectra_to_rows<T: Real>(spectra: &mut [Complex<T>], real: &mut [T], length: usize) -> Result<()> {
    let fft = planners::<T, _>(|planners| planners.real.plan_fft_inverse(length));
    let mut scratch = room(fft.get_scratch_len())?;
    for (real, spectrum) in real.chunks_exact_mut(length).zip(spectra.chunks_exact_mut(length / 2 + 1)) {
        // No sum of real numbers has these parts; cuFFT does not look at them.
        spectrum[0].im = T::zero();
        if length.is_multiple_of(2) {
            spectrum[length / 2].im = T::zero();
        }
        fft.process_with_scratch(spectrum, real, &mut scratch)
            .map_err(|error| Error::new(Code::Unknown, error.to_string()))?;
    }
    Ok(())
}

impl<T: Real> Transforms<T> {
    /// # Safety
    /// The pointers are to the operands of the plan.
    unsafe fn one(&self, input: *const u8, output: *mut u8, problem: u64) -> Result<()> {
        let (fft, n, half) = (&self.fft, self.fft.n, self.half);
        let length = n[2] as usize;
        let whole = n.iter().product::<u64>() as usize;
        let halved = half.iter().product::<u64>() as usize;
        // SAFETY (of all blocks below): the caller's promise; each layout is read and written as the numbers of its operand.
        match fft.transform {
            Transform::Forward | Transform::Inverse => {
                let mut numbers: Vec<Complex<T>> = room(whole)?;
                // SAFETY: see above.
                unsafe { gather(input.cast(), &fft.input, n, problem, &mut numbers) };
                for dimension in [2, 1, 0] {
                    along(&mut numbers, n, dimension, fft.transform == Transform::Inverse)?;
                }
                // SAFETY: see above.
                unsafe { scatter(output.cast(), &fft.output, n, problem, &numbers) };
            }
            Transform::RealToComplex => {
                let (mut real, mut spectra) = (room::<T>(whole)?, room(halved)?);
                // SAFETY: see above.
                unsafe { gather(input.cast(), &fft.input, n, problem, &mut real) };
                rows_to_spectra(&mut real, &mut spectra, length)?;
                for dimension in [1, 0] {
                    along(&mut spectra, half, dimension, false)?;
                }
                // SAFETY: see above.
                unsafe { scatter(output.cast(), &fft.output, half, problem, &spectra) };
            }
            Transform::ComplexToReal => {
                let (mut spectra, mut real) = (room(halved)?, room::<T>(whole)?);
                // SAFETY: see above.
                unsafe { gather(input.cast(), &fft.input, half, problem, &mut spectra) };
                for dimension in [0, 1] {
                    along(&mut spectra, half, dimension, true)?;
                }
                spectra_to_rows(&mut spectra, &mut real, length)?;
                // SAFETY: see above.
                unsafe { scatter(output.cast(), &fft.output, n, problem, &real) };
            }
        }
        Ok(())
    }
}

impl<T: Real> Computation for Transforms<T> {
    fn pieces(&self, threads: usize) -> usize {
        let numbers = self.fft.n.iter().fold(self.fft.count, |all, &n| all.saturating_mul(n));
        (numbers / SMALL).min(2 * threads as u64).min(self.fft.count).max(1) as usize
    }

    unsafe fn run(&self, memory: &[*mut u8], piece: usize, pieces: usize) -> Result<()> {
        let (piece, pieces) = (piece as u128, pieces as u128);
        let part = |piece: u128| (u128::from(self.fft.count) * piece / pieces) as u64;
        for problem in part(piece)..part(piece + 1) {
            // SAFETY: the operands are as the plan says.
            unsafe { self.one(memory[0], memory[1], problem) }?;
        }
        Ok(())
    }
}
