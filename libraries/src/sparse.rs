//! Operations of cuSPARSE.

use rgpu_wire::records;

use crate::types::{DataType, Scalar, Transpose, numbered};

numbered! {
    /// How the places of a sparse matrix's elements are stored.
    SparseFormat, "format of a sparse matrix" {
        /// For each row where its elements begin, and for each element its column.
        #[default]
        Csr = 0,
        /// For each column where its elements begin, and for each element its row.
        Csc = 1,
        /// For each element its row and its column.
        Coo = 2,
    }
}

records! {
    /// A sparse matrix.
    SparseMatrix {
        /// How places are stored.
        format: SparseFormat,
        /// Rows.
        rows: u64,
        /// Columns.
        columns: u64,
        /// How many elements are stored.
        stored: u64,
        /// Where rows or columns begin, with one number more than there are; or each element's row.
        offsets: u64,
        /// Each element's column, or its row in a matrix by columns.
        indices: u64,
        /// The elements.
        values: u64,
        /// Their type.
        kind: DataType,
        /// Whether offsets have 64 bits instead of 32.
        wide_offsets: bool,
        /// Whether indices have 64 bits instead of 32.
        wide_indices: bool,
        /// What all of these numbers begin with, 0 or 1.
        base: u32,
    }
    /// A dense matrix.
    DenseMatrix {
        /// Address of the first element.
        addr: u64,
        /// The elements' type.
        kind: DataType,
        /// Rows.
        rows: u64,
        /// Columns.
        columns: u64,
        /// Elements from one column to the next; from one row to the next, where it is stored by rows.
        ld: u64,
        /// Whether it is stored by rows.
        by_rows: bool,
    }
    /// `C = alpha op(A) op(B) + beta C`, where A is sparse. A vector is a matrix of one column.
    SparseProduct {
        /// How A is used.
        op_a: Transpose,
        /// How B is used.
        op_b: Transpose,
        /// The factor of the product.
        alpha: Scalar,
        /// A.
        a: SparseMatrix,
        /// B.
        b: DenseMatrix,
        /// The factor of what C was; where it is a zero of the host's, C is not read.
        beta: Scalar,
        /// C.
        c: DenseMatrix,
    }
    /// `C = alpha op(A) op(B) + beta C` at those places that C stores.
    SampledProduct {
        /// How A is used.
        op_a: Transpose,
        /// How B is used.
        op_b: Transpose,
        /// The factor of the product.
        alpha: Scalar,
        /// A.
        a: DenseMatrix,
        /// B.
        b: DenseMatrix,
        /// The factor of what C was.
        beta: Scalar,
        /// C.
        c: SparseMatrix,
    }
    /// A sparse matrix, with all its zeros.
    SparseToDense {
        /// The sparse matrix.
        a: SparseMatrix,
        /// The dense one.
        b: DenseMatrix,
    }
    /// How many elements of a matrix are not zero; and where its rows or columns begin, if the sparse matrix has places for that.
    DenseCount {
        /// The dense matrix.
        a: DenseMatrix,
        /// The sparse matrix to be, without elements.
        b: SparseMatrix,
        /// Where their number goes, in 64 bits.
        total: u64,
    }
    /// A matrix without its zeros, once [`DenseCount`] has been there.
    DenseToSparse {
        /// The dense matrix.
        a: DenseMatrix,
        /// The sparse one.
        b: SparseMatrix,
    }
    /// The same matrix in another format.
    SparseConvert {
        /// The matrix.
        a: SparseMatrix,
        /// The matrix in another format, with the same elements. Where an address of it is 0, that is not stored.
        b: SparseMatrix,
    }
    /// Sorts places of 32 bits by first and second number, and a permutation along with them.
    SparseSort {
        /// The first numbers, one for each element; or where the elements of each begin.
        first: u64,
        /// How many first numbers there are, where they are where elements begin; else 0.
        lines: u64,
        /// The second numbers.
        second: u64,
        /// The permutation, or 0.
        permutation: u64,
        /// How many elements there are.
        count: u64,
        /// Whether they are sorted by the second numbers before the first ones.
        by_second: bool,
        /// What where elements begin begins with, 0 or 1.
        base: u32,
    }
    /// Numbers of 32 bits from 0 on.
    Iota {
        /// Where they go.
        addr: u64,
        /// How many there are.
        count: u64,
    }
}
