//! The state itself: leases, nodes, and what follows from them. All changes of what is stored pass through here, so that they can
//! be taken back when they cannot be stored.
//!
//! One thread makes changes, in batches (see [`super::worker`]): it holds the lock for as long as a batch and its commit take.
//! Whoever else takes the lock sees only what is stored.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use rgpu_control::LeaseId;
use rgpu_control::api::*;
use rgpu_control::token::Grant;
use rgpu_placement::{Cluster, WHOLE};

use super::clock::{Clock, Timeline};
use super::deadlines::due_ms;
use super::events::{EventLog, Happened};
use super::harvest::Harvest;
use super::learnt::{Known, Learnt, Program};
use super::live::{DeviceUse, End, Entry, Held, LeaseLive, NodeEntry, NodeLive};
use super::machines::Machines;
use super::model::ProfileTable;
use super::rounds::RoundLog;
use super::settings::complete;
use super::withdrawn::Withdrawn;
use super::{Counters, Settings, StartError, nvmes, problem};
use crate::store::{Kept, LeaseRecord, NodeRecord, Write};

/// How to take a change back.
pub(super) enum Undo {
    /// With the deadline that it had.
    Lease(LeaseId, Option<Arc<LeaseRecord>>, Option<u64>),
    Node(String, Option<Arc<NodeRecord>>),
    Policy(PolicySettings),
    Gone(BTreeSet<(LeaseId, String)>),
    Withdrawn(Arc<Withdrawn>),
    Known(Program, Option<Known>),
}

/// What a batch has changed so far.
#[derive(Default)]
struct Transaction {
    undo: Vec<Undo>,
    writes: Vec<Write>,
    events: Vec<Happened>,
    /// What is counted if it succeeds.
    counts: Vec<fn(&mut Counters)>,
    /// The leases that have ended, when it is stored.
    ended: Vec<LeaseId>,
    /// What a placement round came to.
    round: Option<RoundOutcome>,
}

/// A place in a transaction to go back to.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    undo: usize,
    writes: usize,
    events: usize,
    counts: usize,
}

/// What has yet to be put into the placement's queue ([`super::feed`]).
#[derive(Default)]
pub(crate) struct Changes {
    /// Leases that are different.
    pub leases: Vec<LeaseId>,
    /// Nodes whose measured traffic is different.
    pub traffic: BTreeSet<String>,
    /// Nodes of whose devices and leases something was measured.
    pub measured: BTreeSet<String>,
    /// Programs of which it was learnt how they use their devices.
    pub footprints: BTreeSet<Program>,
    /// Nodes or their devices have come or gone.
    pub topology: bool,
    /// Another policy decides.
    pub policy: bool,
    /// Whether that makes a round worthwhile.
    pub round: bool,
}

pub(crate) struct Core {
    pub settings: Arc<Settings>,
    /// The engine's clock, and the placement's time.
    pub time: Timeline,
    pub leases: HashMap<LeaseId, Entry>,
    /// Leases that wait or are active and have a key, by tenant and key.
    pub keyed: HashMap<(String, String), LeaseId>,
    pub nodes: BTreeMap<String, NodeEntry>,
    pub machines: Machines,
    pub tenants: BTreeMap<String, Held>,
    /// Leases that have ended, the oldest first.
    pub ended: VecDeque<LeaseId>,
    pub deadlines: BTreeSet<(u64, LeaseId)>,
    /// When programs of leases that wait or are active are to have ended, in ms since 1970.
    pub due: BTreeSet<(u64, LeaseId)>,
    pub policy: PolicySettings,
    /// What runs have taught about programs.
    pub learnt: Learnt,
    /// How programs behave: what is configured, and what was learnt when this was made.
    pub profiles: ProfileTable,
    /// Whether something was learnt since, and when it was made, in ms of the engine's time.
    pub profiles_due: bool,
    pub profiles_ms: u64,
    /// Role tokens that count no more.
    pub withdrawn: Arc<Withdrawn>,
    /// The version of the orders.
    pub orders: u64,
    stored_orders: u64,
    pub events: EventLog,
    pub rounds: RoundLog,
    pub counters: Counters,
    pub changes: Changes,
    tx: Transaction,
    /// Leases and nodes whose watchers are to be told after the commit.
    told_leases: Vec<LeaseId>,
    told_nodes: Vec<String>,
    /// All nodes' devices, whatever state they are in; `None` until it is asked for.
    pub everything: Option<Arc<Cluster>>,
    /// Leases that wait, and whose next decision somebody wants to have explained.
    pub wanted: BTreeSet<LeaseId>,
    /// Why the last commit failed, if it did.
    pub failing: Option<String>,
    /// When the state was last written, in ms of the engine's time.
    pub stored_ms: u64,
    /// Somebody wants to know whether the state can be written.
    pub probe: bool,
    /// When it was last tried whether it can be.
    pub checked: Option<std::time::Instant>,
    /// Leases that have ended, and lost nodes that may still serve them.
    pub gone: BTreeSet<(LeaseId, String)>,
    /// When what is due by time was last looked at.
    pub ticked: Option<u64>,
    /// Since when most nodes have been silent together.
    pub together_since: Option<u64>,
    /// How leases use their devices, and which of them may be resized.
    pub harvest: Harvest,
}

/// What is stored under which name.
pub(super) const ORDERS: &str = "orders";
const POLICY: &str = "policy";
const CONFIGURED_POLICY: &str = "configured_policy";
const GONE: &str = "gone";
const WITHDRAWN: &str = "withdrawn_tokens";

/// Below the epoch, the orders' numbers are microseconds since 1970 (until the year 2112).
const EPOCH_SHIFT: u32 = 52;

/// Which epoch orders are of: their later ones, and whatever names them, count for more than all of an earlier epoch.
pub(crate) fn epoch_of(orders: u64) -> u64 {
    orders >> EPOCH_SHIFT
}

/// When orders were made by the clock of their broker, in microseconds since 1970.
pub(crate) fn moment_of(orders: u64) -> u64 {
    orders & ((1 << EPOCH_SHIFT) - 1)
}

/// The first number that orders can have in an epoch at a time.
pub(crate) fn first_of(epoch: u64, unix_ms: u64) -> u64 {
    (epoch << EPOCH_SHIFT) | moment_of(unix_ms * 1000)
}

impl Core {
    /// What was stored, as it is when the engine starts.
    pub(super) fn restore(
        settings: Arc<Settings>,
        clock: Arc<dyn Clock>,
        kept: Kept,
    ) -> Result<Core, StartError> {
        let (now, unix_ms) = (clock.elapsed().as_millis() as u64, clock.unix().as_millis() as u64);
        let stored_orders: u64 = kept.settings.get(ORDERS).and_then(|text| text.parse().ok()).unwrap_or(0);
        let epoch = settings.epoch.max(epoch_of(stored_orders));
        // A policy that was set through the API counts until the configuration's is a different one.
        // Either was perhaps written by a release that knew fewer settings.
        let stored = |key| -> Result<Option<PolicySettings>, StartError> {
            let Some(text) = kept.settings.get(key) else { return Ok(None) };
            let policy = serde_json::from_str(text).map_err(StartError::Policy)?;
            Ok(Some(complete(&settings.policies, policy)))
        };
        let mut policy = settings.policy.clone();
        if stored(CONFIGURED_POLICY)?.as_ref() == Some(&policy)
            && let Some(set) = stored(POLICY)?
        {
            policy = set;
        }
        let waiting = || kept.leases.iter().filter(|lease| lease.state == LeaseState::Waiting);
        let earliest = waiting().map(|lease| lease.submitted_ms).min().unwrap_or(unix_ms).min(unix_ms);
        // Whoever takes over learns from the nodes what there is: what it had before is older.
        let outdated = epoch > epoch_of(stored_orders);
        let learnt = Learnt::restore(kept.runs);
        let mut core = Core {
            profiles: ProfileTable::new(&settings, &learnt)?,
            learnt,
            profiles_due: false,
            profiles_ms: 0,
            events: EventLog::new(settings.events, unix_ms),
            rounds: RoundLog::default(),
            time: Timeline { clock, started_ms: now, before_s: (unix_ms - earliest) as f64 / 1000.0 },
            orders: (stored_orders + 1).max(first_of(epoch, unix_ms)),
            stored_orders,
            settings,
            leases: HashMap::new(),
            keyed: HashMap::new(),
            nodes: BTreeMap::new(),
            machines: Machines::default(),
            tenants: BTreeMap::new(),
            ended: VecDeque::new(),
            deadlines: BTreeSet::new(),
            due: BTreeSet::new(),
            policy,
            withdrawn: Arc::new(Withdrawn::restore(kept.settings.get(WITHDRAWN).map(String::as_str))?),
            counters: Counters::default(),
            changes: Changes { topology: true, ..Changes::default() },
            tx: Transaction::default(),
            told_leases: Vec::new(),
            told_nodes: Vec::new(),
            everything: None,
            wanted: BTreeSet::new(),
            failing: None,
            stored_ms: 0,
            probe: false,
            checked: None,
            // Written by this release or a later one; what cannot be read is as good as none.
            gone: kept
                .settings
                .get(GONE)
                .and_then(|text| serde_json::from_str(text).ok())
                .unwrap_or_default(),
            ticked: None,
            together_since: None,
            harvest: Harvest::default(),
        };
        for node in kept.nodes {
            let name = node.registration.name.clone();
            core.set_node(&name, Some(Arc::new(node)));
            // It has the usual time to be heard of, and says first what it serves.
            let orders = core.orders;
            let live = core.live_node(&name);
            (live.heard, live.clean, live.changed_at) = (now, false, orders);
        }
        for lease in kept.leases {
            if outdated {
                core.tx.writes.push(Write::ForgetLease(lease.id));
                continue;
            }
            let (id, state) = (lease.id, lease.state);
            let submit_s = lease.submitted_ms.saturating_sub(earliest) as f64 / 1000.0;
            let granted = lease.granted_ms.map(|at| at.saturating_sub(earliest) as f64 / 1000.0);
            core.set_lease(id, Some(Arc::new(lease)));
            let now_s = core.time.before_s;
            if let Some(entry) = core.leases.get_mut(&id) {
                entry.live.restored = true;
                entry.live.submit_s = submit_s.min(now_s);
                entry.live.granted_s = granted.unwrap_or(0.0).min(now_s);
                entry.live.rounds = kept.rounds.get(&id).copied().unwrap_or(0);
            }
            // The broker wasn't there to be asked for more time: whoever had any has it anew.
            match state {
                LeaseState::Waiting => core.keep_waiting(id),
                LeaseState::Active => core.set_deadline(id, Some(now + core.settings.lease_ttl_s * 1000)),
                LeaseState::Ending | LeaseState::Ended => {}
            }
        }
        let never: Vec<LeaseId> = core
            .leases
            .values()
            .filter(|entry| entry.record.state == LeaseState::Waiting && entry.record.request.now_or_never)
            .map(|entry| entry.record.id)
            .collect();
        for id in never {
            core.end(id, End::Released, "the broker was restarted before it was granted");
        }
        core.note("broker_started", None, None, "the broker has started".into());
        Ok(core)
    }

    // ---- time ----

    /// Milliseconds of the engine's time.
    pub(super) fn now(&self) -> u64 {
        self.time.clock.elapsed().as_millis() as u64
    }

    /// Milliseconds since 1970.
    pub(super) fn unix_ms(&self) -> u64 {
        self.time.clock.unix().as_millis() as u64
    }

    /// Seconds of the placement's time.
    pub(super) fn now_s(&self) -> f64 {
        self.time.now_s()
    }

    /// How often another broker has taken over before.
    pub(super) fn epoch(&self) -> u64 {
        epoch_of(self.orders)
    }

    /// A moment of the engine's time in seconds since 1970.
    pub(super) fn unix_s_at(&self, at: u64) -> u64 {
        (self.unix_ms() + at).saturating_sub(self.now()) / 1000
    }

    // ---- transactions ----

    pub(super) fn mark(&self) -> Mark {
        let tx = &self.tx;
        Mark {
            undo: tx.undo.len(),
            writes: tx.writes.len(),
            events: tx.events.len(),
            counts: tx.counts.len(),
        }
    }

    /// Takes back what was changed since.
    pub(super) fn roll_back(&mut self, mark: Mark) {
        while self.tx.undo.len() > mark.undo {
            match self.tx.undo.pop() {
                Some(Undo::Lease(id, record, deadline)) => {
                    self.set_lease(id, record);
                    self.set_deadline(id, deadline);
                }
                Some(Undo::Node(name, record)) => self.set_node(&name, record),
                Some(Undo::Policy(policy)) => self.policy = policy,
                Some(Undo::Gone(gone)) => self.gone = gone,
                Some(Undo::Withdrawn(withdrawn)) => self.withdrawn = withdrawn,
                Some(Undo::Known(program, known)) => drop(self.set_known(program, known)),
                None => break,
            }
        }
        self.tx.writes.truncate(mark.writes);
        self.tx.events.truncate(mark.events);
        self.tx.counts.truncate(mark.counts);
    }

    /// What is to be stored.
    pub(super) fn writes(&mut self) -> Vec<Write> {
        let mut writes = std::mem::take(&mut self.tx.writes);
        self.tx.ended.extend(writes.iter().filter_map(|write| match write {
            Write::ForgetLease(id) => Some(*id),
            _ => None,
        }));
        if !writes.is_empty() && self.orders != self.stored_orders {
            writes.push(Write::Setting(ORDERS, self.orders.to_string()));
        }
        writes
    }

    /// Stores what the start itself is.
    pub(super) fn begin(&mut self) {
        let version = self.orders;
        self.tx.writes.push(Write::Setting(ORDERS, version.to_string()));
    }

    /// Everything is stored: tells those who wait.
    pub(super) fn committed(&mut self) {
        self.stored_orders = self.orders;
        self.tx.undo.clear();
        let time = self.unix_ms() / 1000;
        for happened in std::mem::take(&mut self.tx.events) {
            self.events.push(time, happened);
        }
        for count in std::mem::take(&mut self.tx.counts) {
            count(&mut self.counters);
        }
        if let Some(round) = self.tx.round.take() {
            self.rounds.push(round);
        }
        self.tell();
        let ended = std::mem::take(&mut self.tx.ended);
        self.ended.extend(ended);
        while self.ended.len() > self.settings.ended {
            if let Some(id) = self.ended.pop_front() {
                self.set_lease(id, None);
            }
        }
    }

    /// Nothing could be stored: all is as it was before the batch.
    pub(super) fn failed(&mut self) {
        self.roll_back(Mark { undo: 0, writes: 0, events: 0, counts: 0 });
        self.tx.ended.clear();
        self.tx.round = None;
        self.tell();
    }

    fn tell(&mut self) {
        for id in std::mem::take(&mut self.told_leases) {
            if let Some(entry) = self.leases.get(&id) {
                entry.live.changed.notify_waiters();
            }
            self.changes.leases.push(id);
        }
        for name in std::mem::take(&mut self.told_nodes) {
            if let Some(node) = self.nodes.get(&name) {
                node.live.changed.notify_waiters();
            }
        }
    }

    /// An event, once the batch is stored.
    pub(super) fn note(
        &mut self,
        kind: &'static str,
        node: Option<&str>,
        lease: Option<&LeaseRecord>,
        text: String,
    ) {
        self.tx.events.push(Happened {
            kind,
            node: node.map(str::to_owned),
            lease: lease.map(|lease| lease.id),
            tenant: lease.map(|lease| lease.tenant.clone()),
            text,
        });
    }

    /// What a placement round came to, once the batch is stored.
    pub(super) fn note_round(&mut self, round: Option<RoundOutcome>) {
        self.tx.round = round;
    }

    /// Counts something, once the batch is stored.
    pub(super) fn count(&mut self, count: fn(&mut Counters)) {
        self.tx.counts.push(count);
    }

    /// Something is to be stored.
    pub(super) fn tx_write(&mut self, write: Write) {
        self.tx.writes.push(write);
    }

    /// How something is taken back that was just changed.
    pub(super) fn tx_undo(&mut self, undo: Undo) {
        self.tx.undo.push(undo);
    }

    // ---- changes ----

    /// Stores in how many rounds a waiting lease was left.
    pub(super) fn put_rounds(&mut self, id: LeaseId, rounds: u32) {
        self.tx.writes.push(Write::Rounds(id, rounds));
    }

    /// Makes a lease what the record says.
    pub(super) fn put_lease(&mut self, record: LeaseRecord) {
        let (id, record) = (record.id, Arc::new(record));
        let old = self.leases.get(&id).map(|entry| entry.record.clone());
        let deadline = self.leases.get(&id).and_then(|entry| entry.live.deadline);
        self.tx.undo.push(Undo::Lease(id, old, deadline));
        // What is granted frees nothing that another round could give.
        self.changes.round |= record.state != LeaseState::Active || record.version > 1;
        self.tx.writes.push(match record.state {
            LeaseState::Ended => Write::ForgetLease(id),
            _ => Write::Lease(record.clone()),
        });
        self.set_lease(id, Some(record));
    }

    /// Makes a node what the record says.
    pub(super) fn put_node(&mut self, record: NodeRecord) {
        let (name, record) = (record.registration.name.clone(), Arc::new(record));
        let old = self.nodes.get(&name).map(|entry| entry.record.clone());
        self.tx.undo.push(Undo::Node(name.clone(), old));
        self.tx.writes.push(Write::Node(record.clone()));
        self.set_node(&name, Some(record));
    }

    /// Forgets a node, of which no lease has anything.
    pub(super) fn drop_node(&mut self, name: &str) {
        let Some(old) = self.nodes.get(name).map(|entry| entry.record.clone()) else { return };
        self.tx.undo.push(Undo::Node(name.to_owned(), Some(old)));
        self.tx.writes.push(Write::ForgetNode(name.to_owned()));
        self.set_node(name, None);
    }

    /// Changes the policy.
    pub(super) fn put_policy(&mut self, policy: PolicySettings) -> Result<(), Problem> {
        let text = |policy: &PolicySettings| {
            serde_json::to_string(policy).map_err(|e| problem(ErrorCode::Internal, e.to_string()))
        };
        self.tx.writes.push(Write::Setting(POLICY, text(&policy)?));
        self.tx.writes.push(Write::Setting(CONFIGURED_POLICY, text(&self.settings.policy)?));
        self.tx.undo.push(Undo::Policy(std::mem::replace(&mut self.policy, policy)));
        Ok(())
    }

    /// Changes which leases have ended that lost nodes may still serve.
    pub(super) fn put_gone(&mut self, gone: BTreeSet<(LeaseId, String)>) {
        // Ids and names always have a JSON form.
        let text = serde_json::to_string(&gone).unwrap_or_default();
        self.tx.writes.push(Write::Setting(GONE, text));
        self.tx.undo.push(Undo::Gone(std::mem::replace(&mut self.gone, gone)));
    }

    /// Changes which role tokens count no more.
    pub(super) fn put_withdrawn(&mut self, withdrawn: Withdrawn) -> Result<(), Problem> {
        self.tx.writes.push(Write::Setting(WITHDRAWN, withdrawn.to_text()?));
        self.tx.undo.push(Undo::Withdrawn(std::mem::replace(&mut self.withdrawn, Arc::new(withdrawn))));
        Ok(())
    }

    /// The next version of the orders, which concerns these nodes.
    pub(super) fn new_orders<'a>(&mut self, nodes: impl IntoIterator<Item = &'a str>) -> u64 {
        self.orders = (self.orders + 1).max(first_of(self.epoch(), self.unix_ms()));
        for name in nodes {
            if let Some(node) = self.nodes.get_mut(name) {
                node.live.changed_at = self.orders;
                self.told_nodes.push(name.to_owned());
            }
        }
        self.orders
    }

    fn set_lease(&mut self, id: LeaseId, record: Option<Arc<LeaseRecord>>) {
        let old = self.leases.get(&id).map(|entry| entry.record.clone());
        if let Some(old) = &old {
            self.weigh(old, false);
        }
        self.harvest.note(id, record.as_deref());
        if let Some(key) = old.as_deref().and_then(keyed) {
            self.keyed.remove(&key);
        }
        if let Some(key) = record.as_deref().and_then(keyed) {
            self.keyed.insert(key, id);
        }
        let Some(record) = record else {
            if let Some(due) = old.as_deref().and_then(due_ms) {
                self.due.remove(&(due, id));
            }
            self.set_deadline(id, None);
            self.leases.remove(&id);
            self.told_leases.push(id);
            return;
        };
        self.weigh(&record, true);
        self.mind_deadline(&record);
        let (over, now) = (matches!(record.state, LeaseState::Ending | LeaseState::Ended), self.unix_ms());
        let new = || Entry { record: record.clone(), live: LeaseLive::default() };
        let entry = self.leases.entry(id).or_insert_with(new);
        entry.record = record;
        entry.live.ended_ms = over.then(|| entry.live.ended_ms.unwrap_or(now));
        self.told_leases.push(id);
    }

    fn set_node(&mut self, name: &str, record: Option<Arc<NodeRecord>>) {
        let machine = |record: &Arc<NodeRecord>| record.registration.machine.clone();
        let (before, now) =
            (self.nodes.get(name).map(|old| machine(&old.record)), record.as_ref().map(machine));
        self.machines.put(name, before.as_deref(), now.as_deref());
        match (record, self.nodes.get_mut(name)) {
            (Some(record), Some(entry)) => entry.record = record,
            (Some(record), None) => {
                // Should this be an undone removal, the node is as good as lost until it is heard of.
                let live = NodeLive { lost: false, ..NodeLive::default() };
                self.nodes.insert(name.to_owned(), NodeEntry { record, live });
                self.weigh_node(name);
            }
            (None, _) => drop(self.nodes.remove(name)),
        }
        self.changes.topology = true;
        self.everything = None;
        self.told_nodes.push(name.to_owned());
    }

    /// Adds what a lease has (or is) to the sums, or takes it away.
    fn weigh(&mut self, lease: &LeaseRecord, add: bool) {
        let step = |sum: &mut u64, by: u64| *sum = if add { *sum + by } else { sum.saturating_sub(by) };
        let held = self.tenants.entry(lease.tenant.clone()).or_default();
        let counters = &mut self.counters;
        match lease.state {
            LeaseState::Waiting => {
                step(&mut held.waiting, 1);
                step(&mut counters.waiting, 1);
                let (milli, memory) = wanted(&lease.request);
                step(&mut held.wanted_milli, milli);
                step(&mut held.wanted_memory, memory);
            }
            LeaseState::Active => {
                step(&mut held.active, 1);
                step(&mut counters.active, 1);
            }
            LeaseState::Ending => {
                step(&mut held.ending, 1);
                step(&mut counters.ending, 1);
            }
            LeaseState::Ended => {}
        }
        for grant in held_grants(lease) {
            step(&mut held.gpu_milli, grant.share_milli.into());
            step(&mut held.memory, lease.counted(grant));
        }
        let empty = *held == Held::default();
        for grant in held_grants(lease) {
            self.weigh_grant(lease, grant, add);
        }
        for nvme in nvmes::held(lease) {
            let Some(node) = self.nodes.get_mut(&nvme.node) else { continue };
            match add {
                true => node.live.leases.insert(lease.id),
                false => node.live.leases.remove(&lease.id),
            };
        }
        if empty {
            self.tenants.remove(&lease.tenant);
        }
    }

    /// Adds what a lease has of a device to the device's sums, or takes it away.
    pub(super) fn weigh_grant(&mut self, lease: &LeaseRecord, grant: &Grant, add: bool) {
        let memory = lease.counted(grant);
        let Some(node) = self.nodes.get_mut(&grant.node) else { return };
        let at = grant.device as usize;
        if node.live.devices.len() <= at {
            node.live.devices.resize(at + 1, DeviceUse::default());
        }
        let device = &mut node.live.devices[at];
        if add {
            device.milli += u32::from(lease.firm_milli(grant));
            device.memory += memory;
            device.leases.push(lease.id);
            node.live.leases.insert(lease.id);
        } else {
            device.milli = device.milli.saturating_sub(lease.firm_milli(grant).into());
            device.memory = device.memory.saturating_sub(memory);
            if let Some(i) = device.leases.iter().position(|id| *id == lease.id) {
                device.leases.swap_remove(i);
            }
            node.live.leases.remove(&lease.id);
        }
    }

    // ---- what isn't stored ----

    /// A node that there is.
    pub(super) fn live_node(&mut self, name: &str) -> &mut NodeLive {
        &mut self.nodes.get_mut(name).expect("the node was just looked up").live
    }

    /// Sets when a lease ends unless it is renewed.
    pub(super) fn set_deadline(&mut self, id: LeaseId, at: Option<u64>) {
        let Some(entry) = self.leases.get_mut(&id) else { return };
        if let Some(old) = std::mem::replace(&mut entry.live.deadline, at) {
            self.deadlines.remove(&(old, id));
        }
        if let Some(at) = at {
            self.deadlines.insert((at, id));
        }
    }

    /// A waiting lease was asked for: it may wait on.
    pub(super) fn keep_waiting(&mut self, id: LeaseId) {
        let at = self.now() + self.settings.lease_ttl_s * 1000;
        self.set_deadline(id, Some(at));
    }

    /// How much of a device is granted.
    pub(super) fn used(&self, node: &str, device: u32) -> (u32, u64) {
        let device = self.nodes.get(node).and_then(|node| node.live.devices.get(device as usize));
        device.map_or((0, 0), |device| (device.milli, device.memory))
    }
}

impl NodeEntry {
    /// Whether its devices can be granted.
    pub(super) fn available(&self) -> bool {
        !self.live.lost && !self.live.silent && self.live.clean && !self.record.draining
    }

    /// A device of it.
    pub(super) fn device(&self, number: u32) -> Option<&DeviceReport> {
        self.record.registration.devices.get(number as usize)
    }
}

/// What a lease keeps others from having: all its grants, and while it is ending, those that are not confirmed.
pub(crate) fn held_grants(lease: &LeaseRecord) -> impl Iterator<Item = &Grant> {
    lease.grants.iter().filter(|grant| lease.holds(&grant.node))
}

/// What finds a lease again that an engine has asked for with a key.
fn keyed(lease: &LeaseRecord) -> Option<(String, String)> {
    let found = matches!(lease.state, LeaseState::Waiting | LeaseState::Active);
    lease.request.key.as_ref().filter(|_| found).map(|key| (lease.tenant.clone(), key.clone()))
}

/// Thousandths of devices and memory that a request is for, at most.
pub(crate) fn wanted(request: &LeaseRequest) -> (u64, u64) {
    let gpus = u64::from(request.gpus);
    let share = if request.share_milli == 0 { WHOLE } else { request.share_milli };
    (gpus * u64::from(share), gpus.saturating_mul(request.memory))
}
