//! The heart of the shim, behind both doors, in the driver API's terms.
//!
//! A door turns a call into calls on [`Core`], which [`current`] creates at the first CUDA call and not
//! before. What a door needs to know:
//!
//! - [`error::guard_runtime`] and [`error::guard_driver`] wrap every exported function: they catch panics and keep the
//!   last error.
//! - Opaque handles (streams, events, contexts, modules, functions, kernels, libraries, graphs) are numbers that look
//!   like pointers and are never used twice; `Core::stream(raw)` and its like turn them into objects or answer
//!   [`Code::InvalidHandle`]. Runtime and driver handles are the same things.
//! - The calling thread's context: [`Core::runtime_context`] (activates the selected device's primary context) and
//!   [`Core::driver_context`] (`InvalidContext` where none is current).
//! - Codes are [`rgpu_device::Code`]; those that only the runtime knows become the driver's in `guard_driver`.

pub mod context;
pub mod copy;
mod device_heap;
pub mod error;
pub mod event;
pub mod fatbin;
pub mod heap;
pub mod host;
mod image;
pub mod launch;
pub mod memory;
pub mod module;
pub mod occupancy;
pub mod process;
pub mod registry;
pub mod relaunch;
pub mod servers;
pub mod session;
pub mod shared;
mod sketch;
#[cfg(feature = "in-process")]
mod soft_gpu;
pub mod stream;
pub mod thread;
pub mod virtual_memory;

#[cfg(all(test, feature = "in-process"))]
mod tests;

pub use context::Context;
pub use copy::{CopyBox, Direction, Place, Wait};
pub use error::{Code, Error, Result};
#[allow(unused_imports)] // For the doors.
pub use event::Event;
pub use launch::{Config, Params};
pub use memory::{PointerInfo, PointerKind};
pub use module::{Function, Kernel, Library, Module};
pub use process::{Core, current, existing};
pub use stream::Stream;
