//! The runtime door: cuda*.
//!
//! Each function here is what a program reaches under its CUDA name. It checks its arguments as CUDA does,
//! says in the driver API's terms what is to be done, and leaves that to [`crate::core`]. What belongs to
//! the runtime alone lives here: the registration of fat binaries and the `<<<>>>` syntax, symbols, arrays,
//! and the struct layouts of each version.
//!
//! [`table`] lists all entry points. Functions whose stream argument can mean two things are generic over
//! `PT`, which says that stream 0 is the calling thread's own default stream.

mod array;
mod capture;
mod copy;
mod device;
mod eleven;
mod entry;
mod entry_point;
mod errors;
mod event;
mod function;
mod graph;
mod graph_exec;
mod ipc;
mod launch;
mod library;
mod logs;
mod memory;
mod pool;
mod properties;
mod stream;
pub(crate) mod table;
mod texture;
mod types;
pub(crate) mod version;
