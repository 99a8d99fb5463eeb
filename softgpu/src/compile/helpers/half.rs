//! Rounding to `f16` and `bf16` where a single is not precise enough on the way.

use crate::compile::opcode::Rounding;

/// How a rounding is passed to the functions here.
pub(crate) fn mode(rounding: Rounding) -> i64 {
    match rounding {
        Rounding::Zero => 1,
        Rounding::Down => 2,
        Rounding::Up => 3,
        _ => 0,
    }
}

/// A format of 16 bits: how many bits of mantissa it has, and its exponent bias.
#[derive(Clone, Copy)]
struct Format {
    mantissa: i32,
    bias: i32,
}

const F16: Format = Format { mantissa: 10, bias: 15 };
const BF16: Format = Format { mantissa: 7, bias: 127 };

/// Rounds `magnitude * 2^exponent`.
fn round(format: Format, negative: bool, magnitude: u64, exponent: i32, mode: u32) -> u32 {
    let sign = u32::from(negative) << 15;
    let largest_exponent = 2 * format.bias + 1;
    let infinity = (largest_exponent as u32) << format.mantissa;
    if magnitude == 0 {
        return sign;
    }
    let top = 63 - magnitude.leading_zeros() as i32;
    // The unit in the last place of the result.
    let unit = (top + exponent).max(1 - format.bias) - format.mantissa;
    let shift = unit - exponent;
    let (mut kept, half, lost, inexact) = if shift <= 0 {
        // All bits fit.
        (magnitude << -shift, false, false, false)
    } else if shift > 63 {
        (0, false, false, true)
    } else {
        let rest = magnitude & ((1 << shift) - 1);
        let half = 1 << (shift - 1);
        (magnitude >> shift, rest >= half, rest & (half - 1) != 0, rest != 0)
    };
    let up = match mode {
        1 => false,
        2 => negative && inexact,
        3 => !negative && inexact,
        _ => half && (lost || kept & 1 == 1),
    };
    kept += u64::from(up);
    // The exponent field counts from the unit; a carry out of the mantissa moves into it by itself.
    let field = unit + format.mantissa + format.bias - 1;
    let bits = ((field as u64) << format.mantissa) + kept;
    if bits >= u64::from(infinity) {
        let finite = match mode {
            1 => true,
            2 => !negative,
            3 => negative,
            _ => false,
        };
        return sign | if finite { infinity - 1 } else { infinity };
    }
    sign | bits as u32
}

/// A double as sign, magnitude and exponent; `None` if it is not finite.
fn split(x: f64) -> Option<(bool, u64, i32)> {
    let bits = x.to_bits();
    let field = (bits >> 52 & 0x7ff) as i32;
    let mantissa = bits & ((1 << 52) - 1);
    match field {
        0x7ff => None,
        0 => Some((x.is_sign_negative(), mantissa, -1074)),
        _ => Some((x.is_sign_negative(), mantissa | 1 << 52, field - 1075)),
    }
}

fn from_f64(format: Format, x: f64, mode: u32) -> u32 {
    let infinity = ((2 * format.bias + 1) as u32) << format.mantissa;
    if x.is_nan() {
        return 0x7fff;
    }
    match split(x) {
        Some((negative, magnitude, exponent)) => round(format, negative, magnitude, exponent, mode),
        None => infinity | u32::from(x < 0.0) << 15,
    }
}

/// `cvt.f16.f32`
pub(crate) extern "C" fn f16_from_f32(x: f32, mode: u32) -> u32 {
    from_f64(F16, f64::from(x), mode)
}

/// `cvt.f32.f16`
pub(crate) fn f32_from_f16(half: u32) -> f32 {
    let (sign, field, fraction) = (half >> 15 & 1, half >> 10 & 0x1f, half & 0x3ff);
    let magnitude = match (field, fraction) {
        (0x1f, 0) => f32::INFINITY,
        (0x1f, _) => f32::NAN,
        (0, _) => fraction as f32 * f32::from_bits((127 - 24) << 23),
        _ => f32::from_bits((field + 127 - 15) << 23 | fraction << 13),
    };
    if sign == 0 { magnitude } else { -magnitude }
}

/// `cvt.f16.f64`
pub(crate) extern "C" fn f16_from_f64(x: f64, mode: u32) -> u32 {
    from_f64(F16, x, mode)
}

/// `cvt.bf16.f64`
pub(crate) extern "C" fn bf16_from_f64(x: f64, mode: u32) -> u32 {
    from_f64(BF16, x, mode)
}

fn from_int(format: Format, x: i64, signed: u32, mode: u32) -> u32 {
    let negative = signed != 0 && x < 0;
    let magnitude = if negative { x.unsigned_abs() } else { x as u64 };
    round(format, negative, magnitude, 0, mode)
}

/// `cvt.f16.s64`, or from `u64` where not `signed`.
pub(crate) extern "C" fn f16_from_int(x: i64, signed: u32, mode: u32) -> u32 {
    from_int(F16, x, signed, mode)
}

/// The same for `bf16`.
pub(crate) extern "C" fn bf16_from_int(x: i64, signed: u32, mode: u32) -> u32 {
    from_int(BF16, x, signed, mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustc_apfloat::Float;
    use rustc_apfloat::ieee::{Double, Half};

    const MODES: [rustc_apfloat::Round; 4] = [
        rustc_apfloat::Round::NearestTiesToEven,
        rustc_apfloat::Round::TowardZero,
        rustc_apfloat::Round::TowardNegative,
        rustc_apfloat::Round::TowardPositive,
    ];

    fn wide(half: u16) -> f64 {
        let mut lossy = false;
        let value: Double =
            rustc_apfloat::FloatConvert::convert(Half::from_bits(u128::from(half)), &mut lossy).value;
        f64::from_bits(value.to_bits() as u64)
    }

    #[test]
    fn every_half_survives_and_neighbours_round_to_it() {
        for half in (0..0x7c00u16).chain(0x8000..0xfc00) {
            let x = wide(half);
            for mode in 0..4 {
                assert_eq!(f16_from_f64(x, mode), u32::from(half), "{x}");
            }
            for near in [f64::from_bits(x.to_bits() + 1), x * 1.0003, x * 1.000_488_281_25] {
                for (mode, rounding) in MODES.into_iter().enumerate() {
                    let mut lossy = false;
                    let expected: Half = rustc_apfloat::FloatConvert::convert_r(
                        Double::from_bits(u128::from(near.to_bits())),
                        rounding,
                        &mut lossy,
                    )
                    .value;
                    assert_eq!(
                        u128::from(f16_from_f64(near, mode as u32)),
                        expected.to_bits(),
                        "{near} {mode}"
                    );
                }
            }
        }
    }
}
