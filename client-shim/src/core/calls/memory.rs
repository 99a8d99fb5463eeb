//! Memory: allocating and freeing it, in a stream's order or not, and what addresses are.

use std::sync::Arc;

use rgpu_device::{MemoryInfo, Ordinal, Range};

use super::forward;
use crate::core::context::Context;
use crate::core::error::{Code, Result};
use crate::core::graph::op::Op;
use crate::core::memory::hints::{Hint, Hints};
use crate::core::memory::ipc::HandleBytes;
use crate::core::memory::map::{PointerInfo, Spot};
use crate::core::process::Core;
use crate::core::stream::Stream;

forward! { memory:
    /// `cudaMalloc`: 0 bytes give address 0 (the driver door must refuse 0 itself). At least 256-byte aligned.
    fn alloc(&self, context: &Arc<Context>, bytes: u64) -> Result<u64>;
    /// `cudaMallocPitch`, `cudaMalloc3D`: `rows` is height times depth. Address and pitch.
    fn alloc_pitch(&self, context: &Arc<Context>, width: u64, rows: u64) -> Result<(u64, u64)>;
    /// `cudaFree`: 0 is fine; pinned memory is refused, managed memory is freed.
    fn free(&self, addr: u64) -> Result<()>;
    /// `cudaHostAlloc`: pinned memory, which device and host see at the same address. 0 bytes give 0.
    fn host_alloc(&self, context: &Arc<Context>, bytes: u64, flags: u32) -> Result<u64>;
    /// `cudaFreeHost`: 0 is fine; other than pinned memory is refused.
    fn host_free(&self, addr: u64) -> Result<()>;
    /// `cudaMallocManaged`; `flags` 1 is global, 2 is host.
    fn managed_alloc(&self, context: &Arc<Context>, bytes: u64, flags: u32) -> Result<u64>;
    /// `cudaHostRegister`.
    fn host_register(&self, context: &Arc<Context>, addr: u64, bytes: u64, flags: u32) -> Result<()>;
    /// `cudaHostUnregister`.
    fn host_unregister(&self, addr: u64) -> Result<()>;
    /// `cudaHostGetFlags`.
    fn host_flags(&self, addr: u64) -> Result<u32>;
    /// `cudaMemGetInfo`.
    fn mem_info(&self, ordinal: Ordinal) -> Result<MemoryInfo>;
    /// `cuIpcGetMemHandle`: the handle of the allocation that an address lies in.
    fn ipc_export(&self, addr: u64) -> Result<HandleBytes>;
    /// `cuIpcOpenMemHandle`: where another process's memory is.
    fn ipc_open(&self, context: &Arc<Context>, handle: &HandleBytes) -> Result<u64>;
    /// `cuIpcCloseMemHandle`.
    fn ipc_close(&self, addr: u64) -> Result<()>;
    /// `cuMemGetAddressRange`: base and size of the allocation around a device address.
    fn address_range(&self, addr: u64) -> Result<(u64, u64)>;
    /// `cudaMemRangeGetAttribute`: what holds of all of a range.
    fn hints(&self, range: Range) -> Hints;
}

impl Core {
    /// `cudaMallocAsync`.
    pub(crate) fn alloc_async(&self, context: &Arc<Context>, stream: &Stream, bytes: u64) -> Result<u64> {
        if stream.ordinal != context.ordinal {
            return Err(Code::InvalidHandle.into());
        }
        match self.capture_allocation(context, stream, bytes) {
            Some(captured) => captured,
            None => self.memory.alloc_in_order(context, stream, bytes),
        }
    }

    /// `cudaFreeAsync`.
    pub(crate) fn free_async(&self, stream: &Stream, addr: u64) -> Result<()> {
        match self.captures.divert(stream, || Ok(Op::Free(addr))) {
            Some(captured) => captured,
            None => self.memory.free_in_order(stream, addr),
        }
    }

    /// `cudaHostGetDevicePointer`: of pinned, registered or managed memory.
    pub(crate) fn host_device_pointer(&self, addr: u64) -> Result<u64> {
        self.memory
            .host_device_pointer(addr, |context, ordinal| self.contexts.living_or_primary(context, ordinal))
    }

    /// What an address is. Never fails: unknown ones are
    /// [`PointerKind::Unregistered`](crate::core::PointerKind::Unregistered).
    pub(crate) fn pointer_info(&self, addr: u64) -> PointerInfo {
        self.memory.pointer_info(addr, |context, ordinal| self.contexts.living_or_primary(context, ordinal))
    }

    /// `cudaMemAdvise`, `cudaMemPrefetchAsync`: keeps what is said of the pages of a range, which is known to be managed memory.
    pub(crate) fn hint(&self, range: Range, hint: Hint) {
        self.memory.hint(range, hint);
    }

    /// Where the `len` bytes at `addr` lie, and the address that this process knows them by.
    pub(super) fn locate(&self, addr: u64, len: u64) -> Result<(Spot, u64)> {
        self.memory.locate(addr, len, || self.modules.ask_about_modules())
    }
}
