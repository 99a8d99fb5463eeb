//! Loading modules without waiting, and without sending what the server has: see [`images`](super::images).

use super::Remote;
use super::convert;
use super::outgoing::{Payload, cut_image};
use rgpu_device::{Code, Error, Handle, ModuleInfo, Ordinal, Result};
use rgpu_protocol::calls::{self as wire, Call, ModuleBegin, RefusalsAsk};
use rgpu_protocol::frame::MAX_BULK;

impl Remote {
    /// The server has loaded an image, and keeps it.
    pub(super) fn module_is_known(&self, image: &[u8]) {
        if self.inventory.keeps() {
            self.inventory.add(blake3::hash(image).as_bytes());
        }
    }

    pub(super) fn begin_module(
        &self,
        ordinal: Ordinal,
        module: Handle,
        image: &[u8],
        unproven: bool,
    ) -> Result<bool> {
        if self.minor < ModuleBegin::SINCE {
            return Ok(false);
        }
        self.link.errors.check(ordinal)?;
        let hash = *blake3::hash(image).as_bytes();
        let known = self.inventory.has(&hash);
        if known {
            if !self.link.images.keep(module, image) {
                return Ok(false);
            }
            self.link.attention_begins();
            let begun = self.link.module_begin(ordinal, module, hash, true);
            let sequence = self.link.out.lock().sequence;
            self.link.images.begun(module, sequence);
            begun?;
        } else if unproven {
            let (ahead, last) = cut_image(image);
            for part in ahead.chunks(MAX_BULK).chain([last]) {
                self.link.module_data(module, Payload::Bytes(part))?;
            }
            self.link.module_begin(ordinal, module, hash, false)?;
            self.inventory.add(&hash);
        }
        Ok(known || unproven)
    }

    pub(super) fn ask_about_module(&self, module: Handle) -> Result<ModuleInfo> {
        let info = self.link.module_info(module)?;
        self.contents(module, info)
    }

    /// What is in a module, from what the server tells of it; asks why where a kernel cannot be executed.
    pub(super) fn contents(&self, module: Handle, told: wire::ModuleInfo) -> Result<ModuleInfo> {
        let mut info = convert::module_info(told);
        // A server of an older version says so at the kernel's launch.
        if self.minor < RefusalsAsk::SINCE || info.functions.iter().all(|function| function.max_threads > 0) {
            return Ok(info);
        }
        for refusal in self.link.refusals(module)?.kernels {
            if let Some(function) = info.functions.iter_mut().find(|function| function.name == refusal.name) {
                function.refusal = Some(Error::new(Code::from_number(refusal.code), refusal.message));
            }
        }
        Ok(info)
    }
}
