//! Mirrored memory: when the device must look again, and taking over what it changed.
//!
//! In a session with a server, pinned and managed memory has two copies, one on each side. The device is told to look
//! at the host's copy anew ([`rgpu_device::Device::invalidate_shared`]) before work that could see it, and what it
//! changed is stored in the host's copy after each wait. Without mirrored memory nothing of this costs anything.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rgpu_device::{Device, Range};
use rgpu_remote::Application;

use super::error::{Code, Error, Result, invalid};
use super::generation;
use super::heap::Spans;
use super::host::HostSide;

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;
/// Allocations in the shared range start at multiples of this and have an unused page behind them.
const GRANULE: u64 = 64 << 10;

/// The shared range: who has which part of it, and who looked when.
pub(crate) struct SharedSpace {
    range: Range,
    free: Mutex<Spans>,
    /// How many mirrored allocations are pinned or registered memory.
    pinned: AtomicUsize,
    /// How many mirrored allocations are managed memory.
    managed: AtomicUsize,
    /// Whether the host may have written managed memory since the device was told to look.
    host_turn: AtomicBool,
}

impl SharedSpace {
    /// All of `range` is free.
    pub(crate) fn new(range: Range) -> Self {
        let mut free = Spans::new();
        free.release(range.base, range.size);
        Self {
            range,
            free: Mutex::new(free),
            pinned: AtomicUsize::new(0),
            managed: AtomicUsize::new(0),
            host_turn: AtomicBool::new(true),
        }
    }

    /// Room for `size` bytes (a multiple of the page).
    pub(crate) fn take(&self, size: u64) -> Option<u64> {
        let step = room(size)?;
        self.free.lock().take(step, GRANULE)
    }

    /// Gives back the room for `size` bytes at `addr` that [`SharedSpace::take`] found.
    pub(crate) fn release(&self, addr: u64, size: u64) {
        if let Some(step) = room(size) {
            self.free.lock().release(addr, step);
        }
    }

    fn counter(&self, managed: bool) -> &AtomicUsize {
        if managed { &self.managed } else { &self.pinned }
    }

    /// A mirrored allocation came to life.
    pub(crate) fn mirror_added(&self, managed: bool) {
        self.counter(managed).fetch_add(1, Ordering::Relaxed);
        generation::begin_new();
        self.host_turn.store(true, Ordering::Relaxed);
    }

    /// A mirrored allocation is gone.
    pub(crate) fn mirror_removed(&self, managed: bool) {
        self.counter(managed).fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether there is mirrored memory at all.
    pub(crate) fn any(&self) -> bool {
        self.pinned.load(Ordering::Relaxed) != 0 || self.managed.load(Ordering::Relaxed) != 0
    }

    /// To be called before enqueueing work that may read mirrored memory on the device.
    #[inline]
    pub(crate) fn before_device_work(&self, device: &dyn Device) -> Result<()> {
        if self.any() { self.look_again(device) } else { Ok(()) }
    }

    #[cold]
    fn look_again(&self, device: &dyn Device) -> Result<()> {
        let managed =
            self.managed.load(Ordering::Relaxed) != 0 && self.host_turn.swap(false, Ordering::Relaxed);
        if managed || self.pinned.load(Ordering::Relaxed) != 0 {
            device.invalidate_shared()?;
        }
        Ok(())
    }

    /// To be called after waiting for the device: takes over what it changed.
    #[inline]
    pub(crate) fn after_wait(&self, device: &dyn Device, host: &HostSide) {
        if self.any() {
            device.collect_shared_writes(&mut |addr, bytes| host.store_mirrored(addr, bytes));
            self.host_turn.store(true, Ordering::Relaxed);
        }
    }

    /// The host wrote to mirrored memory on the program's behalf.
    pub(crate) fn host_wrote(&self) {
        self.host_turn.store(true, Ordering::Relaxed);
    }

    /// Makes pages of the shared range usable by the host: in a session with a server they are this process's own.
    pub(crate) fn map_host_pages(&self, addr: u64, size: u64) -> Result<()> {
        self.remap(addr, size, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_NORESERVE)
    }

    /// Takes pages back that [`SharedSpace::map_host_pages`] made usable: touching them faults.
    pub(crate) fn unmap_host_pages(&self, addr: u64, size: u64) -> Result<()> {
        self.remap(addr, size, libc::PROT_NONE, libc::MAP_NORESERVE)
    }

    fn remap(&self, addr: u64, size: u64, protection: i32, extra: i32) -> Result<()> {
        if !self.range.contains(addr, size) {
            return Err(invalid(format!("{addr:#x} is not in the shared range")));
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | extra;
        // SAFETY: the shared range is reserved for this session's device, whose plan says so, and the caller owns these
        // pages of it.
        let got = unsafe { libc::mmap(addr as *mut _, size as usize, protection, flags, -1, 0) };
        if got == libc::MAP_FAILED {
            let why = std::io::Error::last_os_error();
            return Err(Error::new(Code::OutOfMemory, format!("Cannot map host memory: {why}")));
        }
        Ok(())
    }
}

fn room(size: u64) -> Option<u64> {
    size.checked_add(PAGE)?.checked_next_multiple_of(GRANULE)
}
