//! What the doors have in common, beyond the types of [`crate::abi`]: the form of their tables, and what two of them do
//! in the same way.

pub(crate) mod batch;
pub(crate) mod capture;
pub(crate) mod graph;
#[cfg(test)]
mod headers;
pub(crate) mod hints;
pub(crate) mod ipc;
pub(crate) mod jit;
pub(crate) mod logs;
pub(crate) mod memory;
#[cfg(all(test, feature = "in-process"))]
mod nothing;
pub(crate) mod pool;
pub(crate) mod stream;
pub(crate) mod table;

use std::ffi::c_int;

use crate::core::{Code, Core, Result};

/// The version of CUDA whose driver is offered: 13.0.
pub(crate) const CUDA_VERSION: u32 = 13000;

/// A device number that exists.
pub(crate) fn ordinal(core: &Core, device: c_int) -> Result<u32> {
    match u32::try_from(device) {
        Ok(ordinal) if ordinal < core.device_count() => Ok(ordinal),
        _ => Err(Code::InvalidDevice.into()),
    }
}
