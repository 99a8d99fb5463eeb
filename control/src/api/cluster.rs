//! What concerns the whole cluster: policies, events, tokens, tenants.

use serde::{Deserialize, Serialize};

use super::records::records;
use crate::LeaseId;
use crate::token::Role;

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
    /// The settings of the policy that decides. In JSON, the settings stand beside the name.
    pub struct PolicySettings {
        /// The policy's name.
        pub name: String,
        /// What is set, by the setting's name. Which settings there are, their types and their limits are the broker's to
        /// know: the table of policies has them.
        #[serde(flatten)]
        pub settings: std::collections::BTreeMap<String, SettingValue>,
    }
    /// A quantity that is known within limits.
    #[derive(Copy)]
    pub struct Quantity {
        /// Its expected value.
        pub mean: f64,
        /// The standard deviation of what it may be.
        pub deviation: f64,
    }
    /// What was learnt of a program from its runs.
    pub struct LearntProfile {
        /// The program's name.
        pub program: String,
        /// The tenant whose program it is.
        pub tenant: String,
        /// How many runs that comes from: the latest.
        pub runs: u32,
        /// When the last one ended, in seconds since 1970.
        pub last: u64,
        /// The time of a run with remote devices on a quiet network, as a multiple of a local one's.
        pub slowdown: Quantity,
        /// By which part such a run takes longer when others load the network to 100%.
        pub sensitivity: Quantity,
        /// Seconds of a run with local devices, by the number of its input.
        pub local_s: std::collections::BTreeMap<String, Quantity>,
        /// Traffic with each remote device on a quiet network, in Mbit/s, where a run was remote.
        pub traffic_mbps: Option<Quantity>,
        /// The most memory of a device, in bytes.
        pub memory: Option<Quantity>,
        /// Thousandths of a device's time that it used.
        pub share_milli: Option<Quantity>,
        /// Whether the configuration has a profile of this name, which counts instead.
        pub written: bool,
    }
    /// The policy that decides, and all that there are.
    pub struct Policies {
        /// The policy that decides, with its settings.
        pub active: PolicySettings,
        /// Which there are.
        pub names: Vec<String>,
    }
    /// Something that happened.
    pub struct Event {
        /// Rises by one with each.
        pub number: u64,
        /// When it happened, in seconds since 1970.
        pub time: u64,
        /// `node_joined`, `node_lost`, `node_back`, `node_drained`, `node_removed`, `lease_waiting`, `lease_granted`,
        /// `lease_changed`, `lease_ended`, `policy_changed`, `tokens_withdrawn`, `broker_started`.
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
        /// What happened, in words for people.
        pub text: String,
    }
    /// Asks for a role token.
    #[serde(deny_unknown_fields)]
    pub struct TokenRequest {
        /// What it allows.
        pub role: Role,
        /// Whom the token is for: the name of a tenant, a node, an engine or an administrator.
        pub name: String,
        /// For how long, in seconds.
        pub valid_s: u64,
    }
    /// Withdraws role tokens: the one with this id, or all of this role and name that were issued until now.
    #[serde(deny_unknown_fields)]
    pub struct TokenWithdrawal {
        /// The token's id, 16 hexadecimal digits; then without the rest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub id: Option<String>,
        /// What the tokens allow; together with `name`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub role: Option<Role>,
        /// Whom the tokens are for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
    }
    /// Role tokens that were withdrawn.
    pub struct WithdrawnTokens {
        /// The id of the only one, if it was one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub id: Option<String>,
        /// Else what they allow.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub role: Option<Role>,
        /// Else whom they are for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
        /// When that was, in seconds since 1970: tokens that were issued later count.
        pub when: u64,
        /// Until when it is remembered, in seconds since 1970: then they all have expired.
        pub until: u64,
    }
    /// A role token that somebody has shown to the broker since it was started.
    pub struct SeenToken {
        /// The token's id.
        pub id: String,
        /// What it allows.
        pub role: Role,
        /// The name of the tenant, node, engine or administrator.
        pub name: String,
        /// When it was issued, in seconds since 1970.
        pub issued: u64,
        /// Until when the token counts, in seconds since 1970.
        pub expires: u64,
        /// When it was last shown, in seconds since 1970.
        pub seen: u64,
    }
    /// The role tokens that a broker knows of.
    pub struct TokenList {
        /// Those that were shown since the broker was started, and count.
        pub seen: Vec<SeenToken>,
        /// Those that count no more.
        pub withdrawn: Vec<WithdrawnTokens>,
    }
    /// A role token.
    pub struct IssuedToken {
        /// The token, to be sent as a bearer token.
        pub token: String,
        /// Until when the token counts, in seconds since 1970.
        pub expires: u64,
        /// The token's id, by which it can be withdrawn.
        #[serde(default)]
        pub id: String,
    }
    /// A tenant: its limits, and what it has.
    pub struct Tenant {
        /// The tenant's name.
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
        /// How many leases of the tenant are active.
        pub active: u64,
        /// How many requests of the tenant wait.
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
        /// How many leases are active.
        pub active: u32,
        /// How many requests wait.
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
