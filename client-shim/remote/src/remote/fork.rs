//! This library's descriptors: where they are numbered, and keeping forked children off their parent's connection.
//!
//! A child holds duplicates of its parent's descriptors. As long as it does, the server does not see the
//! parent die. So the child closes them first thing, which disturbs nobody: closing one of two references
//! to a socket sends nothing.

use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

/// Descriptors of this library are numbered from here, out of the way of the program's own.
pub(super) const LOWEST_DESCRIPTOR: i32 = 512;

/// A program with sixteen servers has some hundred.
static DESCRIPTORS: [AtomicI32; 1024] = [const { AtomicI32::new(-1) }; 1024];
static REGISTERED: Once = Once::new();

/// Has every forked child close this descriptor.
pub(super) fn close_in_children(fd: i32) {
    REGISTERED.call_once(|| {
        // SAFETY: the handler is async-signal-safe, and this library is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    for slot in &DESCRIPTORS {
        if slot.compare_exchange(-1, fd, SeqCst, SeqCst).is_ok() {
            return;
        }
    }
}

/// The descriptor was closed here, too.
pub(super) fn forget(fd: i32) {
    for slot in &DESCRIPTORS {
        let _ = slot.compare_exchange(fd, -1, SeqCst, SeqCst);
    }
}

extern "C" fn in_child() {
    for slot in &DESCRIPTORS {
        let fd = slot.swap(-1, SeqCst);
        if fd >= 0 {
            // SAFETY: only the child's reference goes; the child never uses the connection.
            unsafe { libc::close(fd) };
        }
    }
}
