//! Memory of modules' variables, held against a program's lease. It is promised beside the credit that the client spends.

use crate::ledger::Ledger;
use parking_lot::Mutex;
use rgpu_device::{Code, Device, Error, GlobalKind, Handle, ModuleInfo, Ordinal, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// What the modules of a session with a lease occupy.
pub(super) struct Variables {
    ledger: Arc<Ledger>,
    slot: usize,
    /// By module: ordinal and bytes.
    charged: Mutex<HashMap<Handle, (Ordinal, u64)>>,
}

impl Variables {
    pub(super) fn new(ledger: Arc<Ledger>, slot: usize) -> Self {
        Self { ledger, slot, charged: Mutex::default() }
    }

    /// Loads a module, and unloads it where there is no memory for its variables.
    pub(super) fn load(
        &self,
        device: &dyn Device,
        ordinal: Ordinal,
        module: Handle,
        image: &[u8],
        managed: &[(String, u64)],
    ) -> Result<ModuleInfo> {
        let info = device.module_load(ordinal, module, image, managed)?;
        let own = info.globals.iter().filter(|global| global.kind != GlobalKind::Managed);
        let bytes = own.fold(0u64, |sum, global| sum.saturating_add(global.size));
        // Managed ones are allocations of the program's. Without a lease, the device's own limit is all there is.
        if bytes == 0 || self.ledger.lease_of(self.slot).is_none() {
            return Ok(info);
        }
        let bytes = bytes.checked_next_multiple_of(4096).unwrap_or(u64::MAX);
        if self.ledger.grant(self.slot, ordinal, bytes, bytes) == 0 {
            device.module_unload(module)?;
            let text = format!(
                "The module's variables need {bytes} bytes, which the lease does not give of device {ordinal}"
            );
            return Err(Error::new(Code::OutOfMemory, text));
        }
        self.charged.lock().insert(module, (ordinal, bytes));
        Ok(info)
    }

    /// A module is unloaded.
    pub(super) fn unloaded(&self, module: Handle) {
        if let Some((ordinal, bytes)) = self.charged.lock().remove(&module) {
            self.ledger.take_back(self.slot, ordinal, bytes);
        }
    }

    /// All modules of an ordinal are unloaded.
    pub(super) fn reset(&self, ordinal: Ordinal) {
        self.charged.lock().retain(|_, (of, bytes)| {
            if *of == ordinal {
                self.ledger.take_back(self.slot, ordinal, *bytes);
            }
            *of != ordinal
        });
    }
}
