//! Memory that leases do not give any more, and that their programs still have.
//!
//! A lease can be made smaller while its programs run. What they have allocated stays theirs until they free it, so for quotas and
//! for placing, a grant counts with what the lease gives or with what its programs have, whichever is more. What they have, their
//! server says in each heartbeat, with the version of the lease that it enforces. Until it enforces the smaller one, it is not
//! known, and what the lease gave before counts.

use rgpu_control::api::{LeaseReport, LeaseState};

use super::core::Core;
use crate::store::LeaseRecord;

impl Core {
    /// Takes note of how much memory a lease's programs have on a node, where more counts than the lease gives.
    ///
    /// What is found is stored with the next batch, and so before, or with, whatever is granted because of it.
    pub(super) fn hear_memory(&mut self, node: &str, report: &LeaseReport) {
        let Some(entry) = self.leases.get(&report.lease) else { return };
        let record = &entry.record;
        let known = record.state == LeaseState::Active && report.version >= record.version;
        if record.outstanding.is_empty() || !known {
            return;
        }
        let mut outstanding = record.outstanding.clone();
        let here = record.grants.iter().filter(|grant| grant.node == node);
        for (grant, usage) in here.zip(&report.usage) {
            let of_grant = |device: u32| device == grant.device;
            for one in outstanding.iter_mut().filter(|one| one.node == node && of_grant(one.device)) {
                // It cannot become more: beyond the smaller amount the server promises nothing.
                one.memory = one.memory.min(usage.memory);
            }
        }
        let gives = |one: &crate::store::Outstanding| {
            let grant =
                record.grants.iter().find(|grant| grant.node == one.node && grant.device == one.device);
            grant.map_or(0, |grant| grant.memory)
        };
        outstanding.retain(|one| one.memory > gives(one));
        if outstanding == record.outstanding {
            return;
        }
        let changed = LeaseRecord { outstanding, ..LeaseRecord::clone(record) };
        self.changes.leases.push(changed.id);
        self.put_lease(changed);
    }
}
