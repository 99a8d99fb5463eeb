//! Operations of cuBLAS. Matrices are stored column by column, `ld` elements from one column to the next.

mod matrices;
mod vectors;

pub use matrices::*;
pub use vectors::*;

use rgpu_wire::records;

use crate::types::{DataType, Scalar, Transpose, numbered};

numbered! {
    /// Where the problems of a batch lie.
    Batch, "form of a batch" {
        /// Each `stride` elements behind the one before.
        #[default]
        Strided = 0,
        /// The address of each stands in an array of pointers in device memory.
        Pointers = 1,
    }
    /// Which part of a square matrix is there.
    Fill, "part of a matrix" {
        /// The diagonal and what is below.
        #[default]
        Lower = 0,
        /// The diagonal and what is above.
        Upper = 1,
    }
    /// On which side of another matrix a matrix stands.
    Side, "side of a matrix" {
        /// Before it.
        #[default]
        Left = 0,
        /// Behind it.
        Right = 1,
    }
    /// How the elements of a matrix lie in memory.
    Storage, "storage of a matrix" {
        /// Column by column.
        #[default]
        Full = 0,
        /// The diagonals of a band as rows, element (i, j) in row `upper + i - j` of column j.
        Band = 1,
        /// The part that is there, column by column without gaps.
        Packed = 2,
    }
    /// What is known of a matrix's elements.
    Structure, "structure of a matrix" {
        /// Nothing.
        #[default]
        General = 0,
        /// It is its own transpose.
        Symmetric = 1,
        /// It is the conjugate of its transpose.
        Hermitian = 2,
    }
}

records! {
    /// A vector of each problem of a batch.
    Vector {
        /// Address of the first problem's first element in memory; or of the array of pointers.
        addr: u64,
        /// The elements' type.
        kind: DataType,
        /// Elements from one to the next; where it is negative, the last element comes first in memory.
        inc: i64,
        /// Elements from one problem of the batch to the next.
        stride: i64,
    }
    /// A matrix of each problem of a batch.
    Matrix {
        /// Address of the first problem's first element; or of the array of pointers.
        addr: u64,
        /// The elements' type.
        kind: DataType,
        /// Elements from one column to the next.
        ld: u64,
        /// Elements from one problem of the batch to the next.
        stride: i64,
    }
    /// `C = alpha op(A) op(B) + beta C`, for each problem of a batch.
    Gemm {
        /// How A is used.
        op_a: Transpose,
        /// How B is used.
        op_b: Transpose,
        /// Rows of C.
        m: u64,
        /// Columns of C.
        n: u64,
        /// Columns of op(A).
        k: u64,
        /// The factor of the product.
        alpha: Scalar,
        /// A.
        a: Matrix,
        /// B.
        b: Matrix,
        /// The factor of what C was; where it is a zero of the host's, C is not read.
        beta: Scalar,
        /// C.
        c: Matrix,
        /// In which type products are summed up.
        compute: DataType,
        /// How the problems of the batch lie.
        batch: Batch,
        /// How many problems there are.
        count: u64,
    }
}
