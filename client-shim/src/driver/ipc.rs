//! Memory and events that are shared with other processes.

use super::types::*;
use crate::abi::Out;
use crate::doors::ipc::{self, IpcHandle};

door! {
    fn cuIpcGetMemHandle(handle: Out<IpcHandle>, address: DevicePtr) |core| {
        core.driver_context()?;
        ipc::get(core, handle, address)
    }
    fn cuIpcOpenMemHandle(out: Out<DevicePtr>, handle: IpcHandle, flags: u32) |core| {
        out.check()?;
        out.set(ipc::open(core, &core.driver_context()?, handle, flags)?)
    }
    fn cuIpcGetEventHandle(handle: Out<IpcHandle>, event: Opaque) |core| {
        ipc::get_event(core, &core.driver_context()?, handle, event as usize)
    }
    fn cuIpcOpenEventHandle(event: Out<Opaque>, handle: IpcHandle) |core| {
        event.check()?;
        event.set(core.ipc_event_open(&core.driver_context()?, &handle.0)?.raw as Opaque)
    }
    fn cuIpcCloseMemHandle(address: DevicePtr) |core| {
        core.driver_context()?;
        core.ipc_close(address)
    }
}
