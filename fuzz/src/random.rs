//! Numbers that look random and follow from a seed.

/// A stream of numbers (SplitMix64: a few instructions for each, and good enough to choose damage by).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The stream of a target's input with this number.
    pub fn of(target: &str, seed: u64, number: u64) -> Self {
        let mut name = 0xcbf2_9ce4_8422_2325u64;
        for byte in target.bytes() {
            name = (name ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        let mut random = Self(name ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        random.0 = random.next().wrapping_add(number.wrapping_mul(0xd134_2543_de82_ef95));
        random
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 where that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        let at = self.below(list.len());
        list.get(at)
    }

    /// A number of the kind that breaks things: small, large, or next to a power of two; now and then any.
    pub fn awkward(&mut self) -> u64 {
        let power = 1u64 << self.below(64);
        match self.below(8) {
            0 => 0,
            1 => u64::MAX,
            2 => power,
            3 => power.wrapping_sub(1),
            4 => power.wrapping_add(1),
            5 => power.wrapping_neg(),
            6 => self.below(300) as u64,
            _ => self.next(),
        }
    }
}
