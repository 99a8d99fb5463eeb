//! What the ledger is made of. The models of `tests/models` put words in this file's place whose accesses are watched, and
//! fewer slots.

pub(crate) use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// The most applications at a time.
pub(crate) const SLOTS: usize = 256;
