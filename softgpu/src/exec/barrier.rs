//! The sixteen barriers of a block.

use super::warp::lanes;
use crate::abi::{ReduceOp, WARP};

const WARPS: usize = 32;

#[derive(Debug, Clone, Copy)]
struct Barrier {
    /// Threads that it waits for; 0 means all that are alive.
    count: u32,
    /// Predicates of those that have arrived.
    yes: u32,
    no: u32,
    /// Lanes that have arrived, by warp.
    arrived: [u32; WARPS],
}

const EMPTY: Barrier = Barrier { count: 0, yes: 0, no: 0, arrived: [0; WARPS] };

/// What a barrier has found out about the predicates brought to it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Outcome {
    yes: u32,
    no: u32,
}

impl Outcome {
    /// One more predicate.
    pub(super) fn count(&mut self, predicate: bool) {
        *(if predicate { &mut self.yes } else { &mut self.no }) += 1;
    }

    /// The result of `bar.red`.
    pub(super) fn of(self, op: ReduceOp) -> u32 {
        match op {
            ReduceOp::PredicateAnd | ReduceOp::And => u32::from(self.no == 0),
            ReduceOp::PredicateOr | ReduceOp::Or => u32::from(self.yes != 0),
            _ => self.yes,
        }
    }
}

/// Who has arrived where.
pub(super) struct Barriers {
    /// None before a thread has arrived at one of them: most launches of small kernels never need their two kilobytes.
    all: Vec<Barrier>,
    touched: u32,
}

impl Barriers {
    /// Nobody anywhere.
    pub(super) fn new() -> Self {
        Self { all: Vec::new(), touched: 0 }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        for number in lanes(self.touched) {
            self.all[number] = EMPTY;
        }
        self.touched = 0;
    }

    /// The barriers that somebody has arrived at, as bits.
    pub(super) fn touched(&self) -> u32 {
        self.touched
    }

    /// Whether nobody has arrived there.
    pub(super) fn is_untouched(&self, number: u64) -> bool {
        self.touched >> number & 1 == 0
    }

    /// A lane arrives.
    pub(super) fn arrive(&mut self, number: usize, count: u32, warp: usize, lane: u32, predicate: bool) {
        self.all.resize(16, EMPTY);
        let barrier = &mut self.all[number];
        barrier.count = count;
        barrier.arrived[warp] |= lane;
        *(if predicate { &mut barrier.yes } else { &mut barrier.no }) += 1;
        self.touched |= 1 << number;
    }

    /// All lanes of a warp arrive.
    pub(super) fn arrive_all(&mut self, number: usize, count: u32, warp: usize) {
        self.all.resize(16, EMPTY);
        let barrier = &mut self.all[number];
        barrier.count = count;
        barrier.arrived[warp] = !0;
        barrier.no += WARP as u32;
        self.touched |= 1 << number;
    }

    /// The lanes of a warp that have arrived.
    pub(super) fn arrived(&self, number: usize, warp: usize) -> u32 {
        self.all.get(number).map_or(0, |barrier| barrier.arrived[warp])
    }

    /// Whether everybody it waits for is there. `alive` are the lanes that have not ended, by warp. With a
    /// count, a warp counts in full as soon as its living lanes have arrived.
    pub(super) fn is_complete(&self, number: usize, alive: impl Iterator<Item = u32>) -> bool {
        if self.is_untouched(number as u64) {
            return false;
        }
        let barrier = &self.all[number];
        if barrier.count == 0 {
            return alive.zip(barrier.arrived).all(|(alive, arrived)| alive & !arrived == 0);
        }
        let (mut sum, mut everybody) = (0, true);
        for (alive, arrived) in alive.zip(barrier.arrived) {
            let missing = alive & !arrived;
            everybody &= missing == 0;
            sum += match (arrived, missing) {
                (0, _) => 0,
                (_, 0) => 32,
                _ => arrived.count_ones(),
            };
        }
        sum >= barrier.count || everybody
    }

    /// The outcome for those who have arrived.
    pub(super) fn complete(&self, number: usize) -> Outcome {
        Outcome { yes: self.all[number].yes, no: self.all[number].no }
    }

    /// Begins its next round.
    pub(super) fn reset(&mut self, number: usize) {
        self.all[number] = EMPTY;
        self.touched &= !(1 << number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_threads_and_partial_warps_do_not_hold_a_barrier_up() {
        let mut barriers = Barriers::new();
        for lane in 0..32 {
            barriers.arrive(0, 0, 0, 1 << lane, lane < 3);
        }
        assert!(!barriers.is_complete(0, [!0, 1].into_iter()));
        assert!(barriers.is_complete(0, [!0, 0].into_iter()));
        assert_eq!(barriers.complete(0).of(ReduceOp::Popc), 3);
        assert_eq!(barriers.complete(0).of(ReduceOp::PredicateAnd), 0);
        // 48 threads, told to wait for 64.
        barriers.reset(0);
        for lane in 0..32 {
            barriers.arrive(1, 64, 0, 1 << lane, true);
        }
        for lane in 0..16 {
            assert!(!barriers.is_complete(1, [!0, 0xffff].into_iter()));
            barriers.arrive(1, 64, 1, 1 << lane, true);
        }
        assert!(barriers.is_complete(1, [!0, 0xffff].into_iter()));
    }
}
