//! Maps by numbers that the peers choose one after another: sequence numbers, handles.

use rustc_hash::FxHasher;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

/// A map by such numbers, which are hashed in two instructions, where the standard hash takes some forty. Whoever chooses them
/// badly on purpose slows down nobody but their own session.
pub type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<FxHasher>>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    #[test]
    fn numbers_in_a_row_and_in_steps_are_spread() {
        let build = BuildHasherDefault::<FxHasher>::default();
        for step in [1u64, 8, 16, 64, 4096, 1 << 20, 1 << 32] {
            let hashes: Vec<u64> = (0..1024).map(|i| build.hash_one(i * step)).collect();
            // What a map of 2048 places looks at: by chance some 800 would differ, and all of the 128 tags. Handles come in steps
            // of 64, numbers of calls in steps of 1; the others are what addresses could be.
            let places: HashSet<u64> = hashes.iter().map(|h| h % 2048).collect();
            assert!(places.len() > 600, "{} places for steps of {step}", places.len());
            let tags: HashSet<u64> = hashes.iter().map(|h| h >> 57).collect();
            assert!(tags.len() > 60, "{} tags for steps of {step}", tags.len());
        }
    }
}
