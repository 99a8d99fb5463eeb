//! The cuSOLVER door: dense factorisations. Handles and parameters live here; a call is one posted operation, whose result says for itself
//! in `devInfo` whether it went well. Work areas are not needed, so they are as small as programs take them.

#![allow(non_snake_case)]

mod eigen;
mod factor;
mod handle;
mod more;
mod qr;
mod refined;
mod sparse;
mod table;
mod x;

use rgpu_libraries::{DataType, Library, Matrix, Transpose};

use super::Door;
use super::math::{Kind, Names, Result, invalid, missing};
use crate::doors::table::Address;

/// The door.
pub(super) const DOOR: Door = Door {
    name: "cusolver",
    table: table::TABLE,
    prefixes: &["cusolver"],
    row_name: |function| function,
    kept: &["cusolverGetVersion", "cusolverGetProperty"],
    unknown: Address(unknown as *const ()),
};

extern "C" fn unknown() -> u32 {
    refuse("A function of cuSOLVER that is not known here")
}

/// The library.
static CUSOLVER: Names = Names { library: Library::Solver, number };

/// `cusolverStatus_t`.
fn number(kind: Kind) -> u32 {
    match kind {
        Kind::NotInitialized | Kind::InvalidHandle => 1,
        Kind::OutOfMemory => 2,
        Kind::InvalidValue | Kind::InvalidSize => 3,
        Kind::Execution | Kind::ZeroPivot => 6,
        Kind::Internal => 7,
        Kind::InvalidType => 8,
        Kind::NotSupported => 9,
    }
}

/// What a function answers that exists and is not implemented.
fn refuse(symbol: &'static str) -> u32 {
    CUSOLVER.refuse(symbol)
}

/// Functions that differ in nothing but the type of their elements, `KIND`: for each group the names with the types, the
/// arguments, and the body.
macro_rules! typed {
    ($([$($name:ident => $kind:ident),*] $args:tt $body:block)*) => {
        $crate::libraries::math::math! {
            $crate::libraries::cusolver::CUSOLVER;
            $($(
                fn $name $args {
                    #[allow(dead_code, reason = "not all bodies ask")]
                    const KIND: rgpu_libraries::DataType = rgpu_libraries::DataType::$kind;
                    $body
                }
            )*)*
        }
    };
}
use typed;

/// How much work area programs are told to bring: elements where they count those, bytes where they count these. Some take 0 for an
/// error.
const WORK: i32 = 1;

/// A count that is not negative.
fn count(n: i64) -> Result<u64> {
    u64::try_from(n).or_else(|_| invalid(format!("A size of {n}")))
}

/// A matrix of so many rows.
fn matrix(addr: usize, kind: DataType, rows: u64, ld: i64) -> Result<Matrix> {
    if ld < 1 || (ld as u64) < rows {
        return invalid(format!("A leading dimension of {ld} is less than the {rows} rows of its matrix"));
    }
    Ok(Matrix { addr: addr as u64, kind, ld: ld as u64, stride: 0 })
}

/// A type that is computed with, by `cudaDataType`.
fn kind_of(number: u32) -> Result<DataType> {
    use DataType::{C32, C64, F32, F64};
    match DataType::from_number(number) {
        Some(kind @ (F32 | F64 | C32 | C64)) => Ok(kind),
        _ => missing(&format!("cuSOLVER: matrices of cudaDataType {number}")),
    }
}

/// Whether it is the upper triangle, by `cublasFillMode_t`.
fn upper(fill: u32) -> Result<bool> {
    match fill {
        0 => Ok(false),
        1 => Ok(true),
        other => invalid(format!("There is no cublasFillMode_t {other} here")),
    }
}

/// How a matrix is used, by `cublasOperation_t`.
fn op(number: u32) -> Result<Transpose> {
    match number {
        0 => Ok(Transpose::None),
        1 => Ok(Transpose::Transposed),
        2 => Ok(Transpose::Adjoint),
        other => invalid(format!("There is no cublasOperation_t {other} here")),
    }
}

/// Whether vectors are wanted, by `cusolverEigMode_t`.
fn vectors(mode: u32) -> Result<bool> {
    match mode {
        0 => Ok(false),
        1 => Ok(true),
        other => invalid(format!("There is no cusolverEigMode_t {other}")),
    }
}
