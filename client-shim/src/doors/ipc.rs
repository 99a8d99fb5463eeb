//! Memory of other processes, for both doors.

use crate::abi::Out;
use crate::core::HandleBytes;
use crate::core::error::invalid;
use crate::core::{Context, Core, Result};
use std::sync::Arc;

/// `CUipcMemHandle` or `cudaIpcMemHandle_t`, by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct IpcHandle(pub(crate) HandleBytes);
#[cfg(test)]
crate::abi::signature::structures!(IpcHandle);

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the only flag, which has to be given.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

/// A handle of memory.
pub(crate) fn get(core: &Core, handle: Out<IpcHandle>, addr: u64) -> Result<()> {
    handle.check()?;
    handle.set(IpcHandle(core.ipc_export(addr)?))
}

/// A handle of an event.
pub(crate) fn get_event(
    core: &Core,
    context: &Arc<Context>,
    handle: Out<IpcHandle>,
    event: usize,
) -> Result<()> {
    handle.check()?;
    handle.set(IpcHandle(core.ipc_event_export(context, &*core.event(event)?)?))
}

/// The address of memory of another process.
pub(crate) fn open(core: &Core, context: &Arc<Context>, handle: IpcHandle, flags: u32) -> Result<u64> {
    if flags != LAZY_ENABLE_PEER_ACCESS {
        return Err(invalid(format!("{flags:#x} are no flags for opening another process's memory")));
    }
    core.ipc_open(context, &handle.0)
}
