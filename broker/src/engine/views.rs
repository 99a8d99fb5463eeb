//! The state as the API shows it.

use std::collections::{BTreeMap, BTreeSet};

use rgpu_control::api::*;
use rgpu_control::ticket::LeaseServer;
use rgpu_control::token::{Claims, LeaseClaims};

use super::Caller;
use super::core::Core;
use super::live::{Entry, NodeEntry};
use crate::store::LeaseRecord;

impl Core {
    /// A lease, without its token.
    pub(super) fn lease_view(&self, entry: &Entry) -> Lease {
        let record = &entry.record;
        let mut servers: Vec<LeaseServer> = Vec::new();
        // Usage comes by node, in the order of the lease's grants there.
        let mut taken: BTreeMap<&str, usize> = BTreeMap::new();
        let mut usage = Vec::with_capacity(record.grants.len());
        for grant in &record.grants {
            match servers.last_mut().filter(|server| server.node == grant.node) {
                Some(server) => server.devices += 1,
                None => servers.push(self.server(record, &grant.node)),
            }
            let at = taken.entry(&grant.node).or_default();
            let told = entry.live.usage.get(&grant.node).and_then(|(_, usage)| usage.get(*at));
            usage.push(told.cloned().unwrap_or(GrantUsage { device: grant.device, ..GrantUsage::default() }));
            *at += 1;
        }
        let reason = match record.state {
            LeaseState::Waiting if !entry.live.left.is_empty() => entry.live.left.clone(),
            _ => record.reason.clone(),
        };
        let outlook = self.outlook(entry);
        let reason = match &outlook {
            Some(outlook) if record.state == LeaseState::Waiting && outlook.kept == Some(false) => {
                format!("{reason}; {}", outlook.text)
            }
            _ => reason,
        };
        Lease {
            id: record.id,
            name: record.request.name.clone(),
            tenant: record.tenant.clone(),
            state: record.state,
            reason,
            version: record.version,
            submitted: record.submitted_ms / 1000,
            granted: record.granted_ms.map(|ms| ms / 1000),
            expires: entry.live.deadline.map(|at| self.unix_s_at(at)),
            ended: entry.live.ended_ms.map(|ms| ms / 1000),
            remote: record.grants.iter().filter(|grant| grant.node != record.home).count() as u32,
            grants: record.grants.clone(),
            sizes: record.sizes.clone(),
            servers,
            token: None,
            transport: record.request.transport.clone(),
            client_node: record.home.clone(),
            usage,
            processors: entry.processor_views(),
            sessions: entry.live.usage.values().map(|(sessions, _)| sessions).sum(),
            ca: self.settings.data_ca.clone(),
            nvmes: super::nvmes::view(entry),
            key: record.request.key.clone(),
            deadline: outlook.as_ref().map(|outlook| outlook.due_ms / 1000),
            deadline_kept: outlook.as_ref().and_then(|outlook| outlook.kept),
            estimate: self.estimate(entry),
        }
    }

    fn server(&self, record: &LeaseRecord, node: &str) -> LeaseServer {
        let about = self.nodes.get(node).map(|entry| &entry.record.registration);
        // Programs on the server's own machine reach it without the network. Several nodes can be on one machine.
        let here = |about: &&Registration| {
            record.home == node || (!about.machine.is_empty() && about.machine == record.request.machine)
        };
        let local = about.filter(here).and_then(|about| about.local_address.clone());
        LeaseServer {
            node: node.to_owned(),
            address: local.or_else(|| about.map(|about| about.address.clone())).unwrap_or_default(),
            devices: 1,
            tls: record.request.encrypt || about.is_some_and(|about| about.tls_required),
            fingerprint: about.and_then(|about| about.tls_fingerprint.clone()),
        }
    }

    /// What an active lease's token says.
    pub(super) fn claims(&self, entry: &Entry) -> Option<Claims> {
        let record = &entry.record;
        if record.state != LeaseState::Active {
            return None;
        }
        Some(Claims::Lease(LeaseClaims {
            lease: record.id,
            version: record.version,
            orders: record.orders,
            tenant: record.tenant.clone(),
            not_before: self.unix_ms() / 1000,
            expires: self.unix_s_at(entry.live.deadline?),
            holder: record.request.holder.clone(),
            transport: record.request.transport.clone(),
            encrypt: record.request.encrypt,
            grants: record.grants.clone(),
        }))
    }

    pub(super) fn node_view(&self, name: &str, entry: &NodeEntry) -> Node {
        let (about, live) = (&entry.record.registration, &entry.live);
        let state = match (live.lost, entry.record.draining, live.clean) {
            (true, ..) => "lost",
            _ if live.silent => "silent",
            (_, true, _) => "draining",
            (.., false) => "joining",
            _ => "ready",
        };
        Node {
            name: name.to_owned(),
            state: state.into(),
            address: about.address.clone(),
            cpu_milli: about.cpu_milli,
            memory_mib: about.memory_mib,
            nic_mbps: about.nic_mbps,
            nic_in_mbps: live.nic_in_mbps,
            nic_out_mbps: live.nic_out_mbps,
            others_mbps: live.others.mbps(),
            heard_s: self.now().saturating_sub(live.heard) as f64 / 1000.0,
            version: about.version.clone(),
            devices: about.devices.len() as u32,
            nvmes: about.nvmes.clone(),
            leases: live.leases.len() as u32,
            peers: live.peers.clone(),
            controls: about.controls.clone(),
            tls: about.tls,
        }
    }

    /// The nodes, and the machines that are none but where programs run.
    pub(super) fn node_views(&self) -> Vec<Node> {
        let mut views: Vec<Node> =
            self.nodes.iter().map(|(name, entry)| self.node_view(name, entry)).collect();
        let mut clients: BTreeMap<&str, u32> = BTreeMap::new();
        for entry in self.leases.values() {
            let record = &entry.record;
            if record.state != LeaseState::Ended && !self.nodes.contains_key(&record.home) {
                *clients.entry(&record.home).or_default() += 1;
            }
        }
        views.extend(clients.into_keys().map(|name| Node {
            name: name.to_owned(),
            state: "client".into(),
            address: String::new(),
            cpu_milli: 0,
            memory_mib: 0,
            nic_mbps: self.settings.default_nic_mbps,
            nic_in_mbps: 0,
            nic_out_mbps: 0,
            others_mbps: 0,
            heard_s: 0.0,
            version: String::new(),
            devices: 0,
            nvmes: Vec::new(),
            leases: 0,
            peers: Vec::new(),
            controls: None,
            tls: false,
        }));
        views
    }

    pub(super) fn device_views(&self) -> Vec<Device> {
        let mut views = Vec::new();
        for (name, entry) in &self.nodes {
            for report in &entry.record.registration.devices {
                let load = entry.live.loads.iter().find(|load| load.index == report.index);
                let used = entry.live.devices.get(report.index as usize).cloned().unwrap_or_default();
                views.push(Device {
                    node: name.clone(),
                    report: report.clone(),
                    load: load
                        .cloned()
                        .unwrap_or(DeviceLoad { index: report.index, ..DeviceLoad::default() }),
                    granted_milli: used.milli,
                    granted_memory: used.memory,
                    leases: used.leases,
                    available: entry.available(),
                });
            }
        }
        views
    }

    /// The leases that a caller may see, the oldest first.
    pub(super) fn lease_views(&self, caller: &Caller, all: bool) -> Vec<Lease> {
        let mut seen: Vec<&Entry> = self
            .leases
            .values()
            .filter(|entry| {
                (all || entry.record.state != LeaseState::Ended) && caller.sees(&entry.record.tenant)
            })
            .collect();
        seen.sort_by_key(|entry| (entry.record.submitted_ms, entry.record.id));
        seen.into_iter().map(|entry| self.lease_view(entry)).collect()
    }

    /// What waits, in the queue's order; then what runs.
    pub(super) fn job_views(&self, caller: &Caller) -> Vec<Job> {
        let mut seen: Vec<&Entry> = self
            .leases
            .values()
            .filter(|entry| matches!(entry.record.state, LeaseState::Waiting | LeaseState::Active))
            .collect();
        seen.sort_by(|a, b| {
            let running = |entry: &Entry| entry.record.state != LeaseState::Waiting;
            let order = running(a).cmp(&running(b)).then(a.live.submit_s.total_cmp(&b.live.submit_s));
            order.then(a.record.id.cmp(&b.record.id))
        });
        let mut jobs = Vec::new();
        for (entry, place) in seen.into_iter().zip(1..) {
            let record = &entry.record;
            if !caller.sees(&record.tenant) {
                continue;
            }
            let waiting = record.state == LeaseState::Waiting;
            // Where anything is known: under a quiet network.
            let need = || self.profiles.need(&record.tenant, &record.request, remote_share(record));
            let expected_s = (!waiting).then(need).flatten().map(|need| match record.request.deadline_s {
                Some(_) => need.seconds_on(record.request.share_milli),
                None => need.seconds,
            });
            jobs.push(Job {
                lease: record.id,
                name: record.request.name.clone(),
                tenant: record.tenant.clone(),
                state: if waiting { "waiting" } else { "running" }.into(),
                submitted: record.submitted_ms / 1000,
                rounds: entry.live.rounds,
                reason: if waiting { entry.live.left.clone() } else { String::new() },
                place: if waiting { place } else { 0 },
                expected_s,
            });
        }
        jobs
    }

    pub(super) fn tenant_views(&self) -> Vec<Tenant> {
        let names: BTreeSet<&String> = self.tenants.keys().chain(self.settings.tenants.keys()).collect();
        names
            .into_iter()
            .map(|name| {
                let (limits, held) = (self.settings.limits_of(name), self.held(name));
                Tenant {
                    name: name.clone(),
                    max_gpu_milli: limits.max_gpu_milli,
                    max_memory: limits.max_memory,
                    max_leases: limits.max_leases,
                    gpu_milli: held.gpu_milli,
                    memory: held.memory,
                    active: held.active,
                    waiting: held.waiting,
                }
            })
            .collect()
    }

    pub(super) fn summary(&self) -> Summary {
        let nodes = self.nodes.values();
        let sum = |of: fn(&NodeEntry) -> u64| nodes.clone().map(of).sum::<u64>();
        Summary {
            nodes_ready: nodes.clone().filter(|node| node.available()).count() as u32,
            nodes: self.nodes.len() as u32,
            devices: sum(|node| node.record.registration.devices.len() as u64) as u32,
            granted_milli: sum(|node| node.live.devices.iter().map(|device| u64::from(device.milli)).sum()),
            active: self.counters.active as u32,
            waiting: self.counters.waiting as u32,
            rounds: self.counters.rounds,
            round_us: self.counters.last_round_us,
            launches_per_s: nodes
                .clone()
                .filter(|node| !node.live.lost)
                .map(|node| node.live.launches_per_s)
                .sum(),
            traffic_mbps: sum(|node| match node.live.lost {
                true => 0,
                false => node.live.own_in_mbps + node.live.own_out_mbps,
            }) as f64,
        }
    }

    pub(super) fn policies(&self) -> Policies {
        Policies {
            active: self.policy.clone(),
            names: self.settings.policies.names().map(str::to_owned).collect(),
        }
    }

    /// Why a lease is where it is, as far as that was recorded.
    pub(super) fn explanation(&self, caller: &Caller, entry: &Entry) -> LeaseExplanation {
        let recorded = match &entry.live.explanation {
            Some(explanation) => LeaseExplanation::clone(explanation),
            None => self.not_recorded(entry),
        };
        let mut explained = self.with_forecast(caller, entry, recorded);
        if let Some(outlook) = self.outlook(entry) {
            explained.text += &format!("  {}\n", outlook.text);
        }
        explained
    }

    /// What is said of a decision that was not recorded.
    fn not_recorded(&self, entry: &Entry) -> LeaseExplanation {
        let record = &entry.record;
        let outcome = match record.state {
            LeaseState::Waiting if entry.live.left.is_empty() => record.reason.clone(),
            LeaseState::Waiting => entry.live.left.clone(),
            _ => {
                let places = record
                    .grants
                    .iter()
                    .map(|grant| format!("{}'s device {}", grant.node, grant.device))
                    .collect::<Vec<_>>()
                    .join(", ");
                match places.as_str() {
                    "" => record.reason.clone(),
                    _ => format!("placed on {places}"),
                }
            }
        };
        let text = format!(
            "{}: {outcome}\n  The alternatives were not recorded: the broker was restarted since, or more was decided at once than it \
             explains. Ask while a request waits, and its next decision is explained.\n",
            record.request.name
        );
        LeaseExplanation {
            lease: record.id,
            text,
            policy: self.policy.name.clone(),
            outcome,
            steps: Vec::new(),
            estimate: None,
            blocked_by: Vec::new(),
            alternatives: Vec::new(),
        }
    }
}

/// The part of a lease's devices that are in other nodes than its program.
pub(super) fn remote_share(record: &LeaseRecord) -> f64 {
    let remote = record.grants.iter().filter(|grant| grant.node != record.home).count();
    remote as f64 / record.grants.len().max(1) as f64
}
