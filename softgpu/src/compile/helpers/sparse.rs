//! Products of matrices of which the first has zeros in half of its places, which are not there: what `mma.sp` computes.
//!
//! Of each chunk of four elements two are there (of two one, where elements have 32 bits; of four pairs two, where they have four bits), and
//! four bits of metadata say which. What is not there is not multiplied with anything, not even with an infinity.

use std::ops::{AddAssign, Mul};

use super::matrix::{
    Offsets, Spread, Spreads, accumulator, bounded, fragment_a, fragment_b, integer, is_in_words, nibble,
    number, rounded, sums_exist, unit,
};
use crate::abi::{MatrixFn, WARP};
use crate::compile::op::MatrixShape;
use rgpu_image::ptx::ast::Type;

/// Bits of metadata for each chunk, and how many chunks a word of metadata is for.
const CHUNK_BITS: usize = 4;
const CHUNKS: usize = 32 / CHUNK_BITS;
/// Rows of the first matrix.
const ROWS: usize = 16;
/// Columns of the second one.
const COLUMNS: usize = 8;

/// How many elements a chunk has, and how many of them are there.
fn chunk(ty: Type) -> [usize; 2] {
    match ty {
        Type::Tf32 => [2, 1],
        Type::U4 | Type::S4 => [8, 4],
        _ => [4, 2],
    }
}

/// Which elements of 16 rows are there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Metadata {
    ty: Type,
    /// The first lane in each group of four that has metadata.
    first: usize,
}

impl Metadata {
    /// Of rows of so many elements, there or not, with this selector of the lanes that have it. `None` for selectors that such rows do not have.
    pub(super) fn new(ty: Type, k: usize, selector: u32) -> Option<Self> {
        // How many lanes of each group of four have words, for two rows.
        let lanes = 2 * k / chunk(ty)[0] / CHUNKS;
        let first = selector as usize * lanes;
        (first + lanes <= 4).then_some(Self { ty, first })
    }

    /// Which lane has the metadata of a chunk, and at which bit. Words of elements with 16 bits and more are for half as many chunks of two rows.
    fn place(self, row: usize, chunk: usize) -> (usize, usize) {
        let (group, lower) = (row % 8 * 4 + self.first, row / 8);
        if self.ty.bits() >= 16 {
            let half = CHUNKS / 2;
            (group + chunk / half, (lower * half + chunk % half) * CHUNK_BITS)
        } else {
            (group + chunk / CHUNKS * 2 + lower, chunk % CHUNKS * CHUNK_BITS)
        }
    }

    /// The place along k of an element that is there, by its number in the row, as the lanes' words say.
    pub(super) fn column(self, words: &[u32; WARP], row: usize, element: usize) -> usize {
        let [wide, there] = chunk(self.ty);
        let (chunk, element) = (element / there, element % there);
        let (lane, bit) = self.place(row, chunk);
        let index = |n: usize| (words[lane] >> (bit + 2 * n) & 3) as usize;
        let inside = match self.ty {
            // The indices of its halves.
            Type::Tf32 => index(0) / 2,
            // Those of pairs.
            Type::U4 | Type::S4 => index(element / 2) * 2 + element % 2,
            _ => index(element),
        };
        chunk * wide + inside
    }
}

/// The words of metadata that the lanes of a warp have at an offset in their states.
pub(super) fn words_of(states: &[*mut u8], at: usize) -> [u32; WARP] {
    // SAFETY: the compiled kernel has reserved a word there in each thread's state.
    std::array::from_fn(|lane| unsafe { states[lane].add(at).cast::<u32>().read_unaligned() })
}

/// A multiplication.
#[derive(Debug, Clone)]
pub(crate) struct Sparse {
    shape: MatrixShape,
    /// The layouts; of A, of what is there.
    pub spreads: Spreads,
    metadata: Metadata,
}

impl Sparse {
    /// The layouts that PTX prescribes, with this selector of the lanes that have the metadata; `None` for shapes that are not implemented, and
    /// selectors that they do not have.
    pub(crate) fn new(shape: &MatrixShape, selector: u32) -> Option<Self> {
        use Type::*;
        if !shape.a_row || shape.b_row || (shape.m as usize, shape.n as usize) != (ROWS, COLUMNS) {
            return None;
        }
        let all = |of: fn(Type) -> bool| of(shape.a) && of(shape.b);
        let half_like = shape.a == shape.b && matches!(shape.a, F16 | Bf16);
        let byte_like = all(|ty| matches!(ty, U8 | S8));
        let nibble_like = all(|ty| matches!(ty, U4 | S4));
        let eighth_like = all(|ty| matches!(ty, E4m3 | E5m2));
        // Consecutive elements of k in one register, or units of them.
        let run = match shape.k {
            16 | 32 if half_like => 2,
            8 | 16 if all(|ty| ty == Tf32) => 1,
            32 | 64 if byte_like => 4,
            64 if eighth_like => 4,
            64 | 128 if nibble_like => 1,
            _ => return None,
        };
        if !sums_exist(shape) || shape.and || shape.sat && !(byte_like || nibble_like) {
            return None;
        }
        let (of_a, each) = unit(shape.a);
        let k = (shape.k / each) as usize;
        let spreads = Spreads {
            a: fragment_a(of_a, ROWS, k / 2, run),
            b: fragment_b(unit(shape.b).0, k, run),
            c: accumulator(shape.c, ROWS),
            d: accumulator(shape.d, ROWS),
        };
        let metadata = Metadata::new(shape.a, shape.k as usize, selector)?;
        Some(Self { shape: *shape, spreads, metadata })
    }

    /// The multiplication as a function of the threads' states.
    pub(crate) fn function(self, at: Offsets, metadata: usize) -> MatrixFn {
        Box::new(move |states| {
            let words = words_of(states, metadata);
            if self.shape.d == Type::S32 {
                self.multiply(states, at, &words, integer, bounded);
            } else {
                self.multiply(states, at, &words, number, |shape, sum| rounded(shape.d, sum));
            }
        })
    }

    /// Sums of floating-point numbers are formed in double precision and rounded once, as those of `mma` are.
    fn multiply<T: Copy + AddAssign + Mul<Output = T>>(
        &self,
        states: &[*mut u8; WARP],
        at: Offsets,
        metadata: &[u32; WARP],
        value: impl Fn(Type, u64) -> T,
        result: impl Fn(&MatrixShape, T) -> u64,
    ) {
        let (k, spreads) = (self.shape.k as usize, &self.spreads);
        let element =
            |spread: &Spread, at: usize, ty: Type, (row, column): (usize, usize), along_rows: bool| {
                if !is_in_words(ty) {
                    return value(ty, spread.read(states, at, row, column));
                }
                let each = unit(ty).1 as usize;
                let (row, column, n) = if along_rows {
                    (row, column / each, column % each)
                } else {
                    (row / each, column, row % each)
                };
                let word = spread.read(states, at, row, column) as u32;
                value(Type::S32, u64::from(nibble(ty, word, n as u32) as u32))
            };
        let b: Vec<T> = (0..k * COLUMNS)
            .map(|i| element(&spreads.b, at.b, self.shape.b, (i / COLUMNS, i % COLUMNS), false))
            .collect();
        for row in 0..ROWS {
            let mut sums: [T; COLUMNS] =
                std::array::from_fn(|column| value(self.shape.c, spreads.c.read(states, at.c, row, column)));
            for n in 0..k / 2 {
                let factor = element(&spreads.a, at.a, self.shape.a, (row, n), true);
                let from = self.metadata.column(metadata, row, n) * COLUMNS;
                sums.iter_mut().zip(&b[from..]).for_each(|(sum, &b)| *sum += factor * b);
            }
            for (column, &sum) in sums.iter().enumerate() {
                spreads.d.write(states, at.d, row, column, result(&self.shape, sum));
            }
        }
    }
}
