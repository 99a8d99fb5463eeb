//! When a waiting lease is expected to begin, what is in its way, and what would let it begin now.

use serde::{Deserialize, Serialize};

use super::records::records;
use crate::LeaseId;

/// What an estimated moment was worked out from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// How long earlier runs of the program took with the same input.
    Learnt,
    /// How long runs of the program took with other inputs: more than a guess, but not much.
    Similar,
    /// How long its request says that the program runs.
    Estimate,
    /// The times of a profile that somebody has written.
    Profile,
    /// When the lease expires: its holder does not renew it any more.
    Expiry,
    /// The lease is being ended: only its nodes' confirmation is missing.
    Ending,
    /// The policy lets it begin after it has waited for long enough, although nothing ends.
    Waiting,
    /// Nothing is known that it could be worked out from.
    Unknown,
}

records! {
    /// When a waiting lease is expected to be granted.
    pub struct StartEstimate {
        /// The expected moment, in seconds since 1970; absent where it is unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub start: Option<u64>,
        /// The standard deviation of that, in seconds; absent where the moment is unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub deviation_s: Option<f64>,
        /// What it was worked out from: how the end is known that the lease waits for.
        pub basis: Basis,
        /// How many requests that wait before it are expected to be granted, and to end, what it then gets.
        #[serde(default)]
        pub queued: u32,
        /// The same for people: the basis, or why the moment is unknown.
        pub why: String,
    }
    /// A lease that has what a waiting one needs.
    pub struct BlockingLease {
        /// Its id; absent where it is another tenant's, and the caller is no administrator.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub lease: Option<LeaseId>,
        /// Its name; absent where the id is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
        /// Whose it is; absent where the id is: another tenant's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tenant: Option<String>,
        /// Whether it waits, too, and is expected to get the device first.
        #[serde(default)]
        pub waits: bool,
        /// The node of the device that is needed.
        pub node: String,
        /// The number of the device in its node.
        pub device: u32,
        /// Whether it is an NVMe device; its number then counts among those.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub nvme: bool,
        /// Thousandths of the device's time that it has, or is expected to get.
        pub share_milli: u16,
        /// Bytes of the device's memory that it has, or is expected to get.
        pub memory: u64,
        /// When it expires unless it is renewed, in seconds since 1970. Programs that run renew their leases.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub expires: Option<u64>,
        /// When it is expected to end, in seconds since 1970; absent where that is unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub end: Option<u64>,
        /// The standard deviation of that, in seconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub end_deviation_s: Option<f64>,
        /// What its end was worked out from.
        pub basis: Basis,
    }
    /// A change of a waiting request with which it would be granted now: each was tried with the policy that decides.
    pub struct Alternative {
        /// What would be different: `memory`, `share_milli`, `gpus`, `models`, `on_node`, `encrypt`, `traffic_mbps`, `goal_s`, or a setting of
        /// the policy.
        pub change: String,
        /// The greatest value with which it would be granted, where it is a number that could be less.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub value: Option<u64>,
        /// The same for people.
        pub text: String,
    }
}
