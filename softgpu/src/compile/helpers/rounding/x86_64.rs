//! Arithmetic in a rounding mode on x86-64.

use std::arch::asm;

/// The control word with all exceptions masked and this rounding.
const fn control(rounding: u32) -> u32 {
    0x1f80 | rounding << 13
}

pub(super) const DOWN: u32 = control(1);
pub(super) const UP: u32 = control(2);
pub(super) const ZERO: u32 = control(3);
const NEAREST: u32 = control(0);

macro_rules! binary {
    ($name:ident, $ty:ty, $instruction:literal) => {
        pub(super) extern "C" fn $name<const MODE: u32>(a: $ty, b: $ty) -> $ty {
            let mut value = a;
            // SAFETY: the rounding mode is restored before the block ends, and nothing else is touched.
            unsafe {
                asm!(
                    "ldmxcsr [{mode}]",
                    concat!($instruction, " {value}, {b}"),
                    "ldmxcsr [{nearest}]",
                    mode = in(reg) &MODE,
                    nearest = in(reg) &NEAREST,
                    value = inout(xmm_reg) value,
                    b = in(xmm_reg) b,
                    options(nostack, readonly),
                );
            }
            value
        }
    };
}

binary!(add32, f32, "addss");
binary!(add64, f64, "addsd");
binary!(sub32, f32, "subss");
binary!(sub64, f64, "subsd");
binary!(mul32, f32, "mulss");
binary!(mul64, f64, "mulsd");
binary!(div32, f32, "divss");
binary!(div64, f64, "divsd");

macro_rules! unary {
    ($name:ident, $from:ty, $to:ty, $zero:literal, $class:ident, $instruction:literal) => {
        pub(super) extern "C" fn $name<const MODE: u32>(a: $from) -> $to {
            let mut value: $to = $zero;
            // SAFETY: the rounding mode is restored before the block ends, and nothing else is touched.
            unsafe {
                asm!(
                    "ldmxcsr [{mode}]",
                    concat!($instruction, " {value}, {a}"),
                    "ldmxcsr [{nearest}]",
                    mode = in(reg) &MODE,
                    nearest = in(reg) &NEAREST,
                    value = inout(xmm_reg) value,
                    a = in($class) a,
                    options(nostack, readonly),
                );
            }
            value
        }
    };
}

unary!(sqrt32, f32, f32, 0.0, xmm_reg, "sqrtss");
unary!(sqrt64, f64, f64, 0.0, xmm_reg, "sqrtsd");
unary!(signed32, i64, f32, 0.0, reg, "cvtsi2ss");
unary!(signed64, i64, f64, 0.0, reg, "cvtsi2sd");

/// A fused multiply-add in double precision, in a direction: from the one rounded to nearest and the sign
/// of its error.
pub(super) extern "C" fn fma64<const MODE: u32>(a: f64, b: f64, c: f64) -> f64 {
    if std::arch::is_x86_feature_detected!("fma") {
        let mut value = a;
        // SAFETY: the instruction exists, as has been checked; the rounding mode is restored.
        unsafe {
            asm!(
                "ldmxcsr [{mode}]",
                "vfmadd213sd {value}, {b}, {c}",
                "ldmxcsr [{nearest}]",
                mode = in(reg) &MODE,
                nearest = in(reg) &NEAREST,
                value = inout(xmm_reg) value,
                b = in(xmm_reg) b,
                c = in(xmm_reg) c,
                options(nostack, readonly),
            );
        }
        return value;
    }
    fma64_in_software(a, b, c, MODE)
}

/// Correct rounding without the instruction, by a wide floating-point type.
fn fma64_in_software(a: f64, b: f64, c: f64, mode: u32) -> f64 {
    use rustc_apfloat::Float;
    use rustc_apfloat::ieee::Double;
    let round = match mode {
        DOWN => rustc_apfloat::Round::TowardNegative,
        UP => rustc_apfloat::Round::TowardPositive,
        ZERO => rustc_apfloat::Round::TowardZero,
        _ => rustc_apfloat::Round::NearestTiesToEven,
    };
    let [a, b, c] = [a, b, c].map(|x| Double::from_bits(u128::from(x.to_bits())));
    f64::from_bits(a.mul_add_r(b, c, round).value.to_bits() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_fma_agrees() {
        for (a, b, c) in
            [(1.0 / 3.0, 3.0, -1.0), (1e300, 1e10, 1.0), (1e-300, 1e-20, 5e-324), (0.1, 0.2, 0.3)]
        {
            assert_eq!(fma64::<DOWN>(a, b, c), fma64_in_software(a, b, c, DOWN));
            assert_eq!(fma64::<UP>(a, b, c), fma64_in_software(a, b, c, UP));
            assert_eq!(fma64::<ZERO>(a, b, c), fma64_in_software(a, b, c, ZERO));
        }
    }
}
