//! What a warp does, put together from what its lanes do one after another.
//!
//! A *visit* is one time that lanes of a warp are in one place together. Lanes are taken to be together in a place if they have made
//! the same turns of all loops around it, and are in the same calls: so they are on a GPU that lets lanes come together again as soon as
//! control flow allows. All that has a number of its own, a hash, so that the same visit of another lane is found whenever
//! that lane comes.
//!
//! A warp in a long loop makes many visits, all of which would have to be remembered until its last lane has ended. Where they are
//! too many, those whose numbers end in a zero are kept, then those that end in two, and so on; what they tell is then
//! multiplied. Since lanes agree on the numbers, they agree on what is kept.

use rustc_hash::FxHashMap;

/// So many visits of one kind are remembered for each warp.
const MOST: usize = 1 << 14;

/// Mixes two numbers into one all bits of which depend on all of theirs.
pub(super) fn mix(a: u64, b: u64) -> u64 {
    let mut h = a ^ b.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(31);
    h = (h ^ h >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    h = (h ^ h >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    h ^ h >> 31
}

/// Visits by their numbers, or a sample of them.
pub(super) struct Visits<T> {
    kept: FxHashMap<u64, T>,
    /// Those are kept in whose numbers all these bits are zero.
    mask: u64,
    most: usize,
}

impl<T> Default for Visits<T> {
    fn default() -> Self {
        Self { kept: FxHashMap::default(), mask: 0, most: MOST }
    }
}

impl<T> Visits<T> {
    /// The visit with a number, which `make` makes if it is new; `None` if it is not kept.
    pub(super) fn visit(&mut self, number: u64, make: impl FnOnce() -> T) -> Option<&mut T> {
        if self.kept.len() >= self.most && !self.kept.contains_key(&number) {
            self.mask = self.mask << 1 | 1;
            let mask = self.mask;
            self.kept.retain(|number, _| number & mask == 0);
        }
        (number & self.mask == 0).then(|| self.kept.entry(number).or_insert_with(make))
    }

    /// The visit with a number, if it is kept.
    pub(super) fn find(&mut self, number: u64) -> Option<&mut T> {
        self.kept.get_mut(&number)
    }

    /// Hands all out, each with how many it stands for. True if there were more than these.
    pub(super) fn drain(&mut self, mut each: impl FnMut(T, u64)) -> bool {
        let weight = self.mask + 1;
        self.kept.drain().for_each(|(_, visit)| each(visit, weight));
        self.mask = 0;
        weight > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_visits_are_counted_and_many_are_estimated() {
        let mut visits = Visits::default();
        for _lane in 0..32 {
            for turn in 0..1000 {
                visits.visit(mix(7, turn), || ());
            }
        }
        let mut sum = 0;
        assert!(!visits.drain(|(), weight| sum += weight));
        assert_eq!(sum, 1000);
        for _lane in 0..4 {
            for turn in 0..200_000 {
                visits.visit(mix(7, turn), || ());
            }
        }
        let mut sum = 0;
        assert!(visits.drain(|(), weight| sum += weight));
        assert!((180_000..220_000).contains(&sum), "{sum}");
    }
}
