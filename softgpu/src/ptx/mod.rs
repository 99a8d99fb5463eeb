//! PTX: the text that compilers for NVIDIA GPUs emit.

pub mod ast;
pub mod opcode;
