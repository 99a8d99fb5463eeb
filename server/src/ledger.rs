//! How much device memory each application has been promised, and what became of it.
//!
//! The ledger lies in shared memory: the daemon makes it, each application's process maps it and writes to
//! its own slot alone. An application's credit is what stands in its slot, so that whatever way it dies, the
//! daemon takes everything back by clearing the slot.
//!
//! Applications with one [lease](crate::lease) share an entry: the daemon writes there what the lease gives, and their
//! processes add what they use. What a lease has been promised of a device is the sum over its applications' slots; it never
//! exceeds the lease's grant, and the sum over all applications never exceeds the device's memory.

mod block;
#[cfg(test)]
mod tests;

pub use block::{SLOTS, Slot};

use crate::device_spec::MAX_DEVICES;
use block::{Block, GrantEntry, LEASES, LeaseEntry};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// So long a promise may wait for memory of applications that are ending. Only one whose process hangs takes that long.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked again.
const LOOK: Duration = Duration::from_millis(2);
/// After so many looks the server process of an application that has ended has noticed that. Looks are counted, not time: on a
/// machine that stops all of its processes for a while, time goes by in which no other process could notice anything.
const NOTICED_LOOKS: u32 = 10;

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
    /// How many kernels were launched.
    pub launches: u64,
    /// Until when the time used has been paid for: see [`Budget`](crate::budget::Budget).
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
        let ledger = Self::map(Block::create()?)?;
        for (place, bytes) in ledger.block.capacity.iter().zip(capacity) {
            place.store(*bytes, SeqCst);
        }
        Ok(ledger)
    }

    /// Maps one that another process has made.
    pub fn map(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { block: Block::map(&fd)?, fd })
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
