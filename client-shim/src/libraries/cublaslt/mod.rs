//! The cuBLASLt door: products of matrices whose layouts, types and epilogues are said by descriptors.
//!
//! Descriptors lie in the program's memory, as the public header has it; they, preferences and algorithms cost nothing but
//! the call. One algorithm is offered for each product that can be computed, and nobody is asked for it. A product is one
//! [operation](rgpu_libraries::Matmul), posted in its stream.

#![allow(non_snake_case)]

mod algorithm;
mod descriptors;
mod library;
mod matmul;
mod table;
mod transform;

use super::Door;
use super::cublas::status;
use crate::doors::table::Address;

/// The door.
pub(super) const DOOR: Door = Door {
    name: "cublaslt",
    table: table::TABLE,
    prefixes: &["cublasLt"],
    row_name: |function| function,
    kept: &[
        "cublasLtGetCudartVersion",
        "cublasLtGetProperty",
        "cublasLtGetStatusName",
        "cublasLtGetStatusString",
        "cublasLtGetVersion",
    ],
    unknown: Address(unknown as *const ()),
};

extern "C" fn unknown() -> u32 {
    status::refuse("A function of cuBLASLt that is not known here")
}
