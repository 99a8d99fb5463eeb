//! What the fuzzer needs of this crate and nobody else does. No part of its interface.

pub use crate::transport::fuzzing::{rdma, ring};
