//! The ledger's memory: what every process that maps it finds where, and who may write it.
//!
//! There are two memory files. The [`Rules`] are written by the daemon alone: once it has mapped them, the file is sealed
//! against other writable mappings. The [`Usage`] has a page for each application and each lease. Every process reads all of it,
//! through a descriptor that is open for reading alone; an application's process can write only the pages of its own slot and
//! of its lease, which it maps before it executes anything, and then it closes the descriptors. (That a mapping cannot
//! be made to reach further is up to [`crate::confine`], which refuses `mremap`.) Neither file can change its size.

use crate::budget::Budget;
use crate::device_spec::MAX_DEVICES;
use crate::words::{AtomicU8, AtomicU32, AtomicU64};
use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create, open,
};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::SeqCst;

/// The most applications at a time.
pub const SLOTS: usize = crate::words::SLOTS;
/// The most leases that have an application at a time.
pub(super) const LEASES: usize = SLOTS;
const REASON_BYTES: usize = 240;

/// By device, or by a process's ordinals.
pub(super) type ByDevice<T> = [T; MAX_DEVICES as usize];

/// What an application uses and tells, on a page of its own. All zeros when nothing has happened yet.
#[repr(C, align(4096))]
pub struct Slot {
    /// Whether the hello was answered and the session began.
    pub begun: AtomicU32,
    /// Whether the application has gone, and what it has will be free in a moment.
    pub(super) ending: AtomicU32,
    /// By the application's device ordinals.
    pub(super) granted: ByDevice<AtomicU64>,
    /// Likewise: what of that is allocated.
    pub(super) allocated: ByDevice<AtomicU64>,
    /// By device: the most memory that this application has seen all applications together have allocated.
    pub(super) seen: ByDevice<AtomicU64>,
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
    /// When that was measured: [`monotonic_ns`](super::monotonic_ns).
    pub(super) busy_at: AtomicU64,
    pub(super) reason_length: AtomicU32,
    reason: [AtomicU8; REASON_BYTES],
}

/// What the applications of a lease use of one device.
#[repr(C)]
pub(super) struct GrantUse {
    pub(super) peak: AtomicU64,
    pub(super) launches: AtomicU64,
    /// Device time used, in ns.
    pub(super) used_ns: AtomicU64,
    pub(super) budget: Budget,
    /// When there was work for the device the last time: [`monotonic_ns`](super::monotonic_ns).
    pub(super) wanted_at: AtomicU64,
    /// Of a lease that may be resized: by which share its account is kept now.
    pub(super) paced_by: AtomicU32,
}

/// What the applications of a lease use, on a page of its own.
#[repr(C, align(4096))]
pub(super) struct LeaseUse {
    pub(super) grants: ByDevice<GrantUse>,
}

/// What applications' processes write.
#[repr(C)]
pub(super) struct Usage {
    pub(super) slots: [Slot; SLOTS],
    pub(super) leases: [LeaseUse; LEASES],
}

/// Whose a slot is.
#[repr(C)]
pub(super) struct SlotRules {
    /// 0 free, 1 taken.
    pub(super) taken: AtomicU32,
    /// 1 + the number of its lease's entry; 0 without a lease.
    pub(super) lease: AtomicU32,
}

/// What a lease gives of one device.
#[repr(C)]
pub(super) struct GrantRules {
    /// 1 + the device's number; 0 where there is no such grant.
    pub(super) device: AtomicU32,
    pub(super) share_milli: AtomicU32,
    pub(super) cap: AtomicU64,
    /// The highest that the cap has been since the lease was entered: its applications cannot honestly have more.
    pub(super) most: AtomicU64,
    /// Of a lease that may be resized: 1 + the thousandths that are set aside for it now; 0 of others.
    pub(super) set_aside: AtomicU32,
    /// Of a lease that may be resized: the thousandths that it has whatever others do.
    pub(super) firm: AtomicU32,
}

/// A lease that has applications.
#[repr(C)]
pub(super) struct LeaseRules {
    pub(super) taken: AtomicU32,
    pub(super) grants: ByDevice<GrantRules>,
}

/// What the daemon alone writes.
#[repr(C)]
pub(super) struct Rules {
    pub(super) capacity: ByDevice<AtomicU64>,
    /// By device: the most memory that applications which are gone have seen allocated at a time.
    pub(super) peak: ByDevice<AtomicU64>,
    /// The slots from this one on have never been taken.
    pub(super) fresh: AtomicU32,
    /// Likewise, of the leases' entries.
    pub(super) fresh_leases: AtomicU32,
    pub(super) slots: [SlotRules; SLOTS],
    pub(super) leases: [LeaseRules; LEASES],
}

/// What maps the ledger in another process.
#[derive(Debug)]
pub struct Descriptors {
    /// The rules; they can be mapped for reading only.
    pub rules: OwnedFd,
    /// What is used, open for reading only.
    pub usage: OwnedFd,
    /// The same, open for writing.
    pub own: OwnedFd,
}

/// The daemon's mappings, and the descriptors for others.
pub(super) fn create() -> io::Result<(&'static Rules, &'static Usage, Descriptors)> {
    let rules = file("rgpu-ledger-rules", size_of::<Rules>())?;
    let own = file("rgpu-ledger-usage", size_of::<Usage>())?;
    let both = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: each is as long as the type, whose fields are atomics, for which any bytes are valid.
    let (mapped_rules, mapped_usage) = unsafe { (map(&rules, 0, both)?, map(&own, 0, both)?) };
    let size = SealFlags::SHRINK | SealFlags::GROW;
    fcntl_add_seals(&rules, size | SealFlags::FUTURE_WRITE | SealFlags::SEAL)?;
    fcntl_add_seals(&own, size | SealFlags::SEAL)?;
    let path = format!("/proc/self/fd/{}", own.as_raw_fd());
    let usage = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok((mapped_rules, mapped_usage, Descriptors { rules, usage, own }))
}

fn file(name: &str, size: usize) -> io::Result<OwnedFd> {
    let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&fd, size as u64)?;
    Ok(fd)
}

/// Maps a part of a file, for as long as the process lives.
///
/// # Safety
/// The file has to keep its size, and any bytes have to be a valid `T`.
pub(super) unsafe fn map<T>(fd: &OwnedFd, offset: usize, protection: ProtFlags) -> io::Result<&'static T> {
    let end = (offset + size_of::<T>()) as u64;
    if (fstat(fd)?.st_size as u64) < end {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a ledger"));
    }
    // SAFETY: a fresh shared mapping.
    let at = unsafe {
        mmap(std::ptr::null_mut(), size_of::<T>(), protection, MapFlags::SHARED, fd, offset as u64)?
    };
    // SAFETY: page-aligned, long enough, unmapped never; the rest is the caller's promise.
    Ok(unsafe { &*at.cast::<T>() })
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
