//! How a device is told to hold back.

use crate::Ordinal;
use std::time::Duration;

/// Says how much of a device's time its user may have, and hears how much that was. Handed to a device when it is opened;
/// called from any thread.
///
/// Device time is what the device's own work takes on it: for a GPU the time in which kernels execute, for a software GPU the
/// processor time of its workers, divided by their number.
pub trait Pacer: Send + Sync {
    /// How long the ordinal must be left alone from now on, as far as is known now; zero where work can go on. It is to be
    /// asked again after that time, or earlier.
    fn delay(&self, ordinal: Ordinal) -> Duration;

    /// Whether the ordinal is limited at all at the moment. Where it isn't, [`Pacer::delay`] need not be asked.
    fn is_limited(&self, ordinal: Ordinal) -> bool;

    /// There is work for the ordinal at this moment, be it executed or held back. Told again and again while that is so.
    fn wanted(&self, ordinal: Ordinal) {
        let _ = ordinal;
    }

    /// The ordinal was used for so many nanoseconds.
    fn used(&self, ordinal: Ordinal, ns: u64);

    /// Kernels were launched.
    fn launched(&self, ordinal: Ordinal, count: u64);

    /// Waits until work can go on.
    fn before(&self, ordinal: Ordinal) {
        /// Shares are changed now and then.
        const LOOK: Duration = Duration::from_millis(20);
        loop {
            match self.delay(ordinal) {
                Duration::ZERO => return,
                delay => std::thread::sleep(delay.min(LOOK)),
            }
        }
    }
}
