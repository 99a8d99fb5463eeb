//! Arithmetic rounded toward zero, down or up, by the processor's own rounding mode.

use std::arch::asm;

use crate::compile::emit::Directed;
use crate::compile::opcode::Rounding;

/// The control word with all exceptions masked and this rounding.
const fn control(rounding: u32) -> u32 {
    0x1f80 | rounding << 13
}

const DOWN: u32 = control(1);
const UP: u32 = control(2);
const ZERO: u32 = control(3);
const NEAREST: u32 = control(0);

macro_rules! binary {
    ($name:ident, $ty:ty, $instruction:literal) => {
        extern "C" fn $name<const MODE: u32>(a: $ty, b: $ty) -> $ty {
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
        extern "C" fn $name<const MODE: u32>(a: $from) -> $to {
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

/// An unsigned number; when its top bit is set it is halved first, keeping a lost bit in the last place.
extern "C" fn unsigned32<const MODE: u32>(a: u64) -> f32 {
    if a >> 63 == 0 { signed32::<MODE>(a as i64) } else { signed32::<MODE>((a >> 1 | a & 1) as i64) * 2.0 }
}

extern "C" fn unsigned64<const MODE: u32>(a: u64) -> f64 {
    if a >> 63 == 0 { signed64::<MODE>(a as i64) } else { signed64::<MODE>((a >> 1 | a & 1) as i64) * 2.0 }
}

/// A fused multiply-add in double precision, in a direction: from the one rounded to nearest and the sign
/// of its error.
extern "C" fn fma64<const MODE: u32>(a: f64, b: f64, c: f64) -> f64 {
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

macro_rules! by_mode {
    ($rounding:expr, $name:ident, $ty:ty) => {
        match $rounding {
            Rounding::Down => $name::<DOWN> as $ty as usize,
            Rounding::Up => $name::<UP> as $ty as usize,
            _ => $name::<ZERO> as $ty as usize,
        }
    };
}

type Binary32 = extern "C" fn(f32, f32) -> f32;
type Binary64 = extern "C" fn(f64, f64) -> f64;

/// The function for an operation, rounded in a direction. There is none for the fused multiply-add of
/// singles, which is done in double precision.
pub(crate) fn directed(op: Directed, rounding: Rounding, single: bool) -> usize {
    match (op, single) {
        (Directed::Add, true) => by_mode!(rounding, add32, Binary32),
        (Directed::Add, false) => by_mode!(rounding, add64, Binary64),
        (Directed::Sub, true) => by_mode!(rounding, sub32, Binary32),
        (Directed::Sub, false) => by_mode!(rounding, sub64, Binary64),
        (Directed::Mul, true) => by_mode!(rounding, mul32, Binary32),
        (Directed::Mul, false) => by_mode!(rounding, mul64, Binary64),
        (Directed::Div, true) => by_mode!(rounding, div32, Binary32),
        (Directed::Div, false) => by_mode!(rounding, div64, Binary64),
        (Directed::Sqrt, true) => by_mode!(rounding, sqrt32, extern "C" fn(f32) -> f32),
        (Directed::Sqrt, false) => by_mode!(rounding, sqrt64, extern "C" fn(f64) -> f64),
        (Directed::Fma, _) => by_mode!(rounding, fma64, extern "C" fn(f64, f64, f64) -> f64),
    }
}

/// The function that converts a 64-bit integer, rounded in a direction.
pub(crate) fn from_int(signed: bool, rounding: Rounding, single: bool) -> usize {
    match (signed, single) {
        (true, true) => by_mode!(rounding, signed32, extern "C" fn(i64) -> f32),
        (true, false) => by_mode!(rounding, signed64, extern "C" fn(i64) -> f64),
        (false, true) => by_mode!(rounding, unsigned32, extern "C" fn(u64) -> f32),
        (false, false) => by_mode!(rounding, unsigned64, extern "C" fn(u64) -> f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_in_every_direction() {
        assert_eq!(div64::<DOWN>(1.0, 3.0), 0.333_333_333_333_333_3);
        assert_eq!(div64::<UP>(1.0, 3.0), 0.333_333_333_333_333_37);
        assert_eq!(div32::<UP>(-1.0, 3.0).to_bits(), 0xbeaa_aaaa);
        assert_eq!(div32::<DOWN>(-1.0, 3.0).to_bits(), 0xbeaa_aaab);
        assert_eq!(sqrt64::<ZERO>(2.0).to_bits(), 0x3ff6_a09e_667f_3bcc);
        assert_eq!(unsigned32::<UP>(u64::MAX), 18_446_744_073_709_551_616.0);
        assert_eq!(unsigned32::<ZERO>(u64::MAX).to_bits(), 0x5f7f_ffff);
        assert_eq!(signed64::<DOWN>(i64::MAX).to_bits(), 0x43df_ffff_ffff_ffff);
    }

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
