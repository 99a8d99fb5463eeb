//! The cuSPARSE door: sparse matrices with dense ones. Handles and descriptors live here; a call is one posted operation that says where all
//! of a matrix's parts are. Buffers are not needed, but for the eight bytes in which [`convert`] counts.

#![allow(non_snake_case)]

mod bands;
mod blocks;
mod convert;
mod descriptors;
mod handle;
mod legacy;
mod matrices;
mod product;
mod solve;
mod sum;
mod table;
mod vectors;

use rgpu_libraries::{DataType, Library, Transpose};

use super::Door;
use super::math::{Kind, Names, Result, invalid, missing};
use crate::doors::table::Address;

/// The door.
pub(super) const DOOR: Door = Door {
    name: "cusparse",
    table: table::TABLE,
    prefixes: &["cusparse"],
    row_name: |function| function,
    kept: &["cusparseGetProperty", "cusparseGetErrorName", "cusparseGetErrorString"],
    unknown: Address(unknown as *const ()),
};

extern "C" fn unknown() -> u32 {
    refuse("A function of cuSPARSE that is not known here")
}

/// The library.
static CUSPARSE: Names = Names { library: Library::Sparse, number };

/// `cusparseStatus_t`.
fn number(kind: Kind) -> u32 {
    match kind {
        Kind::NotInitialized | Kind::InvalidHandle => 1,
        Kind::OutOfMemory => 2,
        Kind::InvalidValue | Kind::InvalidSize => 3,
        Kind::Execution => 6,
        Kind::Internal => 7,
        Kind::InvalidType => 8,
        Kind::ZeroPivot => 9,
        Kind::NotSupported => 10,
    }
}

/// Functions that differ in nothing but the type of their elements, `KIND`: for each group the names with the types, the
/// arguments, and the body.
macro_rules! typed {
    ($([$($name:ident => $kind:ident),*] $args:tt $body:block)*) => {
        $crate::libraries::math::math! {
            $crate::libraries::cusparse::CUSPARSE;
            $($(
                fn $name $args {
                    const KIND: rgpu_libraries::DataType = rgpu_libraries::DataType::$kind;
                    $body
                }
            )*)*
        }
    };
}
use typed;

/// What a function answers that exists and is not implemented.
fn refuse(symbol: &'static str) -> u32 {
    CUSPARSE.refuse(symbol)
}

/// A type that is computed with, by `cudaDataType`.
fn kind_of(number: u32) -> Result<DataType> {
    use DataType::{C32, C64, F32, F64};
    match DataType::from_number(number) {
        Some(kind @ (F32 | F64 | C32 | C64)) => Ok(kind),
        _ => missing(&format!("cuSPARSE: matrices of cudaDataType {number}")),
    }
}

/// A count that is not negative.
fn count(n: i64) -> Result<u64> {
    u64::try_from(n).or_else(|_| invalid(format!("A size of {n}")))
}

/// How a matrix is used, by `cusparseOperation_t`.
fn op(number: u32) -> Result<Transpose> {
    match number {
        0 => Ok(Transpose::None),
        1 => Ok(Transpose::Transposed),
        2 => Ok(Transpose::Adjoint),
        other => invalid(format!("There is no cusparseOperation_t {other}")),
    }
}

/// Whether indices have 64 bits, by `cusparseIndexType_t`.
fn wide(number: u32) -> Result<bool> {
    match number {
        2 => Ok(false),
        3 => Ok(true),
        1 => missing("cuSPARSE: indices of 16 bits"),
        other => invalid(format!("There is no cusparseIndexType_t {other}")),
    }
}

/// What the places of a described matrix begin with.
pub(super) fn index_base(description: usize) -> Result<u32> {
    Ok(handle::description(description)?.base)
}

/// What places begin with, by `cusparseIndexBase_t`.
fn base(number: u32) -> Result<u32> {
    if number > 1 { invalid(format!("There is no cusparseIndexBase_t {number}")) } else { Ok(number) }
}
