//! How long to wait before trying again.

use std::time::Duration;

/// Waits that get longer with each failure, and differ from node to node.
#[derive(Debug)]
pub(super) struct Backoff {
    failures: u32,
    /// Never zero: the state of the random numbers.
    state: u64,
}

/// After the first failure.
const FIRST: Duration = Duration::from_millis(200);
/// However many failures there were.
const LONGEST: Duration = Duration::from_secs(5);

impl Backoff {
    /// No failure yet. Different seeds spread out nodes that lost the same broker at the same time.
    pub(super) fn new(seed: u64) -> Self {
        Self { failures: 0, state: seed | 1 }
    }

    /// It went well.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// It failed: how long to wait now.
    pub(super) fn delay(&mut self) -> Duration {
        let whole = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        // Xorshift. Between half of it and all of it.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let part = (self.state >> 40) as f64 / (1u64 << 24) as f64;
        whole.mul_f64(0.5 + part / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_limit_and_start_again() {
        let mut backoff = Backoff::new(7);
        let waits: Vec<_> = (0..40).map(|_| backoff.delay()).collect();
        for (i, wait) in waits.iter().enumerate() {
            let whole = FIRST.saturating_mul(1 << i.min(16)).min(LONGEST);
            assert!(*wait >= whole / 2 && *wait <= whole, "{i}: {wait:?}");
        }
        assert!(waits[10..].iter().any(|wait| *wait != waits[9]), "they are all the same");
        backoff.reset();
        assert!(backoff.delay() <= FIRST);
        assert_ne!(Backoff::new(1).delay(), Backoff::new(1 << 40).delay());
    }
}
