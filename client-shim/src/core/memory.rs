//! Memory: allocating it, and knowing whose an address is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::RwLock;
use rgpu_device::{Handle, MemoryInfo, MemoryKind, Ordinal};

use super::context::Context;
use super::device_heap::{Backing, DeviceHeap, SLAB};
use super::error::{Code, Error, Result, invalid};
use super::process::Core;
use super::registry::Raw;
use super::shared::PAGE;
use super::stream::Stream;
use crate::graph::{Op, capture};

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
/// `cudaHostRegisterReadOnly`.
const HOST_READ_ONLY: u32 = 8;

/// What an allocation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Device memory.
    Device(Backing),
    /// A module-level variable, freed with its module.
    Variable,
    /// Device memory that the program has mapped and can access.
    Mapped,
    /// Pinned memory.
    Pinned,
    /// Managed memory.
    Managed,
    /// A managed variable, freed with its library.
    ManagedVariable,
    /// What the device sees of registered memory; the address on the host.
    Alias(u64),
}

impl Kind {
    fn is_managed(self) -> bool {
        matches!(self, Self::Managed | Self::ManagedVariable)
    }
}

/// A run of memory that the core knows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allocation {
    pub base: u64,
    /// Size as asked for.
    pub size: u64,
    /// Size as kept.
    pub kept: u64,
    pub kind: Kind,
    pub ordinal: Ordinal,
    pub context: Raw,
    pub id: u64,
    pub flags: u32,
}

impl Allocation {
    fn holds(&self, addr: u64, len: u64) -> bool {
        addr - self.base <= self.size && len <= self.size - (addr - self.base)
    }
}

/// Host memory that the program registered.
#[derive(Debug, Clone, Copy)]
struct Registered {
    size: u64,
    flags: u32,
    ordinal: Ordinal,
    context: Raw,
    id: u64,
    /// What the device sees, made when first asked for; 0 until then.
    alias: u64,
}

/// Everything that the core knows by address.
#[derive(Default)]
pub(super) struct MemoryMap {
    ranges: RwLock<BTreeMap<u64, Allocation>>,
    registered: RwLock<BTreeMap<u64, Registered>>,
    registered_count: AtomicUsize,
    next_id: AtomicU64,
    /// Whether there ever was a variable outside the agreed ranges.
    elsewhere: AtomicBool,
}

/// Where an address of a copy or fill lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spot {
    /// Only the device sees it.
    Device,
    /// Host and device see the same bytes.
    Direct,
    /// Host and device each have a copy, at this address.
    Mirrored,
    /// Host memory that was registered; `addr` is its host address.
    Registered,
    /// Ordinary host memory.
    Pageable,
}

impl MemoryMap {
    fn find(&self, addr: u64) -> Option<Allocation> {
        let ranges = self.ranges.read();
        let (_, found) = ranges.range(..=addr).next_back()?;
        // One past the end still counts for an empty allocation's own address only.
        (addr - found.base < found.size.max(1)).then_some(*found)
    }

    fn find_registered(&self, addr: u64) -> Option<(u64, Registered)> {
        if self.registered_count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let registered = self.registered.read();
        let (base, found) = registered.range(..=addr).next_back()?;
        (addr - base < found.size).then_some((*base, *found))
    }

    fn id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn insert(&self, allocation: Allocation) {
        self.ranges.write().insert(allocation.base, allocation);
    }

    /// Memory can be accessed where the program has mapped it.
    pub(super) fn mapped(&self, mut allocation: Allocation) {
        allocation.id = self.id();
        self.insert(allocation);
    }

    /// It no longer can.
    pub(super) fn unmapped(&self, addr: u64) {
        self.remove_if(addr, |a| a.kind == Kind::Mapped);
    }

    /// Whether the `len` bytes at `addr` lie in mappings side by side, of which `first` is the first.
    fn is_mapped_throughout(&self, first: &Allocation, addr: u64, len: u64) -> bool {
        if first.kind != Kind::Mapped {
            return false;
        }
        let Some(end) = addr.checked_add(len) else { return false };
        let ranges = self.ranges.read();
        let mut at = first.base + first.size;
        while at < end {
            match ranges.get(&at).filter(|a| a.kind == Kind::Mapped) {
                Some(next) => at += next.size,
                None => return false,
            }
        }
        true
    }

    /// Takes out the allocation that starts at `addr` if `accept` holds for it.
    fn remove_if(&self, addr: u64, accept: impl FnOnce(&Allocation) -> bool) -> Option<Allocation> {
        let mut ranges = self.ranges.write();
        if accept(ranges.get(&addr)?) { ranges.remove(&addr) } else { None }
    }
}

impl Core {
    /// `cudaMalloc`: 0 bytes give address 0 (the driver door must refuse 0 itself). At least 256-byte aligned.
    pub fn alloc(&self, context: &Arc<Context>, bytes: u64) -> Result<u64> {
        self.alloc_for(context, None, bytes)
    }

    /// `cudaMallocAsync`.
    pub fn alloc_async(&self, context: &Arc<Context>, stream: &Stream, bytes: u64) -> Result<u64> {
        if stream.ordinal != context.ordinal {
            return Err(Code::InvalidHandle.into());
        }
        if let Some(captured) = capture::allocate(self, context, stream, bytes) {
            return captured;
        }
        self.alloc_for(context, Some(stream.handle), bytes)
    }

    fn alloc_for(&self, context: &Arc<Context>, stream: Option<Handle>, bytes: u64) -> Result<u64> {
        if bytes == 0 {
            return Ok(0);
        }
        let ordinal = context.ordinal;
        // Not the device's memory: a lease that had little of it when the session began may have been given more.
        let room = self.plan.devices[ordinal as usize].size;
        let shape = DeviceHeap::shape(bytes).filter(|(size, _)| *size <= room);
        let Some((size, backing)) = shape else {
            let message = format!("{bytes} bytes are more than device {ordinal} has addresses for ({room})");
            return Err(Error::new(Code::OutOfMemory, message));
        };
        let (base, kept, backing) = self.place_patiently(ordinal, stream, size, backing)?;
        let id = self.memory.id();
        let kind = Kind::Device(backing);
        self.memory.insert(Allocation {
            base,
            size: bytes,
            kept,
            kind,
            ordinal,
            context: context.raw,
            id,
            flags: 0,
        });
        Ok(base)
    }

    /// As [`Core::place`], waiting for what was freed and is still in use if need be.
    pub(super) fn place_patiently(
        &self,
        ordinal: Ordinal,
        stream: Option<Handle>,
        size: u64,
        backing: Backing,
    ) -> Result<(u64, u64, Backing)> {
        match self.place(ordinal, stream, size, backing) {
            Err(error) if error.code == Code::OutOfMemory && self.of(ordinal).heap.lock().has_limbo() => {
                self.wait(ordinal, rgpu_device::Target::Device(ordinal))?;
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
        let device = self.of(ordinal);
        let exhausted = || Error::new(Code::OutOfMemory, "The device's address range is exhausted");
        let hand_back = {
            let mut heap = device.heap.lock();
            if let Some((addr, kept)) = stream.and_then(|s| heap.take_from_stream(s, size, backing)) {
                return Ok((addr, kept, backing));
            }
            let hand_back =
                if heap.has_limbo() { heap.settle(device.work.lock().finished) } else { Vec::new() };
            if backing == Backing::Slab
                && hand_back.is_empty()
                && let Some(addr) = heap.take_small(size)
            {
                return Ok((addr, size, backing));
            }
            hand_back
        };
        for addr in hand_back {
            self.note(ordinal, self.device.mem_free(ordinal, addr, None))?;
        }
        if backing == Backing::Slab {
            let slab = {
                let mut heap = device.heap.lock();
                if let Some(addr) = heap.take_small(size) {
                    return Ok((addr, size, backing));
                }
                heap.take_addresses(SLAB).ok_or_else(exhausted)?
            };
            match self.note(ordinal, self.device.mem_alloc(ordinal, slab, SLAB, MemoryKind::Device)) {
                Ok(()) => {
                    let mut heap = device.heap.lock();
                    heap.add_slab(slab, SLAB);
                    return heap.take_small(size).map(|addr| (addr, size, backing)).ok_or_else(exhausted);
                }
                Err(error) => {
                    device.heap.lock().return_addresses(slab, SLAB);
                    if error.code != Code::OutOfMemory {
                        return Err(error);
                    }
                }
            }
        }
        // Pages of its own; also for small ones where a whole slab no longer fits into the device.
        let pages = size.next_multiple_of(PAGE);
        let addr = device.heap.lock().take_addresses(pages).ok_or_else(exhausted)?;
        match self.note(ordinal, self.device.mem_alloc(ordinal, addr, pages, MemoryKind::Device)) {
            Ok(()) => Ok((addr, pages, Backing::Own)),
            Err(error) => {
                device.heap.lock().return_addresses(addr, pages);
                Err(error)
            }
        }
    }

    /// `cudaMallocPitch`, `cudaMalloc3D`: `rows` is height times depth. Address and pitch.
    pub fn alloc_pitch(&self, context: &Arc<Context>, width: u64, rows: u64) -> Result<(u64, u64)> {
        let too_large =
            || Error::new(Code::OutOfMemory, format!("{rows} rows of {width} bytes are too many"));
        let pitch = width.checked_next_multiple_of(512).ok_or_else(too_large)?;
        let bytes = pitch.checked_mul(rows).ok_or_else(too_large)?;
        Ok((self.alloc(context, bytes)?, pitch))
    }

    /// `cudaFree`: 0 is fine; pinned memory is refused, managed memory is freed.
    pub fn free(&self, addr: u64) -> Result<()> {
        self.free_in(addr, None)
    }

    /// `cudaFreeAsync`.
    pub fn free_async(&self, stream: &Stream, addr: u64) -> Result<()> {
        if let Some(captured) = capture::divert(stream, || Ok(Op::Free(addr))) {
            return captured;
        }
        self.free_in(addr, Some(stream))
    }

    fn free_in(&self, addr: u64, stream: Option<&Stream>) -> Result<()> {
        if addr == 0 {
            return Ok(());
        }
        let freeable = |a: &Allocation| matches!(a.kind, Kind::Device(_) | Kind::Managed);
        let Some(allocation) = self.memory.remove_if(addr, freeable) else {
            return Err(invalid(format!("{addr:#x} was not allocated on a device, or is already free")));
        };
        self.release(&allocation, stream)
    }

    /// Gives back what was already taken out of the map.
    fn release(&self, a: &Allocation, stream: Option<&Stream>) -> Result<()> {
        let device = self.of(a.ordinal);
        match a.kind {
            Kind::Device(backing) => {
                let until = self.enqueued(a.ordinal);
                let handle = stream.filter(|s| s.ordinal == a.ordinal).map(|s| s.handle);
                if backing == Backing::Own && handle.is_none() {
                    self.note(a.ordinal, self.device.mem_free(a.ordinal, a.base, None))?;
                }
                device.heap.lock().freed(a.base, a.kept, backing, until, handle);
                Ok(())
            }
            Kind::Variable | Kind::Mapped => Ok(()),
            Kind::Pinned | Kind::Managed | Kind::ManagedVariable | Kind::Alias(_) => {
                // Work that uses it must not lose it, wherever it runs.
                let waited = self.wait_until_idle();
                if self.is_mirrored(a) {
                    self.host.remove_mirror(a.base);
                    self.shared.mirror_removed(a.kind.is_managed());
                }
                let freed = self.note(a.ordinal, self.device.mem_free(a.ordinal, a.base, None));
                if !self.sees_host_memory && !matches!(a.kind, Kind::Alias(_)) {
                    self.unmap_host_pages(a.base, a.kept)?;
                }
                self.shared.release(a.base, a.kept);
                waited.and(freed)
            }
        }
    }

    fn is_mirrored(&self, a: &Allocation) -> bool {
        match a.kind {
            Kind::Alias(_) => true,
            Kind::Pinned | Kind::Managed | Kind::ManagedVariable => !self.sees_host_memory,
            _ => false,
        }
    }

    /// Waits for every device that may have unfinished work.
    pub(super) fn wait_until_idle(&self) -> Result<()> {
        let mut result = Ok(());
        for ordinal in 0..self.device_count() {
            if !self.is_idle(ordinal) && self.sticky_code(ordinal) == 0 {
                result = result.and(self.wait(ordinal, rgpu_device::Target::Device(ordinal)));
            }
        }
        result
    }

    /// Places memory in the shared range.
    fn share(&self, context: &Arc<Context>, bytes: u64, kind: Kind, flags: u32) -> Result<u64> {
        let ordinal = context.ordinal;
        let exhausted =
            || Error::new(Code::OutOfMemory, format!("There is no room for {bytes} shared bytes"));
        let kept = bytes.max(1).checked_next_multiple_of(PAGE).ok_or_else(exhausted)?;
        let base = self.shared.take(kept).ok_or_else(exhausted)?;
        let alias = matches!(kind, Kind::Alias(_));
        let own_pages = !self.sees_host_memory && !alias;
        let mirrored = own_pages || alias;
        let give_up = |error: Error| {
            if own_pages {
                let _ = self.unmap_host_pages(base, kept);
            }
            self.shared.release(base, kept);
            error
        };
        if own_pages {
            self.map_host_pages(base, kept).map_err(give_up)?;
        }
        let as_what = if mirrored { MemoryKind::Mirrored } else { MemoryKind::Direct };
        let allocation = Allocation {
            base,
            size: bytes,
            kept,
            kind,
            ordinal,
            context: context.raw,
            id: self.memory.id(),
            flags,
        };
        if mirrored {
            let host = if let Kind::Alias(host) = kind { host } else { base };
            self.host.add_mirror(base, kept, host);
        }
        if let Err(error) = self.note(ordinal, self.device.mem_alloc(ordinal, base, kept, as_what)) {
            self.host.remove_mirror(base);
            return Err(give_up(error));
        }
        if mirrored {
            self.shared.mirror_added(kind.is_managed());
        }
        self.memory.insert(allocation);
        Ok(base)
    }

    /// `cudaHostAlloc`: pinned memory, which device and host see at the same address. 0 bytes give 0.
    pub fn host_alloc(&self, context: &Arc<Context>, bytes: u64, flags: u32) -> Result<u64> {
        if flags & !(HOST_PORTABLE | HOST_MAPPED | HOST_WRITE_COMBINED) != 0 {
            return Err(invalid(format!("{flags:#x} has unknown flags")));
        }
        if bytes == 0 {
            return Ok(0);
        }
        self.share(context, bytes, Kind::Pinned, flags)
    }

    /// `cudaFreeHost`: 0 is fine; other than pinned memory is refused.
    pub fn host_free(&self, addr: u64) -> Result<()> {
        if addr == 0 {
            return Ok(());
        }
        match self.memory.remove_if(addr, |a| a.kind == Kind::Pinned) {
            Some(allocation) => self.release(&allocation, None),
            None => Err(invalid(format!("{addr:#x} is not pinned memory, or is already free"))),
        }
    }

    /// `cudaMallocManaged`; `flags` 1 is global, 2 is host.
    pub fn managed_alloc(&self, context: &Arc<Context>, bytes: u64, flags: u32) -> Result<u64> {
        if !matches!(flags, 1 | 2) || bytes == 0 {
            return Err(invalid(format!("{bytes} bytes of managed memory with flags {flags} cannot be")));
        }
        self.share(context, bytes, Kind::Managed, flags)
    }

    /// Memory for a managed variable.
    pub(super) fn managed_variable_alloc(&self, context: &Arc<Context>, bytes: u64) -> Result<u64> {
        self.share(context, bytes, Kind::ManagedVariable, 1)
    }

    /// Frees a managed variable.
    pub(super) fn managed_variable_free(&self, addr: u64) -> Result<()> {
        match self.memory.remove_if(addr, |a| a.kind == Kind::ManagedVariable) {
            Some(allocation) => self.release(&allocation, None),
            None => Ok(()),
        }
    }

    /// Makes a module-level variable known, or with size 0 forgets it.
    pub(super) fn variable_known(&self, ordinal: Ordinal, context: Raw, addr: u64, size: u64) {
        let id = self.memory.id();
        if !self.plan.whole.contains(addr, size) {
            self.memory.elsewhere.store(true, Ordering::Relaxed);
        }
        self.memory.insert(Allocation {
            base: addr,
            size,
            kept: size,
            kind: Kind::Variable,
            ordinal,
            context,
            id,
            flags: 0,
        });
    }

    /// Whether an address is one of the device's: in the agreed ranges, or a variable's that a driver has placed
    /// elsewhere.
    pub(super) fn is_known(&self, addr: u64) -> bool {
        self.plan.whole.contains(addr, 1)
            || (self.memory.elsewhere.load(Ordering::Relaxed) && self.memory.find(addr).is_some())
    }

    /// Forgets a module-level variable.
    pub(super) fn variable_gone(&self, addr: u64) {
        self.memory.remove_if(addr, |a| a.kind == Kind::Variable);
    }

    /// `cudaHostRegister`.
    pub fn host_register(&self, context: &Arc<Context>, addr: u64, bytes: u64, flags: u32) -> Result<()> {
        if flags & !(HOST_PORTABLE | HOST_MAPPED | HOST_READ_ONLY) != 0 {
            return Err(match flags & HOST_WRITE_COMBINED {
                0 => invalid(format!("{flags:#x} has unknown flags")),
                _ => super::error::not_implemented("cudaHostRegisterIoMemory"),
            });
        }
        let end = addr.checked_add(bytes).filter(|_| addr != 0 && bytes != 0);
        let Some(end) = end else {
            return Err(invalid(format!("{bytes} bytes at {addr:#x} cannot be registered")));
        };
        let taken = || Error::new(Code::HostMemoryAlreadyRegistered, format!("{addr:#x} is already pinned"));
        if self.plan.whole.contains(addr, 1) {
            return Err(taken());
        }
        let mut registered = self.memory.registered.write();
        if registered.range(..end).next_back().is_some_and(|(base, r)| base + r.size > addr) {
            return Err(taken());
        }
        let entry = Registered {
            size: bytes,
            flags,
            ordinal: context.ordinal,
            context: context.raw,
            id: self.memory.id(),
            alias: 0,
        };
        registered.insert(addr, entry);
        self.memory.registered_count.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// `cudaHostUnregister`.
    pub fn host_unregister(&self, addr: u64) -> Result<()> {
        let Some(entry) = self.memory.registered.write().remove(&addr) else {
            return Err(Error::new(Code::HostMemoryNotRegistered, format!("{addr:#x} is not registered")));
        };
        self.memory.registered_count.fetch_sub(1, Ordering::Release);
        if entry.alias == 0 {
            // A copy from or to it may still be under way.
            return self.wait_until_idle();
        }
        match self.memory.remove_if(entry.alias, |_| true) {
            Some(allocation) => self.release(&allocation, None),
            None => Ok(()),
        }
    }

    /// `cudaHostGetDevicePointer`: of pinned, registered or managed memory.
    pub fn host_device_pointer(&self, addr: u64) -> Result<u64> {
        if self.is_known(addr) {
            return match self.memory.find(addr) {
                Some(a) if !matches!(a.kind, Kind::Device(_) | Kind::Variable | Kind::Mapped) => Ok(addr),
                _ => Err(invalid(format!("{addr:#x} is not pinned memory"))),
            };
        }
        let not_pinned = || invalid(format!("{addr:#x} is not pinned memory"));
        let (base, entry) = self.memory.find_registered(addr).ok_or_else(not_pinned)?;
        let page = base & !(PAGE - 1);
        if entry.alias != 0 {
            return Ok(entry.alias + (addr - page));
        }
        let context = self.context(entry.context).or_else(|_| self.primary_retain_quietly(entry.ordinal))?;
        let alias = self.share(&context, base + entry.size - page, Kind::Alias(page), entry.flags)?;
        let mut registered = self.memory.registered.write();
        match registered.get_mut(&base) {
            Some(now) if now.alias == 0 && now.id == entry.id => {
                now.alias = alias;
                Ok(alias + (addr - page))
            }
            other => {
                // Another thread was faster, or unregistered it.
                let winner = other.filter(|now| now.id == entry.id).map(|now| now.alias);
                drop(registered);
                if let Some(mine) = self.memory.remove_if(alias, |_| true) {
                    self.release(&mine, None)?;
                }
                winner.map(|alias| alias + (addr - page)).ok_or_else(not_pinned)
            }
        }
    }

    /// `cudaHostGetFlags`.
    pub fn host_flags(&self, addr: u64) -> Result<u32> {
        let info = self.pointer_info(addr);
        match info.kind {
            PointerKind::Host => Ok(info.flags),
            _ => Err(invalid(format!("{addr:#x} is not pinned memory"))),
        }
    }

    /// `cudaMemGetInfo`.
    pub fn mem_info(&self, ordinal: Ordinal) -> Result<MemoryInfo> {
        self.device_info(ordinal)?;
        self.note(ordinal, self.device.mem_info(ordinal))
    }

    /// `cuMemGetAddressRange`: base and size of the allocation around a device address.
    pub fn address_range(&self, addr: u64) -> Result<(u64, u64)> {
        match self.memory.find(addr) {
            Some(a) => Ok((a.base, a.size)),
            None => Err(Error::new(Code::NotFound, format!("{addr:#x} is in no allocation"))),
        }
    }

    /// What an address is. Never fails: unknown ones are [`PointerKind::Unregistered`].
    pub fn pointer_info(&self, addr: u64) -> PointerInfo {
        if self.is_known(addr)
            && let Some(a) = self.memory.find(addr)
        {
            let (kind, host) = match a.kind {
                Kind::Device(_) | Kind::Variable | Kind::Mapped => (PointerKind::Device, 0),
                Kind::Pinned => (PointerKind::Host, addr),
                Kind::Managed | Kind::ManagedVariable => (PointerKind::Managed, addr),
                Kind::Alias(host) => (PointerKind::Host, host + (addr - a.base)),
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
                registered: matches!(a.kind, Kind::Alias(_)),
            };
        }
        if let Some((base, entry)) = self.memory.find_registered(addr) {
            return PointerInfo {
                kind: PointerKind::Host,
                ordinal: entry.ordinal,
                context: entry.context,
                device_pointer: self.host_device_pointer(addr).unwrap_or(0),
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
    /// that belong to no allocation, or to a shorter one, are an invalid value.
    pub(super) fn locate(&self, addr: u64, len: u64) -> Result<(Spot, u64)> {
        if self.is_known(addr) {
            return match self.memory.find(addr).or_else(|| self.find_variable(addr)) {
                Some(a) if a.holds(addr, len) => Ok(match a.kind {
                    Kind::Device(_) | Kind::Variable | Kind::Mapped => (Spot::Device, addr),
                    Kind::Alias(host) => (Spot::Registered, host + (addr - a.base)),
                    _ if self.sees_host_memory => (Spot::Direct, addr),
                    _ => (Spot::Mirrored, addr),
                }),
                Some(a) if self.memory.is_mapped_throughout(&a, addr, len) => Ok((Spot::Device, addr)),
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
        match self.memory.find_registered(addr) {
            Some((base, entry)) if len <= entry.size - (addr - base) => Ok((Spot::Registered, addr)),
            _ => Ok((Spot::Pageable, addr)),
        }
    }

    /// The variable of a module that this address lies in, where the device has not told yet what is in that module.
    #[cold]
    fn find_variable(&self, addr: u64) -> Option<Allocation> {
        let elsewhere = |range: &rgpu_device::Range| !range.contains(addr, 1);
        if !self.plan.devices.iter().chain([&self.plan.shared]).all(elsewhere) {
            return None;
        }
        self.ask_about_modules();
        self.memory.find(addr)
    }

    /// The address that the device knows registered memory by; the memory's own where it was never asked for.
    pub(super) fn alias_of(&self, addr: u64) -> u64 {
        match self.memory.find_registered(addr) {
            Some((base, entry)) if entry.alias != 0 => entry.alias + (addr - (base & !(PAGE - 1))),
            _ => addr,
        }
    }

    /// Address and size of the managed variable that starts here.
    pub(super) fn managed_variable_at(&self, addr: u64) -> Option<(u64, u64)> {
        let found = self.memory.find(addr)?;
        (found.kind == Kind::ManagedVariable && found.base == addr).then_some((addr, found.size))
    }

    /// The ordinal an address was allocated on, for copies that name no device.
    pub(super) fn ordinal_of(&self, addr: u64) -> Option<Ordinal> {
        self.memory.find(addr).map(|a| a.ordinal)
    }

    /// Frees everything that a context owns; what a vanished module held is merely forgotten.
    pub(super) fn free_all_of(&self, context: Raw) -> Result<()> {
        let mine: Vec<Allocation> = {
            let mut ranges = self.memory.ranges.write();
            let keys: Vec<u64> = ranges.values().filter(|a| a.context == context).map(|a| a.base).collect();
            keys.iter().filter_map(|key| ranges.remove(key)).collect()
        };
        {
            let mut registered = self.memory.registered.write();
            let before = registered.len();
            registered.retain(|_, r| r.context != context);
            self.memory.registered_count.fetch_sub(before - registered.len(), Ordering::Release);
        }
        let mut result = Ok(());
        for allocation in mine {
            result = result.and(self.release(&allocation, None));
        }
        result
    }

    /// The device has just been reset: forgets all that was on it.
    pub(super) fn forget_memory(&self, ordinal: Ordinal) {
        self.forget_virtual_memory(ordinal);
        let mine: Vec<Allocation> = {
            let mut ranges = self.memory.ranges.write();
            let keys: Vec<u64> = ranges.values().filter(|a| a.ordinal == ordinal).map(|a| a.base).collect();
            keys.iter().filter_map(|key| ranges.remove(key)).collect()
        };
        for a in mine {
            if self.is_mirrored(&a) {
                self.host.remove_mirror(a.base);
                self.shared.mirror_removed(a.kind.is_managed());
            }
            if self.plan.shared.contains(a.base, a.kept) {
                if !self.sees_host_memory && !matches!(a.kind, Kind::Alias(_)) {
                    let _ = self.unmap_host_pages(a.base, a.kept);
                }
                self.shared.release(a.base, a.kept);
            }
        }
        let mut registered = self.memory.registered.write();
        registered.values_mut().filter(|r| r.ordinal == ordinal).for_each(|r| r.alias = 0);
        drop(registered);
        let device = self.of(ordinal);
        *device.heap.lock() = DeviceHeap::new(self.plan.devices[ordinal as usize]);
        let mut work = device.work.lock();
        work.finished = work.enqueued;
    }
}
