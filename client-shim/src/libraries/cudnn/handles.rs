//! Handles, and what is asked of the library itself.

use std::cell::RefCell;
use std::ffi::{c_char, c_int};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rgpu_libraries::Library;

use super::{Out, Result, Status, guard};
use crate::abi::c_functions;
use crate::core::registry::Registry;
use crate::libraries::math::Names;

/// The version of cuDNN that is offered, where NVIDIA's file is not there to tell its own: 9.10.2.
const VERSION: [usize; 3] = [9, 10, 2];
/// The CUDA runtime that it belongs to.
const RUNTIME: usize = 12090;

thread_local! {
    /// Why the thread's last call that failed did.
    static LAST_ERROR: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps why a call failed, for `cudnnGetLastErrorString`.
pub(super) fn keep_error(message: String) {
    // A thread that is ending has nobody left to ask.
    let _ = LAST_ERROR.try_with(|last| *last.borrow_mut() = message);
}

/// A handle: the stream that is set.
struct Handle {
    stream: AtomicUsize,
}

static HANDLES: LazyLock<Registry<Handle>> = LazyLock::new(|| Registry::new("cuDNN handle"));

/// What is asked of the device's side.
static CUDNN: Names = Names { library: Library::Dnn, number: |_| Status::Internal as u32 };

/// A new handle.
fn create() -> usize {
    let mut raw = 0;
    HANDLES.insert(|fresh| {
        raw = fresh;
        Handle { stream: AtomicUsize::new(0) }
    });
    raw
}

/// The stream that is set for a handle.
pub(super) fn stream_of(handle: usize) -> Result<usize> {
    let handle = HANDLES.get(handle).map_err(|_| Status::BadParam)?;
    Ok(handle.stream.load(Ordering::Relaxed))
}

c_functions! {
    /// `cudnnCreate`.
    fn cudnnCreate(handle: Out<usize>) -> u32 {
        guard("cudnnCreate", || {
            handle.check()?;
            CUDNN.version()?;
            handle.set(create())
        })
    }
    /// `cudnnDestroy`.
    fn cudnnDestroy(handle: usize) -> u32 {
        guard("cudnnDestroy", || HANDLES.remove(handle).map(drop).map_err(|_| Status::BadParam))
    }
    /// `cudnnSetStream`.
    fn cudnnSetStream(handle: usize, stream: usize) -> u32 {
        guard("cudnnSetStream", || {
            let handle = HANDLES.get(handle).map_err(|_| Status::BadParam)?;
            handle.stream.store(stream, Ordering::Relaxed);
            Ok(())
        })
    }
    /// `cudnnGetStream`.
    fn cudnnGetStream(handle: usize, stream: Out<usize>) -> u32 {
        guard("cudnnGetStream", || {
            let handle = HANDLES.get(handle).map_err(|_| Status::BadParam)?;
            stream.set(handle.stream.load(Ordering::Relaxed))
        })
    }
    /// `cudnnQueryRuntimeError`: nothing runs that could leave an error behind.
    fn cudnnQueryRuntimeError(handle: usize, status: Out<u32>, _mode: u32, _tag: usize) -> u32 {
        guard("cudnnQueryRuntimeError", || {
            HANDLES.get(handle).map_err(|_| Status::BadParam)?;
            status.set(0)
        })
    }
    /// `cudnnGetVersion`.
    fn cudnnGetVersion() -> usize {
        VERSION[0] * 10_000 + VERSION[1] * 100 + VERSION[2]
    }
    /// `cudnnGetMaxDeviceVersion`: the newest compute capability that is known, as it is known to CUDA 13.0.
    fn cudnnGetMaxDeviceVersion() -> usize {
        1210
    }
    /// `cudnnGetCudartVersion`.
    fn cudnnGetCudartVersion() -> usize {
        RUNTIME
    }
    /// `cudnnGetProperty`: major version, minor version, or patch level.
    fn cudnnGetProperty(which: u32, value: Out<c_int>) -> u32 {
        guard("cudnnGetProperty", || {
            let number = VERSION.get(which as usize).ok_or(Status::BadParam)?;
            value.set(*number as c_int)
        })
    }
    /// `cudnnGetErrorString`.
    fn cudnnGetErrorString(status: u32) -> *const c_char {
        let text = match status {
            0 => c"CUDNN_STATUS_SUCCESS",
            1001 => c"CUDNN_STATUS_NOT_INITIALIZED",
            2000 => c"CUDNN_STATUS_BAD_PARAM",
            2002 => c"CUDNN_STATUS_BAD_PARAM_NULL_POINTER",
            2004 => c"CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED",
            3000 => c"CUDNN_STATUS_NOT_SUPPORTED",
            4000 => c"CUDNN_STATUS_INTERNAL_ERROR",
            5000 => c"CUDNN_STATUS_EXECUTION_FAILED",
            _ => c"CUDNN_UNKNOWN_STATUS",
        };
        text.as_ptr()
    }
    /// `cudnnGetLastErrorString`: why the thread's last call failed; nothing where none did since this was asked.
    fn cudnnGetLastErrorString(message: Out<c_char>, room: usize) {
        let text = LAST_ERROR.take();
        // What does not fit is cut off, and there is always a zero at the end.
        let bytes = text.as_bytes();
        let count = bytes.len().min(room.saturating_sub(1));
        if !message.is_null() && room > 0 {
            // SAFETY: by the call's description, there is room for so many bytes.
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), message.as_ptr(), count);
                message.as_ptr().add(count).write(0);
            }
        }
    }
    /// `cudnnGraphVersionCheck` and its like: whether the library's parts belong together.
    fn version_check() -> u32 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_keep_their_streams() {
        let (handle, mut stream) = (create(), 7);
        // SAFETY: the variable outlives the calls.
        unsafe {
            assert_eq!(cudnnGetStream(handle, Out::new(&raw mut stream)), 0);
            assert_eq!(stream, 0);
            assert_eq!(cudnnSetStream(handle, 64), 0);
            assert_eq!(cudnnGetStream(handle, Out::new(&raw mut stream)), 0);
            assert_eq!(stream, 64);
        }
        assert_eq!(cudnnDestroy(handle), 0);
        assert_eq!(cudnnDestroy(handle), Status::BadParam as u32);
        assert_eq!(cudnnCreate(Out::unwanted()), Status::NullPointer as u32);
        assert_eq!(cudnnGetVersion(), 91002);
    }
}
