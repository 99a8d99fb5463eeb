//! What the runtime says of errors.

use std::ffi::{c_char, c_int};

use crate::abi::{c_functions, errors};
use crate::core::error;

c_functions! {
    /// `cudaGetErrorName`
    fn get_error_name(error: c_int) -> *const c_char {
        errors::runtime_name(error).as_ptr()
    }

    /// `cudaGetErrorString`
    fn get_error_string(error: c_int) -> *const c_char {
        errors::text(error).as_ptr()
    }

    /// `cudaGetLastError`: the thread's own. What an earlier kernel did is told by the calls that find it out, and by nothing here.
    fn get_last_error() -> c_int {
        error::take_own_last() as c_int
    }

    /// `cudaPeekAtLastError`
    fn peek_at_last_error() -> c_int {
        error::last() as c_int
    }
}
