//! XORWOW: an xorshift of 160 bits, to which a Weyl sequence is added.

use std::sync::OnceLock;

use crate::{Words, mixed};

/// What is added to the Weyl sequence at each step.
const STEP: u32 = 362_437;
/// The state that Marsaglia published: the xorshift's, oldest word first, and the Weyl sequence's.
const PUBLISHED: ([u32; 5], u32) =
    ([123_456_789, 362_436_069, 521_288_629, 88_675_123, 5_783_321], 6_615_241);

type State = [u32; 5];

fn step(state: State) -> State {
    let [x, y, z, w, v] = state;
    let t = x ^ (x >> 2);
    [y, z, w, v, (v ^ (v << 4)) ^ (t ^ (t << 1))]
}

/// A linear map of the state's bits: what each of them becomes.
type Map = [State; 160];

fn apply(map: &Map, state: State) -> State {
    let mut out = [0; 5];
    for (bit, image) in map.iter().enumerate() {
        if state[bit / 32] >> (bit % 32) & 1 == 1 {
            out.iter_mut().zip(image).for_each(|(out, image)| *out ^= image);
        }
    }
    out
}

/// The maps that do 2^n steps at once.
fn leaps() -> &'static [Map; 64] {
    static LEAPS: OnceLock<Box<[Map; 64]>> = OnceLock::new();
    LEAPS.get_or_init(|| {
        let mut leaps = Box::new([[[0; 5]; 160]; 64]);
        for bit in 0..160 {
            let mut state = [0; 5];
            state[bit / 32] = 1 << (bit % 32);
            leaps[0][bit] = step(state);
        }
        for n in 1..64 {
            let last = leaps[n - 1];
            leaps[n] = last.map(|image| apply(&last, image));
        }
        leaps
    })
}

/// The sequence of a seed; that of 0 begins in the published state.
pub(crate) struct Xorwow {
    state: State,
    weyl: u32,
}

impl Words for Xorwow {
    fn at(seed: u64, place: u64) -> Self {
        let (mut state, mut weyl) = PUBLISHED;
        if seed != 0 {
            for (i, word) in state.iter_mut().enumerate() {
                // Never all zeros, which is the one state that it does not leave.
                *word = mixed(seed, i as u64) as u32 | u32::from(i == 0);
            }
            weyl = mixed(seed, 5) as u32;
        }
        for (n, leap) in leaps().iter().enumerate() {
            if place >> n & 1 == 1 {
                state = apply(leap, state);
            }
        }
        Self { state, weyl: weyl.wrapping_add((place as u32).wrapping_mul(STEP)) }
    }

    fn next(&mut self) -> u32 {
        self.state = step(self.state);
        self.weyl = self.weyl.wrapping_add(STEP);
        self.state[4].wrapping_add(self.weyl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_no_seed_is_marsaglias() {
        // The algorithm as it stands in the paper, on six variables.
        let (mut x, mut y, mut z, mut w, mut v, mut d) =
            (123_456_789u32, 362_436_069u32, 521_288_629u32, 88_675_123u32, 5_783_321u32, 6_615_241u32);
        let mut ours = Xorwow::at(0, 0);
        for _ in 0..1000 {
            let t = x ^ (x >> 2);
            (x, y, z, w) = (y, z, w, v);
            v = (v ^ (v << 4)) ^ (t ^ (t << 1));
            d = d.wrapping_add(362_437);
            assert_eq!(ours.next(), d.wrapping_add(v));
        }
    }
}
