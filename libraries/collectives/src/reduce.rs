//! Adding, multiplying and comparing elements of several ranks, in the order of ranks.

use half::{bf16, f16};

use crate::Element;

/// How elements are combined (`ncclRedOp_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// Their sum; integers go round.
    Sum = 0,
    /// Their product; integers go round.
    Prod = 1,
    /// The greatest; a NaN counts for nothing.
    Max = 2,
    /// The least; a NaN counts for nothing.
    Min = 3,
    /// Their sum, divided by the number of ranks.
    Avg = 4,
}

impl Operator {
    /// The operator of this number.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Sum, Self::Prod, Self::Max, Self::Min, Self::Avg].get(number as usize).copied()
    }
}

/// What a rank multiplies its own elements by beforehand: one element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Factor {
    /// Its bytes.
    Value([u8; 8]),
    /// Where it lies when the operation's turn has come.
    At(u64),
}

/// How elements of several ranks become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reduction {
    /// Their type.
    pub element: Element,
    /// How they are combined.
    pub operator: Operator,
    /// What each is multiplied by before, if by anything.
    pub factor: Option<Factor>,
}

/// Arithmetic in a type of elements.
trait Arithmetic: Copy {
    /// What is computed in.
    type Wide: Copy + Default;
    const BYTES: usize = size_of::<Self>();

    fn read(bytes: &[u8]) -> Self::Wide;
    fn write(value: Self::Wide, bytes: &mut [u8]);
    fn add(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn multiply(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn max(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn min(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn divide(a: Self::Wide, by: u32) -> Self::Wide;
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Arithmetic for $type {
            type Wide = Self;

            fn read(bytes: &[u8]) -> Self {
                Self::from_le_bytes(std::array::from_fn(|i| bytes[i]))
            }
            fn write(value: Self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&value.to_le_bytes());
            }
            fn add(a: Self, b: Self) -> Self {
                a.wrapping_add(b)
            }
            fn multiply(a: Self, b: Self) -> Self {
                a.wrapping_mul(b)
            }
            fn max(a: Self, b: Self) -> Self {
                Ord::max(a, b)
            }
            fn min(a: Self, b: Self) -> Self {
                Ord::min(a, b)
            }
            fn divide(a: Self, by: u32) -> Self {
                // Through a type that has room for any number of ranks.
                (i128::from(a) / i128::from(by)) as Self
            }
        }
    )*};
}
integers!(i8 u8 i32 u32 i64 u64);

macro_rules! floats {
    ($($type:ty, $wide:ty, $widen:expr, $narrow:expr;)*) => {$(
        impl Arithmetic for $type {
            type Wide = $wide;

            fn read(bytes: &[u8]) -> $wide {
                $widen(<$type>::from_le_bytes(std::array::from_fn(|i| bytes[i])))
            }
            fn write(value: $wide, bytes: &mut [u8]) {
                bytes.copy_from_slice(&$narrow(value).to_le_bytes());
            }
            fn add(a: $wide, b: $wide) -> $wide {
                a + b
            }
            fn multiply(a: $wide, b: $wide) -> $wide {
                a * b
            }
            fn max(a: $wide, b: $wide) -> $wide {
                a.max(b)
            }
            fn min(a: $wide, b: $wide) -> $wide {
                a.min(b)
            }
            fn divide(a: $wide, by: u32) -> $wide {
                a / by as $wide
            }
        }
    )*};
}
floats! {
    f16, f32, f16::to_f32, f16::from_f32;
    bf16, f32, bf16::to_f32, bf16::from_f32;
    f32, f32, std::convert::identity::<f32>, std::convert::identity::<f32>;
    f64, f64, std::convert::identity::<f64>, std::convert::identity::<f64>;
}

/// Calls a generic function for the type of an element that can be reduced.
macro_rules! for_element {
    ($element:expr, $function:ident($($argument:expr),*)) => {
        match $element {
            Element::I8 => $function::<i8>($($argument),*),
            Element::U8 => $function::<u8>($($argument),*),
            Element::I32 => $function::<i32>($($argument),*),
            Element::U32 => $function::<u32>($($argument),*),
            Element::I64 => $function::<i64>($($argument),*),
            Element::U64 => $function::<u64>($($argument),*),
            Element::F16 => $function::<f16>($($argument),*),
            Element::F32 => $function::<f32>($($argument),*),
            Element::F64 => $function::<f64>($($argument),*),
            Element::Bf16 => $function::<bf16>($($argument),*),
            // The caller has made sure of it: callers of the crate are refused.
            Element::F8e4m3 | Element::F8e5m2 => {}
        }
    };
}

/// So many elements are combined at a time.
const BLOCK: usize = 1024;

/// Combines what the ranks have, in their order; all pieces are as long as the result.
pub(crate) fn combine(element: Element, operator: Operator, pieces: &[&[u8]], out: &mut [u8]) {
    for_element!(element, combine_of(operator, pieces, out));
}

fn combine_of<T: Arithmetic>(operator: Operator, pieces: &[&[u8]], out: &mut [u8]) {
    let Some((first, others)) = pieces.split_first() else { return };
    let function = match operator {
        Operator::Sum | Operator::Avg => T::add,
        Operator::Prod => T::multiply,
        Operator::Max => T::max,
        Operator::Min => T::min,
    };
    let mut sums = [T::Wide::default(); BLOCK];
    for (i, out) in out.chunks_mut(BLOCK * T::BYTES).enumerate() {
        let place = i * BLOCK * T::BYTES..i * BLOCK * T::BYTES + out.len();
        let elements = first[place.clone()].chunks_exact(T::BYTES).map(T::read);
        sums.iter_mut().zip(elements).for_each(|(sum, element)| *sum = element);
        for piece in others {
            let elements = piece[place.clone()].chunks_exact(T::BYTES).map(T::read);
            sums.iter_mut().zip(elements).for_each(|(sum, element)| *sum = function(*sum, element));
        }
        for (sum, out) in sums.iter().zip(out.chunks_exact_mut(T::BYTES)) {
            let average = operator == Operator::Avg;
            T::write(if average { T::divide(*sum, pieces.len() as u32) } else { *sum }, out);
        }
    }
}

/// Multiplies all elements by one.
pub(crate) fn scale(element: Element, factor: [u8; 8], data: &mut [u8]) {
    for_element!(element, scale_of(factor, data));
}

fn scale_of<T: Arithmetic>(factor: [u8; 8], data: &mut [u8]) {
    let factor = T::read(&factor[..T::BYTES]);
    for bytes in data.chunks_exact_mut(T::BYTES) {
        T::write(T::multiply(T::read(bytes), factor), bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    #[test]
    fn elements_are_combined_in_their_type() {
        let mut out = [0; 3];
        combine(Element::I8, Operator::Sum, &[&[100, 1, 255], &[100, 2, 255]], &mut out);
        assert_eq!(out, [200, 3, 254]);
        combine(Element::U8, Operator::Avg, &[&[200, 3, 255], &[50, 4, 0]], &mut out);
        assert_eq!(out, [125, 3, 127]);
        combine(Element::U8, Operator::Prod, &[&[200, 3, 255], &[2, 4, 0]], &mut out);
        assert_eq!(out, [144, 12, 0]);
        combine(Element::I8, Operator::Min, &[&[200, 3, 255], &[2, 4, 0]], &mut out);
        assert_eq!(out, [200, 3, 255]);
    }

    #[test]
    fn averages_of_integers_are_of_the_sum_that_goes_round() {
        let mut out = [0; 2];
        combine(Element::I8, Operator::Avg, &[&[100, 0xFD], &[100, 0]], &mut out);
        assert_eq!(out.map(|byte| byte as i8), [-28, -1]);
    }

    #[test]
    fn nan_counts_for_nothing_and_blocks_do_not_show() {
        let many: Vec<f32> = (0..BLOCK * 2 + 7).map(|i| i as f32).collect();
        let mut nan = many.clone();
        nan[3] = f32::NAN;
        let mut out = vec![0; many.len() * 4];
        combine(Element::F32, Operator::Max, &[&f32s(&nan), &f32s(&many)], &mut out);
        assert_eq!(out, f32s(&many));
    }

    #[test]
    fn halves_are_rounded_once() {
        // 2048 + 1 + 1 is 2050 in 32 bits; rounded at each step it would stay 2048.
        let halves = |v: f32| f16::from_f32(v).to_le_bytes();
        let mut out = [0; 2];
        combine(Element::F16, Operator::Sum, &[&halves(2048.0), &halves(1.0), &halves(1.0)], &mut out);
        assert_eq!(out, halves(2050.0));
        let mut data = bf16::from_f32(3.0).to_le_bytes();
        let mut factor = [0; 8];
        factor[..2].copy_from_slice(&bf16::from_f32(0.5).to_le_bytes());
        scale(Element::Bf16, factor, &mut data);
        assert_eq!(data, bf16::from_f32(1.5).to_le_bytes());
    }
}
