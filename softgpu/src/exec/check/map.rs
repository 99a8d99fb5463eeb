//! What a program has allocated, to the byte, and which bytes of it were written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rgpu_device::Range;

use super::{commas, plural};

/// How many allocations are remembered that were freed.
const REMEMBERED: usize = 65_536;
/// How many allocations are remembered in all: another party's program may make them for no other purpose than to use memory up.
pub(super) const MOST: usize = 1 << 20;

/// A bit for each byte of an allocation: whether it was written.
pub(super) struct Bits(Box<[AtomicU64]>);

impl Bits {
    /// None is written yet. `None` where there is no memory to know it.
    fn new(bytes: u64) -> Option<Self> {
        let words = usize::try_from(bytes.div_ceil(64)).ok()?;
        let mut all = Vec::new();
        all.try_reserve_exact(words).ok()?;
        all.resize_with(words, || AtomicU64::new(0));
        Some(Self(all.into_boxed_slice()))
    }

    /// Calls something for each word with bits of these bytes, and its mask.
    fn words(&self, from: u64, len: u64, mut each: impl FnMut(&AtomicU64, u64)) {
        let (mut at, end) = (from, from.saturating_add(len).min(self.0.len() as u64 * 64));
        while at < end {
            let bit = at % 64;
            let count = (64 - bit).min(end - at);
            let mask = if count == 64 { !0 } else { ((1u64 << count) - 1) << bit };
            each(&self.0[(at / 64) as usize], mask);
            at += count;
        }
    }

    /// These bytes are written.
    pub(super) fn set(&self, from: u64, len: u64) {
        self.words(from, len, |word, mask| {
            if word.load(Ordering::Relaxed) & mask != mask {
                word.fetch_or(mask, Ordering::Relaxed);
            }
        });
    }

    /// Whether all of these bytes were written.
    pub(super) fn all(&self, from: u64, len: u64) -> bool {
        let mut all = true;
        self.words(from, len, |word, mask| all &= word.load(Ordering::Relaxed) & mask == mask);
        all
    }
}

struct Allocation {
    size: u64,
    /// A number of its own.
    number: u64,
    /// Whether the program has to free it.
    device: bool,
    freed: bool,
    bits: Option<Arc<Bits>>,
}

/// All allocations by where they begin, those included that were freed and nothing has taken the place of.
#[derive(Default)]
pub(super) struct Map {
    all: BTreeMap<u64, Allocation>,
    freed: usize,
    next: u64,
}

/// Where an access goes.
pub(super) enum Found {
    /// To this allocation.
    Inside(Range, Option<Arc<Bits>>),
    /// To several that lie side by side.
    Throughout,
    /// To none.
    Outside,
}

impl Map {
    /// Something was allocated. False where it cannot be remembered.
    pub(super) fn add(&mut self, range: Range, device: bool, track: bool) -> bool {
        if range.base.checked_add(range.size).is_none() {
            return false;
        }
        let covered: Vec<u64> = self
            .all
            .range(..range.end())
            .rev()
            .take_while(|(base, a)| *base + a.size > range.base || a.freed)
            .filter(|(base, a)| *base + a.size > range.base && **base < range.end())
            .map(|(&base, _)| base)
            .take(REMEMBERED)
            .collect();
        let mut in_use = false;
        for base in covered {
            match self.all.remove(&base) {
                Some(gone) if gone.freed => self.freed -= 1,
                Some(_) => in_use = true,
                None => {}
            }
        }
        if self.all.len() >= MOST {
            self.forget_freed();
        }
        if self.all.len() >= MOST {
            return false;
        }
        self.next += 1;
        // What is freed and allocated in a stream's order takes the place of what earlier work of the stream may still be reading.
        let bits = if track && !in_use { Bits::new(range.size).map(Arc::new) } else { None };
        let new = Allocation { size: range.size, number: self.next, device, freed: false, bits };
        if self.all.insert(range.base, new).is_some_and(|gone| gone.freed) {
            self.freed -= 1;
        }
        true
    }

    fn forget_freed(&mut self) {
        self.all.retain(|_, a| !a.freed);
        self.freed = 0;
    }

    /// The number of the allocation that begins there.
    pub(super) fn number(&self, base: u64) -> Option<u64> {
        self.all.get(&base).filter(|a| !a.freed).map(|a| a.number)
    }

    /// An allocation was freed: the one with that number, if one is given.
    pub(super) fn free(&mut self, base: u64, number: Option<u64>) {
        let Some(found) = self.all.get_mut(&base) else { return };
        if found.freed || number.is_some_and(|number| number != found.number) {
            return;
        }
        (found.freed, found.bits) = (true, None);
        self.freed += 1;
        if self.freed > REMEMBERED {
            self.forget_freed();
        }
    }

    /// The size of what was freed there, if something was.
    pub(super) fn freed_at(&self, base: u64) -> Option<u64> {
        self.all.get(&base).filter(|a| a.freed).map(|a| a.size)
    }

    fn around(&self, address: u64) -> Option<(u64, &Allocation)> {
        let (&base, found) = self.all.range(..=address).next_back()?;
        (address - base < found.size).then_some((base, found))
    }

    /// Where the bytes lie.
    pub(super) fn find(&self, address: u64, len: u64) -> Found {
        let live = |at| self.around(at).filter(|(_, a)| !a.freed);
        let Some((base, found)) = live(address) else { return Found::Outside };
        let range = Range { base, size: found.size };
        if range.contains(address, len) {
            return Found::Inside(range, found.bits.clone());
        }
        // Mappings of virtual memory may lie side by side.
        let mut at = range.end();
        while at < address + len {
            match live(at) {
                Some((base, next)) => at = base + next.size,
                None => return Found::Outside,
            }
        }
        Found::Throughout
    }

    /// What is at an address or near it, in words.
    pub(super) fn near(&self, address: u64) -> Option<String> {
        let words = |base: u64, a: &Allocation| {
            format!("at {base:#x} of size {} byte{}", commas(a.size), plural(a.size))
        };
        if let Some((base, a)) = self.around(address).filter(|(_, a)| a.freed) {
            return Some(format!("and is inside an allocation {} that was freed", words(base, a)));
        }
        let live = |(_, a): &(&u64, &Allocation)| !a.freed;
        let before = self.all.range(..=address).rev().find(live);
        let after = self.all.range(address..).find(live);
        let behind = before.map(|(&base, a)| ((address - base).saturating_sub(a.size) + 1, base, a));
        let ahead = after.map(|(&base, a)| (base - address, base, a));
        match (behind, ahead) {
            (Some((distance, base, a)), ahead) if ahead.is_none_or(|(other, ..)| distance <= other) => {
                let (n, s) = (commas(distance), plural(distance));
                Some(format!("and is {n} byte{s} after the nearest allocation {}", words(base, a)))
            }
            (_, Some((distance, base, a))) => {
                let (n, s) = (commas(distance), plural(distance));
                Some(format!("and is {n} byte{s} before the nearest allocation {}", words(base, a)))
            }
            _ => None,
        }
    }

    /// Something writes these bytes.
    pub(super) fn mark(&self, address: u64, len: u64) {
        let end = address.saturating_add(len);
        let mut at = address;
        while at < end {
            let Some((base, found)) = self.around(at) else { return };
            let until = end.min(base + found.size);
            if let Some(bits) = &found.bits {
                bits.set(at - base, until - at);
            }
            at = until;
        }
    }

    /// What the program should have freed: where it begins, and its size.
    pub(super) fn left(&self) -> impl Iterator<Item = (u64, u64)> {
        self.all.iter().filter(|(_, a)| a.device && !a.freed).map(|(&base, a)| (base, a.size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_apart() {
        let bits = Bits::new(200).unwrap();
        bits.set(60, 10);
        bits.set(128, 64);
        assert!(
            bits.all(60, 10)
                && bits.all(128, 64)
                && !bits.all(59, 2)
                && !bits.all(69, 2)
                && !bits.all(190, 3)
        );
        bits.set(190, 1000);
        assert!(bits.all(128, 72));
    }

    #[test]
    fn what_takes_the_place_of_something_in_use_counts_as_written() {
        let mut map = Map::default();
        let at = Range { base: 1000, size: 100 };
        let is_tracked = |map: &Map| matches!(map.find(1000, 100), Found::Inside(_, Some(_)));
        map.add(at, true, true);
        assert!(is_tracked(&map));
        let first = map.number(1000);
        map.add(at, true, true);
        assert!(!is_tracked(&map));
        // The first one is freed when its stream gets there, which is too late for what came afterwards.
        map.free(1000, first);
        assert!(matches!(map.find(1000, 100), Found::Inside(..)));
        map.free(1000, map.number(1000));
        map.add(at, true, true);
        assert!(is_tracked(&map));
    }

    #[test]
    fn what_was_freed_is_remembered_until_something_takes_its_place() {
        let mut map = Map::default();
        let at = |base, size| Range { base, size };
        map.add(at(1000, 100), true, false);
        map.add(at(1100, 50), true, false);
        assert!(matches!(map.find(1099, 1), Found::Inside(..)));
        assert!(matches!(map.find(1099, 2), Found::Throughout));
        assert!(matches!(map.find(1149, 2), Found::Outside));
        let first = map.number(1000);
        map.free(1000, first);
        assert!(matches!(map.find(1050, 1), Found::Outside));
        assert_eq!(
            map.near(1050).unwrap(),
            "and is inside an allocation at 0x3e8 of size 100 bytes that was freed"
        );
        assert_eq!(
            map.near(1150).unwrap(),
            "and is 1 byte after the nearest allocation at 0x44c of size 50 bytes"
        );
        assert_eq!(
            map.near(990).unwrap(),
            "and is 110 bytes before the nearest allocation at 0x44c of size 50 bytes"
        );
        assert_eq!((map.freed_at(1000), map.freed_at(1001)), (Some(100), None));
        map.add(at(1040, 20), true, false);
        map.free(1040, first);
        assert!(matches!(map.find(1050, 1), Found::Inside(..)), "another allocation was meant");
        assert_eq!(map.freed_at(1000), None);
        assert_eq!(map.left().collect::<Vec<_>>(), [(1040, 20), (1100, 50)]);
    }
}
