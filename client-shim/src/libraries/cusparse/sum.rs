//! Sums and products of which all matrices are sparse, and matrices without their small elements.

use std::sync::LazyLock;

use rgpu_libraries::{DataType, SparseCompress, SparseFormat, SparseMatrix, SparseMultiply, SparseSum};

use super::handle::{check, description, fetch, on_device, queue, scalar};
use super::matrices::{matrix, set_stored};
use super::{CUSPARSE, count, kind_of, typed};
use crate::core::registry::Registry;
use crate::libraries::math::{Out, Result, home, invalid, math, missing};

/// `cuComplex` and `cuDoubleComplex`, as arguments.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair<T> {
    re: T,
    im: T,
}
#[cfg(test)]
crate::abi::signature::structures!(Pair<f32>, Pair<f64>);

/// How small elements may be that go: of a complex tolerance the real part counts.
trait Tolerance {
    fn number(self) -> f64;
}
impl Tolerance for f32 {
    fn number(self) -> f64 {
        self.into()
    }
}
impl Tolerance for f64 {
    fn number(self) -> f64 {
        self
    }
}
impl Tolerance for Pair<f32> {
    fn number(self) -> f64 {
        self.re.into()
    }
}
impl Tolerance for Pair<f64> {
    fn number(self) -> f64 {
        self.re
    }
}

/// Descriptors of products; what they would remember is computed again.
static PRODUCTS: LazyLock<Registry<()>> = LazyLock::new(|| Registry::new("cuSPARSE SpGEMM descriptor"));

/// Description, number of elements, values, offsets, columns, as the older interface has them.
pub(super) type Given = (usize, i32, usize, usize, usize);

/// A matrix by rows of the older interface.
pub(super) fn rows(
    kind: DataType,
    (m, n): (i32, i32),
    (described, stored, values, offsets, indices): Given,
) -> Result<SparseMatrix> {
    Ok(SparseMatrix {
        format: SparseFormat::Csr,
        rows: count(m.into())?,
        columns: count(n.into())?,
        stored: count(stored.into())?,
        offsets: offsets as u64,
        indices: indices as u64,
        values: values as u64,
        kind,
        base: description(described)?.base,
        ..SparseMatrix::default()
    })
}

/// A sum, whose matrices are A, B and C.
fn sum(kind: DataType, shape: (i32, i32), [a, b, c]: [Given; 3]) -> Result<SparseSum> {
    let (a, b, c) = (rows(kind, shape, a)?, rows(kind, shape, b)?, rows(kind, shape, c)?);
    Ok(SparseSum { a, b, c, ..SparseSum::default() })
}

/// The matrices of a product, where it is one that is implemented.
fn product(
    handle: usize,
    (op_a, op_b): (u32, u32),
    (a, b, c): (usize, usize, usize),
    (alpha, beta): (usize, usize),
    kind: u32,
) -> Result<SparseMultiply> {
    let kind = kind_of(kind)?;
    if op_a != 0 || op_b != 0 {
        return missing("cuSPARSE: products of two sparse matrices that are transposed");
    }
    let (alpha, beta) = (scalar(handle, alpha, kind)?, scalar(handle, beta, kind)?);
    if beta.addr != 0 || beta.value != [0.0; 2] {
        return missing("cuSPARSE: products of two sparse matrices with a beta that is not the host's zero");
    }
    let (a, b, c) = (matrix(a)?, matrix(b)?, matrix(c)?);
    if a.kind != kind || b.kind != kind || c.kind != kind {
        return missing("cuSPARSE: products in several types");
    }
    if [a.format, b.format, c.format] != [SparseFormat::Csr; 3] {
        return missing("cuSPARSE: products of two sparse matrices that are not by rows");
    }
    if a.columns != b.rows || (a.rows, b.columns) != (c.rows, c.columns) {
        return invalid("The matrices' shapes are not those of a product");
    }
    Ok(SparseMultiply { alpha, a, b, c, ..SparseMultiply::default() })
}

/// What is left of a matrix.
fn compress(tolerance: f64, a: SparseMatrix, b: SparseMatrix, per_row: usize) -> Result<SparseCompress> {
    if tolerance < 0.0 {
        return invalid(format!("A tolerance of {tolerance}"));
    }
    Ok(SparseCompress { tolerance, a, b, per_row: per_row as u64, ..SparseCompress::default() })
}

/// How many elements are not small, in each row and in all.
fn count_left(
    handle: usize,
    kind: DataType,
    m: i32,
    (described, values, offsets): (usize, usize, usize),
    (per_row, total): (usize, usize),
    tolerance: f64,
) -> Result<()> {
    if total == 0 {
        return invalid("There is no place for the number of elements");
    }
    // Columns are not looked at, and how many elements there are say the offsets.
    let a = rows(kind, (m, i32::MAX), (described, 0, values, offsets, 0))?;
    let queue = queue(handle)?;
    let of = SparseCompress { counts: true, ..compress(tolerance, a.clone(), a, per_row)? };
    if on_device(handle)? {
        return queue.post(&SparseCompress { total: total as u64, ..of });
    }
    queue.post(&of)?;
    let kept: Vec<i32> = home(&queue, per_row as u64, of.a.rows as usize)?;
    let sum: i32 = kept.iter().sum();
    // SAFETY: by the call's description, a number lies there.
    unsafe { (total as *mut i32).write_unaligned(sum) };
    Ok(())
}

typed! {
    [
        cusparseScsrgeam2_bufferSizeExt => F32, cusparseDcsrgeam2_bufferSizeExt => F64,
        cusparseCcsrgeam2_bufferSizeExt => C32, cusparseZcsrgeam2_bufferSizeExt => C64
    ] (
        handle: usize, m: i32, n: i32, _alpha: usize, of_a: usize, stored_a: i32, a: usize, offsets_a: usize,
        indices_a: usize, _beta: usize, of_b: usize, stored_b: i32, b: usize, offsets_b: usize, indices_b: usize,
        of_c: usize, c: usize, offsets_c: usize, indices_c: usize, size: Out<usize>,
    ) {
        check(handle)?;
        let (a, b) = ((of_a, stored_a, a, offsets_a, indices_a), (of_b, stored_b, b, offsets_b, indices_b));
        sum(KIND, (m, n), [a, b, (of_c, 0, c, offsets_c, indices_c)])?;
        size.set(0)
    }

    [
        cusparseScsrgeam2 => F32, cusparseDcsrgeam2 => F64, cusparseCcsrgeam2 => C32, cusparseZcsrgeam2 => C64
    ] (
        handle: usize, m: i32, n: i32, alpha: usize, of_a: usize, stored_a: i32, a: usize, offsets_a: usize,
        indices_a: usize, beta: usize, of_b: usize, stored_b: i32, b: usize, offsets_b: usize, indices_b: usize,
        of_c: usize, c: usize, offsets_c: usize, indices_c: usize, _buffer: usize,
    ) {
        let (alpha, beta) = (scalar(handle, alpha, KIND)?, scalar(handle, beta, KIND)?);
        let (a, b) = ((of_a, stored_a, a, offsets_a, indices_a), (of_b, stored_b, b, offsets_b, indices_b));
        let of = sum(KIND, (m, n), [a, b, (of_c, 0, c, offsets_c, indices_c)])?;
        queue(handle)?.post(&SparseSum { alpha, beta, ..of })
    }
}

/// Functions that have a tolerance of their elements' type.
macro_rules! compressing {
    ($($count:ident, $compress:ident, $kind:ident, $tolerance:ty;)*) => {
        math! {
            CUSPARSE;
            $(
                fn $count(
                    handle: usize, m: i32, of_a: usize, a: usize, offsets: usize, per_row: usize, total: usize,
                    tolerance: $tolerance,
                ) {
                    let (given, to) = ((of_a, a, offsets), (per_row, total));
                    count_left(handle, DataType::$kind, m, given, to, tolerance.number())
                }

                fn $compress(
                    handle: usize, m: i32, n: i32, of_a: usize, a: usize, indices: usize, offsets: usize, stored: i32,
                    per_row: usize, b: usize, indices_b: usize, offsets_b: usize, tolerance: $tolerance,
                ) {
                    let (kind, shape) = (DataType::$kind, (m, n));
                    let a = rows(kind, shape, (of_a, stored, a, offsets, indices))?;
                    let b = rows(kind, shape, (of_a, 0, b, offsets_b, indices_b))?;
                    queue(handle)?.post(&compress(tolerance.number(), a, b, per_row)?)
                }
            )*
        }
    };
}
compressing! {
    cusparseSnnz_compress, cusparseScsr2csr_compress, F32, f32;
    cusparseDnnz_compress, cusparseDcsr2csr_compress, F64, f64;
    cusparseCnnz_compress, cusparseCcsr2csr_compress, C32, Pair<f32>;
    cusparseZnnz_compress, cusparseZcsr2csr_compress, C64, Pair<f64>;
}

math! {
    CUSPARSE;

    /// The caller asks how many elements there are, so this waits for the device where the number is to be in its own memory.
    fn cusparseXcsrgeam2Nnz(
        handle: usize, m: i32, n: i32, of_a: usize, stored_a: i32, offsets_a: usize, indices_a: usize, of_b: usize,
        stored_b: i32, offsets_b: usize, indices_b: usize, of_c: usize, offsets_c: usize, total: Out<i32>,
        _buffer: usize,
    ) {
        total.check()?;
        let queue = queue(handle)?;
        let (a, b) = ((of_a, stored_a, 0, offsets_a, indices_a), (of_b, stored_b, 0, offsets_b, indices_b));
        let of = sum(DataType::F32, (m, n), [a, b, (of_c, 0, 0, offsets_c, 0)])?;
        let of = SparseSum { counts: true, ..of };
        if on_device(handle)? {
            return queue.post(&SparseSum { total: total.as_ptr() as u64, ..of });
        }
        queue.post(&of)?;
        let last: Vec<i32> = home(&queue, of.c.offsets + 4 * of.c.rows, 1)?;
        total.set(last[0] - of.c.base as i32)
    }

    fn cusparseSpGEMM_createDescr(out: Out<usize>) {
        out.check()?;
        let mut raw = 0;
        PRODUCTS.insert(|handle| raw = handle);
        out.set(raw)
    }

    fn cusparseSpGEMM_destroyDescr(raw: usize) {
        PRODUCTS.remove(raw)?;
        Ok(())
    }

    fn cusparseSpGEMM_workEstimation(
        handle: usize, op_a: u32, op_b: u32, alpha: usize, a: usize, b: usize, beta: usize, c: usize, kind: u32,
        _algorithm: u32, descriptor: usize, size: Out<usize>, _buffer: usize,
    ) {
        PRODUCTS.get(descriptor)?;
        product(handle, (op_a, op_b), (a, b, c), (alpha, beta), kind)?;
        size.set(0)
    }

    /// The program asks for the number of elements after this, so this waits for the device. The buffer is where they are counted.
    fn cusparseSpGEMM_compute(
        handle: usize, op_a: u32, op_b: u32, alpha: usize, a: usize, b: usize, beta: usize, c: usize, kind: u32,
        _algorithm: u32, descriptor: usize, size: Out<usize>, buffer: usize,
    ) {
        PRODUCTS.get(descriptor)?;
        let of = product(handle, (op_a, op_b), (a, b, c), (alpha, beta), kind)?;
        if buffer == 0 {
            return size.set(8);
        }
        let queue = queue(handle)?;
        queue.post(&SparseMultiply { counts: true, total: buffer as u64, ..of })?;
        set_stored(c, fetch(&queue, buffer as u64)?.max(0) as u64)
    }

    fn cusparseSpGEMM_copy(
        handle: usize, op_a: u32, op_b: u32, alpha: usize, a: usize, b: usize, beta: usize, c: usize, kind: u32,
        _algorithm: u32, descriptor: usize,
    ) {
        PRODUCTS.get(descriptor)?;
        queue(handle)?.post(&product(handle, (op_a, op_b), (a, b, c), (alpha, beta), kind)?)
    }
}
