//! Two brokers of one cluster, of which one is active and the other one stands by.
//!
//! They share the key and nothing else: what is granted stands in the leases' tokens, which the nodes keep and show
//! ([`crate::engine`] adopts what they show). So there is no state to be copied from one to the other, and no disk to be shared.
//!
//! The one that stands by asks its peer each second how it is. It takes over when it has not been answered for a while *and* more
//! than half of the nodes have come to it instead: where only the way between the brokers is cut, the nodes stay where they are.
//!
//! That a device is not granted by both rests on the nodes. A node follows one broker at a time. The numbers of a broker's orders
//! begin with its *epoch*, which is higher with each take-over, and leases' tokens name them: a node that has seen orders of a
//! later epoch takes neither orders nor leases of an earlier one.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use parking_lot::Mutex;
use rgpu_control::api::{ErrorBody, ErrorCode, Health, Problem, STANDBY_HEADER, paths};
use rgpu_control::token::{Claims, PrivateKey, Role, RoleClaims};
use rgpu_control::{Broker, ClientError, Tls, unix_time};

use crate::config::Config;

/// How often the peer is asked how it is.
const EVERY: Duration = Duration::from_secs(1);
/// How long the peer may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// After so long without an answer the peer's place is taken, if the nodes agree.
const SILENCE: Duration = Duration::from_secs(5);
/// For so long it counts that a node has come: nodes try every broker at least as often.
const VOTE: Duration = Duration::from_secs(10);

/// The other broker.
pub(crate) struct Peer {
    url: String,
    tls: Tls,
    key: PrivateKey,
}

impl Peer {
    /// The configuration's peer, if it names one.
    pub(crate) fn of(config: &Config, key: &PrivateKey) -> Result<Option<Self>, ClientError> {
        let Some(url) = config.peer.clone() else { return Ok(None) };
        let tls = Tls::read(config.peer_ca.as_deref(), None)?;
        let peer = Self { url, tls, key: key.clone() };
        peer.connect()?; // so that a wrong address is told at once
        Ok(Some(peer))
    }

    /// Its address.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    fn connect(&self) -> Result<Broker, ClientError> {
        // Both have the same key: what one of them signs is good for the other.
        let now = unix_time();
        let claims = RoleClaims {
            role: Role::Admin,
            name: "standby".into(),
            not_before: now.saturating_sub(60),
            expires: now + 300,
        };
        let token = self.key.sign(&Claims::Role(claims));
        Ok(Broker::new(&self.url, &token, &self.tls)?.with_patience(PATIENCE))
    }

    /// How it is; `None` where it does not answer.
    pub(crate) fn health(&self) -> Option<Health> {
        self.connect().ok()?.health().ok()
    }

    /// How many nodes it has.
    fn nodes(&self) -> Option<usize> {
        let nodes = self.connect().ok()?.nodes().ok()?;
        Some(nodes.iter().filter(|node| node.state != "client").count())
    }
}

/// Asks the peer again and again, on a thread of its own, until this is dropped.
pub(crate) struct Watch {
    over: Arc<AtomicBool>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
    }
}

/// Whether a peer that says this has the place of an active broker with an epoch of its own. Of two in the same epoch, the one
/// `yields` that its configuration has begin by standing by.
fn supersedes(peer: &Health, own: u64, yields: bool) -> bool {
    !peer.standby && (peer.epoch > own || peer.epoch == own && yields)
}

/// Whether a peer's place is taken that has been silent for so long, where so many of its nodes have come.
fn takes_over(silence: Duration, votes: usize, nodes: usize) -> bool {
    silence >= SILENCE && votes > 0 && votes * 2 > nodes
}

/// Watches the peer of an active broker: tells each time whether it answers, and when it has taken over.
pub(crate) fn watch_rival(
    peer: Arc<Peer>,
    yields: bool,
    epoch: impl Fn() -> u64 + Send + 'static,
    answers: impl Fn(bool) + Send + 'static,
    superseded: impl Fn() + Send + 'static,
) -> std::io::Result<Watch> {
    let over = Arc::new(AtomicBool::new(false));
    let ends = over.clone();
    std::thread::Builder::new().name("broker-peer".into()).spawn(move || {
        while !ends.load(SeqCst) {
            let health = peer.health();
            answers(health.is_some());
            if let Some(health) = health
                && supersedes(&health, epoch(), yields)
            {
                let (url, epoch) = (peer.url(), health.epoch);
                tracing::warn!("the broker {url} has taken over (epoch {epoch}): this one stands by");
                superseded();
                return;
            }
            std::thread::sleep(EVERY);
        }
    })?;
    Ok(Watch { over })
}

/// What a broker knows that stands by.
pub(crate) struct Standby {
    peer: Arc<Peer>,
    key: PrivateKey,
    started: Instant,
    /// The nodes that have come here, and when last.
    votes: Mutex<HashMap<String, Instant>>,
    /// The highest epoch that was heard of.
    epoch: AtomicU64,
}

impl Standby {
    /// One that has heard nothing yet, but that there was this epoch.
    pub(crate) fn new(peer: Arc<Peer>, key: PrivateKey, epoch: u64) -> Arc<Self> {
        let (votes, started) = (Mutex::default(), Instant::now());
        Arc::new(Self { peer, key, started, votes, epoch: AtomicU64::new(epoch) })
    }

    /// Answers everything but the web page with where to go instead; the page shows that answer.
    pub(crate) fn router(self: &Arc<Self>) -> axum::Router {
        crate::web::router().fallback(answer).with_state(self.clone())
    }

    fn votes(&self) -> usize {
        self.votes_at(Instant::now())
    }

    fn votes_at(&self, now: Instant) -> usize {
        let mut votes = self.votes.lock();
        votes.retain(|_, at| now.saturating_duration_since(*at) < VOTE);
        votes.len()
    }

    /// Waits until this broker is to be active, and says in which epoch; `None` when it is told to stop. With `at_once`, it is where
    /// the peer isn't.
    pub(crate) fn wait(&self, at_once: bool, mut nodes: usize, stop: &AtomicBool) -> Option<u64> {
        let mut heard = Instant::now();
        let mut turn = 0u32;
        while !stop.load(SeqCst) {
            match self.peer.health() {
                Some(health) => {
                    self.epoch.fetch_max(health.epoch, SeqCst);
                    heard = Instant::now();
                    if health.standby && at_once {
                        return Some(self.epoch.load(SeqCst));
                    }
                    if !health.standby && turn.is_multiple_of(5) {
                        nodes = self.peer.nodes().unwrap_or(nodes);
                    }
                    turn = turn.wrapping_add(1);
                }
                None if at_once => return Some(self.epoch.load(SeqCst)),
                None => {
                    let votes = self.votes();
                    if takes_over(heard.elapsed(), votes, nodes) {
                        let next = self.epoch.load(SeqCst) + 1;
                        tracing::warn!(
                            "{} has not answered for {:.0} s, and {votes} of {nodes} nodes have come here: this broker is active now \
                             (epoch {next})",
                            self.peer.url(),
                            heard.elapsed().as_secs_f64()
                        );
                        return Some(next);
                    }
                }
            }
            std::thread::sleep(EVERY);
        }
        None
    }
}

async fn answer(State(standby): State<Arc<Standby>>, uri: Uri, headers: HeaderMap) -> Response {
    let token =
        headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let claims = token.and_then(|token| standby.key.public().verify_role(token, unix_time()).ok());
    if let Some(claims) = claims.filter(|claims| claims.role == Role::Node) {
        standby.votes.lock().insert(claims.name, Instant::now());
    }
    let body = if uri.path() == paths::HEALTH {
        let health = Health {
            status: "this broker stands by".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_s: standby.started.elapsed().as_secs(),
            public_key: standby.key.public().to_text(),
            epoch: standby.epoch.load(SeqCst),
            standby: true,
        };
        serde_json::to_string(&health)
    } else {
        let text = format!("this broker stands by: ask {}", standby.peer.url());
        let error = Problem { code: ErrorCode::Unavailable, message: text };
        serde_json::to_string(&ErrorBody { error })
    };
    // Numbers and text always have a JSON form.
    let headers = [(header::CONTENT_TYPE.as_str(), "application/json"), (STANDBY_HEADER, "1")];
    (StatusCode::SERVICE_UNAVAILABLE, headers, body.unwrap_or_default()).into_response()
}

#[cfg(test)]
mod tests;
