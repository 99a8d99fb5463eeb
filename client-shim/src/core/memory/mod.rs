//! Memory: allocating it, and knowing whose an address is.

mod exhausted;
pub(crate) mod hints;
mod host;
pub(crate) mod ipc;
pub(super) mod map;
mod notes;

use std::sync::Arc;

use rgpu_device::{Handle, MemoryInfo, MemoryKind, Ordinal, Range, Target};

use super::context::Context;
use super::device_heap::{Backing, DeviceHeap, SLAB};
use super::devices::Devices;
use super::error::{Code, Error, Result, invalid};
use super::registry::Raw;
use super::shared::PAGE;
use super::stream::Stream;
use map::{AddressMap, Allocation, AllocationKind, PointerInfo, PointerKind, Spot};

/// All memory that the program has: what was allocated, registered or placed for a variable, on whatever device.
pub(crate) struct Memory {
    devices: Arc<Devices>,
    map: AddressMap,
    ipc: ipc::Shared,
    said: hints::Said,
}

impl Memory {
    /// Nothing is allocated yet, on any device.
    pub(crate) fn new(devices: Arc<Devices>) -> Self {
        let whole = devices.plan().whole;
        Self {
            devices,
            map: AddressMap::new(whole),
            ipc: ipc::Shared::default(),
            said: hints::Said::default(),
        }
    }

    /// `cudaMalloc`: 0 bytes give address 0 (the driver door must refuse 0 itself). At least 256-byte aligned.
    pub(crate) fn alloc(&self, context: &Context, bytes: u64) -> Result<u64> {
        self.alloc_for(context, None, bytes)
    }

    /// `cudaMallocAsync`: may be memory again that was freed in the order of `stream`.
    pub(crate) fn alloc_in_order(&self, context: &Context, stream: &Stream, bytes: u64) -> Result<u64> {
        self.alloc_for(context, Some(stream.handle), bytes)
    }

    /// Memory on pages that are no other allocation's.
    pub(crate) fn alloc_pages(&self, context: &Context, bytes: u64) -> Result<u64> {
        let size = bytes.next_multiple_of(PAGE);
        let (base, kept, backing) = self.place_patiently(context.ordinal, None, size, Backing::Own)?;
        self.add(Allocation {
            base,
            size: bytes,
            kept,
            kind: AllocationKind::Device(backing),
            ordinal: context.ordinal,
            context: context.raw,
            id: self.map.new_id(),
            flags: 0,
        });
        Ok(base)
    }

    fn alloc_for(&self, context: &Context, stream: Option<Handle>, bytes: u64) -> Result<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        let ordinal = context.ordinal;
        // Not the device's memory: a lease that had little of it when the session began may have been given more.
        let room = self.devices.plan().devices[ordinal as usize].size;
        let shape = DeviceHeap::shape(bytes).filter(|(size, _)| *size <= room);
        let Some((size, backing)) = shape else {
            let message = format!("{bytes} bytes are more than device {ordinal} has addresses for ({room})");
            return self.explain(ordinal, bytes, Err(Error::new(Code::OutOfMemory, message)));
        };
        let placed = self.place_patiently(ordinal, stream, size, backing);
        let (base, kept, backing) = self.explain(ordinal, bytes, placed)?;
        self.add(Allocation {
            base,
            size: bytes,
            kept,
            kind: AllocationKind::Device(backing),
            ordinal,
            context: context.raw,
            id: self.map.new_id(),
            flags: 0,
        });
        Ok(base)
    }

    /// As [`Memory::place`], waiting for what was freed and is still in use if need be.
    pub(crate) fn place_patiently(
        &self,
        ordinal: Ordinal,
        stream: Option<Handle>,
        size: u64,
        backing: Backing,
    ) -> Result<(u64, u64, Backing)> {
        match self.place(ordinal, stream, size, backing) {
            Err(error) if error.code == Code::OutOfMemory && self.devices.heap(ordinal).has_limbo() => {
                self.devices.wait(ordinal, Target::Device(ordinal))?;
                self.place(ordinal, stream, size, backing)
            }
            other => other,
        }
    }

    /// Finds backed memory. The address, the size kept for it, and how it is backed.
    fn place(
        &self,
        ordinal: Ordinal,
        stream: Option<Handle>,
        size: u64,
        backing: Backing,
    ) -> Result<(u64, u64, Backing)> {
        let exhausted = || Error::new(Code::OutOfMemory, "The device's address range is exhausted");
        let hand_back = {
            let mut heap = self.devices.heap(ordinal);
            if let Some((addr, kept)) = stream.and_then(|s| heap.take_from_stream(s, size, backing)) {
                return Ok((addr, kept, backing));
            }
            let hand_back = if heap.has_limbo() {
                heap.settle(self.devices.work(ordinal).lock().finished)
            } else {
                Vec::new()
            };
            if backing == Backing::Slab
                && hand_back.is_empty()
                && let Some(addr) = heap.take_small(size)
            {
                return Ok((addr, size, backing));
            }
            hand_back
        };
        for addr in hand_back {
            self.devices.note(ordinal, self.devices.device().mem_free(ordinal, addr, None))?;
        }
        if backing == Backing::Slab {
            let slab = {
                let mut heap = self.devices.heap(ordinal);
                if let Some(addr) = heap.take_small(size) {
                    return Ok((addr, size, backing));
                }
                heap.take_addresses(SLAB).ok_or_else(exhausted)?
            };
            match self
                .devices
                .note(ordinal, self.devices.device().mem_alloc(ordinal, slab, SLAB, MemoryKind::Device))
            {
                Ok(()) => {
                    let mut heap = self.devices.heap(ordinal);
                    heap.add_slab(slab, SLAB);
                    return heap.take_small(size).map(|addr| (addr, size, backing)).ok_or_else(exhausted);
                }
                Err(error) => {
                    self.devices.heap(ordinal).return_addresses(slab, SLAB);
                    if error.code != Code::OutOfMemory {
                        return Err(error);
                    }
                }
            }
        }
        // Pages of its own; also for small ones where a whole slab no longer fits into the device.
        let pages = size.next_multiple_of(PAGE);
        let addr = self.devices.heap(ordinal).take_addresses(pages).ok_or_else(exhausted)?;
        match self
            .devices
            .note(ordinal, self.devices.device().mem_alloc(ordinal, addr, pages, MemoryKind::Device))
        {
            Ok(()) => Ok((addr, pages, Backing::Own)),
            Err(error) => {
                self.devices.heap(ordinal).return_addresses(addr, pages);
                Err(error)
            }
        }
    }

    /// `cudaMallocPitch`, `cudaMalloc3D`: `rows` is height times depth. Address and pitch.
    pub(crate) fn alloc_pitch(&self, context: &Context, width: u64, rows: u64) -> Result<(u64, u64)> {
        let too_large =
            || Error::new(Code::OutOfMemory, format!("{rows} rows of {width} bytes are too many"));
        let pitch = width.checked_next_multiple_of(512).ok_or_else(too_large)?;
        let bytes = pitch.checked_mul(rows).ok_or_else(too_large)?;
        Ok((self.alloc(context, bytes)?, pitch))
    }

    /// `cudaFree`: 0 is fine; pinned memory is refused, managed memory is freed.
    pub(crate) fn free(&self, addr: u64) -> Result<()> {
        self.free_in(addr, None)
    }

    /// `cudaFreeAsync`: the memory is free once `stream` gets there.
    pub(crate) fn free_in_order(&self, stream: &Stream, addr: u64) -> Result<()> {
        self.free_in(addr, Some(stream))
    }

    fn free_in(&self, addr: u64, stream: Option<&Stream>) -> Result<()> {
        if addr == 0 {
            return Ok(());
        }
        let freeable = |a: &Allocation| matches!(a.kind, AllocationKind::Device(_) | AllocationKind::Managed);
        let Some(allocation) = self.map.remove_if(addr, freeable) else {
            self.not_freed(addr);
            return Err(invalid(format!("{addr:#x} was not allocated on a device, or is already free")));
        };
        self.release(&allocation, stream)
    }

    /// Gives back what was already taken out of the map.
    fn release(&self, a: &Allocation, stream: Option<&Stream>) -> Result<()> {
        self.going(a.base, stream.filter(|s| s.ordinal == a.ordinal).map(|s| s.handle));
        match a.kind {
            AllocationKind::Device(backing) => {
                self.ipc_withdraw(a.base)?;
                let until = self.devices.enqueued(a.ordinal);
                let handle = stream.filter(|s| s.ordinal == a.ordinal).map(|s| s.handle);
                if backing == Backing::Own && handle.is_none() {
                    self.devices.note(a.ordinal, self.devices.device().mem_free(a.ordinal, a.base, None))?;
                }
                self.devices.heap(a.ordinal).freed(a.base, a.kept, backing, until, handle);
                Ok(())
            }
            AllocationKind::Imported => self.release_imported(a),
            AllocationKind::Variable | AllocationKind::Mapped => Ok(()),
            AllocationKind::Pinned
            | AllocationKind::Managed
            | AllocationKind::ManagedVariable
            | AllocationKind::Alias(_) => {
                self.said.forget(a.base, a.kept);
                // Work that uses it must not lose it, wherever it runs.
                let waited = self.devices.wait_until_idle();
                if self.is_mirrored(a) {
                    self.devices.host().remove_mirror(a.base);
                    self.devices.shared().mirror_removed(a.kind.is_managed());
                }
                let freed =
                    self.devices.note(a.ordinal, self.devices.device().mem_free(a.ordinal, a.base, None));
                if !self.devices.shares_memory() && !matches!(a.kind, AllocationKind::Alias(_)) {
                    self.devices.shared().unmap_host_pages(a.base, a.kept)?;
                }
                self.devices.shared().release(a.base, a.kept);
                waited.and(freed)
            }
        }
    }

    /// Makes a module-level variable known.
    pub(crate) fn variable_known(&self, ordinal: Ordinal, context: Raw, addr: u64, size: u64) {
        self.add(Allocation {
            base: addr,
            size,
            kept: size,
            kind: AllocationKind::Variable,
            ordinal,
            context,
            id: self.map.new_id(),
            flags: 0,
        });
    }

    /// Forgets a module-level variable.
    pub(crate) fn variable_gone(&self, addr: u64) {
        if self.map.remove_if(addr, |a| a.kind == AllocationKind::Variable).is_some() {
            self.going(addr, None);
        }
    }

    /// `cudaMemGetInfo`.
    pub(crate) fn mem_info(&self, ordinal: Ordinal) -> Result<MemoryInfo> {
        self.devices.info(ordinal)?;
        self.devices.note(ordinal, self.devices.device().mem_info(ordinal))
    }

    /// `cuMemGetAddressRange`: base and size of the allocation around a device address.
    pub(crate) fn address_range(&self, addr: u64) -> Result<(u64, u64)> {
        match self.map.find(addr) {
            Some(a) => Ok((a.base, a.size)),
            None => Err(Error::new(Code::NotFound, format!("{addr:#x} is in no allocation"))),
        }
    }

    /// What an address is. Never fails: unknown ones are [`PointerKind::Unregistered`]. `owner` is as for
    /// [`Memory::host_device_pointer`].
    pub(crate) fn pointer_info(
        &self,
        addr: u64,
        owner: impl FnOnce(Raw, Ordinal) -> Result<Raw>,
    ) -> PointerInfo {
        if self.map.is_devices(addr)
            && let Some(a) = self.map.find(addr)
        {
            let (kind, host) = match a.kind {
                AllocationKind::Device(_)
                | AllocationKind::Variable
                | AllocationKind::Mapped
                | AllocationKind::Imported => (PointerKind::Device, 0),
                AllocationKind::Pinned => (PointerKind::Host, addr),
                AllocationKind::Managed | AllocationKind::ManagedVariable => (PointerKind::Managed, addr),
                AllocationKind::Alias(host) => (PointerKind::Host, host + (addr - a.base)),
            };
            return PointerInfo {
                kind,
                ordinal: a.ordinal,
                context: a.context,
                device_pointer: addr,
                host_pointer: host,
                base: a.base,
                size: a.size,
                buffer_id: a.id,
                flags: a.flags,
                registered: matches!(a.kind, AllocationKind::Alias(_)),
            };
        }
        if let Some((base, entry)) = self.map.find_registered(addr) {
            return PointerInfo {
                kind: PointerKind::Host,
                ordinal: entry.ordinal,
                context: entry.context,
                device_pointer: self.host_device_pointer(addr, owner).unwrap_or(0),
                host_pointer: addr,
                base,
                size: entry.size,
                buffer_id: entry.id,
                flags: entry.flags,
                registered: true,
            };
        }
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

    /// Where the `len` bytes at `addr` lie. An alias of registered memory becomes its host address. Reserved addresses
    /// that belong to no allocation, or to a shorter one, are an invalid value. `ask` makes the variables known of modules of
    /// which the device has not told yet what is in them.
    pub(crate) fn locate(&self, addr: u64, len: u64, ask: impl FnOnce()) -> Result<(Spot, u64)> {
        if self.map.is_devices(addr) {
            return match self.map.find(addr).or_else(|| self.find_variable(addr, ask)) {
                Some(a) if a.holds(addr, len) => Ok(match a.kind {
                    AllocationKind::Device(_)
                    | AllocationKind::Variable
                    | AllocationKind::Mapped
                    | AllocationKind::Imported => (Spot::Device, addr),
                    AllocationKind::Alias(host) => (Spot::Registered, host + (addr - a.base)),
                    _ if self.devices.shares_memory() => (Spot::Direct, addr),
                    _ => (Spot::Mirrored, addr),
                }),
                Some(a) if self.map.is_mapped_throughout(&a, addr, len) => Ok((Spot::Device, addr)),
                Some(a) => Err(invalid(format!(
                    "{len} bytes at {addr:#x} run past the end of the allocation of {} bytes at {:#x}",
                    a.size, a.base
                ))),
                None => Err(invalid(format!("{addr:#x} is in no allocation"))),
            };
        }
        if addr == 0 {
            return Err(invalid("The address is null"));
        }
        match self.map.find_registered(addr) {
            Some((base, entry)) if len <= entry.size - (addr - base) => Ok((Spot::Registered, addr)),
            _ => Ok((Spot::Pageable, addr)),
        }
    }

    /// The variable of a module that this address lies in, where the device has not told yet what is in that module.
    #[cold]
    fn find_variable(&self, addr: u64, ask: impl FnOnce()) -> Option<Allocation> {
        let elsewhere = |range: &Range| !range.contains(addr, 1);
        if !self.devices.plan().devices.iter().chain([&self.devices.plan().shared]).all(elsewhere) {
            return None;
        }
        ask();
        self.map.find(addr)
    }

    /// The ordinal an address was allocated on, for copies that name no device.
    pub(crate) fn ordinal_of(&self, addr: u64) -> Option<Ordinal> {
        self.map.find(addr).map(|a| a.ordinal)
    }

    /// Device memory at an address that the program does not learn of: its address.
    pub(crate) fn take_pages(&self, ordinal: Ordinal, size: u64) -> Result<u64> {
        self.explain(ordinal, size, self.take_pages_quietly(ordinal, size))
    }

    /// As [`Memory::take_pages`], for somebody who can do without.
    pub(crate) fn take_pages_quietly(&self, ordinal: Ordinal, size: u64) -> Result<u64> {
        self.place_patiently(ordinal, None, size, Backing::Own).map(|(addr, _, _)| addr)
    }

    /// Frees what [`Memory::take_pages`] found.
    pub(crate) fn give_pages_back(&self, ordinal: Ordinal, addr: u64, size: u64) -> Result<()> {
        let until = self.devices.enqueued(ordinal);
        let freed = self.devices.note(ordinal, self.devices.device().mem_free(ordinal, addr, None));
        self.devices.heap(ordinal).freed(addr, size, Backing::Own, until, None);
        freed
    }

    /// The `size` bytes at `addr`, which the device backs, have become accessible there.
    pub(crate) fn mapped(&self, ordinal: Ordinal, addr: u64, size: u64) {
        self.add(Allocation {
            base: addr,
            size,
            kept: size,
            kind: AllocationKind::Mapped,
            ordinal,
            context: 0,
            id: self.map.new_id(),
            flags: 0,
        });
    }

    /// What was mapped at `addr` is no longer accessible there.
    pub(crate) fn unmapped(&self, addr: u64) {
        if self.map.remove_if(addr, |a| a.kind == AllocationKind::Mapped).is_some() {
            self.going(addr, None);
        }
    }

    /// Frees everything that a context owns; what a vanished module held is merely forgotten.
    pub(crate) fn free_all_of(&self, context: Raw) -> Result<()> {
        let mut result = Ok(());
        for allocation in self.map.take_context(context) {
            result = result.and(self.release(&allocation, None));
        }
        result
    }

    /// The device has just been reset: forgets all that was on it.
    pub(crate) fn forget(&self, ordinal: Ordinal) {
        let shared = self.devices.shared();
        self.ipc_forget(ordinal);
        for a in self.map.take_device(ordinal) {
            self.said.forget(a.base, a.kept);
            if self.is_mirrored(&a) {
                self.devices.host().remove_mirror(a.base);
                shared.mirror_removed(a.kind.is_managed());
            }
            if self.devices.plan().shared.contains(a.base, a.kept) {
                if !self.devices.shares_memory() && !matches!(a.kind, AllocationKind::Alias(_)) {
                    let _ = shared.unmap_host_pages(a.base, a.kept);
                }
                shared.release(a.base, a.kept);
            }
        }
    }
}
