//! What is expected of leases that wait, kept with them and shown.

use std::collections::HashMap;

use rgpu_control::LeaseId;
use rgpu_control::api::{Basis, BlockingLease, LeaseExplanation, LeaseState, StartEstimate};

use super::Caller;
use super::core::Core;
use super::live::{Entry, LeaseLive};
use super::plan::{Blocker, Forecast, PAUSE_S};

impl LeaseLive {
    /// Whether all is known that an explanation of its waiting says, and was worked out lately (seconds of the placement's time).
    pub(super) fn is_explained(&self, now_s: f64) -> bool {
        let is_complete =
            |forecast: &Forecast| forecast.alternatives.is_some() && now_s - forecast.made_s < PAUSE_S;
        self.explanation.is_some() && self.forecast.as_ref().is_some_and(is_complete)
    }
}

impl Core {
    /// Granted leases that nobody seems to renew any more, and when they expire, in seconds of the placement's time. Holders renew
    /// a lease when a third of its time has passed.
    pub(super) fn lapsing(&self) -> HashMap<LeaseId, f64> {
        let (now, now_s) = (self.now(), self.now_s());
        let half = now + self.settings.lease_ttl_s * 1000 / 2;
        let late = self.deadlines.iter().take_while(|(at, _)| *at < half);
        let is_active =
            |id: &LeaseId| self.leases.get(id).is_some_and(|entry| entry.record.state == LeaseState::Active);
        let late = late.filter(|(_, id)| is_active(id));
        late.map(|(at, id)| (*id, now_s + at.saturating_sub(now) as f64 / 1000.0)).collect()
    }

    /// Keeps what is expected of leases that wait, and tells those who asked.
    pub(super) fn foresee(&mut self, forecasts: Vec<(LeaseId, Forecast)>) {
        for (id, forecast) in forecasts {
            let Some(entry) = self.leases.get_mut(&id) else { continue };
            let is_asked = forecast.alternatives.is_some();
            entry.live.forecast = Some(forecast);
            if is_asked && self.wanted.remove(&id) {
                entry.live.changed.notify_waiters();
            }
        }
    }

    /// When a lease that waits is expected to be granted, where that was worked out.
    pub(super) fn estimate(&self, entry: &Entry) -> Option<StartEstimate> {
        let forecast = entry.live.forecast.as_ref()?;
        (entry.record.state == LeaseState::Waiting).then(|| StartEstimate {
            start: forecast.start.map(|start| self.unix_s_of(start.at_s)),
            deviation_s: forecast.start.map(|start| start.deviation_s),
            basis: forecast.start.map_or(Basis::Unknown, |start| start.basis),
            queued: forecast.queued,
            why: forecast.why.clone(),
        })
    }

    /// Adds to an explanation when the lease is expected to be granted, and what is in its way.
    pub(super) fn with_forecast(
        &self,
        caller: &Caller,
        entry: &Entry,
        explanation: LeaseExplanation,
    ) -> LeaseExplanation {
        let estimate = self.estimate(entry);
        let Some(forecast) = entry.live.forecast.as_ref().filter(|_| estimate.is_some()) else {
            return explanation;
        };
        LeaseExplanation {
            estimate,
            blocked_by: forecast.blockers.iter().map(|blocker| self.blocking(caller, blocker)).collect(),
            alternatives: forecast.alternatives.clone().unwrap_or_default(),
            ..explanation
        }
    }

    /// A lease in another one's way, as the caller may see it.
    fn blocking(&self, caller: &Caller, blocker: &Blocker) -> BlockingLease {
        let entry = self.leases.get(&blocker.lease);
        let shown = entry.map(|entry| &entry.record);
        let shown = shown.filter(|record| caller.sees(&record.tenant));
        let expires = entry.filter(|_| !blocker.waits).and_then(|entry| entry.live.deadline);
        BlockingLease {
            lease: shown.map(|record| record.id),
            name: shown.map(|record| record.request.name.clone()),
            tenant: shown.map(|record| record.tenant.clone()),
            waits: blocker.waits,
            node: blocker.node.clone(),
            device: blocker.device,
            nvme: blocker.nvme,
            share_milli: blocker.share_milli,
            memory: blocker.memory,
            expires: expires.map(|at| self.unix_s_at(at)),
            end: blocker.end.map(|end| self.unix_s_of(end.at_s)),
            end_deviation_s: blocker.end.map(|end| end.deviation_s),
            basis: blocker.end.map_or(Basis::Unknown, |end| end.basis),
        }
    }

    /// A moment of the placement's time in seconds since 1970.
    fn unix_s_of(&self, at_s: f64) -> u64 {
        let unix_s = self.unix_ms() as f64 / 1000.0 + at_s - self.now_s();
        unix_s.max(0.0).round() as u64
    }
}
