//! PTX: the text that compilers for NVIDIA GPUs emit.
//!
//! [`parse`] turns it into an [`ast::Module`] in which every name is resolved. It knows the grammar and the scopes;
//! what an opcode with its modifiers means, whether there is such a one, and which operands it takes, is for
//! whoever compiles the module.

pub mod ast;
mod expression;
mod lexer;
mod location;
mod parser;
mod special;
mod types;

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
