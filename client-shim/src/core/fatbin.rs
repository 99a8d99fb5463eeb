//! What nvcc's start-up code calls for fat binaries: registering them, and taking that back.

use std::ffi::c_void;

pub(crate) use super::registration::{register, register_function, register_managed, register_variable};

use super::error::log;
use super::process::existing;
use super::registration;

/// `__cudaUnregisterFatBinary`: unloads what was loaded of it.
pub(crate) fn unregister(handle: *mut *mut c_void) {
    let binary = handle as usize;
    registration::forget(binary);
    if let Some(core) = existing()
        && let Err(error) = core.libraries.unload_registered(binary)
    {
        log(&format!("unloading a fat binary: {error}"));
    }
}
