//! Tests of the engine as a whole: with a clock that they set, and nodes that do as they are told.

mod adoption;
mod deadlines;
mod engines;
mod faults;
mod foreseen;
mod harvest;
mod learning;
mod leases;
mod new_policy;
mod nodes;
mod nvmes;
mod placing;
mod processors;
mod random;
mod silence;
mod speed;
mod spreading;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rgpu_control::LeaseId;
use rgpu_control::api::*;
use rgpu_control::token::{LeaseClaims, PrivateKey, Role};

use super::core::held_grants;
use super::*;
use crate::store::MemoryStore;

const GIB: u64 = 1 << 30;

/// A clock that stands still until it is told to go on.
#[derive(Debug, Default)]
pub(super) struct FakeClock(AtomicU64);

impl FakeClock {
    pub(super) fn advance(&self, ms: u64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for FakeClock {
    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }

    fn unix(&self) -> Duration {
        Duration::from_secs(1_700_000_000) + self.elapsed()
    }
}

/// An engine with everything around it.
pub(super) struct World {
    pub engine: Engine,
    pub clock: Arc<FakeClock>,
    pub store: MemoryStore,
    pub settings: Settings,
    pub key: PrivateKey,
    pub holder: String,
}

impl World {
    pub(super) fn new(settings: Settings) -> World {
        // How fast the machine is decides nothing.
        let settings = Settings { forecast_ms: 60_000, ..settings };
        let (clock, store, key) =
            (Arc::new(FakeClock::default()), MemoryStore::new(), PrivateKey::generate());
        let engine =
            Engine::start(settings.clone(), key.clone(), Box::new(store.clone()), clock.clone()).unwrap();
        World { engine, clock, store, settings, key, holder: PrivateKey::generate().public().to_text() }
    }

    /// The engine dies, and another one starts with what was stored.
    pub(super) fn restart(&mut self) {
        self.engine.stop();
        self.store.fail(None);
        self.engine = Engine::start(
            self.settings.clone(),
            self.key.clone(),
            Box::new(self.store.clone()),
            self.clock.clone(),
        )
        .unwrap();
    }

    /// Lets time pass as it does: without pauses of the engine's own.
    pub(super) async fn advance(&self, ms: u64) {
        for passed in (0..ms).step_by(500) {
            self.clock.advance((ms - passed).min(500));
            self.engine.settle().await;
        }
    }

    /// Lets time pass in which these nodes say how they are, each second.
    pub(super) async fn advance_with(&self, nodes: &mut [FakeNode], seconds: u64) {
        for _ in 0..seconds {
            self.advance(1000).await;
            for node in nodes.iter_mut() {
                node.beat(&self.engine).await.unwrap();
            }
        }
        self.engine.settle().await;
    }

    /// A request for part of a device, of a program in a machine.
    pub(super) fn request(&self, machine: &str, gpus: u16, share_milli: u16, memory: u64) -> LeaseRequest {
        let whole = LeaseRequest::new("app".into(), machine.into(), self.holder.clone());
        LeaseRequest { gpus, memory, share_milli, ..whole }
    }

    /// Asks for a lease, and says how it is when a round has looked at it.
    pub(super) async fn ask(&self, tenant: &str, request: LeaseRequest) -> Result<Lease, Problem> {
        let caller = tenant_named(tenant);
        let lease = self.engine.request_lease(&caller, request).await?;
        self.engine.settle().await;
        self.engine.lease(&caller, lease.id, 0).await
    }

    pub(super) async fn lease(&self, id: LeaseId) -> Lease {
        self.engine.lease(&boss(), id, 0).await.unwrap()
    }

    pub(super) fn claims(&self, lease: &Lease) -> LeaseClaims {
        let now = self.clock.unix().as_secs();
        self.key.public().verify_lease(lease.token.as_ref().unwrap(), now).unwrap()
    }

    /// Nothing is granted twice, and the sums are right.
    pub(super) fn check(&self) {
        check(&self.engine);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

pub(super) fn check(engine: &Engine) {
    let core = engine.0.core.lock();
    let mut sums: BTreeMap<(String, u32), (u32, u64)> = BTreeMap::new();
    let mut states = [0u64; 3];
    for entry in core.leases.values() {
        match entry.record.state {
            LeaseState::Waiting => states[0] += 1,
            LeaseState::Active => states[1] += 1,
            LeaseState::Ending => states[2] += 1,
            LeaseState::Ended => {}
        }
        for grant in held_grants(&entry.record) {
            let sum = sums.entry((grant.node.clone(), grant.device)).or_default();
            sum.0 += u32::from(entry.record.firm_milli(grant));
            sum.1 += entry.record.counted(grant);
        }
    }
    assert_eq!(states, [core.counters.waiting, core.counters.active, core.counters.ending]);
    for ((name, device), (milli, memory)) in &sums {
        let Some(node) = core.nodes.get(name) else {
            panic!("a lease has something of {name}, which is gone")
        };
        if let Some(report) = node.device(*device) {
            assert!(
                *milli <= 1000 && *memory <= report.memory,
                "{milli}/1000 and {memory} bytes of {report:?} of {name}"
            );
        }
        assert_eq!(core.used(name, *device), (*milli, *memory));
    }
    for (name, node) in &core.nodes {
        for (device, used) in (0..).zip(&node.live.devices) {
            let sum = sums.get(&(name.clone(), device)).copied().unwrap_or_default();
            assert_eq!((used.milli, used.memory), sum, "{name} {device}");
        }
    }
}

pub(super) fn tenant_named(name: &str) -> Caller {
    Caller { role: Role::Tenant, name: name.into() }
}

pub(super) fn boss() -> Caller {
    Caller { role: Role::Admin, name: "root".into() }
}

/// A node's server, as it behaves when all is well.
#[derive(Clone, Debug)]
pub(super) struct FakeNode {
    pub about: Registration,
    /// What it serves: programs have sessions with all leases that it was ordered to serve.
    pub serving: Vec<LeaseId>,
    /// The version of each of them that it enforces, and how many devices it gives here.
    versions: BTreeMap<LeaseId, (u64, usize)>,
    /// What a lease's programs have of each of its devices, in bytes; nothing unless it is said.
    pub memory: BTreeMap<LeaseId, u64>,
    /// What else they have used of each; nothing unless it is said.
    pub used: BTreeMap<LeaseId, GrantUsage>,
    /// What is set aside for those that may be resized, as orders say; and whether its server knows of such.
    set_aside: BTreeMap<LeaseId, u16>,
    pub lends: bool,
    /// What its devices do.
    pub loads: Vec<DeviceLoad>,
    /// What they use of its processors; nothing unless it is said.
    pub processors: BTreeMap<LeaseId, ProcessorUsage>,
    pub applied: u64,
    pub nic_mbps: u64,
    /// Tokens that programs have presented.
    pub tokens: BTreeMap<LeaseId, String>,
    /// What the broker wants to have proved.
    pub asked: Vec<LeaseId>,
    /// What it has ended: it does not serve that again.
    pub over: Vec<LeaseId>,
}

impl FakeNode {
    pub(super) fn new(name: &str, devices: u32, memory: u64) -> FakeNode {
        let device = |index| DeviceReport {
            index,
            model: "T4".into(),
            uuid: format!("{name}-{index}"),
            memory,
            bus_mbps: 126_000,
            partitionable: true,
            alone: false,
            compute_capability: "7.5".into(),
            software: true,
            enforced_by: "workers".into(),
        };
        FakeNode {
            about: Registration {
                name: name.into(),
                instance: 1,
                address: format!("{name}.example:7070"),
                local_address: Some("127.0.0.1:7070".into()),
                machine: format!("machine-of-{name}"),
                cpu_milli: 8000,
                memory_mib: 16 << 10,
                nic_mbps: 10_000,
                switch: None,
                controls: None,
                devices: (0..devices).map(device).collect(),
                nvmes: Vec::new(),
                transports: vec!["tcp".into()],
                tls: false,
                tls_required: false,
                tls_fingerprint: None,
                version: "0".into(),
                leases: Vec::new(),
            },
            serving: Vec::new(),
            versions: BTreeMap::new(),
            memory: BTreeMap::new(),
            used: BTreeMap::new(),
            set_aside: BTreeMap::new(),
            lends: true,
            loads: Vec::new(),
            processors: BTreeMap::new(),
            applied: 0,
            nic_mbps: 0,
            tokens: BTreeMap::new(),
            asked: Vec::new(),
            over: Vec::new(),
        }
    }

    pub(super) fn caller(&self) -> Caller {
        Caller { role: Role::Node, name: self.about.name.clone() }
    }

    fn reports(&self) -> Vec<LeaseReport> {
        let report = |id: &LeaseId| {
            let (version, devices) = self.versions.get(id).copied().unwrap_or((1, 0));
            let memory = self.memory.get(id).copied().unwrap_or(0);
            let used = self.used.get(id).cloned().unwrap_or_default();
            let set_aside_milli = self.set_aside.get(id).copied().filter(|_| self.lends);
            let usage = vec![GrantUsage { memory, set_aside_milli, ..used }; devices];
            LeaseReport {
                lease: *id,
                version,
                sessions: 1,
                usage,
                processors: self.processors.get(id).cloned(),
            }
        };
        self.serving.iter().map(report).collect()
    }

    /// Follows orders: ends what isn't in them. Gives what it has ended.
    fn follow(&mut self, orders: &Orders) -> Vec<LeaseId> {
        let ordered: Vec<LeaseId> = orders.leases.iter().map(|lease| lease.lease).collect();
        if orders.version <= self.applied {
            return Vec::new();
        }
        self.asked.clone_from(&orders.prove);
        let keeps = |id: &&LeaseId| ordered.contains(id) || orders.prove.contains(id);
        let (kept, ended): (_, Vec<LeaseId>) = self.serving.iter().partition(keeps);
        self.serving = kept;
        let versions = orders.leases.iter().map(|lease| (lease.lease, (lease.version, lease.grants.len())));
        self.versions = versions.collect();
        let sized = orders.leases.iter().filter_map(|lease| Some((lease.lease, lease.sizes.first()?)));
        self.set_aside = sized.map(|(id, size)| (id, size.set_aside_milli)).collect();
        for id in ordered {
            if !self.serving.contains(&id) && !self.over.contains(&id) {
                self.serving.push(id);
            }
        }
        self.over.extend(&ended);
        self.applied = orders.version;
        ended
    }

    pub(super) async fn register(&mut self, engine: &Engine) -> Result<(), Problem> {
        let about = Registration { leases: self.reports(), ..self.about.clone() };
        let welcome = engine.register(&self.caller(), about).await?;
        self.follow(&welcome.orders);
        Ok(())
    }

    /// A program presents its lease's token here.
    pub(super) fn begin(&mut self, lease: &Lease) {
        self.tokens.insert(lease.id, lease.token.clone().unwrap());
        if !self.serving.contains(&lease.id) {
            self.serving.push(lease.id);
        }
    }

    fn proofs(&self) -> Vec<LeaseProof> {
        let token = |id: &LeaseId| Some((*id, self.tokens.get(id)?.clone()));
        let proof =
            |(lease, token)| LeaseProof { lease, token, version: 1, grants: Vec::new(), sizes: Vec::new() };
        self.asked.iter().filter_map(token).map(proof).collect()
    }

    fn heartbeat(&self, ended: Vec<LeaseId>) -> Heartbeat {
        Heartbeat {
            instance: self.about.instance,
            devices: self.loads.clone(),
            leases: self.reports(),
            orders: self.applied,
            used: ended
                .iter()
                .filter_map(|id| {
                    let usage = vec![self.used.get(id)?.clone()];
                    Some(LeaseReport { lease: *id, version: 1, sessions: 0, usage, processors: None })
                })
                .collect(),
            ended,
            nic_in_mbps: self.nic_mbps,
            nic_out_mbps: self.nic_mbps,
            own_in_mbps: 0,
            own_out_mbps: 0,
            peers: Vec::new(),
            nvmes: Vec::new(),
            proofs: self.proofs(),
            leaving: false,
        }
    }

    /// Says how it is, follows the orders, and says what came of that.
    pub(super) async fn beat(&mut self, engine: &Engine) -> Result<(), Problem> {
        let orders = engine.heartbeat(&self.caller(), &self.about.name, self.heartbeat(Vec::new())).await?;
        let ended = self.follow(&orders);
        let orders = engine.heartbeat(&self.caller(), &self.about.name, self.heartbeat(ended)).await?;
        self.follow(&orders);
        Ok(())
    }
}

/// A world with nodes of so many devices of 16 GiB.
pub(super) async fn with_nodes(settings: Settings, devices: &[u32]) -> (World, Vec<FakeNode>) {
    let world = World::new(settings);
    let mut nodes = Vec::new();
    for (i, count) in devices.iter().enumerate() {
        let mut node = FakeNode::new(&format!("n{i}"), *count, 16 * GIB);
        node.register(&world.engine).await.unwrap();
        nodes.push(node);
    }
    world.engine.settle().await;
    (world, nodes)
}

pub(super) fn code<T: std::fmt::Debug>(result: Result<T, Problem>) -> ErrorCode {
    result.unwrap_err().code
}
