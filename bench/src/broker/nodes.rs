//! Simulated nodes: they do what a server's agent does, without a server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rgpu_control::api::{
    DeviceLoad, DeviceReport, ErrorCode, GrantUsage, Heartbeat, LeaseOrder, LeaseReport, Orders,
    Registration, TokenRequest,
};
use rgpu_control::token::Role;
use rgpu_control::{Broker, ClientError, LeaseId, Tls};

use super::Options;
use crate::Failure;

/// Device memory, of which requests ask for parts.
pub(super) const DEVICE_MEMORY: u64 = 16 << 30;

/// One node. A connection of its own waits for orders; its heartbeats go over one that it shares with other nodes, as they would come
/// through a proxy in front of the broker.
pub(super) struct Node {
    registration: Registration,
    token: String,
    state: Mutex<NodeState>,
}

#[derive(Debug, Default)]
struct NodeState {
    version: u64,
    leases: BTreeMap<LeaseId, LeaseOrder>,
    /// Ended, and not yet told.
    ended: BTreeSet<LeaseId>,
}

impl Node {
    fn state(&self) -> MutexGuard<'_, NodeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new node. Answers it, and how often it is to send heartbeats.
    fn register(
        number: u32,
        devices: u32,
        broker: &Broker,
        admin: &Broker,
    ) -> Result<(Self, Duration), Failure> {
        let name = format!("sim-{number:05}");
        let request = TokenRequest { role: Role::Node, name: name.clone(), valid_s: 86_400 };
        let token = admin.issue_token(&request).map_err(failed)?.token;
        let node = Self { registration: registration(name, number, devices), token, state: Mutex::default() };
        let welcome = broker.with_token(&node.token).register(&node.registration).map_err(failed)?;
        node.follow(welcome.orders);
        Ok((node, Duration::from_millis(welcome.heartbeat_ms)))
    }

    /// Follows orders; says whether something has to be told soon.
    fn follow(&self, orders: Orders) -> bool {
        let mut state = self.state();
        if orders.version <= state.version {
            return false;
        }
        state.version = orders.version;
        let new: BTreeMap<_, _> = orders.leases.into_iter().map(|order| (order.lease, order)).collect();
        let gone: Vec<_> = state.leases.keys().filter(|id| !new.contains_key(id)).copied().collect();
        state.leases = new;
        state.ended.extend(&gone);
        !gone.is_empty()
    }

    fn describe(&self) -> (Heartbeat, Vec<LeaseId>) {
        let state = self.state();
        let usage = |order: &LeaseOrder| {
            let grants = order.grants.iter();
            grants
                .map(|g| GrantUsage { device: g.device, memory: g.memory / 2, ..GrantUsage::default() })
                .collect()
        };
        let leases = state.leases.values();
        let leases = leases
            .map(|o| LeaseReport {
                lease: o.lease,
                version: o.version,
                sessions: 1,
                usage: usage(o),
                processors: None,
            })
            .collect();
        let load = |index| DeviceLoad { index, utilization_percent: 50, ..DeviceLoad::default() };
        let ended: Vec<_> = state.ended.iter().copied().collect();
        let heartbeat = Heartbeat {
            instance: self.registration.instance,
            devices: (0..self.registration.devices.len() as u32).map(load).collect(),
            leases,
            orders: state.version,
            ended: ended.clone(),
            used: Vec::new(),
            nic_in_mbps: 100,
            nic_out_mbps: 100,
            own_in_mbps: 50,
            own_out_mbps: 50,
            peers: Vec::new(),
            nvmes: Vec::new(),
            proofs: Vec::new(),
            leaving: false,
        };
        (heartbeat, ended)
    }

    /// Says how it is, until nothing is left to be told.
    fn beat(&self, broker: &Broker) -> Result<(), ClientError> {
        loop {
            let (heartbeat, told) = self.describe();
            let orders = match broker.heartbeat(&self.registration.name, &heartbeat) {
                Ok(orders) => orders,
                Err(e) if e.code() == Some(ErrorCode::Conflict) => {
                    broker.register(&self.registration)?.orders
                }
                Err(e) => return Err(e),
            };
            self.state().ended.retain(|id| !told.contains(id));
            if !self.follow(orders) {
                return Ok(());
            }
        }
    }
}

/// All of them, and the threads that act for them.
#[derive(Debug)]
pub(super) struct Nodes {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    samples: Arc<Mutex<Vec<u64>>>,
    measuring: Arc<AtomicBool>,
}

/// How long a node waits for orders in one request, in seconds: of many nodes, so long that the requests don't count.
fn orders_wait_s(nodes: u32) -> u32 {
    if nodes > 1000 { 30 } else { 5 }
}

/// Threads that register nodes and send their heartbeats, each over one connection.
const BEATERS: usize = 8;

impl Nodes {
    /// Registers them, and lets them live.
    pub(super) fn register(options: &Options, url: &str, admin: &Broker) -> Result<Self, Failure> {
        let connect = || Broker::new(url, "", &Tls::default()).map_err(failed);
        let shared: Vec<Broker> = (0..BEATERS).map(|_| connect()).collect::<Result<_, _>>()?;
        // Each thread's nodes: heartbeats of many nodes are to be spread over time.
        let register = |first: usize| -> Result<(Vec<Arc<Node>>, Duration), Failure> {
            let (mut own, mut heartbeat) = (Vec::new(), Duration::from_secs(1));
            for number in (first as u32..options.nodes).step_by(BEATERS) {
                let (node, period) = Node::register(number, options.devices, &shared[first], admin)?;
                own.push(Arc::new(node));
                heartbeat = period;
            }
            Ok((own, heartbeat))
        };
        let registered: Vec<(Vec<Arc<Node>>, Duration)> = std::thread::scope(|scope| {
            let register = &register;
            let threads: Vec<_> = (0..BEATERS).map(|first| scope.spawn(move || register(first))).collect();
            let joined = threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err(Failure::new("A node ended by a panic"))));
            joined.collect::<Result<_, Failure>>()
        })?;
        let (stop, measuring) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let samples = Arc::new(Mutex::new(Vec::new()));
        let mut nodes = Self { stop, threads: Vec::new(), samples, measuring };
        for node in registered.iter().flat_map(|(own, _)| own) {
            let waits = connect()?.with_token(&node.token);
            nodes.spawn_waiting(node.clone(), waits, orders_wait_s(options.nodes))?;
        }
        for ((own, heartbeat), broker) in registered.into_iter().zip(shared) {
            nodes.spawn_beating(own, broker, heartbeat)?;
        }
        Ok(nodes)
    }

    fn spawn(&mut self, body: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
        let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(body);
        self.threads.push(thread.map_err(|e| Failure::new(format!("Cannot start a thread: {e}")))?);
        Ok(())
    }

    /// Waits for a node's orders, follows them, and tells at once what has ended.
    fn spawn_waiting(&mut self, node: Arc<Node>, broker: Broker, wait_s: u32) -> Result<(), Failure> {
        let stop = self.stop.clone();
        self.spawn(move || {
            while !stop.load(Relaxed) {
                let seen = node.state().version;
                match broker.orders(&node.registration.name, seen, wait_s) {
                    Ok(orders) => {
                        if node.follow(orders) {
                            let _ = node.beat(&broker); // the next regular one says it again
                        }
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(200)),
                }
            }
        })
    }

    /// Sends the regular heartbeats of some nodes.
    fn spawn_beating(
        &mut self,
        nodes: Vec<Arc<Node>>,
        broker: Broker,
        period: Duration,
    ) -> Result<(), Failure> {
        let (stop, samples, measuring) = (self.stop.clone(), self.samples.clone(), self.measuring.clone());
        self.spawn(move || {
            let gap = period / u32::try_from(nodes.len().max(1)).unwrap_or(1);
            let mut due = Instant::now();
            let nodes: Vec<_> =
                nodes.into_iter().map(|node| (broker.with_token(&node.token), node)).collect();
            for (broker, node) in nodes.iter().cycle() {
                if stop.load(Relaxed) {
                    return;
                }
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                if node.beat(broker).is_ok() && measuring.load(Relaxed) {
                    let took = u64::try_from(due.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    samples.lock().unwrap_or_else(PoisonError::into_inner).push(took);
                }
                due += gap;
            }
        })
    }

    /// Whether times count now.
    pub(super) fn measuring(&self) -> Arc<AtomicBool> {
        self.measuring.clone()
    }

    /// The times of heartbeats.
    pub(super) fn samples(&self) -> Arc<Mutex<Vec<u64>>> {
        self.samples.clone()
    }

    /// Lets the threads end.
    pub(super) fn finish(self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads {
            let _ = thread.join(); // a thread that panicked has said so
        }
    }
}

fn failed(e: ClientError) -> Failure {
    Failure::new(format!("Registering nodes: {e}"))
}

fn registration(name: String, number: u32, devices: u32) -> Registration {
    let device = |index| DeviceReport {
        index,
        model: if number.is_multiple_of(2) { "A100" } else { "H100" }.into(),
        uuid: format!("GPU-{number:08x}-0000-0000-0000-{index:012x}"),
        memory: DEVICE_MEMORY,
        bus_mbps: 128_000,
        partitionable: true,
        alone: false,
        compute_capability: "8.0".into(),
        software: true,
        enforced_by: "workers".into(),
    };
    Registration {
        instance: u64::from(number) + 1,
        address: format!("{name}:7070"),
        local_address: None,
        machine: format!("machine-of-{name}"),
        name,
        cpu_milli: 64_000,
        memory_mib: 512 << 10,
        nic_mbps: 100_000,
        switch: None,
        controls: None,
        devices: (0..devices).map(device).collect(),
        nvmes: Vec::new(),
        transports: vec!["tcp".into()],
        tls: false,
        tls_required: false,
        tls_fingerprint: None,
        version: env!("CARGO_PKG_VERSION").into(),
        leases: Vec::new(),
    }
}
