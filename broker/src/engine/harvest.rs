//! Harvesting: leases that may be resized, by what they use.
//!
//! A resizable lease has a promise, its grant's share; a *firm* part of it, which its node gives it whenever it wants it; and what is
//! *set aside* for it, by which the placement decides who else has room. Firm parts, and the shares of other leases, come to no
//! more than the device, so whoever has a promise that is firm throughout is never slower than that, whatever the others
//! do. What is set aside follows the 80th percentile of its use (Kube-Knots, section IV-C), and is the whole promise as soon as it
//! grows, or its node says nothing any more. A lease that is placed where too little is left to promise is a borrower: its firm
//! part is what is left, and becomes more when others end, the oldest lease first, and never less.
//!
//! Device time alone is lent. Memory is not: what a program has allocated cannot be taken back from it, so lent memory could be
//! missing when its owner wants it. So a lease's memory is set aside as it was promised, always.

use std::collections::{BTreeMap, BTreeSet};

use rgpu_control::LeaseId;
use rgpu_control::api::{DeviceReport, LeaseReport, LeaseRequest, LeaseSize, LeaseState};
use rgpu_placement::WHOLE;
use rgpu_placement::harvest::Footprint;

use super::core::Core;
use super::learnt::{PROGRAMS, Program};
use super::live::NodeEntry;
use super::series::{LeaseSeries, is_lendable, with_margin};
use crate::store::LeaseRecord;

/// What is known of leases' use, beside what is stored.
#[derive(Default)]
pub(crate) struct Harvest {
    /// The active leases that may be resized.
    resizable: BTreeSet<LeaseId>,
    /// Of leases of one device: what was measured of them.
    pub series: BTreeMap<LeaseId, LeaseSeries>,
    /// How programs use their device over a run: the latest that ended well.
    pub footprints: BTreeMap<Program, Footprint>,
}

impl Harvest {
    /// A lease is what the record says.
    pub(super) fn note(&mut self, id: LeaseId, record: Option<&LeaseRecord>) {
        match record.is_some_and(|record| record.state == LeaseState::Active && !record.sizes.is_empty()) {
            true => self.resizable.insert(id),
            false => self.resizable.remove(&id),
        };
    }
}

impl Core {
    /// Whether the policy that decides lends what leases leave.
    pub(super) fn harvests(&self) -> bool {
        self.settings.policies.find(&self.policy.name).is_ok_and(|kind| kind.harvests)
    }

    /// Whether a lease that asks for this is resized where it gets this device.
    pub(super) fn is_resized(&self, request: &LeaseRequest, report: &DeviceReport) -> bool {
        request.is_resizable() && is_lendable(report) && self.harvests()
    }

    /// Whether such a lease can be placed there although less is left than it asks for.
    pub(super) fn may_borrow(&self, request: &LeaseRequest, node: &NodeEntry, report: &DeviceReport) -> bool {
        node.live.series.lends && self.is_resized(request, report)
    }

    /// The first sizes of a lease that gets these grants: as firm as there is room.
    pub(super) fn first_sizes(&self, record: &LeaseRecord) -> Vec<LeaseSize> {
        let [grant] = record.grants.as_slice() else { return Vec::new() };
        let report = self.nodes.get(&grant.node).and_then(|node| node.device(grant.device));
        if !report.is_some_and(|report| self.is_resized(&record.request, report)) {
            return Vec::new();
        }
        let (milli, _) = self.used(&grant.node, grant.device);
        let free = u32::from(WHOLE).saturating_sub(milli) as u16;
        let set_aside_milli = self.size_at_start(record).unwrap_or(grant.share_milli).min(grant.share_milli);
        vec![LeaseSize { firm_milli: grant.share_milli.min(free), set_aside_milli }]
    }

    /// What is set aside for a resizable lease when it starts: what is typical of its program, or all while that is not known.
    fn size_at_start(&self, record: &LeaseRecord) -> Option<u16> {
        let (request, promised) = (&record.request, record.request.share_milli);
        if !request.is_resizable() || !self.harvests() {
            return None;
        }
        let program = request.program.clone().map(|program| (record.tenant.clone(), program));
        let footprint = program.and_then(|program| self.harvest.footprints.get(&program));
        Some(footprint.map_or(promised, |footprint| with_margin(footprint.typical().sm * 10.0, promised)))
    }

    /// The thousandths with which the placement counts a lease that may be resized.
    pub(super) fn counted_milli(&self, record: &LeaseRecord) -> Option<u16> {
        match record.state {
            LeaseState::Waiting => self.size_at_start(record),
            _ => record.sizes.first().map(|size| size.set_aside_milli),
        }
    }

    /// Makes leases what they should be by what they use, and what has become free by others.
    pub(super) fn resize_leases(&mut self) {
        let leases = &self.leases;
        self.harvest.series.retain(|id, _| {
            let state = leases.get(id).map(|entry| entry.record.state);
            matches!(state, Some(LeaseState::Active | LeaseState::Ending))
        });
        let all: Vec<LeaseId> = self.harvest.resizable.iter().copied().collect();
        self.resize_these(all);
    }

    /// The same, of a node's leases: something of it has become free.
    pub(super) fn resize_leases_on(&mut self, node: &str) {
        let Some(node) = self.nodes.get(node) else { return };
        let resizable = &self.harvest.resizable;
        let here = node.live.leases.iter().copied().filter(|id| resizable.contains(id)).collect();
        self.resize_these(here);
    }

    fn resize_these(&mut self, mut due: Vec<LeaseId>) {
        if due.is_empty() {
            return;
        }
        // The oldest first.
        due.sort_by_key(|id| (self.leases.get(id).and_then(|entry| entry.record.granted_ms), *id));
        let harvests = self.harvests();
        due.into_iter().for_each(|id| self.resize(id, harvests));
    }

    fn resize(&mut self, id: LeaseId, harvests: bool) {
        let Some(entry) = self.leases.get(&id) else { return };
        let record = &entry.record;
        let ([grant], [before]) = (record.grants.as_slice(), record.sizes.as_slice()) else { return };
        let (node, promised, before) = (grant.node.clone(), grant.share_milli, *before);
        let (milli, _) = self.used(&node, grant.device);
        let free = u32::from(WHOLE).saturating_sub(milli) as u16;
        let known = harvests && self.is_measured(&node);
        let now = before.set_aside_milli;
        let set_aside = match self.harvest.series.get(&id) {
            _ if !known => promised,
            Some(series) => series.size(promised, now),
            None => now,
        };
        let size = LeaseSize {
            firm_milli: before.firm_milli.saturating_add(free).min(promised),
            set_aside_milli: set_aside.min(promised),
        };
        if size == before {
            return;
        }
        let mut record = LeaseRecord::clone(record);
        record.version += 1;
        record.sizes = vec![size];
        record.orders = self.new_orders([node.as_str()]);
        tracing::debug!(lease = %id, "resized: {size:?} instead of {before:?}");
        let (version, at) = (record.version, self.time.clock.elapsed());
        self.put_lease(record);
        if let Some(series) = self.harvest.series.get_mut(&id) {
            series.resized(size.set_aside_milli > before.set_aside_milli, version, at);
        }
        self.count(|counters| counters.resizes += 1);
    }

    /// A node has said which version of a lease it enforces: takes note of how long it took to resize it.
    pub(super) fn hear_size(&mut self, report: &LeaseReport) {
        let at = self.time.clock.elapsed();
        let Some(series) = self.harvest.series.get_mut(&report.lease) else { return };
        if let Some((_, since)) = series.ordered.take_if(|(version, _)| report.version >= *version) {
            self.counters.resize_times.add(at.saturating_sub(since).as_secs_f64());
        }
    }

    /// A lease has ended for good: keeps how its program used its device, if it ended well.
    pub(super) fn learn_footprint(&mut self, id: LeaseId) {
        let Some(entry) = self.leases.get(&id).filter(|entry| entry.live.watched.finished_s.is_some()) else {
            return;
        };
        let Some(program) = entry.record.request.program.clone() else { return };
        let program = (entry.record.tenant.clone(), program);
        let Some(footprint) = self.harvest.series.get(&id).and_then(LeaseSeries::footprint) else { return };
        let footprints = &mut self.harvest.footprints;
        footprints.insert(program.clone(), footprint);
        if footprints.len() > PROGRAMS
            && let Some(any) = footprints.keys().find(|other| **other != program).cloned()
        {
            footprints.remove(&any);
        }
        // Those that wait for a place would have another size now.
        let waits = |record: &LeaseRecord| {
            record.state == LeaseState::Waiting
                && record.tenant == program.0
                && record.request.program.as_ref() == Some(&program.1)
        };
        let waiting = self.leases.values().filter(|entry| waits(&entry.record)).map(|entry| entry.record.id);
        self.changes.leases.extend(waiting);
        self.changes.footprints.insert(program);
    }
}
