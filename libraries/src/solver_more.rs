//! Operations of cuSOLVER, and of cuBLAS's batches, beyond the factorisations that most programs use.

use rgpu_wire::records;

use crate::blas::{Batch, Matrix};
use crate::solver::Task;

records! {
    /// The factorisation of symmetric matrices into a triangle with ones on its diagonal, blocks of one or two rows, and the triangle's transpose (Bunch
    /// and Kaufman, 1977), as LAPACK's `sytrf` stores it.
    Indefinite {
        /// What is done: [`Task::Factor`] or [`Task::Solve`].
        task: Task,
        /// Whether the upper triangle is used instead of the lower one.
        upper: bool,
        /// Rows and columns of A.
        n: u64,
        /// The matrix, or its factors.
        a: Matrix,
        /// With which row, counted from 1, each row was exchanged, negative in blocks of two rows; 0 where rows stay and blocks have one row.
        pivots: u64,
        /// Whether those are numbers of 64 bits instead of 32.
        wide: bool,
        /// Columns of B.
        columns: u64,
        /// Right sides, which the solutions replace.
        b: Matrix,
        /// Where it says whether it went well.
        info: u64,
    }
    /// Eigenvalues of any square matrix, and right eigenvectors of the length one.
    Eigen {
        /// Rows and columns.
        n: u64,
        /// The matrix, which may be destroyed.
        a: Matrix,
        /// Where the eigenvalues go: complex numbers, or with `apart` all real parts and then all imaginary ones.
        values: u64,
        /// Whether real and imaginary parts are stored apart.
        apart: bool,
        /// Where the eigenvectors go, if the address is not 0: of a real matrix, real and imaginary part of a vector in the columns of its value and
        /// the conjugate's.
        vectors: Matrix,
        /// Where it says whether it went well.
        info: u64,
    }
    /// The largest singular values, descending, and their vectors.
    LargestSvd {
        /// Rows of A, of which there are not less than columns.
        m: u64,
        /// Columns of A.
        n: u64,
        /// How many values are wanted.
        rank: u64,
        /// The matrix.
        a: Matrix,
        /// Where the values go.
        values: u64,
        /// Values from one problem to the next.
        stride: u64,
        /// Where the left vectors go; nothing where the address is 0.
        u: Matrix,
        /// Where the right vectors go; nothing where the address is 0.
        v: Matrix,
        /// Where the Frobenius norm of what is missing goes, 64 bits for each problem; or 0.
        residuals: u64,
        /// Where it says for each problem whether it went well.
        info: u64,
        /// How many problems there are.
        count: u64,
    }
    /// Two diagonals that a matrix is between orthogonal matrices, whose reflections are stored as LAPACK's `gebrd` does.
    Bidiagonal {
        /// Rows.
        m: u64,
        /// Columns.
        n: u64,
        /// The matrix.
        a: Matrix,
        /// Where the main diagonal goes.
        diagonal: u64,
        /// Where the diagonal beside it goes: above it, or where there are less rows than columns below it.
        beside: u64,
        /// Where the factors of the reflections of columns go.
        tau_q: u64,
        /// Where those of the reflections of rows go.
        tau_p: u64,
        /// Where it says that it went well.
        info: u64,
    }
    /// The X that makes `A X - B` the smallest, for A with at least as many rows as columns, by reflections.
    LeastSquares {
        /// Rows of A.
        m: u64,
        /// Columns of A.
        n: u64,
        /// Columns of B.
        columns: u64,
        /// A.
        a: Matrix,
        /// Whether A is replaced by its reflections and the upper triangle.
        keeps: bool,
        /// B.
        b: Matrix,
        /// Where X goes, if that is not the first rows of B.
        x: Matrix,
        /// Where it says for each problem which diagonal element of the triangle is zero, counted from 1; then there is no X.
        info: u64,
        /// How the problems lie.
        batch: Batch,
        /// How many problems there are.
        count: u64,
    }
    /// Reflections and triangles of matrices whose addresses stand in an array of pointers, as those of their reflections' factors do.
    QrBatch {
        /// Rows.
        m: u64,
        /// Columns.
        n: u64,
        /// The matrices.
        a: Matrix,
        /// The array of the factors' addresses.
        tau: u64,
        /// How many problems there are.
        count: u64,
    }
    /// A triangle that is stored in a square, from one that is stored without gaps, or the other way.
    PackTriangle {
        /// Whether the packed one is made.
        packs: bool,
        /// Whether it is the upper triangle.
        upper: bool,
        /// Rows and columns.
        n: u64,
        /// The square one.
        a: Matrix,
        /// The packed one.
        packed: u64,
    }
}
