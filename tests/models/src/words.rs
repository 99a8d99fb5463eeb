//! What the ledger and the client's credit are made of, in place of their crates' own modules of this name.

pub(crate) use crate::word::consistent::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};

/// The most applications at a time.
pub(crate) const SLOTS: usize = 2;
