//! What threads tell each other without a lock. The models of `tests/models` put words in this file's place whose accesses
//! are watched.

pub(crate) use std::sync::atomic::AtomicBool;
