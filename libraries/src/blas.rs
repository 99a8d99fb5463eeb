//! Operations of cuBLAS. Matrices are stored column by column, `ld` elements from one column to the next.

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
}

records! {
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
