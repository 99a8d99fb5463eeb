//! Which images of modules the server has, and those that it may still ask for.
//!
//! The server tells in the hello which images it keeps for this tenant, by the beginnings of their hashes. One of those is
//! [begun](rgpu_protocol::calls::ModuleBegin) by its hash alone. Should the server have lost it since, it
//! asks for the image, which is therefore kept until a later answer shows that the module was begun.

use parking_lot::Mutex;
use rgpu_device::Handle;
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

impl Images {
    /// Keeps the image of a module that is about to be begun. False where that would be too many bytes.
    pub(super) fn keep(&self, module: Handle, image: &[u8]) -> bool {
        let mut kept = self.kept.lock();
        if kept.values().map(|(_, image)| image.len()).sum::<usize>() + image.len() > MAX_KEPT {
            return false;
        }
        // Numbers that are given out from now on are higher, the module's own among them.
        kept.insert(module, (u64::MAX, image.to_vec()));
        self.any.store(true, SeqCst);
        true
    }

    /// The module was begun before the call of this number.
    pub(super) fn begun(&self, module: Handle, sequence: u64) {
        if let Some(kept) = self.kept.lock().get_mut(&module) {
            kept.0 = sequence;
        }
    }

    /// Whatever was begun before the call that was answered is known to have an image. Says how many are let go.
    pub(super) fn confirmed(&self, sequence: u64) -> usize {
        if !self.any.load(SeqCst) {
            return 0;
        }
        let mut kept = self.kept.lock();
        let before = kept.len();
        kept.retain(|_, (begun, _)| *begun >= sequence);
        self.any.store(!kept.is_empty(), SeqCst);
        before - kept.len()
    }

    /// An image that the server wants after all.
    pub(super) fn take(&self, module: Handle) -> Option<Vec<u8>> {
        self.kept.lock().remove(&module).map(|(_, image)| image)
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
    /// What the server has told.
    pub(super) fn new(told: HelloExtras) -> Self {
        Self { kept: told.keeps_images, known: Mutex::new(told.images.into_iter().collect()) }
    }

    /// Whether the server keeps images.
    pub(super) fn keeps(&self) -> bool {
        self.kept
    }

    /// Whether the server has the image with this hash.
    pub(super) fn has(&self, hash: &[u8; 32]) -> bool {
        self.kept && self.known.lock().contains(&beginning(hash))
    }

    /// The server has got the image with this hash, and keeps it, if it keeps any.
    pub(super) fn add(&self, hash: &[u8; 32]) {
        if self.kept {
            self.known.lock().insert(beginning(hash));
        }
    }
}

/// By what the inventory knows a hash.
fn beginning(hash: &[u8; 32]) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hash[..8]);
    u64::from_le_bytes(bytes)
}
