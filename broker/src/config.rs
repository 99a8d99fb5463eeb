//! The broker's configuration: flags, before environment, before the file, before the defaults.
//!
//! A mistake is told with the key and, in a file, the line. Nothing is guessed and nothing unknown is skipped.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use rgpu_control::api::PolicySettings;
use rgpu_placement::{PolicyConfig, Profile, SwitchSpec};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use crate::engine::{Limits, ProfileSettings, Settings};

/// What the broker is told before it starts.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `HOST:PORT` to listen on; port 0 takes a free one.
    pub listen: String,
    /// The directory of the state and the key.
    pub data_dir: PathBuf,
    /// Whether to listen beyond this machine without TLS.
    pub insecure: bool,
    /// Whether `/metrics` answers without a token.
    pub open_metrics: bool,
    /// For how long a lease is good without being renewed.
    pub lease_ttl_s: u64,
    /// After how long without a heartbeat a node counts as lost.
    pub node_timeout_s: u64,
    /// How often nodes are to send heartbeats.
    pub heartbeat_ms: u64,
    /// The network interface assumed for machines that are no nodes.
    pub client_nic_mbps: u64,
    /// The policy that decides, until the API sets another one.
    pub policy: PolicySettings,
    /// The network's switches.
    pub switches: Vec<SwitchSpec>,
    /// Which switch a node is at, where the node doesn't say.
    pub node_switches: BTreeMap<String, String>,
    /// What is known of applications.
    pub profiles: Vec<ProfileSettings>,
    /// The profile of programs that name none.
    pub default_profile: Option<String>,
    /// The limits of tenants that have none of their own.
    pub limits: Limits,
    /// The limits of single tenants, complete.
    pub tenants: BTreeMap<String, Limits>,
    /// How connections to the broker are encrypted, if they are.
    pub tls: Option<TlsFiles>,
    /// The authority (PEM) that signs the certificates of servers that encrypt programs' connections.
    pub data_ca: Option<PathBuf>,
}

/// The files for encrypted connections, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The broker's certificate, and those between it and the authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authority that signs clients' certificates. With it, every client must show one.
    pub client_ca: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        let policy = PolicyConfig::new("drmaestro");
        Self {
            listen: "127.0.0.1:7080".into(),
            data_dir: "/var/lib/rgpu-broker".into(),
            insecure: false,
            open_metrics: false,
            lease_ttl_s: 60,
            node_timeout_s: 6,
            heartbeat_ms: 1000,
            client_nic_mbps: 10_000,
            policy: PolicySettings {
                name: policy.name,
                network_aware: policy.network_aware,
                link_limit: policy.link_limit,
                max_remote_share: policy.max_remote_share,
                remote_preference: policy.remote_preference,
            },
            switches: Vec::new(),
            node_switches: BTreeMap::new(),
            profiles: Vec::new(),
            default_profile: None,
            limits: Limits::default(),
            tenants: BTreeMap::new(),
            tls: None,
            data_ca: None,
        }
    }
}

/// Why a configuration is no good.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("the configuration {path} cannot be read: {why}")]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system said.
        why: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("the configuration {path} is wrong: {why}")]
    Syntax {
        /// Which.
        path: PathBuf,
        /// Where and what, with the line itself.
        why: String,
    },
    /// A value makes no sense.
    #[error("{key} = {value} ({at}): {why}")]
    Value {
        /// Which.
        key: String,
        /// What it is.
        value: String,
        /// Where that was said.
        at: String,
        /// What it must be.
        why: String,
    },
}

/// What flags and the environment say; they precede the file.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Overrides {
    /// Where to listen; beyond this machine only with TLS, or with --insecure [default: 127.0.0.1:7080]
    #[arg(long, value_name = "ADDR", env = "RGPU_BROKER_LISTEN")]
    pub listen: Option<String>,
    /// Where the state and the key are kept [default: /var/lib/rgpu-broker]
    #[arg(long, value_name = "DIR", env = "RGPU_BROKER_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Listen beyond this machine without TLS: tokens can then be read by others on the network
    #[arg(long, env = "RGPU_BROKER_INSECURE", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub insecure: Option<bool>,
    /// Answer /metrics without a token
    #[arg(long, env = "RGPU_BROKER_OPEN_METRICS", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub open_metrics: Option<bool>,
    /// For how many seconds a lease is good without being renewed [default: 60]
    #[arg(long, value_name = "N", env = "RGPU_BROKER_LEASE_TTL_S")]
    pub lease_ttl_s: Option<u64>,
    /// After how many seconds without a heartbeat a node counts as lost [default: 6]
    #[arg(long, value_name = "N", env = "RGPU_BROKER_NODE_TIMEOUT_S")]
    pub node_timeout_s: Option<u64>,
    /// How often nodes send heartbeats, in milliseconds [default: 1000]
    #[arg(long, value_name = "N", env = "RGPU_BROKER_HEARTBEAT_MS")]
    pub heartbeat_ms: Option<u64>,
    /// The network interface assumed for machines that are no nodes, in Mbit/s [default: 10000]
    #[arg(long, value_name = "N", env = "RGPU_BROKER_CLIENT_NIC_MBPS")]
    pub client_nic_mbps: Option<u64>,
    /// The policy that decides [default: drmaestro]
    #[arg(long, value_name = "NAME", env = "RGPU_BROKER_POLICY")]
    pub policy: Option<String>,
    /// The profile of programs that name none
    #[arg(long, value_name = "NAME", env = "RGPU_BROKER_DEFAULT_PROFILE")]
    pub default_profile: Option<String>,
    /// The broker's certificate (PEM)
    #[arg(long, value_name = "FILE", env = "RGPU_BROKER_TLS_CERTIFICATE")]
    pub tls_certificate: Option<PathBuf>,
    /// The private key of the broker's certificate (PEM)
    #[arg(long, value_name = "FILE", env = "RGPU_BROKER_TLS_KEY")]
    pub tls_key: Option<PathBuf>,
    /// The authority (PEM) whose certificate every client must show
    #[arg(long, value_name = "FILE", env = "RGPU_BROKER_TLS_CLIENT_CA")]
    pub tls_client_ca: Option<PathBuf>,
}

// ---- the file, as it is written ----

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct File {
    listen: Option<Spanned<String>>,
    data_dir: Option<Spanned<PathBuf>>,
    insecure: Option<Spanned<bool>>,
    open_metrics: Option<Spanned<bool>>,
    lease_ttl_s: Option<Spanned<u64>>,
    node_timeout_s: Option<Spanned<u64>>,
    heartbeat_ms: Option<Spanned<u64>>,
    client_nic_mbps: Option<Spanned<u64>>,
    default_profile: Option<Spanned<String>>,
    data_ca: Option<Spanned<PathBuf>>,
    #[serde(default)]
    policy: FilePolicy,
    #[serde(default)]
    tls: FileTls,
    #[serde(default)]
    limits: FileLimits,
    #[serde(default)]
    tenant: BTreeMap<String, FileLimits>,
    #[serde(default)]
    switch: Vec<FileSwitch>,
    #[serde(default)]
    node_switch: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    profile: Vec<FileProfile>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FilePolicy {
    name: Option<Spanned<String>>,
    network_aware: Option<Spanned<bool>>,
    link_limit: Option<Spanned<f64>>,
    max_remote_share: Option<Spanned<f64>>,
    remote_preference: Option<Spanned<f64>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FileTls {
    certificate: Option<Spanned<PathBuf>>,
    key: Option<Spanned<PathBuf>>,
    client_ca: Option<Spanned<PathBuf>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FileLimits {
    max_gpu_milli: Option<Limit>,
    max_memory: Option<Limit>,
    max_leases: Option<Limit>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileSwitch {
    name: Spanned<String>,
    parent: Option<Spanned<String>>,
    uplink_mbps: Spanned<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileProfile {
    name: Spanned<String>,
    local_s: Spanned<f64>,
    remote_s: Option<Spanned<f64>>,
    sensitivity: Option<Spanned<f64>>,
    numa_slowdown: Option<Spanned<f64>>,
    traffic_mbps: Option<Spanned<u64>>,
}

/// A number, a size such as `"64GiB"`, or `"unlimited"` (`None`).
#[derive(Clone, Copy)]
struct Limit(Option<u64>);

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Limit;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, a size such as \"64GiB\", or \"unlimited\"")
            }

            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Limit, E> {
                let value = value.try_into().map_err(|_| E::custom("it must not be negative"))?;
                Ok(Limit(Some(value)))
            }

            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Limit, E> {
                Ok(Limit(Some(value)))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Limit, E> {
                if text == "unlimited" {
                    return Ok(Limit(None));
                }
                parse_bytes(text).map(|bytes| Limit(Some(bytes))).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// A number of bytes: `1048576`, `512M`, `4GiB`; always in powers of 1024.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no size, such as 512MiB or 4GiB");
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..end].parse().map_err(|_| wrong())?;
    let shift = match text[end..].trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(wrong()),
    };
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

impl FileLimits {
    fn over(&self, under: Limits) -> Limits {
        let pick = |limit: Option<Limit>, under| limit.map_or(under, |limit| limit.0);
        Limits {
            max_gpu_milli: pick(self.max_gpu_milli, under.max_gpu_milli),
            max_memory: pick(self.max_memory, under.max_memory),
            max_leases: pick(self.max_leases, under.max_leases),
        }
    }
}

// ---- from all of it, the configuration ----

/// A value, and where it was said.
struct Said<T> {
    value: T,
    at: String,
}

impl<T> Said<T> {
    fn wrong(&self, key: &str, shown: impl Display, why: impl Display) -> ConfigError {
        ConfigError::Value {
            key: key.into(),
            value: shown.to_string(),
            at: self.at.clone(),
            why: why.to_string(),
        }
    }
}

/// Where values of a file stand.
struct Source<'a> {
    text: &'a str,
    path: &'a Path,
}

impl Source<'_> {
    fn said<T>(&self, value: Spanned<T>) -> Said<T> {
        let line = self.text[..value.span().start.min(self.text.len())].matches('\n').count() + 1;
        Said { at: format!("{}, line {line}", self.path.display()), value: value.into_inner() }
    }

    /// What a flag or the environment says, else what the file says.
    fn pick<T>(&self, flag: Option<T>, key: &str, file: Option<Spanned<T>>) -> Option<Said<T>> {
        let named = |value| Said {
            value,
            at: format!(
                "--{} or RGPU_BROKER_{}",
                key.replace(['.', '_'], "-"),
                key.replace('.', "_").to_uppercase()
            ),
        };
        flag.map(named).or_else(|| file.map(|value| self.said(value)))
    }
}

fn ranged<T>(
    slot: &mut T,
    key: &str,
    said: Option<Said<T>>,
    range: RangeInclusive<T>,
) -> Result<(), ConfigError>
where
    T: PartialOrd + Copy + Display,
{
    let Some(said) = said else { return Ok(()) };
    if !range.contains(&said.value) {
        let why = format!("it must be from {} to {}", range.start(), range.end());
        return Err(said.wrong(key, said.value, why));
    }
    *slot = said.value;
    Ok(())
}

/// Whether a text can be a name of a node, tenant, switch or profile.
pub fn name_problem(name: &str) -> Option<&'static str> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@' | ':');
    if name.is_empty() || name.len() > 128 {
        Some("a name has 1 to 128 characters")
    } else if !name.chars().all(good) {
        Some("a name consists of letters, digits and any of - _ . @ :")
    } else {
        None
    }
}

impl Config {
    /// The configuration of a file (or none) and of flags and the environment.
    pub fn load(path: Option<&Path>, overrides: Overrides) -> Result<Self, ConfigError> {
        let Some(path) = path else { return Self::parse("", Path::new(""), overrides) };
        let text = std::fs::read_to_string(path)
            .map_err(|why| ConfigError::Read { path: path.to_path_buf(), why })?;
        Self::parse(&text, path, overrides)
    }

    /// The same, with the file's text. Relative paths in it are relative to the file's directory.
    pub fn parse(text: &str, path: &Path, overrides: Overrides) -> Result<Self, ConfigError> {
        let file: File = toml::from_str(text).map_err(|e| ConfigError::Syntax {
            path: path.to_path_buf(),
            why: e.to_string().trim_end().to_owned(),
        })?;
        let source = Source { text, path };
        let directory = path.parent().unwrap_or(Path::new(""));
        let mut config = Self::default();

        if let Some(listen) = source.pick(overrides.listen, "listen", file.listen) {
            let port = listen.value.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
            if port.is_none() || listen.value.starts_with(':') {
                return Err(listen.wrong("listen", format!("{:?}", listen.value), "give HOST:PORT"));
            }
            config.listen = listen.value;
        }
        // Paths on the command line are relative to where it was typed.
        config.data_dir = match (overrides.data_dir, file.data_dir) {
            (Some(path), _) => path,
            (None, Some(path)) => directory.join(path.into_inner()),
            (None, None) => config.data_dir,
        };
        config.insecure = overrides.insecure.or(file.insecure.map(Spanned::into_inner)).unwrap_or(false);
        config.open_metrics =
            overrides.open_metrics.or(file.open_metrics.map(Spanned::into_inner)).unwrap_or(false);
        let ttl = source.pick(overrides.lease_ttl_s, "lease_ttl_s", file.lease_ttl_s);
        ranged(&mut config.lease_ttl_s, "lease_ttl_s", ttl, 3..=86_400)?;
        let timeout = source.pick(overrides.node_timeout_s, "node_timeout_s", file.node_timeout_s);
        ranged(&mut config.node_timeout_s, "node_timeout_s", timeout, 1..=3600)?;
        let heartbeat = source.pick(overrides.heartbeat_ms, "heartbeat_ms", file.heartbeat_ms);
        let heartbeat_at = heartbeat.as_ref().map_or("the default".into(), |said| said.at.clone());
        ranged(&mut config.heartbeat_ms, "heartbeat_ms", heartbeat, 50..=60_000)?;
        if config.heartbeat_ms * 2 > config.node_timeout_s * 1000 {
            return Err(ConfigError::Value {
                key: "heartbeat_ms".into(),
                value: config.heartbeat_ms.to_string(),
                at: heartbeat_at,
                why: format!(
                    "node_timeout_s is {}: at least two heartbeats must fit into that",
                    config.node_timeout_s
                ),
            });
        }
        let nic = source.pick(overrides.client_nic_mbps, "client_nic_mbps", file.client_nic_mbps);
        ranged(&mut config.client_nic_mbps, "client_nic_mbps", nic, 0..=100_000_000)?;

        config.set_policy(&source, overrides.policy, file.policy)?;
        config.set_switches(&source, file.switch, file.node_switch)?;
        config.set_profiles(&source, file.profile)?;
        if let Some(name) = source.pick(overrides.default_profile, "default_profile", file.default_profile) {
            if !config.profiles.iter().any(|known| known.profile.name == name.value) {
                return Err(name.wrong(
                    "default_profile",
                    format!("{:?}", name.value),
                    "no [[profile]] has that name",
                ));
            }
            config.default_profile = Some(name.value);
        }

        config.limits = file.limits.over(Limits::default());
        for (name, limits) in file.tenant {
            if let Some(why) = name_problem(&name) {
                let at = path.display().to_string();
                return Err(ConfigError::Value {
                    key: "tenant".into(),
                    value: format!("{name:?}"),
                    at,
                    why: why.into(),
                });
            }
            config.tenants.insert(name, limits.over(config.limits));
        }

        let inside = |path: Option<Spanned<PathBuf>>| path.map(|path| directory.join(path.into_inner()));
        config.data_ca = inside(file.data_ca);
        let certificate = overrides.tls_certificate.or_else(|| inside(file.tls.certificate));
        let key = overrides.tls_key.or_else(|| inside(file.tls.key));
        let client_ca = overrides.tls_client_ca.or_else(|| inside(file.tls.client_ca));
        config.tls = match (certificate, key, client_ca) {
            (Some(certificate), Some(key), client_ca) => Some(TlsFiles { certificate, key, client_ca }),
            (None, None, None) => None,
            (certificate, key, _) => {
                let missing = match (certificate.is_some(), key.is_some()) {
                    (false, true) => "tls.certificate is missing",
                    (true, false) => "tls.key is missing",
                    _ => "tls.certificate and tls.key are missing",
                };
                let at = path.display().to_string();
                let why = format!("{missing}: encryption needs the broker's certificate and its key");
                return Err(ConfigError::Value { key: "tls".into(), value: "{ … }".into(), at, why });
            }
        };
        Ok(config)
    }

    fn set_policy(
        &mut self,
        source: &Source<'_>,
        flag: Option<String>,
        file: FilePolicy,
    ) -> Result<(), ConfigError> {
        let policy = &mut self.policy;
        if let Some(name) = source.pick(flag, "policy", file.name) {
            if !PolicyConfig::NAMES.contains(&name.value.as_str()) {
                let why = format!("the policies are {}", PolicyConfig::NAMES.join(", "));
                return Err(name.wrong("policy.name", format!("{:?}", name.value), why));
            }
            policy.name = name.value;
        }
        if let Some(aware) = file.network_aware {
            policy.network_aware = aware.into_inner();
        }
        let said = |value: Option<Spanned<f64>>| value.map(|value| source.said(value));
        ranged(&mut policy.link_limit, "policy.link_limit", said(file.link_limit), 0.0..=1000.0)?;
        ranged(
            &mut policy.max_remote_share,
            "policy.max_remote_share",
            said(file.max_remote_share),
            0.0..=1.0,
        )?;
        ranged(
            &mut policy.remote_preference,
            "policy.remote_preference",
            said(file.remote_preference),
            1.0..=1000.0,
        )
    }

    fn set_switches(
        &mut self,
        source: &Source<'_>,
        switches: Vec<FileSwitch>,
        nodes: BTreeMap<String, Spanned<String>>,
    ) -> Result<(), ConfigError> {
        let mut parents = Vec::new();
        for switch in switches {
            let name = source.said(switch.name);
            let shown = format!("{:?}", name.value);
            if let Some(why) = name_problem(&name.value) {
                return Err(name.wrong("switch.name", shown, why));
            }
            if self.switches.iter().any(|other| other.name == name.value) {
                return Err(name.wrong("switch.name", shown, "another switch has that name"));
            }
            let mut uplink_mbps = 0;
            ranged(
                &mut uplink_mbps,
                "switch.uplink_mbps",
                Some(source.said(switch.uplink_mbps)),
                1..=1_000_000_000,
            )?;
            let parent = switch.parent.map(|parent| source.said(parent));
            self.switches.push(SwitchSpec {
                name: name.value,
                parent: parent.as_ref().map(|parent| parent.value.clone()),
                uplink_mbps,
            });
            parents.extend(parent);
        }
        let known = |name: &str| self.switches.iter().find(|switch| switch.name == name);
        for parent in parents {
            let shown = format!("{:?}", parent.value);
            let Some(mut above) = known(&parent.value) else {
                return Err(parent.wrong("switch.parent", shown, "no [[switch]] has that name"));
            };
            for _ in 0..self.switches.len() {
                match above.parent.as_deref().and_then(known) {
                    Some(next) => above = next,
                    None => break,
                }
            }
            if above.parent.as_deref().and_then(known).is_some() {
                return Err(parent.wrong(
                    "switch.parent",
                    shown,
                    "the switches above each other form a circle",
                ));
            }
        }
        for (node, switch) in nodes {
            let switch = source.said(switch);
            let shown = format!("{:?}", switch.value);
            if known(&switch.value).is_none() {
                return Err(switch.wrong(
                    &format!("node_switch.{node}"),
                    shown,
                    "no [[switch]] has that name",
                ));
            }
            if let Some(why) = name_problem(&node) {
                return Err(switch.wrong(&format!("node_switch.{node:?}"), shown, why));
            }
            self.node_switches.insert(node, switch.value);
        }
        Ok(())
    }

    fn set_profiles(&mut self, source: &Source<'_>, profiles: Vec<FileProfile>) -> Result<(), ConfigError> {
        for profile in profiles {
            let name = source.said(profile.name);
            let shown = format!("{:?}", name.value);
            if let Some(why) = name_problem(&name.value) {
                return Err(name.wrong("profile.name", shown, why));
            }
            if self.profiles.iter().any(|other| other.profile.name == name.value) {
                return Err(name.wrong("profile.name", shown, "another profile has that name"));
            }
            let said = |value: Option<Spanned<f64>>| value.map(|value| source.said(value));
            let (mut local_s, mut sensitivity, mut numa_slowdown, mut traffic_mbps) = (0.0, 0.0, 0.0, 0);
            ranged(&mut local_s, "profile.local_s", said(Some(profile.local_s)), 1e-6..=1e12)?;
            let mut remote_s = local_s;
            ranged(&mut remote_s, "profile.remote_s", said(profile.remote_s), 1e-6..=1e12)?;
            ranged(&mut sensitivity, "profile.sensitivity", said(profile.sensitivity), 0.0..=1e6)?;
            ranged(&mut numa_slowdown, "profile.numa_slowdown", said(profile.numa_slowdown), 0.0..=1e6)?;
            let traffic = profile.traffic_mbps.map(|value| source.said(value));
            ranged(&mut traffic_mbps, "profile.traffic_mbps", traffic, 0..=100_000_000)?;
            self.profiles.push(ProfileSettings {
                profile: Profile { name: name.value, local_s, remote_s, sensitivity, numa_slowdown },
                traffic_mbps,
            });
        }
        Ok(())
    }

    /// What the engine is told.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        let data_ca = self.data_ca.as_ref().map(|path| {
            std::fs::read_to_string(path).map_err(|why| ConfigError::Read { path: path.clone(), why })
        });
        let mut profiles = self.profiles.clone();
        if let Some(name) = &self.default_profile {
            // The engine knows the default by its name.
            let mut default = profiles.iter().find(|known| &known.profile.name == name).cloned();
            profiles.retain(|known| known.profile.name != "default");
            if let Some(default) = &mut default {
                default.profile.name = "default".into();
            }
            profiles.extend(default);
        }
        Ok(Settings {
            lease_ttl_s: self.lease_ttl_s,
            node_timeout_ms: self.node_timeout_s * 1000,
            heartbeat_ms: self.heartbeat_ms,
            policy: self.policy.clone(),
            default_nic_mbps: self.client_nic_mbps,
            switches: self.switches.clone(),
            profiles,
            limits: self.limits,
            tenants: self.tenants.clone(),
            data_ca: data_ca.transpose()?,
            ..Settings::default()
        })
    }

    /// A tenant's limits.
    pub fn limits_of(&self, tenant: &str) -> Limits {
        self.tenants.get(tenant).copied().unwrap_or(self.limits)
    }

    /// Whether these addresses may be listened on with this configuration.
    pub fn may_listen(&self, addresses: &[SocketAddr]) -> Result<(), String> {
        let beyond = addresses.iter().find(|address| !address.ip().is_loopback());
        match beyond {
            Some(address) if self.tls.is_none() && !self.insecure => Err(format!(
                "{address} is reached from other machines, and without TLS others could read the tokens on the way: \
                 set tls.certificate and tls.key, or listen on 127.0.0.1, or say --insecure"
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, Path::new("dir/broker.toml"), Overrides::default())
    }

    #[test]
    fn nothing_said_is_the_defaults() {
        assert_eq!(parse("").unwrap(), Config::default());
        assert_eq!(Config::load(None, Overrides::default()).unwrap(), Config::default());
    }

    #[test]
    fn the_example_says_the_defaults() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/broker.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        let example = Config::parse(&text, &path, Overrides::default()).unwrap();
        assert_eq!(example, Config::default());
        // What is commented out there is right, too.
        let all: String =
            text.lines().map(|line| line.strip_prefix("#: ").unwrap_or(line).to_owned() + "\n").collect();
        let all = Config::parse(&all, Path::new("/etc/rgpu/broker.toml"), Overrides::default()).unwrap();
        assert!(!all.switches.is_empty() && !all.profiles.is_empty() && !all.tenants.is_empty());
        assert!(all.tls.unwrap().client_ca.is_some() && !all.node_switches.is_empty());
        assert!(all.default_profile.is_some() && all.limits.max_memory.is_some());
    }

    #[test]
    fn all_of_a_file_is_heeded() {
        let config = parse(
            r#"
            listen = "0.0.0.0:1"
            data_dir = "state"
            lease_ttl_s = 10
            default_profile = "train"
            [policy]
            name = "fgd"
            network_aware = false
            link_limit = 2
            [tls]
            certificate = "c.pem"
            key = "/k.pem"
            [[switch]]
            name = "core"
            uplink_mbps = 100000
            [[switch]]
            name = "rack"
            parent = "core"
            uplink_mbps = 40000
            [node_switch]
            "gpu-1.example.org" = "rack"
            [[profile]]
            name = "train"
            local_s = 100
            remote_s = 120.5
            [limits]
            max_gpu_milli = 4000
            max_memory = "64GiB"
            [tenant.ann]
            max_memory = "unlimited"
            max_leases = 3
            "#,
        )
        .unwrap();
        assert_eq!(config.data_dir, Path::new("dir/state"));
        assert_eq!(
            (config.lease_ttl_s, config.policy.name.as_str(), config.policy.link_limit),
            (10, "fgd", 2.0)
        );
        let tls = config.tls.as_ref().unwrap();
        assert_eq!(
            (tls.certificate.as_path(), tls.key.as_path()),
            (Path::new("dir/c.pem"), Path::new("/k.pem"))
        );
        assert_eq!(config.switches[1].parent.as_deref(), Some("core"));
        assert_eq!(config.node_switches["gpu-1.example.org"], "rack");
        assert_eq!(config.limits_of("bob").max_memory, Some(64 << 30));
        let ann = Limits { max_gpu_milli: Some(4000), max_memory: None, max_leases: Some(3) };
        assert_eq!(config.limits_of("ann"), ann);
    }

    #[test]
    fn flags_precede_the_file() {
        let overrides = Overrides {
            listen: Some("127.0.0.1:0".into()),
            data_dir: Some("here".into()),
            insecure: Some(false),
            policy: Some("random".into()),
            ..Overrides::default()
        };
        let text = "listen = '1.2.3.4:5'\ndata_dir = 'there'\ninsecure = true\nnode_timeout_s = 9\npolicy.name = 'fgd'";
        let config = Config::parse(text, Path::new("dir/f"), overrides).unwrap();
        assert_eq!((config.listen.as_str(), config.data_dir.as_path()), ("127.0.0.1:0", Path::new("here")));
        assert_eq!((config.insecure, config.node_timeout_s), (false, 9));
        assert_eq!(config.policy.name, "random");
    }

    #[test]
    fn mistakes_name_the_key_and_the_line() {
        for (text, parts) in [
            ("\nlisten_on = 'a:1'", &["line 2", "listen_on", "unknown field"][..]),
            ("\n\nlease_ttl_s = 'x'", &["line 3", "lease_ttl_s", "invalid type"]),
            ("lease_ttl_s = 60\nlisten = ", &["line 2", "listen"]),
            ("\nlease_ttl_s = 0", &["line 2", "lease_ttl_s = 0", "from 3 to 86400"]),
            ("heartbeat_ms = 5000", &["line 1", "heartbeat_ms", "two heartbeats"]),
            ("node_timeout_s = 1\n", &["heartbeat_ms = 1000", "the default", "two heartbeats"]),
            ("listen = 'nowhere'", &["line 1", "listen", "HOST:PORT"]),
            ("[policy]\nname = 'best'", &["line 2", "policy.name", "drmaestro"]),
            ("[policy]\nlink_limit = nan", &["line 2", "policy.link_limit"]),
            ("[policy]\nremote_preference = 0.5", &["line 2", "remote_preference", "from 1 to 1000"]),
            ("[[switch]]\nname = 'a'\n", &["uplink_mbps"]),
            ("[[switch]]\nname = 'a'\nparent = 'b'\nuplink_mbps = 1", &["line 3", "switch.parent", "\"b\""]),
            ("[[switch]]\nname = 'a'\nparent = 'a'\nuplink_mbps = 1", &["line 3", "circle"]),
            ("[node_switch]\nn = 'x'", &["line 2", "node_switch.n", "\"x\""]),
            ("[[profile]]\nname = 'p'\nlocal_s = -1", &["line 3", "profile.local_s"]),
            ("default_profile = 'p'", &["line 1", "default_profile", "\"p\""]),
            ("[limits]\nmax_memory = '4 elephants'", &["line 2", "max_memory", "elephants"]),
            ("[limits]\nmax_leases = -1", &["line 2", "max_leases", "negative"]),
            ("[tenant.'a b']\nmax_leases = 1", &["tenant", "a b"]),
            ("[tls]\nkey = 'k'", &["tls.certificate is missing"]),
            ("[tls]\nclient_ca = 'k'", &["tls.certificate and tls.key are missing"]),
        ] {
            let Err(error) = parse(text) else { panic!("{text:?} was accepted") };
            let error = error.to_string();
            for part in parts {
                assert!(error.contains(part), "{text:?}: {error}");
            }
            assert!(error.contains("dir/broker.toml") || error.contains("the default"), "{error}");
        }
    }

    #[test]
    fn without_encryption_only_this_machine() {
        let (near, far) = ("127.0.0.1:1".parse().unwrap(), "10.0.0.1:1".parse().unwrap());
        let mut config = Config::default();
        assert!(config.may_listen(&[near]).is_ok());
        assert!(config.may_listen(&[near, far]).unwrap_err().contains("--insecure"));
        config.insecure = true;
        assert!(config.may_listen(&[far]).is_ok());
    }

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [("0", 0), ("4GiB", 4 << 30), ("512M", 512 << 20), ("1 kib", 1024), ("7b", 7)] {
            assert_eq!(parse_bytes(text), Ok(bytes));
        }
        for wrong in ["", "GiB", "1.5G", "-1", "4 GB", "99999999999T", "1ü"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }
}
