//! Philox4x32-10: four words for each value of a counter.

use crate::Words;

/// The four words of a counter and a key.
pub fn philox4x32_10(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    let product = |a: u32, b: u32| {
        let product = u64::from(a) * u64::from(b);
        ((product >> 32) as u32, product as u32)
    };
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
        }
        let (high0, low0) = product(0xd251_1f53, counter[0]);
        let (high1, low1) = product(0xcd9e_8d57, counter[2]);
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0];
    }
    counter
}

/// The sequence whose key is the seed, and whose counter counts from 0.
pub(crate) struct Philox {
    key: [u32; 2],
    block: u64,
    words: [u32; 4],
    next: usize,
}

impl Philox {
    fn refill(&mut self) {
        let counter = [self.block as u32, (self.block >> 32) as u32, 0, 0];
        self.words = philox4x32_10(counter, self.key);
    }
}

impl Words for Philox {
    fn at(seed: u64, place: u64) -> Self {
        let key = [seed as u32, (seed >> 32) as u32];
        let mut philox = Self { key, block: place / 4, words: [0; 4], next: (place % 4) as usize };
        philox.refill();
        philox
    }

    fn next(&mut self) -> u32 {
        if self.next == 4 {
            self.next = 0;
            self.block = self.block.wrapping_add(1);
            self.refill();
        }
        self.next += 1;
        self.words[self.next - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors that its authors publish with Random123.
    #[test]
    fn words_are_those_that_were_published() {
        assert_eq!(philox4x32_10([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox4x32_10([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox4x32_10([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }
}
