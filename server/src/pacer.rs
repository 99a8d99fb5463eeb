//! The [`Pacer`] of an application with a lease: its account stands in the ledger, and is that of all the lease's applications.

use crate::ledger::{Ledger, monotonic_ns};
use rgpu_device::{Ordinal, Pacer};
use std::sync::Arc;
use std::time::Duration;

/// Holds a device back as a lease's entry in the ledger says.
pub(crate) struct LedgerPacer {
    ledger: Arc<Ledger>,
    lease: usize,
    /// The percentage of the multiprocessors that this process can use: device time counts so much.
    ceiling: u32,
}

impl LedgerPacer {
    /// For the application in a slot, whose process can use this percentage of the multiprocessors; `None` where it has no
    /// lease.
    pub(crate) fn of(ledger: &Arc<Ledger>, slot: usize, ceiling: u32) -> Option<Arc<dyn Pacer>> {
        let lease = ledger.lease_of(slot)?;
        Some(Arc::new(Self { ledger: ledger.clone(), lease, ceiling: ceiling.clamp(1, 100) }))
    }
}

impl Pacer for LedgerPacer {
    fn delay(&self, ordinal: Ordinal) -> Duration {
        Duration::from_nanos(self.ledger.delay_ns(self.lease, ordinal, monotonic_ns()))
    }

    fn is_limited(&self, ordinal: Ordinal) -> bool {
        self.ledger.is_limited(self.lease, ordinal)
    }

    fn wanted(&self, ordinal: Ordinal) {
        self.ledger.wanted(self.lease, ordinal, monotonic_ns());
    }

    fn used(&self, ordinal: Ordinal, ns: u64) {
        // Half of the device for a second is half a second of it. So a process is not held back below its ceiling unless the
        // lease gives less by now, or others of the lease use it, too.
        let ns = u128::from(ns) * u128::from(self.ceiling) / 100;
        self.ledger.charge(self.lease, ordinal, ns as u64, monotonic_ns());
    }

    fn launched(&self, ordinal: Ordinal, count: u64) {
        self.ledger.launched(self.lease, ordinal, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Terms;

    #[test]
    fn a_part_of_the_multiprocessors_counts_as_that_part_of_the_time() {
        let ledger = Arc::new(Ledger::new(&[1]).unwrap());
        let lease = ledger.take_lease(&[Terms { device: 0, memory: 1, share_milli: 250 }], &[]).unwrap();
        let slot = ledger.take_slot().unwrap();
        assert!(LedgerPacer::of(&ledger, slot, 25).is_none());
        ledger.bind(slot, lease);
        let second = 1_000_000_000;
        LedgerPacer::of(&ledger, slot, 25).unwrap().used(0, 4 * second);
        assert_eq!(ledger.used(lease, 0).busy_ns, second);
        LedgerPacer::of(&ledger, slot, 100).unwrap().used(0, second);
        assert_eq!(ledger.used(lease, 0).busy_ns, 2 * second);
    }
}
