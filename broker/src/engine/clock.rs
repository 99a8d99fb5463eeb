//! What time it is.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Tells the time; tests pass one that they set.
pub trait Clock: Send + Sync {
    /// Since some fixed moment; never goes back.
    fn elapsed(&self) -> Duration;
    /// Since 1970; follows the machine's clock when that is set.
    fn unix(&self) -> Duration;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock(Instant);

impl SystemClock {
    /// Begins now.
    pub fn new() -> Self {
        Self(Instant::now())
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    fn unix(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}
