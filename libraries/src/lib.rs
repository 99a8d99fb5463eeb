//! The operations of mathematical libraries (cuBLAS, cuFFT, …), as they are forwarded.
//!
//! A program's handles, settings and descriptors live in the client. What crosses the wire is one [`Operation`] for each call
//! that computes something: a number, and a record of fixed layout that says everything the device needs to know, in which
//! addresses are the device's. It is posted, in stream order, and can be kept in a graph. Host scalars travel by value.
//!
//! The table [`operations!`](crate::for_each_operation) has one row for each operation:
//!
//! ```text
//! NUMBER Record { field: type, … }
//! ```
//!
//! From it come the records with their wire form, the enum [`Operation`], and its decoder. Rows are never renumbered or changed, only
//! added. Executing devices match on the enum: the compiler says what is missing.

mod addresses;
mod blas;
mod dnn;
mod dnn_special;
mod fft;
mod library;
mod operation;
mod random;
mod solver;
mod solver_more;
mod sparse;
mod sparse_blocks;
mod types;

pub use blas::*;
pub use dnn::*;
pub use dnn_special::*;
pub use fft::*;
pub use library::Library;
pub use operation::{Arguments, Operation};
pub use random::*;
pub use solver::*;
pub use solver_more::*;
pub use sparse::*;
pub use sparse_blocks::*;
pub use types::{DataType, Scalar, Transpose};
