//! Which version of the CUDA runtime a program believes to be talking to.

use std::sync::atomic::AtomicU32;

/// The version that `cudaRuntimeGetVersion` reports to programs of a 13.x runtime. The loader sets it from
/// the program's own copy of the function when it redirects a statically linked runtime.
pub(crate) static RUNTIME_VERSION: AtomicU32 = AtomicU32::new(13000);

/// The same for 12.x runtimes.
pub(crate) static RUNTIME_VERSION_12: AtomicU32 = AtomicU32::new(12090);
