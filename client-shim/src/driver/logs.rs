//! Messages about errors. These calls need no `cuInit`, whose own errors they tell as well.

use std::ffi::{c_char, c_void};

use crate::abi::{CStrArg, Out, c_functions};
use crate::core::error::guard_driver;
use crate::core::logs::{self, Callback};
use crate::doors::logs::{ListenerRef, current, dump_to_file, dump_to_memory, register};

c_functions! {
    /// `cuLogsRegisterCallback`
    fn cuLogsRegisterCallback(function: Option<Callback>, data: *mut c_void, handle: Out<ListenerRef>) -> u32 {
        guard_driver("cuLogsRegisterCallback", || register(function, data, handle))
    }

    /// `cuLogsUnregisterCallback`
    fn cuLogsUnregisterCallback(handle: ListenerRef) -> u32 {
        guard_driver("cuLogsUnregisterCallback", || logs::unregister(handle))
    }

    /// `cuLogsCurrent`
    fn cuLogsCurrent(iterator: Out<u32>, flags: u32) -> u32 {
        guard_driver("cuLogsCurrent", || current(iterator, flags))
    }

    /// `cuLogsDumpToFile`
    fn cuLogsDumpToFile(iterator: Out<u32>, path: CStrArg, flags: u32) -> u32 {
        guard_driver("cuLogsDumpToFile", || dump_to_file(iterator, &path, flags))
    }

    /// `cuLogsDumpToMemory`
    fn cuLogsDumpToMemory(iterator: Out<u32>, buffer: Out<c_char>, size: Out<usize>, flags: u32) -> u32 {
        guard_driver("cuLogsDumpToMemory", || dump_to_memory(iterator, buffer, size, flags))
    }
}
