//! Loading modules without waiting, and without sending what the server has.
//!
//! The server tells in the hello which images it keeps for this tenant, by the beginnings of their hashes. One of those is
//! [begun](rgpu_protocol::calls::ModuleBegin) by its hash alone. Should the server have lost it since, it
//! asks for the image, which is therefore kept until a later answer shows that the module was begun.

use super::Remote;
use super::convert;
use super::link::Link;
use super::outgoing::{Payload, Urgent, cut_image};
use parking_lot::Mutex;
use rgpu_device::{Handle, ModuleInfo, Ordinal, Result};
use rgpu_protocol::calls::{Call, ModuleBegin};
use rgpu_protocol::frame::MAX_BULK;
use rgpu_protocol::hello::HelloExtras;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// More bytes of images than this are not kept: then the server is asked, which confirms all.
const MAX_KEPT: usize = 256 << 20;

/// Images of modules that were begun by their hash.
#[derive(Default)]
pub(super) struct Images {
    any: AtomicBool,
    /// With the sequence number of a call before which the module was begun.
    kept: Mutex<HashMap<Handle, (u64, Vec<u8>)>>,
}

impl Link {
    /// Whatever was begun before the call that was answered is known to have an image.
    pub(super) fn images_confirmed(&self, sequence: u64) {
        if !self.images.any.load(SeqCst) {
            return;
        }
        let mut kept = self.images.kept.lock();
        kept.retain(|_, (begun, _)| {
            let stays = *begun >= sequence;
            if !stays {
                self.attention_ends();
            }
            stays
        });
        self.images.any.store(!kept.is_empty(), SeqCst);
    }

    /// Sends an image that the server wants. False where there is none.
    pub(super) fn send_image(&self, module: Handle) -> bool {
        let Some((_, image)) = self.images.kept.lock().remove(&module) else { return false };
        self.attention_ends();
        self.answer(Urgent::Image(module, image));
        true
    }
}

/// What the server keeps for this tenant.
#[derive(Default)]
pub(super) struct Inventory {
    /// Whether it keeps anything.
    kept: bool,
    known: Mutex<HashSet<u64>>,
}

impl Inventory {
    pub fn new(told: HelloExtras) -> Self {
        Self { kept: told.keeps_images, known: Mutex::new(told.images.into_iter().collect()) }
    }
}

/// By what the inventory knows a hash.
fn beginning(hash: &[u8; 32]) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hash[..8]);
    u64::from_le_bytes(bytes)
}

impl Remote {
    /// The server has loaded an image, and keeps it.
    pub(super) fn module_is_known(&self, image: &[u8]) {
        if self.inventory.kept {
            self.inventory.known.lock().insert(beginning(blake3::hash(image).as_bytes()));
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
        let known = self.inventory.kept && self.inventory.known.lock().contains(&beginning(&hash));
        if known {
            let mut kept = self.link.images.kept.lock();
            if kept.values().map(|(_, image)| image.len()).sum::<usize>() + image.len() > MAX_KEPT {
                return Ok(false);
            }
            // Numbers that are given out from now on are higher, the module's own among them.
            kept.insert(module, (u64::MAX, image.to_vec()));
            self.link.images.any.store(true, SeqCst);
            drop(kept);
            self.link.attention_begins();
            let begun = self.link.module_begin(ordinal, module, hash, true);
            let sequence = self.link.out.lock().sequence;
            if let Some(kept) = self.link.images.kept.lock().get_mut(&module) {
                kept.0 = sequence;
            }
            begun?;
        } else if unproven {
            let (ahead, last) = cut_image(image);
            for part in ahead.chunks(MAX_BULK).chain([last]) {
                self.link.module_data(module, Payload::Bytes(part))?;
            }
            self.link.module_begin(ordinal, module, hash, false)?;
            if self.inventory.kept {
                self.inventory.known.lock().insert(beginning(&hash));
            }
        }
        Ok(known || unproven)
    }

    pub(super) fn ask_about_module(&self, module: Handle) -> Result<ModuleInfo> {
        Ok(convert::module_info(self.link.module_info(module)?))
    }
}
