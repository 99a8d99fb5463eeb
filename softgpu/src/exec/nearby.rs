//! What lies beside allocations. A GPU's memory is mapped in pages of 2 MiB, so that programs which read or write a little before
//! or behind an allocation run there. So they do here: what a kernel touches in a page that holds or borders some of an
//! allocation, where no memory is, becomes *scratch*: zeros, and whatever is written there. It belongs to no allocation, is
//! private memory of this process, and goes when no allocation is near any more. Farther away there is nothing, as on a GPU.

use std::collections::BTreeMap;

use rgpu_device::Range;

/// A GPU's page, in bytes.
const DEVICE_PAGE: u64 = 2 << 20;

/// Ranges that do not overlap: where each ends, by its beginning.
type Ranges = BTreeMap<u64, u64>;

/// What is mapped in the arena for allocations, and the scratch beside it.
#[derive(Debug, Default)]
pub(super) struct Nearby {
    mapped: Ranges,
    scratch: Ranges,
}

/// What there is to be done about an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing is near, or memory is there.
    Nothing,
    /// Scratch is there already.
    Scratch,
    /// Scratch is to be put here.
    Gap(Range),
}

/// Takes a range away from others.
fn cut(ranges: &mut Ranges, range: Range) {
    let overlapping: Vec<(u64, u64)> = ranges
        .range(..range.end())
        .rev()
        .take_while(|(_, end)| **end > range.base)
        .map(|(a, b)| (*a, *b))
        .collect();
    for (base, end) in overlapping {
        ranges.remove(&base);
        if base < range.base {
            ranges.insert(base, range.base);
        }
        if end > range.end() {
            ranges.insert(range.end(), end);
        }
    }
}

/// Where the last of the ranges that begin at or before an address ends.
fn end_before(ranges: &Ranges, addr: u64) -> Option<u64> {
    ranges.range(..=addr).next_back().map(|(_, end)| *end)
}

impl Nearby {
    /// Memory is mapped there now, in the place of scratch.
    pub(super) fn mapped(&mut self, part: Range) {
        cut(&mut self.scratch, part);
        cut(&mut self.mapped, part);
        self.mapped.insert(part.base, part.end());
    }

    /// Memory is there no longer. What has to go with it.
    pub(super) fn unmapped(&mut self, part: Range) -> Vec<Range> {
        cut(&mut self.mapped, part);
        let begin = part.base.saturating_sub(1) / DEVICE_PAGE * DEVICE_PAGE;
        let pages = self.scratch.range(begin..=part.end().saturating_add(DEVICE_PAGE));
        let lonely: Vec<Range> = pages
            .filter(|(base, _)| !self.is_near(**base / DEVICE_PAGE * DEVICE_PAGE))
            .map(|(&base, &end)| Range { base, size: end - base })
            .collect();
        for range in &lonely {
            self.scratch.remove(&range.base);
        }
        lonely
    }

    /// Whether a page holds some of an allocation, or borders one.
    fn is_near(&self, page: u64) -> bool {
        end_before(&self.mapped, page.saturating_add(DEVICE_PAGE)).is_some_and(|end| end >= page)
    }

    /// What there is to be done about an access to an address between these limits, where it faulted.
    pub(super) fn look(&self, addr: u64, limits: Range) -> Found {
        let page = addr / DEVICE_PAGE * DEVICE_PAGE;
        if !limits.contains(addr, 1) || !self.is_near(page) {
            return Found::Nothing;
        }
        let mut base = page.max(limits.base);
        let mut end = (page + DEVICE_PAGE).min(limits.end());
        for ranges in [&self.mapped, &self.scratch] {
            base = base.max(end_before(ranges, addr).unwrap_or(0));
            end = end.min(ranges.range(addr..).next().map_or(u64::MAX, |(base, _)| *base));
        }
        if end_before(&self.mapped, addr).is_some_and(|end| end > addr) {
            Found::Nothing
        } else if base > addr {
            Found::Scratch
        } else {
            Found::Gap(Range { base, size: end - base })
        }
    }

    /// Scratch is there now.
    pub(super) fn scratched(&mut self, gap: Range) {
        self.scratch.insert(gap.base, gap.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const LIMITS: Range = Range { base: 100 * MIB + (128 << 10), size: 100 * MIB };

    fn at(base: u64, size: u64) -> Range {
        Range { base, size }
    }

    #[test]
    fn gaps_reach_to_the_ends_of_pages_and_to_the_next_memory() {
        let mut nearby = Nearby::default();
        assert_eq!(nearby.look(120 * MIB, LIMITS), Found::Nothing);
        nearby.mapped(at(121 * MIB, 4096));
        nearby.mapped(at(121 * MIB + 8192, 4096));
        let gap = |addr| match nearby.look(addr, LIMITS) {
            Found::Gap(gap) => Some((gap.base, gap.end())),
            _ => None,
        };
        assert_eq!(gap(120 * MIB), Some((120 * MIB, 121 * MIB)));
        assert_eq!(gap(121 * MIB + 5000), Some((121 * MIB + 4096, 121 * MIB + 8192)));
        assert_eq!(gap(122 * MIB - 1), Some((121 * MIB + 12288, 122 * MIB)));
        assert_eq!(gap(121 * MIB + 1), None, "memory is there");
        assert_eq!((gap(120 * MIB - 1), gap(122 * MIB)), (None, None), "other pages");
    }

    #[test]
    fn pages_that_border_an_allocation_are_near() {
        let mut nearby = Nearby::default();
        nearby.mapped(at(120 * MIB, 4 * MIB));
        assert_eq!(nearby.look(118 * MIB, LIMITS), Found::Gap(at(118 * MIB, 2 * MIB)));
        assert_eq!(nearby.look(125 * MIB, LIMITS), Found::Gap(at(124 * MIB, 2 * MIB)));
        assert_eq!(nearby.look(118 * MIB - 1, LIMITS), Found::Nothing);
        assert_eq!(nearby.look(126 * MIB, LIMITS), Found::Nothing);
        // At the end of what may be mapped at all.
        nearby.mapped(at(102 * MIB, 4096));
        assert_eq!(
            nearby.look(101 * MIB, LIMITS),
            Found::Gap(Range { base: LIMITS.base, size: 102 * MIB - LIMITS.base })
        );
        assert_eq!(nearby.look(100 * MIB, LIMITS), Found::Nothing);
    }

    #[test]
    fn scratch_gives_way_and_goes_with_the_last_allocation() {
        let mut nearby = Nearby::default();
        nearby.mapped(at(120 * MIB, 4096));
        let Found::Gap(gap) = nearby.look(121 * MIB, LIMITS) else { panic!() };
        nearby.scratched(gap);
        assert_eq!(nearby.look(121 * MIB, LIMITS), Found::Scratch);
        // Memory in the middle of it: what is left of the scratch lies on both sides.
        nearby.mapped(at(121 * MIB, 8192));
        assert_eq!(nearby.look(121 * MIB, LIMITS), Found::Nothing);
        assert_eq!(nearby.look(121 * MIB + 8192, LIMITS), Found::Scratch);
        assert_eq!(nearby.unmapped(at(120 * MIB, 4096)), [], "an allocation is left in the page");
        let left = nearby.unmapped(at(121 * MIB, 8192));
        assert_eq!(left, [at(120 * MIB + 4096, MIB - 4096), at(121 * MIB + 8192, MIB - 8192)]);
        assert_eq!(nearby.look(121 * MIB, LIMITS), Found::Nothing);
        // Parts of what was mapped go one by one.
        nearby.mapped(at(130 * MIB, 8 * MIB));
        assert_eq!(nearby.unmapped(at(132 * MIB, MIB)), []);
        assert_eq!(nearby.look(132 * MIB, LIMITS), Found::Gap(at(132 * MIB, MIB)));
        assert_eq!(nearby.look(133 * MIB, LIMITS), Found::Nothing);
    }
}
