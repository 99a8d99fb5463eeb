//! How much device memory each application has been promised, and what became of it.
//!
//! The ledger lies in shared memory: the daemon makes it, each application's process maps it and writes to
//! its own slot alone. An application's credit is what stands in its slot, so that whatever way it dies, the
//! daemon takes everything back by clearing the slot.
//!
//! Applications with one [lease](crate::lease) share an entry: the daemon writes there what the lease gives, and their
//! processes add what they use. What a lease has been promised of a device is the sum over its applications' slots; it never
//! exceeds the lease's grant, and the sum over all applications never exceeds the device's memory.

use crate::budget::Budget;
use crate::options::MAX_DEVICES;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The most applications at a time.
pub const SLOTS: usize = 256;
/// The most leases that have an application at a time.
const LEASES: usize = SLOTS;
const REASON_BYTES: usize = 240;
/// So long a promise may wait for memory of applications that are ending. Only one whose process hangs takes that long.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked again.
const LOOK: Duration = Duration::from_millis(2);
/// After so many looks the server process of an application that has ended has noticed that. Looks are counted, not time: on a
/// machine that stops all of its processes for a while, time goes by in which no other process could notice anything.
const NOTICED_LOOKS: u32 = 10;

/// An application's part of the ledger. All zeros when nothing has happened yet.
#[repr(C)]
pub struct Slot {
    /// 0 free, 1 taken.
    taken: AtomicU32,
    /// Whether the hello was answered and the session began.
    pub begun: AtomicU32,
    /// Whether the application has gone, and what it has will be free in a moment.
    ending: AtomicU32,
    /// 1 + the number of its lease's entry; 0 without a lease.
    lease: AtomicU32,
    /// By the application's device ordinals.
    granted: [AtomicU64; MAX_DEVICES as usize],
    /// Likewise: what of that is allocated.
    allocated: [AtomicU64; MAX_DEVICES as usize],
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

/// What a lease gives of one device, and what is used of that.
#[repr(C)]
struct GrantEntry {
    /// 1 + the device's number; 0 where there is no such grant.
    device: AtomicU32,
    share_milli: AtomicU32,
    cap: AtomicU64,
    peak: AtomicU64,
    launches: AtomicU64,
    /// Device time used, in ns.
    used_ns: AtomicU64,
    budget: Budget,
}

#[repr(C)]
struct LeaseEntry {
    taken: AtomicU32,
    grants: [GrantEntry; MAX_DEVICES as usize],
}

#[repr(C)]
struct Block {
    capacity: [AtomicU64; MAX_DEVICES as usize],
    /// By device: the most memory that all applications together have had allocated at a time.
    peak: [AtomicU64; MAX_DEVICES as usize],
    /// The slots from this one on have never been taken.
    fresh: AtomicU32,
    slots: [Slot; SLOTS],
    leases: [LeaseEntry; LEASES],
}

/// What a lease gives of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The device's number in this server.
    pub device: u32,
    /// The most memory, in bytes.
    pub memory: u64,
    /// Thousandths of its time.
    pub share_milli: u32,
}

/// What a lease's applications use of one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Used {
    /// Memory promised, in bytes.
    pub memory: u64,
    /// The most it ever was.
    pub peak_memory: u64,
    /// Device time, in ns.
    pub busy_ns: u64,
    /// Kernels launched.
    pub launches: u64,
    /// Until when the time used has been paid for: see [`Budget`].
    pub paid_until: u64,
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
        let mut slots = self.block.slots.iter();
        let index = slots.position(|s| s.taken.compare_exchange(0, 1, SeqCst, SeqCst).is_ok())?;
        // Before anything stands in it.
        self.block.fresh.fetch_max(index as u32 + 1, SeqCst);
        Some(index)
    }

    /// Clears a slot: its credit returns to the others.
    pub fn clear_slot(&self, index: usize) {
        let slot = self.slot(index);
        slot.granted.iter().chain(&slot.allocated).for_each(|g| g.store(0, SeqCst));
        for counter in [&slot.launches, &slot.bytes_in, &slot.bytes_out, &slot.peak_memory] {
            counter.store(0, SeqCst);
        }
        for field in [&slot.busy_percent, &slot.begun, &slot.ending, &slot.lease, &slot.reason_length] {
            field.store(0, SeqCst);
        }
        slot.taken.store(0, SeqCst);
    }

    /// A slot. An index out of range is the last one's.
    pub fn slot(&self, index: usize) -> &'static Slot {
        &self.block.slots[index.min(SLOTS - 1)]
    }

    fn lease(&self, index: usize) -> &'static LeaseEntry {
        &self.block.leases[index.min(LEASES - 1)]
    }

    /// Enters a lease, which has used this much before. There is room for as many as there are slots.
    pub fn take_lease(&self, terms: &[Terms], before: &[Used]) -> Option<usize> {
        let mut entries = self.block.leases.iter();
        let index = entries.position(|l| l.taken.compare_exchange(0, 1, SeqCst, SeqCst).is_ok())?;
        for (ordinal, grant) in self.lease(index).grants.iter().enumerate() {
            let used = before.get(ordinal).copied().unwrap_or_default();
            grant.peak.store(used.peak_memory, SeqCst);
            grant.launches.store(used.launches, SeqCst);
            grant.used_ns.store(used.busy_ns, SeqCst);
            grant.budget.set_paid_until(used.paid_until);
            // So that terms below find nothing to convert.
            grant.share_milli.store(terms.get(ordinal).map_or(0, |t| t.share_milli), SeqCst);
        }
        self.set_terms(index, terms);
        Some(index)
    }

    /// Changes what a lease gives.
    pub fn set_terms(&self, index: usize, terms: &[Terms]) {
        let now = monotonic_ns();
        for (ordinal, grant) in self.lease(index).grants.iter().enumerate() {
            let (device, cap) = terms.get(ordinal).map_or((0, 0), |t| (t.device.saturating_add(1), t.memory));
            grant.cap.store(cap, SeqCst);
            grant.device.store(device, SeqCst);
            let share = terms.get(ordinal).map_or(0, |t| t.share_milli);
            let before = grant.share_milli.swap(share, SeqCst);
            grant.budget.convert(before, share, now);
        }
    }

    /// Strikes a lease off. None of its applications may be left.
    pub fn clear_lease(&self, index: usize) {
        self.set_terms(index, &[]);
        self.lease(index).taken.store(0, SeqCst);
    }

    /// What is used of one of a lease's grants.
    pub fn used(&self, index: usize, ordinal: usize) -> Used {
        let Some(grant) = self.lease(index).grants.get(ordinal) else { return Used::default() };
        Used {
            memory: self.promised_to_lease(index, ordinal),
            peak_memory: grant.peak.load(SeqCst),
            busy_ns: grant.used_ns.load(SeqCst),
            launches: grant.launches.load(SeqCst),
            paid_until: grant.budget.paid_until(),
        }
    }

    /// The application in a slot has a lease.
    pub fn bind(&self, slot: usize, lease: usize) {
        self.slot(slot).lease.store(lease as u32 + 1, SeqCst);
    }

    /// The entry of an application's lease.
    pub fn lease_of(&self, slot: usize) -> Option<usize> {
        (self.slot(slot).lease.load(SeqCst) as usize).checked_sub(1)
    }

    /// The device that an application's ordinal is.
    fn device_of(&self, slot: &Slot, ordinal: usize) -> Option<usize> {
        match slot.lease.load(SeqCst) as usize {
            0 => Some(ordinal),
            lease => {
                let device = self.lease(lease - 1).grants.get(ordinal)?.device.load(SeqCst);
                (device as usize).checked_sub(1)
            }
        }
    }

    fn taken(&self) -> impl Iterator<Item = &'static Slot> {
        let slots = &self.block.slots[..(self.block.fresh.load(SeqCst) as usize).min(SLOTS)];
        slots.iter().filter(|slot| slot.taken.load(SeqCst) != 0)
    }

    fn promised(&self, device: usize) -> u64 {
        self.taken().fold(0, |sum: u64, slot| sum.saturating_add(self.promised_in(slot, device)))
    }

    fn promised_in(&self, slot: &Slot, device: usize) -> u64 {
        self.on_device(slot, &slot.granted, device)
    }

    /// What stands in a slot about a device.
    fn on_device(&self, slot: &Slot, by_ordinal: &[AtomicU64], device: usize) -> u64 {
        by_ordinal.iter().enumerate().fold(0, |sum: u64, (ordinal, bytes)| match bytes.load(SeqCst) {
            0 => sum,
            bytes if self.device_of(slot, ordinal) == Some(device) => sum.saturating_add(bytes),
            _ => sum,
        })
    }

    /// What all applications together have allocated of a device.
    fn allocated(&self, device: usize) -> u64 {
        let slots = self.taken();
        slots.fold(0, |sum: u64, slot| sum.saturating_add(self.on_device(slot, &slot.allocated, device)))
    }

    /// The most memory of a device that all applications together have had allocated at a time, in bytes.
    pub fn peak(&self, device: u32) -> u64 {
        self.block.peak.get(device as usize).map_or(0, |peak| peak.load(SeqCst))
    }

    fn slots_of(&self, lease: usize) -> impl Iterator<Item = &'static Slot> {
        self.taken().filter(move |slot| slot.lease.load(SeqCst) as usize == lease + 1)
    }

    fn promised_to_lease(&self, lease: usize, ordinal: usize) -> u64 {
        self.slots_of(lease).fold(0, |sum, slot| sum.saturating_add(slot.granted[ordinal].load(SeqCst)))
    }

    /// The lease's grant at an ordinal, if the application has a lease and the lease has such a grant.
    fn grant_of(&self, slot: usize, ordinal: usize) -> Option<(usize, &'static GrantEntry)> {
        let lease = self.lease_of(slot)?;
        Some((lease, self.lease(lease).grants.get(ordinal)?))
    }

    /// The memory that an application may use of a device in all, where its lease says that.
    pub fn cap(&self, slot: usize, ordinal: u32) -> Option<u64> {
        self.grant_of(slot, ordinal as usize).map(|(_, grant)| grant.cap.load(SeqCst))
    }

    /// How busy all applications together have kept the devices lately, in percent; 100 at most.
    pub fn busy_percent(&self) -> u32 {
        self.busy_percent_at(monotonic_ns())
    }

    fn busy_percent_at(&self, now: u64) -> u32 {
        let fresh = |s: &&Slot| now.saturating_sub(s.busy_at.load(SeqCst)) < BUSY_LASTS.as_nanos() as u64;
        let taken = self.taken();
        let sum = taken.filter(fresh).fold(0u32, |sum, s| sum.saturating_add(s.busy_percent.load(SeqCst)));
        sum.min(100)
    }

    /// Bytes of a device that are promised to nobody.
    pub fn unpromised(&self, device: u32) -> u64 {
        let device = device as usize;
        let Some(capacity) = self.block.capacity.get(device) else { return 0 };
        capacity.load(SeqCst).saturating_sub(self.promised(device))
    }

    /// Bytes of a device that an application could still be promised.
    pub fn free(&self, slot: usize, ordinal: u32) -> u64 {
        let at = ordinal as usize;
        let Some(device) = self.device_of(self.slot(slot), at) else { return 0 };
        let free = self.unpromised(device as u32);
        match self.grant_of(slot, at) {
            None => free,
            Some((lease, grant)) => {
                free.min(grant.cap.load(SeqCst).saturating_sub(self.promised_to_lease(lease, at)))
            }
        }
    }

    /// Whether nobody is promised more than there is.
    fn holds(&self, slot: usize, ordinal: usize, device: usize) -> bool {
        let capacity = self.block.capacity[device].load(SeqCst);
        let lease_holds = self
            .grant_of(slot, ordinal)
            .is_none_or(|(lease, grant)| self.promised_to_lease(lease, ordinal) <= grant.cap.load(SeqCst));
        lease_holds && self.promised(device) <= capacity
    }

    /// Promises `want` bytes, or else `least`, or else nothing; says how many. Where an application is just ending whose
    /// memory would do, that is waited for.
    pub fn grant(&self, slot: usize, ordinal: u32, least: u64, want: u64) -> u64 {
        let begun = Instant::now();
        let mut looks = 0;
        loop {
            let got = self.grant_now(slot, ordinal, least, want);
            let wait = got == 0 && least > 0 && begun.elapsed() < PATIENCE;
            if !wait || !self.may_come_free(slot, ordinal, least, looks) {
                return got;
            }
            std::thread::sleep(LOOK);
            looks += 1;
        }
    }

    fn grant_now(&self, slot: usize, ordinal: u32, least: u64, want: u64) -> u64 {
        let at = ordinal as usize;
        let Some(mine) = self.slot(slot).granted.get(at) else { return 0 };
        let device = self.device_of(self.slot(slot), at).filter(|d| *d < MAX_DEVICES as usize);
        let Some(device) = device else { return 0 };
        let capacity = self.block.capacity[device].load(SeqCst);
        let most =
            self.grant_of(slot, at).map_or(capacity, |(_, grant)| grant.cap.load(SeqCst).min(capacity));
        // Two that add at the same time may both find the sum too high; so the last resort is tried
        // more than once.
        for (attempt, amount) in [want, least, least, least].into_iter().enumerate() {
            if amount == 0 || amount > most {
                continue;
            }
            if attempt > 1 {
                std::thread::sleep(Duration::from_millis(slot as u64 % 7));
            }
            mine.fetch_add(amount, SeqCst);
            if self.holds(slot, at, device) {
                if let Some((lease, grant)) = self.grant_of(slot, at) {
                    grant.peak.fetch_max(self.promised_to_lease(lease, at), SeqCst);
                }
                return amount;
            }
            mine.fetch_sub(amount, SeqCst);
        }
        0
    }

    /// Whether it is worth waiting: another application that has memory of the device is ending, or may be ending
    /// without anybody having noticed.
    fn may_come_free(&self, slot: usize, ordinal: u32, bytes: u64, looks: u32) -> bool {
        let at = ordinal as usize;
        let own = self.slot(slot);
        let Some(device) = self.device_of(own, at).filter(|d| *d < MAX_DEVICES as usize) else {
            return false;
        };
        let mine = own.granted[at].load(SeqCst);
        let capacity = self.block.capacity[device].load(SeqCst);
        let most =
            self.grant_of(slot, at).map_or(capacity, |(_, grant)| grant.cap.load(SeqCst).min(capacity));
        if mine.saturating_add(bytes) > most {
            return false;
        }
        let others = || {
            let others = self.taken().filter(|other| !std::ptr::eq(*other, own));
            others.filter(|other| self.promised_in(other, device) > 0)
        };
        match looks < NOTICED_LOOKS {
            true => others().next().is_some(),
            false => others().any(|other| other.ending.load(SeqCst) != 0),
        }
    }

    /// Takes back part of a promise.
    pub fn take_back(&self, slot: usize, ordinal: u32, bytes: u64) {
        if let Some(mine) = self.slot(slot).granted.get(ordinal as usize) {
            let _ = mine.fetch_update(SeqCst, SeqCst, |g| Some(g.saturating_sub(bytes)));
        }
    }

    /// An application allocates memory that it was promised. False where its lease has been made smaller since, and does
    /// not give that much any more.
    pub fn allocate(&self, slot: usize, ordinal: u32, bytes: u64) -> bool {
        let at = ordinal as usize;
        let Some(mine) = self.slot(slot).allocated.get(at) else { return false };
        mine.fetch_add(bytes, SeqCst);
        let lease_holds = self
            .grant_of(slot, at)
            .is_none_or(|(lease, grant)| self.allocated_by_lease(lease, at) <= grant.cap.load(SeqCst));
        if !lease_holds {
            mine.fetch_sub(bytes, SeqCst);
            return false;
        }
        let device = self.device_of(self.slot(slot), at);
        if let Some((device, peak)) = device.and_then(|d| Some((d, self.block.peak.get(d)?))) {
            peak.fetch_max(self.allocated(device), SeqCst);
        }
        true
    }

    fn allocated_by_lease(&self, lease: usize, ordinal: usize) -> u64 {
        self.slots_of(lease).fold(0, |sum, slot| sum.saturating_add(slot.allocated[ordinal].load(SeqCst)))
    }

    /// What a lease's applications can still allocate of a device, promised or not; `None` without a lease.
    pub fn unallocated(&self, slot: usize, ordinal: u32) -> Option<u64> {
        let (lease, grant) = self.grant_of(slot, ordinal as usize)?;
        Some(grant.cap.load(SeqCst).saturating_sub(self.allocated_by_lease(lease, ordinal as usize)))
    }

    /// Memory of an application was released.
    pub fn deallocate(&self, slot: usize, ordinal: u32, bytes: u64) {
        if let Some(mine) = self.slot(slot).allocated.get(ordinal as usize) {
            let _ = mine.fetch_update(SeqCst, SeqCst, |g| Some(g.saturating_sub(bytes)));
        }
    }

    /// By how much the applications of a lease were promised more than the lease gives: it was made smaller since.
    pub fn excess(&self, slot: usize, ordinal: u32) -> u64 {
        let at = ordinal as usize;
        self.grant_of(slot, at).map_or(0, |(lease, grant)| {
            self.promised_to_lease(lease, at).saturating_sub(grant.cap.load(SeqCst))
        })
    }

    /// Thousandths of a device's time that a lease gives; 1000 where it says nothing.
    pub fn share_milli(&self, lease: usize, ordinal: u32) -> u32 {
        let grant = self.lease(lease).grants.get(ordinal as usize);
        grant.map_or(1000, |grant| grant.share_milli.load(SeqCst))
    }

    /// A lease's applications have used a device for so long.
    pub fn charge(&self, lease: usize, ordinal: u32, ns: u64, now: u64) {
        if let Some(grant) = self.lease(lease).grants.get(ordinal as usize) {
            grant.used_ns.fetch_add(ns, SeqCst);
            grant.budget.charge(ns, grant.share_milli.load(SeqCst), now);
        }
    }

    /// How long a lease's applications have to leave a device alone from now on, in ns; 0 where they need not.
    pub fn delay_ns(&self, lease: usize, ordinal: u32, now: u64) -> u64 {
        let grant = self.lease(lease).grants.get(ordinal as usize);
        grant.map_or(0, |grant| grant.budget.delay_ns(grant.share_milli.load(SeqCst), now))
    }

    /// A lease's applications have launched kernels.
    pub fn launched(&self, lease: usize, ordinal: u32, count: u64) {
        if let Some(grant) = self.lease(lease).grants.get(ordinal as usize) {
            grant.launches.fetch_add(count, SeqCst);
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
        assert_eq!(ledger.unpromised(0), 50);
        ledger.take_back(a, 0, 300);
        assert_eq!(ledger.unpromised(0), 350);
        ledger.clear_slot(a);
        assert_eq!(ledger.unpromised(0), 850);
        assert_eq!(ledger.grant(b, 0, u64::MAX, u64::MAX), 0);
    }

    fn terms(device: u32, memory: u64) -> Terms {
        Terms { device, memory, share_milli: 1000 }
    }

    #[test]
    fn applications_of_a_lease_share_its_grant() {
        let ledger = Ledger::new(&[1000, 1000]).unwrap();
        let lease = ledger.take_lease(&[terms(1, 400), terms(0, 100)], &[]).unwrap();
        let (a, b, other) =
            (ledger.take_slot().unwrap(), ledger.take_slot().unwrap(), ledger.take_slot().unwrap());
        ledger.bind(a, lease);
        ledger.bind(b, lease);
        assert_eq!(ledger.grant(a, 0, 300, 300), 300);
        assert_eq!((ledger.free(b, 0), ledger.free(b, 1), ledger.free(b, 2)), (100, 100, 0));
        assert_eq!(ledger.grant(b, 0, 60, 200), 60);
        assert_eq!(ledger.grant(b, 0, 50, 50), 0);
        assert_eq!(ledger.grant(b, 2, 1, 1), 0);
        // The other sees what is left of the devices, not of the lease.
        assert_eq!((ledger.free(other, 0), ledger.free(other, 1)), (1000, 640));
        assert_eq!(ledger.grant(other, 1, 900, 640), 640);
        assert_eq!(ledger.grant(b, 0, 40, 40), 0);
        assert_eq!((ledger.used(lease, 0).memory, ledger.used(lease, 0).peak_memory), (360, 360));
        ledger.clear_slot(a);
        assert_eq!((ledger.used(lease, 0).memory, ledger.used(lease, 0).peak_memory), (60, 360));
        assert_eq!(ledger.cap(b, 0), Some(400));
        assert_eq!(ledger.cap(other, 0), None);
    }

    #[test]
    fn a_smaller_lease_counts_at_once() {
        let ledger = Ledger::new(&[1000]).unwrap();
        let lease = ledger.take_lease(&[terms(0, 500)], &[]).unwrap();
        let slot = ledger.take_slot().unwrap();
        ledger.bind(slot, lease);
        assert_eq!(ledger.grant(slot, 0, 400, 400), 400);
        assert!(ledger.allocate(slot, 0, 150));
        ledger.set_terms(lease, &[terms(0, 200)]);
        assert_eq!((ledger.excess(slot, 0), ledger.free(slot, 0)), (200, 0));
        assert!(!ledger.allocate(slot, 0, 100) && ledger.allocate(slot, 0, 50));
        ledger.deallocate(slot, 0, 100);
        assert!(ledger.allocate(slot, 0, 100));
        ledger.take_back(slot, 0, 200);
        assert_eq!(ledger.excess(slot, 0), 0);
        assert_eq!(ledger.grant(slot, 0, 1, 1), 0);
    }

    #[test]
    fn a_devices_peak_is_of_what_all_have_allocated_at_a_time() {
        let ledger = Ledger::new(&[1000, 1000]).unwrap();
        let lease = ledger.take_lease(&[terms(1, 400)], &[]).unwrap();
        let slots: [usize; 3] = std::array::from_fn(|_| ledger.take_slot().unwrap());
        let [a, b, other] = slots;
        [a, b].into_iter().for_each(|slot| ledger.bind(slot, lease));
        // What is promised is not yet used.
        assert_eq!((ledger.grant(a, 0, 200, 200), ledger.grant(b, 0, 200, 200)), (200, 200));
        assert_eq!(ledger.grant(other, 1, 500, 500), 500);
        assert_eq!([ledger.peak(0), ledger.peak(1), ledger.peak(99)], [0; 3]);
        assert!(ledger.allocate(a, 0, 150) && ledger.allocate(other, 1, 400));
        assert_eq!(ledger.peak(1), 550);
        ledger.deallocate(other, 1, 300);
        assert!(ledger.allocate(b, 0, 200));
        assert_eq!(ledger.peak(1), 550, "450 at a time are less");
        // The lease's ordinal 0 is device 1, everybody else's is device 0; what is refused is not counted.
        assert!(!ledger.allocate(a, 0, 100) && ledger.allocate(other, 0, 70));
        assert_eq!([ledger.peak(0), ledger.peak(1)], [70, 550]);
        // It stays what it was when they have gone, and the next begin with nothing.
        slots.into_iter().for_each(|slot| ledger.clear_slot(slot));
        let next = ledger.take_slot().unwrap();
        assert!(ledger.allocate(next, 1, 551));
        assert_eq!([ledger.peak(0), ledger.peak(1)], [70, 551]);
        // More than there is would be seen, whoever allowed it.
        assert!(ledger.allocate(next, 0, 1001));
        assert_eq!(ledger.peak(0), 1001);
    }

    #[test]
    fn every_slot_that_was_ever_taken_counts() {
        let ledger = Ledger::new(&[1000]).unwrap();
        let slots: Vec<usize> = (0..SLOTS).map_while(|_| ledger.take_slot()).collect();
        assert_eq!((slots.len(), ledger.take_slot()), (SLOTS, None));
        slots.iter().for_each(|slot| assert_eq!(ledger.grant(*slot, 0, 1, 1), 1));
        assert_eq!(ledger.unpromised(0), 1000 - SLOTS as u64);
        slots[1..].iter().for_each(|slot| ledger.clear_slot(*slot));
        assert_eq!((ledger.unpromised(0), ledger.take_slot()), (999, Some(1)));
    }

    #[test]
    fn memory_of_the_ending_is_waited_for() {
        let ledger = std::sync::Arc::new(Ledger::new(&[1000]).unwrap());
        let (a, b) = (ledger.take_slot().unwrap(), ledger.take_slot().unwrap());
        assert_eq!(ledger.grant(a, 0, 1000, 1000), 1000);
        assert_eq!(ledger.grant(b, 0, 500, 500), 0);
        ledger.slot(a).set_ending();
        let other = ledger.clone();
        let reaper = std::thread::spawn(move || {
            std::thread::sleep(5 * NOTICED_LOOKS * LOOK);
            other.clear_slot(a);
        });
        assert_eq!(ledger.grant(b, 0, 500, 500), 500);
        reaper.join().unwrap();
    }

    #[test]
    fn time_is_charged_to_the_lease() {
        let ledger = Ledger::new(&[10, 10]).unwrap();
        let half = Terms { share_milli: 500, ..terms(1, 1) };
        let lease = ledger.take_lease(&[terms(0, 1), half], &[]).unwrap();
        let now = 1 << 40;
        ledger.charge(lease, 0, 1 << 30, now);
        ledger.charge(lease, 1, 1 << 30, now);
        ledger.launched(lease, 1, 3);
        assert_eq!(ledger.delay_ns(lease, 0, now), 0);
        assert!(ledger.delay_ns(lease, 1, now) > 1 << 30);
        let used = [ledger.used(lease, 0), ledger.used(lease, 1)];
        assert_eq!((used[0].busy_ns, used[1].busy_ns, used[1].launches), (1 << 30, 1 << 30, 3));
        // A lease that comes again has its debts.
        ledger.clear_lease(lease);
        let again = ledger.take_lease(&[terms(0, 1), half], &used).unwrap();
        assert_eq!(ledger.used(again, 1), used[1]);
        assert!(ledger.delay_ns(again, 1, now) > 1 << 30);
        assert_eq!((0..2 * LEASES).filter_map(|_| ledger.take_lease(&[], &[])).count(), LEASES - 1);
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
