//! The bodies of the broker's REST API.
//!
//! Everything is JSON. A request carries a role token (`Authorization: Bearer …`); an error's body is [`ErrorBody`]. Unknown
//! fields in requests are refused, so that a misspelt option is not silently ignored; in answers they are to be ignored.

mod cluster;
mod forecast;
mod history;
mod lease;
mod machine;
mod node;
mod processors;
mod records;

use serde::{Deserialize, Serialize};

use records::records;

pub use cluster::{
    Event, IssuedToken, LearntProfile, Policies, PolicySettings, Quantity, SeenToken, SettingValue, Summary,
    Tenant, TokenList, TokenRequest, TokenWithdrawal, WithdrawnTokens,
};
pub use forecast::{Alternative, Basis, BlockingLease, StartEstimate};
pub use history::{DeviceHistory, GrantedInRound, LeftInRound, NodeHistory, RoundOutcome};
pub use lease::{
    ExplanationCandidate, ExplanationStep, Job, Lease, LeaseChange, LeaseExplanation, LeaseRequest,
    LeaseSize, LeaseState, LeasedNvme, Renewal,
};
pub use machine::this_machine;
pub use node::{
    Device, DeviceLoad, DeviceReport, Drain, EndedOrder, GrantUsage, Heartbeat, LeaseOrder, LeaseProof,
    LeaseReport, Node, NvmeOrder, NvmeReport, NvmeState, Orders, Peer, PeerTime, Registration, Welcome,
};
pub use processors::{NodeProcessors, ProcessorControls, ProcessorOrder, ProcessorUsage};

/// The header of answers of a broker that only stands by: another one is to be asked.
pub const STANDBY_HEADER: &str = "x-rgpu-standby";

/// Where requests go, below the broker's address. `{…}` stands for a name or an id.
pub mod paths {
    /// GET, nobody needs to be anybody: [`super::Health`].
    pub const HEALTH: &str = "/v1/health";
    /// GET: the OpenAPI description.
    pub const OPENAPI: &str = "/openapi.json";
    /// GET: metrics in Prometheus' text format.
    pub const METRICS: &str = "/metrics";
    /// GET: [`super::Node`]s. POST (node): [`super::Registration`] → [`super::Welcome`].
    pub const NODES: &str = "/v1/nodes";
    /// GET: [`super::Node`]. DELETE (admin): forgets a node that is lost, or drained and without leases.
    pub const NODE: &str = "/v1/nodes/{name}";
    /// POST (node): [`super::Heartbeat`] → [`super::Orders`].
    pub const HEARTBEAT: &str = "/v1/nodes/{name}/heartbeat";
    /// GET (node) `?seen=VERSION&wait_s=N`: [`super::Orders`], as soon as their version is above `seen`, at the latest after
    /// `wait_s` seconds (60 at most).
    pub const ORDERS: &str = "/v1/nodes/{name}/orders";
    /// GET `?since=TIME`: [`super::NodeHistory`], of the last hour or of what came after a moment (in seconds since 1970).
    pub const HISTORY: &str = "/v1/nodes/{name}/history";
    /// POST (admin): [`super::Drain`]: whether the node gets new leases.
    pub const DRAIN: &str = "/v1/nodes/{name}/drain";
    /// GET: [`super::Device`]s.
    pub const DEVICES: &str = "/v1/devices";
    /// GET: [`super::Lease`]s (a tenant sees its own; `?all=true` includes those that ended lately).
    /// POST (tenant): [`super::LeaseRequest`] → [`super::Lease`], waiting or granted.
    pub const LEASES: &str = "/v1/leases";
    /// GET `?wait_s=N`: [`super::Lease`], at once, or as soon as it no longer waits. PATCH: [`super::LeaseChange`] →
    /// [`super::Lease`]. DELETE `?completed=BOOL`: gives it back; with `completed`, its program has ended well, and something is learnt
    /// from its run.
    pub const LEASE: &str = "/v1/leases/{id}";
    /// POST: [`super::Renewal`] → [`super::Lease`] with a token of a later expiry.
    pub const RENEW: &str = "/v1/leases/{id}/renew";
    /// GET: [`super::LeaseExplanation`].
    pub const EXPLAIN: &str = "/v1/leases/{id}/explain";
    /// GET: [`super::Job`]s, what waits first.
    pub const JOBS: &str = "/v1/jobs";
    /// GET: [`super::RoundOutcome`]s of the latest placement rounds, the oldest first.
    pub const ROUNDS: &str = "/v1/rounds";
    /// GET: [`super::LearntProfile`]s; a tenant sees its own.
    pub const PROFILES: &str = "/v1/profiles";
    /// DELETE: forgets what was learnt of the caller's program; an administrator's request is about those of all tenants.
    pub const PROFILE: &str = "/v1/profiles/{name}";
    /// GET: [`super::Policies`]. PUT (admin): [`super::PolicySettings`].
    pub const POLICY: &str = "/v1/policy";
    /// GET `?since=NUMBER`: server-sent events, each [`super::Event`].
    pub const EVENTS: &str = "/v1/events";
    /// GET (admin): [`super::TokenList`]. POST (admin): [`super::TokenRequest`] → [`super::IssuedToken`].
    pub const TOKENS: &str = "/v1/tokens";
    /// POST (admin): [`super::TokenWithdrawal`] → [`super::WithdrawnTokens`], all that are in force.
    pub const WITHDRAW: &str = "/v1/tokens/withdraw";
    /// GET (admin): [`super::Tenant`]s.
    pub const TENANTS: &str = "/v1/tenants";
    /// GET: [`super::Summary`]: what `rgpu status` shows first.
    pub const SUMMARY: &str = "/v1/summary";
}

/// Which kind of failure a request met, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// 400: the request is malformed, or asks for nonsense.
    BadRequest,
    /// 401: no token, or a bad one.
    Unauthorized,
    /// 403: the token's role or tenant may not do that.
    Forbidden,
    /// 404: there is no such thing.
    NotFound,
    /// 405: the method is not for this path.
    MethodNotAllowed,
    /// 409: it contradicts what is (another node of that name, a lease that has ended, …).
    Conflict,
    /// 413: the body is too long.
    TooLarge,
    /// 422: it could never be granted: more than the whole cluster has.
    Impossible,
    /// 429: the tenant's limit is reached.
    Limit,
    /// 500: the broker's own failure; it is in its log.
    Internal,
    /// 503: the state cannot be stored, or the broker is stopping. Nothing was changed; try again later.
    Unavailable,
}

records! {
    /// The body of an answer that is no success.
    pub struct ErrorBody {
        /// What went wrong.
        pub error: Problem,
    }
    /// What went wrong.
    pub struct Problem {
        /// What went wrong, in a form for programs.
        pub code: ErrorCode,
        /// For people: what happened, and what to do.
        pub message: String,
    }
    /// Whether the broker is well.
    pub struct Health {
        /// `ok`, or what is the matter.
        pub status: String,
        /// The release of rgpu that the broker runs.
        pub version: String,
        /// Seconds since it started.
        pub uptime_s: u64,
        /// The key that tokens are checked with, as text.
        pub public_key: String,
        /// How often another broker has taken over before this one: of two that are active, the one with the higher number is.
        #[serde(default)]
        pub epoch: u64,
        /// Whether it only stands by: another broker is active, or none is.
        #[serde(default)]
        pub standby: bool,
    }
}
