//! Operations of cuSOLVER. Matrices are stored column by column, and each operation does a batch of problems of one shape. Which of its
//! problems cannot be solved, and where that shows, is written to `info`, a 32-bit number for each, where that is not 0.

use rgpu_wire::records;

use crate::blas::{Batch, Matrix};
use crate::types::{Transpose, numbered};

numbered! {
    /// What is done with a factorisation.
    Task, "task of a factorisation" {
        /// It is made.
        #[default]
        Factor = 0,
        /// Systems of equations are solved with it.
        Solve = 1,
        /// Of Cholesky's: the inverse of the matrix takes its place. Of a QR: Q takes its place.
        Form = 2,
        /// Of a QR: Q is multiplied by.
        Apply = 3,
    }
    /// Which singular vectors are wanted.
    Vectors, "wanted vectors" {
        /// None.
        #[default]
        None = 0,
        /// As many as there are singular values.
        Thin = 1,
        /// A whole basis.
        All = 2,
    }
}

records! {
    /// Cholesky's factorisation of positive definite matrices.
    Cholesky {
        /// What is done.
        task: Task,
        /// Whether the upper triangle is used instead of the lower one.
        upper: bool,
        /// Rows and columns of A.
        n: u64,
        /// The matrix, or its factor.
        a: Matrix,
        /// Columns of B.
        columns: u64,
        /// Right sides, which the solutions replace.
        b: Matrix,
        /// Where it says for each problem whether it went well.
        info: u64,
        /// How the problems lie.
        batch: Batch,
        /// How many problems there are.
        count: u64,
    }
    /// Factorisation into triangles, with exchanges of rows.
    Lu {
        /// What is done.
        task: Task,
        /// Rows of A.
        m: u64,
        /// Columns of A.
        n: u64,
        /// The matrix, or its factors.
        a: Matrix,
        /// With which row, counted from 1, each row was exchanged; 0 where rows stay.
        pivots: u64,
        /// Whether those are numbers of 64 bits instead of 32.
        wide: bool,
        /// How A is used for solving.
        op: Transpose,
        /// Columns of B.
        columns: u64,
        /// Right sides, which the solutions replace.
        b: Matrix,
        /// Where it says for each problem whether it went well.
        info: u64,
        /// How many problems there are.
        count: u64,
    }
    /// Orthogonal factorisation, by reflections as LAPACK stores them.
    Qr {
        /// What is done.
        task: Task,
        /// Rows: of A, or of C.
        m: u64,
        /// Columns: of A, or of C.
        n: u64,
        /// How many reflections there are.
        k: u64,
        /// The matrix, or its factors.
        a: Matrix,
        /// The reflections' factors.
        tau: u64,
        /// Whether Q stands on the right of C instead of the left.
        right: bool,
        /// How Q is used.
        op: Transpose,
        /// What Q is multiplied by, and the product.
        c: Matrix,
        /// Where it says whether it went well.
        info: u64,
    }
    /// Eigenvalues, ascending, and eigenvectors of Hermitian matrices.
    HermitianEigen {
        /// Whether eigenvectors take the matrix's place.
        vectors: bool,
        /// Whether the upper triangle is used instead of the lower one.
        upper: bool,
        /// Rows and columns.
        n: u64,
        /// The matrix.
        a: Matrix,
        /// Where the eigenvalues go, those of a problem behind those of the one before.
        values: u64,
        /// Where it says for each problem whether it went well.
        info: u64,
        /// How many problems there are.
        count: u64,
    }
    /// Singular values, descending, and singular vectors.
    Svd {
        /// Rows of A.
        m: u64,
        /// Columns of A.
        n: u64,
        /// The matrix, which is destroyed.
        a: Matrix,
        /// Where the singular values go, those of a problem behind those of the one before.
        values: u64,
        /// Which left vectors are wanted.
        left: Vectors,
        /// Where they go.
        u: Matrix,
        /// Which right vectors are wanted.
        right: Vectors,
        /// Where they go.
        v: Matrix,
        /// Whether the right vectors are stored as the rows of their adjoint.
        adjoint: bool,
        /// Where it says for each problem whether it went well.
        info: u64,
        /// How many problems there are.
        count: u64,
    }
}
