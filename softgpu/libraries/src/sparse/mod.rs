//! Operations of cuSPARSE. Indices come from device memory, so each is checked before it is followed.

mod bands;
mod blocks;
mod compress;
mod convert;
mod incomplete;
mod places;
mod product;
mod solve;
mod sort;
mod sum;
mod vectors;

use std::marker::PhantomData;

use num_complex::Complex;
use rgpu_dense::Dense;
use rgpu_device::Result;
use rgpu_libraries::{DataType, Scalar};
use rgpu_softgpu::library::{Computation, Operand, Plan};

use crate::{invalid, missing};

pub(crate) use compress::compress;
pub(crate) use sort::{iota, sort};
pub(crate) use sum::sum;

/// An operation on elements of one type.
pub(crate) trait Sparse: Send + Sync + 'static {
    /// The type that is computed with, and in how many pieces it can be done.
    fn shape(&self) -> (DataType, u64);

    /// The operands.
    fn operands(&self) -> Result<Vec<Operand>>;

    /// Does a part of the pieces.
    ///
    /// # Safety
    /// The pointers are to the operands.
    unsafe fn run<T: Dense>(&self, memory: &[*mut u8], from: u64, to: u64) -> Result<()>;
}

/// The plan of an operation.
pub(crate) fn plan<S: Sparse>(sparse: S) -> Result<Plan> {
    let operands = sparse.operands()?;
    let (kind, most) = sparse.shape();
    let computation: Box<dyn Computation> = match kind {
        DataType::F32 => Box::new(Typed::<S, f32> { sparse, most, of: PhantomData }),
        DataType::F64 => Box::new(Typed::<S, f64> { sparse, most, of: PhantomData }),
        DataType::C32 => Box::new(Typed::<S, Complex<f32>> { sparse, most, of: PhantomData }),
        DataType::C64 => Box::new(Typed::<S, Complex<f64>> { sparse, most, of: PhantomData }),
        other => return missing(format!("sparse matrices of {other:?}")),
    };
    Ok(Plan { operands, computation })
}

struct Typed<S, T> {
    sparse: S,
    most: u64,
    of: PhantomData<fn(T)>,
}

impl<S: Sparse, T: Dense> Computation for Typed<S, T> {
    fn pieces(&self, threads: usize) -> usize {
        self.most.min(threads as u64).max(1) as usize
    }

    unsafe fn run(&self, memory: &[*mut u8], piece: usize, pieces: usize) -> Result<()> {
        let part = |piece: usize| (u128::from(self.most) * piece as u128 / pieces as u128) as u64;
        // SAFETY: the caller's promise.
        unsafe { self.sparse.run::<T>(memory, part(piece), part(piece + 1)) }
    }
}

/// A plan that what lies in a list, when its turn has come, is needed for.
fn once_read(list: Operand, next: impl Fn(*const u8) -> Result<Plan> + Send + Sync + 'static) -> Plan {
    Plan { operands: vec![list], computation: Box::new(OnceRead(next)) }
}

struct OnceRead<F>(F);

impl<F: Fn(*const u8) -> Result<Plan> + Send + Sync> Computation for OnceRead<F> {
    unsafe fn run(&self, _: &[*mut u8], _: usize, _: usize) -> Result<()> {
        Ok(())
    }

    unsafe fn then(&self, memory: &[*mut u8]) -> Result<Option<Plan>> {
        (self.0)(memory[0]).map(Some)
    }
}

/// So many numbers of so many bytes.
fn list(addr: u64, count: u64, bytes: u64, written: bool) -> Result<Operand> {
    let bytes = if addr == 0 { Some(0) } else { count.checked_mul(bytes) };
    match bytes {
        Some(bytes) if addr.checked_add(bytes).is_some() => Ok(Operand { addr, bytes, written }),
        _ => invalid("More numbers than the address space holds"),
    }
}

/// A factor's operand; nothing where it is the host's.
fn factor(scalar: &Scalar, kind: DataType) -> Operand {
    let bytes = if scalar.addr == 0 { 0 } else { kind.bytes() };
    Operand { addr: scalar.addr, bytes, written: false }
}

/// The factor, now.
///
/// # Safety
/// `at` is the operand that [`factor`] described for the type.
unsafe fn factor_now<T: Dense>(scalar: &Scalar, at: *const u8) -> T {
    if scalar.addr == 0 {
        return T::of(scalar.value[0], scalar.value[1]);
    }
    // SAFETY: the caller's promise.
    unsafe { at.cast::<T>().read_unaligned() }
}
