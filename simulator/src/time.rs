//! Simulated time and work, in integers, so that every machine computes the same.

use std::fmt;

/// A point in simulated time, or a duration, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

impl Micros {
    /// From seconds, rounded; negative ones become 0, and too great ones the greatest.
    pub fn from_seconds(seconds: f64) -> Micros {
        Micros((seconds * 1e6).round() as u64)
    }

    /// The same in seconds, with fractions.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The time that lies `duration` after.
    #[must_use]
    pub fn after(self, duration: Micros) -> Micros {
        Micros(self.0.saturating_add(duration.0))
    }

    /// How long after `earlier` this is, 0 if it is not.
    #[must_use]
    pub fn since(self, earlier: Micros) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// How many units of work there are in a microsecond of an undisturbed run.
const PER_MICRO: u128 = 1 << 40;

/// What is left to do, and how fast it is being done.
///
/// Work is counted in fractions of an undisturbed microsecond, the speed in such fractions per microsecond. Both
/// are integers: the rounding at a change of speed is below a picosecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    left: u128,
    per_micro: u128,
    since: Micros,
}

impl Work {
    /// Work that takes `alone` when undisturbed, begun at `now` with that slow-down.
    pub fn new(alone: Micros, now: Micros, slowdown: f64) -> Work {
        Work { left: u128::from(alone.0) * PER_MICRO, per_micro: speed(slowdown), since: now }
    }

    /// From `now` on the work is slowed down that much (1 is undisturbed). Whether that is news.
    pub fn change(&mut self, now: Micros, slowdown: f64) -> bool {
        let per_micro = speed(slowdown);
        if per_micro == self.per_micro {
            return false;
        }
        let done = u128::from(now.since(self.since).0) * self.per_micro;
        self.left = self.left.saturating_sub(done);
        self.since = now;
        self.per_micro = per_micro;
        true
    }

    /// When it will be done, should nothing change.
    pub fn end(&self) -> Micros {
        let duration = self.left.div_ceil(self.per_micro);
        self.since.after(Micros(u64::try_from(duration).unwrap_or(u64::MAX)))
    }
}

fn speed(slowdown: f64) -> u128 {
    // The slow-down is a finite number of at least a millionth; a speed of 0 would never end.
    let slowdown = if slowdown.is_finite() { slowdown.clamp(1e-6, 1e9) } else { 1e9 };
    ((PER_MICRO as f64 / slowdown).round() as u128).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_by_hand() {
        // 100 s of work: 40 s undisturbed, 40 s at half speed (20 s done), the last 40 s undisturbed.
        let second = |s: u64| Micros(s * 1_000_000);
        let mut work = Work::new(second(100), second(10), 1.0);
        assert_eq!(work.end(), second(110));
        assert!(work.change(second(50), 2.0));
        assert_eq!(work.end(), second(170));
        assert!(!work.change(second(60), 2.0));
        assert!(work.change(second(90), 1.0));
        assert_eq!(work.end(), second(130));
    }

    #[test]
    fn odd_slowdowns_end() {
        for slowdown in [f64::NAN, f64::INFINITY, 0.0, -3.0] {
            assert!(Work::new(Micros(1), Micros(0), slowdown).end() <= Micros(2_000_000_000));
        }
        assert_eq!(Micros::from_seconds(1.5).to_string(), "1.500000");
        assert_eq!(Micros::from_seconds(f64::NAN), Micros(0));
    }
}
