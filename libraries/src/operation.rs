//! The table of operations.

use rgpu_wire::{DecodeError, Result, Wire, from_bytes, to_bytes};

/// The arguments of one operation.
pub trait Arguments: Wire {
    /// The operation's number.
    const NUMBER: u32;

    /// Number and arguments, as a device gets them.
    fn written(&self) -> (u32, Vec<u8>) {
        (Self::NUMBER, to_bytes(self))
    }
}

/// Invokes a macro with the table of operations: number and record, in the order of the numbers.
#[macro_export]
macro_rules! for_each_operation {
    ($then:ident) => {
        $then! {
            1 Gemm;
            2 Combine;
            3 Reduce;
            4 MatrixVector;
            5 TriangularVector;
            6 RankUpdate;
            7 SymmetricProduct;
            8 RankK;
            9 Triangular;
            10 AddMatrices;
            11 ScaleMatrix;
            12 Factors;
            13 Matmul;
            100 Fft;
            200 Random;
            300 Cholesky;
            301 Lu;
            302 Qr;
            303 HermitianEigen;
            304 Svd;
            305 Indefinite;
            306 Eigen;
            307 LargestSvd;
            308 Bidiagonal;
            309 LeastSquares;
            310 QrBatch;
            311 PackTriangle;
            400 SparseProduct;
            401 SampledProduct;
            402 SparseToDense;
            403 DenseCount;
            404 DenseToSparse;
            405 SparseConvert;
            406 SparseSort;
            407 Iota;
            408 SparseVectors;
            409 SparseSum;
            410 SparseMultiply;
            411 SparseCompress;
            412 SparseSolve;
            413 SparseIncomplete;
            414 SparseSystem;
            415 BlockProduct;
            416 BlockSolve;
            417 BlockIncomplete;
            418 BandSolve;
            419 DenseLines;
            500 DnnGraph;
            501 DnnRecurrent;
            502 DnnCtc;
            503 DnnSpatial;
        }
    };
}

macro_rules! define {
    ($($number:literal $record:ident;)*) => {
        /// An operation with its arguments.
        #[allow(clippy::large_enum_variant, reason = "one is read at a time, and soon taken apart")]
        #[derive(Debug, Clone, PartialEq)]
        pub enum Operation {
            $(#[doc = concat!("See [`", stringify!($record), "`](crate::", stringify!($record), ").")]
            $record(crate::$record),)*
        }

        $(impl Arguments for crate::$record {
            const NUMBER: u32 = $number;
        })*

        impl Operation {
            /// The names of all operations, with their numbers.
            pub const NAMES: &[(u32, &str)] = &[$(($number, stringify!($record))),*];

            /// Reads the arguments of the operation of this number.
            ///
            /// # Errors
            /// There is no such operation, or the bytes are not its arguments.
            pub fn read(number: u32, params: &[u8]) -> Result<Self> {
                match number {
                    $($number => Ok(Self::$record(from_bytes(params)?)),)*
                    _ => Err(DecodeError::Unknown { what: "operation of a library", value: number.into() }),
                }
            }

            /// Number and arguments, as [`Operation::read`] takes them.
            pub fn written(&self) -> (u32, Vec<u8>) {
                match self {
                    $(Self::$record(arguments) => arguments.written(),)*
                }
            }
        }
    };
}
for_each_operation!(define);
