//! The REST API: from HTTP to [`Engine`]'s methods and back.
//!
//! One table ([`table()`]) says which operations there are: where, for whom, with which bodies. The router, the checks of role
//! tokens and the OpenAPI description are all made from it, so that none of them can differ from the others.

mod auth;
mod describe;
mod events;
mod failure;
mod handlers;
mod input;
mod lasting;
mod operation;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::Method;
use axum::middleware;
use axum::routing::{MethodFilter, MethodRouter, on};
use rgpu_control::api::*;
use rgpu_control::token::{PublicKey, Role};
use tokio::sync::watch::Receiver;

use crate::engine::Engine;
use crate::metrics::Metrics;
use operation::{Access, Operation};

pub use describe::openapi;

/// The longest body that is read, in bytes.
pub const MAX_BODY: usize = 1 << 20;
/// How long a request's body may take.
pub const BODY_TIME: Duration = Duration::from_secs(20);
/// The longest that a request may ask to wait, in seconds.
pub const MAX_WAIT_S: u32 = 60;

/// What all requests share.
#[derive(Clone)]
pub struct Shared(Arc<Inner>);

struct Inner {
    engine: Engine,
    tokens: auth::Tokens,
    under_way: lasting::UnderWay,
    metrics: Arc<Metrics>,
    node_switches: BTreeMap<String, String>,
    open_metrics: bool,
    stopping: Receiver<bool>,
}

/// What [`Shared`] is made of.
pub struct Parts {
    /// Does the work.
    pub engine: Engine,
    /// The key that role tokens are checked with.
    pub key: PublicKey,
    /// Where requests are counted.
    pub metrics: Arc<Metrics>,
    /// Which switch a node is at, where the node doesn't say.
    pub node_switches: BTreeMap<String, String>,
    /// Whether metrics need no token.
    pub open_metrics: bool,
    /// How many requests of one token there may be at a time.
    pub max_per_token: usize,
    /// Becomes true when the broker is to stop: what waits is then answered at once.
    pub stopping: Receiver<bool>,
}

impl Shared {
    /// For one broker.
    pub fn new(parts: Parts) -> Self {
        let Parts { engine, key, metrics, node_switches, open_metrics, max_per_token, stopping } = parts;
        let tokens = auth::Tokens::new(key);
        let under_way = lasting::UnderWay::new(max_per_token);
        Self(Arc::new(Inner { engine, tokens, under_way, metrics, node_switches, open_metrics, stopping }))
    }

    /// Returns when the broker is to stop.
    async fn stopping(&self) {
        let mut stopping = self.0.stopping.clone();
        // Where nobody can say so any more, it is over as well.
        let _ = stopping.wait_for(|stop| *stop).await;
    }
}

type Route = (Operation, MethodRouter<Shared>);

fn filter(method: &Method) -> MethodFilter {
    MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::TRACE)
}

/// Who has leases, and who asks for them on behalf of others.
const LESSEES: &[Role] = &[Role::Tenant, Role::Engine];

/// Every operation, and what answers it.
fn table() -> Vec<Route> {
    use ErrorCode::{Conflict, Impossible, Limit, NotFound, Unavailable};
    use handlers as h;
    let mut routes: Vec<Route> = Vec::new();
    macro_rules! route {
        ($operation:expr => $handler:path) => {{
            let operation: Operation = $operation;
            let handler = on(filter(&operation.method), $handler);
            routes.push((operation, handler));
        }};
    }
    let get = |path, id, summary| Operation::new(Method::GET, path, id, summary);
    let post = |path, id, summary| Operation::new(Method::POST, path, id, summary);
    let delete = |path, id, summary| Operation::new(Method::DELETE, path, id, summary);
    let wait = "How many seconds the answer may take, 60 at most";

    route!(get(paths::HEALTH, "health", "Whether the broker is well").open().answers::<Health>() => h::health);
    route!(get(paths::OPENAPI, "openapi", "This description").open().answers_text("application/json") => describe::serve);
    route!(get(paths::METRICS, "metrics", "Metrics, in OpenMetrics' text format")
        .access(Access::Metrics).answers_text(crate::metrics::CONTENT_TYPE) => h::metrics);
    route!(get(paths::SUMMARY, "summary", "The cluster in a few numbers").answers::<Summary>() => h::summary);

    route!(get(paths::NODES, "nodes", "The nodes").answers_list::<Node>() => h::nodes);
    route!(post(paths::NODES, "register_node", "Introduces a node")
        .roles(&[Role::Node]).takes::<Registration>().answers::<Welcome>().fails(&[Conflict, Unavailable]) => h::register);
    route!(get(paths::NODE, "node", "A node").answers::<Node>().fails(&[NotFound]) => h::node);
    route!(delete(paths::NODE, "remove_node", "Forgets a node that is lost, or drained and without leases")
        .roles(&[]).answers_nothing().fails(&[NotFound, Conflict, Unavailable]) => h::remove_node);
    route!(post(paths::HEARTBEAT, "heartbeat", "Says how a node is; an unknown one is to register (409)")
        .roles(&[Role::Node]).takes::<Heartbeat>().answers::<Orders>().fails(&[NotFound, Conflict, Unavailable]) => h::heartbeat);
    route!(get(paths::ORDERS, "orders", "What a node is to do, as soon as it is newer than what it has seen")
        .roles(&[Role::Node]).query("seen", "The version of the orders that the node has").query("wait_s", wait)
        .answers::<Orders>().fails(&[NotFound, Conflict]) => h::orders);
    route!(post(paths::DRAIN, "drain", "Says whether a node gets new leases")
        .roles(&[]).takes::<Drain>().answers_nothing().fails(&[NotFound, Unavailable]) => h::drain);
    route!(get(paths::HISTORY, "node_history", "What a node and its devices measured over the last hour")
        .query("since", "Only what came after this moment, in seconds since 1970")
        .answers::<NodeHistory>().fails(&[NotFound]) => h::history);
    route!(get(paths::DEVICES, "devices", "The devices").answers_list::<Device>() => h::devices);

    route!(get(paths::LEASES, "leases", "The leases; a tenant sees its own, an engine its tenants'")
        .roles(LESSEES).flag("all", "Whether those too that ended lately").answers_list::<Lease>() => h::leases);
    route!(post(paths::LEASES, "request_lease", "Asks for a lease; it is granted, or waits")
        .roles(LESSEES).takes::<LeaseRequest>().creates::<Lease>()
        .fails(&[Conflict, Impossible, Limit, Unavailable]) => h::request_lease);
    route!(get(paths::LEASE, "lease", "A lease, as soon as it no longer waits")
        .roles(LESSEES).query("wait_s", wait).answers::<Lease>().fails(&[NotFound]) => h::lease);
    route!(Operation::new(Method::PATCH, paths::LEASE, "change_lease", "Changes a lease's memory or share")
        .roles(&[Role::Tenant]).takes::<LeaseChange>().answers::<Lease>()
        .fails(&[NotFound, Conflict, Impossible, Limit, Unavailable]) => h::change_lease);
    route!(delete(paths::LEASE, "release_lease", "Gives a lease back; one that has ended is no error")
        .roles(LESSEES).flag("completed", "Whether its program has ended well: something is learnt from its run then")
        .answers_nothing().fails(&[NotFound, Unavailable]) => h::release_lease);
    route!(post(paths::RENEW, "renew_lease", "Gives a lease more time, and a token that says so")
        .roles(LESSEES).takes::<Renewal>().answers::<Lease>().fails(&[NotFound, Conflict, Unavailable]) => h::renew_lease);
    route!(get(paths::EXPLAIN, "explain_lease", "Why a lease is where it is, or waits")
        .roles(LESSEES).answers::<LeaseExplanation>().fails(&[NotFound]) => h::explain_lease);
    route!(get(paths::JOBS, "jobs", "What waits and runs, as the placement sees it")
        .roles(LESSEES).answers_list::<Job>() => h::jobs);

    route!(get(paths::ROUNDS, "rounds", "What the latest placement rounds came to; a tenant sees its own leases and how many there were")
        .roles(LESSEES).answers_list::<RoundOutcome>() => h::rounds);

    route!(get(paths::PROFILES, "profiles", "What was learnt of programs from their runs; a tenant sees its own")
        .roles(&[Role::Tenant]).answers_list::<LearntProfile>() => h::profiles);
    route!(delete(paths::PROFILE, "forget_profile", "Forgets what was learnt of a program")
        .roles(&[Role::Tenant]).answers_nothing()
        .fails(&[NotFound, Unavailable]) => h::forget_profile);
    route!(get(paths::POLICY, "policy", "The policies").answers::<Policies>() => h::policies);
    route!(Operation::new(Method::PUT, paths::POLICY, "set_policy", "Sets the policy that decides")
        .roles(&[]).takes::<PolicySettings>().answers::<Policies>().fails(&[Unavailable]) => h::set_policy);
    route!(get(paths::EVENTS, "events", "Server-sent events, each an `Event`; a tenant sees its own and those of nodes")
        .query("since", "Begin after this number; without it, with what happens next. The header Last-Event-ID does the same")
        .streams::<Event>() => events::events);
    route!(post(paths::TOKENS, "issue_token", "Issues a role token")
        .roles(&[]).takes::<TokenRequest>().answers::<IssuedToken>() => h::issue_token);
    route!(get(paths::TOKENS, "tokens", "The role tokens that were shown lately, and those that were withdrawn")
        .roles(&[]).answers::<TokenList>() => h::tokens);
    route!(post(paths::WITHDRAW, "withdraw_tokens", "Withdraws a role token, or all of a name; the answer is all that were")
        .roles(&[]).takes::<TokenWithdrawal>().answers_list::<WithdrawnTokens>().fails(&[Limit, Unavailable])
        => h::withdraw_tokens);
    route!(get(paths::TENANTS, "tenants", "The tenants, their limits and what they have")
        .roles(&[]).answers_list::<Tenant>() => h::tenants);
    routes
}

/// The service that answers requests.
pub fn router(shared: &Shared) -> Router {
    let mut router = Router::new();
    for (operation, handler) in table() {
        let path = operation.path;
        let guard = auth::Guard { shared: shared.clone(), access: operation.access };
        router = router.route(path, handler.route_layer(middleware::from_fn_with_state(guard, auth::check)));
    }
    router
        .merge(crate::web::router())
        .fallback(failure::no_such_path)
        .method_not_allowed_fallback(failure::method_not_allowed)
        .layer(middleware::from_fn_with_state(shared.clone(), watch::watch))
        .with_state(shared.clone())
}
