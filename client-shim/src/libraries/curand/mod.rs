//! The cuRAND door, for programs on the host. A generator lives here: what it is, its seed, and how far it is in its sequence. A request is
//! one posted operation that says all of that; a host generator's numbers are made right here.

#![allow(non_snake_case)]

mod generate;
mod generator;
mod table;

use rgpu_libraries::Library;

use super::Door;
use super::math::{Kind, Names};
use crate::doors::table::Address;

/// The door.
pub(super) const DOOR: Door = Door {
    name: "curand",
    table: table::TABLE,
    prefixes: &["curand"],
    row_name: |function| function,
    kept: &["curandGetVersion", "curandGetProperty"],
    unknown: Address(unknown as *const ()),
};

extern "C" fn unknown() -> u32 {
    refuse("A function of cuRAND that is not known here")
}

/// The library.
static CURAND: Names = Names { library: Library::Rand, number };

/// `curandStatus`.
fn number(kind: Kind) -> u32 {
    match kind {
        Kind::InvalidHandle => 101,
        Kind::OutOfMemory => 102,
        Kind::InvalidType => 103,
        Kind::InvalidValue => 104,
        Kind::InvalidSize => 105,
        Kind::Execution | Kind::ZeroPivot => 201,
        Kind::NotInitialized => 203,
        Kind::NotSupported => 204,
        Kind::Internal => 999,
    }
}

/// What a function answers that exists and is not implemented.
fn refuse(symbol: &'static str) -> u32 {
    CURAND.refuse(symbol)
}
