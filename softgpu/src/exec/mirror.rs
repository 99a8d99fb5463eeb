//! Mirrored memory: host and device each have a copy, and this is the device's.
//!
//! The memory is divided into *granules*. A granule that the device has not touched is inaccessible, so
//! that the first access faults and fetches it from the host; a fetched one is read-only, so that the
//! first write faults and keeps a *twin*, by which the changed bytes are found later. The executor itself
//! reads and writes through a second mapping of the same memory, the alias, which never faults.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rgpu_device::{Code, Error, Host, Range, Result};

use super::arena::Arena;

/// Allocations up to this size are fetched as a whole.
const SMALL: u64 = 256 << 10;
/// The longest run that is fetched at once.
const LONGEST_FETCH: u64 = 4 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GranuleState {
    /// The device has no bytes of it.
    Absent,
    /// Equal to the host's.
    Clean,
    /// Changed by the device since it was last equal.
    Dirty,
    /// Changed by the device, and the host's bytes may have changed as well.
    Stale,
}

struct Granule {
    state: GranuleState,
    /// Somebody is fetching it.
    fetching: bool,
    /// What is being fetched is already out of date.
    outdated: bool,
    /// The host's bytes when the device first wrote; none in a `Dirty` granule means that every byte
    /// counts as changed.
    twin: Option<Box<[u8]>>,
}

struct Area {
    range: Range,
    granule: u64,
    alias: *mut u8,
    granules: Vec<Granule>,
    /// Granules that the next fetch takes along, and where it would continue.
    run: usize,
    next: usize,
}

// SAFETY: `alias` is a mapping that the area owns; all use is under the mirror's lock.
unsafe impl Send for Area {}

/// The device's copies of mirrored memory.
pub(super) struct Mirror {
    arena: Arc<Arena>,
    host: Arc<dyn Host>,
    areas: Mutex<BTreeMap<u64, Area>>,
    fetched: Condvar,
}

type Areas<'a> = MutexGuard<'a, BTreeMap<u64, Area>>;

impl Area {
    fn index(&self, addr: u64) -> usize {
        ((addr - self.range.base) / self.granule) as usize
    }

    /// The bytes of some granules, relative to the area.
    fn span(&self, first: usize, count: usize) -> (usize, usize) {
        let from = first as u64 * self.granule;
        let to = (from + count as u64 * self.granule).min(self.range.size);
        (from as usize, (to - from) as usize)
    }

    fn bytes(&mut self, from: usize, len: usize) -> &mut [u8] {
        debug_assert!((from + len) as u64 <= self.range.size);
        // SAFETY: inside the alias mapping. Kernels write the same memory through the arena meanwhile;
        // the bytes have no invalid values, and a race is the program's own.
        unsafe { std::slice::from_raw_parts_mut(self.alias.add(from), len) }
    }

    fn protect(&self, arena: &Arena, first: usize, count: usize, protection: i32) -> bool {
        let (from, len) = self.span(first, count);
        let part = Range { base: self.range.base + from as u64, size: len as u64 };
        arena.protect(part, protection).is_ok()
    }

    /// Keeps the twin of a clean granule and lets the device write.
    fn make_dirty(&mut self, arena: &Arena, index: usize) -> bool {
        let (from, len) = self.span(index, 1);
        let twin = Box::from(&*self.bytes(from, len));
        self.granules[index].twin = Some(twin);
        self.granules[index].state = GranuleState::Dirty;
        self.protect(arena, index, 1, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Takes the host's bytes of a granule over.
    fn install(&mut self, arena: &Arena, index: usize, host: &[u8]) -> bool {
        let (from, len) = self.span(index, 1);
        let granule = &mut self.granules[index];
        granule.fetching = false;
        if std::mem::take(&mut granule.outdated) {
            return true;
        }
        match granule.state {
            GranuleState::Absent => {
                self.granules[index].state = GranuleState::Clean;
                self.bytes(from, len).copy_from_slice(host);
                self.protect(arena, index, 1, libc::PROT_READ)
            }
            GranuleState::Stale => {
                let mut twin = granule.twin.take().unwrap_or_default();
                granule.state = GranuleState::Dirty;
                let mine = self.bytes(from, len);
                for ((mine, twin), host) in mine.iter_mut().zip(twin.iter_mut()).zip(host) {
                    if *mine == *twin {
                        *mine = *host;
                    }
                    *twin = *host;
                }
                self.granules[index].twin = Some(twin);
                self.protect(arena, index, 1, libc::PROT_READ | libc::PROT_WRITE)
            }
            GranuleState::Clean | GranuleState::Dirty => true,
        }
    }
}

fn area_at(areas: &mut BTreeMap<u64, Area>, addr: u64) -> Option<&mut Area> {
    let (_, area) = areas.range_mut(..=addr).next_back()?;
    area.range.contains(addr, 1).then_some(area)
}

impl Mirror {
    /// No mirrored memory yet.
    pub(super) fn new(arena: Arc<Arena>, host: Arc<dyn Host>) -> Self {
        Self { arena, host, areas: Mutex::new(BTreeMap::new()), fetched: Condvar::new() }
    }

    /// Places mirrored memory.
    pub(super) fn add(&self, range: Range) -> Result<()> {
        self.arena.map_mirrored(range)?;
        let offset = range.base - self.arena.plan.shared.base;
        // SAFETY: a fresh mapping of the same part of the file.
        let alias = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                range.size as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                self.arena.mirrored_file().as_raw_fd(),
                offset as i64,
            )
        };
        if alias == libc::MAP_FAILED {
            let error = std::io::Error::last_os_error();
            self.arena.unmap_mirrored(range);
            return Err(Error::new(Code::OperatingSystem, format!("Cannot map mirrored memory: {error}")));
        }
        // Few enough granules that their protections do not use up the process's mappings.
        let granule = match range.size {
            0..=0x10_0000 => 4 << 10,
            0x10_0001..=0x1000_0000 => 64 << 10,
            _ => 1 << 20,
        };
        let granules = (0..range.size.div_ceil(granule))
            .map(|_| Granule { state: GranuleState::Absent, fetching: false, outdated: false, twin: None })
            .collect();
        let area = Area { range, granule, alias: alias.cast(), granules, run: 1, next: usize::MAX };
        self.areas.lock().insert(range.base, area);
        Ok(())
    }

    /// Takes mirrored memory away.
    pub(super) fn remove(&self, base: u64) {
        let mut areas = self.areas.lock();
        if let Some(area) = areas.remove(&base) {
            // SAFETY: the area's own mapping.
            unsafe { libc::munmap(area.alias.cast(), area.range.size as usize) };
            self.arena.unmap_mirrored(area.range);
        }
        self.fetched.notify_all();
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.areas.lock().is_empty()
    }

    /// Serves a kernel's fault; false if the access is wrong. Called from the signal handler, on a
    /// thread that holds no lock.
    pub(super) fn fault(&self, addr: u64, write: bool) -> bool {
        if !self.arena.plan.shared.contains(addr, 1) {
            return self.arena.reaches_scratch(addr);
        }
        let mut areas = self.areas.lock();
        loop {
            let Some(area) = area_at(&mut areas, addr) else { return false };
            let index = area.index(addr);
            match area.granules[index].state {
                GranuleState::Absent | GranuleState::Stale => match self.fetch(areas, addr) {
                    Ok(again) => areas = again,
                    Err(_) => return false,
                },
                GranuleState::Clean if write => return area.make_dirty(&self.arena, index),
                // Somebody else was faster.
                GranuleState::Clean | GranuleState::Dirty => return true,
            }
        }
    }

    /// Fetches the granule of `addr`, and more where that looks useful, or waits for the one who does.
    fn fetch<'a>(&'a self, mut areas: Areas<'a>, addr: u64) -> Result<Areas<'a>> {
        let gone = || Error::new(Code::IllegalAddress, format!("The memory at {addr:#x} was freed"));
        let area = area_at(&mut areas, addr).ok_or_else(gone)?;
        let index = area.index(addr);
        if area.granules[index].fetching {
            self.fetched.wait(&mut areas);
            return Ok(areas);
        }
        let wanted =
            |g: &Granule| matches!(g.state, GranuleState::Absent | GranuleState::Stale) && !g.fetching;
        let (mut first, mut count) = (index, 1);
        if area.range.size <= SMALL {
            while first > 0 && wanted(&area.granules[first - 1]) {
                first -= 1;
                count += 1;
            }
            while first + count < area.granules.len() && wanted(&area.granules[first + count]) {
                count += 1;
            }
        } else {
            let most = (LONGEST_FETCH / area.granule) as usize;
            area.run = if index == area.next { (area.run * 2).min(most) } else { (64 << 10) / 4096 }.max(1);
            if area.granule >= 64 << 10 && index != area.next {
                area.run = 1;
            }
            while count < area.run
                && first + count < area.granules.len()
                && wanted(&area.granules[first + count])
            {
                count += 1;
            }
            area.next = first + count;
        }
        for granule in &mut area.granules[first..first + count] {
            granule.fetching = true;
            granule.outdated = false;
        }
        let (from, len) = area.span(first, count);
        let (base, at) = (area.range.base, area.range.base + from as u64);
        let mut bytes = vec![0; len];
        let outcome = MutexGuard::unlocked(&mut areas, || self.host.fetch(at, &mut bytes));
        let area = areas.get_mut(&base).filter(|a| a.granules.len() >= first + count).ok_or_else(gone)?;
        let mut good = true;
        for (i, host) in (first..first + count).zip(bytes.chunks(area.granule as usize)) {
            match &outcome {
                Ok(()) => good &= area.install(&self.arena, i, host),
                Err(_) => area.granules[i].fetching = false,
            }
        }
        self.fetched.notify_all();
        outcome?;
        if !good {
            return Err(Error::new(Code::OperatingSystem, "Cannot change the protection of mirrored memory"));
        }
        Ok(areas)
    }

    /// Visits `len` bytes at `addr` granule by granule, under the lock: the area, the granule's index,
    /// and which bytes (from, to, relative to the area). The visitor says whether the granule must be
    /// fetched first; then it is called again.
    fn visit(
        &self,
        addr: u64,
        len: u64,
        mut visitor: impl FnMut(&mut Area, usize, std::ops::Range<usize>) -> bool,
    ) -> Result<()> {
        let outside = || Error::new(Code::IllegalAddress, format!("No mirrored memory at {addr:#x}"));
        let mut areas = self.areas.lock();
        let end = addr.checked_add(len).ok_or_else(outside)?;
        let mut at = addr;
        while at < end {
            let area = area_at(&mut areas, at).ok_or_else(outside)?;
            let index = area.index(at);
            let (from, size) = area.span(index, 1);
            let to = ((end - area.range.base) as usize).min(from + size);
            let from = (at - area.range.base) as usize;
            if visitor(area, index, from..to) {
                areas = self.fetch(areas, at)?;
            } else {
                at += (to - from) as u64;
            }
        }
        Ok(())
    }

    /// Reads mirrored memory as the device sees it.
    pub(super) fn read(&self, addr: u64, buf: &mut [u8]) -> Result<()> {
        let mut done = 0;
        self.visit(addr, buf.len() as u64, |area, index, part| {
            if matches!(area.granules[index].state, GranuleState::Absent | GranuleState::Stale) {
                return true;
            }
            let len = part.len();
            buf[done..done + len].copy_from_slice(area.bytes(part.start, len));
            done += len;
            false
        })
    }

    /// Writes mirrored memory as the device does. Never asks the host: where its bytes are not there, the
    /// twin is made such that just the written ones count as changed, and the rest is merged in later.
    pub(super) fn write(&self, addr: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        let mut protected = true;
        self.visit(addr, data.len() as u64, |area, index, part| {
            let (start, size) = area.span(index, 1);
            let len = part.len();
            let new = &data[done..done + len];
            done += len;
            if len == size {
                let granule = &mut area.granules[index];
                granule.state = GranuleState::Dirty;
                granule.twin = None;
                granule.outdated = granule.fetching;
                protected &= area.protect(&self.arena, index, 1, libc::PROT_READ | libc::PROT_WRITE);
            } else {
                match area.granules[index].state {
                    GranuleState::Clean => protected &= area.make_dirty(&self.arena, index),
                    GranuleState::Absent => {
                        area.bytes(start, size).fill(0);
                        area.granules[index].twin = Some(vec![0; size].into());
                        area.granules[index].state = GranuleState::Stale;
                    }
                    GranuleState::Dirty | GranuleState::Stale => {}
                }
                if let Some(twin) = &mut area.granules[index].twin {
                    let twin = &mut twin[part.start - start..part.end - start];
                    twin.iter_mut().zip(new).for_each(|(twin, new)| *twin = !new);
                }
            }
            area.bytes(part.start, len).copy_from_slice(new);
            false
        })?;
        if protected {
            Ok(())
        } else {
            Err(Error::new(Code::OperatingSystem, "Cannot change the protection of mirrored memory"))
        }
    }

    /// Visits the parts of `len` bytes at `addr` that are mirrored memory, in order: offset into the
    /// bytes, area, granule, bytes of the area.
    fn visit_mirrored(
        &self,
        addr: u64,
        len: u64,
        mut visitor: impl FnMut(usize, &mut Area, usize, std::ops::Range<usize>),
    ) {
        if len == 0 || addr.checked_add(len).is_none() {
            return;
        }
        let shared = self.arena.plan.shared;
        if addr >= shared.end() || addr + len <= shared.base {
            return;
        }
        let mut areas = self.areas.lock();
        let first = areas.range(..=addr).next_back().map_or(addr, |(&base, _)| base);
        for (_, area) in areas.range_mut(first..addr + len) {
            let mut at = addr.max(area.range.base);
            let end = (addr + len).min(area.range.end());
            while at < end {
                let index = area.index(at);
                let (from, size) = area.span(index, 1);
                let to = ((end - area.range.base) as usize).min(from + size);
                let from = (at - area.range.base) as usize;
                visitor((at - addr) as usize, area, index, from..to);
                at += (to - from) as u64;
            }
        }
    }

    /// Puts what the device has changed over bytes that the host sent from `addr`.
    pub(super) fn overlay(&self, addr: u64, data: &mut [u8]) {
        self.visit_mirrored(addr, data.len() as u64, |offset, area, index, part| {
            if !matches!(area.granules[index].state, GranuleState::Dirty | GranuleState::Stale) {
                return;
            }
            let (start, _) = area.span(index, 1);
            let twin = area.granules[index].twin.take();
            let mine = area.bytes(part.start, part.len());
            let data = &mut data[offset..offset + part.len()];
            match &twin {
                None => data.copy_from_slice(mine),
                Some(twin) => {
                    let twin = &twin[part.start - start..part.end - start];
                    for ((data, mine), twin) in data.iter_mut().zip(mine.iter()).zip(twin) {
                        if mine != twin {
                            *data = *mine;
                        }
                    }
                }
            }
            area.granules[index].twin = twin;
        });
    }

    /// The host's memory at `addr` has become `data`: the device's copy follows.
    pub(super) fn follow(&self, addr: u64, data: &[u8]) {
        self.visit_mirrored(addr, data.len() as u64, |offset, area, index, part| {
            let data = &data[offset..offset + part.len()];
            let (start, size) = area.span(index, 1);
            area.granules[index].outdated |= area.granules[index].fetching;
            match area.granules[index].state {
                GranuleState::Absent => {}
                GranuleState::Clean => area.bytes(part.start, part.len()).copy_from_slice(data),
                GranuleState::Dirty | GranuleState::Stale => {
                    // Without a twin every byte counts as changed, until all have been replaced.
                    if part.len() == size && area.granules[index].twin.is_none() {
                        area.granules[index].twin = Some(Box::from(data));
                    }
                    if let Some(twin) = &mut area.granules[index].twin {
                        twin[part.start - start..part.end - start].copy_from_slice(data);
                    }
                    area.bytes(part.start, part.len()).copy_from_slice(data);
                }
            }
        });
    }

    /// The host may have changed its bytes: what is clean is forgotten, what is dirty is merged with the
    /// host's bytes when next touched.
    pub(super) fn invalidate(&self) {
        let mut areas = self.areas.lock();
        for area in areas.values_mut() {
            let mut first = 0;
            while first < area.granules.len() {
                let mut count = 0;
                while let Some(granule) = area.granules.get_mut(first + count) {
                    granule.outdated |= granule.fetching;
                    match granule.state {
                        GranuleState::Clean => granule.state = GranuleState::Absent,
                        GranuleState::Dirty if granule.twin.is_some() => granule.state = GranuleState::Stale,
                        _ => break,
                    }
                    count += 1;
                }
                if count > 0 {
                    area.protect(&self.arena, first, count, libc::PROT_NONE);
                }
                first += count.max(1);
            }
        }
    }

    /// Hands out what the device has changed, and marks it as agreed.
    pub(super) fn collect(&self, sink: &mut dyn FnMut(u64, &[u8])) {
        let mut areas = self.areas.lock();
        for area in areas.values_mut() {
            let mut first = 0;
            while first < area.granules.len() {
                let mut count = 0;
                while area.granules.get(first + count).is_some_and(|g| g.state == GranuleState::Dirty) {
                    count += 1;
                }
                if count > 0 {
                    // Before reading: a kernel that writes meanwhile faults and waits for the lock.
                    area.protect(&self.arena, first, count, libc::PROT_READ);
                }
                for index in first..first + count.max(1) {
                    let state = area.granules[index].state;
                    if !matches!(state, GranuleState::Dirty | GranuleState::Stale) {
                        continue;
                    }
                    let twin = area.granules[index].twin.take();
                    let (from, len) = area.span(index, 1);
                    let base = area.range.base + from as u64;
                    differences(area.bytes(from, len), twin.as_deref(), |at, run| {
                        sink(base + at as u64, run)
                    });
                    let granule = &mut area.granules[index];
                    granule.outdated |= granule.fetching;
                    granule.state =
                        if state == GranuleState::Dirty { GranuleState::Clean } else { GranuleState::Absent };
                }
                first += count.max(1);
            }
        }
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        for area in self.areas.get_mut().values() {
            // SAFETY: the area's own mapping.
            unsafe { libc::munmap(area.alias.cast(), area.range.size as usize) };
        }
    }
}

/// Calls `found` for each run of bytes that differ from the twin.
fn differences(mine: &[u8], twin: Option<&[u8]>, mut found: impl FnMut(usize, &[u8])) {
    let Some(twin) = twin else {
        found(0, mine);
        return;
    };
    let len = mine.len().min(twin.len());
    let word = |s: &[u8], at: usize| u64::from_ne_bytes(s[at..at + 8].try_into().unwrap_or([0; 8]));
    let mut at = 0;
    while at < len {
        while at + 8 <= len && word(mine, at) == word(twin, at) {
            at += 8;
        }
        while at < len && mine[at] == twin[at] {
            at += 1;
        }
        let start = at;
        while at < len && mine[at] != twin[at] {
            at += 1;
        }
        if start < at {
            found(start, &mine[start..at]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_found_to_the_byte() {
        let twin = [0u8; 40];
        let mut mine = twin;
        for i in [0, 7, 8, 9, 31, 39] {
            mine[i] = 1;
        }
        let mut runs = Vec::new();
        differences(&mine, Some(&twin), |at, run| runs.push((at, run.len())));
        assert_eq!(runs, [(0, 1), (7, 3), (31, 1), (39, 1)]);
    }
}
