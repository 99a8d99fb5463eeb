//! What a GPU can do, in driver-API terms.
//!
//! [`Device`] is the wall between those who hold CUDA calls (the server's dispatcher, and the client
//! shim in in-process mode) and those who execute them (the software GPU, the NVIDIA driver). One
//! `Device` object serves one application and may hold several device *ordinals*.
//!
//! Rules that every implementation keeps:
//!
//! - **The caller chooses handles.** Streams, events and modules are named by [`Handle`]s that the
//!   caller picks; each kind has a name space of its own. Handles below [`FIRST_STREAM`] are the legacy
//!   default streams: handle `n` is the legacy stream of device ordinal `n`, and exists from the start.
//! - **The caller chooses addresses.** [`Device::reserve`] fixes an [`AddressPlan`]; afterwards the
//!   caller allocates inside the plan's ranges.
//! - **Enqueueing never blocks.** Work on streams is put in order and performed later. What needs to
//!   wait takes a [`Done`] callback, which is called exactly once, possibly on another thread, possibly
//!   before the call returns.
//! - **Legacy-stream ordering** is the device's duty: work in a device's legacy stream waits for all
//!   earlier work in its blocking streams, and the other way round.
//! - **Errors stick as CUDA's do.** After an error for which [`Code::is_sticky`] holds, every later
//!   call on that device ordinal reports it, until [`Device::reset`].
//! - **Bad arguments are errors, never panics**, whatever the caller passes.
//!
//! What can be checked without knowing a device's state is checked by rules that stand here, so that all devices answer
//! alike: [`LaunchLimits`] and [`check_params`] for launches, [`Region::check`], [`Region::check_fill`],
//! [`Region::check_copy`] and [`HostData::check`] for copies and fills, [`ErrorState`] for which errors stick. The crate
//! `rgpu-conformance` holds devices to that.

pub mod attribute;
mod check;
mod cursor;
mod device;
mod error;
mod error_state;
mod host;
mod host_memory;
mod info;
mod launch;
mod library;
mod limit;
mod mem_op;
mod memory;
mod pacer;
mod region;
pub mod telemetry;
pub mod tensor_map;
pub mod texture;

pub use check::{Check, Finding};
pub use cursor::RegionCursor;
pub use device::{Counters, Device, Target};
pub use error::{Code, Error, Result};
pub use error_state::ErrorState;
pub use host::Host;
pub use host_memory::{CopySink, HostData, HostSource, HostTarget};
pub use info::{
    Attribute, ClusterInfo, DeviceInfo, FunctionInfo, GlobalInfo, GlobalKind, ModuleInfo, ParamInfo,
};
pub use launch::{
    Launch, LaunchLimits, MAX_CLUSTER, MAX_PARAM_BYTES, PORTABLE_CLUSTER, PreparedLaunch, check_params,
};
pub use library::LibraryCall;
pub use limit::Limit;
pub use mem_op::{Condition, MemOp, MemOpKind};
pub use memory::{AddressPlan, MemoryInfo, MemoryKind, MemoryNote, MemoryToken, PAGE, Range, Seat};
pub use pacer::Pacer;
pub use region::Region;

/// The name of a stream, an event or a module, chosen by the caller, unique among its kind.
pub type Handle = u64;

/// A device ordinal, counted from 0 within one application.
pub type Ordinal = u32;

/// The lowest handle of a created stream; smaller ones are the devices' legacy default streams.
pub const FIRST_STREAM: Handle = 0x100;

/// Called once with the outcome of something that was waited for.
pub type Done = Box<dyn FnOnce(Result<()>) + Send>;
