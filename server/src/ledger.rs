//! How much device memory each application has been promised, and what became of it.
//!
//! The ledger lies in shared memory: the daemon makes it, each application's process maps it and writes to
//! its own slot alone. An application's credit is what stands in its slot, so that whatever way it dies, the
//! daemon takes everything back by clearing the slot.

use crate::options::MAX_DEVICES;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

const SLOTS: usize = 256;
const REASON_BYTES: usize = 240;

/// An application's part of the ledger. All zeros when nothing has happened yet.
#[repr(C)]
pub struct Slot {
    /// 0 free, 1 taken.
    taken: AtomicU32,
    /// Whether the hello was answered and the session began.
    pub begun: AtomicU32,
    granted: [AtomicU64; MAX_DEVICES as usize],
    /// Kernel launches executed to their end.
    pub launches: AtomicU64,
    /// Bytes received.
    pub bytes_in: AtomicU64,
    /// Bytes sent.
    pub bytes_out: AtomicU64,
    /// Most device memory allocated at a time.
    pub peak_memory: AtomicU64,
    /// Percent of a heartbeat's time in which kernels were executing.
    busy_percent: AtomicU32,
    /// When that was measured: [`monotonic_ns`].
    busy_at: AtomicU64,
    reason_length: AtomicU32,
    reason: [AtomicU8; REASON_BYTES],
}

#[repr(C)]
struct Block {
    capacity: [AtomicU64; MAX_DEVICES as usize],
    slots: [Slot; SLOTS],
}

/// The ledger, as one process maps it.
pub struct Ledger {
    block: &'static Block,
    fd: OwnedFd,
}

impl Ledger {
    /// Makes one for devices with this much memory each.
    pub fn new(capacity: &[u64]) -> io::Result<Self> {
        // SAFETY: the name is a valid string; the result is a fresh descriptor.
        let fd = unsafe { libc::memfd_create(c"rgpu-ledger".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: as above.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: plain system call.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), size_of::<Block>() as libc::off_t) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let ledger = Self::map(fd)?;
        for (place, bytes) in ledger.block.capacity.iter().zip(capacity) {
            place.store(*bytes, SeqCst);
        }
        Ok(ledger)
    }

    /// Maps one that another process has made.
    pub fn map(fd: OwnedFd) -> io::Result<Self> {
        // SAFETY: all zeros is a valid stat.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: `stat` is a valid place for the answer.
        let known = unsafe { libc::fstat(fd.as_raw_fd(), &mut stat) } == 0;
        if !known || (stat.st_size as u64) < size_of::<Block>() as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a ledger"));
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let size = size_of::<Block>();
        // SAFETY: a fresh shared mapping.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), size, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: page-aligned, long enough, unmapped never, and any bytes are valid atomics.
        Ok(Self { block: unsafe { &*at.cast::<Block>() }, fd })
    }

    /// The descriptor, for handing on.
    pub fn descriptor(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Takes a free slot.
    pub fn take_slot(&self) -> Option<usize> {
        self.block.slots.iter().position(|s| s.taken.compare_exchange(0, 1, SeqCst, SeqCst).is_ok())
    }

    /// Clears a slot: its credit returns to the others.
    pub fn clear_slot(&self, index: usize) {
        let slot = self.slot(index);
        slot.granted.iter().for_each(|g| g.store(0, SeqCst));
        for counter in [&slot.launches, &slot.bytes_in, &slot.bytes_out, &slot.peak_memory] {
            counter.store(0, SeqCst);
        }
        slot.busy_percent.store(0, SeqCst);
        slot.begun.store(0, SeqCst);
        slot.reason_length.store(0, SeqCst);
        slot.taken.store(0, SeqCst);
    }

    /// A slot. An index out of range is the last one's.
    pub fn slot(&self, index: usize) -> &'static Slot {
        &self.block.slots[index.min(SLOTS - 1)]
    }

    fn promised(&self, ordinal: usize) -> u64 {
        let add = |sum: u64, s: &Slot| sum.saturating_add(s.granted[ordinal].load(SeqCst));
        self.block.slots.iter().fold(0, add)
    }

    /// How busy all applications together have kept the devices lately, in percent; 100 at most.
    pub fn busy_percent(&self) -> u32 {
        self.busy_percent_at(monotonic_ns())
    }

    fn busy_percent_at(&self, now: u64) -> u32 {
        let fresh = |s: &&Slot| now.saturating_sub(s.busy_at.load(SeqCst)) < BUSY_LASTS.as_nanos() as u64;
        let taken = self.block.slots.iter().filter(|s| s.taken.load(SeqCst) != 0);
        let sum = taken.filter(fresh).fold(0u32, |sum, s| sum.saturating_add(s.busy_percent.load(SeqCst)));
        sum.min(100)
    }

    /// Bytes of a device that are promised to nobody.
    pub fn free(&self, ordinal: u32) -> u64 {
        let ordinal = ordinal as usize;
        let Some(capacity) = self.block.capacity.get(ordinal) else { return 0 };
        capacity.load(SeqCst).saturating_sub(self.promised(ordinal))
    }

    /// Promises `want` bytes, or else `least`, or else nothing; says how many.
    pub fn grant(&self, slot: usize, ordinal: u32, least: u64, want: u64) -> u64 {
        let at = ordinal as usize;
        let (Some(capacity), Some(mine)) = (self.block.capacity.get(at), self.slot(slot).granted.get(at))
        else {
            return 0;
        };
        let capacity = capacity.load(SeqCst);
        // Two that add at the same time may both find the sum too high; so the last resort is tried
        // more than once.
        for (attempt, amount) in [want, least, least, least].into_iter().enumerate() {
            if amount == 0 || amount > capacity {
                continue;
            }
            if attempt > 1 {
                std::thread::sleep(Duration::from_millis(slot as u64 % 7));
            }
            mine.fetch_add(amount, SeqCst);
            if self.promised(at) <= capacity {
                return amount;
            }
            mine.fetch_sub(amount, SeqCst);
        }
        0
    }

    /// Takes back part of a promise.
    pub fn take_back(&self, slot: usize, ordinal: u32, bytes: u64) {
        if let Some(mine) = self.slot(slot).granted.get(ordinal as usize) {
            let _ = mine.fetch_update(SeqCst, SeqCst, |g| Some(g.saturating_sub(bytes)));
        }
    }
}

/// For how long an application counts as busy that says nothing new.
const BUSY_LASTS: Duration = Duration::from_secs(5);

/// Nanoseconds on a clock that all processes of the machine share.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place for the answer; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Slot {
    /// Says how busy the application has lately kept its device.
    pub fn set_busy(&self, percent: u32, now: u64) {
        self.busy_percent.store(percent, SeqCst);
        self.busy_at.store(now, SeqCst);
    }

    /// Says why the session ended; the first reason counts.
    pub fn set_reason(&self, text: &str) {
        if self.reason_length.load(SeqCst) > 0 {
            return;
        }
        let bytes = &text.as_bytes()[..text.len().min(REASON_BYTES)];
        for (place, byte) in self.reason.iter().zip(bytes) {
            place.store(*byte, SeqCst);
        }
        self.reason_length.store(bytes.len() as u32, SeqCst);
    }

    /// Why the session ended, if that was said.
    pub fn reason(&self) -> Option<String> {
        let length = (self.reason_length.load(SeqCst) as usize).min(REASON_BYTES);
        let bytes: Vec<u8> = self.reason[..length].iter().map(|b| b.load(SeqCst)).collect();
        (length > 0).then(|| String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_never_exceed_the_memory() {
        let ledger = Ledger::new(&[1000]).unwrap();
        let (a, b) = (ledger.take_slot().unwrap(), ledger.take_slot().unwrap());
        assert_eq!(ledger.grant(a, 0, 600, 800), 800);
        assert_eq!(ledger.grant(b, 0, 150, 300), 150);
        assert_eq!(ledger.grant(b, 0, 100, 300), 0);
        assert_eq!(ledger.grant(b, 5, 1, 1), 0);
        assert_eq!(ledger.free(0), 50);
        ledger.take_back(a, 0, 300);
        assert_eq!(ledger.free(0), 350);
        ledger.clear_slot(a);
        assert_eq!(ledger.free(0), 850);
        assert_eq!(ledger.grant(b, 0, u64::MAX, u64::MAX), 0);
    }

    #[test]
    fn the_busy_add_up_while_they_are_busy() {
        let ledger = Ledger::new(&[10]).unwrap();
        let (a, b) = (ledger.take_slot().unwrap(), ledger.take_slot().unwrap());
        let now = monotonic_ns();
        ledger.slot(a).set_busy(30, now);
        ledger.slot(b).set_busy(40, now);
        assert_eq!(ledger.busy_percent_at(now), 70);
        ledger.slot(b).set_busy(90, now);
        assert_eq!(ledger.busy_percent_at(now), 100);
        ledger.clear_slot(b);
        assert_eq!(ledger.busy_percent(), 30);
        assert_eq!(ledger.busy_percent_at(now + 2 * BUSY_LASTS.as_nanos() as u64), 0);
    }

    #[test]
    fn two_maps_see_one_ledger() {
        let ledger = Ledger::new(&[10]).unwrap();
        let other = Ledger::map(ledger.fd.try_clone().unwrap()).unwrap();
        let slot = ledger.take_slot().unwrap();
        other.slot(slot).set_reason("over");
        other.slot(slot).set_reason("again");
        assert_eq!(ledger.slot(slot).reason().as_deref(), Some("over"));
    }
}
