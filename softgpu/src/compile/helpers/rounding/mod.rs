//! Arithmetic rounded toward zero, down or up, by the processor's own rounding mode.

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod machine;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod machine;

use machine::{
    DOWN, UP, ZERO, add32, add64, div32, div64, fma64, mul32, mul64, signed32, signed64, sqrt32, sqrt64,
    sub32, sub64,
};

use crate::compile::emit::Directed;
use crate::compile::opcode::Rounding;

/// An unsigned number; when its top bit is set it is halved first, keeping a lost bit in the last place.
extern "C" fn unsigned32<const MODE: u32>(a: u64) -> f32 {
    if a >> 63 == 0 { signed32::<MODE>(a as i64) } else { signed32::<MODE>((a >> 1 | a & 1) as i64) * 2.0 }
}

extern "C" fn unsigned64<const MODE: u32>(a: u64) -> f64 {
    if a >> 63 == 0 { signed64::<MODE>(a as i64) } else { signed64::<MODE>((a >> 1 | a & 1) as i64) * 2.0 }
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
}
