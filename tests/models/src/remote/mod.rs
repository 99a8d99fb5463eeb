//! The client's modules, as far as its credit needs them.

#[allow(dead_code)]
#[path = "../../../../client-shim/remote/src/remote/credit.rs"]
mod credit;
mod link;
mod models;
mod outgoing;

pub use models::*;
