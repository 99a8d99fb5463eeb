//! Copies without the wire: a server on the same machine lets the client map its device memory a second time.
//!
//! Copies keep their place in the stream: the client asks for the stream to be *held* once it has got there, copies, and lets
//! it go on. So nothing that other threads put on the stream can come between, and nothing is waited for that
//! the copy would not have waited for anyway.

use rgpu_device::{AddressPlan, Range, Region, RegionCursor};
use rgpu_protocol::transport::pass::{Mapping, check_memory_file};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Copies to the device of fewer bytes are sent through the ring: that need not wait for an answer.
pub(super) const SEND_FROM: u64 = 1 << 20;
/// Copies to the host of fewer bytes come with the answer.
pub(super) const RECEIVE_FROM: u64 = 32 << 10;
/// Page tables are filled in parts of this size, each once.
const PART: u64 = 2 << 20;

/// The server's device memory in this process, away from the addresses that kernels know it by.
#[derive(Default)]
pub(super) struct DirectMemory {
    devices: Vec<Device>,
    next_hold: AtomicU64,
}

struct Device {
    range: Range,
    memory: Mapping,
    /// Which parts were touched before.
    touched: Vec<AtomicU64>,
}

impl DirectMemory {
    /// Maps what the server has passed. Where that is impossible (little address space, an older kernel) copies go
    /// through the ring.
    pub(super) fn new(plan: &AddressPlan, files: &[OwnedFd]) -> Self {
        if files.len() != plan.devices.len() {
            return Self::default();
        }
        let map = |(range, file): (&Range, &OwnedFd)| {
            check_memory_file(file.as_raw_fd(), range.size)?;
            let memory = Mapping::of_huge_pages(file.as_raw_fd(), range.size)?;
            let parts = range.size.div_ceil(PART).div_ceil(64);
            Ok(Device { range: *range, memory, touched: (0..parts).map(|_| AtomicU64::new(0)).collect() })
        };
        let devices: std::io::Result<Vec<_>> = plan.devices.iter().zip(files).map(map).collect();
        Self { devices: devices.unwrap_or_default(), next_hold: AtomicU64::new(0) }
    }

    /// Where a region of device memory lies in this process.
    pub(super) fn place(&self, region: &Region) -> Option<Region> {
        let extent = region.extent()?;
        let device = self.devices.iter().find(|d| d.range.contains(region.addr, extent))?;
        let offset = region.addr - device.range.base;
        let at = device.memory.base() as u64 + offset;
        // The system fills page tables faster in one go than one by one.
        for part in offset / PART..(offset + extent).div_ceil(PART) {
            let (word, bit) = (&device.touched[(part / 64) as usize], 1 << (part % 64));
            if word.load(Relaxed) & bit == 0 {
                let (begin, end) = (offset.max(part * PART), (offset + extent).min((part + 1) * PART));
                if end - begin == PART {
                    word.fetch_or(bit, Relaxed);
                }
                populate(device.memory.base() as u64 + begin, end - begin, libc::MADV_POPULATE_WRITE);
            }
        }
        Some(Region { addr: at, ..*region })
    }

    /// The same for a few bytes in one run. Page tables fill themselves.
    pub(super) fn place_short(&self, region: &Region) -> Option<Region> {
        let device = self.devices.iter().find(|d| d.range.contains(region.addr, region.width))?;
        let at = device.memory.base() as u64 + (region.addr - device.range.base);
        Some(Region { addr: at, ..*region })
    }

    /// A number for the next stream that is held.
    pub(super) fn id(&self) -> u64 {
        self.next_hold.fetch_add(1, Relaxed)
    }
}

/// Whether the memory of the program that lies ahead of a cursor can be read.
pub(super) fn is_readable(cursor: &RegionCursor) -> bool {
    every_run(cursor.clone(), libc::MADV_POPULATE_READ)
}

/// Whether memory of the program can be written.
pub(super) fn is_writable(region: Region) -> bool {
    every_run(RegionCursor::new(region), libc::MADV_POPULATE_WRITE)
}

fn every_run(mut cursor: RegionCursor, advice: libc::c_int) -> bool {
    let mut end = 0;
    while let Some((addr, run)) = cursor.run() {
        // Rows on the same page need one look.
        if addr + run > end && !is_usable(addr, run, advice) {
            return false;
        }
        end = (addr + run).next_multiple_of(4096);
        cursor.advance(run);
    }
    true
}

/// Looks for holes everywhere, which costs next to nothing, and at the protection of some pages.
fn is_usable(addr: u64, length: u64, advice: libc::c_int) -> bool {
    let page = addr & !4095;
    // SAFETY: with MS_ASYNC nothing is done but to see whether something is mapped throughout.
    let whole =
        unsafe { libc::msync(page as *mut libc::c_void, (addr + length - page) as usize, libc::MS_ASYNC) };
    whole == 0
        && (addr..addr + length).step_by(PART as usize).all(|at| populate(at, 1, advice))
        && populate(addr + length - 1, 1, advice)
}

/// Fills page tables; false where that is impossible because nothing lies there that may be used so.
fn populate(addr: u64, length: u64, advice: libc::c_int) -> bool {
    let page = addr & !4095;
    // SAFETY: changes no contents, whatever lies there.
    let r = unsafe { libc::madvise(page as *mut libc::c_void, (addr + length - page) as usize, advice) };
    if r == 0 {
        return true;
    }
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::ENOMEM | libc::EFAULT) => false,
        // Either the protection forbids it, or the kernel does not know the advice.
        Some(libc::EINVAL) => !knows_populate(),
        _ => true,
    }
}

fn knows_populate() -> bool {
    let probe = [0u8; 1];
    let page = probe.as_ptr() as u64 & !4095;
    // SAFETY: changes nothing.
    unsafe { libc::madvise(page as *mut libc::c_void, 1, libc::MADV_POPULATE_READ) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_memory_is_told_from_good() {
        let mut good = vec![1u8; 100_000];
        let good = Region::linear(good.as_mut_ptr() as u64, 100_000);
        assert!(is_readable(&RegionCursor::new(good)) && is_writable(good));
        let nothing = Region::linear(0x10, 100_000);
        assert!(!is_readable(&RegionCursor::new(nothing)) && !is_writable(nothing));
        // SAFETY: a fresh mapping, and its release.
        unsafe {
            let at = libc::mmap(
                std::ptr::null_mut(),
                8192,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            let region = Region::linear(at as u64 + 1, 8000);
            assert!(is_readable(&RegionCursor::new(region)) && !is_writable(region));
            libc::munmap(at, 8192);
        }
    }
}
