//! Calling credit back that a lease does not cover any more.

use super::outgoing::Outgoing;
use crate::ledger::{Ledger, Slot};
use rgpu_protocol::frame::{CreditRecall, Notice};
use rgpu_protocol::wire::to_bytes;
use std::sync::Arc;

/// Looks now and then whether a session's lease was made smaller than what its programs were promised.
pub(super) struct Recall {
    ledger: Arc<Ledger>,
    slot: usize,
    /// By ordinal: what was asked for last.
    asked: Vec<u64>,
    /// The protocol's minor version that the client speaks.
    minor: u16,
}

impl Recall {
    pub(super) fn new(ledger: Arc<Ledger>, slot: usize, devices: u32, minor: u16) -> Self {
        Self { ledger, slot, asked: vec![0; devices as usize], minor }
    }

    /// What the ledger counts of the session.
    pub(super) fn stats(&self) -> &'static Slot {
        self.ledger.slot(self.slot)
    }

    /// Asks the client for what is too much, of what it has not spent. Older clients keep it; they cannot allocate it.
    pub(super) fn look(&mut self, out: &Outgoing) {
        if self.minor < CreditRecall::SINCE {
            return;
        }
        for (asked, ordinal) in self.asked.iter_mut().zip(0..) {
            let bytes = self.ledger.excess(self.slot, ordinal);
            // Once: who has returned all that it can need not hear it again and again.
            if bytes != std::mem::replace(asked, bytes) && bytes > 0 {
                out.notice(Notice::CreditRecall, 0, &[&to_bytes(&CreditRecall { ordinal, bytes })]);
            }
        }
    }
}
