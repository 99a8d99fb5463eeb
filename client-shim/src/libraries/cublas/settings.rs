//! Handles and their settings, and what a program asks of the library itself.

use std::ffi::{c_char, c_int, c_void};

use super::handle;
use super::status::{In, Out, Result, guard, invalid};
use crate::abi::c_functions;
use crate::core;

/// The version that the library says it has, for each version of CUDA: what it does is what these do.
pub(in crate::libraries) const VERSION: c_int = 130_100;

/// The part of a version that `libraryPropertyType` names.
pub(in crate::libraries) fn property(which: u32) -> Result<c_int> {
    match which {
        0 => Ok(VERSION / 10_000),
        1 => Ok(VERSION / 100 % 100),
        2 => Ok(VERSION % 100),
        _ => invalid(format!("{which} is no libraryPropertyType")),
    }
}

c_functions! {
    /// `cublasCreate_v2`
    fn create(handle: Out<usize>) -> u32 {
        guard("cublasCreate", move || {
            handle.check()?;
            handle.set(handle::create(core::current()?)?)
        })
    }

    /// `cublasDestroy_v2`
    fn destroy(handle: usize) -> u32 {
        guard("cublasDestroy", move || handle::destroy(handle))
    }

    /// `cublasGetProperty`
    fn get_property(which: u32, value: Out<c_int>) -> u32 {
        guard("cublasGetProperty", move || value.set(property(which)?))
    }

    /// `cublasGetCudartVersion`
    fn get_cudart_version() -> usize {
        crate::doors::CUDA_VERSION as usize
    }

    /// `cublasLoggerConfigure`: nothing is logged but by RGPU_LOG.
    fn logger_configure(_on: c_int, _to_stdout: c_int, _to_stderr: c_int, _file: *const c_char) -> u32 {
        0
    }

    /// `cublasSetLoggerCallback`: it is never called.
    fn set_logger_callback(_callback: *const c_void) -> u32 {
        0
    }

    /// `cublasGetLoggerCallback`
    fn get_logger_callback(callback: Out<*const c_void>) -> u32 {
        guard("cublasGetLoggerCallback", move || callback.set(std::ptr::null()))
    }

    /// `cublasXerbla`: says which argument of which function is wrong.
    fn xerbla(name: In<c_char>, info: c_int) -> () {
        crate::core::error::guard_value((), move || {
            if !name.is_null() {
                // SAFETY: the program passes a C string.
                let name = unsafe { std::ffi::CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
                crate::core::error::say(&format!("On entry to {name} parameter number {info} had an illegal value"));
            }
        });
    }
}

blas! {
    /// `cublasGetVersion_v2`
    fn get_version(version: Out<c_int>) |_call| {
        version.set(VERSION)
    }

    /// `cublasSetWorkspace_v2`: nothing here needs one.
    fn set_workspace(workspace: *mut c_void, _bytes: usize) |_call| {
        if !(workspace as usize).is_multiple_of(256) {
            return invalid("a workspace that is not aligned to 256 bytes");
        }
        Ok(())
    }

    /// `cublasSetStream_v2`
    fn set_stream(stream: usize) |call| {
        let object = call.core.stream(&call.handle.context, stream, false)?;
        if object.ordinal != call.handle.context.ordinal {
            return invalid("the stream is on another device than the handle");
        }
        call.handle.settings.lock().stream = (stream, object);
        Ok(())
    }

    /// `cublasGetStream_v2`
    fn get_stream(stream: Out<usize>) |call| {
        stream.set(call.handle.settings.lock().stream.0)
    }

    /// `cublasSetPointerMode_v2`
    fn set_pointer_mode(mode: u32) |call| {
        if mode > 1 {
            return invalid(format!("{mode} is no cublasPointerMode_t"));
        }
        call.handle.settings.lock().pointer_mode = mode;
        Ok(())
    }

    /// `cublasGetPointerMode_v2`
    fn get_pointer_mode(mode: Out<u32>) |call| {
        mode.set(call.handle.settings.lock().pointer_mode)
    }

    /// `cublasSetAtomicsMode`
    fn set_atomics_mode(mode: u32) |call| {
        if mode > 1 {
            return invalid(format!("{mode} is no cublasAtomicsMode_t"));
        }
        call.handle.settings.lock().atomics_mode = mode;
        Ok(())
    }

    /// `cublasGetAtomicsMode`
    fn get_atomics_mode(mode: Out<u32>) |call| {
        mode.set(call.handle.settings.lock().atomics_mode)
    }

    /// `cublasSetMathMode`: a hint of what may be less precise.
    fn set_math_mode(mode: u32) |call| {
        if mode & 0xf > 8 || mode >> 5 != 0 {
            return invalid(format!("{mode} is no cublasMath_t"));
        }
        call.handle.settings.lock().math_mode = mode;
        Ok(())
    }

    /// `cublasGetMathMode`
    fn get_math_mode(mode: Out<u32>) |call| {
        mode.set(call.handle.settings.lock().math_mode)
    }

    /// `cublasSetSmCountTarget`: a hint.
    fn set_multiprocessors(count: c_int) |call| {
        if count < 0 {
            return invalid(format!("{count} multiprocessors"));
        }
        call.handle.settings.lock().multiprocessors = count;
        Ok(())
    }

    /// `cublasGetSmCountTarget`
    fn get_multiprocessors(count: Out<c_int>) |call| {
        count.set(call.handle.settings.lock().multiprocessors)
    }

    /// `cublasSetEmulationStrategy`: nothing is emulated with less precision.
    fn set_emulation(strategy: u32) |call| {
        if strategy > 2 {
            return invalid(format!("{strategy} is no cublasEmulationStrategy_t"));
        }
        call.handle.settings.lock().emulation = strategy;
        Ok(())
    }

    /// `cublasGetEmulationStrategy`
    fn get_emulation(strategy: Out<u32>) |call| {
        strategy.set(call.handle.settings.lock().emulation)
    }
}
