//! Operations of cuSPARSE on matrices of dense blocks, on bands, and the counting of what is not zero.

use rgpu_wire::records;

use crate::sparse::{DenseMatrix, IncompleteTask, SparseMatrix};
use crate::types::{DataType, Scalar, Transpose};

records! {
    /// A sparse matrix of dense square blocks.
    BlockMatrix {
        /// Where the blocks are, by rows: all numbers count blocks, but for the values, which are all of one block, and then those of the next one.
        blocks: SparseMatrix,
        /// Rows of a block.
        size: u64,
        /// Whether blocks are stored column by column instead of row by row.
        by_columns: bool,
    }
    /// `C = alpha op(A) op(B) + beta C`, where A has blocks.
    BlockProduct {
        /// How A is used.
        op_a: Transpose,
        /// How B is used.
        op_b: Transpose,
        /// The factor of the product.
        alpha: Scalar,
        /// A.
        a: BlockMatrix,
        /// B.
        b: DenseMatrix,
        /// The factor of what C was; where it is a zero of the host's, C is not read.
        beta: Scalar,
        /// C.
        c: DenseMatrix,
    }
    /// `op(A) C = alpha B`, solved for C, where A is a triangle of blocks.
    BlockSolve {
        /// Whether it is only looked whether blocks of the diagonal are missing.
        analyses: bool,
        /// How A is used.
        op: Transpose,
        /// Whether the upper triangle of what is stored is meant, not the lower one.
        upper: bool,
        /// Whether the diagonal is taken for ones.
        unit: bool,
        /// The factor.
        alpha: Scalar,
        /// A.
        a: BlockMatrix,
        /// B.
        b: DenseMatrix,
        /// C.
        c: DenseMatrix,
        /// Where it goes which block of the diagonal is missing or has a zero on its diagonal, as the matrix numbers them; or -1. 32 bits.
        position: u64,
    }
    /// An incomplete factorisation of a matrix of blocks, which has blocks where the matrix has them.
    BlockIncomplete {
        /// What is done.
        task: IncompleteTask,
        /// The matrix.
        a: BlockMatrix,
        /// Whether small pivots of [`IncompleteTask::Lu`] are replaced.
        boosts: bool,
        /// A pivot whose absolute value is not greater than this (64-bit) number is replaced.
        tolerance: Scalar,
        /// By this one.
        boost: Scalar,
        /// Where it goes which pivot's block is missing or singular, or for Cholesky's not positive, as the matrix numbers them; or -1. 32 bits.
        position: u64,
    }
    /// Systems of equations whose matrices have elements on three or five diagonals. Of a diagonal beside the main one, the element of each
    /// row is in the row's place, so the first or the last ones of the list are not looked at.
    BandSolve {
        /// The elements' type.
        kind: DataType,
        /// Equations of each system.
        n: u64,
        /// How many systems there are.
        count: u64,
        /// Elements from one row's place to the next.
        step: u64,
        /// Elements from one system's matrix to the next; 0 where they all have the same.
        stride: u64,
        /// Elements from one system's right sides to the next.
        stride_x: u64,
        /// The second diagonal below the main one, or 0 where there are three.
        lowest: u64,
        /// The diagonal below the main one.
        lower: u64,
        /// The main diagonal.
        diagonal: u64,
        /// The diagonal above the main one.
        upper: u64,
        /// The second diagonal above the main one, or 0 where there are three.
        highest: u64,
        /// The right sides, which the solutions replace.
        x: u64,
    }
    /// How many elements of each row or column of a matrix are not zero.
    DenseLines {
        /// The matrix.
        a: DenseMatrix,
        /// Whether columns are counted instead of rows.
        by_columns: bool,
        /// Where the numbers go, in 32 bits.
        per_line: u64,
        /// Where their sum goes, in 32 bits, or 0.
        total: u64,
    }
}
