//! Telling of what was found.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rgpu_device::{Finding, Host};

/// So many mistakes beyond the limit are told of at once, so that most of them are known whatever happens next.
const GATHERED: u64 = 65_536;

/// Who is told, and how many mistakes there were.
pub(super) struct Output {
    host: Arc<dyn Host>,
    limit: u64,
    count: AtomicU64,
    /// Mistakes beyond the limit that nobody was told of yet.
    unreported: AtomicU64,
}

impl Output {
    /// Tells of no more mistakes than the limit says, if there is one.
    pub(super) fn new(host: Arc<dyn Host>, limit: Option<u64>) -> Self {
        let limit = limit.unwrap_or(u64::MAX);
        Self { host, limit, count: AtomicU64::new(0), unreported: AtomicU64::new(0) }
    }

    /// Tells something that is no mistake.
    pub(super) fn remark(&self, text: &str) {
        self.host.found(Finding::Remark(text));
    }

    /// Tells of a mistake.
    pub(super) fn report(&self, lines: &[String]) {
        if self.count.fetch_add(1, Ordering::Relaxed) < self.limit {
            self.host.found(Finding::Mistake(&lines.join("\n")));
        } else if self.unreported.fetch_add(1, Ordering::Relaxed) + 1 >= GATHERED {
            self.settle();
        }
    }

    /// Tells how many mistakes there were beyond the limit.
    pub(super) fn settle(&self) {
        let count = self.unreported.swap(0, Ordering::Relaxed);
        if count > 0 {
            self.host.found(Finding::Unreported(count));
        }
    }
}
