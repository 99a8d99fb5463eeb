//! Mirrored memory: host and device each have a copy, and this keeps the device's.
//!
//! A GPU cannot be made to fault into this process, so nothing can be fetched when it is first touched. What a
//! kernel may touch is brought up to date before it is launched, and what it has changed is found afterwards by
//! comparing with the *twin*: the bytes on which host and device last agreed.
//!
//! Most pinned memory is never touched by a kernel; programs copy through it. So an area counts only once a
//! kernel can *reach* it: when something that looks like its address was in a kernel's parameters, in data that
//! was copied to the device, or in other areas that are reached. Until then it costs no device memory.
//!
//! No lock is held while the host is asked for bytes, because its answer may have to pass somebody who waits
//! for the lock.

use super::core::Core;
use parking_lot::{Condvar, Mutex};
use rgpu_device::{Code, Error, Handle, Ordinal, PAGE, Range, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

/// Changed runs of the host that are nearer than this are copied together, where the device has changed nothing.
const NEAR: usize = 4096;

/// So much is compared at once.
const CHUNK: usize = 8 << 20;

/// Something that happens once and is waited for.
#[derive(Default)]
pub(crate) struct Latch {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Latch {
    /// It has happened.
    pub(crate) fn open(&self) {
        *self.open.lock() = true;
        self.opened.notify_all();
    }

    fn is_open(&self) -> bool {
        *self.open.lock()
    }

    fn wait(&self) {
        let mut open = self.open.lock();
        while !*open {
            self.opened.wait(&mut open);
        }
    }
}

/// A managed variable's own place in its module.
struct Variable {
    module: Handle,
    ordinal: Ordinal,
    /// Offset in the area.
    offset: usize,
    /// The driver's address.
    addr: u64,
    size: usize,
}

#[derive(Default)]
struct Inner {
    /// The memory behind it; none until it is needed.
    pieces: Option<Vec<u64>>,
    /// Whose memory that is.
    ordinal: Ordinal,
    /// The bytes that host and device last agreed on.
    twin: Vec<u8>,
    /// Up to which of the host's turns it is up to date.
    fresh: u64,
    /// Whether the device may have changed it since it was last collected.
    exposed: bool,
    /// How often it was collected.
    collected: u64,
    /// Copies to the host that are to end in the host's copy.
    landings: Vec<Arc<Latch>>,
    variables: Vec<Variable>,
    /// Parts that the host must be told of, equal or not.
    told: Vec<std::ops::Range<usize>>,
    gone: bool,
}

/// A piece of mirrored memory.
pub(crate) struct Area {
    range: Range,
    ordinal: Ordinal,
    /// It exists for work that was put in order after this turn …
    born: u64,
    /// … and before this one.
    died: AtomicU64,
    reached: AtomicBool,
    inner: Mutex<Inner>,
}

/// A turn that is later than all others.
const NOW: u64 = u64::MAX - 1;

/// All mirrored memory. Callers run ahead of the work that is submitted, so memory may have been freed, and its
/// place be taken again, when earlier work is still to come: what is asked about is always the memory of a turn.
pub(crate) struct Mirror {
    /// By address and birth.
    areas: Mutex<BTreeMap<(u64, u64), Arc<Area>>>,
    count: AtomicUsize,
    /// Counts the host's turns.
    turn: AtomicU64,
}

impl Mirror {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self { areas: Mutex::default(), count: AtomicUsize::new(0), turn: AtomicU64::new(1) }
    }

    /// Places mirrored memory.
    pub(crate) fn add(&self, turn: u64, ordinal: Ordinal, range: Range) {
        let inner = Mutex::new(Inner { ordinal, ..Inner::default() });
        let (died, reached) = (AtomicU64::new(u64::MAX), AtomicBool::new(false));
        let area = Area { range, ordinal, born: turn, died, reached, inner };
        self.areas.lock().insert((range.base, turn), Arc::new(area));
        self.count.fetch_add(1, SeqCst);
    }

    /// Takes mirrored memory away: later work does not see it, and nothing more is collected from it.
    pub(crate) fn remove(&self, turn: u64, base: u64) -> Option<Arc<Area>> {
        let area = self.alive(NOW, base, 1).into_iter().find(|area| area.range.base == base)?;
        area.died.store(turn, SeqCst);
        Some(area)
    }

    /// Gives back what is behind memory that was taken away and that no work needs any more.
    pub(crate) fn discard(&self, core: &Core, area: &Area) {
        if self.areas.lock().remove(&(area.range.base, area.born)).is_some() {
            self.count.fetch_sub(1, SeqCst);
        }
        let mut inner = area.inner.lock();
        inner.gone = true;
        let pieces = inner.pieces.take().unwrap_or_default();
        drop(inner);
        core.pieces.lock().give(&pieces);
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(SeqCst) == 0
    }

    /// The host may have changed its bytes.
    pub(crate) fn invalidate(&self) {
        self.turn.fetch_add(1, SeqCst);
    }

    /// What overlaps some bytes at a turn.
    fn alive(&self, turn: u64, addr: u64, len: u64) -> Vec<Arc<Area>> {
        if self.is_empty() || len == 0 {
            return Vec::new();
        }
        let end = addr.saturating_add(len);
        let areas = self.areas.lock();
        let near = areas.range(..(end, 0)).map(|(_, area)| area);
        near.filter(|area| area.range.end() > addr && area.is_alive(turn)).cloned().collect()
    }

    fn at(&self, turn: u64, addr: u64) -> Option<Arc<Area>> {
        self.alive(turn, addr, 1).into_iter().next()
    }

    fn all(&self, turn: u64) -> Vec<Arc<Area>> {
        self.areas.lock().values().filter(|area| area.is_alive(turn)).cloned().collect()
    }

    /// Looks for addresses of mirrored memory in data that the device gets to see; `step` is how far apart such
    /// addresses can be. True if another area is reached now.
    pub(crate) fn look_for_addresses(&self, turn: u64, data: &[u8], step: usize) -> bool {
        if self.is_empty() || data.len() < 8 {
            return false;
        }
        let mut all = self.all(turn);
        all.retain(|area| !area.reached.load(SeqCst));
        let (Some(low), Some(high)) = (all.first().map(|a| a.range.base), all.last().map(|a| a.range.end()))
        else {
            return false;
        };
        let mut found = false;
        let mut look = |value: u64| {
            // One past the end is an address that programs use, too.
            if value < low || value > high {
                return;
            }
            let last = all.partition_point(|a| a.range.base <= value);
            if let Some(area) = last.checked_sub(1).map(|i| &all[i])
                && value <= area.range.end()
            {
                area.reached.store(true, SeqCst);
                found = true;
            }
        };
        if step == 8 {
            for block in data.chunks(BLOCK).filter(|block| may_hold(block, low, high)) {
                block.as_chunks().0.iter().for_each(|value| look(u64::from_le_bytes(*value)));
            }
        } else {
            let values = data.windows(8).step_by(step);
            values.for_each(|value| look(u64::from_le_bytes(value.try_into().unwrap_or([0; 8]))));
        }
        found
    }

    /// Before a kernel: whatever kernels can reach is brought up to date.
    pub(crate) fn before_kernel(&self, core: &Core, turn: u64, params: &[u8]) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        self.look_for_addresses(turn, params, 4);
        let mut done: Vec<u64> = Vec::new();
        loop {
            let next =
                self.all(turn).into_iter().find(|a| a.reached.load(SeqCst) && !done.contains(&a.range.base));
            let Some(area) = next else { return Ok(()) };
            done.push(area.range.base);
            area.refresh(core, self, turn)?;
        }
    }

    /// Before a copy or fill on the device that touches mirrored memory: it is brought up to date.
    pub(crate) fn before_access(&self, core: &Core, turn: u64, addr: u64) -> Result<()> {
        let Some(area) = self.at(turn, addr) else {
            return Err(Error::new(Code::IllegalAddress, format!("No mirrored memory at {addr:#x}")));
        };
        area.reached.store(true, SeqCst);
        area.refresh(core, self, turn)
    }

    /// A copy to the host ends in host memory at `addr`: where that is mirrored, the device's copy is out of date
    /// from now on. The latch is to be opened when all bytes were sent.
    pub(crate) fn landing(&self, turn: u64, addr: u64, len: u64) -> Option<Arc<Latch>> {
        let touched = self.alive(turn, addr, len);
        if touched.is_empty() {
            return None;
        }
        let latch = Arc::new(Latch::default());
        for area in touched {
            let mut inner = area.inner.lock();
            inner.landings.retain(|landing| !landing.is_open());
            inner.landings.push(latch.clone());
            inner.fresh = 0;
        }
        Some(latch)
    }

    /// Whether [`Mirror::overlay`] has to look at what earlier work of the stream has written.
    pub(crate) fn may_overlay(&self, turn: u64, addr: u64, len: u64) -> bool {
        self.alive(turn, addr, len).iter().any(|area| area.inner.lock().exposed)
    }

    /// Puts what the device has changed over bytes that the host sent from `addr`.
    pub(crate) fn overlay(&self, core: &Core, turn: u64, addr: u64, data: &mut [u8]) -> Result<()> {
        for area in self.alive(turn, addr, data.len() as u64) {
            let mut inner = area.inner.lock();
            if !inner.exposed || inner.pieces.is_none() {
                continue;
            }
            let from = addr.max(area.range.base);
            let to = (addr + data.len() as u64).min(area.range.end());
            let part = (from - area.range.base) as usize..(to - area.range.base) as usize;
            let device = area.read(core, &mut inner, part.clone())?;
            let data = &mut data[(from - addr) as usize..(to - addr) as usize];
            for ((data, device), twin) in data.iter_mut().zip(device).zip(&inner.twin[part]) {
                if device != *twin {
                    *data = device;
                }
            }
        }
        Ok(())
    }

    /// Hands out what the device has changed, and marks it as agreed.
    pub(crate) fn collect(&self, core: &Core, sink: &mut dyn FnMut(u64, &[u8])) {
        for area in self.all(NOW) {
            if let Err(error) = area.collect(core, sink) {
                // The device has failed; what is in its memory can no longer be had.
                tracing::debug!("mirrored memory at {:#x}: {error}", area.range.base);
            }
        }
    }

    /// A managed variable of a module stands at `given`, and in the module at `addr`.
    pub(crate) fn add_variable(
        &self,
        core: &Core,
        ordinal: Ordinal,
        module: Handle,
        given: u64,
        addr: u64,
        size: u64,
    ) -> Result<()> {
        let Some(area) = self.at(NOW, given) else {
            return Err(Error::new(Code::InvalidValue, format!("No mirrored memory at {given:#x}")));
        };
        area.reached.store(true, SeqCst);
        let mut inner = area.inner.lock();
        area.back(core, &mut inner)?;
        let offset = (given - area.range.base) as usize;
        let size = size as usize;
        let mut initial = vec![0; size];
        read_device(core, ordinal, addr, &mut initial)?;
        write_device(core, inner.ordinal, given, &initial)?;
        inner.twin[offset..offset + size].copy_from_slice(&initial);
        inner.told.push(offset..offset + size);
        inner.variables.push(Variable { module, ordinal, offset, addr, size });
        self.look_for_addresses(NOW, &initial, 8);
        Ok(())
    }

    /// A module is gone, and its variables with it.
    pub(crate) fn remove_variables(&self, module: Handle) {
        let areas: Vec<Arc<Area>> = self.areas.lock().values().cloned().collect();
        for area in areas {
            area.inner.lock().variables.retain(|v| v.module != module);
        }
    }
}

/// Bytes that [`may_hold`] looks through at once.
const BLOCK: usize = 4096;

/// Whether one of the numbers of eight bytes may lie between these, as far as their upper halves tell: for much data without addresses, as
/// which it is compiled to few instructions.
fn may_hold(data: &[u8], low: u64, high: u64) -> bool {
    let [low, high] = [low, high].map(|bound| (bound >> 32) as u32);
    let span = high - low;
    let upper = |value: &[u8; 8]| u32::from_le_bytes([value[4], value[5], value[6], value[7]]);
    data.as_chunks().0.iter().fold(false, |may, value| may | (upper(value).wrapping_sub(low) <= span))
}

impl Area {
    fn is_alive(&self, turn: u64) -> bool {
        self.born < turn && turn < self.died.load(SeqCst)
    }

    /// Makes sure that there is device memory behind it.
    fn back(&self, core: &Core, inner: &mut Inner) -> Result<()> {
        if inner.gone {
            let text = format!("The memory at {:#x} was freed", self.range.base);
            return Err(Error::new(Code::IllegalAddress, text));
        }
        if inner.pieces.is_some() {
            return Ok(());
        }
        // Work that was put in order before may still be using what stood here.
        core.wait_for_releases(self.range, self.born);
        let mut take = |ordinal| -> Result<()> {
            core.enter(ordinal)?;
            let (pieces, _) = core.pieces.lock().take(ordinal, self.range)?;
            inner.pieces = Some(pieces);
            inner.ordinal = ordinal;
            Ok(())
        };
        match take(self.ordinal) {
            // Not every driver maps one device's memory where another one's addresses were reserved.
            Err(e) if e.code == Code::NotSupported && self.ordinal != 0 => take(0)?,
            result => result?,
        }
        // Whatever lay in these pieces before is overwritten as far as it is this area's.
        let belongings = core.enter(inner.ordinal)?;
        let (ordinal, range) = (inner.ordinal, self.range);
        core.note(ordinal, core.driver.fill(range.base, 0, 4, range.size / 4, belongings.side))?;
        core.note(ordinal, core.driver.stream_synchronize(belongings.side))?;
        inner.twin = vec![0; range.size as usize];
        inner.fresh = 0;
        Ok(())
    }

    fn chunks(&self) -> impl Iterator<Item = std::ops::Range<usize>> + use<> {
        let size = self.range.size as usize;
        (0..size).step_by(CHUNK).map(move |from| from..(from + CHUNK).min(size))
    }

    /// Brings the device's copy up to date, and lets it be changed.
    fn refresh(&self, core: &Core, mirror: &Mirror, turn: u64) -> Result<()> {
        loop {
            let host_turn = mirror.turn.load(SeqCst);
            let (landings, collected) = {
                let mut inner = self.inner.lock();
                self.back(core, &mut inner)?;
                inner.landings.retain(|landing| !landing.is_open());
                if inner.fresh >= host_turn {
                    inner.exposed = true;
                    return Ok(());
                }
                (inner.landings.clone(), inner.collected)
            };
            landings.iter().for_each(|landing| landing.wait());
            let mut current = true;
            for part in self.chunks() {
                let mut bytes = vec![0; part.len()];
                core.host.fetch(self.range.base + part.start as u64, &mut bytes)?;
                let mut inner = self.inner.lock();
                current = !inner.gone
                    && inner.collected == collected
                    && inner.landings.iter().all(|landing| landing.is_open());
                if !current {
                    break;
                }
                self.push(core, &mut inner, part, &bytes)?;
                drop(inner);
                mirror.look_for_addresses(turn, &bytes, 8);
            }
            let mut inner = self.inner.lock();
            if current && inner.collected == collected {
                inner.fresh = host_turn;
                inner.exposed = true;
                return Ok(());
            }
        }
    }

    /// Copies what the host has changed to the device.
    fn push(&self, core: &Core, inner: &mut Inner, part: std::ops::Range<usize>, host: &[u8]) -> Result<()> {
        let near = if inner.exposed { 0 } else { NEAR };
        let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
        differences(host, &inner.twin[part.clone()], |run| match runs.last_mut() {
            Some(last) if near > 0 && run.start - last.end <= near => last.end = run.end,
            _ => runs.push(run),
        });
        if runs.is_empty() {
            return Ok(());
        }
        let pushed = self.push_runs(core, inner, part.start, host, runs);
        // The bytes must stay until the driver has read them.
        let belongings = core.enter(inner.ordinal)?;
        core.note(inner.ordinal, core.driver.stream_synchronize(belongings.side))?;
        pushed
    }

    fn push_runs(
        &self,
        core: &Core,
        inner: &mut Inner,
        start: usize,
        host: &[u8],
        runs: Vec<std::ops::Range<usize>>,
    ) -> Result<()> {
        for run in runs {
            let bytes = &host[run.clone()];
            let run = start + run.start..start + run.end;
            write_behind(core, inner.ordinal, self.range.base + run.start as u64, bytes)?;
            for variable in &inner.variables {
                let both = run.start.max(variable.offset)..run.end.min(variable.offset + variable.size);
                if both.start < both.end {
                    let addr = variable.addr + (both.start - variable.offset) as u64;
                    let bytes = &bytes[both.start - run.start..both.end - run.start];
                    write_device(core, variable.ordinal, addr, bytes)?;
                }
            }
            inner.twin[run].copy_from_slice(bytes);
        }
        Ok(())
    }

    /// The device's bytes of a part, its variables' own places included.
    fn read(&self, core: &Core, inner: &mut Inner, part: std::ops::Range<usize>) -> Result<Vec<u8>> {
        let mut device = vec![0; part.len()];
        read_device(core, inner.ordinal, self.range.base + part.start as u64, &mut device)?;
        for variable in &inner.variables {
            let both = part.start.max(variable.offset)..part.end.min(variable.offset + variable.size);
            if both.start >= both.end {
                continue;
            }
            let mut own = vec![0; both.len()];
            let addr = variable.addr + (both.start - variable.offset) as u64;
            read_device(core, variable.ordinal, addr, &mut own)?;
            let device = &mut device[both.start - part.start..both.end - part.start];
            for ((device, own), twin) in device.iter_mut().zip(own).zip(&inner.twin[both]) {
                if own != *twin {
                    *device = own;
                }
            }
        }
        Ok(device)
    }

    fn collect(&self, core: &Core, sink: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        let mut inner = self.inner.lock();
        if inner.pieces.is_none() || inner.gone {
            return Ok(());
        }
        if inner.exposed {
            // Asked before the bytes are read: what begins later exposes the area anew, and waits for the lock.
            let idle = core.is_idle();
            for part in self.chunks() {
                self.collect_part(core, &mut inner, part, sink)?;
            }
            inner.collected += 1;
            inner.exposed = !idle;
        }
        for part in std::mem::take(&mut inner.told) {
            sink(self.range.base + part.start as u64, &inner.twin[part.clone()]);
        }
        Ok(())
    }

    fn collect_part(
        &self,
        core: &Core,
        inner: &mut Inner,
        part: std::ops::Range<usize>,
        sink: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<()> {
        let device = self.read(core, inner, part.clone())?;
        let mut runs = Vec::new();
        differences(&device, &inner.twin[part.clone()], |run| runs.push(run));
        for run in runs {
            let bytes = &device[run.clone()];
            let run = part.start + run.start..part.start + run.end;
            sink(self.range.base + run.start as u64, bytes);
            // Both places of a variable get the same bytes.
            for variable in &inner.variables {
                let both = run.start.max(variable.offset)..run.end.min(variable.offset + variable.size);
                if both.start < both.end {
                    let bytes = &bytes[both.start - run.start..both.end - run.start];
                    let addr = variable.addr + (both.start - variable.offset) as u64;
                    write_device(core, variable.ordinal, addr, bytes)?;
                    write_device(core, inner.ordinal, self.range.base + both.start as u64, bytes)?;
                }
            }
            inner.twin[run].copy_from_slice(bytes);
        }
        Ok(())
    }
}

/// Copies to a device without waiting for it; the bytes are pageable, so they are read before this returns.
fn write_behind(core: &Core, ordinal: Ordinal, addr: u64, bytes: &[u8]) -> Result<()> {
    let belongings = core.enter(ordinal)?;
    // SAFETY: the driver reads pageable memory before the call returns; and whoever calls this waits while the
    // bytes are still there.
    let result = unsafe { core.driver.copy_in(addr, bytes.as_ptr(), bytes.len(), belongings.side) };
    core.note(ordinal, result)
}

/// Copies to a device at once, whatever its streams are doing.
fn write_device(core: &Core, ordinal: Ordinal, addr: u64, bytes: &[u8]) -> Result<()> {
    write_behind(core, ordinal, addr, bytes)?;
    let belongings = core.enter(ordinal)?;
    core.note(ordinal, core.driver.stream_synchronize(belongings.side))
}

/// Copies from a device at once, whatever its streams are doing.
fn read_device(core: &Core, ordinal: Ordinal, addr: u64, bytes: &mut [u8]) -> Result<()> {
    let belongings = core.enter(ordinal)?;
    // SAFETY: the bytes are there until the stream was waited for, below.
    let result = unsafe { core.driver.copy_out(bytes.as_mut_ptr(), addr, bytes.len(), belongings.side) };
    core.note(ordinal, result)?;
    core.note(ordinal, core.driver.stream_synchronize(belongings.side))
}

/// Calls `found` for each run of bytes that differ.
fn differences(mine: &[u8], twin: &[u8], mut found: impl FnMut(std::ops::Range<usize>)) {
    let len = mine.len().min(twin.len());
    let mut at = 0;
    while at < len {
        // Whole pages are compared fast.
        let page = (at + PAGE as usize).min(len);
        if mine[at..page] == twin[at..page] {
            at = page;
            continue;
        }
        while at < page {
            while at < page && mine[at] == twin[at] {
                at += 1;
            }
            let start = at;
            while at < len && mine[at] != twin[at] {
                at += 1;
            }
            if start < at {
                found(start..at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_may_hold_an_address_is_found() {
        let (low, high) = (0x1234_0000_0000, 0x1236_4000_0000);
        let holds = |value: u64| {
            let mut block = vec![0x55; 64];
            block[40..48].copy_from_slice(&value.to_le_bytes());
            may_hold(&block, low, high)
        };
        assert!([low, low + 5, high, 0x1235_ffff_ffff].into_iter().all(holds));
        assert!(![0, low - 1, 0x1237_0000_0000, u64::MAX].into_iter().any(holds));
        // The upper halves alone do not tell: such a block is looked through.
        assert!(holds(high + 1));
        assert!(!may_hold(&low.to_le_bytes()[..7], low, high));
    }

    #[test]
    fn differences_are_found_to_the_byte() {
        let twin = vec![0u8; 3 * 4096];
        let mut mine = twin.clone();
        for i in [0, 7, 8, 9, 4095, 4096, 4097, 12287] {
            mine[i] = 1;
        }
        let mut runs = Vec::new();
        differences(&mine, &twin, |run| runs.push((run.start, run.len())));
        assert_eq!(runs, [(0, 1), (7, 3), (4095, 3), (12287, 1)]);
    }

    #[test]
    fn addresses_are_found_in_data() {
        let mirror = Mirror::new();
        for base in [0x10_0000u64, 0x20_0000] {
            mirror.add(1, 0, Range { base, size: 0x1000 });
        }
        let reached = |mirror: &Mirror| -> Vec<bool> {
            mirror.areas.lock().values().map(|a| a.reached.load(SeqCst)).collect()
        };
        let mut data = [0u8; 24];
        data[8..16].copy_from_slice(&0x18_0000u64.to_le_bytes());
        assert!(!mirror.look_for_addresses(NOW, &data, 8));
        data[12..20].copy_from_slice(&0x20_0ff8u64.to_le_bytes());
        // Not where the device would look for it.
        assert!(!mirror.look_for_addresses(NOW, &data, 8));
        assert!(mirror.look_for_addresses(NOW, &data, 4));
        assert_eq!(reached(&mirror), [false, true]);
        assert!(mirror.look_for_addresses(NOW, &0x10_1000u64.to_le_bytes(), 8));
        assert_eq!(reached(&mirror), [true, true]);
    }

    #[test]
    fn landings_concern_the_areas_they_touch() {
        let mirror = Mirror::new();
        mirror.add(1, 0, Range { base: 0x10_0000, size: 0x1000 });
        assert!(mirror.landing(NOW, 0xF_0000, 0x1_0000).is_none());
        assert!(mirror.landing(NOW, 0xF_0000, 0x1_0001).is_some());
        assert!(mirror.landing(NOW, 0x10_0fff, 1).is_some());
        assert!(mirror.landing(NOW, 0x10_1000, 1).is_none());
    }

    #[test]
    fn work_sees_the_memory_of_its_turn() {
        let mirror = Mirror::new();
        let range = Range { base: 0x10_0000, size: 0x1000 };
        mirror.add(1, 0, range);
        let first = mirror.remove(10, range.base).unwrap();
        mirror.add(11, 0, range);
        let at = |turn| mirror.at(turn, range.base).map(|area| area.born);
        assert_eq!([at(1), at(5), at(10), at(12), at(NOW)], [None, Some(1), None, Some(11), Some(11)]);
        assert!(Arc::ptr_eq(&first, &mirror.at(5, range.base).unwrap()));
    }
}
