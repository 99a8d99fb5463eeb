//! The arena: the one range of addresses in which everything lies that a kernel may touch.
//!
//! It is reserved without access and without backing. Parts become accessible when something is placed
//! there; whatever else is touched faults.
//!
//! Device memory comes from one sparse memory file per ordinal, a byte's offset in the file being its
//! offset in the ordinal's range, so that another process on the machine could map the same bytes.

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use parking_lot::{Mutex, MutexGuard};
use rgpu_device::{AddressPlan, Code, Error, MAX_CLUSTER, Range, Result, Seat};

use super::lending::DEVICE;
use super::nearby::{Found, Nearby};
use crate::abi::{ARENA_MARGIN, CLUSTER_STRIDE};
pub(super) use rgpu_device::PAGE;

/// Bytes that one block's shared memory may have at most.
pub(super) const WINDOW: u64 = 256 << 10;
const _: () = assert!(WINDOW <= CLUSTER_STRIDE as u64);
/// Bytes of local memory that one block's threads may have together.
pub(super) const LOCAL: u64 = 1 << 30;
/// Bytes of it that those of a block of a cluster may have: all blocks of a cluster share one slot.
pub(super) const CLUSTER_LOCAL: u64 = LOCAL / MAX_CLUSTER as u64;
/// Most bytes of one kernel's parameters.
pub(super) const PARAM_BYTES: u64 = 32 << 10;
const _: () = assert!(rgpu_device::MAX_PARAM_BYTES as u64 <= PARAM_BYTES);
/// Bytes of a parameter slot: the parameters, then a page for the grid's workspace.
pub(super) const PARAM_SLOT: u64 = PARAM_BYTES + PAGE;
/// Parameter slots, which is how many kernels can be executing at once.
pub(super) const PARAM_SLOTS: u64 = 256;

/// Addresses of a device, at least: programs reserve far more than there is memory, to map it as they need it.
const DEVICE_ADDRESSES: u64 = 64 << 30;
/// Addresses of modules' variables, at least.
const GLOBAL_ADDRESSES: u64 = 16 << 30;
/// How far the windows of slots are apart, and what their addresses are multiples of: as far as 32 bits reach. So the low half of a generic address in
/// shared memory is its address there, as on devices, and nothing else lies where that can lead, counted from the memory of a cluster's first block. (A kernel
/// that knows nothing of clusters counts from its own block's: there a wrong address just below 4 GiB may lead to another block of the same program.)
const WINDOW_STRIDE: u64 = 1 << 32;
const _: () = assert!(MAX_CLUSTER as u64 * CLUSTER_STRIDE as u64 <= WINDOW_STRIDE);
const ALIGN: u64 = 2 << 20;

/// Rounds up to a multiple of `to`, a power of two; `None` on overflow.
pub(super) fn round_up(value: u64, to: u64) -> Option<u64> {
    value.checked_add(to - 1).map(|v| v & !(to - 1))
}

/// The reserved range and how it is divided.
pub(super) struct Arena {
    /// What the caller was told.
    pub plan: AddressPlan,
    /// Where module-level variables go.
    pub globals: Range,
    /// Where the kernels' heaps go, by ordinal.
    pub heaps: Vec<Range>,
    params: Range,
    locals: Range,
    windows: Range,
    files: Vec<Option<OwnedFd>>,
    mirrored_file: OwnedFd,
    /// What direct memory is made of, where another process may map it.
    direct_file: Option<OwnedFd>,
    /// What lies beside allocations, unless there is nothing.
    nearby: Option<Mutex<Nearby>>,
}

fn os_error(what: &str) -> Error {
    Error::new(Code::OperatingSystem, format!("{what}: {}", std::io::Error::last_os_error()))
}

/// A memory file of a size that is fixed for good; `None` with the system's error where there can be none.
pub(super) fn memory_file(name: &str, size: u64) -> Option<OwnedFd> {
    let name = CString::new(name).ok()?;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls; the descriptor is owned from here on.
    unsafe {
        // Beyond the limit for files ftruncate would not just fail, but kill the process.
        if libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) != 0 || limit.rlim_cur < size {
            return None;
        }
        let fd = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        if fd < 0 {
            return None;
        }
        // Low numbers belong to the program.
        let high = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 512);
        let fd = if high >= 0 {
            libc::close(fd);
            high
        } else {
            fd
        };
        let fd = OwnedFd::from_raw_fd(fd);
        if libc::ftruncate(fd.as_raw_fd(), size as i64) != 0 {
            return None;
        }
        // Another process may map it, and shall not be able to make it shrink under us.
        libc::fcntl(
            fd.as_raw_fd(),
            libc::F_ADD_SEALS,
            libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL,
        );
        Some(fd)
    }
}

impl Arena {
    /// Reserves what `devices` devices of `memory` bytes each with `slots` resident blocks in all need.
    #[cfg(test)]
    pub(super) fn reserve(proposal: Range, devices: u32, memory: u64, slots: u64) -> Result<Self> {
        Self::reserve_seat(proposal, Seat::ALONE, devices, memory, slots)
    }

    /// [`Arena::reserve`] for one of several devices that serve an application. What belongs to the others is reserved, too:
    /// kernels that touch it fault.
    pub(super) fn reserve_seat(
        proposal: Range,
        seat: Seat,
        devices: u32,
        memory: u64,
        slots: u64,
    ) -> Result<Self> {
        if !proposal.base.is_multiple_of(PAGE) || proposal.base == 0 {
            return Err(Error::new(Code::InvalidValue, "An address plan must begin at a page above 0"));
        }
        let too_large =
            || Error::new(Code::InvalidValue, "The device memory asked for is too large to address");
        // The arena's margins stay unmapped.
        const { assert!(ALIGN >= crate::abi::ARENA_MARGIN) };
        let too_small = |size: u64| {
            let text = format!(
                "The device needs {size} bytes of address space, but {} were proposed",
                proposal.size
            );
            Error::new(Code::MapFailed, text)
        };
        let (own, agreed) = match seat.is_alone() {
            true => (proposal, None),
            false => {
                let (own, shared) = seat.parts(proposal).ok_or_else(|| too_small(16 << 30))?;
                (own, Some(shared))
            }
        };
        let mut next = round_up(own.base, ALIGN).and_then(|n| n.checked_add(ALIGN)).ok_or_else(too_large)?;
        let mut take = |size: u64| -> Result<Range> {
            let size = round_up(size, ALIGN).ok_or_else(too_large)?;
            let range = Range { base: next, size };
            // A gap between the zones, so that running over an end faults.
            next = next.checked_add(size).and_then(|n| n.checked_add(ALIGN)).ok_or_else(too_large)?;
            Ok(range)
        };
        let fourfold = memory.checked_mul(4).ok_or_else(too_large)?;
        let all = fourfold.checked_mul(u64::from(devices)).ok_or_else(too_large)?;
        // First, so that variables have the same addresses with however much memory: machine code that is kept has them in it.
        let globals = take((all / 4).max(GLOBAL_ADDRESSES))?;
        let mut ranges = Vec::new();
        for _ in 0..devices {
            ranges.push(take(fourfold.max(DEVICE_ADDRESSES))?);
        }
        let shared = match agreed {
            Some(shared) => shared,
            None => take(all.max(64 << 30))?,
        };
        let mut heaps = Vec::new();
        for _ in 0..devices {
            heaps.push(take(memory.max(64 << 20))?);
        }
        let params = take(PARAM_SLOT * PARAM_SLOTS)?;
        let locals = take(slots.checked_mul(LOCAL).ok_or_else(too_large)?)?;
        let windows = slots.checked_add(1).and_then(|slots| slots.checked_mul(WINDOW_STRIDE));
        let windows = take(windows.ok_or_else(too_large)?)?;
        let windows = Range {
            base: round_up(windows.base, WINDOW_STRIDE).ok_or_else(too_large)?,
            size: windows.size - WINDOW_STRIDE,
        };
        let needed = next - own.base;
        if needed > own.size {
            return Err(too_small(needed));
        }
        // The size, too, is in machine code: it depends on memory and processors as little as it can.
        let size = match seat.is_alone() {
            true => needed.checked_next_power_of_two().unwrap_or(needed).min(proposal.size),
            false => proposal.size,
        };
        // SAFETY: a fresh mapping that replaces nothing.
        let at = unsafe {
            libc::mmap(
                proposal.base as *mut _,
                size as usize,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(Error::new(
                Code::MapFailed,
                format!(
                    "Cannot reserve {size} bytes of address space at {:#x}: {} (too little address space is \
                     usually a limit set with `ulimit -v`)",
                    proposal.base,
                    std::io::Error::last_os_error()
                ),
            ));
        }
        if at as u64 != proposal.base {
            // SAFETY: a kernel that does not know MAP_FIXED_NOREPLACE has mapped elsewhere; undo that.
            unsafe { libc::munmap(at, size as usize) };
            return Err(Error::new(Code::MapFailed, format!("The range at {:#x} is taken", proposal.base)));
        }
        let whole = Range { base: proposal.base, size };
        // From here on `Drop` undoes the reservation.
        let files =
            ranges.iter().enumerate().map(|(i, r)| memory_file(&format!("{DEVICE}-{i}"), r.size)).collect();
        let Some(mirrored_file) = memory_file("rgpu-mirrored", shared.size) else {
            let error = os_error("Cannot create a memory file");
            // SAFETY: our own mapping from above.
            unsafe { libc::munmap(at, size as usize) };
            return Err(error);
        };
        let arena = Self {
            plan: AddressPlan { whole, devices: ranges, shared },
            globals,
            heaps,
            params,
            locals,
            windows,
            files,
            mirrored_file,
            direct_file: None,
            nearby: None,
        };
        arena.without_dump(whole);
        Ok(arena)
    }

    /// The range that compiled code confines its accesses to.
    pub(super) fn whole(&self) -> Range {
        self.plan.whole
    }

    /// Address of parameter slot `index`.
    pub(super) fn param_slot(&self, index: u64) -> u64 {
        debug_assert!(index < PARAM_SLOTS);
        self.params.base + index * PARAM_SLOT
    }

    /// Makes all parameter slots accessible.
    pub(super) fn open_params(&self) -> Result<()> {
        self.protect(self.params, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Makes the shared-memory window of slot `index` accessible, for the block of this rank in a cluster, and returns its address.
    pub(super) fn open_window(&self, index: u64, rank: u64) -> Result<u64> {
        let window = self.window(index, rank);
        self.protect(window, libc::PROT_READ | libc::PROT_WRITE)?;
        Ok(window.base)
    }

    /// Makes such a window inaccessible again.
    pub(super) fn close_window(&self, index: u64, rank: u64) {
        self.unmap(self.window(index, rank));
    }

    fn window(&self, index: u64, rank: u64) -> Range {
        debug_assert!(rank < u64::from(MAX_CLUSTER));
        let base = self.windows.base + index * WINDOW_STRIDE + rank * u64::from(CLUSTER_STRIDE);
        Range { base, size: WINDOW }
    }

    /// Where the local memory of slot `index` lies, [`LOCAL`] bytes that are not accessible yet.
    pub(super) fn local(&self, index: u64) -> u64 {
        self.locals.base + index * LOCAL
    }

    /// The file of mirrored memory: the byte at offset 0 is the first of the shared range.
    pub(super) fn mirrored_file(&self) -> &OwnedFd {
        &self.mirrored_file
    }

    /// Has direct memory come from a file, for another process to map.
    pub(super) fn share_direct_memory(&mut self) {
        self.direct_file = memory_file("rgpu-shared", self.plan.shared.size);
    }

    /// From now on kernels reach [scratch](super::nearby) beside allocations.
    pub(super) fn have_scratch(&mut self) {
        self.nearby = Some(Mutex::default());
    }

    /// An access to an address has faulted. Whether it is to be tried again, because it is beside an allocation.
    pub(super) fn reaches_scratch(&self, addr: u64) -> bool {
        let Some(mut nearby) = self.nearby() else { return false };
        let whole = self.whole();
        let limits = Range { base: whole.base + ARENA_MARGIN, size: whole.size - 2 * ARENA_MARGIN };
        match nearby.look(addr, limits) {
            Found::Nothing => false,
            Found::Scratch => true,
            Found::Gap(gap) => {
                let mapped = self.map_plain(gap).is_ok();
                if mapped {
                    nearby.scratched(gap);
                }
                mapped
            }
        }
    }

    /// What lies beside allocations. While this is held, nothing is mapped or unmapped there by anybody else.
    fn nearby(&self) -> Option<MutexGuard<'_, Nearby>> {
        self.nearby.as_ref().map(Mutex::lock)
    }

    /// The file of direct memory, if it comes from one: the byte at offset 0 is the first of the shared range.
    pub(super) fn direct_file(&self) -> Option<&OwnedFd> {
        self.direct_file.as_ref()
    }

    /// Sets what may be done with a part of the arena.
    pub(super) fn protect(&self, part: Range, protection: i32) -> Result<()> {
        debug_assert!(self.plan.whole.contains(part.base, part.size));
        // SAFETY: the range is part of our own reservation, and nothing of Rust's lies in it.
        if unsafe { libc::mprotect(part.base as *mut _, part.size as usize, protection) } != 0 {
            return Err(os_error("Cannot change the protection of device memory"));
        }
        Ok(())
    }

    fn without_dump(&self, part: Range) {
        // SAFETY: advice about our own mapping. Failure costs nothing but a larger core dump.
        unsafe { libc::madvise(part.base as *mut _, part.size as usize, libc::MADV_DONTDUMP) };
    }

    fn map(&self, part: Range, protection: i32, flags: i32, file: i32, offset: u64) -> Result<()> {
        debug_assert!(self.plan.whole.contains(part.base, part.size));
        // SAFETY: replaces pages of our own reservation.
        let at = unsafe {
            libc::mmap(
                part.base as *mut _,
                part.size as usize,
                protection,
                flags | libc::MAP_FIXED | libc::MAP_NORESERVE,
                file,
                offset as i64,
            )
        };
        if at == libc::MAP_FAILED {
            let error = std::io::Error::last_os_error();
            let code = match error.raw_os_error() {
                Some(libc::ENOMEM) => Code::OutOfMemory,
                _ => Code::OperatingSystem,
            };
            let hint = "the number of mappings is limited by vm.max_map_count";
            return Err(Error::new(code, format!("Cannot map device memory: {error} ({hint})")));
        }
        self.without_dump(part);
        Ok(())
    }

    /// Backs a part of an ordinal's range with its file.
    pub(super) fn map_device(&self, ordinal: usize, part: Range) -> Result<()> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let mut nearby = self.nearby();
        match &self.files[ordinal] {
            Some(file) => {
                let offset = part.base - self.plan.devices[ordinal].base;
                self.map(part, access, libc::MAP_SHARED, file.as_raw_fd(), offset)?;
            }
            None => self.map(part, access, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1, 0)?,
        }
        if let Some(nearby) = &mut nearby {
            nearby.mapped(part);
        }
        // SAFETY: advice about our own mapping; it may be ignored.
        unsafe { libc::madvise(part.base as *mut _, part.size as usize, libc::MADV_HUGEPAGE) };
        Ok(())
    }

    /// Where a part of an ordinal's range is: the file, and the offset in it.
    pub(super) fn place_of(&self, ordinal: usize, part: Range) -> Option<(i32, u64)> {
        let file = self.files[ordinal].as_ref()?;
        Some((file.as_raw_fd(), part.base - self.plan.devices[ordinal].base))
    }

    /// Places a part of another process's memory file in an ordinal's range. The file is sealed and long enough.
    pub(super) fn map_borrowed(&self, part: Range, file: &OwnedFd, offset: u64) -> Result<()> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let mut nearby = self.nearby();
        self.map(part, access, libc::MAP_SHARED, file.as_raw_fd(), offset)?;
        if let Some(nearby) = &mut nearby {
            nearby.mapped(part);
        }
        Ok(())
    }

    /// Memory for a module's variables.
    pub(super) fn map_variables(&self, part: Range) -> Result<()> {
        let mut nearby = self.nearby();
        self.map_plain(part)?;
        if let Some(nearby) = &mut nearby {
            nearby.mapped(part);
        }
        Ok(())
    }

    /// The files behind the ordinals' ranges, if there are such for all of them.
    pub(super) fn device_files(&self) -> Vec<i32> {
        let all: Option<Vec<i32>> = self.files.iter().map(|f| f.as_ref().map(AsRawFd::as_raw_fd)).collect();
        all.unwrap_or_default()
    }

    /// Takes a part of an ordinal's range back and gives its memory to the system.
    pub(super) fn unmap_device(&self, ordinal: usize, part: Range) {
        self.unmap_beside(part);
        if let Some(file) = &self.files[ordinal] {
            self.punch(file, part.base - self.plan.devices[ordinal].base, part.size);
        }
    }

    /// Memory in the shared range that host and device see as one. What comes from a file was made zero by whoever freed it last.
    pub(super) fn map_direct(&self, part: Range) -> Result<()> {
        let Some(file) = &self.direct_file else { return self.map_plain(part) };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        self.map(part, access, libc::MAP_SHARED, file.as_raw_fd(), part.base - self.plan.shared.base)
    }

    /// Plain memory of this process in the arena.
    pub(super) fn map_plain(&self, part: Range) -> Result<()> {
        self.map(part, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// Places a part of the mirrored memory's file, not accessible yet.
    pub(super) fn map_mirrored(&self, part: Range) -> Result<()> {
        let offset = part.base - self.plan.shared.base;
        self.map(part, libc::PROT_NONE, libc::MAP_SHARED, self.mirrored_file.as_raw_fd(), offset)
    }

    /// Takes a part of the mirrored memory back.
    pub(super) fn unmap_mirrored(&self, part: Range) {
        self.unmap(part);
        self.punch(&self.mirrored_file, part.base - self.plan.shared.base, part.size);
    }

    /// [`Arena::unmap`] where scratch may lie beside: it goes, too, with the last allocation near it.
    pub(super) fn unmap_beside(&self, part: Range) {
        let mut nearby = self.nearby();
        self.unmap(part);
        let lonely = nearby.as_mut().map_or_else(Vec::new, |nearby| nearby.unmapped(part));
        lonely.into_iter().for_each(|scratch| self.unmap(scratch));
    }

    /// Makes a part inaccessible again and forgets what was there.
    pub(super) fn unmap(&self, part: Range) {
        // Failing leaves stale memory accessible to its own application only.
        let _ = self.map(part, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
    }

    fn punch(&self, file: &OwnedFd, offset: u64, size: u64) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: a plain system call on our own file. Failing keeps memory until the file goes.
        unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as i64, size as i64) };
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: our own reservation; workers hold the arena as long as they run.
        unsafe { libc::munmap(self.plan.whole.base as *mut _, self.plan.whole.size as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anywhere() -> Range {
        Range { base: 0x2000_0000_0000, size: 1 << 42 }
    }

    #[test]
    fn a_taken_range_is_refused_and_a_small_one_named() {
        let first = Arena::reserve(anywhere(), 1, 1 << 20, 4).unwrap();
        let code = |r: Result<Arena>| r.err().unwrap().code;
        assert_eq!(code(Arena::reserve(anywhere(), 1, 1 << 20, 4)), Code::MapFailed);
        let small = Range { size: 1 << 20, ..anywhere() };
        assert_eq!(code(Arena::reserve(small, 1, 1 << 20, 4)), Code::MapFailed);
        assert_eq!(code(Arena::reserve(anywhere(), 1, u64::MAX / 2, 4)), Code::InvalidValue);
        drop(first);
        let other = Range { base: 0x2800_0000_0000, size: 1 << 42 };
        let again = Arena::reserve(other, 2, 1 << 20, 4).unwrap();
        let plan = &again.plan;
        assert!(plan.whole.contains(plan.shared.base, plan.shared.size));
        assert!(plan.devices[1].base >= plan.devices[0].end());
        assert!(plan.devices[0].size >= 4 << 20);
    }
}
