//! Memory of other sessions that is open in this one. It is backed by no credit of this session, and what is sent to and from it
//! goes through the server: its pages are not those of this session's memory files.

use parking_lot::Mutex;
use rgpu_device::{Ordinal, Range, Region};
use std::collections::BTreeMap;

/// What is open, by address.
#[derive(Default)]
pub(super) struct Imported(Mutex<BTreeMap<u64, (Ordinal, u64)>>);

impl Imported {
    /// Other memory was placed there.
    pub(super) fn insert(&self, ordinal: Ordinal, place: Range) {
        self.0.lock().insert(place.base, (ordinal, place.size));
    }

    /// Takes out what begins there. False where that is nothing.
    pub(super) fn remove(&self, addr: u64) -> bool {
        self.0.lock().remove(&addr).is_some()
    }

    /// Nothing is there any more on an ordinal.
    pub(super) fn forget(&self, ordinal: Ordinal) {
        self.0.lock().retain(|_, (owner, _)| *owner != ordinal);
    }

    /// Whether a region lies in one.
    pub(super) fn holds(&self, region: &Region) -> bool {
        let open = self.0.lock();
        let before = open.range(..=region.addr).next_back();
        before
            .zip(region.extent())
            .is_some_and(|((&base, &(_, size)), extent)| Range { base, size }.contains(region.addr, extent))
    }
}
