//! How often workers have gone round their resident blocks: for blocks that let all others have a turn before they go on.

use std::sync::atomic::{AtomicU64, Ordering};

/// One worker's: twice the number of rounds that it has begun, and one more while it has blocks. In a line of its own, for it is written each round.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Of(AtomicU64);

/// See the module.
#[derive(Debug)]
pub(super) struct Rounds(Box<[Of]>);

/// How far all workers were at one time.
#[derive(Debug)]
pub(super) struct Then(Box<[u64]>);

impl Rounds {
    /// For so many workers.
    pub(super) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Of::default()).collect())
    }

    /// A worker begins a round of its resident blocks, of which there are some.
    pub(super) fn begin(&self, worker: u32) {
        let of = &self.0[worker as usize].0;
        // Nobody else writes it.
        let rounds = of.load(Ordering::Relaxed) >> 1;
        of.store((rounds + 1) << 1 | 1, Ordering::Release);
    }

    /// A worker has gone round, and has no blocks left.
    pub(super) fn rest(&self, worker: u32) {
        let of = &self.0[worker as usize].0;
        of.store(of.load(Ordering::Relaxed) & !1, Ordering::Release);
    }

    /// How far all are.
    pub(super) fn look(&self) -> Then {
        Then(self.0.iter().map(|of| of.0.load(Ordering::Acquire)).collect())
    }

    /// Whether since then all workers but one have gone round all blocks that they have. They may have been in a round then, which does not count.
    pub(super) fn is_over(&self, then: &Then, but: u32) -> bool {
        let pairs = self.0.iter().zip(&then.0).zip(0..);
        pairs.filter(|(_, worker)| *worker != but).all(|((of, then), _)| {
            let now = of.0.load(Ordering::Acquire);
            now & 1 == 0 || then & 1 == 0 || (now >> 1) >= (then >> 1) + 2
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_with_blocks_goes_round_once_more() {
        let rounds = Rounds::new(3);
        rounds.begin(1);
        let then = rounds.look();
        // The first is the one that asks, and the third has no blocks.
        assert!(!rounds.is_over(&then, 0));
        rounds.begin(1);
        assert!(!rounds.is_over(&then, 0), "it has ended the round that it was in");
        rounds.begin(1);
        assert!(rounds.is_over(&then, 0));
        let then = rounds.look();
        assert!(!rounds.is_over(&then, 2) && rounds.is_over(&then, 1));
        rounds.rest(1);
        assert!(rounds.is_over(&then, 2));
    }
}
