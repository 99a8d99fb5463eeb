//! `cudaGetDriverEntryPoint`: the driver door's functions by name.

use std::ffi::{c_uint, c_void};
use std::sync::atomic::Ordering;

use super::entry::api;
use super::version::{RUNTIME_VERSION, RUNTIME_VERSION_12};
use crate::abi::{CStrArg, Out};
use crate::core::Result;
use crate::driver::proc_address;

/// Asks the driver door for a function, as a program compiled for `version` would call it.
pub(super) fn look_up(
    symbol: CStrArg,
    function: Out<*mut c_void>,
    version: u32,
    flags: u64,
    status: Out<c_uint>,
    pt: bool,
) -> Result<()> {
    proc_address(&symbol, function, version as i32, flags, status, pt)
}

api! {
    /// `cudaGetDriverEntryPoint` of 13.x
    fn get<const PT> as "cudaGetDriverEntryPoint" (
        symbol: CStrArg, function: Out<*mut c_void>, flags: u64, status: Out<c_uint>,
    ) {
        look_up(symbol, function, RUNTIME_VERSION.load(Ordering::Relaxed), flags, status, PT)
    }

    /// `cudaGetDriverEntryPoint` of 12.x
    fn get_12<const PT> as "cudaGetDriverEntryPoint" (
        symbol: CStrArg, function: Out<*mut c_void>, flags: u64, status: Out<c_uint>,
    ) {
        look_up(symbol, function, RUNTIME_VERSION_12.load(Ordering::Relaxed), flags, status, PT)
    }

    /// `cudaGetDriverEntryPointByVersion`
    fn get_by_version<const PT> as "cudaGetDriverEntryPointByVersion" (
        symbol: CStrArg, function: Out<*mut c_void>, version: c_uint, flags: u64, status: Out<c_uint>,
    ) {
        look_up(symbol, function, version, flags, status, PT)
    }
}
