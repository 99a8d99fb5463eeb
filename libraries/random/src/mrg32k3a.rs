//! MRG32k3a: two recurrences of the third order, combined.

use crate::{Words, mixed};

const M1: u64 = 4_294_967_087;
const M2: u64 = 4_294_944_443;
/// What the states are multiplied by at each step, oldest number first.
const STEP1: Matrix = [[0, 1, 0], [0, 0, 1], [M1 - 810_728, 1_403_580, 0]];
const STEP2: Matrix = [[0, 1, 0], [0, 0, 1], [M2 - 1_370_589, 0, 527_612]];

type Matrix = [[u64; 3]; 3];

fn times(matrix: &Matrix, state: [u64; 3], m: u64) -> [u64; 3] {
    matrix.map(|row| row.iter().zip(state).fold(0, |sum, (&a, b)| (sum + a * b % m) % m))
}

fn squared(a: &Matrix, m: u64) -> Matrix {
    let mut out = [[0; 3]; 3];
    for column in 0..3 {
        let image = times(a, [a[0][column], a[1][column], a[2][column]], m);
        for row in 0..3 {
            out[row][column] = image[row];
        }
    }
    out
}

fn leap(mut step: Matrix, mut state: [u64; 3], mut count: u64, m: u64) -> [u64; 3] {
    while count > 0 {
        if count & 1 == 1 {
            state = times(&step, state, m);
        }
        step = squared(&step, m);
        count >>= 1;
    }
    state
}

/// The sequence of a seed; that of 0 begins with the numbers that are usual, 12345.
pub(crate) struct Mrg32k3a {
    first: [u64; 3],
    second: [u64; 3],
}

impl Words for Mrg32k3a {
    fn at(seed: u64, place: u64) -> Self {
        let number = |i: u64, m: u64| if seed == 0 { 12345 } else { 1 + mixed(seed, i) % (m - 1) };
        let of = |from: u64, m: u64| [from, from + 1, from + 2].map(|i| number(i, m));
        Self { first: leap(STEP1, of(0, M1), place, M1), second: leap(STEP2, of(3, M2), place, M2) }
    }

    fn next(&mut self) -> u32 {
        self.first = times(&STEP1, self.first, M1);
        self.second = times(&STEP2, self.second, M2);
        let (a, b) = (self.first[2], self.second[2]);
        // From 1 to M1, which is less than 2^32.
        (if a > b { a - b } else { a + M1 - b }) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_sequence_begins_as_published() {
        let mut words = Mrg32k3a::at(0, 0);
        let uniform = f64::from(words.next()) / (M1 as f64 + 1.0);
        assert!((uniform - 0.127_011_122_046_577).abs() < 1e-14, "{uniform}");
    }
}
