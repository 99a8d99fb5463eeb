//! Memory: allocating it, and knowing whose an address is.

use std::sync::Arc;

use super::context::Context;
use super::error::{Result, not_implemented};
use super::process::Core;
use super::registry::Raw;
use super::stream::Stream;
use rgpu_device::{MemoryInfo, Ordinal};

/// What kind of memory an address lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointerKind {
    /// Ordinary host memory that CUDA knows nothing of.
    Unregistered,
    /// Pinned host memory: allocated or registered.
    Host,
    /// Device memory, module-level variables included.
    Device,
    /// Managed memory, managed variables included.
    Managed,
}

/// What `cudaPointerGetAttributes` and `cuPointerGetAttribute` tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointerInfo {
    /// What it is.
    pub kind: PointerKind,
    /// The device it was allocated on (pinned: the device that was current).
    pub ordinal: Ordinal,
    /// Handle of the context it was allocated in.
    pub context: Raw,
    /// The address on the device; 0 where the device can't see it.
    pub device_pointer: u64,
    /// The address on the host; 0 where the host can't see it.
    pub host_pointer: u64,
    /// Start of the allocation, in the address space that was asked about.
    pub base: u64,
    /// Size of the allocation, as asked for.
    pub size: u64,
    /// A number of the allocation's own.
    pub buffer_id: u64,
    /// Flags it was allocated or registered with.
    pub flags: u32,
    /// Whether it is host memory that was registered.
    pub registered: bool,
}

/// `cudaHostAllocPortable`, and of `cudaHostRegister`.
pub const HOST_PORTABLE: u32 = 1;
/// `cudaHostAllocMapped`, and of `cudaHostRegister`.
pub const HOST_MAPPED: u32 = 2;
/// `cudaHostAllocWriteCombined`; of `cudaHostRegister` it is I/O memory.
pub const HOST_WRITE_COMBINED: u32 = 4;

impl Core {
    /// `cudaMalloc`: 0 bytes give address 0 (the driver door must refuse 0 itself). At least 256-byte aligned.
    pub fn alloc(&self, context: &Arc<Context>, bytes: u64) -> Result<u64> {
        let _ = (context, bytes);
        Err(not_implemented("alloc"))
    }

    /// `cudaMallocPitch`, `cudaMalloc3D`: `rows` is height times depth. Address and pitch.
    pub fn alloc_pitch(&self, context: &Arc<Context>, width: u64, rows: u64) -> Result<(u64, u64)> {
        let _ = (context, width, rows);
        Err(not_implemented("alloc_pitch"))
    }

    /// `cudaFree`: 0 is fine; pinned memory is refused, managed memory is freed.
    pub fn free(&self, addr: u64) -> Result<()> {
        let _ = addr;
        Err(not_implemented("free"))
    }

    /// `cudaMallocAsync`.
    pub fn alloc_async(&self, context: &Arc<Context>, stream: &Stream, bytes: u64) -> Result<u64> {
        let _ = (context, stream, bytes);
        Err(not_implemented("alloc_async"))
    }

    /// `cudaFreeAsync`.
    pub fn free_async(&self, stream: &Stream, addr: u64) -> Result<()> {
        let _ = (stream, addr);
        Err(not_implemented("free_async"))
    }

    /// `cudaHostAlloc`: pinned memory, which device and host see at the same address. 0 bytes give 0.
    pub fn host_alloc(&self, context: &Arc<Context>, bytes: u64, flags: u32) -> Result<u64> {
        let _ = (context, bytes, flags);
        Err(not_implemented("host_alloc"))
    }

    /// `cudaFreeHost`: 0 is fine; other than pinned memory is refused.
    pub fn host_free(&self, addr: u64) -> Result<()> {
        let _ = addr;
        Err(not_implemented("host_free"))
    }

    /// `cudaMallocManaged`; `flags` 1 is global, 2 is host.
    pub fn managed_alloc(&self, context: &Arc<Context>, bytes: u64, flags: u32) -> Result<u64> {
        let _ = (context, bytes, flags);
        Err(not_implemented("managed_alloc"))
    }

    /// `cudaHostRegister`.
    pub fn host_register(&self, context: &Arc<Context>, addr: u64, bytes: u64, flags: u32) -> Result<()> {
        let _ = (context, addr, bytes, flags);
        Err(not_implemented("host_register"))
    }

    /// `cudaHostUnregister`.
    pub fn host_unregister(&self, addr: u64) -> Result<()> {
        let _ = addr;
        Err(not_implemented("host_unregister"))
    }

    /// `cudaHostGetDevicePointer`: of pinned, registered or managed memory.
    pub fn host_device_pointer(&self, addr: u64) -> Result<u64> {
        let _ = addr;
        Err(not_implemented("host_device_pointer"))
    }

    /// `cudaHostGetFlags`.
    pub fn host_flags(&self, addr: u64) -> Result<u32> {
        let _ = addr;
        Err(not_implemented("host_flags"))
    }

    /// `cudaMemGetInfo`.
    pub fn mem_info(&self, ordinal: Ordinal) -> Result<MemoryInfo> {
        let _ = ordinal;
        Err(not_implemented("mem_info"))
    }

    /// `cuMemGetAddressRange`: base and size of the allocation around a device address.
    pub fn address_range(&self, addr: u64) -> Result<(u64, u64)> {
        let _ = addr;
        Err(not_implemented("address_range"))
    }

    /// What an address is. Never fails: unknown ones are [`PointerKind::Unregistered`].
    pub fn pointer_info(&self, addr: u64) -> PointerInfo {
        PointerInfo {
            kind: PointerKind::Unregistered,
            ordinal: 0,
            context: 0,
            device_pointer: 0,
            host_pointer: addr,
            base: addr,
            size: 0,
            buffer_id: 0,
            flags: 0,
            registered: false,
        }
    }
}
