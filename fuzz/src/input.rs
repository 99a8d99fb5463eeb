//! Making inputs: damage to valid ones.

use crate::random::Random;

/// No input is longer.
pub const MOST: usize = 64 << 10;

/// What inputs of a target are made of.
#[derive(Debug, Default)]
pub struct Material {
    /// Valid inputs, and ones that are nearly so.
    pub examples: Vec<Vec<u8>>,
    /// Pieces that mean something in the target's language.
    pub words: Vec<Vec<u8>>,
}

impl Material {
    /// Texts, and the words of their language.
    pub fn texts(examples: &[&str], words: &[&str]) -> Self {
        let bytes = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect();
        Self { examples: bytes(examples), words: bytes(words) }
    }
}

/// A place in `bytes`, and how many bytes there are from it on, at most `most`.
fn range(random: &mut Random, bytes: &[u8], most: usize) -> (usize, usize) {
    let at = random.below(bytes.len());
    (at, at + random.below((bytes.len() - at).min(most) + 1))
}

/// Writes a number over the bytes at a place, in either order.
fn overwrite(random: &mut Random, bytes: &mut [u8], number: u64) {
    let width = 1usize << random.below(4);
    if bytes.len() < width {
        return;
    }
    let at = random.below(bytes.len() - width + 1);
    let little = number.to_le_bytes();
    let place = &mut bytes[at..at + width];
    place.copy_from_slice(&little[..width]);
    if random.one_in(4) {
        place.reverse();
    }
}

/// Adds a little to the number that stands at a place.
fn nudge(random: &mut Random, bytes: &mut [u8]) {
    if bytes.is_empty() {
        return;
    }
    let at = random.below(bytes.len());
    let by = random.below(17) as u8;
    bytes[at] = bytes[at].wrapping_add(by).wrapping_sub(8);
}

/// Damages an input once.
fn damage(random: &mut Random, bytes: &mut Vec<u8>, material: &Material) {
    if bytes.is_empty() {
        bytes.push(random.next() as u8);
        return;
    }
    match random.below(12) {
        0 => {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        1 => {
            let at = random.below(bytes.len());
            bytes[at] = random.next() as u8;
        }
        2 => nudge(random, bytes),
        3 => {
            let number = random.awkward();
            overwrite(random, bytes, number);
        }
        // A length that is right, or nearly so.
        4 => {
            let number = (bytes.len() as u64).wrapping_add(random.below(9) as u64).wrapping_sub(4);
            overwrite(random, bytes, number);
        }
        5 => {
            let end = random.below(bytes.len());
            bytes.truncate(end);
        }
        6 => {
            let (from, to) = range(random, bytes, 64);
            bytes.drain(from..to);
        }
        7 => {
            let (from, to) = range(random, bytes, 512);
            let again = bytes[from..to].to_vec();
            insert(random, bytes, &again);
        }
        8 => {
            let count = random.below(32);
            let more: Vec<u8> = (0..count).map(|_| random.next() as u8).collect();
            insert(random, bytes, &more);
        }
        9 | 10 => {
            if let Some(word) = random.pick(&material.words).cloned() {
                match random.one_in(2) {
                    true => insert(random, bytes, &word),
                    false => {
                        let (from, to) = range(random, bytes, 24);
                        bytes.splice(from..to, word);
                    }
                }
            }
        }
        // The end of another.
        _ => {
            if let Some(other) = random.pick(&material.examples)
                && !other.is_empty()
            {
                let at = random.below(bytes.len() + 1);
                let from = random.below(other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
        }
    }
    bytes.truncate(MOST);
}

fn insert(random: &mut Random, bytes: &mut Vec<u8>, more: &[u8]) {
    let at = random.below(bytes.len() + 1);
    bytes.splice(at..at, more.iter().copied());
}

/// Makes an input in `into`, out of an example or of what was generated (which is there already). One in eight is left as it is.
pub fn make(random: &mut Random, into: &mut Vec<u8>, generated: bool, material: &Material) {
    if !generated {
        into.clear();
        match random.pick(&material.examples) {
            Some(example) => into.extend_from_slice(example),
            None => {
                let length = random.below(200);
                into.extend((0..length).map(|_| random.next() as u8));
            }
        }
    }
    if random.one_in(8) {
        return;
    }
    let times = 1 << random.below(4);
    for _ in 0..times {
        damage(random, into, material);
    }
}
