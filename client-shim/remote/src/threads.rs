//! Threads inside a program that knows nothing of them.

pub use rgpu_protocol::sys::without_signals;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Starts a thread that handles none of the program's signals.
///
/// # Errors
/// Those of starting a thread.
pub fn spawn_quiet(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    without_signals(|| std::thread::Builder::new().name(name.into()).spawn(body)).map(drop)
}

/// Runs something; a panic yields `fallback`.
pub fn guard_value<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(fallback)
}
