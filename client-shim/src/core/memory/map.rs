//! Whose an address is: every allocation, variable, mapping and registered piece of host memory that is known.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::RwLock;
use rgpu_device::{Ordinal, Range};

use super::super::device_heap::Backing;
use super::super::registry::Raw;

/// What kind of memory an address lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PointerKind {
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
pub(crate) struct PointerInfo {
    /// Whose memory it is, and who sees it.
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

/// What an allocation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AllocationKind {
    /// Device memory that the program allocated, with how it is backed.
    Device(Backing),
    /// A module-level variable, freed with its module.
    Variable,
    /// Device memory that the program has mapped and can access.
    Mapped,
    /// Device memory of another process that the program has opened.
    Imported,
    /// Pinned memory that the program allocated.
    Pinned,
    /// Managed memory that the program allocated.
    Managed,
    /// A managed variable, freed with its library.
    ManagedVariable,
    /// What the device sees of registered memory; the address on the host.
    Alias(u64),
}

impl AllocationKind {
    /// Whether it is managed memory, a managed variable included.
    pub(crate) fn is_managed(self) -> bool {
        matches!(self, Self::Managed | Self::ManagedVariable)
    }
}

/// A run of memory that the core knows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allocation {
    /// Where it starts, in the device's addresses.
    pub base: u64,
    /// Size as asked for.
    pub size: u64,
    /// Size as kept: up to the next page, or as a slab has it.
    pub kept: u64,
    /// What kind of memory lies there, which says who frees it.
    pub kind: AllocationKind,
    /// The device it was made on.
    pub ordinal: Ordinal,
    /// Handle of the context that owns it.
    pub context: Raw,
    /// A number of its own.
    pub id: u64,
    /// Flags that the program gave.
    pub flags: u32,
}

impl Allocation {
    /// Whether the `len` bytes at `addr`, which is not before its start, lie in it.
    pub(crate) fn holds(&self, addr: u64, len: u64) -> bool {
        addr - self.base <= self.size && len <= self.size - (addr - self.base)
    }
}

/// Host memory that the program registered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Registered {
    /// Its size in bytes.
    pub size: u64,
    /// Flags it was registered with.
    pub flags: u32,
    /// The device that was current.
    pub ordinal: Ordinal,
    /// Handle of the context that was current.
    pub context: Raw,
    /// A number of its own.
    pub id: u64,
    /// What the device sees, made when first asked for; 0 until then.
    pub alias: u64,
}

/// Everything that is known by address.
pub(crate) struct AddressMap {
    /// All addresses that were agreed on with the device.
    agreed: Range,
    ranges: RwLock<BTreeMap<u64, Allocation>>,
    registered: RwLock<BTreeMap<u64, Registered>>,
    /// How many there are in `registered`, to be looked at without its lock.
    registered_count: AtomicUsize,
    next_id: AtomicU64,
    /// Whether there ever was a variable outside the agreed ranges.
    elsewhere: AtomicBool,
}

/// Where an address of a copy or fill lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spot {
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

impl AddressMap {
    /// Nothing is known yet. `agreed` are all addresses that were agreed on with the device.
    pub(crate) fn new(agreed: Range) -> Self {
        Self {
            agreed,
            ranges: RwLock::default(),
            registered: RwLock::default(),
            registered_count: AtomicUsize::new(0),
            next_id: AtomicU64::new(0),
            elsewhere: AtomicBool::new(false),
        }
    }

    /// Whether an address is one of the device's: in the agreed ranges, or a variable's that a driver has placed
    /// elsewhere.
    pub(crate) fn is_devices(&self, addr: u64) -> bool {
        self.agreed.contains(addr, 1) || (self.elsewhere.load(Ordering::Relaxed) && self.find(addr).is_some())
    }

    /// The allocation around an address.
    pub(crate) fn find(&self, addr: u64) -> Option<Allocation> {
        let ranges = self.ranges.read();
        let (_, found) = ranges.range(..=addr).next_back()?;
        // One past the end still counts for an empty allocation's own address only.
        (addr - found.base < found.size.max(1)).then_some(*found)
    }

    /// The registered memory around a host address, with its own start.
    pub(crate) fn find_registered(&self, addr: u64) -> Option<(u64, Registered)> {
        if self.registered_count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let registered = self.registered.read();
        let (base, found) = registered.range(..=addr).next_back()?;
        (addr - base < found.size).then_some((*base, *found))
    }

    /// A number that no allocation has had.
    pub(crate) fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// An allocation is there.
    pub(crate) fn insert(&self, allocation: Allocation) {
        if !self.agreed.contains(allocation.base, allocation.size) {
            self.elsewhere.store(true, Ordering::Relaxed);
        }
        self.ranges.write().insert(allocation.base, allocation);
    }

    /// Host memory was registered. False where a part of it is registered already.
    pub(crate) fn register(&self, addr: u64, entry: Registered) -> bool {
        let mut registered = self.registered.write();
        let before = registered.range(..addr + entry.size).next_back();
        if before.is_some_and(|(base, r)| base + r.size > addr) {
            return false;
        }
        registered.insert(addr, entry);
        self.registered_count.fetch_add(1, Ordering::Release);
        true
    }

    /// Host memory that starts at `addr` is no longer registered.
    pub(crate) fn unregister(&self, addr: u64) -> Option<Registered> {
        let entry = self.registered.write().remove(&addr)?;
        self.registered_count.fetch_sub(1, Ordering::Release);
        Some(entry)
    }

    /// Gives registered memory its alias, if it has none yet and is still registered with this `id`. The alias that it has
    /// now; `None` where it is no longer registered.
    pub(crate) fn set_alias(&self, base: u64, id: u64, alias: u64) -> Option<u64> {
        let mut registered = self.registered.write();
        let entry = registered.get_mut(&base).filter(|entry| entry.id == id)?;
        if entry.alias == 0 {
            entry.alias = alias;
        }
        Some(entry.alias)
    }

    /// Takes out all allocations of a context, and forgets what was registered in it.
    pub(crate) fn take_context(&self, context: Raw) -> Vec<Allocation> {
        let mut registered = self.registered.write();
        let before = registered.len();
        registered.retain(|_, r| r.context != context);
        self.registered_count.fetch_sub(before - registered.len(), Ordering::Release);
        drop(registered);
        self.take_where(|a| a.context == context)
    }

    /// Takes out all allocations of a device. What was registered stays so, without an alias.
    pub(crate) fn take_device(&self, ordinal: Ordinal) -> Vec<Allocation> {
        let mut registered = self.registered.write();
        registered.values_mut().filter(|r| r.ordinal == ordinal).for_each(|r| r.alias = 0);
        drop(registered);
        self.take_where(|a| a.ordinal == ordinal)
    }

    fn take_where(&self, which: impl Fn(&Allocation) -> bool) -> Vec<Allocation> {
        let mut ranges = self.ranges.write();
        let keys: Vec<u64> = ranges.values().filter(|a| which(a)).map(|a| a.base).collect();
        keys.iter().filter_map(|key| ranges.remove(key)).collect()
    }

    /// Whether the `len` bytes at `addr` lie in mappings side by side, of which `first` is the first.
    pub(crate) fn is_mapped_throughout(&self, first: &Allocation, addr: u64, len: u64) -> bool {
        if first.kind != AllocationKind::Mapped {
            return false;
        }
        let Some(end) = addr.checked_add(len) else { return false };
        let ranges = self.ranges.read();
        let mut at = first.base + first.size;
        while at < end {
            match ranges.get(&at).filter(|a| a.kind == AllocationKind::Mapped) {
                Some(next) => at += next.size,
                None => return false,
            }
        }
        true
    }

    /// Takes out the allocation that starts at `addr` if `accept` holds for it.
    pub(crate) fn remove_if(
        &self,
        addr: u64,
        accept: impl FnOnce(&Allocation) -> bool,
    ) -> Option<Allocation> {
        let mut ranges = self.ranges.write();
        if accept(ranges.get(&addr)?) { ranges.remove(&addr) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> AddressMap {
        AddressMap::new(Range { base: 0x10000, size: 0x10000 })
    }

    fn allocation(base: u64, size: u64, kind: AllocationKind, context: Raw) -> Allocation {
        Allocation { base, size, kept: size, kind, ordinal: 0, context, id: 0, flags: 0 }
    }

    #[test]
    fn addresses_outside_the_agreed_ones_are_the_devices_only_where_a_variable_lies() {
        let map = map();
        map.insert(allocation(0x10000, 100, AllocationKind::Pinned, 1));
        assert!(map.is_devices(0x1ffff) && !map.is_devices(0x20000));
        map.insert(allocation(0x20000, 8, AllocationKind::Variable, 1));
        assert!(map.is_devices(0x20007) && !map.is_devices(0x20008));
        assert!(map.find(0x10000 + 99).is_some() && map.find(0x10000 + 100).is_none());
    }

    #[test]
    fn mappings_side_by_side_are_one_run() {
        let map = map();
        let first = allocation(0x10000, 0x1000, AllocationKind::Mapped, 0);
        map.insert(first);
        map.insert(allocation(0x11000, 0x1000, AllocationKind::Mapped, 0));
        map.insert(allocation(0x12000, 0x1000, AllocationKind::Pinned, 0));
        assert!(map.is_mapped_throughout(&first, 0x10800, 0x1800));
        assert!(!map.is_mapped_throughout(&first, 0x10800, 0x1801));
        assert!(!map.is_mapped_throughout(&first, 0x10800, u64::MAX));
    }

    #[test]
    fn registered_memory_has_one_alias_and_goes_with_its_context() {
        let map = map();
        let entry = |id| Registered { size: 0x100, flags: 0, ordinal: 0, context: 7, id, alias: 0 };
        assert!(map.register(0x1000, entry(1)));
        assert!(!map.register(0x10ff, entry(2)) && !map.register(0xf01, entry(2)));
        assert!(map.register(0x1100, entry(3)) && map.register(0xf00, entry(4)));
        assert_eq!(map.set_alias(0x1000, 1, 0x5000), Some(0x5000));
        assert_eq!(map.set_alias(0x1000, 1, 0x6000), Some(0x5000));
        assert_eq!(map.set_alias(0x1000, 9, 0x6000), None);
        assert_eq!(map.find_registered(0x10ff).map(|(base, r)| (base, r.alias)), Some((0x1000, 0x5000)));
        assert!(map.take_device(0).is_empty());
        assert_eq!(map.find_registered(0x1000).map(|(_, r)| r.alias), Some(0));
        assert_eq!(map.unregister(0x1100).map(|r| r.id), Some(3));
        map.insert(allocation(0x10000, 1, AllocationKind::Managed, 7));
        assert_eq!(map.take_context(7).len(), 1);
        assert!(map.find_registered(0x1000).is_none() && map.find(0x10000).is_none());
    }
}
