//! The number of the present generation of launches.
//!
//! What a launch needed to look up and check is remembered, thread by thread ([`super::calls::relaunch`]), and holds good
//! for as long as the generation lasts. Whatever may make a difference begins a new one: a function, a stream or a
//! context that goes away, a sticky error, another limit, memory that is shared with the host, a capture, another
//! registered kernel, another stage of the process's life.

use std::sync::atomic::{AtomicU64, Ordering};

/// It is the process's, not a core's: nvcc's start-up code registers kernels before there is a core, and every launch looks
/// at it, so that a fixed address is worth having.
static GENERATION: AtomicU64 = AtomicU64::new(1);

/// The present generation's number.
#[inline(always)]
pub(super) fn current() -> u64 {
    GENERATION.load(Ordering::Acquire)
}

/// Begins a new generation: forgets which host address stands for which function, and which launches were found possible,
/// in every thread.
pub(super) fn begin_new() {
    GENERATION.fetch_add(1, Ordering::Release);
}
