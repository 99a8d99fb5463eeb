//! Memory and events that are shared with other processes.

use std::ffi::c_uint;

use super::entry::{api, enter};
use crate::abi::Out;
use crate::abi::types::EventRef;
use crate::doors::ipc::{self, IpcHandle};

api! {
    /// `cudaIpcGetMemHandle`
    fn get as "cudaIpcGetMemHandle" (handle: Out<IpcHandle>, ptr: usize) {
        let (core, _) = enter()?;
        ipc::get(core, handle, ptr as u64)
    }

    /// `cudaIpcOpenMemHandle`
    fn open as "cudaIpcOpenMemHandle" (ptr: Out<usize>, handle: IpcHandle, flags: c_uint) {
        ptr.check()?;
        let (core, context) = enter()?;
        ptr.set(ipc::open(core, &context, handle, flags)? as usize)
    }

    /// `cudaIpcGetEventHandle`
    fn get_event as "cudaIpcGetEventHandle" (handle: Out<IpcHandle>, event: EventRef) {
        let (core, context) = enter()?;
        ipc::get_event(core, &context, handle, event)
    }

    /// `cudaIpcOpenEventHandle`
    fn open_event as "cudaIpcOpenEventHandle" (event: Out<EventRef>, handle: IpcHandle) {
        event.check()?;
        let (core, context) = enter()?;
        event.set(core.ipc_event_open(&context, &handle.0)?.raw)
    }

    /// `cudaIpcCloseMemHandle`
    fn close as "cudaIpcCloseMemHandle" (ptr: usize) {
        let (core, _) = enter()?;
        core.ipc_close(ptr as u64)
    }
}
