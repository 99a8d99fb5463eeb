//! Calling credit back that a lease does not cover any more.

use super::outgoing::Outgoing;
use crate::ledger::{Ledger, Slot};
use rgpu_protocol::frame::{CreditRecall, Notice};
use rgpu_protocol::wire::to_bytes;
use std::sync::Arc;

/// Looks now and then whether a session's lease was made smaller than what its programs were promised.
pub struct Recall {
    ledger: Arc<Ledger>,
    slot: usize,
    devices: u32,
    /// The protocol's minor version that the client speaks.
    minor: u16,
}

impl Recall {
    pub fn new(ledger: Arc<Ledger>, slot: usize, devices: u32, minor: u16) -> Self {
        Self { ledger, slot, devices, minor }
    }

    /// What the ledger counts of the session.
    pub fn stats(&self) -> &'static Slot {
        self.ledger.slot(self.slot)
    }

    /// Asks the client for what is too much, of what it has not spent. Older clients keep it; they cannot allocate it.
    pub fn look(&self, out: &Outgoing) {
        if self.minor < CreditRecall::SINCE {
            return;
        }
        for ordinal in 0..self.devices {
            let bytes = self.ledger.excess(self.slot, ordinal);
            if bytes > 0 {
                out.notice(Notice::CreditRecall, 0, &[&to_bytes(&CreditRecall { ordinal, bytes })]);
            }
        }
    }
}
