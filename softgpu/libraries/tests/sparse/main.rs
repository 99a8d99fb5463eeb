//! Sparse matrices, against the same ones with all their zeros.

mod blocks;
mod matrices;
mod products;
#[path = "../rig/mod.rs"]
mod rig;
mod sparse_only;
mod systems;
