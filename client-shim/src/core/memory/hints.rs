//! What the program has said of its managed memory: advice, and where it was prefetched to. Where that memory lies is the
//! device's business, so hints do nothing; they are kept to be told again (`cudaMemRangeGetAttribute`).

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use rgpu_device::{Ordinal, Range};

use super::Memory;

/// Hints are kept for whole pages of the processor.
const CPU_PAGE: u64 = 4096;

/// A place that memory may lie in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// A device's memory.
    Device(Ordinal),
    /// The host's memory.
    Host,
    /// The memory of one NUMA node of the host.
    HostNode(i32),
}

/// One hint: a piece of advice, or where to prefetch to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hint {
    /// Whether the range is mostly read.
    ReadMostly(bool),
    /// Where it would best lie; `None` takes that back.
    Preferred(Option<Place>),
    /// Whether a processor will access it.
    AccessedBy(Place, bool),
    /// Where it is fetched to.
    Prefetched(Place),
}

/// What holds of a range.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hints {
    /// Whether all of it is mostly read.
    pub read_mostly: bool,
    /// Where all of it would best lie.
    pub preferred: Option<Place>,
    /// Which processors will access all of it.
    pub accessed_by: BTreeSet<Place>,
    /// Where all of it was fetched to last.
    pub prefetched: Option<Place>,
}

impl Hints {
    fn take(&mut self, hint: Hint) {
        match hint {
            Hint::ReadMostly(on) => self.read_mostly = on,
            Hint::Preferred(place) => self.preferred = place,
            Hint::AccessedBy(place, true) => {
                self.accessed_by.insert(place);
            }
            Hint::AccessedBy(place, false) => {
                self.accessed_by.remove(&place);
            }
            Hint::Prefetched(place) => self.prefetched = Some(place),
        }
    }

    /// What holds of this range and of another.
    fn common(mut self, other: &Self) -> Self {
        self.read_mostly &= other.read_mostly;
        self.preferred = self.preferred.filter(|_| self.preferred == other.preferred);
        self.accessed_by.retain(|place| other.accessed_by.contains(place));
        self.prefetched = self.prefetched.filter(|_| self.prefetched == other.prefetched);
        self
    }
}

/// The hints of all memory: disjoint ranges, each by its start, with its end. Of what is in none nothing was said.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<u64, (u64, Hints)>);

impl Ranges {
    /// Has no range reach over an address.
    fn split(&mut self, at: u64) {
        if let Some((_, (end, hints))) = self.0.range_mut(..at).next_back()
            && *end > at
        {
            let rest = (*end, hints.clone());
            *end = at;
            self.0.insert(at, rest);
        }
    }

    /// Takes out all that lies between two addresses.
    fn cut(&mut self, start: u64, end: u64) -> Vec<(u64, (u64, Hints))> {
        self.split(start);
        self.split(end);
        self.0.extract_if(start..end, |_, _| true).collect()
    }

    fn give(&mut self, start: u64, end: u64, hint: Hint) {
        let mut at = start;
        for (from, (to, hints)) in self.cut(start, end) {
            self.put(at, from, Hints::default(), hint);
            self.put(from, to, hints, hint);
            at = to;
        }
        self.put(at, end, Hints::default(), hint);
    }

    /// Puts in a range of which something was said before, or nothing, with another hint. One without any is left out.
    fn put(&mut self, start: u64, end: u64, mut hints: Hints, hint: Hint) {
        hints.take(hint);
        if start < end && hints != Hints::default() {
            self.0.insert(start, (end, hints));
        }
    }

    fn of(&self, start: u64, end: u64) -> Hints {
        let first = self.0.range(..=start).next_back().map_or(start, |(from, _)| *from);
        let mut at = start;
        let mut common: Option<Hints> = None;
        for (from, (to, hints)) in self.0.range(first..end).filter(|(_, (to, _))| *to > start) {
            if *from > at {
                return Hints::default();
            }
            common = Some(common.map_or_else(|| hints.clone(), |so_far| so_far.common(hints)));
            at = *to;
        }
        common.filter(|_| at >= end).unwrap_or_default()
    }
}

/// What was said of managed memory.
#[derive(Debug, Default)]
pub(super) struct Said(Mutex<Ranges>);

impl Said {
    /// What was said of an allocation is forgotten.
    pub(super) fn forget(&self, base: u64, size: u64) {
        self.0.lock().cut(base, base.saturating_add(size));
    }
}

impl Memory {
    /// `cudaMemAdvise`, `cudaMemPrefetchAsync`: keeps what is said of the pages of a range, which is known to be managed memory.
    pub(crate) fn hint(&self, range: Range, hint: Hint) {
        let end = range.base.saturating_add(range.size);
        let start = range.base - range.base % CPU_PAGE;
        self.said.0.lock().give(start, end.checked_next_multiple_of(CPU_PAGE).unwrap_or(end), hint);
    }

    /// `cudaMemRangeGetAttribute`: what holds of all of a range.
    pub(crate) fn hints(&self, range: Range) -> Hints {
        self.said.0.lock().of(range.base, range.base.saturating_add(range.size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: Place = Place::Device(0);

    #[test]
    fn a_hint_holds_of_a_range_only_where_it_holds_of_all_of_it() {
        let mut ranges = Ranges::default();
        ranges.give(100, 200, Hint::Preferred(Some(NEAR)));
        ranges.give(200, 300, Hint::Preferred(Some(NEAR)));
        ranges.give(150, 250, Hint::ReadMostly(true));
        assert_eq!(ranges.of(100, 300), Hints { preferred: Some(NEAR), ..Hints::default() });
        assert!(ranges.of(160, 240).read_mostly);
        assert!(!ranges.of(149, 160).read_mostly);
        assert_eq!(ranges.of(99, 150), Hints::default());
        assert_eq!(ranges.of(290, 301), Hints::default());
        assert_eq!(ranges.of(300, 301), Hints::default());
        ranges.give(250, 260, Hint::Preferred(Some(Place::Host)));
        assert_eq!(ranges.of(240, 260).preferred, None);
        assert_eq!(ranges.of(250, 260).preferred, Some(Place::Host));
        assert_eq!(ranges.of(260, 300).preferred, Some(NEAR));
        ranges.give(250, 260, Hint::Preferred(None));
        assert_eq!(ranges.of(250, 260), Hints::default());
    }

    #[test]
    fn a_range_with_a_gap_has_no_hints() {
        let mut ranges = Ranges::default();
        ranges.give(100, 200, Hint::Prefetched(NEAR));
        ranges.give(300, 400, Hint::Prefetched(NEAR));
        assert_eq!(ranges.of(150, 350), Hints::default());
        ranges.give(150, 350, Hint::Prefetched(NEAR));
        assert_eq!(ranges.of(100, 400).prefetched, Some(NEAR));
        ranges.cut(0, 1000);
        assert_eq!(ranges.of(100, 400), Hints::default());
    }

    #[test]
    fn processors_that_access_all_of_a_range() {
        let mut ranges = Ranges::default();
        ranges.give(0, 100, Hint::AccessedBy(NEAR, true));
        ranges.give(50, 100, Hint::AccessedBy(Place::Host, true));
        let of =
            |ranges: &Ranges, start, end| ranges.of(start, end).accessed_by.into_iter().collect::<Vec<_>>();
        assert_eq!(of(&ranges, 0, 100), [NEAR]);
        assert_eq!(of(&ranges, 50, 100), [NEAR, Place::Host]);
        ranges.give(60, 70, Hint::AccessedBy(NEAR, false));
        assert_eq!(of(&ranges, 50, 100), [Place::Host]);
    }
}
