//! Leases that nodes serve and the broker does not know: its state is lost, or an older one, or it had given them up.
//!
//! The node is asked to prove them, and serves them on meanwhile. The proof is the lease's own token, which this broker's key has
//! signed: it says whose lease it is, and what that gives. Where all of it is still free, the lease is adopted. Where it isn't, what
//! was granted later (which the tokens' numbers of orders tell) stays.

use std::collections::BTreeSet;
use std::sync::Arc;

use rgpu_control::LeaseId;
use rgpu_control::api::*;
use rgpu_control::token::{self, Claims, Grant, LeaseClaims, PublicKey};
use rgpu_placement::WHOLE;

use super::core::{Core, held_grants};
use super::live::{End, Stranger};
use crate::store::LeaseRecord;

/// How a lease is called of which only the token is known.
const ADOPTED: &str = "adopted";

impl Core {
    /// For so long a node is asked for a proof (ms): other nodes of a lease may have it, and come back later.
    fn proof_time(&self) -> u64 {
        2 * self.settings.node_timeout_ms
    }

    /// Whether nodes that were there before the broker's start may not have been heard of yet.
    pub(super) fn is_new(&self) -> bool {
        self.now().saturating_sub(self.time.started_ms) < self.proof_time()
    }

    /// Whether a lease may be adopted that a node reports.
    fn may_be_adopted(&self, id: LeaseId, version: u64, node: &str) -> bool {
        let given_up = match self.leases.get(&id) {
            None => true,
            Some(entry) => match entry.record.state {
                LeaseState::Ended => entry.record.lapsed,
                // It was changed after this state was written.
                LeaseState::Active => version > entry.record.version,
                // It was granted after this state was written.
                LeaseState::Waiting => true,
                LeaseState::Ending => false,
            },
        };
        given_up && !self.gone.contains(&(id, node.to_owned()))
    }

    /// A node serves leases that it is not known to have, or not in that version: which it may prove.
    pub(super) fn meet(&mut self, name: &str, strangers: &[(LeaseId, u64)]) {
        let now = self.now();
        let Some(node) = self.nodes.get(name) else { return };
        let old = &node.live.strangers;
        let state = |id: &LeaseId, version: u64| match old.get(id) {
            Some(state) => *state,
            None if self.may_be_adopted(*id, version, name) => Stranger::Asked(now),
            None => Stranger::Refused,
        };
        let new: std::collections::BTreeMap<LeaseId, Stranger> =
            strangers.iter().map(|(id, version)| (*id, state(id, *version))).collect();
        if new != *old {
            self.live_node(name).strangers = new;
            self.new_orders([name]);
        }
    }

    /// A node says all that it serves: what it was to end while it was lost, and does not serve, has ended there.
    pub(super) fn gone_there(&mut self, name: &str, serves: &BTreeSet<LeaseId>) {
        self.forget_gone(name, |id| !serves.contains(&id));
    }

    /// Whether a node says that it serves a lease, and has not proved it yet.
    pub(super) fn is_claimed(&self, id: LeaseId) -> bool {
        let asked = |state: Option<&Stranger>| matches!(state, Some(Stranger::Asked(_)));
        self.nodes.values().any(|node| asked(node.live.strangers.get(&id)))
    }

    /// What a node is asked to prove.
    pub(super) fn to_prove(&self, name: &str) -> Vec<LeaseId> {
        let Some(node) = self.nodes.get(name) else { return Vec::new() };
        let asked = node.live.strangers.iter().filter(|(_, state)| matches!(state, Stranger::Asked(_)));
        asked.map(|(id, _)| *id).collect()
    }

    /// What no node has proved in time is to be ended.
    pub(super) fn refuse_unproven(&mut self) {
        let (now, time) = (self.now(), self.proof_time());
        let mut told: Vec<String> = Vec::new();
        for (name, node) in &mut self.nodes {
            for (id, state) in &mut node.live.strangers {
                if let Stranger::Asked(since) = *state
                    && now.saturating_sub(since) > time
                {
                    tracing::warn!(
                        "node {name} serves the lease {id}, which nothing proves: it is to end it"
                    );
                    *state = Stranger::Refused;
                    told.push(name.clone());
                }
            }
        }
        self.new_orders(told.iter().map(String::as_str));
    }

    /// A lease has ended that a lost node may still serve: it is not adopted when the node comes back.
    pub(super) fn remember_gone(&mut self, id: LeaseId, node: &str) {
        let mut gone = self.gone.clone();
        if gone.insert((id, node.to_owned())) {
            self.put_gone(gone);
        }
    }

    /// A node has nothing of such leases any more, or is no node any more.
    pub(super) fn forget_gone(&mut self, node: &str, which: impl Fn(LeaseId) -> bool) {
        if self.gone.iter().any(|(id, name)| name == node && which(*id)) {
            let mut gone = self.gone.clone();
            gone.retain(|(id, name)| name != node || !which(*id));
            self.put_gone(gone);
        }
    }

    /// A node proves that it serves a lease by right.
    pub(super) fn adopt(&mut self, key: &PublicKey, node: &str, proof: &LeaseProof) {
        match self.adopt_if_free(key, node, proof) {
            Ok(()) => {}
            Err(why) => tracing::info!("the lease {} of node {node} is not adopted: {why}", proof.lease),
        }
    }

    fn adopt_if_free(&mut self, key: &PublicKey, node: &str, proof: &LeaseProof) -> Result<(), String> {
        let id = proof.lease;
        if !self.may_be_adopted(id, proof.version, node) {
            // Another of its nodes has been quicker, or it ended meanwhile.
            return Ok(());
        }
        let claims = proven(key, proof)?;
        if !claims.grants.iter().any(|grant| grant.node == node) {
            return Err("its token gives nothing of this node".into());
        }
        let before = self.leases.get(&id).map(|entry| entry.record.clone());
        let grants = grants_now(&claims, node, proof, before.as_deref());
        let sizes = match &before {
            Some(record) if record.grants == grants => record.sizes.clone(),
            _ => proof.sizes.clone(),
        };
        let sizes = if sizes.len() == grants.len() { sizes } else { Vec::new() };
        for (at, grant) in grants.iter().enumerate() {
            let milli =
                sizes.get(at).map_or(grant.share_milli, |size| size.firm_milli.min(grant.share_milli));
            self.has_room(id, grant, milli, claims.orders)?;
        }
        let known = before.is_some();
        let active = before.as_ref().is_some_and(|record| record.state == LeaseState::Active);
        let mut record = match before {
            Some(record) => LeaseRecord::clone(&record),
            None => unknown(&claims, &grants),
        };
        record.version = record.version.max(claims.version).max(proof.version);
        (record.state, record.lapsed) = (LeaseState::Active, false);
        (record.reason, record.unconfirmed) = (String::new(), Vec::new());
        record.grants = grants;
        record.request.harvest |= !sizes.is_empty();
        record.sizes = sizes;
        let mut nodes: Vec<&str> = record.grants.iter().map(|grant| grant.node.as_str()).collect();
        nodes.dedup();
        record.orders = self.new_orders(nodes);
        let text = match known {
            true => format!(
                "{} of {}: taken up again as node {node} serves it",
                record.request.name, record.tenant
            ),
            false => {
                format!("a lease of {} was not known, and is adopted: node {node} serves it", record.tenant)
            }
        };
        tracing::info!("{text} ({id})");
        self.note("lease_adopted", Some(node), Some(&record), text);
        self.ended.retain(|ended| *ended != id);
        self.put_lease(record);
        let (now, now_s) = (self.now(), self.now_s());
        self.set_deadline(id, Some(now + self.settings.lease_ttl_s * 1000));
        if let Some(entry) = self.leases.get_mut(&id).filter(|_| !active) {
            entry.live.granted_s = now_s;
        }
        self.count(|counters| counters.adopted += 1);
        self.changes.topology = true;
        for node in self.nodes.values_mut() {
            node.live.strangers.remove(&id);
        }
        Ok(())
    }

    /// Whether a grant of a lease to be adopted is free. Where leases are in its way that were granted earlier and that no program
    /// uses there, these must have ended before: they end now, and it is free as soon as the node confirms that.
    fn has_room(&mut self, id: LeaseId, grant: &Grant, firm: u16, orders: u64) -> Result<(), String> {
        let Some(node) = self.nodes.get(&grant.node) else {
            // It has not come back yet, and nothing of it is granted before it has.
            return Ok(());
        };
        let Some(report) = node.device(grant.device) else {
            return Err(format!("node {} has no device {}", grant.node, grant.device));
        };
        let (mut milli, mut memory) = self.used(&grant.node, grant.device);
        let own = self.leases.get(&id).map(|entry| entry.record.clone());
        for record in own.iter() {
            for own in held_grants(record) {
                if (&own.node, own.device) == (&grant.node, grant.device) {
                    milli = milli.saturating_sub(record.firm_milli(own).into());
                    memory = memory.saturating_sub(own.memory);
                }
            }
        }
        if milli + u32::from(firm) <= u32::from(WHOLE) && memory.saturating_add(grant.memory) <= report.memory
        {
            return Ok(());
        }
        let holders = node.live.devices.get(grant.device as usize).map_or(&[][..], |device| &device.leases);
        let earlier = holders.iter().copied().filter(|other| {
            self.leases.get(other).is_some_and(|entry| {
                let sessions = entry.live.usage.get(&grant.node).map_or(0, |(sessions, _)| *sessions);
                *other != id
                    && entry.record.state == LeaseState::Active
                    && entry.record.orders < orders
                    && sessions == 0
            })
        });
        let earlier: Vec<LeaseId> = earlier.collect();
        for other in earlier {
            let why = format!(
                "the broker's state is older than the lease {id}, for which device {} of node {} was granted later",
                grant.device, grant.node
            );
            self.end(other, End::Revoked, &why);
        }
        Err(format!("device {} of node {} is not free for it", grant.device, grant.node))
    }

    /// What leases have of a node that was not known before.
    pub(super) fn weigh_node(&mut self, name: &str) {
        let entries: Vec<Arc<LeaseRecord>> = self
            .leases
            .values()
            .filter(|entry| entry.record.grants.iter().any(|grant| grant.node == name))
            .map(|entry| entry.record.clone())
            .collect();
        for record in entries {
            for grant in held_grants(&record).filter(|grant| grant.node == name) {
                self.weigh_grant(&record, grant, true);
            }
        }
    }
}

/// What a proof says, if this broker has signed it. Its time may be over: the sessions began while it wasn't, and nobody could
/// renew it since.
fn proven(key: &PublicKey, proof: &LeaseProof) -> Result<LeaseClaims, String> {
    let Claims::Lease(said) = token::peek(&proof.token).map_err(|e| e.to_string())? else {
        return Err("its token is none of a lease".into());
    };
    let claims = key.verify_lease(&proof.token, said.not_before).map_err(|e| e.to_string())?;
    match claims.lease == proof.lease {
        true => Ok(claims),
        false => Err("its token is another lease's".into()),
    }
}

/// What a lease gives now. It may have been changed after the token that is shown was issued: the node knows what it gives of
/// itself, and what is the same elsewhere was changed to the same there.
fn grants_now(
    claims: &LeaseClaims,
    node: &str,
    proof: &LeaseProof,
    before: Option<&LeaseRecord>,
) -> Vec<Grant> {
    if let Some(record) = before.filter(|record| record.version >= proof.version.max(claims.version)) {
        return record.grants.clone();
    }
    let mut grants = claims.grants.clone();
    if proof.version <= claims.version {
        return grants;
    }
    for now in proof.grants.iter().filter(|now| now.node == node) {
        let same = |grant: &&Grant| grant.node == now.node && grant.device == now.device;
        let Some(was) = claims.grants.iter().find(same).cloned() else { continue };
        for (grant, said) in grants.iter_mut().zip(&claims.grants) {
            if (said.memory, said.share_milli) == (was.memory, was.share_milli) {
                (grant.memory, grant.share_milli) = (now.memory, now.share_milli.clamp(1, WHOLE));
            }
        }
    }
    grants
}

/// A lease of which only its token is known.
fn unknown(claims: &LeaseClaims, grants: &[Grant]) -> LeaseRecord {
    let mut request = LeaseRequest::new(ADOPTED.into(), ADOPTED.into(), claims.holder.clone());
    request.gpus = grants.len() as u16;
    request.share_milli = grants.first().map_or(WHOLE, |grant| grant.share_milli);
    request.memory = grants.first().map_or(0, |grant| grant.memory);
    request.transport.clone_from(&claims.transport);
    request.encrypt = claims.encrypt;
    LeaseRecord {
        id: claims.lease,
        tenant: claims.tenant.clone(),
        request,
        state: LeaseState::Active,
        reason: String::new(),
        version: claims.version,
        orders: claims.orders,
        submitted_ms: claims.not_before * 1000,
        granted_ms: Some(claims.not_before * 1000),
        home: format!("client-{ADOPTED}"),
        grants: grants.to_vec(),
        unconfirmed: Vec::new(),
        nvmes: Vec::new(),
        lapsed: false,
        outstanding: Vec::new(),
        sizes: Vec::new(),
    }
}
