//! What `wgmma` computes: products of matrices that lie in shared memory, and in the states of the threads of four warps.

use rgpu_device::tensor_map::Swizzle;

use super::matrix::{bounded, integer, number, rounded};
use super::sparse::{Metadata, words_of};
use crate::abi::{GroupFn, GroupWork, TRAP_ADDRESS, WARP};
use crate::compile::op::MatrixShape;
use rgpu_image::ptx::ast::Type;

/// Rows of the product.
const ROWS: usize = 64;
/// Bytes along k of an operand's row: all shapes have as many, but for the second one's where half of the first one is not there.
const ROW_BYTES: usize = 32;
/// Bytes that lie together, in whichever order they are.
const PART: usize = 16;

/// A multiplication by four warps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Group {
    /// Shape and types.
    pub shape: MatrixShape,
    /// Where the threads hold the first matrix, if they do.
    pub a: Option<usize>,
    /// Where they hold the product.
    pub d: usize,
    /// Whether the first matrix lies column by column.
    pub transpose_a: bool,
    /// Whether the second one lies row by row.
    pub transpose_b: bool,
    /// Whether the product is subtracted.
    pub negate: bool,
    /// Where half of the first matrix's elements are zero, and are not there: where the threads hold which, and the selector of those that do.
    pub sparse: Option<(usize, u32)>,
}

/// Whether such a multiplication exists where half of the first matrix's elements are not there: along k it has twice as many places.
pub(crate) fn is_supported_sparse(shape: &MatrixShape) -> bool {
    shape.k.is_multiple_of(2) && is_supported(&MatrixShape { k: shape.k / 2, ..*shape })
}

/// Whether the first matrix of such a multiplication has metadata in the lanes that a selector names.
pub(crate) fn has_metadata(shape: &MatrixShape, selector: u32) -> bool {
    Metadata::new(shape.a, shape.k as usize, selector).is_some()
}

/// Whether such a multiplication exists.
pub(crate) fn is_supported(shape: &MatrixShape) -> bool {
    use Type::*;
    let eighth = |ty| matches!(ty, E4m3 | E5m2);
    let byte = |ty| matches!(ty, S8 | U8);
    let (k, sums) = match shape.a {
        F16 => (16, shape.b == F16 && matches!(shape.d, F16 | F32)),
        Bf16 => (16, shape.b == Bf16 && shape.d == F32),
        Tf32 => (8, shape.b == Tf32 && shape.d == F32),
        a if eighth(a) => (32, eighth(shape.b) && matches!(shape.d, F16 | F32)),
        a if byte(a) => (32, byte(shape.b) && shape.d == S32),
        _ => return false,
    };
    let columns = match shape.n {
        0 | 257.. => false,
        n if byte(shape.a) => n == 8 || n == 24 || n.is_multiple_of(16),
        n => n.is_multiple_of(8),
    };
    shape.m == 64 && shape.k == k && sums && columns && (!shape.sat || byte(shape.a))
}

/// Words of 32 bits that a thread holds of the product, and of the first matrix where it lies in registers.
pub(crate) fn words(shape: &MatrixShape) -> (usize, usize) {
    let columns = shape.n as usize;
    (if shape.d == Type::F16 { columns / 4 } else { columns / 2 }, 4)
}

/// Which thread holds an element of the product, and at which place.
fn place_of_product(row: usize, column: usize) -> (usize, usize) {
    let (warp, row) = (row / 16, row % 16);
    let lane = row % 8 * 4 + column % 8 / 2;
    (warp * WARP + lane, column / 8 * 4 + row / 8 * 2 + column % 2)
}

/// A matrix in shared memory, as an instruction describes it.
struct Matrix {
    start: u32,
    leading: u32,
    stride: u32,
    base: u32,
    swizzle: Swizzle,
}

impl Matrix {
    fn new(descriptor: u64) -> Self {
        let field = |at: u32| (descriptor >> at & 0x3fff) as u32 * 16;
        let swizzle = [Swizzle::None, Swizzle::B128, Swizzle::B64, Swizzle::B32];
        Self {
            start: field(0),
            leading: field(16),
            stride: field(32),
            base: (descriptor >> 49 & 7) as u32,
            swizzle: swizzle[(descriptor >> 62) as usize],
        }
    }

    /// Where 16 bytes along k lie: those of a row, or of a column of the second matrix.
    fn along_k(&self, row: u32, part: u32) -> u32 {
        let (group, row) = (row / 8 * self.stride, row % 8);
        let at = match self.swizzle.span() {
            None => row * 16 + part * self.leading,
            Some(span) => row * span + part % (span / 16) * 16 + part / (span / 16) * self.leading,
        };
        self.swizzle.place_from(self.start + group + at, self.base)
    }

    /// Where 16 bytes across k lie, of which there are so many for each place along it.
    fn across_k(&self, part: u32, k: u32) -> u32 {
        let at = match self.swizzle.span() {
            None => part * self.stride + k / 8 * self.leading + k % 8 * 16,
            Some(span) => {
                let parts = span / 16;
                part % parts * 16 + part / parts * self.leading + k / 8 * self.stride + k % 8 * span
            }
        };
        self.swizzle.place_from(self.start + at, self.base)
    }

    /// Tells all elements of a matrix of so many rows (columns, of the second one) and places along k: row, place along k, bits.
    fn read(
        &self,
        (shared, limit): (*const u8, u32),
        (rows, depth): (usize, usize),
        bytes: usize,
        transposed: bool,
        mut tell: impl FnMut(usize, usize, u64),
    ) -> Result<(), u32> {
        let part_at = |at: u32| {
            if u64::from(at) + PART as u64 > u64::from(limit) {
                return Err(TRAP_ADDRESS);
            }
            // SAFETY: so many bytes of shared memory are accessible, as was just compared, and nothing is asked of alignment.
            Ok(unsafe { shared.add(at as usize).cast::<[u8; PART]>().read_volatile() })
        };
        let element = |part: &[u8; PART], index: usize| {
            let mut bits = [0; 8];
            bits[..bytes].copy_from_slice(&part[index * bytes..(index + 1) * bytes]);
            u64::from_le_bytes(bits)
        };
        let each = PART / bytes;
        if transposed {
            for k in 0..depth {
                for part in 0..rows / each {
                    let found = part_at(self.across_k(part as u32, k as u32))?;
                    (0..each).for_each(|i| tell(part * each + i, k, element(&found, i)));
                }
            }
            return Ok(());
        }
        for row in 0..rows {
            for part in 0..depth / each {
                let found = part_at(self.along_k(row as u32, part as u32))?;
                (0..each).for_each(|i| tell(row, part * each + i, element(&found, i)));
            }
        }
        Ok(())
    }
}

/// Tells all elements of the first matrix, which the threads hold.
fn read_registers(work: &GroupWork<'_>, at: usize, bytes: usize, mut tell: impl FnMut(usize, usize, u64)) {
    // Consecutive elements of k in one register, and along k in the four lanes of a row.
    let run = 4 / bytes;
    let along = 4 * run;
    for row in 0..ROWS {
        for k in 0..ROW_BYTES / bytes {
            let thread = row / 16 * WARP + row % 8 * 4 + k % along / run;
            let register = k / along * 2 + row % 16 / 8;
            let mut bits = [0u8; 8];
            // SAFETY: the compiled kernel has reserved four words there in each thread's state.
            unsafe {
                let from = work.states[thread].add(at + register * 4 + k % run * bytes);
                std::ptr::copy_nonoverlapping(from, bits.as_mut_ptr(), bytes);
            }
            tell(row, k, u64::from_le_bytes(bits));
        }
    }
}

impl Group {
    /// The operation as a function.
    pub(crate) fn function(&self) -> GroupFn {
        let group = *self;
        if group.shape.d == Type::S32 {
            return Box::new(move |work| group.multiply_integers(work));
        }
        Box::new(move |work| group.multiply(work))
    }

    /// How many elements of each row of the first matrix are there.
    fn there(&self) -> usize {
        self.shape.k as usize / if self.sparse.is_some() { 2 } else { 1 }
    }

    /// Of each element of the first matrix that is there, by row, its place along k; none where all are there.
    fn places(&self, work: &GroupWork<'_>) -> Option<Vec<usize>> {
        let ((at, selector), there) = (self.sparse?, self.there());
        let metadata = Metadata::new(self.shape.a, self.shape.k as usize, selector)?;
        let words: Vec<_> = work.states.chunks(WARP).map(|warp| words_of(warp, at)).collect();
        let place = |i: usize| {
            let (row, element) = (i / there, i % there);
            metadata.column(&words[row / 16], row % 16, element)
        };
        Some((0..ROWS * there).map(place).collect())
    }

    /// The elements of both matrices: of the first, those that are there, by row; of the second by place along k and column.
    fn read<T>(
        &self,
        work: &GroupWork<'_>,
        value: impl Fn(Type, u64) -> T,
        zero: T,
    ) -> Result<(Vec<T>, Vec<T>), u32>
    where
        T: Copy,
    {
        let MatrixShape { n, k, a: of_a, b: of_b, .. } = self.shape;
        let (n, k, there) = (n as usize, k as usize, self.there());
        let bytes = ROW_BYTES / there;
        let (mut a, mut b) = (vec![zero; ROWS * there], vec![zero; k * n]);
        let mut put = |row: usize, at: usize, bits: u64| a[row * there + at] = value(of_a, bits);
        match self.a {
            Some(at) => read_registers(work, at, bytes, &mut put),
            None => {
                let matrix = Matrix::new(work.descriptors[0]);
                matrix.read(work.shared, (ROWS, there), bytes, self.transpose_a, &mut put)?;
            }
        }
        let second = Matrix::new(work.descriptors[1]);
        second.read(work.shared, (n, k), bytes, self.transpose_b, |column, at, bits| {
            b[at * n + column] = value(of_b, bits);
        })?;
        Ok((a, b))
    }

    /// The bits of an element of the product.
    fn get(&self, work: &GroupWork<'_>, row: usize, column: usize) -> u64 {
        let (thread, place) = place_of_product(row, column);
        // SAFETY: the compiled kernel has reserved the product's words in each thread's state.
        unsafe {
            let base = work.states[thread].add(self.d);
            match self.shape.d {
                Type::F16 => base.cast::<u16>().add(place).read_unaligned().into(),
                _ => base.cast::<u32>().add(place).read_unaligned().into(),
            }
        }
    }

    fn put(&self, work: &GroupWork<'_>, row: usize, column: usize, bits: u32) {
        let (thread, place) = place_of_product(row, column);
        // SAFETY: as above.
        unsafe {
            let base = work.states[thread].add(self.d);
            match self.shape.d {
                Type::F16 => base.cast::<u16>().add(place).write_unaligned(bits as u16),
                _ => base.cast::<u32>().add(place).write_unaligned(bits),
            }
        }
    }

    fn multiply_integers(&self, work: &GroupWork<'_>) -> Result<(), u32> {
        let (n, there, places) = (self.shape.n as usize, self.there(), self.places(work));
        let (a, b) = self.read(work, |ty, bits| integer(ty, bits) as i32, 0)?;
        let mut sums = vec![0i64; n];
        for row in 0..ROWS {
            for (column, sum) in sums.iter_mut().enumerate() {
                *sum = if work.adds { i64::from(self.get(work, row, column) as i32) } else { 0 };
            }
            for i in row * there..(row + 1) * there {
                let (factor, place) = (a[i], places.as_ref().map_or(i % there, |places| places[i]));
                let b = &b[place * n..(place + 1) * n];
                sums.iter_mut().zip(b).for_each(|(sum, &b)| *sum += i64::from(factor * b));
            }
            for (column, &sum) in sums.iter().enumerate() {
                self.put(work, row, column, bounded(&self.shape, sum) as u32);
            }
        }
        Ok(())
    }

    /// The sum of an element of the product is formed in double precision and rounded once, as that of `mma` is.
    fn multiply(&self, work: &GroupWork<'_>) -> Result<(), u32> {
        let (n, there, places) = (self.shape.n as usize, self.there(), self.places(work));
        let (mut a, b) = self.read(work, number, 0f64)?;
        if self.negate {
            a.iter_mut().for_each(|a| *a = -*a);
        }
        let mut sums = vec![0f64; n];
        for row in 0..ROWS {
            for (column, sum) in sums.iter_mut().enumerate() {
                *sum = if work.adds { number(self.shape.d, self.get(work, row, column)) } else { 0.0 };
            }
            for i in row * there..(row + 1) * there {
                let (factor, place) = (a[i], places.as_ref().map_or(i % there, |places| places[i]));
                let b = &b[place * n..(place + 1) * n];
                sums.iter_mut().zip(b).for_each(|(sum, &b)| *sum += factor * b);
            }
            for (column, &sum) in sums.iter().enumerate() {
                self.put(work, row, column, rounded(self.shape.d, sum) as u32);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
