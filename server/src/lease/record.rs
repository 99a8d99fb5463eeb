//! What a server knows of one lease.

use super::process::Process;
use crate::ledger::{Ledger, Size, Terms, Used, monotonic_ns};
use rgpu_control::LeaseId;
use rgpu_control::api::{GrantUsage, LeaseReport, LeaseSize, Peer};
use std::collections::HashMap;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// The shares that are reported are of a time at least so long.
pub(super) const WINDOW_NS: u64 = 1_000_000_000;

/// A lease.
pub(super) struct Record {
    pub(super) version: u64,
    /// Orders before this version say nothing about it.
    pub(super) orders: u64,
    pub(super) tenant: String,
    /// As far as is known: it may have been renewed since. In seconds since 1970.
    pub(super) expires: u64,
    /// The same on the clock that never steps, in ns.
    over_ns: u64,
    /// Whether orders have named it.
    pub(super) ordered: bool,
    /// The other nodes that it gives something of, as orders say.
    pub(super) nodes: Vec<Peer>,
    pub(super) terms: Vec<Terms>,
    /// Where it may be resized: how much it has now of each device.
    pub(super) sizes: Vec<LeaseSize>,
    /// What was used before the entry in the ledger was made; all of it where there is none.
    pub(super) used: Vec<Used>,
    /// Received and sent by sessions that are over.
    pub(super) bytes: (u64, u64),
    /// Its entry in the ledger, while it has sessions.
    pub(super) entry: Option<usize>,
    /// By slot.
    pub(super) sessions: HashMap<usize, Option<Process>>,
    /// Why it was ended.
    pub(super) ended: Option<String>,
    /// The latest token of it that was presented here.
    pub(super) token: Option<String>,
    windows: Vec<Window>,
}

/// A time in seconds since 1970 on the clock that never steps, in ns: as far ahead as the system's clock says at this moment.
fn on_steady_clock(unix_s: u64) -> u64 {
    let ahead_s = unix_s.saturating_sub(rgpu_control::unix_time());
    monotonic_ns().saturating_add(ahead_s.saturating_mul(1_000_000_000))
}

/// A time over which a share is measured.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    since: u64,
    busy_ns: u64,
    share_milli: u32,
}

impl Record {
    /// A lease of which nothing is used yet.
    pub(super) fn new(version: u64, orders: u64, tenant: &str, expires: u64, terms: Vec<Terms>) -> Self {
        Self {
            version,
            orders,
            tenant: tenant.to_owned(),
            expires,
            over_ns: on_steady_clock(expires),
            ordered: false,
            nodes: Vec::new(),
            terms,
            sizes: Vec::new(),
            used: Vec::new(),
            bytes: (0, 0),
            entry: None,
            sessions: HashMap::new(),
            ended: None,
            token: None,
            windows: Vec::new(),
        }
    }

    /// It is good until then, unless a later end is known already.
    pub(super) fn renew(&mut self, expires: u64) {
        if expires > self.expires {
            (self.expires, self.over_ns) = (expires, on_steady_clock(expires));
        }
    }

    /// Whether its time was over that long ago.
    pub(super) fn is_over(&self, now_ns: u64, grace: Duration) -> bool {
        now_ns > self.over_ns.saturating_add(grace.as_nanos().min(u128::from(u64::MAX)) as u64)
    }

    /// Another version of it.
    pub(super) fn change(&mut self, ledger: &Ledger, id: LeaseId, version: u64, terms: Vec<Terms>) {
        let devices = |terms: &[Terms]| terms.iter().map(|t| t.device).collect::<Vec<_>>();
        if self.entry.is_some() && devices(&terms) != devices(&self.terms) {
            // What a running program has as device 0 cannot become another one.
            tracing::error!(
                "lease {id} cannot change its devices from {:?} to {:?} while programs use it",
                devices(&self.terms),
                devices(&terms)
            );
            return;
        }
        self.version = version;
        if terms != self.terms {
            tracing::info!("lease {id} now gives {terms:?}");
            self.terms = terms;
            if let Some(entry) = self.entry {
                ledger.set_terms(entry, &self.terms);
            }
        }
    }

    /// It has these sizes from now on. True if they are others than before.
    pub(super) fn resize(&mut self, ledger: &Ledger, sizes: &[LeaseSize]) -> bool {
        let changed = self.sizes != sizes;
        self.sizes = sizes.to_vec();
        self.enter_sizes(ledger);
        changed
    }

    /// Says in the ledger how much it has now.
    pub(super) fn enter_sizes(&self, ledger: &Ledger) {
        let Some(entry) = self.entry else { return };
        for ordinal in 0..self.terms.len() {
            let size = self.sizes.get(ordinal).map(|size| Size {
                firm_milli: size.firm_milli.into(),
                set_aside_milli: size.set_aside_milli.into(),
            });
            ledger.set_size(entry, ordinal, size);
        }
    }

    /// What is used of each device, by the ledger.
    pub(super) fn used_in(&self, ledger: &Ledger, entry: usize) -> Vec<Used> {
        (0..self.terms.len()).map(|ordinal| ledger.used(entry, ordinal)).collect()
    }

    /// What the broker is told of it.
    pub(super) fn report(&mut self, ledger: &Ledger, id: LeaseId, now: u64) -> LeaseReport {
        let used = self.entry.map_or_else(|| self.used.clone(), |entry| self.used_in(ledger, entry));
        self.windows.resize(self.terms.len(), Window::default());
        let (mut bytes_in, mut bytes_out) = self.bytes;
        for slot in self.sessions.keys() {
            bytes_in += ledger.slot(*slot).bytes_in.load(SeqCst);
            bytes_out += ledger.slot(*slot).bytes_out.load(SeqCst);
        }
        let mut reports = self.reports((bytes_in, bytes_out), &used);
        for (ordinal, (usage, window)) in reports.iter_mut().zip(&mut self.windows).enumerate() {
            window.measure(now, used.get(ordinal).map_or(0, |used| used.busy_ns));
            usage.share_milli = window.share_milli;
        }
        let sessions = self.sessions.len() as u32;
        LeaseReport { lease: id, version: self.version, sessions, usage: reports, processors: None }
    }

    /// When its last session is over.
    pub(super) fn last_report(&self, id: LeaseId) -> LeaseReport {
        LeaseReport {
            lease: id,
            version: self.version,
            sessions: 0,
            usage: self.reports(self.bytes, &self.used),
            processors: None,
        }
    }

    /// What was used of each device, without the share.
    fn reports(&self, (bytes_in, bytes_out): (u64, u64), used: &[Used]) -> Vec<GrantUsage> {
        let of = |(ordinal, terms): (usize, &Terms)| {
            let used = used.get(ordinal).copied().unwrap_or_default();
            // A connection is for all devices; what went over it is told once.
            let first = ordinal == 0;
            GrantUsage {
                device: terms.device,
                memory: used.memory,
                peak_memory: used.peak_memory,
                busy_ms: used.busy_ns / 1_000_000,
                share_milli: 0,
                launches: used.launches,
                bytes_in: if first { bytes_in } else { 0 },
                bytes_out: if first { bytes_out } else { 0 },
                set_aside_milli: self.sizes.get(ordinal).map(|size| size.set_aside_milli),
            }
        };
        self.terms.iter().enumerate().map(of).collect()
    }
}

impl Window {
    fn measure(&mut self, now: u64, busy_ns: u64) {
        let time = now.saturating_sub(self.since);
        if self.since == 0 {
            *self = Self { since: now, busy_ns, share_milli: 0 };
        } else if time >= WINDOW_NS {
            let share = u128::from(busy_ns.saturating_sub(self.busy_ns)) * 1000 / u128::from(time);
            *self = Self { since: now, busy_ns, share_milli: share.min(u128::from(u32::MAX)) as u32 };
        }
    }
}
