//! The NVML door: nvml*.
//!
//! Nothing is behind it yet. A program that asks for NVML is told so by its first call, which is what
//! programs are prepared for, instead of not finding the names.

use std::ffi::{c_char, c_int, c_uint};

const UNINITIALIZED: c_int = 1;
const NOT_SUPPORTED: c_int = 3;

fn refuse(name: &str) -> c_int {
    crate::core::error::log(&format!("{name}: NVML is not supported"));
    NOT_SUPPORTED
}

/// `nvmlInit`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit() -> c_int {
    refuse("nvmlInit")
}

/// `nvmlInit_v2`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> c_int {
    refuse("nvmlInit_v2")
}

/// `nvmlInitWithFlags`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> c_int {
    refuse("nvmlInitWithFlags")
}

/// `nvmlShutdown`: nothing was ever initialised.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> c_int {
    UNINITIALIZED
}

/// `nvmlErrorString`.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(result: c_int) -> *const c_char {
    let text = match result {
        0 => c"Success",
        UNINITIALIZED => c"Uninitialized",
        NOT_SUPPORTED => c"Not Supported",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}
