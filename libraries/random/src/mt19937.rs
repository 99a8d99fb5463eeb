//! MT19937. It cannot leap, so where a request ended is kept for the one that goes on there.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::Words;

const N: usize = 624;
const M: usize = 397;
/// So many ends are kept, the last ones.
const KEPT: usize = 32;

/// The sequence of a seed, as `init_genrand` begins it.
#[derive(Clone)]
pub(crate) struct Mt19937 {
    state: Box<[u32; N]>,
    next: usize,
}

/// Seed, place, and the sequence there.
static ENDS: Mutex<VecDeque<(u64, u64, Mt19937)>> = Mutex::new(VecDeque::new());

impl Mt19937 {
    fn new(seed: u64) -> Self {
        // The upper half of a seed is not lost: of two seeds that differ there alone, the sequences differ.
        let seed = if seed >> 32 == 0 { seed as u32 } else { crate::mixed(seed, 0) as u32 };
        let mut state = Box::new([seed; N]);
        for i in 1..N {
            let last = state[i - 1];
            state[i] = 1_812_433_253u32.wrapping_mul(last ^ (last >> 30)).wrapping_add(i as u32);
        }
        Self { state, next: N }
    }

    fn twist(&mut self) {
        for i in 0..N {
            let y = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % N] & 0x7fff_ffff);
            let odd = if y & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[i] = self.state[(i + M) % N] ^ (y >> 1) ^ odd;
        }
        self.next = 0;
    }
}

impl Words for Mt19937 {
    fn at(seed: u64, place: u64) -> Self {
        {
            let ends = ENDS.lock().unwrap_or_else(PoisonError::into_inner);
            let kept = ends.iter().find(|(s, p, _)| (*s, *p) == (seed, place));
            if let Some((_, _, kept)) = kept {
                return kept.clone();
            }
        }
        let mut words = Self::new(seed);
        // Whole states are cheaper to leave out than words.
        let from_here = place % N as u64;
        for _ in 0..place / N as u64 {
            words.twist();
            words.next = N;
        }
        for _ in 0..from_here {
            words.next();
        }
        words
    }

    fn next(&mut self) -> u32 {
        if self.next >= N {
            self.twist();
        }
        let mut y = self.state[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    fn leave(self, seed: u64, place: u64) {
        let mut ends = ENDS.lock().unwrap_or_else(PoisonError::into_inner);
        if ends.len() == KEPT {
            ends.pop_front();
        }
        ends.push_back((seed, place, self));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number that the C++ standard requires of `std::mt19937`.
    #[test]
    fn the_ten_thousandth_number_is_the_known_one() {
        let mut words = Mt19937::at(5489, 0);
        let last = (0..10_000).map(|_| words.next()).last();
        assert_eq!(last, Some(4_123_659_995));
    }
}
