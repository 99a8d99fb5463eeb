//! Launching kernels.

use std::ffi::c_void;

use super::error::{Result, not_implemented};
use super::module::Function;
use super::process::Core;
use super::stream::Stream;

/// How a kernel is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
    /// Whether all blocks must be able to wait for each other.
    pub cooperative: bool,
}

/// A kernel's arguments, as programs pass them.
#[derive(Debug, Clone, Copy)]
pub enum Params {
    /// An array of pointers to the arguments (`void **args`); null is fine for kernels without any.
    Pointers(*const *const c_void),
    /// The driver's `extra` array: pairs of a tag and a pointer.
    Extra(*const *const c_void),
}

impl Core {
    /// Enqueues a kernel. Impossible configurations are [`super::Code::InvalidConfiguration`] and its like, at once.
    ///
    /// # Safety
    /// `params` must be as the kernel's signature demands, as for `cudaLaunchKernel`.
    pub unsafe fn launch(
        &self,
        function: &Function,
        stream: &Stream,
        config: &Config,
        params: Params,
    ) -> Result<()> {
        let _ = (function, stream, config, params);
        Err(not_implemented("launch"))
    }
}
