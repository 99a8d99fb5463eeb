//! An application's memory, held against what it was promised.

use super::variables::Variables;
use crate::ledger::Ledger;
use rgpu_device::{Code, Error, Range, Region, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Granted at once where there is plenty.
const STEP: u64 = 256 << 20;

/// What a session was granted, and what it allocated.
pub(super) struct Account {
    ledger: Arc<Ledger>,
    slot: usize,
    granted: Vec<u64>,
    used: Vec<u64>,
    /// By address: ordinal, size, whether mirrored.
    allocations: BTreeMap<u64, (u32, u64, bool)>,
    mirrored: usize,
}

/// An application's share of a device's memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    /// What it can still get.
    pub free: u64,
    /// What it has allocated.
    pub own: u64,
    /// What it can have in all, where a lease says that.
    pub total: Option<u64>,
}

/// The credit that a session begins with: enough for small programs, little enough for many of them.
pub fn initial_credit(ledger: &Ledger, slot: usize, devices: u32) -> Vec<u64> {
    (0..devices).map(|o| ledger.grant(slot, o, 0, generous(ledger.free(slot, o)))).collect()
}

fn generous(free: u64) -> u64 {
    (free / 16).min(STEP) / 4096 * 4096
}

impl Account {
    pub(super) fn new(ledger: Arc<Ledger>, slot: usize, granted: &[u64]) -> Self {
        let (granted, used) = (granted.to_vec(), vec![0; granted.len()]);
        Self { ledger, slot, granted, used, allocations: BTreeMap::new(), mirrored: 0 }
    }

    /// What modules' variables are held against.
    pub(super) fn variables(&self) -> Arc<Variables> {
        Arc::new(Variables::new(self.ledger.clone(), self.slot))
    }

    /// Whether there is mirrored memory.
    pub(super) fn has_mirrored(&self) -> bool {
        self.mirrored > 0
    }

    /// The ordinal of the allocation that an address lies in, or after.
    pub(super) fn ordinal_of(&self, addr: u64) -> u32 {
        self.allocations.range(..=addr).next_back().map_or(u32::MAX, |(_, a)| a.0)
    }

    /// Whether a region lies within one allocation of device memory.
    pub(super) fn holds(&self, region: &Region) -> bool {
        let Some(extent) = region.extent() else { return false };
        let before = self.allocations.range(..=region.addr).next_back();
        before.is_some_and(|(&base, &(_, size, mirrored))| {
            !mirrored && Range { base, size }.contains(region.addr, extent)
        })
    }

    /// Grants at least `bytes` more, or nothing.
    pub(super) fn ask(&mut self, ordinal: u32, bytes: u64) -> Result<u64> {
        let granted = self.granted.get_mut(ordinal as usize).ok_or_else(|| no_device(ordinal))?;
        let want = bytes.max(generous(self.ledger.free(self.slot, ordinal)));
        let got = self.ledger.grant(self.slot, ordinal, bytes, want);
        *granted += got;
        Ok(got)
    }

    /// Takes unused credit back.
    pub(super) fn give_back(&mut self, ordinal: u32, bytes: u64) -> Result<()> {
        let (at, n) = (ordinal as usize, self.granted.len());
        if at >= n || bytes > self.granted[at] - self.used[at] {
            return Err(Error::new(Code::InvalidValue, "More credit was given back than there was"));
        }
        self.granted[at] -= bytes;
        self.ledger.take_back(self.slot, ordinal, bytes);
        Ok(())
    }

    /// Bytes that the application can still get.
    pub(super) fn free(&self, ordinal: u32) -> u64 {
        let at = ordinal as usize;
        let own = self.granted.get(at).map_or(0, |g| g - self.used[at]);
        let free = self.ledger.free(self.slot, ordinal).saturating_add(own);
        // A lease that was made smaller may not give what was promised before.
        self.ledger.unallocated(self.slot, ordinal).map_or(free, |left| free.min(left))
    }

    /// What the application can have of a device in all, where a lease says that.
    pub(super) fn total(&self, ordinal: u32) -> Option<u64> {
        self.ledger.cap(self.slot, ordinal)
    }

    /// What the application can still get of a device, and what it has.
    pub(super) fn memory(&self, ordinal: u32) -> Share {
        let own = self.used.get(ordinal as usize).copied().unwrap_or(0);
        Share { free: self.free(ordinal), own, total: self.total(ordinal) }
    }

    /// How busy all applications together have kept the devices lately.
    pub(super) fn busy_percent(&self) -> u32 {
        self.ledger.busy_percent()
    }

    /// Sets memory aside for an allocation that is within the credit: it is to be [made](Account::allocated) or
    /// [given up](Account::give_up).
    pub(super) fn set_aside(&self, ordinal: u32, size: u64) -> Result<()> {
        let at = ordinal as usize;
        let granted = *self.granted.get(at).ok_or_else(|| no_device(ordinal))?;
        if size > granted - self.used[at] {
            let text = format!("{size} bytes are more than this session's memory credit on device {ordinal}");
            return Err(Error::new(Code::OutOfMemory, text));
        }
        if !self.ledger.allocate(self.slot, ordinal, size) {
            let text = format!("{size} bytes are more than the lease gives of device {ordinal} now");
            return Err(Error::new(Code::OutOfMemory, text));
        }
        Ok(())
    }

    /// What was set aside is not allocated after all.
    pub(super) fn give_up(&self, ordinal: u32, size: u64) {
        self.ledger.deallocate(self.slot, ordinal, size);
    }

    /// An allocation was made.
    pub(super) fn allocated(&mut self, ordinal: u32, addr: u64, size: u64, mirrored: bool) {
        self.used[ordinal as usize] += size;
        self.mirrored += usize::from(mirrored);
        if let Some(old) = self.allocations.insert(addr, (ordinal, size, mirrored)) {
            self.uncount(old);
        }
        self.ledger.slot(self.slot).peak_memory.fetch_max(self.used.iter().sum(), Relaxed);
    }

    /// An allocation was released.
    pub(super) fn released(&mut self, addr: u64) {
        if let Some(old) = self.allocations.remove(&addr) {
            self.uncount(old);
        }
    }

    /// Everything on an ordinal was released.
    pub(super) fn reset(&mut self, ordinal: u32) {
        self.of(ordinal).into_iter().for_each(|addr| self.released(addr));
    }

    /// Where an ordinal's allocations are.
    pub(super) fn of(&self, ordinal: u32) -> Vec<u64> {
        self.allocations.iter().filter(|(_, a)| a.0 == ordinal).map(|(addr, _)| *addr).collect()
    }

    fn uncount(&mut self, (ordinal, size, mirrored): (u32, u64, bool)) {
        self.used[ordinal as usize] -= size;
        self.ledger.deallocate(self.slot, ordinal, size);
        self.mirrored -= usize::from(mirrored);
    }
}

fn no_device(ordinal: u32) -> Error {
    Error::new(Code::InvalidDevice, format!("There is no device {ordinal}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_held_against_the_credit() {
        let ledger = Arc::new(Ledger::new(&[1 << 20]).unwrap());
        let slot = ledger.take_slot().unwrap();
        let mut account = Account::new(ledger.clone(), slot, &[0]);
        assert_eq!(account.set_aside(0, 4096).unwrap_err().code, Code::OutOfMemory);
        assert_eq!(account.set_aside(1, 4096).unwrap_err().code, Code::InvalidDevice);
        assert_eq!(account.ask(0, 8192), Ok(65536));
        account.set_aside(0, 4096).unwrap();
        account.allocated(0, 0x4000, 4096, false);
        assert!(account.holds(&Region::linear(0x4000, 4096)) && account.holds(&Region::linear(0x4ff0, 16)));
        let outside = [(0x3fff, 2), (0x4ff0, 17), (0x5000, 1), (u64::MAX, 2)];
        assert!(outside.into_iter().all(|(addr, size)| !account.holds(&Region::linear(addr, size))));
        account.released(0x4000);
        assert!(!account.holds(&Region::linear(0x4000, 1)));
        account.allocated(0, 0x1000, 4096, true);
        assert!(!account.holds(&Region::linear(0x1000, 1)));
        assert!(account.has_mirrored() && account.set_aside(0, 65536).is_err());
        assert_eq!(account.free(0), (1 << 20) - 4096);
        assert!(account.give_back(0, 65536).is_err());
        account.reset(0);
        assert!(!account.has_mirrored());
        account.give_back(0, 65536).unwrap();
        assert_eq!(ledger.unpromised(0), 1 << 20);
        assert_eq!(account.ask(0, 2 << 20), Ok(0));
        assert_eq!(ledger.slot(slot).peak_memory.load(Relaxed), 4096);
    }
}
