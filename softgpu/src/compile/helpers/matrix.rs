//! What matrix instructions compute. A warp's fragments are words in the states of its 32 threads.

use super::sparse::Sparse;
use crate::abi::{MatrixFn, WARP};
use crate::compile::op::{EighthFormat, MatrixShape};
use rgpu_image::ptx::ast::Type;

/// Where one element of a matrix is kept: lane, element within the lane's fragment.
type MemoryTarget = (usize, usize);

/// A matrix spread over a warp.
#[derive(Debug, Clone)]
pub(crate) struct Spread {
    ty: Type,
    /// By row and column, row by row.
    places: Vec<MemoryTarget>,
    columns: usize,
    /// 32-bit words that each lane holds.
    pub words: usize,
}

impl Spread {
    fn new(
        ty: Type,
        rows: usize,
        columns: usize,
        words: usize,
        place: impl Fn(usize, usize) -> MemoryTarget,
    ) -> Self {
        let places = (0..rows * columns).map(|i| place(i / columns, i % columns)).collect();
        Self { ty, places, columns, words }
    }

    /// The layout of `wmma` fragments, which is this crate's own choice: consecutive elements, row by row.
    pub(crate) fn consecutive(ty: Type, rows: u32, columns: u32, words: usize) -> Self {
        let (rows, columns) = (rows as usize, columns as usize);
        let each = rows * columns / WARP;
        Self::new(ty, rows, columns, words, |r, c| {
            let element = r * columns + c;
            (element / each, element % each)
        })
    }

    pub(super) fn read(&self, states: &[*mut u8; WARP], at: usize, row: usize, column: usize) -> u64 {
        let (lane, element) = self.places[row * self.columns + column];
        // SAFETY: the compiled kernel has reserved the fragment's words in each thread's state.
        unsafe {
            let base = states[lane].add(at);
            match self.ty.bits() {
                8 => u64::from(base.add(element).read()),
                16 => u64::from(base.cast::<u16>().add(element).read_unaligned()),
                32 => u64::from(base.cast::<u32>().add(element).read_unaligned()),
                _ => base.cast::<u64>().add(element).read_unaligned(),
            }
        }
    }

    pub(super) fn write(&self, states: &[*mut u8; WARP], at: usize, row: usize, column: usize, bits: u64) {
        let (lane, element) = self.places[row * self.columns + column];
        // SAFETY: as above.
        unsafe {
            let base = states[lane].add(at);
            match self.ty.bits() {
                8 => base.add(element).write(bits as u8),
                16 => base.cast::<u16>().add(element).write_unaligned(bits as u16),
                32 => base.cast::<u32>().add(element).write_unaligned(bits as u32),
                _ => base.cast::<u64>().add(element).write_unaligned(bits),
            }
        }
    }
}

/// The four matrices of a multiplication.
#[derive(Debug, Clone)]
pub(crate) struct Spreads {
    pub a: Spread,
    pub b: Spread,
    pub c: Spread,
    pub d: Spread,
}

/// What fragments and memory keep elements of A and B in, and how many are in one: elements of less than a byte stand in words, along
/// k.
pub(crate) fn unit(ty: Type) -> (Type, u32) {
    match ty {
        Type::U4 | Type::S4 => (Type::B32, 8),
        Type::B1 => (Type::B32, 32),
        ty => (ty, 1),
    }
}

/// Whether several elements stand in a word, one behind the other along k.
pub(crate) fn is_in_words(ty: Type) -> bool {
    unit(ty).1 > 1
}

/// How many elements of a type a word holds.
fn per_word(ty: Type) -> usize {
    (32 / ty.bits().min(32)) as usize
}

/// 32-bit words of a fragment with so many elements.
fn words(ty: Type, elements: usize) -> usize {
    if ty.bits() == 64 { elements * 2 } else { elements.div_ceil(per_word(ty)) }
}

/// The layout of an accumulator of 16 or 8 rows and 8 columns.
pub(super) fn accumulator(ty: Type, m: usize) -> Spread {
    let each = m * 8 / WARP;
    Spread::new(ty, m, 8, words(ty, each), |r, c| ((r % 8) * 4 + c / 2, (r / 8) * 2 + c % 2))
}

/// The layouts that PTX prescribes for `mma`; `None` for shapes that are not implemented.
pub(crate) fn mma(shape: &MatrixShape) -> Option<Spreads> {
    use Type::*;
    if is_of_quad_pairs(shape) {
        return quad_pair(shape, 0);
    }
    if !shape.a_row || shape.b_row || shape.n != 8 {
        return None;
    }
    let (of_a, each) = unit(shape.a);
    let (m, k) = (shape.m as usize, (shape.k / each) as usize);
    let half_like = shape.a == shape.b && matches!(shape.a, F16 | Bf16);
    let byte_like = matches!(shape.a, U8 | S8) && matches!(shape.b, U8 | S8);
    let nibble_like = matches!(shape.a, U4 | S4) && matches!(shape.b, U4 | S4);
    let eighth_like = matches!(shape.a, E4m3 | E5m2) && matches!(shape.b, E4m3 | E5m2);
    let bits = shape.a == B1 && shape.b == B1;
    // Consecutive elements of k in one register, and how many of them.
    let run = match (m, k) {
        (8, 4) | (16, 4 | 8) if nibble_like || bits => 1,
        (16, 8 | 16) if half_like => 2,
        (16, 4 | 8) if shape.a == Tf32 && shape.b == Tf32 => 1,
        (16, 16 | 32) | (8, 16) if byte_like => 4,
        (16, 16 | 32) if eighth_like => 4,
        (8, 4) | (16, 4 | 8 | 16) if shape.a == F64 && shape.b == F64 => 1,
        _ => return None,
    };
    if !sums_exist(shape) || shape.sat && !(byte_like || nibble_like) || shape.and && !bits {
        return None;
    }
    let a = fragment_a(of_a, m, k, run);
    let b = fragment_b(unit(shape.b).0, k, run);
    Some(Spreads { a, b, c: accumulator(shape.c, m), d: accumulator(shape.d, m) })
}

/// The layout of A's fragment, of which so many consecutive elements along k are in one register: four lanes hold a run each; the next
/// four runs are the next register.
pub(super) fn fragment_a(ty: Type, m: usize, k: usize, run: usize) -> Spread {
    let (along, groups) = (4 * run, m / 8);
    Spread::new(ty, m, k, words(ty, m * k / WARP), |r, c| {
        let lane = (r % 8) * 4 + c % along / run;
        let register = (c / along) * groups + r / 8;
        (lane, register * run + c % run)
    })
}

/// The layout of B's fragment, of eight columns: likewise.
pub(super) fn fragment_b(ty: Type, k: usize, run: usize) -> Spread {
    let along = 4 * run;
    Spread::new(ty, k, 8, words(ty, k * 8 / WARP), |r, c| {
        (c * 4 + r % along / run, (r / along) * run + r % run)
    })
}

/// Whether `mma` adds products of elements of these types to sums of these types.
pub(super) fn sums_exist(shape: &MatrixShape) -> bool {
    use Type::*;
    match shape.a {
        F16 | E4m3 | E5m2 => matches!((shape.c, shape.d), (F16, F16) | (F32, F32)),
        Bf16 | Tf32 => (shape.c, shape.d) == (F32, F32),
        U8 | S8 | U4 | S4 | B1 => (shape.c, shape.d) == (S32, S32),
        _ => (shape.c, shape.d) == (F64, F64),
    }
}

/// Whether four products of their own are made, each by two groups of four lanes that stand 16 apart, as on the first tensor cores.
fn is_of_quad_pairs(shape: &MatrixShape) -> bool {
    (shape.m, shape.n, shape.k) == (8, 8, 4) && (shape.a, shape.b) == (Type::F16, Type::F16)
}

/// The layouts of one of those four products.
fn quad_pair(shape: &MatrixShape, pair: usize) -> Option<Spreads> {
    use Type::*;
    if !matches!((shape.c, shape.d), (F16, F16) | (F32, F32) | (F16, F32)) || shape.sat || shape.and {
        return None;
    }
    // The lane of a row or column of eight: four in each group.
    let lane = move |line: usize| 4 * pair + line % 4 + 16 * (line / 4);
    let a_row = shape.a_row;
    let a = Spread::new(
        F16,
        8,
        4,
        2,
        move |r, c| if a_row { (lane(r), c) } else { (lane(c + 4 * (r / 4)), r % 4) },
    );
    let b_row = shape.b_row;
    let b = Spread::new(
        F16,
        4,
        8,
        2,
        move |r, c| if b_row { (lane(r + 4 * (c / 4)), c % 4) } else { (lane(c), r) },
    );
    let sums = |ty| match ty {
        F16 => Spread::new(F16, 8, 8, 4, move |r, c| (lane(r), c)),
        _ => Spread::new(F32, 8, 8, 8, move |r, c| {
            let group = lane(4 * (r / 4) + (r & 1) + (c & 2));
            (group, (c & 4) + (r & 2) + (c & 1))
        }),
    };
    Some(Spreads { a, b, c: sums(shape.c), d: sums(shape.d) })
}

/// Registers of a `wmma` fragment of A or B with so many elements.
fn wmma_operand_words(ty: Type, elements: usize) -> usize {
    // Devices keep every element of a half-precision fragment twice.
    if ty == Type::F16 { 8 } else { words(ty, elements / WARP) }
}

/// The layout of a fragment of A (m by k).
pub(crate) fn wmma_a(shape: &MatrixShape) -> Spread {
    let ((ty, each), words) = (unit(shape.a), wmma_operand_words(shape.a, (shape.m * shape.k) as usize));
    Spread::consecutive(ty, shape.m, shape.k / each, words)
}

/// The layout of a fragment of B (k by n).
pub(crate) fn wmma_b(shape: &MatrixShape) -> Spread {
    let ((ty, each), words) = (unit(shape.b), wmma_operand_words(shape.b, (shape.k * shape.n) as usize));
    Spread::consecutive(ty, shape.k / each, shape.n, words)
}

/// The layout of an accumulator (m by n) of this type.
pub(crate) fn wmma_c(shape: &MatrixShape, ty: Type) -> Spread {
    let elements = (shape.m * shape.n) as usize / WARP;
    Spread::consecutive(ty, shape.m, shape.n, words(ty, elements))
}

/// Whether a `wmma` shape exists for operands of a type.
pub(crate) fn wmma_shape_exists(shape: &MatrixShape, ty: Type) -> bool {
    use Type::*;
    match (shape.m, shape.n, shape.k) {
        (16, 16, 16) | (32, 8, 16) | (8, 32, 16) => matches!(ty, F16 | Bf16 | U8 | S8),
        (16, 16, 8) => ty == Tf32,
        (8, 8, 4) => ty == F64,
        (8, 8, 32) => matches!(ty, U4 | S4),
        (8, 8, 128) => ty == B1,
        _ => false,
    }
}

/// The layouts of a `wmma.mma`.
pub(crate) fn wmma(shape: &MatrixShape) -> Option<Spreads> {
    use Type::*;
    let sums = match shape.a {
        F16 => matches!(shape.c, F16 | F32) && matches!(shape.d, F16 | F32),
        Bf16 | Tf32 => (shape.c, shape.d) == (F32, F32),
        U8 | S8 | U4 | S4 | B1 => (shape.c, shape.d) == (S32, S32),
        F64 => (shape.c, shape.d) == (F64, F64),
        _ => false,
    };
    let bits = shape.a == B1;
    if shape.a != shape.b || !sums || !wmma_shape_exists(shape, shape.a) {
        return None;
    }
    if is_in_words(shape.a) && (!shape.a_row || shape.b_row)
        || shape.sat && (shape.d != S32 || bits)
        || shape.and && !bits
    {
        return None;
    }
    Some(Spreads { a: wmma_a(shape), b: wmma_b(shape), c: wmma_c(shape, shape.c), d: wmma_c(shape, shape.d) })
}

/// An element of A or B, or a floating-point accumulator, as a number.
pub(super) fn number(ty: Type, bits: u64) -> f64 {
    match ty {
        Type::E4m3 => half(widened(bits, EighthFormat::E4m3)),
        Type::E5m2 => half(widened(bits, EighthFormat::E5m2)),
        Type::F16 => half(bits as u16),
        Type::Bf16 => f64::from(f32::from_bits((bits as u32) << 16)),
        // The low bits of the mantissa are not looked at.
        Type::Tf32 => f64::from(f32::from_bits(bits as u32 & 0xffff_e000)),
        Type::F32 => f64::from(f32::from_bits(bits as u32)),
        _ => f64::from_bits(bits),
    }
}

/// A sum as an element of D.
pub(super) fn rounded(ty: Type, sum: f64) -> u64 {
    match ty {
        Type::F16 => u64::from(super::half::f16_from_f64(sum, 0)),
        Type::F32 if sum.is_nan() => 0x7fff_ffff,
        Type::F32 => u64::from((sum as f32).to_bits()),
        _ => sum.to_bits(),
    }
}

/// A sum of integers as one, which may be kept in its range.
pub(super) fn bounded(shape: &MatrixShape, sum: i64) -> u64 {
    let sum = if shape.sat { sum.clamp(i32::MIN.into(), i32::MAX.into()) } else { sum };
    u64::from(sum as u32)
}

/// A number of 8 bits as a half.
fn widened(bits: u64, format: EighthFormat) -> u16 {
    super::eighth::widen(bits as u32, format, false) as u16
}

fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, mantissa) = (bits >> 10 & 0x1f, f64::from(bits & 0x3ff));
    sign * match exponent {
        0 => mantissa * f64::exp2(-24.0),
        0x1f if mantissa == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        e => (mantissa + 1024.0) * f64::exp2(f64::from(e) - 25.0),
    }
}

pub(super) fn integer(ty: Type, bits: u64) -> i64 {
    match ty {
        Type::S8 => i64::from(bits as i8),
        Type::U8 => i64::from(bits as u8),
        _ => i64::from(bits as i32),
    }
}

/// One of the eight elements of four bits in a word.
pub(super) fn nibble(ty: Type, word: u32, n: u32) -> i64 {
    match ty {
        Type::S4 => i64::from((word << (28 - 4 * n)) as i32 >> 28),
        _ => i64::from(word >> (4 * n) & 0xf),
    }
}

/// The sum of the products of the elements in two words.
fn product_of_words(shape: &MatrixShape, a: u32, b: u32) -> i64 {
    match shape.a {
        Type::B1 if shape.and => (a & b).count_ones().into(),
        Type::B1 => (a ^ b).count_ones().into(),
        _ => (0..8).map(|n| nibble(shape.a, a, n) * nibble(shape.b, b, n)).sum(),
    }
}

/// An operation on the states of a warp's threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A multiplication of fragments that lie as `wmma` has them, or as `mma` does.
    Multiply { shape: MatrixShape, wmma: bool, at: Offsets },
    /// A multiplication of which half of A's elements are zero, and are not there: `metadata` is the offset of the words that say which, and
    /// `selector` says which lanes have these.
    MultiplySparse { shape: MatrixShape, selector: u32, at: Offsets, metadata: usize },
    /// See [`distribute`].
    Distribute { count: usize, transpose: bool, rows: usize, out: usize },
    /// See [`collect`].
    Collect { count: usize, transpose: bool, words: usize, rows: usize },
    /// See [`transpose`].
    Transpose { at: usize, out: usize },
}

impl Operation {
    /// The operation as a function; `None` for a shape that is not implemented.
    pub(crate) fn function(&self) -> Option<MatrixFn> {
        Some(match *self {
            Self::Multiply { shape, wmma: false, at } if is_of_quad_pairs(&shape) => {
                let parts: Option<Vec<MatrixFn>> =
                    (0..4).map(|pair| Some(multiply(&shape, quad_pair(&shape, pair)?, at))).collect();
                let parts = parts?;
                Box::new(move |states| parts.iter().for_each(|part| part(states)))
            }
            Self::Multiply { shape, wmma: is_wmma, at } => {
                let spreads = if is_wmma { wmma(&shape)? } else { mma(&shape)? };
                multiply(&shape, spreads, at)
            }
            Self::MultiplySparse { shape, selector, at, metadata } => {
                Sparse::new(&shape, selector)?.function(at, metadata)
            }
            Self::Distribute { count, transpose, rows, out } => distribute(count, transpose, rows, out),
            Self::Collect { count, transpose, words, rows } => collect(count, transpose, words, rows),
            Self::Transpose { at, out } => transpose(at, out),
        })
    }
}

/// Offsets of the fragments in the states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offsets {
    pub a: usize,
    pub b: usize,
    pub c: usize,
    pub d: usize,
}

/// The multiplication as a function of the threads' states. The sum of an element of D is formed in double
/// precision and rounded once.
fn multiply(shape: &MatrixShape, spreads: Spreads, at: Offsets) -> MatrixFn {
    let shape = *shape;
    Box::new(move |states| {
        let (m, n, k) = (shape.m as usize, shape.n as usize, shape.k as usize);
        if shape.d == Type::S32 {
            let in_words = is_in_words(shape.a);
            let k = k / unit(shape.a).1 as usize;
            let element = |ty, bits: u64| if in_words { bits as i64 } else { integer(ty, bits) };
            let a: Vec<i64> =
                (0..m * k).map(|i| element(shape.a, spreads.a.read(states, at.a, i / k, i % k))).collect();
            let b: Vec<i64> =
                (0..k * n).map(|i| element(shape.b, spreads.b.read(states, at.b, i / n, i % n))).collect();
            for r in 0..m {
                for c in 0..n {
                    let mut sum = integer(shape.c, spreads.c.read(states, at.c, r, c));
                    for i in 0..k {
                        let (a, b) = (a[r * k + i], b[i * n + c]);
                        sum += if in_words { product_of_words(&shape, a as u32, b as u32) } else { a * b };
                    }
                    spreads.d.write(states, at.d, r, c, bounded(&shape, sum));
                }
            }
            return;
        }
        let a: Vec<f64> =
            (0..m * k).map(|i| number(shape.a, spreads.a.read(states, at.a, i / k, i % k))).collect();
        let b: Vec<f64> =
            (0..k * n).map(|i| number(shape.b, spreads.b.read(states, at.b, i / n, i % n))).collect();
        let mut row = vec![0f64; n];
        for r in 0..m {
            for (c, sum) in row.iter_mut().enumerate() {
                *sum = number(shape.c, spreads.c.read(states, at.c, r, c));
            }
            for i in 0..k {
                let factor = a[r * k + i];
                for (sum, &b) in row.iter_mut().zip(&b[i * n..(i + 1) * n]) {
                    *sum = if shape.d == Type::F64 { factor.mul_add(b, *sum) } else { *sum + factor * b };
                }
            }
            for (c, &sum) in row.iter().enumerate() {
                spreads.d.write(states, at.d, r, c, rounded(shape.d, sum));
            }
        }
    })
}

/// `ldmatrix`: lanes `8j` to `8j + 7` have put the 16-byte rows of matrix `j` at `rows`; every lane gets a
/// word of each matrix at `out`.
fn distribute(count: usize, transpose: bool, rows: usize, out: usize) -> MatrixFn {
    Box::new(move |states| {
        for matrix in 0..count {
            let mut elements = [[0u16; 8]; 8];
            for (row, elements) in elements.iter_mut().enumerate() {
                // SAFETY: the compiled kernel has reserved these bytes in each thread's state.
                unsafe {
                    let from = states[matrix * 8 + row].add(rows).cast::<u16>();
                    for (column, element) in elements.iter_mut().enumerate() {
                        *element = from.add(column).read_unaligned();
                    }
                }
            }
            share(states, &elements, transpose, out + matrix * 4);
        }
    })
}

/// `stmatrix`: every lane has put a word of each matrix at `words`; lanes `8j` to `8j + 7` get the 16-byte rows of matrix `j` at
/// `rows`.
fn collect(count: usize, transpose: bool, words: usize, rows: usize) -> MatrixFn {
    Box::new(move |states| {
        for matrix in 0..count {
            let elements = gathered(states, words + matrix * 4);
            for (row, state) in states[matrix * 8..][..8].iter().enumerate() {
                let element =
                    |column: usize| if transpose { elements[column][row] } else { elements[row][column] };
                let whole: [u16; 8] = std::array::from_fn(element);
                // SAFETY: the compiled kernel has reserved these bytes in each thread's state.
                unsafe { state.add(rows).cast::<[u16; 8]>().write_unaligned(whole) };
            }
        }
    })
}

/// `movmatrix`: transposes the 8 by 8 matrix of which each lane holds a word.
fn transpose(at: usize, out: usize) -> MatrixFn {
    Box::new(move |states| share(states, &gathered(states, at), true, out))
}

/// The 8 by 8 matrix of which each lane holds a word.
fn gathered(states: &[*mut u8; WARP], at: usize) -> [[u16; 8]; 8] {
    let mut elements = [[0u16; 8]; 8];
    for (lane, state) in states.iter().enumerate() {
        // SAFETY: as above.
        unsafe {
            let from = state.add(at).cast::<u16>();
            elements[lane / 4][lane % 4 * 2] = from.read_unaligned();
            elements[lane / 4][lane % 4 * 2 + 1] = from.add(1).read_unaligned();
        }
    }
    elements
}

/// Gives each lane its two elements of an 8 by 8 matrix.
fn share(states: &[*mut u8; WARP], elements: &[[u16; 8]; 8], transpose: bool, out: usize) {
    for (lane, state) in states.iter().enumerate() {
        let (row, column) = (lane / 4, lane % 4 * 2);
        let (low, high) = if transpose {
            (elements[column][row], elements[column + 1][row])
        } else {
            (elements[row][column], elements[row][column + 1])
        };
        // SAFETY: as above.
        unsafe { state.add(out).cast::<u32>().write_unaligned(u32::from(low) | u32::from(high) << 16) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(m: u32, n: u32, k: u32, ty: Type, sum: Type) -> MatrixShape {
        MatrixShape {
            m,
            n,
            k,
            a: ty,
            b: ty,
            c: sum,
            d: sum,
            a_row: true,
            b_row: false,
            sat: false,
            and: false,
        }
    }

    fn place(spread: &Spread, row: usize, column: usize) -> MemoryTarget {
        spread.places[row * spread.columns + column]
    }

    /// Spot checks of the tables in the PTX manual: a lane is 4 * group + position.
    #[test]
    fn fragments_lie_where_the_manual_says() {
        let half = mma(&shape(16, 8, 16, Type::F16, Type::F32)).unwrap();
        // a7: row group + 8, column 2 * position + 9.
        assert_eq!(place(&half.a, 3 + 8, 2 * 2 + 9), (3 * 4 + 2, 7));
        // a4: row group, column 2 * position + 8.
        assert_eq!(place(&half.a, 6, 2 + 8), (6 * 4 + 1, 4));
        // b3: row 2 * position + 9, column group.
        assert_eq!(place(&half.b, 2 * 3 + 9, 5), (5 * 4 + 3, 3));
        // c2: row group + 8, column 2 * position.
        assert_eq!(place(&half.c, 7 + 8, 2 * 3), (7 * 4 + 3, 2));
        assert_eq!((half.a.words, half.b.words, half.c.words), (4, 2, 4));

        let tf32 = mma(&shape(16, 8, 8, Type::Tf32, Type::F32)).unwrap();
        // a1: row group + 8, column position; a2: row group, column position + 4.
        assert_eq!(place(&tf32.a, 2 + 8, 3), (2 * 4 + 3, 1));
        assert_eq!(place(&tf32.a, 2, 3 + 4), (2 * 4 + 3, 2));
        assert_eq!(place(&tf32.b, 1 + 4, 6), (6 * 4 + 1, 1));
        assert_eq!((tf32.a.words, tf32.b.words), (4, 2));

        let bytes = mma(&shape(16, 8, 32, Type::S8, Type::S32)).unwrap();
        // a4..7: row group + 8, column 4 * position + i; a8..11: row group, column + 16.
        assert_eq!(place(&bytes.a, 1 + 8, 4 * 2 + 3), (4 + 2, 7));
        assert_eq!(place(&bytes.a, 1, 4 * 2 + 16 + 1), (4 + 2, 9));
        assert_eq!(place(&bytes.b, 4 * 3 + 16 + 2, 4), (4 * 4 + 3, 6));

        let double = mma(&shape(8, 8, 4, Type::F64, Type::F64)).unwrap();
        assert_eq!(place(&double.a, 5, 2), (5 * 4 + 2, 0));
        assert_eq!(place(&double.b, 2, 5), (5 * 4 + 2, 0));
        assert_eq!(place(&double.c, 5, 2 * 3 + 1), (5 * 4 + 3, 1));
        assert_eq!((double.a.words, double.c.words), (2, 4));
    }

    #[test]
    fn a_product_is_the_product() {
        let shape = shape(16, 8, 16, Type::S8, Type::S32);
        let spreads = mma(&shape).unwrap();
        let mut memory = vec![[0u8; 64]; WARP];
        let states: [*mut u8; WARP] = std::array::from_fn(|lane| memory[lane].as_mut_ptr());
        let (a, b) =
            (|r: usize, c: usize| (r * 7 + c * 3) as i8, |r: usize, c: usize| (r * 5 + c * 11) as i8);
        for i in 0..16 {
            (0..16).for_each(|j| spreads.a.write(&states, 0, i, j, a(i, j) as u8 as u64));
            (0..8).for_each(|j| spreads.b.write(&states, 16, i, j, b(i, j) as u8 as u64));
        }
        let reader = spreads.d.clone();
        multiply(&shape, spreads, Offsets { a: 0, b: 16, c: 32, d: 48 })(&states);
        for r in 0..16 {
            for c in 0..8 {
                let expected: i32 = (0..16).map(|k| i32::from(a(r, k)) * i32::from(b(k, c))).sum();
                assert_eq!(reader.read(&states, 48, r, c) as u32 as i32, expected);
            }
        }
    }
}
