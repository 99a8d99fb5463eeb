//! `cudaGetDriverEntryPoint`: the driver door's functions by name.

use std::ffi::{c_char, c_uint};
use std::sync::atomic::Ordering;

use super::abi::{In, Out, api};
use super::version::{RUNTIME_VERSION, RUNTIME_VERSION_12};
use crate::core::{Code, Error, Result};

/// Asks the driver door for a function, as a program compiled for `version` would call it.
fn look_up(
    symbol: In<c_char>,
    function: Out<usize>,
    version: u32,
    flags: u64,
    status: Out<c_uint>,
    pt: bool,
) -> Result<()> {
    let (symbol, function, status) = (symbol.0, function.0.cast(), status.0.cast());
    let ask = if pt { crate::driver::cuGetProcAddress_v2_ptsz } else { crate::driver::cuGetProcAddress_v2 };
    // SAFETY: the arguments are the program's, which owes them to both functions alike.
    match unsafe { ask(symbol, function, version as i32, flags, status) } {
        0 => Ok(()),
        code => Err(Error::new(Code::from_number(code), "the driver has no such function")),
    }
}

api! {
    /// `cudaGetDriverEntryPoint` of 13.x
    fn get<const PT> as "cudaGetDriverEntryPoint" (
        symbol: In<c_char>, function: Out<usize>, flags: u64, status: Out<c_uint>,
    ) {
        look_up(symbol, function, RUNTIME_VERSION.load(Ordering::Relaxed), flags, status, PT)
    }

    /// `cudaGetDriverEntryPoint` of 12.x
    fn get_12<const PT> as "cudaGetDriverEntryPoint" (
        symbol: In<c_char>, function: Out<usize>, flags: u64, status: Out<c_uint>,
    ) {
        look_up(symbol, function, RUNTIME_VERSION_12.load(Ordering::Relaxed), flags, status, PT)
    }

    /// `cudaGetDriverEntryPointByVersion`
    fn get_by_version<const PT> as "cudaGetDriverEntryPointByVersion" (
        symbol: In<c_char>, function: Out<usize>, version: c_uint, flags: u64, status: Out<c_uint>,
    ) {
        look_up(symbol, function, version, flags, status, PT)
    }
}
