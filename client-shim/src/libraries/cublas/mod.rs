//! The cuBLAS door: products of matrices, and everything else of linear algebra's basics.
//!
//! Handles and their settings live here. A call checks its arguments as cuBLAS does, says what is to be computed in one
//! [operation](rgpu_libraries) and posts it, as a launch is posted; what it is computed by is the device's affair. Factors that
//! the program keeps in its own memory travel with the operation. A result that the program wants in its own memory is computed
//! into a scratch of the handle's, and fetched: that alone waits.

#![allow(non_snake_case)]

/// Defines functions that take a handle. The body returns [`Result<()>`](status::Result).
macro_rules! blas {
    ($(
        $(#[$meta:meta])*
        fn $name:ident $(<$($of:ident: $bound:ident),+>)? ($($arg:ident: $type:ty),* $(,)?) |$call:ident| $body:block
    )*) => {$(
        $(#[$meta])*
        #[allow(clippy::too_many_arguments, reason = "so the call is declared")]
        pub(crate) extern "C" fn $name $(<$($of: $crate::libraries::cublas::types::$bound),+>)? (
            handle: usize, $($arg: $type),*
        ) -> u32 {
            $crate::libraries::cublas::status::guard(concat!("cuBLAS ", stringify!($name)), move || {
                let $call = &$crate::libraries::cublas::handle::enter(handle)?;
                $body
            })
        }

        #[cfg(test)]
        #[allow(non_camel_case_types)]
        pub(crate) type $name $(<$($of),+>)? = extern "C" fn(usize, $($type),*) -> u32;
        #[cfg(test)]
        const _: Option<$name $(<$(blas!(@any $of)),+>)?> = None;
    )*};
    (@any N) => { i32 };
    (@any $of:ident) => { f32 };
}

mod batches;
mod gemm;
mod gemm_ex;
pub(in crate::libraries) mod handle;
mod level1;
mod level1_ex;
mod level2;
mod level3;
mod rotations;
pub(in crate::libraries) mod settings;
mod small;
pub(in crate::libraries) mod status;
mod table;
mod transfer;
pub(in crate::libraries) mod types;

use super::Door;
use crate::doors::table::Address;

/// The door.
pub(super) const DOOR: Door = Door {
    name: "cublas",
    table: table::TABLE,
    prefixes: &["cublas"],
    row_name: |function| function,
    kept: &["cublasGetCudartVersion", "cublasGetProperty", "cublasGetStatusName", "cublasGetStatusString"],
    unknown: Address(unknown as *const ()),
};

extern "C" fn unknown() -> u32 {
    status::refuse("A function of cuBLAS that is not known here")
}
