//! Hints about managed memory: `cudaMemAdvise`, `cudaMemPrefetchAsync`, and telling them again (`cudaMemRangeGetAttribute`).

use std::ffi::{c_int, c_void};
use std::iter;

use rgpu_device::Range;

use super::ordinal;
use crate::abi::types::{MemLocation, location};
use crate::abi::{In, Out};
use crate::core::error::invalid;
use crate::core::{Core, Hint, Place, PointerKind, Result};

/// `cudaCpuDeviceId`.
pub(crate) const CPU: c_int = -1;
/// `cudaInvalidDeviceId`.
pub(crate) const NO_DEVICE: c_int = -2;
/// `cudaMemLocationTypeInvalid`.
const NOWHERE: c_int = 0;

/// Attributes of a range, by `cudaMemRangeAttribute`'s numbers.
mod attribute {
    pub(super) const READ_MOSTLY: u32 = 1;
    pub(super) const PREFERRED_LOCATION: u32 = 2;
    pub(super) const ACCESSED_BY: u32 = 3;
    pub(super) const LAST_PREFETCH_LOCATION: u32 = 4;
    pub(super) const PREFERRED_LOCATION_TYPE: u32 = 5;
    pub(super) const PREFERRED_LOCATION_ID: u32 = 6;
    pub(super) const LAST_PREFETCH_LOCATION_TYPE: u32 = 7;
    pub(super) const LAST_PREFETCH_LOCATION_ID: u32 = 8;
}

/// The place that a device's number means in the calls that know no other places.
pub(crate) fn location_of(device: c_int) -> MemLocation {
    if device == CPU {
        MemLocation { kind: location::HOST, id: 0 }
    } else {
        MemLocation { kind: location::DEVICE, id: device }
    }
}

/// The range, if all of it is managed memory, which hints are given about.
pub(super) fn managed(core: &Core, addr: u64, bytes: u64) -> Result<Range> {
    let info = core.pointer_info(addr);
    let inside = addr.checked_add(bytes).is_some_and(|end| end <= info.base + info.size);
    if info.kind == PointerKind::Managed && bytes > 0 && inside {
        Ok(Range { base: addr, size: bytes })
    } else {
        Err(invalid(format!("the {bytes} bytes at {addr:#x} are not managed memory")))
    }
}

/// The node of the processor that this thread runs on.
fn current_node() -> c_int {
    let mut node = 0u32;
    // SAFETY: the call writes one number; it takes null for the others.
    let told = unsafe { libc::syscall(libc::SYS_getcpu, std::ptr::null_mut::<u32>(), &raw mut node, 0usize) };
    if told == 0 { node.cast_signed() } else { 0 }
}

/// The place that a hint names, if it exists.
fn place(core: &Core, named: MemLocation) -> Result<Place> {
    match named.kind {
        location::DEVICE => ordinal(core, named.id).map(Place::Device),
        location::HOST => Ok(Place::Host),
        location::HOST_NUMA => Ok(Place::HostNode(named.id)),
        location::HOST_NUMA_CURRENT => Ok(Place::HostNode(current_node())),
        _ => Err(invalid("no such memory location")),
    }
}

/// `cudaMemAdvise`, by `cudaMemoryAdvise`'s numbers.
pub(crate) fn advise(core: &Core, addr: u64, bytes: u64, advice: u32, named: MemLocation) -> Result<()> {
    let range = managed(core, addr, bytes)?;
    // Read-mostly and the removal of a preferred location do not look at the place.
    let hint = match advice {
        1 => Hint::ReadMostly(true),
        2 => Hint::ReadMostly(false),
        3 => Hint::Preferred(Some(place(core, named)?)),
        4 => Hint::Preferred(None),
        5 => Hint::AccessedBy(place(core, named)?, true),
        6 => Hint::AccessedBy(place(core, named)?, false),
        _ => return Err(invalid("no such advice")),
    };
    core.hint(range, hint);
    Ok(())
}

/// `cudaMemPrefetchAsync`: the memory is where it was, and the place is remembered.
pub(crate) fn prefetch(core: &Core, addr: u64, bytes: u64, named: MemLocation) -> Result<()> {
    prefetch_range(core, managed(core, addr, bytes)?, named)
}

/// The same of a range that is known to be managed memory.
pub(super) fn prefetch_range(core: &Core, range: Range, named: MemLocation) -> Result<()> {
    core.hint(range, Hint::Prefetched(place(core, named)?));
    Ok(())
}

/// A place in the calls that know only devices and the processor.
fn device_of(place: Option<Place>) -> c_int {
    match place {
        Some(Place::Device(device)) => device.cast_signed(),
        Some(Place::Host | Place::HostNode(_)) => CPU,
        None => NO_DEVICE,
    }
}

/// The kind of a place.
fn kind_of(place: Option<Place>) -> c_int {
    match place {
        Some(Place::Device(_)) => location::DEVICE,
        Some(Place::Host) => location::HOST,
        Some(Place::HostNode(_)) => location::HOST_NUMA,
        None => NOWHERE,
    }
}

/// The number of a place of its kind.
fn id_of(place: Option<Place>) -> c_int {
    match place {
        Some(Place::HostNode(node)) => node,
        other => device_of(other),
    }
}

/// `cudaMemRangeGetAttribute`: writes `len` bytes to `data`.
///
/// # Safety
/// There must be room for so many bytes.
pub(crate) unsafe fn range_attribute(
    core: &Core,
    data: Out<c_void>,
    len: usize,
    number: u32,
    addr: u64,
    bytes: u64,
) -> Result<()> {
    let hints = core.hints(managed(core, addr, bytes)?);
    let room = len / size_of::<c_int>();
    if room == 0 || !len.is_multiple_of(size_of::<c_int>()) || (room > 1 && number != attribute::ACCESSED_BY)
    {
        return Err(invalid(format!("attribute {number} of a range does not have {len} bytes")));
    }
    let values = match number {
        attribute::READ_MOSTLY => vec![hints.read_mostly.into()],
        attribute::PREFERRED_LOCATION => vec![device_of(hints.preferred)],
        attribute::ACCESSED_BY => hints.accessed_by.into_iter().map(|place| device_of(Some(place))).collect(),
        attribute::LAST_PREFETCH_LOCATION => vec![device_of(hints.prefetched)],
        attribute::PREFERRED_LOCATION_TYPE => vec![kind_of(hints.preferred)],
        attribute::PREFERRED_LOCATION_ID => vec![id_of(hints.preferred)],
        attribute::LAST_PREFETCH_LOCATION_TYPE => vec![kind_of(hints.prefetched)],
        attribute::LAST_PREFETCH_LOCATION_ID => vec![id_of(hints.prefetched)],
        _ => return Err(invalid(format!("a range has no attribute {number}"))),
    };
    for (index, value) in values.into_iter().chain(iter::repeat(NO_DEVICE)).take(room).enumerate() {
        // SAFETY: the caller's promise.
        unsafe { data.cast::<c_int>().at(index) }.set(value)?;
    }
    Ok(())
}

/// `cudaMemRangeGetAttributes`: as many attributes as there are `numbers`.
///
/// # Safety
/// The lists must have `count` entries, and each place the room that its entry of `lens` says.
pub(crate) unsafe fn range_attributes(
    core: &Core,
    (places, lens, numbers): (In<Out<c_void>>, In<usize>, In<u32>),
    count: usize,
    addr: u64,
    bytes: u64,
) -> Result<()> {
    if count == 0 {
        return Err(invalid("no attribute is asked for"));
    }
    // SAFETY: the caller's promise.
    let (places, lens, numbers) = unsafe { (places.list(count)?, lens.list(count)?, numbers.list(count)?) };
    for ((place, len), number) in places.into_iter().zip(lens).zip(numbers) {
        // SAFETY: as above.
        unsafe { range_attribute(core, place, len, number, addr, bytes) }?;
    }
    Ok(())
}
