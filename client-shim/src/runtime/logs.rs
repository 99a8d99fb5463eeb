//! Messages about errors.

use std::ffi::{c_char, c_uint, c_void};

use super::entry::api;
use crate::abi::{CStrArg, Out};
use crate::core::logs::{self, Callback};
use crate::doors::logs as doors;

api! {
    /// `cudaLogsRegisterCallback`
    fn register as "cudaLogsRegisterCallback" (
        function: Option<Callback>, data: *mut c_void, handle: Out<doors::ListenerRef>,
    ) {
        doors::register(function, data, handle)
    }

    /// `cudaLogsUnregisterCallback`
    fn unregister as "cudaLogsUnregisterCallback" (handle: doors::ListenerRef) {
        logs::unregister(handle)
    }

    /// `cudaLogsCurrent`
    fn current as "cudaLogsCurrent" (iterator: Out<u32>, flags: c_uint) {
        doors::current(iterator, flags)
    }

    /// `cudaLogsDumpToFile`
    fn dump_to_file as "cudaLogsDumpToFile" (iterator: Out<u32>, path: CStrArg, flags: c_uint) {
        doors::dump_to_file(iterator, &path, flags)
    }

    /// `cudaLogsDumpToMemory`
    fn dump_to_memory as "cudaLogsDumpToMemory" (
        iterator: Out<u32>, buffer: Out<c_char>, size: Out<usize>, flags: c_uint,
    ) {
        doors::dump_to_memory(iterator, buffer, size, flags)
    }
}
