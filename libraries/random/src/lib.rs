//! The generators that cuRAND has, after their published descriptions, and the distributions made of their numbers.
//!
//! A generator is a sequence of words that a seed determines, of which any part can be had: [`Words::at`] begins at any place. So
//! a request can be cut into pieces, and who asks needs to keep nothing but how far it is. Quasirandom generators are sequences of
//! points, in [`quasi`].
//!
//! | generator | published in |
//! | --- | --- |
//! | XORWOW | Marsaglia, *Xorshift RNGs*, 2003 |
//! | MRG32k3a | L'Ecuyer, *Good parameters and implementations for combined multiple recursive random number generators*, 1999 |
//! | MT19937 | Matsumoto and Nishimura, *Mersenne Twister*, 1998 |
//! | Philox4x32-10 | Salmon, Moraes, Dror and Shaw, *Parallel random numbers: as easy as 1, 2, 3*, 2011 |
//! | Sobol | Joe and Kuo, *Constructing Sobol sequences with better two-dimensional projections*, 2008 |

mod distribution;
mod mrg32k3a;
mod mt19937;
mod philox;
mod poisson;
pub mod quasi;
mod xorwow;

pub use distribution::{Distribution, Pseudo, fill};
pub use philox::philox4x32_10;

/// A sequence of random words.
pub trait Words: Sized {
    /// The sequence of a seed, from the word of this number on.
    fn at(seed: u64, place: u64) -> Self;
    /// The next word.
    fn next(&mut self) -> u32;
    /// To be told when no more words are needed: what makes it quick to go on from here may be kept.
    fn leave(self, _seed: u64, _place: u64) {}
}

/// Makes of a seed numbers that have nothing to do with it or with each other (the step of SplitMix64).
fn mixed(seed: u64, number: u64) -> u64 {
    let mut z = seed.wrapping_add((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
