//! Maps by numbers that the peers choose one after another: sequence numbers, handles.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by such numbers. Whoever chooses them badly on purpose slows down nobody but their own session.
pub type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// Spreads a number's bits in two instructions or three, where the standard one takes some forty.
#[derive(Debug, Default, Clone, Copy)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut number = [0; 8];
            number[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(number));
        }
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        // The high half of the product depends on all bits; the map looks at the lowest and the highest ones.
        let product = u128::from(self.0 ^ number) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    #[test]
    fn numbers_in_a_row_and_in_steps_are_spread() {
        let build = BuildHasherDefault::<NumberHasher>::default();
        for step in [1u64, 8, 16, 4096, 1 << 20, 1 << 32] {
            let hashes: Vec<u64> = (0..1024).map(|i| build.hash_one(i * step)).collect();
            // What a map of 2048 places looks at; by chance some 800 would differ.
            let places: HashSet<u64> = hashes.iter().map(|h| h % 2048).collect();
            assert!(places.len() > 700, "{} places for steps of {step}", places.len());
            let tags: HashSet<u64> = hashes.iter().map(|h| h >> 57).collect();
            assert!(tags.len() > 100, "{} tags for steps of {step}", tags.len());
        }
    }

    #[test]
    fn a_map_keeps_what_it_is_given() {
        let mut map = NumberMap::default();
        (0..1000u64).for_each(|i| assert!(map.insert(i << 12, i).is_none()));
        assert!((0..1000).all(|i| map.remove(&(i << 12)) == Some(i)));
    }
}
