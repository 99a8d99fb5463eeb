//! Device time that leases leave, and who gets it.
//!
//! A lease that may be resized has a *firm* share, which it gets whenever it wants it, and may use what others leave. The firm shares
//! and the shares of all other leases on a device come to no more than the device. Every process of a lease that may be
//! resized finds out for itself, each time that it asks how long to wait, what others leave at that moment: each lease's page
//! says when there was work for the device the last time, and whoever had none for [`IDLE`] leaves all of its time. So what was
//! lent is given back as soon as its owner has work again, without anybody being asked, and the broker has no part in it.
//!
//! What is left is divided by what is set aside for each ([`Ledger::set_size`]). A process that lies about its work keeps its own
//! firm share from being lent, and gets its part of what is left, which is what an honest one with much work gets.

use super::{Ledger, SLOTS};
use crate::budget::WHOLE;
use std::sync::atomic::Ordering::SeqCst;

/// Who has had no work for a device for so long leaves its time to others, in ns. Workers' clocks are read every 2 ms.
pub(super) const IDLE: u64 = 10_000_000;

/// How much of a device's time a lease has now that may be resized, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// What it gets whenever it wants it.
    pub firm_milli: u32,
    /// What is set aside for it: by this, the time that others leave is divided.
    pub set_aside_milli: u32,
}

impl Ledger {
    /// Says how much a lease has now of one of its devices that may be resized; `None` holds it to its share.
    pub fn set_size(&self, lease: usize, ordinal: usize, size: Option<Size>) {
        let Some(grant) = self.lease(lease).grants.get(ordinal) else { return };
        let Some(account) = self.lease_use(lease).grants.get(ordinal) else { return };
        let (before, share) = (grant.set_aside.load(SeqCst), grant.share_milli.load(SeqCst));
        if let Some(size) = size {
            grant.firm.store(size.firm_milli.min(WHOLE), SeqCst);
            if before == 0 {
                // It has kept its account by its share so far.
                account.paced_by.store(share, SeqCst);
            }
        }
        grant.set_aside.store(size.map_or(0, |size| size.set_aside_milli.min(WHOLE) + 1), SeqCst);
        if before != 0 && size.is_none() {
            account.budget.convert(account.paced_by.load(SeqCst), share, super::monotonic_ns());
        }
    }

    /// How much a lease has now of a device, where it may be resized.
    pub fn size(&self, lease: usize, ordinal: u32) -> Option<Size> {
        let grant = self.lease(lease).grants.get(ordinal as usize)?;
        let set_aside_milli = grant.set_aside.load(SeqCst).checked_sub(1)?;
        Some(Size { firm_milli: grant.firm.load(SeqCst), set_aside_milli })
    }

    /// A lease has work for a device.
    pub fn wanted(&self, lease: usize, ordinal: u32, now: u64) {
        if let Some(account) = self.account(lease, ordinal) {
            account.wanted_at.fetch_max(now, SeqCst);
        }
    }

    /// Whether a lease's applications may ever have to leave a device alone.
    pub fn is_limited(&self, lease: usize, ordinal: u32) -> bool {
        self.size(lease, ordinal).is_some() || self.share_milli(lease, ordinal) < WHOLE
    }

    /// The thousandths by which a lease's account is kept.
    pub(super) fn paced_by(&self, lease: usize, ordinal: u32) -> u32 {
        match (self.size(lease, ordinal), self.account(lease, ordinal)) {
            (Some(_), Some(account)) => account.paced_by.load(SeqCst).clamp(1, WHOLE),
            _ => self.share_milli(lease, ordinal),
        }
    }

    /// The thousandths that a lease may use of a device at this moment. From now on its account is kept by them.
    pub(super) fn pace(&self, lease: usize, ordinal: u32, now: u64) -> u32 {
        let Some(size) = self.size(lease, ordinal) else { return self.share_milli(lease, ordinal) };
        let Some(account) = self.account(lease, ordinal) else { return WHOLE };
        let (mut left, mut weights) = (WHOLE.saturating_sub(size.firm_milli), weight(size));
        let device = self.lease(lease).grants[ordinal as usize].device.load(SeqCst);
        for (other, at) in self.at_work(device, now) {
            if other == lease {
                continue;
            }
            match self.size(other, at) {
                Some(size) => {
                    left = left.saturating_sub(size.firm_milli);
                    weights += weight(size);
                }
                None => left = left.saturating_sub(self.share_milli(other, at)),
            }
        }
        let part = u64::from(left) * weight(size) / weights.max(1);
        let milli = (size.firm_milli + part as u32).clamp(1, WHOLE);
        let before = account.paced_by.swap(milli, SeqCst);
        account.budget.convert(before, milli, now);
        milli
    }

    /// The leases that have had work for a device lately, each with the ordinal that the device is to it. `device` is 1 + its number.
    fn at_work(&self, device: u32, now: u64) -> impl Iterator<Item = (usize, u32)> {
        let fresh = (self.rules.fresh_leases.load(SeqCst) as usize).min(SLOTS);
        let taken = (0..fresh).filter(|lease| self.rules.leases[*lease].taken.load(SeqCst) != 0);
        taken.filter_map(move |lease| {
            let grants = &self.rules.leases[lease].grants;
            let at = grants.iter().position(|grant| grant.device.load(SeqCst) == device)?;
            let wanted_at = self.usage.leases[lease].grants[at].wanted_at.load(SeqCst);
            (wanted_at != 0 && now.saturating_sub(wanted_at) < IDLE).then_some((lease, at as u32))
        })
    }
}

/// By how much a lease counts where others' time is divided.
fn weight(size: Size) -> u64 {
    u64::from(size.set_aside_milli.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Terms, Used};

    const MS: u64 = 1_000_000;
    const START: u64 = 1_000_000 * MS;

    fn lease(ledger: &Ledger, share_milli: u32, size: Option<Size>) -> usize {
        let terms = [Terms { device: 0, memory: 1, share_milli }];
        let lease = ledger.take_lease(&terms, &[Used::default()]).unwrap();
        ledger.set_size(lease, 0, size);
        lease
    }

    fn size(firm_milli: u32, set_aside_milli: u32) -> Option<Size> {
        Some(Size { firm_milli, set_aside_milli })
    }

    /// What each of these leases uses from `from` to `to`, in ns, where they take what they may in pieces of 2 ms, and the device
    /// has time for all of that: `hungry` says who has work.
    fn run(
        ledger: &Ledger,
        leases: &[usize],
        from: u64,
        to: u64,
        hungry: impl Fn(usize, u64) -> bool,
    ) -> Vec<u64> {
        let mut used = vec![0; leases.len()];
        for now in (from..to).step_by(2 * MS as usize) {
            for (i, lease) in leases.iter().enumerate().filter(|(i, _)| hungry(*i, now)) {
                ledger.wanted(*lease, 0, now);
                if ledger.delay_ns(*lease, 0, now) == 0 {
                    ledger.charge(*lease, 0, 2 * MS, now);
                    used[i] += 2 * MS;
                }
            }
        }
        used
    }

    #[test]
    fn who_has_no_work_leaves_its_time_and_gets_it_back_at_once() {
        let ledger = Ledger::new(&[1000]).unwrap();
        let owner = lease(&ledger, 500, size(500, 100));
        let borrower = lease(&ledger, 500, size(0, 500));
        let fixed = lease(&ledger, 500, None);
        let both = [owner, borrower, fixed];
        // Alone, the borrower has all of the device.
        let second = 1000 * MS;
        let used = run(&ledger, &both, START, START + second, |i, _| i == 1);
        assert_eq!(used, [0, second, 0]);
        // Owner and fixed lease come back: they have what they were promised, and the borrower what it had done by then.
        let from = START + second;
        let used = run(&ledger, &both, from, from + 2 * second, |_, _| true);
        assert!(used[0] >= second && used[2] >= second, "{used:?}");
        assert!(used[1] <= 10 * MS, "{used:?}");
        // The fixed one goes: what it leaves is divided by what is set aside, 100 to 500.
        let from = from + 2 * second;
        let used = run(&ledger, &both, from, from + 2 * second, |i, _| i != 2);
        assert!(used[0].abs_diff(2 * second * 583 / 1000) < 50 * MS, "{used:?}");
        assert!(used[1].abs_diff(2 * second * 416 / 1000) < 50 * MS, "{used:?}");
    }

    #[test]
    fn a_lease_that_is_not_to_be_resized_is_held_to_its_share() {
        let ledger = Ledger::new(&[1000]).unwrap();
        let fixed = lease(&ledger, 250, None);
        let _other = lease(&ledger, 500, size(500, 500));
        let used = run(&ledger, &[fixed], START, START + 4000 * MS, |_, _| true);
        assert!(used[0] <= 1000 * MS + 70 * MS, "{used:?}");
        assert!(ledger.size(fixed, 0).is_none() && ledger.is_limited(fixed, 0));
        // One that may be resized no more is held to its share again.
        ledger.set_size(_other, 0, None);
        let from = START + 4000 * MS;
        let used = run(&ledger, &[_other], from, from + 4000 * MS, |_, _| true);
        assert!(used[0] <= 2000 * MS + 130 * MS, "{used:?}");
    }

    #[test]
    fn firm_shares_are_had_whatever_others_say_of_themselves() {
        let ledger = Ledger::new(&[1000]).unwrap();
        let honest = lease(&ledger, 400, size(400, 400));
        let liar = lease(&ledger, 400, size(400, 400));
        // Its page is its own: it may say that it has work until the end of time.
        ledger.account(liar, 0).unwrap().wanted_at.store(u64::MAX, SeqCst);
        let used = run(&ledger, &[honest], START, START + 1000 * MS, |_, _| true);
        assert!(used[0] >= 500 * MS - 2 * MS, "{used:?}");
    }

    #[test]
    fn a_device_is_lent_by_those_alone_who_have_it() {
        let ledger = Ledger::new(&[1000, 1000]).unwrap();
        let terms = [Terms { device: 1, memory: 1, share_milli: 500 }];
        let elsewhere = ledger.take_lease(&terms, &[]).unwrap();
        let here = lease(&ledger, 300, size(300, 300));
        ledger.wanted(elsewhere, 0, START);
        assert_eq!(ledger.pace(here, 0, START), WHOLE);
        let beside = lease(&ledger, 500, size(500, 300));
        ledger.wanted(beside, 0, START);
        assert_eq!(ledger.pace(here, 0, START), 400);
        assert_eq!(ledger.pace(here, 0, START + IDLE), WHOLE);
    }
}
