//! What there is, and who has what.

mod clock;
mod counters;
mod settings;

use std::sync::Arc;

use rgpu_control::LeaseId;
use rgpu_control::api::*;
use rgpu_control::token::{PrivateKey, PublicKey, Role};

pub use clock::{Clock, SystemClock};
pub use counters::{Counters, Histogram};
pub use settings::{Limits, ProfileSettings, Settings};

use crate::store::{Store, StoreError};

/// Who asks: what a role token said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// What they may do.
    pub role: Role,
    /// The tenant's, node's or administrator's name.
    pub name: String,
}

/// Why the engine doesn't start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting makes no sense.
    #[error("{0}")]
    Settings(String),
    /// The state cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A thread cannot be started.
    #[error("a thread cannot be started: {0}")]
    Thread(std::io::Error),
}

/// The broker's state and everything that can be done with it. Clones are the same engine.
///
/// Methods that change something are async: they answer once the change is stored. Those that only look are not, and take
/// little time. All of them check what the caller may do.
#[derive(Clone)]
pub struct Engine(Arc<()>);

/// A caller's events, as they happen.
pub struct Events(());

impl Events {
    /// The next one that the caller may see; `None` when the engine stops. Can be cancelled.
    pub async fn next(&mut self) -> Option<Event> {
        None
    }
}

fn todo<T>() -> Result<T, Problem> {
    Err(Problem { code: ErrorCode::Internal, message: "not implemented yet".into() })
}

#[allow(unused_variables, clippy::unused_async, missing_docs)]
impl Engine {
    /// Reads the state and starts the engine's threads. Leases are signed with `key`.
    pub fn start(
        settings: Settings,
        key: PrivateKey,
        store: Box<dyn Store>,
        clock: Arc<dyn Clock>,
    ) -> Result<Engine, StartError> {
        Ok(Engine(Arc::new(())))
    }

    /// Stops: waiting calls are answered with 503, what is decided is stored, threads end. Leases go on.
    pub fn stop(&self) {}

    /// The key that tokens are checked with.
    pub fn public_key(&self) -> PublicKey {
        PrivateKey::generate().public()
    }

    /// Whether all is well.
    pub fn health(&self) -> Health {
        Health { status: String::new(), version: String::new(), uptime_s: 0, public_key: String::new() }
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        Counters::default()
    }

    /// The cluster in a few numbers.
    pub fn summary(&self, caller: &Caller) -> Result<Summary, Problem> {
        todo()
    }

    // ---- nodes ----

    /// A node introduces itself.
    pub async fn register(&self, caller: &Caller, node: Registration) -> Result<Welcome, Problem> {
        todo()
    }

    /// A node says how it is.
    pub async fn heartbeat(&self, caller: &Caller, node: &str, beat: Heartbeat) -> Result<Orders, Problem> {
        todo()
    }

    /// A node's orders, once they are newer than `seen`, at the latest after `wait_s` seconds.
    pub async fn orders(
        &self,
        caller: &Caller,
        node: &str,
        seen: u64,
        wait_s: u32,
    ) -> Result<Orders, Problem> {
        todo()
    }

    /// Whether a node gets new leases.
    pub async fn drain(&self, caller: &Caller, node: &str, drain: bool) -> Result<(), Problem> {
        todo()
    }

    /// Forgets a node that is lost, or drained and without leases.
    pub async fn remove_node(&self, caller: &Caller, node: &str) -> Result<(), Problem> {
        todo()
    }

    /// The nodes, by name.
    pub fn nodes(&self, caller: &Caller) -> Result<Vec<Node>, Problem> {
        todo()
    }

    /// A node.
    pub fn node(&self, caller: &Caller, name: &str) -> Result<Node, Problem> {
        todo()
    }

    /// The devices, by node and number.
    pub fn devices(&self, caller: &Caller) -> Result<Vec<Device>, Problem> {
        todo()
    }

    // ---- leases ----

    /// Asks for a lease. Answers when it is granted, or after `wait_s` seconds, when it goes on waiting.
    pub async fn request_lease(&self, caller: &Caller, request: LeaseRequest) -> Result<Lease, Problem> {
        todo()
    }

    /// A lease, once it no longer waits, at the latest after `wait_s` seconds.
    pub async fn lease(&self, caller: &Caller, id: LeaseId, wait_s: u32) -> Result<Lease, Problem> {
        todo()
    }

    /// The leases that the caller may see, the oldest first; with `all`, those too that ended lately.
    pub fn leases(&self, caller: &Caller, all: bool) -> Result<Vec<Lease>, Problem> {
        todo()
    }

    /// Gives a lease more time.
    pub async fn renew(&self, caller: &Caller, id: LeaseId) -> Result<Lease, Problem> {
        todo()
    }

    /// Changes a lease's memory or share where it is.
    pub async fn change(&self, caller: &Caller, id: LeaseId, change: LeaseChange) -> Result<Lease, Problem> {
        todo()
    }

    /// Gives a lease back. One that has ended already is no error.
    pub async fn release(&self, caller: &Caller, id: LeaseId) -> Result<(), Problem> {
        todo()
    }

    /// Why a lease is where it is, or waits.
    pub async fn explain(&self, caller: &Caller, id: LeaseId) -> Result<LeaseExplanation, Problem> {
        todo()
    }

    /// What waits, first; then what runs.
    pub fn jobs(&self, caller: &Caller) -> Result<Vec<Job>, Problem> {
        todo()
    }

    // ---- the rest ----

    /// The policies.
    pub fn policies(&self, caller: &Caller) -> Result<Policies, Problem> {
        todo()
    }

    /// Sets the policy that decides from now on.
    pub async fn set_policy(&self, caller: &Caller, settings: PolicySettings) -> Result<Policies, Problem> {
        todo()
    }

    /// The events after number `since` and those to come; without it, only those to come.
    pub fn events(&self, caller: &Caller, since: Option<u64>) -> Result<Events, Problem> {
        todo()
    }

    /// Issues a role token.
    pub fn issue_token(&self, caller: &Caller, request: &TokenRequest) -> Result<IssuedToken, Problem> {
        todo()
    }

    /// The tenants: those with leases or limits of their own.
    pub fn tenants(&self, caller: &Caller) -> Result<Vec<Tenant>, Problem> {
        todo()
    }
}
