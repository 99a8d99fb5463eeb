//! How much work a device was given, and how much of it is known to be finished.

/// Counts of the pieces of work that a device was given.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct WorkCount {
    /// Pieces of work that were enqueued.
    pub enqueued: u64,
    /// So many, counted from the first, are finished.
    pub finished: u64,
    /// The last one that went to another stream than the legacy one.
    last_elsewhere: u64,
}

impl WorkCount {
    /// One more piece of work was enqueued.
    #[inline(always)]
    pub(crate) fn enqueued_in(&mut self, legacy: bool) {
        self.enqueued += 1;
        if !legacy {
            self.last_elsewhere = self.enqueued;
        }
    }

    /// Whether nothing can be unfinished.
    pub(crate) fn is_idle(&self) -> bool {
        self.finished >= self.enqueued
    }

    /// Everything up to `until` has finished in the legacy stream, or with `everywhere` in all streams.
    pub(crate) fn finish(&mut self, until: u64, everywhere: bool) {
        if everywhere || self.last_elsewhere <= self.finished {
            self.finished = self.finished.max(until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_legacy_stream_speaks_for_all_only_while_it_is_alone() {
        let mut work = WorkCount { enqueued: 3, finished: 0, last_elsewhere: 0 };
        work.finish(3, false);
        assert!(work.is_idle());
        work.enqueued = 5;
        work.last_elsewhere = 4;
        work.finish(5, false);
        assert_eq!(work.finished, 3);
        work.finish(4, true);
        assert_eq!(work.finished, 4);
        work.finish(5, false);
        assert!(work.is_idle());
    }
}
