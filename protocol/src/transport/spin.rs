//! Waiting without sleeping, for as long as that pays.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// As long as a sleep and a wake-up cost, more or less; longer would waste the processor.
const LONG: Duration = Duration::from_micros(50);
/// On a machine where whoever is to answer may need this very processor.
const SHORT: Duration = Duration::from_micros(25);
/// Looks between two readings of the clock.
const LOOKS: u32 = 32;

/// How long a connection's next wait looks before it sleeps: long while answers have been coming quickly,
/// hardly at all while they have not.
#[derive(Debug)]
pub struct Spin {
    budget_ns: AtomicU32,
}

fn longest() -> Duration {
    static LONGEST: OnceLock<Duration> = OnceLock::new();
    *LONGEST.get_or_init(|| match std::thread::available_parallelism().map_or(1, usize::from) {
        0 | 1 => Duration::ZERO,
        2 | 3 => SHORT,
        _ => LONG,
    })
}

/// One more than the number of the processor that this thread is on; 0 where that is unknown.
pub fn current_processor() -> u32 {
    // SAFETY: plain call.
    unsafe { libc::sched_getcpu() }.wrapping_add(1) as u32
}

impl Default for Spin {
    fn default() -> Self {
        Self { budget_ns: AtomicU32::new(longest().as_nanos() as u32) }
    }
}

impl Spin {
    /// Looks until `there` says so; false where that took too long and the caller should sleep. `looks` is how
    /// many times to look between two readings of the clock: few where looking is a system call.
    pub fn look(&self, start: Instant, cheap: bool, mut there: impl FnMut() -> bool) -> bool {
        let budget = Duration::from_nanos(self.budget_ns.load(Relaxed).into());
        if budget.is_zero() {
            return there();
        }
        let looks = if cheap { LOOKS } else { 1 };
        loop {
            for _ in 0..looks {
                if there() {
                    return true;
                }
                std::hint::spin_loop();
            }
            if start.elapsed() >= budget {
                return false;
            }
        }
    }

    /// A wait that had begun at `start` slept, and is over: the next one looks the longer the shorter this one was.
    pub fn slept(&self, start: Instant) {
        let longest = longest();
        if start.elapsed() < longest * 3 {
            self.budget_ns.store(longest.as_nanos() as u32, Relaxed);
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
        assert!(looks <= LOOKS);
        spin.slept(Instant::now());
        assert_eq!(spin.budget_ns.load(Relaxed), longest().as_nanos() as u32);
        assert!(spin.look(Instant::now(), true, || true));
    }
}
