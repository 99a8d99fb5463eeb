//! What the engine is told when it starts.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use rgpu_control::api::PolicySettings;
use rgpu_placement::{PolicyConfig, Profile, SwitchSpec};

/// How the engine works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// For how long a lease is good unless it is renewed, in seconds.
    pub lease_ttl_s: u64,
    /// After so long without a heartbeat a node counts as lost, in milliseconds.
    pub node_timeout_ms: u64,
    /// How often nodes are to say something, in milliseconds.
    pub heartbeat_ms: u64,
    /// The policy that decides, unless another one was set through the API.
    pub policy: PolicySettings,
    /// For policies that draw lots.
    pub seed: u64,
    /// The network capacity of machines that don't tell theirs, in Mbit/s.
    pub default_nic_mbps: u64,
    /// The switches that nodes can name.
    pub switches: Vec<SwitchSpec>,
    /// The profiles that requests can name. A profile named `default` is for requests that name none.
    pub profiles: Vec<ProfileSettings>,
    /// The limits of tenants that have none of their own.
    pub limits: Limits,
    /// The limits of single tenants.
    pub tenants: BTreeMap<String, Limits>,
    /// Whether all leases are for encrypted connections, whatever they ask for.
    pub encrypt: bool,
    /// Where servers encrypt: the certificates (PEM) that sign theirs.
    pub data_ca: Option<String>,
    /// How often jobs that wait are looked at again when nothing has happened, in milliseconds. A job's count of rounds rises at
    /// most once in that time, whatever else starts rounds.
    pub round_interval_ms: u64,
    /// How many decisions are explained in a second at most, besides those that somebody asked for.
    pub explained: usize,
    /// How many events are kept for those who ask for past ones.
    pub events: usize,
    /// How many leases are remembered after their end.
    pub ended: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease_ttl_s: 60,
            node_timeout_ms: 6000,
            heartbeat_ms: 1000,
            policy: PolicySettings {
                name: "drmaestro".into(),
                network_aware: true,
                link_limit: 1.0,
                max_remote_share: 1.0,
                remote_preference: 1.25,
            },
            seed: 0,
            default_nic_mbps: 10_000,
            switches: Vec::new(),
            profiles: Vec::new(),
            limits: Limits::default(),
            tenants: BTreeMap::new(),
            encrypt: false,
            data_ca: None,
            round_interval_ms: 1000,
            explained: 16,
            events: 8192,
            ended: 8192,
        }
    }
}

/// How an application behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileSettings {
    /// How its time depends on where its devices are; its name is what requests say.
    pub profile: Profile,
    /// Traffic that each remote device makes, in Mbit/s.
    pub traffic_mbps: u64,
}

/// What a tenant may have at a time, waiting requests included. Absent is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Thousandths of devices.
    pub max_gpu_milli: Option<u64>,
    /// Bytes of device memory.
    pub max_memory: Option<u64>,
    /// Leases that wait or are active.
    pub max_leases: Option<u64>,
}

/// What a policy's numbers can be.
pub struct PolicyRanges {
    /// The part of a link's capacity up to which it may be loaded.
    pub link_limit: RangeInclusive<f64>,
    /// The part of all devices that may be given remotely.
    pub max_remote_share: RangeInclusive<f64>,
    /// By which factor a remote device costs more.
    pub remote_preference: RangeInclusive<f64>,
}

/// The same in the configuration and in the API.
pub const POLICY_RANGES: PolicyRanges =
    PolicyRanges { link_limit: 0.0..=1000.0, max_remote_share: 0.0..=1.0, remote_preference: 1.0..=1000.0 };

/// Says what is wrong with a policy, if anything is.
pub(crate) fn check_policy(policy: &PolicySettings) -> Result<(), String> {
    if !PolicyConfig::NAMES.contains(&policy.name.as_str()) {
        return Err(format!(
            "there is no policy {:?}: the policies are {}",
            policy.name,
            PolicyConfig::NAMES.join(", ")
        ));
    }
    let ranges = POLICY_RANGES;
    for (what, value, range) in [
        ("link_limit", policy.link_limit, ranges.link_limit),
        ("max_remote_share", policy.max_remote_share, ranges.max_remote_share),
        ("remote_preference", policy.remote_preference, ranges.remote_preference),
    ] {
        if !range.contains(&value) {
            return Err(format!("{what} is {value}: it must be from {} to {}", range.start(), range.end()));
        }
    }
    Ok(())
}
