//! The connection: a server that grants what it is asked for, and counts what comes back.

use rgpu_device::{Ordinal, Result};

use super::outgoing::Urgent;
use crate::lock::Mutex;

#[path = "../../../../client-shim/remote/src/remote/link/credit.rs"]
mod credit;

/// The fence, of whatever processor.
pub(super) fn between() {
    loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
}

/// What the server has.
#[derive(Default)]
pub(crate) struct Link {
    /// Credit that came back.
    pub returned: Mutex<u64>,
    /// Credit that was asked for.
    pub asked: Mutex<u64>,
}

impl Link {
    pub(super) fn answer(&self, Urgent::Credit(ordinal, bytes): Urgent) {
        assert_eq!(ordinal, 0, "there is one");
        *self.returned.lock() += bytes;
    }

    pub(super) fn credit_ask(&self, _: Ordinal, bytes: u64) -> Result<u64> {
        *self.asked.lock() += bytes;
        Ok(bytes)
    }

    pub(super) fn credit_return(&self, _: Ordinal, bytes: u64) -> Result<()> {
        *self.returned.lock() += bytes;
        Ok(())
    }
}
