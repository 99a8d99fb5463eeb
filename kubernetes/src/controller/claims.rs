//! A lease for each allocated claim, and none for others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, ResourceExt};
use rgpu_control::api::{ErrorCode, Lease, LeaseState, Problem};
use rgpu_control::{ClientError, LeaseId};
use serde_json::json;

use super::conditions::{self, Standing};
use crate::claim::{Wanted, is_over, wanted};
use crate::leases::{Asked, Leases, renewal};
use crate::names::FINALIZER;

/// Between two looks at a lease that waits, at first and at most.
const LOOKS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// After a failure that may pass.
const AGAIN: Duration = Duration::from_secs(3);
/// A claim that was refused, and that the scheduler has not taken back: on clusters without binding conditions it stays allocated.
const REFUSED_AGAIN: Duration = Duration::from_secs(30);
/// How long the broker may take with a new request.
const WAIT_S: u32 = 1;

/// What is known of a claim's lease, to spare requests. Nothing follows from it that would not be found out again.
#[derive(Clone)]
struct Known {
    key: String,
    lease: LeaseId,
    /// Of an active one: when to renew it.
    renew: Option<Instant>,
    asked: Instant,
    looks: u32,
}

struct Context {
    client: Client,
    leases: Leases,
    known: Mutex<HashMap<String, Known>>,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the API server: {0}")]
    Api(#[from] kube::Error),
    #[error("{0}")]
    Broker(#[from] ClientError),
}

/// Keeps claims and leases together, for ever.
pub(super) async fn keep(client: Client, leases: Leases) {
    let context = Arc::new(Context { client: client.clone(), leases, known: Mutex::default() });
    let claims: Api<ResourceClaim> = Api::all(client);
    Controller::new(claims, watcher::Config::default())
        .run(reconcile, retry, context)
        .for_each(|done| async move {
            if let Err(error) = done {
                tracing::debug!("{error}");
            }
        })
        .await;
}

fn retry(claim: Arc<ResourceClaim>, failure: &Failure, _: Arc<Context>) -> Action {
    // Somebody else has changed the claim: its new form comes by itself.
    let conflict = matches!(failure, Failure::Api(kube::Error::Api(status)) if status.code == 409);
    if !conflict {
        tracing::warn!("the claim {}: {failure}; trying again", claim.name_any());
    }
    Action::requeue(if conflict { LOOKS[0] } else { AGAIN })
}

async fn reconcile(claim: Arc<ResourceClaim>, context: Arc<Context>) -> Result<Action, Failure> {
    let uid = claim.uid().unwrap_or_default();
    let api: Api<ResourceClaim> =
        Api::namespaced(context.client.clone(), &claim.namespace().unwrap_or_default());
    match wanted(&claim) {
        Some(Ok(wanted)) if !is_over(&claim) => lease(&api, &claim, wanted, &context).await,
        Some(Err(why)) if !is_over(&claim) => {
            conditions::write(&api, &claim, &Standing::refused("Invalid", why)).await?;
            Ok(Action::requeue(REFUSED_AGAIN))
        }
        _ => {
            context.forget(&uid);
            if claim.finalizers().iter().any(|name| name == FINALIZER) {
                context.leases.release_all(&uid).await?;
                tracing::info!(
                    "the claim {}/{} has no lease any more",
                    claim.namespace().unwrap_or_default(),
                    claim.name_any()
                );
                finalizer(&api, &claim, false).await?;
            }
            Ok(Action::await_change())
        }
    }
}

/// Sees to the lease of an allocated claim.
async fn lease(
    api: &Api<ResourceClaim>,
    claim: &ResourceClaim,
    wanted: Wanted,
    context: &Context,
) -> Result<Action, Failure> {
    let deleted = claim.metadata.deletion_timestamp.is_some();
    if !deleted && !claim.finalizers().iter().any(|name| name == FINALIZER) {
        // The changed claim comes back here.
        finalizer(api, claim, true).await?;
        return Ok(Action::requeue(LOOKS[0]));
    }
    let known = context.known(&wanted.uid);
    if let Some(old) = known.as_ref().filter(|known| known.key != wanted.key) {
        context.leases.release(old.lease).await?;
        context.forget(&wanted.uid);
    }
    let known = known.filter(|known| known.key == wanted.key);
    let now = Instant::now();
    if let Some(left) = known.as_ref().and_then(|known| known.renew?.checked_duration_since(now))
        && conditions::says_granted(claim)
    {
        return Ok(Action::requeue(left));
    }
    let asked = match &known {
        Some(known) if known.renew.is_some() => context.leases.renew(known.lease).await,
        // Changes of the claim, above all one's own, are no reason to ask more often.
        Some(known) if known.asked + LOOKS[0] > now => return Ok(Action::requeue(LOOKS[0])),
        Some(known) => context.leases.look(known.lease).await,
        None => None,
    };
    // One that has ended while the claim goes on is replaced: the pod's next program gets GPUs again.
    let asked = match asked {
        Some(asked) => asked,
        None => context.leases.obtain(&wanted, WAIT_S).await,
    };
    let (standing, action) = match asked {
        Asked::Has(lease) => context.standing(&wanted, &lease, known.as_ref()),
        Asked::Refused(problem) => {
            context.forget(&wanted.uid);
            (Standing::refused(word(problem.code), said(&problem)), Action::requeue(REFUSED_AGAIN))
        }
        // A lease that was granted is no worse for a broker that is away for a while.
        Asked::NotNow { message, .. } if conditions::says_granted(claim) => {
            tracing::warn!("the lease of {} is not renewed: {message}", wanted.claim);
            return Ok(Action::requeue(AGAIN));
        }
        Asked::NotNow { reason, message } => (Standing::waiting(reason, message), Action::requeue(AGAIN)),
    };
    conditions::write(api, claim, &standing).await?;
    Ok(action)
}

impl Context {
    fn known(&self, uid: &str) -> Option<Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(uid).cloned()
    }

    fn forget(&self, uid: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    /// What a lease means for its claim, and when to look again.
    fn standing(&self, wanted: &Wanted, lease: &Lease, before: Option<&Known>) -> (Standing, Action) {
        let (standing, next, renew, looks) = match lease.state {
            LeaseState::Active => {
                let next = renewal(lease);
                let nodes: Vec<&str> = lease.grants.iter().map(|grant| grant.node.as_str()).collect();
                let message =
                    format!("The lease {} has {} GPU(s), of {}", lease.id, nodes.len(), nodes.join(", "));
                (Standing::granted(lease.id.to_string(), message), next, Some(Instant::now() + next), 0)
            }
            LeaseState::Waiting => {
                let looks = before.map_or(0, |before| before.looks + 1);
                let message = format!("The lease {} waits: {}", lease.id, lease.reason);
                let next = (LOOKS[0] * (1 + looks / 5)).min(LOOKS[1]);
                (Standing::waiting("Waiting", message), next, None, looks)
            }
            LeaseState::Ending | LeaseState::Ended => {
                self.forget(&wanted.uid);
                let message = format!("The lease {} has ended: {}", lease.id, lease.reason);
                return (Standing::waiting("Ended", message), Action::requeue(LOOKS[0]));
            }
        };
        let known = Known { key: wanted.key.clone(), lease: lease.id, renew, asked: Instant::now(), looks };
        let said = before
            .is_some_and(|before| before.lease == lease.id && before.renew.is_some() == renew.is_some());
        if !said {
            tracing::info!("the claim {} has the lease {}, {}", wanted.claim, lease.id, lease.state.name());
        }
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(wanted.uid.clone(), known);
        (standing, Action::requeue(next))
    }
}

/// Adds or removes the finalizer, unless somebody has changed the claim meanwhile.
async fn finalizer(api: &Api<ResourceClaim>, claim: &ResourceClaim, there: bool) -> Result<(), kube::Error> {
    let mut list: Vec<&str> =
        claim.finalizers().iter().map(String::as_str).filter(|name| *name != FINALIZER).collect();
    if there {
        list.push(FINALIZER);
    }
    let patch = json!({"metadata": {"resourceVersion": claim.resource_version(), "finalizers": list}});
    match api.patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await {
        Err(kube::Error::Api(status)) if !there && status.code == 404 => Ok(()),
        other => other.map(|_| ()),
    }
}

fn said(problem: &Problem) -> String {
    format!("The broker refuses the lease: {}", problem.message)
}

/// The word of a condition's reason.
fn word(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::Impossible => "Impossible",
        ErrorCode::NotFound => "NotFound",
        ErrorCode::Conflict => "Conflict",
        _ => "Refused",
    }
}
