//! The virtual-memory calls (`cuMemAddressReserve`, `cuMemCreate`, `cuMemMap`, …): addresses and memory apart from each
//! other.
//!
//! A [`Device`](rgpu_device::Device) knows memory only together with its address. So physical memory that is not
//! accessible anywhere stands at a *home*, an address of the device's range that the program never learns. When access to
//! a mapping is granted, its memory moves there; when access is withdrawn or the mapping goes, it moves back, with its
//! contents. What was never accessible has no contents worth moving, so the usual order (create, map, grant, release)
//! copies nothing.
//!
//! Refused by name, because a memory that moves cannot be in two places: mapping an allocation twice, and mapping a part
//! of it. A mapping's addresses must have been reserved in the range of the device whose memory it is.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use rgpu_device::{HostData, HostTarget, MemoryKind, Ordinal, Region, Target};

use super::device_heap::Backing;
use super::error::{Code, Error, Result, invalid};
use super::memory::{Allocation, Kind};
use super::process::Core;
use super::registry::{NumberMap, Raw, fresh};
use super::shared::PAGE;

/// Sizes and addresses are multiples of this.
pub const GRANULARITY: u64 = 2 << 20;

/// What the program may do with a mapping from a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Nothing.
    #[default]
    None,
    /// Read and write.
    ReadWrite,
}

/// Memory without an address.
#[derive(Debug)]
struct Physical {
    ordinal: Ordinal,
    size: u64,
    /// Handles that the program has not released.
    references: u64,
    mapped: Option<u64>,
    stands: Place,
    /// Whether anything can have been written to it.
    used: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// At an address that the program doesn't know.
    Home(u64),
    /// Where it is mapped.
    Mapped,
    /// Nowhere: it moved, and then there was no room.
    Lost,
}

#[derive(Debug)]
struct Reservation {
    size: u64,
    ordinal: Ordinal,
}

#[derive(Debug)]
struct Mapping {
    size: u64,
    physical: Raw,
    /// Who has access.
    access: Vec<Ordinal>,
}

#[derive(Default)]
struct State {
    reservations: BTreeMap<u64, Reservation>,
    mappings: BTreeMap<u64, Mapping>,
    physical: NumberMap<Raw, Physical>,
}

/// All that the virtual-memory calls have made.
#[derive(Default)]
pub(super) struct VirtualMemory(Mutex<State>);

impl State {
    /// The mappings that make up exactly these addresses, by address.
    fn mappings_of(&self, addr: u64, size: u64) -> Result<Vec<u64>> {
        let end = addr.checked_add(size).ok_or_else(|| invalid("The range is too large"))?;
        let (mut at, mut found) = (addr, Vec::new());
        while at < end {
            let Some(mapping) = self.mappings.get(&at) else {
                return Err(invalid(format!("No mapping begins at {at:#x}")));
            };
            found.push(at);
            at += mapping.size;
        }
        if at != end || found.is_empty() {
            return Err(invalid(format!("{size} bytes at {addr:#x} end within a mapping")));
        }
        Ok(found)
    }

    fn mapping_around(&self, addr: u64) -> Result<(u64, &Mapping)> {
        let found = self.mappings.range(..=addr).next_back();
        match found.filter(|(base, mapping)| addr - **base < mapping.size) {
            Some((base, mapping)) => Ok((*base, mapping)),
            None => Err(invalid(format!("Nothing is mapped at {addr:#x}"))),
        }
    }

    fn physical(&mut self, raw: Raw) -> Result<&mut Physical> {
        let unknown = || invalid(format!("{raw:#x} is no allocation of cuMemCreate"));
        self.physical.get_mut(&raw).filter(|p| p.references > 0).ok_or_else(unknown)
    }
}

fn whole(what: &str, value: u64) -> Result<()> {
    if value.is_multiple_of(GRANULARITY) {
        return Ok(());
    }
    Err(invalid(format!("{what} ({value:#x}) is no multiple of the granularity, {GRANULARITY:#x}")))
}

impl Core {
    /// `cuMemAddressReserve`: addresses with nothing behind them; at `hint` where that is possible.
    pub fn address_reserve(&self, ordinal: Ordinal, size: u64, alignment: u64, hint: u64) -> Result<u64> {
        whole("The size", size)?;
        if size == 0 || !(alignment == 0 || alignment.is_power_of_two()) {
            return Err(invalid(format!("{size} bytes aligned to {alignment} cannot be reserved")));
        }
        let mut state = self.virtual_memory.0.lock();
        let align = alignment.max(GRANULARITY);
        let ranges = self.plan.devices.iter().take(self.infos.len());
        let hinted = ranges.enumerate().find(|(_, range)| range.contains(hint, size)).filter(|(home, _)| {
            hint.is_multiple_of(align) && self.of(*home as Ordinal).heap.lock().reserve_at(hint, size)
        });
        let (addr, ordinal) = match hinted {
            Some((home, _)) => (hint, home as Ordinal),
            None => {
                let addr = self.of(ordinal).heap.lock().reserve(size, align).ok_or_else(|| {
                    Error::new(Code::OutOfMemory, format!("There are no {size} free addresses"))
                })?;
                (addr, ordinal)
            }
        };
        state.reservations.insert(addr, Reservation { size, ordinal });
        Ok(addr)
    }

    /// `cuMemAddressFree`: a whole reservation, with nothing mapped in it.
    pub fn address_free(&self, addr: u64, size: u64) -> Result<()> {
        let mut state = self.virtual_memory.0.lock();
        let found = state.reservations.get(&addr).filter(|r| r.size == size).map(|r| r.ordinal);
        let Some(ordinal) = found else {
            return Err(invalid(format!("No reservation of {size} bytes begins at {addr:#x}")));
        };
        if state.mappings.range(addr..addr + size).next().is_some() {
            return Err(invalid(format!("Memory is still mapped in the {size} bytes at {addr:#x}")));
        }
        state.reservations.remove(&addr);
        // Work that still uses what was mapped there must not meet anything new.
        let until = self.enqueued(ordinal);
        self.of(ordinal).heap.lock().unreserve(addr, size, until);
        Ok(())
    }

    /// `cuMemCreate`: memory without an address.
    pub fn physical_create(&self, ordinal: Ordinal, size: u64) -> Result<Raw> {
        self.device_info(ordinal)?;
        self.check_sticky(ordinal)?;
        whole("The size", size)?;
        if size == 0 {
            return Err(invalid("The size is 0"));
        }
        let home = self.pages(ordinal, size)?;
        let raw = fresh();
        let physical =
            Physical { ordinal, size, references: 1, mapped: None, stands: Place::Home(home), used: false };
        self.virtual_memory.0.lock().physical.insert(raw, physical);
        Ok(raw)
    }

    /// The device and size of memory made by [`Core::physical_create`].
    pub fn physical_info(&self, raw: Raw) -> Result<(Ordinal, u64)> {
        self.virtual_memory.0.lock().physical(raw).map(|p| (p.ordinal, p.size))
    }

    /// `cuMemRelease`: the memory goes when it is mapped no more.
    pub fn physical_release(&self, raw: Raw) -> Result<()> {
        let mut state = self.virtual_memory.0.lock();
        let physical = state.physical(raw)?;
        physical.references -= 1;
        if physical.references > 0 || physical.mapped.is_some() {
            return Ok(());
        }
        match state.physical.remove(&raw) {
            Some(Physical { ordinal, size, stands: Place::Home(home), .. }) => {
                self.give_back(ordinal, home, size)
            }
            _ => Ok(()),
        }
    }

    /// `cuMemRetainAllocationHandle`: one more handle of what is mapped at an address.
    pub fn physical_retain(&self, addr: u64) -> Result<Raw> {
        let mut state = self.virtual_memory.0.lock();
        let raw = state.mapping_around(addr)?.1.physical;
        if let Some(physical) = state.physical.get_mut(&raw) {
            physical.references += 1;
        }
        Ok(raw)
    }

    /// `cuMemMap`: the memory gets an address, and nobody has access to it yet.
    pub fn map(&self, addr: u64, size: u64, offset: u64, raw: Raw) -> Result<()> {
        whole("The address", addr)?;
        whole("The size", size)?;
        let mut state = self.virtual_memory.0.lock();
        let (ordinal, whole, mapped) = {
            let physical = state.physical(raw)?;
            (physical.ordinal, physical.size, physical.mapped)
        };
        if size == 0 || offset.checked_add(size).is_none_or(|end| end > whole) {
            return Err(invalid(format!("An allocation of {whole} bytes has no {size} bytes at {offset}")));
        }
        let reserved = state.reservations.range(..=addr).next_back();
        let reserved =
            reserved.filter(|(base, r)| addr - **base < r.size && size <= r.size - (addr - **base));
        let Some((_, reservation)) = reserved else {
            return Err(invalid(format!("The {size} bytes at {addr:#x} are not reserved")));
        };
        let before = state.mappings.range(..addr + size).next_back();
        if before.is_some_and(|(base, mapping)| base + mapping.size > addr) {
            return Err(invalid(format!("Memory is mapped at {addr:#x} already")));
        }
        let refuse = |what: &str| Err(Error::new(Code::NotSupported, format!("cuMemMap: {what}")));
        if size != whole {
            return refuse("mapping a part of an allocation is not supported");
        }
        if let Some(other) = mapped {
            return refuse(&format!(
                "the allocation is mapped at {other:#x}; mapping it twice is not supported"
            ));
        }
        if reservation.ordinal != ordinal {
            return refuse(
                "mapping memory of one device where addresses of another were reserved is not supported",
            );
        }
        state.physical(raw)?.mapped = Some(addr);
        state.mappings.insert(addr, Mapping { size, physical: raw, access: Vec::new() });
        Ok(())
    }

    /// `cuMemUnmap`: whole mappings.
    pub fn unmap(&self, addr: u64, size: u64) -> Result<()> {
        let mut state = self.virtual_memory.0.lock();
        for at in state.mappings_of(addr, size)? {
            self.to_home(&mut state, at)?;
            let Some(mapping) = state.mappings.remove(&at) else { continue };
            if let Some(physical) = state.physical.get_mut(&mapping.physical) {
                physical.mapped = None;
                if physical.references == 0 {
                    let (ordinal, stands) = (physical.ordinal, physical.stands);
                    state.physical.remove(&mapping.physical);
                    if let Place::Home(home) = stands {
                        self.give_back(ordinal, home, mapping.size)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// `cuMemSetAccess`, for one device.
    pub fn set_access(&self, addr: u64, size: u64, who: Ordinal, access: Access) -> Result<()> {
        self.device_info(who)?;
        let mut state = self.virtual_memory.0.lock();
        for at in state.mappings_of(addr, size)? {
            let Some(mapping) = state.mappings.get_mut(&at) else { continue };
            let before = mapping.access.clone();
            mapping.access.retain(|other| *other != who);
            if access == Access::ReadWrite {
                mapping.access.push(who);
            }
            let moved = match (before.is_empty(), mapping.access.is_empty()) {
                (true, false) => self.to_mapping(&mut state, at),
                (false, true) => self.to_home(&mut state, at),
                _ => Ok(()),
            };
            if let Err(error) = moved {
                if let Some(mapping) = state.mappings.get_mut(&at) {
                    mapping.access = before;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// `cuMemGetAccess`.
    pub fn access(&self, addr: u64, who: Ordinal) -> Result<Access> {
        self.device_info(who)?;
        let state = self.virtual_memory.0.lock();
        let (_, mapping) = state.mapping_around(addr)?;
        Ok(if mapping.access.contains(&who) { Access::ReadWrite } else { Access::None })
    }

    /// The device has been reset.
    pub(super) fn forget_virtual_memory(&self, ordinal: Ordinal) {
        let mut state = self.virtual_memory.0.lock();
        let gone: Vec<(u64, u64)> = state
            .reservations
            .iter()
            .filter(|(_, r)| r.ordinal == ordinal)
            .map(|(base, r)| (*base, r.size))
            .collect();
        for (base, size) in gone {
            state.reservations.remove(&base);
            state.mappings.retain(|addr, _| !(base..base + size).contains(addr));
        }
        state.physical.retain(|_, p| p.ordinal != ordinal);
        for mapping in state.mappings.values_mut() {
            mapping.access.retain(|who| *who != ordinal);
        }
    }

    /// Memory at an address of the core's choice.
    fn pages(&self, ordinal: Ordinal, size: u64) -> Result<u64> {
        self.place_patiently(ordinal, None, size, Backing::Own).map(|(addr, _, _)| addr)
    }

    /// Frees what [`Core::pages`] found.
    fn give_back(&self, ordinal: Ordinal, home: u64, size: u64) -> Result<()> {
        let until = self.enqueued(ordinal);
        let freed = self.note(ordinal, self.device.mem_free(ordinal, home, None));
        self.of(ordinal).heap.lock().freed(home, size, Backing::Own, until, None);
        freed
    }

    /// Brings a mapping's memory to its address.
    fn to_mapping(&self, state: &mut State, addr: u64) -> Result<()> {
        let Some(raw) = state.mappings.get(&addr).map(|m| m.physical) else { return Ok(()) };
        let Some(physical) = state.physical.get_mut(&raw).filter(|p| p.stands != Place::Mapped) else {
            return Ok(());
        };
        let (ordinal, size) = (physical.ordinal, physical.size);
        let there = || self.note(ordinal, self.device.mem_alloc(ordinal, addr, size, MemoryKind::Device));
        match physical.stands {
            Place::Home(home) if physical.used => {
                self.move_contents(
                    ordinal,
                    size,
                    home,
                    there,
                    || self.give_back(ordinal, home, size),
                    |()| addr,
                )?;
            }
            Place::Home(home) => {
                self.give_back(ordinal, home, size)?;
                physical.stands = Place::Lost;
                there()?;
            }
            _ => there()?,
        }
        physical.stands = Place::Mapped;
        physical.used = true;
        self.memory.mapped(Allocation {
            base: addr,
            size,
            kept: size,
            kind: Kind::Mapped,
            ordinal,
            context: 0,
            id: 0,
            flags: 0,
        });
        Ok(())
    }

    /// Takes a mapping's memory away from its address: home, or to where there is none if nobody can ask for it again.
    fn to_home(&self, state: &mut State, addr: u64) -> Result<()> {
        let Some(raw) = state.mappings.get(&addr).map(|m| m.physical) else { return Ok(()) };
        let Some(physical) = state.physical.get_mut(&raw).filter(|p| p.stands == Place::Mapped) else {
            return Ok(());
        };
        let (ordinal, size) = (physical.ordinal, physical.size);
        let away = || self.note(ordinal, self.device.mem_free(ordinal, addr, None));
        self.memory.unmapped(addr);
        if self.sticky_code(ordinal) != 0 {
            // The device has lost its contents anyhow; let the program clean up.
            physical.stands = Place::Lost;
            let _ = away();
            return Ok(());
        }
        if physical.references == 0 {
            away()?;
            physical.stands = Place::Lost;
            return Ok(());
        }
        let there = || self.pages(ordinal, size);
        let home = self.move_contents(ordinal, size, addr, there, away, |home| home)?;
        physical.stands = Place::Home(home);
        Ok(())
    }

    /// Moves memory with its contents: by way of the host where the device has no room for both.
    fn move_contents<T>(
        &self,
        ordinal: Ordinal,
        size: u64,
        from: u64,
        there: impl Fn() -> Result<T>,
        away: impl FnOnce() -> Result<()>,
        address: impl FnOnce(T) -> u64,
    ) -> Result<u64> {
        // Whatever may still write to it, on whatever stream.
        self.wait(ordinal, Target::Device(ordinal))?;
        let stream = u64::from(ordinal);
        let (to, copied) = match there() {
            Ok(to) => {
                let to = address(to);
                let (dst, src) = (Region::linear(to, size), Region::linear(from, size));
                let copied = self.note(ordinal, self.device.copy_on_device(stream, dst, src));
                (to, copied.and_then(|()| away()))
            }
            Err(error) if error.code == Code::OutOfMemory => {
                let mut bytes = vec![0u8; size as usize];
                let dst = Region::linear(bytes.as_mut_ptr() as u64, size);
                // SAFETY: the destination is a vector of that size, which outlives the call.
                let dst = unsafe { HostTarget::new(dst) };
                let read = self.device.copy_from_device_blocking(stream, Region::linear(from, size), dst);
                self.note(ordinal, read)?;
                away()?;
                let to = address(there()?);
                let data = HostData::Owned(bytes);
                let written = self.device.copy_to_device(stream, Region::linear(to, size), 0, data);
                (to, self.note(ordinal, written))
            }
            Err(error) => return Err(error),
        };
        copied?;
        self.work_of_our_own(ordinal);
        self.note(ordinal, self.device.fence(stream))?;
        Ok(to)
    }
}

const _: () = assert!(GRANULARITY.is_multiple_of(PAGE));

#[cfg(all(test, feature = "in-process"))]
mod tests {
    use super::super::session::Session;
    use super::super::stream::Stream;
    use super::super::{Direction, Wait};
    use super::*;
    use std::sync::Arc;

    const G: u64 = GRANULARITY;

    fn core(megabytes: u64, devices: u32) -> (Core, Arc<Stream>) {
        let config = rgpu_softgpu::Config {
            devices,
            memory_bytes_per_device: megabytes << 20,
            workers: 1,
            ..rgpu_softgpu::Config::default()
        };
        let core = Core::with_session(Session::in_process(config).unwrap()).unwrap();
        core.set_device(0).unwrap();
        let stream = core.stream(&core.runtime_context().unwrap(), 0, false).unwrap();
        (core, stream)
    }

    fn write(core: &Core, stream: &Stream, addr: u64, bytes: &[u8]) -> Result<()> {
        let (src, len) = (bytes.as_ptr() as u64, bytes.len() as u64);
        core.copy(stream, addr, src, len, Direction::HostToDevice, Wait::Sync)
    }

    fn read(core: &Core, stream: &Stream, addr: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0xEE; len];
        let dst = bytes.as_mut_ptr() as u64;
        core.copy(stream, dst, addr, len as u64, Direction::DeviceToHost, Wait::Sync)?;
        Ok(bytes)
    }

    fn code<T: std::fmt::Debug>(result: Result<T>) -> Code {
        result.unwrap_err().code
    }

    #[test]
    fn memory_is_there_with_an_address_and_access_and_not_otherwise() {
        let (core, stream) = core(64, 1);
        let addr = core.address_reserve(0, 8 * G, 0, 0).unwrap();
        assert_eq!(addr % G, 0);
        assert_eq!(code(write(&core, &stream, addr, &[1])), Code::InvalidValue);
        let (a, b) = (core.physical_create(0, G).unwrap(), core.physical_create(0, 2 * G).unwrap());
        assert_eq!(core.mem_info(0).unwrap().free, (64 << 20) - 3 * G);
        core.map(addr, G, 0, a).unwrap();
        core.map(addr + G, 2 * G, 0, b).unwrap();
        assert_eq!(code(write(&core, &stream, addr, &[1])), Code::InvalidValue);
        assert_eq!(core.access(addr, 0).unwrap(), Access::None);
        core.set_access(addr, 3 * G, 0, Access::ReadWrite).unwrap();
        assert_eq!(core.access(addr + 2 * G, 0).unwrap(), Access::ReadWrite);
        // Moving to its address took no more memory.
        assert_eq!(core.mem_info(0).unwrap().free, (64 << 20) - 3 * G);
        // A copy may cross from one mapping to the next, but not out of the last.
        let bytes: Vec<u8> = (0..3000u32).map(|i| (i % 251) as u8).collect();
        write(&core, &stream, addr + G - 1000, &bytes).unwrap();
        assert_eq!(read(&core, &stream, addr + G - 1000, 3000).unwrap(), bytes);
        assert_eq!(code(write(&core, &stream, addr + 3 * G - 1000, &bytes)), Code::InvalidValue);
        assert_eq!(core.address_range(addr + G + 5).unwrap(), (addr + G, 2 * G));
        assert_eq!(code(core.free(addr)), Code::InvalidValue);

        // What is no longer mapped cannot be reached; what is mapped again has its contents, wherever it is.
        core.unmap(addr, 3 * G).unwrap();
        assert_eq!(code(read(&core, &stream, addr + G - 1000, 1)), Code::InvalidValue);
        core.map(addr + 4 * G, 2 * G, 0, b).unwrap();
        core.set_access(addr + 4 * G, 2 * G, 0, Access::ReadWrite).unwrap();
        assert_eq!(read(&core, &stream, addr + 4 * G, 2000).unwrap(), bytes[1000..]);
        core.set_access(addr + 4 * G, 2 * G, 0, Access::None).unwrap();
        assert_eq!(code(read(&core, &stream, addr + 4 * G, 1)), Code::InvalidValue);
        core.set_access(addr + 4 * G, 2 * G, 0, Access::ReadWrite).unwrap();
        assert_eq!(read(&core, &stream, addr + 4 * G, 2000).unwrap(), bytes[1000..]);

        // Memory outlives its handle for as long as it is mapped.
        let again = core.physical_retain(addr + 4 * G + 77).unwrap();
        assert_eq!(again, b);
        core.physical_release(b).unwrap();
        core.physical_release(b).unwrap();
        assert_eq!(code(core.physical_release(b)), Code::InvalidValue);
        core.physical_release(a).unwrap();
        assert_eq!(read(&core, &stream, addr + 4 * G, 2000).unwrap(), bytes[1000..]);
        assert_eq!(code(core.address_free(addr, 8 * G)), Code::InvalidValue);
        core.unmap(addr + 4 * G, 2 * G).unwrap();
        assert_eq!(code(core.address_free(addr, 4 * G)), Code::InvalidValue);
        core.address_free(addr, 8 * G).unwrap();
        assert_eq!(core.mem_info(0).unwrap().free, 64 << 20);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let (core, _) = core(64, 2);
        let addr = core.address_reserve(0, 4 * G, 0, 0).unwrap();
        assert_eq!(code(core.address_reserve(0, G + 1, 0, 0)), Code::InvalidValue);
        assert_eq!(code(core.address_reserve(0, 0, 0, 0)), Code::InvalidValue);
        assert_eq!(code(core.address_reserve(0, G, 3, 0)), Code::InvalidValue);
        assert_eq!(code(core.address_reserve(0, 1 << 60, 0, 0)), Code::OutOfMemory);
        assert_eq!(code(core.physical_create(0, 1)), Code::InvalidValue);
        assert_eq!(code(core.physical_create(0, 66 << 20)), Code::OutOfMemory);
        assert_eq!(code(core.physical_create(2, G)), Code::InvalidDevice);
        let p = core.physical_create(0, 2 * G).unwrap();
        let q = core.physical_create(0, 2 * G).unwrap();
        let other = core.physical_create(1, G).unwrap();
        assert_eq!(code(core.map(addr + 1, 2 * G, 0, p)), Code::InvalidValue);
        assert_eq!(code(core.map(addr, 4 * G, 0, p)), Code::InvalidValue);
        assert_eq!(code(core.map(addr + 3 * G, 2 * G, 0, p)), Code::InvalidValue);
        assert_eq!(code(core.map(addr, G, 0, p)), Code::NotSupported);
        assert_eq!(code(core.map(addr, G, 0, other)), Code::NotSupported);
        assert_eq!(code(core.map(addr, G, 0, 12345)), Code::InvalidValue);
        core.map(addr, 2 * G, 0, p).unwrap();
        assert_eq!(code(core.map(addr + 2 * G, 2 * G, 0, p)), Code::NotSupported);
        for at in [addr, addr + G] {
            assert_eq!(code(core.map(at, 2 * G, 0, q)), Code::InvalidValue);
        }
        assert_eq!(code(core.set_access(addr, G, 0, Access::ReadWrite)), Code::InvalidValue);
        assert_eq!(code(core.set_access(addr, 4 * G, 0, Access::ReadWrite)), Code::InvalidValue);
        assert_eq!(code(core.set_access(addr, 2 * G, 7, Access::ReadWrite)), Code::InvalidDevice);
        assert_eq!(code(core.unmap(addr, G)), Code::InvalidValue);
        assert_eq!(code(core.unmap(addr + 2 * G, 2 * G)), Code::InvalidValue);
        assert_eq!(code(core.physical_retain(addr + 2 * G)), Code::InvalidValue);
    }

    #[test]
    fn a_hint_is_followed_where_it_can_be() {
        let (core, _) = core(64, 2);
        let free = core.address_reserve(0, 4 * G, 0, 0).unwrap();
        assert_eq!(core.address_reserve(0, 4 * G, 0, free + 8 * G).unwrap(), free + 8 * G);
        // Taken, not aligned, and nowhere near the device.
        for hint in [free + 8 * G, free + 20 * G + 1, 0x1000] {
            let other = core.address_reserve(0, 4 * G, 0, hint).unwrap();
            assert_ne!(other, hint);
            assert_eq!(other % G, 0);
        }
        let second = core.plan.devices[1].base.next_multiple_of(G);
        assert_eq!(core.address_reserve(0, G, 0, second).unwrap(), second);
        assert_eq!(core.address_reserve(0, G, 1 << 30, 0).unwrap() % (1 << 30), 0);
        // What was reserved first can be had again once it is free and no work uses it.
        core.address_free(free, 4 * G).unwrap();
        core.of(0).heap.lock().settle(u64::MAX);
        assert_eq!(core.address_reserve(0, 4 * G, 0, free).unwrap(), free);
    }

    #[test]
    fn contents_survive_when_the_device_is_full() {
        let (core, stream) = core(64, 1);
        let addr = core.address_reserve(0, 64 << 20, 0, 0).unwrap();
        let p = core.physical_create(0, 48 << 20).unwrap();
        core.map(addr, 48 << 20, 0, p).unwrap();
        core.set_access(addr, 48 << 20, 0, Access::ReadWrite).unwrap();
        let bytes: Vec<u8> = (0..48u32 << 20).map(|i| (i % 253) as u8).collect();
        write(&core, &stream, addr, &bytes).unwrap();
        core.unmap(addr, 48 << 20).unwrap();
        assert_eq!(core.mem_info(0).unwrap().free, 16 << 20);
        core.map(addr + 8 * G, 48 << 20, 0, p).unwrap();
        core.set_access(addr + 8 * G, 48 << 20, 0, Access::ReadWrite).unwrap();
        assert!(read(&core, &stream, addr + 8 * G, 48 << 20).unwrap() == bytes);
    }

    #[test]
    fn a_reset_takes_everything() {
        let (core, _) = core(64, 1);
        let addr = core.address_reserve(0, 4 * G, 0, 0).unwrap();
        let p = core.physical_create(0, G).unwrap();
        core.map(addr, G, 0, p).unwrap();
        core.set_access(addr, G, 0, Access::ReadWrite).unwrap();
        core.device_reset(0).unwrap();
        assert_eq!(code(core.unmap(addr, G)), Code::InvalidValue);
        assert_eq!(code(core.physical_release(p)), Code::InvalidValue);
        assert_eq!(core.mem_info(0).unwrap().free, 64 << 20);
        assert_eq!(core.address_reserve(0, 4 * G, 0, addr).unwrap(), addr);
    }
}
