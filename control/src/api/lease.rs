//! What programs ask for, what they get, and why.

use serde::{Deserialize, Serialize};

use super::forecast::{Alternative, BlockingLease, StartEstimate};
use super::node::GrantUsage;
use super::processors::NodeProcessors;
use super::records::records;
use crate::LeaseId;
use crate::ticket::LeaseServer;
use crate::token::Grant;

records! {
    /// What a program needs.
    #[serde(deny_unknown_fields)]
    pub struct LeaseRequest {
        /// A name for people, such as the program's; need not be unique.
        pub name: String,
        /// How many devices; can be 0 where `nvmes` is not.
        pub gpus: u16,
        /// Bytes of memory of each; 0 is all of a whole device's, and of a part the same part.
        #[serde(default)]
        pub memory: u64,
        /// Thousandths of each device's time: 1 to 1000; 0 lets the broker choose by `deadline_s`: the least part of a device that
        /// keeps the deadline, or a whole one.
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
        /// The program's name, by which the broker learns from its runs, and uses what it has learnt where no profile is named.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub program: Option<String>,
        /// A number for its input, such as a hash of its arguments: runs with the same one do the same work.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub input: Option<u64>,
        /// By this factor the profile's times are longer; 1 unless given.
        #[serde(default)]
        pub scale: Option<f64>,
        /// The time from start to end that it is to keep, in seconds (τ).
        #[serde(default)]
        pub goal_s: Option<f64>,
        /// The importance of that, from 1 (most) to 10 (z); 1 unless given.
        #[serde(default)]
        pub importance: Option<f64>,
        /// The deadline: by when the program is to have ended, in seconds from when the broker takes the request, however long that
        /// waits. It is no moment of a clock, so that the client's clock does not matter.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub deadline_s: Option<f64>,
        /// How long the program would run alone on whole devices of its own machine, in seconds; what its profile says unless given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub estimate_s: Option<f64>,
        /// Traffic that each remote device makes, in Mbit/s; the profile's unless given.
        #[serde(default)]
        pub traffic_mbps: Option<u64>,
        /// How many NVMe devices, besides; whole ones.
        #[serde(default, skip_serializing_if = "is_zero")]
        pub nvmes: u16,
        /// The least capacity of each, in bytes.
        #[serde(default, skip_serializing_if = "is_zero")]
        pub nvme_capacity: u64,
        /// The least bandwidth of each, in Mbit/s.
        #[serde(default, skip_serializing_if = "is_zero")]
        pub nvme_bandwidth_mbps: u64,
        /// How long the answer may wait for a grant, in seconds (60 at most); it waits in the queue after that.
        #[serde(default)]
        pub wait_s: u32,
        /// Whether to fail (409) where nothing is free now, instead of waiting in the queue.
        #[serde(default)]
        pub now_or_never: bool,
        /// Whether what leaves the program's machine is to be encrypted. Only servers that can do so are given then.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub encrypt: bool,
        /// Only devices of the node of this name, for trying things out: else the policy decides.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub on_node: Option<String>,
        /// Whether the lease may be resized by what it uses: device time that it leaves is lent to others, and it may use what
        /// others leave. Only leases of one device are, and only where the policy harvests (`cbp`, `cbp-pp`).
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pub harvest: bool,
        /// A name by which an engine that asks for others, such as a batch system, finds the lease again. While a tenant's lease waits
        /// or is active, a request with its key and holder is answered with it, whatever else it asks for: so requests can be
        /// repeated, also from several machines. Another holder's is refused (409).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub key: Option<String>,
        /// Only with an engine's token: on behalf of whom it asks, such as an account of a batch system. The lease is of the tenant
        /// `ENGINE/NAME`; without it, of the tenant with the engine's name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub on_behalf_of: Option<String>,
    }
    /// How much of a device's time a resizable lease has now. What it was promised is its grant's share.
    #[derive(Copy, Default, Eq)]
    #[serde(deny_unknown_fields)]
    pub struct LeaseSize {
        /// Thousandths that it gets whenever it wants them, whatever others do. Less than the grant's share where the lease was
        /// placed into time that others leave; it never becomes less.
        pub firm_milli: u16,
        /// Thousandths that are set aside for it now, by what it uses: the placement counts these.
        pub set_aside_milli: u16,
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
    /// A lease: devices, or parts of them, that a tenant's programs may use for a time.
    pub struct Lease {
        /// The lease's id.
        pub id: LeaseId,
        /// What was asked for.
        pub name: String,
        /// The tenant whose lease it is.
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
        /// When its end was decided, in seconds since 1970, where it is ending or has ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub ended: Option<u64>,
        /// What it gives, in the order of device ordinals.
        pub grants: Vec<Grant>,
        /// Of a lease that may be resized: what it has now of each; empty for others.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub sizes: Vec<LeaseSize>,
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
        /// What it uses of its nodes' processors, and is held to there, as far as they say so.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub processors: Vec<NodeProcessors>,
        /// How many programs have a session with it.
        pub sessions: u32,
        /// With encrypted connections: the certificates (PEM) that sign those of servers without a fingerprint.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub ca: Option<String>,
        /// By when its program is to have ended, in seconds since 1970 by the broker's clock, where it has a deadline.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub deadline: Option<u64>,
        /// Whether the deadline is expected to be kept, or was, where anything is known of the program's time. For a lease that waits:
        /// if it were granted now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub deadline_kept: Option<bool>,
        /// When it is expected to be granted, where it waits and that was worked out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub estimate: Option<StartEstimate>,
        /// The NVMe devices that it gives.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub nvmes: Vec<LeasedNvme>,
        /// The key that it was asked for with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub key: Option<String>,
    }
    /// An NVMe device of a lease.
    #[derive(Eq)]
    pub struct LeasedNvme {
        /// The node that offers it.
        pub node: String,
        /// Its name there.
        pub device: String,
        /// Its capacity, in bytes.
        pub capacity: u64,
        /// Its bandwidth, in Mbit/s.
        pub bandwidth_mbps: u64,
        /// Where the program finds it, once it is attached.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub path: Option<String>,
    }
    /// What waits or runs, as the placement sees it.
    pub struct Job {
        /// The lease that the job waits for or has.
        pub lease: LeaseId,
        /// The job's name.
        pub name: String,
        /// The tenant whose job it is.
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
        /// The lease that is explained.
        pub lease: LeaseId,
        /// As people read it.
        pub text: String,
        /// The policy that decided.
        pub policy: String,
        /// What came of it.
        pub outcome: String,
        /// The choices that were made.
        pub steps: Vec<ExplanationStep>,
        /// When it is expected to be granted, where it waits and that was worked out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub estimate: Option<StartEstimate>,
        /// Where it waits: the leases that have what it needs, those first whose end is expected first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub blocked_by: Vec<BlockingLease>,
        /// Where it waits: changes with which it would be granted now.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub alternatives: Vec<Alternative>,
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
        /// The name of the node that was considered.
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
}

impl LeaseRequest {
    /// Whether the lease can be resized, as it asks for: it is of one device, and others have room beside its memory.
    pub fn is_resizable(&self) -> bool {
        self.harvest && self.gpus == 1 && (self.memory > 0 || self.share_milli < 1000)
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
    /// Its name, as the API spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Active => "active",
            Self::Ending => "ending",
            Self::Ended => "ended",
        }
    }
}

/// Whether a number can be left out.
fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

fn auto() -> String {
    "auto".into()
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
}
