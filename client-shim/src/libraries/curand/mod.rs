//! The cuRAND door, for programs on the host. A generator lives here: what it is, its seed, and how far it is in its sequence. A request is
//! one posted operation that says all of that; a host generator's numbers are made right here.

#![allow(non_snake_case)]

mod generate;
mod generator;
pub(crate) mod table;

use rgpu_libraries::Library;

use super::common::{Kind, Names};

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
        Kind::Execution => 201,
        Kind::NotInitialized => 203,
        Kind::NotSupported => 204,
        Kind::Internal => 999,
    }
}

/// What a function answers that exists and is not implemented.
fn refuse(symbol: &'static str) -> u32 {
    CURAND.refuse(symbol)
}
