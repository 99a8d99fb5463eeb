//! Operations of cuBLAS and cuBLASLt.

pub(crate) mod batched;
mod dense;
pub(crate) mod factors;
pub(crate) mod gemm;
pub(crate) mod matmul;
pub(crate) mod matrices;
pub(crate) mod matrix_vector;
mod stored;
pub(crate) mod vectors;
