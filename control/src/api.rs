//! The bodies of the broker's REST API.
//!
//! Everything is JSON. A request carries a role token (`Authorization: Bearer …`); an error's body is [`ErrorBody`]. Unknown
//! fields in requests are refused, so that a misspelt option is not silently ignored; in answers they are to be ignored.

use serde::{Deserialize, Serialize};

use crate::LeaseId;
use crate::ticket::LeaseServer;
use crate::token::{Grant, Role};

/// Where requests go, below the broker's address. `{…}` stands for a name or an id.
pub mod paths {
    /// GET, nobody needs to be anybody: [`super::Health`].
    pub const HEALTH: &str = "/v1/health";
    /// GET: the OpenAPI description.
    pub const OPENAPI: &str = "/openapi.json";
    /// GET: metrics in Prometheus' text format.
    pub const METRICS: &str = "/metrics";
    /// GET: [`super::Node`]s. POST (node): [`super::Registration`] → [`super::Welcome`].
    pub const NODES: &str = "/v1/nodes";
    /// GET: [`super::Node`]. DELETE (admin): forgets a node that is lost, or drained and without leases.
    pub const NODE: &str = "/v1/nodes/{name}";
    /// POST (node): [`super::Heartbeat`] → [`super::Orders`].
    pub const HEARTBEAT: &str = "/v1/nodes/{name}/heartbeat";
    /// GET (node) `?seen=VERSION&wait_s=N`: [`super::Orders`], as soon as their version is above `seen`, at the latest after
    /// `wait_s` seconds (60 at most).
    pub const ORDERS: &str = "/v1/nodes/{name}/orders";
    /// POST (admin): [`super::Drain`]: whether the node gets new leases.
    pub const DRAIN: &str = "/v1/nodes/{name}/drain";
    /// GET: [`super::Device`]s.
    pub const DEVICES: &str = "/v1/devices";
    /// GET: [`super::Lease`]s (a tenant sees its own; `?all=true` includes those that ended lately).
    /// POST (tenant): [`super::LeaseRequest`] → [`super::Lease`], waiting or granted.
    pub const LEASES: &str = "/v1/leases";
    /// GET `?wait_s=N`: [`super::Lease`], at once, or as soon as it no longer waits. PATCH: [`super::LeaseChange`] →
    /// [`super::Lease`]. DELETE: gives it back.
    pub const LEASE: &str = "/v1/leases/{id}";
    /// POST: [`super::Renewal`] → [`super::Lease`] with a token of a later expiry.
    pub const RENEW: &str = "/v1/leases/{id}/renew";
    /// GET: [`super::LeaseExplanation`].
    pub const EXPLAIN: &str = "/v1/leases/{id}/explain";
    /// GET: [`super::Job`]s, what waits first.
    pub const JOBS: &str = "/v1/jobs";
    /// GET: [`super::Policies`]. PUT (admin): [`super::PolicySettings`].
    pub const POLICY: &str = "/v1/policy";
    /// GET `?since=NUMBER`: server-sent events, each [`super::Event`].
    pub const EVENTS: &str = "/v1/events";
    /// POST (admin): [`super::TokenRequest`] → [`super::IssuedToken`].
    pub const TOKENS: &str = "/v1/tokens";
    /// GET (admin): [`super::Tenant`]s.
    pub const TENANTS: &str = "/v1/tenants";
    /// GET: [`super::Summary`]: what `rgpu status` shows first.
    pub const SUMMARY: &str = "/v1/summary";
}

macro_rules! records {
    ($($(#[$meta:meta])* pub $kind:ident $name:ident { $($body:tt)* })*) => {
        $(#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        $(#[$meta])*
        pub $kind $name { $($body)* })*
    };
}

/// Which kind of failure a request met, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// 400: the request is malformed, or asks for nonsense.
    BadRequest,
    /// 401: no token, or a bad one.
    Unauthorized,
    /// 403: the token's role or tenant may not do that.
    Forbidden,
    /// 404: there is no such thing.
    NotFound,
    /// 405: the method is not for this path.
    MethodNotAllowed,
    /// 409: it contradicts what is (another node of that name, a lease that has ended, …).
    Conflict,
    /// 413: the body is too long.
    TooLarge,
    /// 422: it could never be granted: more than the whole cluster has.
    Impossible,
    /// 429: the tenant's limit is reached.
    Limit,
    /// 500: the broker's own failure; it is in its log.
    Internal,
    /// 503: the state cannot be stored, or the broker is stopping. Nothing was changed; try again later.
    Unavailable,
}

/// What a policy's setting can be set to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged, expecting = "a policy's setting is true, false or a number")]
pub enum SettingValue {
    /// On or off.
    Flag(bool),
    /// A number, which is finite: JSON has no other.
    Number(f64),
}

impl std::fmt::Display for SettingValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SettingValue::Flag(value) => value.fmt(f),
            SettingValue::Number(value) => value.fmt(f),
        }
    }
}

records! {
    /// The body of an answer that is no success.
    pub struct ErrorBody {
        /// What went wrong.
        pub error: Problem,
    }
    /// What went wrong.
    pub struct Problem {
        /// For programs.
        pub code: ErrorCode,
        /// For people: what happened, and what to do.
        pub message: String,
    }
    /// Whether the broker is well.
    pub struct Health {
        /// `ok`, or what is the matter.
        pub status: String,
        /// The release.
        pub version: String,
        /// Seconds since it started.
        pub uptime_s: u64,
        /// The key that tokens are checked with, as text.
        pub public_key: String,
    }

    // ---- nodes ----

    /// A device, as its node describes it.
    #[serde(deny_unknown_fields)]
    pub struct DeviceReport {
        /// Its number in its node, from 0 without gaps.
        pub index: u32,
        /// The model's name.
        pub model: String,
        /// Its UUID, as text.
        pub uuid: String,
        /// Memory that can be granted, in bytes.
        pub memory: u64,
        /// Bandwidth of its bus.
        #[serde(default)]
        pub bus_mbps: u64,
        /// Whether several leases can share it.
        pub partitionable: bool,
        /// Whether a program that has it can have no other device of the node: an instance of a partitioned GPU (MIG), of
        /// which CUDA shows a program one, and nothing beside it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub alone: bool,
        /// Compute capability, such as `8.0`.
        pub compute_capability: String,
        /// Whether it is a software GPU.
        pub software: bool,
        /// What holds a lease to its share: `workers` (a software GPU's own), `pacing` of launches, `mps` (NVIDIA's
        /// multi-process service) or `mig` (an instance of a partitioned GPU). Empty where the node does not say.
        #[serde(default)]
        pub enforced_by: String,
    }
    /// How a node introduces itself.
    #[serde(deny_unknown_fields)]
    pub struct Registration {
        /// Its name: the one its token is for.
        pub name: String,
        /// A number that is drawn when the server starts: another number is another run of it.
        pub instance: u64,
        /// `HOST:PORT` where programs on other machines reach its server.
        pub address: String,
        /// `HOST:PORT` where programs on the node itself reach it, if that is another.
        #[serde(default)]
        pub local_address: Option<String>,
        /// Identifies the machine: clients that say the same are on it.
        pub machine: String,
        /// Thousandths of processor cores.
        pub cpu_milli: u64,
        /// Main memory in MiB.
        pub memory_mib: u64,
        /// Capacity of its network interface, in each direction.
        pub nic_mbps: u64,
        /// Its switch, as the broker's configuration names it.
        #[serde(default)]
        pub switch: Option<String>,
        /// The devices.
        pub devices: Vec<DeviceReport>,
        /// Which transports its server offers: `tcp`, `shm`, `rdma`.
        pub transports: Vec<String>,
        /// Whether its server encrypts data connections (TLS) for programs that want it.
        #[serde(default)]
        pub tls: bool,
        /// Whether it takes no others from other machines.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub tls_required: bool,
        /// With `tls`: what programs know its certificate by, `sha256:` and 64 hexadecimal digits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tls_fingerprint: Option<String>,
        /// The release.
        pub version: String,
        /// Leases that it is serving from before (it was restarted, or the broker was).
        pub leases: Vec<LeaseReport>,
    }
    /// What the broker answers to a node.
    pub struct Welcome {
        /// The key that lease tokens are checked with.
        pub public_key: String,
        /// How often to say something, in milliseconds.
        pub heartbeat_ms: u64,
        /// What to do.
        pub orders: Orders,
    }
    /// A lease, as a node sees it.
    #[serde(deny_unknown_fields)]
    pub struct LeaseReport {
        /// Which.
        pub lease: LeaseId,
        /// The version of it that the node enforces.
        pub version: u64,
        /// How many programs have a session with it.
        pub sessions: u32,
        /// What is used of each of its grants on this node, in the token's order.
        pub usage: Vec<GrantUsage>,
    }
    /// What a lease uses of one device.
    #[derive(Default)]
    #[serde(deny_unknown_fields)]
    pub struct GrantUsage {
        /// The device's number in its node.
        pub device: u32,
        /// Memory promised to its programs, in bytes.
        pub memory: u64,
        /// The most it ever was.
        pub peak_memory: u64,
        /// Device time used since the lease began, in ms.
        pub busy_ms: u64,
        /// Thousandths of the device's time used in the last window.
        pub share_milli: u32,
        /// Kernels launched.
        pub launches: u64,
        /// Bytes received from programs.
        pub bytes_in: u64,
        /// Bytes sent to programs.
        pub bytes_out: u64,
    }
    /// What was measured of a device.
    #[derive(Default)]
    #[serde(deny_unknown_fields)]
    pub struct DeviceLoad {
        /// Its number in its node.
        pub index: u32,
        /// Percent of the time in which it was executing something.
        pub utilization_percent: u32,
        /// Bytes of its memory in use.
        pub memory_used: u64,
        /// The most that programs have had allocated of it at a time, in bytes, since its server started.
        #[serde(default)]
        pub peak_memory: u64,
        /// Watts, where that is known.
        #[serde(default)]
        pub power_w: Option<f64>,
    }
    /// What was measured towards another node.
    #[serde(deny_unknown_fields)]
    pub struct PeerTime {
        /// The other node.
        pub node: String,
        /// Median of the latest round trips, in microseconds.
        pub rtt_us: u64,
    }
    /// What a node says regularly.
    #[serde(deny_unknown_fields)]
    pub struct Heartbeat {
        /// As in its registration. An unknown one is answered with 409: register (again).
        pub instance: u64,
        /// What the devices do.
        pub devices: Vec<DeviceLoad>,
        /// What the leases use; also those that have no session at the moment.
        pub leases: Vec<LeaseReport>,
        /// The version of the orders that the node follows. A lease that neither those nor `leases` name is not on the node, and
        /// will not be: its token is refused. So it has ended there, also where the node has never heard of it.
        #[serde(default)]
        pub orders: u64,
        /// Leases whose ending was ordered, and of which nothing is left.
        pub ended: Vec<LeaseId>,
        /// What those used in all.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub used: Vec<LeaseReport>,
        /// Measured traffic into the network interface since the last heartbeat.
        pub nic_in_mbps: u64,
        /// Measured traffic out of it.
        pub nic_out_mbps: u64,
        /// Of both, what this node's server itself received and sent for leases.
        pub own_in_mbps: u64,
        /// See `own_in_mbps`.
        pub own_out_mbps: u64,
        /// Round-trip times to other nodes.
        pub peers: Vec<PeerTime>,
        /// The server is being stopped: this is its last word, and its leases end with it. No need to wait until it counts as
        /// lost.
        #[serde(default)]
        pub leaving: bool,
    }
    /// A lease that a node is to serve.
    pub struct LeaseOrder {
        /// Which.
        pub lease: LeaseId,
        /// Its version: a program may present an older token of it, but this is what counts.
        pub version: u64,
        /// Whose.
        pub tenant: String,
        /// The public key of its holder.
        pub holder: String,
        /// Until when, unless it is renewed.
        pub expires: u64,
        /// What it gives on this node.
        pub grants: Vec<Grant>,
        /// The other nodes that it gives something of: programs' copies go straight there.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub nodes: Vec<Peer>,
    }
    /// Another node, as servers reach it.
    pub struct Peer {
        /// Its name.
        pub node: String,
        /// Where its server is reached.
        pub address: String,
    }
    /// What a node is to do. Always complete: leases that are not in the list have ended, and are to be ended.
    pub struct Orders {
        /// Rises with each change of anything, over restarts of the broker too: it is one number for the whole broker.
        pub version: u64,
        /// The leases.
        pub leases: Vec<LeaseOrder>,
        /// The nodes to measure times to.
        pub peers: Vec<Peer>,
    }
    /// Whether a node gets new leases.
    #[serde(deny_unknown_fields)]
    pub struct Drain {
        /// `true`: no new ones.
        pub drain: bool,
    }
    /// A node, as the broker sees it.
    pub struct Node {
        /// Its name.
        pub name: String,
        /// `ready`, `draining`, `joining` (not heard of since the broker's start, or still serving leases that have ended: nothing
        /// is granted yet), `lost` (no heartbeat for too long), or `client` (has no devices; programs were started there).
        pub state: String,
        /// Where its server is reached.
        pub address: String,
        /// Thousandths of cores.
        pub cpu_milli: u64,
        /// Main memory in MiB.
        pub memory_mib: u64,
        /// Capacity of its network interface.
        pub nic_mbps: u64,
        /// Measured traffic into it.
        pub nic_in_mbps: u64,
        /// Measured traffic out of it.
        pub nic_out_mbps: u64,
        /// What of it isn't the leases', in the direction in which that is more, averaged over the last heartbeats: by this,
        /// decisions are made.
        #[serde(default)]
        pub others_mbps: u64,
        /// Seconds since its last heartbeat.
        pub heard_s: f64,
        /// The release.
        pub version: String,
        /// How many devices it has.
        pub devices: u32,
        /// How many leases have devices of it.
        pub leases: u32,
        /// Measured times to other nodes.
        pub peers: Vec<PeerTime>,
    }
    /// A device, as the broker sees it.
    pub struct Device {
        /// Its node.
        pub node: String,
        /// What the node said of it.
        #[serde(flatten)]
        pub report: DeviceReport,
        /// What was measured.
        pub load: DeviceLoad,
        /// Thousandths granted.
        pub granted_milli: u32,
        /// Bytes granted.
        pub granted_memory: u64,
        /// The leases that share it.
        pub leases: Vec<LeaseId>,
        /// Whether it can be granted now (its node is ready).
        pub available: bool,
    }

    // ---- leases ----

    /// What a program needs.
    #[serde(deny_unknown_fields)]
    pub struct LeaseRequest {
        /// A name for people, such as the program's; need not be unique.
        pub name: String,
        /// How many devices.
        pub gpus: u16,
        /// Bytes of memory of each; 0 is all of a whole device's, and of a part the same part.
        #[serde(default)]
        pub memory: u64,
        /// Thousandths of each device's time: 1 to 1000.
        pub share_milli: u16,
        /// Models that will do; empty is any.
        #[serde(default)]
        pub models: Vec<String>,
        /// The machine where the program runs ([`Registration::machine`]).
        pub machine: String,
        /// The node where the program runs, where that is said; else `machine` tells.
        #[serde(default)]
        pub node: Option<String>,
        /// The program's public key, as text: the lease's token is of use only with the private one.
        pub holder: String,
        /// Which transport to use.
        #[serde(default = "auto")]
        pub transport: String,
        /// A profile of the broker's configuration: how the program's time depends on where its device is.
        #[serde(default)]
        pub profile: Option<String>,
        /// By this factor the profile's times are longer; 1 unless given.
        #[serde(default)]
        pub scale: Option<f64>,
        /// The time from start to end that it is to keep, in seconds (τ).
        #[serde(default)]
        pub goal_s: Option<f64>,
        /// The importance of that, from 1 (most) to 10 (z); 1 unless given.
        #[serde(default)]
        pub importance: Option<f64>,
        /// Traffic that each remote device makes, in Mbit/s; the profile's unless given.
        #[serde(default)]
        pub traffic_mbps: Option<u64>,
        /// How long the answer may wait for a grant, in seconds (60 at most); it waits in the queue after that.
        #[serde(default)]
        pub wait_s: u32,
        /// Whether to fail (409) where nothing is free now, instead of waiting in the queue.
        #[serde(default)]
        pub now_or_never: bool,
        /// Whether what leaves the program's machine is to be encrypted. Only servers that can do so are given then.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub encrypt: bool,
    }
    /// What is to be different.
    #[derive(Default)]
    #[serde(deny_unknown_fields)]
    pub struct LeaseChange {
        /// Bytes of memory of each device.
        #[serde(default)]
        pub memory: Option<u64>,
        /// Thousandths of each device's time.
        #[serde(default)]
        pub share_milli: Option<u16>,
    }
    /// Asks for more time.
    #[derive(Default)]
    #[serde(deny_unknown_fields)]
    pub struct Renewal {}
    /// A lease.
    pub struct Lease {
        /// Its id.
        pub id: LeaseId,
        /// What was asked for.
        pub name: String,
        /// Whose.
        pub tenant: String,
        /// Where it stands.
        pub state: LeaseState,
        /// Why it waits or has ended; empty where it is active.
        pub reason: String,
        /// Rises with each change.
        pub version: u64,
        /// When it was asked for.
        pub submitted: u64,
        /// When it was granted.
        pub granted: Option<u64>,
        /// Until when it is good, unless renewed.
        pub expires: Option<u64>,
        /// What it gives, in the order of device ordinals.
        pub grants: Vec<Grant>,
        /// Where to connect, in that order.
        pub servers: Vec<LeaseServer>,
        /// The token: only for its tenant, and only where it is active.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub token: Option<String>,
        /// Which transport to use.
        pub transport: String,
        /// The node where the program runs.
        pub client_node: String,
        /// Which of the devices are in other nodes than the program, counted.
        pub remote: u32,
        /// What it uses, in the order of grants.
        pub usage: Vec<GrantUsage>,
        /// How many programs have a session with it.
        pub sessions: u32,
        /// With encrypted connections: the certificates (PEM) that sign those of servers without a fingerprint.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub ca: Option<String>,
    }
    /// What waits or runs, as the placement sees it.
    pub struct Job {
        /// The lease.
        pub lease: LeaseId,
        /// Its name.
        pub name: String,
        /// Whose.
        pub tenant: String,
        /// `waiting` or `running`.
        pub state: String,
        /// When it was asked for.
        pub submitted: u64,
        /// In how many rounds it was left.
        pub rounds: u32,
        /// Why it was left the last time.
        pub reason: String,
        /// Its place in the queue, from 1; 0 where it runs.
        pub place: u32,
        /// When it is expected to complete after its start, in seconds, where the profile tells.
        pub expected_s: Option<f64>,
    }
    /// Why a lease was placed where it is, or waits.
    pub struct LeaseExplanation {
        /// The lease.
        pub lease: LeaseId,
        /// As people read it.
        pub text: String,
        /// The policy that decided.
        pub policy: String,
        /// What came of it.
        pub outcome: String,
        /// The choices that were made.
        pub steps: Vec<ExplanationStep>,
    }
    /// A choice made for one task or, in a device's phase, for one device.
    pub struct ExplanationStep {
        /// The phase of the flow model.
        pub phase: String,
        /// How many places fitted.
        pub places: u64,
        /// How many were ruled out, and why.
        pub ruled_out: Vec<(String, u64)>,
        /// The cheapest places, cheapest first.
        pub candidates: Vec<ExplanationCandidate>,
        /// What leaving it unscheduled would have cost.
        pub unscheduled_cost: Option<f64>,
    }
    /// A place that was looked at.
    pub struct ExplanationCandidate {
        /// The node.
        pub place: String,
        /// The arc's cost; the lowest wins.
        pub cost: f64,
        /// The completion time expected there, in seconds.
        pub expected_s: Option<f64>,
        /// The network load that goes into it, as a part of the capacity.
        pub load: f64,
        /// Whether it was taken.
        pub chosen: bool,
    }

    // ---- the rest ----

    /// The settings of the policy that decides. In JSON, the settings stand beside the name.
    pub struct PolicySettings {
        /// Its name.
        pub name: String,
        /// What is set, by the setting's name. Which settings there are, their types and their limits are the broker's to
        /// know: the table of policies has them.
        #[serde(flatten)]
        pub settings: std::collections::BTreeMap<String, SettingValue>,
    }
    /// The policies.
    pub struct Policies {
        /// Which decides.
        pub active: PolicySettings,
        /// Which there are.
        pub names: Vec<String>,
    }
    /// Something that happened.
    pub struct Event {
        /// Rises by one with each.
        pub number: u64,
        /// When.
        pub time: u64,
        /// `node_joined`, `node_lost`, `node_back`, `node_drained`, `node_removed`, `lease_waiting`, `lease_granted`,
        /// `lease_changed`, `lease_ended`, `policy_changed`, `broker_started`.
        pub kind: String,
        /// The node, where it is about one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub node: Option<String>,
        /// The lease, where it is about one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub lease: Option<LeaseId>,
        /// Whose; other tenants don't see it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tenant: Option<String>,
        /// For people.
        pub text: String,
    }
    /// Asks for a role token.
    #[serde(deny_unknown_fields)]
    pub struct TokenRequest {
        /// What it allows.
        pub role: Role,
        /// For whom.
        pub name: String,
        /// For how long, in seconds.
        pub valid_s: u64,
    }
    /// A role token.
    pub struct IssuedToken {
        /// The token.
        pub token: String,
        /// Until when.
        pub expires: u64,
    }
    /// A tenant: its limits, and what it has.
    pub struct Tenant {
        /// Its name.
        pub name: String,
        /// The most devices (in thousandths) at a time; absent is no limit.
        pub max_gpu_milli: Option<u64>,
        /// The most device memory at a time, in bytes.
        pub max_memory: Option<u64>,
        /// The most leases that may wait or be active.
        pub max_leases: Option<u64>,
        /// Thousandths of devices that it has.
        pub gpu_milli: u64,
        /// Bytes that it has.
        pub memory: u64,
        /// Active leases.
        pub active: u64,
        /// Waiting ones.
        pub waiting: u64,
    }
    /// The cluster in a few numbers.
    pub struct Summary {
        /// Nodes that are ready.
        pub nodes_ready: u32,
        /// Nodes in all.
        pub nodes: u32,
        /// Devices in all.
        pub devices: u32,
        /// Thousandths of devices granted.
        pub granted_milli: u64,
        /// Active leases.
        pub active: u32,
        /// Waiting ones.
        pub waiting: u32,
        /// Placement rounds so far.
        pub rounds: u64,
        /// The latest round's time, in microseconds.
        pub round_us: u64,
        /// Calls that programs of active leases make per second, on all nodes.
        pub launches_per_s: f64,
        /// What they send and receive.
        pub traffic_mbps: f64,
    }
}

/// Where a lease stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum LeaseState {
    /// In the queue.
    Waiting,
    /// Granted.
    Active,
    /// Given back or lost, but not yet confirmed by its nodes: what it had is not granted again before.
    Ending,
    /// Over.
    Ended,
}

impl LeaseState {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Active => "active",
            Self::Ending => "ending",
            Self::Ended => "ended",
        }
    }
}

fn auto() -> String {
    "auto".into()
}

/// What identifies this machine, however it is named: a hash of its machine id and its network namespace's identity, so
/// that hosts in namespaces of one machine are different ones.
pub fn this_machine() -> String {
    let id = std::fs::read("/etc/machine-id").unwrap_or_default();
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace =
        std::fs::read_link("/proc/self/ns/net").map(|link| link.into_os_string().into_encoded_bytes());
    let mut hash = blake3::Hasher::new();
    for part in [id.as_slice(), &boot, &namespace.unwrap_or_default()] {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_refuse_what_they_do_not_know() {
        let good = r#"{"name":"a","gpus":1,"share_milli":250,"machine":"m","holder":"k"}"#;
        let request: LeaseRequest = serde_json::from_str(good).unwrap();
        assert_eq!((request.transport.as_str(), request.memory, request.now_or_never), ("auto", 0, false));
        let odd = good.replace("\"gpus\"", "\"gpu\":1,\"gpus\"");
        assert!(serde_json::from_str::<LeaseRequest>(&odd).unwrap_err().to_string().contains("gpu"));
    }

    #[test]
    fn a_machine_stays_itself() {
        assert_eq!(this_machine(), this_machine());
        assert_eq!(this_machine().len(), 32);
    }
}
