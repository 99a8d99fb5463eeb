//! The broker: nodes offer their devices, programs ask for leases, and the broker decides which program gets which devices.
//!
//! - [`engine`]: what there is and who has what; every operation of the API is a method of [`engine::Engine`].
//! - [`store`]: where that is kept over restarts.
//! - [`api`]: the REST API, with [`metrics`]; [`serve`] is the process around it, [`tls`] its encryption; `door`
//!   says which connections there may be.
//! - [`web`]: the page for browsers.
//! - [`config`]: what the broker is told; [`setup`]: keys and tokens.

pub mod api;
pub mod authority;
pub mod config;
mod door;
pub mod engine;
pub mod metrics;
pub mod serve;
pub mod setup;
mod standby;
pub mod store;
pub mod tls;
pub mod web;
