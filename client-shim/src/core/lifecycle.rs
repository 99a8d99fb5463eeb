//! Where the process stands between its first CUDA call and its end.
//!
//! ```text
//!           first call              exit
//!   Unborn ───────────► Alive ───────────────► Over        calls answer Deinitialized
//!      │                  │
//!      │ fails            │ fork, in the child
//!      ▼                  ▼
//!   Failed             Orphan                              calls answer NotInitialized
//! ```

use std::sync::atomic::{AtomicU8, Ordering};

use super::error::{Code, Error, Result};
use super::generation;

/// A stage of the process's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    /// No CUDA call has opened the core yet.
    Unborn,
    /// There is a core.
    Alive,
    /// Opening the core failed; the failure is remembered.
    Failed,
    /// This is a child that was forked after the first CUDA call.
    Orphan,
    /// The process is ending.
    Over,
}

/// The stage. There is one core for a process, and what forks and ends is the process.
static STAGE: AtomicU8 = AtomicU8::new(Stage::Unborn as u8);

/// The stage that the process is at.
pub(crate) fn stage() -> Stage {
    match STAGE.load(Ordering::Acquire) {
        0 => Stage::Unborn,
        1 => Stage::Alive,
        2 => Stage::Failed,
        3 => Stage::Orphan,
        _ => Stage::Over,
    }
}

/// Goes on to another stage. Launches that are remembered do not ask for the stage, so they are forgotten.
pub(super) fn enter(stage: Stage) {
    STAGE.store(stage as u8, Ordering::Release);
    generation::begin_new();
}

/// Goes from [`Stage::Alive`] to another stage, as [`enter`] does; false where the process is at some other stage.
pub(super) fn leave_alive(to: Stage) -> bool {
    let left =
        STAGE.compare_exchange(Stage::Alive as u8, to as u8, Ordering::AcqRel, Ordering::Acquire).is_ok();
    if left {
        generation::begin_new();
    }
    left
}

/// Whether there is a living core.
#[inline(always)]
pub(crate) fn is_alive() -> bool {
    STAGE.load(Ordering::Acquire) == Stage::Alive as u8
}

/// Whether the process is ending: what comes now had better open nothing.
pub(crate) fn is_over() -> bool {
    stage() == Stage::Over
}

/// Whether this is a child that was forked after the first CUDA call.
pub(crate) fn is_orphan() -> bool {
    stage() == Stage::Orphan
}

/// Whether devices may be called: not in a forked child, whose parent they belong to, nor when the process is ending.
pub(crate) fn is_usable() -> bool {
    !matches!(stage(), Stage::Orphan | Stage::Over)
}

/// Fails where there can be no core any more: [`Code::NotInitialized`] in a child that was forked after the first CUDA call,
/// [`Code::Deinitialized`] when the process is ending.
pub(crate) fn check_not_past() -> Result<()> {
    match stage() {
        Stage::Orphan => Err(Error::new(
            Code::NotInitialized,
            "This process was forked after the first CUDA call; CUDA can't be used in it",
        )),
        Stage::Over => Err(Error::new(Code::Deinitialized, "The process is ending")),
        _ => Ok(()),
    }
}
