//! Panics end what they happen in, and nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rgpu_device::{Code, Error, Result};

/// Runs something that must not bring its thread down with it: a panic becomes an error.
pub(super) fn contained<R>(work: impl FnOnce() -> Result<R>) -> Result<R> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let what = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("unknown");
        Err(Error::new(Code::LaunchFailed, format!("The software GPU failed: {what}")))
    })
}
