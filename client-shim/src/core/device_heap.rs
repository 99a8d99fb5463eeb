//! Where in a device's range its allocations lie.
//!
//! Small allocations share slabs, so that they cost no call to the device. Large ones are backed one by one, with a gap
//! behind them, so that running past their end faults. What is freed while the device may still be using it waits in
//! *limbo*: until everything that was enqueued before has finished, nobody else gets the place, except that a stream
//! may reuse what was freed in its own order.

use std::collections::BTreeMap;

use rgpu_device::{Handle, Range};

use super::heap::Spans;
use super::shared::PAGE;

/// Every address is a multiple of this.
pub(super) const ALIGN: u64 = 512;
/// The largest allocation that goes into a slab.
pub(super) const SMALL: u64 = 256 << 10;
/// Bytes of a slab.
pub(super) const SLAB: u64 = 2 << 20;
/// Large allocations and slabs start at multiples of this.
const GRANULE: u64 = 64 << 10;

/// How an allocation is backed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backing {
    /// In a slab.
    Slab,
    /// By pages of its own.
    Own,
}

#[derive(Debug, Clone, Copy)]
enum Freed {
    /// Bytes of a slab.
    Slab,
    /// Addresses whose pages the device was already told to free.
    Addresses,
    /// Pages that the device still backs.
    Backed,
    /// Addresses that the program had reserved.
    Reserved,
}

#[derive(Debug, Clone, Copy)]
struct Limbo {
    addr: u64,
    size: u64,
    what: Freed,
    /// Free for all once so much work has finished.
    until: u64,
    /// Free for this stream at once.
    stream: Option<Handle>,
}

/// A device's range.
#[derive(Debug, Default)]
pub(crate) struct DeviceHeap {
    addresses: Spans,
    small: Spans,
    slabs: BTreeMap<u64, u64>,
    limbo: Vec<Limbo>,
}

impl DeviceHeap {
    /// All of `range` is free.
    pub(crate) fn new(range: Range) -> Self {
        let mut heap = Self::default();
        heap.addresses.release(range.base, range.size);
        heap
    }

    /// The size that is kept for `bytes`, and how it is backed; `None` on overflow.
    pub(crate) fn shape(bytes: u64) -> Option<(u64, Backing)> {
        let size = bytes.max(1).checked_next_multiple_of(ALIGN)?;
        if size <= SMALL {
            Some((size, Backing::Slab))
        } else {
            Some((size.checked_next_multiple_of(PAGE)?, Backing::Own))
        }
    }

    /// Room in a slab.
    pub(crate) fn take_small(&mut self, size: u64) -> Option<u64> {
        self.small.take(size, ALIGN)
    }

    /// Addresses for pages of their own.
    pub(crate) fn take_addresses(&mut self, size: u64) -> Option<u64> {
        self.addresses.take(room(size)?, GRANULE)
    }

    /// Gives addresses back that were never backed or are no longer.
    pub(crate) fn return_addresses(&mut self, addr: u64, size: u64) {
        if let Some(room) = room(size) {
            self.addresses.release(addr, room);
        }
    }

    /// Addresses for the program to map memory at; all of them are its own.
    pub(crate) fn reserve(&mut self, size: u64, align: u64) -> Option<u64> {
        self.addresses.take(size, align.max(GRANULE))
    }

    /// Exactly these addresses; false where they are not all free.
    pub(crate) fn reserve_at(&mut self, addr: u64, size: u64) -> bool {
        self.addresses.take_at(addr, size)
    }

    /// Takes reserved addresses back, once so much work as had been enqueued has finished.
    pub(crate) fn unreserve(&mut self, addr: u64, size: u64, until: u64) {
        self.limbo.push(Limbo { addr, size, what: Freed::Reserved, until, stream: None });
    }

    /// A new slab was backed.
    pub(crate) fn add_slab(&mut self, addr: u64, size: u64) {
        self.slabs.insert(addr, size);
        self.small.release(addr, size);
    }

    /// What a stream freed in its own order and may have again: the place and how large it is kept.
    pub(crate) fn take_from_stream(
        &mut self,
        stream: Handle,
        size: u64,
        backing: Backing,
    ) -> Option<(u64, u64)> {
        let fits = |l: &Limbo| {
            l.stream == Some(stream)
                && l.size >= size
                && l.size / 2 <= size
                && matches!((l.what, backing), (Freed::Slab, Backing::Slab) | (Freed::Backed, Backing::Own))
        };
        let at = self.limbo.iter().position(fits)?;
        let found = self.limbo.swap_remove(at);
        Some((found.addr, found.size))
    }

    /// Something was freed. `until` is how much work had been enqueued; `stream` is set where it was freed in a stream's
    /// order. Own pages freed without a stream are the caller's to hand back to the device, at once.
    pub(crate) fn freed(
        &mut self,
        addr: u64,
        size: u64,
        backing: Backing,
        until: u64,
        stream: Option<Handle>,
    ) {
        let what = match (backing, stream) {
            (Backing::Slab, _) => Freed::Slab,
            (Backing::Own, Some(_)) => Freed::Backed,
            (Backing::Own, None) => Freed::Addresses,
        };
        self.limbo.push(Limbo { addr, size, what, until, stream });
    }

    /// A stream has finished everything up to `until`.
    pub(crate) fn stream_finished(&mut self, stream: Handle, until: u64) {
        for entry in &mut self.limbo {
            if entry.stream == Some(stream) && entry.until <= until {
                entry.until = 0;
            }
        }
    }

    /// Ends the limbo of all that is no longer in use when so much work has `finished`. The result is what the caller
    /// must hand back to the device now.
    pub(crate) fn settle(&mut self, finished: u64) -> Vec<u64> {
        let mut hand_back = Vec::new();
        let mut i = 0;
        while i < self.limbo.len() {
            if self.limbo[i].until > finished {
                i += 1;
                continue;
            }
            let entry = self.limbo.swap_remove(i);
            match entry.what {
                Freed::Slab => {
                    let (start, len) = self.small.release(entry.addr, entry.size);
                    // One empty slab is kept, so that a loop of malloc and free stays here.
                    if self.slabs.get(&start) == Some(&len) && self.small.total() - len >= SLAB / 2 {
                        self.small.take_at(start, len);
                        self.slabs.remove(&start);
                        self.return_addresses(start, len);
                        hand_back.push(start);
                    }
                }
                Freed::Addresses => self.return_addresses(entry.addr, entry.size),
                Freed::Reserved => drop(self.addresses.release(entry.addr, entry.size)),
                Freed::Backed => {
                    self.return_addresses(entry.addr, entry.size);
                    hand_back.push(entry.addr);
                }
            }
        }
        hand_back
    }

    /// Whether anything waits in limbo.
    pub(crate) fn has_limbo(&self) -> bool {
        !self.limbo.is_empty()
    }
}

/// The addresses kept for so many backed bytes: a gap of at least a page follows them.
fn room(size: u64) -> Option<u64> {
    size.checked_add(PAGE)?.checked_next_multiple_of(GRANULE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heap() -> DeviceHeap {
        DeviceHeap::new(Range { base: 1 << 30, size: 1 << 30 })
    }

    #[test]
    fn what_is_in_use_is_not_given_away() {
        let mut heap = heap();
        let slab = heap.take_addresses(SLAB).unwrap();
        heap.add_slab(slab, SLAB);
        let a = heap.take_small(512).unwrap();
        heap.freed(a, 512, Backing::Slab, 5, None);
        heap.settle(4);
        assert_ne!(heap.take_small(512), Some(a));
        heap.settle(5);
        assert_eq!(heap.take_small(512), Some(a));
    }

    #[test]
    fn a_stream_reuses_what_it_freed() {
        let mut heap = heap();
        let (size, backing) = DeviceHeap::shape(3 << 20).unwrap();
        let a = heap.take_addresses(size).unwrap();
        heap.freed(a, size, backing, 9, Some(0x100));
        assert_eq!(heap.take_from_stream(0x101, size, backing), None);
        assert_eq!(heap.take_from_stream(0x100, size, backing), Some((a, size)));
        heap.freed(a, size, backing, 9, Some(0x100));
        assert!(heap.settle(8).is_empty());
        heap.stream_finished(0x100, 9);
        assert_eq!(heap.settle(0), vec![a]);
        assert!(!heap.has_limbo());
    }

    #[test]
    fn large_allocations_have_a_gap_behind_them() {
        let mut heap = heap();
        let (size, backing) = DeviceHeap::shape(1 << 20).unwrap();
        assert_eq!(backing, Backing::Own);
        let a = heap.take_addresses(size).unwrap();
        let b = heap.take_addresses(size).unwrap();
        assert!(b >= a + size + PAGE);
        assert_eq!(DeviceHeap::shape(u64::MAX), None);
    }

    #[test]
    fn empty_slabs_go_back_but_one() {
        let mut heap = heap();
        let mut slabs = Vec::new();
        for _ in 0..3 {
            let slab = heap.take_addresses(SLAB).unwrap();
            heap.add_slab(slab, SLAB);
            slabs.push(slab);
        }
        let all: Vec<u64> = (0..3 * SLAB / SMALL).map(|_| heap.take_small(SMALL).unwrap()).collect();
        for addr in all {
            heap.freed(addr, SMALL, Backing::Slab, 0, None);
        }
        assert_eq!(heap.settle(0).len(), 2);
    }
}
