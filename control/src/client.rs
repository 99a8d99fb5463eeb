//! The REST API, as blocking calls.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::Request;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};
use ureq::{Agent, Body};

use crate::LeaseId;
use crate::api::*;
use crate::token::{self, TokenError};

mod chain;

pub use chain::{Presented, presented};

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The broker's address, or a file, is no good.
    #[error("{0}")]
    Setup(String),
    /// The broker was not reached, or went away.
    #[error("the broker {broker} cannot be reached: {why}")]
    Unreachable {
        /// Its address.
        broker: String,
        /// What happened.
        why: String,
    },
    /// Whoever answers there is not to be trusted, or does not trust this side.
    #[error(
        "the broker {broker} cannot be trusted: {why}. --broker-ca or RGPU_BROKER_CA names who signs its certificate"
    )]
    Untrusted {
        /// Its address.
        broker: String,
        /// What the matter is with its certificate, or with the encryption.
        why: String,
    },
    /// The broker refused.
    #[error("{}", .0.message)]
    Refused(Problem),
    /// What it said makes no sense.
    #[error("the broker {broker} answered something else than was expected: {why}")]
    Odd {
        /// Its address.
        broker: String,
        /// What.
        why: String,
    },
}

impl ClientError {
    /// What the broker said, for programs.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused(problem) => Some(problem.code),
            _ => None,
        }
    }

    /// Whether trying again later may help.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
            || matches!(self.code(), Some(ErrorCode::Unavailable | ErrorCode::Internal))
    }
}

/// How to speak to a broker by `https://`.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// Certificates (PEM) that sign the broker's; without them, the machine's own.
    pub ca: Option<Vec<u8>>,
    /// This side's certificate and private key (PEM), where the broker asks for them.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// Whether a broker on another machine may be spoken to by `http://`: whoever is on the way can then read the token.
    pub plain: bool,
}

impl Tls {
    /// Reads the files.
    pub fn read(ca: Option<&Path>, identity: Option<(&Path, &Path)>) -> Result<Self, ClientError> {
        let read = |path: &Path| {
            std::fs::read(path)
                .map_err(|e| ClientError::Setup(format!("cannot read {}: {e}", path.display())))
        };
        let ca = ca.map(read).transpose()?;
        let identity = match identity {
            Some((certificate, key)) => Some((read(certificate)?, read(key)?)),
            None => None,
        };
        Ok(Self { ca, identity, plain: false })
    }

    fn config(&self) -> Result<TlsConfig, ClientError> {
        let bad = |what: &str, e: ureq::Error| ClientError::Setup(format!("the {what} cannot be used: {e}"));
        let certificates = |pem: &[u8], what: &str| {
            let parsed: Result<Vec<_>, _> = ureq::tls::parse_pem(pem)
                .filter_map(|item| match item {
                    Ok(ureq::tls::PemItem::Certificate(certificate)) => Some(Ok(certificate)),
                    Ok(_) => None,
                    Err(e) => Some(Err(e)),
                })
                .collect::<Result<Vec<Certificate<'static>>, _>>();
            match parsed {
                Ok(list) if list.is_empty() => {
                    Err(ClientError::Setup(format!("the {what} holds no certificate (PEM)")))
                }
                Ok(list) => Ok(list),
                Err(e) => Err(bad(what, e)),
            }
        };
        let mut config = TlsConfig::builder();
        config = match &self.ca {
            Some(pem) => config.root_certs(RootCerts::new_with_certs(&certificates(pem, "CA file")?)),
            None => config.root_certs(RootCerts::PlatformVerifier),
        };
        if let Some((certificate, key)) = &self.identity {
            let chain = certificates(certificate, "certificate")?;
            let key = PrivateKey::from_pem(key).map_err(|e| bad("private key", e))?;
            config = config.client_cert(Some(ClientCert::new_with_certs(&chain, key)));
        }
        Ok(config.build())
    }
}

/// A broker, as one caller reaches it.
#[derive(Clone)]
pub struct Broker {
    agent: Agent,
    bases: Arc<[Arc<str>]>,
    /// Which of them answered last.
    current: Arc<AtomicUsize>,
    token: Arc<str>,
    /// How long a request may take beyond what it was told to wait.
    patience: Duration,
}

/// How long a connection is kept that is not in use.
const KEPT: Duration = Duration::from_secs(3600);

/// How long a request may take beyond what it was told to wait.
const PATIENCE: Duration = Duration::from_secs(15);
/// The same where there is another broker to be asked.
const PATIENCE_OF_SEVERAL: Duration = Duration::from_secs(4);

impl Broker {
    /// A broker at `http://HOST:PORT` or `https://HOST:PORT`, for whom the token names; or several, separated by commas, of which
    /// one is active and the others stand by. Nothing is sent yet.
    ///
    /// # Errors
    /// An address is none, or the certificates are of no use.
    pub fn new(url: &str, token: &str, tls: &Tls) -> Result<Self, ClientError> {
        let bases: Arc<[Arc<str>]> =
            url.split(',').map(|url| Arc::from(url.trim().trim_end_matches('/'))).collect();
        for base in bases.iter() {
            let host = base.strip_prefix("http://").or_else(|| base.strip_prefix("https://"));
            if host.is_none_or(|host| host.is_empty() || host.contains(['/', '?', '#', ' '])) {
                let text = format!(
                    "{url:?} is no broker's address: give http://HOST:PORT or https://HOST:PORT, or several with commas between"
                );
                return Err(ClientError::Setup(text));
            }
            if base.starts_with("http://")
                && !token.is_empty()
                && !tls.plain
                && !is_this_machine(host.unwrap_or_default())
            {
                let text = format!(
                    "{base} is on another machine and not encrypted: others on the way could read the token. Use https:// \
                     (docs/broker.md, TLS), or allow it with --broker-insecure or RGPU_BROKER_INSECURE=1"
                );
                return Err(ClientError::Setup(text));
            }
        }
        let connect = if bases.len() > 1 { 2 } else { 5 };
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(Duration::from_secs(connect)))
            .max_redirects(0)
            // The broker says when a connection is not kept any longer. A lease is renewed every so often, and a node speaks
            // every second: a new connection each time would be one more to be let in.
            .max_idle_age(KEPT)
            .proxy(None);
        if bases.iter().any(|base| base.starts_with("https")) {
            // The process may have several; this one is ours to choose.
            let _ = rustls::crypto::ring::default_provider().install_default();
            config = config.tls_config(tls.config()?);
        }
        let (agent, current) = (config.build().new_agent(), Arc::new(AtomicUsize::new(0)));
        let patience = if bases.len() > 1 { PATIENCE_OF_SEVERAL } else { PATIENCE };
        Ok(Self { agent, bases, current, token: token.trim().into(), patience })
    }

    /// The same, where requests may take only so long beyond what they are told to wait.
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// The same over the same connections, for whom another token names: many callers behind one proxy.
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: token.trim().into(), ..self.clone() }
    }

    /// The broker's address: where there are several, of the one that answered last.
    pub fn url(&self) -> &str {
        &self.bases[self.current.load(Relaxed) % self.bases.len()]
    }

    /// Asks the broker that answered last; where that is not to be reached, or only stands by, the others.
    fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<Vec<u8>>,
        wait: Option<Duration>,
    ) -> Result<ureq::http::Response<Body>, ClientError> {
        let first = self.current.load(Relaxed);
        let mut answer = None;
        for turn in 0..self.bases.len() {
            let at = (first + turn) % self.bases.len();
            let sent = self.send_to(&self.bases[at], method, path, body.clone(), wait);
            match sent {
                Ok(sent) if !sent.headers().contains_key(STANDBY_HEADER) => {
                    self.current.store(at, Relaxed);
                    return Ok(sent);
                }
                // What the active one's failure is says more than that another one stands by.
                sent => answer = answer.filter(Result::is_err).or(Some(sent)),
            }
        }
        answer.unwrap_or_else(|| Err(ClientError::Setup("there is no broker's address".into())))
    }

    fn send_to(
        &self,
        base: &str,
        method: &str,
        path: &str,
        body: Option<Vec<u8>>,
        wait: Option<Duration>,
    ) -> Result<ureq::http::Response<Body>, ClientError> {
        let mut request = Request::builder().method(method).uri(format!("{base}{path}"));
        if !self.token.is_empty() {
            request = request.header("authorization", format!("Bearer {}", self.token));
        }
        if body.is_some() {
            request = request.header("content-type", "application/json");
        }
        let request = request
            .body(body.unwrap_or_default())
            .map_err(|e| ClientError::Setup(format!("the request cannot be made: {e}")))?;
        let time = wait.map(|wait| wait + self.patience);
        let request = self.agent.configure_request(request).timeout_global(time).build();
        self.agent.run(request).map_err(|e| {
            let (broker, why) = (base.to_owned(), e.to_string());
            match e {
                ureq::Error::Tls(_) | ureq::Error::Rustls(_) => ClientError::Untrusted { broker, why },
                ureq::Error::Io(e) if e.kind() == std::io::ErrorKind::InvalidData => {
                    ClientError::Untrusted { broker, why }
                }
                _ => ClientError::Unreachable { broker, why },
            }
        })
    }

    fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<&impl Serialize>,
        wait: Duration,
    ) -> Result<T, ClientError> {
        let odd = |why: String| ClientError::Odd { broker: self.url().to_owned(), why };
        let body = body.map(|body| serde_json::to_vec(body).map_err(|e| odd(e.to_string()))).transpose()?;
        let mut answer = self.send(method, path, body, Some(wait))?;
        let status = answer.status();
        let bytes =
            answer.body_mut().with_config().limit(256 << 20).read_to_vec().map_err(|e| {
                ClientError::Unreachable { broker: self.url().to_owned(), why: e.to_string() }
            })?;
        if !status.is_success() {
            return Err(match serde_json::from_slice::<ErrorBody>(&bytes) {
                Ok(body) => ClientError::Refused(self.of_older(body.error)),
                Err(_) => odd(format!("status {status}")),
            });
        }
        let bytes = if bytes.is_empty() { b"null".as_slice() } else { &bytes };
        serde_json::from_slice(bytes).map_err(|e| odd(e.to_string()))
    }

    /// A broker that knows no engines takes an engine's token for none at all.
    fn of_older(&self, mut problem: Problem) -> Problem {
        let unknown = problem.message == TokenError::Malformed.to_string();
        if problem.code == ErrorCode::Unauthorized && unknown && self.is_engines() {
            problem.message += ". It is an engine's, which brokers of earlier releases do not know: update the broker, or use a \
                                token of the role tenant, with which all leases are that tenant's";
        }
        problem
    }

    /// Whether it is spoken to with an engine's token: who asks for a lease then says on behalf of whom.
    pub fn is_engines(&self) -> bool {
        token::is_engines(&self.token)
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call("GET", path, None::<&()>, Duration::ZERO)
    }

    /// How it is; also where that is not well.
    ///
    /// # Errors
    /// It cannot be reached, or is no broker.
    pub fn health(&self) -> Result<Health, ClientError> {
        let (base, get) = (self.url().to_owned(), "GET");
        let mut answer = self.send_to(&base, get, paths::HEALTH, None, Some(Duration::ZERO))?;
        let bytes = answer.body_mut().with_config().limit(1 << 20).read_to_vec();
        let bytes =
            bytes.map_err(|e| ClientError::Unreachable { broker: base.clone(), why: e.to_string() })?;
        serde_json::from_slice(&bytes).map_err(|e| ClientError::Odd { broker: base, why: e.to_string() })
    }

    /// The cluster in a few numbers.
    pub fn summary(&self) -> Result<Summary, ClientError> {
        self.get(paths::SUMMARY)
    }

    /// The nodes of the cluster.
    pub fn nodes(&self) -> Result<Vec<Node>, ClientError> {
        self.get(paths::NODES)
    }

    /// The devices of all nodes.
    pub fn devices(&self) -> Result<Vec<Device>, ClientError> {
        self.get(paths::DEVICES)
    }

    /// What a node measured over the last hour, or after a moment (in seconds since 1970).
    pub fn history(&self, name: &str, since: u64) -> Result<NodeHistory, ClientError> {
        self.get(&format!("{}?since={since}", of(paths::HISTORY, name)))
    }

    /// What the latest placement rounds came to.
    pub fn rounds(&self) -> Result<Vec<RoundOutcome>, ClientError> {
        self.get(paths::ROUNDS)
    }

    /// What waits and runs.
    pub fn jobs(&self) -> Result<Vec<Job>, ClientError> {
        self.get(paths::JOBS)
    }

    /// The leases that the caller may see; with `all`, those too that ended lately.
    pub fn leases(&self, all: bool) -> Result<Vec<Lease>, ClientError> {
        self.get(&format!("{}?all={all}", paths::LEASES))
    }

    /// The tenants and what each of them holds.
    pub fn tenants(&self) -> Result<Vec<Tenant>, ClientError> {
        self.get(paths::TENANTS)
    }

    /// Asks for a lease.
    pub fn request_lease(&self, request: &LeaseRequest) -> Result<Lease, ClientError> {
        self.call("POST", paths::LEASES, Some(request), Duration::from_secs(request.wait_s.into()))
    }

    /// A lease; waits up to `wait_s` seconds for its grant.
    pub fn lease(&self, id: LeaseId, wait_s: u32) -> Result<Lease, ClientError> {
        let path = format!("{}?wait_s={wait_s}", of(paths::LEASE, id));
        self.call("GET", &path, None::<&()>, Duration::from_secs(wait_s.into()))
    }

    /// Renews a lease.
    pub fn renew(&self, id: LeaseId) -> Result<Lease, ClientError> {
        self.call("POST", &of(paths::RENEW, id), Some(&Renewal {}), Duration::ZERO)
    }

    /// Changes a lease's memory or share.
    pub fn change_lease(&self, id: LeaseId, change: &LeaseChange) -> Result<Lease, ClientError> {
        self.call("PATCH", &of(paths::LEASE, id), Some(change), Duration::ZERO)
    }

    /// Gives back a lease whose program has ended well: the broker learns from its run. One that has ended already is no error.
    pub fn complete(&self, id: LeaseId) -> Result<(), ClientError> {
        let path = format!("{}?completed=true", of(paths::LEASE, id));
        let released = self.call("DELETE", &path, None::<&()>, Duration::ZERO);
        released.map(|_: serde_json::Value| ())
    }

    /// Gives a lease back. One that has ended already is no error.
    pub fn release(&self, id: LeaseId) -> Result<(), ClientError> {
        let released = self.call("DELETE", &of(paths::LEASE, id), None::<&()>, Duration::ZERO);
        released.map(|_: serde_json::Value| ())
    }

    /// What was learnt of programs: the caller's, or for an administrator all.
    pub fn profiles(&self) -> Result<Vec<LearntProfile>, ClientError> {
        self.get(paths::PROFILES)
    }

    /// Forgets what was learnt of the caller's program; for an administrator, of all tenants' programs of that name.
    pub fn forget_profile(&self, program: &str) -> Result<(), ClientError> {
        let forgotten = self.call("DELETE", &of(paths::PROFILE, program), None::<&()>, Duration::ZERO);
        forgotten.map(|_: serde_json::Value| ())
    }

    /// Why a lease was placed where it is.
    pub fn explain(&self, id: LeaseId) -> Result<LeaseExplanation, ClientError> {
        self.get(&of(paths::EXPLAIN, id))
    }

    /// Introduces a node.
    pub fn register(&self, node: &Registration) -> Result<Welcome, ClientError> {
        self.call("POST", paths::NODES, Some(node), Duration::ZERO)
    }

    /// Says how a node is.
    pub fn heartbeat(&self, node: &str, heartbeat: &Heartbeat) -> Result<Orders, ClientError> {
        self.call("POST", &of(paths::HEARTBEAT, node), Some(heartbeat), Duration::ZERO)
    }

    /// What a node is to do, as soon as that has changed.
    pub fn orders(&self, node: &str, seen: u64, wait_s: u32) -> Result<Orders, ClientError> {
        let path = format!("{}?seen={seen}&wait_s={wait_s}", of(paths::ORDERS, node));
        self.call("GET", &path, None::<&()>, Duration::from_secs(wait_s.into()))
    }

    /// Says whether a node gets new leases.
    pub fn drain(&self, node: &str, drain: bool) -> Result<(), ClientError> {
        let answer = self.call("POST", &of(paths::DRAIN, node), Some(&Drain { drain }), Duration::ZERO);
        answer.map(|_: serde_json::Value| ())
    }

    /// Forgets a node.
    pub fn remove_node(&self, node: &str) -> Result<(), ClientError> {
        let answer = self.call("DELETE", &of(paths::NODE, node), None::<&()>, Duration::ZERO);
        answer.map(|_: serde_json::Value| ())
    }

    /// The policy that decides, and which others there are.
    pub fn policies(&self) -> Result<Policies, ClientError> {
        self.get(paths::POLICY)
    }

    /// Sets the policy.
    pub fn set_policy(&self, settings: &PolicySettings) -> Result<Policies, ClientError> {
        self.call("PUT", paths::POLICY, Some(settings), Duration::ZERO)
    }

    /// Issues a role token.
    pub fn issue_token(&self, request: &TokenRequest) -> Result<IssuedToken, ClientError> {
        self.call("POST", paths::TOKENS, Some(request), Duration::ZERO)
    }

    /// The role tokens that the broker knows of.
    pub fn tokens(&self) -> Result<TokenList, ClientError> {
        self.get(paths::TOKENS)
    }

    /// Withdraws role tokens. The answer is all withdrawals that are in force.
    pub fn withdraw_tokens(&self, request: &TokenWithdrawal) -> Result<Vec<WithdrawnTokens>, ClientError> {
        self.call("POST", paths::WITHDRAW, Some(request), Duration::ZERO)
    }

    /// Calls `each` with the events after number `since`, as they happen, until it says to stop or the broker goes away.
    pub fn events(
        &self,
        since: u64,
        mut each: impl FnMut(Event) -> std::ops::ControlFlow<()>,
    ) -> Result<(), ClientError> {
        let answer = self.send("GET", &format!("{}?since={since}", paths::EVENTS), None, None)?;
        let lost = |why: String| ClientError::Unreachable { broker: self.url().to_owned(), why };
        if !answer.status().is_success() {
            let bytes = answer.into_body().read_to_vec().map_err(|e| lost(e.to_string()))?;
            return Err(match serde_json::from_slice::<ErrorBody>(&bytes) {
                Ok(body) => ClientError::Refused(body.error),
                Err(e) => ClientError::Odd { broker: self.url().to_owned(), why: e.to_string() },
            });
        }
        for line in BufReader::new(answer.into_body().into_reader()).lines() {
            let line = line.map_err(|e| lost(e.to_string()))?;
            // Comments keep the connection alive; ids and names of events are in the data, too.
            let Some(data) = line.strip_prefix("data:") else { continue };
            let event = serde_json::from_str(data.trim())
                .map_err(|e| ClientError::Odd { broker: self.url().to_owned(), why: e.to_string() })?;
            if each(event).is_break() {
                return Ok(());
            }
        }
        Err(lost("it closed the connection".into()))
    }
}

/// Whether `HOST` or `HOST:PORT` is reached without leaving this machine: a loopback address, or a name of nothing but such.
fn is_this_machine(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, port)| match port.parse::<u16>() {
        Ok(_) => name,
        Err(_) => host,
    });
    let name = name.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = name.parse::<IpAddr>() {
        return address.to_canonical().is_loopback();
    }
    // What cannot be looked up now may be anywhere later.
    let found: Vec<_> = (name, 0).to_socket_addrs().map(Iterator::collect).unwrap_or_default();
    !found.is_empty() && found.iter().all(|address| address.ip().to_canonical().is_loopback())
}

/// A path with its `{…}` filled in.
fn of(path: &str, name: impl std::fmt::Display) -> String {
    let (start, end) = (path.find('{').unwrap_or(path.len()), path.find('}').map_or(path.len(), |at| at + 1));
    let mut filled = path[..start].to_owned();
    for byte in name.to_string().bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => filled.push(byte.into()),
            _ => filled.push_str(&format!("%{byte:02X}")),
        }
    }
    filled + &path[end..]
}

#[cfg(test)]
mod failover_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_put_into_paths() {
        assert_eq!(of(paths::RENEW, LeaseId(1)), "/v1/leases/0000000000000001/renew");
        assert_eq!(of(paths::NODE, "a b/ü"), "/v1/nodes/a%20b%2F%C3%BC");
    }

    #[test]
    fn addresses_are_checked() {
        let tls = Tls::default();
        assert!(Broker::new("http://localhost:7080/", "t", &tls).is_ok());
        assert!(Broker::new("http://localhost:1,https://b:2/", "t", &tls).is_ok());
        assert!(Broker::new("https://b:2,http://a:1/", "t", &tls).is_err());
        for bad in ["", "http://a:1,", "localhost:7080", "http://", "http://a/b", "ftp://a"] {
            assert!(Broker::new(bad, "t", &tls).is_err(), "{bad}");
        }
    }

    #[test]
    fn tokens_are_not_sent_over_a_network_unencrypted_unless_that_is_allowed() {
        let tls = Tls::default();
        for local in ["http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1", "http://127.9.9.9"] {
            assert!(Broker::new(local, "t", &tls).is_ok(), "{local}");
        }
        for far in [
            "http://192.0.2.1:7080",
            "http://[2001:db8::1]:7080",
            "http://10.0.0.1",
            "http://broker.invalid:1",
        ] {
            let error = Broker::new(far, "t", &tls).err().unwrap().to_string();
            assert!(error.contains("https://") && error.contains("--broker-insecure"), "{error}");
            assert!(Broker::new(far, "t", &Tls { plain: true, ..Tls::default() }).is_ok(), "{far}");
            assert!(Broker::new(&far.replace("http:", "https:"), "t", &tls).is_ok(), "{far}");
            // There is nothing to be read.
            assert!(Broker::new(far, "", &tls).is_ok(), "{far}");
        }
    }

    #[test]
    fn nobody_there_is_an_error_that_names_the_broker() {
        let broker = Broker::new("http://127.0.0.1:1", "t", &Tls::default()).unwrap();
        let error = broker.health().unwrap_err();
        assert!(error.to_string().contains("127.0.0.1:1") && error.is_passing(), "{error}");
    }
}
