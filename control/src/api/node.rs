//! What nodes say of themselves, and what they are told.

use serde::{Deserialize, Serialize};

use super::lease::LeaseSize;
use super::processors::{ProcessorControls, ProcessorOrder, ProcessorUsage};
use super::records::records;
use crate::LeaseId;
use crate::token::Grant;

records! {
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
    /// An NVMe device that a node offers, as the node describes it.
    #[derive(Eq)]
    #[serde(deny_unknown_fields)]
    pub struct NvmeReport {
        /// Its name, which no other of the node has.
        pub name: String,
        /// Its capacity, in bytes.
        pub capacity: u64,
        /// Its bandwidth, in Mbit/s.
        pub bandwidth_mbps: u64,
    }
    /// An NVMe device that a lease gives, as the node that offers it is to bring it to the program.
    pub struct NvmeOrder {
        /// The device's name in its node.
        pub device: String,
        /// Where the program runs, as the broker calls it.
        pub host: String,
    }
    /// What came of attaching an NVMe device to a lease.
    #[serde(deny_unknown_fields)]
    pub struct NvmeState {
        /// The lease.
        pub lease: LeaseId,
        /// The device's name in its node.
        pub device: String,
        /// Where the program finds it, once it is attached.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub path: Option<String>,
        /// Why it could not be attached.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub failure: Option<String>,
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
        /// What it can hold leases to, beside devices.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub controls: Option<ProcessorControls>,
        /// The devices that the node offers.
        pub devices: Vec<DeviceReport>,
        /// The NVMe devices that it offers.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub nvmes: Vec<NvmeReport>,
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
        /// The release of rgpu that the node runs.
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
        /// The lease that the figures are about.
        pub lease: LeaseId,
        /// The version of it that the node enforces.
        pub version: u64,
        /// How many programs have a session with it.
        pub sessions: u32,
        /// What is used of each of its grants on this node, in the token's order.
        pub usage: Vec<GrantUsage>,
        /// What its programs' server processes use of the node beside devices, where it is measured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub processors: Option<ProcessorUsage>,
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
        /// How many kernels were launched.
        pub launches: u64,
        /// Bytes received from programs.
        pub bytes_in: u64,
        /// Bytes sent to programs.
        pub bytes_out: u64,
        /// Of a lease that may be resized: thousandths of the device's time that are set aside for it by the version that the node
        /// enforces. A node that says so can lend.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub set_aside_milli: Option<u16>,
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
        /// Of the incoming traffic, what this node's server received for leases.
        pub own_in_mbps: u64,
        /// Of the outgoing traffic, what this node's server sent for leases.
        pub own_out_mbps: u64,
        /// Round-trip times to other nodes.
        pub peers: Vec<PeerTime>,
        /// How it stands with the NVMe devices of leases, where that is known.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub nvmes: Vec<NvmeState>,
        /// For leases that the orders ask to [prove](Orders::prove).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub proofs: Vec<LeaseProof>,
        /// The server is being stopped: this is its last word, and its leases end with it. No need to wait until it counts as
        /// lost.
        #[serde(default)]
        pub leaving: bool,
    }
    /// What shows that a node serves a lease by right, to a broker that does not know the lease.
    #[serde(deny_unknown_fields)]
    pub struct LeaseProof {
        /// The lease.
        pub lease: LeaseId,
        /// The latest token of it that a program has presented to the node.
        pub token: String,
        /// The version of it that the node enforces: it may have been changed after the token was issued.
        pub version: u64,
        /// What the node gives it by that version.
        pub grants: Vec<Grant>,
        /// Where it may be resized: how much it has now of each.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub sizes: Vec<LeaseSize>,
    }
    /// A lease that a node is to serve.
    pub struct LeaseOrder {
        /// The lease that the order is about.
        pub lease: LeaseId,
        /// Its version: a program may present an older token of it, but this is what counts.
        pub version: u64,
        /// The tenant whose lease it is.
        pub tenant: String,
        /// The public key of its holder.
        pub holder: String,
        /// Until when, unless it is renewed.
        pub expires: u64,
        /// What it gives on this node.
        pub grants: Vec<Grant>,
        /// The NVMe devices that it gives on this node.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub nvmes: Vec<NvmeOrder>,
        /// Where it may be resized: how much it has now of each. Nodes that do not know this hold it to its grants.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub sizes: Vec<LeaseSize>,
        /// The other nodes that it gives something of: programs' copies go straight there.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub nodes: Vec<Peer>,
        /// What it is to have of the node's processors, beside devices.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub processors: Option<ProcessorOrder>,
    }
    /// Another node, as servers reach it.
    pub struct Peer {
        /// The node's name.
        pub node: String,
        /// Where its server is reached.
        pub address: String,
    }
    /// A lease that has ended, of which a node may have something left.
    pub struct EndedOrder {
        /// The lease that the order is about.
        pub lease: LeaseId,
        /// Why it has ended, in words for people.
        pub reason: String,
    }
    /// What a node is to do. Always complete: leases that are not in the list have ended, and are to be ended.
    pub struct Orders {
        /// Rises with each change of anything, over restarts of the broker too: it is one number for the whole broker.
        pub version: u64,
        /// The leases that the node serves.
        pub leases: Vec<LeaseOrder>,
        /// Why leases have ended that the node has not yet said to be rid of.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub ended: Vec<EndedOrder>,
        /// The nodes to measure times to.
        pub peers: Vec<Peer>,
        /// Leases that the node has reported and the broker does not know (its state was lost, or is an older one). They are to be
        /// served on, although they are not in the list, and the next heartbeat is to bring [proofs](Heartbeat::proofs) of them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub prove: Vec<LeaseId>,
    }
    /// Whether a node gets new leases.
    #[serde(deny_unknown_fields)]
    pub struct Drain {
        /// `true`: no new ones.
        pub drain: bool,
    }
    /// A node, as the broker sees it.
    pub struct Node {
        /// The node's name.
        pub name: String,
        /// `ready`, `draining`, `joining` (not heard of since the broker's start, or still serving leases that have ended: nothing
        /// is granted yet), `silent` (no heartbeat for too long, as from most other nodes: the broker's own network may be the
        /// reason, and nothing is concluded), `lost` (no heartbeat for too long), or `client` (has no devices; programs were started there).
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
        /// The release of rgpu that the node runs.
        pub version: String,
        /// How many devices it has.
        pub devices: u32,
        /// The NVMe devices that it offers.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub nvmes: Vec<NvmeReport>,
        /// How many leases have devices of it.
        pub leases: u32,
        /// Measured times to other nodes.
        pub peers: Vec<PeerTime>,
        /// What the node can hold leases to, beside devices.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub controls: Option<ProcessorControls>,
        /// Whether its server encrypts data connections for programs that want it.
        #[serde(default)]
        pub tls: bool,
    }
    /// A device, as the broker sees it.
    pub struct Device {
        /// The name of the node that the device is in.
        pub node: String,
        /// What the node said of it.
        #[serde(flatten)]
        pub report: DeviceReport,
        /// What was measured.
        pub load: DeviceLoad,
        /// How much of its time leases were given, in thousandths of the device.
        pub granted_milli: u32,
        /// How much of its memory leases were given, in bytes.
        pub granted_memory: u64,
        /// The leases that share it.
        pub leases: Vec<LeaseId>,
        /// Whether it can be granted now (its node is ready).
        pub available: bool,
    }
}
