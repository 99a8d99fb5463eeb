//! The ledger's memory: what every process that maps it finds where.

use crate::budget::Budget;
use crate::device_spec::MAX_DEVICES;
use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::SeqCst};

/// The most applications at a time.
pub const SLOTS: usize = 256;
/// The most leases that have an application at a time.
pub(super) const LEASES: usize = SLOTS;
const REASON_BYTES: usize = 240;

/// An application's part of the ledger. All zeros when nothing has happened yet.
#[repr(C)]
pub struct Slot {
    /// 0 free, 1 taken.
    pub(super) taken: AtomicU32,
    /// Whether the hello was answered and the session began.
    pub begun: AtomicU32,
    /// Whether the application has gone, and what it has will be free in a moment.
    pub(super) ending: AtomicU32,
    /// 1 + the number of its lease's entry; 0 without a lease.
    pub(super) lease: AtomicU32,
    /// By the application's device ordinals.
    pub(super) granted: [AtomicU64; MAX_DEVICES as usize],
    /// Likewise: what of that is allocated.
    pub(super) allocated: [AtomicU64; MAX_DEVICES as usize],
    /// Kernel launches executed to their end.
    pub launches: AtomicU64,
    /// Bytes received from programs of the slot's session.
    pub bytes_in: AtomicU64,
    /// Bytes sent to programs of the slot's session.
    pub bytes_out: AtomicU64,
    /// Most device memory allocated at a time.
    pub peak_memory: AtomicU64,
    /// Percent of a heartbeat's time in which kernels were executing.
    pub(super) busy_percent: AtomicU32,
    /// When that was measured: [`monotonic_ns`].
    pub(super) busy_at: AtomicU64,
    pub(super) reason_length: AtomicU32,
    reason: [AtomicU8; REASON_BYTES],
}

/// What a lease gives of one device, and what is used of that.
#[repr(C)]
pub(super) struct GrantEntry {
    /// 1 + the device's number; 0 where there is no such grant.
    pub(super) device: AtomicU32,
    pub(super) share_milli: AtomicU32,
    pub(super) cap: AtomicU64,
    pub(super) peak: AtomicU64,
    pub(super) launches: AtomicU64,
    /// Device time used, in ns.
    pub(super) used_ns: AtomicU64,
    pub(super) budget: Budget,
}

/// A lease that has applications.
#[repr(C)]
pub(super) struct LeaseEntry {
    pub(super) taken: AtomicU32,
    pub(super) grants: [GrantEntry; MAX_DEVICES as usize],
}

/// All of the memory.
#[repr(C)]
pub(super) struct Block {
    pub(super) capacity: [AtomicU64; MAX_DEVICES as usize],
    /// By device: the most memory that all applications together have had allocated at a time.
    pub(super) peak: [AtomicU64; MAX_DEVICES as usize],
    /// The slots from this one on have never been taken.
    pub(super) fresh: AtomicU32,
    pub(super) slots: [Slot; SLOTS],
    pub(super) leases: [LeaseEntry; LEASES],
}

impl Block {
    /// Makes the memory, all zeros, for other processes to map as well.
    pub(super) fn create() -> io::Result<OwnedFd> {
        let fd = memfd_create("rgpu-ledger", MemfdFlags::CLOEXEC)?;
        ftruncate(&fd, size_of::<Self>() as u64)?;
        Ok(fd)
    }

    /// Maps it, for as long as the process lives.
    pub(super) fn map(fd: &OwnedFd) -> io::Result<&'static Self> {
        let size = size_of::<Self>();
        if (fstat(fd)?.st_size as u64) < size as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a ledger"));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh shared mapping.
        let at = unsafe { mmap(std::ptr::null_mut(), size, protection, MapFlags::SHARED, fd, 0)? };
        // SAFETY: page-aligned, long enough, unmapped never, and any bytes are valid atomics.
        Ok(unsafe { &*at.cast::<Self>() })
    }
}

impl Slot {
    /// The application has gone: what it has will be free in a moment.
    pub fn set_ending(&self) {
        self.ending.store(1, SeqCst);
    }

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
