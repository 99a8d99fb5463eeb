//! Threads inside a program that knows nothing of them.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Starts a thread that handles none of the program's signals.
///
/// # Errors
/// Those of starting a thread.
pub fn spawn_quiet(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    without_signals(|| std::thread::Builder::new().name(name.into()).spawn(body)).map(drop)
}

/// Does something, which must not panic, with all signals blocked; threads that it starts keep them so.
pub fn without_signals<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: plain calls on local signal sets; the thread's own mask is restored afterwards.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let result = body();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}

/// Runs something; a panic yields `fallback`.
pub fn guard_value<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(fallback)
}
