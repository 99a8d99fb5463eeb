//! Entry points by name and version.

use std::ffi::c_void;

use super::table;
use crate::abi::{CStrArg, Out, c_functions};
use crate::core::error::{Code, Error, Result, guard_driver};

/// Answers `cuGetProcAddress`, and `cudaGetDriverEntryPoint` as well. Of the flags, 1 asks for the ordinary variants,
/// 2 for those for per-thread default streams, and 0 for those that the caller was compiled for.
pub(crate) fn proc_address(
    symbol: &CStrArg,
    function: Out<*mut c_void>,
    version: i32,
    flags: u64,
    status: Out<u32>,
    default_per_thread: bool,
) -> Result<()> {
    let name = symbol.text()?;
    if function.is_null() || version < 0 || flags > 2 {
        return Err(Error::new(Code::InvalidValue, "an argument of cuGetProcAddress is out of range"));
    }
    let per_thread = flags == 2 || (flags == 0 && default_per_thread);
    match table::find(name, version as u32, per_thread) {
        Ok(address) => {
            status.set_if_wanted(0);
            function.set(address.0 as *mut c_void)
        }
        Err(known) => {
            status.set_if_wanted(if known { 2 } else { 1 });
            function.set(std::ptr::null_mut())?;
            Err(Error::new(Code::NotFound, format!("there is no entry point {name:?} of version {version}")))
        }
    }
}

c_functions! {
    /// `cuGetProcAddress` of CUDA 11.3.
    fn cuGetProcAddress(symbol: CStrArg, function: Out<*mut c_void>, version: i32, flags: u64) -> u32 {
        guard_driver("cuGetProcAddress", || {
            proc_address(&symbol, function, version, flags, Out::unwanted(), false)
        })
    }

    /// `cuGetProcAddress` of CUDA 12.0.
    fn cuGetProcAddress_v2(
        symbol: CStrArg, function: Out<*mut c_void>, version: i32, flags: u64, status: Out<u32>,
    ) -> u32 {
        guard_driver("cuGetProcAddress", || proc_address(&symbol, function, version, flags, status, false))
    }

    /// As `cuGetProcAddress_v2`, from programs compiled for per-thread default streams.
    fn cuGetProcAddress_v2_ptsz(
        symbol: CStrArg, function: Out<*mut c_void>, version: i32, flags: u64, status: Out<u32>,
    ) -> u32 {
        guard_driver("cuGetProcAddress", || proc_address(&symbol, function, version, flags, status, true))
    }
}
