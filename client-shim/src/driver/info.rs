//! What the driver says of itself and of errors, and what may be called before `cuInit`.

use std::ffi::{c_char, c_void};

use super::initialize;
use super::types::Uuid;
use crate::abi::{In, Out, c_functions, errors};
use crate::core::error::{Code, Error, guard_driver};
use crate::core::existing;
use crate::doors::CUDA_VERSION;
use crate::loader::obstacle::explain_obstacle;

c_functions! {
    /// `cuInit`.
    fn cuInit(flags: u32) -> u32 {
        guard_driver("cuInit", || {
            if flags != 0 {
                return Err(Error::new(Code::InvalidValue, "the flags of cuInit must be 0"));
            }
            initialize()
        })
    }

    /// `cuDriverGetVersion`: needs no `cuInit`.
    fn cuDriverGetVersion(version: Out<i32>) -> u32 {
        guard_driver("cuDriverGetVersion", || {
            let number = match existing() {
                Some(core) if core.device_count() > 0 => core.device_info(0)?.driver_version,
                _ => CUDA_VERSION,
            };
            version.set(number as i32)
        })
    }

    /// `cuGetErrorName`.
    fn cuGetErrorName(error: u32, name: Out<*const c_char>) -> u32 {
        guard_driver("cuGetErrorName", || match errors::driver_name(error) {
            Some(text) => name.set(text.as_ptr()),
            None => {
                name.set_if_wanted(std::ptr::null());
                Err(Code::InvalidValue.into())
            }
        })
    }

    /// `cuGetErrorString`.
    fn cuGetErrorString(error: u32, text: Out<*const c_char>) -> u32 {
        guard_driver("cuGetErrorString", || match errors::driver_name(error) {
            Some(_) => text.set(errors::text(error as i32).as_ptr()),
            None => {
                text.set_if_wanted(std::ptr::null());
                Err(Code::InvalidValue.into())
            }
        })
    }

    /// `cuGetExportTable`: the vendor's private tables are not imitated.
    fn cuGetExportTable(table: Out<*const c_void>, _id: In<Uuid>) -> u32 {
        guard_driver("cuGetExportTable", || {
            // NVIDIA's own runtime is asking: one that could not be redirected.
            explain_obstacle();
            table.set_if_wanted(std::ptr::null());
            Err(Error::new(Code::NotFound, "private export tables are not offered"))
        })
    }

    /// `cuProfilerStart`: there is no profiler to start.
    fn cuProfilerStart() -> u32 {
        0
    }

    /// `cuProfilerStop`.
    fn cuProfilerStop() -> u32 {
        0
    }
}
