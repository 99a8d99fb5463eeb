//! Memory that the host sees, too: pinned, managed and registered.

use rgpu_device::{MemoryKind, Ordinal};

use super::super::context::Context;
use super::super::error::{self, Code, Error, Result, invalid};
use super::super::registry::Raw;
use super::super::shared::PAGE;
use super::Memory;
use super::map::{Allocation, AllocationKind, Registered};

/// `cudaHostAllocPortable`, and of `cudaHostRegister`.
const HOST_PORTABLE: u32 = 1;
/// `cudaHostAllocMapped`, and of `cudaHostRegister`.
const HOST_MAPPED: u32 = 2;
/// `cudaHostAllocWriteCombined`; of `cudaHostRegister` it is I/O memory.
const HOST_WRITE_COMBINED: u32 = 4;
/// `cudaHostRegisterReadOnly`.
const HOST_READ_ONLY: u32 = 8;

impl Memory {
    /// `cudaHostAlloc`: pinned memory, which device and host see at the same address. 0 bytes give 0.
    pub(crate) fn host_alloc(&self, context: &Context, bytes: u64, flags: u32) -> Result<u64> {
        if flags & !(HOST_PORTABLE | HOST_MAPPED | HOST_WRITE_COMBINED) != 0 {
            return Err(invalid(format!("{flags:#x} has unknown flags")));
        }
        if bytes == 0 {
            return Ok(0);
        }
        self.share(context.ordinal, context.raw, bytes, AllocationKind::Pinned, flags)
    }

    /// `cudaFreeHost`: 0 is fine; other than pinned memory is refused.
    pub(crate) fn host_free(&self, addr: u64) -> Result<()> {
        if addr == 0 {
            return Ok(());
        }
        match self.map.remove_if(addr, |a| a.kind == AllocationKind::Pinned) {
            Some(allocation) => self.release(&allocation, None),
            None => Err(invalid(format!("{addr:#x} is not pinned memory, or is already free"))),
        }
    }

    /// `cudaMallocManaged`; `flags` 1 is global, 2 is host.
    pub(crate) fn managed_alloc(&self, context: &Context, bytes: u64, flags: u32) -> Result<u64> {
        if !matches!(flags, 1 | 2) || bytes == 0 {
            return Err(invalid(format!("{bytes} bytes of managed memory with flags {flags} cannot be")));
        }
        self.share(context.ordinal, context.raw, bytes, AllocationKind::Managed, flags)
    }

    /// Memory for a managed variable.
    pub(crate) fn managed_variable_alloc(&self, context: &Context, bytes: u64) -> Result<u64> {
        self.share(context.ordinal, context.raw, bytes, AllocationKind::ManagedVariable, 1)
    }

    /// Frees a managed variable.
    pub(crate) fn managed_variable_free(&self, addr: u64) -> Result<()> {
        match self.map.remove_if(addr, |a| a.kind == AllocationKind::ManagedVariable) {
            Some(allocation) => self.release(&allocation, None),
            None => Ok(()),
        }
    }

    /// `cudaHostRegister`.
    pub(crate) fn host_register(&self, context: &Context, addr: u64, bytes: u64, flags: u32) -> Result<()> {
        if flags & !(HOST_PORTABLE | HOST_MAPPED | HOST_READ_ONLY) != 0 {
            return Err(match flags & HOST_WRITE_COMBINED {
                0 => invalid(format!("{flags:#x} has unknown flags")),
                _ => error::not_implemented("cudaHostRegisterIoMemory"),
            });
        }
        if addr == 0 || bytes == 0 || addr.checked_add(bytes).is_none() {
            return Err(invalid(format!("{bytes} bytes at {addr:#x} cannot be registered")));
        }
        let taken = || Error::new(Code::HostMemoryAlreadyRegistered, format!("{addr:#x} is already pinned"));
        if self.devices.plan().whole.contains(addr, 1) {
            return Err(taken());
        }
        let entry = Registered {
            size: bytes,
            flags,
            ordinal: context.ordinal,
            context: context.raw,
            id: self.map.new_id(),
            alias: 0,
        };
        if self.map.register(addr, entry) { Ok(()) } else { Err(taken()) }
    }

    /// `cudaHostUnregister`.
    pub(crate) fn host_unregister(&self, addr: u64) -> Result<()> {
        let Some(entry) = self.map.unregister(addr) else {
            return Err(Error::new(Code::HostMemoryNotRegistered, format!("{addr:#x} is not registered")));
        };
        if entry.alias == 0 {
            // A copy from or to it may still be under way.
            return self.devices.wait_until_idle();
        }
        match self.map.remove_if(entry.alias, |_| true) {
            Some(allocation) => self.release(&allocation, None),
            None => Ok(()),
        }
    }

    /// `cudaHostGetDevicePointer`: of pinned, registered or managed memory. `owner` tells which context is to own what the
    /// device sees of registered memory, from the context and the device that it was registered with.
    pub(crate) fn host_device_pointer(
        &self,
        addr: u64,
        owner: impl FnOnce(Raw, Ordinal) -> Result<Raw>,
    ) -> Result<u64> {
        let not_pinned = || invalid(format!("{addr:#x} is not pinned memory"));
        if self.map.is_devices(addr) {
            return match self.map.find(addr) {
                Some(a)
                    if !matches!(
                        a.kind,
                        AllocationKind::Device(_)
                            | AllocationKind::Variable
                            | AllocationKind::Mapped
                            | AllocationKind::Imported
                    ) =>
                {
                    Ok(addr)
                }
                _ => Err(not_pinned()),
            };
        }
        let (base, entry) = self.map.find_registered(addr).ok_or_else(not_pinned)?;
        let page = base & !(PAGE - 1);
        if entry.alias != 0 {
            return Ok(entry.alias + (addr - page));
        }
        let context = owner(entry.context, entry.ordinal)?;
        let bytes = base + entry.size - page;
        let mine = self.share(entry.ordinal, context, bytes, AllocationKind::Alias(page), entry.flags)?;
        let alias = self.map.set_alias(base, entry.id, mine);
        if alias != Some(mine)
            && let Some(mine) = self.map.remove_if(mine, |_| true)
        {
            // Another thread was faster, or unregistered it.
            self.release(&mine, None)?;
        }
        alias.map(|alias| alias + (addr - page)).ok_or_else(not_pinned)
    }

    /// `cudaHostGetFlags`.
    pub(crate) fn host_flags(&self, addr: u64) -> Result<u32> {
        let not_pinned = || invalid(format!("{addr:#x} is not pinned memory"));
        if self.map.is_devices(addr)
            && let Some(a) = self.map.find(addr)
        {
            let pinned = matches!(a.kind, AllocationKind::Pinned | AllocationKind::Alias(_));
            return pinned.then_some(a.flags).ok_or_else(not_pinned);
        }
        self.map.find_registered(addr).map(|(_, entry)| entry.flags).ok_or_else(not_pinned)
    }

    /// Places memory in the shared range.
    fn share(
        &self,
        ordinal: Ordinal,
        context: Raw,
        bytes: u64,
        kind: AllocationKind,
        flags: u32,
    ) -> Result<u64> {
        let exhausted =
            || Error::new(Code::OutOfMemory, format!("There is no room for {bytes} shared bytes"));
        let kept = bytes.max(1).checked_next_multiple_of(PAGE).ok_or_else(exhausted)?;
        let base = self.devices.shared().take(kept).ok_or_else(exhausted)?;
        let alias = matches!(kind, AllocationKind::Alias(_));
        let own_pages = !self.devices.shares_memory() && !alias;
        let mirrored = own_pages || alias;
        let give_up = |error: Error| {
            if own_pages {
                let _ = self.devices.shared().unmap_host_pages(base, kept);
            }
            self.devices.shared().release(base, kept);
            error
        };
        if own_pages {
            self.devices.shared().map_host_pages(base, kept).map_err(give_up)?;
        }
        let as_what = if mirrored { MemoryKind::Mirrored } else { MemoryKind::Direct };
        let allocation =
            Allocation { base, size: bytes, kept, kind, ordinal, context, id: self.map.new_id(), flags };
        if mirrored {
            let host = if let AllocationKind::Alias(host) = kind { host } else { base };
            self.devices.host().add_mirror(base, kept, host);
        }
        if let Err(error) =
            self.devices.note(ordinal, self.devices.device().mem_alloc(ordinal, base, kept, as_what))
        {
            self.devices.host().remove_mirror(base);
            return Err(give_up(error));
        }
        if mirrored {
            self.devices.shared().mirror_added(kind.is_managed());
        }
        self.add(allocation);
        Ok(base)
    }

    /// The address that the device knows registered memory by; the memory's own where it was never asked for.
    pub(crate) fn alias_of(&self, addr: u64) -> u64 {
        match self.map.find_registered(addr) {
            Some((base, entry)) if entry.alias != 0 => entry.alias + (addr - (base & !(PAGE - 1))),
            _ => addr,
        }
    }

    /// Address and size of the managed variable that starts here.
    pub(crate) fn managed_variable_at(&self, addr: u64) -> Option<(u64, u64)> {
        let found = self.map.find(addr)?;
        (found.kind == AllocationKind::ManagedVariable && found.base == addr).then_some((addr, found.size))
    }

    /// Whether host and device each have a copy of it.
    pub(super) fn is_mirrored(&self, a: &Allocation) -> bool {
        match a.kind {
            AllocationKind::Alias(_) => true,
            AllocationKind::Pinned | AllocationKind::Managed | AllocationKind::ManagedVariable => {
                !self.devices.shares_memory()
            }
            _ => false,
        }
    }
}
