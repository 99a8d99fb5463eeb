//! Tensors: where their elements lie, and lists of them without gaps.

use half::{bf16, f16};
use rgpu_device::Result;
use rgpu_libraries::{DnnTensor, DnnType};

use super::Real;
use crate::invalid;

/// Most dimensions of a tensor.
const MOST: usize = 8;
/// Most elements of one.
const ELEMENTS: usize = 1 << 40;

/// Where a tensor's elements lie.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    /// Its dimensions, the slowest first.
    pub(super) dims: Vec<usize>,
    strides: Vec<usize>,
    /// Elements before its first one.
    start: usize,
    /// Bytes from its first element to its last one's end.
    pub(super) extent: u64,
}

impl Shape {
    /// Where the elements of a tensor lie.
    pub(super) fn new(tensor: &DnnTensor) -> Result<Self> {
        if tensor.dims.is_empty() || tensor.dims.len() > MOST || tensor.dims.len() != tensor.strides.len() {
            return invalid(format!("A tensor of {} dimensions", tensor.dims.len()));
        }
        let positive = |numbers: &[i64], least: i64| -> Option<Vec<usize>> {
            numbers.iter().map(|&n| usize::try_from(n).ok().filter(|_| n >= least)).collect()
        };
        let (Some(dims), Some(strides)) = (positive(&tensor.dims, 1), positive(&tensor.strides, 0)) else {
            return invalid("A tensor with a dimension or a stride that is negative");
        };
        let count = dims.iter().try_fold(1usize, |all, &n| all.checked_mul(n)).filter(|&n| n <= ELEMENTS);
        let last = dims
            .iter()
            .zip(&strides)
            .try_fold(0u64, |all, (&n, &stride)| all.checked_add((n as u64 - 1).checked_mul(stride as u64)?));
        let bytes = last.and_then(|last| last.checked_add(1)?.checked_mul(tensor.kind.bytes()));
        match (count, bytes.filter(|bytes| tensor.addr.checked_add(*bytes).is_some())) {
            (Some(_), Some(extent)) => Ok(Self { dims, strides, start: 0, extent }),
            _ => invalid("A tensor that is longer than the address space"),
        }
    }

    /// How many elements it has.
    pub(super) fn count(&self) -> usize {
        self.dims.iter().product()
    }

    /// The part of it whose first index is in `from..to`.
    pub(super) fn rows(&self, from: usize, to: usize) -> Self {
        let mut part = self.clone();
        part.start += from * self.strides[0];
        part.dims[0] = to - from;
        part
    }

    /// Calls `f` with where each element lies, in the order of the dimensions.
    fn each(&self, mut f: impl FnMut(usize)) {
        let mut index = [0usize; MOST];
        let last = self.dims.len() - 1;
        let mut at = self.start;
        if self.count() == 0 {
            return;
        }
        loop {
            let mut place = at;
            for _ in 0..self.dims[last] {
                f(place);
                place += self.strides[last];
            }
            let mut axis = last;
            loop {
                if axis == 0 {
                    return;
                }
                axis -= 1;
                index[axis] += 1;
                at += self.strides[axis];
                if index[axis] < self.dims[axis] {
                    break;
                }
                at -= index[axis] * self.strides[axis];
                index[axis] = 0;
            }
        }
    }
}

/// A tensor's elements without gaps, in the order of its dimensions.
pub(super) struct List<T> {
    /// Its dimensions.
    pub(super) dims: Vec<usize>,
    /// Its elements.
    pub(super) values: Vec<T>,
}

impl<T: Real> List<T> {
    /// A tensor of this shape that is the same everywhere.
    pub(super) fn filled(shape: &Shape, value: T) -> Self {
        Self { dims: shape.dims.clone(), values: vec![value; shape.count()] }
    }

    /// Reads a tensor.
    ///
    /// # Safety
    /// `at` is where the elements of this type lie, as the shape says.
    pub(super) unsafe fn read(kind: DnnType, shape: &Shape, at: *const u8) -> Self {
        let mut values = Vec::with_capacity(shape.count());
        macro_rules! read {
            ($t:ty, $to:expr) => {
                shape.each(|place| {
                    // SAFETY: the caller's promise.
                    let value = unsafe { at.cast::<$t>().add(place).read_unaligned() };
                    values.push(T::of($to(value)));
                })
            };
        }
        match kind {
            DnnType::F32 => read!(f32, f64::from),
            DnnType::F64 => read!(f64, |value| value),
            DnnType::F16 => read!(f16, f16::to_f64),
            DnnType::Bf16 => read!(bf16, bf16::to_f64),
            DnnType::I8 => read!(i8, f64::from),
            DnnType::U8 => read!(u8, f64::from),
            DnnType::Bool => read!(u8, |value: u8| f64::from(u8::from(value != 0))),
            DnnType::I32 => read!(i32, f64::from),
            DnnType::I64 => read!(i64, |value| value as f64),
        }
        Self { dims: shape.dims.clone(), values }
    }

    /// Writes a tensor, rounded to its type.
    ///
    /// # Safety
    /// As for [`List::read`]; nobody else writes there.
    pub(super) unsafe fn write(&self, kind: DnnType, shape: &Shape, at: *mut u8) {
        let mut values = self.values.iter();
        macro_rules! write {
            ($t:ty, $from:expr) => {
                shape.each(|place| {
                    if let Some(value) = values.next() {
                        // SAFETY: the caller's promise.
                        unsafe { at.cast::<$t>().add(place).write_unaligned($from(value.wide())) };
                    }
                })
            };
        }
        // What is too great for an integer becomes its greatest.
        match kind {
            DnnType::F32 => write!(f32, |value| value as f32),
            DnnType::F64 => write!(f64, |value| value),
            DnnType::F16 => write!(f16, f16::from_f64),
            DnnType::Bf16 => write!(bf16, bf16::from_f64),
            DnnType::I8 => write!(i8, |value: f64| value.round_ties_even() as i8),
            DnnType::U8 => write!(u8, |value: f64| value.round_ties_even() as u8),
            DnnType::Bool => write!(u8, |value: f64| u8::from(value != 0.0)),
            DnnType::I32 => write!(i32, |value: f64| value.round_ties_even() as i32),
            DnnType::I64 => write!(i64, |value: f64| value.round_ties_even() as i64),
        }
    }
}

/// Where the elements of a list without gaps lie.
fn in_line(count: usize) -> Shape {
    Shape { dims: vec![count], strides: vec![1], start: 0, extent: 0 }
}

/// Reads so many elements that lie one behind the other.
///
/// # Safety
/// So many of this type lie there.
pub(super) unsafe fn line<T: Real>(kind: DnnType, at: *const u8, count: usize) -> Vec<T> {
    // SAFETY: the caller's promise.
    unsafe { List::read(kind, &in_line(count), at) }.values
}

/// Writes elements one behind the other, rounded to their type.
///
/// # Safety
/// There is room for so many, and nobody else writes there.
pub(super) unsafe fn store_line<T: Real>(kind: DnnType, at: *mut u8, values: &[T]) {
    let list = List { dims: vec![values.len()], values: values.to_vec() };
    // SAFETY: the caller's promise.
    unsafe { list.write(kind, &in_line(values.len()), at) };
}
