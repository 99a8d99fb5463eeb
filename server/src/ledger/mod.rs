//! How much device memory each application has been promised, and what became of it.
//!
//! The ledger lies in shared memory: the daemon makes it, each application's process maps it and can write to its own slot and
//! its lease's account alone; what it may have, it can only read (the module `block` says how). An application's credit is what stands in
//! its slot, so that whatever way it dies, the daemon takes everything back by clearing the slot.
//!
//! Applications with one [lease](crate::lease) share an entry: the daemon writes there what the lease gives, and their
//! processes add what they use. What a lease has been promised of a device is the sum over its applications' slots; it never
//! exceeds the lease's grant, and the sum over all applications never exceeds the device's memory. A process that
//! lies about its own use takes from nobody but its own lease: the others count no more for a lease than it was ever given.

mod block;
mod lending;
#[cfg(test)]
mod tests;

pub use block::{Descriptors, SLOTS, Slot};
pub use lending::Size;

use crate::device_spec::MAX_DEVICES;
use crate::words::AtomicU64;
use block::{ByDevice, GrantRules, GrantUse, LEASES, LeaseRules, LeaseUse, Rules, Usage};
use rustix::mm::ProtFlags;
use std::collections::BTreeMap;
use std::io;
use std::mem::offset_of;
use std::sync::atomic::Ordering::SeqCst;
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
    rules: &'static Rules,
    usage: &'static Usage,
    /// In an application's process: what it can write.
    own: Option<Own>,
    /// In the daemon: what maps it elsewhere.
    descriptors: Option<Descriptors>,
}

/// The pages that an application's process can write.
struct Own {
    index: usize,
    slot: &'static Slot,
    lease: Option<(usize, &'static LeaseUse)>,
}

impl Ledger {
    /// Makes one for devices with this much memory each.
    pub fn new(capacity: &[u64]) -> io::Result<Self> {
        let ledger = Self::create()?;
        ledger.set_capacity(capacity);
        Ok(ledger)
    }

    /// One that is all zeros.
    pub(crate) fn create() -> io::Result<Self> {
        let (rules, usage, descriptors) = block::create()?;
        Ok(Self { rules, usage, own: None, descriptors: Some(descriptors) })
    }

    /// Says how much memory each device has.
    pub(crate) fn set_capacity(&self, capacity: &[u64]) {
        for (place, bytes) in self.rules.capacity.iter().zip(capacity) {
            place.store(*bytes, SeqCst);
        }
    }

    /// Maps one that another process has made, to be used by the application in a slot. The descriptors are closed.
    ///
    /// # Errors
    /// They are no ledger's.
    pub fn join(descriptors: Descriptors, index: usize) -> io::Result<Self> {
        let Descriptors { rules, usage, own } = descriptors;
        let index = index.min(SLOTS - 1);
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the daemon's files, whose size is sealed; all fields are atomics, for which any bytes are valid.
        unsafe {
            let rules: &'static Rules = block::map(&rules, 0, ProtFlags::READ)?;
            let usage: &'static Usage = block::map(&usage, 0, ProtFlags::READ)?;
            let at = offset_of!(Usage, slots) + index * size_of::<Slot>();
            let slot = block::map(&own, at, both)?;
            let lease = match (rules.slots[index].lease.load(SeqCst) as usize).checked_sub(1) {
                Some(lease) if lease < LEASES => {
                    let at = offset_of!(Usage, leases) + lease * size_of::<LeaseUse>();
                    Some((lease, block::map(&own, at, both)?))
                }
                _ => None,
            };
            Ok(Self { rules, usage, own: Some(Own { index, slot, lease }), descriptors: None })
        }
    }

    /// What maps it in another process; only the daemon has that.
    pub fn descriptors(&self) -> Option<&Descriptors> {
        self.descriptors.as_ref()
    }

    /// Takes a free slot.
    pub fn take_slot(&self) -> Option<usize> {
        let mut slots = self.rules.slots.iter();
        let index = slots.position(|s| s.taken.compare_exchange(0, 1, SeqCst, SeqCst).is_ok())?;
        // Before anything stands in it.
        self.rules.fresh.fetch_max(index as u32 + 1, SeqCst);
        Some(index)
    }

    /// Clears a slot: its credit returns to the others. Its process must be gone.
    pub fn clear_slot(&self, index: usize) {
        let slot = self.slot(index);
        for (peak, seen) in self.rules.peak.iter().zip(&slot.seen) {
            peak.fetch_max(seen.swap(0, SeqCst), SeqCst);
        }
        slot.granted.iter().chain(&slot.allocated).for_each(|g| g.store(0, SeqCst));
        for counter in [&slot.launches, &slot.bytes_in, &slot.bytes_out, &slot.peak_memory] {
            counter.store(0, SeqCst);
        }
        for field in [&slot.busy_percent, &slot.begun, &slot.ending, &slot.reason_length] {
            field.store(0, SeqCst);
        }
        let rules = &self.rules.slots[index.min(SLOTS - 1)];
        rules.lease.store(0, SeqCst);
        rules.taken.store(0, SeqCst);
    }

    /// A slot. An index out of range is the last one's.
    pub fn slot(&self, index: usize) -> &'static Slot {
        match &self.own {
            Some(own) if own.index == index => own.slot,
            _ => &self.usage.slots[index.min(SLOTS - 1)],
        }
    }

    fn lease(&self, index: usize) -> &'static LeaseRules {
        &self.rules.leases[index.min(LEASES - 1)]
    }

    fn lease_use(&self, index: usize) -> &'static LeaseUse {
        match &self.own {
            Some(Own { lease: Some((own, account)), .. }) if *own == index => account,
            _ => &self.usage.leases[index.min(LEASES - 1)],
        }
    }

    /// Enters a lease, which has used this much before. There is room for as many as there are slots.
    pub fn take_lease(&self, terms: &[Terms], before: &[Used]) -> Option<usize> {
        let mut entries = self.rules.leases.iter();
        let index = entries.position(|l| l.taken.compare_exchange(0, 1, SeqCst, SeqCst).is_ok())?;
        self.rules.fresh_leases.fetch_max(index as u32 + 1, SeqCst);
        let (rules, account) = (&self.lease(index).grants, &self.lease_use(index).grants);
        for (ordinal, (grant, account)) in rules.iter().zip(account).enumerate() {
            let used = before.get(ordinal).copied().unwrap_or_default();
            account.peak.store(used.peak_memory, SeqCst);
            account.launches.store(used.launches, SeqCst);
            account.used_ns.store(used.busy_ns, SeqCst);
            account.budget.set_paid_until(used.paid_until);
            account.wanted_at.store(0, SeqCst);
            grant.set_aside.store(0, SeqCst);
            grant.most.store(0, SeqCst);
            // So that terms below find nothing to convert.
            grant.share_milli.store(terms.get(ordinal).map_or(0, |t| t.share_milli), SeqCst);
        }
        self.set_terms(index, terms);
        Some(index)
    }

    /// Changes what a lease gives.
    pub fn set_terms(&self, index: usize, terms: &[Terms]) {
        let now = monotonic_ns();
        let (rules, account) = (&self.lease(index).grants, &self.lease_use(index).grants);
        for (ordinal, (grant, account)) in rules.iter().zip(account).enumerate() {
            let (device, cap) = terms.get(ordinal).map_or((0, 0), |t| (t.device.saturating_add(1), t.memory));
            grant.most.fetch_max(cap, SeqCst);
            grant.cap.store(cap, SeqCst);
            grant.device.store(device, SeqCst);
            let share = terms.get(ordinal).map_or(0, |t| t.share_milli);
            let before = grant.share_milli.swap(share, SeqCst);
            account.budget.convert(before, share, now);
        }
    }

    /// Strikes a lease off. None of its applications may be left.
    pub fn clear_lease(&self, index: usize) {
        self.set_terms(index, &[]);
        self.lease(index).taken.store(0, SeqCst);
    }

    /// What is used of one of a lease's grants.
    pub fn used(&self, index: usize, ordinal: usize) -> Used {
        let grants = self.lease(index).grants.get(ordinal).zip(self.lease_use(index).grants.get(ordinal));
        let Some((rules, account)) = grants else { return Used::default() };
        let most = rules.most.load(SeqCst);
        Used {
            memory: self.promised_to_lease(index, ordinal).min(most),
            // What was used before this entry was made may have been more.
            peak_memory: account.peak.load(SeqCst),
            busy_ns: account.used_ns.load(SeqCst),
            launches: account.launches.load(SeqCst),
            paid_until: account.budget.paid_until(),
        }
    }

    /// The application in a slot has a lease.
    pub fn bind(&self, slot: usize, lease: usize) {
        self.rules.slots[slot.min(SLOTS - 1)].lease.store(lease as u32 + 1, SeqCst);
    }

    /// The entry of an application's lease.
    pub fn lease_of(&self, slot: usize) -> Option<usize> {
        (self.rules.slots[slot.min(SLOTS - 1)].lease.load(SeqCst) as usize).checked_sub(1)
    }

    /// The device that an application's ordinal is.
    fn device_of(&self, slot: usize, ordinal: usize) -> Option<usize> {
        match self.lease_of(slot) {
            None => Some(ordinal),
            Some(lease) => {
                let device = self.lease(lease).grants.get(ordinal)?.device.load(SeqCst);
                (device as usize).checked_sub(1)
            }
        }
    }

    /// The slots that are taken, by their indices.
    fn taken(&self) -> impl Iterator<Item = (usize, &'static Slot)> {
        let fresh = (self.rules.fresh.load(SeqCst) as usize).min(SLOTS);
        let taken = (0..fresh).filter(|index| self.rules.slots[*index].taken.load(SeqCst) != 0);
        taken.map(|index| (index, self.slot(index)))
    }

    fn promised(&self, device: usize) -> u64 {
        self.sum(device, |slot| &slot.granted)
    }

    /// What stands in all slots about a device. No lease counts for more than it was ever given.
    fn sum(&self, device: usize, what: fn(&Slot) -> &ByDevice<AtomicU64>) -> u64 {
        // Most servers have no leases, and this is asked with every call for how much memory is free.
        let (mut sum, mut by_lease) = (0u64, BTreeMap::new());
        for (index, slot) in self.taken() {
            let bytes = self.on_device(index, what(slot), device);
            match self.lease_of(index) {
                None => sum = sum.saturating_add(bytes),
                Some(_) if bytes == 0 => {}
                Some(lease) => {
                    let of_lease = by_lease.entry(lease.min(LEASES - 1)).or_insert(0u64);
                    *of_lease = of_lease.saturating_add(bytes);
                }
            }
        }
        by_lease
            .into_iter()
            .fold(sum, |sum, (lease, bytes)| sum.saturating_add(bytes.min(self.most(lease, device))))
    }

    /// The most that a lease has given of a device.
    fn most(&self, lease: usize, device: usize) -> u64 {
        let grants = self.lease(lease).grants.iter();
        let own = grants.filter(|grant| grant.device.load(SeqCst) as usize == device + 1);
        own.fold(0, |sum: u64, grant| sum.saturating_add(grant.most.load(SeqCst)))
    }

    /// What stands in a slot about a device.
    fn on_device(&self, slot: usize, by_ordinal: &ByDevice<AtomicU64>, device: usize) -> u64 {
        by_ordinal.iter().enumerate().fold(0, |sum: u64, (ordinal, bytes)| match bytes.load(SeqCst) {
            0 => sum,
            bytes if self.device_of(slot, ordinal) == Some(device) => sum.saturating_add(bytes),
            _ => sum,
        })
    }

    /// What all applications together have allocated of a device.
    fn allocated(&self, device: usize) -> u64 {
        self.sum(device, |slot| &slot.allocated)
    }

    /// The most memory of a device that all applications together have had allocated at a time, in bytes.
    pub fn peak(&self, device: u32) -> u64 {
        let device = device as usize;
        let Some(peak) = self.rules.peak.get(device) else { return 0 };
        self.taken().fold(peak.load(SeqCst), |peak, (_, slot)| peak.max(slot.seen[device].load(SeqCst)))
    }

    fn slots_of(&self, lease: usize) -> impl Iterator<Item = &'static Slot> {
        self.taken().filter(move |(index, _)| self.lease_of(*index) == Some(lease)).map(|(_, slot)| slot)
    }

    fn promised_to_lease(&self, lease: usize, ordinal: usize) -> u64 {
        self.slots_of(lease).fold(0, |sum, slot| sum.saturating_add(slot.granted[ordinal].load(SeqCst)))
    }

    /// The lease's grant at an ordinal, if the application has a lease and the lease has such a grant.
    fn grant_of(&self, slot: usize, ordinal: usize) -> Option<(usize, &'static GrantRules)> {
        let lease = self.lease_of(slot)?;
        Some((lease, self.lease(lease).grants.get(ordinal)?))
    }

    /// The memory that an application may use of a device in all, where its lease says that.
    pub fn cap(&self, slot: usize, ordinal: u32) -> Option<u64> {
        self.grant_of(slot, ordinal as usize).map(|(_, grant)| grant.cap.load(SeqCst))
    }

    /// The most memory that an application's lease has given of a device while it had applications, where there is a lease.
    pub fn most_of(&self, slot: usize, ordinal: u32) -> Option<u64> {
        self.grant_of(slot, ordinal as usize).map(|(_, grant)| grant.most.load(SeqCst))
    }

    /// How busy all applications together have kept the devices lately, in percent; 100 at most.
    pub fn busy_percent(&self) -> u32 {
        self.busy_percent_at(monotonic_ns())
    }

    fn busy_percent_at(&self, now: u64) -> u32 {
        let fresh = |s: &&Slot| now.saturating_sub(s.busy_at.load(SeqCst)) < BUSY_LASTS.as_nanos() as u64;
        let taken = self.taken().map(|(_, slot)| slot);
        let sum = taken.filter(fresh).fold(0u32, |sum, s| sum.saturating_add(s.busy_percent.load(SeqCst)));
        sum.min(100)
    }

    /// Bytes of a device that are promised to nobody.
    pub fn unpromised(&self, device: u32) -> u64 {
        let device = device as usize;
        let Some(capacity) = self.rules.capacity.get(device) else { return 0 };
        capacity.load(SeqCst).saturating_sub(self.promised(device))
    }

    /// Bytes of a device that an application could still be promised.
    pub fn free(&self, slot: usize, ordinal: u32) -> u64 {
        let at = ordinal as usize;
        let Some(device) = self.device_of(slot, at) else { return 0 };
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
        let capacity = self.rules.capacity[device].load(SeqCst);
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
        let device = self.device_of(slot, at).filter(|d| *d < MAX_DEVICES as usize);
        let Some(device) = device else { return 0 };
        let capacity = self.rules.capacity[device].load(SeqCst);
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
                if let Some(lease) = self.lease_of(slot) {
                    let account = &self.lease_use(lease).grants[at];
                    account.peak.fetch_max(self.promised_to_lease(lease, at), SeqCst);
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
        let Some(device) = self.device_of(slot, at).filter(|d| *d < MAX_DEVICES as usize) else {
            return false;
        };
        let mine = self.slot(slot).granted[at].load(SeqCst);
        let capacity = self.rules.capacity[device].load(SeqCst);
        let most =
            self.grant_of(slot, at).map_or(capacity, |(_, grant)| grant.cap.load(SeqCst).min(capacity));
        if mine.saturating_add(bytes) > most {
            return false;
        }
        let others = || {
            let others = self.taken().filter(|(other, _)| *other != slot);
            others.filter(|(other, held)| self.on_device(*other, &held.granted, device) > 0)
        };
        match looks < NOTICED_LOOKS {
            true => others().next().is_some(),
            false => others().any(|(_, other)| other.ending.load(SeqCst) != 0),
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
        let device = self.device_of(slot, at);
        if let Some((device, seen)) = device.and_then(|d| Some((d, self.slot(slot).seen.get(d)?))) {
            seen.fetch_max(self.allocated(device), SeqCst);
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

    fn account(&self, lease: usize, ordinal: u32) -> Option<&'static GrantUse> {
        self.lease_use(lease).grants.get(ordinal as usize)
    }

    /// A lease's applications have used a device for so long.
    pub fn charge(&self, lease: usize, ordinal: u32, ns: u64, now: u64) {
        if let Some(account) = self.account(lease, ordinal) {
            account.used_ns.fetch_add(ns, SeqCst);
            account.wanted_at.fetch_max(now, SeqCst);
            account.budget.charge(ns, self.paced_by(lease, ordinal), now);
        }
    }

    /// How long a lease's applications have to leave a device alone from now on, in ns; 0 where they need not.
    pub fn delay_ns(&self, lease: usize, ordinal: u32, now: u64) -> u64 {
        let Some(account) = self.account(lease, ordinal) else { return 0 };
        account.budget.delay_ns(self.pace(lease, ordinal, now), now)
    }

    /// A lease's applications have launched kernels.
    pub fn launched(&self, lease: usize, ordinal: u32, count: u64) {
        if let Some(account) = self.account(lease, ordinal) {
            account.launches.fetch_add(count, SeqCst);
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
