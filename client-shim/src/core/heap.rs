//! Finding room in an address range: best fit, with neighbours joined again.

use std::collections::{BTreeMap, BTreeSet};

/// The free parts of an address range.
#[derive(Debug, Clone, Default)]
pub(super) struct Spans {
    by_addr: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
}

impl Spans {
    /// Nothing is free.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Makes `size` bytes at `addr` free, joining them with free neighbours. Returns the free span they are now part of.
    pub(super) fn release(&mut self, mut addr: u64, mut size: u64) -> (u64, u64) {
        if size == 0 {
            return (addr, 0);
        }
        if let Some((&before, &len)) = self.by_addr.range(..addr).next_back()
            && before + len == addr
        {
            self.remove(before, len);
            addr = before;
            size += len;
        }
        if let Some(&len) = self.by_addr.get(&(addr + size)) {
            self.remove(addr + size, len);
            size += len;
        }
        self.insert(addr, size);
        (addr, size)
    }

    /// Takes `size` bytes aligned to `align` (a power of two) out of the smallest free span that has room.
    pub(super) fn take(&mut self, size: u64, align: u64) -> Option<u64> {
        let (len, start, at) = self.by_size.range((size, 0)..).find_map(|&(len, start)| {
            let at = start.checked_add(align - 1)? & !(align - 1);
            (at - start <= len && len - (at - start) >= size).then_some((len, start, at))
        })?;
        self.remove(start, len);
        self.insert(start, at - start);
        self.insert(at + size, start + len - at - size);
        Some(at)
    }

    /// Takes exactly these bytes. False (and nothing taken) where they are not all free.
    pub(super) fn take_at(&mut self, addr: u64, size: u64) -> bool {
        let Some((&start, &len)) = self.by_addr.range(..=addr).next_back() else { return false };
        if addr - start > len || len - (addr - start) < size {
            return false;
        }
        self.remove(start, len);
        self.insert(start, addr - start);
        self.insert(addr + size, start + len - addr - size);
        true
    }

    /// Bytes that are free in all.
    pub(super) fn total(&self) -> u64 {
        self.by_addr.values().sum()
    }

    fn insert(&mut self, addr: u64, size: u64) {
        if size > 0 {
            self.by_addr.insert(addr, size);
            self.by_size.insert((size, addr));
        }
    }

    fn remove(&mut self, addr: u64, size: u64) {
        self.by_addr.remove(&addr);
        self.by_size.remove(&(size, addr));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_fitting_span_is_taken_and_neighbours_join() {
        let mut spans = Spans::new();
        spans.release(0x1000, 0x4000);
        spans.release(0x10000, 0x1000);
        assert_eq!(spans.take(0x1000, 0x1000), Some(0x10000));
        let a = spans.take(0x800, 0x200).unwrap();
        let b = spans.take(0x800, 0x1000).unwrap();
        assert_eq!((a, b), (0x1000, 0x2000));
        assert_eq!(spans.take(0x4000, 1), None);
        spans.release(b, 0x800);
        assert_eq!(spans.release(a, 0x800), (0x1000, 0x4000));
        assert_eq!(spans.take(u64::MAX, 0x1000), None);
    }

    #[test]
    fn exact_places() {
        let mut spans = Spans::new();
        spans.release(0x1000, 0x3000);
        assert!(spans.take_at(0x2000, 0x1000));
        assert!(!spans.take_at(0x2000, 0x1000));
        assert!(!spans.take_at(0x3000, 0x2000));
        assert!(!spans.take_at(0, 0x10));
        assert_eq!(spans.total(), 0x2000);
    }

    #[test]
    fn random_use_never_overlaps_and_never_leaks() {
        let mut seed = 1u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            seed >> 33
        };
        let mut spans = Spans::new();
        spans.release(0x10000, 1 << 20);
        let mut live: Vec<(u64, u64)> = Vec::new();
        for _ in 0..5000 {
            if random() % 2 == 0 || live.is_empty() {
                let (size, align) = (1 + random() % 5000, 1 << (random() % 12));
                if let Some(at) = spans.take(size, align) {
                    assert_eq!(at % align, 0);
                    assert!(at >= 0x10000 && at + size <= 0x10000 + (1 << 20));
                    assert!(live.iter().all(|&(a, s)| at + size <= a || a + s <= at));
                    live.push((at, size));
                }
            } else {
                let (a, s) = live.swap_remove(random() as usize % live.len());
                spans.release(a, s);
            }
        }
        for (a, s) in live {
            spans.release(a, s);
        }
        assert_eq!(spans.take(1 << 20, 1), Some(0x10000));
    }
}
