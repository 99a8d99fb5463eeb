//! One form of a matrix from another.

use rgpu_libraries::{DenseCount, DenseToSparse, SparseMatrix, SparseToDense};

use super::CUSPARSE;
use super::descriptors::matrix;
use super::handle::{check, fetch, queue};
use super::matrices::{self, set_stored};
use crate::libraries::math::{Out, invalid, math};

math! {
    CUSPARSE;

    fn cusparseSparseToDense_bufferSize(handle: usize, a: usize, b: usize, _algorithm: u32, size: Out<usize>) {
        check(handle)?;
        matrices::matrix(a)?;
        matrix(b)?;
        size.set(0)
    }

    fn cusparseSparseToDense(handle: usize, a: usize, b: usize, _algorithm: u32, _buffer: usize) {
        queue(handle)?.post(&SparseToDense { a: matrices::matrix(a)?, b: matrix(b)? })
    }

    /// The buffer is where elements are counted.
    fn cusparseDenseToSparse_bufferSize(handle: usize, a: usize, b: usize, _algorithm: u32, size: Out<usize>) {
        check(handle)?;
        matrix(a)?;
        matrices::matrix(b)?;
        size.set(8)
    }

    /// The program asks how many elements there are after this, so this waits for the device.
    fn cusparseDenseToSparse_analysis(handle: usize, a: usize, b: usize, _algorithm: u32, buffer: usize) {
        if buffer == 0 {
            return invalid("There is no buffer");
        }
        let queue = queue(handle)?;
        let of = SparseMatrix { stored: 0, ..matrices::matrix(b)? };
        queue.post(&DenseCount { a: matrix(a)?, b: of, total: buffer as u64 })?;
        set_stored(b, fetch(&queue, buffer as u64)?.max(0) as u64)
    }

    fn cusparseDenseToSparse_convert(handle: usize, a: usize, b: usize, _algorithm: u32, _buffer: usize) {
        queue(handle)?.post(&DenseToSparse { a: matrix(a)?, b: matrices::matrix(b)? })
    }
}
