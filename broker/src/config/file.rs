//! The file, as it is written.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use rgpu_control::units::parse_bytes;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use crate::engine::Limits;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub listen: Option<Spanned<String>>,
    pub url: Option<Spanned<String>>,
    pub data_dir: Option<Spanned<PathBuf>>,
    pub insecure: Option<Spanned<bool>>,
    pub open_metrics: Option<Spanned<bool>>,
    pub max_connections: Option<Spanned<u64>>,
    pub max_connections_per_address: Option<Spanned<u64>>,
    pub max_requests_per_token: Option<Spanned<u64>>,
    pub lease_ttl_s: Option<Spanned<u64>>,
    pub node_timeout_s: Option<Spanned<u64>>,
    pub heartbeat_ms: Option<Spanned<u64>>,
    pub client_nic_mbps: Option<Spanned<u64>>,
    pub default_profile: Option<Spanned<String>>,
    pub encrypt: Option<Spanned<bool>>,
    pub history: Option<Spanned<bool>>,
    pub data_ca: Option<Spanned<PathBuf>>,
    pub peer: Option<Spanned<String>>,
    pub peer_ca: Option<Spanned<PathBuf>>,
    pub standby: Option<Spanned<bool>>,
    #[serde(default)]
    pub policy: FilePolicy,
    #[serde(default)]
    pub processors: FileProcessors,
    #[serde(default)]
    pub tls: FileTls,
    #[serde(default)]
    pub limits: FileLimits,
    #[serde(default)]
    pub tenant: BTreeMap<String, FileLimits>,
    #[serde(default)]
    pub switch: Vec<FileSwitch>,
    #[serde(default)]
    pub node_switch: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub profile: Vec<FileProfile>,
}

/// The policy's name, and its settings by name: which ones there are, the table of policies says.
pub(super) type FilePolicy = BTreeMap<String, Spanned<FileSetting>>;

/// What stands behind a key of `[policy]`.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a text, true, false or a number")]
pub(super) enum FileSetting {
    Flag(bool),
    Number(f64),
    Text(String),
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct FileProcessors {
    pub cores: bool,
    pub weights: bool,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct FileTls {
    pub certificate: Option<Spanned<PathBuf>>,
    pub key: Option<Spanned<PathBuf>>,
    pub client_ca: Option<Spanned<PathBuf>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct FileLimits {
    pub max_gpu_milli: Option<Limit>,
    pub max_memory: Option<Limit>,
    pub max_leases: Option<Limit>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileSwitch {
    pub name: Spanned<String>,
    pub parent: Option<Spanned<String>>,
    pub uplink_mbps: Spanned<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileProfile {
    pub name: Spanned<String>,
    pub local_s: Spanned<f64>,
    pub remote_s: Option<Spanned<f64>>,
    pub sensitivity: Option<Spanned<f64>>,
    pub numa_slowdown: Option<Spanned<f64>>,
    pub traffic_mbps: Option<Spanned<u64>>,
    pub llc_ways: Option<Spanned<u32>>,
    pub memory_bandwidth_percent: Option<Spanned<u32>>,
}

/// A number, a size such as `"64GiB"`, or `"unlimited"` (`None`).
#[derive(Clone, Copy)]
pub(super) struct Limit(Option<u64>);

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

impl FileLimits {
    pub(super) fn over(&self, under: Limits) -> Limits {
        let pick = |limit: Option<Limit>, under| limit.map_or(under, |limit| limit.0);
        Limits {
            max_gpu_milli: pick(self.max_gpu_milli, under.max_gpu_milli),
            max_memory: pick(self.max_memory, under.max_memory),
            max_leases: pick(self.max_leases, under.max_leases),
        }
    }
}
