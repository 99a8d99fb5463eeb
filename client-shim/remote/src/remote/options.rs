//! How a session is asked for.

use rgpu_control::proof::Binding;
use rgpu_control::settings::{CONNECT_TIMEOUT_S, CONNECT_TIMEOUT_VARIABLE};
use rgpu_device::{Check, Code, Error, Range, Result, Seat};
use rgpu_protocol::transport::{CONNECTORS, Choice, Connectors, Encrypt, TRANSPORT_VARIABLE};
use std::sync::Arc;
use std::time::Duration;

/// Makes a credential for a session, over a connection with this binding.
type Prove = dyn Fn(u64, Option<&Binding>) -> Vec<u8> + Send + Sync;

/// What proves that the client may use the server.
#[derive(Clone)]
pub enum Credential {
    /// Always the same bytes; none where the server wants none.
    Fixed(Vec<u8>),
    /// Made for each session, whose id it is given, and the binding of its connection where that is encrypted.
    Made(Arc<Prove>),
}

impl Credential {
    /// The credential for a session over a connection with this binding.
    pub(super) fn for_session(&self, session: u64, binding: Option<&Binding>) -> Vec<u8> {
        match self {
            Self::Fixed(bytes) => bytes.clone(),
            Self::Made(make) => make(session, binding),
        }
    }
}

impl From<Vec<u8>> for Credential {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Fixed(bytes)
    }
}

impl From<&str> for Credential {
    fn from(text: &str) -> Self {
        Self::Fixed(text.into())
    }
}

/// Which of a program's several servers one is, and the addresses that all of them are proposed.
#[derive(Debug, Clone, Copy)]
pub struct SharedRange {
    /// Which of them it is.
    pub seat: Seat,
    /// What is proposed to all of them. Whoever connects has reserved it.
    pub range: Range,
}

/// How to connect.
#[derive(Clone)]
pub struct ConnectOptions {
    /// Proves that the client may use the server; empty where none is needed.
    pub credential: Credential,
    /// How long connecting may take in all.
    pub timeout: Duration,
    /// Which transport to use; without it the environment says (`RGPU_TRANSPORT`).
    pub transport: Option<Choice>,
    /// The transports that there are, in order of preference.
    pub connectors: Connectors,
    /// Whether what leaves the machine is encrypted.
    pub encrypt: Option<Encrypt>,
    /// Whether only to look: such a session has no addresses and no memory, and asks for
    /// [`telemetry`](rgpu_device::Device::telemetry).
    pub observe: bool,
    /// What the server is to look at while kernels run. One that cannot is not used. A session that only looks has no kernels.
    pub check: Option<Check>,
    /// Where the program has several servers: which of them this is. A server that refuses the range is then not asked for
    /// another one: connecting fails with [`Code::MapFailed`].
    pub shared_range: Option<SharedRange>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            credential: Vec::new().into(),
            timeout: timeout_of_environment(),
            transport: None,
            connectors: CONNECTORS,
            encrypt: None,
            observe: false,
            check: None,
            shared_range: None,
        }
    }
}

impl ConnectOptions {
    /// The transport that was asked for here, or else in the environment.
    pub(super) fn choice(&self) -> Result<Choice> {
        if let Some(choice) = self.transport {
            return Ok(choice);
        }
        match std::env::var(TRANSPORT_VARIABLE) {
            Ok(text) if !text.is_empty() => text
                .parse()
                .map_err(|e| Error::new(Code::SystemNotReady, format!("{TRANSPORT_VARIABLE}: {e}"))),
            _ => Ok(Choice::Auto),
        }
    }
}

/// How long connecting may take: so many seconds as the environment says, if that is a number from 1 to 3600.
fn timeout_of_environment() -> Duration {
    let given = std::env::var(CONNECT_TIMEOUT_VARIABLE).ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.filter(|seconds| (1..=3600).contains(seconds)).unwrap_or(CONNECT_TIMEOUT_S))
}
