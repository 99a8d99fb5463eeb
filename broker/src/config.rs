//! The broker's configuration: flags, before environment, before the file, before the defaults.
//!
//! A mistake is told with the key and, in a file, the line. Nothing is guessed and nothing unknown is skipped.

mod file;
mod merge;
mod said;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rgpu_control::api::PolicySettings;
use rgpu_placement::{PolicyTable, SwitchSpec};

use crate::engine::{Limits, ProcessorSettings, ProfileSettings, Settings, limits_of};

pub use said::{name_problem, token_name_problem};

/// What the broker is told before it starts.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `HOST:PORT` to listen on; port 0 takes a free one.
    pub listen: String,
    /// By which URL other machines reach it, where that is known.
    pub url: Option<String>,
    /// The directory of the state and the key.
    pub data_dir: PathBuf,
    /// Whether to listen beyond this machine without TLS.
    pub insecure: bool,
    /// Whether `/metrics` answers without a token.
    pub open_metrics: bool,
    /// How many connections there may be; then the one goes that has been silent for the longest time.
    pub max_connections: usize,
    /// The same for one address.
    pub max_connections_per_address: usize,
    /// How many requests of one token there may be at a time.
    pub max_requests_per_token: usize,
    /// For how long a lease is good without being renewed.
    pub lease_ttl_s: u64,
    /// After how long without a heartbeat a node counts as lost.
    pub node_timeout_s: u64,
    /// How often nodes are to send heartbeats.
    pub heartbeat_ms: u64,
    /// The network interface assumed for machines that are no nodes.
    pub client_nic_mbps: u64,
    /// The policies that there are.
    pub policies: PolicyTable,
    /// The policy that decides, until the API sets another one.
    pub policy: PolicySettings,
    /// The network's switches.
    pub switches: Vec<SwitchSpec>,
    /// Which switch a node is at, where the node doesn't say.
    pub node_switches: BTreeMap<String, String>,
    /// What is known of applications.
    pub profiles: Vec<ProfileSettings>,
    /// What servers hold all leases to beside devices.
    pub processors: ProcessorSettings,
    /// The profile of programs that name none.
    pub default_profile: Option<String>,
    /// The limits of tenants that have none of their own.
    pub limits: Limits,
    /// The limits of single tenants, complete.
    pub tenants: BTreeMap<String, Limits>,
    /// How connections to the broker are encrypted, if they are.
    pub tls: Option<TlsFiles>,
    /// Whether what leaves programs' machines is encrypted for every lease.
    pub encrypt: bool,
    /// Whether measurements of the last hour are kept for the web page.
    pub history: bool,
    /// The authority (PEM) that signs the certificates of servers that encrypt programs' connections.
    pub data_ca: Option<PathBuf>,
    /// The URL of the cluster's other broker, if there is one.
    pub peer: Option<String>,
    /// The certificates (PEM) that sign the peer's; without them, the machine's own.
    pub peer_ca: Option<PathBuf>,
    /// Whether this broker begins by standing by, whatever its peer does.
    pub standby: bool,
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
        // What the engine is told has its defaults there.
        let engine = Settings::default();
        Self {
            listen: "127.0.0.1:7080".into(),
            url: None,
            data_dir: "/var/lib/rgpu-broker".into(),
            insecure: false,
            open_metrics: false,
            max_connections: 16_384,
            max_connections_per_address: 4096,
            max_requests_per_token: 4096,
            lease_ttl_s: engine.lease_ttl_s,
            node_timeout_s: engine.node_timeout_ms / 1000,
            heartbeat_ms: engine.heartbeat_ms,
            client_nic_mbps: engine.default_nic_mbps,
            policies: engine.policies,
            policy: engine.policy,
            switches: engine.switches,
            node_switches: BTreeMap::new(),
            profiles: engine.profiles,
            processors: engine.processors,
            default_profile: None,
            limits: engine.limits,
            tenants: engine.tenants,
            tls: None,
            encrypt: engine.encrypt,
            history: engine.history,
            data_ca: None,
            peer: None,
            peer_ca: None,
            standby: false,
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

/// An address that may not be listened on without TLS.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} is reached from other machines, and without TLS others could read the tokens on the way: set tls.certificate and \
     tls.key, or listen on 127.0.0.1, or say --insecure"
)]
pub struct Unencrypted(pub SocketAddr);

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

impl Config {
    /// The configuration of a file (or none) and of flags and the environment.
    pub fn load(path: Option<&Path>, overrides: Overrides) -> Result<Self, ConfigError> {
        let Some(path) = path else { return Self::parse("", Path::new(""), overrides) };
        let text = std::fs::read_to_string(path)
            .map_err(|why| ConfigError::Read { path: path.to_path_buf(), why })?;
        Self::parse(&text, path, overrides)
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
            policies: self.policies.clone(),
            policy: self.policy.clone(),
            default_nic_mbps: self.client_nic_mbps,
            switches: self.switches.clone(),
            profiles,
            processors: self.processors,
            limits: self.limits,
            tenants: self.tenants.clone(),
            encrypt: self.encrypt,
            history: self.history,
            data_ca: data_ca.transpose()?,
            rivals: self.peer.is_some(),
            ..Settings::default()
        })
    }

    /// A tenant's limits.
    pub fn limits_of(&self, tenant: &str) -> Limits {
        limits_of(&self.tenants, tenant).unwrap_or(self.limits)
    }

    /// Whether these addresses may be listened on with this configuration.
    pub fn may_listen(&self, addresses: &[SocketAddr]) -> Result<(), Unencrypted> {
        let beyond = addresses.iter().find(|address| !address.ip().is_loopback());
        match beyond {
            Some(address) if self.tls.is_none() && !self.insecure => Err(Unencrypted(*address)),
            _ => Ok(()),
        }
    }
}
