//! A share of a device's time, kept account of in one number.
//!
//! With a share of a quarter, each millisecond of device time pays for four milliseconds of the clock's. The account is the
//! time until which the clock is paid for: using the device moves it on, and while it lies in the future, the device is to be
//! left alone. So, over any time, what is used is at most the share of that time, plus what was carried forward, plus the
//! piece of work that could not be interrupted; and the latter is paid back before the next one.
//!
//! Who uses less than the share falls behind the clock, and may catch up, but only by [`CARRY`].

use crate::words::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

/// So much of the clock's time can be carried forward: with a share of a quarter, a quarter of that at once.
pub(crate) const CARRY: u64 = 250_000_000;
/// The whole device.
pub(crate) const WHOLE: u32 = 1000;

/// The account. All zeros is a new one. Times are in ns of the machine's monotonic clock.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct Budget {
    paid_until: AtomicU64,
}

/// `ns` of the device's time, in the clock's.
fn price(ns: u64, share_milli: u32) -> u64 {
    let price = u128::from(ns) * u128::from(WHOLE) / u128::from(share_milli.max(1));
    u64::try_from(price).unwrap_or(u64::MAX)
}

impl Budget {
    /// The device was used for so long. Who has all of it keeps no account.
    pub(crate) fn charge(&self, ns: u64, share_milli: u32, now: u64) {
        if share_milli >= WHOLE {
            return;
        }
        let price = price(ns, share_milli);
        let add = |until: u64| Some(until.max(now.saturating_sub(CARRY)).saturating_add(price));
        let _ = self.paid_until.fetch_update(SeqCst, SeqCst, add);
    }

    /// How long the device is to be left alone from now on.
    pub(crate) fn delay_ns(&self, share_milli: u32, now: u64) -> u64 {
        match share_milli {
            WHOLE.. => 0,
            _ => self.paid_until.load(SeqCst).saturating_sub(now),
        }
    }

    /// The share has changed: what is owed is paid back with the new one.
    pub(crate) fn convert(&self, before: u32, after: u32, now: u64) {
        if before == after {
            return;
        }
        let convert = |until: u64| {
            let owed = until.saturating_sub(now);
            let owed = match (before, after) {
                (0, _) | (WHOLE.., _) | (_, WHOLE..) => 0,
                _ => u64::try_from(u128::from(owed) * u128::from(before) / u128::from(after.max(1)))
                    .unwrap_or(u64::MAX),
            };
            // What was carried forward stays.
            Some(if owed == 0 { until.min(now) } else { now.saturating_add(owed) })
        };
        let _ = self.paid_until.fetch_update(SeqCst, SeqCst, convert);
    }

    /// Until when the clock is paid for.
    pub(crate) fn paid_until(&self) -> u64 {
        self.paid_until.load(SeqCst)
    }

    /// Goes on with an account from before.
    pub(crate) fn set_paid_until(&self, until: u64) {
        self.paid_until.store(until, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const START: u64 = 1_000_000 * MS;

    /// Works in pieces whenever it may, from `from` to `to`; says how much.
    fn work(budget: &Budget, share: u32, piece: u64, from: u64, to: u64) -> u64 {
        let (mut now, mut used) = (from, 0);
        while now < to {
            match budget.delay_ns(share, now) {
                0 => {
                    now += piece;
                    used += piece;
                    budget.charge(piece, share, now);
                }
                delay => now += delay,
            }
        }
        used
    }

    #[test]
    fn a_share_is_kept_over_any_time() {
        for share in [1, 10, 250, 333, 750, 999] {
            let budget = Budget::default();
            let (piece, time) = (2 * MS, 100_000 * MS);
            let used = work(&budget, share, piece, START, START + time);
            let right = time / 1000 * u64::from(share);
            let bound = CARRY / 1000 * u64::from(share) + piece;
            assert!(used >= right - piece && used <= right + bound, "{share}: {used} instead of {right}");
        }
    }

    #[test]
    fn what_was_not_used_is_carried_forward_but_not_for_ever() {
        let budget = Budget::default();
        budget.charge(MS, 500, START);
        let later = START + 3_600_000 * MS;
        let used = work(&budget, 500, MS, later, later + 10_000 * MS);
        assert!(used.abs_diff(5000 * MS + CARRY / 2) <= MS, "{used}");
    }

    #[test]
    fn what_was_used_too_much_is_paid_back() {
        let budget = Budget::default();
        // Has carried everything forward, and then works for a second that nobody could interrupt.
        budget.charge(1000 * MS, 100, START);
        assert_eq!(budget.delay_ns(100, START), 10_000 * MS - CARRY);
        assert_eq!(budget.delay_ns(100, START + 10_000 * MS - CARRY), 0);
        assert_eq!(work(&budget, 100, MS, START, START + 9000 * MS), 0);
    }

    #[test]
    fn a_whole_device_has_no_account() {
        let budget = Budget::default();
        budget.charge(u64::MAX, WHOLE, START);
        assert_eq!((budget.delay_ns(WHOLE, START), budget.paid_until()), (0, 0));
        budget.charge(u64::MAX, 1, START);
        assert_eq!(budget.delay_ns(1, START), u64::MAX - START);
    }

    #[test]
    fn debts_are_converted_with_the_share() {
        let budget = Budget::default();
        budget.charge(CARRY / 4 + 100 * MS, 250, START);
        assert_eq!(budget.delay_ns(250, START), 400 * MS);
        budget.convert(250, 500, START);
        assert_eq!(budget.delay_ns(500, START), 200 * MS);
        budget.convert(500, WHOLE, START);
        budget.convert(WHOLE, 250, START);
        assert_eq!(budget.delay_ns(250, START), 0);
    }
}
