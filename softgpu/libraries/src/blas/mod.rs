//! Operations of cuBLAS.

pub(crate) mod gemm;
