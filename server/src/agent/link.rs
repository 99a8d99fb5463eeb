//! The conversation with the broker.

use crate::ledger::Ledger;
use crate::nvme::NvmeKeeper;
use parking_lot::{Condvar, Mutex};
use rgpu_control::api::{
    DeviceLoad, DeviceReport, ErrorCode, Heartbeat, LeaseReport, Orders, Registration, Welcome, this_machine,
};
use rgpu_control::token::PublicKey;
use rgpu_control::{Broker, ClientError, LeaseId};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::backoff::Backoff;
use super::network::{self, Meter};
use super::peers::Peers;
use super::telemetry::Telemetry;
use super::{AgentOptions, Site, facts};

/// How long the broker may keep a request for orders.
const ORDERS_WAIT_S: u32 = 30;
/// Until the broker has said how often it wants to hear something.
const FIRST_HEARTBEAT: Duration = Duration::from_secs(1);
/// Between two measurements of a time to a peer.
const PEER_EVERY: Duration = Duration::from_secs(1);
/// Another conversation may have begun meanwhile; it isn't waited for longer than this.
const LAST_HEARTBEAT_TIME: Duration = Duration::from_secs(1);

/// What the agent's threads share.
pub(super) struct BrokerLink {
    broker: Broker,
    name: String,
    /// The node's role token: whoever signed it is the broker whose leases count.
    token: String,
    /// A number that no other run of this server has.
    instance: u64,
    options: AgentOptions,
    site: Site,
    devices: Vec<DeviceReport>,
    peers: Peers,
    telemetry: Telemetry,
    nvmes: Option<Arc<NvmeKeeper>>,
    state: Mutex<LinkState>,
    changed: Condvar,
}

#[derive(Default)]
struct LinkState {
    /// The broker knows this node.
    registered: bool,
    /// Something happened that the broker should hear now.
    due: bool,
    /// Nothing more is to be said, but the last word.
    stopping: bool,
    /// How often the broker wants to hear something, once that is known.
    heartbeat: Option<Duration>,
    /// What is wrong with the broker, as it was last said.
    reported_failure: Option<String>,
}

impl BrokerLink {
    /// Prepares it; nothing is sent yet.
    pub(super) fn new(
        broker: Broker,
        (name, token): (String, String),
        options: AgentOptions,
        site: Site,
        devices: Vec<DeviceReport>,
        nvmes: Option<Arc<NvmeKeeper>>,
    ) -> Arc<Self> {
        let telemetry = Telemetry::start(&site.settled.spec, &devices);
        let link = Arc::new(Self {
            broker,
            name,
            token,
            instance: u64::from_le_bytes(rgpu_control::token::random_bytes()),
            options,
            site,
            devices,
            peers: Peers::default(),
            telemetry,
            nvmes,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let weak = Arc::downgrade(&link);
        let tell = move || {
            if let Some(link) = weak.upgrade() {
                link.send_now();
            }
        };
        if let Some(nvmes) = &link.nvmes {
            nvmes.on_change(tell.clone());
        }
        link.site.leases.on_change(tell);
        link
    }

    /// Has a heartbeat sent now.
    fn send_now(&self) {
        self.state.lock().due = true;
        self.changed.notify_all();
    }

    /// Waits; true when everything is over. Heartbeats that are due end the wait where `due` says so.
    fn wait(&self, time: Duration, due: bool) -> bool {
        let end = Instant::now() + time;
        let mut state = self.state.lock();
        while !(state.stopping || due && state.due) {
            if self.changed.wait_until(&mut state, end).timed_out() {
                break;
            }
        }
        state.stopping
    }

    /// Says once that the broker is away, and once that it is back.
    fn report_failure(&self, error: &ClientError) {
        // What the system says of a broken connection differs from time to time; that it is broken doesn't.
        let kind = match error {
            ClientError::Unreachable { .. } => "unreachable".to_owned(),
            other => other.to_string(),
        };
        let mut state = self.state.lock();
        if state.reported_failure.as_ref() != Some(&kind) && !state.stopping {
            tracing::warn!("{error}; trying again, and serving the leases that there are");
            state.reported_failure = Some(kind);
        }
    }

    fn report_success(&self) {
        if self.state.lock().reported_failure.take().is_some() {
            tracing::info!("the broker {} is back", self.broker.url());
        }
    }

    fn follow(&self, orders: &Orders) {
        self.peers.set(&self.name, &orders.peers);
        // Before the leases: what ends there is held back as long as something of it is attached.
        if let Some(nvmes) = &self.nvmes {
            nvmes.apply(orders);
        }
        self.site.leases.apply(orders);
        if let Some(applications) = &self.site.applications {
            applications.follow(orders);
        }
    }

    fn registration(&self, address: String, local_address: Option<String>, nic_mbps: u64) -> Registration {
        let (leases, _) = self.site.leases.report();
        Registration {
            name: self.name.clone(),
            instance: self.instance,
            address,
            local_address,
            machine: this_machine(),
            cpu_milli: facts::cpu_milli(),
            memory_mib: facts::memory_mib(),
            nic_mbps,
            switch: self.options.switch.clone(),
            controls: self.site.applications.as_ref().map(|applications| applications.controls()),
            devices: self.devices.clone(),
            nvmes: self.nvmes.as_ref().map_or_else(Vec::new, |nvmes| nvmes.devices().to_vec()),
            transports: facts::transports(self.site.connectors, self.site.transport),
            tls: self.site.tls.is_some(),
            tls_required: self.site.tls.as_ref().is_some_and(|tls| tls.required),
            tls_fingerprint: self.site.tls.as_ref().map(|tls| tls.fingerprint.clone()),
            version: env!("CARGO_PKG_VERSION").into(),
            leases,
        }
    }

    /// Introduces the node. The answer is the way by which its traffic is measured.
    fn register(&self) -> Result<Meter, ClientError> {
        let advertise = self.options.advertise.as_deref();
        let (address, local) = facts::addresses(self.site.address, advertise, self.broker.url())
            .map_err(|e| ClientError::Setup(e.to_string()))?;
        let interface = network::interface(network_address(&address));
        let speed = interface.as_deref().and_then(network::speed_mbps);
        let nic_mbps = self.options.nic_mbps.or(speed).unwrap_or_else(|| {
            let interface = interface.as_deref().unwrap_or("no interface");
            let default = network::DEFAULT_MBPS;
            tracing::debug!(
                "what {interface} can carry is taken to be {default} Mbit/s; --nic-mbps says more"
            );
            default
        });
        let welcome: Welcome = self.broker.register(&self.registration(address.clone(), local, nic_mbps))?;
        let Some(key) = PublicKey::parse(&welcome.public_key) else {
            let why = "its public key is none".into();
            return Err(ClientError::Odd { broker: self.broker.url().into(), why });
        };
        check_key(&key, &self.token, &self.name)
            .map_err(|why| ClientError::Odd { broker: self.broker.url().into(), why })?;
        self.site.leases.set_identity(&self.name, key);
        self.follow(&welcome.orders);
        tracing::info!(
            "registered with the broker {} as {}, at {address}, {} devices, {nic_mbps} Mbit/s",
            self.broker.url(),
            self.name,
            self.devices.len()
        );
        self.report_success();
        let mut state = self.state.lock();
        state.heartbeat = Some(Duration::from_millis(welcome.heartbeat_ms.clamp(50, 60_000)));
        state.registered = true;
        self.changed.notify_all();
        drop(state);
        Ok(Meter::new(interface))
    }

    /// Registers, and says how things are, until everything is over.
    pub(super) fn send_heartbeats(&self) {
        let mut backoff = Backoff::new(self.instance);
        let mut own = OwnTraffic::default();
        let mut meter = Meter::new(None);
        loop {
            let (registered, heartbeat) = {
                let state = self.state.lock();
                (state.registered, state.heartbeat.unwrap_or(FIRST_HEARTBEAT))
            };
            let said = match registered {
                false => self.register().map(|new| meter = new),
                true => self.beat(&mut meter, &mut own),
            };
            let stopping = match said {
                Ok(()) => {
                    backoff.reset();
                    self.wait(heartbeat, true)
                }
                Err(error) => {
                    if registered && matches!(error.code(), Some(ErrorCode::Conflict | ErrorCode::NotFound)) {
                        tracing::info!("registering again: {error}");
                        self.state.lock().registered = false;
                        continue;
                    }
                    self.report_failure(&error);
                    // A node must be heard of again before it counts as lost.
                    self.wait(backoff.delay().min(2 * heartbeat), false)
                }
            };
            if stopping {
                return;
            }
        }
    }

    fn beat(&self, meter: &mut Meter, own: &mut OwnTraffic) -> Result<(), ClientError> {
        // What happens from here on is news again.
        self.state.lock().due = false;
        let heartbeat = self.heartbeat(meter, own, false);
        let orders = self.broker.heartbeat(&self.name, &heartbeat)?;
        self.site.leases.confirmed(&heartbeat.ended);
        self.follow(&orders);
        self.report_success();
        Ok(())
    }

    fn heartbeat(&self, meter: &mut Meter, own: &mut OwnTraffic, leaving: bool) -> Heartbeat {
        // Before the report: a lease that begins in between is then in the report, or refused by those orders.
        let orders = self.site.leases.applied();
        let (mut leases, mut ended) = self.site.leases.report();
        let mut nvmes = Vec::new();
        if let Some(keeper) = &self.nvmes {
            keeper.hold_back(&mut leases, &mut ended);
            nvmes = keeper.states();
        }
        let mut used = self.site.leases.used_by_ended(&ended);
        if let Some(applications) = &self.site.applications {
            applications.add_to(&mut leases, &mut used);
        }
        let load = meter.measure(own.so_far(&leases));
        Heartbeat {
            instance: self.instance,
            devices: loads(&self.site.ledger, &self.site.settled.capacity, &self.telemetry, &leases),
            leases,
            orders,
            ended,
            used,
            nic_in_mbps: load.nic_in,
            nic_out_mbps: load.nic_out,
            own_in_mbps: load.own_in,
            own_out_mbps: load.own_out,
            peers: self.peers.times(),
            nvmes,
            proofs: self.site.leases.proofs(),
            leaving,
        }
    }

    /// Fetches orders as they are given, until everything is over.
    pub(super) fn fetch_orders(&self) {
        let mut backoff = Backoff::new(!self.instance);
        let mut seen = 0;
        loop {
            {
                let mut state = self.state.lock();
                while !state.registered && !state.stopping {
                    self.changed.wait(&mut state);
                }
                if state.stopping {
                    return;
                }
            }
            seen = self.site.leases.applied().max(seen);
            match self.broker.orders(&self.name, seen, ORDERS_WAIT_S) {
                Ok(orders) => {
                    backoff.reset();
                    seen = orders.version.max(seen);
                    self.follow(&orders);
                }
                Err(error) => {
                    // What it means, the next heartbeat shows.
                    tracing::debug!("no orders: {error}");
                    if self.wait(backoff.delay(), false) {
                        return;
                    }
                }
            }
        }
    }

    /// Measures the times to other nodes, until everything is over.
    pub(super) fn measure_peers(&self) {
        while !self.wait(PEER_EVERY, false) {
            self.peers.measure_next();
        }
    }

    /// Ends all threads, and tells the broker. Takes no longer than [`LAST_HEARTBEAT_TIME`].
    pub(super) fn stop(self: Arc<Self>) {
        let registered = {
            let mut state = self.state.lock();
            state.stopping = true;
            state.registered
        };
        self.changed.notify_all();
        if let Some(nvmes) = &self.nvmes {
            nvmes.stop();
        }
        if !registered {
            return;
        }
        let (said, heard) = std::sync::mpsc::channel();
        let body = move || {
            let heartbeat = self.heartbeat(&mut Meter::new(None), &mut OwnTraffic::default(), true);
            let _ = said.send(self.broker.heartbeat(&self.name, &heartbeat).map(|_| ()));
        };
        if std::thread::Builder::new().name("agent-end".into()).spawn(body).is_err() {
            return;
        }
        match heard.recv_timeout(LAST_HEARTBEAT_TIME) {
            Ok(Ok(())) => tracing::info!("the broker knows that this server stops"),
            Ok(Err(e)) => tracing::warn!("the broker does not know that this server stops: {e}"),
            Err(_) => tracing::warn!("the broker does not know that this server stops: no answer"),
        }
    }
}

/// Whether a key is the one that leases are to be checked with: it has signed the node's own token, which the node's administrator
/// got from the broker. So no other key is taken, whoever answers at the broker's address, and nothing has to be remembered.
fn check_key(key: &PublicKey, token: &str, name: &str) -> Result<(), String> {
    key.verify_signature(token.trim()).map(drop).map_err(|_| {
        format!(
            "its public key {} did not sign this node's token, so it is another broker, or has a new key. Nothing is taken from \
             it. If it is the right one, issue the node a new token (`rgpu broker token --role node --name {name}`) and start \
             this server with that",
            key.to_text()
        )
    })
}

/// The IP address of `HOST:PORT`.
fn network_address(address: &str) -> Option<std::net::IpAddr> {
    use std::net::ToSocketAddrs;
    address.to_socket_addrs().ok()?.next().map(|address| address.ip())
}

/// How busy and how full the devices are.
fn loads(
    ledger: &Ledger,
    capacity: &[u64],
    telemetry: &Telemetry,
    leases: &[LeaseReport],
) -> Vec<DeviceLoad> {
    let load = |index: usize| {
        let measured = telemetry.of(index);
        let uses = leases.iter().flat_map(|lease| &lease.usage);
        let uses = uses.filter(|usage| usage.device as usize == index);
        let milli: u32 = uses.fold(0, |sum, usage| sum.saturating_add(usage.share_milli));
        DeviceLoad {
            index: index as u32,
            utilization_percent: measured.utilization_percent.unwrap_or(milli.div_ceil(10).min(100)),
            memory_used: measured
                .memory_used
                .unwrap_or_else(|| capacity[index].saturating_sub(ledger.unpromised(index as u32))),
            peak_memory: ledger.peak(index as u32),
            power_w: measured.power_w,
        }
    };
    (0..capacity.len()).map(load).collect()
}

/// Bytes that leases received and sent, also those that have ended: the leases' own counters end with them.
#[derive(Default)]
struct OwnTraffic {
    known: HashMap<LeaseId, (u64, u64)>,
    total: (u64, u64),
}

impl OwnTraffic {
    fn so_far(&mut self, leases: &[LeaseReport]) -> (u64, u64) {
        let mut known = HashMap::with_capacity(leases.len());
        for lease in leases {
            let sum = |of: fn(&rgpu_control::api::GrantUsage) -> u64| lease.usage.iter().map(of).sum::<u64>();
            let now = (sum(|usage| usage.bytes_in), sum(|usage| usage.bytes_out));
            let before = self.known.get(&lease.lease).copied().unwrap_or_default();
            self.total.0 += now.0.saturating_sub(before.0);
            self.total.1 += now.1.saturating_sub(before.1);
            known.insert(lease.lease, now);
        }
        self.known = known;
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_control::api::GrantUsage;

    fn lease(id: u64, usage: &[GrantUsage]) -> LeaseReport {
        LeaseReport { lease: LeaseId(id), version: 1, sessions: 1, usage: usage.to_vec(), processors: None }
    }

    #[test]
    fn only_the_key_that_signed_the_nodes_token_is_taken() {
        use rgpu_control::token::{Claims, PrivateKey, Role, RoleClaims};
        let (broker, other) = (PrivateKey::generate(), PrivateKey::generate());
        // Times do not matter here: the broker checks them.
        let claims = RoleClaims { role: Role::Node, name: "n0".into(), not_before: 0, expires: 1 };
        let token = broker.sign(&Claims::Role(claims)) + "\n";
        assert_eq!(check_key(&broker.public(), &token, "n0"), Ok(()));
        let why = check_key(&other.public(), &token, "n0").unwrap_err();
        assert!(why.contains("new token") && why.contains("--name n0"), "{why}");
    }

    #[test]
    fn traffic_of_leases_that_ended_stays_counted() {
        let usage = |bytes_in, bytes_out| GrantUsage { bytes_in, bytes_out, ..GrantUsage::default() };
        let mut own = OwnTraffic::default();
        assert_eq!(own.so_far(&[]), (0, 0));
        assert_eq!(own.so_far(&[lease(1, &[usage(10, 1), usage(5, 0)])]), (15, 1));
        assert_eq!(own.so_far(&[lease(1, &[usage(20, 1), usage(5, 0)]), lease(2, &[usage(1, 1)])]), (26, 2));
        assert_eq!(own.so_far(&[lease(2, &[usage(1, 4)])]), (26, 5));
        assert_eq!(own.so_far(&[]), (26, 5));
    }

    #[test]
    fn devices_are_as_busy_as_their_leases() {
        let ledger = Ledger::new(&[1000, 1000]).unwrap();
        let slot = ledger.take_slot().unwrap();
        ledger.grant(slot, 1, 0, 300);
        ledger.allocate(slot, 1, 200);
        ledger.deallocate(slot, 1, 200);
        let usage = |device, share_milli| GrantUsage { device, share_milli, ..GrantUsage::default() };
        let telemetry = Telemetry::start(&crate::DeviceSpec::default(), &[]);
        let leases = [lease(1, &[usage(0, 250), usage(1, 900)]), lease(2, &[usage(0, 245), usage(1, 200)])];
        let loads = loads(&ledger, &[1000, 1000], &telemetry, &leases);
        assert_eq!((loads[0].utilization_percent, loads[1].utilization_percent), (50, 100));
        assert_eq!((loads[0].memory_used, loads[1].memory_used), (0, 300));
        assert_eq!((loads[0].peak_memory, loads[1].peak_memory), (0, 200));
        assert_eq!(loads[0].power_w, None);
    }
}
