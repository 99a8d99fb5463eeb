//! Memory credit: what may be allocated without asking.

use crate::words::AtomicBool;
use parking_lot::Mutex;
use rgpu_device::{Ordinal, Region};
use std::collections::{BTreeMap, HashMap};

/// So much unused credit is kept for the next allocation; more is given back.
const KEPT: u64 = 512 << 20;

/// The credit of each ordinal, and what it was spent on.
pub(super) struct Credit {
    pub account: Mutex<Account>,
    /// What the server calls back, by ordinal, for whoever has the account.
    pub recalled: Mutex<HashMap<Ordinal, u64>>,
    pub any_recalled: AtomicBool,
}

impl Credit {
    /// With what the server has granted at first, by ordinal.
    pub(super) fn new(granted: Vec<u64>) -> Self {
        let account = Mutex::new(Account { left: granted, spent: BTreeMap::new() });
        Self { account, recalled: Mutex::default(), any_recalled: AtomicBool::new(false) }
    }

    /// Whether a region lies in what was allocated, in one allocation or in several side by side. False also where nobody can
    /// tell at once, because somebody is waiting for credit.
    pub(super) fn holds(&self, region: &Region) -> bool {
        self.account.try_lock().is_some_and(|account| account.holds(region))
    }

    /// [`Credit::holds`], for who can wait.
    pub(super) fn holds_for_sure(&self, region: &Region) -> bool {
        self.account.lock().holds(region)
    }

    /// Everything on an ordinal was released.
    pub(super) fn reset(&self, ordinal: Ordinal) {
        self.account.lock().reset(ordinal);
    }
}

/// What is left, and what was spent.
pub(super) struct Account {
    left: Vec<u64>,
    /// By address: ordinal and size.
    spent: BTreeMap<u64, (Ordinal, u64)>,
}

impl Account {
    fn holds(&self, region: &Region) -> bool {
        let Some(end) = region.extent().and_then(|extent| region.addr.checked_add(extent)) else {
            return false;
        };
        let mut at = region.addr;
        while at < end {
            match self.spent.range(..=at).next_back() {
                Some((base, (_, size))) if at - base < *size => at = base + size,
                _ => return false,
            }
        }
        true
    }

    /// What an ordinal has left; `None` where there is no such ordinal.
    pub(super) fn left(&self, ordinal: Ordinal) -> Option<u64> {
        self.left.get(ordinal as usize).copied()
    }

    /// The server has granted more.
    pub(super) fn grant(&mut self, ordinal: Ordinal, bytes: u64) {
        if let Some(left) = self.left.get_mut(ordinal as usize) {
            *left = left.saturating_add(bytes);
        }
    }

    /// Takes what is left, so many bytes at most, to return it to the server.
    pub(super) fn take(&mut self, ordinal: Ordinal, bytes: u64) -> u64 {
        let Some(left) = self.left.get_mut(ordinal as usize) else { return 0 };
        let taken = bytes.min(*left);
        *left -= taken;
        taken
    }

    /// So much, which is left, was spent on an allocation.
    pub(super) fn spend(&mut self, ordinal: Ordinal, addr: u64, size: u64) {
        self.take(ordinal, size);
        self.spent.insert(addr, (ordinal, size));
    }

    /// Whether anything was allocated there.
    pub(super) fn has(&self, addr: u64) -> bool {
        self.spent.contains_key(&addr)
    }

    /// Regains what was spent on an allocation. The ordinal, and how much is too much, and was taken out to be returned.
    pub(super) fn regain(&mut self, addr: u64) -> Option<(Ordinal, u64)> {
        let (ordinal, size) = self.spent.remove(&addr)?;
        self.grant(ordinal, size);
        let left = self.left(ordinal).unwrap_or_default();
        let excess = if left > KEPT { left - KEPT / 2 } else { 0 };
        Some((ordinal, self.take(ordinal, excess)))
    }

    fn reset(&mut self, ordinal: Ordinal) {
        let mut regained = 0;
        self.spent.retain(|_, (o, size)| {
            let gone = *o == ordinal;
            regained += if gone { *size } else { 0 };
            !gone
        });
        self.grant(ordinal, regained);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_released_is_left_again_and_too_much_is_returned() {
        let credit = Credit::new(vec![KEPT, 0]);
        let mut account = credit.account.lock();
        assert_eq!((account.left(0), account.left(2)), (Some(KEPT), None));
        account.spend(0, 0x1000, KEPT);
        account.grant(0, KEPT);
        assert!(account.has(0x1000) && !account.has(0x2000));
        // Twice as much as is kept, of which half of that stays.
        assert_eq!(account.regain(0x1000), Some((0, 2 * KEPT - KEPT / 2)));
        assert_eq!((account.left(0), account.regain(0x1000)), (Some(KEPT / 2), None));
        assert_eq!((account.take(0, KEPT), account.take(0, 1), account.take(7, 1)), (KEPT / 2, 0, 0));
        account.grant(1, 10);
        account.spend(1, 0x3000, 10);
        account.reset(1);
        assert_eq!(account.left(1), Some(10));
    }
}
