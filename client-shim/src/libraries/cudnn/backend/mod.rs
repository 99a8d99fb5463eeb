//! The backend API: graphs of operations, put together from descriptors.
//!
//! Descriptors are lists of attributes, kept here as the program has set them, and are read when a graph is finalised. The
//! software GPU has one engine, which does every graph that can be finalised; so heuristics are answered here, and nothing of all
//! this crosses the wire but the execution, which is one posted operation.

mod attribute;
mod descriptor;
mod execute;
mod graph;

pub(super) use descriptor::{
    cudnnBackendCreateDescriptor, cudnnBackendDestroyDescriptor, cudnnBackendFinalize,
    cudnnBackendGetAttribute, cudnnBackendSetAttribute,
};
pub(super) use execute::{cudnnBackendExecute, value};
