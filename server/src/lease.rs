//! Leases, as a server keeps them: who is admitted, what they may use, and what they do use.
//!
//! The [`LeaseTable`] is the daemon's. The broker's orders come in by [`LeaseTable::apply`], whoever fetches them; what the
//! leases use goes out by [`LeaseTable::report`].

use rgpu_control::LeaseId;
use rgpu_control::api::{LeaseReport, Orders};
use rgpu_control::token::PublicKey;
use std::sync::Arc;

use crate::ledger::Ledger;

/// The leases that this server serves, or has ended lately.
pub struct LeaseTable {
    ledger: Arc<Ledger>,
}

impl LeaseTable {
    /// A table without leases, for the devices of a ledger.
    pub fn new(ledger: Arc<Ledger>) -> Arc<Self> {
        Arc::new(Self { ledger })
    }

    /// From now on leases of this node are admitted, and they have to be signed with the private key that belongs to this one.
    /// Without an identity no lease is admitted.
    pub fn set_identity(&self, node: &str, broker: PublicKey) {
        let _ = (node, broker);
    }

    /// Takes the broker's orders: leases of running sessions get the memory and share that stand there, and those that are not
    /// there any more are ended. Orders older than the latest ones are ignored.
    pub fn apply(&self, orders: &Orders) {
        let _ = orders;
    }

    /// The version of the latest orders that were applied; 0 before the first.
    pub fn applied(&self) -> u64 {
        0
    }

    /// What the leases use, and which of those that were to be ended have left nothing behind. The latter are told again until
    /// [`LeaseTable::confirmed`].
    pub fn report(&self) -> (Vec<LeaseReport>, Vec<LeaseId>) {
        let _ = &self.ledger;
        (Vec::new(), Vec::new())
    }

    /// The broker has heard that these leases have ended: they need not be told again.
    pub fn confirmed(&self, ended: &[LeaseId]) {
        let _ = ended;
    }

    /// Calls this, on any thread, when a lease's first session begins or an ended lease's last session is gone: something that
    /// the broker should hear soon. It must not call the table.
    pub fn on_change(&self, tell: impl Fn() + Send + Sync + 'static) {
        let _ = tell;
    }
}
