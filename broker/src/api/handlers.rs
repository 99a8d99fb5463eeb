//! The operations. Who may call them was checked before; what of it they may see or change, the engine checks.

use axum::extract::{Extension, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use rgpu_control::LeaseId;
use rgpu_control::api::*;
use rgpu_control::token::{Role, RoleClaims};
use serde::Deserialize;

use super::auth::From;
use super::failure::{Failure, Json};
use super::input::{Id, Input, Name, Query};
use super::{MAX_WAIT_S, Shared};
use crate::engine::{Caller, Engine};
use crate::metrics::Snapshot;

type Answer<T> = Result<Json<T>, Failure>;

fn json<T>(result: Result<T, Problem>) -> Answer<T> {
    result.map(Json).map_err(Failure::from)
}

fn nothing(result: Result<(), Problem>) -> Result<StatusCode, Failure> {
    result.map(|()| StatusCode::NO_CONTENT).map_err(Failure::from)
}

/// How long to wait, from what was asked for.
fn wait_s(asked: Option<u32>) -> Result<u32, Failure> {
    match asked.unwrap_or(0) {
        wait if wait <= MAX_WAIT_S => Ok(wait),
        wait => Err(Failure::bad(format!("wait_s is {wait}; it can be {MAX_WAIT_S} at most"))),
    }
}

// ---- about the broker ----

pub(super) async fn health(State(shared): State<Shared>) -> Response {
    let health = shared.0.engine.health().await;
    let status = if health.status == "ok" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(health)).into_response()
}

pub(super) async fn metrics(
    State(shared): State<Shared>,
    caller: Option<Extension<Caller>>,
) -> Result<Response, Failure> {
    let engine = &shared.0.engine;
    // Numbers about nodes and devices are everybody's, those about a tenant its own. Without a token, where the configuration allows
    // that, and for administrators, it is all.
    let all = Caller { role: Role::Admin, name: "metrics".into() };
    let caller = caller.map_or_else(|| all.clone(), |Extension(caller)| caller);
    let snapshot = Snapshot {
        counters: engine.counters(),
        nodes: engine.nodes(&all)?,
        devices: engine.devices(&all)?,
        leases: if caller.role == Role::Node { Vec::new() } else { engine.leases(&caller, false)? },
        now: rgpu_control::unix_time(),
        version: env!("CARGO_PKG_VERSION").into(),
    };
    let text = shared.0.metrics.text(snapshot);
    let text =
        text.map_err(|e| Failure::new(ErrorCode::Internal, format!("metrics cannot be written: {e}")))?;
    Ok(([(header::CONTENT_TYPE, crate::metrics::CONTENT_TYPE)], text).into_response())
}

pub(super) async fn summary(State(shared): State<Shared>, From(caller): From) -> Answer<Summary> {
    json(shared.0.engine.summary(&caller))
}

// ---- nodes ----

pub(super) async fn nodes(State(shared): State<Shared>, From(caller): From) -> Answer<Vec<Node>> {
    json(shared.0.engine.nodes(&caller))
}

pub(super) async fn node(State(shared): State<Shared>, From(caller): From, Name(name): Name) -> Answer<Node> {
    json(shared.0.engine.node(&caller, &name))
}

pub(super) async fn register(
    State(shared): State<Shared>,
    From(caller): From,
    Input(mut node): Input<Registration>,
) -> Answer<Welcome> {
    if node.switch.is_none() {
        node.switch = shared.0.node_switches.get(&node.name).cloned();
    }
    json(shared.0.engine.register(&caller, node).await)
}

pub(super) async fn remove_node(
    State(shared): State<Shared>,
    From(caller): From,
    Name(name): Name,
) -> Result<StatusCode, Failure> {
    nothing(shared.0.engine.remove_node(&caller, &name).await)
}

pub(super) async fn heartbeat(
    State(shared): State<Shared>,
    From(caller): From,
    Name(name): Name,
    Input(beat): Input<Heartbeat>,
) -> Answer<Orders> {
    json(shared.0.engine.heartbeat(&caller, &name, beat).await)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OrdersQuery {
    seen: Option<u64>,
    wait_s: Option<u32>,
}

pub(super) async fn orders(
    State(shared): State<Shared>,
    From(caller): From,
    Name(name): Name,
    Query(query): Query<OrdersQuery>,
) -> Answer<Orders> {
    let engine = &shared.0.engine;
    let (seen, wait) = (query.seen.unwrap_or(0), wait_s(query.wait_s)?);
    if wait > 0 {
        tokio::select! {
            result = engine.orders(&caller, &name, seen, wait) => return json(result),
            () = shared.stopping() => {}
        }
    }
    json(engine.orders(&caller, &name, seen, 0).await)
}

pub(super) async fn drain(
    State(shared): State<Shared>,
    From(caller): From,
    Name(name): Name,
    Input(drain): Input<Drain>,
) -> Result<StatusCode, Failure> {
    nothing(shared.0.engine.drain(&caller, &name, drain.drain).await)
}

pub(super) async fn devices(State(shared): State<Shared>, From(caller): From) -> Answer<Vec<Device>> {
    json(shared.0.engine.devices(&caller))
}

// ---- leases ----

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LeasesQuery {
    all: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    since: Option<u64>,
}

pub(super) async fn history(
    State(shared): State<Shared>,
    From(caller): From,
    Name(name): Name,
    Query(query): Query<HistoryQuery>,
) -> Answer<NodeHistory> {
    json(shared.0.engine.history(&caller, &name, query.since.unwrap_or(0)))
}

pub(super) async fn rounds(State(shared): State<Shared>, From(caller): From) -> Answer<Vec<RoundOutcome>> {
    json(shared.0.engine.rounds(&caller))
}

pub(super) async fn leases(
    State(shared): State<Shared>,
    From(caller): From,
    Query(query): Query<LeasesQuery>,
) -> Answer<Vec<Lease>> {
    json(shared.0.engine.leases(&caller, query.all.unwrap_or(false)))
}

/// Gives a lease back that nobody will ever know of: whoever asked for it went away before it was answered.
struct Unanswered(Option<(Engine, Caller, LeaseId)>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        let Some((engine, caller, id)) = self.0.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            tracing::debug!("lease {id} is given back: whoever asked for it has gone");
            if let Err(problem) = engine.abandon(&caller, id).await {
                tracing::warn!("lease {id}, whose asker has gone, cannot be given back: {}", problem.message);
            }
        });
    }
}

/// A lease, as soon as it no longer waits, or the time or the broker is over.
async fn waited(shared: &Shared, caller: &Caller, id: LeaseId, wait: u32) -> Result<Lease, Problem> {
    let engine = &shared.0.engine;
    if wait > 0 {
        tokio::select! {
            result = engine.lease(caller, id, wait) => return result,
            () = shared.stopping() => {}
        }
    }
    engine.lease(caller, id, 0).await
}

pub(super) async fn request_lease(
    State(shared): State<Shared>,
    From(caller): From,
    Input(mut request): Input<LeaseRequest>,
) -> Result<Response, Failure> {
    let wait = wait_s(Some(request.wait_s))?;
    // What was asked for is in the queue, also where the broker stops during the wait: the two are separate. Whether there is
    // something now is the engine's to say.
    let (engine, task_caller) = (shared.0.engine.clone(), caller.clone());
    if !request.now_or_never {
        request.wait_s = 0;
    }
    // Once begun, this is done to its end, also where the connection breaks.
    let nameless = request.key.is_none();
    let asked = tokio::spawn(async move {
        let lease = engine.request_lease(&task_caller, request).await?;
        let unanswered = Unanswered(nameless.then_some((engine, task_caller, lease.id)));
        Ok::<_, Problem>((lease, unanswered))
    });
    let asked = asked
        .await
        .map_err(|e| Failure::new(ErrorCode::Internal, format!("a request for a lease failed: {e}")))?;
    let (mut lease, mut unanswered) = asked?;
    if lease.state == LeaseState::Waiting && wait > 0 {
        lease = waited(&shared, &caller, lease.id, wait).await?;
    }
    unanswered.0 = None;
    let location = [(header::LOCATION, format!("{}/{}", paths::LEASES, lease.id))];
    Ok((StatusCode::CREATED, location, Json(lease)).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitQuery {
    wait_s: Option<u32>,
}

pub(super) async fn lease(
    State(shared): State<Shared>,
    From(caller): From,
    Id(id): Id,
    Query(query): Query<WaitQuery>,
) -> Answer<Lease> {
    let wait = wait_s(query.wait_s)?;
    json(waited(&shared, &caller, id, wait).await)
}

pub(super) async fn change_lease(
    State(shared): State<Shared>,
    From(caller): From,
    Id(id): Id,
    Input(change): Input<LeaseChange>,
) -> Answer<Lease> {
    json(shared.0.engine.change(&caller, id, change).await)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseQuery {
    completed: Option<bool>,
}

pub(super) async fn release_lease(
    State(shared): State<Shared>,
    From(caller): From,
    Id(id): Id,
    Query(query): Query<ReleaseQuery>,
) -> Result<StatusCode, Failure> {
    let engine = &shared.0.engine;
    nothing(match query.completed.unwrap_or(false) {
        true => engine.complete(&caller, id).await,
        false => engine.release(&caller, id).await,
    })
}

pub(super) async fn renew_lease(
    State(shared): State<Shared>,
    From(caller): From,
    Id(id): Id,
    Input(Renewal {}): Input<Renewal>,
) -> Answer<Lease> {
    json(shared.0.engine.renew(&caller, id).await)
}

pub(super) async fn explain_lease(
    State(shared): State<Shared>,
    From(caller): From,
    Id(id): Id,
) -> Answer<LeaseExplanation> {
    json(shared.0.engine.explain(&caller, id).await)
}

pub(super) async fn jobs(State(shared): State<Shared>, From(caller): From) -> Answer<Vec<Job>> {
    json(shared.0.engine.jobs(&caller))
}

// ---- the rest ----

pub(super) async fn profiles(State(shared): State<Shared>, From(caller): From) -> Answer<Vec<LearntProfile>> {
    json(shared.0.engine.profiles(&caller))
}

pub(super) async fn forget_profile(
    State(shared): State<Shared>,
    From(caller): From,
    Name(program): Name,
) -> Result<StatusCode, Failure> {
    nothing(shared.0.engine.forget_profile(&caller, &program).await)
}

pub(super) async fn policies(State(shared): State<Shared>, From(caller): From) -> Answer<Policies> {
    json(shared.0.engine.policies(&caller))
}

pub(super) async fn set_policy(
    State(shared): State<Shared>,
    From(caller): From,
    Input(settings): Input<PolicySettings>,
) -> Answer<Policies> {
    json(shared.0.engine.set_policy(&caller, settings).await)
}

pub(super) async fn issue_token(
    State(shared): State<Shared>,
    From(caller): From,
    Input(request): Input<TokenRequest>,
) -> Answer<IssuedToken> {
    json(shared.0.engine.issue_token(&caller, &request))
}

pub(super) async fn tokens(State(shared): State<Shared>, From(_): From) -> Answer<TokenList> {
    let withdrawn = shared.0.engine.withdrawn();
    let claims = |token: &SeenToken| RoleClaims {
        role: token.role,
        name: token.name.clone(),
        not_before: token.issued,
        expires: token.expires,
    };
    let now = rgpu_control::unix_time();
    let counts = |token: &SeenToken| token.expires >= now && !withdrawn.has(&token.id, &claims(token));
    let seen = shared.0.tokens.seen().into_iter().filter(counts).collect();
    Ok(Json(TokenList { seen, withdrawn: withdrawn.list().to_vec() }))
}

pub(super) async fn withdraw_tokens(
    State(shared): State<Shared>,
    From(caller): From,
    Input(request): Input<TokenWithdrawal>,
) -> Answer<Vec<WithdrawnTokens>> {
    json(shared.0.engine.withdraw_tokens(&caller, request).await)
}

pub(super) async fn tenants(State(shared): State<Shared>, From(caller): From) -> Answer<Vec<Tenant>> {
    json(shared.0.engine.tenants(&caller))
}
