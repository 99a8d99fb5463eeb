//! The runtime door: cuda*.
//!
//! Each function here is what a program reaches under its CUDA name. It checks its arguments as CUDA does,
//! says in the driver API's terms what is to be done, and leaves that to [`crate::core`]. What belongs to
//! the runtime alone lives here: the registration of fat binaries and the `<<<>>>` syntax, symbols, arrays,
//! pools, and the struct layouts of each version.
//!
//! [`table`] lists all entry points. Functions whose stream argument can mean two things are generic over
//! `PT`, which says that stream 0 is the calling thread's own default stream.

pub(crate) mod abi;
mod array;
pub(crate) mod capture;
mod copy;
mod device;
mod entry_point;
pub mod errors;
mod event;
mod exports;
mod function;
pub(crate) mod graph;
mod graph_exec;
mod launch;
mod library;
mod memory;
mod pool;
mod properties;
mod stream;
pub mod table;
pub(crate) mod types;
mod unsupported;
pub mod version;
