//! Waiting without sleeping, for as long as that pays.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// As long as two sleeps and wake-ups cost, more or less; longer would waste the processor. (To wake a processor that
/// sleeps takes up to 50 µs in a virtual machine.)
const LONGEST: Duration = Duration::from_micros(100);
/// Looks before the processor is first offered to others, where looking costs nothing: where answers come at once, and elsewhere.
const LOOKS: (u32, u32) = (64, 4);
/// What comes within this time comes at once: whoever sends it has a processor of its own.
const AT_ONCE: Duration = Duration::from_nanos(1500);

/// How long a connection's next wait looks before it sleeps: long while answers have been coming quickly,
/// hardly at all while they have not.
#[derive(Debug)]
pub(super) struct Spin {
    budget_ns: AtomicU32,
    /// How often the next wait looks at first.
    looks: AtomicU32,
}

impl Default for Spin {
    fn default() -> Self {
        Self { budget_ns: AtomicU32::new(LONGEST.as_nanos() as u32), looks: AtomicU32::new(LOOKS.0) }
    }
}

impl Spin {
    /// Looks until `there` says so; false where that took too long and the caller should sleep. `cheap` says that looking is
    /// no system call.
    ///
    /// Between looks the processor is offered to whoever else wants it. That may be who is waited for: the peer, or a
    /// thread that computes the answer. So this is right with fewer processors than waiting threads, and with a single one.
    /// Where it seems to be so the first offer is made early.
    pub(super) fn look(&self, start: Instant, cheap: bool, mut there: impl FnMut() -> bool) -> bool {
        let budget = Duration::from_nanos(self.budget_ns.load(Relaxed).into());
        for _ in 0..if cheap { self.looks.load(Relaxed) } else { 1 } {
            if there() {
                return true;
            }
            std::hint::spin_loop();
        }
        loop {
            if start.elapsed() >= budget {
                return false;
            }
            std::thread::yield_now();
            if there() {
                let looks = if start.elapsed() < AT_ONCE { LOOKS.0 } else { LOOKS.1 };
                self.looks.store(looks, Relaxed);
                return true;
            }
        }
    }

    /// A wait that had begun at `start` slept, and is over: the next one looks the longer the shorter this one was.
    pub(super) fn slept(&self, start: Instant) {
        if start.elapsed() < LONGEST * 3 {
            self.budget_ns.store(LONGEST.as_nanos() as u32, Relaxed);
        } else {
            let budget = self.budget_ns.load(Relaxed);
            self.budget_ns.store(budget / 2, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_waits_make_it_sleep_at_once_and_short_ones_look_again() {
        let spin = Spin::default();
        let long_ago = Instant::now() - Duration::from_secs(1);
        (0..20).for_each(|_| spin.slept(long_ago));
        let mut looks = 0;
        assert!(!spin.look(Instant::now(), true, || {
            looks += 1;
            false
        }));
        assert!(looks <= LOOKS.0);
        spin.slept(Instant::now());
        assert_eq!(spin.budget_ns.load(Relaxed), LONGEST.as_nanos() as u32);
        assert!(spin.look(Instant::now(), true, || true));
    }
}
