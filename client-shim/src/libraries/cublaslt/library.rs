//! Handles, and what a program asks of the library itself.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use rgpu_libraries::Library;

use crate::abi::c_functions;
use crate::core::registry::Registry;
use crate::core::{self, Context, Core};
use crate::libraries::cublas::handle::{check_device, is_handle};
use crate::libraries::cublas::settings::{VERSION, property};
use crate::libraries::cublas::status::{Failure, Out, Result, Status, guard};

/// A handle.
struct Handle {
    raw: usize,
    context: Arc<Context>,
}

static HANDLES: LazyLock<Registry<Handle>> = LazyLock::new(|| Registry::new("cuBLASLt handle"));

/// The core, and the context of a handle, which may be one of cuBLAS's.
pub(super) fn enter(raw: usize) -> Result<(&'static Core, Arc<Context>)> {
    let core = core::current()?;
    match HANDLES.get(raw) {
        Ok(handle) => Ok((core, handle.context.clone())),
        Err(_) if is_handle(raw) => Ok((core, core.runtime_context()?)),
        Err(error) => Err(Failure { status: Status::NotInitialized, why: error.message }),
    }
}

/// How many heuristics the program wants to be kept. None is worth keeping.
static CAPACITY: AtomicUsize = AtomicUsize::new(8192);

c_functions! {
    /// `cublasLtCreate`
    fn create(handle: Out<usize>) -> u32 {
        guard("cublasLtCreate", move || {
            handle.check()?;
            let core = core::current()?;
            let context = core.runtime_context()?;
            check_device(core, &context, Library::BlasLt)?;
            handle.set(HANDLES.insert(|raw| Handle { raw, context }).raw)
        })
    }

    /// `cublasLtDestroy`
    fn destroy(handle: usize) -> u32 {
        guard("cublasLtDestroy", move || match HANDLES.remove(handle) {
            Ok(_) => Ok(()),
            Err(error) => Err(Failure { status: Status::NotInitialized, why: error.message }),
        })
    }

    /// `cublasLtGetVersion`
    fn get_version() -> usize {
        VERSION as usize
    }

    /// `cublasLtGetCudartVersion`
    fn get_cudart_version() -> usize {
        crate::doors::CUDA_VERSION as usize
    }

    /// `cublasLtGetProperty`
    fn get_property(which: u32, value: Out<c_int>) -> u32 {
        guard("cublasLtGetProperty", move || value.set(property(which)?))
    }

    /// `cublasLtHeuristicsCacheGetCapacity`
    fn cache_get_capacity(capacity: Out<usize>) -> u32 {
        guard("cublasLtHeuristicsCacheGetCapacity", move || capacity.set(CAPACITY.load(Ordering::Relaxed)))
    }

    /// `cublasLtHeuristicsCacheSetCapacity`
    fn cache_set_capacity(capacity: usize) -> u32 {
        CAPACITY.store(capacity, Ordering::Relaxed);
        0
    }

    /// `cublasLtDisableCpuInstructionsSetMask`: none is used that could be disabled.
    fn disable_instructions(_mask: u32) -> u32 {
        0
    }

    /// `cublasLtLoggerSetCallback`: it is never called.
    fn logger_set_callback(_callback: *const c_void) -> u32 {
        0
    }

    /// `cublasLtLoggerSetFile`: nothing is logged but by RGPU_LOG.
    fn logger_set_file(_file: *mut c_void) -> u32 {
        0
    }

    /// `cublasLtLoggerOpenFile`
    fn logger_open_file(_path: *const c_char) -> u32 {
        0
    }

    /// `cublasLtLoggerSetLevel`
    fn logger_set_level(_level: c_int) -> u32 {
        0
    }

    /// `cublasLtLoggerSetMask`
    fn logger_set_mask(_mask: c_int) -> u32 {
        0
    }

    /// `cublasLtLoggerForceDisable`
    fn logger_disable() -> u32 {
        0
    }
}
