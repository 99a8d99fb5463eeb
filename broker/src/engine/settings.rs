//! What the engine is told when it starts.

use std::collections::BTreeMap;

use rgpu_control::api::{PolicySettings, Registration, SettingValue};
use rgpu_control::token::TENANT_SEPARATOR;
use rgpu_placement::policy::{Setting, Value};
use rgpu_placement::{Error, PolicyConfig, PolicyTable, Profile, SwitchSpec};

use super::processors::{ProcessorSettings, ProfileProcessors};

/// How the engine works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// For how long a lease is good unless it is renewed, in seconds.
    pub lease_ttl_s: u64,
    /// After so long without a heartbeat a node counts as lost, in milliseconds.
    pub node_timeout_ms: u64,
    /// How often nodes are to say something, in milliseconds.
    pub heartbeat_ms: u64,
    /// The policies that there are.
    pub policies: PolicyTable,
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
    /// What servers hold all leases to beside devices.
    pub processors: ProcessorSettings,
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
    /// How long the placement's thread may take between two rounds to work out when what waits begins, in milliseconds.
    pub forecast_ms: u64,
    /// The epoch begins with this, or the state's if that is later: each broker that takes over from another one has a later one.
    pub epoch: u64,
    /// Whether there is another broker that may take over.
    pub rivals: bool,
    /// How many events are kept for those who ask for past ones.
    pub events: usize,
    /// How many leases are remembered after their end.
    pub ended: usize,
    /// Whether measurements of the last hour are kept, for people who look on.
    pub history: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let policies = PolicyTable::standard();
        Self {
            lease_ttl_s: 60,
            node_timeout_ms: 6000,
            heartbeat_ms: 1000,
            policy: default_policy(&policies),
            policies,
            seed: 0,
            default_nic_mbps: 10_000,
            switches: Vec::new(),
            profiles: Vec::new(),
            processors: ProcessorSettings::default(),
            limits: Limits::default(),
            tenants: BTreeMap::new(),
            encrypt: false,
            data_ca: None,
            round_interval_ms: 1000,
            explained: 16,
            forecast_ms: 100,
            epoch: 0,
            rivals: false,
            events: 8192,
            ended: 8192,
            history: true,
        }
    }
}

impl Settings {
    /// What a node's link can carry, in Mbit/s: what it says, if it does.
    pub(crate) fn nic_mbps(&self, node: &Registration) -> u64 {
        if node.nic_mbps == 0 { self.default_nic_mbps } else { node.nic_mbps }
    }

    /// A tenant's limits: its own; of an engine's tenant else what was set for `ENGINE/*`; else everybody's.
    pub(crate) fn limits_of(&self, tenant: &str) -> Limits {
        limits_of(&self.tenants, tenant).unwrap_or(self.limits)
    }
}

/// What was set for a tenant, or for all of its engine's.
pub(crate) fn limits_of(set: &BTreeMap<String, Limits>, tenant: &str) -> Option<Limits> {
    let every = || tenant.split_once(TENANT_SEPARATOR).map(|(engine, _)| format!("{engine}{EVERY_TENANT}"));
    set.get(tenant).or_else(|| set.get(&every()?)).copied()
}

/// What stands behind an engine's name where limits are for each of its tenants.
pub(crate) const EVERY_TENANT: &str = "/*";

/// How an application behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileSettings {
    /// How its time depends on where its devices are; its name is what requests say.
    pub profile: Profile,
    /// Traffic that each remote device makes, in Mbit/s.
    pub traffic_mbps: u64,
    /// What its programs are to have of their nodes' processors.
    pub processors: ProfileProcessors,
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

/// The policy that decides where nobody says anything: the table's first, with default settings.
pub(crate) fn default_policy(policies: &PolicyTable) -> PolicySettings {
    let name = policies.names().next().unwrap_or_default().to_owned();
    complete(policies, PolicySettings { name, settings: BTreeMap::new() })
}

/// A policy with the defaults of those settings that it doesn't name.
pub(crate) fn complete(policies: &PolicyTable, mut policy: PolicySettings) -> PolicySettings {
    for setting in policies.broker_settings() {
        let default = to_control(setting.default_in_broker());
        policy.settings.entry(setting.name().into()).or_insert(default);
    }
    policy
}

/// A setting's value as the API has it.
pub(crate) fn to_control(value: Value) -> SettingValue {
    match value {
        Value::Flag(value) => SettingValue::Flag(value),
        Value::Number(value) => SettingValue::Number(value),
    }
}

/// A setting's value as the placement has it.
pub(crate) fn from_control(value: SettingValue) -> Value {
    match value {
        SettingValue::Flag(value) => Value::Flag(value),
        SettingValue::Number(value) => Value::Number(value),
    }
}

/// A setting that an administrator can set, by its name.
pub(crate) fn setting(policies: &PolicyTable, name: &str) -> Result<Setting, Error> {
    let settings = policies.broker_settings();
    settings.iter().find(|setting| setting.name() == name).copied().ok_or_else(|| {
        let names: Vec<&str> = settings.iter().map(|setting| setting.name()).collect();
        Error::UnknownSetting(name.into(), names.join(", "))
    })
}

/// How the placement's policy is built. Fails where the table has no such policy or setting, or a value is out of limits.
pub(crate) fn policy_config(
    policies: &PolicyTable,
    policy: &PolicySettings,
    seed: u64,
) -> Result<PolicyConfig, Error> {
    let mut config = policies.config(&policy.name)?.with_seed(seed);
    for (name, value) in &policy.settings {
        let (setting, value) = (setting(policies, name)?, from_control(*value));
        setting.check_finite(value)?;
        config.set(setting, value)?;
    }
    Ok(config)
}

/// Says what is wrong with a policy that somebody sets through the API, if anything is: nothing is guessed there, and so
/// every setting must be named.
pub(crate) fn check_policy(
    policies: &PolicyTable,
    policy: &PolicySettings,
) -> Result<PolicyConfig, PolicyError> {
    let config = policy_config(policies, policy, 0)?;
    match policies.broker_settings().iter().find(|setting| !policy.settings.contains_key(setting.name())) {
        Some(missing) => Err(PolicyError::Missing(missing.name())),
        None => Ok(config),
    }
}

/// Why a policy is not set.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyError {
    /// Its name, or a setting, is wrong.
    #[error(transparent)]
    Wrong(#[from] Error),
    /// A setting is left out.
    #[error("the setting {0} is missing")]
    Missing(&'static str),
}
