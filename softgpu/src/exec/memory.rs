//! The table of what is allocated, in the order of the calls.
//!
//! The table changes when a call is made; mappings follow when earlier work no longer needs them. So
//! checking work against the table when it is enqueued also makes sure that it finds its memory mapped.

use std::collections::BTreeMap;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

use rgpu_device::{Code, Error, MemoryInfo, MemoryKind, Ordinal, Range, Region, Result};

use super::arena::{Arena, PAGE};
use super::mirror::Mirror;
use super::stream::Point;
use super::transfer::CheckedRegion;

/// What kind of memory stands at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The caller's.
    Caller(MemoryKind),
    /// A module's variables.
    Module,
    /// Another process's, which the caller has borrowed.
    Borrowed,
}

impl Owner {
    /// Whether the caller may free it.
    pub(super) fn is_callers(self) -> bool {
        matches!(self, Self::Caller(_) | Self::Borrowed)
    }
}

#[derive(Debug, Clone, Copy)]
struct Allocation {
    range: Range,
    owner: Owner,
    ordinal: Ordinal,
}

/// An allocation that is gone from the table, but still mapped.
struct Released {
    allocation: Allocation,
    /// Parts that are still to be unmapped.
    parts: Vec<Range>,
    /// All work that was enqueued before.
    after: Vec<Point>,
    /// What a new allocation in the same place must wait for.
    order: Vec<Point>,
}

/// All memory of an application.
pub(super) struct Memory {
    arena: Arc<Arena>,
    table: BTreeMap<u64, Allocation>,
    released: Vec<Released>,
    total: u64,
    used: Vec<u64>,
}

/// Why [`Memory::allocate`] did not.
pub(super) enum Refusal {
    /// It cannot.
    Error(Error),
    /// The place is free only after these points.
    Wait(Vec<Point>),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl Memory {
    /// Nothing allocated.
    pub(super) fn new(arena: Arc<Arena>, devices: u32, total: u64) -> Self {
        let used = vec![0; devices as usize];
        Self { arena, table: BTreeMap::new(), released: Vec::new(), total, used }
    }

    /// Free and total memory of an ordinal.
    pub(super) fn info(&self, ordinal: Ordinal) -> MemoryInfo {
        MemoryInfo { free: self.total - self.used[ordinal as usize], total: self.total }
    }

    fn is_free(&self, range: Range) -> bool {
        self.table.range(..range.end()).next_back().is_none_or(|(_, a)| !a.range.overlaps(range))
    }

    /// Allocates. Returns points that later work has to wait for, where released memory is used again.
    pub(super) fn allocate(
        &mut self,
        mirror: &Mirror,
        ordinal: Ordinal,
        addr: u64,
        size: u64,
        kind: MemoryKind,
    ) -> std::result::Result<Vec<Point>, Refusal> {
        let invalid = |what: &str| {
            Refusal::Error(Error::new(Code::InvalidValue, format!("{what}: {size} bytes at {addr:#x}")))
        };
        let range = self.arena.plan.check_place(ordinal, addr, size, kind)?;
        if !self.is_free(range) {
            return Err(invalid("The place is taken"));
        }
        if kind == MemoryKind::Device && size > self.total - self.used[ordinal as usize] {
            return Err(Refusal::Error(Error::new(
                Code::OutOfMemory,
                format!("{size} bytes do not fit into the {} left", self.info(ordinal).free),
            )));
        }
        let mut order = Vec::new();
        let mut fresh = vec![range];
        for released in &mut self.released {
            let touching: Vec<Range> =
                released.parts.iter().copied().filter(|&p| p.overlaps(range)).collect();
            if touching.is_empty() {
                continue;
            }
            // Nothing takes the place of another process's pages.
            if kind != MemoryKind::Device || released.allocation.owner == Owner::Borrowed {
                return Err(Refusal::Wait(released.after.clone()));
            }
            // What is still mapped stays mapped.
            for part in touching {
                fresh = fresh.into_iter().flat_map(|f| f.without(part)).collect();
            }
            let parts = std::mem::take(&mut released.parts);
            released.parts = parts.into_iter().flat_map(|p| p.without(range)).collect();
            order.extend_from_slice(&released.order);
        }
        for (done, &part) in fresh.iter().enumerate() {
            let mapped = match kind {
                MemoryKind::Device => self.arena.map_device(ordinal as usize, part),
                MemoryKind::Direct => self.arena.map_direct(part),
                MemoryKind::Mirrored => mirror.add(part),
            };
            if let Err(error) = mapped {
                // Only device memory is ever mapped in parts.
                for &part in fresh.iter().take(done) {
                    self.arena.unmap_device(ordinal as usize, part);
                }
                return Err(Refusal::Error(error));
            }
        }
        if kind == MemoryKind::Device {
            self.used[ordinal as usize] += size;
        }
        self.table.insert(addr, Allocation { range, owner: Owner::Caller(kind), ordinal });
        Ok(order)
    }

    /// Places a part of another process's memory file.
    pub(super) fn borrow(
        &mut self,
        ordinal: Ordinal,
        place: Range,
        file: &OwnedFd,
        offset: u64,
    ) -> std::result::Result<(), Refusal> {
        let range = self.arena.plan.check_place(ordinal, place.base, place.size, MemoryKind::Device)?;
        if !self.is_free(range) {
            let text = format!("The place is taken: {} bytes at {:#x}", place.size, place.base);
            return Err(Refusal::Error(Error::new(Code::InvalidValue, text)));
        }
        let pending = self.released.iter().find(|r| r.parts.iter().any(|part| part.overlaps(range)));
        if let Some(released) = pending {
            return Err(Refusal::Wait(released.after.clone()));
        }
        self.arena.map_borrowed(range, file, offset)?;
        self.table.insert(range.base, Allocation { range, owner: Owner::Borrowed, ordinal });
        Ok(())
    }

    /// Where a part of one allocation of device memory is: the file, and the offset in it.
    pub(super) fn lend(&self, ordinal: Ordinal, part: Range) -> Result<(RawFd, u64)> {
        let own = Owner::Caller(MemoryKind::Device);
        let found = self.lookup(part.base, part.size).filter(|a| a.owner == own && a.ordinal == ordinal);
        let whole = part.base.is_multiple_of(PAGE) && part.size.is_multiple_of(PAGE) && part.size > 0;
        if found.is_none() || !whole {
            let text = format!("The {} bytes at {:#x} are no pages of one allocation", part.size, part.base);
            return Err(Error::new(Code::InvalidValue, text));
        }
        self.arena.place_of(ordinal as usize, part).ok_or_else(|| {
            let text = "sharing memory with other processes (cuIpcGetMemHandle) needs memory files, which this system does not give";
            Error::new(Code::NotSupported, text)
        })
    }

    /// Finds room for a module's variables and maps it.
    pub(super) fn allocate_module(&mut self, ordinal: Ordinal, size: u64) -> Result<Range> {
        let zone = self.arena.globals;
        let full =
            || Error::new(Code::OutOfMemory, format!("No room for {size} bytes of module-level variables"));
        let size = size.max(1).checked_next_multiple_of(PAGE).ok_or_else(full)?;
        // First fit, among modules in use and those on their way out; a page apart, so that running over
        // an end faults.
        let mut taken: Vec<Range> = self.table.range(zone.base..zone.end()).map(|(_, a)| a.range).collect();
        taken.extend(self.released.iter().map(|r| r.allocation.range).filter(|r| zone.contains(r.base, 1)));
        taken.sort_by_key(|r| r.base);
        let mut base = zone.base;
        for range in taken {
            if range.base - base.min(range.base) >= size + PAGE {
                break;
            }
            base = range.end() + PAGE;
        }
        if !zone.contains(base, size) {
            return Err(full());
        }
        let range = Range { base, size };
        self.arena.map_variables(range)?;
        self.table.insert(base, Allocation { range, owner: Owner::Module, ordinal });
        Ok(range)
    }

    /// Releases the allocation that starts at `addr`: it leaves the table now, and is unmapped after the
    /// points in `after`.
    pub(super) fn release(
        &mut self,
        ordinal: Ordinal,
        addr: u64,
        owner: fn(Owner) -> bool,
        order: Vec<Point>,
        after: Vec<Point>,
    ) -> Result<()> {
        let found = self.table.get(&addr).copied().filter(|a| owner(a.owner) && a.ordinal == ordinal);
        let Some(allocation) = found else {
            return Err(Error::new(Code::InvalidValue, format!("No allocation starts at {addr:#x}")));
        };
        self.table.remove(&addr);
        if allocation.owner == Owner::Caller(MemoryKind::Device) {
            self.used[ordinal as usize] -= allocation.range.size;
        }
        self.released.push(Released { allocation, parts: vec![allocation.range], after, order });
        Ok(())
    }

    /// Unmaps what no work needs any more.
    pub(super) fn settle(&mut self, mirror: &Mirror, reached: impl Fn(Point) -> bool) {
        let arena = &self.arena;
        self.released.retain_mut(|released| {
            released.after.retain(|&p| !reached(p));
            if !released.after.is_empty() {
                return true;
            }
            let Allocation { range, owner, ordinal } = released.allocation;
            for &part in &released.parts {
                match owner {
                    Owner::Caller(MemoryKind::Device) => arena.unmap_device(ordinal as usize, part),
                    Owner::Caller(MemoryKind::Mirrored) => mirror.remove(range.base),
                    Owner::Module | Owner::Borrowed => arena.unmap_beside(part),
                    Owner::Caller(MemoryKind::Direct) => arena.unmap(part),
                }
            }
            false
        });
    }

    /// Whether something waits to be unmapped.
    pub(super) fn is_unsettled(&self) -> bool {
        !self.released.is_empty()
    }

    /// Whether an address is one of those that were reserved for the device.
    pub(super) fn is_of_the_device(&self, addr: u64) -> bool {
        self.arena.plan.whole.contains(addr, 1)
    }

    /// The starts of an ordinal's allocations.
    pub(super) fn of(&self, ordinal: Ordinal) -> Vec<u64> {
        self.table.iter().filter(|(_, a)| a.ordinal == ordinal).map(|(&addr, _)| addr).collect()
    }

    /// Whether `len` bytes at `addr` lie in one mirrored or direct allocation.
    pub(super) fn is_shared(&self, addr: u64, len: u64) -> bool {
        self.lookup(addr, len)
            .is_some_and(|a| matches!(a.owner, Owner::Caller(MemoryKind::Mirrored | MemoryKind::Direct)))
    }

    fn lookup(&self, addr: u64, len: u64) -> Option<&Allocation> {
        self.table.range(..=addr).next_back().map(|(_, a)| a).filter(|a| a.range.contains(addr, len))
    }

    /// Whether `len` bytes at `addr` lie in the caller's device memory, in several allocations side by side.
    fn is_device_throughout(&self, addr: u64, len: u64) -> bool {
        let Some(end) = addr.checked_add(len) else { return false };
        let mut at = addr;
        while at < end {
            match self.lookup(at, 1) {
                Some(a) if a.owner == Owner::Caller(MemoryKind::Device) => at = a.range.end(),
                _ => return false,
            }
        }
        true
    }

    /// Checks that work may use a region, as far as it is not empty.
    pub(super) fn place(&self, region: Region) -> Result<CheckedRegion> {
        region.check()?;
        let extent = region.extent().unwrap_or(u64::MAX);
        if extent == 0 {
            return Ok(CheckedRegion { region, mirrored: false });
        }
        match self.lookup(region.addr, extent) {
            Some(a) => Ok(CheckedRegion { region, mirrored: a.owner == Owner::Caller(MemoryKind::Mirrored) }),
            None if self.is_device_throughout(region.addr, extent) => {
                Ok(CheckedRegion { region, mirrored: false })
            }
            None => Err(Error::new(
                Code::InvalidValue,
                format!("The {extent} bytes at {:#x} are not in one allocation", region.addr),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_cut_out() {
        let part = Range { base: 100, size: 100 };
        let cut = |base, size| part.without(Range { base, size });
        assert_eq!(cut(0, 100), [part]);
        assert_eq!(cut(50, 500), []);
        assert_eq!(cut(120, 10), [Range { base: 100, size: 20 }, Range { base: 130, size: 70 }]);
    }
}
