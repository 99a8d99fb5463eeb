//! What happens to leases.

use rgpu_control::LeaseId;
use rgpu_control::api::*;
use rgpu_control::token::Grant;
use rgpu_placement::{DeviceKind, WHOLE};

use super::core::{Core, wanted};
use super::deadlines;
use super::live::{End, Entry};
use super::model::MIB;
use super::{Caller, problem};
use crate::store::{LeaseRecord, Outstanding};

/// A device that a round found for a lease.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    pub node: String,
    /// Its number among its node's devices of its kind.
    pub device: u32,
    /// What it is.
    pub kind: DeviceKind,
    /// Thousandths of it.
    pub milli: u16,
}

/// Why a lease does not get what a placement round found for it: mostly because the state has changed since the round began.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotGranted {
    #[error("the lease is gone")]
    Gone,
    #[error("the lease does not wait any more")]
    NotWaiting,
    /// The state may be older than a grant of it, which a node would tell.
    #[error("not all nodes have been heard since the broker's start")]
    Unheard,
    #[error("{found} devices were found for {wanted}")]
    Count { found: usize, wanted: u16 },
    #[error("node {0} is not available any more")]
    NodeGone(String),
    #[error("node {node} has no device {device} any more")]
    DeviceGone { node: String, device: u32 },
    #[error("device {device} of node {node} was given to another lease")]
    Taken { node: String, device: u32 },
    #[error("the NVMe device {device} of node {node} was given to another lease")]
    NvmeTaken { node: String, device: String },
    #[error("device {device} of node {node} was found twice")]
    Twice { node: String, device: u32 },
    #[error(
        "devices {} and {} of node {node} were found for one program, which can use no other device beside an instance of a \
         partitioned GPU", devices[0], devices[1]
    )]
    Beside { node: String, devices: [u32; 2] },
}

impl Core {
    /// The lease that a tenant has under a request's key.
    fn again(
        &self,
        caller: &Caller,
        tenant: &str,
        request: &LeaseRequest,
    ) -> Result<Option<LeaseId>, Problem> {
        let Some(key) = &request.key else { return Ok(None) };
        // An engine that had a tenant's token before finds the leases of that time.
        let found = [tenant, &caller.name].map(|tenant| self.keyed.get(&(tenant.to_owned(), key.clone())));
        let Some(id) = found.into_iter().flatten().next() else { return Ok(None) };
        let holder = self.leases.get(id).map(|entry| entry.record.request.holder.as_str());
        if holder != Some(request.holder.as_str()) {
            let text = format!(
                "lease {id} has the key {key:?} and another holder: use that one's private key, give the lease back, or choose \
                 another key"
            );
            return Err(problem(ErrorCode::Conflict, text));
        }
        Ok(Some(*id))
    }

    /// Puts a request into the queue, or finds the lease that was asked for with the same key.
    pub(super) fn submit(
        &mut self,
        caller: &Caller,
        tenant: &str,
        request: LeaseRequest,
    ) -> Result<LeaseId, Problem> {
        if let Some(id) = self.again(caller, tenant, &request)? {
            return Ok(id);
        }
        let home = self.home(&request)?;
        let planned = self.check_possible(tenant, &request, &home)?;
        let (milli, memory) = wanted(&request);
        let memory = memory.max(planned.saturating_mul(request.gpus.into()));
        self.check_limits(tenant, milli, memory, 1)?;
        let mut id = LeaseId::random();
        while self.leases.contains_key(&id) {
            id = LeaseId::random();
        }
        self.put_lease(LeaseRecord {
            id,
            tenant: tenant.to_owned(),
            request,
            state: LeaseState::Waiting,
            reason: "waiting for the next placement round".into(),
            version: 0,
            orders: 0,
            submitted_ms: self.unix_ms(),
            granted_ms: None,
            home,
            grants: Vec::new(),
            unconfirmed: Vec::new(),
            nvmes: Vec::new(),
            lapsed: false,
            outstanding: Vec::new(),
            sizes: Vec::new(),
        });
        self.count(|counters| counters.requests += 1);
        self.keep_waiting(id);
        let now_s = self.now_s();
        if let Some(entry) = self.leases.get_mut(&id) {
            entry.live.submit_s = now_s;
        }
        Ok(id)
    }

    /// The grants of what a round found for a lease, if it all is (still) free.
    pub(super) fn grants(
        &self,
        request: &LeaseRequest,
        home: &str,
        found: &[Found],
    ) -> Result<Vec<Grant>, NotGranted> {
        if found.len() != usize::from(request.gpus) {
            return Err(NotGranted::Count { found: found.len(), wanted: request.gpus });
        }
        let mut grants: Vec<Grant> = Vec::with_capacity(found.len());
        for Found { node, device, .. } in found {
            let entry = self.nodes.get(node).filter(|entry| entry.available());
            let entry = entry.ok_or_else(|| NotGranted::NodeGone(node.clone()))?;
            let report = entry
                .device(*device)
                .ok_or_else(|| NotGranted::DeviceGone { node: node.clone(), device: *device })?;
            let (milli, memory) = self.used(node, *device);
            let free = report.memory.saturating_sub(memory);
            let (share, memory) = if report.partitionable {
                let memory = match (request.memory, request.share_milli) {
                    (0, WHOLE) => report.memory,
                    (0, share) => (report.memory / u64::from(WHOLE) * u64::from(share)).min(free),
                    (memory, _) => memory,
                };
                (request.share_milli, memory)
            } else {
                (WHOLE, report.memory)
            };
            let borrows = self.may_borrow(request, entry, report);
            let crowded = milli + u32::from(share) > u32::from(WHOLE) && !borrows;
            if crowded || memory > free || memory < request.memory.max(1) {
                return Err(NotGranted::Taken { node: node.clone(), device: *device });
            }
            if grants.iter().any(|grant| grant.node == *node && grant.device == *device) {
                return Err(NotGranted::Twice { node: node.clone(), device: *device });
            }
            let alone = |index| entry.device(index).is_some_and(|report| report.alone);
            if let Some(other) =
                grants.iter().find(|grant| grant.node == *node && (report.alone || alone(grant.device)))
            {
                return Err(NotGranted::Beside { node: node.clone(), devices: [other.device, *device] });
            }
            grants.push(Grant { node: node.clone(), device: *device, memory, share_milli: share });
        }
        // The program's first devices are those that it reaches without the network; then comes the server with the most.
        let counts: Vec<usize> = grants
            .iter()
            .map(|grant| grants.iter().filter(|other| other.node == grant.node).count())
            .collect();
        let mut order: Vec<(bool, std::cmp::Reverse<usize>, Grant)> = counts
            .into_iter()
            .zip(grants)
            .map(|(count, grant)| (grant.node != home, std::cmp::Reverse(count), grant))
            .collect();
        order.sort_by(|a, b| {
            let key = |(far, count, grant): &(bool, std::cmp::Reverse<usize>, Grant)| {
                (*far, *count, grant.node.clone(), grant.device)
            };
            key(a).cmp(&key(b))
        });
        Ok(order.into_iter().map(|(_, _, grant)| grant).collect())
    }

    /// Gives a waiting lease what a round found for it.
    pub(super) fn grant(&mut self, id: LeaseId, found: &[Found]) -> Result<(), NotGranted> {
        let entry = self.leases.get(&id).ok_or(NotGranted::Gone)?;
        if entry.record.state != LeaseState::Waiting {
            return Err(NotGranted::NotWaiting);
        }
        let new = self.now().saturating_sub(self.time.started_ms) < self.settings.node_timeout_ms;
        if entry.live.restored && new && self.nodes.values().any(|node| !node.live.present) {
            return Err(NotGranted::Unheard);
        }
        // A node says that it serves the lease, and is asked to prove it: it was granted after this state was written.
        if self.is_claimed(id) {
            return Err(NotGranted::Unheard);
        }
        let mut record = LeaseRecord::clone(&entry.record);
        let submit_s = entry.live.submit_s;
        let (nvmes, gpus): (Vec<Found>, Vec<Found>) =
            found.iter().cloned().partition(|found| found.kind == DeviceKind::Nvme);
        let chosen = gpus.first().map_or(WHOLE, |found| found.milli);
        record.request = deadlines::decided(&record.request, chosen).into_owned();
        record.grants = self.grants(&record.request, &record.home, &gpus)?;
        record.nvmes = self.nvme_grants(&record.request, &nvmes)?;
        record.sizes = self.first_sizes(&record);
        if record.grants.iter().any(|grant| record.firm_milli(grant) < grant.share_milli) {
            self.count(|counters| counters.lent += 1);
        }
        record.state = LeaseState::Active;
        record.reason.clear();
        record.version += 1;
        record.granted_ms = Some(self.unix_ms());
        let nodes: Vec<String> = record.nodes().into_iter().map(str::to_owned).collect();
        record.orders = self.new_orders(nodes.iter().map(String::as_str));
        let at = places(&record);
        self.note(
            "lease_granted",
            None,
            Some(&record),
            format!("{} of {}: granted {at}", record.request.name, record.tenant),
        );
        self.put_lease(record);
        let (now, now_s) = (self.now(), self.now_s());
        self.set_deadline(id, Some(now + self.settings.lease_ttl_s * 1000));
        if let Some(entry) = self.leases.get_mut(&id) {
            entry.live.granted_s = now_s;
        }
        self.count(|counters| counters.grants += 1);
        self.counters.grant_times.add((now_s - submit_s).max(0.0));
        Ok(())
    }

    /// A round has left a lease waiting.
    pub(super) fn leave(&mut self, id: LeaseId, why: &str, counts: bool) {
        let Some(entry) = self.leases.get_mut(&id) else { return };
        if entry.record.state != LeaseState::Waiting {
            return;
        }
        let first = entry.live.left.is_empty();
        entry.live.left = why.to_owned();
        entry.live.rounds = entry.live.rounds.saturating_add(counts.into());
        let rounds = entry.live.rounds;
        let record = entry.record.clone();
        if record.request.now_or_never {
            self.end(id, End::Released, &format!("{NOTHING_FREE}: {why}"));
            return;
        }
        if counts {
            self.put_rounds(id, rounds);
        }
        if first {
            let text = format!("{} of {} waits: {why}", record.request.name, record.tenant);
            self.note("lease_waiting", None, Some(&record), text);
        }
    }

    /// Gives a lease back, or takes the request for it back while it waits. `why` is said of whoever does that.
    pub(super) fn give_back(&mut self, id: LeaseId, why: Option<&str>, completed: bool) {
        let now_s = self.now_s();
        let Some(entry) = self.leases.get_mut(&id) else { return };
        if completed && entry.record.state == LeaseState::Active {
            entry.live.watched.finished_s = Some(now_s);
            self.meet_deadline(id);
        }
        let Some(entry) = self.leases.get(&id) else { return };
        let (how, usual) = match entry.record.state {
            LeaseState::Waiting => (End::Withdrawn, "it was withdrawn while it waited"),
            _ => (End::Released, "it was given back"),
        };
        let text = match why {
            Some(why) => format!("{usual}: {why}"),
            None => usual.to_owned(),
        };
        self.end(id, how, &text);
    }

    /// Ends a lease: at once where it waits; else as soon as its nodes confirm it.
    pub(super) fn end(&mut self, id: LeaseId, how: End, why: &str) {
        let Some(entry) = self.leases.get(&id) else { return };
        let mut record = LeaseRecord::clone(&entry.record);
        match record.state {
            LeaseState::Waiting => record.state = LeaseState::Ended,
            LeaseState::Active => {
                let mut nodes: Vec<String> = record.nodes().into_iter().map(str::to_owned).collect();
                // Nothing is heard of a lost node; it must tell what it serves before its devices are granted again.
                let lost: Vec<String>;
                (lost, nodes) = nodes
                    .into_iter()
                    .partition(|name| self.nodes.get(name).is_none_or(|node| node.live.lost));
                // Where holder and nodes were all cut off, nobody has given anything up.
                record.lapsed = how == End::Expired && nodes.is_empty();
                if !record.lapsed {
                    lost.iter().for_each(|name| self.remember_gone(id, name));
                }
                record.orders = self.new_orders(nodes.iter().map(String::as_str));
                record.state = if nodes.is_empty() { LeaseState::Ended } else { LeaseState::Ending };
                record.unconfirmed = nodes;
            }
            LeaseState::Ending | LeaseState::Ended => return,
        }
        record.version += 1;
        record.reason = why.to_owned();
        let text = format!("{} of {}: {why}", record.request.name, record.tenant);
        self.note("lease_ended", None, Some(&record), text);
        self.put_lease(record);
        self.set_deadline(id, None);
        self.count(match how {
            End::Released => |counters| counters.released += 1,
            End::Withdrawn => |counters| counters.withdrawn += 1,
            End::Expired => |counters| counters.expired += 1,
            End::Revoked => |counters| counters.revoked += 1,
        });
    }

    /// A node has nothing left of a lease that is ending.
    pub(super) fn confirm(&mut self, node: &str, id: LeaseId) {
        let Some(entry) = self.leases.get(&id) else { return };
        if entry.record.state != LeaseState::Ending || !entry.record.unconfirmed.iter().any(|n| n == node) {
            return;
        }
        let mut record = LeaseRecord::clone(&entry.record);
        record.unconfirmed.retain(|name| name != node);
        if record.unconfirmed.is_empty() {
            record.state = LeaseState::Ended;
            self.learn(id);
        }
        self.put_lease(record);
        self.resize_leases_on(node);
    }

    /// Changes a lease's memory and share where it is.
    pub(super) fn change(&mut self, id: LeaseId, change: &LeaseChange) -> Result<(), Problem> {
        let conflict = |text: String| problem(ErrorCode::Conflict, text);
        let entry = self.leases.get(&id).ok_or_else(|| no_lease(id))?;
        let mut record = LeaseRecord::clone(&entry.record);
        if let Some(share) = change.share_milli {
            record.request.share_milli = share;
        }
        if let Some(memory) = change.memory {
            record.request.memory = memory;
        }
        let is_share = |share: &u16| (1..=WHOLE).contains(share);
        if !change.share_milli.iter().all(is_share) || change.memory.is_some_and(|m| m > 1 << 50) {
            let text = "share_milli is from 1 to 1000, memory from 1 byte to what the device has".to_owned();
            return Err(problem(ErrorCode::BadRequest, text));
        }
        if record.state != LeaseState::Active {
            let text =
                format!("the lease {id} is {}: only an active one can be changed", record.state.name());
            return Err(conflict(text));
        }
        let (mut more_milli, mut more_memory) = (0u64, 0u64);
        let had: Vec<(u64, u16)> =
            record.grants.iter().map(|grant| (record.counted(grant), record.firm_milli(grant))).collect();
        let mut outstanding = Vec::new();
        for (at, (grant, (counted, firm))) in record.grants.iter_mut().zip(had).enumerate() {
            let report = self.nodes.get(&grant.node).and_then(|node| node.device(grant.device));
            let Some(report) = report.cloned() else {
                return Err(conflict(format!("node {} or its device {} is gone", grant.node, grant.device)));
            };
            if !report.partitionable {
                let text = format!("device {} of node {} cannot be shared", grant.device, grant.node);
                return Err(conflict(format!("{text}: the lease has all of it")));
            }
            let (milli, memory) = self.used(&grant.node, grant.device);
            let free_milli = u32::from(WHOLE).saturating_sub(milli.saturating_sub(firm.into()));
            let free_memory = report.memory.saturating_sub(memory.saturating_sub(counted));
            let share = change.share_milli.unwrap_or(grant.share_milli);
            let memory = match change.memory {
                None => grant.memory,
                Some(0) if share == WHOLE => report.memory,
                Some(0) => report.memory / u64::from(WHOLE) * u64::from(share),
                Some(memory) => memory,
            };
            // What isn't to grow fits as it did.
            let fits = (share <= grant.share_milli || u32::from(share) <= free_milli)
                && (memory <= counted || memory <= free_memory);
            if !fits {
                return Err(conflict(format!(
                    "device {} of node {} has {free_milli} thousandths and {free_memory} bytes for this lease, what it has now \
                     included; {share} and {memory} are asked for",
                    grant.device, grant.node
                )));
            }
            more_milli += u64::from(share.saturating_sub(grant.share_milli));
            more_memory += memory.saturating_sub(counted);
            if let Some(size) = record.sizes.get_mut(at).filter(|_| share != grant.share_milli) {
                // It is promised something else, of which as much is firm as there is room.
                (size.firm_milli, size.set_aside_milli) = (share.min(free_milli as u16), share);
            }
            (grant.share_milli, grant.memory) = (share, memory);
            if memory < counted {
                // Its programs may have that much until their server says otherwise.
                let (node, device) = (grant.node.clone(), grant.device);
                outstanding.push(Outstanding { node, device, memory: counted });
            }
        }
        record.outstanding = outstanding;
        self.check_limits(&record.tenant, more_milli, more_memory, 0)?;
        record.version += 1;
        let nodes: Vec<String> = record.grants.iter().map(|grant| grant.node.clone()).collect();
        record.orders = self.new_orders(nodes.iter().map(String::as_str));
        let text = format!("{} of {}: now {}", record.request.name, record.tenant, places(&record));
        self.note("lease_changed", None, Some(&record), text);
        self.put_lease(record);
        self.count(|counters| counters.changes += 1);
        Ok(())
    }

    /// Ends leases whose time is over.
    pub(super) fn expire(&mut self) {
        let now = self.now();
        while let Some(&(at, id)) = self.deadlines.first() {
            if at > now {
                break;
            }
            let Some(entry) = self.leases.get(&id) else {
                self.deadlines.pop_first();
                continue;
            };
            if entry.record.state == LeaseState::Waiting {
                if entry.live.pollers > 0 {
                    self.keep_waiting(id);
                } else {
                    self.end(id, End::Expired, "nobody asked for it any more while it waited");
                }
            } else {
                self.end(id, End::Expired, "it was not renewed in time");
            }
            if self.deadlines.first() == Some(&(at, id)) {
                self.set_deadline(id, None);
            }
        }
    }

    /// A lease that the caller may look at.
    pub(super) fn visible(&self, caller: &Caller, id: LeaseId) -> Result<&Entry, Problem> {
        let entry = self.leases.get(&id).ok_or_else(|| no_lease(id))?;
        if !caller.sees(&entry.record.tenant) {
            let text = format!("the lease {id} is another tenant's");
            return Err(problem(ErrorCode::Forbidden, text));
        }
        Ok(entry)
    }
}

/// How the reason of a lease begins that was to be granted at once or never.
pub(crate) const NOTHING_FREE: &str = "nothing suitable is free now";

pub(crate) fn no_lease(id: LeaseId) -> Problem {
    problem(ErrorCode::NotFound, format!("there is no lease {id}, or it ended long ago"))
}

/// What a lease has, in words.
fn places(record: &LeaseRecord) -> String {
    let words = record.grants.iter().map(|grant| {
        format!(
            "{}/1000 and {} MiB of {}'s device {}",
            grant.share_milli,
            grant.memory / MIB,
            grant.node,
            grant.device
        )
    });
    let nvmes = record.nvmes.iter().map(|nvme| format!("{}'s NVMe device {}", nvme.node, nvme.device));
    words.chain(nvmes).collect::<Vec<_>>().join(", ")
}
