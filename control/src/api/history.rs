//! What was: measurements of the last hour, and what the latest placement rounds came to.

use serde::{Deserialize, Serialize};

use super::lease::LeasedNvme;
use super::records::records;
use crate::LeaseId;
use crate::token::Grant;

records! {
    /// What a node measured over the last hour: means over equal intervals, the oldest first. All lists are equally long. Where
    /// nothing was heard of the node, there is `null`.
    pub struct NodeHistory {
        /// The node's name.
        pub node: String,
        /// The length of an interval, in seconds.
        pub interval_s: u32,
        /// When the last interval ended, in seconds since 1970.
        pub end: u64,
        /// Traffic into its network interface, in Mbit/s.
        pub nic_in_mbps: Vec<Option<u32>>,
        /// Traffic out of it.
        pub nic_out_mbps: Vec<Option<u32>>,
        /// Of the incoming traffic, what its server received for leases.
        pub own_in_mbps: Vec<Option<u32>>,
        /// Of the outgoing traffic, what its server sent for leases.
        pub own_out_mbps: Vec<Option<u32>>,
        /// Its devices, by number.
        pub devices: Vec<DeviceHistory>,
    }
    /// What was measured of a device, in thousandths of all of it, and what was granted.
    pub struct DeviceHistory {
        /// Its number in its node.
        pub device: u32,
        /// The part of the time in which it was executing something.
        pub busy_milli: Vec<Option<u16>>,
        /// The part of its time that leases had.
        pub granted_milli: Vec<Option<u16>>,
        /// The part of its memory that was in use.
        pub memory_used_milli: Vec<Option<u16>>,
        /// The part of its memory that leases had.
        pub memory_granted_milli: Vec<Option<u16>>,
    }
    /// What a placement round came to.
    pub struct RoundOutcome {
        /// Rises by one with each round since the broker was started.
        pub number: u64,
        /// When it was, in seconds since 1970.
        pub time: u64,
        /// The time that it took, in microseconds.
        pub round_us: u64,
        /// How many jobs it looked at.
        pub considered: u64,
        /// How many rounds followed that came to the same: nothing was granted, and for the same reasons.
        pub repeated: u32,
        /// How many leases it granted.
        pub granted_count: u32,
        /// How many it left waiting.
        pub left_count: u32,
        /// Those that were granted, as far as the caller may see them; the first 64.
        pub granted: Vec<GrantedInRound>,
        /// Those that were left waiting, as far as the caller may see them; the first 16.
        pub left: Vec<LeftInRound>,
    }
    /// A lease that a placement round granted.
    pub struct GrantedInRound {
        /// The lease.
        pub lease: LeaseId,
        /// Its name.
        pub name: String,
        /// Its tenant.
        pub tenant: String,
        /// The node where its program runs.
        pub client_node: String,
        /// The devices, or parts of them, that it was given.
        pub grants: Vec<Grant>,
        /// The NVMe devices that it was given.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub nvmes: Vec<LeasedNvme>,
    }
    /// A lease that a placement round left waiting.
    pub struct LeftInRound {
        /// The lease.
        pub lease: LeaseId,
        /// Its name.
        pub name: String,
        /// Its tenant.
        pub tenant: String,
        /// Why it was left.
        pub reason: String,
    }
}
