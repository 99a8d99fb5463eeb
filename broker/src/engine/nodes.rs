//! What happens to nodes.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};

use rgpu_control::LeaseId;
use rgpu_control::api::*;
use rgpu_placement::ModelSet;

use super::core::{Core, epoch_of, first_of, moment_of};
use super::live::{End, Entry};
use super::series::NodeSeries;
use super::{nvmes, problem};
use crate::store::{LeaseRecord, NodeRecord};

/// How many other nodes a node measures its times to.
const PEERS: usize = 16;

/// No clock is wrong by so much: numbers of orders from further in the future are not believed (µs).
const FUTURE_US: u64 = 10 * 365 * 86_400 * 1_000_000;

/// Refuses registrations that are nonsense, whatever the state.
pub(crate) fn check_registration(
    node: &Registration,
    switches: &[rgpu_placement::SwitchSpec],
) -> Result<(), Problem> {
    let bad = |text: String| Err(problem(ErrorCode::BadRequest, text));
    let name = &node.name;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
        return bad(format!("{name:?} is no node's name: up to 64 letters, digits, and - _ ."));
    }
    if name.starts_with("client-") {
        return bad(format!("{name:?}: names that begin with client- are for machines that are no nodes"));
    }
    let addresses = [Some(&node.address), node.local_address.as_ref()];
    for address in addresses.into_iter().flatten() {
        let port = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
        if port.is_none_or(|(host, port)| host.is_empty() || port == 0) || address.len() > 280 {
            return bad(format!("{address:?} is no address: HOST:PORT"));
        }
    }
    let is_fingerprint = |text: &String| {
        let digits = text.strip_prefix("sha256:").unwrap_or_default();
        digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    };
    if !node.tls_fingerprint.as_ref().is_none_or(is_fingerprint) {
        return bad("tls_fingerprint is none: sha256: and 64 hexadecimal digits".into());
    }
    if node.machine.is_empty() || node.machine.len() > 128 {
        return bad("machine is empty or longer than 128 bytes".into());
    }
    if node.devices.len() > 256 {
        return bad(format!("{} devices in one node: 256 at most", node.devices.len()));
    }
    for (i, device) in node.devices.iter().enumerate() {
        if device.index as usize != i {
            return bad(format!(
                "device {i} says that its number is {}: they go from 0 without gaps",
                device.index
            ));
        }
        if device.memory == 0 || device.memory > 1 << 50 || device.bus_mbps > 1 << 40 {
            return bad(format!("device {i} has {} bytes and {} Mbit/s", device.memory, device.bus_mbps));
        }
        if device.model.is_empty() || device.model.len() > 128 {
            return bad(format!("device {i} has no model's name, or a very long one"));
        }
    }
    if let Some(controls) = &node.controls
        && (controls.cores > 1 << 16 || controls.llc_ways > 64)
    {
        return bad("the node's controls are beyond belief".into());
    }
    if node.nic_mbps > 1 << 40 || node.cpu_milli > 1 << 40 || node.memory_mib > 1 << 40 {
        return bad("nic_mbps, cpu_milli or memory_mib is beyond belief".into());
    }
    if let Some(name) = &node.switch
        && !switches.iter().any(|switch| switch.name == *name)
    {
        return bad(format!("there is no switch {name:?} in the broker's configuration"));
    }
    nvmes::check_registration(&node.nvmes)
}

/// No cluster has had so many brokers that took over.
const MAX_EPOCH: u64 = 1 << 11;

/// What of a heartbeat has to be stored.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Consequences {
    /// Leases of which the node has nothing left.
    pub ended: Vec<LeaseId>,
    /// The node says good-bye.
    pub leaving: bool,
    /// What it shows of leases that were not known.
    pub proofs: Vec<LeaseProof>,
    /// All that it serves, where something has ended that it served when it was lost.
    pub serves: Option<BTreeSet<LeaseId>>,
    /// Leases for which it could not attach an NVMe device, and why.
    pub failed: Vec<(LeaseId, String)>,
}

impl Core {
    /// A node introduces itself.
    pub(super) fn register(&mut self, mut node: Registration) -> Result<(), Problem> {
        let (now, name) = (self.now(), node.name.clone());
        let reports = std::mem::take(&mut node.leases);
        let before = self.nodes.get(&name).map(|entry| (entry.record.clone(), entry.live.lost));
        if let Some(entry) = self.nodes.get(&name)
            && entry.record.registration.instance != node.instance
            && !entry.live.lost
        {
            let old = &entry.record.registration;
            let silent = now.saturating_sub(entry.live.heard);
            // Two servers cannot listen on one address: at the same one, the earlier server is gone, or will never be heard again.
            let same_place = old.machine == node.machine && old.address == node.address;
            let patience = match same_place {
                // Restored from the store, and not heard of since.
                true if !entry.live.present => 0,
                true => self.settings.node_timeout_ms.min(3 * self.settings.heartbeat_ms),
                // It may live, and be slow: it has as much time as any node.
                false => self.settings.node_timeout_ms,
            };
            if silent < patience {
                let text = format!(
                    "another server is running as node {name:?}, at {}, and was heard {:.1} s ago: give this one another name and \
                     token, or stop the other one first (it is replaced when it has been silent for {:.0} s)",
                    old.address,
                    silent as f64 / 1000.0,
                    patience as f64 / 1000.0
                );
                return Err(problem(ErrorCode::Conflict, text));
            }
        }
        let others = self.nodes.iter().filter(|(other, _)| **other != name);
        let mut models: HashSet<Cow<'_, str>> = HashSet::new();
        for about in others.map(|(_, entry)| &entry.record.registration).chain([&node]) {
            // A node's devices are of one model, as a rule.
            for like in about.devices.chunk_by(|a, b| a.model == b.model) {
                models.insert(like[0].model.as_str().into());
            }
            models.extend(about.nvmes.iter().map(|nvme| nvmes::model(nvme).into()));
        }
        if models.len() > ModelSet::LIMIT {
            let text = format!(
                "with this node there would be {} models of devices (bandwidths of NVMe devices included): 64 at most",
                models.len()
            );
            return Err(problem(ErrorCode::BadRequest, text));
        }
        let draining = before.as_ref().is_some_and(|(record, _)| record.draining);
        let count = node.devices.len();
        // Another machine has none of the programs that the first one runs.
        let moved = before.as_ref().is_some_and(|(old, _)| old.registration.machine != node.machine);
        let gone = |device: u32| {
            let old = before.as_ref().and_then(|(old, _)| old.registration.devices.get(device as usize));
            let new = node.devices.get(device as usize);
            moved
                || new.is_none_or(|new| {
                    old.is_some_and(|old| (&old.uuid, old.memory) != (&new.uuid, new.memory))
                })
        };
        let revoked: Vec<LeaseId> = self.nodes.get(&name).map_or_else(Vec::new, |entry| {
            let has = |id: &&LeaseId| {
                let grants = self.leases.get(id).map(|entry| entry.record.grants.as_slice()).unwrap_or(&[]);
                let nvmes = self.leases.get(id).map(|entry| entry.record.nvmes.as_slice()).unwrap_or(&[]);
                grants.iter().any(|grant| grant.node == name && gone(grant.device))
                    || nvmes.iter().any(|nvme| nvme.node == name && !nvmes::is_offered(&node.nvmes, nvme))
            };
            entry.live.leases.iter().filter(has).copied().collect()
        });
        let record = NodeRecord { registration: node, draining };
        match &before {
            Some((old, lost)) if **old == record => {
                if *lost {
                    self.note("node_back", Some(&name), None, format!("node {name} is back"));
                }
            }
            _ => {
                let text = format!("node {name} has joined with {count} devices");
                self.note("node_joined", Some(&name), None, text);
                self.put_node(record);
            }
        }
        let same = before.as_ref().is_none_or(|(old, _)| {
            self.nodes.get(&name).is_some_and(|entry| uuids(&entry.record).eq(uuids(old)))
        });
        let live = self.live_node(&name);
        if !same {
            // What was measured was measured of other devices.
            live.history = None;
        }
        (live.heard, live.lost, live.silent, live.present, live.followed) = (now, false, false, true, 0);
        // Another run of its server may be another release of it.
        live.series = NodeSeries::default();
        self.gone_there(&name, &reports.iter().map(|report| report.lease).collect());
        self.take_reports(&name, reports);
        for id in revoked {
            self.end(id, End::Revoked, &format!("node {name} does not have its device any more"));
        }
        // It says all that it serves: of what is ending and not there, nothing is left.
        for id in self.left_nothing(&name) {
            self.confirm(&name, id);
        }
        self.changes.topology = true;
        self.new_orders([name.as_str()]);
        Ok(())
    }

    /// Leases that are to end on a node, and that it hasn't reported.
    fn left_nothing(&self, name: &str) -> Vec<LeaseId> {
        let Some(entry) = self.nodes.get(name) else { return Vec::new() };
        let ending = entry.live.leases.iter().copied().filter(|id| {
            self.leases.get(id).is_some_and(|lease| {
                lease.record.state == LeaseState::Ending && !lease.live.usage.contains_key(name)
            })
        });
        ending.collect()
    }

    /// Keeps what a node says of its leases, and notes whether it serves any that it shouldn't.
    fn take_reports(&mut self, name: &str, reports: Vec<LeaseReport>) {
        let Some(node) = self.nodes.get(name) else { return };
        let mut clean = true;
        let known = node.live.leases.clone();
        let was = node.available();
        for id in &known {
            if let Some(entry) = self.leases.get_mut(id)
                && !reports.iter().any(|report| report.lease == *id)
            {
                entry.live.usage.remove(name);
                entry.live.processors.remove(name);
            }
        }
        let mut launches = 0u64;
        let mut strangers: Vec<(LeaseId, u64)> = Vec::new();
        for report in reports {
            launches += report.usage.iter().map(|usage| usage.launches).sum::<u64>();
            if !known.contains(&report.lease) {
                clean = false;
                strangers.push((report.lease, report.version));
            }
            self.hear_memory(name, &report);
            self.hear_size(&report);
            if let Some(entry) = self.leases.get_mut(&report.lease) {
                if known.contains(&report.lease) && report.version > entry.record.version {
                    strangers.push((report.lease, report.version));
                }
                entry.live.usage.insert(name.to_owned(), (report.sessions, report.usage));
                entry.hear_processors(name, report.processors);
                self.watch_run(name, report.lease);
            }
        }
        let now = self.now();
        let live = self.live_node(name);
        live.clean = clean;
        let (then, before) = live.launches;
        if now > then + 200 {
            // Leases that ended take their counts with them.
            live.launches_per_s = launches.saturating_sub(before) as f64 * 1000.0 / (now - then) as f64;
            live.launches = (now, launches);
        }
        if self.nodes.get(name).is_some_and(|node| node.available()) != was {
            self.changes.topology = true;
        }
        self.meet(name, &strangers);
    }

    /// Takes note of how a node is. What has to be stored of it comes back.
    pub(super) fn heard(&mut self, name: &str, beat: Heartbeat) -> Result<Consequences, Problem> {
        let again = |text: String| Err(problem(ErrorCode::Conflict, text));
        let now = self.now();
        let unix_us = self.unix_ms() * 1000;
        let Some(entry) = self.nodes.get_mut(name) else {
            return again(format!("node {name:?} is not registered: register"));
        };
        if entry.record.registration.instance != beat.instance {
            return again(format!(
                "another run of node {name:?}'s server has registered since: register again"
            ));
        }
        let live = &mut entry.live;
        live.heard = now;
        if !std::mem::replace(&mut live.present, true) {
            // Whoever waits for its orders may have them now.
            live.changed.notify_waiters();
        }
        let back = std::mem::replace(&mut live.lost, false) | std::mem::replace(&mut live.silent, false);
        // Another heartbeat has overtaken it: that one has said what came after.
        let overtaken = beat.orders < live.followed;
        let plausible = moment_of(beat.orders) < unix_us + FUTURE_US && epoch_of(beat.orders) < MAX_EPOCH;
        if plausible {
            live.followed = live.followed.max(beat.orders);
        }
        let Heartbeat {
            devices,
            leases,
            orders,
            ended,
            used,
            nic_in_mbps,
            nic_out_mbps,
            own_in_mbps,
            own_out_mbps,
            peers,
            leaving,
            proofs,
            nvmes,
            ..
        } = beat;
        (live.loads, live.peers) = (devices, peers);
        (live.nic_in_mbps, live.nic_out_mbps) = (nic_in_mbps, nic_out_mbps);
        (live.own_in_mbps, live.own_out_mbps) = (own_in_mbps, own_out_mbps);
        let before = live.others.mbps();
        let (into, out) =
            (nic_in_mbps.saturating_sub(own_in_mbps), nic_out_mbps.saturating_sub(own_out_mbps));
        live.others.hear(now, self.settings.heartbeat_ms, into, out);
        if live.others.mbps() != before {
            self.changes.traffic.insert(name.to_owned());
        }
        if orders > self.orders && plausible {
            // The clock went back, or the state is an older one: orders must be newer than those that the node follows.
            self.orders = match self.settings.rivals && epoch_of(orders) > epoch_of(self.orders) {
                // It comes from another broker, which may live still: nothing of that one's counts here any more.
                true => first_of(epoch_of(orders) + 1, unix_us / 1000),
                false => orders + 1,
            };
            live.changed_at = self.orders;
        }
        self.counters.heartbeats += 1;
        if back {
            self.changes.topology = true;
            let text = format!("node {name} is back");
            let time = self.unix_ms() / 1000;
            self.events.push(
                time,
                super::events::Happened {
                    kind: "node_back",
                    node: Some(name.to_owned()),
                    lease: None,
                    tenant: None,
                    text,
                },
            );
        }
        let mut ends: Vec<LeaseId> = ended
            .into_iter()
            .filter(|id| self.leases.get(id).is_some_and(|e| e.record.state == LeaseState::Ending))
            .collect();
        let serves = (self.gone.iter().any(|(_, node)| node == name) && !overtaken)
            .then(|| leases.iter().map(|report| report.lease).collect::<BTreeSet<LeaseId>>())
            .filter(|serves| self.gone.iter().any(|(id, node)| node == name && !serves.contains(id)));
        if !overtaken {
            self.take_reports(name, leases);
            self.observe(name);
            self.remember(name);
        }
        for report in used {
            let entry = self.leases.get_mut(&report.lease);
            let has = |entry: &&mut Entry| {
                let over = matches!(entry.record.state, LeaseState::Ending | LeaseState::Ended);
                over && entry.record.grants.iter().any(|grant| grant.node == name)
            };
            if let Some(entry) = entry.filter(has) {
                // The last that is heard of it.
                entry.live.usage.insert(name.to_owned(), (0, report.usage));
                entry.hear_processors(name, report.processors);
            }
        }
        if overtaken {
            return Ok(Consequences { ended: ends, leaving, ..Consequences::default() });
        }
        // It follows orders that end a lease, and has nothing of it: perhaps it never heard of it.
        for id in self.left_nothing(name) {
            let follows = self.leases.get(&id).is_some_and(|entry| entry.record.orders <= orders);
            if follows && !ends.contains(&id) {
                ends.push(id);
            }
        }
        let failed = self.hear_nvmes(name, nvmes);
        Ok(Consequences { ended: ends, leaving, proofs, serves, failed })
    }

    /// Whether a node gets new leases.
    pub(super) fn drain(&mut self, name: &str, drain: bool) -> Result<(), Problem> {
        let entry = self.nodes.get(name).ok_or_else(|| no_node(name))?;
        if entry.record.draining != drain {
            let text = match drain {
                true => format!("node {name} gets no new leases"),
                false => format!("node {name} gets new leases again"),
            };
            self.put_node(NodeRecord { draining: drain, ..NodeRecord::clone(&entry.record) });
            self.note("node_drained", Some(name), None, text);
        }
        Ok(())
    }

    /// Forgets a node.
    pub(super) fn remove_node(&mut self, name: &str) -> Result<(), Problem> {
        let entry = self.nodes.get(name).ok_or_else(|| no_node(name))?;
        let leases = entry.live.leases.len();
        if !entry.live.lost && (!entry.record.draining || leases > 0) {
            let text = format!(
                "node {name} {}, and {leases} leases have something of it: drain it, and wait until they have ended",
                if entry.record.draining { "is draining" } else { "is ready" }
            );
            return Err(problem(ErrorCode::Conflict, text));
        }
        // Whoever removes a lost node knows that it does not come back.
        for id in entry.live.leases.clone() {
            self.end(id, End::Revoked, &format!("node {name} was removed"));
            self.confirm(name, id);
        }
        self.forget_gone(name, |_| true);
        self.drop_node(name);
        self.note("node_removed", Some(name), None, format!("node {name} was removed"));
        Ok(())
    }

    /// The nodes of a lease but one, and where their servers are reached from other machines.
    fn others_of(&self, record: &LeaseRecord, name: &str) -> Vec<Peer> {
        let names: std::collections::BTreeSet<&str> =
            record.grants.iter().map(|grant| grant.node.as_str()).filter(|node| *node != name).collect();
        let peer = |node: &str| Peer {
            node: node.to_owned(),
            address: self.nodes.get(node).map_or_else(String::new, |n| n.record.registration.address.clone()),
        };
        names.into_iter().map(peer).filter(|peer| !peer.address.is_empty()).collect()
    }

    /// What a node is to do.
    pub(super) fn orders_for(&self, name: &str) -> Result<Orders, Problem> {
        let entry = self.nodes.get(name).ok_or_else(|| no_node(name))?;
        let active = entry.live.leases.iter().filter_map(|id| self.leases.get(id));
        let leases = active
            .filter(|lease| lease.record.state == LeaseState::Active)
            .map(|lease| {
                let record: &LeaseRecord = &lease.record;
                LeaseOrder {
                    lease: record.id,
                    version: record.version,
                    tenant: record.tenant.clone(),
                    holder: record.request.holder.clone(),
                    expires: lease.live.deadline.map_or(0, |at| self.unix_s_at(at)),
                    grants: record.grants.iter().filter(|grant| grant.node == name).cloned().collect(),
                    nvmes: nvmes::orders(record, name),
                    sizes: record.sizes_on(name),
                    nodes: self.others_of(record, name),
                    processors: self.processor_order(record, name),
                }
            })
            .collect();
        let has = entry.live.leases.iter().filter_map(|id| self.leases.get(id));
        let ended = has
            .filter(|lease| lease.record.state == LeaseState::Ending)
            .map(|lease| EndedOrder { lease: lease.record.id, reason: lease.record.reason.clone() })
            .collect();
        // Its successors in the ring of names: so everybody measures to some, and is measured by as many.
        let after = self.nodes.range::<str, _>((std::ops::Bound::Excluded(name), std::ops::Bound::Unbounded));
        let ring = after
            .chain(self.nodes.range::<str, _>((std::ops::Bound::Unbounded, std::ops::Bound::Excluded(name))));
        let peers = ring
            .filter(|(_, node)| !node.live.lost)
            .take(PEERS)
            .map(|(peer, node)| Peer {
                node: peer.clone(),
                address: node.record.registration.address.clone(),
            })
            .collect();
        Ok(Orders { version: self.orders, leases, ended, peers, prove: self.to_prove(name) })
    }
}

/// What tells a node's devices from others, in their order.
fn uuids(record: &NodeRecord) -> impl Iterator<Item = &str> {
    record.registration.devices.iter().map(|device| device.uuid.as_str())
}

pub(crate) fn no_node(name: &str) -> Problem {
    problem(ErrorCode::NotFound, format!("there is no node {name:?}"))
}
