//! The broker: nodes offer their devices, programs ask for leases, and the broker decides which program gets which devices.
//!
//! - [`engine`]: what there is and who has what; every operation of the API is a method of [`engine::Engine`].
//! - [`store`]: where that is kept over restarts.

pub mod engine;
pub mod store;
