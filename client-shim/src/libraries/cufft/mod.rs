//! The cuFFT door. Plans live here; an execution is one posted operation, so plans cost no round trip and can be executed in
//! captured streams. Work areas are not needed, so their sizes are 0.

#![allow(non_snake_case)]

mod exec;
mod make;
mod plan;
mod table;

use rgpu_libraries::Library;

use super::Door;
use super::math::{Kind, Names};
use crate::doors::table::Address;

/// The door.
pub(super) const DOOR: Door = Door {
    name: "cufft",
    table: table::TABLE,
    prefixes: &["cufft"],
    row_name: |function| function,
    kept: &["cufftGetVersion", "cufftGetProperty"],
    unknown: Address(unknown as *const ()),
};

extern "C" fn unknown() -> u32 {
    refuse("A function of cuFFT that is not known here")
}

/// The library.
static CUFFT: Names = Names { library: Library::Fft, number };

/// `cufftResult`.
fn number(kind: Kind) -> u32 {
    match kind {
        Kind::InvalidHandle => 1,
        Kind::OutOfMemory => 2,
        Kind::InvalidType => 3,
        Kind::InvalidValue => 4,
        Kind::Internal => 5,
        Kind::Execution | Kind::ZeroPivot => 6,
        Kind::NotInitialized => 7,
        Kind::InvalidSize => 8,
        Kind::NotSupported => 16,
    }
}

/// What a function answers that exists and is not implemented.
fn refuse(symbol: &'static str) -> u32 {
    CUFFT.refuse(symbol)
}
