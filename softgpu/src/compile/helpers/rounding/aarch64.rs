//! Arithmetic in a rounding mode on AArch64.

use std::arch::asm;

/// The control register with this rounding, and all else as programs begin.
const fn control(rounding: u32) -> u32 {
    rounding << 22
}

pub(super) const UP: u32 = control(1);
pub(super) const DOWN: u32 = control(2);
pub(super) const ZERO: u32 = control(3);

/// An instruction with operands of one kind, between setting the mode and putting it back.
macro_rules! function {
    ($name:ident ( $($argument:ident: $from:ty),+ ) -> $to:ty, $class:ident, $instruction:literal) => {
        pub(super) extern "C" fn $name<const MODE: u32>($($argument: $from),+) -> $to {
            let value: $to;
            // SAFETY: the rounding mode is nearest again before the block ends, and nothing else is touched.
            unsafe {
                asm!(
                    "msr fpcr, {mode}",
                    $instruction,
                    "msr fpcr, xzr",
                    mode = in(reg) u64::from(MODE),
                    value = lateout(vreg) value,
                    $($argument = in($class) $argument,)+
                    options(nostack, nomem),
                );
            }
            value
        }
    };
}

function!(add32(a: f32, b: f32) -> f32, vreg, "fadd {value:s}, {a:s}, {b:s}");
function!(add64(a: f64, b: f64) -> f64, vreg, "fadd {value:d}, {a:d}, {b:d}");
function!(sub32(a: f32, b: f32) -> f32, vreg, "fsub {value:s}, {a:s}, {b:s}");
function!(sub64(a: f64, b: f64) -> f64, vreg, "fsub {value:d}, {a:d}, {b:d}");
function!(mul32(a: f32, b: f32) -> f32, vreg, "fmul {value:s}, {a:s}, {b:s}");
function!(mul64(a: f64, b: f64) -> f64, vreg, "fmul {value:d}, {a:d}, {b:d}");
function!(div32(a: f32, b: f32) -> f32, vreg, "fdiv {value:s}, {a:s}, {b:s}");
function!(div64(a: f64, b: f64) -> f64, vreg, "fdiv {value:d}, {a:d}, {b:d}");
function!(sqrt32(a: f32) -> f32, vreg, "fsqrt {value:s}, {a:s}");
function!(sqrt64(a: f64) -> f64, vreg, "fsqrt {value:d}, {a:d}");
function!(signed32(a: i64) -> f32, reg, "scvtf {value:s}, {a:x}");
function!(signed64(a: i64) -> f64, reg, "scvtf {value:d}, {a:x}");
function!(fma64(a: f64, b: f64, c: f64) -> f64, vreg, "fmadd {value:d}, {a:d}, {b:d}, {c:d}");
