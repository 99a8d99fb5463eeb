//! What a server is told when it is started.

use crate::agent::AgentOptions;
use crate::applications::ProcessorOptions;
use crate::device_spec::DeviceSpec;
use rgpu_control::settings;
use rgpu_protocol::transport::{CONNECTORS, Choice, Connectors};
use std::path::PathBuf;
use std::str::FromStr;

/// There is no such way to encrypt connections.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not known: there are off, offer and require")]
pub struct UnknownEncryption(String);

/// Whether connections with programs on other machines are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    /// None are.
    Off,
    /// Those of clients that want it.
    Offer,
    /// All: others are refused.
    Require,
}

impl FromStr for Encryption {
    type Err = UnknownEncryption;
    fn from_str(text: &str) -> Result<Self, UnknownEncryption> {
        match text {
            "off" => Ok(Self::Off),
            "offer" => Ok(Self::Offer),
            "require" => Ok(Self::Require),
            _ => Err(UnknownEncryption(text.to_owned())),
        }
    }
}

/// How connections are encrypted.
#[derive(Debug, Clone, Default)]
pub struct TlsOptions {
    /// Whether; without a word it is offered where there is an agent, whose broker tells clients the certificate.
    pub encryption: Option<Encryption>,
    /// The certificate and its private key (PEM). They are made where neither exists. Without, a certificate is made at each
    /// start.
    pub files: Option<(PathBuf, PathBuf)>,
}

/// How a server runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// Address and port to listen on; port 0 picks a free one.
    pub listen: String,
    /// What applications get.
    pub device: DeviceSpec,
    /// A file with the token that applications must present. Without one only loopback addresses are
    /// listened on, unless `insecure`.
    pub token_file: Option<PathBuf>,
    /// Where images of modules are kept across sessions; without it nowhere.
    pub image_cache: Option<PathBuf>,
    /// How many bytes of them at most.
    pub image_cache_bytes: u64,
    /// Serve anybody who can reach the address.
    pub insecure: bool,
    /// A file with the public key of a broker, and this server's name as its leases say it: applications must present
    /// such a lease, without the server talking to the broker. With an agent, the broker tells both.
    pub broker_key: Option<(PathBuf, String)>,
    /// The most applications at a time.
    pub max_sessions: usize,
    /// The most memory of its own that each application's process may have, in bytes, beside what lies on the devices; 0 for any
    /// amount. Without, half of the machine's where the devices are software GPUs, else any amount.
    pub session_memory: Option<u64>,
    /// The most threads of each; without, enough for the devices that there are.
    pub session_threads: Option<u32>,
    /// The transports that there are, in order of preference. The processes that serve applications must know the same.
    pub connectors: Connectors,
    /// Which of them are offered.
    pub transport: Choice,
    /// Servers to which this one connects for copies, beside those that a broker names. Without any, a server on a loopback
    /// address connects to others there.
    pub peers: Vec<crate::peer::rule::Named>,
    /// How connections are encrypted.
    pub tls: TlsOptions,
    /// The broker whose node this is; applications then need leases of it.
    pub agent: Option<AgentOptions>,
    /// With an agent: how applications are held to what the broker orders of the machine's processors.
    pub processors: ProcessorOptions,
    /// With an agent: for how long a lease goes on whose time is over, while nothing is heard of the broker that could renew it.
    pub lease_grace: std::time::Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:0".into(),
            device: DeviceSpec::default(),
            token_file: None,
            image_cache: None,
            image_cache_bytes: settings::IMAGE_CACHE_BYTES,
            insecure: false,
            broker_key: None,
            max_sessions: 128,
            session_memory: None,
            session_threads: None,
            connectors: CONNECTORS,
            transport: Choice::Auto,
            peers: Vec::new(),
            tls: TlsOptions::default(),
            agent: None,
            processors: ProcessorOptions::default(),
            lease_grace: std::time::Duration::from_secs(settings::LEASE_GRACE_S),
        }
    }
}
