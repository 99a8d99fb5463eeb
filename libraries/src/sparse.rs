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
    /// What is done with a sparse and a dense vector.
    VectorTask, "task of a sparse vector" {
        /// The sparse one's elements are those of the dense one at its places.
        #[default]
        Gather = 0,
        /// The dense one's elements at those places are the sparse one's.
        Scatter = 1,
        /// `y = alpha x + beta y`, where x is sparse.
        Add = 2,
        /// The sum of the products of their elements.
        Dot = 3,
        /// `x = alpha x + beta y` and `y = alpha y - beta x` at those places.
        Rotate = 4,
    }
    /// What is done for an incomplete factorisation, which has elements where the matrix has them.
    IncompleteTask, "task of an incomplete factorisation" {
        /// It is looked whether each row has an element of the diagonal.
        #[default]
        Analyse = 0,
        /// The lower triangle, whose diagonal is of ones, and the upper one take the matrix's place.
        Lu = 1,
        /// The lower triangle whose product with its adjoint it is takes the place of the lower triangle.
        Cholesky = 2,
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
    /// A sparse vector.
    SparseVector {
        /// How many elements it has with its zeros.
        size: u64,
        /// How many elements are stored.
        stored: u64,
        /// Their places.
        indices: u64,
        /// The elements.
        values: u64,
        /// Their type.
        kind: DataType,
        /// Whether places have 64 bits instead of 32.
        wide: bool,
        /// What places begin with, 0 or 1.
        base: u32,
    }
    /// A sparse vector with a dense one.
    SparseVectors {
        /// What is done.
        task: VectorTask,
        /// A factor.
        alpha: Scalar,
        /// Another one.
        beta: Scalar,
        /// Whether a dot product takes the conjugates of the sparse one's elements.
        conjugates: bool,
        /// The sparse one.
        x: SparseVector,
        /// The dense one, a matrix of one column.
        y: DenseMatrix,
        /// Where a dot product goes.
        result: u64,
    }
    /// `C = alpha A + beta B`, all of them sparse. C stores what A or B stores.
    SparseSum {
        /// Whether it is only counted how many elements C has: its `offsets` say so, and `total`.
        counts: bool,
        /// The factor of A.
        alpha: Scalar,
        /// A.
        a: SparseMatrix,
        /// The factor of B.
        beta: Scalar,
        /// B.
        b: SparseMatrix,
        /// C, by rows, whose offsets are there where it is not counted. They say how many elements it has.
        c: SparseMatrix,
        /// Where their number goes, in 32 bits, or 0.
        total: u64,
    }
    /// `C = alpha A B`, all of them sparse.
    SparseMultiply {
        /// Whether it is only counted how many elements C has; then only `total` is written.
        counts: bool,
        /// The factor.
        alpha: Scalar,
        /// A.
        a: SparseMatrix,
        /// B.
        b: SparseMatrix,
        /// C, by rows.
        c: SparseMatrix,
        /// Where the number of its elements goes, in 64 bits.
        total: u64,
    }
    /// A matrix by rows without the elements whose absolute values are not greater than a tolerance.
    SparseCompress {
        /// Whether they are only counted: `per_row` is written, and `total`.
        counts: bool,
        /// What is not greater than this goes.
        tolerance: f64,
        /// The matrix.
        a: SparseMatrix,
        /// How many elements each row keeps, in 32 bits.
        per_row: u64,
        /// What is left.
        b: SparseMatrix,
        /// Where the number of the elements that stay goes, in 32 bits, or 0.
        total: u64,
    }
    /// `op(A) C = alpha op(B)`, solved for C, where A is a sparse triangle.
    SparseSolve {
        /// How A is used.
        op_a: Transpose,
        /// How B is used.
        op_b: Transpose,
        /// Whether the upper triangle of what is stored is meant, not the lower one.
        upper: bool,
        /// Whether the diagonal is taken for ones.
        unit: bool,
        /// The factor.
        alpha: Scalar,
        /// A.
        a: SparseMatrix,
        /// B.
        b: DenseMatrix,
        /// C.
        c: DenseMatrix,
    }
    /// An incomplete factorisation of a matrix by rows.
    SparseIncomplete {
        /// What is done.
        task: IncompleteTask,
        /// The matrix.
        a: SparseMatrix,
        /// Where it goes which pivot is missing or zero, or for Cholesky's not positive, as the matrix numbers its rows; or -1. 32 bits.
        position: u64,
    }
    /// `A x = b`, solved for x by orthogonal rotations of sparse rows.
    SparseSystem {
        /// A, square.
        a: SparseMatrix,
        /// The right side.
        b: u64,
        /// The solution.
        x: u64,
        /// Whether A must be Hermitian and positive definite; its lower triangle is used.
        positive: bool,
        /// What is not greater counts as zero.
        tolerance: f64,
        /// Where it goes which row of the triangle has a zero on the diagonal, or -1. 32 bits.
        singular: u64,
    }
}
