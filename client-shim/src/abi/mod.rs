//! The C boundary that all doors share: pointers among the arguments, types, launch attributes and errors.

pub(crate) mod errors;
mod function;
pub(crate) mod launch;
mod pointers;
#[cfg(test)]
pub(crate) mod signature;
pub(crate) mod types;

pub(crate) use function::c_functions;
pub(crate) use pointers::{CStrArg, In, KernelArguments, NotUtf8, NullPointer, Out};
