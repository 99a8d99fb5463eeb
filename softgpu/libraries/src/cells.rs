//! Elements in memory, of any type, as numbers that are computed with.

use half::{bf16, f16};
use rgpu_libraries::{DataType, Matrix, Vector};

use crate::field::Field;

/// Elements of one type, which may lie at any address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cells {
    at: *mut u8,
    kind: DataType,
}

// SAFETY: what may be done with the elements at the same time by several threads is each operation's to know.
unsafe impl Send for Cells {}
// SAFETY: as above.
unsafe impl Sync for Cells {}

/// Reads a number of a type as its parts.
///
/// # Safety
/// Such a number lies there.
pub(crate) unsafe fn parts_at(at: *const u8, kind: DataType) -> [f64; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        match kind {
            DataType::F32 => [at.cast::<f32>().read_unaligned().into(), 0.0],
            DataType::F64 => [at.cast::<f64>().read_unaligned(), 0.0],
            DataType::F16 => [at.cast::<f16>().read_unaligned().into(), 0.0],
            DataType::Bf16 => [at.cast::<bf16>().read_unaligned().into(), 0.0],
            DataType::I8 => [at.cast::<i8>().read_unaligned().into(), 0.0],
            DataType::I32 => [at.cast::<i32>().read_unaligned().into(), 0.0],
            DataType::I64 => [at.cast::<i64>().read_unaligned() as f64, 0.0],
            DataType::C32 => at.cast::<[f32; 2]>().read_unaligned().map(f64::from),
            DataType::C64 => at.cast::<[f64; 2]>().read_unaligned(),
        }
    }
}

/// Stores a number, rounded to the type's nearest.
///
/// # Safety
/// There is room for one.
pub(crate) unsafe fn store_at(at: *mut u8, kind: DataType, parts: [f64; 2]) {
    let [re, im] = parts;
    // SAFETY: the caller's promise.
    unsafe {
        match kind {
            DataType::F32 => at.cast::<f32>().write_unaligned(re as f32),
            DataType::F64 => at.cast::<f64>().write_unaligned(re),
            DataType::F16 => at.cast::<f16>().write_unaligned(f16::from_f64(re)),
            DataType::Bf16 => at.cast::<bf16>().write_unaligned(bf16::from_f64(re)),
            DataType::I8 => at.cast::<i8>().write_unaligned(re.round_ties_even() as i8),
            DataType::I32 => at.cast::<i32>().write_unaligned(re.round_ties_even() as i32),
            DataType::I64 => at.cast::<i64>().write_unaligned(re.round_ties_even() as i64),
            DataType::C32 => at.cast::<[f32; 2]>().write_unaligned([re as f32, im as f32]),
            DataType::C64 => at.cast::<[f64; 2]>().write_unaligned([re, im]),
        }
    }
}

impl Cells {
    pub(crate) fn new(at: *mut u8, kind: DataType) -> Self {
        Self { at, kind }
    }

    /// The elements of one problem of a batch, from the first that lies in memory.
    pub(crate) fn of_matrix(at: *mut u8, m: &Matrix, problem: u64) -> Self {
        Self::new(at, m.kind).skip((problem as isize).wrapping_mul(m.stride as isize))
    }

    fn skip(self, elements: isize) -> Self {
        Self { at: self.at.wrapping_offset(elements.wrapping_mul(self.kind.bytes() as isize)), ..self }
    }

    /// The element so many behind the first.
    ///
    /// # Safety
    /// It is inside the operand.
    #[inline(always)]
    pub(crate) unsafe fn get<T: Field>(self, index: isize) -> T {
        // SAFETY: the caller's promise.
        unsafe {
            if self.kind == T::KIND {
                self.at.cast::<T>().offset(index).read_unaligned()
            } else {
                T::from_parts(parts_at(self.at.offset(index * self.kind.bytes() as isize), self.kind))
            }
        }
    }

    /// Stores an element.
    ///
    /// # Safety
    /// It is inside the operand.
    #[inline(always)]
    pub(crate) unsafe fn set<T: Field>(self, index: isize, value: T) {
        // SAFETY: the caller's promise.
        unsafe {
            if self.kind == T::KIND {
                self.at.cast::<T>().offset(index).write_unaligned(value);
            } else {
                store_at(self.at.offset(index * self.kind.bytes() as isize), self.kind, value.parts());
            }
        }
    }
}

/// The elements of a vector, by number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Items {
    cells: Cells,
    inc: isize,
}

impl Items {
    /// The `n` elements of one problem of a batch.
    pub(crate) fn of(at: *mut u8, v: &Vector, n: u64, problem: u64) -> Self {
        let inc = v.inc as isize;
        let first = if inc < 0 { (n as isize - 1).max(0).wrapping_mul(-inc) } else { 0 };
        let cells = Cells::new(at, v.kind)
            .skip((problem as isize).wrapping_mul(v.stride as isize).wrapping_add(first));
        Self { cells, inc }
    }

    /// # Safety
    /// There are more than `index` elements.
    #[inline(always)]
    pub(crate) unsafe fn get<T: Field>(self, index: usize) -> T {
        // SAFETY: the caller's promise.
        unsafe { self.cells.get((index as isize).wrapping_mul(self.inc)) }
    }

    /// # Safety
    /// There are more than `index` elements.
    #[inline(always)]
    pub(crate) unsafe fn set<T: Field>(self, index: usize, value: T) {
        // SAFETY: the caller's promise.
        unsafe { self.cells.set((index as isize).wrapping_mul(self.inc), value) }
    }
}
