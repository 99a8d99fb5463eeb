//! Plans.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rgpu_libraries::{Fft, FftLayout, Transform};

use crate::libraries::math::{Failure, Kind, Out, Result, fail, invalid};

/// `CUFFT_FORWARD`.
pub(super) const FORWARD: i32 = -1;
/// `CUFFT_INVERSE`.
pub(super) const INVERSE: i32 = 1;

/// What a plan is from and to, whatever its precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Complex to complex.
    Complex,
    /// Real to complex.
    FromReal,
    /// Complex to real.
    ToReal,
}

/// A kind of transform with its precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Type {
    pub(super) shape: Shape,
    pub(super) double: bool,
}

impl Type {
    /// By `cufftType`.
    pub(super) fn of(number: u32) -> Result<Self> {
        let shape = match number & !0x40 {
            0x29 => Shape::Complex,
            0x2a => Shape::FromReal,
            0x2c => Shape::ToReal,
            _ => return fail(Kind::InvalidType, format!("There is no cufftType {number:#x}")),
        };
        Ok(Self { shape, double: number & 0x40 != 0 })
    }
}

/// How numbers lie in memory, where the program says so.
#[derive(Debug, Clone, Copy)]
pub(super) struct Embedding {
    pub(super) pitch: [u64; 3],
    pub(super) stride: u64,
    pub(super) distance: u64,
}

/// What a plan does, once it is made.
#[derive(Debug, Clone)]
pub(super) struct Made {
    pub(super) of: Type,
    /// The dimensions, behind as many ones as are missing.
    pub(super) n: [u64; 3],
    pub(super) input: Option<Embedding>,
    pub(super) output: Option<Embedding>,
    pub(super) count: u64,
}

/// A plan.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) made: Option<Made>,
    pub(super) stream: usize,
    /// Properties that were set, which change nothing here.
    pub(super) properties: HashMap<u32, i64>,
}

static PLANS: Mutex<Option<HashMap<i32, Arc<Mutex<Plan>>>>> = Mutex::new(None);

/// A new plan that is not made yet; yields its handle.
pub(super) fn create(made: Option<Made>) -> i32 {
    static NEXT: Mutex<i32> = Mutex::new(1);
    let mut plans = PLANS.lock();
    let plans = plans.get_or_insert_default();
    let mut next = NEXT.lock();
    while plans.contains_key(&*next) {
        *next = next.checked_add(1).unwrap_or(1);
    }
    let handle = *next;
    *next = next.checked_add(1).unwrap_or(1);
    plans.insert(handle, Arc::new(Mutex::new(Plan { made, ..Plan::default() })));
    handle
}

fn none(handle: i32) -> Failure {
    Failure { kind: Kind::InvalidHandle, message: format!("There is no plan {handle}") }
}

/// The plan of a handle.
pub(super) fn get(handle: i32) -> Result<Arc<Mutex<Plan>>> {
    PLANS.lock().as_ref().and_then(|plans| plans.get(&handle).cloned()).ok_or_else(|| none(handle))
}

/// Forgets a plan.
pub(super) fn destroy(handle: i32) -> Result<()> {
    PLANS.lock().as_mut().and_then(|plans| plans.remove(&handle)).map(drop).ok_or_else(|| none(handle))
}

/// Makes a plan that was created, once.
pub(super) fn make(handle: i32, made: Made, work_size: Out<usize>) -> Result<()> {
    let plan = get(handle)?;
    let mut plan = plan.lock();
    if plan.made.is_some() {
        return fail(Kind::InvalidHandle, format!("Plan {handle} was made already"));
    }
    plan.made = Some(made);
    work_size.set_if_wanted(0);
    Ok(())
}

/// One side of an advanced layout as the program gives it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Side<'a> {
    /// Elements of each dimension in memory; `None` for what is usual.
    pub(super) embed: Option<&'a [i64]>,
    pub(super) stride: i64,
    pub(super) distance: i64,
}

impl Side<'_> {
    /// Numbers side by side.
    pub(super) const USUAL: Self = Self { embed: None, stride: 1, distance: 0 };

    fn embedding(self, n: [u64; 3], count: u64) -> Result<Option<Embedding>> {
        let Some(embed) = self.embed else { return Ok(None) };
        let mut pitch = [1; 3];
        for (pitch, &embed) in pitch[3 - embed.len()..].iter_mut().zip(embed) {
            *pitch = embed.max(0) as u64;
        }
        // The first dimension's is not used.
        let used = 3 - embed.len() + 1;
        if pitch.iter().zip(&n).skip(used).any(|(pitch, n)| pitch < n) {
            return fail(Kind::InvalidSize, "A dimension is larger than what it is embedded in");
        }
        let (stride, distance) = (self.stride, self.distance);
        if stride < 1 || distance < 0 || (distance == 0 && count > 1) {
            return invalid(format!("Numbers {stride} apart, and problems {distance} apart"));
        }
        Ok(Some(Embedding { pitch, stride: stride as u64, distance: distance as u64 }))
    }
}

impl Made {
    /// A plan for transforms of these dimensions.
    pub(super) fn new(of: Type, n: &[i64], input: Side<'_>, output: Side<'_>, count: i64) -> Result<Self> {
        if !(1..=3).contains(&n.len()) {
            return invalid(format!("A transform of {} dimensions", n.len()));
        }
        if n.iter().any(|&n| n < 1) || count < 1 {
            return fail(Kind::InvalidSize, format!("{count} transforms of {n:?} numbers"));
        }
        let mut whole = [1; 3];
        for (whole, &n) in whole[3 - n.len()..].iter_mut().zip(n) {
            *whole = n as u64;
        }
        let half = [whole[0], whole[1], whole[2] / 2 + 1];
        let count = count as u64;
        let (n_in, n_out) = match of.shape {
            Shape::Complex => (whole, whole),
            Shape::FromReal => (whole, half),
            Shape::ToReal => (half, whole),
        };
        // Where one side is the usual one, both are.
        let embedded = input.embed.is_some() && output.embed.is_some();
        let input = if embedded { input.embedding(n_in, count)? } else { None };
        let output = if embedded { output.embedding(n_out, count)? } else { None };
        Ok(Self { of, n: whole, input, output, count })
    }

    /// The operation that transforms what lies at one address to what shall lie at another.
    pub(super) fn operation(&self, from: u64, to: u64, direction: i32) -> Result<Fft> {
        let transform = match (self.of.shape, direction) {
            (Shape::Complex, FORWARD) => Transform::Forward,
            (Shape::Complex, INVERSE) => Transform::Inverse,
            (Shape::Complex, other) => return invalid(format!("There is no direction {other}")),
            (Shape::FromReal, _) => Transform::RealToComplex,
            (Shape::ToReal, _) => Transform::ComplexToReal,
        };
        if from == 0 || to == 0 {
            return invalid("The data are null");
        }
        let half = self.n[2] / 2 + 1;
        // Real numbers in the place of their spectrum have room for as many complex ones.
        let real = if from == to { 2 * half } else { self.n[2] };
        let (last_in, last_out) = match self.of.shape {
            Shape::Complex => (self.n[2], self.n[2]),
            Shape::FromReal => (real, half),
            Shape::ToReal => (half, real),
        };
        let layout = |addr, embedding: Option<Embedding>, last: u64| {
            let usual = || {
                let pitch = [self.n[0], self.n[1], last];
                Embedding {
                    pitch,
                    stride: 1,
                    distance: pitch.iter().fold(1, |all: u64, &n| all.saturating_mul(n)),
                }
            };
            let Embedding { pitch, stride, distance } = embedding.unwrap_or_else(usual);
            FftLayout { addr, pitch, stride, distance }
        };
        Ok(Fft {
            transform,
            double: self.of.double,
            n: self.n,
            input: layout(from, self.input, last_in),
            output: layout(to, self.output, last_out),
            count: self.count,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM_REAL: Type = Type { shape: Shape::FromReal, double: false };

    #[test]
    fn real_numbers_in_the_place_of_their_spectrum_are_padded() {
        let plan = Made::new(FROM_REAL, &[6, 7], Side::USUAL, Side::USUAL, 2).unwrap();
        let apart = plan.operation(64, 4096, FORWARD).unwrap();
        assert_eq!((apart.input.pitch, apart.input.distance), ([1, 6, 7], 42));
        assert_eq!((apart.output.pitch, apart.output.distance), ([1, 6, 4], 24));
        let in_place = plan.operation(64, 64, FORWARD).unwrap();
        assert_eq!((in_place.input.pitch, in_place.input.distance), ([1, 6, 8], 48));
        assert_eq!((in_place.output.pitch, in_place.output.distance), ([1, 6, 4], 24));
    }

    #[test]
    fn layouts_are_as_the_program_says_or_refused() {
        let side = |embed, stride, distance| Side { embed: Some(embed), stride, distance };
        let plan = Made::new(FROM_REAL, &[4, 8], side(&[4, 9], 2, 100), side(&[4, 5], 1, 20), 3).unwrap();
        let operation = plan.operation(64, 4096, FORWARD).unwrap();
        assert_eq!((operation.input.pitch[2], operation.input.stride, operation.input.distance), (9, 2, 100));
        assert_eq!(
            (operation.output.pitch[2], operation.output.stride, operation.output.distance),
            (5, 1, 20)
        );
        let kind = |made: Result<Made>| made.unwrap_err().kind;
        assert_eq!(
            kind(Made::new(FROM_REAL, &[4, 8], side(&[4, 7], 1, 100), side(&[4, 5], 1, 20), 3)),
            Kind::InvalidSize
        );
        assert_eq!(
            kind(Made::new(FROM_REAL, &[4, 8], side(&[4, 8], 0, 100), side(&[4, 5], 1, 20), 3)),
            Kind::InvalidValue
        );
        assert_eq!(kind(Made::new(FROM_REAL, &[0], Side::USUAL, Side::USUAL, 1)), Kind::InvalidSize);
        assert_eq!(kind(Made::new(FROM_REAL, &[1; 4], Side::USUAL, Side::USUAL, 1)), Kind::InvalidValue);
        assert_eq!(Type::of(0x2b).unwrap_err().kind, Kind::InvalidType);
        assert_eq!(plan.operation(0, 64, FORWARD).unwrap_err().kind, Kind::InvalidValue);
    }
}
