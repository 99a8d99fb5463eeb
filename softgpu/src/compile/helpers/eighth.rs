//! Conversions to and from floating-point numbers of 8 bits.

use super::half::{f16_from_f32, f32_from_f16};
use crate::compile::op::EighthFormat;

/// How many bits of mantissa a format has, its exponent's bias, and its largest finite number.
struct Format {
    mantissa: i32,
    bias: i32,
    largest: u32,
}

const NAN: u32 = 0x7f;

const fn format(which: EighthFormat) -> Format {
    match which {
        EighthFormat::E4m3 => Format { mantissa: 3, bias: 7, largest: 0x7e },
        EighthFormat::E5m2 => Format { mantissa: 2, bias: 15, largest: 0x7b },
    }
}

/// How a format is passed to the functions here.
pub(crate) fn number(which: EighthFormat) -> i64 {
    i64::from(which == EighthFormat::E5m2)
}

fn which(number: u32) -> EighthFormat {
    if number == 0 { EighthFormat::E4m3 } else { EighthFormat::E5m2 }
}

/// Rounds to the nearest number, of two to the even one; what is too large becomes the largest, and with `relu` what is
/// negative 0.
fn narrow(x: f32, to: EighthFormat, relu: bool) -> u32 {
    let Format { mantissa, bias, largest } = format(to);
    if x.is_nan() {
        return NAN;
    }
    let sign = if x.is_sign_negative() { 0x80 } else { 0 };
    if relu && sign != 0 {
        return 0;
    }
    if x.is_infinite() {
        return sign | largest;
    }
    let magnitude = f64::from(x.abs());
    // A single, subnormal or not, is a normal double; so this is its exponent.
    let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(1 - bias);
    let unit = f64::from_bits(((exponent - mantissa + 1023) as u64) << 52);
    let kept = (magnitude / unit).round_ties_even() as u32;
    // A carry out of the mantissa moves into the exponent by itself.
    let bits = (((exponent + bias - 1) as u32) << mantissa).saturating_add(kept);
    sign | bits.min(largest)
}

/// An `f16`, which can hold all numbers of 8 bits.
pub(super) fn widen(bits: u32, from: EighthFormat, relu: bool) -> u32 {
    let Format { mantissa, bias, largest } = format(from);
    let (sign, magnitude) = (bits >> 7 & 1, bits & 0x7f);
    let infinite = from == EighthFormat::E5m2 && magnitude == largest + 1;
    if magnitude > largest && !infinite {
        return 0x7fff;
    }
    if relu && sign != 0 {
        return 0;
    }
    if infinite {
        return sign << 15 | 0x7c00;
    }
    let (field, fraction) = ((magnitude >> mantissa) as i32, magnitude & ((1 << mantissa) - 1));
    let implied = if field == 0 { 0 } else { 1 << mantissa };
    let value = (fraction | implied) as f32 * f32::powi(2.0, field.max(1) - bias - mantissa);
    sign << 15 | f16_from_f32(value, 0)
}

/// `cvt.rn.satfinite.e4m3x2.f32`: `a` becomes the upper byte.
pub(crate) extern "C" fn from_singles(a: f32, b: f32, to: u32, relu: u32) -> u32 {
    let (to, relu) = (which(to), relu != 0);
    narrow(a, to, relu) << 8 | narrow(b, to, relu)
}

/// `cvt.rn.satfinite.e4m3x2.f16x2`
pub(crate) extern "C" fn from_halves(halves: u32, to: u32, relu: u32) -> u32 {
    from_singles(f32_from_f16(halves >> 16), f32_from_f16(halves & 0xffff), to, relu)
}

/// `cvt.rn.f16x2.e4m3x2`
pub(crate) extern "C" fn to_halves(pair: u32, from: u32, relu: u32) -> u32 {
    let (from, relu) = (which(from), relu != 0);
    widen(pair >> 8 & 0xff, from, relu) << 16 | widen(pair & 0xff, from, relu)
}
