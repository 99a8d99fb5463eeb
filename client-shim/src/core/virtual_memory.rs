//! The virtual-memory calls (`cuMemAddressReserve`, `cuMemCreate`, `cuMemMap`, …): addresses and memory apart from each
//! other.
//!
//! A [`Device`](rgpu_device::Device) knows memory only together with its address. So physical memory that is not
//! accessible anywhere stands at a *home*, an address of the device's range that the program never learns. When access to
//! a mapping is granted, its memory moves there; when access is withdrawn or the mapping goes, it moves back, with its
//! contents. What was never accessible has no contents worth moving. What is unmapped is *left* where it was, out of the
//! program's reach, until it is released, mapped again, or its addresses are needed. So the usual order (create, map, grant, unmap,
//! release) copies nothing.
//!
//! Refused by name, because a memory that moves cannot be in two places: mapping an allocation twice, and mapping a part
//! of it. A mapping's addresses must have been reserved in the range of the device whose memory it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rgpu_device::{HostData, HostTarget, MemoryKind, Ordinal, Region, Target};

use super::devices::Devices;
use super::error::{Code, Error, Result, invalid};
use super::memory::Memory;
use super::registry::{NumberMap, Raw, fresh};
use super::shared::PAGE;

/// Sizes and addresses are multiples of this.
pub(crate) const GRANULARITY: u64 = 2 << 20;

/// What the program may do with a mapping from a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Access {
    /// No access: copies are refused, and kernels fault.
    #[default]
    None,
    /// Reading and writing.
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
    residence: Residence,
    /// Whether anything can have been written to it.
    used: bool,
}

/// Where physical memory is at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Residence {
    /// At an address that the program doesn't know.
    Home(u64),
    /// Where it is mapped.
    Mapped,
    /// At the address where it was mapped last.
    Left(u64),
    /// Nowhere: it moved, and then there was no room.
    Lost,
}

/// Addresses that the program has reserved.
#[derive(Debug)]
struct Reservation {
    size: u64,
    ordinal: Ordinal,
}

/// Physical memory at an address.
#[derive(Debug)]
struct Mapping {
    size: u64,
    physical: Raw,
    /// The ordinals of the devices that have access.
    access: Vec<Ordinal>,
}

/// What was reserved, created and mapped.
#[derive(Default)]
struct Tables {
    reservations: BTreeMap<u64, Reservation>,
    mappings: BTreeMap<u64, Mapping>,
    physical: NumberMap<Raw, Physical>,
    /// Reservations that the program has given back, where memory was left.
    abandoned: BTreeMap<u64, Reservation>,
}

/// All that the virtual-memory calls have made: it owns reservations, mappings, and memory without an address.
pub(crate) struct VirtualMemory {
    devices: Arc<Devices>,
    memory: Arc<Memory>,
    tables: Mutex<Tables>,
}

impl Tables {
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

    /// The memory that was left within these addresses.
    fn left_in(&self, addr: u64, size: u64) -> Vec<Raw> {
        let overlaps = |at: u64, length: u64| at < addr + size && addr < at + length;
        let left = self.physical.iter().filter(|(_, p)| match p.residence {
            Residence::Left(at) => overlaps(at, p.size),
            _ => false,
        });
        left.map(|(raw, _)| *raw).collect()
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

impl VirtualMemory {
    /// Nothing is reserved, created or mapped.
    pub(crate) fn new(devices: Arc<Devices>, memory: Arc<Memory>) -> Self {
        Self { devices, memory, tables: Mutex::default() }
    }

    /// `cuMemAddressReserve`: addresses with nothing behind them; at `hint` where that is possible.
    pub(crate) fn address_reserve(
        &self,
        ordinal: Ordinal,
        size: u64,
        alignment: u64,
        hint: u64,
    ) -> Result<u64> {
        whole("The size", size)?;
        if size == 0 || !(alignment == 0 || alignment.is_power_of_two()) {
            return Err(invalid(format!("{size} bytes aligned to {alignment} cannot be reserved")));
        }
        let mut tables = self.tables.lock();
        let align = alignment.max(GRANULARITY);
        let ranges = self.devices.plan().devices.iter().take(self.devices.count() as usize);
        let hinted = ranges.enumerate().find(|(_, range)| range.contains(hint, size)).filter(|(home, _)| {
            hint.is_multiple_of(align) && self.devices.heap(*home as Ordinal).reserve_at(hint, size)
        });
        let (addr, ordinal) = match hinted {
            Some((home, _)) => (hint, home as Ordinal),
            None => {
                let addr = self.devices.heap(ordinal).reserve(size, align).ok_or_else(|| {
                    Error::new(Code::OutOfMemory, format!("There are no {size} free addresses"))
                })?;
                (addr, ordinal)
            }
        };
        tables.reservations.insert(addr, Reservation { size, ordinal });
        Ok(addr)
    }

    /// `cuMemAddressFree`: a whole reservation, with nothing mapped in it.
    pub(crate) fn address_free(&self, addr: u64, size: u64) -> Result<()> {
        let mut tables = self.tables.lock();
        let found = tables.reservations.get(&addr).filter(|r| r.size == size).map(|r| r.ordinal);
        let Some(ordinal) = found else {
            return Err(invalid(format!("No reservation of {size} bytes begins at {addr:#x}")));
        };
        if tables.mappings.range(addr..addr + size).next().is_some() {
            return Err(invalid(format!("Memory is still mapped in the {size} bytes at {addr:#x}")));
        }
        tables.reservations.remove(&addr);
        tables.abandoned.insert(addr, Reservation { size, ordinal });
        self.give_up_abandoned(&mut tables);
        Ok(())
    }

    /// Lets go of addresses that the program has given back and where no memory is left.
    fn give_up_abandoned(&self, tables: &mut Tables) {
        let free =
            |(addr, r): (&u64, &Reservation)| tables.left_in(*addr, r.size).is_empty().then_some(*addr);
        let free: Vec<u64> = tables.abandoned.iter().filter_map(free).collect();
        for addr in free {
            let Some(Reservation { size, ordinal }) = tables.abandoned.remove(&addr) else { continue };
            // Work that still uses what was mapped there must not meet anything new.
            let until = self.devices.enqueued(ordinal);
            self.devices.heap(ordinal).unreserve(addr, size, until);
        }
    }

    /// Frees device memory at an address that the heap does not know.
    fn free_at(&self, ordinal: Ordinal, addr: u64) -> Result<()> {
        self.devices.note(ordinal, self.devices.device().mem_free(ordinal, addr, None))
    }

    /// `cuMemCreate`: memory without an address.
    pub(crate) fn physical_create(&self, ordinal: Ordinal, size: u64) -> Result<Raw> {
        self.devices.info(ordinal)?;
        self.devices.check_sticky(ordinal)?;
        whole("The size", size)?;
        if size == 0 {
            return Err(invalid("The size is 0"));
        }
        let home = self.memory.take_pages(ordinal, size)?;
        let raw = fresh();
        let physical = Physical {
            ordinal,
            size,
            references: 1,
            mapped: None,
            residence: Residence::Home(home),
            used: false,
        };
        self.tables.lock().physical.insert(raw, physical);
        Ok(raw)
    }

    /// The device and size of memory made by [`VirtualMemory::physical_create`].
    pub(crate) fn physical_info(&self, raw: Raw) -> Result<(Ordinal, u64)> {
        self.tables.lock().physical(raw).map(|p| (p.ordinal, p.size))
    }

    /// `cuMemRelease`: the memory goes when it is mapped no more.
    pub(crate) fn physical_release(&self, raw: Raw) -> Result<()> {
        let mut tables = self.tables.lock();
        let physical = tables.physical(raw)?;
        physical.references -= 1;
        if physical.references > 0 || physical.mapped.is_some() {
            return Ok(());
        }
        match tables.physical.remove(&raw) {
            Some(Physical { ordinal, size, residence: Residence::Home(home), .. }) => {
                self.memory.give_pages_back(ordinal, home, size)
            }
            Some(Physical { ordinal, residence: Residence::Left(addr), .. }) => {
                let freed = self.free_at(ordinal, addr);
                self.give_up_abandoned(&mut tables);
                freed
            }
            _ => Ok(()),
        }
    }

    /// `cuMemRetainAllocationHandle`: one more handle of what is mapped at an address.
    pub(crate) fn physical_retain(&self, addr: u64) -> Result<Raw> {
        let mut tables = self.tables.lock();
        let raw = tables.mapping_around(addr)?.1.physical;
        if let Some(physical) = tables.physical.get_mut(&raw) {
            physical.references += 1;
        }
        Ok(raw)
    }

    /// `cuMemMap`: the memory gets an address, and nobody has access to it yet.
    pub(crate) fn map(&self, addr: u64, size: u64, offset: u64, raw: Raw) -> Result<()> {
        whole("The address", addr)?;
        whole("The size", size)?;
        let mut tables = self.tables.lock();
        let (ordinal, whole, mapped) = {
            let physical = tables.physical(raw)?;
            (physical.ordinal, physical.size, physical.mapped)
        };
        if size == 0 || offset.checked_add(size).is_none_or(|end| end > whole) {
            return Err(invalid(format!("An allocation of {whole} bytes has no {size} bytes at {offset}")));
        }
        let reserved = tables.reservations.range(..=addr).next_back();
        let reserved =
            reserved.filter(|(base, r)| addr - **base < r.size && size <= r.size - (addr - **base));
        let Some((_, reservation)) = reserved else {
            return Err(invalid(format!("The {size} bytes at {addr:#x} are not reserved")));
        };
        let before = tables.mappings.range(..addr + size).next_back();
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
        tables.physical(raw)?.mapped = Some(addr);
        tables.mappings.insert(addr, Mapping { size, physical: raw, access: Vec::new() });
        Ok(())
    }

    /// `cuMemUnmap`: whole mappings.
    pub(crate) fn unmap(&self, addr: u64, size: u64) -> Result<()> {
        let mut tables = self.tables.lock();
        for at in tables.mappings_of(addr, size)? {
            self.leave(&mut tables, at)?;
            let Some(mapping) = tables.mappings.remove(&at) else { continue };
            if let Some(physical) = tables.physical.get_mut(&mapping.physical) {
                physical.mapped = None;
                if physical.references == 0 {
                    let (ordinal, residence) = (physical.ordinal, physical.residence);
                    tables.physical.remove(&mapping.physical);
                    if let Residence::Home(home) = residence {
                        self.memory.give_pages_back(ordinal, home, mapping.size)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// `cuMemSetAccess`, for one device.
    pub(crate) fn set_access(&self, addr: u64, size: u64, who: Ordinal, access: Access) -> Result<()> {
        self.devices.info(who)?;
        let mut tables = self.tables.lock();
        for at in tables.mappings_of(addr, size)? {
            let Some(mapping) = tables.mappings.get_mut(&at) else { continue };
            let before = mapping.access.clone();
            mapping.access.retain(|other| *other != who);
            if access == Access::ReadWrite {
                mapping.access.push(who);
            }
            let moved = match (before.is_empty(), mapping.access.is_empty()) {
                (true, false) => self.to_mapping(&mut tables, at),
                (false, true) => self.to_home(&mut tables, at),
                _ => Ok(()),
            };
            if let Err(error) = moved {
                if let Some(mapping) = tables.mappings.get_mut(&at) {
                    mapping.access = before;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// `cuMemGetAccess`.
    pub(crate) fn access(&self, addr: u64, who: Ordinal) -> Result<Access> {
        self.devices.info(who)?;
        let tables = self.tables.lock();
        let (_, mapping) = tables.mapping_around(addr)?;
        Ok(if mapping.access.contains(&who) { Access::ReadWrite } else { Access::None })
    }

    /// The device has been reset: forgets all that was on it.
    pub(crate) fn forget(&self, ordinal: Ordinal) {
        let mut tables = self.tables.lock();
        let gone: Vec<(u64, u64)> = tables
            .reservations
            .iter()
            .filter(|(_, r)| r.ordinal == ordinal)
            .map(|(base, r)| (*base, r.size))
            .collect();
        for (base, size) in gone {
            tables.reservations.remove(&base);
            tables.mappings.retain(|addr, _| !(base..base + size).contains(addr));
        }
        tables.physical.retain(|_, p| p.ordinal != ordinal);
        tables.abandoned.retain(|_, r| r.ordinal != ordinal);
        for mapping in tables.mappings.values_mut() {
            mapping.access.retain(|who| *who != ordinal);
        }
    }

    /// Brings a mapping's memory to its address.
    fn to_mapping(&self, tables: &mut Tables, addr: u64) -> Result<()> {
        let Some((raw, length)) = tables.mappings.get(&addr).map(|m| (m.physical, m.size)) else {
            return Ok(());
        };
        for other in tables.left_in(addr, length) {
            if let Some(physical) = tables
                .physical
                .get_mut(&other)
                .filter(|p| p.residence != Residence::Left(addr) || other != raw)
            {
                self.go_home(physical)?;
            }
        }
        self.give_up_abandoned(tables);
        let Some(physical) = tables.physical.get_mut(&raw).filter(|p| p.residence != Residence::Mapped)
        else {
            return Ok(());
        };
        let (ordinal, size) = (physical.ordinal, physical.size);
        let there = || {
            self.devices
                .note(ordinal, self.devices.device().mem_alloc(ordinal, addr, size, MemoryKind::Device))
        };
        match physical.residence {
            Residence::Home(home) if physical.used => {
                self.move_contents(
                    ordinal,
                    size,
                    home,
                    there,
                    || self.memory.give_pages_back(ordinal, home, size),
                    |()| addr,
                )?;
            }
            Residence::Home(home) => {
                self.memory.give_pages_back(ordinal, home, size)?;
                physical.residence = Residence::Lost;
                there()?;
            }
            Residence::Left(before) if before == addr => {}
            Residence::Left(before) => {
                self.move_contents(
                    ordinal,
                    size,
                    before,
                    there,
                    || self.free_at(ordinal, before),
                    |()| addr,
                )?;
            }
            _ => there()?,
        }
        physical.residence = Residence::Mapped;
        physical.used = true;
        self.memory.mapped(ordinal, addr, size);
        self.give_up_abandoned(tables);
        Ok(())
    }

    /// Takes memory that was left somewhere home.
    fn go_home(&self, physical: &mut Physical) -> Result<()> {
        let Residence::Left(addr) = physical.residence else { return Ok(()) };
        let (ordinal, size) = (physical.ordinal, physical.size);
        physical.residence = Residence::Home(self.move_home(ordinal, size, addr)?);
        Ok(())
    }

    /// Moves memory from an address to one that the program never learns, which is returned.
    fn move_home(&self, ordinal: Ordinal, size: u64, addr: u64) -> Result<u64> {
        let there = || self.memory.take_pages_quietly(ordinal, size);
        self.move_contents(ordinal, size, addr, there, || self.free_at(ordinal, addr), |home| home)
    }

    /// Takes a mapping's memory out of the program's reach, and leaves it where it is if somebody can ask for it again.
    fn leave(&self, tables: &mut Tables, addr: u64) -> Result<()> {
        let Some(raw) = tables.mappings.get(&addr).map(|m| m.physical) else { return Ok(()) };
        let Some(physical) = tables.physical.get_mut(&raw) else { return Ok(()) };
        let is_here = physical.residence == Residence::Mapped && physical.references > 0;
        if !is_here || self.devices.sticky_code(physical.ordinal) != 0 {
            return self.to_home(tables, addr);
        }
        self.memory.unmapped(addr);
        physical.residence = Residence::Left(addr);
        Ok(())
    }

    /// Takes a mapping's memory away from its address: home, or to where there is none if nobody can ask for it again.
    fn to_home(&self, tables: &mut Tables, addr: u64) -> Result<()> {
        let Some(raw) = tables.mappings.get(&addr).map(|m| m.physical) else { return Ok(()) };
        let Some(physical) = tables.physical.get_mut(&raw).filter(|p| p.residence == Residence::Mapped)
        else {
            return Ok(());
        };
        let (ordinal, size) = (physical.ordinal, physical.size);
        self.memory.unmapped(addr);
        if self.devices.sticky_code(ordinal) != 0 {
            // The device has lost its contents anyhow; let the program clean up.
            physical.residence = Residence::Lost;
            let _ = self.free_at(ordinal, addr);
            return Ok(());
        }
        if physical.references == 0 {
            self.free_at(ordinal, addr)?;
            physical.residence = Residence::Lost;
            return Ok(());
        }
        physical.residence = Residence::Home(self.move_home(ordinal, size, addr)?);
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
        self.devices.wait(ordinal, Target::Device(ordinal))?;
        let stream = u64::from(ordinal);
        let (to, copied) = match there() {
            Ok(to) => {
                let to = address(to);
                let (dst, src) = (Region::linear(to, size), Region::linear(from, size));
                let copied =
                    self.devices.note(ordinal, self.devices.device().copy_on_device(stream, dst, src));
                (to, copied.and_then(|()| away()))
            }
            Err(error) if error.code == Code::OutOfMemory => {
                let mut bytes = vec![0u8; size as usize];
                let dst = Region::linear(bytes.as_mut_ptr() as u64, size);
                // SAFETY: the destination is a vector of that size, which outlives the call.
                let dst = unsafe { HostTarget::new(dst) };
                let from = Region::linear(from, size);
                let read = self.devices.device().copy_from_device_blocking(stream, from, dst);
                self.devices.note(ordinal, read)?;
                away()?;
                let to = address(there()?);
                let data = HostData::Owned(bytes);
                let written = self.devices.device().copy_to_device(stream, Region::linear(to, size), 0, data);
                (to, self.devices.note(ordinal, written))
            }
            Err(error) => return Err(error),
        };
        copied?;
        self.devices.work_of_our_own(ordinal);
        self.devices.note(ordinal, self.devices.device().fence(stream))?;
        Ok(to)
    }
}

const _: () = assert!(GRANULARITY.is_multiple_of(PAGE));
