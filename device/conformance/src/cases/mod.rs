//! The cases, by what they are about.

pub mod copies;
pub mod errors;
pub mod events;
pub mod fills;
pub mod launches;
pub mod libraries;
pub mod memory;
pub mod modules;
pub mod shared;
pub mod streams;
