//! What nvcc's start-up code registers: fat binaries, and which host address stands for which kernel or variable.
//!
//! Registration only remembers; nothing of CUDA comes to life by it.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use super::context::Context;
use super::error::{Result, not_implemented};
use super::module::{Function, Kernel};
use super::process::Core;

/// `__cudaRegisterFatBinary`: the result is what the other registrations pass.
///
/// # Safety
/// `wrapper` must be what nvcc's code passes.
pub unsafe fn register(wrapper: *const c_void) -> *mut *mut c_void {
    let _ = wrapper;
    std::ptr::null_mut()
}

/// `__cudaRegisterFunction`.
///
/// # Safety
/// `name` must be a C string.
pub unsafe fn register_function(handle: *mut *mut c_void, host: *const c_void, name: *const c_char) {
    let _ = (handle, host, name);
}

/// `__cudaRegisterVar`, for `__device__` and `__constant__` variables.
///
/// # Safety
/// `name` must be a C string.
pub unsafe fn register_variable(
    handle: *mut *mut c_void,
    host: *const c_void,
    name: *const c_char,
    size: u64,
) {
    let _ = (handle, host, name, size);
}

/// `__cudaRegisterManagedVar`: `host` is where the program keeps the variable's address.
///
/// # Safety
/// `name` must be a C string, `host` the program's pointer, valid until it unregisters.
pub unsafe fn register_managed(
    handle: *mut *mut c_void,
    host: *mut *mut c_void,
    name: *const c_char,
    size: u64,
) {
    let _ = (handle, host, name, size);
}

/// `__cudaUnregisterFatBinary`.
pub fn unregister(handle: *mut *mut c_void) {
    let _ = handle;
}

impl Core {
    /// `__cudaInitModule`: brings the managed variables of a registered fat binary to life.
    pub fn init_module(&self, handle: *mut *mut c_void) -> Result<()> {
        let _ = handle;
        Err(not_implemented("init_module"))
    }

    /// The function that a host address stands for, loaded in `context`. Addresses nobody registered are
    /// [`super::Code::InvalidDeviceFunction`]. A `cudaKernel_t` or `cudaFunction_t` passed in its place is fine.
    pub fn function_for(&self, context: &Arc<Context>, host: *const c_void) -> Result<Arc<Function>> {
        let _ = (context, host);
        Err(not_implemented("function_for"))
    }

    /// The kernel that a host address stands for (`cudaGetKernel`).
    pub fn kernel_for(&self, host: *const c_void) -> Result<Arc<Kernel>> {
        let _ = host;
        Err(not_implemented("kernel_for"))
    }

    /// Address and size of the variable that a host address stands for; [`super::Code::InvalidSymbol`] for others.
    pub fn symbol_for(&self, context: &Arc<Context>, host: *const c_void) -> Result<(u64, u64)> {
        let _ = (context, host);
        Err(not_implemented("symbol_for"))
    }
}
