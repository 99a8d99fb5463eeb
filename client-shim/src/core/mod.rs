//! The heart of the shim, behind both doors, in the driver API's terms.
//!
//! A door turns a call into calls on [`Core`], which [`current`] creates at the first CUDA call and not
//! before. The files form layers, and each uses only what is named before it:
//!
//! 1. what everything uses: [`error`], [`registry`] (handles), `generation`, `lifecycle`, and single objects like
//!    [`Stream`] and [`Context`];
//! 2. [`session`]: where the device is, and [`servers`]: how it is found;
//! 3. the owners, of which none knows the core: `devices` (progress and errors), `contexts`, `streams`, `memory`,
//!    `virtual_memory`, `module`, `library`, and of [`graph`] the store and the captures;
//! 4. [`process`]: the [`Core`], which has one of each owner, and the process's life with it;
//! 5. `calls`: what the doors ask of the core.
//!
//! What a door needs to know:
//!
//! - [`error::guard_runtime`] and [`error::guard_driver`] wrap every exported function: they catch panics and keep the
//!   last error.
//! - Opaque handles (streams, events, contexts, modules, functions, kernels, libraries, graphs) are numbers that look
//!   like pointers and are never used twice; `Core::stream(raw)` and its like turn them into objects or answer
//!   [`Code::InvalidHandle`]. Runtime and driver handles are the same things.
//! - The calling thread's context: [`Core::runtime_context`] (activates the selected device's primary context) and
//!   [`Core::driver_context`] (`InvalidContext` where none is current). Driver calls on a stream have
//!   [`Core::stream_context`], and those that want no context [`Core::check_current`].
//! - Codes are [`rgpu_device::Code`]; those that only the runtime knows become the driver's in `guard_driver`.

pub(crate) mod array;
mod calls;
mod check;
mod context;
mod contexts;
mod device_heap;
mod devices;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod fatbin;
mod generation;
pub(crate) mod graph;
mod heap;
mod host;
mod image;
mod launch;
mod library;
pub(crate) mod lifecycle;
pub(crate) mod logs;
pub(crate) mod mem_op;
mod memory;
mod module;
mod params;
pub(crate) mod process;
pub(crate) mod reference;
mod registration;
pub(crate) mod registry;
pub(crate) mod servers;
pub(crate) mod session;
mod shared;
mod sketch;
#[cfg(feature = "in-process")]
mod soft_gpu;
mod stream;
mod streams;
pub(crate) mod texture;
pub(crate) mod thread;
mod transfer;
pub(crate) mod virtual_memory;
mod work;

#[cfg(all(test, feature = "in-process"))]
mod tests;

pub(crate) use calls::relaunch;
pub(crate) use context::Context;
pub(crate) use error::{Code, Error, Result};
pub(crate) use host::Hold;
pub(crate) use launch::Config;
pub(crate) use library::{Kernel, Library};
pub(crate) use memory::hints::{Hint, Place};
pub(crate) use memory::ipc::HandleBytes;
pub(crate) use memory::map::{PointerInfo, PointerKind};
pub(crate) use module::{Function, Module};
pub(crate) use params::Params;
pub(crate) use process::{Core, current, existing};
pub(crate) use stream::Stream;
pub(crate) use transfer::{CopyBox, CopySide, Direction, Wait};
