//! What is allocated where, and the physical memory behind it.
//!
//! The caller places allocations at multiples of 4 KiB; the driver maps memory in pieces of 2 MiB. Neighbours
//! share the pieces at their edges: each piece counts who uses it, and goes when nobody does.

use super::driver::Driver;
use super::sys::DeviceId;
use rgpu_device::{AddressPlan, Code, Error, GlobalInfo, Handle, MemoryKind, Ordinal, Range, Region, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Physical memory is mapped in multiples of this.
pub(crate) const PIECE: u64 = 2 << 20;

/// A region that was found to be valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CheckedRegion {
    /// The device memory that the copy reads or writes.
    pub region: Region,
    /// Whether they are mirrored memory.
    pub mirrored: bool,
    /// Whose memory it is.
    pub ordinal: Ordinal,
}

/// An allocation.
#[derive(Debug, Clone)]
pub(crate) struct Allocation {
    /// The addresses that are reserved for it.
    pub range: Range,
    /// Mirrored, or the device's alone.
    pub mirrored: bool,
    /// Whose it is.
    pub ordinal: Ordinal,
    /// The pieces behind it.
    pub pieces: Vec<u64>,
}

/// What is allocated where.
pub(crate) struct Table {
    plan: AddressPlan,
    allocations: BTreeMap<u64, Allocation>,
    /// Module-level variables, at addresses of the driver's: the range, the ordinal, the module.
    variables: BTreeMap<u64, (Range, Ordinal, Handle)>,
    used: Vec<u64>,
    limits: Vec<u64>,
    /// What was released and may still be in use by earlier work, by number.
    pub releasing: Vec<(u64, Range)>,
}

impl Table {
    /// Nothing allocated; `limits` are the most bytes of each ordinal.
    pub(crate) fn new(plan: AddressPlan, limits: Vec<u64>) -> Self {
        let used = vec![0; limits.len()];
        Self {
            plan,
            allocations: BTreeMap::new(),
            variables: BTreeMap::new(),
            used,
            limits,
            releasing: Vec::new(),
        }
    }

    /// The reserved ranges that belong to an ordinal; the shared one is the first one's.
    pub(crate) fn ranges(&self, ordinal: Ordinal) -> Vec<Range> {
        let own = self.plan.devices.get(ordinal as usize).copied();
        own.into_iter().chain((ordinal == 0).then_some(self.plan.shared)).collect()
    }

    /// Bytes that an ordinal may still allocate, and in all.
    pub(crate) fn room(&self, ordinal: Ordinal) -> (u64, u64) {
        let at = ordinal as usize;
        (self.limits[at] - self.used[at], self.limits[at])
    }

    /// Takes a place.
    pub(crate) fn insert(
        &mut self,
        ordinal: Ordinal,
        addr: u64,
        size: u64,
        kind: MemoryKind,
    ) -> Result<Range> {
        if kind == MemoryKind::Direct {
            let text = "An NVIDIA device has no memory that is also the program's own";
            return Err(Error::new(Code::NotSupported, text));
        }
        let range = self.plan.check_place(ordinal, addr, size, kind)?;
        let before = self.allocations.range(..range.end()).next_back();
        if before.is_some_and(|(_, a)| a.range.overlaps(range)) {
            let text = format!("The place is taken: {size} bytes at {addr:#x}");
            return Err(Error::new(Code::InvalidValue, text));
        }
        let mirrored = kind == MemoryKind::Mirrored;
        if !mirrored {
            let (free, _) = self.room(ordinal);
            if size > free {
                let text = format!("{size} bytes do not fit into the {free} left");
                return Err(Error::new(Code::OutOfMemory, text));
            }
            self.used[ordinal as usize] += size;
        }
        self.allocations.insert(addr, Allocation { range, mirrored, ordinal, pieces: Vec::new() });
        Ok(range)
    }

    /// Notes what is behind an allocation.
    pub(crate) fn backed(&mut self, addr: u64, pieces: Vec<u64>) {
        if let Some(allocation) = self.allocations.get_mut(&addr) {
            allocation.pieces = pieces;
        }
    }

    /// Removes the allocation that starts at `addr`.
    pub(crate) fn remove(&mut self, ordinal: Ordinal, addr: u64) -> Result<Allocation> {
        match self.allocations.get(&addr) {
            Some(found) if found.ordinal == ordinal => {}
            _ => return Err(Error::new(Code::InvalidValue, format!("No allocation starts at {addr:#x}"))),
        }
        let Some(allocation) = self.allocations.remove(&addr) else { return Err(Code::InvalidValue.into()) };
        if !allocation.mirrored {
            self.used[ordinal as usize] -= allocation.range.size;
        }
        Ok(allocation)
    }

    /// Removes all of an ordinal's allocations and variables.
    pub(crate) fn remove_all(&mut self, ordinal: Ordinal) -> Vec<Allocation> {
        self.variables.retain(|_, v| v.1 != ordinal);
        let addrs: Vec<u64> =
            self.allocations.iter().filter(|(_, a)| a.ordinal == ordinal).map(|(&addr, _)| addr).collect();
        addrs.into_iter().filter_map(|addr| self.remove(ordinal, addr).ok()).collect()
    }

    /// Which released memory a place may still overlap.
    pub(crate) fn overlapping_releases(&self, range: Range) -> Vec<(u64, Range)> {
        self.releasing.iter().copied().filter(|(_, r)| r.overlaps(range)).collect()
    }

    /// A module's variables have addresses.
    pub(crate) fn add_variables(&mut self, ordinal: Ordinal, module: Handle, globals: &[GlobalInfo]) {
        for global in globals {
            let range = Range { base: global.addr, size: global.size };
            self.variables.insert(global.addr, (range, ordinal, module));
        }
    }

    /// A module's variables are gone.
    pub(crate) fn remove_variables(&mut self, module: Handle) {
        self.variables.retain(|_, v| v.2 != module);
    }

    /// Whether `len` bytes at `addr` are mirrored memory.
    pub(crate) fn is_mirrored(&self, addr: u64, len: u64) -> bool {
        self.find(addr, len).is_some_and(|(mirrored, _)| mirrored)
    }

    fn find(&self, addr: u64, len: u64) -> Option<(bool, Ordinal)> {
        if let Some((_, a)) = self.allocations.range(..=addr).next_back()
            && a.range.contains(addr, len)
        {
            return Some((a.mirrored, a.ordinal));
        }
        if let Some(ordinal) = self.side_by_side(addr, len) {
            return Some((false, ordinal));
        }
        let (_, (range, ordinal, _)) = self.variables.range(..=addr).next_back()?;
        range.contains(addr, len).then_some((false, *ordinal))
    }

    /// The ordinal of several allocations side by side, none of them mirrored, in which these bytes lie. So a program
    /// sees memory that it has mapped piece by piece.
    fn side_by_side(&self, addr: u64, len: u64) -> Option<Ordinal> {
        let end = addr.checked_add(len)?;
        let (_, first) = self.allocations.range(..=addr).next_back()?;
        let mut at = addr;
        while at < end {
            let (_, a) = self.allocations.range(..=at).next_back()?;
            if a.mirrored || a.ordinal != first.ordinal || !a.range.contains(at, 1) {
                return None;
            }
            at = a.range.end();
        }
        Some(first.ordinal)
    }

    /// Checks that work may use a region, as far as it is not empty.
    pub(crate) fn place(&self, region: Region) -> Result<CheckedRegion> {
        region.check()?;
        let extent = region.extent().unwrap_or(u64::MAX);
        if extent == 0 {
            return Ok(CheckedRegion { region, mirrored: false, ordinal: 0 });
        }
        match self.find(region.addr, extent) {
            Some((mirrored, ordinal)) => Ok(CheckedRegion { region, mirrored, ordinal }),
            None => Err(Error::new(
                Code::InvalidValue,
                format!("The {extent} bytes at {:#x} are not in one allocation", region.addr),
            )),
        }
    }
}

struct Piece {
    size: u64,
    handle: u64,
    users: usize,
}

/// The physical memory that is mapped.
pub(crate) struct Pieces {
    driver: Arc<Driver>,
    /// By ordinal: the device, and the devices that can reach its memory.
    devices: Vec<(DeviceId, Vec<DeviceId>)>,
    /// By address.
    mapped: BTreeMap<u64, Piece>,
}

impl Pieces {
    /// Nothing mapped.
    pub(crate) fn new(driver: Arc<Driver>, devices: Vec<(DeviceId, Vec<DeviceId>)>) -> Self {
        Self { driver, devices, mapped: BTreeMap::new() }
    }

    /// Makes sure that there is memory behind a range. The result is the pieces, to be given back, and which of
    /// the range is newly mapped.
    pub(crate) fn take(&mut self, ordinal: Ordinal, range: Range) -> Result<(Vec<u64>, Vec<Range>)> {
        let base = range.base / PIECE * PIECE;
        let end = range.end().next_multiple_of(PIECE);
        let before = self.mapped.range(..=base).next_back().map_or(base, |(&at, _)| at);
        let mut taken = Vec::new();
        let mut gaps = vec![Range { base, size: end - base }];
        for (&at, piece) in self.mapped.range_mut(before..end) {
            let have = Range { base: at, size: piece.size };
            if have.end() > base {
                piece.users += 1;
                taken.push(at);
                gaps = gaps.into_iter().flat_map(|gap| gap.without(have)).collect();
            }
        }
        // Neighbours will want to share the pieces at the edges, and those alone.
        let mut fresh = Vec::new();
        for gap in gaps {
            let inner = Range { base: range.base.next_multiple_of(PIECE), size: 0 };
            let inner_end = (range.end() / PIECE * PIECE).max(inner.base);
            for (from, to) in [(gap.base, inner.base), (inner.base, inner_end), (inner_end, gap.end())] {
                let (from, to) = (from.max(gap.base), to.min(gap.end()));
                if from >= to {
                    continue;
                }
                match self.map(ordinal, Range { base: from, size: to - from }) {
                    Ok(()) => {
                        taken.push(from);
                        fresh.push(Range { base: from, size: to - from });
                    }
                    Err(e) => {
                        self.give(&taken);
                        return Err(e);
                    }
                }
            }
        }
        Ok((taken, fresh))
    }

    fn map(&mut self, ordinal: Ordinal, range: Range) -> Result<()> {
        let (device, accessors) = &self.devices[ordinal as usize];
        let driver = &self.driver;
        let handle = driver.mem_create(*device, range.size)?;
        let undo = |e: Error, mapped: bool| {
            if mapped {
                let _ = driver.mem_unmap(range.base, range.size);
            }
            let _ = driver.mem_release(handle);
            Err(e)
        };
        if let Err(e) = driver.mem_map(range.base, range.size, handle) {
            return undo(e, false);
        }
        if let Err(e) = driver.set_access(range.base, range.size, accessors) {
            return undo(e, true);
        }
        self.mapped.insert(range.base, Piece { size: range.size, handle, users: 1 });
        Ok(())
    }

    /// Gives pieces back.
    pub(crate) fn give(&mut self, pieces: &[u64]) {
        for base in pieces {
            let Some(piece) = self.mapped.get_mut(base) else { continue };
            piece.users -= 1;
            if piece.users == 0
                && let Some(piece) = self.mapped.remove(base)
            {
                // After a sticky error the driver refuses; then the memory is the process's until its end.
                // Released first, so that the driver knows at unmapping that nobody wants the contents.
                if let Err(e) = self.driver.mem_release(piece.handle) {
                    tracing::debug!("{e}");
                }
                if let Err(e) = self.driver.mem_unmap(*base, piece.size) {
                    tracing::debug!("{e}");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_device::PAGE;

    fn table() -> Table {
        let plan = AddressPlan {
            whole: Range { base: 0x1_0000_0000, size: 0x2_0000_0000 },
            devices: vec![Range { base: 0x1_0000_0000, size: 0x1_0000_0000 }],
            shared: Range { base: 0x2_0000_0000, size: 0x1_0000_0000 },
        };
        Table::new(plan, vec![1 << 20])
    }

    #[test]
    fn places_are_checked() {
        let mut table = table();
        let base = 0x1_0000_0000;
        let code = |r: Result<Range>| r.err().map(|e| e.code);
        assert_eq!(code(table.insert(0, base, 0, MemoryKind::Device)), Some(Code::InvalidValue));
        assert_eq!(code(table.insert(0, base + 1, PAGE, MemoryKind::Device)), Some(Code::InvalidValue));
        assert_eq!(code(table.insert(0, 0x1000, PAGE, MemoryKind::Device)), Some(Code::InvalidValue));
        assert_eq!(code(table.insert(0, base, PAGE, MemoryKind::Direct)), Some(Code::NotSupported));
        assert_eq!(code(table.insert(0, base, 2 << 20, MemoryKind::Device)), Some(Code::OutOfMemory));
        table.insert(0, base, 2 * PAGE, MemoryKind::Device).unwrap();
        assert_eq!(table.room(0), ((1 << 20) - 2 * PAGE, 1 << 20));
        assert_eq!(code(table.insert(0, base + PAGE, PAGE, MemoryKind::Device)), Some(Code::InvalidValue));
        assert!(table.place(Region::linear(base + PAGE, PAGE)).is_ok());
        assert!(table.place(Region::linear(base + PAGE, PAGE + 1)).is_err());
        table.insert(0, base + 2 * PAGE, PAGE, MemoryKind::Device).unwrap();
        assert!(table.place(Region::linear(base + PAGE, 2 * PAGE)).is_ok());
        assert!(table.place(Region::linear(base + PAGE, 2 * PAGE + 1)).is_err());
        table.remove(0, base + 2 * PAGE).unwrap();
        let wrapping = Region { addr: base, row_pitch: 1, slice_pitch: 1, width: 2, height: 2, depth: 1 };
        assert_eq!(table.place(wrapping).unwrap_err().code, Code::InvalidPitchValue);
        assert!(table.remove(0, base + PAGE).is_err());
        table.remove(0, base).unwrap();
        assert_eq!(table.room(0).0, 1 << 20);
        assert!(table.place(Region::linear(base, 1)).is_err());
    }

    #[test]
    fn variables_lie_where_the_driver_says() {
        let mut table = table();
        let global =
            GlobalInfo { name: "x".into(), addr: 0x7000, size: 12, kind: rgpu_device::GlobalKind::Global };
        table.add_variables(0, 5, &[global]);
        assert!(table.place(Region::linear(0x7004, 8)).is_ok());
        assert!(table.place(Region::linear(0x7004, 9)).is_err());
        table.remove_variables(5);
        assert!(table.place(Region::linear(0x7000, 1)).is_err());
    }
}
