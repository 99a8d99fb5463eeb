//! What the latest placement rounds came to, for people who look on.

use std::collections::VecDeque;

use rgpu_control::LeaseId;
use rgpu_control::api::{GrantedInRound, LeftInRound, RoundOutcome};

use super::Caller;
use super::core::Core;

/// So many rounds are remembered: those in which something was granted, or left for other reasons than before.
const REMEMBERED: usize = 64;
/// Of a round, so many leases that were granted,
const MOST_GRANTED: usize = 64;
/// and so many that were left.
const MOST_LEFT: usize = 16;

/// The latest rounds, the oldest first.
#[derive(Default)]
pub(crate) struct RoundLog(VecDeque<RoundOutcome>);

impl RoundLog {
    pub(super) fn push(&mut self, round: RoundOutcome) {
        if let Some(last) = self.0.back_mut()
            && round.granted_count == 0
            && (last.left_count, &last.left) == (round.left_count, &round.left)
        {
            last.repeated = last.repeated.saturating_add(1);
            return;
        }
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(round);
    }

    /// What a caller may see of them.
    pub(super) fn seen_by(&self, caller: &Caller) -> Vec<RoundOutcome> {
        let may = |tenant: &str| caller.sees(tenant);
        let mut seen: Vec<RoundOutcome> = self.0.iter().cloned().collect();
        for round in &mut seen {
            round.granted.retain(|lease| may(&lease.tenant));
            round.left.retain(|lease| may(&lease.tenant));
        }
        seen
    }
}

impl Core {
    /// What a round came to that granted these leases and left those, if it decided anything.
    pub(super) fn outcome(
        &self,
        number: u64,
        granted: &[LeaseId],
        left: &[(LeaseId, String)],
    ) -> Option<RoundOutcome> {
        if granted.is_empty() && left.is_empty() {
            return None;
        }
        let granted_in = |id: &LeaseId| {
            let record = &self.leases.get(id)?.record;
            Some(GrantedInRound {
                lease: *id,
                name: record.request.name.clone(),
                tenant: record.tenant.clone(),
                client_node: record.home.clone(),
                grants: record.grants.clone(),
                nvmes: record.nvmes.clone(),
            })
        };
        let left_in = |(id, reason): &(LeaseId, String)| {
            let record = &self.leases.get(id)?.record;
            let (name, tenant) = (record.request.name.clone(), record.tenant.clone());
            Some(LeftInRound { lease: *id, name, tenant, reason: reason.clone() })
        };
        Some(RoundOutcome {
            number,
            time: self.unix_ms() / 1000,
            round_us: 0,
            considered: 0,
            repeated: 0,
            granted_count: granted.len() as u32,
            left_count: left.len() as u32,
            granted: granted.iter().take(MOST_GRANTED).filter_map(granted_in).collect(),
            left: left.iter().take(MOST_LEFT).filter_map(left_in).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use rgpu_control::token::Role;

    use super::*;

    fn round(number: u64, granted: &[&str], left: &[(&str, &str)]) -> RoundOutcome {
        let granted = granted.iter().map(|tenant| GrantedInRound {
            lease: LeaseId(number),
            name: "job".into(),
            tenant: (*tenant).into(),
            client_node: "n".into(),
            grants: Vec::new(),
            nvmes: Vec::new(),
        });
        let granted: Vec<_> = granted.collect();
        let left = left.iter().map(|(tenant, reason)| LeftInRound {
            lease: LeaseId(99),
            name: "job".into(),
            tenant: (*tenant).into(),
            reason: (*reason).into(),
        });
        let left: Vec<_> = left.collect();
        let (granted_count, left_count) = (granted.len() as u32, left.len() as u32);
        RoundOutcome {
            number,
            time: 0,
            round_us: 0,
            considered: 0,
            repeated: 0,
            granted_count,
            left_count,
            granted,
            left,
        }
    }

    #[test]
    fn rounds_that_come_to_the_same_are_one_and_the_oldest_are_forgotten() {
        let mut log = RoundLog::default();
        log.push(round(1, &["ann"], &[("bob", "full")]));
        (2..5).for_each(|n| log.push(round(n, &[], &[("bob", "full")])));
        log.push(round(5, &[], &[("bob", "over its limit")]));
        log.push(round(6, &["bob"], &[]));
        log.push(round(7, &["bob"], &[]));
        let admin = Caller { role: Role::Admin, name: "root".into() };
        let seen: Vec<_> = log.seen_by(&admin).iter().map(|r| (r.number, r.repeated)).collect();
        assert_eq!(seen, [(1, 3), (5, 0), (6, 0), (7, 0)]);
        (8..200).for_each(|n| log.push(round(n, &["ann"], &[])));
        assert_eq!((log.0.len(), log.0[0].number), (REMEMBERED, 200 - REMEMBERED as u64));
    }

    #[test]
    fn tenants_see_their_own_and_how_many_there_were() {
        let mut log = RoundLog::default();
        log.push(round(1, &["ann", "bob"], &[("bob", "full"), ("ann", "full")]));
        let count = |role, name: &str| {
            let seen = log.seen_by(&Caller { role, name: name.into() });
            let round = &seen[0];
            (round.granted.len(), round.left.len(), round.granted_count, round.left_count)
        };
        assert_eq!(count(Role::Admin, "root"), (2, 2, 2, 2));
        assert_eq!(count(Role::Tenant, "ann"), (1, 1, 2, 2));
        assert_eq!(count(Role::Tenant, "eve"), (0, 0, 2, 2));
        assert_eq!(count(Role::Node, "ann"), (0, 0, 2, 2));
    }
}
