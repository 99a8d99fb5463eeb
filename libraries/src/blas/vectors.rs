//! Operations on vectors, and on matrices and vectors.

use rgpu_wire::records;

use super::{Batch, Fill, Matrix, Storage, Structure, Vector};
use crate::types::{DataType, Scalar, Transpose, numbered};

numbered! {
    /// What is done to each element of two vectors.
    Combination, "operation on elements" {
        /// `y = alpha x + y`.
        #[default]
        Axpy = 0,
        /// `x = alpha x`.
        Scale = 1,
        /// `y = x`.
        Copy = 2,
        /// x and y are exchanged.
        Swap = 3,
        /// `x = c x + s y`, `y = c y - conj(s) x`, with c in `alpha` and s in `beta`.
        Rotate = 4,
        /// The same with the five numbers of a modified rotation.
        RotateModified = 5,
    }
    /// What becomes of all elements.
    Reduction, "reduction" {
        /// The sum of `x y`.
        #[default]
        Dot = 0,
        /// The sum of `conj(x) y`.
        DotConjugated = 1,
        /// The Euclidean norm of x.
        Norm = 2,
        /// The sum of the absolute values of the parts of x.
        AbsoluteSum = 3,
        /// The place, counted from 1, of the first greatest absolute value of x.
        Greatest = 4,
        /// The place of the first least absolute value.
        Least = 5,
    }
}

records! {
    /// Something is done to each element of x and y.
    Combine {
        /// What.
        what: Combination,
        /// How many elements there are.
        n: u64,
        /// A factor.
        alpha: Scalar,
        /// Another one.
        beta: Scalar,
        /// The type of alpha where it lies in device memory.
        alpha_kind: DataType,
        /// The type of beta where it lies in device memory.
        beta_kind: DataType,
        /// The host's numbers of a modified rotation.
        numbers: [f64; 5],
        /// Where they lie in device memory, or 0; they have the type of alpha.
        numbers_addr: u64,
        /// The first vector.
        x: Vector,
        /// The second vector.
        y: Vector,
        /// In which type it is computed.
        compute: DataType,
    }
    /// One number becomes of x and y.
    Reduce {
        /// Which.
        what: Reduction,
        /// How many elements there are.
        n: u64,
        /// The first vector.
        x: Vector,
        /// The second vector.
        y: Vector,
        /// Where the result goes.
        result: u64,
        /// The result's type.
        result_kind: DataType,
        /// In which type it is computed.
        compute: DataType,
    }
    /// `y = alpha op(A) x + beta y`, for each problem of a batch.
    MatrixVector {
        /// How A is used.
        op: Transpose,
        /// How A lies in memory.
        storage: Storage,
        /// What A is.
        structure: Structure,
        /// Which part of A is there, unless it is general.
        fill: Fill,
        /// Rows of A.
        m: u64,
        /// Columns of A.
        n: u64,
        /// Diagonals below the main one, of a band.
        lower: u64,
        /// Diagonals above the main one, of a band.
        upper: u64,
        /// The factor of the product.
        alpha: Scalar,
        /// A.
        a: Matrix,
        /// x.
        x: Vector,
        /// The factor of what y was; where it is a zero, y is not read.
        beta: Scalar,
        /// y.
        y: Vector,
        /// The type of the factors where they lie in device memory.
        scalar: DataType,
        /// In which type it is computed.
        compute: DataType,
        /// How the problems of the batch lie.
        batch: Batch,
        /// How many problems there are.
        count: u64,
    }
    /// `x = op(A) x`, or the x with `op(A) x` = what x was, where A is triangular.
    TriangularVector {
        /// Whether the equation is solved.
        solve: bool,
        /// How A is used.
        op: Transpose,
        /// How A lies in memory.
        storage: Storage,
        /// Which part of A is there.
        fill: Fill,
        /// Whether the diagonal is taken to be ones.
        unit: bool,
        /// Rows of A.
        n: u64,
        /// Diagonals of a band beside the main one.
        diagonals: u64,
        /// A.
        a: Matrix,
        /// x.
        x: Vector,
        /// In which type it is computed.
        compute: DataType,
    }
    /// `A = alpha x y' + A`, and for the second form `A = alpha x y' + conj(alpha) y x' + A`.
    RankUpdate {
        /// What A is, and whether y is conjugated with it.
        structure: Structure,
        /// Whether y is conjugated although A is general.
        conjugated: bool,
        /// Whether it is the second form.
        twice: bool,
        /// How A lies in memory.
        storage: Storage,
        /// Which part of A is there, unless it is general.
        fill: Fill,
        /// Rows of A.
        m: u64,
        /// Columns of A.
        n: u64,
        /// The factor.
        alpha: Scalar,
        /// x.
        x: Vector,
        /// y.
        y: Vector,
        /// A.
        a: Matrix,
        /// The type of the factor where it lies in device memory.
        scalar: DataType,
        /// In which type it is computed.
        compute: DataType,
    }
}
