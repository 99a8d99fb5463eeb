//! What PTX says of floating-point numbers, on their bits.

use std::cmp::Ordering;

use rustc_apfloat::ieee::{BFloat, Double, Half, Single};
use rustc_apfloat::{Float, FloatConvert, Round};

use super::ops::Class;

/// The number, or none. Exact.
fn number(class: Class, bits: u64) -> Option<f64> {
    let mut lost = false;
    let value = match class {
        Class::F => f64::from(f32::from_bits(bits as u32)),
        Class::D => f64::from_bits(bits),
        _ => {
            let wide = FloatConvert::<Double>::convert(Half::from_bits(bits.into()), &mut lost).value;
            f64::from_bits(wide.to_bits() as u64)
        }
    };
    (!value.is_nan()).then_some(value)
}

/// How two numbers compare; none if one of them is no number.
pub(super) fn compare(class: Class, a: u64, b: u64) -> Option<Ordering> {
    number(class, a)?.partial_cmp(&number(class, b)?)
}

/// The smaller or the larger one; what is no number loses, and -0 is less than 0.
pub(super) fn min_max(class: Class, a: u64, b: u64, maximum: bool) -> u64 {
    match (number(class, a), number(class, b)) {
        (None, _) => b,
        (_, None) => a,
        (Some(x), Some(y)) => {
            if x.total_cmp(&y).is_gt() == maximum {
                a
            } else {
                b
            }
        }
    }
}

/// A zero of its sign in place of a subnormal `f32`.
pub(super) fn flush(bits: u64) -> u64 {
    if bits & 0x7F80_0000 == 0 { bits & 0x8000_0000 } else { bits }
}

/// An `f32` as a `bf16`.
pub(super) fn convert_bf16(bits: u64) -> u64 {
    let mut lost = false;
    FloatConvert::<BFloat>::convert(Single::from_bits(bits.into()), &mut lost).value.to_bits() as u64
}

/// The integer that is nearest as the mode says it, clamped; none if there is no number.
pub(super) fn to_integer(class: Class, bits: u64, round: Round, signed: bool, width: u32) -> Option<u64> {
    let value = number(class, bits)?;
    let whole = match round {
        Round::NearestTiesToEven => value.round_ties_even(),
        Round::TowardZero => value.trunc(),
        Round::TowardNegative => value.floor(),
        _ => value.ceil(),
    };
    let (low, high) = if signed {
        (-(1i128 << (width - 1)), (1i128 << (width - 1)) - 1)
    } else {
        (0, (1i128 << width) - 1)
    };
    // The cast saturates.
    Some((whole as i128).clamp(low, high) as u64)
}
