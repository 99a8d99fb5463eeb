//! Fuzzing on stable Rust: inputs are made by damaging valid ones and by generating others of the right form, and are given to
//! every decoder that reads what another party sends.
//!
//! An input follows from the target's name, a seed and a number, and from nothing else. So every failure can be repeated, and
//! two machines with different seeds do different work. There is no guidance by coverage: that wants a nightly compiler. What
//! makes up for it is knowledge of the forms: each [target](Target) brings valid inputs and the words of its language.
//!
//! A run fails where a decoder panics, where it allocates far more than it was given ([`memory`]), where it takes seconds,
//! and where what it has accepted does not come back as it was.

pub mod input;
pub mod memory;
pub mod random;
pub mod run;
pub mod targets;

pub use targets::{TARGETS, Target};
