//! Operations on matrices beyond their plain product.

use rgpu_wire::records;

use super::{Batch, Fill, Matrix, Side, Structure, Vector};
use crate::types::{DataType, Scalar, Transpose, numbered};

numbered! {
    /// What is done with matrices that have been, or are to be, factored into triangles.
    Factoring, "work with factors" {
        /// A becomes its factors.
        #[default]
        Factor = 0,
        /// B becomes the inverse of the matrix whose factors A has.
        Invert = 1,
        /// B becomes the solution of `op(A) X = B`, where A has the factors.
        Solve = 2,
        /// B becomes the inverse of A, which stays as it is.
        InvertDirectly = 3,
    }
    /// Which products a [`RankK`] is made of.
    Pairing, "form of an update" {
        /// `A A'`.
        #[default]
        Own = 0,
        /// `A B' + B A'`.
        Both = 1,
        /// `A B'`, of which the program knows that it has the structure.
        One = 2,
    }
    /// What is done to each element of a product before it is stored.
    Activation, "activation" {
        /// Nothing.
        #[default]
        None = 0,
        /// What is negative becomes zero.
        Relu = 1,
        /// The Gaussian error linear unit, in its form with tanh.
        Gelu = 2,
        /// It is multiplied by what `Relu` kept: a bit for each element.
        ReluGradient = 3,
        /// It is multiplied by the derivative of `Gelu` at the number that was kept.
        GeluGradient = 4,
    }
    /// Along what a sum of gradients is made.
    BiasGradient, "gradient of a bias" {
        /// There is none.
        #[default]
        None = 0,
        /// Over the columns of the result, one number for each row.
        OfResult = 1,
        /// Over the columns of op(A), one number for each row.
        OfA = 2,
        /// Over the rows of op(B), one number for each column.
        OfB = 3,
    }
}

records! {
    /// `C = alpha A B + beta C`, or `alpha B A` where A stands on the right, with a symmetric or Hermitian A.
    SymmetricProduct {
        /// Where A stands.
        side: Side,
        /// What A is.
        structure: Structure,
        /// Which part of A is there.
        fill: Fill,
        /// Rows of C.
        m: u64,
        /// Columns of C.
        n: u64,
        /// The factor of the product.
        alpha: Scalar,
        /// A.
        a: Matrix,
        /// B.
        b: Matrix,
        /// The factor of what C was; where it is a zero, C is not read.
        beta: Scalar,
        /// C.
        c: Matrix,
        /// In which type it is computed.
        compute: DataType,
    }
    /// A part of `C = alpha op(A) op(A)' + beta C`, or of a form with B.
    RankK {
        /// What C is: the products' right factors are transposed, or conjugated as well.
        structure: Structure,
        /// Which products.
        pairing: Pairing,
        /// Which part of C is there.
        fill: Fill,
        /// How A and B are used.
        op: Transpose,
        /// Rows of C.
        n: u64,
        /// Columns of op(A).
        k: u64,
        /// The factor of the products.
        alpha: Scalar,
        /// A.
        a: Matrix,
        /// B, unless it is A.
        b: Matrix,
        /// The factor of what C was; where it is a zero, C is not read.
        beta: Scalar,
        /// C.
        c: Matrix,
        /// The type of alpha where it lies in device memory.
        alpha_kind: DataType,
        /// The type of beta where it lies in device memory.
        beta_kind: DataType,
        /// In which type it is computed.
        compute: DataType,
    }
    /// `C = alpha op(A) B` or `alpha B op(A)` with a triangular A; or the X with `op(A) X = alpha B` or `X op(A) = alpha B`.
    Triangular {
        /// Whether the equation is solved.
        solve: bool,
        /// Where A stands.
        side: Side,
        /// Which part of A is there.
        fill: Fill,
        /// How A is used.
        op: Transpose,
        /// Whether the diagonal is taken to be ones.
        unit: bool,
        /// Rows of B.
        m: u64,
        /// Columns of B.
        n: u64,
        /// The factor.
        alpha: Scalar,
        /// A.
        a: Matrix,
        /// B.
        b: Matrix,
        /// Where the result goes, which may be B.
        c: Matrix,
        /// In which type it is computed.
        compute: DataType,
        /// How the problems of the batch lie.
        batch: Batch,
        /// How many problems there are.
        count: u64,
    }
    /// `C = alpha op(A) + beta op(B)`, for each problem of a batch.
    AddMatrices {
        /// How A is used.
        op_a: Transpose,
        /// How B is used.
        op_b: Transpose,
        /// Rows of C.
        m: u64,
        /// Columns of C.
        n: u64,
        /// The factor of A; where it is a zero, A is not read.
        alpha: Scalar,
        /// A.
        a: Matrix,
        /// The factor of B; where it is a zero, B is not read.
        beta: Scalar,
        /// B.
        b: Matrix,
        /// C.
        c: Matrix,
        /// The type of the factors where they lie in device memory.
        scalar: DataType,
        /// In which type it is computed.
        compute: DataType,
        /// How many problems there are.
        count: u64,
    }
    /// `C = diag(x) A`, or `A diag(x)` where x stands on the right.
    ScaleMatrix {
        /// Where x stands.
        side: Side,
        /// Rows of A.
        m: u64,
        /// Columns of A.
        n: u64,
        /// A.
        a: Matrix,
        /// x.
        x: Vector,
        /// C.
        c: Matrix,
        /// In which type it is computed.
        compute: DataType,
    }
    /// Square matrices and their triangular factors, many small ones at once, whose addresses stand in arrays of pointers.
    Factors {
        /// What is done.
        what: Factoring,
        /// How A is used, where an equation is solved.
        op: Transpose,
        /// Rows of each A.
        n: u64,
        /// Columns of each B.
        columns: u64,
        /// A.
        a: Matrix,
        /// Which rows were exchanged, as 32-bit numbers counted from 1, `n` for each problem; or 0 where none are.
        pivots: u64,
        /// B.
        b: Matrix,
        /// Where a 32-bit number for each problem says whether it went well, or 0.
        info: u64,
        /// In which type it is computed.
        compute: DataType,
        /// How many problems there are.
        count: u64,
    }
    /// `D = f(alpha op(A) op(B) + beta C + bias)`, for each problem of a batch.
    Matmul {
        /// How A is used.
        op_a: Transpose,
        /// How B is used.
        op_b: Transpose,
        /// Rows of D.
        m: u64,
        /// Columns of D.
        n: u64,
        /// Columns of op(A).
        k: u64,
        /// The factor of the product.
        alpha: Scalar,
        /// A number for each row of D in device memory, instead of alpha; or 0.
        alpha_vector: u64,
        /// A.
        a: Matrix,
        /// B.
        b: Matrix,
        /// The factor of C; where it is a zero, C is not read.
        beta: Scalar,
        /// C.
        c: Matrix,
        /// D, which may be C.
        d: Matrix,
        /// The type of the factors where they lie in device memory.
        scalar: DataType,
        /// In which type products are summed up.
        compute: DataType,
        /// What is added: a number for each row of D (or, with `by_column`, for each column). Its address is 0 where nothing is.
        bias: Vector,
        /// Whether bias, alpha's vector and gradients go along the columns instead of the rows.
        by_column: bool,
        /// f.
        activation: Activation,
        /// What f keeps, or has kept, of each element; its address is 0 where it keeps nothing.
        kept: Matrix,
        /// Which sum is stored where the bias's address says, instead of a bias.
        gradient: BiasGradient,
        /// How many problems there are.
        count: u64,
    }
}
