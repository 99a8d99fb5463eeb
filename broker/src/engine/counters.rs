//! What the engine counts, for metrics.

/// What the engine has done since it started. Times are sums, in microseconds, so that rates can be taken.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// Placement rounds that were run.
    pub rounds: u64,
    /// Time in which the placement library decided.
    pub schedule_us: u64,
    /// Time in which the placement library was told, in rounds, what has started, ended, come or gone.
    pub update_us: u64,
    /// Time of whole rounds: taking note of what changed, the library, making the grants; without waiting for other changes
    /// before them, and without storing.
    pub round_us: u64,
    /// Time from what rounds decided until it was stored, without what `round_us` has of it: waiting for other changes, and storing.
    pub round_wait_us: u64,
    /// Time of taking note of what changed between rounds, when nothing waited.
    pub note_us: u64,
    /// Of the latest round.
    pub last_schedule_us: u64,
    /// Of the latest round.
    pub last_round_us: u64,
    /// Times of whole rounds, in seconds.
    pub round_times: Histogram,
    /// Jobs looked at in rounds.
    pub considered: u64,
    /// How often the model of the cluster was built anew.
    pub rebuilds: u64,
    /// Time spent on that.
    pub rebuild_us: u64,
    /// Requests for leases that were accepted.
    pub requests: u64,
    /// Leases that were granted and stored.
    pub grants: u64,
    /// Times from request to grant, in seconds.
    pub grant_times: Histogram,
    /// Renewals of leases, waiting ones included.
    pub renewals: u64,
    /// Leases whose memory or share was changed while they were active.
    pub changes: u64,
    /// Times that a lease's size was changed by what it uses.
    pub resizes: u64,
    /// Times from the decision to resize a lease until its node reported that it holds, in seconds.
    pub resize_times: Histogram,
    /// Leases that were placed into time that others leave.
    pub lent: u64,
    /// Leases given back by their holders.
    pub released: u64,
    /// Requests taken back while they waited.
    pub withdrawn: u64,
    /// Leases that were not renewed in time.
    pub expired: u64,
    /// Leases that ended because a node was lost, left or lost a device.
    pub revoked: u64,
    /// Deadlines of leases that passed while these waited or were active.
    pub deadlines_missed: u64,
    /// Deadlines by which a lease's program had ended well.
    pub deadlines_kept: u64,
    /// Leases that were not known, or had been given up, and that a node has proved to serve.
    pub adopted: u64,
    /// Requests refused because of a tenant's limit.
    pub limited: u64,
    /// Requests refused because they can never be granted.
    pub impossible: u64,
    /// Heartbeats of nodes that were taken.
    pub heartbeats: u64,
    /// Nodes that were lost.
    pub nodes_lost: u64,
    /// Transactions of the store that were committed.
    pub commits: u64,
    /// Records written in them.
    pub records: u64,
    /// Time spent on them.
    pub commit_us: u64,
    /// Transactions that failed.
    pub commit_failures: u64,
    /// Leases that wait now.
    pub waiting: u64,
    /// Leases that are active now.
    pub active: u64,
    /// Leases that are ending now.
    pub ending: u64,
}

/// Counts of times by length.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// How many were at most as long as the bound of the same place in [`Histogram::BOUNDS`] (and longer than the one
    /// before); the last count is of longer ones.
    pub counts: [u64; Histogram::BOUNDS.len() + 1],
    /// Their sum, in seconds.
    pub sum_s: f64,
}

impl Histogram {
    /// The bounds, in seconds.
    pub const BOUNDS: [f64; 16] =
        [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0];

    /// Counts one duration, in seconds, in the first bucket whose bound is not below it.
    pub fn add(&mut self, seconds: f64) {
        self.counts[Self::BOUNDS.partition_point(|bound| *bound < seconds)] += 1;
        self.sum_s += seconds;
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; Self::BOUNDS.len() + 1], sum_s: 0.0 }
    }
}
