//! Which kernels of a session's modules the device cannot execute, for the client that asks when a program wants one of them.

use parking_lot::Mutex;
use rgpu_device::{Handle, ModuleInfo, Ordinal};
use rgpu_protocol::calls::{Refusal, Refusals};
use std::collections::HashMap;

/// The refused kernels of all loaded modules that have some.
#[derive(Default)]
pub(super) struct Refused {
    modules: Mutex<HashMap<Handle, (Ordinal, Vec<Refusal>)>>,
}

impl Refused {
    /// A module is loaded; it is noted before anybody is told so.
    pub(super) fn loaded(&self, ordinal: Ordinal, module: Handle, info: &ModuleInfo) {
        let kernels: Vec<Refusal> = info
            .functions
            .iter()
            .filter_map(|function| {
                let why = function.refusal.as_ref()?;
                Some(Refusal {
                    name: function.name.clone(),
                    code: why.code as u32,
                    message: why.message.clone(),
                })
            })
            .collect();
        if !kernels.is_empty() {
            self.modules.lock().insert(module, (ordinal, kernels));
        }
    }

    /// The refused kernels of a module; none where there is no such module.
    pub(super) fn of(&self, module: Handle) -> Refusals {
        let modules = self.modules.lock();
        Refusals { kernels: modules.get(&module).map(|(_, kernels)| kernels.clone()).unwrap_or_default() }
    }

    /// A module is unloaded.
    pub(super) fn unloaded(&self, module: Handle) {
        self.modules.lock().remove(&module);
    }

    /// All modules of an ordinal are unloaded.
    pub(super) fn reset(&self, ordinal: Ordinal) {
        self.modules.lock().retain(|_, (of, _)| *of != ordinal);
    }
}
