//! What kept a static runtime from being redirected: remembered when it happens, where nothing may be said, and said
//! when the program's own copy of the runtime comes asking for the driver.

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Whether objects loaded later escape.
static DLOPEN_IS_UNWATCHED: AtomicBool = AtomicBool::new(false);

/// Remembers that nobody will say when objects are loaded.
pub(super) fn dlopen_is_unwatched() {
    DLOPEN_IS_UNWATCHED.store(true, Ordering::Relaxed);
}

/// Why a static runtime could not be redirected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Obstacle {
    /// The object has device code, doesn't link a shared runtime, and has no symbols left.
    Stripped = 1,
    /// The operating system does not let its code be changed.
    Protected = 2,
    /// The program ran before this library was loaded.
    NotPreloaded = 3,
    /// Redirecting is not implemented for this processor.
    Processor = 4,
}

/// The first obstacle met, and the path of the object that it was met in.
struct Met {
    obstacle: AtomicU8,
    path: UnsafeCell<[u8; 512]>,
}

// SAFETY: `path` is written once, by the thread that set `obstacle` to `WRITING`, and read by others only
// after `obstacle` holds its final value.
unsafe impl Sync for Met {}

const WRITING: u8 = u8::MAX;
static MET: Met = Met { obstacle: AtomicU8::new(0), path: UnsafeCell::new([0; 512]) };

/// Remembers the first obstacle; an empty name is that of the program.
pub(super) fn remember(obstacle: Obstacle, name: &CStr) {
    if MET.obstacle.compare_exchange(0, WRITING, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return;
    }
    let path = name.to_bytes();
    let path = if path.is_empty() { b"this program" } else { path };
    let length = path.len().min(511);
    // SAFETY: this thread alone has set `WRITING`, so nobody else reads or writes the path; the buffer holds
    // 512 bytes and its last one stays 0.
    unsafe { std::ptr::copy_nonoverlapping(path.as_ptr(), MET.path.get().cast(), length) };
    MET.obstacle.store(obstacle as u8, Ordering::Release);
}

/// Why some static CUDA runtime of this process still runs itself instead of calling this library, in a
/// sentence for people; `None` if there is none. The driver door says it when a runtime asks it for what
/// only NVIDIA's driver can answer.
fn obstacle() -> Option<String> {
    let reason = MET.obstacle.load(Ordering::Acquire);
    if reason == 0 || reason == WRITING {
        return DLOPEN_IS_UNWATCHED.load(Ordering::Relaxed).then(|| {
            "a library with a static CUDA runtime that is opened with dlopen is not redirected: this dynamic \
             loader is of an unknown kind; build it with nvcc -cudart shared"
                .to_owned()
        });
    }
    // SAFETY: the path is complete and no longer written once `obstacle` holds its final value; it ends in 0.
    let path = unsafe { CStr::from_ptr(MET.path.get().cast()) }.to_string_lossy();
    Some(match reason {
        r if r == Obstacle::Stripped as u8 => format!(
            "{path} has the CUDA runtime linked in statically, and was stripped of its symbols, so its calls \
             cannot be redirected; build it without strip or -s, or with nvcc -cudart shared"
        ),
        r if r == Obstacle::Protected as u8 => format!(
            "{path} has the CUDA runtime linked in statically, and the operating system does not let its \
             code be changed (SELinux or another policy); build it with nvcc -cudart shared"
        ),
        r if r == Obstacle::NotPreloaded as u8 => format!(
            "{path} has the CUDA runtime linked in statically, and librgpu.so was loaded only after it had \
             started; start it with `rgpu run`, or with librgpu.so in LD_PRELOAD"
        ),
        _ => format!(
            "{path} has the CUDA runtime linked in statically, which is supported on x86-64 and AArch64 only; \
             build it with nvcc -cudart shared"
        ),
    })
}

/// Says [`obstacle`], once, if there is one.
pub(crate) fn explain_obstacle() {
    static SAID: AtomicBool = AtomicBool::new(false);
    if let Some(text) = obstacle()
        && !SAID.swap(true, Ordering::Relaxed)
    {
        crate::core::error::say(&text);
    }
}
