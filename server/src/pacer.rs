//! The [`Pacer`] of an application with a lease: its account stands in the ledger, and is that of all the lease's applications.

use crate::budget::WHOLE;
use crate::ledger::{Ledger, monotonic_ns};
use rgpu_device::{Ordinal, Pacer};
use std::sync::Arc;
use std::time::Duration;

/// Holds a device back as a lease's entry in the ledger says.
pub struct LedgerPacer {
    ledger: Arc<Ledger>,
    lease: usize,
}

impl LedgerPacer {
    /// For the application in a slot; `None` where it has no lease.
    pub fn of(ledger: &Arc<Ledger>, slot: usize) -> Option<Arc<dyn Pacer>> {
        let lease = ledger.lease_of(slot)?;
        Some(Arc::new(Self { ledger: ledger.clone(), lease }))
    }
}

impl Pacer for LedgerPacer {
    fn delay(&self, ordinal: Ordinal) -> Duration {
        Duration::from_nanos(self.ledger.delay_ns(self.lease, ordinal, monotonic_ns()))
    }

    fn is_limited(&self, ordinal: Ordinal) -> bool {
        self.ledger.share_milli(self.lease, ordinal) < WHOLE
    }

    fn used(&self, ordinal: Ordinal, ns: u64) {
        self.ledger.charge(self.lease, ordinal, ns, monotonic_ns());
    }

    fn launched(&self, ordinal: Ordinal, count: u64) {
        self.ledger.launched(self.lease, ordinal, count);
    }
}
