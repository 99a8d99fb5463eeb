//! What time it is.

use std::sync::Arc;
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
    /// A clock whose elapsed time begins now.
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

/// The placement's time.
#[derive(Clone)]
pub(crate) struct Timeline {
    pub clock: Arc<dyn Clock>,
    /// When the engine started, in ms of its clock.
    pub started_ms: u64,
    /// The placement's time begins so long before the engine's, in seconds: leases that waited before count on.
    pub before_s: f64,
}

impl Timeline {
    /// Seconds since it began.
    pub(super) fn now_s(&self) -> f64 {
        self.before_s + self.clock.elapsed().as_secs_f64() - self.started_ms as f64 / 1000.0
    }
}
