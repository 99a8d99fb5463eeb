//! Functions that compiled code calls for what would be too much code inline.

pub(super) mod eighth;
pub(super) mod group;
pub(super) mod half;
pub(super) mod matrix;
pub(super) mod rounding;
pub(super) mod sparse;

use std::collections::HashSet;
use std::sync::LazyLock;

use parking_lot::RwLock;

/// Functions of this module that compiled code calls. They take and return numbers and follow none as an address.
static OF_NUMBERS: LazyLock<RwLock<HashSet<usize>>> = LazyLock::new(RwLock::default);

/// The address of a function of this module as compiled code gets it. What calls any other is never run.
pub(super) fn of_numbers(function: usize) -> usize {
    if !is_of_numbers(function) {
        OF_NUMBERS.write().insert(function);
    }
    function
}

/// Whether an address is one of those.
pub(super) fn is_of_numbers(address: usize) -> bool {
    OF_NUMBERS.read().contains(&address)
}

/// `fns`: the position of the `offset`-th set bit, counted upwards from `base` if positive, downwards if
/// negative; `offset` 0 asks for `base` itself.
pub(super) extern "C" fn fns(mask: u32, base: u32, offset: i32) -> u32 {
    const NONE: u32 = u32::MAX;
    if base > 31 {
        return NONE;
    }
    // It has no absolute value, which devices compute with.
    if offset == i32::MIN {
        return 0;
    }
    if offset == 0 {
        return if mask >> base & 1 == 1 { base } else { NONE };
    }
    let step = if offset > 0 { 1i32 } else { -1 };
    let mut left = offset.unsigned_abs();
    let mut position = base as i32;
    while (0..32).contains(&position) {
        if mask >> position & 1 == 1 {
            left -= 1;
            if left == 0 {
                return position as u32;
            }
        }
        position += step;
    }
    NONE
}

/// `sin.approx`
pub(super) extern "C" fn sin(x: f32) -> f32 {
    x.sin()
}

/// `cos.approx`
pub(super) extern "C" fn cos(x: f32) -> f32 {
    x.cos()
}

/// `lg2.approx`
pub(super) extern "C" fn log2(x: f32) -> f32 {
    x.log2()
}

/// `tanh.approx`
pub(super) extern "C" fn tanh(x: f32) -> f32 {
    x.tanh()
}

/// Fused multiply-add for processors without one.
pub(super) extern "C" fn fma32(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}

/// The same in double precision.
pub(super) extern "C" fn fma64(a: f64, b: f64, c: f64) -> f64 {
    a.mul_add(b, c)
}

macro_rules! roundings {
    ($($name:ident $ty:ty, $method:ident;)*) => {
        $(
            /// Rounding to an integer for processors without an instruction for it.
            pub(super) extern "C" fn $name(x: $ty) -> $ty {
                x.$method()
            }
        )*
    };
}

roundings! {
    ceil32 f32, ceil;
    ceil64 f64, ceil;
    floor32 f32, floor;
    floor64 f64, floor;
    trunc32 f32, trunc;
    trunc64 f64, trunc;
    nearest32 f32, round_ties_even;
    nearest64 f64, round_ties_even;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_nth_set_bit() {
        assert_eq!(fns(0b1010_1000, 0, 2), 5);
        assert_eq!(fns(0b1010_1000, 3, 1), 3);
        assert_eq!(fns(0b1010_1000, 7, -3), 3);
        assert_eq!(fns(0b1010_1000, 4, 0), u32::MAX);
        assert_eq!(fns(0b1010_1000, 3, 0), 3);
        assert_eq!(fns(0, 0, 1), u32::MAX);
        assert_eq!(fns(!0, 31, 2), u32::MAX);
    }
}
