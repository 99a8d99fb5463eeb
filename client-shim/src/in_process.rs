//! The one exported name that is not NVIDIA's: the switch for those who load this library as "the driver".

use crate::core::error::guard_driver;
use crate::core::process;

/// Makes this library a complete driver of its own: from here on, its CUDA calls are executed by a software GPU in
/// the calling process, whatever `RGPU_SERVER`, `RGPU_IN_PROCESS` and other variables of ours were inherited.
///
/// ```c
/// unsigned rgpu_use_in_process(void);
/// ```
///
/// To be called after loading the library and before its first CUDA call; again is fine. Returns 0, or the `CUresult`
/// that says why not: `CUDA_ERROR_ILLEGAL_STATE` where calls go to a server already,
/// `CUDA_ERROR_NOT_SUPPORTED` where the library was built without the software GPU (the Cargo feature `in-process`),
/// `CUDA_ERROR_NOT_INITIALIZED` in a child forked after the first CUDA call, `CUDA_ERROR_DEINITIALIZED` when the process
/// is ending. Creates nothing: the software GPU comes to life with the first CUDA call, `cuInit` for instance.
///
/// That the name exists in a library called `libcuda.so.1` also tells that it is this one and not NVIDIA's.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn rgpu_use_in_process() -> u32 {
    guard_driver("rgpu_use_in_process", process::use_in_process)
}
