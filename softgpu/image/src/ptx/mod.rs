//! PTX: the text that compilers for NVIDIA GPUs emit.
//!
//! [`parse`] turns it into an [`ast::Module`] in which every name is resolved. It knows the grammar, the scopes,
//! and how many operands of what size the usual opcodes take; what a form of an opcode means, and whether
//! there is such a form, is for whoever compiles the module.

pub mod ast;
mod check;
mod expression;
mod lexer;
pub mod opcode;
mod parser;
mod special;

pub use parser::parse;

/// Why a text is not PTX.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("PTX line {line}, column {column}: {message}")]
pub struct ParseError {
    /// What is wrong.
    pub message: String,
    /// Where, counted from 1.
    pub line: u32,
    /// Where in the line, in bytes counted from 1.
    pub column: u32,
}
